"""Steps, streams and groups with megabytes, on a link that is slow: nobody is presumed dead, and nothing runs again."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from inconcert import Coordinator, StreamItem, current_job, durable
from tests.support.background import in_background
from tests.support.proxy import Proxy
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease

LEASE = 4.0  # seconds of a heartbeat, here: less than all of it takes, and more than one large call does
WITHIN = 60.0  # seconds
COUNT = 10
TEXT = "x" * 1_000_000


@pytest.fixture
async def slow(server: RealServer) -> AsyncIterator[Proxy]:
    """A link of 2 MB/s to the common server."""
    async with Proxy(server.tcp_url, rate=2e6) as opened:
        yield opened


@pytest.fixture
async def far(concert: Coordinator, slow: Proxy, namespace: str) -> AsyncIterator[Coordinator]:
    """A process at its end; it has ended when that of `concert` does."""
    del concert
    async with with_lease(Coordinator(slow.url, namespace=namespace), LEASE) as opened:
        yield opened


async def test_large_steps_that_end_at_once_are_kept(concert: Coordinator, far: Coordinator) -> None:
    """Each has run once, and the job is attempted once, while another worker looks for dead ones."""
    ran = Counter[int]()

    async def large(step: int) -> str:
        ran[step] += 1
        return TEXT

    @far.task(name="t", queue="far")
    async def task() -> int:
        texts = await asyncio.gather(*(durable.step(f"{step}", large, step) for step in range(COUNT)))
        assert texts == [TEXT] * COUNT
        return current_job().attempt

    async with in_background(far.run_worker("far")), in_background(concert.run_worker("default")):
        job = await concert.enqueue("t", queue="far")
        assert await job.result(timeout=WITHIN) == 1
    assert ran == dict.fromkeys(range(COUNT), 1)


@pytest.mark.parametrize("who", ["writer", "follower"])
async def test_large_items_arrive_once(concert: Coordinator, far: Coordinator, who: str) -> None:
    """Whether who yields them is far, or who follows."""
    worker, follower = (far, concert) if who == "writer" else (concert, far)

    @worker.task(name="t", queue="q")
    async def task() -> AsyncIterator[str]:
        for number in range(COUNT):
            yield f"{number}{TEXT}"

    async with in_background(worker.run_worker("q")), asyncio.timeout(WITHIN):
        job = follower.tasks.job((await concert.enqueue("t", queue="q")).id)
        found: list[Any] = [item async for item in job.stream(str)]
    assert all(isinstance(item, StreamItem) and item.attempt == 1 for item in found)
    assert [item.value for item in found] == [f"{number}{TEXT}" for number in range(COUNT)]


async def test_large_members_are_added_once(concert: Coordinator, far: Coordinator) -> None:
    """And run once, by a worker beside which they are added."""
    ran = Counter[int]()

    @far.task(name="t", queue="q")
    async def task(number: int, text: str) -> None:
        assert text == TEXT
        ran[number] += 1

    async with in_background(far.run_worker("q")):
        group = await far.group([task.call(number, TEXT) for number in range(COUNT)], then=task.call(COUNT, TEXT))
        await concert.tasks.group(group.id).callback.result(timeout=WITHIN)
    assert ran == dict.fromkeys(range(COUNT + 1), 1)
    assert (await concert.tasks.group(group.id).progress()).succeeded == COUNT
