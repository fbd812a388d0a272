"""Which failures of a job are tried again, and after how long."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from inconcert._rules import durations
from inconcert._rules.backoff import retry_delay
from inconcert._rules.durations import Seconds

__all__ = ["Backoff", "Retry", "RetryPolicy"]

Backoff = Callable[[int], Seconds]


class Retry(Exception):
    """Raised in a job: this attempt failed, and the next is to come after a time of the job's own choice.

    Args:
        after: Seconds from now; by default as after any failure.

    Raises:
        ValueError: `after` is negative, or no number.
    """

    def __init__(self, *, after: Seconds | None = None) -> None:
        self.after = None if after is None else durations.delay(after)
        super().__init__("the job asked for another attempt" + ("" if self.after is None else f" in {self.after:g} s"))


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Which failures are tried again, and when.

    Attributes:
        retry_on: Exceptions of these classes are tried again; of others the job is set aside at once.
        backoff: From the number of attempts that failed, 1 or more, to the seconds before the next.
    """

    retry_on: tuple[type[Exception], ...] = (Exception,)
    backoff: Backoff | None = None

    def delay(self, failures: int, error: BaseException | None) -> float | None:
        """Seconds before the next attempt; None if there is to be none."""
        if isinstance(error, Retry):
            if error.after is not None:
                return error.after
        elif error is not None and not isinstance(error, self.retry_on):
            return None
        if self.backoff is not None:
            return durations.delay(self.backoff(failures))
        return retry_delay(failures, random.random())
