"""The ways in which an async generator is left by another task than the one that began it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from typing import Any

__all__ = ["break_it", "close_it", "closing", "forget_it"]


async def elsewhere(work: Awaitable[Any]) -> Any:
    """Do it in another task, and so in another context."""

    async def run() -> Any:
        return await work

    return await asyncio.create_task(run())


def closing() -> "list[asyncio.Task[Any]]":
    """Where the event loop closes generators."""
    return [task for task in asyncio.all_tasks() if "async_generator_athrow" in repr(task.get_coro())]


async def close_it(stay: AsyncGenerator[object, None]) -> None:
    """As a fixture or a response is closed: by another task."""
    await anext(stay)
    await elsewhere(stay.aclose())


async def break_it(stay: AsyncGenerator[object, None]) -> None:
    """As a loop is left: the event loop closes it."""

    async def handler(stay: AsyncGenerator[object, None]) -> None:
        async for _ in stay:
            break

    await elsewhere(handler(stay))


async def forget_it(stay: AsyncGenerator[object, None]) -> None:
    """As one that is part of a cycle: the garbage collector finds it."""

    async def handler(stay: AsyncGenerator[object, None]) -> None:
        await anext(stay)
        cycle: list[Any] = [stay]
        cycle.append(cycle)

    await elsewhere(handler(stay))
