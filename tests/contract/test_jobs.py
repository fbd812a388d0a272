"""Jobs as those see them who enqueued them: how they are, what came of them, and how they are stopped."""

import asyncio
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, TypedDict

import anyio
import msgspec
import pytest

from inconcert import (
    Coordinator,
    InvalidName,
    InvalidPayload,
    Job,
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobStatus,
    NotConnected,
    NotHeld,
    Progress,
    QueueStats,
    Retry,
    TaskStats,
    current_job,
    durable,
)
from inconcert._rules.payloads import JSON
from inconcert.tasks.running import worker_lease as claims_module
from inconcert.tasks.running.job_state import JobState
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.inner import bytes_under_way
from tests.support.jobs import asleep, make_due, status
from tests.support.ledger import ledger_of
from tests.support.raw import client_of, raw
from tests.support.scripts import scripts_run

SOON = 1.5  # seconds; the shortest sleep of an idle consumer is 2 s


async def waiting(concert: Coordinator, job: Job[Any], *, count: int = 1) -> None:
    """Wait until so many processes wait for a job to end."""
    client: Any = raw(concert)

    async def found() -> bool:
        watchers: list[bytes] = await client.zrange(concert._jobs.partitions[0].watchers, 0, -1)
        return sum(pair.startswith(f"{job.id} ".encode()) for pair in watchers) == count

    await eventually(found)


# Status.


async def test_status_follows_a_job(any_concert: Coordinator) -> None:
    """Delayed, queued, running, delayed again after a failure, and succeeded."""
    job = await any_concert.enqueue("t", queue="q", delay=3600)
    assert await job.status() is JobStatus.DELAYED
    async with any_concert.consume("q") as jobs:
        await make_due(any_concert, "q")
        async with await anext(jobs):
            assert await job.status() is JobStatus.RUNNING
            raise ValueError
        assert await job.status() is JobStatus.DELAYED
        await make_due(any_concert, "q")
        async with await anext(jobs):
            pass
    assert await job.status() is JobStatus.SUCCEEDED
    waits = await any_concert.enqueue("t", queue="q")
    assert await waits.status() is JobStatus.QUEUED


async def test_status_of_a_job_that_did_not_succeed(any_concert: Coordinator) -> None:
    """Failed, cancelled, and unknown: one that never was, or whose result is not kept."""
    failed, kept, unkept, cancelled = [
        await any_concert.enqueue("t", [number], max_attempts=1, result_ttl=0 if number == 2 else 60)
        for number in range(4)
    ]
    assert await cancelled.cancel()
    async with any_concert.consume("default") as jobs:
        async with await anext(jobs):
            raise ValueError
        for _ in range(2):
            async with await anext(jobs):
                pass
    nobody = any_concert.tasks.job("nobody")
    found = [await job.status() for job in (failed, kept, unkept, cancelled, nobody)]
    assert found == [
        JobStatus.FAILED, JobStatus.SUCCEEDED, JobStatus.UNKNOWN, JobStatus.CANCELLED, JobStatus.UNKNOWN,
    ]  # fmt: skip


# Results.


