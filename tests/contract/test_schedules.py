"""Tasks that run by themselves: one job for each instant, among all workers."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from inconcert import Coordinator, InvalidName, Limit
from inconcert._redis.protocol.scripts import Command
from inconcert._redis.wire import background
from inconcert._redis.wire.call import Call
from inconcert.tasks.records.store import ADVANCE, DECLARE, DUE, JobKeys
from inconcert.tasks.running.claimed_job import current_job
from inconcert.tasks.schedules import schedule_follower
from inconcert.tasks.schedules.schedule import Missed
from inconcert.tasks.schedules.stored_schedule import StoredSchedule
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.ledger import read_ledger
from tests.support.limits import Running
from tests.support.raw import raw
from tests.support.schedules import followers, following, look_at_all

HOUR = 3600  # seconds


@pytest.fixture
async def any_concert(any_concert: Coordinator) -> AsyncIterator[Coordinator]:
    """As everywhere; and what fakeredis leaves waiting of a BLPOP whose connection was closed is ended."""
    yield any_concert
    for task in asyncio.all_tasks():
        if "AsyncFakeSocket._async_blocking" in repr(task.get_coro()):
            task.cancel()
            await asyncio.wait([task])


async def jobs_of(concert: Coordinator) -> list[str]:
    """The ids of all jobs."""
    return (await read_ledger(raw(concert), concert._ref.keys.namespace)).bodies


async def is_followed(concert: Coordinator) -> bool:
    """Whether a worker has looked at the schedule, and moved it to its next instant."""
    [schedule], keys = concert._registry.schedules, JobKeys(concert._ref.keys)
    now_ms = int(await now_of(concert) * 1000)
    at_ms = await raw(concert).zscore(keys.looks_in_code, str(schedule))
    return bool(at_ms == next(schedule.timetable.after(now_ms)))


async def set_since(concert: Coordinator, seconds: float) -> None:
    """Let the last instant that is done with be so."""
    schedule, since = str(concert._registry.schedules[0]), int(seconds * 1000)
    await raw(concert).hset(JobKeys(concert._ref.keys).schedules, schedule, f"{since} 0 rule")


async def now_of(concert: Coordinator) -> float:
    """The server's clock, in seconds."""
    client: Any = raw(concert)
    seconds, microseconds = await client.time()
    return cast("float", seconds + microseconds / 1e6)


def add_schedule(concert: Coordinator, seen: list[float], *, missed: Missed = "all", **when: Any) -> None:
    """A task that takes note of its instants."""

    @concert.cron(missed=missed, **when)
    @concert.task(name="t")
    async def run() -> None:
        seen.append(current_job().scheduled_at or 0.0)


