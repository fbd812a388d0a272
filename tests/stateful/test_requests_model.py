"""The script that adds plain jobs against a set of numbers: in whatever order requests come, each is run once."""

import copy
from typing import Any

from fakeredis import FakeRedis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from inconcert._redis.protocol.keys import Keyspace
from inconcert.tasks.records.store import ENQUEUE_PLAIN, JobKeys
from tests.support.world import examples

SPAN = 600  # seconds, in which one of the two hashes has its turn

sessions = st.sampled_from(["one", "other"])
picks = st.integers(0, 1000)

Request = tuple[str, int]  # session and number


class RequestsModel(RuleBasedStateMachine):
    """Two sessions, whose jobs are run at once, so that nothing is left of them."""

    def __init__(self) -> None:
        super().__init__()
        self.client: Any = FakeRedis()
        self.keys = JobKeys(Keyspace("model"))
        self.seconds = 1_750_000_000
        self.last = {"one": 0, "other": 0}
        self.held: list[Request] = []  # sent, and not there yet
        self.came: list[Request] = []  # not forgotten, so that they may come again
        self.last_at = {"one": 0, "other": 0}  # when the last request of a session came
        self.ends_at: dict[str, int] = {}  # when a hash expires
        self.kept: tuple[Any, ...] = ({}, [], dict(self.last_at), {})

    def teardown(self) -> None:
        self.client.close()

    def come(self, request: Request) -> None:
        session, number = request
        jobs = [part for letter in "ab" for part in (f"{session}{number}{letter}", "{}")]
        command = ENQUEUE_PLAIN(
            self.keys, self.keys.queue("q"), queue_name="q", session=session, number=number, jobs=jobs
        )
        source = command.script.source.replace("redis.call('TIME')", f"{{'{self.seconds}', '0'}}")
        assert self.client.eval(source, len(command.keys), *command.keys, *command.args) == 1
        self.last_at[session] = self.seconds
        for key in self.keys.seen_even, self.keys.seen_odd:
            if key not in self.ends_at and self.client.exists(key):
                self.ends_at[key] = self.seconds + round(self.client.pttl(key) / 1000)
        added = [job.decode() for job in self.client.lrange(self.keys.queue("q").queue, 0, -1)]
        assert added == ([] if request in self.came else jobs[::2])
        assert {job.decode() for job in self.client.hkeys(self.keys.bodies)} == set(added)
        self.client.delete(self.keys.bodies, self.keys.queue("q").queue)
        if added:
            self.came.append(request)

    @rule(session=sessions, is_late=st.booleans())
    def enqueue(self, session: str, is_late: bool) -> None:
        self.last[session] += 1
        self.held.append((session, self.last[session]))
        if not is_late:
            self.come(self.held.pop())

    @rule(pick=picks, is_lost=st.booleans())
    def come_late(self, pick: int, is_lost: bool) -> None:
        if self.held:
            request = self.held.pop(pick % len(self.held))
            if not is_lost:
                self.come(request)

    @rule(pick=picks)
    def come_again(self, pick: int) -> None:
        if self.came:
            self.come(self.came[-1 - pick % len(self.came)])

    @rule(seconds=st.sampled_from([1, SPAN // 2, SPAN - 2, SPAN, -1, -SPAN]))
    def clock_is_moved(self, seconds: int) -> None:
        """Requests of a session may be forgotten ten minutes after the last one, less a second."""
        self.seconds += seconds
        for key in [key for key, end in self.ends_at.items() if end <= self.seconds]:
            del self.ends_at[key]
            self.client.delete(key)
        self.came = [request for request in self.came if self.seconds - self.last_at[request[0]] < SPAN - 1]

    @rule()
    def save(self) -> None:
        dumps = {key: self.client.dump(key) for key in self.client.scan_iter()}
        self.kept = dumps, list(self.came), dict(self.last_at), dict(self.ends_at)

    @rule()
    def go_back(self) -> None:
        """The server loses what came since it was saved; the clients send it again, or not."""
        self.client.flushall()
        dumps, came, self.last_at, self.ends_at = copy.deepcopy(self.kept)
        for key, value in dumps.items():
            self.client.restore(key, 0, value)
        self.held += [request for request in self.came if request not in came]
        self.came = came
        self.clock_is_moved(0)


TestRequestsModel = RequestsModel.TestCase
TestRequestsModel.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
