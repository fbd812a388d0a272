"""When a task runs by itself: instants, time zones, and those that were missed."""

import sys
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, pairwise, takewhile
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inconcert import Coordinator, Limit, Rate
from inconcert.tasks.records.envelope import open_envelope
from inconcert.tasks.schedules.schedule import Missed, Schedule, due_instants
from inconcert.tasks.schedules.stored_schedule import StoredSchedule
from inconcert.tasks.schedules.timetable import Timetable, timetable

HOUR = 3_600_000  # ms
MINUTE = 60_000


def cron(expression: str, zone: str = "UTC") -> Timetable:
    """The timetable of a cron expression."""
    return timetable(expression, every=None, zone=zone)


def every(seconds: float) -> Timetable:
    """The timetable of a period."""
    return timetable(None, every=seconds, zone="UTC")


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


@pytest.mark.parametrize(
    ("seconds", "text"), [(300, "every 300 s"), (0.5, "every 0.5 s"), (30 * 86_400, "every 2592000 s")]
)
def test_period_is_named_in_full(seconds: float, text: str) -> None:
    """Two periods that differ have two names: schedules in code are known by them, and a change is noticed by them."""
    assert str(every(seconds)) == text
    assert str(every(seconds + 0.001)) != text


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
        ("0 30 2 * * *", "2026-03-28T12:00:00Z", ["29 03:00 CEST", "30 02:30 CEST"]),
        ("*/20 30 2 * * *", "2026-03-28T12:00:00Z", ["29 03:00 CEST", "30 02:30 CEST"]),
        ("15,45 2 * * *", "2026-03-28T12:00:00Z", ["29 03:00 CEST", "30 02:15 CEST"]),
        ("0 30 2 * * *", "2026-10-24T12:00:00Z", ["25 02:30 CEST", "26 02:30 CET"]),
        ("*/30 2 * * *", "2026-03-28T12:00:00Z", ["30 02:00 CEST", "30 02:30 CEST"]),
        ("*/45 2 * * *", "2026-10-25T00:10:00Z", ["25 02:45 CEST", "25 02:00 CET"]),
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


def test_time_that_a_whole_day_passes_over_is_when_that_is_over() -> None:
    """Samoa had no 30 December 2011; and in Beirut, where clocks are put forward at midnight, that is at one."""
    samoa = islice(cron("30 2 * * *", "Pacific/Apia").after(ms("2011-12-29T00:00:00Z")), 4)
    assert [local(instant, "Pacific/Apia")[:8] for instant in samoa] == ["29 02:30", "31 00:00", "31 02:30", "01 02:30"]
    beirut = islice(cron("0 0 * * *", "Asia/Beirut").after(ms("2026-03-28T12:00:00Z")), 2)
    assert [local(instant, "Asia/Beirut") for instant in beirut] == ["29 01:00 EEST", "30 00:00 EEST"]


