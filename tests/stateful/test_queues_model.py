"""The scripts of a queue against lists: whatever happens in whatever order, each item is where it must be."""

import json
from dataclasses import dataclass, field
from typing import Any

from fakeredis import FakeRedis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from inconcert._claims.claimed import Row
from inconcert._claims.keys import HEARTBEAT, PROMOTE
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.scripts import Command
from inconcert.queues.store import ACK, GET, INSPECT, JOIN, PURGE_READY, PUT, PUT_PLAIN, SHUT, STANDBY, ItemKeys
from tests.support.ledger import crashes_of, failures_of
from tests.support.world import examples

MOST_CRASHES = 3
HOUR = 3_600_000  # milliseconds
INBOXES = "inbox:"

picks = st.integers(0, 1000)
counts = st.integers(1, 4)
rarely = st.sampled_from([False, False, False, True])


@dataclass
class Worker:
    """What one process has, as the model sees it, in the order in which it was claimed."""

    name: str
    is_alive: bool = True
    number: int = 0
    held: dict[str, int] = field(default_factory=dict[str, int])  # and its place


class QueueModel(RuleBasedStateMachine):
    """Any number of processes on one queue."""

    def __init__(self) -> None:
        super().__init__()
        self.client: Any = FakeRedis()
        self.keys = ItemKeys(Keyspace("model"), "q")
        self.ready: list[str] = []
        self.delayed: list[str] = []
        self.dead: list[str] = []
        self.failures: dict[str, int] = {}
        self.crashes: dict[str, int] = {}
        self.workers: list[Worker] = []
        self.numbers = 0
        self.given: set[str] = set()
        self.is_joined = False
        self.is_shut = 0
        self.put_so_far = self.done = 0

    def teardown(self) -> None:
        self.client.close()

    def new_number(self, count: int = 1) -> int:
        """One that no request or item has had, and so many more."""
        self.numbers += count
        return self.numbers - count + 1

    def run(self, command: Command) -> Any:
        return self.client.eval(command.script.source, len(command.keys), *command.keys, *command.args)

    @initialize()
    def begin_with_one(self) -> None:
        self.begin()
        self.put(4, is_front=False, is_delayed=False, room=-1)

    # Items come in.

    @rule(count=counts, is_front=st.booleans(), is_delayed=rarely, room=st.sampled_from([-1, -1, -1, 0, 1, 2, 3, 4]))
    def put(self, count: int, is_front: bool, is_delayed: bool, room: int) -> None:
        """Some at once, into a queue that has room for so many more; -1 for any number."""
        first = self.new_number(count)
        ids = [f"model.{number}" for number in range(first, first + count)]
        maxsize = -1 if room < 0 else self.live + room
        delay_ms = (self.put_so_far + 1) * 1_000_000 if is_delayed else 0  # each due after those before it
        command = PUT(
            self.keys,
            self.keys.only,
            front=int(is_front),
            delay_ms=delay_ms,
            maxsize=maxsize,
            waits=0,
            inboxes=INBOXES,
            request=ids[0],
            is_given=0,
            items=[part for id_ in ids for part in (id_, json.dumps(id_))],
        )
        if room < 0 and not is_delayed:
            parts = [part for id_ in ids for part in (id_, json.dumps(id_))]
            command = PUT_PLAIN(self.keys, self.keys.only, front=int(is_front), items=parts)
        expected = 3 if self.is_shut else int(room < 0 or count <= room)
        for _ in range(2):  # its reply was lost
            assert self.run(command) == expected
        if expected != 1:
            return
        self.put_so_far += count
        if is_delayed:
            self.delayed += ids
            self.delayed.sort(key=self.due)
        elif is_front:
            self.ready[:0] = reversed(ids)
        else:
            self.ready += ids

    @rule(which=st.integers(1, 4), has_room=st.booleans())
    def put_with_an_id(self, which: int, has_room: bool) -> None:
        """It is put in once, whatever has become of it: nothing is forgotten within a minute."""
        item, request = f"given.{which}", f"model.{self.new_number()}"
        command = PUT(
            self.keys,
            self.keys.only,
            front=0,
            delay_ms=0,
            maxsize=self.live + has_room,
            waits=0,
            inboxes=INBOXES,
            request=request,
            is_given=1,
            items=[item, json.dumps(item)],
        )
        expected = 2 if item in self.given else 3 if self.is_shut else int(has_room)
        for _ in range(2):
            assert self.run(command) == expected
        if expected == 1:
            self.given.add(item)
            self.put_so_far += 1
            self.ready.append(item)

    def due(self, item: str) -> tuple[float, str]:
        """When it is, and of equals the first by name."""
        return self.client.zscore(self.keys.only.delayed, item), item

    @property
    def live(self) -> int:
        """How many are not acknowledged, and not dead."""
        return len(self.ready) + len(self.delayed) + sum(len(worker.held) for worker in self.workers)

    @rule(count=counts, is_front=st.booleans())
    def some_are_due(self, count: int, is_front: bool) -> None:
        only = self.keys.only
        due, self.delayed = self.delayed[:count], self.delayed[count:]
        for number, item in enumerate(due):
            self.client.zadd(only.delayed, {item: number + 1})
        command = PROMOTE(self.keys, only, front=int(is_front))
        assert self.run(command)[0] == len(due)
        assert self.run(command)[0] == 0
        if is_front:
            self.ready[:0] = reversed(due)
        else:
            self.ready += due

    @precondition(lambda self: self.live > 12)  # else there would never be much
    @rule()
    def purge(self) -> None:
        command = PURGE_READY(self.keys, self.keys.only, inboxes=INBOXES, request=self.new_number())
        dropped = len(self.ready) + len(self.delayed)
        for _ in range(2):
            assert self.run(command) == dropped
        for item in (*self.ready, *self.delayed):
            self.end(item)
        self.ready, self.delayed = [], []

    def end(self, item: str) -> None:
        """It is there no more."""
        self.done += 1
        self.failures.pop(item, None)
        self.crashes.pop(item, None)

    @rule()
    def join(self) -> None:
        """Somebody waits until nothing is left."""
        for _ in range(2):
            assert self.run(JOIN(self.keys, address="model.joiner")) == self.live
        self.is_joined = True

    @rule(state=st.sampled_from([0, 0, 1, 2]))
    def shut_or_reopen(self, state: int) -> None:
        """Take nothing more, or everything again; a consumer without work ends if nothing is left, or at once."""
        command = SHUT(self.keys, state=state, inboxes=INBOXES, request=self.new_number())
        for _ in range(2):
            assert self.run(command) == 0
        self.is_shut = state and max(state, self.is_shut)
        is_over = self.is_shut == 2 or (self.is_shut == 1 and not self.live)
        for _ in range(2):
            assert self.run(STANDBY(self.keys, address="model.standby")) == int(is_over)
        self.is_joined = ((self.is_joined and state != 2) or self.is_shut == 1) and self.live > 0

    # Processes come, and claim.

    @rule()
    def begin(self) -> None:
        worker = Worker(f"session.{len(self.workers)}")
        self.workers.append(worker)
        assert (
            self.run(
                HEARTBEAT(
                    self.keys,
                    claimed=self.keys.claimed(worker.name),
                    worker=worker.name,
                    ttl_ms=HOUR,
                    is_new=1,
                    skip=0,
                    about="",
                )
            )[0]
            == 1
        )

    def is_suspect(self, item: str) -> bool:
        return self.crashes.get(item, 0) >= 2

    @rule(pick=picks, count=counts)
    def claim(self, pick: int, count: int) -> None:
        """At most one suspect in the hands of a worker, and those that are left stay in their place."""
        living = [worker for worker in self.workers if worker.is_alive]
        self.claim_as(living[pick % len(living)] if living and pick % 10 else self.any_worker(pick), count)

    def claim_as(self, worker: Worker, count: int) -> None:
        keys, only = self.keys, self.keys.only
        suspects = int(not any(map(self.is_suspect, worker.held)))
        command = GET(
            keys,
            only,
            claimed=keys.claimed(worker.name),
            worker=worker.name,
            number=worker.number + 1,
            count=count,
            suspects=suspects,
        )
        if not worker.is_alive:
            assert self.run(command) == [0]
            return
        self.client.lpop(only.bell)  # as BLPOP does for one who sleeps
        worker.number += 1
        taken: list[str] = []
        left: list[str] = []
        while self.ready and len(taken) < count:
            item = self.ready.pop(0)
            if self.is_suspect(item) and not suspects:
                left.append(item)
            else:
                suspects -= self.is_suspect(item)
                taken.append(item)
        self.ready[:0] = left
        for at, item in enumerate(taken, start=1):
            worker.held[item] = worker.number * 1000 + at
        expected = [
            (item, worker.held[item], 1 + self.failures.get(item, 0) + self.crashes.get(item, 0)) for item in taken
        ]
        for _ in range(2):  # the second for a lost reply
            _, _, _, found, queue, *parts = self.run(command)
            assert [
                (row.id.decode(), row.position, row.attempt) for row in Row.read(worker.number, found, queue, parts)
            ] == expected

    @rule(pick=picks, which=picks, is_late=rarely)
    def ack(self, pick: int, which: int, is_late: bool) -> None:
        worker, keys = self.any_worker(pick), self.keys
        item, at = self.any_item(worker, which)
        command = ACK(
            keys,
            claimed=keys.claimed(worker.name),
            inboxes=INBOXES,
            worker=worker.name,
            items=(item, at + is_late),
        )
        is_held = item in worker.held and not is_late
        for expected in (int(is_held), 0):
            assert self.run(command) == [expected]
        if is_held:
            del worker.held[item]
            self.end(item)

    @rule(pick=picks, which=picks, is_late=rarely, verdict=st.sampled_from(["retry", "again", "back", "dead"]))
    def nack(self, pick: int, which: int, is_late: bool, verdict: str) -> None:
        worker, keys, only = self.any_worker(pick), self.keys, self.keys.only
        item, at = self.any_item(worker, which)
        command = keys.scripts.nack(
            keys,
            only,
            claimed=keys.claimed(worker.name),
            id=item,
            position=at + is_late,
            verdict=verdict,
            delay_ms=10**12,
            reason="{}",
            name="",
            inboxes=INBOXES,
            worker=worker.name,
        )
        is_held = item in worker.held and not is_late
        for expected in (int(is_held), 0):
            assert self.run(command) == expected
        if not is_held:
            return
        del worker.held[item]
        if verdict != "back":
            self.failures[item] = self.failures.get(item, 0) + 1
        if verdict == "dead":
            self.dead.append(item)
        elif verdict == "retry":
            self.delayed.append(item)
            self.client.zadd(only.delayed, {item: 10**13 + len(self.delayed) * 10**6 + self.failures[item]})
            self.delayed.sort(key=self.due)
        else:
            self.ready.insert(0, item)

    # Processes go.

    @rule(pick=picks)
    def die(self, pick: int) -> None:
        """And are found: what they had is at the front, in its old order, or dead with the third crash."""
        worker = self.any_worker(pick)
        worker.is_alive = False
        for key in (self.keys.workers, self.keys.alive):
            self.client.zadd(key, {worker.name: 1}, xx=True)
        back: list[str] = []
        buried: list[str] = []
        for item in worker.held:
            self.crashes[item] = self.crashes.get(item, 0) + 1
            (buried if self.crashes[item] >= MOST_CRASHES else back).append(item)
        for expected in ([len(back), len(buried), 0], [0, 0, 0]):
            assert self.recover(worker, MOST_CRASHES) == expected
        self.ready[:0], self.dead, worker.held = back, self.dead + buried, {}

    @rule(count=counts, times=st.integers(1, 2))
    def some_kill_who_claims_them(self, count: int, times: int) -> None:
        """So that there are suspects."""
        for _ in range(times):
            self.begin()
            newest = len(self.workers) - 1
            self.claim_as(self.workers[newest], count)
            self.die(newest)

    @rule(pick=picks)
    def retire(self, pick: int) -> None:
        worker = self.any_worker(pick)
        for expected in ([len(worker.held), 0, 0], [0, 0, 0]):
            assert self.recover(worker, 0) == expected
        self.ready[:0], worker.held, worker.is_alive = list(worker.held), {}, False

    def recover(self, worker: Worker, max_crashes: int) -> Any:
        keys, only = self.keys, self.keys.only
        command = keys.scripts.recover(
            keys,
            claimed=keys.claimed(worker.name),
            queues=(only.queue, only.bell, only.delayed),
            worker=worker.name,
            max_crashes=max_crashes,
            inboxes=INBOXES,
            names=[""],
        )
        return self.run(command)

    @precondition(lambda self: self.dead)
    @rule(pick=picks, is_dropped=st.booleans())
    def raise_or_drop_a_dead_one(self, pick: int, is_dropped: bool) -> None:
        item, keys, request = self.dead.pop(pick % len(self.dead)), self.keys, self.new_number()
        if is_dropped:
            command = keys.scripts.purge(keys, age_ms=0, keep=0, request=request, ids=[item])
        else:
            command = keys.scripts.replay(keys, keys.only, queue_name="", request=request, jobs=[item, "", ""])
        for _ in range(2):
            assert self.run(command) == ([1, 0] if is_dropped else 1)
        if is_dropped:
            self.end(item)
        else:
            self.failures.pop(item, None)
            self.crashes.pop(item, None)
            self.ready.append(item)

    # What holds after each step.

    @invariant()
    def every_item_is_where_it_must_be(self) -> None:
        client, keys, only = self.client, self.keys, self.keys.only

        def ids(found: list[bytes]) -> list[str]:
            return [id_.decode() for id_ in found if id_ != b"#"]

        assert ids(client.lrange(only.queue, 0, -1)) == self.ready
        assert ids(client.zrange(only.delayed, 0, -1)) == self.delayed
        assert sorted(ids(client.zrange(keys.dead, 0, -1))) == sorted(self.dead)
        held = [sorted(worker.held) for worker in self.workers]
        assert [sorted(ids(client.hkeys(keys.claimed(worker.name)))) for worker in self.workers] == held
        assert len(client.hkeys(keys.bodies)) == self.live + len(self.dead) == self.put_so_far - self.done
        assert failures_of(client.hgetall(keys.facts)) == self.failures
        assert crashes_of(client.hgetall(keys.facts)) == self.crashes
        holding = {worker.name for worker in self.workers if worker.held}
        assert set(ids(client.zrange(keys.workers, 0, -1))) == holding
        assert all(client.ttl(keys.claimed(name)) == -1 for name in holding)
        others = [key for key in client.keys("*:claimed:*") if key.decode().rpartition("claimed:")[2] not in holding]
        assert all(client.ttl(key) > 0 for key in (*others, *client.keys("*:idle")))
        assert not client.exists(keys.finished, keys.watchers, keys.unique, keys.news, keys.line)

    @invariant()
    def what_is_said_of_it_is_so(self) -> None:
        ready, delayed, claimed, dead, _, _, _, _, _, *shown = self.run(
            INSPECT(self.keys, self.keys.only, skip=0, limit=1000)
        )
        held = sum(len(worker.held) for worker in self.workers)
        assert (ready, delayed, claimed, dead) == (len(self.ready), len(self.delayed), held, len(self.dead))
        assert [id_.decode() for id_ in shown[::2]] == self.ready

    @invariant()
    def whoever_joined_waits_while_something_is_left(self) -> None:
        self.is_joined = self.is_joined and self.live > 0
        assert self.client.exists(self.keys.joiners) == self.is_joined

    @invariant()
    def whoever_sleeps_is_woken_while_there_is_work(self) -> None:
        tokens = self.client.llen(self.keys.only.bell)
        assert tokens == 1 or not (tokens or self.may_be_taken_by_all())

    def may_be_taken_by_all(self) -> bool:
        return any(not self.is_suspect(item) for item in self.ready)

    # Private.

    def any_worker(self, pick: int) -> Worker:
        return self.workers[pick % len(self.workers)]

    def any_item(self, worker: Worker, which: int) -> tuple[str, int]:
        """One that it holds, and where; or one that it does not."""
        if not worker.held:
            return f"item{which % (self.put_so_far + 1)}", 1
        return list(worker.held.items())[which % len(worker.held)]


TestQueueModel = QueueModel.TestCase
TestQueueModel.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
