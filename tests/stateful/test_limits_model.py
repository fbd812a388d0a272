"""The limits of tasks: never more jobs than places, no place leaks, nothing waits while there is one; strict order."""

import re
from collections import Counter
from itertools import takewhile
from typing import Any

from fakeredis import FakeRedis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from inconcert._claims.claimed import Row
from inconcert._claims.keys import CLAIM, HEARTBEAT, PROMOTE
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.scripts import Binder, Command
from inconcert.tasks.records.limits import HELD_BACK_MS, Limit, Rate, TaskLimits
from inconcert.tasks.records.store import (
    ACK_AND_ENQUEUE,
    ACK_WITH_PLUGS,
    CANCEL,
    CLAIM_WITH_PLUGS,
    ENQUEUE,
    GO_ON,
    LIFT_LIMITS,
    RESCHEDULE,
    JobKeys,
)
from tests.support.world import examples

HOUR = 3_600_000  # milliseconds
INBOXES = "inbox:"
LIMITS = {
    "none": TaskLimits(),
    "task": TaskLimits(Limit(2)),
    "task, changed": TaskLimits(Limit(4)),
    "key": TaskLimits(key=str, key_limit=1),
    "both": TaskLimits(Limit(3), str, 2),
    "both, changed": TaskLimits(Limit(2), str, 3),
    "rate": TaskLimits(rate=Rate(2, per=1.0)),
    "rate, changed": TaskLimits(rate=Rate(4, per=1.0)),
    "rate of a key": TaskLimits(key=str, rate=Rate(2, per=1.0, key=True)),
    "rate and limit of a key": TaskLimits(key=str, key_limit=1, rate=Rate(3, per=1.0, key=True)),
    "all": TaskLimits(Limit(3), str, 2, Rate(1, per=1.0)),
    "all, changed": TaskLimits(Limit(3), str, 2, Rate(3, per=1.0)),
    "share": TaskLimits(key=str, share=True),
    "share of few": TaskLimits(Limit(2), str, share=True),
    "share of all": TaskLimits(Limit(3), str, 1, Rate(1, per=1.0), share=True),
    "share of all, changed": TaskLimits(Limit(1), str, 2, Rate(1, per=1.0), share=True),
    "order": TaskLimits(key=str, key_order="strict"),
    "order that goes on": TaskLimits(key=str, key_order="strict", key_on_dead="go_on"),
    "order of few": TaskLimits(Limit(2), str, rate=Rate(3, per=1.0), key_order="strict"),
}

picks = st.integers(0, 1000)


