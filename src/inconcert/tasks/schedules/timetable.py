"""Timetables: the instants at which something is to happen, the same in every process.

Everything is computed from instants that the server returned, in milliseconds since 1970; no clock is read here.
"""

import importlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from hashlib import blake2b
from itertools import takewhile
from types import ModuleType
from typing import Protocol
from zoneinfo import ZoneInfo

from inconcert._rules import durations
from inconcert._rules.durations import Seconds, milliseconds

END_MS = 253_402_300_800_000  # the year 10000, which datetime does not have
_SHORTEST_PERIOD = 0.1  # seconds
_SECOND = timedelta(seconds=1)
_LONGEST_HOUR = timedelta(hours=26)  # within which clocks are set back at most once, and by less


class Rule(Protocol):
    """Instants that follow from a few values: the same in every process."""

    def after(self, ms: int) -> Iterator[int]:
        """The instants after this one, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Every:
    """Once in each period, counted from 1970, so that all processes count alike."""

    period_ms: int  # the period, in milliseconds

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
    """A single instant."""

    at_ms: int  # when, in milliseconds since 1970

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
    """

    expression: str  # five fields, or six with seconds first
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


@dataclass(frozen=True, slots=True)
class Timetable:
    """The instants of a schedule: those of its rule from a first to a last moment, each up to `jitter_ms` later.

    How much later is drawn from `name` and the instant of the rule. So it is the same in every process, at every look,
    and two schedules with one rule come apart. It is less than the time to the next instant of the rule, so their order
    stays, and each can be traced back to the one that it comes from.
    """

    rule: Rule  # the instants as the rule has them
    starts_ms: int = 0  # the moment before which there is none
    ends_ms: int | None = None  # the moment after which there is none; None for no such moment
    jitter_ms: int = 0  # how much later an instant may be, at most; 0 for none
    name: str = ""  # names the schedule, for its jitter

    def __str__(self) -> str:
        starts = f" from {instant_text(self.starts_ms)}" if self.starts_ms else ""
        ends = "" if self.ends_ms is None else f" to {instant_text(self.ends_ms)}"
        jitter = f" jitter {self.jitter_ms / 1000:.12g} s" if self.jitter_ms else ""
        return f"{self.rule}{starts}{ends}{jitter}"

    def after(self, ms: int) -> Iterator[int]:
        """The instants after this one, in order."""
        begin = max(ms, self.starts_ms - 1)
        if not self.jitter_ms:
            yield from takewhile(self._is_before_the_end, self.rule.after(begin))
            return
        under_way = latest(self.rule, 1, max(ms - self.jitter_ms, self.starts_ms - 1), ms)
        instants = takewhile(self._is_before_the_end, self.rule.after(under_way[0] - 1 if under_way else begin))
        yield from (late for late in map(self._later, instants) if late > ms)

    def by_rule(self, ms: int) -> int:
        """The instant of the rule from which this instant comes."""
        return latest(self.rule, 1, ms - self.jitter_ms - 1, ms)[0] if self.jitter_ms else ms

    def _is_before_the_end(self, ms: int) -> bool:
        return self.ends_ms is None or ms <= self.ends_ms

    def _later(self, ms: int) -> int:
        following = next(self.rule.after(ms), None)
        span_ms = self.jitter_ms if following is None else min(self.jitter_ms, following - ms)
        return ms + int.from_bytes(blake2b(f"{ms} {self.name}".encode(), digest_size=8).digest()) % span_ms


def latest(instants: Rule, most: int, since_ms: int, until_ms: int) -> list[int]:
    """The last instants after one moment and up to another, at most this many; searched further and further back."""
    span_ms = 60_000
    while True:
        start_ms = max(since_ms, until_ms - span_ms)
        found = deque(takewhile(lambda ms: ms <= until_ms, instants.after(start_ms)), maxlen=most)
        if len(found) == most or start_ms == since_ms:
            return list(found)
        span_ms *= 60


def timetable(
    cron: str | None = None,
    *,
    every: Seconds | None = None,
    at: datetime | None = None,
    zone: str = "UTC",
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
    jitter: Seconds = 0.0,
    name: str = "",
) -> Timetable:
    """The timetable that a user asks for, by one of `cron`, `every` and `at`.

    Raises:
        ValueError: It cannot be read, an instant has no time zone, the expression never matches a date, or there is no
            instant from `starts_at` to `ends_at`.
        ImportError: A cron expression is given, and the extra `cron` is not installed.
    """
    jitter_ms = milliseconds(durations.in_seconds("jitter", jitter))
    starts_ms = 0 if starts_at is None else _instant_ms("starts_at", starts_at)
    ends_ms = None if ends_at is None else _instant_ms("ends_at", ends_at)
    rule = _rule(cron, every, at, zone)
    if isinstance(rule, Once) and (starts_at is not None or ends_at is not None):
        raise ValueError("at= gives one instant; give starts_at= and ends_at= to a schedule with cron= or every=")
    made = Timetable(rule, starts_ms, ends_ms, jitter_ms, name)
    if ends_ms is not None and next(made.after(-1), None) is None:
        raise ValueError(
            f"the schedule {rule} has no instant from {instant_text(starts_ms)} to {instant_text(ends_ms)}; "
            "give a later ends_at, or an earlier starts_at"
        )
    return made


def _rule(cron: str | None, every: Seconds | None, at: datetime | None, zone: str) -> Rule:
    if cron is not None:
        return _cron(cron, zone)
    if every is not None:
        period = durations.in_seconds("every", every)
        if period < _SHORTEST_PERIOD:
            raise ValueError(f"every is {every!r}; give at least {_SHORTEST_PERIOD:g} s")
        return Every(milliseconds(period))
    return Once(_instant_ms("at", at))


def _instant_ms(parameter: str, instant: datetime | None) -> int:
    ms = round(durations.instant(parameter, instant) * 1000)
    if not 0 < ms < END_MS:
        raise ValueError(
            f"{parameter} is {instant!r}; give an instant after the beginning of 1970 and before the year 10000"
        )
    return ms


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
