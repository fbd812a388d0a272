"""Counts of ended jobs, by task and hour, with their durations: kept for two weeks.

A field of a day is an outcome and an hour, such as `succeeded 13`; or `run` or `wait` and the number of a bound: so
many jobs took up to that long.

Workers count in memory, and add what they have counted every few seconds, so a job costs no command.  The counts of the
last seconds die with a worker.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, get_args

import msgspec

from inconcert._core.session import SessionRef
from inconcert._redis.protocol.replies import Reply
from inconcert._rules.limits import whole
from inconcert._rules.names import digest
from inconcert.tasks.records.history import EndedJob
from inconcert.tasks.records.status import JobStatus
from inconcert.tasks.records.store import COUNTED, READ_COUNTS, JobKeys, JobKeyspace

HOUR, DAY = 3600, 86400  # seconds
MOST_LATELY: Final = 200
_HOURS: Final = 14 * 24  # that are kept
_AT_ONCE = 100  # hashes that one script reads

BOUNDS: Final = tuple(mantissa * 10.0**exponent for exponent in range(-3, 4) for mantissa in (1, 2, 5))
"""Up to how long jobs took, in seconds: 1 ms to 5,000 s."""

Outcome = Literal["succeeded", "retried", "dead", "cancelled"]
"""How an attempt has ended: `retried` and `dead` are the failures, of which the job goes on after the first."""


@dataclass(frozen=True, slots=True)
class DurationSpread:
    """The durations of jobs.

    Attributes:
        count: Of how many jobs that is known.
        p50: Half of them took at most so many seconds, rounded up to 1, 2 or 5 times a power of ten; infinite if longer
            than 5,000 s, None if nothing is known.
        p95: The same bound for 95 of 100.
    """

    count: int = 0
    p50: float | None = None
    p95: float | None = None


@dataclass(frozen=True, slots=True)
class EndCounts:
    """The number of attempts that have ended, by their outcome.

    Attributes:
        succeeded: Those that returned.
        retried: Those that failed, and whose job is tried again.
        dead: Those that failed, and whose job was dead-lettered.
        cancelled: Those of jobs that were cancelled while they ran.
    """

    succeeded: int = 0
    retried: int = 0
    dead: int = 0
    cancelled: int = 0

    def __add__(self, other: "EndCounts") -> "EndCounts":
        return EndCounts(
            self.succeeded + other.succeeded,
            self.retried + other.retried,
            self.dead + other.dead,
            self.cancelled + other.cancelled,
        )

    @property
    def failed(self) -> int:
        """Those that failed."""
        return self.retried + self.dead

    @property
    def failure_rate(self) -> float | None:
        """The share of failures in the attempts that succeeded or failed, from 0 to 1; None if there are none."""
        ended = self.succeeded + self.failed
        return self.failed / ended if ended else None


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """The counts of one task.

    Attributes:
        task: Its name.
        since: When the first of the hours began, in seconds since 1970.
        hours: Of each hour what ended in it, the oldest first; the last one is the current hour.
        total: All of them together.
        run: How long attempts that began on these days took from the claim to the end, as far as they were measured.
        wait: How long new jobs had waited when they were claimed: since they were enqueued, or due.
    """

    task: str
    since: float
    hours: Sequence[EndCounts]
    total: EndCounts
    run: DurationSpread
    wait: DurationSpread


class Lately(NamedTuple):
    """A job that has ended, as it is stored; instants in ms since 1970 by the server's clock."""

    id: str
    task: str
    queue: str
    outcome: Outcome
    enqueued_ms: int
    began_ms: int
    ended_ms: int
    attempt: int

    def ended_job(self) -> EndedJob:
        """As users see it."""
        return EndedJob(
            task=self.task,
            job_id=self.id,
            outcome={"succeeded": JobStatus.SUCCEEDED, "dead": JobStatus.FAILED}.get(self.outcome, JobStatus.CANCELLED),
            enqueued_at=self.enqueued_ms / 1000,
            began_at=self.began_ms / 1000,
            ended_at=self.ended_ms / 1000,
            attempts=self.attempt,
            error=None,
        )


class TaskCounters:
    """The counts of all tasks."""

    def __init__(self, ref: SessionRef, keyspace: JobKeyspace) -> None:
        self._ref = ref
        self._keys = keyspace.partitions[0]

    async def counts(self, tasks: Sequence[str] | None, hours: int) -> list[TaskCounts]:
        """See `Tasks.counts`."""
        whole("hours", hours, most=_HOURS)
        now, names, _ = await self._counted()
        asked = sorted(names) if tasks is None else list(tasks)
        first = (int(now) // HOUR - hours + 1) * HOUR
        days = range(first // DAY, int(now) // DAY + 1)
        found: list[Reply] = []
        keys = [counts_key(self._keys, task, day) for task in asked for day in days]
        for start in range(0, len(keys), _AT_ONCE):
            found += await self._ref.session.run(READ_COUNTS(days=keys[start : start + _AT_ONCE]))
        return [
            _counts_of(task, first, hours, dict(zip(days, found[n * len(days) :], strict=False)))
            for n, task in enumerate(asked)
        ]

    async def lately(self, limit: int) -> list[EndedJob]:
        """See `Tasks.lately`."""
        whole("limit", limit, most=MOST_LATELY)
        _, _, lately = await self._counted()
        return [msgspec.json.decode(text, type=Lately).ended_job() for text in lately[:limit]]

    async def _counted(self) -> tuple[float, list[str], list[bytes]]:
        """The server's time, the names of the tasks, and the jobs that ended last."""
        now_ms, names, lately = await self._ref.session.run(COUNTED(self._keys))
        return now_ms / 1000, [name.decode() for name in names], lately


def counts_key(keys: JobKeys, task: str, day: int) -> str:
    """The key of the counts of a task on a day since 1970."""
    return keys.counts(f"{day}:{digest(task)}")


def bound_of(seconds: float) -> int:
    """The number of the first bound that is not less."""
    return bisect_left(BOUNDS, seconds)


def _counts_of(task: str, first: int, hours: int, days: Mapping[int, Sequence[bytes]]) -> TaskCounts:
    ends, spread = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for day, flat in days.items():
        for field, number in zip(flat[::2], flat[1::2], strict=True):
            kind, _, rest = field.decode().partition(" ")
            if kind in ("run", "wait"):
                spread[kind, int(rest)] += int(number)
            else:
                ends[kind, day * DAY + int(rest) * HOUR] += int(number)
    counted = [
        EndCounts(*(ends[outcome, start] for outcome in get_args(Outcome)))
        for start in range(first, first + hours * HOUR, HOUR)
    ]
    return TaskCounts(
        task=task,
        since=float(first),
        hours=counted,
        total=sum(counted, EndCounts()),
        run=_spread(spread, "run"),
        wait=_spread(spread, "wait"),
    )


def _spread(found: Mapping[tuple[str, int], int], kind: str) -> DurationSpread:
    numbers = [found.get((kind, bound), 0) for bound in range(len(BOUNDS) + 1)]
    count = sum(numbers)
    return DurationSpread(count, _percentile(numbers, 0.5), _percentile(numbers, 0.95)) if count else DurationSpread()


def _percentile(numbers: Sequence[int], share: float) -> float:
    left = math.ceil(sum(numbers) * share)
    for bound, number in zip((*BOUNDS, math.inf), numbers, strict=True):
        left -= number
        if left <= 0:
            return bound
    return math.inf