async def test_result_is_what_the_function_returned(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Here and in any process that knows the id; at once when it has ended, and as often as one asks."""

    @elsewhere.task(name="double")
    async def double(number: int) -> dict[str, int]:
        return {"doubled": 2 * number}

    job = await any_concert.enqueue("double", [21])
    async with in_background(elsewhere.run_worker("default")):
        assert await job.result(timeout=SOON) == {"doubled": 42}
    assert await elsewhere.tasks.job(job.id).result(timeout=0) == {"doubled": 42}


@dataclass(frozen=True)
class Report:
    """What some function returns."""

    pages: int
    made_at: datetime


async def test_result_is_read_as_the_type_that_is_asked_for(any_concert: Coordinator) -> None:
    """Or as what the function returns, or as JSON by id; what does not fit the type is refused."""
    made = Report(3, datetime(2026, 11, 21, tzinfo=UTC))

    @any_concert.task()
    async def make() -> Report:
        return made

    job = await make.enqueue()
    async with in_background(any_concert.run_worker("default")):
        assert await job.result(timeout=SOON) == made
    plain: JSON = {"pages": 3, "made_at": "2026-11-21T00:00:00Z"}
    by_id = any_concert.tasks.job(job.id)
    assert await by_id.result(Report, timeout=0) == made
    assert await by_id.result(timeout=0) == plain
    assert await job.result(object, timeout=0) == plain
    with pytest.raises(InvalidPayload, match=job.id):
        await job.result(int, timeout=0)


class Size(TypedDict):
    """What some function returns."""

    width: int


class Point(msgspec.Struct):
    """What some function returns."""

    at: datetime


class Opaque:
    """What JSON has no way to."""


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (None, None),
        (int, 7),
        (Decimal, Decimal("1.50")),
        (set[int], {1, 2}),
        (Report, Report(3, datetime(2026, 11, 21, tzinfo=UTC))),
        (Point, Point(datetime(2026, 11, 21, tzinfo=UTC))),
        (Size, {"width": 3}),
        (Report | None, Report(3, datetime(2026, 11, 21, tzinfo=UTC))),
        (dict[str, list[int]], {"a": [1]}),
    ],
)
async def test_result_is_what_the_function_is_annotated_to_return(
    any_concert: Coordinator, annotation: object, value: object
) -> None:
    """Also with options, and of drafts."""

    async def make() -> object:
        return value

    make.__annotations__["return"] = annotation
    task = any_concert.task(name="make")(make)
    jobs = [
        await task.enqueue(),
        await task.options(queue="default").enqueue(),
        *await any_concert.enqueue_many([task.call()]),
    ]
    async with in_background(any_concert.run_worker("default")):
        results = [await job.result(timeout=SOON) for job in jobs]

    assert results == [value] * 3
    assert {type(result) for result in results} == {type(value)}


@pytest.mark.parametrize("annotation", [Any, object, JSON, Opaque, Callable[[], int], None])
async def test_result_is_json_where_the_annotation_has_no_type_for_it(
    any_concert: Coordinator, annotation: object
) -> None:
    """And where there is no annotation."""

    async def make() -> object:
        return {"made_at": datetime(2026, 11, 21, tzinfo=UTC)}

    if annotation is None:
        del make.__annotations__["return"]
    else:
        make.__annotations__["return"] = annotation
    job = await any_concert.task(name="make")(make).enqueue()
    async with in_background(any_concert.run_worker("default")):
        assert await job.result(timeout=SOON) == {"made_at": "2026-11-21T00:00:00Z"}


async def test_waiting_for_a_result_sends_nothing(concert: Coordinator, namespace: str) -> None:
    """Whoever waits is woken by the end of the job."""
    client: Any = raw(concert)
    async with Coordinator.from_client(client_of(concert), namespace=namespace) as worker:
        job = await concert.enqueue("t")
        async with (
            worker.consume("default") as jobs,
            await anext(jobs) as claimed,
            in_background(job.result()) as result,
        ):
            await waiting(concert, job)
            before = scripts_run(await client.info("commandstats"))
            with anyio.move_on_after(0.3):
                await asyncio.wait([result])
            after = scripts_run(await client.info("commandstats"))
            assert (result.done(), after) == (False, before)
            claimed.result = 7
            await claimed.ack()
            with anyio.fail_after(SOON):
                assert await result == 7


@pytest.mark.slow
@pytest.mark.parametrize("any_concert", ["real"], indirect=True)  # for so many fakeredis takes too long
async def test_a_thousand_wait_for_one_job_and_for_one_each(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """All are told, and nobody is left in the list of those who wait."""
    gate = asyncio.Event()

    @elsewhere.task(name="t")
    async def task(number: int) -> int:
        await gate.wait()
        return number

    one = await any_concert.enqueue("t", [-1])
    many = await any_concert.enqueue_many([task.call(number) for number in range(1000)])
    async with in_background(elsewhere.run_worker("default", concurrency=2000)):
        results = [asyncio.create_task(job.result()) for job in [*many, *[one] * 1000]]
        await waiting(any_concert, one)
        gate.set()
        with anyio.fail_after(10):
            assert await asyncio.gather(*results) == [*range(1000), *[-1] * 1000]
    client: Any = raw(any_concert)
    assert not await client.exists(any_concert._jobs.partitions[0].watchers)


async def test_those_who_wait_here_for_one_job_have_one_place(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """It is kept until the last of them has gone; another process has another."""
    job = await any_concert.enqueue("t")
    here = [asyncio.create_task(job.result()) for _ in range(100)]
    there = asyncio.create_task(elsewhere.tasks.job(job.id).result())
    watches = any_concert.tasks._watches
    await eventually(lambda: [watch.count for watch in watches] == [100])
    await waiting(any_concert, job, count=2)
    for waiter in here[1:]:
        waiter.cancel()
    await asyncio.wait(here[1:])
    await waiting(any_concert, job, count=2)
    here[0].cancel()
    await asyncio.wait(here[:1])
    assert not list(watches)
    await waiting(any_concert, job, count=1)
    async with any_concert.consume("default") as jobs, await anext(jobs):
        pass
    with anyio.fail_after(SOON):
        assert await there is None


async def test_end_during_a_look_is_not_missed(any_concert: Coordinator) -> None:
    """One who looks hears what comes before the reply of the look is read."""
    watches = any_concert.tasks._watches
    watch = watches.join(any_concert._ref.session, "job")
    try:
        changed = watch.changed
        watch.on_message("")
        with anyio.fail_after(SOON):
            await watch.woken(changed)
    finally:
        watches.leave(watch)


async def test_result_of_a_failed_job_is_its_error(any_concert: Coordinator) -> None:
    """With the reason, the traceback as text, and how many attempts there were."""

    @any_concert.task(max_attempts=1)
    async def fail() -> None:
        raise ValueError("no such seller")

    job = await fail.enqueue()
    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="no such seller") as caught:
            await job.result(timeout=SOON)
    assert (caught.value.job_id, caught.value.reason, caught.value.attempts) == (
        job.id,
        "ValueError: no such seller",
        1,
    )
    assert 'raise ValueError("no such seller")' in caught.value.traceback


async def test_result_of_what_is_not_there_is_not_found(any_concert: Coordinator) -> None:
    """A job that never was, and one whose result is not kept."""
    job = await any_concert.enqueue("t", result_ttl=0)
    async with any_concert.consume("default") as jobs, await anext(jobs):
        pass
    for other in (job, any_concert.tasks.job("nobody")):
        with pytest.raises(JobNotFound, match=other.id):
            await other.result(timeout=SOON)


@pytest.mark.parametrize(("result_ttl", "kept_for"), [(0, 60), (0.5, 60), (1, 1), (30, 30), (600, 600)])
async def test_result_is_kept_as_long_as_it_says_also_if_somebody_waits(
    any_concert: Coordinator, result_ttl: float, kept_for: float
) -> None:
    """Below a second for a minute, so that the waiter can read it."""
    job = await any_concert.enqueue("t", result_ttl=result_ttl)
    async with any_concert.consume("default") as jobs, in_background(_outcome(job)) as outcome:
        await waiting(any_concert, job)
        await (await anext(jobs)).ack()
        with anyio.fail_after(SOON):
            await outcome
    left_ms = await raw(any_concert).pttl(job._keys.results([job.id])[0])
    assert (kept_for - 0.9) * 1000 - 100 < left_ms <= kept_for * 1000 or (kept_for == 1 and left_ms == -2)


async def test_result_that_is_not_kept_reaches_whoever_waits(any_concert: Coordinator) -> None:
    """For a minute it is kept for them; one that is not JSON is nobody's, and no failure."""
    for result, expected in ((7, 7), (object(), JobNotFound)):
        job = await any_concert.enqueue("t", result_ttl=0)
        async with any_concert.consume("default") as jobs, in_background(_outcome(job)) as outcome:
            await waiting(any_concert, job)
            claimed: Any = await anext(jobs)
            claimed.result = result
            await claimed.ack()
            with anyio.fail_after(SOON):
                assert await outcome == expected
        assert (await ledger_of(any_concert)).bodies == []


async def _outcome(job: Job[Any]) -> object:
    try:
        return await job.result()
    except Exception as error:  # noqa: BLE001 - it is looked at
        return type(error)


async def test_result_that_is_not_json_sets_the_job_aside(any_concert: Coordinator) -> None:
    """It has done its work, so it is not tried again."""

    @any_concert.task()
    async def odd() -> object:
        return object()

    job = await odd.enqueue()
    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="the result of job"):
            await job.result(timeout=SOON)
    (await ledger_of(any_concert)).check(put=1, done=0)


async def test_wait_for_a_result_is_bounded(any_concert: Coordinator) -> None:
    """By `timeout`; 0 looks once. The job goes on, and nobody is left in the list of those who wait."""
    job = await any_concert.enqueue("t")
    for timeout in (0, 0.01, timedelta(milliseconds=10)):
        with pytest.raises(TimeoutError, match="has not ended"):
            await job.result(timeout=timeout)
    client: Any = raw(any_concert)

    async def nobody_waits() -> bool:
        return not await client.exists(any_concert._jobs.partitions[0].watchers)

    await eventually(nobody_waits)
    assert await job.status() is JobStatus.QUEUED
    bad: Any
    for bad in (-1, math.nan, "1"):
        with pytest.raises(ValueError, match="timeout"):
            await job.result(timeout=bad)
        with pytest.raises(ValueError, match="timeout"):
            await job.cancel(timeout=bad)


