"""taskiq on a Redis stream, the broker of its own that acknowledges; delayed jobs by its scheduler, in the worker."""
# taskiq is not installed where types are checked.
# pyright: basic, reportMissingImports=false

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from taskiq import TaskiqScheduler
from taskiq.api import run_receiver_task, run_scheduler_task
from taskiq_redis import ListRedisScheduleSource, RedisStreamBroker

from benchmarks.contestants.contestant import BODIES, main


class Taskiq:
    def __init__(self, broker: RedisStreamBroker, source: ListRedisScheduleSource) -> None:
        self._broker = broker
        self._source = source
        self._tasks = {body.__name__: broker.register_task(body, task_name=body.__name__) for body in BODIES}

    async def enqueue(self, task: str, number: float) -> object:
        return await self._tasks[task].kiq(number)

    async def enqueue_later(self, seconds: float, task: str, number: float) -> object:
        due_at = datetime.now(UTC) + timedelta(seconds=seconds)
        return await self._tasks[task].schedule_by_time(self._source, due_at, number)

    async def enqueue_many(self, task: str, numbers: Sequence[float]) -> object:
        raise NotImplementedError

    async def work(self, concurrency: int) -> object:
        scheduler = TaskiqScheduler(self._broker, [self._source])
        return await asyncio.gather(
            run_receiver_task(self._broker, max_async_tasks=concurrency),
            run_scheduler_task(scheduler, interval=timedelta(seconds=1), loop_interval=timedelta(seconds=1)),
        )


@asynccontextmanager
async def connect(url: str) -> AsyncGenerator[Taskiq]:
    broker, source = RedisStreamBroker(url), ListRedisScheduleSource(url)
    await broker.startup()
    await source.startup()
    yield Taskiq(broker, source)
    await source.shutdown()
    await broker.shutdown()


if __name__ == "__main__":
    main(connect)
