"""Timetables: the instants at which something is to happen, the same in every process.

Everything is computed from instants that the server returned, in milliseconds since 1970; no clock is read here.
"""

import importlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from types import ModuleType
from typing import Protocol
from zoneinfo import ZoneInfo

from inconcert._rules import durations
from inconcert._rules.durations import Seconds, milliseconds

__all__ = ["END_MS", "Cron", "Every", "Once", "Timetable", "instant_text", "timetable"]

END_MS = 253_402_300_800_000  # the year 10000, which datetime does not have
_SHORTEST_PERIOD = 0.1  # seconds
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
        return f"every {self.period_ms / 1000:.12g} s"  # all digits: another period is another rule

    def after(self, ms: int) -> Iterator[int]:
        """The instants after this one, in order."""
        number = ms // self.period_ms
        while True:
            number += 1
            yield number * self.period_ms


@dataclass(frozen=True, slots=True)
class Once:
    """A single instant.

    Attributes:
        at_ms: When, in milliseconds since 1970.
    """

    at_ms: int

    def __str__(self) -> str:
        return f"at {instant_text(self.at_ms)}"

    def after(self, ms: int) -> Iterator[int]:
        """The instant, if it is after this one."""
        if self.at_ms > ms:
            yield self.at_ms


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
        """The instants at which clocks show this first and last; in reverse order if they skip it."""
        first, second = (shown.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        return first, second

    def _offset(self, instant: datetime) -> timedelta:
        return instant.astimezone(self.zone).utcoffset() or timedelta()

    def _change_between(self, before: datetime, after: datetime) -> datetime:
        """The instant at which the clocks are set forward."""
        old = self._offset(before)
        while after - before > _SECOND:
            middle = before + (after - before) // _SECOND // 2 * _SECOND
            before, after = (middle, after) if self._offset(middle) == old else (before, middle)
        return after


def timetable(
    cron: str | None = None, *, every: Seconds | None = None, at: datetime | None = None, zone: str = "UTC"
) -> Timetable:
    """The timetable that a user asks for, by one of `cron`, `every` and `at`.

    Raises:
        ValueError: It cannot be read, `at` has no time zone, or the expression never matches a date.
        ImportError: A cron expression is given, and the extra `cron` is not installed.
    """
    if cron is not None:
        return _cron(cron, zone)
    if every is not None:
        period = durations.in_seconds("every", every)
        if period < _SHORTEST_PERIOD:
            raise ValueError(f"every is {every!r}; give at least {_SHORTEST_PERIOD:g} s")
        return Every(milliseconds(period))
    at_ms = round(durations.instant("at", at) * 1000)
    if not 0 < at_ms < END_MS:
        raise ValueError(f"at is {at!r}; give an instant after the beginning of 1970 and before the year 10000")
    return Once(at_ms)


def instant_text(instant_ms: int) -> str:
    """An instant for people, and in ids: `2026-11-21T09:00:00Z`."""
    return datetime.fromtimestamp(instant_ms / 1000, UTC).isoformat().replace("+00:00", "Z")


def _cron(expression: str, zone: str) -> Cron:
    if not isinstance(expression, str):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
        raise ValueError(f"{expression!r} is not a cron expression; give a string, such as '*/5 * * * *'")  # noqa: TRY004
    cronsim = _cronsim()
    try:
        made = Cron(" ".join(expression.split()), UTC if zone == "UTC" else ZoneInfo(zone))
    except (KeyError, ValueError, OSError, TypeError) as error:
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
