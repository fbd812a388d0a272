"""What surrounds the workers of a process, and its value in their jobs."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import pytest

from inconcert import ClaimedJob, Coordinator, JobFailed, JobStatus, current_job
from inconcert.testing import drain
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.jobs import lapse_all
from tests.support.ledger import ledger_of
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease


class Surroundings:
    """A lifespan that notes what happens, and does what the test says."""

    def __init__(self, concert: Coordinator) -> None:
        self.events: list[str] = []
        self.may_begin = asyncio.Event()
        self.may_begin.set()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.breaks = asyncio.Event()  # in the middle
        self.is_ending = False
        self.count = 0
        self.on_start: Exception | None = None
        concert.lifespan(self.run)

        @concert.task(name="t", max_attempts=1)
        async def task(seconds: float = 0.0) -> int:
            self.events.append("job begins")
            try:
                await anyio.sleep(seconds)
            finally:
                self.events.append("job ends")
            number: int = current_job().state
            return number

        self.task = task

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[int]:
        self.events.append("begins")
        try:
            await self.may_begin.wait()
            if self.on_start is not None:
                raise self.on_start
            async with anyio.create_task_group() as group:
                group.start_soon(self._break)
                self.count += 1
                yield self.count
                group.cancel_scope.cancel()
            self.is_ending = True
            await self.may_end.wait()
        finally:
            self.events.append("ends")

    async def _break(self) -> None:
        await self.breaks.wait()
        raise LookupError("the pool is gone")


async def test_it_surrounds_all_jobs_which_get_its_value(any_concert: Coordinator) -> None:
    """It begins before the first, and ends after the last; the next worker has one of its own."""
    around = Surroundings(any_concert)
    for number in (1, 2):
        jobs = [await around.task.enqueue() for _ in range(2)]
        await any_concert.run_worker("default", concurrency=1, burst=True)
        assert [await job.result() for job in jobs] == [number, number]
        assert around.events == ["begins", *["job begins", "job ends"] * 2, "ends"]
        around.events.clear()


async def test_plain_function_and_middleware_get_its_value(any_concert: Coordinator) -> None:
    """A plain function in its thread."""
    around, seen = Surroundings(any_concert), list[Any]()

    @asynccontextmanager
    async def look(job: ClaimedJob) -> AsyncGenerator[None]:
        seen.append(job.state)
        yield

    any_concert.add_middleware(look)

    @any_concert.task(name="plain")
    def plain() -> int:
        number: int = current_job().state
        return number

    job = await plain.enqueue()
    await any_concert.run_worker("default", burst=True)
    assert (await job.result(), seen, around.count) == (1, [1], 1)


async def test_two_workers_of_a_process_share_it(any_concert: Coordinator) -> None:
    """It ends with the last of them, whichever began it."""
    around, first, second = Surroundings(any_concert), asyncio.Event(), asyncio.Event()
    around.may_begin.clear()
    async with (
        in_background(any_concert.run_worker("default", stop=first)) as one,
        in_background(any_concert.run_worker("other", stop=second)) as other,
    ):
        await eventually(lambda: around.events == ["begins"])
        around.may_begin.set()
        jobs = [await around.task.enqueue(), await around.task.options(queue="other").enqueue()]
        assert [await job.result(timeout=5) for job in jobs] == [1, 1]
        first.set()
        await one
        job = await around.task.options(queue="other").enqueue()
        assert await job.result(timeout=5) == 1
        assert "ends" not in around.events
        second.set()
        await other
    assert (around.events[-1], around.count) == ("ends", 1)


async def test_worker_that_comes_while_it_ends_waits_and_begins_another(any_concert: Coordinator) -> None:
    """Never two at once in a process: it may hold a port."""
    around, stop = Surroundings(any_concert), asyncio.Event()
    around.may_end.clear()
    async with in_background(any_concert.run_worker("default", stop=stop)) as one:
        await eventually(lambda: around.count == 1)
        stop.set()
        await eventually(lambda: around.is_ending)
        async with in_background(any_concert.run_worker("default", burst=True)) as other:
            await asyncio.sleep(0)
            assert around.events == ["begins"]
            around.may_end.set()
            await asyncio.wait([one, other])
    assert around.events == ["begins", "ends"] * 2


async def test_error_of_its_start_ends_the_worker_before_it_claims(any_concert: Coordinator) -> None:
    """The job waits, uncounted."""
    around = Surroundings(any_concert)
    around.on_start = LookupError("no model")
    job = await around.task.enqueue()
    with pytest.raises(LookupError, match="no model"):
        await any_concert.run_worker("default", burst=True)
    assert around.events == ["begins", "ends"]
    ledger = await ledger_of(any_concert)
    assert (ledger.ready, ledger.workers) == ({"default": [job.id]}, [])


async def test_error_of_its_start_ends_each_worker_that_waits_for_it(any_concert: Coordinator) -> None:
    """One start, and both raise."""
    around = Surroundings(any_concert)
    around.on_start = LookupError("no model")
    ended = await asyncio.gather(
        any_concert.run_worker("default", burst=True),
        any_concert.run_worker("other", burst=True),
        return_exceptions=True,
    )
    assert [type(error) for error in ended] == [LookupError, LookupError]
    assert around.events == ["begins", "ends"]


async def test_error_of_its_end_is_raised_when_all_jobs_have_ended(any_concert: Coordinator) -> None:
    """They are done all the same."""

    @any_concert.lifespan
    @asynccontextmanager
    async def lifespan() -> AsyncGenerator[None]:
        yield
        raise LookupError("at the end")

    @any_concert.task(name="t")
    async def task() -> None: ...

    job = await task.enqueue()
    with pytest.raises(LookupError, match="at the end"):
        await any_concert.run_worker("default", burst=True)
    assert await job.status() == JobStatus.SUCCEEDED


async def test_jobs_are_requeued_if_it_breaks_while_they_run(any_concert: Coordinator) -> None:
    """Its error is that of the worker; they are not counted."""
    around = Surroundings(any_concert)
    job = await around.task.enqueue(60)
    worker = asyncio.create_task(any_concert.run_worker("default"))
    await eventually(lambda: "job begins" in around.events)
    around.breaks.set()
    await asyncio.wait([worker], timeout=5)
    error = cast("ExceptionGroup[Exception]", worker.exception())
    assert [str(each) for each in error.exceptions] == ["the pool is gone"]
    assert around.events == ["begins", "job begins", "ends", "job ends"]
    ledger = await ledger_of(any_concert)
    assert (ledger.ready, ledger.failures, ledger.workers) == ({"default": [job.id]}, {}, [])


async def test_lifespan_that_ends_by_itself_ends_its_workers(any_concert: Coordinator) -> None:
    """Here it swallows the error of what it has started."""
    scopes: list[anyio.CancelScope] = []

    @any_concert.lifespan
    @asynccontextmanager
    async def lifespan() -> AsyncGenerator[None]:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            yield

    @any_concert.task(name="t")
    async def task() -> None:
        scopes[0].cancel()
        await anyio.sleep_forever()

    await task.enqueue()
    with pytest.raises(RuntimeError, match="the lifespan has ended while workers ran"):
        await any_concert.run_worker("default")


async def test_cancelled_worker_ends_it_after_its_jobs(any_concert: Coordinator) -> None:
    """As if it were left in order: what follows its `yield` runs."""
    around = Surroundings(any_concert)
    await around.task.enqueue(60)
    async with in_background(any_concert.run_worker("default")) as worker:
        await eventually(lambda: "job begins" in around.events)
        worker.cancel()
        await asyncio.wait([worker], timeout=5)
        assert worker.cancelled()
    assert around.events == ["begins", "job begins", "job ends", "ends"]


async def test_it_goes_on_when_jobs_of_it_are_lost(server: RealServer, namespace: str) -> None:
    """As after a freeze of the process: its worker begins anew under another id, in the same lifespan."""
    async with with_lease(Coordinator(server.url, namespace=namespace), 1.0) as concert:
        around = Surroundings(concert)
        job = await around.task.enqueue(60)
        async with in_background(concert.run_worker("default")):
            await eventually(lambda: "job begins" in around.events)
            await lapse_all(concert)
            await eventually(lambda: around.events.count("job begins") > 1)
            await job.cancel()
    assert around.events[:4] == ["begins", "job begins", "job ends", "job begins"]
    assert (around.events.count("begins"), around.events[-1]) == (1, "ends")


async def test_second_cancellation_cancels_its_end(any_concert: Coordinator) -> None:
    """An end that hangs does not hang the worker."""
    around = Surroundings(any_concert)
    around.may_end.clear()
    async with in_background(any_concert.run_worker("default")) as worker:
        await eventually(lambda: around.count == 1)
        worker.cancel()
        await eventually(lambda: around.is_ending)
        assert not worker.done()
        worker.cancel()
        await asyncio.wait([worker], timeout=5)
        assert worker.cancelled()
    assert around.events == ["begins", "ends"]


@pytest.mark.parametrize("how", ["cancelled", "stopped"])
async def test_worker_that_ends_while_it_begins_cancels_it(any_concert: Coordinator, how: str) -> None:
    """A stopped one returns, and has claimed nothing."""
    around, stop = Surroundings(any_concert), asyncio.Event()
    around.may_begin.clear()
    await around.task.enqueue()
    async with in_background(any_concert.run_worker("default", stop=stop)) as worker:
        await eventually(lambda: around.events == ["begins"])
        if how == "cancelled":
            worker.cancel()
        else:
            stop.set()
        await asyncio.wait([worker], timeout=5)
        assert worker.cancelled() == (how == "cancelled")
    assert around.events == ["begins", "ends"]


async def test_drain_enters_it_once(any_concert: Coordinator) -> None:
    """Around what it runs, in however many turns."""
    around = Surroundings(any_concert)

    @any_concert.task(name="first")
    async def first() -> None:
        await around.task.enqueue()

    await first.enqueue()
    await drain(any_concert)
    assert around.events == ["begins", "job begins", "job ends", "ends"]


async def test_job_outside_of_it_has_no_state(any_concert: Coordinator) -> None:
    """That of a worker without one, and one that is consumed."""

    @any_concert.task(name="bare", max_attempts=1)
    async def task() -> object:
        return current_job().state

    job = await task.enqueue()
    await any_concert.run_worker("default", burst=True)
    with pytest.raises(JobFailed, match="no lifespan surrounds this job"):
        await job.result()
    Surroundings(any_concert).events.clear()
    await any_concert.enqueue("t")
    async with any_concert.consume("default") as jobs:
        [claimed] = await jobs.try_claim(1)
        async with claimed:
            with pytest.raises(RuntimeError, match="no lifespan surrounds this job"):
                _ = claimed.state


async def test_what_is_not_a_lifespan_is_refused() -> None:
    """Before anything runs."""
    concert = Coordinator()

    async def generator() -> AsyncGenerator[None]:
        yield

    async def coroutine() -> None: ...

    @asynccontextmanager
    async def needy(name: str) -> AsyncGenerator[str]:
        yield name

    for wrong in (generator, coroutine, None):
        with pytest.raises(TypeError, match="put @asynccontextmanager of contextlib under"):
            concert.lifespan(wrong)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="cannot be called without arguments: missing a required argument: 'name'"):
        concert.lifespan(needy)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    concert.lifespan(asynccontextmanager(generator))
    with pytest.raises(RuntimeError, match="has a lifespan already; enter both in one"):
        concert.lifespan(asynccontextmanager(generator))
