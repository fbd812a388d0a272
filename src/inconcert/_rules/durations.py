"""Times given by users: lengths as numbers of seconds or as `timedelta`, and instants as `datetime`."""

import math
from datetime import datetime, timedelta
from functools import lru_cache

Seconds = float | timedelta

_LONGEST = 10.0 * 365 * 24 * 3600  # seconds; a longer time is a mistake, and would not fit Redis' arithmetic


def ttl(value: Seconds) -> float:
    """Check the life of a lease: above 0, in seconds."""
    return _above_0("ttl", value)


def period(value: Seconds) -> float:
    """Check the time from one run to the next: above 0, in seconds."""
    return _above_0("period", value)


def timeout(value: Seconds | None) -> float | None:
    """Check a longest wait in seconds: None waits forever, 0 does not wait."""
    if value is None:
        return None
    return in_seconds("timeout", value)


def call_timeout(whose: str, value: Seconds) -> float:
    """Check how long a call may take: above 0, in seconds."""
    seconds = timeout(value)
    if not seconds:
        raise ValueError(f"timeout of {whose} is {value!r}; give a number of seconds above 0")
    return seconds


def delay(value: Seconds) -> float:
    """Check a time from now: 0 or more seconds."""
    return in_seconds("delay", value)


def instant(parameter: str, value: object) -> float:
    """Check an instant: a `datetime` with a time zone, in seconds since 1970; an error names the parameter."""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        example = "datetime(2026, 12, 24, tzinfo=UTC)"
        raise ValueError(f"{parameter} is {value!r}; give a datetime with a time zone, such as {example}")
    return value.timestamp()


@lru_cache(maxsize=256)  # a program has few different ones, and uses them all the time
def milliseconds(seconds: float) -> int:
    """Seconds as a whole number of milliseconds, never less than asked for."""
    return math.ceil(round(seconds * 1000, 3)) if seconds else 0


def in_words(seconds: float) -> str:
    """A duration for people: `0.4 s`, `12 s`, `3 min`, `2 h`, `5 d`."""
    for size, unit, until in ((1.0, "s", 120.0), (60.0, "min", 7200.0), (3600.0, "h", 172_800.0)):
        if seconds < until:
            return f"{seconds / size:.1f} {unit}" if seconds < 10 else f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def _above_0(parameter: str, value: Seconds) -> float:
    seconds = in_seconds(parameter, value)
    if seconds < 0.001:
        raise ValueError(f"{parameter} is {value!r}; give at least 0.001 s")
    return seconds


def in_seconds(parameter: str, value: Seconds) -> float:
    """Check a time: 0 or more, in seconds; an error names the parameter."""
    if type(value) is float and 0 <= value <= _LONGEST:
        return value
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"{parameter} is {value!r}; give seconds as a number or a timedelta")  # noqa: TRY004 - documented
    if not 0 <= seconds <= _LONGEST:
        raise ValueError(f"{parameter} is {value!r}; give between 0 and {_LONGEST:.0f} s")
    return float(seconds)
