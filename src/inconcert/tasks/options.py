"""How a job is to be run: what a task sets for all its jobs, and whoever enqueues one may change."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any, Literal, Self, cast

from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert._rules.limits import whole
from inconcert._rules.names import check_name
from inconcert.tasks.job import Job, check_id

__all__ = ["DEFAULT_QUEUE", "MAX_ATTEMPTS", "RESULT_TTL", "Options", "UniqueUntil"]

DEFAULT_QUEUE = "default"
MAX_ATTEMPTS = 5
RESULT_TTL = 3600.0  # seconds

_MOST_PARENTS = 100  # of one job: all are looked at by one script

UniqueUntil = Literal["started", "done"]
"""Until when a job has its unique name: until a worker takes it, or until it has ended."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a job is to be run.

    Attributes:
        queue: Where it goes.
        delay: How long it waits before it may run, in seconds.
        max_attempts: How many attempts may fail before it is set aside.
        result_ttl: How long its result is kept, in seconds.
        expires: After how many seconds it is not started any more; None for never.
        time_limit: After how many seconds an attempt is stopped; None for never.
        unique: A name that no two live jobs may have; None for no such name.
        unique_until: Until when it has the name.
        unique_for: For how many seconds it has the name instead, whatever becomes of it; 0 for as `unique_until` says.
        after: Ids of the jobs that must have succeeded before it may run.
    """

    queue: str = DEFAULT_QUEUE
    delay: float = 0.0
    max_attempts: int = MAX_ATTEMPTS
    result_ttl: float = RESULT_TTL
    expires: float | None = None
    time_limit: float | None = None
    unique: str | None = None
    unique_until: UniqueUntil = "done"
    unique_for: float = 0.0
    after: tuple[str, ...] = ()

    def changed(
        self,
        *,
        queue: str | EllipsisType = ...,
        delay: Seconds | EllipsisType = ...,
        max_attempts: int | EllipsisType = ...,
        result_ttl: Seconds | EllipsisType = ...,
        expires: Seconds | EllipsisType | None = ...,
        time_limit: Seconds | EllipsisType | None = ...,
        unique: str | EllipsisType | None = ...,
        unique_until: UniqueUntil | EllipsisType = ...,
        unique_for: Seconds | EllipsisType = ...,
        after: Sequence[Job | str] | EllipsisType = ...,
    ) -> Self:
        """The same, with those changed that are given.

        Raises:
            ValueError: A number is out of its range, or `after` has more than 100 jobs.
            TypeError: `after` is no list.
            InvalidName: The queue or the unique name is empty or longer than 512 bytes, or `after` has what is no id.
        """
        changes = {
            "queue": queue,
            "delay": delay,
            "max_attempts": max_attempts,
            "result_ttl": result_ttl,
            "expires": expires,
            "time_limit": time_limit,
            "unique": unique,
            "unique_until": unique_until,
            "unique_for": unique_for,
            "after": after,
        }
        return replace(self, **{name: _CHECKS[name](value) for name, value in changes.items() if value is not ...})


def _seconds(parameter: str) -> Callable[[Any], float]:
    return lambda value: durations.in_seconds(parameter, value)


def _above_zero(parameter: str, value: Seconds) -> float:
    seconds = durations.in_seconds(parameter, value)
    if not seconds:
        raise ValueError(f"{parameter} is {value!r}; give a number of seconds above 0, or None")
    return seconds


def _unique_until(value: object) -> object:
    if value not in {"started", "done"}:
        raise ValueError(f"unique_until is {value!r}; give 'started' or 'done'")
    return value


def _after(value: object) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise TypeError(f"after is {value!r}; give a list of jobs, or of their ids")
    jobs = cast("Sequence[Job | str]", value)
    if len(jobs) > _MOST_PARENTS:
        raise ValueError(
            f"after has {len(jobs)} jobs; give at most {_MOST_PARENTS}, and let jobs in between gather more"
        )
    return tuple(job.id if isinstance(job, Job) else check_id(job) for job in jobs)


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "queue": lambda value: check_name("queue", value),
    "delay": _seconds("delay"),
    "max_attempts": lambda value: whole("max_attempts", value),
    "result_ttl": _seconds("result_ttl"),
    "expires": lambda value: None if value is None else durations.in_seconds("expires", value),
    "time_limit": lambda value: None if value is None else _above_zero("time_limit", value),
    "unique": lambda value: None if value is None else check_name("unique name", value),
    "unique_until": _unique_until,
    "unique_for": _seconds("unique_for"),
    "after": _after,
}
