"""Streams that are left half-way: nothing stays subscribed or registered, and others of the process go on."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from inconcert import Coordinator, Gap, Job, NotConnected, Restarted, StreamItem
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.inner import topics_of
from tests.support.leaving import break_it, close_it, closing, forget_it
from tests.support.raw import raw
from tests.support.streams import followed

WITHIN = 10.0  # seconds


class Source:
    """A worker whose jobs yield a number each time that they are let go on, until they end.

    Args:
        concert: Where it runs.
    """

    def __init__(self, concert: Coordinator) -> None:
        self.concert = concert
        self._go_on: dict[str, asyncio.Semaphore] = {}

        @concert.task(name="count")
        async def count(name: str, most: int) -> AsyncIterator[int]:
            for number in range(most):
                yield number
                await self._go_on[name].acquire()

        self._count = count

    async def begin(self, name: str, most: int = 3) -> Job[AsyncIterator[int]]:
        """A job that has yielded its first number, or is about to."""
        self._go_on[name] = asyncio.Semaphore(0)
        return await self._count.enqueue(name, most)

    def go_on(self, name: str) -> None:
        """Let it yield the next number, or end."""
        self._go_on[name].release()

    async def is_clean(self, concert: Coordinator) -> bool:
        """Whether this coordinator subscribes to nothing and waits for nothing, and the server has noted no waiter."""
        if topics_of(concert._ref.session) or any(concert.tasks._watches):
            return False
        return not await raw(self.concert).exists(*(keys.watchers for keys in self.concert._jobs.partitions))


@pytest.fixture
def source(here: Coordinator) -> Source:
    """One whose worker is not started."""
    return Source(here)


async def number(item: Awaitable[StreamItem[Any] | Restarted | Gap]) -> int:
    """The value of the next item."""
    async with asyncio.timeout(WITHIN):
        found = await item
    assert isinstance(found, StreamItem)
    return int(found.value)


@pytest.mark.parametrize("leave", [close_it, break_it, forget_it])
async def test_stream_that_is_left_leaves_nothing(
    any_concert: Coordinator,
    elsewhere: Coordinator,
    source: Source,
    leave: Callable[[Any], Awaitable[None]],
    complaints: list[Any],
) -> None:
    """By `break`, by another task, by the garbage collector; what follows the job beside it gets all."""
    async with in_background(any_concert.run_worker("default")):
        job = elsewhere.tasks.job((await source.begin("a")).id)
        await leave(job.stream())
        gc.collect()
        await eventually(lambda: source.is_clean(elsewhere))
        beside = job.stream()
        assert await number(anext(beside)) == 0
        await leave(job.stream())
        gc.collect()
        await eventually(lambda: not closing())
        for _ in range(3):
            source.go_on("a")
        assert [await number(anext(beside)) for _ in range(2)] == [1, 2]
        assert await anext(beside, None) is None
        await eventually(lambda: source.is_clean(elsewhere))
    assert complaints == []


async def test_streams_are_closed_in_any_order(
    any_concert: Coordinator, elsewhere: Coordinator, source: Source
) -> None:
    """The first of three, while the second waits; that of another job in between."""
    async with in_background(any_concert.run_worker("default", concurrency=2)):
        one, two = [elsewhere.tasks.job((await source.begin(name)).id) for name in "ab"]
        first, second, third, other = one.stream(), one.stream(), one.stream(), two.stream()
        for stream in (first, second, third, other):
            assert await number(anext(stream)) == 0
        waiting = asyncio.create_task(number(anext(second)))
        await asyncio.sleep(0)
        await first.aclose()
        await other.aclose()
        source.go_on("a")
        assert await waiting == 1
        await second.aclose()
        assert await number(anext(third)) == 1
        await third.aclose()
        await eventually(lambda: source.is_clean(elsewhere))
        for name in "aaabbb":
            source.go_on(name)
        assert await followed(one) == await followed(two) == [0, 1, 2]


async def test_stream_whose_wait_was_cut_short_goes_on_after_its_last_item(
    any_concert: Coordinator, elsewhere: Coordinator, source: Source
) -> None:
    """The generator has ended, as any does that is cancelled; another one loses and doubles nothing."""
    async with in_background(any_concert.run_worker("default")):
        job = elsewhere.tasks.job((await source.begin("a")).id)
        items = job.stream()
        last = await anext(items)
        assert isinstance(last, StreamItem)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(items)
        assert await anext(items, None) is None
        await eventually(lambda: source.is_clean(elsewhere))
        for _ in range(3):
            source.go_on("a")
        assert await followed(job, after=last.id) == [1, 2]


async def test_stream_stays_open_while_its_coordinator_closes(
    any_concert: Coordinator, elsewhere: Coordinator, source: Source, complaints: list[Any]
) -> None:
    """One is asked for its next item afterwards, one closed, one forgotten, one asked after all is open again."""
    async with in_background(any_concert.run_worker("default")):
        id_ = (await source.begin("a")).id
        asked, closed, forgotten, late = [elsewhere.tasks.job(id_).stream() for _ in range(4)]
        assert [await number(anext(each)) for each in (asked, closed, forgotten, late)] == [0] * 4
        await elsewhere.__aexit__(None, None, None)
        with pytest.raises(NotConnected):
            await anext(asked)
        assert await anext(asked, None) is None
        await closed.aclose()
        del forgotten
        gc.collect()
        await eventually(lambda: not closing())
        await elsewhere.__aenter__()
        again = elsewhere.tasks.job(id_).stream()
        assert await number(anext(again)) == 0
        with pytest.raises(NotConnected):
            await anext(late)
        for _ in range(3):
            source.go_on("a")
        assert [await number(anext(again)) for _ in range(2)] == [1, 2]
        assert await anext(again, None) is None
        await eventually(lambda: source.is_clean(elsewhere))
    assert complaints == []