async def test_job_is_enqueued_at_each_instant(any_concert: Coordinator) -> None:
    """Not before, and soon after; the body is told which instant it is."""
    late: list[float] = []
    seen: list[float] = []

    @any_concert.cron(every=0.2)
    @any_concert.task(name="tick")
    async def tick() -> None:
        job = current_job()
        assert job.scheduled_at is not None
        seen.append(job.scheduled_at)
        late.append(job.enqueued_at - job.scheduled_at)

    async with in_background(any_concert.run_worker("default")):
        await eventually(lambda: len(seen) >= 5)
    assert seen == sorted(set(seen))
    assert all(round(instant * 1000) % 200 == 0 for instant in seen)
    assert min(late) >= 0
    assert sorted(late)[len(late) // 2] < 0.1


async def test_workers_share_the_instants(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Each runs once, whoever comes first; nothing is left out."""
    seen: list[float] = []
    for concert in (any_concert, elsewhere):
        add_schedule(concert, seen, every=0.1)
    async with in_background(any_concert.run_worker("default")), in_background(elsewhere.run_worker("default")):
        await eventually(lambda: len(seen) >= 15)
    tenths = sorted(round(instant * 10) for instant in seen)
    assert tenths == list(range(tenths[0], tenths[0] + len(tenths)))


async def test_cron_expression_enqueues(any_concert: Coordinator) -> None:
    """At each second, in the queue of its task, which no worker here reads."""

    @any_concert.cron("* * * * * *", tz="Europe/Berlin")
    @any_concert.task(queue="reports", name="report")
    async def report() -> None: ...

    async with following(any_concert):
        await eventually(lambda: jobs_of(any_concert))
    [job_id] = (await read_ledger(raw(any_concert), any_concert._ref.keys.namespace)).ready["reports"]
    assert job_id.startswith("report@20")


async def test_task_may_have_several_schedules(any_concert: Coordinator) -> None:
    """At an instant that two of them have it runs once, while its job is there."""
    seen: list[float] = []
    task = any_concert.task(name="t")(lambda: seen.append(0))
    any_concert.cron(every=0.2)(task)
    any_concert.cron("* * * * * *")(task)
    async with following(any_concert):
        await eventually(lambda: jobs_of_length(any_concert, 6))
    found = await jobs_of(any_concert)
    assert len(set(found)) == len(found)


async def jobs_of_length(concert: Coordinator, count: int) -> bool:
    """Whether there are so many jobs."""
    return len(await jobs_of(concert)) >= count


async def test_schedule_goes_on_after_the_key_of_its_task_failed(
    any_concert: Coordinator, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure is logged, and later instants have their jobs."""
    monkeypatch.setattr(background, "_failures", {})  # of this process; another test may have failed alike just now
    monkeypatch.setattr(schedule_follower, "_HOLD_MS", 200)
    fails = False

    def key() -> str:
        if fails:
            raise LookupError("no tenant")
        return "a"

    @any_concert.cron(every=0.1)
    @any_concert.task(name="tick", key=key, key_limit=1)
    async def tick() -> None: ...

    del tick
    async with following(any_concert):
        await eventually(lambda: jobs_of(any_concert))
        fails = True
        await eventually(lambda: "no tenant" in caplog.text)
        fails, before = False, len(await jobs_of(any_concert))

        async def goes_on() -> bool:
            return len(await jobs_of(any_concert)) > before

        await eventually(goes_on)
    assert caplog.text.count("failed, and goes on") == 1


async def test_new_schedule_begins_with_the_next_instant(any_concert: Coordinator) -> None:
    """What was before it was there is not missed."""
    add_schedule(any_concert, [], every=86_400)
    async with following(any_concert):
        await eventually(lambda: is_followed(any_concert))
    assert await jobs_of(any_concert) == []


@pytest.mark.parametrize(("missed", "count"), [("skip", 0), ("once", 1), ("all", 60)])
async def test_instants_without_a_worker_are_made_up_for_as_told(
    any_concert: Coordinator, missed: Missed, count: int
) -> None:
    """The last instant was five minutes ago, and it is the sixtieth."""
    now = await now_of(any_concert)
    period = (now - 300) / 60
    add_schedule(any_concert, [], every=period, missed=missed)
    await set_since(any_concert, 1)
    async with following(any_concert):
        if count:
            await eventually(lambda: jobs_of_length(any_concert, count))
        else:
            await eventually(lambda: is_followed(any_concert))
    assert len(await jobs_of(any_concert)) == count


async def test_instant_that_is_only_just_past_is_not_skipped(any_concert: Coordinator) -> None:
    """A worker that restarts at the wrong moment skips nothing."""
    now = await now_of(any_concert)
    add_schedule(any_concert, [], every=(now - 20) / 60, missed="skip")
    await set_since(any_concert, 1)
    async with following(any_concert):
        await eventually(lambda: jobs_of(any_concert))


async def test_schedule_is_forgotten_when_nobody_follows_it_for_a_month(any_concert: Coordinator) -> None:
    """So one that was removed from the code leaves nothing."""
    keys, client = JobKeys(any_concert._ref.keys), raw(any_concert)
    day_ms, now_ms = 86_400_000, int(await now_of(any_concert) * 1000)
    add_schedule(any_concert, [], every=3600)
    for name, days in (("a of task 't'", 31), ("b of task 't'", 29)):
        await client.hset(keys.schedules, name, "1 0 rule")
        await client.hset(keys.definitions, name, "{}")
        await client.sadd(keys.paused_schedules, name)
        await client.zadd(keys.declared, {name: now_ms - days * day_ms})
        await client.zadd(keys.looks_in_code, {name: 0})
    async with following(any_concert):
        await eventually(lambda: is_followed(any_concert))
    kept = {b"b of task 't'", b"every 3600 s of task 't'"}
    assert set(await client.hkeys(keys.schedules)) == set(await client.hkeys(keys.definitions)) == kept
    assert set(await client.zrange(keys.looks_in_code, 0, -1)) == set(await client.zrange(keys.declared, 0, -1)) == kept
    assert set(await client.smembers(keys.paused_schedules)) == {b"b of task 't'"}


async def test_schedule_in_code_is_listed_paused_resumed_and_triggered(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """Also by a process that has not its code; it is neither deleted nor put there."""
    seen: list[float] = []
    add_schedule(any_concert, seen, every=0.1)
    schedules, id_ = elsewhere.schedules, "every 0.1 s of task 't'"
    async with following(any_concert):
        await eventually(lambda: jobs_of_length(any_concert, 2))
        assert await schedules.pause(id_)
        await any_concert.ping()  # what was under way has arrived
        before = await jobs_of(any_concert)
        [status] = await schedules.list()
        assert (status.id, status.rule, status.task, status.missed) == (id_, "every 0.1 s", "t", "all")
        assert (status.is_in_code, status.is_paused, status.next_at, status.problem) == (True, True, None, None)
        job = await schedules.trigger(id_)
        paused_ms = await now_of(any_concert) * 1000
        await eventually(lambda: has_come(any_concert, paused_ms + 300))
        await look_at_all(any_concert)  # as a worker that begins meanwhile
        assert sorted(await jobs_of(any_concert)) == sorted([*before, job.id])
        assert await schedules.resume(id_)
        await eventually(lambda: jobs_of_length(any_concert, len(before) + 3))
        [status] = await schedules.list()
        assert status.last_at is not None
    after = min(set(await jobs_of(any_concert)) - {*before, job.id})
    assert not await raw(any_concert).exists(JobKeys(any_concert._ref.keys).looks)
    # None of the pause is made up for.
    assert after > f"t@{datetime.fromtimestamp(paused_ms / 1000, UTC).isoformat()}"
    with pytest.raises(InvalidName, match="is part of the code; remove it there, or pause it"):
        await schedules.delete(id_)
    with pytest.raises(InvalidName, match="has spaces"):
        await schedules.put(id_, any_concert.task(name="other")(lambda: None).call(), every=1)


async def has_come(concert: Coordinator, ms: float) -> bool:
    """Whether it is this moment by the server's clock."""
    return await now_of(concert) * 1000 > ms


async def test_triggered_job_counts_in_the_limits_of_its_task(any_concert: Coordinator) -> None:
    """As those of the instants do."""
    running = Running()

    @any_concert.cron(every=3600)
    @any_concert.task(name="tick", limit=Limit(1))
    async def tick() -> None:
        await running.run("tick")

    del tick
    async with in_background(any_concert.run_worker("default", concurrency=5)):
        await eventually(lambda: is_followed(any_concert))
        [schedule] = any_concert._registry.schedules
        jobs = [await any_concert.schedules.trigger(str(schedule)) for _ in range(3)]
        await running.until(1)
        assert (await any_concert.tasks.stats()).limits["tick"].in_use == 1
        running.free.set()
        for job in jobs:
            await job.result(timeout=10.0)
    assert running.most == {"tick": 1}


async def test_clock_of_the_client_does_not_matter(concert: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instants are the server's."""
    seen: list[float] = []
    add_schedule(concert, seen, every=0.2)
    now = await now_of(concert)
    monkeypatch.setattr(time, "time", lambda: 1e9)
    async with in_background(concert.run_worker("default")):
        await eventually(lambda: len(seen) >= 3)
    assert all(now < instant < now + 20 for instant in seen)


async def test_job_of_an_instant_is_not_added_while_its_result_is_kept(any_concert: Coordinator) -> None:
    """Another schedule of the task had the same instant, and the job is done."""
    add_schedule(any_concert, [], every=HOUR)
    instant = datetime.fromtimestamp(await now_of(any_concert) // HOUR * HOUR, UTC).isoformat().replace("+00:00", "Z")
    await raw(any_concert).set(JobKeys(any_concert._ref.keys).result(f"t@{instant}"), "succeeded 1", px=60_000)
    await set_since(any_concert, await now_of(any_concert) - 3 * HOUR)
    await look_at_all(any_concert)
    found = await jobs_of(any_concert)
    assert len(found) == 2
    assert max(found) < f"t@{instant}"


async def test_worker_follows_no_schedule_that_is_not_in_its_code(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """So one that was removed from the code ends with the last worker that has it."""
    add_schedule(any_concert, [], every=HOUR)
    await any_concert._ref.session.run(declaration(any_concert))
    await set_since(any_concert, await now_of(any_concert) - 3 * HOUR)
    assert await look_at_all(elsewhere) == 60.0
    assert await jobs_of(any_concert) == []
    assert [status.is_in_code for status in await elsewhere.schedules.list()] == [True]
    await look_at_all(any_concert)
    assert len(await jobs_of(any_concert)) == 3


def declaration(concert: Coordinator) -> Command:
    """The script by which a worker declares its schedule."""
    stored = StoredSchedule.of(concert._registry.schedules[0])
    entry = (stored.id, stored.rule, stored.stored(concert._ref.session.key_ring))
    return DECLARE(JobKeys(concert._ref.keys), ttl_ms=60_000, entries=entry)


async def test_job_is_made_by_the_code_of_the_worker_that_looks(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """Also if another release has declared the same schedule since; the list has what was declared last."""
    any_concert.cron(every=HOUR)(any_concert.task(name="t", queue="old")(lambda: None))
    elsewhere.cron(every=HOUR)(elsewhere.task(name="t", queue="new")(lambda: None))
    [old] = followers(any_concert)
    await old.look()
    await look_at_all(elsewhere)
    await set_since(any_concert, await now_of(any_concert) - HOUR)
    await raw(any_concert).zadd(JobKeys(any_concert._ref.keys).looks_in_code, {f"every {HOUR} s of task 't'": 0})
    await old.look()
    assert list((await read_ledger(raw(any_concert), any_concert._ref.keys.namespace)).ready) == ["old"]
    assert [status.queue for status in await any_concert.schedules.list()] == ["new"]


async def test_scripts_of_a_worker_do_not_grow_with_its_schedules(
    any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nothing is due, one for all of them in a minute."""
    for number in range(1_100):
        any_concert.cron(every=86_400 * 365)(any_concert.task(name=f"t{number}")(lambda: None))
    [follower] = followers(any_concert)
    while await follower.look() < 60:
        pass
    sent: list[str] = []
    channel = any_concert._ref.session.channel
    submit = channel.submit

    def count(call: Call) -> None:
        sent.append(call.command.script.name)
        submit(call)

    monkeypatch.setattr(channel, "submit", count)
    assert await follower.look() == 60
    assert sent == ["schedules/due"] * 2  # one for each thousand


async def test_schedule_that_the_server_has_lost_goes_on_with_its_next_instant(any_concert: Coordinator) -> None:
    """The worker declares it anew when it looks next."""
    add_schedule(any_concert, [], every=86_400 * 365)
    [follower] = followers(any_concert)
    assert await follower.look() == 60
    keys = JobKeys(any_concert._ref.keys)
    await raw(any_concert).delete(keys.schedules, keys.definitions, keys.declared, keys.looks_in_code, keys.looked)
    assert [await follower.look() for _ in range(2)] == [0, 60]
    assert await is_followed(any_concert)
    assert await jobs_of(any_concert) == []


async def test_instant_of_a_worker_that_died_with_it_is_enqueued_by_the_next(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """One that begins has it at once; what the other was about to do changes nothing."""
    for concert in (any_concert, elsewhere):
        add_schedule(concert, [], every=HOUR, missed="once")
    keys, session, id_ = JobKeys(any_concert._ref.keys), any_concert._ref.session, f"every {HOUR} s of task 't'"
    await session.run(declaration(any_concert))
    since_ms = int(await now_of(any_concert) - HOUR) * 1000
    await set_since(any_concert, since_ms / 1000)
    _, _, held_ms, taken, _ = await session.run(DUE(keys, hold_ms=120_000, ttl_ms=60_000, ids=[id_]))
    assert [found[0] for found in taken] == [id_.encode()]
    [dying] = followers(any_concert)
    dying._undeclared.clear()
    assert await dying.look() == 60
    assert await jobs_of(any_concert) == []
    await look_at_all(elsewhere)
    [job_id] = await jobs_of(any_concert)
    late = ADVANCE(
        keys,
        keys.queue("default"),
        is_in_code=1,
        results=[keys.result("late")],
        name="default",
        schedule=id_,
        held_ms=held_ms,
        since_ms=since_ms,
        until_ms=since_ms + 1,
        next_ms="",
        instants=(since_ms + 1, "late", "{}"),
    )
    assert await session.run(late) == -1
    assert await jobs_of(any_concert) == [job_id]


async def test_worker_whose_schedule_was_taken_away_looks_again_at_once(
    any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one declared it anew, and may have died right after."""
    add_schedule(any_concert, [], every=HOUR, missed="once")
    [follower] = followers(any_concert)
    await follower.look()
    await set_since(any_concert, await now_of(any_concert) - HOUR)
    session = any_concert._ref.session
    await session.run(declaration(any_concert))
    gather = session.gather

    async def meanwhile(calls: list[Any]) -> Any:
        await session.run(declaration(any_concert))
        return await gather(calls)

    with monkeypatch.context() as patch:
        patch.setattr(session, "gather", meanwhile)
        assert await follower.look() == 0
    assert await jobs_of(any_concert) == []
    await follower.look()
    assert len(await jobs_of(any_concert)) == 1


async def test_instant_that_has_not_come_is_not_enqueued(any_concert: Coordinator) -> None:
    """The clock was set back between the two scripts of a worker."""
    add_schedule(any_concert, [], every=HOUR)
    keys, session, id_ = JobKeys(any_concert._ref.keys), any_concert._ref.session, f"every {HOUR} s of task 't'"
    await session.run(declaration(any_concert))
    now_ms, _, held_ms, [[_, state, _]], _ = await session.run(DUE(keys, hold_ms=60_000, ttl_ms=60_000, ids=[id_]))
    step = ADVANCE(
        keys,
        keys.queue("default"),
        is_in_code=1,
        results=[keys.result("early")],
        name="default",
        schedule=id_,
        held_ms=held_ms,
        since_ms=int(state.split()[0]),
        until_ms=now_ms + 60_000,
        next_ms="",
        instants=(now_ms + 60_000, "early", "{}"),
    )
    assert await session.run(step) == -1
    assert await jobs_of(any_concert) == []


async def test_schedule_goes_on_when_the_clock_was_set_back(any_concert: Coordinator) -> None:
    """By more than a period: it is looked at now, though that was to be tomorrow, and goes on from now."""
    add_schedule(any_concert, [], every=1)
    [follower] = followers(any_concert)
    await follower.look()
    keys, client, id_ = JobKeys(any_concert._ref.keys), raw(any_concert), "every 1 s of task 't'"
    ahead_ms = int(await now_of(any_concert) * 1000) + 86_400_000
    await client.hset(keys.schedules, id_, f"{ahead_ms} 0 rule")
    await client.zadd(keys.looks_in_code, {id_: ahead_ms + 1000})
    await client.set(keys.looked, ahead_ms, px=60_000)
    assert await follower.look() <= 1
    assert int((await client.hget(keys.schedules, id_)).split()[0]) <= await now_of(any_concert) * 1000
    assert await jobs_of(any_concert) == []


async def test_schedule_whose_job_cannot_be_made_stops_no_other(
    any_concert: Coordinator, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when it is declared, nor when it is due."""
    monkeypatch.setattr(background, "_failures", {})
    fails = True

    def key() -> str:
        if fails:
            raise LookupError("no tenant")
        return "a"

    @any_concert.task(name="bad", key=key, key_limit=1)
    async def bad() -> None: ...

    fails = False
    any_concert.cron(every=HOUR, missed="all")(bad)
    fails = True
    any_concert.cron(every=HOUR, missed="all")(any_concert.task(name="good")(lambda: None))
    [follower] = followers(any_concert)
    assert await follower.look() == 1
    assert [status.task for status in await any_concert.schedules.list()] == ["good"]
    fails = False
    await follower.look()
    fails = True
    keys, client = JobKeys(any_concert._ref.keys), raw(any_concert)
    for schedule in any_concert._registry.schedules:
        await client.hset(keys.schedules, str(schedule), f"{int(await now_of(any_concert) - HOUR) * 1000} 0 rule")
        await client.zadd(keys.looks_in_code, {str(schedule): 0})
    assert await follower.look() <= 5
    [job_id] = await jobs_of(any_concert)
    assert job_id.startswith("good@")
    assert caplog.text.count("following schedule every 3600 s of task 'bad' failed, and goes on") == 1


def test_schedule_stands_on_a_task_without_arguments(any_concert: Coordinator) -> None:
    """Anything else is refused where it is written."""

    async def plain() -> None: ...

    @any_concert.task(name="needs")
    async def needs(number: int) -> None: ...

    @any_concert.cron(every=60)
    @any_concert.task(name="has default")
    async def has_default(number: int = 1) -> None: ...

    with pytest.raises(TypeError, match=r"put @concert.cron\(...\) on top of @concert.task\(...\)"):
        any_concert.cron(every=60)(cast("Any", plain))
    with pytest.raises(TypeError, match="number"):
        any_concert.cron(every=60)(needs)
    for both_or_none in ({"expression": "* * * * *", "every": 5}, {}):
        with pytest.raises(ValueError, match="give either a cron expression"):
            any_concert.cron(**cast("Any", both_or_none))
    with pytest.raises(ValueError, match="missed is 'never'; give 'skip', 'once' or 'all'"):
        any_concert.cron(every=60, missed=cast("Any", "never"))
    assert len(any_concert._registry.schedules) == 1
    assert has_default.name == "has default"