CHANGES = [
    ("UTC", "2026-03-29T01:00:00Z"),
    ("Europe/Berlin", "2026-03-29T01:00:00Z"),
    ("Europe/Berlin", "2026-10-25T01:00:00Z"),
    ("America/New_York", "2026-11-01T06:00:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
    ("America/Sao_Paulo", "2018-02-18T02:00:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00:00Z"),
    ("Asia/Beirut", "2026-03-28T22:00:00Z"),
    ("Asia/Beirut", "2026-10-24T21:00:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00:00Z"),
    ("Africa/Monrovia", "1972-01-07T00:44:30Z"),
]
seconds = st.sampled_from(["", "0 ", "*/20 ", "7,40 "])
minutes = st.sampled_from(["*", "*/15", "0", "30", "10,50", "20-40"])
hours = st.sampled_from(["*", "*/2", "0", "2", "0-3", "1,2,23"])


@settings(deadline=None)
@given(
    near=st.sampled_from(CHANGES),
    away=st.integers(-40 * HOUR, 30 * HOUR),
    expression=st.builds("{}{} {} * * {}".format, seconds, minutes, hours, st.sampled_from(["*", "0", "SAT"])),
)
def test_instants_are_the_same_wherever_one_begins(near: tuple[str, str], away: int, expression: str) -> None:
    """So two processes that look at different moments agree on every one."""
    zone, change = near
    when = cron(expression, zone)
    first = ms(change) + away
    run = list(islice(when.after(first), 30))
    assert run == sorted(set(run))
    for earlier, later in pairwise(run):
        assert next(when.after(earlier)) == later
        assert next(when.after(later - 1)) == later
        assert next(when.after((earlier + later) // 2)) == later
    assert run[0] > first


@settings(deadline=None)
@given(
    near=st.sampled_from(CHANGES),
    away=st.integers(-40 * HOUR, 30 * HOUR),
    expression=st.builds("{}{} {} * * *".format, seconds, minutes, hours),
    jitter=st.sampled_from([0.001, 1.0, 59.0, 3600.0, 86_400.0]),
    name=st.sampled_from(["a", "b"]),
)
def test_jitter_keeps_the_order_and_number_of_instants(
    near: tuple[str, str], away: int, expression: str, jitter: float, name: str
) -> None:
    """Also where the clocks change: each lies before the next one of the rule, the same at any look."""
    zone, change = near
    first = ms(change) + away
    rule = cron(expression, zone)
    spread = timetable(expression, zone=zone, jitter=jitter, name=name)
    plain = list(islice(rule.after(first), 12))
    run = list(islice(spread.after(plain[0] - 1), 12))
    run = run if spread.by_rule(run[0]) == plain[0] else run[1:]  # the instant before may be as late
    for late, instant, following in zip(run, plain, plain[1:], strict=False):
        assert instant <= late < following
        assert late - instant < jitter * 1000
        assert spread.by_rule(late) == instant
        assert next(spread.after(late - 1)) == late
    for earlier, later in pairwise(run):
        assert next(spread.after(earlier)) == later
        assert next(spread.after((earlier + later) // 2)) == later


def test_jitter_differs_from_schedule_to_schedule_and_from_instant_to_instant() -> None:
    """It is drawn from both, so that what would come at once comes apart, and no schedule is always late."""

    def lateness(name: str) -> list[int]:
        spread = timetable("0 3 * * *", jitter=600, name=name)
        return [instant - spread.by_rule(instant) for instant in islice(spread.after(0), 200)]

    a, b = lateness("a"), lateness("b")
    assert a == lateness("a")
    assert sum(one != other for one, other in zip(a, b, strict=True)) > 190
    assert min(a) < 60_000
    assert max(a) > 540_000


def test_jitter_is_the_same_in_every_release() -> None:
    """What a process draws must not depend on its version, platform or hash seed."""
    spread = timetable(every=3600, jitter=60, name="nightly")
    assert list(islice(spread.after(0), 3)) == [15_621, 3_615_979, 7_238_301]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_instants_lie_from_the_start_to_the_end_both_included(zone: str) -> None:
    """Also over a change of the clocks, and wherever one begins; a period is counted from 1970 all the same."""
    start, end = datetime.fromisoformat("2026-03-28T01:30:00Z"), datetime.fromisoformat("2026-03-30T00:30:00Z")
    bounded = timetable("30 2 * * *", zone=zone, starts_at=start, ends_at=end)
    all_of_them = cron("30 2 * * *", zone)
    expected = [at for at in islice(all_of_them.after(ms("2026-03-27T00:00:00Z")), 6) if start.timestamp() * 1000 <= at]
    expected = [at for at in expected if at <= end.timestamp() * 1000]
    assert list(bounded.after(0)) == expected
    assert list(bounded.after(expected[0])) == expected[1:]
    assert list(bounded.after(expected[-1])) == []
    inclusive = timetable(every=60, starts_at=datetime.fromtimestamp(60, UTC), ends_at=datetime.fromtimestamp(180, UTC))
    assert list(inclusive.after(0)) == [60_000, 120_000, 180_000]
    odd = timetable(every=60, starts_at=datetime.fromtimestamp(61, UTC))
    assert next(odd.after(0)) == 120_000


def test_jitter_does_not_depend_on_the_end_and_may_pass_it() -> None:
    """So that an instant that has come does not move when the end does."""
    open_ended = timetable(every=3600, jitter=3600, name="s")
    ending = timetable(every=3600, jitter=3600, name="s", ends_at=datetime.fromtimestamp(7200, UTC))
    assert list(ending.after(3600)) == [
        at for at in islice(open_ended.after(3600), 3) if open_ended.by_rule(at) <= 7_200_000
    ]


def test_rule_has_all_that_instants_follow_from() -> None:
    """By it a change is noticed, and schedules in code are known."""
    texts = [
        str(timetable(every=60, **more))
        for more in (
            {},
            {"jitter": 5},
            {"starts_at": datetime.fromtimestamp(60, UTC)},
            {"ends_at": datetime.fromtimestamp(61, UTC)},
        )
    ]
    assert texts == [
        "every 60 s",
        "every 60 s jitter 5 s",
        "every 60 s from 1970-01-01T00:01:00Z",
        "every 60 s to 1970-01-01T00:01:01Z",
    ]


@cache
def clocks(zone: str, start: int, end: int) -> list[tuple[int, str, int]]:
    """What they show in each minute, and whether for the second time."""
    minutes = range(start // MINUTE * MINUTE + MINUTE, end + 1, MINUTE)
    times = [datetime.fromtimestamp(instant / 1000, ZoneInfo(zone)) for instant in minutes]
    return [(instant, f"{time:%H:%M}", time.fold) for instant, time in zip(minutes, times, strict=True)]


@pytest.mark.slow
@settings(deadline=None)
@given(near=st.sampled_from(CHANGES[:-1]), minute=minutes, hour=hours)
def test_instants_are_what_clocks_show(near: tuple[str, str], minute: str, hour: str) -> None:
    """With a star, each minute at which they show such a time; else each such time of a day once."""
    zone, change = near
    expression = f"{minute} {hour} * * *"
    start = ms(change) - 26 * HOUR
    end = start + 52 * HOUR
    found = list(takewhile(lambda instant: instant <= end, cron(expression, zone).after(start)))
    times = {f"{datetime.fromtimestamp(at / 1000, UTC):%H:%M}" for at in islice(cron(expression).after(-1), 1440)}
    fitting = [(instant, fold) for instant, shown, fold in clocks(zone, start, end) if shown in times]
    if "*" in minute + hour:
        assert found == [instant for instant, _ in fitting]
    else:
        firsts = {instant for instant, fold in fitting if not fold}
        assert firsts <= set(found)
        assert all(instant in firsts or instant == ms(change) for instant in found)


@pytest.mark.parametrize(
    ("expression", "period", "zone", "message"),
    [
        ("every day", None, "UTC", "'every day' is not a cron expression: Wrong number of fields"),
        ("61 * * * *", None, "UTC", "'61 \\* \\* \\* \\*' is not a cron expression: Bad minute"),
        ("0 0 31 2 *", None, "UTC", "Bad day-of-month"),
        ("0 0 */30 2 5#5", None, "UTC", "never matches any date"),
        ("0 9 * * *", None, "Mars/Olympus", "tz is 'Mars/Olympus'"),
        ("0 9 * * *", None, "../etc", "tz is '../etc'"),
        ("0 9 * * *", None, None, "tz is None; give the name of a time zone"),
        (None, 0.05, "UTC", "every is 0.05; give at least 0.1 s"),
        (None, -1.0, "UTC", "every is -1.0"),
        (None, "5", "UTC", "every is '5'"),
    ],
)
def test_what_cannot_be_a_timetable_is_refused(expression: str | None, period: Any, zone: Any, message: str) -> None:
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
    assert due_instants(cron("0 * * * *"), "all", since, now) == hours
    assert due_instants(cron("0 * * * *"), "once", since, now) == hours[-1:]
    assert due_instants(cron("0 * * * *"), "skip", since, now) == []
    assert due_instants(cron("0 * * * *"), "skip", since, hours[-1] + 60_000) == hours[-1:]
    assert due_instants(cron("0 * * * *"), "all", hours[-1], now) == []


@pytest.mark.parametrize("period", [0.1, 1, 7, 60, 3600, 86400])
def test_at_most_the_last_hundred_are_made_up_for(period: float) -> None:
    """After however long."""
    now = ms("2026-11-21T12:30:00Z")
    found = due_instants(every(period), "all", now - 24 * HOUR * 365, now)
    step = int(period * 1000)
    assert found == [now // step * step - step * back for back in range(99, -1, -1)]


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_clock_that_was_set_back_repeats_nothing(missed: Missed) -> None:
    """Until it has come where it was."""
    assert due_instants(every(60), missed, 10 * HOUR, 9 * HOUR) == []


def test_job_of_an_instant_has_the_same_id_everywhere() -> None:
    """It says which task and when, and has no space in it."""
    task = Coordinator().task(name="t x")(lambda: None)
    schedule = StoredSchedule.of(Schedule(task, every(0.2), "once"))
    job_id, draft = schedule.draft(ms("2026-11-21T12:30:00Z"))
    assert job_id == "t%20x@2026-11-21T12:30:00Z"
    assert b'"scheduled_at":1795264200.0' in draft.text
    assert schedule.draft(200)[0] == "t%20x@1970-01-01T00:00:00.200000Z"


def test_job_of_a_schedule_in_code_has_all_options_of_its_task() -> None:
    """It is as if the task had been called."""
    concert = Coordinator()
    task = concert.task(
        name="t",
        queue="q",
        max_attempts=3,
        max_crashes=2,
        result_ttl=7,
        expires=8,
        time_limit=9,
        history=10,
        history_arguments=True,
        limit=Limit(2),
        rate=Rate(1, per=2.0),
        key=lambda: "tenant",
        key_limit=1,
    )(lambda: None)
    called, stored = task.call(), StoredSchedule.of(Schedule(task, every(60), "once"))
    draft = stored.draft_now()
    assert open_envelope(draft.text) == msgspec.structs.replace(open_envelope(called.text), args=())
    assert (draft.name, draft.limits, draft.options) == (called.name, called.limits, called.options)
