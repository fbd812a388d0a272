"""Jobs that expire where no worker claims them are ended, and those that wait for them are told."""

from collections.abc import Sequence
from typing import Any

import pytest

from inconcert import Coordinator, Job, JobFailed, JobStatus, Limit
from inconcert.tasks.records.store import END_EXPIRED, JobKeys
from inconcert.tasks.running import expiry as expiry_module
from inconcert.tasks.running import served_queues as served_module
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.ledger import ledger_of
from tests.support.raw import raw
from tests.support.undo import mark

SOON = 0.05  # seconds


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers look a hundred times a second."""
    monkeypatch.setattr(served_module, "_SHORTEST_PAUSE", 0.01)
    monkeypatch.setattr(served_module, "_LONGEST_PAUSE", 0.01)


async def end_expired(concert: Coordinator, jobs: Sequence[Job[Any]], *, name: str = "q") -> list[str]:
    """Run the script for these jobs of queue `q`; the ids of those that it ended."""
    keys, session = JobKeys(concert._ref.keys), concert._ref.session
    command = END_EXPIRED(
        keys, keys.queue("q"), inboxes=session.inboxes(keys.bodies), name=name, ids=[job.id for job in jobs]
    )
    looked, _, *ended = await session.run(command)
    assert looked == len(jobs)
    return [id_.decode() for id_ in ended]


async def make_old(concert: Coordinator, job: Job[Any]) -> None:
    """Let a job have been enqueued in 1970."""
    client, bodies = raw(concert), JobKeys(concert._ref.keys).bodies
    _, _, rest = (await client.hget(bodies, job.id)).partition(b" ")
    await client.hset(bodies, job.id, b"1000000000000 " + rest)


@pytest.mark.parametrize("priority", [0, 5])
async def test_job_that_expires_in_a_paused_queue_is_ended(any_concert: Coordinator, priority: int) -> None:
    """Its waiter is told, and so are jobs that run after it; the others stay, whatever their arguments."""

    @any_concert.task(name="t", queue="q", priority=priority)
    async def task(about: dict[str, float]) -> dict[str, float]:
        return about

    await any_concert.tasks.pause("q")
    others = [await task.enqueue({"expires": 0}), await task.options(expires=3600).enqueue({"expires": 0})]
    late = await task.options(expires=SOON).enqueue({})
    child = await task.options(after=[late]).enqueue({})
    async with in_background(any_concert.run_worker("q")):
        with pytest.raises(JobFailed) as failed:
            await late.result(timeout=10)
        assert (
            failed.value.reason
            == f"JobExpired: job {late.id} was not started within 0.05 s; replay it if it is still wanted"
        )
        with pytest.raises(JobFailed, match="its parent"):
            await child.result(timeout=10)
        assert [await job.status() for job in others] == [JobStatus.QUEUED] * 2
        await any_concert.tasks.resume("q")
        assert [await job.result(timeout=10) for job in others] == [{"expires": 0}] * 2
    ledger = await ledger_of(any_concert)
    assert sorted(ledger.dead) == sorted([late.id, child.id])


async def test_job_with_a_deadline_ends_so_too_in_a_paused_queue(any_concert: Coordinator) -> None:
    """Its reason is the deadline, whether it has begun or not."""

    @any_concert.task(name="t", queue="q")
    async def task() -> None: ...

    await any_concert.tasks.pause("q")
    job = await task.options(deadline=SOON).enqueue()
    async with in_background(any_concert.run_worker("q")):
        with pytest.raises(JobFailed) as failed:
            await job.result(timeout=10)
    assert (
        failed.value.reason == f"JobExpired: job {job.id} was not done within 0.05 s; replay it if it is still wanted"
    )


@pytest.mark.parametrize("delay", [0, 3600])
async def test_job_that_expires_in_a_queue_that_nobody_serves_is_ended(any_concert: Coordinator, delay: float) -> None:
    """By a worker of other queues, also if it is delayed for longer."""

    @any_concert.task(name="t", queue="low")
    async def task() -> None: ...

    late = await task.options(expires=SOON, delay=delay).enqueue()
    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="JobExpired"):
            await late.result(timeout=10)


async def test_job_that_expires_while_it_waits_for_others_is_ended(any_concert: Coordinator) -> None:
    """It does not run when they have ended, and is counted among the waiting no more."""
    ran: list[str] = []

    @any_concert.task(name="t", queue="q")
    async def task(name: str) -> None:
        ran.append(name)

    await any_concert.tasks.pause("q")
    parent = await task.enqueue("parent")
    late = await task.options(after=[parent], expires=SOON).enqueue("late")
    child = await task.options(after=[late]).enqueue("child")
    patient = await task.options(after=[parent], expires=3600).enqueue("patient")
    async with in_background(any_concert.run_worker("q")):
        for job, reason in (late, "JobExpired"), (child, "its parent"):
            with pytest.raises(JobFailed, match=reason):
                await job.result(timeout=10)
        assert (await any_concert.tasks.stats("q")).queues["q"].waiting == 1
        await any_concert.tasks.resume("q")
        await patient.result(timeout=10)
    assert ran == ["parent", "patient"]
    assert sorted((await ledger_of(any_concert)).dead) == sorted([late.id, child.id])


async def test_delay_that_begins_when_others_have_ended_is_cut(any_concert: Coordinator) -> None:
    """Nobody waits for a job longer than it may wait itself."""

    @any_concert.task(name="t", queue="q")
    async def task() -> None: ...

    parent = await task.enqueue()
    late = await task.options(after=[parent], delay=3600, expires=1).enqueue()
    patient = await task.options(after=[parent], delay=3600, expires=7200).enqueue()
    async with in_background(any_concert.run_worker("q")):
        await parent.result(timeout=10)
        with pytest.raises(JobFailed, match="JobExpired"):
            await late.result(timeout=10)
        assert await patient.status() is JobStatus.DELAYED


async def test_ids_that_wait_are_not_looked_for_in_a_queue(any_concert: Coordinator) -> None:
    """They may have left for another, however long this one is."""
    job = await any_concert.enqueue("t", queue="q", expires=3600)
    await make_old(any_concert, job)
    assert await end_expired(any_concert, [job], name="") == []
    assert await end_expired(any_concert, [job]) == [job.id]


async def test_replayed_job_runs_once(any_concert: Coordinator) -> None:
    """Nothing of it has stayed in the queue."""
    ran: list[int] = []

    @any_concert.task(name="t", queue="q")
    async def task() -> None:
        ran.append(1)

    await any_concert.tasks.pause("q")
    job = await task.options(expires=3600).enqueue()
    await make_old(any_concert, job)
    assert await end_expired(any_concert, [job]) == [job.id]
    assert await end_expired(any_concert, [job]) == []
    await any_concert.tasks.replay(job.id)
    assert await end_expired(any_concert, [job]) == []
    await any_concert.tasks.resume("q")
    await any_concert.run_worker("q", burst=True)
    assert ran == [1]


async def test_all_that_has_expired_is_found_in_portions(
    any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of them stay."""
    monkeypatch.setattr(expiry_module, "_AT_ONCE", 2)
    await any_concert.tasks.pause("q")
    lives = [3600, SOON, 3600, 3600, SOON, SOON, SOON]
    jobs = [await any_concert.enqueue("t", queue="q", expires=expires) for expires in lives]
    async with in_background(any_concert.run_worker("q")):

        async def are_ended() -> bool:
            return [await job.status() for job in jobs] == [
                JobStatus.FAILED if expires == SOON else JobStatus.QUEUED for expires in lives
            ]

        await eventually(are_ended)


