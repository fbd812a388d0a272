"""Cancelling code until it has ended: a body may swallow a cancellation."""

import asyncio
from collections.abc import Collection
from typing import Any

CANCEL_AGAIN = 1.0  # seconds to clean up in; what goes on after that is cancelled again


async def cancel_all(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks, again every second, until all of them have ended; those that are added meanwhile, too."""
    while running := [task for task in tasks if not task.done()]:
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=CANCEL_AGAIN)