async def test_names_end_with_the_last_window(any_concert: Coordinator) -> None:
    """By themselves, unless a job has its name until it has ended: that is kept without end."""
    keys, client = any_concert._jobs.partitions[0], raw(any_concert)

    async def lives() -> list[int]:
        return [await client.pttl(key) for key in (keys.unique, keys.checks)]

    for name, window in (("short", 60), ("long", 3600), ("short too", 60)):
        await any_concert.enqueue("t", unique=name, unique_for=window)
    assert all(3_590_000 < life <= 3_600_000 for life in await lives())
    assert not (await any_concert.enqueue("t", unique="short", unique_for=60)).created
    await any_concert.enqueue("t", unique="until done")
    assert await lives() == [-1, -1]
    await any_concert.enqueue("t", unique="another", unique_for=60)
    assert await lives() == [-1, -1]


async def test_names_that_are_free_are_dropped_by_a_consumer(any_concert: Coordinator) -> None:
    """All of them, without another enqueue; one that is taken stays."""
    keys, client = any_concert._jobs.partitions[0], raw(any_concert)
    await any_concert.enqueue("t", unique="taken")
    await any_concert.enqueue("t", unique="for long", unique_for=60)
    await client.hset(keys.unique, mapping={f"free:{number}": f"gone {number + 1}" for number in range(1200)})
    await client.zadd(keys.checks, {f"free:{number}": 1 for number in range(1200)})
    async with any_concert.consume("other"):

        async def are_dropped() -> bool:
            return bool(await client.hlen(keys.unique) == 2)

        await eventually(are_dropped)
    assert set(await client.zrange(keys.checks, 0, -1)) == {b"taken", b"for long"}


async def test_closing_the_coordinator_sends_those_away_who_wait(any_concert: Coordinator, namespace: str) -> None:
    """For a result and for the end of a cancelled job."""
    job = await any_concert.enqueue("t")
    async with any_concert.consume("default") as jobs:
        await anext(jobs)
        async with Coordinator.from_client(client_of(any_concert), namespace=namespace) as closing:
            there = closing.tasks.job(job.id)
            waiters = [asyncio.ensure_future(call) for call in (there.result(), there.cancel())]
            await eventually(lambda: [watch.count for watch in closing.tasks._watches] == [2])
            await waiting(any_concert, job)
        await asyncio.wait(waiters, timeout=5)
    assert [type(waiter.exception()) for waiter in waiters] == [NotConnected] * 2


# Cancelling.


@pytest.mark.parametrize("delay", [0, 3600])
async def test_cancelled_job_that_waits_never_runs(any_concert: Coordinator, delay: float) -> None:
    """It is gone at once, its neighbours run, and whoever waits for it is told."""
    jobs = [await any_concert.enqueue("t", [number], queue="q", delay=delay) for number in range(3)]
    async with in_background(_outcome(jobs[1])) as outcome:
        await waiting(any_concert, jobs[1])
        assert await jobs[1].cancel() is True
        with anyio.fail_after(SOON):
            assert await outcome is JobCancelled
    assert await jobs[1].status() is JobStatus.CANCELLED
    await make_due(any_concert, "q")
    async with any_concert.consume("q", prefetch=3) as consumer:
        for number in (0, 2):
            async with await anext(consumer) as job:
                assert job.args == [number]
    (await ledger_of(any_concert)).check(put=3, done=3)


async def test_cancelled_job_is_not_tried_again(any_concert: Coordinator) -> None:
    """While it waits for its next attempt."""
    job = await any_concert.enqueue("t", queue="q")
    async with any_concert.consume("q") as jobs:
        await (await anext(jobs)).nack(delay=3600)
        assert await job.cancel() is True
    ledger = await ledger_of(any_concert)
    ledger.check(put=1, done=1)
    assert (ledger.failures, ledger.states) == ({}, {})


