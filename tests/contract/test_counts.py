"""EndCounts of jobs that ended, by task and hour: what workers add, and what is read."""

import asyncio
import math
from functools import partial
from typing import Any

import pytest

from inconcert import Coordinator, JobStatus, durable
from inconcert.tasks.records import counts as counts_module
from inconcert.tasks.records.counts import BOUNDS, DAY, HOUR, EndCounts, Lately, counts_key
from inconcert.tasks.records.store import ADD_COUNTS, JobKeys
from inconcert.tasks.running import tally as tally_module
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.raw import raw
from tests.support.servers import RealServer

NOW = 20_000 * DAY + 13 * HOUR + 5


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers add what they have counted a hundred times a second."""
    monkeypatch.setattr(tally_module, "_SHORTEST_PAUSE", 0.01)
    monkeypatch.setattr(tally_module, "_LONGEST_PAUSE", 0.01)


async def total(concert: Coordinator, task: str) -> EndCounts:
    """What was counted of a task in the last two hours."""
    [found] = await concert.tasks.counts(task, hours=2)
    return found.total


async def add(concert: Coordinator, task: str, counts: str, *, request: str, day: int = 20_000) -> None:
    """Add counts of a task, as a worker does."""
    keys = JobKeys(concert._ref.keys)
    named: dict[str, Any] = {"days": [counts_key(keys, task, day)], "request": request, "lately_ended": b""}
    await concert._ref.session.run(ADD_COUNTS(keys, tasks=[task, day, counts], **named))


async def test_ends_are_counted_by_their_outcome(any_concert: Coordinator) -> None:
    """Each attempt once, when its worker ends; so are what they took and had waited, and which they were."""

    @any_concert.task(name="good", queue="q")
    async def good() -> None: ...

    @any_concert.task(name="bad", queue="q", max_attempts=2, backoff=lambda _: 0)
    async def bad() -> None:
        raise ValueError

    @any_concert.task(name="endless", queue="q")
    async def endless() -> None:
        await asyncio.sleep(60)

    for _ in range(30):
        await good.enqueue()
    dead, cancelled = await bad.enqueue(), await endless.enqueue()
    async with in_background(any_concert.run_worker("q")):
        await eventually(lambda: _is(cancelled.status, JobStatus.RUNNING))
        await cancelled.cancel()
        for job in dead, cancelled:
            await eventually(partial(_has_ended, job.status))
    assert await total(any_concert, "good") == EndCounts(succeeded=30)
    assert await total(any_concert, "bad") == EndCounts(retried=1, dead=1)
    assert await total(any_concert, "endless") == EndCounts(cancelled=1)
    [counted] = await any_concert.tasks.counts(good, hours=2)
    assert (counted.run.count, counted.wait.count) == (30, 30)
    assert counted.run.p50 in BOUNDS
    assert [found.task for found in await any_concert.tasks.counts()] == ["bad", "endless", "good"]
    ended = {job.job_id: job for job in await any_concert.tasks.lately()}
    assert (ended[dead.id].outcome, ended[dead.id].task, ended[dead.id].attempts) == (JobStatus.FAILED, "bad", 2)
    assert ended[cancelled.id].outcome is JobStatus.CANCELLED
    assert JobStatus.SUCCEEDED in {job.outcome for job in ended.values()}


async def test_job_that_is_undone_counts_as_dead_once(any_concert: Coordinator) -> None:
    """When all is undone; its last attempt is not counted beside."""

    @any_concert.task(name="book", queue="q", max_attempts=1)
    async def book() -> None:
        async with durable.undo() as undo:
            await durable.step("book", _nothing)
            undo.later("cancel", _nothing)
            raise ValueError

    job = await book.enqueue()
    await any_concert.run_worker("q", burst=True)
    assert await job.status() is JobStatus.FAILED
    assert await total(any_concert, "book") == EndCounts(dead=1)


async def test_counts_are_added_while_a_worker_runs(any_concert: Coordinator, often: None) -> None:
    """Not only when it ends."""

    @any_concert.task(name="good", queue="q")
    async def good() -> None: ...

    await good.enqueue()
    async with in_background(any_concert.run_worker("q")):

        async def is_counted() -> bool:
            return await total(any_concert, "good") == EndCounts(succeeded=1)

        await eventually(is_counted)


async def test_nothing_is_counted_if_that_is_off(server: RealServer, namespace: str) -> None:
    """Nothing is stored then."""
    async with Coordinator(server.url, namespace=namespace, count_jobs=False) as concert:

        @concert.task(name="good", queue="q")
        async def good() -> None: ...

        await good.enqueue()
        await concert.run_worker("q", burst=True)
        assert await concert.tasks.counts() == []
        assert not [key async for key in raw(concert).scan_iter(f"*{namespace}*count*")]


@pytest.mark.twice("tasks/add_counts")
async def test_what_is_sent_again_counts_once(any_concert: Coordinator) -> None:
    """A worker whose reply was lost sends it again; another request counts."""
    for request in ("one", "one", "two"):
        await add(any_concert, "t", "succeeded 13 2,run 3 2,", request=request)
    key = counts_key(JobKeys(any_concert._ref.keys), "t", 20_000)
    assert await raw(any_concert).hgetall(key) == {b"succeeded 13": b"4", b"run 3": b"4"}
    assert 14 * DAY < await raw(any_concert).ttl(key) <= 15 * DAY


async def test_so_many_hours_are_read(any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the current one, over the end of a day; older ones and other days are left out."""
    monkeypatch.setattr(counts_module.TaskCounters, "_counted", _at_now)
    await add(any_concert, "t", "succeeded 13 2,retried 11 1,run 4 3,", request="one")
    await add(any_concert, "t", "succeeded 22 5,succeeded 13 7,wait 20 1,wait 21 1,", request="two", day=19_999)
    [found] = await any_concert.tasks.counts("t", hours=16)
    assert found.since == NOW // HOUR * HOUR - 15 * HOUR
    assert (found.hours[-1], found.hours[-3], found.hours[0]) == (EndCounts(2), EndCounts(retried=1), EndCounts(5))
    assert found.total == EndCounts(succeeded=7, retried=1)
    assert (found.total.failed, found.total.failure_rate) == (1, 1 / 8)
    assert (found.run.p50, found.run.p95) == (0.02, 0.02)
    assert (found.wait.p50, found.wait.p95) == (5000.0, math.inf)
    [empty] = await any_concert.tasks.counts("other", hours=336)
    assert (empty.total, empty.run.p50, empty.total.failure_rate, len(empty.hours)) == (EndCounts(), None, None, 336)


