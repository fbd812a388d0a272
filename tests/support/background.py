"""Something that runs beside a test until the test is done with it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio

__all__ = ["again_and_again", "in_background"]

_T = TypeVar("_T")


@asynccontextmanager
async def in_background(coroutine: Coroutine[Any, Any, _T]) -> "AsyncGenerator[asyncio.Task[_T]]":
    """Run it, and cancel it in the end."""
    task = asyncio.create_task(coroutine)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()


@asynccontextmanager
async def again_and_again(disturb: Callable[[], Awaitable[object]], *, every: float) -> AsyncGenerator[list[int]]:
    """Disturb all the while; the list has one item, how often."""
    times = [0]

    async def run() -> None:
        while True:
            await disturb()
            times[0] += 1
            await anyio.sleep(every)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        yield times
        group.cancel_scope.cancel()
