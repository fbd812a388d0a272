"""Says why the items of a queue are not handed over, and who holds those that were."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence

from inconcert._claims.dead_letters import DeadLetter, DeadLetters
from inconcert._claims.held import HeldClaim, holding, read_held
from inconcert._core.session import SessionRef
from inconcert._rules.durations import in_words
from inconcert.queues.store import INSPECT, ItemKeys, QueueState, read_state
from inconcert.reports.explanation import Explanation, Reason
from inconcert.reports.report import Inspection, ItemConsumer, ProcessReport, ago, whereabouts

_MOST = 20  # consumers that are told of


async def explain_items(ref: SessionRef, name: str, ask: Callable[[], Awaitable[Inspection | Reason]]) -> Explanation:
    """The service of a queue of items."""
    keys = ItemKeys(ref.keys, name)
    # The server first: what a process that answers later does not have any more has ended in between.
    claims = await read_held(ref.session, keys, await holding(ref.session, keys))
    state, _ = read_state(await ref.session.run(INSPECT(keys, keys.only, skip=0, limit=0)))
    dead = await DeadLetters(ref, keys).latest(limit=1) if state.dead else []
    seen = await ask()
    return _Found(name, state, claims, dead, seen).explanation()


class _Found:
    """The state of a queue, on the server and in the processes."""

    def __init__(
        self,
        name: str,
        state: QueueState,
        claims: Sequence[HeldClaim],
        dead: Sequence[DeadLetter],
        seen: Inspection | Reason,
    ) -> None:
        self._name = name
        self._state = state
        self._dead = dead
        self._unasked = seen if isinstance(seen, Reason) else None
        self._seen = Inspection((), ()) if isinstance(seen, Reason) else seen
        self._processes = {process.id: process for process in self._seen.processes}
        self._claims: defaultdict[str, list[HeldClaim]] = defaultdict(list)  # of each worker, the oldest first
        for claim in sorted(claims, key=lambda claim: claim.claimed_at):
            self._claims[claim.worker.decode()].append(claim)
        consumers = [(process, each) for process in self._seen.processes for each in process.consumers]
        self._waiting = [(process, each) for process, each in consumers if each.waiting and self._is_it(each)]
        self._items = {item.id: item for _, each in consumers if self._is_it(each) for item in each.holds}
        self._callers = [
            waiter
            for waiter in self._seen.waiters()
            if (waiter.kind, waiter.name, waiter.is_redacted) == ("items", name, False)
        ]
        self._is_certain = not (self._unasked or self._seen.silent or any(each.is_redacted for _, each in consumers))

    def explanation(self) -> Explanation:
        """Its consumers, and the reasons why its items are not handed over."""
        state = self._state
        takers = bool(self._waiting) or not all(map(self._is_dead, self._claims))
        is_used = (
            takers
            or state.shut
            or self._callers
            or any((state.ready, state.delayed, state.claimed, state.dead, state.in_line))
        )
        if not is_used and self._is_certain:
            why = "nothing is in it, and nobody takes from it; is the name right?"
            return Explanation(kind="items", name=self._name, state="unknown", reasons=(Reason("unknown", why),))
        standing = "served" if takers else "unserved" if self._is_certain else "unknown"
        reasons = [self._unasked] if self._unasked else []
        return Explanation(
            kind="items",
            name=self._name,
            state="shut" if state.shut else standing,
            reasons=(*reasons, *self._whether_handed_over(takers=takers), *self._consumers(), *self._contents()),
            silent=self._seen.silent,
        )

    # Private.

    def _whether_handed_over(self, *, takers: bool) -> Iterator[Reason]:
        state = self._state
        if state.shut:
            yield Reason("shut", "it was shut down: nothing is put in until reopen(), and get() ends when all are done")
        if state.ready and self._waiting:
            yield Reason("handed_over", "items are ready and calls of get() wait: they are being handed over")
        elif state.ready and takers and self._is_certain:
            yield Reason("busy", "nobody waits for an item: all that take from it hold some, and handle them")
        elif not takers and self._is_certain:
            yield Reason("no_consumer", "nobody takes from it: call get() in some process, or correct the name")
        if not state.ready and state.due_in_ms >= 0:
            yield Reason(
                "not_due", f"no item is ready; the first delayed one is due in {in_words(state.due_in_ms / 1000)}"
            )

    def _consumers(self) -> Iterator[Reason]:
        for process, consumer in self._waiting[:_MOST]:
            where = _where(process, consumer.task, consumer.line)
            calls = "" if consumer.waiting == 1 else f", in {consumer.waiting:,} calls"
            yield Reason("served", f"{where} waits for an item{calls}")
        for worker in list(self._claims)[:_MOST]:
            yield self._holder(worker)
        left = len(self._waiting[_MOST:]) + len(list(self._claims)[_MOST:])
        if left:
            yield Reason("served", f"so do others: {left:,}")

    def _holder(self, worker: str) -> Reason:
        claims = self._claims[worker]
        oldest, process = claims[0], self._processes.get(_session(worker))
        what = f"holds {len(claims):,} items" if len(claims) > 1 else "holds an item"
        since = ago(oldest.claimed_at, self._state.now_ms / 1000)
        what = f"{what}, {oldest.id!r} for {since}, attempt {oldest.attempt}"
        if process is not None:
            item = self._items.get(oldest.id)
            return Reason("claimed", f"{_where(process)} {what}{'' if item is None else _at(item.task, item.line)}")
        if self._unasked:
            return Reason("claimed", f"worker {worker} {what}")
        if not self._is_dead(worker):
            why = "and its process did not answer: its event loop stands still, or it is cut off"
            return Reason("silent_holder", f"worker {worker} {what}, {why}")
        why = "and its process is dead or cut off: any consumer requeues it when its heartbeat has lapsed"
        return Reason("dead_holder", f"worker {worker} {what}, {why}")

    def _contents(self) -> Iterator[Reason]:
        state = self._state
        if state.in_line:
            yield Reason("line", f"calls of put() wait in line for room: {state.in_line:,}")
        for caller in self._callers[:_MOST]:
            what = "for room, in put()" if caller.mode == "put" else "until all items are done, in join()"
            yield Reason("waits", f"{whereabouts(caller)} waits {what}, for {ago(caller.since)}")
        for letter in self._dead:
            when = ago(letter.died_at, state.now_ms / 1000)
            yield Reason(
                "dead", f"items were dead-lettered: {state.dead:,}, the latest {when} ago: {letter.reason.reason}"
            )
        oldest = f" (the oldest for {in_words(state.oldest_ms / 1000)})" if state.oldest_ms >= 0 else ""
        yield Reason(
            "backlog",
            f"its items: {state.ready:,} ready{oldest}, {state.delayed:,} due later, {state.claimed:,} claimed, "
            f"{state.dead:,} dead",
        )

    def _is_it(self, consumer: ItemConsumer) -> bool:
        return consumer.name == self._name and not consumer.is_redacted

    def _is_dead(self, worker: str) -> bool:
        """True if its process is not there any more."""
        session = _session(worker)
        return self._unasked is None and session not in self._processes and session not in self._seen.silent


def _where(process: ProcessReport, task: str | None = None, line: str | None = None) -> str:
    return f"process {process.pid} on {process.host}{_at(task, line)}"


def _at(task: str | None, line: str | None) -> str:
    return ("" if task is None else f", task {task!r}") + ("" if line is None else f", at {line}")


def _session(worker: str) -> str:
    return worker.partition(".")[0]
