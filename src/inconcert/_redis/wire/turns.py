"""Work that runs by itself in a user's event loop: a bounded part of it in each turn, however much there is."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import TypeVar

from inconcert._redis.wire.background import attempt
from inconcert.errors import NotConnected

IN_A_TURN = 200  # entries; a call for each takes 5 ms or so

T = TypeVar("T")


def each_in_turns(what: str, items: Iterable[T], act: Callable[[T], object]) -> "asyncio.Future[None]":
    """Act on each of these in order, on the first 200 now, on 200 more in each later turn of the event loop.

    Args:
        what: What the act is, in a few words, for logs and health.
        items: The items there; it must not change meanwhile, so give a copy.
        act: Checks whether there is still something to do.  If it raises, the others have their turn all the same.

    Returns:
        An awaitable that is done after the last of them; it need not be awaited.
    """
    loop = asyncio.get_running_loop()
    all_are_done: asyncio.Future[None] = loop.create_future()
    left = iter(items)

    def act_while_open(item: T) -> None:
        with suppress(NotConnected):  # the coordinator may be closed between two turns
            act(item)

    def take_turn() -> None:
        count = 0
        for count, item in enumerate(islice(left, IN_A_TURN), 1):  # noqa: B007 - the last count
            attempt(what, act_while_open, item)
        if count == IN_A_TURN:
            loop.call_soon(take_turn)
        elif not all_are_done.done():
            all_are_done.set_result(None)

    take_turn()
    return all_are_done


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """These, with a turn of the event loop for others after each 200. Give a copy of what may change meanwhile."""
    for count, item in enumerate(items, 1):
        yield item
        if count % IN_A_TURN == 0:
            await asyncio.sleep(0)
