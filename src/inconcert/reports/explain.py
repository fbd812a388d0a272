"""Says who holds a thing, since when and where, and why a job, a queue or a schedule does not go on."""

from collections.abc import Awaitable, Callable

from inconcert._core.permit_state import PermitKeys
from inconcert._core.session import SessionRef
from inconcert._redis.protocol.scripts import load
from inconcert._rules.names import check_name
from inconcert.errors import OutcomeUnknown
from inconcert.reports.explain_items import explain_items
from inconcert.reports.explain_job import JobQuestion, explain_queue
from inconcert.reports.explain_members import explain_members
from inconcert.reports.explain_schedule import explain_schedule
from inconcert.reports.explanation import Explanation, Reason, cause
from inconcert.reports.inspect import inspect
from inconcert.reports.report import Deadlock, HeldLock, Inspection, ago, whereabouts
from inconcert.tasks.operating.admin import Tasks
from inconcert.tasks.records.store import JobKeyspace

_INSPECT = load("permits/inspect").bind(PermitKeys)

_LEASES = ("lock", "semaphore", "rwlock", "election")
_KINDS = (*_LEASES, "members", "job", "queue", "items", "schedule")
_MOST = 20  # holders that are told of


async def explain(ref: SessionRef, keyspace: JobKeyspace, tasks: Tasks, thing: str, *, timeout: float) -> Explanation:
    """Explain it; see `Coordinator.explain`."""
    if not isinstance(thing, str):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
        raise TypeError(f"{thing!r} is not a string KIND:NAME; write such as 'lock:item:42'")
    kind, colon, name = thing.partition(":")
    if not colon or kind not in _KINDS:
        raise ValueError(f"{thing!r} is not KIND:NAME with a kind of {', '.join(_KINDS)}; write such as lock:item:42")

    async def ask() -> Inspection | Reason:
        try:
            seen = await inspect(ref.session, ref.keys, timeout=timeout)
        except OutcomeUnknown as error:  # also if the user may not ask
            remedy = "it takes the right that `inconcert acl --inspect` adds"
            return Reason("unasked", f"the processes could not be asked, and {remedy}: {error}")
        assert seen is not None  # noqa: S101 - it asks in any case
        return seen

    if kind == "job":
        seen = await ask()
        return await JobQuestion(ref, keyspace, tasks, name).explanation(seen)
    if kind == "queue":
        return await explain_queue(tasks, check_name(kind, name))
    if kind == "schedule":
        return await explain_schedule(ref, keyspace, tasks, name)
    if kind == "items":
        return await explain_items(ref, name, ask)
    if kind == "members":
        return await explain_members(ref, name, ask)
    return await _explain_lease(ref, kind, name, ask)


async def _explain_lease(
    ref: SessionRef, kind: str, name: str, ask: Callable[[], Awaitable[Inspection | Reason]]
) -> Explanation:
    # The server first: what a process that answers later does not have any more was released in between.
    keys = ref.keys.of(PermitKeys, kind, check_name(kind, name))
    in_line, _, *found = await ref.session.run(_INSPECT(keys))
    granted = {each.decode() for each in found}
    seen = await ask()
    reasons: list[Reason] = []
    is_asked = isinstance(seen, Inspection)
    if isinstance(seen, Reason):
        reasons.append(seen)
        seen = Inspection((), ())
    locks = seen.locks()
    holders = [held for held in locks if held.holder in granted or _is(held, kind, name)]
    waiters = [waiter for waiter in seen.waiters() if (waiter.kind, waiter.name) == (kind, name)]
    waiters = sorted((waiter for waiter in waiters if not waiter.is_redacted), key=lambda waiter: waiter.position or 0)
    answered = {process.id for process in seen.processes if not process.more}
    unseen = sorted(each for each in granted - {held.holder for held in holders} if _session(each) not in answered)
    for held in holders[:_MOST]:
        what = "held" if held.mode is None else f"held for {held.mode} access"
        left = f"lost in {max(0.0, held.remaining):.0f} s unless renewed"
        reasons.append(Reason("held", f"{what} for {ago(held.since)} by {whereabouts(held)}; {left}"))
    reasons += (_unseen(holder, seen if is_asked else None) for holder in unseen[:_MOST])
    if len(holders) + len(unseen) > _MOST:
        reasons.append(Reason("held", f"held by {len(holders) + len(unseen):,} in all"))
    at = {(held.process, held.task_id) for held in holders[:_MOST] if held.task_id is not None}
    reasons += (cause(waiter, locks) for waiter in seen.waiters() if (waiter.process, waiter.task_id) in at)
    is_held = bool(holders or unseen)
    if not is_held and in_line:
        reasons.append(Reason("handed_over", "it is being handed over to the next in line"))
    if in_line > len(waiters):
        reasons.append(Reason("line", f"{in_line:,} wait in line, {len(waiters):,} of them in processes that answered"))
    elif not is_held and not waiters:
        reasons.append(Reason("free", "nobody holds it, and nobody waits for it"))
    return Explanation(
        kind=kind,
        name=name,
        state="held" if is_held else "free",
        reasons=tuple(reasons),
        holders=tuple(holders),
        waiters=tuple(waiters),
        silent=seen.silent,
        deadlocks=tuple(each for each in seen.deadlocks if (kind, name) in each.things or at & _tasks(each)),
    )


def _unseen(holder: str, seen: Inspection | None) -> Reason:
    """About a lease of which no process has told; `seen` is None if they could not be asked."""
    session = _session(holder)
    if seen is None:
        return Reason("held", f"held by {holder}")
    if session in seen.silent:
        why = "whose process did not answer: its event loop stands still, or it is cut off"
        return Reason("silent_holder", f"held by {holder}, {why}")
    if any(process.id == session for process in seen.processes):
        return Reason("held", f"held by {holder}, which its process has left out of a long report")
    why = "whose process is dead or cut off, or does not report; the lease lapses unless it is renewed"
    return Reason("dead_holder", f"held by {holder}, {why}")


def _tasks(deadlock: Deadlock) -> set[tuple[str, int | None]]:
    return {(task.waiter.process, task.waiter.task_id) for task in deadlock.tasks}


def _is(held: HeldLock, kind: str, name: str) -> bool:
    return (held.kind, held.name, held.is_redacted) == (kind, name, False)


def _session(holder: str) -> str:
    return holder.partition(".")[0]
