"""Retries of failed jobs: after which errors, and when."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from inconcert._rules import durations
from inconcert._rules.backoff import retry_delay
from inconcert._rules.durations import Seconds

Backoff = Callable[[int], Seconds]


class Retry(Exception):
    """Raised in a job: this attempt failed, and the next one follows after a time that the job chooses.

    Args:
        after: Seconds from now; None as after any failure.

    Raises:
        ValueError: `after` is negative, or not a number.
    """

    def __init__(self, *, after: Seconds | None = None) -> None:
        self.after = None if after is None else durations.delay(after)
        super().__init__("the job asked for another attempt" + ("" if self.after is None else f" in {self.after:g} s"))


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """A rule for retries: after which errors, and when."""

    # exceptions of these classes are retried; others dead-letter the job at once
    retry_on: tuple[type[Exception], ...] = (Exception,)
    backoff: Backoff | None = None  # number of failed attempts, 1 or more -> seconds before the next

    def delay(self, failures: int, error: BaseException | None) -> float | None:
        """Seconds before the next attempt; None for no further attempt."""
        if isinstance(error, Retry):
            if error.after is not None:
                return error.after
        elif error is not None and not isinstance(error, self.retry_on):
            return None
        if self.backoff is not None:
            return durations.delay(self.backoff(failures))
        return retry_delay(failures, random.random())
