"""When a task runs on a schedule: at which instants, and what happens to missed ones.

Everything is computed from instants that the server returned, in milliseconds since 1970; no clock is read here.
"""

import importlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import takewhile
from types import ModuleType
from typing import Any, Literal, Protocol
from urllib.parse import quote
from zoneinfo import ZoneInfo

from inconcert._rules import durations
from inconcert._rules.durations import Seconds, milliseconds
from inconcert.tasks.draft import Draft
from inconcert.tasks.task import Task

__all__ = ["Cron", "Every", "Missed", "Schedule", "Timetable", "timetable"]

Missed = Literal["skip", "once", "all"]
"""What becomes of instants of a schedule at which no worker was there; see `Coordinator.cron`."""

_SHORTEST_PERIOD = 0.1  # seconds
_LATE_MS = 60_000  # an instant that no worker processed for this long is missed: longer than a worker takes to restart
_MOST_MISSED = 100  # missed instants that are made up for
_SECOND = timedelta(seconds=1)
_LONGEST_HOUR = timedelta(hours=26)  # within which clocks are set back at most once, and by less


class Timetable(Protocol):
    """The instants of a schedule: the same in every process."""

    def after(self, ms: int) -> Iterator[int]:
        """The instants after this one, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Every:
    """Once in each period, counted from 1970, so that all processes count alike.

    Attributes:
        period_ms: The period, in milliseconds.
    """

    period_ms: int

    def __str__(self) -> str:
        return f"every {self.period_ms / 1000:g} s"

    def after(self, ms: int) -> Iterator[int]:
        """The instants after this one, in order."""
        number = ms // self.period_ms
        while True:
            number += 1
            yield number * self.period_ms


@dataclass(frozen=True, slots=True)
class Cron:
    """The instants of a cron expression, by the clocks of a time zone.

    Where its clocks are set forward or back, it follows Debian's cron. An expression whose minute or hour begins with
    `*` means each moment at which the clocks show such a time. Any other means a time of day: one that is skipped runs
    right after the gap, and one that occurs twice runs the first time.

    Attributes:
        expression: Five fields, or six with seconds first.
        zone: The time zone.
    """

    expression: str
    zone: tzinfo

    def __str__(self) -> str:
        return f"{self.expression} {self.zone}"

    def after(self, ms: int) -> Iterator[int]:
        """The instants after this one, in order."""
        minute_and_hour = self.expression.split()[-5:-3]
        is_each_time = any(field.startswith("*") for field in minute_and_hour)
        begin = datetime.fromtimestamp(ms // 1000, UTC)
        for instant in self._each_time(begin) if is_each_time else self._times_of_day(begin):
            instant_ms = int(instant.timestamp()) * 1000
            if instant_ms > ms:
                ms = instant_ms
                yield instant_ms

    def _each_time(self, begin: datetime) -> Iterator[datetime]:
        # Clocks that are set back soon show an earlier time then.
        offset = min(self._offset(begin), self._offset(begin + _LONGEST_HOUR))
        second_times: deque[datetime] = deque()  # of those that occur twice
        for shown in self._shown(begin + offset):
            first, second = self._instants(shown)
            while second_times and second_times[0] <= first:
                yield second_times.popleft()
            if first < second:
                second_times.append(second)
            if first <= second:
                yield first
        yield from second_times

    def _times_of_day(self, begin: datetime) -> Iterator[datetime]:
        for shown in self._shown(begin + self._offset(begin)):
            first, second = self._instants(shown)
            yield first if first <= second else self._change_between(second, first)

    def _shown(self, begin: datetime) -> Iterator[datetime]:
        """The times that match the expression, after this one, on clocks that are never set forward or back."""
        return iter(_cronsim().CronSim(self.expression, begin.replace(tzinfo=None)))

    def _instants(self, shown: datetime) -> tuple[datetime, datetime]:
        """When clocks show this first, and last; in reverse order if they skip it."""
        first, second = (shown.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        return first, second

    def _offset(self, instant: datetime) -> timedelta:
        return instant.astimezone(self.zone).utcoffset() or timedelta()

    def _change_between(self, before: datetime, after: datetime) -> datetime:
        """When the clocks are set forward."""
        old = self._offset(before)
        while after - before > _SECOND:
            middle = before + (after - before) // _SECOND // 2 * _SECOND
            before, after = (middle, after) if self._offset(middle) == old else (before, middle)
        return after


def timetable(expression: str | None, *, every: Seconds | None, zone: str) -> Timetable:
    """The timetable that a user asks for.

    Raises:
        ValueError: Not exactly one of `expression` and `every` is given, it cannot be read, or it never matches a date.
        ImportError: A cron expression is given, and the extra `cron` is not installed.
    """
    if (expression is None) == (every is None):
        raise ValueError(
            'give either a cron expression, such as cron("*/5 * * * *"), or a period, such as cron(every=300)'
        )
    if every is not None:
        period = durations.in_seconds("every", every)
        if period < _SHORTEST_PERIOD:
            raise ValueError(f"every is {every!r}; give at least {_SHORTEST_PERIOD:g} s")
        return Every(milliseconds(period))
    assert expression is not None  # noqa: S101 - one of the two is there
    return _cron(expression, zone)


def _cron(expression: str, zone: str) -> Cron:
    cronsim = _cronsim()
    try:
        made = Cron(" ".join(expression.split()), UTC if zone == "UTC" else ZoneInfo(zone))
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"tz is {zone!r}; give the name of a time zone, such as 'Europe/Berlin'") from error
    try:
        next(made.after(0))
    except cronsim.CronSimError as error:
        raise ValueError(
            f"{expression!r} is not a cron expression: {error}; "
            "give minute, hour, day of month, month and day of week, such as '*/5 * * * *'"
        ) from error
    except StopIteration:
        raise ValueError(f"{expression!r} never matches any date; give a day that exists") from None
    return made


def _cronsim() -> ModuleType:
    try:
        return importlib.import_module("cronsim")
    except ImportError as error:
        raise ImportError(
            'cron expressions need cronsim, which is not installed; run pip install "inconcert[cron]"'
        ) from error


@dataclass(frozen=True, slots=True)
class Schedule:
    """A task and its timetable.

    Attributes:
        task: What runs.
        timetable: When.
        missed: What happens to instants at which no worker was running.
    """

    task: Task[Any, Any]
    timetable: Timetable
    missed: Missed

    def __str__(self) -> str:
        return f"{self.timetable} of task {self.task.name!r}"

    @property
    def id_prefix(self) -> str:
        """What the ids of its jobs begin with; the instant follows. An id has no space, but a name may."""
        return f"{quote(self.task.name)}@"

    def due(self, since_ms: int, now_ms: int) -> list[int]:
        """The instants after `since_ms` and up to `now_ms` for which a job is to be enqueued, in order."""
        if self.missed == "all":
            return self._latest(_MOST_MISSED, since_ms, now_ms)
        latest = self._latest(1, since_ms, now_ms)
        if latest and self.missed == "skip" and now_ms - latest[0] > _LATE_MS:
            return []
        return latest

    def next(self, now_ms: int) -> int:
        """The next instant."""
        return next(self.timetable.after(now_ms))

    def draft(self, instant_ms: int) -> tuple[str, Draft[object]]:
        """The job of an instant, and its id: the same in every process."""
        at = datetime.fromtimestamp(instant_ms / 1000, UTC)
        job_id = f"{self.id_prefix}{at.isoformat().replace('+00:00', 'Z')}"
        return job_id, Draft(self.task.name, (), {}, self.task.defaults, scheduled_at=instant_ms / 1000)

    def _latest(self, most: int, since_ms: int, now_ms: int) -> list[int]:
        """The last instants, at most this many; searched further and further back."""
        span_ms = 60_000
        while True:
            start_ms = max(since_ms, now_ms - span_ms)
            found = deque(takewhile(lambda ms: ms <= now_ms, self.timetable.after(start_ms)), maxlen=most)
            if len(found) == most or start_ms == since_ms:
                return list(found)
            span_ms *= 60
