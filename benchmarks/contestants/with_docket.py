"""docket, with its defaults, but room for the connections of 100 jobs at once; no results."""
# docket is not installed where types are checked.
# pyright: basic, reportMissingImports=false

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from docket import Docket as Server
from docket import Worker

from benchmarks.contestants.contestant import BODIES, main


class Docket:
    def __init__(self, docket: Server) -> None:
        self._docket = docket
        for body in BODIES:
            docket.register(body)

    async def enqueue(self, task: str, number: float) -> object:
        return await self._docket.add(task)(number)

    async def enqueue_later(self, seconds: float, task: str, number: float) -> object:
        return await self._docket.add(task, when=datetime.now(UTC) + timedelta(seconds=seconds))(number)

    async def enqueue_many(self, task: str, numbers: Sequence[float]) -> object:
        return await self._docket.add_many(self._docket.call(task)(number) for number in numbers)

    async def work(self, concurrency: int) -> object:
        async with Worker(self._docket, concurrency=concurrency) as worker:
            return await worker.run_forever()


@asynccontextmanager
async def connect(url: str) -> AsyncGenerator[Docket]:
    async with Server("benchmark", f"{url}?max_connections=1000", execution_ttl=timedelta(0)) as docket:
        yield Docket(docket)


if __name__ == "__main__":
    main(connect)