async def test_names_of_tasks_do_not_pile_up(any_concert: Coordinator) -> None:
    """Those of two weeks ago are forgotten, and there are at most a thousand: they may come from anywhere."""
    keys = JobKeys(any_concert._ref.keys)
    await raw(any_concert).zadd(keys.counted, {"old": 19_985, "young": 19_986})
    await add(any_concert, "t", "dead 1 1,", request="one")
    assert await raw(any_concert).zrange(keys.counted, 0, -1) == [b"young", b"t"]
    await raw(any_concert).zadd(keys.counted, {f"t{number}": 20_000 for number in range(1000)})
    await add(any_concert, "late", "dead 1 1,", request="two")
    assert await raw(any_concert).zscore(keys.counted, "late") is None
    assert not await raw(any_concert).exists(counts_key(keys, "late", 20_000))


@pytest.mark.twice("tasks/counted", "tasks/read_counts")
async def test_reading_changes_nothing(any_concert: Coordinator) -> None:
    """However often."""
    await add(any_concert, "t", "dead 1 1,", request="one")
    assert await any_concert.tasks.counts("t", hours=1) == await any_concert.tasks.counts("t", hours=1)
    assert await any_concert.tasks.lately() == []


async def test_numbers_out_of_range_are_refused(any_concert: Coordinator) -> None:
    """Before anything is sent."""
    for hours in (0, 337):
        with pytest.raises(ValueError, match="hours"):
            await any_concert.tasks.counts(hours=hours)
    with pytest.raises(ValueError, match="limit"):
        await any_concert.tasks.lately(limit=201)


def test_stored_entry_of_a_job_is_read() -> None:
    """Its instants are in seconds."""
    job = Lately("s.1", "t", "q", "dead", 1000, 2000, 4000, 3).ended_job()
    assert (job.enqueued_at, job.began_at, job.ended_at, job.outcome) == (1.0, 2.0, 4.0, JobStatus.FAILED)


async def _nothing() -> None: ...


async def _at_now(_: object) -> tuple[float, list[str], list[bytes]]:
    return NOW, ["t"], []


async def _is(ask: Any, status: JobStatus) -> bool:
    return await ask() is status


async def _has_ended(ask: Any) -> bool:
    return await ask() in {JobStatus.FAILED, JobStatus.CANCELLED}
