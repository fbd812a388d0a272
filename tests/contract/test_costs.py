"""What plain work costs, counted exactly: a commit that makes it dearer fails here.

`COSTS` has all the numbers.  Raise one only with a reason in the commit; lower it when the work has become cheaper.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

import inconcert
from inconcert import Coordinator, Limit
from inconcert._claims.keys import PROMOTE
from inconcert._redis.protocol.scripts import load
from inconcert.tasks.following.blocked_worker import workers
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.inner import bells_of, channel_of
from tests.support.jobs import keys_of
from tests.support.raw import raw
from tests.support.world import World, world

PACKAGE = f"{Path(inconcert.__file__).parent}/"
ROUNDS = 5  # the cheapest counts: a timer or a reply in two parts may come between
MANY = 200  # jobs


class Cost(NamedTuple):
    """What one piece of work may cost.

    Attributes:
        bytecodes: That our own code executes in CPython 3.11.
        commands: That the server executes, those inside scripts included.
        sent: Bytes that are written to the server.
    """

    bytecodes: float
    commands: float
    sent: float


COSTS = {
    "a lock, taken and released": Cost(bytecodes=1921, commands=9, sent=508),
    "a job, enqueued alone": Cost(bytecodes=927, commands=6, sent=486),
    "a job, enqueued with many": Cost(bytecodes=168, commands=0, sent=134),
    "a job, run with many": Cost(bytecodes=985, commands=0.9, sent=130),  # how many end in one turn differs a little
    "a job, run by a worker that slept": Cost(bytecodes=4950, commands=35, sent=1016),  # and sleeps again
    "a caller that waits for what another computes once": Cost(bytecodes=290, commands=0, sent=0),
    "what another has computed once, handed to a caller that waits": Cost(bytecodes=49, commands=0, sent=0),
    "an item, put, taken and acknowledged": Cost(bytecodes=2991, commands=32, sent=1275),
}
FUNCTIONS = {  # how many a script makes until it usually returns, and where that is
    "permits/acquire": (0, "    return now_us"),
    "permits/release": (0, "  return held"),
    "tasks/enqueue_plain": (0, "if not first or first == '1' then"),
    "tasks/enqueue": (11, "return answer"),
    "tasks/watch": (1, "  return if_small({status, about, ''}, #ended)"),
    "chat/send": (5, "return {1, answer}"),
    "claims/claim": (3, "return answer"),
    "claims/ack": (2, "return end_done"),
    "queues/put_plain": (1, "  return 1"),
    "queues/get": (1, "return answer"),
    "queues/ack+items": (2, "return answer"),
}


class Meter:
    """Counts what is done while it runs."""

    def __init__(self, concert: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
        self._redis = raw(concert)
        self.bytecodes = self.sent = 0
        commands = channel_of(concert._ref.session)._link._wire
        kind: type[Any] = type(commands)
        write: Callable[[object, bytes], None] = kind.write

        def write_and_count(wire: object, data: bytes) -> None:
            self.sent += len(data) * (wire is commands)
            write(wire, data)

        monkeypatch.setattr(kind, "write", write_and_count)

    async def cost_of(
        self, work: Callable[[], Awaitable[object]], before: Callable[[], Awaitable[object]] | None = None
    ) -> Cost:
        """At its cheapest; what comes before it is not counted."""
        found = [await self._once(work, before) for _ in range(ROUNDS)]
        return Cost(*(min(each) for each in zip(*found, strict=True)))

    async def _once(
        self, work: Callable[[], Awaitable[object]], before: Callable[[], Awaitable[object]] | None
    ) -> Cost:
        if before is not None:
            await before()
        await self._redis.config_resetstat()
        self.sent = 0
        with self._traced():
            await work()
        calls = await self._redis.info("commandstats")
        ours = {"cmdstat_config|resetstat", "cmdstat_info"}
        return Cost(self.bytecodes, sum(each["calls"] for name, each in calls.items() if name not in ours), self.sent)

    @contextmanager
    def _traced(self) -> Generator[None]:
        self.bytecodes, before = 0, sys.gettrace()
        sys.settrace(self._begin)
        try:
            yield
        finally:
            sys.settrace(before)

    def _begin(self, frame: FrameType, event: str, argument: object) -> Any:
        del event, argument
        if frame.f_code.co_filename.startswith(PACKAGE):
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return self._step
        return None

    def _step(self, frame: FrameType, event: str, argument: object) -> Any:
        del frame, argument
        self.bytecodes += event == "opcode"
        return self._step


def each_of(few: Cost, many: Cost) -> Cost:
    """What each of twice as many costs more."""
    return Cost(*(round((after - before) / MANY, 1) for before, after in zip(few, many, strict=True)))


def check(what: str, found: Cost) -> None:
    """It costs no more than it may."""
    may = COSTS[what]
    assert found.commands <= may.commands
    assert found.sent <= may.sent
    if sys.version_info[:2] == (3, 11):
        assert found.bytecodes <= may.bytecodes


@pytest.fixture
async def meter(concert: Coordinator, monkeypatch: pytest.MonkeyPatch) -> Meter:
    """Of the test's coordinator."""
    return Meter(concert, monkeypatch)


