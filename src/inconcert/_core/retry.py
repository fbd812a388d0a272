"""Retrying until the server answers, for work that lasts as long as its service."""

import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from inconcert._rules.backoff import backoff
from inconcert.errors import OutcomeUnknown, Unavailable

T = TypeVar("T")


async def retry_until_answered(log: logging.Logger, what: str, ask: Callable[[], Awaitable[T]]) -> T:
    """Make a request, and repeat it after a pause while the server cannot be asked or does not answer.

    Raises:
        InconcertError: An error that a repetition cannot help, such as NotConnected.
    """
    failures = 0
    while True:
        try:
            return await ask()
        except (Unavailable, OutcomeUnknown) as error:
            failures += 1
            log.warning("%s: %s; trying again", what, error)
        await anyio.sleep(backoff(failures, random.random()))
