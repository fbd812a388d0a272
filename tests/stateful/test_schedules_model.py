"""The scripts of schedules against a dictionary: whatever is put, paused or deleted between the steps of a worker."""

from dataclasses import dataclass, replace
from typing import Any

from fakeredis import FakeRedis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.scripts import Command
from inconcert.tasks.records.store import JobKeys
from tests.support.scripts import command_of
from tests.support.world import examples

HOUR_MS = 3_600_000

ids = st.sampled_from(["a", "b"])
codes = st.sampled_from([("x of t",), ("y of t",), ("x of t", "y of t")])  # of two releases, and of one between them
any_ids = st.sampled_from(["a", "b", "x of t", "y of t"])
picks = st.integers(0, 20)
overlaps = st.sampled_from(["allow", "skip", "wait"])


@dataclass
class Schedule:
    """One of them, as it must be."""

    rule: str
    since: int
    last: str = "0"  # or 'LAST,BEFORE'
    is_paused: bool = False
    is_due: bool = True  # nobody holds it, and it has a next instant
    holder: int | None = None  # the number of the look that took it
    is_in_code: bool = False


@dataclass
class Step:
    """What a worker has taken and may still enqueue, whatever has happened since."""

    look: int
    id: str
    since: int
    last: str
    held: bytes
    is_in_code: bool


