"""Jobs with limits, while their workers die, are held up and lose replies: what all bodies tell keeps to the limits."""

import anyio
import pytest

from inconcert import Job, JobCancelled
from inconcert.testing import Process, World, simulate
from tests.support.jobs import LEASE
from tests.support.limits_history import KEYS, Told, register, runs, violations
from tests.support.short_lease import with_lease

JOBS = 24
COMMANDS = 60  # that a worker sends, about, from its start to its last job


async def _serve(process: Process, told: Told) -> None:
    """Run jobs until the world ends."""

    def tell(event: str, **facts: object) -> None:
        if World.now() < process.died_at:
            told.messages.append({"event": event, **facts})

    register(with_lease(process.concert, LEASE), tell)
    await process.concert.run_worker("default", concurrency=4)


async def _tell(world: World, first_dies_after: int) -> None:
    order = world.random
    boss = await world.process("boss")
    first, second, third = workers = [await world.process(f"worker {number}") for number in range(3)]
    history = [Told(number, []) for number in range(len(workers))]
    limited = register(boss.concert, share=order.random() < 0.5)
    enqueued_at = {number: World.now() for number in range(JOBS)}
    calls = [limited.call(number % KEYS, number) for number in range(JOBS)]
    jobs = await boss.start(boss.concert.enqueue_many(calls))

    async def cancel() -> None:
        for number in order.sample(range(JOBS), 3):
            await anyio.sleep(order.uniform(0, 0.3))
            await jobs[number].cancel()

    async def hold_up() -> None:
        for _ in range(2):
            second.cut(after=order.randrange(1, COMMANDS))
            await anyio.sleep(order.uniform(0.2, 2 * LEASE))
            second.heal()
            if order.random() < 0.5:
                third.lose_reply()

    first.kill(after=first_dies_after)
    for worker, told in zip(workers, history, strict=True):
        worker.start(_serve(worker, told))
    boss.start(cancel())
    boss.start(hold_up())
    for number in range(JOBS):
        if await boss.start(_is_cancelled(jobs[number])):
            del enqueued_at[number]
    assert violations(runs(history), enqueued_at) == []
    [keys] = boss.concert._jobs.partitions
    assert await world.client.hlen(keys.places) == 1  # where the rate stands
    assert await world.client.zcard(keys.held_back) == 0


async def _is_cancelled(job: Job[None]) -> bool:
    """When it has ended."""
    try:
        await job.result(timeout=600)
    except JobCancelled:
        return True
    return False


@pytest.mark.parametrize(
    "seeds",
    [
        range(2),
        *(pytest.param(range(first, first + 50), marks=pytest.mark.torture) for first in range(2, 502, 50)),
    ],
)
def test_limits_hold_whatever_dies(seeds: range) -> None:
    """A worker is killed at each of its commands in turn; another is held up for longer than its lease."""
    for seed in seeds:

        async def story(world: World) -> None:
            await _tell(world, 1 + seed * 31 % COMMANDS)  # noqa: B023 - told at once

        simulate(story, seeds=[seed])
