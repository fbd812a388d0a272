"""saq, with its defaults and retries; no results."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import redis.asyncio
from play import BODIES, play
from saq import Worker
from saq.queue.redis import RedisQueue

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
        functions = [(body.__name__, _with_context(body)) for body in BODIES]
        return await Worker(self._queue, functions, concurrency=concurrency).start()


def _with_context(body):  # noqa: ANN001, ANN202
    async def call(context: object, *, number: float) -> None:
        del context
        await body(number)

    return call


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[Saq]:
    queue = RedisQueue(redis.asyncio.from_url(url))
    await queue.connect()
    yield Saq(queue)
    await queue.disconnect()


if __name__ == "__main__":
    play(connect)
