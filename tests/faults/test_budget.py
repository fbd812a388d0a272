"""A budget: whatever runs by itself in a user's event loop looks at a bounded number of things in a turn of it.

Counted are the calls of each function of ours in each turn, however many leases, waiters, subscriptions and tasks there
are: never seconds.  What was asked for by many callers and is answered in one turn is theirs, and is not counted.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast

import pytest

import inconcert
from inconcert import Coordinator, NotConnected, OutcomeUnknown, Unavailable
from inconcert._redis.wire import channel, turns
from inconcert._redis.wire.turns import IN_A_TURN
from inconcert.integrations.prometheus import Metrics
from tests.support.eventually import eventually
from tests.support.inner import broadcasts_of, channel_of
from tests.support.servers import RealServer

PACKAGE = f"{Path(inconcert.__file__).parent}/"
EACH = 15  # calls of one function for an entry, such as for each frame of a task
REPLIES = {"data_received"}  # what has come in, to whoever asked for it
SENT_AGAIN = {"is_wanted", "is_in_front_of"}  # what many callers had asked for, with one write after a loss


class Turns:
    """The calls of our functions in each turn of an event loop."""

    def __init__(self) -> None:
        self.most: Counter[str] = Counter()  # of each function, in one turn
        self._calls: Counter[CodeType] = Counter()
        self._replies: FrameType | None = None  # while replies are handed out

    def next(self) -> None:
        """Begin a turn."""
        for code, count in self._calls.items():
            name = f"{code.co_filename.removeprefix(PACKAGE)}: {code.co_qualname}"
            self.most[name] = max(self.most[name], count)
        self._calls.clear()

    def count(self, frame: FrameType, event: str, argument: object) -> None:
        """Called by the interpreter for each call and return."""
        del argument
        code = frame.f_code
        if event == "call" and self._replies is None and code.co_filename.startswith(PACKAGE):
            if code.co_name in REPLIES:
                self._replies = frame
            elif code.co_name not in SENT_AGAIN:
                self._calls[code] += 1
        elif event == "return" and frame is self._replies:
            self._replies = None


@contextmanager
def counted(most: int) -> Generator[None]:
    """No turn of the running loop may call one of our functions more often."""
    loop, seen = cast("Any", asyncio.get_running_loop()), Turns()
    run_once: Any = cast("Any", type(loop))._run_once

    def run_and_count() -> None:
        seen.next()
        run_once(loop)

    loop._run_once = run_and_count
    sys.setprofile(seen.count)
    try:
        yield
    finally:
        sys.setprofile(None)
        del loop._run_once
    seen.next()
    assert {name: count for name, count in seen.most.items() if count > most} == {}
    assert max(seen.most.values()) >= most // EACH  # they were counted


Many = Callable[[Coordinator, Coordinator, int], Awaitable[Any]]


async def start(count: int, wait: Callable[[int], Any]) -> list[asyncio.Task[Any]]:
    """So many tasks that wait."""
    return [asyncio.create_task(wait(number)) for number in range(count)]


async def leases(concert: Coordinator, elsewhere: Coordinator, count: int) -> Any:
    """Of so many locks."""
    del elsewhere
    return await asyncio.gather(*(concert.lock(f"{number}").acquire() for number in range(count)))


async def waiters(concert: Coordinator, elsewhere: Coordinator, count: int) -> Any:
    """In the line of one lock."""
    held = await elsewhere.lock("held").acquire()
    tasks = await start(count, lambda _: concert.lock("held").acquire())
    await eventually(lambda: in_line(concert) == count)
    return held, tasks


async def lines(concert: Coordinator, elsewhere: Coordinator, count: int) -> Any:
    """Each in a line of its own."""
    held = await leases(elsewhere, concert, count)
    tasks = await start(count, lambda number: concert.lock(f"{number}").acquire())
    await eventually(lambda: in_line(concert) == count)
    return held, tasks


async def getters(concert: Coordinator, elsewhere: Coordinator, count: int) -> Any:
    """Of one queue."""
    del elsewhere
    queue = concert.queue("q")
    tasks = await start(count, lambda _: queue.get(timeout=None))
    await eventually(lambda: concert._getters._open and len(concert._getters._open[queue._terms]._getters) == count)
    return tasks


async def signals(concert: Coordinator, elsewhere: Coordinator, count: int) -> Any:
    """That wait for one."""
    del elsewhere
    tasks = await start(count, lambda _: concert.signal("s").wait(timeout=None))
    await eventually(lambda: in_line(concert) == count)
    return tasks


async def subscriptions(concert: Coordinator, elsewhere: Coordinator, count: int) -> Any:
    """To so many signals."""
    del elsewhere

    async def subscribe(number: int) -> None:
        async with concert.signal(f"{number}").subscribe() as subscription:
            async for _ in subscription:
                pass

    tasks = await start(count, subscribe)
    topics = broadcasts_of(concert._ref.session)._channels
    await eventually(lambda: len(topics) == count and all(topic.is_confirmed for topic in topics.values()))
    return tasks


async def writers(concert: Coordinator, elsewhere: Coordinator, count: int) -> Any:
    """In the line of one rwlock, which somebody reads."""
    read = await elsewhere.rwlock("rw").read().acquire()
    tasks = await start(count, lambda _: concert.rwlock("rw").write().acquire(timeout=None))
    await eventually(lambda: in_line(concert) == count)
    return read, tasks


async def callers(concert: Coordinator, elsewhere: Coordinator, count: int) -> Any:
    """In the line of one rate limiter."""
    limiter = concert.rate_limiter("r", 1, period=3600)
    assert await elsewhere.rate_limiter("r", 1, period=3600).try_acquire()
    tasks = await start(count, lambda _: limiter.acquire(timeout=None))

    async def all_wait() -> bool:
        return (await limiter.inspect()).waiting == count

    await eventually(all_wait)
    return tasks


async def results(concert: Coordinator, elsewhere: Coordinator, count: int) -> Any:
    """Waited for, of so many jobs."""
    task = elsewhere.task(name="t")(nothing)
    jobs = await elsewhere.enqueue_many(task.call() for _ in range(count))
    tasks = await start(count, lambda number: concert.tasks.job(jobs[number].id).result(timeout=None))
    watches = concert.tasks._watches
    await eventually(lambda: sum(watch.is_noted for watch in watches) == count)
    return tasks


async def readers(concert: Coordinator, elsewhere: Coordinator, count: int) -> Any:
    """Each of a mailbox of its own."""
    del elsewhere
    tasks = await start(count, lambda number: concert.mailbox(f"{number}").fetch(timeout=None))
    await eventually(lambda: in_line(concert) == count)
    return tasks


async def nothing() -> None:
    """Nothing to do."""


async def tasks(concert: Coordinator, elsewhere: Coordinator, count: int) -> Any:
    """Of the user's own."""
    del concert, elsewhere
    return await start(count, lambda _: asyncio.Event().wait())


