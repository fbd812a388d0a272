"""A task that is a plain function: in its thread it may report how far it is, and see that it is to stop."""

import asyncio
import threading
import time
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import pytest

from inconcert import ClaimedJob, Coordinator, JobCancelled, JobFailed, JobStatus, NotConnected, Progress, current_job
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.jobs import status

WITHIN = 10.0  # seconds


def until_told(job: ClaimedJob) -> str:
    """Work until the job says that it is to stop."""
    deadline = time.monotonic() + WITHIN
    while time.monotonic() < deadline:
        if job.is_cancelled:
            return "told"
        time.sleep(0.001)
    return "never told"


class Coop:
    """What a plain function saw."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.saw = ""

    def run(self) -> str:
        """The body."""
        job = current_job()
        assert not job.is_cancelled
        self.began.set()
        self.saw = until_told(job)
        return self.saw


@pytest.fixture
def coop() -> Coop:
    """A new one."""
    return Coop()


async def test_plain_function_sees_that_its_job_is_cancelled(any_concert: Coordinator, coop: Coop) -> None:
    """The job is cancelled then, whatever it returns."""
    task = any_concert.task(name="t")(coop.run)
    async with in_background(any_concert.run_worker("default")):
        job = await task.enqueue()
        await eventually(coop.began.is_set, timeout=WITHIN)
        assert await job.cancel(timeout=WITHIN)
        with pytest.raises(JobCancelled):
            await job.result(timeout=WITHIN)
    assert coop.saw == "told"


async def test_plain_function_sees_that_it_is_past_its_time_limit(any_concert: Coordinator, coop: Coop) -> None:
    """What it returns counts."""
    task = any_concert.task(name="t", time_limit=0.05)(coop.run)
    async with in_background(any_concert.run_worker("default")):
        assert await (await task.enqueue()).result(timeout=WITHIN) == "told"


@pytest.mark.parametrize("way", ["stop", "cancel"])
async def test_plain_function_sees_that_its_worker_ends(any_concert: Coordinator, coop: Coop, way: str) -> None:
    """Once the grace is over; what it returns counts."""
    task, stop = any_concert.task(name="t")(coop.run), asyncio.Event()
    working = asyncio.create_task(any_concert.run_worker("default", stop=stop, grace=0))
    job = await task.enqueue()
    await eventually(coop.began.is_set, timeout=WITHIN)
    if way == "stop":
        stop.set()
        await working
    else:
        working.cancel()
        await asyncio.wait([working])
    assert await job.status() is JobStatus.SUCCEEDED
    assert coop.saw == "told"


async def test_plain_function_sees_that_its_worker_was_presumed_dead(any_concert: Coordinator, coop: Coop) -> None:
    """Another may run it by now."""
    task = any_concert.task(name="t")(coop.run)
    job = await task.enqueue()
    async with any_concert.consume("default") as jobs:
        claimed = await anext(jobs)
        async with claimed:
            seeing = asyncio.create_task(anyio.to_thread.run_sync(coop.run))
            await eventually(coop.began.is_set, timeout=WITHIN)
            [worker] = [each.worker for each in jobs._opened._partitions]  # type: ignore[union-attr]
            assert worker is not None
            worker.lose()
            await seeing
    assert coop.saw == "told"
    await job.cancel()


async def test_plain_function_reports_its_progress(any_concert: Coordinator) -> None:
    """It has returned only when that is kept; it may be awaited nevertheless, and refuses what is wrong."""
    found: list[object] = []

    @any_concert.task(max_attempts=1)
    def work() -> str:
        job = current_job()
        job.progress(0.25, "a quarter")
        found.append(anyio.from_thread.run(concert_progress, job.id))
        anyio.from_thread.run(_report, job)
        found.append(anyio.from_thread.run(concert_progress, job.id))
        with pytest.raises(ValueError, match="from 0 to 1"):
            job.progress(2)
        with pytest.raises(NotConnected, match="another event loop"):
            asyncio.run(_report(job))
        return "done"

    async def concert_progress(job_id: str) -> object:
        return await any_concert.tasks.job(job_id).progress()

    async with in_background(any_concert.run_worker("default")):
        assert await (await work.enqueue()).result(timeout=WITHIN) == "done"
    assert found == [Progress(0.25, "a quarter"), Progress(0.5, "")]


async def _report(job: ClaimedJob) -> None:
    await job.progress(0.5)


async def test_any_thread_of_a_body_reports_its_progress(any_concert: Coordinator) -> None:
    """Also one that asyncio has started."""

    async def body() -> object:
        await asyncio.to_thread(partial(current_job().progress, 0.75))
        await asyncio.to_thread(_with_await, current_job())
        return await any_concert.tasks.job(current_job().id).progress()

    task: Any = any_concert.task(name="t", max_attempts=1)(body)
    async with in_background(any_concert.run_worker("default")):
        assert await (await task.enqueue()).result(timeout=WITHIN) == {"fraction": 1.0, "text": ""}


def _with_await(job: ClaimedJob) -> None:
    done = job.progress(1)
    assert list(done.__await__()) == []


async def test_progress_that_fails_fails_the_plain_function(any_concert: Coordinator) -> None:
    """As in a coroutine."""

    @any_concert.task(max_attempts=1)
    def work() -> None:
        current_job().progress(-1)

    async with in_background(any_concert.run_worker("default")):
        job = await work.enqueue()
        with pytest.raises(JobFailed, match=r"ValueError: the progress of job"):
            await job.result(timeout=WITHIN)
        await status(any_concert, job, JobStatus.FAILED)


def test_method_is_not_a_task() -> None:
    """There is no object to call it on; a function in a class may be one, and so may a bound method."""
    concert = Coordinator("redis://localhost")

    with pytest.raises(TypeError, match="is a method, and a job has no object to call it on"):

        class _Shop:  # pyright: ignore[reportUnusedClass] - it is refused
            @concert.task
            async def sell(self, what: str) -> str:
                return what

    class Fine:
        @staticmethod
        @concert.task(name="static")
        async def sell(what: str) -> str:
            return what

        async def buy(self, what: str) -> str:
            return what

    assert Fine.sell.name == "static"
    assert concert.task(name="bound")(Fine().buy).name == "bound"
