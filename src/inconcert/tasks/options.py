"""The options of a job: a task sets them for all its jobs, and each call may change them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypedDict, Unpack, cast, get_args

from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert._rules.limits import whole
from inconcert._rules.names import check_job_id, check_name
from inconcert.errors import InvalidName
from inconcert.tasks.job import Job

__all__ = ["DEFAULT_QUEUE", "MAX_ATTEMPTS", "RESULT_TTL", "JobOptions", "Options", "UniqueUntil"]

DEFAULT_QUEUE = "default"
MAX_ATTEMPTS = 5
RESULT_TTL = 3600.0  # seconds

_MOST_PARENTS = 100  # of one job: one script checks all of them

UniqueUntil = Literal["started", "done"]
"""Until when a job has its unique name: until a worker takes it, or until it has ended."""


class JobOptions(TypedDict, total=False):
    """The options of a job, as keywords of `Task.options` and `Coordinator.enqueue`.

    An option that is left out is as the task sets it, or for a job enqueued by name, the default.
    """

    queue: str
    """Where the job goes; by default `default`."""

    delay: Seconds
    """How long it waits before it may run, in seconds, by the server's clock; by default 0."""

    max_attempts: int
    """How many attempts may fail before it is dead-lettered, 1 or more; by default 5."""

    result_ttl: Seconds
    """How long its result is kept, in seconds; 0 keeps none. By default 3,600."""

    expires: Seconds | None
    """Seconds from now after which it is dead-lettered instead of started; None, the default, for never."""

    time_limit: Seconds | None
    """Seconds after which an attempt is cancelled; None, the default, for never. See `Coordinator.task`."""

    unique: str | None
    """A name that no two live jobs may have: if one has it, that one is returned, with `created` False.

    None, the default, for no such name.
    """

    unique_until: UniqueUntil
    """Until when it has the unique name: until it has `started`, or until it is `done`, the default.

    A job that was dead-lettered or cancelled no longer has it.
    """

    unique_for: Seconds
    """For how many seconds from now it has the unique name instead, whatever becomes of it.

    By default 0: as `unique_until` says.
    """

    after: Sequence[Job[object] | str]
    """Jobs, or ids of jobs, at most 100, that must have succeeded before it may run; a `delay` counts from then.

    Their results are there for it: see `ClaimedJob.parent_results`.  If one of them does not succeed, or is not known,
    the job is dead-lettered.
    """


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a job: each of `JobOptions`, checked, in seconds and ids."""

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

    def changed(self, **options: Unpack[JobOptions]) -> Self:
        """The same options, with these changed.

        Raises:
            TypeError: There is no option of this name, or `after` is not a list.
            ValueError: A number is out of its range, or `after` has more than 100 jobs.
            InvalidName: The queue or the unique name is empty or longer than 512 bytes, or an entry of `after` is not a
                job id.
        """
        unknown = [name for name in options if name not in _CHECKS]
        if unknown:
            raise TypeError(f"a job has no option {unknown[0]!r}; its options are {', '.join(_CHECKS)}")
        return replace(self, **{name: _CHECKS[name](value) for name, value in options.items()})


def _seconds(parameter: str) -> Callable[[Any], float]:
    return lambda value: durations.in_seconds(parameter, value)


def _above_zero(parameter: str, value: Seconds) -> float:
    seconds = durations.in_seconds(parameter, value)
    if not seconds:
        raise ValueError(f"{parameter} is {value!r}; give a number of seconds above 0, or None")
    return seconds


def _unique_until(value: object) -> object:
    if value not in get_args(UniqueUntil):
        raise ValueError(f"unique_until is {value!r}; give 'started' or 'done'")
    return value


def _after(value: object) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise TypeError(f"after is {value!r}; give a list of jobs, or of their ids")
    jobs = cast("Sequence[Job[object] | str]", value)
    if len(jobs) > _MOST_PARENTS:
        raise ValueError(
            f"after has {len(jobs)} jobs; give at most {_MOST_PARENTS}; chain an intermediate job to wait for more"
        )
    return tuple(job.id if isinstance(job, Job) else _parent(job) for job in jobs)


def _parent(job_id: str) -> str:
    try:
        return check_job_id(job_id)
    except InvalidName as error:
        raise InvalidName(f"after: {error}") from None


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
