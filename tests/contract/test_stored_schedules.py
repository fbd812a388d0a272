"""Schedules that operators change while workers run: each instant one job, whatever is put, paused and resumed."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from inconcert import (
    Coordinator,
    InvalidName,
    InvalidPayload,
    ScheduleStatus,
    Task,
    UnknownSchedule,
    current_job,
)
from inconcert.tasks.records.store import ADVANCE
from inconcert.tasks.schedules.schedule import Missed
from inconcert.tasks.schedules.schedule_follower import PartitionFollower
from tests.support.eventually import eventually
from tests.support.raw import raw
from tests.support.schedules import following, job_ids, keys_of, look_at_all, now_ms, set_since
from tests.support.scripts import command_of

MINUTE = 60_000
LONG = 86_400 * 3650  # seconds: no instant of this period comes while a test runs


def add_task(concert: Coordinator) -> Task[..., Any]:
    """A task in a queue that nobody reads."""

    @concert.task(name="report", queue="reports")
    async def report(which: str) -> None: ...

    return report


@pytest.fixture
def report(any_concert: Coordinator) -> Task[..., Any]:
    """What the schedules run."""
    return add_task(any_concert)


async def status_of(concert: Coordinator, id_: str) -> ScheduleStatus:
    """A schedule, as it is listed."""
    return next(status for status in await concert.schedules.list() if status.id == id_)


async def test_job_is_enqueued_at_each_instant_with_its_arguments(any_concert: Coordinator) -> None:
    """By workers that heard of it while they ran; the body is told which instant it is."""
    seen: list[tuple[str, float, str]] = []

    @any_concert.task(name="report", queue="reports")
    async def report(which: str, *, more: str) -> None:
        job = current_job()
        seen.append((which + more, job.scheduled_at or 0.0, job.id))

    async with asyncio.TaskGroup() as tasks:
        workers = [tasks.create_task(any_concert.run_worker("reports")) for _ in range(2)]
        await any_concert.schedules.put("often", report.call("a", more="b"), every=0.2)
        await eventually(lambda: len(seen) >= 4)
        for worker in workers:
            worker.cancel()
    assert {texts for texts, _, _ in seen} == {"ab"}
    instants = [round(at * 1000) for _, at, _ in seen]
    assert len(set(instants)) == len(instants)
    assert all(instant % 200 == 0 for instant in instants)
    assert all(job_id.startswith("schedule:often@20") for _, _, job_id in seen)


async def test_list_has_rules_arguments_and_instants(any_concert: Coordinator, report: Task[..., Any]) -> None:
    """Sorted; the last instant is none before the first job, the next is known before any worker runs."""
    assert await any_concert.schedules.list() == []
    await any_concert.schedules.put("b", report.call("x"), cron="0 3 * * *", tz="Europe/Berlin", missed="all")
    await any_concert.schedules.put("a", report.options(queue="low").call(which="y"), every=LONG)
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    await any_concert.schedules.put("c", report.call("z"), at=at, missed="skip")
    one, two, three = await any_concert.schedules.list()
    assert (one.id, one.rule, one.queue, one.args, one.kwargs) == ("a", "every 315360000 s", "low", [], {"which": "y"})
    assert (two.id, two.rule, two.task, two.missed) == ("b", "0 3 * * * Europe/Berlin", "report", "all")
    assert (three.rule.startswith("at 20"), three.next_at) == (True, round(at.timestamp(), 3))
    assert [status.last_at for status in (one, two, three)] == [None] * 3
    assert one.next_at is not None
    assert (one.next_at * 1000) % (LONG * 1000) == 0
    assert two.next_at is not None
    assert not one.is_paused
    assert not one.problem


@pytest.mark.parametrize(("missed", "count"), [("skip", 0), ("once", 1), ("all", 60)])
async def test_missed_instants_are_made_up_for_as_told(
    any_concert: Coordinator, report: Task[..., Any], missed: Missed, count: int
) -> None:
    """The last instant was five minutes ago, and it is the sixtieth; none of them comes again."""
    now = await now_ms(any_concert)
    await any_concert.schedules.put("s", report.call("x"), every=(now / 1000 - 300) / 60, missed=missed)
    await set_since(any_concert, "s", 1)
    assert await look_at_all(any_concert) == 60.0
    ids = await job_ids(any_concert)
    assert len(ids) == count
    await raw(any_concert).zadd(keys_of(any_concert, "s").looks, {"s": 0})
    await look_at_all(any_concert)
    assert await job_ids(any_concert) == ids
    last_at = (await status_of(any_concert, "s")).last_at
    assert (last_at is not None) == (count > 0)


async def test_new_rule_begins_with_its_next_instant_and_the_same_one_misses_none(
    any_concert: Coordinator, report: Task[..., Any]
) -> None:
    """Whatever else is changed with it."""
    await any_concert.schedules.put("s", report.call("x"), every=60, missed="all")
    since = await now_ms(any_concert) // MINUTE * MINUTE - 3 * MINUTE
    await set_since(any_concert, "s", since)
    await any_concert.schedules.put("s", report.call("y"), every=60, missed="all")
    await look_at_all(any_concert)
    assert len(await job_ids(any_concert)) >= 3
    await set_since(any_concert, "s", since)
    await any_concert.schedules.put("s", report.call("y"), every=LONG, missed="all")
    count = len(await job_ids(any_concert))
    await look_at_all(any_concert)
    assert len(await job_ids(any_concert)) == count
    assert (await status_of(any_concert, "s")).args == ["y"]


async def test_single_instant_comes_once(any_concert: Coordinator, report: Task[..., Any]) -> None:
    """Also one that is past, and however often it is put."""
    at = datetime.fromtimestamp(await now_ms(any_concert) / 1000 - 5, UTC).replace(microsecond=0)
    for _ in range(3):
        await any_concert.schedules.put("once", report.call("x"), at=at)
        assert await look_at_all(any_concert) == 60.0
        await raw(any_concert).delete(keys_of(any_concert, "once").bodies)  # the job has ended
    status = await status_of(any_concert, "once")
    assert (status.last_at, status.next_at) == (at.timestamp(), None)
    ready = await raw(any_concert).lrange(keys_of(any_concert, "once").queue("reports").queue, 0, -1)
    assert ready == [f"schedule:once@{at.isoformat().replace('+00:00', 'Z')}".encode()]


async def test_single_instant_comes_again_after_its_schedule_was_deleted(
    any_concert: Coordinator, report: Task[..., Any]
) -> None:
    """Although the result of its job is kept; each time that it is put anew."""
    at = datetime.fromtimestamp(await now_ms(any_concert) / 1000 - 5, UTC).replace(microsecond=0)
    keys = keys_of(any_concert, "once")
    for number in range(1, 4):
        for _ in range(2):  # the second changes nothing
            await any_concert.schedules.put("once", report.call("x"), at=at)
            await look_at_all(any_concert)
            [job_id] = set(await raw(any_concert).lrange(keys.queue("reports").queue, 0, -1))
            await raw(any_concert).delete(keys.bodies)  # the job has ended
            await raw(any_concert).set(keys.results([job_id.decode()])[0], "succeeded null")
        assert await raw(any_concert).llen(keys.queue("reports").queue) == number
        assert (await status_of(any_concert, "once")).last_at == at.timestamp()
        await any_concert.schedules.delete("once")


async def test_paused_schedule_enqueues_nothing_and_misses_nothing(
    any_concert: Coordinator, report: Task[..., Any]
) -> None:
    """Not when it is put again either; from when it is resumed on, it goes on."""
    schedules = any_concert.schedules
    await schedules.put("s", report.call("x"), every=60, missed="all")
    assert (await schedules.pause("s"), await schedules.pause("s")) == (True, False)
    keys = keys_of(any_concert, "s")
    _, rest = (await raw(any_concert).hget(keys.schedules, "s")).decode().split(" ", 1)
    await raw(any_concert).hset(keys.schedules, "s", f"{60_000} {rest}")
    await schedules.put("s", report.call("y"), every=60, missed="all")
    assert await look_at_all(any_concert) == 60.0
    status = await status_of(any_concert, "s")
    assert (status.is_paused, status.next_at) == (True, None)
    before = await now_ms(any_concert)
    assert (await schedules.resume("s"), await schedules.resume("s")) == (True, False)
    await look_at_all(any_concert)
    assert len(await job_ids(any_concert)) <= 1  # a minute may begin just now
    status = await status_of(any_concert, "s")
    assert status.next_at is not None
    assert status.next_at * 1000 > before


async def test_resuming_what_is_not_paused_drops_no_instant(any_concert: Coordinator, report: Task[..., Any]) -> None:
    """It changes nothing."""
    await any_concert.schedules.put("s", report.call("x"), every=60)
    await set_since(any_concert, "s", MINUTE)
    assert not await any_concert.schedules.resume("s")
    await look_at_all(any_concert)
    assert len(await job_ids(any_concert)) == 1


async def test_trigger_runs_it_now_and_leaves_its_instants(any_concert: Coordinator, report: Task[..., Any]) -> None:
    """Also if it is paused; the job is none of an instant."""
    await any_concert.schedules.put("s", report.call("x"), every=LONG)
    await any_concert.schedules.pause("s")
    job = await any_concert.schedules.trigger("s")
    assert await job_ids(any_concert) == [job.id]
    async with any_concert.consume("reports") as jobs, await anext(jobs) as claimed:
        assert (claimed.name, claimed.args, claimed.scheduled_at) == ("report", ["x"], None)
    status = await status_of(any_concert, "s")
    assert (status.is_paused, status.last_at) == (True, None)


async def test_deleted_schedule_is_gone(any_concert: Coordinator, report: Task[..., Any]) -> None:
    """Its jobs stay; put again it begins anew, and is not paused."""
    await any_concert.schedules.put("s", report.call("x"), every=60)
    await any_concert.schedules.pause("s")
    job = await any_concert.schedules.trigger("s")
    await any_concert.schedules.delete("s")
    assert await any_concert.schedules.list() == []
    assert await look_at_all(any_concert) == 60.0
    assert await job_ids(any_concert) == [job.id]
    await any_concert.schedules.put("s", report.call("x"), every=LONG)
    assert not (await status_of(any_concert, "s")).is_paused


@pytest.mark.parametrize("verb", ["pause", "resume", "trigger", "delete"])
async def test_unknown_schedule_is_an_error(any_concert: Coordinator, verb: str) -> None:
    """Which says its id."""
    with pytest.raises(UnknownSchedule, match="there is no schedule 'nightly'") as caught:
        await getattr(any_concert.schedules, verb)("nightly")
    assert caught.value.id == "nightly"


async def test_bad_input_is_refused_before_anything_is_sent(here: Coordinator) -> None:
    """A coordinator that is closed would raise something else."""
    concert = Coordinator("redis://127.0.0.1:1")
    call = add_task(concert).call("x")
    bad: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({}, ValueError, "schedule 's' needs one rule; give one of cron=, every= and at="),
        ({"every": 1, "cron": "* * * * *"}, ValueError, "needs one rule"),
        ({"cron": "61 * * * *"}, ValueError, "is not a cron expression"),
        ({"cron": "0 0 31 2 *"}, ValueError, "is not a cron expression"),
        ({"cron": "* * * * *", "tz": "Mars"}, ValueError, "tz is 'Mars'"),
        ({"cron": 5}, ValueError, "5 is not a cron expression; give a string"),
        ({"every": 0.01}, ValueError, "give at least 0.1 s"),
        ({"at": datetime(2026, 1, 1)}, ValueError, "give a datetime with a time zone"),  # noqa: DTZ001
        ({"at": "tomorrow"}, ValueError, "give a datetime with a time zone"),
        ({"at": datetime(1970, 1, 1, tzinfo=UTC)}, ValueError, "give an instant after the beginning of 1970"),
        ({"at": datetime.max.replace(tzinfo=UTC)}, ValueError, "and before the year 10000"),
        ({"every": 1, "missed": "never"}, ValueError, "missed is 'never'"),
    ]
    for rule, error, message in bad:
        with pytest.raises(error, match=message):
            await concert.schedules.put("s", call, **rule)
    task = concert.task(name="other")(lambda: None)
    options: list[dict[str, Any]] = [{"after": ["a"]}, {"unique": "u"}, {"delay": 1}]
    for more in options:
        with pytest.raises(ValueError, match="give the call no after, unique, delay or at"):
            await concert.schedules.put("s", task.options(**more).call(), every=1)
    with pytest.raises(TypeError, match=r"give what task.call\(...\) returns"):
        await concert.schedules.put("s", add_task, every=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    for id_, message in (("", "must not be empty"), ("a b", "has spaces"), ("x" * 513, "has 513 bytes")):
        with pytest.raises(InvalidName, match=message):
            await concert.schedules.put(id_, call, every=1)


async def test_megabyte_of_arguments_is_kept_and_more_is_refused(
    any_concert: Coordinator, report: Task[..., Any]
) -> None:
    """Several of them do not come in one reply."""
    with pytest.raises(InvalidPayload, match="schedule 's' has"):
        await any_concert.schedules.put("s", report.call("x" * (2**20 - 60)), every=60)
    for number in range(3):
        await any_concert.schedules.put(f"s{number}", report.call("x" * (2**20 - 200)), every=60)
        await set_since(any_concert, f"s{number}", MINUTE)
    for _ in range(3):
        await look_at_all(any_concert)
    assert len(await job_ids(any_concert)) == 3


async def test_change_is_heard_by_a_worker_that_sleeps(
    any_concert: Coordinator, elsewhere: Coordinator, report: Task[..., Any]
) -> None:
    """Put by another process; its next timed look would come in a minute."""
    async with following(any_concert):
        await eventually(lambda: raw(any_concert).exists(keys_of(any_concert, "s").looked))
        at = datetime.fromtimestamp(await now_ms(any_concert) / 1000 - 1, UTC)
        await elsewhere.schedules.put("s", add_task(elsewhere).call("x"), at=at)
        await eventually(lambda: job_ids(any_concert))
        await elsewhere.schedules.put("p", add_task_of_another_name(elsewhere), every=0.1)
        await eventually(lambda: has_run(any_concert, "p"))


def add_task_of_another_name(concert: Coordinator) -> Any:
    """A call."""
    return concert.task(name="other", queue="reports")(lambda: None).call()


async def has_run(concert: Coordinator, id_: str) -> bool:
    """Whether it has enqueued something."""
    return (await status_of(concert, id_)).last_at is not None


async def test_two_that_look_at_once_share_what_is_due(
    any_concert: Coordinator, elsewhere: Coordinator, report: Task[..., Any]
) -> None:
    """Each instant gets one job, and none is left out."""
    for number in range(150):
        await any_concert.schedules.put(f"s{number}", report.call("x"), every=60)
        await set_since(any_concert, f"s{number}", MINUTE)
    await asyncio.gather(*(look_at_all(concert) for concert in (any_concert, elsewhere) for _ in range(2)))
    assert len(await job_ids(any_concert)) == 150
    assert {status.last_at for status in await any_concert.schedules.list()} != {None}


async def test_worker_that_stood_still_adds_nothing_after_another_took_over(
    any_concert: Coordinator, report: Task[..., Any]
) -> None:
    """It took the schedule, and wakes when the instant has been enqueued, has run, and its result is forgotten."""
    keys, session = keys_of(any_concert, "s"), any_concert._ref.session
    await any_concert.schedules.put("s", report.call("x"), every=60)
    since = MINUTE
    await set_since(any_concert, "s", since)
    sent: list[Any] = []
    gather, session.gather = session.gather, None  # type: ignore[method-assign,assignment]

    async def stand_still(calls: list[Any]) -> list[int]:
        sent.extend(call.command for call in calls)
        return [-1]

    session.gather = stand_still  # type: ignore[method-assign,assignment]
    await PartitionFollower(session, keys).look()
    session.gather = gather  # type: ignore[method-assign]
    assert await job_ids(any_concert) == []
    await raw(any_concert).zadd(keys.looks, {"s": 0})  # its time is up
    await PartitionFollower(session, keys).look()
    assert len(await job_ids(any_concert)) == 1
    await raw(any_concert).delete(keys.bodies)
    [late] = sent
    assert await session.run(late) == -1
    assert await job_ids(any_concert) == []


@pytest.mark.parametrize("change", ["put", "pause", "delete", "pause and resume"])
async def test_change_comes_before_what_a_worker_was_about_to_do(
    any_concert: Coordinator, report: Task[..., Any], change: str
) -> None:
    """When the change has returned, nothing is enqueued as it was before."""
    schedules, keys, session = any_concert.schedules, keys_of(any_concert, "s"), any_concert._ref.session
    await schedules.put("s", report.call("x"), every=60)
    await set_since(any_concert, "s", MINUTE)
    await raw(any_concert).zadd(keys.looks, {"s": 10})  # as if held
    step = ADVANCE(
        keys,
        keys.queue("reports"),
        is_in_code=0,
        results=keys.results(["id"]),
        name="reports",
        schedule="s",
        held_ms=10,
        since_ms=MINUTE,
        until_ms=2 * MINUTE,
        next_ms=3 * MINUTE,
        instants=(2 * MINUTE, "id", "{}"),
    )
    if change == "put":
        await schedules.put("s", report.call("y"), every=60)
    elif change == "delete":
        await schedules.delete("s")
    else:
        await schedules.pause("s")
    if change == "pause and resume":
        await schedules.resume("s")
    assert await session.run(step) == -1
    assert await job_ids(any_concert) == []


async def test_change_within_a_millisecond_comes_before_what_a_worker_was_about_to_do(
    concert: Coordinator,
) -> None:
    """Another one has taken it since, as changed, and holds it for as long."""
    schedules, keys, session = concert.schedules, keys_of(concert, "s"), concert._ref.session
    report = add_task(concert)
    due = partial(command_of, "schedules/due", keys, hold_ms=5000, ttl_ms=60_000, ids=[])
    for _ in range(1000):
        await schedules.put("s", report.call("x"), every=60)
        await set_since(concert, "s", MINUTE)
        one, _, other = await asyncio.gather(
            session.run(due()), schedules.put("s", report.call("y"), every=60), session.run(due())
        )
        if one[0] == other[0]:
            break
    else:
        pytest.fail("they never looked in the same millisecond")
    assert [len(each[3]) for each in (one, other)] == [1, 1]
    step = ADVANCE(
        keys,
        keys.queue("reports"),
        is_in_code=0,
        results=keys.results(["id"]),
        name="reports",
        schedule="s",
        held_ms=one[2],
        since_ms=MINUTE,
        until_ms=2 * MINUTE,
        next_ms=3 * MINUTE,
        instants=(2 * MINUTE, "id", "{}"),
    )
    assert await session.run(step) == -1
    assert await job_ids(concert) == []


async def test_clock_that_was_set_back_loses_none_and_doubles_none(
    any_concert: Coordinator, report: Task[..., Any]
) -> None:
    """By less than a period: the next instant comes. By more: it goes on from now."""
    keys, client = keys_of(any_concert, "s"), raw(any_concert)
    await any_concert.schedules.put("s", report.call("x"), every=60, missed="all")
    now = await now_ms(any_concert)
    ahead = (now // MINUTE + 1) * MINUTE  # the instant that was enqueued before the clock was set back
    for since, later, is_kept in ((ahead, 2 * MINUTE, True), (ahead + 9 * MINUTE, 10 * MINUTE, False)):
        await set_since(any_concert, "s", since)
        await client.zadd(keys.looks, {"s": now + later})
        await client.set(keys.looked, now + later, px=60_000)
        await look_at_all(any_concert)
        found = int((await client.hget(keys.schedules, "s")).split()[0])
        if ahead > await now_ms(any_concert):  # otherwise a minute has begun meanwhile
            assert (found == since) == is_kept
            assert found <= ahead
            assert await client.zscore(keys.looks, "s") == ahead
        assert len(await job_ids(any_concert)) <= 1


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("definitions", "{}"),
        ("definitions", '{"queue":"q","job":{"name":"t"},"every_ms":0}'),
        ("definitions", '{"queue":"","job":{"name":"t"},"every_ms":60000}'),
        ("definitions", '{"queue":"q","job":{"name":""},"every_ms":60000}'),
        ("definitions", '{"queue":"q","job":{"name":"t"},"at_ms":99999999999999999999}'),
        ("definitions", '{"queue":"q","job":{"name":"t"},"cron":"61 * * * *"}'),
        ("schedules", "foreign"),
        ("schedules", "999999999999999 0 rule"),
    ],
)
async def test_what_is_not_ours_stops_no_other(
    any_concert: Coordinator, report: Task[..., Any], kind: str, text: str
) -> None:
    """Whichever part of it: it is not followed, and the list has it all the same."""
    for id_ in ("bad", "good"):
        await any_concert.schedules.put(id_, report.call("x"), cron="* * * * *")
        await set_since(any_concert, id_, MINUTE)
    await raw(any_concert).hset(getattr(keys_of(any_concert, "bad"), kind), "bad", text)
    listed = {status.id: status for status in await any_concert.schedules.list()}
    assert listed["good"].problem is None
    await look_at_all(any_concert)
    [job_id] = await job_ids(any_concert)
    assert job_id.startswith("schedule:good@")
    assert [status.id for status in await any_concert.schedules.list()] == ["bad", "good"]


async def test_what_cannot_be_read_stops_no_other(
    any_concert: Coordinator, report: Task[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody without our keys can have workers run something; the list says why."""
    await any_concert.schedules.put("bad", report.call("x"), every=60)
    await any_concert.schedules.put("good", report.call("x"), every=60)
    for id_ in ("bad", "good"):
        await set_since(any_concert, id_, MINUTE)
    await raw(any_concert).hset(keys_of(any_concert, "bad").definitions, "bad", "{}")
    await look_at_all(any_concert)
    [job_id] = await job_ids(any_concert)
    assert job_id.startswith("schedule:good@")
    assert "schedules that this worker cannot follow: 1; the first: schedule 'bad' cannot be read" in caplog.text
    status = await status_of(any_concert, "bad")
    assert status.problem is not None
    assert status.rule == ""
    with pytest.raises(InvalidPayload, match="cannot be read"):
        await any_concert.schedules.trigger("bad")
