"""arq, with its defaults; no results."""
# arq is not installed where types are checked.
# pyright: basic, reportMissingImports=false

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from arq import ArqRedis, Worker, create_pool, func
from arq.connections import RedisSettings

from benchmarks.contestants.contestant import BODIES, main, with_context


class Arq:
    def __init__(self, pool: ArqRedis) -> None:
        self._pool = pool

    async def enqueue(self, task: str, number: float) -> object:
        return await self._pool.enqueue_job(task, number)

    async def enqueue_later(self, seconds: float, task: str, number: float) -> object:
        return await self._pool.enqueue_job(task, number, _defer_by=timedelta(seconds=seconds))

    async def enqueue_many(self, task: str, numbers: Sequence[float]) -> object:
        raise NotImplementedError

    async def work(self, concurrency: int) -> object:
        functions = [func(with_context(body), name=body.__name__) for body in BODIES]
        worker = Worker(
            functions, redis_pool=self._pool, queue_name=None, max_jobs=concurrency, keep_result=0, handle_signals=False
        )
        return await worker.async_run()


@asynccontextmanager
async def connect(url: str) -> AsyncGenerator[Arq]:
    pool = await create_pool(RedisSettings.from_dsn(url))
    yield Arq(pool)
    await pool.aclose()


if __name__ == "__main__":
    main(connect)
