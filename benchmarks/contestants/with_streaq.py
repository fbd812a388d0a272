"""streaq, with its defaults; no results."""
# streaq is not installed where types are checked.
# pyright: basic, reportMissingImports=false

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Self

from streaq import Worker

from benchmarks.contestants.contestant import BODIES, main


class Streaq:
    def __init__(self, url: str) -> None:
        self._url = url
        self._worker, self._tasks = _worker_at(url, 100)

    async def __aenter__(self) -> Self:
        await self._worker.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._worker.__aexit__(*error)

    async def enqueue(self, task: str, number: float) -> object:
        return await self._tasks[task].enqueue(number)

    async def enqueue_later(self, seconds: float, task: str, number: float) -> object:
        return await self._tasks[task].enqueue(number).start(delay=timedelta(seconds=seconds))

    async def enqueue_many(self, task: str, numbers: Sequence[float]) -> object:
        return await self._worker.enqueue_many([self._tasks[task].enqueue(number) for number in numbers])

    async def work(self, concurrency: int) -> object:
        worker, _ = _worker_at(self._url, concurrency)  # it opens itself
        return await worker.run_async()


def _worker_at(url: str, concurrency: int) -> tuple[Worker[None], dict[str, Any]]:
    worker: Worker[None] = Worker(redis_url=url, concurrency=concurrency, handle_signals=False)
    return worker, {body.__name__: worker.task(name=body.__name__, ttl=0)(body) for body in BODIES}


if __name__ == "__main__":
    main(Streaq)
