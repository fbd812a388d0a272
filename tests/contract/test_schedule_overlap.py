"""Schedules whose jobs do not run beside each other, that begin and end, and whose instants are spread."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from inconcert import Coordinator, Explanation, Overlap, Task, current_job
from inconcert.tasks.records.store import ADVANCE_ALONE
from inconcert.tasks.schedules.stored_schedule import id_prefix
from tests.support.eventually import eventually
from tests.support.raw import raw
from tests.support.schedules import followers, job_ids, keys_of, look_at_all, next_look, now_ms, set_since

PERIOD = 0.1  # seconds


@pytest.fixture
def run(any_concert: Coordinator) -> Task[..., Any]:
    """The task of the schedules, in a queue that no worker reads."""

    @any_concert.task(name="run", queue="runs", max_attempts=1)
    async def run() -> None: ...

    return run


async def begin(concert: Coordinator, call: Any, overlap: Overlap) -> str:
    """Put a schedule, and let its first instant come; the id of its job."""
    await concert.schedules.put("s", call, every=PERIOD, overlap=overlap)
    first = await next_look(concert, "s")
    assert first is not None
    return first


async def end_of(concert: Coordinator, job_id: str, how: str) -> None:
    """Let a worker take this job from the queue, and end it so."""
    if how == "cancelled":
        await concert.tasks.job(job_id).cancel()
        return
    async with concert.consume("runs") as jobs:
        [job] = await jobs.try_claim(1)
        assert job.id == job_id
        await (job.ack() if how == "succeeded" else job.nack())  # it was the only attempt


async def test_jobs_overlap_by_default(any_concert: Coordinator, run: Task[..., Any]) -> None:
    """As many as instants have come."""
    await begin(any_concert, run.call(), "allow")
    assert await next_look(any_concert, "s") is not None


@pytest.mark.parametrize("how", ["succeeded", "dead-lettered", "cancelled"])
async def test_skip_gives_no_job_until_the_last_one_has_ended(
    any_concert: Coordinator, run: Task[..., Any], how: str
) -> None:
    """In its queue, or with a worker; a job that is dead or cancelled does not hold up the next one."""
    first = await begin(any_concert, run.call(), "skip")
    assert [await next_look(any_concert, "s") for _ in range(2)] == [None, None]
    async with any_concert.consume("runs") as jobs:
        assert len(await jobs.try_claim(1)) == 1  # requeued when the consumer is closed
        assert await next_look(any_concert, "s") is None
    [listed] = await any_concert.schedules.list()
    assert (listed.overlap, f"{id_prefix('s')}{instant(listed.last_at)}") == ("skip", first)
    await end_of(any_concert, first, how)
    assert await next_look(any_concert, "s") is not None


def instant(seconds: float | None) -> str:
    """An instant, as ids have it."""
    return datetime.fromtimestamp(seconds or 0, UTC).isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize("how", ["succeeded", "dead-lettered", "cancelled"])
async def test_wait_keeps_one_instant_until_the_last_job_has_ended(
    any_concert: Coordinator, run: Task[..., Any], how: str
) -> None:
    """However it ends; further instants have no job, and the one that is kept is there at once then."""
    first = await begin(any_concert, run.call(), "wait")
    kept = await next_look(any_concert, "s")
    assert kept is not None
    assert [await next_look(any_concert, "s") for _ in range(2)] == [None, None]
    assert (await any_concert.tasks.stats("runs")).queues["runs"].waiting == 1
    await end_of(any_concert, first, how)
    async with any_concert.consume("runs") as jobs:
        [job] = await jobs.claim(1)
        assert (job.id, job.attempt) == (kept, 1)
        following_one = await next_look(
            any_concert, "s"
        )  # it runs, and does not wait any more: the next one waits for it
        assert following_one is not None
        assert await next_look(any_concert, "s") is None
        await job.ack()
        [last] = await jobs.claim(1)
        assert last.id == following_one
        await last.ack()


async def test_job_that_waited_and_was_cancelled_lets_none_pass_the_one_that_runs(
    any_concert: Coordinator, run: Task[..., Any]
) -> None:
    """The next one waits in its place, for the same job, as often as that happens."""
    await begin(any_concert, run.call(), "wait")
    async with any_concert.consume("runs") as jobs:
        [running] = await jobs.try_claim(1)
        for _ in range(2):
            waiting = await next_look(any_concert, "s")
            assert waiting is not None
            await any_concert.tasks.job(waiting).cancel()
        kept = await next_look(any_concert, "s")
        assert kept is not None
        assert await jobs.try_claim(1) == []
        await any_concert.schedules.put("s", run.call(), every=PERIOD, overlap="skip")
        await any_concert.tasks.job(kept).cancel()
        assert await next_look(any_concert, "s") is None
        assert await job_ids(any_concert) == [running.id]
        await running.ack()
    assert await next_look(any_concert, "s") is not None


async def test_replayed_job_holds_up_the_next_if_it_is_the_last(any_concert: Coordinator, run: Task[..., Any]) -> None:
    """One before it does not."""
    first = await begin(any_concert, run.call(), "skip")
    await end_of(any_concert, first, "dead-lettered")
    await any_concert.tasks.replay(first)
    assert await next_look(any_concert, "s") is None
    await end_of(any_concert, first, "dead-lettered")
    last = await next_look(any_concert, "s")
    assert last is not None
    await any_concert.tasks.replay(first)
    await any_concert.tasks.job(last).cancel()
    assert await next_look(any_concert, "s") is not None


@pytest.mark.parametrize("overlap", ["skip", "wait"])
async def test_bodies_of_a_schedule_never_run_beside_each_other(any_concert: Coordinator, overlap: Overlap) -> None:
    """With two workers that have several places each, and bodies that outlast several instants."""
    running, most, ended = 0, 0, 0

    @any_concert.cron(every=PERIOD, overlap=overlap)
    @any_concert.task(name="slow", queue="slow")
    async def slow() -> None:
        nonlocal running, most, ended
        running += 1
        most = max(most, running)
        began_at = current_job().scheduled_at or 0.0
        while await now_ms(any_concert) / 1000 < began_at + 3 * PERIOD:
            await asyncio.sleep(0.01)
        running, ended = running - 1, ended + 1

    async with asyncio.TaskGroup() as tasks:
        workers = [tasks.create_task(any_concert.run_worker("slow", concurrency=3)) for _ in range(2)]
        await eventually(lambda: ended >= 4)
        for worker in workers:
            worker.cancel()
    assert most == 1


async def test_explanation_says_that_the_last_job_holds_up_the_next(
    any_concert: Coordinator, run: Task[..., Any]
) -> None:
    """And nothing of it where jobs may overlap, or the last one has ended."""
    explained: list[Explanation] = []
    for overlap in ("allow", "skip", "wait"):
        await any_concert.schedules.put("s", run.call(), every=PERIOD, overlap=overlap)
        await next_look(any_concert, "s")
        explained.append(await any_concert.explain("schedule:s"))
    found = [[reason.text for reason in each.reasons if reason.code == "overlap"] for each in explained]
    assert [len(texts) for texts in found] == [0, 1, 1]
    assert "instants have no job" in found[1][0]
    assert "waits for it" in found[2][0]


@pytest.mark.parametrize("change", ["pause", "delete", "put", "overtaken"])
async def test_change_comes_before_what_a_worker_was_about_to_do(
    any_concert: Coordinator, run: Task[..., Any], change: str
) -> None:
    """When the change has returned, no instant is enqueued, skipped or kept as it was before."""
    schedules, keys, client = any_concert.schedules, keys_of(any_concert, "s"), raw(any_concert)
    first = await begin(any_concert, run.call(), "wait")
    since = int((await client.hget(keys.schedules, "s")).split()[0])
    await client.zadd(keys.looks, {"s": 10})  # as if held
    step = ADVANCE_ALONE(
        keys,
        keys.queue("runs"),
        result=keys.result("id"),
        is_in_code=0,
        name="runs",
        schedule="s",
        held_ms=10,
        since_ms=since,
        until_ms=since + 1,
        next_ms="",
        former=first,
        before="",
        waits=1,
        instant_ms=since + 1,
        id="id",
        envelope="{}",
    )
    if change == "put":
        await schedules.put("s", run.call(), every=PERIOD, overlap="skip")
    elif change == "overtaken":
        await client.zadd(keys.looks, {"s": 11})
    else:
        await getattr(schedules, change)("s")
    assert await any_concert._ref.session.run(step) == -1
    assert await job_ids(any_concert) == [first]


async def test_job_of_an_instant_that_is_there_already_is_not_added(
    any_concert: Coordinator, run: Task[..., Any]
) -> None:
    """Nor does it wait for itself, when the clock was set back and its instant comes again."""
    first = await begin(any_concert, run.call(), "wait")
    last = round(((await any_concert.schedules.list())[0].last_at or 0) * 1000)
    await set_since(any_concert, "s", last - 1)
    await raw(any_concert).hset(keys_of(any_concert, "s").schedules, "s", f"{last - 1} {last} every%200.1%20s")
    await look_at_all(any_concert)
    async with any_concert.consume("runs") as jobs:
        claimed = await jobs.try_claim(5)
        assert claimed[0].id == first
        assert len({job.id for job in claimed}) == len(claimed)
        for job in claimed:
            await job.ack()


async def test_schedule_has_instants_from_its_start_to_its_end_only(
    any_concert: Coordinator, run: Task[..., Any]
) -> None:
    """Before, it waits for the first one; after the last one it is over, and stays in the list."""
    now = datetime.fromtimestamp(await now_ms(any_concert) // 1000, UTC)
    hour = timedelta(hours=1)
    put = any_concert.schedules.put
    await put("later", run.call(), every=1, starts_at=now + hour)
    await put("over", run.call(), every=1, starts_at=now - 2 * hour, ends_at=now - hour)
    await put("now", run.call(), every=1, starts_at=now - hour, ends_at=now + hour)
    await set_since(any_concert, "now", int(now.timestamp() * 1000) - 1000)
    await look_at_all(any_concert)
    later, now_, over = await any_concert.schedules.list()
    assert (later.last_at, later.next_at) == (None, (now + hour).timestamp())
    assert (over.last_at, over.next_at) == (None, None)
    assert now_.last_at is not None
    assert later.rule.endswith(f" from {instant((now + hour).timestamp())}")
    assert (await any_concert.explain("schedule:over")).state == "over"


async def test_instants_that_are_spread_have_one_job_each_with_the_instant_of_the_rule(
    any_concert: Coordinator, run: Task[..., Any]
) -> None:
    """By its id and in its body: two releases with another jitter give an instant one job."""
    hour = 3_600_000
    past = await now_ms(any_concert) // hour * hour - hour
    for jitter in (60.0, 600.0):
        await any_concert.schedules.put("s", run.call(), every=3600, jitter=jitter)
        await set_since(any_concert, "s", past - 1)
        await look_at_all(any_concert)
        await set_since(any_concert, "s", past + hour // 2)
        await look_at_all(any_concert)
    ids = await job_ids(any_concert)
    assert f"schedule:s@{instant(past / 1000)}" in ids or f"schedule:s@{instant(past / 1000 + 3600)}" in ids
    assert all(datetime.fromisoformat(id_.partition("@")[2]).timestamp() % 3600 == 0 for id_ in ids)
    [listed] = await any_concert.schedules.list()
    assert (listed.last_at or 1) % 3600 == 0
    assert listed.next_at is not None
    assert 0 <= listed.next_at % 3600 < 600


async def test_jitter_of_a_schedule_in_code_is_listed_as_it_comes(any_concert: Coordinator) -> None:
    """The stored form has all that its instants are made of."""

    @any_concert.cron(every=3600, jitter=1800, overlap="skip", starts_at=datetime(2020, 1, 1, tzinfo=UTC))
    @any_concert.task(name="t", queue="runs")
    async def spread() -> None: ...

    [follower] = followers(any_concert)
    await follower.look()
    [listed] = await any_concert.schedules.list()
    assert listed.id == "every 3600 s from 2020-01-01T00:00:00Z jitter 1800 s of task 't'"
    [schedule] = any_concert._registry.schedules
    assert listed.overlap == "skip"
    assert listed.next_at is not None
    [looked] = await raw(any_concert).zrange(follower._keys.looks_in_code, 0, -1, withscores=True)
    assert looked == (listed.id.encode(), round(listed.next_at * 1000))
    assert schedule.timetable.jitter_ms == 1_800_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"overlap": "never"}, "overlap is 'never'; give 'allow', 'skip' or 'wait'"),
        ({"overlap": "skip", "missed": "all"}, "missed='all' enqueues the jobs of several instants at once"),
        ({"jitter": -1}, "jitter is -1; give between 0"),
        ({"jitter": "5"}, "jitter is '5'; give seconds"),
        ({"starts_at": datetime(2026, 1, 1)}, "starts_at is .*; give a datetime with a time zone"),  # noqa: DTZ001
        ({"ends_at": 5}, "ends_at is 5; give a datetime with a time zone"),
        (
            {"starts_at": datetime(2026, 1, 2, tzinfo=UTC), "ends_at": datetime(2026, 1, 1, tzinfo=UTC)},
            "the schedule every 60 s has no instant from 2026-01-02T00:00:00Z to 2026-01-01T00:00:00Z",
        ),
    ],
)
async def test_options_that_cannot_be_are_refused_before_anything_is_sent(
    options: dict[str, Any], message: str
) -> None:
    """With the name of the option, of schedules in code and of stored ones."""
    concert = Coordinator("redis://127.0.0.1:1")
    task = concert.task(name="t")(lambda: None)
    with pytest.raises(ValueError, match=message):
        concert.cron(every=60, **options)
    with pytest.raises(ValueError, match=message):
        await concert.schedules.put("s", task.call(), every=60, **options)


async def test_single_instant_has_no_start_and_end() -> None:
    """It is one already."""
    concert = Coordinator("redis://127.0.0.1:1")
    task, at = concert.task(name="t")(lambda: None), datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match="at= gives one instant"):
        await concert.schedules.put("s", task.call(), at=at, ends_at=at)
