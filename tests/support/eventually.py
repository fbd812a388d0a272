"""Waiting for a fact instead of sleeping and hoping."""

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import anyio

__all__ = ["eventually"]

_LOOK_AGAIN = 0.01  # seconds

T = TypeVar("T")


async def eventually(fact: Callable[[], Awaitable[T]] | Callable[[], T], *, timeout: float = 10.0) -> T:
    """Ask until the answer is true, and return it.

    Args:
        fact: A plain or an async function.
        timeout: Seconds until the test fails.
    """
    deadline = time.monotonic() + timeout
    while True:
        answer = fact()
        found = cast("T", await answer if inspect.isawaitable(answer) else answer)
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"{inspect.getsource(fact).strip()} was {found!r} for {timeout:g} s")
        await anyio.sleep(_LOOK_AGAIN)