class LimitsModel(RuleBasedStateMachine):
    """Workers on one queue, to which jobs of several tasks come."""

    def __init__(self) -> None:
        super().__init__()
        self.client: Any = FakeRedis()
        self.keys = JobKeys(Keyspace("model"))
        self.queue = self.keys.queue("q")
        self.limits: dict[str, dict[str, int]] = {}  # job -> limit -> how many places it has
        self.held: dict[str, dict[str, int]] = {}  # worker -> job -> position
        self.lost: list[tuple[str, str, int]] = []  # worker, job and position, of what others may have now
        self.numbers: Counter[str] = Counter()
        self.cancelling: set[str] = set()
        self.live: set[str] = set()
        self.dead: set[str] = set()
        self.requests = 0
        self.now_us = 1_700_000_000_000_000  # the server's clock
        self.rate: dict[str, str] = {}  # job -> the rate at which those of its task begin
        self.fastest: dict[str, int] = {}  # rate -> how many begin in a second, of what its jobs say
        self.begun: dict[str, list[int]] = {}  # rate -> when jobs were claimed that it limits
        self.key: dict[str, str] = {}  # job -> its key, if keys of its task take turns
        self.order: dict[str, str] = {}  # job -> its key, if that is in strict order
        self.stopping: set[str] = set()  # keys that stop at a dead job
        self.begun_of: dict[str, str] = {}  # key in strict order -> its job that was claimed and has not ended
        self.comes: dict[
            str, list[str]
        ] = {}  # such a key -> jobs that have not begun, in the order of their enqueueing
        self.opened = 2  # workers so far

    def run(self, command: Command) -> Any:
        time = f"{{{self.now_us // 1_000_000}, {self.now_us % 1_000_000}}}"
        source = command.script.source.replace("redis.call('TIME')", time)
        return self.client.eval(source, len(command.keys), *command.keys, *command.args)

    @initialize()
    def start(self) -> None:
        for worker in ("w.1", "w.2"):
            self.open(worker)

    @rule(task=st.sampled_from(sorted(LIMITS)), key=st.integers(1, 2), count=st.integers(1, 4), is_late=st.booleans())
    def enqueue(self, task: str, key: int, count: int, is_late: bool, expires: float | None = None) -> None:
        for _ in range(count):
            job, text = self.draw(task, key, expires)
            if not is_late:
                self.comes.setdefault(self.order[job], []).append(job)
            self.run(
                ENQUEUE(
                    self.keys,
                    self.queue,
                    results=[self.keys.result(job)],
                    queue_name="q",
                    jobs=(job, text, HOUR * is_late, "", 0),
                )
            )

    @rule(task=st.sampled_from(sorted(LIMITS)), key=st.integers(1, 2), count=st.integers(1, 4))
    def enqueue_for_a_second(self, task: str, key: int, count: int) -> None:
        """They expire then."""
        self.enqueue(task, key, count, is_late=False, expires=1.0)

    @rule(pick=picks, count=st.integers(1, 5), is_sent_again=st.booleans())
    def claim(self, pick: int, count: int, is_sent_again: bool) -> None:
        worker = self.any_worker(pick)
        if is_sent_again and self.numbers[worker]:
            assert set(self.ask(worker, self.numbers[worker], count)) <= set(self.held[worker])
            return
        self.numbers[worker] += 1
        self.take(worker, count)

    @rule(pick=picks, count=st.integers(1, 20))
    def claim_without_plugs(self, pick: int, count: int) -> None:
        """It takes what comes before the first job that has limits, or had some when it was cancelled, and says so."""
        worker = self.any_worker(pick)
        before = [job.decode() for job in self.client.lrange(self.queue.queue, 0, -1)]
        known = [job for job in before if job in self.live or self.client.hexists(self.keys.facts, job)]
        plain = list(takewhile(self.is_plain, known))
        self.numbers[worker] += 1
        taken, status = self.claim_by(CLAIM, worker, self.numbers[worker], count)
        assert list(taken) == plain[:count]
        if len(plain) < min(count, len(known)):
            assert status == 2
        left = [job.decode() for job in self.client.lrange(self.queue.queue, 0, -1)]
        assert left == before[len(before) - len(left) :]
        assert [job for job in left if job in known] == known[len(taken) :]
        self.held[worker].update(taken)

    def is_plain(self, job: str) -> bool:
        """Whether the plain form of a script may claim it."""
        limits = self.limits[job] or self.key[job] or self.order[job] or self.rate[job] or self.expires(job)
        return job in self.live and not limits

    def expires(self, job: str) -> bool:
        """Whether scripts know when it expires."""
        return re.match(rb"\d+ \d+/\S*/e\d+ ", self.client.hget(self.keys.bodies, job)) is not None

    @precondition(lambda self: any(self.held.values()))
    @rule(pick=picks, has_follower=st.booleans(), task=st.sampled_from(sorted(LIMITS)))
    def ack(self, pick: int, has_follower: bool, task: str) -> None:
        worker, job, at = self.any_job(pick)
        if has_follower:
            follower, text = self.draw(task, 1)
            command = ACK_AND_ENQUEUE(
                self.keys,
                self.queue,
                claimed=self.keys.claimed(worker),
                result=self.keys.result(job),
                kept_attempts=self.keys.kept_attempts([job])[0],
                queues=self.queue[1:],
                inboxes=INBOXES,
                worker=worker,
                id=job,
                position=at,
                outcome="",
                ttl_ms=0,
                name="",
                histories="",
                jobs=(follower, text, 0, "q"),
            )
        else:
            command = self.ack_of(worker, job, at)
        assert self.run(command) == [1]
        assert self.run(command) == [0]
        del self.held[worker][job]
        self.live.remove(job)
        self.has_ended(job)

    @precondition(lambda self: any(self.held.values()))
    @rule(pick=picks, verdict=st.sampled_from(["retry", "again", "back", "asleep", "crash", "dead"]))
    def nack(self, pick: int, verdict: str) -> None:
        worker, job, at = self.any_job(pick)
        command = self.nack_of(worker, job, at, verdict)
        assert self.run(command) > 0
        assert self.run(command) == 0
        del self.held[worker][job]
        if verdict == "dead":
            self.is_dead(job)

    @rule(pick=picks, is_dead=st.booleans(), claims=st.booleans())
    def recover(self, pick: int, is_dead: bool, claims: bool) -> None:
        """A worker dies, or retires, and another takes its place, and perhaps its jobs."""
        worker = self.any_worker(pick)
        if is_dead:
            self.client.zrem(self.keys.workers, worker)
            self.client.zrem(self.keys.alive, worker)
        self.run(
            self.keys.scripts.recover(
                self.keys,
                claimed=self.keys.claimed(worker),
                queues=self.queue[1:],
                worker=worker,
                max_crashes=3 * is_dead,
                inboxes=INBOXES,
                names=["q"],
            )
        )
        for job, at in self.held.pop(worker).items():
            self.lost.append((worker, job, at))
            if self.client.zscore(self.keys.dead, job) is not None:
                self.is_dead(job)
        self.opened += 1
        self.open(f"w.{self.opened}")
        if claims:
            self.claim(pick, 5, is_sent_again=False)

    @precondition(lambda self: self.live)
    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        job = sorted(self.live)[pick % len(self.live)]
        self.requests += 1
        command = CANCEL(
            self.keys,
            self.queue,
            results=[self.keys.result(job), *self.keys.kept_attempts([job])],
            ttl_ms=HOUR,
            inboxes=INBOXES,
            request=f"request{self.requests}",
            ids=[job],
        )
        [answer] = self.run(command)
        assert self.run(command) == [answer]
        if answer == 1:
            self.live.remove(job)
            self.cancelling.discard(job)
            self.has_ended(job)
        elif answer == 0:
            self.cancelling.add(job)

    @precondition(lambda self: self.live)
    @rule(pick=picks, is_late=st.booleans())
    def reschedule(self, pick: int, is_late: bool) -> None:
        job = sorted(self.live)[pick % len(self.live)]
        self.leaves_its_place(job)
        self.requests += 1
        request = f"request{self.requests}"
        self.run(RESCHEDULE(self.keys, self.queue, delay_ms=HOUR * is_late, name="q", request=request, ids=[job]))

    @rule()
    def promote(self) -> None:
        """All that is delayed is due, but for what is held back."""
        for job, score in self.client.zrange(self.queue.delayed, 0, -1, withscores=True):
            if score < HELD_BACK_MS:
                self.client.zadd(self.queue.delayed, {job: 1})
        self.run(PROMOTE(self.keys, self.queue, front=0))

    @rule(ms=st.sampled_from([1, 499, 500, 1_000, 10_000]))
    def time_passes(self, ms: int) -> None:
        """What is due by then comes to its queue."""
        self.now_us += ms * 1_000
        self.run(PROMOTE(self.keys, self.queue, front=0))

    @precondition(lambda self: self.dead)
    @rule()
    def replay(self) -> None:
        self.requests += 1
        jobs = [part for job in sorted(self.dead) for part in (job, "", "")]
        self.run(
            self.keys.scripts.replay(
                self.keys, self.queue, queue_name="q", request=f"request{self.requests}", jobs=jobs
            )
        )
        self.dead.clear()

    @precondition(lambda self: self.dead)
    @rule(pick=picks)
    def purge(self, pick: int) -> None:
        """A key goes on before the dead job is dropped at which it stops."""
        job = sorted(self.dead)[pick % len(self.dead)]
        self.requests += 1

        def purge(request: str) -> list[Any]:
            purging = self.keys.scripts.purge(self.keys, age_ms=0, keep=0, request=request, ids=[job])
            found: list[Any] = self.run(purging)
            return found

        if self.begun_of.get(self.order[job]) == job:
            assert purge(f"request{self.requests}") == [0, 1, job.encode(), b"q"]
            assert self.run(GO_ON(self.keys, self.queue, ids=[job])) == 1
            assert self.run(GO_ON(self.keys, self.queue, ids=[job])) == 0
            self.has_ended(job)
        assert purge(f"request{self.requests} again") == [1, 0]
        self.dead.remove(job)
        self.live.remove(job)

    @rule()
    def run_all(self) -> None:
        """As long as workers claim and jobs end, all of them run: none starves."""
        if self.dead & set(self.begun_of.values()):
            self.replay()
        for _ in range(3):
            self.promote()
            for _ in range(2 * len(self.live) + 2):
                self.time_passes(1_000)
                for worker in self.held:
                    self.numbers[worker] += 1
                    self.take(worker, 3)
                    self.no_limit_is_exceeded()
                while any(self.held.values()):
                    self.ack(0, has_follower=False, task="none")
        assert self.live == self.dead
        assert not self.kept()
        assert not self.begun_of
        assert not [field for field in self.client.hkeys(self.keys.places) if field.startswith((b"@", b"="))]
        assert {job.decode() for job in self.client.hkeys(self.keys.facts)} <= self.dead

    @invariant()
    def no_limit_is_exceeded(self) -> None:
        running: Counter[str] = Counter()
        for held in self.held.values():
            for job in held:
                if job not in self.ending():
                    running.update(self.limits[job].keys())
        most: Counter[str] = Counter()
        for limits in self.limits.values():
            most |= Counter(limits)
        assert all(count <= most[limit] for limit, count in running.items())
        kept = self.kept()
        assert {limit: count for limit, (count, _) in kept.items() if count} == dict(running)
        needed = {limit for limit, _ in self.lines()}
        for job in self.client.lrange(self.queue.queue, 0, -1):
            needed |= self.limits.get(job.decode(), {}).keys()
        keys = {field.decode()[1:] for field in self.client.hkeys(self.keys.places) if field.startswith(b"@")}
        assert kept.keys() - running.keys() <= needed | keys  # nothing stays of a limit that no job needs

    @invariant()
    def whoever_is_held_back_is_in_one_line(self) -> None:
        delayed = self.client.zrange(self.queue.delayed, 0, -1, withscores=True)
        held_back = [job.decode() for job, score in delayed if score >= HELD_BACK_MS]
        assert sorted(job for _, job in self.lines()) == sorted(held_back)

    @invariant()
    def no_job_waits_for_a_free_place_unless_another_is_about_to_take_it(self) -> None:
        kept = self.client.hgetall(self.keys.places)
        queued = [job.decode() for job in self.client.lrange(self.queue.queue, 0, -1)]
        paced = [job for job, due_ms in self.delayed_for_a_while().items() if self.rate[job] and self.is_soon(due_ms)]
        paced += [job for limit, job in self.lines() if limit == self.rate[job]]
        coming = [job for job in queued if job in self.live or job.encode() in kept]
        about_to = {limit for job in coming + paced for limit in self.limits[job]}
        full = {limit for limit, (count, most) in self.kept().items() if count >= most}
        for limit, job in self.lines():
            if limit == self.key[job]:
                assert f"@{limit}".encode() in kept or limit in full
            elif limit == self.order[job]:
                assert f"@{limit}".encode() in kept
            elif limit != self.rate[job]:
                assert limit in full | about_to

    @invariant()
    def the_job_of_a_key_whose_turn_it_is_is_on_its_way(self) -> None:
        """In the queue, or as the only one of its key in the line of its task, or due soon because of its rate."""
        kept = {field.decode(): value.decode() for field, value in self.client.hgetall(self.keys.places).items()}
        queued = [job.decode() for job in self.client.lrange(self.queue.queue, 0, -1)]
        lines = self.lines()
        for field, job in kept.items():
            if field.startswith("@") and self.order[job]:
                assert self.order[job] == field[1:] == kept[f"={job}"]
                assert job in self.live or job in kept
                assert (field[1:], job) not in lines
                assert (
                    job in self.dead
                    or job in self.begun_of.values()
                    or job in queued
                    or job in {job for _, job in lines}
                    or job in self.delayed_for_a_while()
                )
            elif field.startswith("@"):
                assert self.key[job] == field[1:]
                assert job in self.live or job in kept  # cancelled in the queue: whoever claims it passes the turn on
                assert job in queued or job in self.delayed_for_a_while() or job in {job for _, job in lines}
                assert (field[1:], job) not in lines
        ahead = Counter(self.key[job] for limit, job in lines if self.key[job] not in {"", limit})
        assert all(count == 1 for count in ahead.values())

    @invariant()
    def no_more_jobs_begin_than_the_rate_says(self) -> None:
        for rate, begun in self.begun.items():
            most = self.fastest[rate]
            for first, since in enumerate(begun):
                for last, until in enumerate(begun[first:], 1):
                    assert last <= most + (until - since) * most / 1_000_000

    @invariant()
    def the_next_job_of_a_rate_comes_as_soon_as_it_may(self) -> None:
        kept = self.client.hgetall(self.keys.places)
        queued = [job.decode() for job in self.client.lrange(self.queue.queue, 0, -1)]
        coming = {self.rate[job] for job in queued if job in self.live or job.encode() in kept}
        coming |= {self.rate[job] for job, due_ms in self.delayed_for_a_while().items() if self.is_soon(due_ms)}
        assert {limit for limit, job in self.lines() if limit == self.rate[job]} <= coming

    # Private.

    def take(self, worker: str, count: int) -> None:
        claimed = self.ask(worker, self.numbers[worker], count)
        assert not set(claimed) & {job for held in self.held.values() for job in held}
        self.held[worker] |= claimed
        for job in claimed:
            self.end_late(job)
            self.begins(job)
            if self.rate[job] and job not in self.cancelling and not self.has_expired(job):
                self.begun.setdefault(self.rate[job], []).append(self.now_us)

    def begins(self, job: str) -> None:
        """None of its key that came before it is left, if that is in strict order."""
        key = self.order[job]
        if key and self.begun_of.get(key) != job:
            assert key not in self.begun_of
            if job in self.comes.get(key, ()):
                assert self.comes[key].pop(0) == job
            self.begun_of[key] = job

    def has_ended(self, job: str) -> None:
        self.leaves_its_place(job)
        if self.begun_of.get(self.order[job]) == job:
            del self.begun_of[self.order[job]]

    def leaves_its_place(self, job: str) -> None:
        """It comes behind others of its key, if at all."""
        if job in self.comes.get(self.order[job], ()):
            self.comes[self.order[job]].remove(job)

    def is_dead(self, job: str) -> None:
        self.dead.add(job)
        self.cancelling.discard(job)
        if self.order[job] not in self.stopping:
            self.has_ended(job)

    def end_late(self, job: str) -> None:
        """Workers that were presumed dead end a job that another has now."""
        for lost in [lost for lost in self.lost if lost[1] == job]:
            assert self.run(self.ack_of(*lost)) == [0]
            assert self.run(self.nack_of(*lost, "again")) == 0

    def lines(self) -> list[tuple[str, str]]:
        """The limit and the job of each that is held back."""
        entries = [entry.decode().split(" ", 2) for entry in self.client.zrange(self.keys.held_back, 0, -1)]
        entries = [entry for entry in entries if len(entry) == 3]  # otherwise it says when a rate of a key is looked at
        return [(limit, job) for limit, _, job in entries]

    def delayed_for_a_while(self) -> dict[str, float]:
        """The delayed jobs that are not held back, and when they are due."""
        delayed = self.client.zrange(self.queue.delayed, 0, -1, withscores=True)
        return {job.decode(): due for job, due in delayed if due < HELD_BACK_MS}

    def is_soon(self, due_ms: float) -> bool:
        """Whether it is as soon as any rate lets one begin."""
        return due_ms <= self.now_us / 1_000 + 1_001

    def kept(self) -> dict[str, tuple[int, int]]:
        """Of each limit that the server knows: how many have a place in it, of how many."""
        limits = {limit for limits in self.limits.values() for limit in limits}
        found = {field.decode(): value.decode() for field, value in self.client.hgetall(self.keys.places).items()}
        return {limit: (int(found[limit].split()[0]), int(found[limit].split()[1])) for limit in limits & found.keys()}

    def ending(self) -> set[str]:
        """Those that were claimed only to be ended, because they are cancelled or have expired."""
        without = {job for job in self.live if not self.client.hexists(self.keys.places, job)}
        return {job for job in without if job in self.cancelling or self.has_expired(job)}

    def has_expired(self, job: str) -> bool:
        """Whether it is too late for it to begin."""
        found = re.match(rb"(\d+) \d+/\S*/e(\d+) ", self.client.hget(self.keys.bodies, job))
        return found is not None and self.now_us > (int(found[1]) + int(found[2]) + 1) * 1_000

    def open(self, worker: str) -> None:
        self.held[worker] = {}
        self.run(
            HEARTBEAT(
                self.keys, claimed=self.keys.claimed(worker), worker=worker, ttl_ms=HOUR, is_new=1, skip=0, about=""
            )
        )

    def draw(self, task: str, key: int, expires: float | None = None) -> tuple[str, str]:
        job = f"job{len(self.limits) + 1}"
        limits = LIMITS[task].of(task.partition(",")[0], "q", (key,), {}, expires=expires)
        parts = [part.split(":") for part in limits.split("/")[1:] if ":" in part]
        self.limits[job] = {limit: int(n) for n, limit in parts if n.isdigit()}
        self.key[job] = next((limit for n, limit in parts if n == "s"), "")
        self.order[job] = next((limit for n, limit in parts if n in {"o", "g"}), "")
        self.stopping.update(limit for n, limit in parts if n == "o")
        self.rate[job] = next((limit for n, limit in parts if n.startswith("r")), "")
        if rate := LIMITS[task].rate:
            self.fastest[self.rate[job]] = max(rate.jobs, self.fastest.get(self.rate[job], 0))
        self.live.add(job)
        return job, f"3{limits} {{}}" if limits else "{}"

    def ask(self, worker: str, number: int, count: int) -> dict[str, int]:
        taken, status = self.claim_by(CLAIM_WITH_PLUGS, worker, number, count)
        assert status == 1 + bool(self.client.exists(self.keys.places)) or not taken
        return taken

    def claim_by(self, script: Binder, worker: str, number: int, count: int) -> tuple[dict[str, int], int]:
        """By this form of the script."""
        command = script(
            self.keys,
            claimed=self.keys.claimed(worker),
            queues=self.queue[1:],
            worker=worker,
            number=number,
            count=count,
            suspects=1,
            names=["q"],
        )
        status, *answer = self.run(command)
        assert status
        assert answer[0] < HELD_BACK_MS / 2
        return {row.id.decode(): row.position for row in Row.read(number, answer[2], answer[3], answer[4:])}, status

    def ack_of(self, worker: str, job: str, at: int) -> Command:
        """What ends a job that is done."""
        return ACK_WITH_PLUGS(
            self.keys,
            claimed=self.keys.claimed(worker),
            results=(
                self.keys.result(job),
                *self.keys.kept_attempts([job]),
                *(self.queue[1:] if self.limits[job] or self.order[job] else ()),
            ),
            inboxes=INBOXES,
            worker=worker,
            histories="",
            failed="1,",
            jobs=(job, at, "", 0, ""),
        )

    def nack_of(self, worker: str, job: str, at: int, verdict: str) -> Command:
        """What ends an attempt."""
        return self.keys.scripts.nack(
            self.keys,
            self.queue,
            claimed=self.keys.claimed(worker),
            id=job,
            position=at,
            verdict=verdict,
            delay_ms=0,
            reason="{}" if verdict == "dead" else "",
            name="q",
            inboxes=INBOXES,
            worker=worker,
        )

    def any_worker(self, pick: int) -> str:
        return sorted(self.held)[pick % len(self.held)]

    def any_job(self, pick: int) -> tuple[str, str, int]:
        """A worker, and a job that it holds."""
        all_held = [(worker, job, at) for worker, held in self.held.items() for job, at in held.items()]
        return all_held[pick % len(all_held)]


