"""Tasks that run by themselves: one job for each instant, among all workers."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from inconcert import Coordinator, InvalidName, Limit
from inconcert._redis import background
from inconcert.tasks.claimed_job import current_job
from inconcert.tasks.schedule import Missed
from inconcert.tasks.scheduler import Scheduler
from inconcert.tasks.store import ENQUEUE_DUE, JobKeys
from tests.contract.test_limits import Running
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.ledger import read_ledger
from tests.support.raw import raw


@pytest.fixture
async def any_concert(any_concert: Coordinator) -> AsyncIterator[Coordinator]:
    """As everywhere; and what fakeredis leaves waiting of a BLPOP whose connection was closed is ended."""
    yield any_concert
    for task in asyncio.all_tasks():
        if "AsyncFakeSocket._async_blocking" in repr(task.get_coro()):
            task.cancel()
            await asyncio.wait([task])


def scheduling(concert: Coordinator) -> Scheduler:
    """What a worker runs beside its jobs."""
    return Scheduler(concert._ref, concert._jobs, concert._registry.schedules)


async def jobs_of(concert: Coordinator) -> list[str]:
    """The ids of all jobs."""
    return (await read_ledger(raw(concert), concert._ref.keys.namespace)).bodies


async def is_followed(concert: Coordinator) -> bool:
    """Whether a scheduler has looked at the schedule."""
    return (
        await raw(concert).zscore(JobKeys(concert._ref.keys).declared, str(concert._registry.schedules[0])) is not None
    )


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

    async with scheduling(any_concert):
        await eventually(lambda: jobs_of(any_concert))
    [job_id] = (await read_ledger(raw(any_concert), any_concert._ref.keys.namespace)).ready["reports"]
    assert job_id.startswith("report@20")


async def test_task_may_have_several_schedules(any_concert: Coordinator) -> None:
    """At an instant that two of them have it runs once, while its job is there."""
    seen: list[float] = []
    task = any_concert.task(name="t")(lambda: seen.append(0))
    any_concert.cron(every=0.2)(task)
    any_concert.cron("* * * * * *")(task)
    async with scheduling(any_concert):
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
    fails = False

    def key() -> str:
        if fails:
            raise LookupError("no tenant")
        return "a"

    @any_concert.cron(every=0.1)
    @any_concert.task(name="tick", key=key, key_limit=1)
    async def tick() -> None: ...

    del tick
    async with scheduling(any_concert):
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
    async with scheduling(any_concert):
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
    async with scheduling(any_concert):
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
    async with scheduling(any_concert):
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
    async with scheduling(any_concert):
        await eventually(lambda: is_followed(any_concert))
    kept = {b"b of task 't'", b"every 3600 s of task 't'"}
    assert set(await client.hkeys(keys.schedules)) == set(await client.hkeys(keys.definitions)) == kept
    assert set(await client.smembers(keys.paused_schedules)) == {b"b of task 't'"}


async def test_schedule_in_code_is_listed_paused_resumed_and_triggered(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """Also by a process that has not its code; it is neither deleted nor put there."""
    seen: list[float] = []
    add_schedule(any_concert, seen, every=0.1)
    schedules, id_ = elsewhere.schedules, "every 0.1 s of task 't'"
    async with scheduling(any_concert):
        await eventually(lambda: jobs_of_length(any_concert, 2))
        assert await schedules.pause(id_)
        await any_concert.ping()  # what was under way has arrived
        before = await jobs_of(any_concert)
        [status] = await schedules.list()
        assert (status.id, status.rule, status.task, status.missed) == (id_, "every 0.1 s", "t", "all")
        assert (status.is_in_code, status.is_paused, status.next_at, status.problem) == (True, True, None, None)
        job = await schedules.trigger(id_)
        paused_ms = await now_of(any_concert) * 1000
        await eventually(lambda: is_followed_since(any_concert, paused_ms + 300))
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


async def is_followed_since(concert: Coordinator, ms: float) -> bool:
    """Whether a scheduler has looked at the paused schedule after this moment of the server's clock."""
    state = await raw(concert).hget(JobKeys(concert._ref.keys).schedules, str(concert._registry.schedules[0]))
    return int(state.split()[0]) > ms


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


Tick = Callable[..., Coroutine[Any, Any, Any]]


@pytest.fixture
def tick(any_concert: Coordinator) -> Tick:
    """The script."""
    keys = JobKeys(any_concert._ref.keys)

    async def run(*instants: str | int, void_ms: str | int = "") -> Any:
        command = ENQUEUE_DUE(
            keys,
            keys.queue("q"),
            schedule="s",
            rule="rule",
            definition="{}",
            results=keys.results(str(job_id) for job_id in instants[1::3]),
            ttl_ms=60_000,
            void_ms=void_ms,
            name="q",
            instants=instants,
        )
        return await any_concert._ref.session.run(command)

    return run


async def test_tick_run_twice_adds_once(any_concert: Coordinator, tick: Tick) -> None:
    """Also when the job is done already."""
    now_ms, last_ms, added = await tick()
    assert (last_ms, added) == (now_ms, 0)
    instant = last_ms + 1
    await asyncio.sleep(0.002)
    assert (await tick(instant, "id", "{}"))[1:] == [instant, 1]
    assert (await tick(instant, "id", "{}"))[1:] == [instant, 0]
    await raw(any_concert).delete(JobKeys(any_concert._ref.keys).bodies)
    assert (await tick(instant, "id", "{}"))[1:] == [instant, 0]


async def test_tick_adds_no_job_whose_result_is_kept(any_concert: Coordinator, tick: Tick) -> None:
    """Another schedule of the task had the same instant, and the job is done."""
    await raw(any_concert).set(JobKeys(any_concert._ref.keys).result("a"), "succeeded 1", px=60_000)
    assert (await tick(1000, "a", "{}", 2000, "b", "{}"))[1:] == [2000, 1]
    assert await jobs_of(any_concert) == ["b"]


async def test_tick_adds_nothing_before_its_time(any_concert: Coordinator, tick: Tick) -> None:
    """A worker whose clock runs fast is told how late it is."""
    now_ms, *_ = await tick()
    again_ms, last_ms, added = await tick(now_ms + 60_000, "id", "{}")
    assert again_ms >= now_ms
    assert (last_ms, added) == (now_ms, 0)
    assert await jobs_of(any_concert) == []


async def test_tick_adds_the_instants_after_the_last(any_concert: Coordinator, tick: Tick) -> None:
    """In their order; a schedule that the server forgot goes on with what it is given."""
    assert (await tick(1000, "a", "{}", 2000, "b", "{}"))[1:] == [2000, 2]
    assert (await tick(1000, "a", "{}", 2000, "b", "{}", 3000, "c", "{}"))[1:] == [3000, 1]
    ledger = await read_ledger(raw(any_concert), any_concert._ref.keys.namespace)
    assert ledger.ready == {"q": ["a", "b", "c"]}


async def test_tick_forgets_a_last_instant_that_has_not_come(any_concert: Coordinator, tick: Tick) -> None:
    """The one that was seen, and no other: another worker may have gone on from now already."""
    now_ms, *_ = await tick()
    ahead = now_ms + 86_400_000
    await raw(any_concert).hset(JobKeys(any_concert._ref.keys).schedules, "s", f"{ahead} 0 rule")
    assert (await tick(void_ms=ahead + 1))[1:] == [ahead, 0]
    again_ms, last_ms, _ = await tick(void_ms=ahead)
    assert last_ms == again_ms
    assert (await tick(void_ms=ahead))[1:] == [last_ms, 0]


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
