"""Work that goes on in the background, which one unexpected error does not end.

An error that a loop expects, such as a server that is away, is the loop's own business.  Any other is logged once with
its traceback, and the loop begins again after a pause; the health of a worker tells of it for a while.
"""

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

import anyio

_log = logging.getLogger("inconcert.redis")

_PAUSE = 1.0  # seconds after which work begins anew
_SETTLED = 60.0  # seconds without an error after which the next one is logged with its traceback again

P = ParamSpec("P")


class Failure(NamedTuple):
    """An unexpected error in the background."""

    what: str  # what has failed, in a few words
    error: str  # the name of the error's class
    at: float  # when, by the monotonic clock


_failures: dict[str, Failure] = {}  # of this process: the last of each work


def last_failure() -> Failure | None:
    """The last unexpected error in the background of this process; from any thread."""
    return max(list(_failures.values()), key=lambda failure: failure.at, default=None)


def in_background(
    what: str, work: Callable[[], Coroutine[Any, Any, None]], *, again: bool = True
) -> asyncio.Task[None]:
    """Start a loop, which begins again after an unexpected error, until it returns or is cancelled.

    Args:
        what: Its work, in a few words, for logs and health.
        work: The loop. Whatever it still has to do must be known when it begins again.
        again: False if something else starts it again.
    """

    async def go_on() -> None:
        while True:
            try:
                return await work()
            except Exception as error:  # noqa: BLE001 - any: it would end the loop in silence
                note_failure(what, error)
            if not again:
                return None
            await anyio.sleep(_PAUSE)

    return asyncio.create_task(go_on(), name=f"inconcert: {what}")


def attempt(what: str, act: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> bool:
    """Do one of several things that must not hold up each other; returns False after an unexpected error."""
    try:
        act(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - any: what comes behind it would not be done
        note_failure(what, error)
        return False
    return True


class _HasTimer(Protocol):
    timer: asyncio.TimerHandle | None


H = TypeVar("H", bound=_HasTimer)


def recurring(what: str) -> Callable[[Callable[[H], None]], Callable[[H], None]]:
    """For a method that `timer` calls, and that sets `timer` again: it is called again after an unexpected error."""

    def decorate(tick: Callable[[H], None]) -> Callable[[H], None]:
        @functools.wraps(tick)
        def called(self: H) -> None:
            if not attempt(what, tick, self):
                if self.timer is not None:
                    self.timer.cancel()
                self.timer = asyncio.get_running_loop().call_later(_PAUSE, called, self)

        return called

    return decorate


def log_error(log: Callable[[BaseException | None], None], error: BaseException) -> None:
    """Log an error with its traceback, or without, if that cannot be shown or a filter of the user's raises.

    Args:
        log: Logs, with its argument as `exc_info`.
        error: The error.
    """
    for shown in error, None:
        with suppress(Exception):
            log(shown)
            return


def note_failure(what: str, error: Exception) -> None:
    """Log an unexpected error, with its traceback unless it is one of a series, and tell the health of it."""
    before, failure = _failures.get(what), Failure(what, type(error).__name__, time.monotonic())
    _failures[what] = failure
    if before is None or failure.at - before.at > _SETTLED:
        log_error(lambda shown: _log.error("%s failed, and goes on", what, exc_info=shown), error)
    else:
        log_error(lambda _: _log.debug("%s failed again: %s", what, failure.error), error)