class SchedulesModel(RuleBasedStateMachine):
    """Any number of workers of three releases, and four schedules, two of them in code.

    The instants are those after 0, and all are past. Jobs end in any order; each look decides anew whether the jobs of
    the schedule may run beside each other.
    """

    def __init__(self) -> None:
        super().__init__()
        self.client: Any = FakeRedis()
        self.keys = JobKeys(Keyspace("model"))
        self.known: dict[str, Schedule] = {}
        self.steps: list[Step] = []
        self.enqueued: list[bytes] = []
        self.jobs: dict[str, str] = {}  # each that has not ended -> the one that it waits for, or nothing
        self.clock = 0  # in place of the server's, so that the next instant of a new rule is known
        self.looks = self.requests = 0

    def teardown(self) -> None:
        self.client.close()

    def run(self, script: str, /, *more: object, **named: Any) -> Any:
        command: Command = command_of(f"schedules/{script}", self.keys, *more, **named)
        return self.client.eval(command.script.source, len(command.keys), *command.keys, *command.args)

    def change(self, script: str, id_: str, **named: Any) -> int:
        """Request a change, twice."""
        self.requests += 1
        named |= {"id": id_, "request": self.requests}
        if script != "delete":
            named["changes"] = "changes"
        answer: int = self.run(script, **named)
        assert self.run(script, **named) == answer
        return answer

    # Rules.

    @rule(id_=ids, rule_=st.sampled_from(["r1", "r2"]))
    def put(self, id_: str, rule_: str) -> None:
        """With the same rule it stays where it is."""
        before = self.known.get(id_)
        answer = self.change("put", id_, rule=rule_, since_ms="", definition="{}", result=self.keys.result(id_))
        assert answer == (before is None)
        found = self.known[id_] = before or Schedule(rule_, 0)
        if before is None or before.rule != rule_:
            found.rule = rule_
            self.begin_now(id_)
        found.holder, found.is_due = None, not found.is_paused

    @rule(in_code=codes)
    def declare(self, in_code: tuple[str, ...]) -> None:
        """By a worker that begins, twice. What is known stays where it is, and is taken from its holder."""
        entries = [text for id_ in in_code for text in (id_, "r", "{}")]
        for _ in range(2):
            self.run("declare", ttl_ms=HOUR_MS, entries=entries)
        for id_ in in_code:
            if id_ not in self.known:
                self.known[id_] = Schedule("r", 0, is_in_code=True)
                self.begin_now(id_)
            found = self.known[id_]
            found.holder, found.is_due = None, not found.is_paused

    @rule(id_=st.sampled_from(["x of t", "y of t"]))
    def forget(self, id_: str) -> None:
        """No worker has had it in its code for long; the next that declares anything finds that."""
        if self.known.pop(id_, None) is not None:
            self.client.zadd(self.keys.declared, {id_: 1})
        self.run("declare", ttl_ms=HOUR_MS, entries=[])

    @rule(id_=any_ids)
    def pause(self, id_: str) -> None:
        """It is taken from its holder."""
        found = self.known.get(id_)
        answer = self.change("pause", id_, is_paused=1)
        assert answer == (-1 if found is None else not found.is_paused)
        if found is not None:
            found.is_paused, found.is_due, found.holder = True, False, None

    @rule(id_=any_ids)
    def resume(self, id_: str) -> None:
        """It goes on from now."""
        found = self.known.get(id_)
        answer = self.change("pause", id_, is_paused=0)
        assert answer == (-1 if found is None else found.is_paused)
        if found is not None and found.is_paused:
            self.begin_now(id_)
            found.is_paused, found.is_due = False, True

    @rule(id_=ids)
    def delete(self, id_: str) -> None:
        """Put again, it is another one."""
        assert self.change("delete", id_) == (self.known.pop(id_, None) is not None)

    @rule(in_code=codes)
    def look(self, in_code: tuple[str, ...]) -> None:
        """A worker takes all that are due, but none in code that is not in its own."""
        self.looks += 1
        _, _, held, taken, undeclared = self.run("due", hold_ms=HOUR_MS, ttl_ms=HOUR_MS, ids=in_code)
        followed = {id_: found for id_, found in self.known.items() if id_ in in_code or not found.is_in_code}
        assert {id_.decode() for id_, *_ in taken} == {id_ for id_, found in followed.items() if found.is_due}
        assert [id_.decode() for id_ in undeclared] == [id_ for id_ in in_code if id_ not in self.known]
        for id_, state, _ in taken:
            found = self.known[id_.decode()]
            found.is_due, found.holder = False, self.looks
            since, last, _ = state.split()
            self.steps.append(Step(self.looks, id_.decode(), int(since), last.decode(), held, found.is_in_code))

    @precondition(lambda self: self.steps)
    @rule(pick=picks, is_last=st.booleans(), overlap=overlaps)
    def advance(self, pick: int, *, is_last: bool, overlap: str) -> None:
        """A worker enqueues the next instant, if it still holds the schedule. Then its request comes once more."""
        self.take_step(self.steps[-1 - pick % len(self.steps)], overlap, is_last=is_last)

    @rule(in_code=codes, each=st.lists(overlaps, min_size=2, max_size=4))
    def follow(self, in_code: tuple[str, ...], each: list[str]) -> None:
        """A worker follows one schedule for some instants, undisturbed."""
        for overlap in each:
            self.look(in_code)
            if self.steps:
                self.take_step(self.steps[-1], overlap, is_last=False)

    def take_step(self, step: Step, overlap: str, *, is_last: bool) -> None:
        """Its job may not run beside the one that was enqueued last, unless they may overlap."""
        instant, keys = step.since + 1, self.keys
        job_id, [former, *before] = f"{step.id}@{instant}", [f"{step.id}@{last}" for last in step.last.split(",")]
        live = next((each for each in (former, *before) if each in self.jobs), "")
        named: dict[str, Any] = {
            "is_in_code": int(step.is_in_code),
            "name": "q",
            "schedule": step.id,
            "held_ms": step.held,
            "since_ms": step.since,
            "until_ms": instant,
            "next_ms": "" if is_last else 1,
        }
        if overlap == "allow" or step.last == "0":
            script, comes_after, adds = "advance", False, True
            named |= {"results": keys.results([job_id]), "instants": (instant, job_id, "{}")}
        else:
            script, comes_after = "advance_alone", overlap == "wait" and self.jobs.get(live) == ""
            adds = not live or comes_after
            named |= {"result": keys.result(job_id), "instant_ms": instant, "id": job_id, "envelope": "{}"}
            named |= {"former": former, "before": "".join(before), "waits": int(overlap == "wait")}
        found = self.known.get(step.id)
        is_held = found is not None and found.holder == step.look
        assert self.run(script, keys.queue("q"), **named) == (int(adds) if is_held else -1)
        assert self.run(script, keys.queue("q"), **named) == -1
        if found is None or not is_held:
            return
        last = f"{instant},{live.partition('@')[2]}" if comes_after else str(instant) if adds else found.last
        self.known[step.id] = replace(found, since=instant, last=last, holder=None, is_due=not is_last)
        if adds:
            self.jobs[job_id] = live if comes_after else ""
        if adds and not comes_after:
            self.enqueued.append(job_id.encode())

    @precondition(lambda self: self.jobs)
    @rule(pick=picks, is_dead=st.booleans())
    def end(self, pick: int, *, is_dead: bool) -> None:
        """A job has ended, was cancelled, or is dead; one that waits for it is made ready. All as by other scripts."""
        ended, keys = [*self.jobs][pick % len(self.jobs)], self.keys
        if self.jobs[ended]:
            self.client.hdel(keys.states, ended)
            self.client.hdel(keys.pending, ended)
            self.client.hincrby(keys.waiting, "q", -1)
        if is_dead:
            self.client.zadd(keys.dead, {ended: 1})
        else:
            self.client.hdel(keys.bodies, ended)
        del self.jobs[ended]
        for id_ in [id_ for id_, waits_for in self.jobs.items() if waits_for == ended]:
            assert self.client.hget(keys.states, id_) == b"waiting 0:ended q"
            assert self.client.hget(keys.pending, id_) == self.client.hget(keys.parents, id_) == ended.encode()
            assert self.client.zscore(keys.followers, f"{ended} {id_}") is not None
            assert b"c" in self.client.hget(keys.facts, ended).split()[0]
            self.client.hdel(keys.states, id_)
            self.client.hdel(keys.pending, id_)
            self.client.hincrby(keys.waiting, "q", -1)
            self.client.rpush(keys.queue("q").queue, id_)
            self.enqueued.append(id_.encode())
            self.jobs[id_] = ""

    # What holds after each step.

    @invariant()
    def server_has_what_the_model_has(self) -> None:
        states = {id_.decode(): state.decode() for id_, state in self.client.hgetall(self.keys.schedules).items()}
        assert states == {id_: f"{each.since} {each.last} {each.rule}" for id_, each in self.known.items()}
        assert {*map(bytes.decode, self.client.hkeys(self.keys.definitions))} == self.known.keys()
        paused = {*map(bytes.decode, self.client.smembers(self.keys.paused_schedules))}
        assert paused == {id_ for id_, each in self.known.items() if each.is_paused}
        for is_in_code, line in enumerate((self.keys.looks, self.keys.looks_in_code)):
            looked_at = {*map(bytes.decode, self.client.zrange(line, 0, -1))}
            there = {id_: each for id_, each in self.known.items() if each.is_in_code == bool(is_in_code)}
            assert looked_at == {id_ for id_, each in there.items() if each.is_due or each.holder is not None}

    @invariant()
    def each_instant_has_one_job(self) -> None:
        assert self.client.lrange(self.keys.queue("q").queue, 0, -1) == self.enqueued
        assert len({*self.enqueued}) == len(self.enqueued)

    @invariant()
    def at_most_one_job_waits_for_another(self) -> None:
        waiting = {id_ for id_, waits_for in self.jobs.items() if waits_for}
        assert {*map(bytes.decode, self.client.hkeys(self.keys.pending))} == waiting
        assert int(self.client.hget(self.keys.waiting, "q") or 0) == len(waiting)
        waited_for = [self.jobs[id_] for id_ in waiting]
        assert all(self.jobs[id_] == "" for id_ in waited_for)
        assert len({*waited_for}) == len(waited_for)

    # Private.

    def begin_now(self, id_: str) -> None:
        """Let the script have read our clock."""
        self.clock += 1000
        self.known[id_].since = self.clock
        _, rest = self.client.hget(self.keys.schedules, id_).decode().split(" ", 1)
        self.client.hset(self.keys.schedules, id_, f"{self.clock} {rest}")


TestSchedulesModel = SchedulesModel.TestCase
TestSchedulesModel.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