class LiftedModel(LimitsModel):
    """Workers that start have no limits of some tasks any more, while jobs of an older release still come."""

    @rule(task=st.sampled_from([name for name, limits in LIMITS.items() if limits.limit or limits.rate]))
    def lift(self, task: str) -> None:
        lifted = TaskLimits().lifted(task.partition(",")[0], "q")
        self.run(LIFT_LIMITS(self.keys, self.queue, name="q", quiet_ms=0, lifted=lifted))
        rate, limit = (text.rpartition(":")[2] for text in lifted)
        self.limits[f"lifted {limit}"] = {limit: 1_000_000_000}
        self.fastest[rate] = 1_000_000


class OrderModel(LimitsModel):
    """All jobs are of few keys in strict order."""

    @rule(
        task=st.sampled_from([name for name, limits in LIMITS.items() if limits.key_order]),
        key=st.integers(1, 2),
        count=st.integers(1, 4),
        is_late=st.booleans(),
    )
    def enqueue(self, task: str, key: int, count: int, is_late: bool, expires: float | None = None) -> None:
        super().enqueue(task, key, count, is_late, expires)

    @rule(task=st.sampled_from([name for name, limits in LIMITS.items() if limits.key_order]), count=st.integers(1, 4))
    def enqueue_for_a_second(self, task: str, count: int) -> None:
        self.enqueue(task, 1, count, is_late=False, expires=1.0)


