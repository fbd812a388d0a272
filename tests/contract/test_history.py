"""How the last jobs of a task have ended: one entry for each end, whatever ends it."""

import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, EndedJob, Job, JobFailed, JobStatus, Task, current_job, durable
from inconcert.tasks.records.store import JobKeys
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.jobs import facts
from tests.support.raw import raw
from tests.support.servers import RealServer

WITHIN = 10.0  # seconds
DAY_MS = 86_400_000


def works(concert: Coordinator, *queues: str) -> AbstractAsyncContextManager[Any]:
    """A worker."""
    return in_background(concert.run_worker(*queues or ("default",), unknown_task_grace=0))


def endings(history: Sequence[EndedJob]) -> list[tuple[str, str]]:
    """Which jobs, and how they ended, the latest first."""
    return [(ended.job_id, ended.outcome) for ended in history]


def register(concert: Coordinator, most: int = 100) -> Task[[str], Any]:
    """A task with a history, whose jobs end as their argument says."""

    @concert.task(name="ends", history=most, max_attempts=2, backoff=lambda _: 0.0)
    async def ends(how: str) -> None:
        if how == "fail":
            raise ValueError('it said "no", twice\n\\')
        if how == "retry" and current_job().attempt == 1:
            raise ValueError(how)
        if how == "run on":
            await anyio.sleep_forever()
        if how == "sleep":
            await durable.sleep("long", timedelta(days=1))

    return ends


async def ended(job: Job[Any]) -> None:
    """Wait until a job has ended, however."""
    with suppress(JobFailed):
        await job.result(timeout=WITHIN)


async def test_history_has_the_last_jobs_of_a_task_with_their_times_and_outcomes(any_concert: Coordinator) -> None:
    """The latest first; those of other tasks are not among them."""
    ends = register(any_concert)

    @any_concert.task(name="other", history=10)
    async def other() -> None: ...

    @any_concert.task(name="plain")
    async def plain() -> None: ...

    assert await ends.history() == []
    jobs: list[Job[Any]] = []
    async with works(any_concert):
        for how in ("succeed", "retry", "fail"):
            jobs.append(await ends.enqueue(how))
            await ended(jobs[-1])
            await (await other.enqueue()).result(timeout=WITHIN)
            await (await plain.enqueue()).result(timeout=WITHIN)
    late = await ends.options(delay=60).enqueue("succeed")
    assert await late.cancel()

    found = await ends.history()
    assert endings(found) == [
        (late.id, JobStatus.CANCELLED),
        (jobs[2].id, JobStatus.FAILED),
        (jobs[1].id, JobStatus.SUCCEEDED),
        (jobs[0].id, JobStatus.SUCCEEDED),
    ]
    assert [each.attempts for each in found] == [0, 2, 2, 1]
    assert [each.error for each in found] == [None, 'ValueError: it said "no", twice\n\\', None, None]
    assert found[0].began_at is None
    for each in found[1:]:
        assert each.began_at is not None
        assert each.enqueued_at <= each.began_at <= each.ended_at <= found[0].ended_at
    assert endings(await ends.history(limit=2)) == endings(found[:2])
    assert await any_concert.tasks.history("ends", limit=2) == found[:2]
    assert await any_concert.tasks.history("plain") == await any_concert.tasks.history("nobody knows it") == []
    assert len(await other.history()) == 3


