"""The scripts of tasks against a dictionary: whatever happens in whatever order, each job is where it must be."""

from dataclasses import dataclass, field
from typing import Any

from fakeredis import FakeRedis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from inconcert._redis.keys import Keyspace
from inconcert._redis.scripts import Script
from inconcert.tasks.store import ACK, CLAIM, ENQUEUE, HEARTBEAT, HOLDING, NACK, PROMOTE, RECOVER, JobKeys, QueueKeys
from tests.support.ledger import read_ledger_now

QUEUES = ("high", "low")
MOST_CRASHES = 3

orders = st.sampled_from([("high", "low"), ("low", "high"), ("high",)])
queues = st.sampled_from(QUEUES)
counts = st.integers(1, 5)
picks = st.integers(0, 1000)


@dataclass
class Worker:
    """What one worker has, as the model sees it."""

    name: str
    is_alive: bool = True
    number: int = 0
    last: list[str] = field(default_factory=list[str])  # claimed by the last claim
    held: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])  # attempt and queue, in order


class TasksModel(RuleBasedStateMachine):
    """Any number of workers on two queues."""

    def __init__(self) -> None:
        super().__init__()
        self.client: Any = FakeRedis()
        self.keys = JobKeys(Keyspace("model"))
        self.places: dict[str, QueueKeys] = {name: self.keys.queue(name) for name in QUEUES}
        self.ready: dict[str, list[str]] = {name: [] for name in QUEUES}
        self.delayed: dict[str, list[str]] = {name: [] for name in QUEUES}
        self.dead: set[str] = set()
        self.failures: dict[str, int] = {}
        self.crashes: dict[str, int] = {}
        self.workers: list[Worker] = []
        self.put = self.done = 0

    def teardown(self) -> None:
        self.client.close()

    def run(self, script: Script, keys: tuple[str, ...], *args: object) -> Any:
        return self.client.eval(script.source, len(keys), *keys, *args)

    @initialize()
    def begin_with_one_worker(self) -> None:
        self.begin()

    # Jobs come in.

    @rule(queue=queues, is_delayed=st.booleans())
    def enqueue(self, queue: str, is_delayed: bool) -> None:
        self.put += 1
        job, place = f"job{self.put}", self.places[queue]
        keys = (self.keys.bodies, place.queue, place.bell, place.delayed)
        # Far enough apart for each to be due after those before it.
        args = (job, "{}", self.put * 1_000_000 if is_delayed else 0)
        assert self.run(ENQUEUE, keys, *args) == 1
        assert self.run(ENQUEUE, keys, *args) == 0
        (self.delayed if is_delayed else self.ready)[queue].append(job)

    @rule(queue=queues, count=counts)
    def some_are_due(self, queue: str, count: int) -> None:
        place, due = self.places[queue], self.delayed[queue][:count]
        self.delayed[queue] = self.delayed[queue][count:]
        for number, job in enumerate(due):
            self.client.zadd(place.delayed, {job: number + 1})
        moved, next_ms = self.run(PROMOTE, (place.delayed, place.queue, place.bell))
        assert moved == len(due)
        assert (next_ms > 0) == bool(self.delayed[queue])
        assert self.run(PROMOTE, (place.delayed, place.queue, place.bell))[0] == 0
        self.ready[queue] += due

    # Workers come, and claim.

    @rule()
    def begin(self) -> None:
        worker = Worker(f"worker{len(self.workers)}")
        self.workers.append(worker)
        assert self.heartbeat(worker, is_new=True)

    def heartbeat(self, worker: Worker, *, is_new: bool = False) -> bool:
        alive, _, *dead = self.run(HEARTBEAT, (self.keys.workers,), worker.name, 3_600_000, int(is_new))
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
            if self.client.lpop(self.places[name].bell):
                break
        worker.number += 1
        worker.last = []
        expected: list[tuple[str, int, int, str]] = []
        for name in names:
            taken = self.ready[name][: count - len(expected)]
            del self.ready[name][: len(taken)]
            for job in taken:
                failed = self.failures.get(job, 0)
                attempt = failed + self.crashes.get(job, 0) + 1
                expected.append((job, attempt, failed, name))
                worker.held[job] = (attempt, name)
                worker.last.append(job)
        assert self.ask(worker, names, worker.number, count) == expected

    @precondition(lambda self: any(worker.is_alive and worker.number for worker in self.workers))
    @rule(pick=picks, names=orders, count=counts)
    def claim_again(self, pick: int, names: tuple[str, ...], count: int) -> None:
        """The reply was lost, and the worker asks with the same number."""
        claimers = [worker for worker in self.workers if worker.is_alive and worker.number]
        worker = claimers[pick % len(claimers)]
        again = self.ask(worker, names, worker.number, count)
        assert again is not None
        assert [job for job, *_ in again] == [job for job in worker.last if job in worker.held]

    @precondition(lambda self: any(worker.is_alive and worker.number > 1 for worker in self.workers))
    @rule(pick=picks, names=orders, count=counts)
    def old_claim_comes_late(self, pick: int, names: tuple[str, ...], count: int) -> None:
        """An earlier sending of a claim, on a connection given up long ago."""
        claimers = [worker for worker in self.workers if worker.is_alive and worker.number > 1]
        worker = claimers[pick % len(claimers)]
        assert self.ask(worker, names, worker.number - 1, count) == []

    def ask(
        self, worker: Worker, names: tuple[str, ...], number: int, count: int
    ) -> list[tuple[str, int, int, str]] | None:
        keys = self.keys
        parts = [
            part for name in names for place in [self.places[name]] for part in (place.queue, place.bell, place.delayed)
        ]
        shared = (keys.bodies, keys.workers, keys.claimed(worker.name), keys.failures, keys.crashes)
        status, *answer = self.run(CLAIM, (*shared, *parts), worker.name, number, count, *names)
        if not status:
            return None
        rows = zip(*[iter(answer[1:])] * 5, strict=True)
        return [(job.decode(), attempt, failed, name.decode()) for job, _, attempt, failed, name in rows]

    # Jobs end.

    @rule(pick=picks, which=picks, is_late=st.booleans())
    def ack(self, pick: int, which: int, is_late: bool) -> None:
        worker, job, attempt = self.any_job(pick, which)
        attempt += is_late
        keys = (self.keys.bodies, self.keys.claimed(worker.name), self.keys.failures, self.keys.crashes)
        held = not is_late and job in worker.held
        assert self.run(ACK, keys, job, attempt) == [int(held)]
        assert self.run(ACK, keys, job, attempt) == [0]
        if held:
            del worker.held[job]
            self.done += 1
            self.failures.pop(job, None)
            self.crashes.pop(job, None)

    @rule(pick=picks, which=picks, is_late=st.booleans(), verdict=st.sampled_from(["retry", "back", "dead"]))
    def nack(self, pick: int, which: int, is_late: bool, verdict: str) -> None:
        worker, job, attempt = self.any_job(pick, which)
        attempt += is_late
        _, queue = worker.held.get(job, (0, "high"))
        place, shared = self.places[queue], self.keys
        keys = (
            shared.claimed(worker.name), shared.failures, shared.dead, shared.reasons,
            place.queue, place.bell, place.delayed,
        )  # fmt: skip
        args = (job, attempt, verdict, 10**12, "{}")
        held = not is_late and job in worker.held
        assert self.run(NACK, keys, *args) == int(held)
        assert self.run(NACK, keys, *args) == 0
        if not held:
            return
        del worker.held[job]
        if verdict == "back":
            self.ready[queue].insert(0, job)
            return
        self.failures[job] = self.failures.get(job, 0) + 1
        if verdict == "retry":
            self.delayed[queue].append(job)
            self.client.zadd(place.delayed, {job: 10**13 + self.put * 10**6 + self.failures[job]})
            self.delayed[queue].sort(key=lambda one: self.client.zscore(place.delayed, one))
        else:
            self.dead.add(job)

    # Workers go.

    @rule(pick=picks)
    def lapse(self, pick: int) -> None:
        worker = self.any_worker(pick)
        worker.is_alive = False
        self.client.zadd(self.keys.workers, {worker.name: 1}, xx=True)

    @rule(pick=picks)
    def recover(self, pick: int) -> None:
        worker = self.any_worker(pick)
        answer = self.give_back(worker, max_crashes=MOST_CRASHES)
        if worker.is_alive:
            assert answer == [-1, 0]
            return
        back = buried = 0
        for job, (_, queue) in reversed(worker.held.items()):
            self.crashes[job] = self.crashes.get(job, 0) + 1
            if self.crashes[job] >= MOST_CRASHES:
                self.dead.add(job)
                buried += 1
            else:
                self.ready[queue].insert(0, job)
                back += 1
        worker.held = {}
        assert answer == [back, buried]
        assert self.give_back(worker, max_crashes=MOST_CRASHES) == [0, 0]
        assert self.client.zscore(self.keys.workers, worker.name) is None

    @rule(pick=picks)
    def retire(self, pick: int) -> None:
        worker = self.any_worker(pick)
        assert self.give_back(worker, max_crashes=0) == [len(worker.held), 0]
        for job, (_, queue) in reversed(worker.held.items()):
            self.ready[queue].insert(0, job)
        worker.held, worker.is_alive = {}, False

    def give_back(self, worker: Worker, *, max_crashes: int) -> Any:
        claimed = self.keys.claimed(worker.name)
        names = [name.decode() for name in self.run(HOLDING, (claimed,))]
        assert set(names) == {queue for _, queue in worker.held.values()}
        parts = [part for name in names for part in (self.places[name].queue, self.places[name].bell)]
        shared = (self.keys.workers, claimed, self.keys.crashes, self.keys.dead, self.keys.reasons)
        return self.run(RECOVER, (*shared, *parts), worker.name, max_crashes, "{}", *names)

    # What holds after each step.

    @invariant()
    def every_job_is_where_it_must_be(self) -> None:
        ledger = read_ledger_now(self.client, "model")
        ledger.check(put=self.put, done=self.done)
        assert ledger.ready == {name: jobs for name, jobs in self.ready.items() if jobs}
        assert ledger.delayed == {name: jobs for name, jobs in self.delayed.items() if jobs}
        held = {worker.name: sorted(worker.held) for worker in self.workers if worker.held}
        assert {worker: sorted(jobs) for worker, jobs in ledger.claimed.items()} == held
        assert set(ledger.dead) == set(ledger.reasons) == self.dead
        assert (ledger.failures, ledger.crashes) == (self.failures, self.crashes)

    @invariant()
    def whoever_sleeps_is_woken_while_there_is_work(self) -> None:
        for name, jobs in self.ready.items():
            assert self.client.llen(self.places[name].bell) <= 1
            assert self.client.llen(self.places[name].bell) == 1 or not jobs

    # Below.

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
TestTasksModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
