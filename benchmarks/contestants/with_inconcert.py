"""inconcert, through its public API alone."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from benchmarks.contestants.contestant import BODIES, main
from inconcert import Coordinator


class Inconcert:
    def __init__(self, concert: Coordinator) -> None:
        self._concert = concert
        self._tasks = {body.__name__: concert.task(name=body.__name__, result_ttl=0)(body) for body in BODIES}

    async def enqueue(self, task: str, number: float) -> object:
        return await self._tasks[task].enqueue(number)

    async def enqueue_later(self, seconds: float, task: str, number: float) -> object:
        return await self._tasks[task].options(delay=seconds).enqueue(number)

    async def enqueue_many(self, task: str, numbers: Sequence[float]) -> object:
        return await self._concert.enqueue_many(self._tasks[task].call(number) for number in numbers)

    async def work(self, concurrency: int) -> None:
        await self._concert.run_worker("default", concurrency=concurrency)


@asynccontextmanager
async def connect(url: str) -> AsyncGenerator[Inconcert]:
    async with Coordinator(url) as concert:
        yield Inconcert(concert)


if __name__ == "__main__":
    main(connect)
