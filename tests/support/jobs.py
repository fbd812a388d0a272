"""What tests do to jobs and workers beside their users: let time pass, let workers be dead, wait for a status."""

import asyncio
from typing import Any

import pytest

from inconcert import Coordinator, Job, JobStatus
from inconcert._redis.wire.bells import RING
from inconcert.tasks.records.store import JobKeys
from tests.support.eventually import eventually
from tests.support.ledger import facts_text
from tests.support.raw import raw

__all__ = [
    "LEASE",
    "STRIDES",
    "asleep",
    "facts",
    "forget_all",
    "keys_of",
    "lapse",
    "lapse_all",
    "let_crash",
    "let_expire",
    "make_due",
    "status",
    "watch",
]

LEASE = 1.0  # seconds of a heartbeat, in tests of workers that die
# From one reply that is lost to the next, in tests that lose one after the other.
STRIDES = pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.torture)])


async def make_due(concert: Coordinator, queue: str) -> None:
    """Let every delayed job of a queue be due now."""
    keys = concert._jobs.partitions[0].queue(queue)
    client: Any = raw(concert)
    for job_id in await client.zrange(keys.delayed, 0, -1):
        await client.zadd(keys.delayed, {job_id: 1}, xx=True)  # one that was moved meanwhile stays away
    await concert._ref.session.run(RING(bell=keys.bell))


async def asleep(concert: Coordinator, *, count: int = 1) -> None:
    """Wait until so many consumers have looked once and sleep."""

    async def looked() -> bool:
        client: Any = raw(concert)
        keys = [key async for key in client.scan_iter(match=f"*{concert._ref.keys.namespace}:tasks*:claimed:*")]
        return len(keys) >= count

    await eventually(looked)
    for _ in range(3):
        await asyncio.sleep(0)


def keys_of(concert: Coordinator) -> JobKeys:
    """The keys of its jobs."""
    return concert._jobs.partitions[0]


async def forget_all(concert: Coordinator) -> None:
    """Delete every key of its jobs."""
    client: Any = raw(concert)
    if keys := [key async for key in client.scan_iter(f"*{concert._ref.keys.namespace}:tasks*")]:
        await client.delete(*keys)


async def watch(concert: Coordinator) -> None:
    """Live as a worker that never gets a job: it finds those who are dead."""
    async with concert.consume("never") as jobs:
        await anext(jobs)


async def lapse(concert: Coordinator, worker: str) -> None:
    """Let a worker be taken for dead now; nobody tells it."""
    keys = keys_of(concert)
    for key in (keys.workers, keys.alive):
        await raw(concert).zadd(key, {worker: 1}, xx=True)


async def lapse_all(concert: Coordinator) -> None:
    """Let all workers that hold jobs be taken for dead now; nobody tells them."""
    for keys in concert._jobs.partitions:
        if workers := await raw(concert).zrange(keys.workers, 0, -1):
            for key in (keys.workers, keys.alive):
                await raw(concert).zadd(key, dict.fromkeys(workers, 1), xx=True)


async def status(concert: Coordinator, job: Job[Any], expected: JobStatus) -> None:
    """Wait until a job is so."""

    async def is_so() -> bool:
        return await concert.tasks.job(job.id).status() is expected

    await eventually(is_so)


async def let_crash(concert: Coordinator, *jobs: Job[Any], count: int) -> None:
    """Let so many workers have died with each of these."""
    for keys in concert._jobs.partitions:
        if ids := [job.id for job in jobs if concert._jobs.of_id(job.id) is keys]:
            await raw(concert).hset(keys.facts, mapping=dict.fromkeys(ids, facts_text(crashes=count)))


async def facts(concert: Coordinator) -> dict[bytes, bytes]:
    """What is known of jobs beside their bodies."""
    found: dict[bytes, bytes] = {}
    for keys in concert._jobs.partitions:
        found |= await raw(concert).hgetall(keys.facts)
    return found


async def let_expire(concert: Coordinator, job: Job[Any]) -> None:
    """It was enqueued long ago."""
    keys = concert._jobs.of_id(job.id)
    client: Any = raw(concert)
    _, _, text = (await client.hget(keys.bodies, job.id)).partition(b" ")
    await client.hset(keys.bodies, job.id, b"1 " + text)