async def test_job_that_may_be_about_to_take_a_place_is_left_to_its_claim(any_concert: Coordinator) -> None:
    """While others are in the line of a limit; a job alone is ended."""

    @any_concert.task(name="t", queue="q", limit=Limit(1))
    async def task() -> None: ...

    job = await task.options(expires=3600).enqueue()
    await make_old(any_concert, job)
    assert await end_expired(any_concert, [job]) == [job.id]
    await task.enqueue()
    async with any_concert.consume("q") as jobs:
        [first] = await jobs.claim(1)
        await task.enqueue()
        assert await jobs.try_claim(1) == []  # it is in line
        late = await task.options(expires=3600).enqueue()
        await make_old(any_concert, late)
        assert await end_expired(any_concert, [late]) == []
        await first.ack()
    await any_concert.run_worker("q", burst=True)
    with pytest.raises(JobFailed, match="JobExpired"):
        await late.result(timeout=10)


async def test_envelopes_that_cannot_be_read_do_not_hide_others(any_concert: Coordinator) -> None:
    """Broken, or nested too deep: the worker that claims them says so."""
    late, *odd = [await any_concert.enqueue("t", queue="q", expires=3600) for _ in range(3)]
    await make_old(any_concert, late)
    deep = b"[" * 2000 + b"]" * 2000
    for job, text in zip(odd, (b'{"expires":', b'{"args":%b,"expires":1}' % deep), strict=True):
        await raw(any_concert).hset(JobKeys(any_concert._ref.keys).bodies, job.id, b"1 " + text)
    assert await end_expired(any_concert, [*odd, late]) == [late.id]


async def test_large_jobs_are_looked_at_a_few_at_a_time(any_concert: Coordinator) -> None:
    """Until they have 1 MiB; all are ended in one turn."""
    await any_concert.tasks.pause("q")
    jobs = [await any_concert.enqueue("t", ["x" * 600_000], queue="q", expires=SOON) for _ in range(5)]
    async with in_background(any_concert.run_worker("q")):
        for job in jobs:
            with pytest.raises(JobFailed, match="JobExpired"):
                await job.result(timeout=10)


@pytest.mark.parametrize("undo", ["", "-", "cancelled "])
async def test_job_rescheduled_beyond_its_end_is_due_then(any_concert: Coordinator, undo: str) -> None:
    """Unless it is being undone, which has no end; not if it only has something to undo."""
    client, keys = raw(any_concert), JobKeys(any_concert._ref.keys)
    job = await any_concert.enqueue("t", queue="q", expires=60, delay=10)
    if undo:
        await mark(any_concert, job.id, undo)
    assert await job.reschedule(delay=3600)
    seconds, microseconds = await client.time()
    due_in = await client.zscore(keys.queue("q").delayed, job.id) / 1000 - seconds - microseconds / 1e6
    assert 3500 < due_in <= 3600 if undo == "cancelled " else 50 < due_in <= 60.01
