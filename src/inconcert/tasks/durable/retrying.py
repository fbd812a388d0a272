"""A step that is tried several times in one attempt of its job, each for a bounded time.

Source: docs/explanation/steps.md
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import cast

import anyio

from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert._rules.limits import whole
from inconcert.tasks.records.retry import Backoff, RetryPolicy

_log = logging.getLogger("inconcert.tasks")

_OPTIONS = ("retry", "timeout")


@dataclass(frozen=True, slots=True)
class Retrying:
    """The number of times that `durable.step` tries its function in one attempt of the job: `retry=Retrying(3)`.

    Args:
        attempts: How many times at most, 1 or more.
        retry_on: Failures of these classes are tried again; others end the step at once.
        backoff: Number of failures, 1 or more -> seconds before the next try. By default 1 s, 2 s, 4 s ... up to 5 min,
            each within 25 % of that.

    Raises:
        ValueError: `attempts` is not a whole number above 0.
        TypeError: `retry_on` is not a tuple of exceptions.
    """

    attempts: int
    retry_on: tuple[type[Exception], ...] = field(default=(Exception,), kw_only=True)
    backoff: Backoff | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        whole("attempts of Retrying", self.attempts)
        if not isinstance(self.retry_on, tuple):  # pyright: ignore[reportUnnecessaryIsInstance] - users may
            raise TypeError(f"retry_on is {self.retry_on!r}; give a tuple of exceptions, such as (ConnectionError,)")
        isinstance(Exception(), self.retry_on)  # raises TypeError for what is not a class


class StepTries:
    """Runs the function of a step as often as it may be tried."""

    __slots__ = ("_name", "_retry", "_stopped", "_timeout")

    def __init__(self, name: str, retry: Retrying | None, timeout: float | None) -> None:
        self._name = name
        self._retry = retry or Retrying(1)
        self._timeout = timeout  # longest time of each try, in seconds; None for any
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Try no more, for a caller that cannot be cancelled itself."""
        self._stopped.set()

    async def run(self, function: Callable[[], Awaitable[object]]) -> object:
        """Its result, or the error of its last try."""
        policy, failures = RetryPolicy(self._retry.retry_on, self._retry.backoff), 0
        while True:
            try:
                return await self._once(function)
            except Exception as error:
                failures += 1
                delay = policy.delay(failures, error) if failures < self._retry.attempts else None
                if delay is None:
                    raise
                _log.info("step %r is tried again in %.3g s: %r", self._name, delay, error)
            with anyio.move_on_after(delay):
                await self._stopped.wait()
                raise asyncio.CancelledError

    async def _once(self, function: Callable[[], Awaitable[object]]) -> object:
        with anyio.move_on_after(self._timeout):
            return await function()
        raise TimeoutError(f"step {self._name!r} ran longer than {self._timeout:g} s")


def tries_of(
    name: str, function: Callable[..., object], kwargs: dict[str, object], *, is_async: bool
) -> StepTries | None:
    """Take the options of a step from its keyword arguments; None if there are none.

    Raises:
        TypeError: The function has a parameter of the same name, or `retry` is something else.
        ValueError: `timeout` is not above 0, or is given for a plain function.
    """
    given = {option: kwargs.pop(option) for option in _OPTIONS if option in kwargs}
    if not given:
        return None
    for option in given:
        if _has_own(function, option):
            raise TypeError(
                f"step {name!r}: {option}= is an option of the step, and its function has a parameter of that name; "
                f"give the function its own by functools.partial(function, {option}=...)"
            )
    retry, timeout = given.get("retry"), given.get("timeout")
    if retry is not None and not isinstance(retry, Retrying):
        raise TypeError(f"retry of step {name!r} is {retry!r}; give Retrying(3), or leave it out")
    seconds = None if timeout is None else durations.call_timeout(f"step {name!r}", cast("Seconds", timeout))
    if seconds is not None and not is_async:
        raise ValueError(
            f"step {name!r} has a timeout of {seconds:g} s, and its function is a plain one, which nothing can stop; "
            "give a coroutine function, or let the function have a timeout of its own"
        )
    return StepTries(name, retry, seconds)


def _has_own(function: Callable[..., object], option: str) -> bool:
    if option in getattr(function, "keywords", ()):  # of a partial, by which it is given
        return False
    try:
        return option in inspect.signature(function).parameters
    except ValueError:  # a builtin function may have no signature
        return False
