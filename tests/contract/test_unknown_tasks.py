"""Jobs that a worker cannot run and another one may: it gives them back for a while."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from inconcert import Coordinator, JobFailed, JobStatus, Limit, current_job
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.jobs import make_due
from tests.support.ledger import ledger_of
from tests.support.raw import raw

HOUR = 3600.0


async def grace_passes(concert: Coordinator) -> None:
    """Let it be an hour ago that workers began to give jobs back, and let these be due."""
    unknown = concert._jobs.partitions[0].unknown
    for job_id in await raw(concert).zrange(unknown, 0, -1):
        await raw(concert).zincrby(unknown, -HOUR * 1000, job_id)
    await make_due(concert, "default")


@pytest.mark.parametrize(
    ("args", "kwargs"), [([1], {}), ([], {"text": "a"}), ([1, 2], {"text": "a"})], ids=["new", "keyword", "more"]
)
async def test_job_that_fits_no_task_here_runs_where_it_does(
    any_concert: Coordinator, elsewhere: Coordinator, args: list[Any], kwargs: Mapping[str, Any]
) -> None:
    """It was no attempt, and its place in the limit of its task was free meanwhile."""
    ran: list[int] = []

    @elsewhere.task(name="new", limit=Limit(1))
    async def new(*numbers: int, text: str = "") -> None:
        ran.append(current_job().attempt)

    if kwargs:

        @any_concert.task(name="new")
        async def old(number: int) -> None: ...

    job = await new.enqueue(*args, **kwargs)
    await any_concert.run_worker("default", burst=True)
    assert await job.status() is JobStatus.DELAYED
    await make_due(any_concert, "default")
    await elsewhere.run_worker("default", burst=True)
    assert (ran, await job.status()) == ([1], JobStatus.SUCCEEDED)


async def test_worker_gives_back_and_another_gets_it_soon(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """While both run: each job comes to the new one in the end, and none is dead-lettered."""

    @elsewhere.task(name="new")
    async def new() -> None: ...

    jobs = [await new.enqueue() for _ in range(4)]

    async def all_done() -> bool:
        await make_due(any_concert, "default")
        return not (await ledger_of(any_concert)).bodies

    async with (
        in_background(any_concert.run_worker("default", concurrency=2)),
        in_background(elsewhere.run_worker("default", concurrency=2)),
    ):
        await eventually(all_done, timeout=30)
    assert {await job.status() for job in jobs} == {JobStatus.SUCCEEDED}


async def test_worker_warns_once_of_each_task_that_it_does_not_know(
    any_concert: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    """However many jobs it gives back."""
    for name in ("one", "one", "other"):
        await any_concert.enqueue(name)
    with caplog.at_level(logging.WARNING, logger="inconcert.tasks"):
        await any_concert.run_worker("default", burst=True)
    warnings = [record.getMessage() for record in caplog.records if "given back" in record.getMessage()]
    assert sorted(warning.partition("task ")[2].partition(",")[0] for warning in warnings) == ["'one'", "'other'"]
    assert all("for 600 s at most: no task" in warning for warning in warnings)


async def test_job_is_dead_lettered_once_no_worker_could_run_it_for_the_grace(any_concert: Coordinator) -> None:
    """With the reason; and a replay gets the whole grace again."""
    job = await any_concert.enqueue("nobody's")
    await any_concert.run_worker("default", burst=True, unknown_task_grace=HOUR)
    await grace_passes(any_concert)
    await any_concert.run_worker("default", burst=True, unknown_task_grace=HOUR)
    with pytest.raises(JobFailed, match='UnknownTask: no task "nobody\'s" is registered'):
        await job.result(timeout=0)
    await any_concert.tasks.replay(job.id)
    await any_concert.run_worker("default", burst=True, unknown_task_grace=HOUR)
    assert await job.status() is JobStatus.DELAYED


async def test_unique_name_is_kept_while_its_job_is_given_back(any_concert: Coordinator) -> None:
    """Also one that is free when the job starts: it has not."""

    @any_concert.task(name="known")
    async def known(number: int) -> None: ...

    for name, args in (("unknown", [1]), ("known", [1, 2])):
        first = await any_concert.enqueue(name, args, unique=name, unique_until="started")
        await any_concert.run_worker("default", burst=True)
        again = await any_concert.enqueue(name, args, unique=name, unique_until="started")
        assert (again.id, again.created) == (first.id, False)


async def test_job_that_is_given_back_can_be_cancelled(any_concert: Coordinator) -> None:
    """While it waits for a worker that knows it."""
    job = await any_concert.enqueue("unknown")
    await any_concert.run_worker("default", burst=True)
    assert await job.cancel()
    assert await job.status() is JobStatus.CANCELLED
    assert not (await ledger_of(any_concert)).bodies


async def test_consumer_decides_itself_about_jobs_of_unknown_tasks(any_concert: Coordinator) -> None:
    """It may have no registered task at all."""
    await any_concert.enqueue("unknown", [1])
    async with any_concert.consume("default") as jobs:
        job = await anext(jobs)
        async with job:
            assert list(job.args) == [1]
    assert not (await ledger_of(any_concert)).bodies


async def test_explain_says_that_no_worker_knows_the_task(any_concert: Coordinator) -> None:
    """And when the next one claims it."""
    job = await any_concert.enqueue("unknown")
    async with in_background(any_concert.run_worker("default")):
        await eventually(lambda: raw(any_concert).zcard(any_concert._jobs.partitions[0].unknown))
        await any_concert.tasks.pause("default")
        found = await any_concert.explain(f"job:{job.id}")
    [text] = [reason.text for reason in found.reasons if reason.code == "unknown_task"]
    assert text.startswith("no worker that has claimed it knows task 'unknown', or one that takes its arguments")


@pytest.mark.parametrize("grace", [-1, float("nan"), "5"])
async def test_grace_is_a_number_of_seconds(any_concert: Coordinator, grace: Any) -> None:
    """Not below 0."""
    with pytest.raises(ValueError, match="unknown_task_grace"):
        await any_concert.run_worker("default", unknown_task_grace=grace)
