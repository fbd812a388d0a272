"""Jobs that are not due yet, and are let be due at another time."""

import math
import time
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, JobFailed, JobStatus, NotConnected, Retry, current_job
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.jobs import asleep, make_due
from tests.support.ledger import ledger_of
from tests.support.raw import raw

HOUR = 3600.0
SOON = 1.5  # seconds; the shortest sleep of an idle consumer is 2 s


async def due_in(concert: Coordinator, queue: str) -> list[float]:
    """In how many seconds the delayed jobs of a queue are due, the earliest first, by the server's clock."""
    client: Any = raw(concert)
    now, microseconds = await client.time()
    entries = await client.zrange(concert._jobs.partitions[0].queue(queue).delayed, 0, -1, withscores=True)
    return [due_ms / 1000 - now - microseconds / 1e6 for _, due_ms in entries]


async def test_delayed_job_runs_sooner(any_concert: Coordinator) -> None:
    """Who sleeps is woken: nobody had known of anything due before an hour."""

    @any_concert.task(name="t")
    async def task() -> str:
        return current_job().id

    async with in_background(any_concert.run_worker("default")):
        jobs = [await task.options(delay=delay).enqueue() for delay in (HOUR, 2 * HOUR, 3 * HOUR)]
        await asleep(any_concert)
        asked_at = time.monotonic()
        assert await jobs[2].reschedule(delay=0.2) is True
        assert await jobs[2].result(timeout=SOON) == jobs[2].id
        assert time.monotonic() - asked_at >= 0.2
        assert await any_concert.tasks.job(jobs[1].id).reschedule(delay=timedelta(0)) is True
        assert await jobs[1].result(timeout=SOON) == jobs[1].id
        assert await jobs[0].status() is JobStatus.DELAYED


async def test_delayed_job_runs_later(any_concert: Coordinator) -> None:
    """Neither at its old time, though a worker knew of it, nor before its new one; the last word counts."""

    @any_concert.task(name="t")
    async def task() -> None: ...

    async with in_background(any_concert.run_worker("default")):
        job = await task.options(delay=0.3).enqueue()
        asked_at = time.monotonic()
        assert await job.reschedule(delay=HOUR) is True
        assert await job.reschedule(delay=0.6) is True
        await job.result(timeout=SOON)
        assert time.monotonic() - asked_at >= 0.6


async def test_next_attempt_is_rescheduled(any_concert: Coordinator) -> None:
    """The job waits for it as for its first; the attempts that failed still count."""
    job = await any_concert.enqueue("t", queue="q")
    async with any_concert.consume("q") as jobs:
        async with await anext(jobs) as claimed:
            await claimed.nack(delay=HOUR)
        assert await job.reschedule(delay=0) is True
        assert await job.status() is JobStatus.QUEUED
        async with await anext(jobs) as claimed:
            assert (claimed.id, claimed.attempt) == (job.id, 2)
    (await ledger_of(any_concert)).check(put=1, done=1)


async def test_job_that_waits_for_others_has_another_delay(any_concert: Coordinator) -> None:
    """It counts from when they have succeeded."""
    parent = await any_concert.enqueue("t", queue="q")
    hasty, patient = [await any_concert.enqueue("t", queue="q", after=[parent], delay=delay) for delay in (HOUR, 0)]
    assert await hasty.reschedule(delay=0) is True
    assert await patient.reschedule(delay=HOUR) is True
    assert await hasty.status() is await patient.status() is JobStatus.WAITING
    async with any_concert.consume("q") as jobs:
        for expected in (parent, hasty):
            async with await anext(jobs) as claimed:
                assert claimed.id == expected.id
        assert await patient.status() is JobStatus.DELAYED
        [seconds] = await due_in(any_concert, "q")
        assert HOUR - 60 < seconds <= HOUR
        assert await patient.reschedule(delay=0) is True
        async with await anext(jobs) as claimed:
            assert claimed.id == patient.id


async def test_job_that_is_due_runs_or_has_ended_is_not_rescheduled(any_concert: Coordinator) -> None:
    """It is too late, and nothing changes; but one in its queue may run at once already."""
    queued, runs, failed, done, cancelled = [
        await any_concert.enqueue("t", queue=name, max_attempts=1)
        for name in ("queued", "runs", "failed", "done", "cancelled")
    ]
    await cancelled.cancel()
    async with any_concert.consume("runs", "failed", "done", prefetch=3) as jobs:
        _, to_fail, to_end = [await anext(jobs) for _ in range(3)]
        async with to_fail:
            raise ValueError
        async with to_end:
            pass
        before = await ledger_of(any_concert)
        nobody = any_concert.tasks.job("nobody")
        for job in (queued, runs, failed, done, cancelled, nobody):
            assert await job.reschedule(delay=HOUR) is False
            assert await job.reschedule(delay=0) is (job is queued)
        assert await ledger_of(any_concert) == before


async def test_job_that_was_moved_runs_once(any_concert: Coordinator) -> None:
    """Whether the promoter came first, or whoever rescheduled it."""
    runs: list[str] = []

    @any_concert.task(name="t", queue="q")
    async def task() -> None:
        runs.append(current_job().id)

    jobs = await any_concert.enqueue_many([task.options(delay=HOUR).call() for _ in range(50)])
    async with in_background(any_concert.run_worker("q")):
        await asleep(any_concert)
        async with anyio.create_task_group() as racers:
            for job in jobs[:25]:
                racers.start_soon(partial(job.reschedule, delay=0))
            racers.start_soon(make_due, any_concert, "q")
            for job in jobs[25:]:
                racers.start_soon(partial(job.reschedule, delay=0))
        await eventually(lambda: len(runs) >= 50)
    assert sorted(runs) == sorted(job.id for job in jobs)
    (await ledger_of(any_concert)).check(put=50, done=50)


async def test_job_that_was_put_off_beyond_its_expiry_is_set_aside(any_concert: Coordinator) -> None:
    """It expires from when it was enqueued."""

    @any_concert.task(name="t", expires=0.1)
    async def task() -> None: ...

    job = await task.options(delay=HOUR).enqueue()
    assert await job.reschedule(delay=0.2)
    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="not started within"):
            await job.result(timeout=SOON)


async def test_job_that_is_delayed_beyond_its_expiry_ends_in_time(any_concert: Coordinator) -> None:
    """Not when it would be due, or when its next attempt would: those that wait for it are told."""

    @any_concert.task(name="t", expires=0.2)
    async def task() -> None: ...

    @any_concert.task(name="failing", expires=0.2)
    async def failing() -> None:
        raise Retry(after=HOUR)

    async with in_background(any_concert.run_worker("default")):
        for job in (await task.options(delay=HOUR).enqueue(), await failing.enqueue()):
            with pytest.raises(JobFailed, match="not started within"):
                await job.result(timeout=SOON)


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf, None, "5", True])
async def test_bad_delay_is_refused_before_anything_is_sent(delay: Any) -> None:
    """With its name."""
    concert = Coordinator("redis://localhost:1")
    with pytest.raises(ValueError, match="delay"):
        await concert.tasks.job("id").reschedule(delay=delay)
    with pytest.raises(NotConnected):
        await concert.tasks.job("id").reschedule(delay=1)