pytestmark = pytest.mark.skipif(world() != World(), reason="counted in one world")


async def test_lock(concert: Coordinator, meter: Meter) -> None:
    """Alone, by one caller after the other."""

    async def pair() -> None:
        async with concert.lock("door"):
            pass

    await pair()
    check("a lock, taken and released", await meter.cost_of(pair))


async def test_jobs(concert: Coordinator, meter: Meter) -> None:
    """They use nothing but their arguments. What a worker costs to start is taken off."""
    left, stop = [0], asyncio.Event()

    @concert.task(result_ttl=0)
    async def noop(seller: int, item: str) -> None:
        del seller, item
        left[0] -= 1
        if not left[0]:
            stop.set()

    async def enqueue(count: int) -> None:
        await concert.enqueue_many(noop.call(1, "x") for _ in range(count))
        left[0] += count
        stop.clear()

    async def run() -> None:
        await concert.run_worker("default", stop=stop, concurrency=100)

    await noop.enqueue(1, "x")
    check("a job, enqueued alone", await meter.cost_of(lambda: noop.enqueue(1, "x")))
    few, many = [await meter.cost_of(partial(enqueue, count)) for count in (MANY, 2 * MANY)]
    check("a job, enqueued with many", each_of(few, many))
    await concert.run_worker("default", burst=True)
    left[0] = 0
    few, many = [await meter.cost_of(run, before=partial(enqueue, count)) for count in (MANY, 2 * MANY)]
    check("a job, run with many", each_of(few, many))


async def test_pick_up(concert: Coordinator, meter: Meter) -> None:
    """From its enqueueing until the next claim of the worker waits behind the bell; none was in vain."""
    session, has_run = concert._ref.session, asyncio.Event()

    @concert.task(queue="seldom", result_ttl=0)
    async def noop() -> None:
        has_run.set()

    def is_asleep() -> bool:
        worker: Any = next(worker for worker in workers if worker.queues == ("seldom",))
        lease = worker._consumer._open_now()._partitions[0].worker
        may_end = lease.held or lease._ended or not channel_of(session).is_idle
        return not may_end and bells_of(session)._behind is not None

    async def pick_up() -> None:
        await noop.enqueue()
        await has_run.wait()
        await eventually(is_asleep)
        has_run.clear()

    async with in_background(concert.run_worker("seldom", concurrency=10)):
        await pick_up()
        check("a job, run by a worker that slept", await meter.cost_of(pick_up))


async def test_once(concert: Coordinator, meter: Meter) -> None:
    """Of callers in one process, from their call to their value."""
    names = map(str, range(1_000))

    async def make() -> list[int]:
        await asyncio.sleep(0)
        return [1]

    async def ask(count: int) -> None:
        name = next(names)
        await asyncio.gather(*(concert.once(name, make, ttl=60) for _ in range(count)))

    await ask(2)
    few, many = [await meter.cost_of(partial(ask, count)) for count in (MANY, 2 * MANY)]
    check("a caller that waits for what another computes once", each_of(few, many))