async def test_running_job_is_stopped_and_ends(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Its body is cancelled and may tidy up; the cancel returns when that is done, and it is not tried again."""
    tidied: list[str] = []

    @elsewhere.task(name="endless")
    async def endless() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            await asyncio.sleep(0.01)
            tidied.append(current_job().id)

    job = await any_concert.enqueue("endless")
    async with in_background(elsewhere.run_worker("default")) as worker:
        await status(any_concert, job, JobStatus.RUNNING)
        with anyio.fail_after(SOON):
            assert await job.cancel() is True
        assert tidied == [job.id]
        with pytest.raises(JobCancelled, match=job.id):
            await job.result()
        assert not worker.done()
    (await ledger_of(any_concert)).check(put=1, done=1)


async def test_cancel_does_not_wait_longer_than_it_is_told(any_concert: Coordinator) -> None:
    """False means that it still runs; it ends later all the same, whatever its body does then."""
    job = await any_concert.enqueue("t", queue="q")
    async with any_concert.consume("q") as jobs:
        async with await anext(jobs) as claimed:
            with anyio.CancelScope(shield=True):
                assert await job.cancel(timeout=0) is False
                assert await job.cancel(timeout=0.01) is False
                assert claimed.is_cancelled
            raise ValueError("while it was stopped")
        assert await job.status() is JobStatus.CANCELLED
        assert await job.cancel() is True
    (await ledger_of(any_concert)).check(put=1, done=1)


async def test_body_that_ends_in_spite_of_being_cancelled_has_succeeded(any_concert: Coordinator) -> None:
    """Cancelling is over then; what it returned counts."""
    started, may_end = asyncio.Event(), asyncio.Event()

    @any_concert.task()
    async def stubborn() -> int:
        started.set()
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            await may_end.wait()
        return 7

    job = await stubborn.enqueue()
    async with in_background(any_concert.run_worker("default")):
        await started.wait()
        async with in_background(job.cancel()) as cancelling:
            await waiting(any_concert, job)
            may_end.set()
            with anyio.fail_after(SOON):
                assert await cancelling is True
        assert await job.result(timeout=0) == 7


async def test_cancelled_plain_function_runs_to_its_end(any_concert: Coordinator) -> None:
    """A thread cannot be stopped: until it has ended the job runs, and then it counts as cancelled."""
    may_end, running = threading.Event(), threading.Event()

    @any_concert.task()
    def plain() -> int:
        running.set()
        may_end.wait(5)
        running.clear()
        return 7

    job = await plain.enqueue()
    async with in_background(any_concert.run_worker("default")):
        await eventually(running.is_set)
        assert await job.cancel(timeout=0.05) is False
        assert await job.status() is JobStatus.RUNNING
        may_end.set()
        assert await job.cancel(timeout=SOON) is True
        assert not running.is_set()
    assert await job.status() is JobStatus.CANCELLED


async def test_job_that_is_claimed_ahead_is_cancelled_before_its_turn(any_concert: Coordinator) -> None:
    """Its consumer is busy with another, and does not get it afterwards."""
    jobs = [await any_concert.enqueue("t", [number]) for number in range(3)]
    async with any_concert.consume("default", prefetch=3) as consumer:
        async with await anext(consumer):
            with anyio.fail_after(SOON):
                assert await jobs[1].cancel() is True
            with pytest.raises(JobCancelled):
                await jobs[1].result()
        async with await anext(consumer) as job:
            assert job.args == [2]
    (await ledger_of(any_concert)).check(put=3, done=3)


async def test_cancel_that_overtakes_the_reply_of_the_claim_is_heard(any_concert: Coordinator) -> None:
    """The message comes on another connection, and may be there before this process knows that it has the job."""
    job = await any_concert.enqueue("t", queue="q")
    async with any_concert.consume("q") as consumer:
        assert consumer._opened is not None
        claims = await consumer._opened._partitions[0].living_worker()
        claiming = asyncio.create_task(consumer.try_claim(1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        claims.on_message(job.id)
        assert await claiming == []
    assert await job.status() is JobStatus.CANCELLED


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_job_that_is_cancelled_before_its_body_begins_does_not_run(any_concert: Coordinator, kind: str) -> None:
    """Between the claim of its worker and the first step of its task."""
    ran: list[int] = []

    @any_concert.task(name="coroutine")
    async def in_a_coroutine() -> None:
        ran.append(1)

    @any_concert.task(name="thread")
    def in_a_thread() -> None:
        ran.append(1)

    class Late(JobState):
        """Cancelled when it is handed out."""

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if (name, value) == ("is_handed_out", True):
                self.cancel_nowait()

    job = await any_concert.enqueue(kind)
    assert {in_a_coroutine.name, in_a_thread.name} == {"coroutine", "thread"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims_module, "JobState", Late)
        async with in_background(any_concert.run_worker("default")):
            with pytest.raises(JobCancelled):
                await job.result(timeout=SOON)
    assert ran == []


@pytest.mark.parametrize("pauses", [0, 1])
async def test_consumer_outlives_a_job_that_is_cancelled_before_its_body_begins(
    any_concert: Coordinator, pauses: int
) -> None:
    """Whether the body awaits anything: if not, it has ended before it could be stopped."""
    async with any_concert.consume("default") as consumer:
        for _ in range(2):
            enqueued = await any_concert.enqueue("t")
            job = await anext(consumer)
            await enqueued.cancel(timeout=0)
            await eventually(lambda: job.is_cancelled)  # noqa: B023 - called here
            async with job:
                for _ in range(pauses):
                    await asyncio.sleep(0)
            await asyncio.sleep(0)  # nothing stops what comes behind it
            assert await enqueued.status() is (JobStatus.CANCELLED if pauses else JobStatus.SUCCEEDED)


async def test_cancel_of_what_has_ended_is_true_and_changes_nothing(any_concert: Coordinator) -> None:
    """Succeeded, failed, cancelled, or never there."""
    done, failed, cancelled = [await any_concert.enqueue("t", max_attempts=1) for _ in range(3)]
    await cancelled.cancel()
    async with any_concert.consume("default") as jobs:
        await (await anext(jobs)).ack()
        await (await anext(jobs)).nack()
    before = await ledger_of(any_concert)
    for job in (done, failed, cancelled, any_concert.tasks.job("nobody")):
        assert await job.cancel() is True
    assert await ledger_of(any_concert) == before
    assert await failed.status() is JobStatus.FAILED


@pytest.mark.parametrize("any_concert", ["real"], indirect=True)  # for so many fakeredis takes too long
async def test_many_cancelled_jobs_do_not_hold_up_those_behind_them(any_concert: Coordinator) -> None:
    """Nor end a burst early: their ids stay in the queue if nobody says in which queue they are."""
    ran: list[int] = []

    @any_concert.task(name="t")
    async def task(number: int) -> None:
        ran.append(number)

    jobs = await any_concert.enqueue_many([task.call(number) for number in range(2500)])
    await asyncio.gather(*(any_concert.tasks.job(job.id).cancel() for job in jobs[:-1]))
    stats = await any_concert.tasks.stats("default")
    assert (stats.queues["default"].ready, stats.queues["default"].oldest_age) == (2500, None)
    with anyio.fail_after(SOON):
        await any_concert.run_worker("default", concurrency=1, burst=True)
    assert ran == [2499]


# Progress, and the job that runs.


async def test_progress_is_seen_by_whoever_asks(any_concert: Coordinator) -> None:
    """While it runs."""
    job = await any_concert.enqueue("t")
    assert await job.progress() is None
    async with any_concert.consume("default") as jobs:
        async with await anext(jobs) as claimed:
            assert await job.progress() is None
            await claimed.progress(0.4, "half an apple")
            assert await job.progress() == Progress(0.4, "half an apple")
            for bad in (-0.1, 1.1, math.nan):
                with pytest.raises(ValueError, match="progress"):
                    await claimed.progress(bad)
            with pytest.raises(TypeError, match="give a string"):
                await claimed.progress(0.5, 7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert await job.progress() is None
        with pytest.raises(NotHeld):
            await claimed.progress(1)
    assert "progress" not in {name.decode().rpartition(":")[2] for name in await _keys(any_concert)}


@pytest.mark.parametrize("how", ["sleeps", "fails", "comes back"])
async def test_progress_is_kept_between_attempts(any_concert: Coordinator, how: str) -> None:
    """Also where another worker, whose reports are counted from 1 again, has the next one."""
    seen: list[Progress | None] = []

    @any_concert.task(name="t")
    async def task() -> None:
        current = current_job()
        seen.append(await job.progress())
        if len(seen) > 1:
            await current.progress(0.75)
            seen.append(await job.progress())
            return
        await current.progress(0.25)
        await current.progress(0.5, "half an apple")
        if how == "sleeps":
            await durable.sleep("rest", 3600)
        elif how == "comes back":
            await current.nack(delay=3600)
        raise Retry(after=3600)

    job = await task.enqueue()
    await any_concert.run_worker("default", burst=True)
    assert (await job.status(), await job.progress()) == (JobStatus.DELAYED, Progress(0.5, "half an apple"))
    await make_due(any_concert, "default")
    await any_concert.run_worker("default", burst=True)
    assert seen == [None, Progress(0.5, "half an apple"), Progress(0.75)]
    assert await job.progress() is None


@pytest.mark.parametrize("end", ["cancel", "cancel_all", "close"])
async def test_progress_is_dropped_with_the_job_that_waits(any_concert: Coordinator, end: str) -> None:
    """And where its worker gives it back."""
    job = await any_concert.enqueue("t")
    async with any_concert.consume("default") as jobs:
        claimed = await anext(jobs)
        await claimed.progress(0.5)
        if end == "close":
            await claimed.give_back()
        else:
            await claimed.nack(delay=3600)
    if end == "cancel":
        assert await job.cancel()
    elif end == "cancel_all":
        assert await any_concert.tasks.cancel_all() == 1
    assert await job.progress() is None
    assert "progress" not in {name.decode().rpartition(":")[2] for name in await _keys(any_concert)}


async def _keys(concert: Coordinator) -> list[bytes]:
    client: Any = raw(concert)
    return [key async for key in client.scan_iter(f"*{concert._ref.keys.namespace}:tasks*")]


async def test_body_knows_its_job(any_concert: Coordinator) -> None:
    """In a coroutine and in a thread; outside of a body there is none."""

    @any_concert.task()
    async def here() -> str:
        await asyncio.sleep(0)
        return current_job().id

    @any_concert.task()
    def in_a_thread() -> str:
        current_job().progress(0.4)
        return current_job().id

    jobs = [await here.enqueue(), await in_a_thread.enqueue()]
    async with in_background(any_concert.run_worker("default")):
        assert [await job.result(timeout=SOON) for job in jobs] == [job.id for job in jobs]
    with pytest.raises(RuntimeError, match="no job runs here"):
        current_job()


# Unique names.


async def test_name_is_taken_until_its_job_is_done(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """The duplicate is the live job, whichever task it is of; afterwards a new one is created."""

    @any_concert.task(name="t")
    async def task(number: int) -> int:
        return number

    first = await task.options(unique="sold:42").enqueue(1)
    second = await elsewhere.enqueue("other", unique="sold:42", queue="elsewhere")
    third = await task.options(unique="sold:43").enqueue(3)
    assert [(job.created, job.id) for job in (first, second, third)] == [
        (True, first.id), (False, first.id), (True, third.id),
    ]  # fmt: skip
    async with in_background(any_concert.run_worker("default")):
        assert await second.result(timeout=SOON) == 1
        again = await task.options(unique="sold:42").enqueue(4)
        assert again.created
        assert await again.result(timeout=SOON) == 4
    client: Any = raw(any_concert)
    keys = any_concert._jobs.partitions[0]
    assert not await client.exists(keys.unique, keys.checks)


async def test_name_is_taken_while_its_job_runs_or_waits_for_another_attempt(any_concert: Coordinator) -> None:
    """Until done means until it has ended."""
    first = await any_concert.enqueue("t", queue="q", unique="name")
    async with any_concert.consume("q") as jobs:
        async with await anext(jobs):
            assert not (await any_concert.enqueue("t", queue="q", unique="name")).created
            raise ValueError
        duplicate = await any_concert.enqueue("t", queue="q", unique="name")
        assert (duplicate.created, duplicate.id) == (False, first.id)


@pytest.mark.parametrize("end", ["cancelled while it waits", "cancelled while it runs", "set aside"])
async def test_name_is_free_when_its_job_has_ended(any_concert: Coordinator, end: str) -> None:
    """However that was."""
    first = await any_concert.enqueue("t", unique="name", max_attempts=1)
    async with any_concert.consume("default") as jobs:
        if end == "cancelled while it waits":
            await first.cancel()
        else:
            async with await anext(jobs) as job:
                if end == "set aside":
                    raise ValueError
                assert await any_concert.tasks.job(job.id).cancel(timeout=0) is False
                await anyio.sleep_forever()
        assert (await any_concert.enqueue("t", unique="name")).created


async def test_name_is_free_when_its_job_has_started(any_concert: Coordinator) -> None:
    """`unique_until="started"`: what comes while it runs is not lost on it."""
    options: dict[str, Any] = {"unique": "name", "unique_until": "started"}
    first = await any_concert.enqueue("t", **options)
    assert (await any_concert.enqueue("t", **options)).id == first.id
    async with any_concert.consume("default") as jobs, await anext(jobs):
        second = await any_concert.enqueue("t", **options)
        assert second.created
        assert (await any_concert.enqueue("t", **options)).id == second.id
    assert not (await any_concert.enqueue("t", **options)).created  # the end of the first did not free it again


async def test_name_is_taken_for_a_time(any_concert: Coordinator) -> None:
    """`unique_for`: whatever becomes of its job, by the server's clock."""
    first = await any_concert.enqueue("t", unique="name", unique_for=60)
    assert await first.cancel()
    duplicate = await any_concert.enqueue("t", unique="name", unique_for=60)
    assert (duplicate.created, duplicate.id) == (False, first.id)
    short = await any_concert.enqueue("t", unique="short", unique_for=0.05)

    async def is_free() -> bool:
        return (await any_concert.enqueue("t", unique="short", unique_for=60)).created

    await eventually(is_free)
    assert await short.status() is JobStatus.QUEUED


async def test_many_names_do_not_pile_up(any_concert: Coordinator) -> None:
    """Those whose window has ended are dropped by later enqueues, quicker than others are added."""

    @any_concert.task(name="t")
    async def task() -> None: ...

    def drafts(part: int) -> list[Any]:
        options = [task.options(unique=f"{part}:{number}", unique_for=0.001) for number in range(300)]
        return [bound.call() for bound in options]

    client: Any = raw(any_concert)
    keys = any_concert._jobs.partitions[0]
    await any_concert.enqueue("t", unique="until it has ended")
    for part in range(4):
        await any_concert.enqueue_many(drafts(part))
        await raw(any_concert).zadd(keys.checks, dict.fromkeys(await client.zrange(keys.checks, 0, -1), 1))
        assert await client.hlen(keys.unique) <= 601
        assert await client.zcard(keys.checks) == await client.hlen(keys.unique)


async def test_two_processes_at_once_get_one_job(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """A hundred times each, together and in one batch."""

    async def enqueue(concert: Coordinator) -> list[Job[Any]]:
        return list(await asyncio.gather(*(concert.enqueue("t", unique="name") for _ in range(100))))

    here, there = await asyncio.gather(enqueue(any_concert), enqueue(elsewhere))
    assert len({job.id for job in here + there}) == 1
    assert sum(job.created for job in here + there) == 1
    assert len((await ledger_of(any_concert)).bodies) == 1


async def test_each_caller_of_one_turn_gets_its_own_jobs(any_concert: Coordinator) -> None:
    """However many they are, plain ones, named ones, those whose name is taken, and those that go alone."""

    @any_concert.task
    async def task(number: int) -> int:
        return number

    named, own = task.options(unique="name"), task.options(id="own")
    taken = await named.enqueue(0)
    one, other, alone, [two, also_taken, three], four = await asyncio.gather(
        task.enqueue(1),
        named.enqueue(0),
        own.enqueue(5),
        any_concert.enqueue_many([task.call(2), named.call(0), task.call(3)]),
        task.enqueue(4),
    )
    await any_concert.run_worker("default", burst=True)
    assert [await job.result() for job in (taken, one, two, three, four, alone)] == [0, 1, 2, 3, 4, 5]
    assert other.id == also_taken.id == taken.id
    assert [job.created for job in (one, two, three, four, alone)] == [True] * 5
    assert [job.created for job in (other, also_taken)] == [False] * 2


# When a job runs, and whether it is tried again.


async def test_job_that_has_expired_is_set_aside(any_concert: Coordinator) -> None:
    """It is not started any more; one that is in time is."""
    late = await any_concert.enqueue("t", expires=0.001)
    in_time = await any_concert.enqueue("t", expires=60)
    await asyncio.sleep(0.003)
    async with any_concert.consume("default", prefetch=2) as jobs:
        async with await anext(jobs) as job:
            assert job.id == in_time.id
        with pytest.raises(JobFailed, match=r"JobExpired: job .* was not started within 0\.001 s"):
            await late.result()


async def test_only_failures_of_these_classes_are_tried_again(any_concert: Coordinator) -> None:
    """Of others the job is set aside at its first attempt."""

    @any_concert.task(queue="q", retry_on=(ConnectionError,))
    async def task(kind: str) -> None:
        raise {"connection": ConnectionError, "value": ValueError}[kind]

    again, never = await task.enqueue("connection"), await task.enqueue("value")
    async with in_background(any_concert.run_worker("q")):
        await status(any_concert, again, JobStatus.DELAYED)
        with pytest.raises(JobFailed, match="ValueError") as caught:
            await never.result(timeout=SOON)
    assert caught.value.attempts == 1


@pytest.mark.parametrize(
    ("failure", "seconds"),
    [(ValueError, 10), (Retry, 10), (lambda: Retry(after=timedelta(minutes=5)), 300)],
    ids=["error", "retry", "retry after"],
)
async def test_next_attempt_comes_when_the_task_says(
    any_concert: Coordinator, failure: Callable[[], Exception], seconds: float
) -> None:
    """By the backoff of the task, or by what its body asks for."""

    @any_concert.task(queue="q", backoff=lambda failures: 10 * failures, retry_on=(ValueError,))
    async def task() -> None:
        raise failure()

    job = await task.enqueue()
    client: Any = raw(any_concert)
    async with in_background(any_concert.run_worker("q")):
        await status(any_concert, job, JobStatus.DELAYED)
        due_ms = await client.zscore(any_concert._jobs.partitions[0].queue("q").delayed, job.id)
        now, _ = await client.time()
    assert seconds - 3 < due_ms / 1000 - now <= seconds + 1


async def test_last_attempt_is_the_last_even_for_retry(any_concert: Coordinator) -> None:
    """`Retry` is a failure like others."""

    @any_concert.task(max_attempts=1)
    async def task() -> None:
        raise Retry(after=1)

    job = await task.enqueue()
    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="asked for another attempt in 1 s"):
            await job.result(timeout=SOON)


async def test_bad_options_of_a_job_are_refused_before_anything_is_sent() -> None:
    """Also by a coordinator that is not open."""
    concert = Coordinator()
    bad: list[tuple[str, list[Any]]] = [
        ("result_ttl", [-1, math.nan, "1", None]),
        ("expires", [-1, math.inf, "1"]),
        ("time_limit", [-1, 0, "1"]),
        ("unique_until", ["end", None, 1]),
        ("unique_for", [-1, math.nan, None]),
    ]
    for name, values in bad:
        for value in values:
            options: dict[str, Any] = {name: value}
            with pytest.raises(ValueError, match=name):
                await concert.enqueue("t", **options)
    for value in ("", "x" * 513, 7):
        options = {"unique": value}
        with pytest.raises(InvalidName):
            await concert.enqueue("t", **options)
    for after in (-1, math.nan, "1"):
        options = {"after": after}
        with pytest.raises(ValueError, match="delay"):
            Retry(**options)
    job = concert.tasks.job("some")
    for call in (job.status(), job.result(), job.cancel(), job.progress()):
        with pytest.raises(NotConnected):
            await call


@pytest.mark.parametrize("job_id", ["", None, 7, b"id"], ids=range(4))
async def test_bad_ids_are_refused(any_concert: Coordinator, job_id: Any) -> None:
    """An empty one above all: it must not stand for all the dead."""
    await bury(any_concert, count=2)
    with pytest.raises(InvalidName):
        any_concert.tasks.job(job_id)
    for call in (any_concert.tasks.purge(job_id), any_concert.tasks.replay(job_id)):
        with pytest.raises(InvalidName):
            await call
    assert len(await any_concert.tasks.dead()) == 2


# Many at once.


@pytest.mark.slow
async def test_many_are_enqueued_in_order(any_concert: Coordinator) -> None:
    """Into several queues, each in the order given; the jobs come back in that order, too."""

    @any_concert.task(name="t")
    async def task(number: int) -> None: ...

    drafts = [task.options(queue=f"q{number % 3}").call(number) for number in range(5000)]
    jobs = await any_concert.enqueue_many(drafts)
    assert all(job.created for job in jobs)
    ledger = await ledger_of(any_concert)
    assert ledger.ready == {f"q{part}": [job.id for job in jobs[part::3]] for part in range(3)}
    assert await any_concert.enqueue_many([]) == []


async def test_many_are_enqueued_with_their_own_options(any_concert: Coordinator) -> None:
    """Delays and unique names; duplicates within the batch are one job."""

    @any_concert.task(name="t")
    async def task(number: int) -> None: ...

    once = task.options(unique="name")
    jobs = await any_concert.enqueue_many([once.call(1), task.options(delay=60).call(2), once.call(3), task.call(4)])
    assert [job.created for job in jobs] == [True, True, False, True]
    assert jobs[0].id == jobs[2].id
    ledger = await ledger_of(any_concert)
    assert ledger.ready == {"default": [jobs[0].id, jobs[3].id]}
    assert ledger.delayed == {"default": [jobs[1].id]}


@pytest.mark.parametrize("any_concert", ["real"], indirect=True)  # for so many fakeredis takes too long
async def test_many_large_jobs_go_in_portions(any_concert: Coordinator) -> None:
    """What is under way at once is bounded, whatever is given."""

    @any_concert.task(name="t")
    async def task(text: str) -> None: ...

    session = any_concert._ref.session
    most = 0
    submit = session.channel.submit

    def watched(call: Any) -> None:
        nonlocal most
        submit(call)
        most = max(most, bytes_under_way(session))

    session.channel.submit = watched  # type: ignore[method-assign]
    jobs = await any_concert.enqueue_many([task.call("x" * 500_000) for _ in range(60)])
    assert len(jobs) == 60
    assert 2**20 < most < 10 * 2**20
    await any_concert.enqueue_many([task.call("x") for _ in range(12_000)])
    assert len((await ledger_of(any_concert)).bodies) == 12_060


# Dead letters.


async def bury(concert: Coordinator, *, count: int = 1, queue: str = "default", **options: Any) -> list[Job[Any]]:
    """Jobs that were set aside, with ValueError."""
    jobs = [
        await concert.enqueue("t", [number], {"a": 1}, queue=queue, max_attempts=1, **options)
        for number in range(count)
    ]
    async with concert.consume(queue) as consumer:
        for number in range(count):
            async with await anext(consumer):
                raise ValueError(f"no {number}")
    return jobs


async def test_dead_are_listed_latest_first(any_concert: Coordinator) -> None:
    """With what they were, and why they are dead."""
    jobs = await bury(any_concert, count=3, queue="q")
    for place, job in enumerate(jobs):  # apart, so that their order is sure
        await raw(any_concert).zincrby(any_concert._jobs.partitions[0].dead, place, job.id)
    dead = await any_concert.tasks.dead()
    assert [one.id for one in dead] == [job.id for job in reversed(jobs)]
    [latest] = await any_concert.tasks.dead(limit=1)
    client: Any = raw(any_concert)
    assert latest == dead[0]
    assert (latest.task, list(latest.args), dict(latest.kwargs), latest.queue) == ("t", [2], {"a": 1}, "q")
    assert (latest.error, latest.attempts) == ("ValueError: no 2", 1)
    assert "raise ValueError" in latest.traceback
    seconds, _ = await client.time()
    assert abs((latest.died_at or 0) - seconds) < 10
    bad: Any
    for bad in (0, 1001, "1", True):
        with pytest.raises(ValueError, match="limit"):
            await any_concert.tasks.dead(limit=bad)


async def test_unreadable_job_is_listed_too(any_concert: Coordinator) -> None:
    """Without its name; it cannot be edited."""
    [job] = await bury(any_concert)
    await raw(any_concert).hset(any_concert._jobs.partitions[0].bodies, job.id, "unreadable")
    [dead] = await any_concert.tasks.dead()
    assert (dead.id, dead.task) == (job.id, "?")
    with pytest.raises(InvalidPayload):
        await any_concert.tasks.replay(job.id, args=[1])
    await any_concert.tasks.replay(job.id)
    assert (await ledger_of(any_concert)).ready == {"default": [job.id]}


async def test_replayed_job_runs_as_if_it_were_new(any_concert: Coordinator) -> None:
    """Under its old id, where it was or elsewhere, with its arguments or others."""
    plain, edited = await bury(any_concert, count=2, queue="q")
    await any_concert.tasks.replay(plain.id)
    await any_concert.tasks.replay(edited.id, args=[7], queue="other")
    for job in (plain, edited):
        with pytest.raises(JobNotFound, match=job.id):
            await any_concert.tasks.replay(job.id)
    async with any_concert.consume("q", "other") as jobs:
        for job, args in ((plain, [0]), (edited, [7])):
            async with await anext(jobs) as claimed:
                assert (claimed.id, claimed.args, claimed.kwargs, claimed.attempt) == (job.id, args, {"a": 1}, 1)
    (await ledger_of(any_concert)).check(put=2, done=2)
    assert await edited.result(timeout=0) is None


async def test_replayed_job_has_its_name_again_unless_another_has_it(any_concert: Coordinator) -> None:
    """It runs in both cases."""
    [job] = await bury(any_concert, unique="name")
    other = await any_concert.enqueue("t", unique="name")
    await any_concert.tasks.replay(job.id)
    assert (await any_concert.enqueue("t", unique="name")).id == other.id
    await other.cancel()
    await raw(any_concert).hdel(any_concert._jobs.partitions[0].unique, "name")
    await job.cancel()
    [job] = await bury(any_concert, unique="name")
    await raw(any_concert).hdel(any_concert._jobs.partitions[0].unique, "name")  # as an hour later
    await any_concert.tasks.replay(job.id)
    duplicate = await any_concert.enqueue("t", unique="name")
    assert (duplicate.created, duplicate.id) == (False, job.id)


async def test_end_of_a_replayed_job_leaves_the_name_to_the_job_that_has_it(any_concert: Coordinator) -> None:
    """Two live jobs never have one unique name."""
    [dead] = await bury(any_concert, unique="name")
    other = await any_concert.enqueue("t", unique="name", delay=60)
    await any_concert.tasks.replay(dead.id)
    async with any_concert.consume("default") as jobs:
        [job] = await jobs.try_claim(2)
        await job.ack()
    assert job.id == dead.id
    assert (await any_concert.enqueue("t", unique="name")).id == other.id


async def test_purged_job_is_gone(any_concert: Coordinator) -> None:
    """One, all that are old enough, and all: more than one script drops."""
    jobs = await bury(any_concert, count=3)
    await any_concert.tasks.purge(jobs[0].id)
    with pytest.raises(JobNotFound, match=jobs[0].id):
        await any_concert.tasks.purge(jobs[0].id)
    assert await jobs[0].status() is JobStatus.UNKNOWN
    keys = any_concert._jobs.partitions[0]
    await raw(any_concert).zincrby(keys.dead, -60_000, jobs[1].id)
    assert await any_concert.tasks.purge_all(older_than=30) == 1
    assert [dead.id for dead in await any_concert.tasks.dead()] == [jobs[2].id]
    many: dict[str, float] = {f"many{number}": number + 1 for number in range(2200)}
    await raw(any_concert).zadd(keys.dead, many)
    assert await any_concert.tasks.purge_all(keep=2201) == 0
    assert await any_concert.tasks.purge_all(keep=1200) == 1001  # the oldest
    assert await raw(any_concert).zrange(keys.dead, 0, 0) == [b"many1001"]
    assert await any_concert.tasks.purge_all(older_than=30, keep=1) == 1199
    for keep in (-1, 1.0, True, None):
        with pytest.raises(ValueError, match="keep"):
            await any_concert.tasks.purge_all(keep=keep)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert await any_concert.tasks.purge_all() == 1
    ledger = await ledger_of(any_concert)
    assert (ledger.bodies, ledger.dead, ledger.reasons, ledger.failures) == ([], [], {}, {})


# Pausing, and looking.


async def test_paused_queue_waits_and_others_go_on(any_concert: Coordinator) -> None:
    """What is enqueued stays there; when it is resumed, whoever sleeps is woken."""
    await any_concert.tasks.pause("q")
    await any_concert.tasks.pause("q")
    job = await any_concert.enqueue("t", queue="q")
    other = await any_concert.enqueue("t", queue="other")
    async with any_concert.consume("q", "other") as jobs:
        async with await anext(jobs) as claimed:
            assert claimed.id == other.id
        async with in_background(anext(jobs)) as waits:
            await asleep(any_concert)
            with anyio.move_on_after(0.1):
                await asyncio.wait([waits])
            assert not waits.done()
            with anyio.fail_after(SOON):
                await any_concert.tasks.resume("q")
                assert getattr(await waits, "id", None) == job.id
    assert not await raw(any_concert).exists(any_concert._jobs.partitions[0].paused)


async def test_stats_count_what_is_where(any_concert: Coordinator) -> None:
    """Of each queue that is asked for."""
    await bury(any_concert, count=2, queue="q")
    for number in range(5):
        await any_concert.enqueue("t", [number], queue="q", delay=0 if number < 3 else 60)
    delayed = await any_concert.enqueue("t", delay=60)
    for _ in range(3):
        await any_concert.enqueue("t", queue="q", after=[delayed])
    client: Any = raw(any_concert)
    keys = any_concert._jobs.partitions[0]
    await any_concert.tasks.pause("empty")
    async with any_concert.consume("q") as jobs:
        async with await anext(jobs):
            pass
        await jobs.claim(1)
        [oldest] = (await ledger_of(any_concert)).ready["q"]
        seconds, _ = await client.time()
        await raw(any_concert).hset(keys.bodies, oldest, f"{seconds - 60}000 {{}}")
        stats = await any_concert.tasks.stats("q", "empty")
    queue, empty = stats.queues["q"], stats.queues["empty"]
    assert (stats.workers, stats.dead) == (1, 2)
    assert (queue.ready, queue.delayed, queue.waiting, queue.running) == (1, 2, 3, 1)
    assert (queue.is_paused, queue.consumers, queue.finished) == (False, 1, 1)
    assert queue.oldest_age is not None
    assert 58 < queue.oldest_age < 65
    assert empty == QueueStats(
        ready=0,
        delayed=0,
        held_back=0,
        waiting=0,
        running=0,
        oldest_age=None,
        is_paused=True,
        consumers=0,
        finished=0,
    )
    assert isinstance(stats, TaskStats)
    await any_concert.tasks.resume("empty")
    for call in (any_concert.tasks.stats(""), any_concert.tasks.pause(""), any_concert.tasks.resume("")):
        with pytest.raises(InvalidName):
            await call


async def test_stats_count_the_jobs_of_thousands_of_workers(any_concert: Coordinator) -> None:
    """Asked some at a time."""
    keys, client = any_concert._jobs.partitions[0], raw(any_concert)
    for key in (keys.workers, keys.alive):
        await client.zadd(key, {f"session.{number}": 2e15 for number in range(2500)})
    pipeline = client.pipeline(transaction=False)
    for number in range(2500):
        pipeline.hset(
            keys.claimed(f"session.{number}"), mapping={"#": f"1 job{number}", f"job{number}": "1001 1 5000 q"}
        )
    await pipeline.execute()
    stats = await any_concert.tasks.stats("q")
    assert (stats.workers, stats.queues["q"].running) == (2500, 2500)


async def test_waiting_jobs_are_counted_until_they_wait_no_more(any_concert: Coordinator) -> None:
    """However that comes: they may run, one of the others failed, or they are cancelled."""
    good, bad = [await any_concert.enqueue("t", [number], max_attempts=1) for number in range(2)]
    children = [await any_concert.enqueue("t", after=after) for after in ([good], [good, bad], [good])]

    async def waiting() -> int:
        return (await any_concert.tasks.stats("default")).queues["default"].waiting

    assert await waiting() == 3
    await children[2].cancel()
    await children[2].cancel()
    assert await waiting() == 2
    async with any_concert.consume("default") as jobs:
        async with await anext(jobs):
            pass
        await status(any_concert, children[0], JobStatus.QUEUED)
        assert await waiting() == 1
        async with await anext(jobs):
            raise ValueError
        await status(any_concert, children[1], JobStatus.FAILED)
    assert await waiting() == 0
    assert not await raw(any_concert).exists(any_concert._jobs.partitions[0].waiting)


async def test_job_ends_promptly_for_one_who_waits(any_concert: Coordinator) -> None:
    """Enqueue, run, and read the result: a few round trips, no sleep anywhere."""

    @any_concert.task(name="t")
    async def task() -> None: ...

    async with in_background(any_concert.run_worker("default")):
        await (await task.enqueue()).result(timeout=SOON)
        started_at = time.monotonic()
        for _ in range(20):
            await (await task.enqueue()).result(timeout=SOON)
        assert time.monotonic() - started_at < SOON


# Bodies, backoffs and results that go wrong.


class Panic(BaseException):
    """What an extension may raise, and is no Exception."""


async def test_body_that_raises_what_is_no_exception_has_failed(any_concert: Coordinator) -> None:
    """It is not put back to be run again at once, again and again."""
    runs = 0

    @any_concert.task(name="t")
    async def task() -> None:
        nonlocal runs
        runs += 1
        raise Panic

    job = await task.enqueue()
    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="Panic"):
            await job.result(timeout=SOON)
    assert runs == 1


