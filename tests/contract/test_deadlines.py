"""A body does not leave its worker from inside of a deadline, which nothing would keep while it is away."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import pytest

from inconcert import ClaimedJob, Coordinator, JobFailed, JobStatus, WrongState, durable
from inconcert.testing import drain
from tests.support.background import in_background
from tests.support.jobs import status
from tests.support.world import world

WITHIN = 10.0  # seconds

Leave = Callable[[], Coroutine[Any, Any, object]]


async def by_asyncio(leave: Leave) -> None:
    """As most write it."""
    async with asyncio.timeout(50):
        await leave()


async def by_wait_for(leave: Leave) -> None:
    """As it was written before Python 3.11."""
    await asyncio.wait_for(leave(), 50)


async def by_anyio(leave: Leave) -> None:
    """As anyio's users write it."""
    with anyio.fail_after(50):
        await leave()


async def by_scope(leave: Leave) -> None:
    """The block is left without an error."""
    with anyio.move_on_after(50):
        await leave()


async def by_own(leave: Leave) -> None:
    """In a context manager of theirs."""

    @asynccontextmanager
    async def soon() -> AsyncGenerator[None]:
        async with asyncio.timeout(50):
            yield

    async with soon():
        await leave()


async def of_caller(leave: Leave) -> None:
    """Around what calls it, also the innermost of two."""
    async with asyncio.timeout(500), asyncio.timeout(50):
        with anyio.fail_after(None):
            await partial(_twice_removed, leave)()


async def _twice_removed(leave: Leave) -> None:
    async with asyncio.timeout(None):
        await leave()


async def around_group(leave: Leave) -> None:
    """Around a group of tasks."""
    async with asyncio.timeout(50), asyncio.TaskGroup() as group:
        group.create_task(leave())


async def around_gather(leave: Leave) -> None:
    """Around several that run at once."""
    with anyio.fail_after(50):
        await asyncio.gather(leave())


async def around_generator(leave: Leave) -> None:
    """In what gives the items of a loop."""

    async def items() -> AsyncGenerator[object]:
        async with asyncio.timeout(50):
            yield await leave()

    async with aclosing(items()) as found:
        async for _ in found:
            pass


DEADLINES = [
    by_asyncio,
    by_wait_for,
    by_anyio,
    by_scope,
    by_own,
    of_caller,
    around_group,
    around_gather,
    around_generator,
]


async def sleep() -> None:
    """Leave to sleep."""
    await durable.sleep("packed", timedelta(days=7))


async def wait() -> None:
    """Leave to wait."""
    await durable.wait_for("packed", str, timeout=None)


@pytest.mark.parametrize("within", DEADLINES)
@pytest.mark.parametrize(("leave", "advice"), [(sleep, "sleep outside of it"), (wait, "give wait_for() a timeout=")])
async def test_body_does_not_leave_from_inside_of_a_deadline(
    any_concert: Coordinator, within: Callable[[Leave], Coroutine[Any, Any, None]], leave: Leave, advice: str
) -> None:
    """It is refused, with the deadline; the same body may leave once that block is left."""
    refused: list[WrongState] = []

    async def refuse() -> None:
        with pytest.raises(WrongState) as error:
            await leave()
        refused.append(error.value)

    @any_concert.task(max_attempts=1, time_limit=3600)
    async def body() -> None:
        await within(refuse)
        await leave()

    async with in_background(any_concert.run_worker("default")):
        job = await body.enqueue()
        await status(any_concert, job, JobStatus.DELAYED)
        [error] = refused
        assert (error.operation, error.kind, error.name) == ("wait_for" if leave is wait else "sleep", "job", job.id)
        assert "whose deadline in 5" in str(error) or "whose deadline in 4" in str(error)  # 50 s, less what it took
        assert f"would be lost; {advice}" in str(error)
        assert await job.cancel(timeout=WITHIN)


async def test_deadlines_elsewhere_keep_nobody_from_leaving(any_concert: Coordinator) -> None:
    """Neither the time limit, nor that of a middleware, nor one that is over, nor another task's."""

    @asynccontextmanager
    async def soon(job: ClaimedJob) -> AsyncGenerator[None]:
        del job
        async with asyncio.timeout(60):
            with anyio.fail_after(60):
                yield

    any_concert.add_middleware(soon)

    async def in_time() -> None:
        async with asyncio.timeout(60):
            await anyio.sleep_forever()

    @any_concert.task(max_attempts=1, time_limit=60)
    async def body() -> None:
        async with asyncio.timeout(60) as over, asyncio.timeout(60):
            await durable.sleep("short", 0.01)
        with anyio.fail_after(60) as scope:
            await durable.sleep("short too", 0.01)
        other = asyncio.create_task(in_time())
        try:
            await durable.sleep("long", timedelta(days=7))
        finally:
            other.cancel()
            assert over.when()
            assert scope.deadline

    async with in_background(any_concert.run_worker("default")):
        job = await body.enqueue()
        await status(any_concert, job, JobStatus.DELAYED)
        assert await job.cancel(timeout=WITHIN)


async def test_deadline_around_the_job_of_a_consumer_is_not_of_its_body(any_concert: Coordinator) -> None:
    """It goes on when the body has left: the block is not left with it."""

    @any_concert.task(max_attempts=1)
    async def body() -> None:
        raise NotImplementedError

    job = await body.enqueue()
    async with asyncio.timeout(WITHIN), any_concert.consume("default") as jobs:
        async for claimed in jobs:
            async with asyncio.timeout(60), claimed:
                await sleep()
            break
    assert await job.status() is JobStatus.DELAYED
    assert await job.cancel(timeout=WITHIN)


async def test_plain_function_leaves_within_its_time_limit(any_concert: Coordinator) -> None:
    """From its thread."""

    @any_concert.task(max_attempts=1, time_limit=60)
    def body() -> None:
        anyio.from_thread.run(sleep)

    async with in_background(any_concert.run_worker("default")):
        job = await body.enqueue()
        await status(any_concert, job, JobStatus.DELAYED)
        assert await job.cancel(timeout=WITHIN)


async def test_message_that_is_there_is_taken_within_a_deadline(any_concert: Coordinator) -> None:
    """The body does not leave then."""

    @any_concert.task(max_attempts=1)
    async def body() -> str:
        async with asyncio.timeout(50):
            return await durable.wait_for("packed", str, timeout=None)

    job = await body.enqueue()
    assert await job.send("packed", "box")
    async with in_background(any_concert.run_worker("default")):
        assert await job.result(timeout=WITHIN) == "box"


@pytest.mark.skipif(world().least_rights, reason="the user of the tests has no SCAN, which drain() sends")
async def test_deadline_keeps_a_body_from_sleeping_where_tests_end_its_sleeps(any_concert: Coordinator) -> None:
    """So that a test finds it."""

    @any_concert.task(max_attempts=1)
    async def body() -> None:
        async with asyncio.timeout(50):
            await sleep()

    await body.enqueue()
    with pytest.raises(WrongState, match=r"is inside of asyncio.timeout\(\)"):
        await drain(any_concert, delayed=True)


async def test_refused_body_fails_as_others_do(any_concert: Coordinator) -> None:
    """Unless it catches the error."""

    @any_concert.task(max_attempts=1)
    async def body() -> None:
        async with asyncio.timeout(50):
            await wait()

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match=r"WrongState.*asyncio.timeout\(\)"):
            await (await body.enqueue()).result(timeout=WITHIN)
