"""The scripts of tasks against a dictionary: whatever happens in whatever order, each job is where it must be."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fakeredis import FakeRedis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from inconcert._claims.claimed import Row
from inconcert._claims.keys import (
    CLAIM,
    CLAIMED_QUEUES,
    HEARTBEAT,
    PROMOTE,
    QueueKeys,
)
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.scripts import Command
from inconcert.tasks.following.cancellation import STILL_RUNS
from inconcert.tasks.records.store import (
    ACK_WITH_PLUGS,
    CANCEL,
    DEBOUNCE,
    ENQUEUE,
    ENQUEUE_AFTER,
    FREE_NAMES,
    PROGRESS,
    RESCHEDULE,
    RESOLVE_DEPENDENTS,
    WAIT_AGAIN,
    WATCH,
    JobKeys,
)
from tests.support.ledger import read_ledger_now
from tests.support.world import examples

QUEUES = ("high", "low")
MOST_CRASHES = 3
HOUR = 3_600_000  # milliseconds
INBOXES = "inbox:"
MOST_KEPT = 5  # ends
USUAL = 5  # the priority of a job that says none

orders = st.sampled_from([("high", "low"), ("low", "high"), ("high",)])
queues = st.sampled_from(QUEUES)
counts = st.integers(1, 5)
picks = st.integers(0, 1000)
names = st.sampled_from(["", "one name"])
priorities = st.sampled_from([USUAL, 0, 9])


def recorded(priority: int) -> str:
    """The envelope of a job whose end is to be in the history of its task."""
    return f"3 #{MOST_KEPT}:ab{'' if priority == USUAL else f'!{priority}'} {{}}"


@dataclass
class Worker:
    """What one worker has, as the model sees it."""

    name: str
    is_alive: bool = True
    number: int = 0
    last: list[str] = field(default_factory=list[str])  # claimed by the last claim
    held: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])  # position and queue, in order


class TasksModel(RuleBasedStateMachine):
    """Any number of workers on two queues."""

    def __init__(self) -> None:
        super().__init__()
        self.client: Any = FakeRedis()
        self.keys = JobKeys(Keyspace("model"))
        self.queues: dict[str, QueueKeys] = {name: self.keys.queue(name) for name in QUEUES}
        self.ready: dict[str, list[str]] = {name: [] for name in QUEUES}
        self.delayed: dict[str, list[str]] = {name: [] for name in QUEUES}
        self.priority: dict[str, int] = {}
        self.dead: dict[str, str] = {}  # and the queue that each came from
        self.failures: dict[str, int] = {}
        self.crashes: dict[str, int] = {}
        self.progress: dict[str, str] = {}  # and the number of the report
        self.workers: list[Worker] = []
        self.put = 0
        self.rescheduled = 0
        self.requests = 0
        self.ended: dict[str, str] = {}  # what became of those that succeeded or were cancelled
        self.purged: set[str] = set()
        self.history: list[set[tuple[str, str]]] = []  # of those that ended, in order; together if no order is promised
        self.cancelling: set[str] = set()
        self.names: dict[str, str] = {}  # unique name -> who has it, or had it when it was cancelled or set aside
        self.name_of: dict[str, str] = {}
        self.debounced: set[str] = set()  # those that a later call of their name replaces while they wait
        self.after: dict[str, list[str]] = {}  # child -> those that it was to run after
        self.even_if: dict[str, str] = {}  # how the parents of a child may have ended besides
        self.waiting: dict[str, tuple[list[str], int, str]] = {}  # child -> for whom, and then its delay and queue
        self.news: list[str] = []  # jobs that have ended, and those who wait for them do not know

    def teardown(self) -> None:
        self.client.close()

    def new_request(self) -> str:
        """One that was never made before."""
        self.requests += 1
        return f"request-{self.requests}"

    def run(self, command: Command) -> Any:
        return self.client.eval(command.script.source, len(command.keys), *command.keys, *command.args)

    def forget_requests(self) -> None:
        """As it is after two minutes."""
        self.client.delete(self.keys.recent, self.keys.older)

    @initialize()
    def begin_with_one_worker(self) -> None:
        self.begin()

    # Jobs come in.

    @rule(queue=queues, is_delayed=st.booleans(), name=names, priority=priorities)
    def enqueue(self, queue: str, is_delayed: bool, name: str, priority: int) -> None:
        self.put += 1
        other = self.names.get(name, "")
        if not self.is_live(other):
            other = ""
        job = f"job{self.put}" if not other else self.new_request()
        # Far enough apart for each to be due after those before it.
        jobs = (job, recorded(priority), self.put * 1_000_000 if is_delayed else 0, name, 0)
        command = ENQUEUE(self.keys, self.queues[queue], results=[self.keys.result(job)], queue_name=queue, jobs=jobs)
        for forgets in (False, False, True):
            if forgets and not other:
                self.forget_requests()
            assert self.run(command) == [other.encode()]
        if other:
            self.put -= 1
            return
        self.priority[job] = priority
        self.start(job, int(is_delayed), queue)
        if name:
            self.names[name], self.name_of[job] = job, name

    @rule(queue=queues, is_signed=st.booleans())
    def debounce(self, queue: str, is_signed: bool) -> None:
        """The one of that name that waits is replaced; one that has begun has its name no more."""
        self.put += 1
        name, job, other = "one name", f"job{self.put}", self.names.get("one name", "")
        silence_ms = self.put * 1_000_000  # far enough apart for each to be due after those before it
        delayed_in = next((queue for queue, jobs in self.delayed.items() if other in jobs), None)
        waits = delayed_in or (any(other in jobs for jobs in self.ready.values()) and other not in self.cancelling)
        waits = waits and other not in self.failures and other not in self.crashes
        if self.is_live(other) and other not in self.debounced:
            assert self.ask_to_debounce(job, queue, silence_ms, is_signed) == [3, other.encode(), b""]
        elif not self.is_live(other) or not waits:
            assert self.ask_to_debounce(job, queue, silence_ms, is_signed) == [1, job.encode(), b""]
            self.names[name], self.name_of[job] = job, name
            self.debounced.add(job)
            self.start(job, silence_ms, queue)
            return
        elif is_signed or delayed_in not in {None, queue}:
            where = delayed_in or queue
            assert self.ask_to_debounce(job, queue, silence_ms, is_signed) == [4, other.encode(), where.encode()]
            assert self.ask_to_debounce(other, where, silence_ms, is_signed, is_new=0) == [2, other.encode(), b""]
        else:
            assert self.ask_to_debounce(job, queue, silence_ms, is_signed) == [2, other.encode(), b""]
        assert self.ask_to_debounce("gone", queue, silence_ms, is_signed, is_new=0)[0] in {3, 4, 5}
        self.put -= 1
        if other in self.debounced and delayed_in:
            self.delayed[delayed_in].remove(other)
            self.start(other, silence_ms, delayed_in)

    def ask_to_debounce(self, job: str, queue: str, silence_ms: int, is_signed: bool, *, is_new: int = 1) -> Any:
        command = DEBOUNCE(
            self.keys,
            self.queues[queue],
            result=self.keys.result(job),
            request=self.new_request(),
            id=job,
            is_new=is_new,
            envelope=f"3 #{MOST_KEPT}:ab~ {{}}",
            is_signed=int(is_signed),
            silence_ms=silence_ms,
            longest_ms="",
            unique_name="one name",
            name=queue,
        )
        answers = [self.run(command) for _ in range(2)]
        assert answers[0] == answers[1]
        return answers[0]

    @rule(
        queue=queues,
        is_delayed=st.booleans(),
        parents=st.lists(picks, min_size=1, max_size=3),
        name=names,
        even_if=st.sampled_from(["", "failed", "ended"]),
        priority=priorities,
    )
    def follow(
        self, queue: str, is_delayed: bool, parents: list[int], name: str, *, even_if: str, priority: int
    ) -> None:
        """A job that runs after others, wherever these are; one of them may never have been."""
        after = list(dict.fromkeys(f"job{pick % (self.put + 1)}" for pick in parents))
        self.put += 1
        other = self.names.get(name, "")
        if not self.is_live(other):
            other = ""
        job = f"job{self.put}" if not other else self.new_request()
        delay_ms = self.put * 1_000_000 if is_delayed else 0
        command = ENQUEUE_AFTER(
            self.keys,
            self.queues[queue],
            result=self.keys.result(job),
            results=self.keys.results(after),
            queue_name=queue,
            id=job,
            envelope=recorded(priority),
            delay_ms=delay_ms,
            name=name,
            window_ms=0,
            suffix="",
            even_if=even_if,
            after=after,
        )
        for forgets in (False, False, True):
            if forgets and not other:
                self.forget_requests()
            assert self.run(command) == [other.encode()]
        if other:
            self.put -= 1
            return
        self.after[job], self.even_if[job], self.priority[job] = after, even_if, priority
        if name:
            self.names[name], self.name_of[job] = job, name
        pending = [parent for parent in after if self.is_live(parent)]
        if not all(parent in pending or self.lets_run(parent, job) for parent in after):
            self.die(job, queue)
        elif pending:
            self.waiting[job] = (pending, delay_ms, queue)
        else:
            self.start(job, delay_ms, queue)

    def lets_run(self, parent: str, job: str) -> bool:
        """Whether a job may run after this parent, which is not live."""
        how = self.ended.get(parent, "")
        if parent in self.dead or (parent in self.purged and self.client.hexists(self.keys.outcomes, parent)):
            how = "failed"
        return how == "succeeded 1" or self.even_if[job] in {
            "failed": ["failed", "ended"],
            "cancelled ": ["ended"],
        }.get(how, [])

    def start(self, job: str, delay_ms: int, queue: str) -> None:
        """It may run: now, or when its delay is over."""
        if delay_ms:
            self.delayed[queue].append(job)
            self.delayed[queue].sort(key=lambda one: self.client.zscore(self.queues[queue].delayed, one))
        else:
            self.ready[queue].append(job)

    @rule()
    def pass_on(self) -> None:
        """Whoever does it: the children of all that has ended are told, and theirs."""
        before = len(self.history)
        more, found = 1, list[bytes]()
        names: list[str] = []
        while more or found:
            queues = [self.queues[name] for name in names]
            parts = [part for each in queues for part in each[1:]]
            command = RESOLVE_DEPENDENTS(self.keys, queues=parts, inboxes=INBOXES, suffix="", passer="p", names=names)
            more, _, found, work, _ = self.run(command)
            assert not work
            names += [name.decode() for name in found]
        while self.news:
            parent = self.news.pop(0)
            for job in sorted(job for job, (pending, *_) in self.waiting.items() if parent in pending):
                pending, delay_ms, queue = self.waiting[job]
                if not self.is_live(parent) and self.lets_run(parent, job):
                    pending.remove(parent)
                    if not pending:
                        del self.waiting[job]
                        self.start(job, delay_ms, queue)
                elif not self.is_live(parent):  # else it was replayed meanwhile
                    del self.waiting[job]
                    self.die(job, queue)
        if self.history[before:]:
            self.history[before:] = [set[tuple[str, str]]().union(*self.history[before:])]
        self.nothing_is_kept_for_nobody()

    def nothing_is_kept_for_nobody(self) -> None:
        """Who runs after whom is known of those that are there, and of no others."""
        keys = self.keys
        there = {job: after for job, after in self.after.items() if self.is_live(job) or job in self.dead}
        assert {job.decode() for job in self.client.hkeys(keys.parents)} == set(there)
        counts = Counter(pair.decode().partition(" ")[0] for pair in self.client.zrange(keys.children, 0, -1))
        assert counts == Counter(parent for after in there.values() for parent in after)
        outcomes = {parent.decode(): text.decode() for parent, text in self.client.hgetall(keys.outcomes).items()}
        assert set(outcomes) <= set(counts)
        for parent in counts:
            assert outcomes.get(parent) == self.ended[parent] if parent in self.ended else True
            assert not (self.is_live(parent) and parent in outcomes)
        assert not self.client.exists(keys.news)
        assert there or not self.client.exists(keys.followers)
        pending = {job.decode(): sorted(ids.decode().split()) for job, ids in self.client.hgetall(keys.pending).items()}
        assert pending == {job: sorted(parents) for job, (parents, *_) in self.waiting.items()}

    def is_live(self, job: str) -> bool:
        """Whether it has not ended: it is queued, delayed or claimed."""
        states = [self.waiting, *self.ready.values(), *self.delayed.values(), *(worker.held for worker in self.workers)]
        return any(job in jobs for jobs in states)

    @rule(queue=queues, count=counts)
    def some_are_due(self, queue: str, count: int) -> None:
        its, due = self.queues[queue], self.delayed[queue][:count]
        self.delayed[queue] = self.delayed[queue][count:]
        for number, job in enumerate(due):
            self.client.zadd(its.delayed, {job: number + 1})
        promote = PROMOTE(self.keys, its, front=0)
        moved, next_ms = self.run(promote)
        assert moved == len(due)
        assert (next_ms > 0) == bool(self.delayed[queue])
        assert self.run(promote)[0] == 0
        self.ready[queue] += due

    @precondition(lambda self: self.put)
    @rule(pick=picks, is_delayed=st.booleans())
    def reschedule(self, pick: int, is_delayed: bool) -> None:
        """Any job: one that is delayed or waits for others does so for another time, with others nothing happens."""
        job = f"job{pick % self.put + 1}"
        self.rescheduled += 1
        delay_ms = 1_000_000_000 * self.rescheduled if is_delayed else 0  # after all others
        queues = {job: name for name, jobs in self.delayed.items() for job in jobs}
        queues |= {job: name for job, (*_, name) in self.waiting.items()}
        queue = queues.get(job, "high")
        request, its = self.new_request(), self.queues[queue]
        command = RESCHEDULE(self.keys, its, delay_ms=delay_ms, name=queue, request=request, ids=[job])
        is_so_already = any(job in jobs for jobs in self.ready.values()) and not delay_ms and job not in self.cancelling
        for _ in range(2):
            answer = self.run(command)
            assert bool(answer) == (job in queues or is_so_already)
        if job in self.waiting:
            self.waiting[job] = (self.waiting[job][0], delay_ms, queue)
        elif job in queues:
            self.delayed[queue].remove(job)
            self.start(job, delay_ms, queue)

    @precondition(lambda self: self.put)
    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        """Any job: one that waits ends here, one that runs is marked, and with others nothing happens."""
        job, keys = f"job{pick % self.put + 1}", self.keys
        queues = [*self.delayed.items(), *self.ready.items()]  # an id without a '.' is one that a caller has chosen
        [queue] = [name for name, jobs in queues if job in jobs] or ["high"]
        command = CANCEL(
            keys,
            self.queues[queue],
            results=[keys.result(job), *keys.kept_attempts([job])],
            ttl_ms=HOUR,
            inboxes=INBOXES,
            request=self.new_request(),
            ids=[job],
        )
        runs = any(job in worker.held for worker in self.workers)
        was_waiting = self.is_live(job) and not runs
        for _ in range(2):
            assert (self.run(command) != [STILL_RUNS]) == (not runs)
        if runs:
            self.cancelling.add(job)
        elif was_waiting:
            for jobs in (*self.ready.values(), *self.delayed.values()):
                if job in jobs:
                    jobs.remove(job)
            self.waiting.pop(job, None)
            self.end(job, "cancelled ")

    def end(self, job: str, how: str) -> None:
        """It is there no more."""
        self.history.append({(job, how.split(maxsplit=1)[0])})
        self.ended[job] = how
        self.news.append(job)
        self.cancelling.discard(job)
        self.failures.pop(job, None)
        self.crashes.pop(job, None)
        self.progress.pop(job, None)

    # Workers come, and claim.

    @rule()
    def begin(self) -> None:
        worker = Worker(f"session.{len(self.workers)}")
        self.workers.append(worker)
        assert self.heartbeat(worker, is_new=True)

    def heartbeat(self, worker: Worker, *, is_new: bool = False) -> bool:
        command = HEARTBEAT(
            self.keys,
            claimed=self.keys.claimed(worker.name),
            worker=worker.name,
            ttl_ms=HOUR,
            is_new=int(is_new),
            skip=0,
            about="{}",
        )
        alive, _, _, _, _, *dead = self.run(command)
        assert set(dead) <= {other.name.encode() for other in self.workers if not other.is_alive}
        return bool(alive)

    @rule(pick=picks)
    def heartbeat_of_any(self, pick: int) -> None:
        worker = self.any_worker(pick)
        assert self.heartbeat(worker) == worker.is_alive

    @rule(pick=picks, names=orders, count=counts)
    def claim(self, pick: int, names: tuple[str, ...], count: int) -> None:
        worker = self.any_worker(pick)
        if not worker.is_alive:
            assert self.ask(worker, names, worker.number + 1, count) is None
            return
        for name in names:  # as BLPOP does for one who sleeps
            if self.client.lpop(self.queues[name].bell):
                break
        worker.number += 1
        worker.last = []
        expected: list[tuple[str, int, int, int, bool, str]] = []
        for name in names:
            taken = self.ready[name][: count - len(expected)]
            del self.ready[name][: len(taken)]
            for job in taken:
                failed = self.failures.get(job, 0)
                attempt = failed + self.crashes.get(job, 0) + 1
                at = worker.number * 1000 + len(expected) + 1
                expected.append((job, at, attempt, failed, job in self.cancelling, name))
                worker.held[job] = (at, name)
                worker.last.append(job)
        assert self.ask(worker, names, worker.number, count) == expected
        for job in worker.last:
            self.report(worker, job, worker.number)

    def report(self, worker: Worker, job: str, number: int) -> None:
        """Its progress; what was sent earlier changes nothing."""
        claimed, (position, _) = self.keys.claimed(worker.name), worker.held[job]
        for each in (number, number - 1):
            assert self.run(
                PROGRESS(self.keys, claimed=claimed, id=job, position=position, how_far=f"[{each}]", number=each)
            )
        self.progress[job] = f"{number} [{number}]"

    @precondition(lambda self: any(worker.is_alive and worker.number for worker in self.workers))
    @rule(pick=picks, names=orders, count=counts)
    def claim_again(self, pick: int, names: tuple[str, ...], count: int) -> None:
        """The reply was lost, and the worker asks with the same number."""
        claimers = [worker for worker in self.workers if worker.is_alive and worker.number]
        worker = claimers[pick % len(claimers)]
        again = self.ask(worker, names, worker.number, count)
        assert again is not None
        assert [(job, at) for job, at, *_ in again] == [
            (job, worker.held[job][0]) for job in worker.last if job in worker.held
        ]

    @precondition(lambda self: any(worker.is_alive and worker.number > 1 for worker in self.workers))
    @rule(pick=picks, names=orders, count=counts)
    def old_claim_comes_late(self, pick: int, names: tuple[str, ...], count: int) -> None:
        """An earlier sending of a claim, on a connection given up long ago."""
        claimers = [worker for worker in self.workers if worker.is_alive and worker.number > 1]
        worker = claimers[pick % len(claimers)]
        assert self.ask(worker, names, worker.number - 1, count) == []

    def ask(
        self, worker: Worker, names: tuple[str, ...], number: int, count: int
    ) -> list[tuple[str, int, int, int, bool, str]] | None:
        queues = [self.queues[name] for name in names]
        command = CLAIM(
            self.keys,
            claimed=self.keys.claimed(worker.name),
            queues=[part for each in queues for part in each[1:]],
            worker=worker.name,
            number=number,
            count=count,
            suspects=count,
            names=names,
        )
        status, *answer = self.run(command)
        if not status:
            return None
        return [
            (row.id.decode(), row.position, row.attempt, row.failures, bool(row.is_cancelled), row.queue.decode())
            for row in Row.read(number, answer[2], answer[3], answer[4:])
        ]

    # Jobs end.

    @rule(pick=picks, which=picks, is_late=st.booleans(), how=st.sampled_from(["succeeded 1", "cancelled "]))
    def ack(self, pick: int, which: int, is_late: bool, how: str) -> None:
        worker, job, at = self.any_job(pick, which)
        at += is_late
        command = ACK_WITH_PLUGS(
            self.keys,
            claimed=self.keys.claimed(worker.name),
            results=[self.keys.result(job), *self.keys.kept_attempts([job])],
            inboxes=INBOXES,
            worker=worker.name,
            histories=f"1 1 {MOST_KEPT}:ab,",
            failed="1,",
            jobs=(job, at, how, HOUR, self.name_of.get(job, "")),
        )
        held = not is_late and job in worker.held
        assert (self.run(command) != [0]) == held
        assert self.run(command) == [0]
        if held:
            del worker.held[job]
            self.end(job, how)
            if self.names.get(self.name_of.get(job, "")) == job:
                del self.names[self.name_of[job]]

    @rule(pick=picks, which=picks, is_late=st.booleans(), verdict=st.sampled_from(["retry", "back", "dead"]))
    def nack(self, pick: int, which: int, is_late: bool, verdict: str) -> None:
        worker, job, at = self.any_job(pick, which)
        at += is_late
        _, queue = worker.held.get(job, (0, "high"))
        its = self.queues[queue]
        command = self.keys.scripts.nack(
            self.keys,
            its,
            claimed=self.keys.claimed(worker.name),
            id=job,
            position=at,
            verdict=verdict,
            delay_ms=10**12,
            reason="{}",
            name=queue,
            inboxes=INBOXES,
            worker=worker.name,
        )
        held = not is_late and job in worker.held
        assert bool(self.run(command)) == held
        assert self.run(command) == 0
        if not held:
            return
        del worker.held[job]
        if verdict != "back":
            self.failures[job] = self.failures.get(job, 0) + 1
        if verdict == "retry" and job in self.progress:
            self.progress[job] = "0 " + self.progress[job].partition(" ")[2]
        else:
            self.progress.pop(job, None)
        if verdict == "dead":
            self.die(job, queue)
        elif verdict == "back" or job in self.cancelling:
            self.ready[queue].insert(0, job)
        else:
            self.delayed[queue].append(job)
            self.client.zadd(its.delayed, {job: 10**13 + self.put * 10**6 + self.failures[job]})
            self.delayed[queue].sort(key=lambda one: self.client.zscore(its.delayed, one))

    @rule(pick=picks, which=picks)
    def free(self, pick: int, which: int) -> None:
        """A job that lets others have its name when it starts."""
        _, job, _ = self.any_job(pick, which)
        name = self.name_of.get(job, "no name")
        had_it = self.names.get(name) == job
        command = FREE_NAMES(self.keys, request=self.new_request(), jobs=(name, job))
        for _ in range(2):
            assert self.run(command) == int(had_it)
        if had_it:
            del self.names[name]

    def die(self, job: str, queue: str) -> None:
        """It is set aside."""
        self.history.append({(job, "failed")})
        self.dead[job] = queue
        self.news.append(job)
        self.cancelling.discard(job)

    @precondition(lambda self: self.dead)
    @rule(pick=picks)
    def replay(self, pick: int) -> None:
        """It has its name again, unless another has it."""
        job = sorted(self.dead)[pick % len(self.dead)]
        queue, name = self.dead.pop(job), self.name_of.get(job, "")
        if name and not self.is_live(self.names.get(name, "")):
            self.names[name] = job
        command = self.keys.scripts.replay(
            self.keys, self.queues[queue], queue_name=queue, request=self.new_request(), jobs=(job, "", name)
        )
        for _ in range(2):
            assert self.run(command) == 1
        self.ready[queue].append(job)
        self.failures.pop(job, None)
        self.crashes.pop(job, None)

    @precondition(lambda self: any(job in self.after for job in self.dead))
    @rule(pick=picks)
    def wait_again(self, pick: int) -> None:
        """A dead child waits for its parents, as if it were new."""
        children = sorted(job for job in self.dead if job in self.after)
        job = children[pick % len(children)]
        queue, name, after, even_if = self.dead[job], self.name_of.get(job, ""), self.after[job], self.even_if[job]
        pending = [parent for parent in after if self.is_live(parent)]
        stays_dead = not all(parent in pending or self.lets_run(parent, job) for parent in after)
        if name and not self.is_live(self.names.get(name, "")):
            self.names[name] = job
        command = WAIT_AGAIN(
            self.keys,
            self.queues[queue],
            request=self.new_request(),
            id=job,
            queue_name=queue,
            delay_ms=0,
            name=name,
            suffix="",
            even_if=even_if,
            after=after,
        )
        for _ in range(2):
            assert self.run(command) == int(not stays_dead)
        self.failures.pop(job, None)
        self.crashes.pop(job, None)
        if stays_dead:
            self.history.append({(job, "failed")})
            return
        del self.dead[job]
        if pending:
            self.waiting[job] = (pending, 0, queue)
        else:
            self.start(job, 0, queue)

    @precondition(lambda self: self.dead)
    @rule(pick=picks)
    def purge(self, pick: int) -> None:
        job = sorted(self.dead)[pick % len(self.dead)]
        command = self.keys.scripts.purge(self.keys, age_ms=0, keep=0, request=self.new_request(), ids=[job])
        for _ in range(2):
            assert self.run(command) == [1, 0]
        del self.dead[job]
        self.failures.pop(job, None)
        self.crashes.pop(job, None)
        self.purged.add(job)

    # Workers go.

    @rule(pick=picks)
    def lapse(self, pick: int) -> None:
        worker = self.any_worker(pick)
        worker.is_alive = False
        for key in (self.keys.workers, self.keys.alive):
            self.client.zadd(key, {worker.name: 1}, xx=True)

    @rule(pick=picks)
    def recover(self, pick: int) -> None:
        worker = self.any_worker(pick)
        answer = self.give_back(worker, max_crashes=MOST_CRASHES)
        if worker.is_alive:
            assert answer[:2] == [-1, 0]
            return
        back = buried = 0
        for job, (_, queue) in reversed(worker.held.items()):
            self.progress.pop(job, None)
            self.crashes[job] = self.crashes.get(job, 0) + 1
            if self.crashes[job] >= MOST_CRASHES:
                self.die(job, queue)
                buried += 1
            else:
                self.ready[queue].insert(0, job)
                back += 1
        worker.held = {}
        assert answer[:2] == [back, buried]
        assert self.give_back(worker, max_crashes=MOST_CRASHES) == [0, 0, 0]
        assert self.client.zscore(self.keys.workers, worker.name) is None

    @rule(pick=picks)
    def retire(self, pick: int) -> None:
        worker = self.any_worker(pick)
        assert self.give_back(worker, max_crashes=0) == [len(worker.held), 0, 0]
        for job, (_, queue) in reversed(worker.held.items()):
            self.progress.pop(job, None)
            self.ready[queue].insert(0, job)
        worker.held, worker.is_alive = {}, False

    def give_back(self, worker: Worker, *, max_crashes: int) -> Any:
        claimed = self.keys.claimed(worker.name)
        names = [name.decode() for name in self.run(CLAIMED_QUEUES(claimed=claimed))]
        assert set(names) == {queue for _, queue in worker.held.values()}
        command = self.keys.scripts.recover(
            self.keys,
            claimed=claimed,
            queues=[part for name in names for part in self.queues[name][1:]],
            worker=worker.name,
            max_crashes=max_crashes,
            inboxes=INBOXES,
            names=names,
        )
        return self.run(command)

    # What holds after each step.

    @invariant()
    def every_job_is_where_it_must_be(self) -> None:
        ledger = read_ledger_now(self.client, "model")
        ledger.check(put=self.put, done=len(self.ended) + len(self.purged))
        usual: dict[str, list[str]] = {}
        others: dict[str, list[str]] = {}
        for name, jobs in self.ready.items():
            jobs.sort(
                key=self.rank
            )  # whatever came in this step, at either end, stays there among those of its priority
            usual[name] = [job for job in jobs if self.rank(job) == USUAL]
            others[name] = [*(job for job in jobs if self.rank(job) != USUAL), *self.delayed[name]]
        assert ledger.ready == {name: jobs for name, jobs in usual.items() if jobs}
        assert ledger.delayed == {name: jobs for name, jobs in others.items() if jobs}
        assert sorted(ledger.waiting) == sorted(self.waiting)
        held = {worker.name: sorted(worker.held) for worker in self.workers if worker.held}
        assert {worker: sorted(jobs) for worker, jobs in ledger.claimed.items()} == held
        assert set(ledger.dead) == set(ledger.reasons) == set(self.dead)
        assert (ledger.failures, ledger.crashes) == (self.failures, self.crashes)
        progress = self.client.hgetall(self.keys.progress)
        assert {job.decode(): how_far.decode() for job, how_far in progress.items()} == self.progress
        assert ledger.results == self.ended
        assert ledger.states == self.states()
        waiting = Counter(name.encode() for *_, name in self.waiting.values())
        assert {name: int(count) for name, count in self.client.hgetall(self.keys.waiting).items()} == waiting

    def states(self) -> dict[str, str]:
        """What is noted of those that are not in their queue, or are to be cancelled."""
        states = {job: f"delayed {name}" for name, jobs in self.delayed.items() for job in jobs}
        for job, (_, delay_ms, name) in self.waiting.items():
            even_if = self.even_if[job]
            states[job] = f"waiting {delay_ms}{even_if and ':'}{even_if} {name}"
        for worker in self.workers:
            for job in worker.held:
                states[job] = f"{'cancelling' if job in self.cancelling else 'running'} {worker.name}"
        waiting = [job for jobs in self.ready.values() for job in jobs]
        return states | {job: "cancelling " for job in waiting if job in self.cancelling}

    @invariant()
    def last_ends_are_in_the_history(self) -> None:
        left = read_ledger_now(self.client, "model").history
        assert len(left) == min(MOST_KEPT, sum(map(len, self.history)))
        for together in reversed(self.history):
            latest, left = left[-len(together) :], left[: -len(together)]
            assert set(latest) <= together

    @invariant()
    def every_job_says_how_it_is(self) -> None:
        for job in [f"job{number + 1}" for number in range(self.put)]:
            [status, _, _] = self.run(WATCH(self.keys, result=self.keys.result(job), id=job, address=""))
            assert status.decode() == self.status(job)

    def status(self, job: str) -> str:
        if job in self.ended:
            return self.ended[job].partition(" ")[0]
        if job in self.dead:
            return "failed"
        if any(job in worker.held for worker in self.workers):
            return "running"
        if any(job in jobs for jobs in self.delayed.values()):
            return "delayed"
        if job in self.waiting:
            return "waiting"
        return "queued" if self.is_live(job) else "unknown"

    @invariant()
    def whoever_sleeps_is_woken_while_there_is_work(self) -> None:
        for name, jobs in self.ready.items():
            assert self.client.llen(self.queues[name].bell) <= 1
            assert self.client.llen(self.queues[name].bell) == 1 or not jobs

    # Private.

    def rank(self, job: str) -> int:
        return self.priority.get(job, USUAL)

    def any_worker(self, pick: int) -> Worker:
        return self.workers[pick % len(self.workers)]

    def any_job(self, pick: int, which: int) -> tuple[Worker, str, int]:
        """A worker, and a job that it holds, or that it does not."""
        worker = self.any_worker(pick)
        if not worker.held:
            return worker, f"job{which % (self.put + 1)}", 1
        job = list(worker.held)[which % len(worker.held)]
        return worker, job, worker.held[job][0]


TestTasksModel = TasksModel.TestCase
TestTasksModel.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
