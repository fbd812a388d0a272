"""Limits and rates that tasks of several queues share: never more than they allow, and all jobs run in the end."""

import re
from collections import Counter
from typing import Any

from fakeredis import FakeRedis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from inconcert._claims.claimed import Row
from inconcert._claims.keys import HEARTBEAT, PROMOTE, keys_of
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.scripts import Command
from inconcert.tasks.records.limits import HELD_BACK_MS, Limit, Rate, TaskLimits
from inconcert.tasks.records.store import ACK_WITH_PLUGS, CANCEL, CLAIM_WITH_PLUGS, ENQUEUE, LET_IN, RESCHEDULE, JobKeys
from tests.support.world import examples

HOUR = 3_600_000  # milliseconds
INBOXES = "inbox:"
API = Limit(2, name="api")
API_RATE = Rate(3, per=1.0, name="api")
TASKS = {  # name -> its queue, and its limits
    "none": ("q", TaskLimits()),
    "here": ("q", TaskLimits(API)),
    "there": ("r", TaskLimits(API)),
    "more": ("r", TaskLimits(Limit(3, name="api"))),
    "both": ("r", TaskLimits(API, rate=API_RATE)),
    "both, costly": ("q", TaskLimits(API, rate=API_RATE, cost=int)),
    "rate": ("q", TaskLimits(rate=API_RATE)),
    "few": ("q", TaskLimits(Limit(1), rate=API_RATE)),
    "key": ("r", TaskLimits(API, str, 1)),
    "costly": ("q", TaskLimits(rate=Rate(3, per=1.0), cost=3)),
    "own rate": ("r", TaskLimits(API, rate=Rate(2, per=1.0))),
    "share": ("q", TaskLimits(API, str, share=True)),
    "order": ("r", TaskLimits(API, str, key_order="strict")),
}
MOST = 3  # of the limit, whichever of its jobs was looked at last

picks = st.integers(0, 1000)


