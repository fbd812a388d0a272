"""Asking until there is an answer, for what goes on as long as its service does."""

import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from inconcert._rules.backoff import backoff
from inconcert.errors import OutcomeUnknown, Unavailable

__all__ = ["retry_until_answered"]

T = TypeVar("T")


async def retry_until_answered(log: logging.Logger, what: str, ask: Callable[[], Awaitable[T]]) -> T:
    """Ask, and ask again after a pause whenever the server could not be asked or did not answer.

    Args:
        log: Where the failures are told.
        what: What is asked for, as log lines name it.
        ask: What may be done again after a failure.

    Raises:
        InconcertError: Whatever a repetition does not help against, such as NotConnected.
    """
    failures = 0
    while True:
        try:
            return await ask()
        except (Unavailable, OutcomeUnknown) as error:
            failures += 1
            log.warning("%s: %s; trying again", what, error)
        await anyio.sleep(backoff(failures, random.random()))
