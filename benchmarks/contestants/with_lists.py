"""The floor: a list and nothing else.  What a worker popped is lost if it dies; there is no delay, and no retry."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio

from benchmarks.contestants.contestant import BODIES, main

QUEUE = "jobs"
BATCH = 100


class Lists:
    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client: Any = client  # redis-py's type hints of replies are too wide
        self._tasks = {body.__name__: body for body in BODIES}

    async def enqueue(self, task: str, number: float) -> object:
        return await self._client.rpush(QUEUE, json.dumps([task, number]))

    async def enqueue_later(self, seconds: float, task: str, number: float) -> object:
        raise NotImplementedError

    async def enqueue_many(self, task: str, numbers: Sequence[float]) -> object:
        for start in range(0, len(numbers), BATCH):
            pipeline = self._client.pipeline(transaction=False)
            for number in numbers[start : start + BATCH]:
                pipeline.rpush(QUEUE, json.dumps([task, number]))
            await pipeline.execute()
        return None

    async def work(self, concurrency: int) -> object:
        free = asyncio.Semaphore(concurrency)

        async def run(task: str, number: float) -> None:
            await self._tasks[task](number)
            free.release()

        async with asyncio.TaskGroup() as running:
            while True:
                jobs = await self._client.lpop(QUEUE, concurrency) or [(await self._client.blpop([QUEUE]))[1]]
                for task, number in map(json.loads, jobs):
                    if task == "noop":
                        await self._tasks[task](number)
                    else:
                        await free.acquire()
                        running.create_task(run(task, number))


@asynccontextmanager
async def connect(url: str) -> AsyncGenerator[Lists]:
    async with redis.asyncio.Redis.from_url(url, socket_timeout=None) as client:
        yield Lists(client)


if __name__ == "__main__":
    main(connect)