@pytest.mark.parametrize("how", ["queued", "delayed", "waiting", "asleep", "dependant", "at once", "expired", "undone"])
async def test_each_way_to_end_is_in_the_history_once(concert: Coordinator, how: str) -> None:
    """Before it ran, between attempts, and because of another job."""
    ends = register(concert)

    @concert.task(name="undone", history=5, max_attempts=1)
    async def undone() -> None:
        async with durable.undo():
            raise ValueError("no")

    parent = await concert.enqueue("nobody knows it", queue="elsewhere")
    match how:
        case "queued":
            job: Job[Any] = await ends.enqueue("succeed")
            await job.cancel()
        case "delayed":
            job = await ends.options(delay=60).enqueue("succeed")
            await concert.tasks.cancel_all(task="ends")
        case "waiting":
            job = await ends.options(after=[parent]).enqueue("succeed")
            await job.cancel()
        case "asleep":
            job = await ends.enqueue("sleep")
            async with works(concert):

                async def sleeps() -> bool:
                    return await job.status() is JobStatus.DELAYED

                await eventually(sleeps)
            await job.cancel()
        case "dependant":
            job = await ends.options(after=[parent]).enqueue("succeed")
            async with works(concert, "elsewhere"):
                await ended(job)
        case "at once":
            job = await ends.options(after=["0123456789abcdef.1.0"]).enqueue("succeed")
        case "expired":
            job = await ends.options(expires=0).enqueue("succeed")
            async with works(concert):
                await ended(job)
        case _:
            job = await undone.enqueue()
            async with works(concert):
                await ended(job)
    outcome = JobStatus.CANCELLED if how in {"queued", "delayed", "waiting", "asleep"} else JobStatus.FAILED
    [found] = await (undone if how == "undone" else ends).history()
    assert (found.job_id, found.outcome) == (job.id, outcome)
    assert (found.error is None) == (outcome is JobStatus.CANCELLED)
    assert (found.began_at is None) == (how not in {"expired", "undone"})
    await parent.cancel()


async def test_job_that_is_cancelled_before_another_attempt_has_those_that_failed(concert: Coordinator) -> None:
    """They are counted, and nothing of them is left."""

    @concert.task(name="fails", history=10, backoff=lambda _: 60.0)
    async def fails() -> None:
        raise ValueError("no")

    async with works(concert):
        job = await fails.enqueue()
        await eventually(partial(_is, job, JobStatus.DELAYED))
    assert await job.cancel()
    [entry] = await fails.history()
    assert (entry.job_id, entry.outcome, entry.attempts) == (job.id, JobStatus.CANCELLED, 1)
    assert await facts(concert) == {}


async def _is(job: Job[Any], status: JobStatus) -> bool:
    return await job.status() is status


async def test_job_that_is_cancelled_while_it_runs_ends_once(concert: Coordinator) -> None:
    """When its body was left."""
    ends = register(concert)
    job = await ends.enqueue("run on")
    async with works(concert):

        async def runs() -> bool:
            return await job.status() is JobStatus.RUNNING

        await eventually(runs)
        await job.cancel()

        async def has_ended() -> bool:
            return await job.status() is JobStatus.CANCELLED

        await eventually(has_ended)
    [found] = await ends.history()
    assert (found.job_id, found.outcome, found.attempts) == (job.id, JobStatus.CANCELLED, 1)
    assert found.began_at is not None


async def test_replayed_job_is_in_the_history_for_each_of_its_ends(any_concert: Coordinator) -> None:
    """Also with other arguments."""
    ends = register(any_concert)
    job = await ends.enqueue("fail")
    async with works(any_concert):
        await ended(job)
        await any_concert.tasks.replay(job.id)
        await ended(job)
        await any_concert.tasks.replay(job.id, args=["succeed"])
        await ended(job)
    found = await ends.history()
    assert [each.outcome for each in found] == [JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.FAILED]
    assert {each.job_id for each in found} == {job.id}
    assert found[0].enqueued_at > found[1].enqueued_at > found[2].enqueued_at


async def test_jobs_of_schedules_are_in_the_history(concert: Coordinator) -> None:
    """Of those in code, and of those on the server."""
    ends = register(concert)

    @concert.cron(every=3600)
    @concert.task(name="nightly", history=5)
    async def nightly() -> None: ...

    await concert.schedules.put("hourly", ends.call("succeed"), every=3600)
    async with works(concert):

        async def are_listed() -> bool:
            return len(await concert.schedules.list()) == 2

        await eventually(are_listed)
        jobs = {each.task: await concert.schedules.trigger(each.id) for each in await concert.schedules.list()}
        for job in jobs.values():
            await job.result(timeout=WITHIN)
    assert endings(await ends.history()) == [(jobs["ends"].id, JobStatus.SUCCEEDED)]
    assert endings(await nightly.history()) == [(jobs["nightly"].id, JobStatus.SUCCEEDED)]