def _divide(failures: int) -> float:
    return failures / 0


def _go_back(failures: int) -> float:
    return -failures


@pytest.mark.parametrize("backoff", [_divide, _go_back])
async def test_backoff_that_fails_delays_the_job_as_usual(
    any_concert: Coordinator, backoff: Callable[[int], float]
) -> None:
    """The job is not stranded."""

    @any_concert.task(name="t", backoff=backoff)
    async def task() -> None:
        raise ValueError

    job = await task.enqueue()
    async with in_background(any_concert.run_worker("default")):

        async def is_delayed() -> bool:
            return await job.status() is JobStatus.DELAYED

        await eventually(is_delayed)


class Unwilling:
    """A result whose own way to JSON raises."""

    def model_dump(self, **options: object) -> object:
        raise KeyError(*options)


async def test_result_whose_encoder_fails_sets_the_job_aside(any_concert: Coordinator) -> None:
    """It has done its work; and it is not stranded."""

    @any_concert.task(name="t")
    async def task() -> Unwilling:
        return Unwilling()

    job = await task.enqueue()
    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="cannot be stored"):
            await job.result(timeout=SOON)


async def test_claim_that_is_cancelled_at_its_beginning_leaves_no_worker(any_concert: Coordinator) -> None:
    """Whose heartbeat would go on for nobody."""
    async with any_concert.consume("default") as jobs:
        for _ in range(3):
            claiming = asyncio.create_task(jobs.claim(1))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            claiming.cancel()
            await asyncio.wait([claiming])
    assert not any_concert._ref.session.renewal.is_needed