class LinesModel(RuleBasedStateMachine):
    """Workers, each on one of two queues or on both, and jobs of tasks that share a limit and a rate."""

    def __init__(self) -> None:
        super().__init__()
        self.client: Any = FakeRedis()
        self.keys = JobKeys(Keyspace("model"))
        self.task: dict[str, str] = {}  # job -> its task
        self.text: dict[str, str] = {}  # job -> its limits
        self.serves: dict[str, list[str]] = {}  # worker -> its queues
        self.held: dict[str, dict[str, int]] = {}  # worker -> job -> place
        self.numbers: Counter[str] = Counter()
        self.cancelling: set[str] = set()
        self.live: set[str] = set()
        self.begun: dict[str, list[tuple[int, int]]] = {}  # rate -> when jobs began, and their cost
        self.requests = self.opened = 0
        self.now_us = 1_700_000_000_000_000  # the server's clock
        self.names: tuple[str, ...] = ()  # the queues of the lines, as a process has seen them last

    def run(self, command: Command) -> Any:
        time = f"{{{self.now_us // 1_000_000}, {self.now_us % 1_000_000}}}"
        source = command.script.source.replace("redis.call('TIME')", time)
        return self.client.eval(source, len(command.keys), *command.keys, *command.args)

    @initialize()
    def start(self) -> None:
        for queues in (["q"], ["r"], ["r", "q"]):
            self.open(queues)

    @rule(task=st.sampled_from(sorted(TASKS)), key=st.integers(1, 2), count=st.integers(1, 4), expires=st.booleans())
    def enqueue(self, task: str, key: int, count: int, expires: bool) -> None:
        queue, limits = TASKS[task]
        for _ in range(count):
            job = f"job{len(self.task) + 1}"
            text = limits.of(task, queue, (key,), {}, expires=2.0 if expires else None)
            self.task[job], self.text[job] = task, text
            self.live.add(job)
            body = f"3{text} {{}}" if text else "{}"
            command = ENQUEUE(
                self.keys,
                self.keys.queue(queue),
                results=[self.keys.result(job)],
                queue_name=queue,
                jobs=(job, body, 0, "", 0),
            )
            self.run(command)

    @rule(pick=picks, count=st.integers(1, 5), lets_in=st.booleans())
    def claim(self, pick: int, count: int, lets_in: bool) -> None:
        """The process lets others in if the claim says so; or it dies before."""
        if self.take(self.any_worker(pick), count) and lets_in:
            self.let_in()

    @rule()
    def let_in(self) -> None:
        """A process that may know of no queue at first looks; a second run finds nothing more."""
        for _ in range(20):
            queues = keys_of(map(self.keys.queue, self.names))
            next_ms, *names = self.run(LET_IN(self.keys, queues=queues, names=self.names))
            self.names = tuple(name.decode() for name in names)
            if next_ms != 0:
                before = self.client.zrange(self.keys.held_back, 0, -1)
                self.run(LET_IN(self.keys, queues=keys_of(map(self.keys.queue, self.names)), names=self.names))
                assert self.client.zrange(self.keys.held_back, 0, -1) == before
                return
        raise AssertionError("it does not come to an end")

    @precondition(lambda self: any(self.held.values()))
    @rule(pick=picks, lets_in=st.booleans())
    def ack(self, pick: int, lets_in: bool) -> None:
        worker, job, at = self.any_job(pick)
        queue = self.queue_of(job)
        command = ACK_WITH_PLUGS(
            self.keys,
            claimed=self.keys.claimed(worker),
            results=(self.keys.result(job), *self.keys.kept_attempts([job]), *self.keys.queue(queue)[1:]),
            inboxes=INBOXES,
            worker=worker,
            histories="",
            failed="1,",
            jobs=(job, at, "", 0, ""),
        )
        assert self.run(command) == [1]
        assert self.run(command) == [0]
        del self.held[worker][job]
        self.live.remove(job)
        if lets_in:
            self.let_in()

    @precondition(lambda self: any(self.held.values()))
    @rule(pick=picks, verdict=st.sampled_from(["retry", "again", "back", "asleep"]))
    def nack(self, pick: int, verdict: str) -> None:
        worker, job, at = self.any_job(pick)
        queue = self.queue_of(job)
        command = self.keys.scripts.nack(
            self.keys,
            self.keys.queue(queue),
            claimed=self.keys.claimed(worker),
            id=job,
            position=at,
            verdict=verdict,
            delay_ms=0,
            reason="",
            name=queue,
            inboxes=INBOXES,
            worker=worker,
        )
        assert self.run(command) > 0
        del self.held[worker][job]

    @rule(pick=picks)
    def recover(self, pick: int) -> None:
        """A worker dies, and another takes its place."""
        worker = self.any_worker(pick)
        queues = self.serves[worker]
        self.client.zrem(self.keys.workers, worker)
        self.client.zrem(self.keys.alive, worker)
        command = self.keys.scripts.recover(
            self.keys,
            claimed=self.keys.claimed(worker),
            queues=keys_of(map(self.keys.queue, queues)),
            worker=worker,
            max_crashes=0,
            inboxes=INBOXES,
            names=queues,
        )
        self.run(command)
        del self.held[worker]
        self.open(queues)

    @precondition(lambda self: self.live)
    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        job = sorted(self.live)[pick % len(self.live)]
        self.requests += 1
        command = CANCEL(
            self.keys,
            self.keys.queue(self.queue_of(job)),
            results=[self.keys.result(job), *self.keys.kept_attempts([job])],
            ttl_ms=HOUR,
            inboxes=INBOXES,
            request=f"request{self.requests}",
            ids=[job],
        )
        [answer] = self.run(command)
        if answer == 1:
            self.live.remove(job)
        elif answer == 0:
            self.cancelling.add(job)

    @precondition(lambda self: self.live)
    @rule(pick=picks)
    def reschedule(self, pick: int) -> None:
        job = sorted(self.live)[pick % len(self.live)]
        queue = self.queue_of(job)
        self.requests += 1
        request = f"request{self.requests}"
        self.run(RESCHEDULE(self.keys, self.keys.queue(queue), delay_ms=0, name=queue, request=request, ids=[job]))

    @rule(ms=st.sampled_from([1, 333, 1_000, 15_000]))
    def time_passes(self, ms: int) -> None:
        """What is due by then comes to its queue."""
        self.now_us += ms * 1_000
        for queue in ("q", "r"):
            for job, due_ms in self.client.zrange(self.keys.queue(queue).delayed, 0, -1, withscores=True):
                if due_ms < HELD_BACK_MS:
                    self.client.zadd(self.keys.queue(queue).delayed, {job: min(due_ms, self.now_us / 1_000)})
            self.run(PROMOTE(self.keys, self.keys.queue(queue), front=0))

    @rule(paused=st.sampled_from([["q"], ["r"], []]))
    def run_all(self, paused: list[str]) -> None:
        """As long as workers claim and look, all jobs run, but those of a queue from which nobody claims."""
        turn = 0
        while turn < 6 * len(self.live) + 40 and any(self.queue_of(job) not in paused for job in self.live):
            turn += 1
            self.time_passes(1_000)
            self.let_in()
            for worker, queues in self.serves.items():
                if worker in self.held and not set(queues) & set(paused):
                    self.take(worker, 3)
                    self.no_limit_is_exceeded()
            while any(self.held.values()):
                self.ack(0, lets_in=turn % 2 == 0)
        left = {job for job in self.live if self.queue_of(job) not in paused}
        assert left == set()
        if not paused:
            for worker in self.held:  # ids of those that were cancelled may be left
                self.take(worker, 5)
                self.take(worker, 5)
            self.let_in()
            self.time_passes(15_000)
            self.let_in()
            assert not self.client.zcard(self.keys.held_back)
            fields = [field.decode() for field in self.client.hkeys(self.keys.places)]
            assert not [field for field in fields if field[0] not in "yz" and not re.fullmatch("[0-9a-f]{20}", field)]

    @invariant()
    def no_limit_is_exceeded(self) -> None:
        running = [job for held in self.held.values() for job in held if self.client.hexists(self.keys.places, job)]
        counted = sum("/w" in self.text[job] and ".x" in self.text[job] for job in running)
        assert counted <= MOST
        most = max([0, *(MOST if self.task[job] == "more" else 2 for job in self.task if ".x" in self.text[job])])
        assert counted <= most
        [field] = {match[0] for text in self.text.values() if (match := re.search(r"x[0-9a-f]+", text))} or {"x"}
        count, *_ = (self.client.hget(self.keys.places, field) or b"0").split()
        assert int(count) == counted

    @invariant()
    def no_more_begins_than_the_rates_say(self) -> None:
        for begun in self.begun.values():
            for first, (since, _) in enumerate(begun):
                spent = 0
                for until, cost in begun[first:]:
                    spent += cost
                    assert spent <= 3 + (until - since) * 3 / 1_000_000 + 0.001

    @invariant()
    def each_that_is_held_back_is_in_one_line(self) -> None:
        held_back = list[str]()
        for queue in ("q", "r"):
            delayed = self.client.zrange(self.keys.queue(queue).delayed, 0, -1, withscores=True)
            held_back += [job.decode() for job, score in delayed if score >= HELD_BACK_MS]
        lines = [entry.decode().split(" ", 2) for entry in self.client.zrange(self.keys.held_back, 0, -1)]
        assert sorted(job for _, _, job in lines) == sorted(held_back)
        noted = (self.client.hget(self.keys.places, "+") or b"").decode().split()[::6]
        assert {line for line, _, job in lines if f":{line}" in self.text[job].partition("/w")[2]} <= set(noted)

    # Private.

    def take(self, worker: str, count: int) -> bool:
        """Claim; returns whether some may be let in."""
        queues = self.serves[worker]
        self.numbers[worker] += 1
        command = CLAIM_WITH_PLUGS(
            self.keys,
            claimed=self.keys.claimed(worker),
            queues=keys_of(map(self.keys.queue, queues)),
            worker=worker,
            number=self.numbers[worker],
            count=count,
            suspects=1,
            names=queues,
        )
        status, *answer = self.run(command)
        assert status
        for row in Row.read(self.numbers[worker], answer[2], answer[3], answer[4:]):
            self.held[worker][row.id.decode()] = row.position
            self.begins(row.id.decode())
        return bool(status == 3)

    def begins(self, job: str) -> None:
        rate = re.search(r",\d+\.\d+\.(\d+)\.([yz][0-9a-f]+)", self.text[job])
        if rate and (self.client.hexists(self.keys.places, job) or not self.is_ending(job)):
            limits = TASKS[self.task[job]][1]
            assert limits.rate is not None
            scale = 3 // limits.rate.jobs if limits.rate.jobs == 3 else 1.5
            self.begun.setdefault(rate[2], []).append((self.now_us, int(int(rate[1]) * scale)))

    def is_ending(self, job: str) -> bool:
        """Whether it was claimed only to be ended."""
        found = re.match(rb"(\d+) \d+/\S*/e(\d+) ", self.client.hget(self.keys.bodies, job))
        has_expired = found is not None and self.now_us > (int(found[1]) + int(found[2]) + 1) * 1_000
        return job in self.cancelling or has_expired

    def queue_of(self, job: str) -> str:
        return TASKS[self.task[job]][0]

    def open(self, queues: list[str]) -> None:
        self.opened += 1
        worker = f"w.{self.opened}"
        self.serves[worker], self.held[worker] = queues, {}
        command = HEARTBEAT(
            self.keys, claimed=self.keys.claimed(worker), worker=worker, ttl_ms=HOUR, is_new=1, skip=0, about=""
        )
        self.run(command)

    def any_worker(self, pick: int) -> str:
        return sorted(self.held)[pick % len(self.held)]

    def any_job(self, pick: int) -> tuple[str, str, int]:
        """A worker, and a job that it holds."""
        all_held = [(worker, job, at) for worker, held in self.held.items() for job, at in held.items()]
        return all_held[pick % len(all_held)]


TestLinesModel = LinesModel.TestCase
TestLinesModel.settings = settings(max_examples=examples(20), stateful_step_count=25, deadline=None)