async def test_only_the_latest_are_kept(any_concert: Coordinator) -> None:
    """As many as the task says now: a smaller number drops the others, some with each end."""
    ends = register(any_concert, most=300)
    jobs = await any_concert.enqueue_many([ends.call("succeed") for _ in range(305)])
    async with works(any_concert):
        for job in jobs:
            await job.result(timeout=WITHIN)
    found = await ends.history(limit=10_000)
    assert len(found) == 300
    assert [each.job_id for each in reversed(found)] == [job.id for job in jobs[5:]]

    ends.defaults = replace(ends.defaults, history=3)
    fewer = await any_concert.enqueue_many([ends.options(queue="default").call("succeed") for _ in range(4)])
    async with works(any_concert):
        for job in fewer:
            await job.result(timeout=WITHIN)
    assert [each.job_id for each in await ends.history()] == [job.id for job in reversed(fewer[1:])]


async def test_history_is_merged_over_partitions(server: RealServer, namespace: str) -> None:
    """By when they ended."""
    async with Coordinator(server.url, namespace=namespace, partitions=3) as spread:
        ends = register(spread)
        jobs: list[Job[Any]] = []
        async with works(spread):
            for _ in range(40):  # all partitions are met, but for once in some million runs
                jobs.append(await ends.enqueue("succeed"))
                await jobs[-1].result(timeout=WITHIN)
        assert len({job.id.rpartition(".")[2] for job in jobs}) == 3
        found = await ends.history()
        assert {each.job_id for each in found} == {job.id for job in jobs}
        times = [each.ended_at for each in found]
        assert times == sorted(times, reverse=True)
        assert [each.ended_at for each in await ends.history(limit=5)] == times[:5]


async def test_end_of_a_job_that_is_delivered_at_most_once_or_has_followers_is_in_the_history(
    any_concert: Coordinator,
) -> None:
    """Their ends are other calls."""
    ends = register(any_concert)

    @any_concert.task(name="leads", history=5)
    async def leads() -> None:
        current_job().enqueue_on_success(ends.call("succeed"))

    first = await ends.enqueue("succeed")
    async with any_concert.consume("default", delivery="at_most_once") as jobs, await anext(jobs):
        assert endings(await ends.history()) == [(first.id, JobStatus.SUCCEEDED)]
    last = await leads.enqueue()
    await any_concert.run_worker("default", burst=True)
    assert endings(await leads.history()) == [(last.id, JobStatus.SUCCEEDED)]
    assert len(await ends.history()) == 2


async def test_job_of_a_task_without_history_is_stored_and_ended_as_before(any_concert: Coordinator) -> None:
    """Neither its row nor a command is larger, but for one empty argument. One by name gets the history of its task."""
    ends = register(any_concert)

    @any_concert.task(name="plain")
    async def plain() -> None: ...

    keys: JobKeys = any_concert._jobs.partitions[0]
    client: Any = raw(any_concert)
    job = await plain.enqueue()
    body = await client.hget(any_concert._jobs.of_id(job.id).bodies, job.id)
    assert body.partition(b" ")[2].startswith(b'{"name":"plain",')
    assert b"history" not in body
    await any_concert.run_worker("default", burst=True)
    assert not await client.exists(keys.history)
    by_name = await any_concert.enqueue("ends", ["succeed"])
    await any_concert.run_worker("default", burst=True)
    assert endings(await ends.history()) == [(by_name.id, JobStatus.SUCCEEDED)]
    with pytest.raises(ValueError, match=r"task 'plain' keeps no history; give @concert.task a history="):
        await plain.history()


