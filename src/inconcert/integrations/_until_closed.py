"""The items of an endless generator, for one connection to its client, until the service closes."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, TypeVar

from inconcert._core.cancellation import cancel_all
from inconcert._core.shield import run_shielded

T = TypeVar("T")


async def until_closed(
    items: AsyncGenerator[T], *, closing: asyncio.Event | None = None, silence: float | None = None
) -> AsyncGenerator[T | None]:
    """The items of a generator, which is closed in the end.

    Args:
        items: The generator.
        closing: Ends it when it is set; None for one that only the generator ends.
        silence: After how many seconds without an item None is given; None means never.
    """
    closed = asyncio.create_task((closing or asyncio.Event()).wait())
    coming: asyncio.Task[T] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(items))
            await asyncio.wait([coming, closed], timeout=silence, return_when=asyncio.FIRST_COMPLETED)
            if closed.done():
                return
            if not coming.done():
                yield None
                continue
            try:
                item = coming.result()
            except StopAsyncIteration:
                return
            coming = None
            yield item
    finally:
        await run_shielded(_end(items, [closed] if coming is None else [closed, coming]))


async def _end(items: AsyncGenerator[object], tasks: "Sequence[asyncio.Task[Any]]") -> None:
    await cancel_all(tasks)
    await items.aclose()
