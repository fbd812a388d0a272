"""Tidying up that a cancellation must not cut short."""

import asyncio
from collections.abc import Coroutine

import anyio


async def run_shielded(work: Coroutine[object, object, None]) -> None:
    """Do some work that is bounded in time.  A cancellation, from whomever, is raised only when it is done.

    A scope alone would shield from anyio only; from `Task.cancel()` a task of its own does.
    """
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