async def test_once_handed_over(concert: Coordinator, meter: Meter) -> None:
    """From the end of the computation: each caller is woken once, and decodes an object of its own."""
    names = map(str, range(1_000))
    may_end, calls = asyncio.Event(), set[asyncio.Task[list[int]]]()

    async def make() -> list[int]:
        await may_end.wait()
        return [1]

    async def wait(count: int) -> None:
        name = next(names)
        may_end.clear()
        calls.clear()
        calls.update(asyncio.create_task(concert.once(name, make, ttl=60)) for _ in range(count))
        await eventually(lambda: name in (turns := concert._onces._turns) and turns[name].is_computing)

    async def hand_over() -> None:
        may_end.set()
        values = await asyncio.gather(*calls)
        assert len(set(map(id, values))) == len(values)

    few, many = [await meter.cost_of(hand_over, before=partial(wait, count)) for count in (MANY, 2 * MANY)]
    check("what another has computed once, handed to a caller that waits", each_of(few, many))


async def test_hashes_of_many_jobs_are_tables(concert: Coordinator) -> None:
    """Otherwise the server walks through each for each of the jobs, which was half of all its work."""

    @concert.task
    async def noop() -> None: ...

    async def encodings() -> list[bytes]:
        keys = [concert._ref.keys.parts("tasks", "0", part)[0] for part in ("bodies", "states")]
        sizes = [await redis.hlen(key) for key in keys]
        assert sizes == [20, 20 * bool(claimed)], "what made them tables is gone"
        return [await redis.object("ENCODING", key) for key in keys if await redis.exists(key)]

    redis, claimed = raw(concert), []
    await concert.enqueue_many(noop.call() for _ in range(20))
    assert await encodings() == [b"hashtable"]
    async with concert.consume("default") as jobs:
        claimed = await jobs.claim(20)
        assert await encodings() == [b"hashtable", b"hashtable"]


async def test_item(concert: Coordinator, meter: Meter) -> None:
    """Of a queue, one after the other."""
    queue = concert.queue("q")

    async def one() -> None:
        await queue.put(1)
        async with await queue.get():
            pass

    await one()
    check("an item, put, taken and acknowledged", await meter.cost_of(one))


async def test_item_costs_the_same_however_many_wait(
    concert: Coordinator, elsewhere: Coordinator, meter: Meter
) -> None:
    """In the process that gets it, where it goes to the one that has waited longest."""
    queue = concert.queue("q")
    waiting: set[asyncio.Task[None]] = set()

    async def get() -> None:
        async with await queue.get(timeout=None):
            pass

    async def put() -> None:
        await elsewhere.queue("q").put(1)
        done, _ = await asyncio.wait(waiting, return_when="FIRST_COMPLETED")
        waiting.difference_update(done)

    async def cost_among(count: int) -> float:
        waiting.update(asyncio.create_task(get()) for _ in range(count - len(waiting)))
        await put()  # which comes when all of them wait
        return (await meter.cost_of(put)).bytecodes

    few, many = [await cost_among(count) for count in (10, 1_000)]
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert many <= few + 100


@pytest.mark.each_case
@pytest.mark.parametrize(("expires", "looks"), [(None, 0), (3600.0, 1)])
async def test_line_is_looked_through_for_jobs_that_may_expire(
    concert: Coordinator, expires: float | None, looks: int
) -> None:
    """Only if there are such jobs in it: what is due is moved often, and each look reads hundreds of bodies."""

    @concert.task(limit=Limit(1), expires=expires)
    async def limited() -> None: ...

    await concert.enqueue_many(limited.call() for _ in range(3))
    async with concert.consume("default") as jobs:
        assert len(await jobs.claim(3)) == 1
        redis, keys = raw(concert), keys_of(concert)
        await redis.config_resetstat()
        await concert._ref.session.run(PROMOTE(keys, keys.queue("default"), front=0))
        calls = await redis.info("commandstats")
        assert calls.get("cmdstat_hmget", {"calls": 0})["calls"] == looks


@pytest.mark.each_case
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    """A script makes its functions anew each time it runs: those that it seldom calls come after its usual return."""
    most, usual_return = FUNCTIONS[name]
    before, _, after = load(name).source.partition(f"\n{usual_return}")

    assert after, "it has another usual return"
    assert f"\n{before}".count("\nlocal function ") <= most
