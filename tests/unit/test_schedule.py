"""When a task runs by itself: instants, time zones, and those that were missed."""

import sys
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inconcert import Coordinator
from inconcert.tasks.schedule import Missed, Schedule, Timetable, timetable

HOUR = 3_600_000  # ms


def cron(expression: str, zone: str = "UTC") -> Timetable:
    """The timetable of a cron expression."""
    return timetable(expression, every=None, zone=zone)


def every(seconds: float) -> Timetable:
    """The timetable of a period."""
    return timetable(None, every=seconds, zone="UTC")


def schedule(when: Timetable, missed: Missed = "once") -> Schedule:
    """A schedule of a task without arguments."""

    @Coordinator().task(name="t x")
    def run() -> None: ...

    return Schedule(run, when, missed)


def ms(text: str) -> int:
    """An instant."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def local(instant_ms: int, zone: str) -> str:
    """What a clock on the wall shows then."""
    return f"{datetime.fromtimestamp(instant_ms / 1000, ZoneInfo(zone)):%d %H:%M %Z}"


def test_period_is_counted_from_1970() -> None:
    """So that it does not matter when a worker began."""
    assert list(islice(every(300).after(ms("2026-11-21T12:03:00Z")), 2)) == [
        ms("2026-11-21T12:05:00Z"),
        ms("2026-11-21T12:10:00Z"),
    ]
    assert next(every(0.2).after(1000)) == 1200
    assert next(timetable(None, every=timedelta(minutes=1), zone="UTC").after(60_000)) == 120_000


def test_expression_is_read_in_its_time_zone() -> None:
    """At nine by the clocks there."""
    assert next(cron("0 9 * * *", "Asia/Kolkata").after(ms("2026-11-21T00:00:00Z"))) == ms("2026-11-21T03:30:00Z")


def test_expression_may_have_seconds() -> None:
    """Six fields, seconds first."""
    assert list(islice(cron("*/20 * * * * *").after(0), 3)) == [20_000, 40_000, 60_000]


@pytest.mark.parametrize(
    ("expression", "around", "expected"),
    [
        ("30 2 * * *", "2026-03-28T12:00:00Z", ["29 03:00 CEST", "30 02:30 CEST"]),
        ("30 2 * * *", "2026-10-24T12:00:00Z", ["25 02:30 CEST", "26 02:30 CET"]),
        ("30 2 * * *", "2026-10-25T01:10:00Z", ["26 02:30 CET", "27 02:30 CET"]),
        ("0 * * * *", "2026-03-28T23:30:00Z", ["29 01:00 CET", "29 03:00 CEST"]),
        ("0 * * * *", "2026-10-24T23:30:00Z", ["25 02:00 CEST", "25 02:00 CET"]),
    ],
)
def test_clocks_that_are_put_forward_or_back_neither_lose_nor_double_a_day(
    expression: str, around: str, expected: list[str]
) -> None:
    """What is missing runs when it would be over, what comes twice runs once; each hour is an hour."""
    found = islice(cron(expression, "Europe/Berlin").after(ms(around)), 2)
    assert [local(instant, "Europe/Berlin") for instant in found] == expected


@given(
    start=st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)),  # noqa: DTZ001 - made aware below
    expression=st.sampled_from(["*/15 * * * *", "30 2 * * *", "0,30 1-3 * * *", "0 */2 * * *", "0 0 * * 0"]),
    zone=st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"]),
)
def test_instants_are_the_same_wherever_one_begins(start: datetime, expression: str, zone: str) -> None:
    """So two processes that look at different moments agree on every one."""
    when = cron(expression, zone)
    first = int(start.replace(tzinfo=UTC).timestamp() * 1000)
    run = list(islice(when.after(first), 20))
    assert run == sorted(set(run))
    for earlier, later in pairwise(run):
        assert next(when.after(earlier)) == later
        assert next(when.after(later - 1)) == later


@pytest.mark.parametrize(
    ("expression", "period", "zone", "message"),
    [
        (None, None, "UTC", "give either"),
        ("* * * * *", 5.0, "UTC", "give either"),
        ("every day", None, "UTC", "'every day' is no cron expression: Wrong number of fields"),
        ("61 * * * *", None, "UTC", "'61 \\* \\* \\* \\*' is no cron expression: Bad minute"),
        ("0 0 31 2 *", None, "UTC", "Bad day-of-month"),
        ("0 0 */30 2 5#5", None, "UTC", "never comes"),
        ("0 9 * * *", None, "Mars/Olympus", "tz is 'Mars/Olympus'"),
        ("0 9 * * *", None, "../etc", "tz is '../etc'"),
        (None, 0.05, "UTC", "every is 0.05; give at least 0.1 s"),
        (None, -1.0, "UTC", "every is -1.0"),
        (None, "5", "UTC", "every is '5'"),
    ],
)
def test_what_cannot_be_a_timetable_is_refused(expression: str | None, period: Any, zone: str, message: str) -> None:
    """With what it is, and what to give."""
    with pytest.raises(ValueError, match=message):
        timetable(expression, every=period, zone=zone)


def test_expression_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A period needs nothing."""
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(ImportError, match=r"inconcert\[cron\]"):
        cron("* * * * *")
    every(5)


def test_missed_instants_are_made_up_for_as_told() -> None:
    """`once` and `skip` with the last, `all` with each."""
    now = ms("2026-11-21T12:30:00Z")
    since = now - 5 * HOUR
    hours = [ms(f"2026-11-21T{hour:02}:00:00Z") for hour in (8, 9, 10, 11, 12)]
    assert schedule(cron("0 * * * *"), "all").due(since, now) == hours
    assert schedule(cron("0 * * * *"), "once").due(since, now) == hours[-1:]
    assert schedule(cron("0 * * * *"), "skip").due(since, now) == []
    assert schedule(cron("0 * * * *"), "skip").due(since, hours[-1] + 60_000) == hours[-1:]
    assert schedule(cron("0 * * * *"), "all").due(hours[-1], now) == []


@pytest.mark.parametrize("period", [0.1, 1, 7, 60, 3600, 86400])
def test_at_most_the_last_hundred_are_made_up_for(period: float) -> None:
    """After however long."""
    now = ms("2026-11-21T12:30:00Z")
    found = schedule(every(period), "all").due(now - 24 * HOUR * 365, now)
    step = int(period * 1000)
    assert found == [now // step * step - step * back for back in range(99, -1, -1)]


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_clock_that_was_set_back_repeats_nothing(missed: Missed) -> None:
    """Until it has come where it was."""
    assert schedule(every(60), missed).due(10 * HOUR, 9 * HOUR) == []


def test_job_of_an_instant_has_the_same_id_everywhere() -> None:
    """It says which task and when, and has no space in it."""
    job_id, draft = schedule(every(0.2)).draft(ms("2026-11-21T12:30:00Z"))
    assert job_id == "t%20x@2026-11-21T12:30:00Z"
    assert b'"scheduled_at":1795264200.0' in draft.text
    assert schedule(every(0.2)).draft(200)[0] == "t%20x@1970-01-01T00:00:00.200000Z"