TestLimitsModel = LimitsModel.TestCase
TestLimitsModel.settings = settings(max_examples=examples(25), stateful_step_count=30, deadline=None)
TestOrderModel = OrderModel.TestCase
TestOrderModel.settings = settings(max_examples=examples(15), stateful_step_count=30, deadline=None)
TestLiftedModel = LiftedModel.TestCase
TestLiftedModel.settings = settings(max_examples=examples(10), stateful_step_count=30, deadline=None)


def test_job_that_ends_late_frees_no_place_of_another_worker() -> None:
    """It was recovered, and claimed again; the model seldom comes that way."""
    model = LimitsModel()
    model.start()
    model.enqueue(task="both", key=1, count=1, is_late=False)
    model.claim(0, 1, is_sent_again=False)
    model.recover(0, is_dead=True, claims=True)
    assert ("w.1", "job1", 1001) in model.lost
    assert "job1" in model.held["w.2"]
    model.no_limit_is_exceeded()


def test_releases_that_say_different_rates_let_no_more_begin_than_the_faster() -> None:
    """Their jobs come in turns, and each changes the rate; the model seldom comes that way."""
    model = LimitsModel()
    model.start()
    for task in ["rate, changed", "rate"] * 5:
        model.enqueue(task=task, key=1, count=4, is_late=False)
        model.claim(0, 5, is_sent_again=False)
        model.time_passes(1)
    model.no_more_jobs_begin_than_the_rate_says()