def in_line(concert: Coordinator) -> int:
    """How many wait in lines."""
    return sum(len(line.waiters) for line in concert._ref.session.lines._lines.values())


@asynccontextmanager
async def with_many(concert: Coordinator, elsewhere: Coordinator, many: Many, count: int) -> AsyncGenerator[None]:
    """While so many are there."""
    kept = await many(concert, elsewhere, count)
    try:
        yield
    finally:
        parts: list[Any] = [*kept, *(kept[1] if isinstance(kept, tuple) else [])]
        ended: list[asyncio.Task[Any]] = [part for part in parts if isinstance(part, asyncio.Task)]
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)


SIZES = pytest.mark.parametrize(
    "sizes", [(1_000, 20), pytest.param((10_000, IN_A_TURN), marks=pytest.mark.torture)], ids=["1,000", "10,000"]
)


@SIZES
@pytest.mark.parametrize(
    "many", [leases, waiters, writers, lines, callers, getters, signals, subscriptions, results, readers, tasks]
)
async def test_no_turn_of_the_loop_looks_at_more_than_its_budget(
    concert: Coordinator, elsewhere: Coordinator, many: Many, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Renewing, asking and subscribing again after a loss, a report, the look for deadlocks, metrics, and closing."""
    count, in_a_turn = sizes
    metrics = Metrics(concert, registry=None)  # which hears of each lease and each job, too
    for module in turns, channel:
        monkeypatch.setattr(module, "IN_A_TURN", in_a_turn)
    await elsewhere.inspect(timeout=10)  # the first question imports what looks; all answers would begin after that
    async with with_many(concert, elsewhere, many, count):
        session = concert._ref.session
        commands, broadcasts = channel_of(session), broadcasts_of(session)
        kept = [cast("Any", lease) for lease in session.renewal.leases()]
        with counted(EACH * in_a_turn + EACH):  # and what else falls into that turn
            due = time.monotonic()
            for lease in kept:
                lease.renew_at = due
            session.renewal._tick()
            await eventually(lambda: all(lease.renew_at > due for lease in kept))
            for link in commands._link, broadcasts._link:
                link.drop(ConnectionError("lost"))
            await eventually(lambda: commands.is_connected and not commands._unanswered, timeout=60.0)
            session.lines._looked_until = 0.0
            session.lines._look_for_long_waits()
            await elsewhere.inspect(timeout=10)
            await metrics.refresh()
            assert list(metrics.collect())
            await concert.__aexit__(None, None, None)
    metrics.close()
    await concert.__aenter__()


@SIZES
@pytest.mark.parametrize("how", ["in time", "at close"])
async def test_calls_without_an_answer_end_in_many_turns(
    own_server: RealServer, how: str, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a server that stands still: each gets an error of its own, and leaves a line in which it may be."""
    count, in_a_turn = sizes
    for module in turns, channel:
        monkeypatch.setattr(module, "IN_A_TURN", in_a_turn)
    async with Coordinator(own_server.url, timeout=count / 500) as concert:  # in which all are sent
        limiter = concert.rate_limiter("r", 1, period=3600)
        assert await limiter.try_acquire()
        own_server.pause()
        tasks = await start(count, lambda _: limiter.acquire(timeout=None))
        commands = channel_of(concert._ref.session)
        await eventually(lambda: len([*commands.under_way()]) == count)
        with counted(2 * EACH * in_a_turn):  # what takes a call back may be overdue, too
            if how == "at close":
                await concert.__aexit__(None, None, None)
            errors = await asyncio.gather(*tasks, return_exceptions=True)
        own_server.resume()
    assert {type(error) for error in errors} <= {NotConnected, OutcomeUnknown, Unavailable}