async def test_history_that_nobody_adds_to_is_dropped(any_concert: Coordinator) -> None:
    """Its key has an end; and the entries of tasks that are gone leave it after 90 days, as jobs of others end."""
    client: Any = raw(any_concert)
    ends = register(any_concert).options(unique="one name")
    keys: JobKeys = any_concert._jobs.draw("1.1", "one name")[1]

    async def end_ten() -> list[bytes]:
        for _ in range(10):
            await ends.enqueue("succeed")
            await any_concert.run_worker("default", burst=True)
        entries: list[bytes] = await client.zrange(keys.history, 0, -1)
        return entries

    now_ms = round(time.time() * 1000)
    times = {"old": now_ms - 91 * DAY_MS, "young": now_ms - 89 * DAY_MS}
    for task in ("00", "ff"):  # before and after that of this task
        for number, (what, ended_ms) in enumerate(times.items()):
            await client.zadd(keys.history, {f"{task} {number:012} cancelled {ended_ms} 1 1 1 {task}-{what} ": 0})
    entries = await end_ten()
    left = b" ".join(entries)
    assert [job in left for job in (b"00-old", b"00-young", b"ff-old", b"ff-young")] == [True, True, False, True]
    await client.zrem(keys.history, *(entry for entry in entries if b"ff-young" in entry))
    left = b" ".join(await end_ten())
    assert (b"00-old" in left, b"00-young" in left) == (False, True)
    assert 89 * DAY_MS < await client.pttl(keys.history) <= 90 * DAY_MS


async def test_ends_stay_in_order_though_the_clock_goes_back(any_concert: Coordinator) -> None:
    """What ended last stays when the others are dropped."""
    client: Any = raw(any_concert)
    ends = register(any_concert, most=2)
    jobs: list[Job[Any]] = [await ends.options(unique="one name").enqueue("succeed")]
    keys: JobKeys = any_concert._jobs.of_id(jobs[0].id)
    await any_concert.run_worker("default", burst=True)
    [entry] = [text.decode() for text in await client.zrange(keys.history, 0, -1)]
    parts = entry.split(" ")
    parts[3] = str(int(parts[3]) + DAY_MS)  # it ended tomorrow
    await client.zrem(keys.history, entry)
    await client.zadd(keys.history, {" ".join(parts): 0})
    for _ in range(2):
        jobs.append(await ends.options(unique="one name").enqueue("succeed"))
        await any_concert.run_worker("default", burst=True)
    assert {each.job_id for each in await ends.history()} == {job.id for job in jobs[1:]}


async def test_entry_that_is_not_ours_is_left_out(any_concert: Coordinator) -> None:
    """And so is its error."""
    client: Any = raw(any_concert)
    ends = register(any_concert)
    job = await ends.enqueue("fail")
    keys: JobKeys = any_concert._jobs.of_id(job.id)
    await any_concert.run_worker("default", burst=True)
    [entry] = await client.zrange(keys.history, 0, -1)
    task = entry.split()[0]
    await client.zadd(keys.history, {task + b" x": 0, task + b" 000000000009 failed 1 1  1 job not JSON": 0})
    found = await ends.history()
    assert [(each.job_id, each.error) for each in found[1:]] == [("job", "the reason cannot be read")]
    assert len(found) == 2


@pytest.mark.parametrize("history", [-1, 10_001, 1.5, True, "1"])
async def test_bad_number_is_refused_before_anything_is_sent(concert: Coordinator, history: Any) -> None:
    """When the task is declared, and when its history is read."""
    with pytest.raises(ValueError, match=r"history is .*; give a whole number from 0 to 10,000"):
        concert.task(name="ends", history=history)(lambda: None)
    ends = register(concert)
    with pytest.raises(ValueError, match=r"limit is .*; give a whole number from 1 to 10,000"):
        await ends.history(limit=history)
