"""Waiting for a fact instead of sleeping and hoping."""

import inspect
import time
from collections.abc import Callable
from typing import Any

import anyio

__all__ = ["eventually"]

_RECHECK_AFTER = 0.01  # seconds


async def eventually(fact: Callable[[], Any], *, timeout: float = 10.0) -> Any:
    """Ask until the answer is true, and return it.

    Args:
        fact: A plain or an async function.
        timeout: Seconds until the test fails.
    """
    deadline = time.monotonic() + timeout
    while True:
        answer = fact()
        found = await answer if inspect.isawaitable(answer) else answer
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"{_source(fact)} was {found!r} for {timeout:g} s")
        await anyio.sleep(_RECHECK_AFTER)


def _source(fact: Callable[[], Any]) -> str:
    return inspect.getsource(getattr(fact, "func", fact)).strip()  # of a partial its function
