"""A job that waits for a job takes a place: a worker that has no other place left says so."""

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Any

import pytest

from inconcert import Coordinator, Job
from inconcert.tasks.following import blocked_worker
from inconcert.tasks.following.blocked_worker import BodyWait
from tests.support.background import in_background
from tests.support.eventually import eventually

PLACES = 2


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look soon, and often."""
    monkeypatch.setattr(blocked_worker, "_PATIENCE", 0.05)
    monkeypatch.setattr(blocked_worker, "RECHECK_AFTER", 0.05)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each look of a job that waits at its worker."""
    looks: list[None] = []
    look = BodyWait.look

    async def noted(wait: BodyWait) -> float:
        seconds = await look(wait)
        looks.append(None)
        return seconds

    monkeypatch.setattr(BodyWait, "look", noted)
    return looks


def tasks_of(concert: Coordinator, *, queue: str = "default") -> Any:
    """A task that waits for a job of this queue, which waits for `go_on`."""
    go_on = asyncio.Event()

    @concert.task(name="inner", queue=queue)
    async def inner() -> int:
        await go_on.wait()
        return 7

    @concert.task(name="outer")
    async def outer() -> int:
        return await (await inner.enqueue()).result()

    return outer, go_on


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings about a worker that stands still."""
    return [record.getMessage() for record in caplog.records if "stands still" in record.getMessage()]


async def results(jobs: list[Job[int]]) -> list[int]:
    """All of them, soon."""
    return await asyncio.wait_for(asyncio.gather(*(job.result() for job in jobs)), 10)


async def test_worker_full_of_jobs_that_wait_for_its_own_queues_says_so_once(
    concert: Coordinator, elsewhere: Coordinator, caplog: pytest.LogCaptureFixture, looks: list[None]
) -> None:
    """With both jobs of each place, and what to do; and it goes on when another worker serves the queue."""
    outer, go_on = tasks_of(concert)
    tasks_of(elsewhere)[1].set()
    go_on.set()
    jobs = [await outer.enqueue() for _ in range(PLACES)]
    with caplog.at_level(logging.WARNING, "inconcert.tasks"):
        async with in_background(concert.run_worker("default", concurrency=PLACES)):
            await eventually(lambda: told(caplog))
            seen = len(looks)
            await eventually(lambda: len(looks) > seen + 2 * PLACES)
            [line] = told(caplog)
            assert all(f"{job.id} waits for " in line for job in jobs)
            assert "in queue 'default'" in line
            async with in_background(elsewhere.run_worker("default", concurrency=1)):
                assert await results(jobs) == [7] * PLACES
    assert not blocked_worker._waits


@pytest.mark.parametrize("runs", ["here", "elsewhere"])
async def test_worker_whose_jobs_wait_for_jobs_that_run_says_nothing(
    concert: Coordinator, elsewhere: Coordinator, caplog: pytest.LogCaptureFixture, looks: list[None], runs: str
) -> None:
    """All its places are taken, and it goes on when these jobs end."""
    outer, go_on = tasks_of(concert, queue="other")
    there = tasks_of(elsewhere, queue="other")[1]
    jobs = [await outer.enqueue() for _ in range(PLACES)]
    async with AsyncExitStack() as stack:
        if runs == "elsewhere":
            await stack.enter_async_context(in_background(elsewhere.run_worker("other", concurrency=PLACES)))
        places = PLACES if runs == "elsewhere" else 2 * PLACES
        await stack.enter_async_context(in_background(concert.run_worker("default", "other", concurrency=places)))
        await until_running(elsewhere, 2 * PLACES)
        with caplog.at_level(logging.WARNING, "inconcert.tasks"):
            seen = len(looks)
            await eventually(lambda: len(looks) > seen + 4 * PLACES)
            assert not told(caplog)
        go_on.set()
        there.set()
        assert await results(jobs) == [7] * PLACES


async def until_running(concert: Coordinator, number: int) -> None:
    """Return when so many jobs run."""

    async def so_many() -> bool:
        stats = await concert.tasks.stats()
        return sum(queue.running for queue in stats.queues.values()) == number

    await eventually(so_many)
