"""Jobs with steps, sleeps, messages, streams and things to undo, while their workers die: what all have seen agrees."""

import asyncio
from collections.abc import AsyncIterator
from itertools import groupby
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, Job, JobFailed, durable
from inconcert.testing import Process, World, simulate
from tests.support.durable_history import DurableHistory
from tests.support.eventually import eventually
from tests.support.short_lease import with_lease
from tests.support.streams import check

LEASE = 1.0  # seconds of a heartbeat: less than a call may take, so that what is sent may be late
THINGS = 3  # that each job begins, and undoes if it fails
COMMANDS = 100  # that a worker sends, about, from its start to its last job
JOBS = {"packed": False, "sold out": True}  # job -> whether it fails


class Orders:
    """What becomes of the jobs of a world."""

    def __init__(self) -> None:
        self.history = DurableHistory()
        self.undone: dict[str, list[int]] = {job: [] for job in JOBS}

    async def serve(self, process: Process) -> None:
        """Run jobs until the world ends."""
        concert = with_lease(process.concert, LEASE)

        @concert.task(name="order")
        async def order(job: str) -> AsyncIterator[int]:  # pyright: ignore[reportUnusedFunction]
            body = self.history.body(process, job)

            async def work() -> None:
                await anyio.sleep(0.1)

            async def undo_it(thing: int) -> None:
                if thing < THINGS - 1:
                    body.got(f"undo {thing + 1}", None)  # it was kept, or this would not run yet
                body.ran(f"undo {thing}")
                if body.is_alive():
                    self.undone[job].append(thing)
                await anyio.sleep(0.1)

            async with durable.undo() as undo:
                for thing in range(THINGS):
                    await body.step(f"begin {thing}", work)
                    undo.later(f"{thing}", undo_it, thing)
                    yield thing
                await durable.sleep("rest", 5, in_memory_below=1)
                body.got("message", await durable.wait_for("message", str, timeout=3600))
                await body.step("end", work)
                if JOBS[job]:
                    raise ValueError(job)

        await concert.run_worker("default", concurrency=2)

    def check(self) -> None:
        """Nothing contradicts, and all is undone in the reverse order of what was begun."""
        assert self.history.violations() == []
        assert {result.job for result in self.history.results if result.step == "end"} == set(JOBS)
        for job, fails in JOBS.items():
            things = [thing for thing, _ in groupby(self.undone[job])]
            assert things == (list(reversed(range(THINGS))) if fails else [])


async def _follow(concert: Coordinator, job_id: str, seen: list[Any]) -> None:
    try:
        async for item in concert.tasks.job(job_id).stream():
            seen.append(item)  # noqa: PERF401 - what came before an error counts
    except JobFailed:
        """Behind its last item."""


async def _fails(job: Job[Any]) -> bool:
    try:
        await job.result(timeout=600)
    except JobFailed as error:
        assert "ValueError" in error.reason  # noqa: PT017 - it is to fail so
        return True
    return False


async def _tell(world: World, first_dies_after: int) -> None:
    orders, order = Orders(), world.random
    boss = await world.process("boss")
    first, second, third = [await world.process(f"worker {number}") for number in range(3)]
    jobs = [
        await boss.start(boss.concert.enqueue("order", [job], max_attempts=1, max_crashes=99, queue="default"))
        for job in JOBS
    ]
    seen: list[list[Any]] = [[] for _ in jobs]
    following = [boss.start(_follow(boss.concert, job.id, items)) for job, items in zip(jobs, seen, strict=True)]

    async def send() -> None:
        await anyio.sleep(order.uniform(0, 12))
        for job in jobs:
            await boss.concert.tasks.job(job.id).send("message", job.id)

    async def hold_up() -> None:
        for _ in range(3):
            second.cut(after=order.randrange(1, COMMANDS))
            await anyio.sleep(order.uniform(1, 6))
            second.heal()
            if order.random() < 0.5:
                third.lose_reply()

    first.kill(after=first_dies_after)
    first.start(orders.serve(first))
    await anyio.sleep(0.05)
    second.start(orders.serve(second))
    third.start(orders.serve(third))
    boss.start(send())
    boss.start(hold_up())
    assert [await boss.start(_fails(job)) for job in jobs] == list(JOBS.values())
    await asyncio.wait(following)
    orders.check()
    for items in seen:
        assert check(items) == list(range(THINGS))

    async def nothing_is_left() -> bool:
        parts = ("steps", "stepped", "messages", "received", "awaited", "undo")
        return not await world.client.exists(*(f"{{sim:tasks:0}}:{part}" for part in parts))

    await eventually(nothing_is_left)


@pytest.mark.parametrize(
    "seeds",
    [
        range(3),
        *(pytest.param(range(first, first + 50), marks=pytest.mark.torture) for first in range(3, 1003, 50)),
    ],
)
def test_what_bodies_have_seen_agrees_whatever_dies(seeds: range) -> None:
    """A worker is killed at each of its commands in turn; another is held up for longer than its lease."""
    for seed in seeds:

        async def story(world: World) -> None:
            await _tell(world, 1 + seed * 31 % COMMANDS)  # noqa: B023 - told at once

        simulate(story, seeds=[seed])
