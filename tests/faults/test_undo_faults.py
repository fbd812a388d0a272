"""Undoing while workers are killed: all that was begun is undone, in the reverse order, whoever does it."""

from itertools import groupby
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, JobCancelled, JobFailed, JobStatus, durable
from tests.support.jobs import status
from tests.support.killed import LOG, kill_after
from tests.support.processes import spawn
from tests.support.raw import raw
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease
from tests.support.undo import is_clean

HERE = "tests.faults.test_undo_faults"
LEASE = 1.0  # seconds of a heartbeat, here
WITHIN = 30.0  # seconds
THINGS = 4  # that each job begins, and undoes


async def work(url: str, namespace: str) -> None:
    """In a child: run jobs that fail, or wait, once they have begun some things; and undo them until it is killed."""
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:
        log = raw(concert)

        async def begin(thing: int) -> int:
            return thing

        async def undo_it(number: int, thing: int) -> None:
            await log.rpush(LOG, f"{number} {thing}")
            await anyio.sleep(0.03)

        @concert.task(name="buy")
        async def buy(number: int) -> None:  # pyright: ignore[reportUnusedFunction]
            async with durable.undo() as undo:
                for thing in range(THINGS):
                    begun = await durable.step(f"begin {thing}", begin, thing)
                    undo.later(f"{thing}", undo_it, number, begun)
                if number % 2:
                    raise ValueError("sold out")
                await durable.wait_for("packed", str, timeout=3600)

        await concert.run_worker("default", concurrency=4)


@pytest.mark.parametrize("rounds", [1, pytest.param(8, marks=pytest.mark.torture)])
async def test_all_is_undone_though_workers_are_killed(namespace: str, rounds: int) -> None:
    """Kill -9 at any moment: only what was not kept yet is undone again, and each job ends as it was to end."""
    with RealServer() as own:
        for number in range(rounds):
            await _kill_two_workers(own.url, f"{namespace}-{number}")


async def _kill_two_workers(url: str, namespace: str) -> None:
    count = 16
    async with Coordinator(url, namespace=namespace) as concert:
        client: Any = raw(concert)
        await client.delete(LOG)
        waiting = [await concert.enqueue("buy", [number], max_attempts=1) for number in range(0, count, 2)]
        async with spawn(f"{HERE}:work", url, namespace) as child:
            for job in waiting:
                await status(concert, job, JobStatus.DELAYED)
            child.kill()
        assert not any([await job.cancel(timeout=0) for job in waiting])
        failing = [await concert.enqueue("buy", [number], max_attempts=1) for number in range(1, count, 2)]
        for _ in range(2):
            await kill_after(3, 12, client, f"{HERE}:work", url, namespace)
        async with spawn(f"{HERE}:work", url, namespace):
            for jobs, error in ((waiting, JobCancelled), (failing, JobFailed)):
                for job in jobs:
                    with pytest.raises(error):
                        await job.result(timeout=WITHIN)
        undone: dict[int, list[int]] = {number: [] for number in range(count)}
        entries = [tuple(map(int, entry.split())) for entry in await client.lrange(LOG, 0, -1)]
        for number, thing in entries:
            undone[number].append(thing)
        for things in undone.values():
            assert [thing for thing, _ in groupby(things)] == list(reversed(range(THINGS)))
        assert len(entries) <= count * THINGS + 2 * 4
        assert await is_clean(concert)
