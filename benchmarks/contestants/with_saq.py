"""saq, with its defaults and retries; no results."""
# saq is not installed where types are checked.
# pyright: basic, reportMissingImports=false

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import redis.asyncio
from saq import Worker
from saq.queue.redis import RedisQueue

from benchmarks.contestants.contestant import BODIES, main, with_context

WITHOUT_RESULT = -1


class Saq:
    def __init__(self, queue: RedisQueue) -> None:
        self._queue = queue

    async def enqueue(self, task: str, number: float) -> object:
        return await self._queue.enqueue(task, number=number, retries=5, ttl=WITHOUT_RESULT)

    async def enqueue_later(self, seconds: float, task: str, number: float) -> object:
        scheduled = time.time() + seconds
        return await self._queue.enqueue(task, number=number, retries=5, ttl=WITHOUT_RESULT, scheduled=scheduled)

    async def enqueue_many(self, task: str, numbers: Sequence[float]) -> object:
        raise NotImplementedError

    async def work(self, concurrency: int) -> object:
        functions = [(body.__name__, with_context(body)) for body in BODIES]
        return await Worker(self._queue, functions, concurrency=concurrency).start()


@asynccontextmanager
async def connect(url: str) -> AsyncGenerator[Saq]:
    queue = RedisQueue(redis.asyncio.from_url(url))
    await queue.connect()
    yield Saq(queue)
    await queue.disconnect()


if __name__ == "__main__":
    main(connect)
