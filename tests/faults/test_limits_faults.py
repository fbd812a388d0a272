"""Limits of tasks, while workers are killed and replies are lost: no limit is exceeded, and no place is lost."""

import random
from collections import defaultdict
from typing import Any

import pytest

from inconcert import Coordinator, Limit, Task, current_job
from tests.contract.test_limits import places
from tests.contract.test_tasks import in_background
from tests.support.eventually import eventually
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease

HERE = "tests.faults.test_limits_faults"
LEASE = 1.0  # seconds of a heartbeat, here
JOBS, MOST, MOST_OF_A_KEY = 60, 3, 2
LOG = "{log}:history"
WITHIN = 30.0


def first(key: int, _: int) -> int:
    """The key of a job."""
    return key


def register(concert: Coordinator, worker: str) -> Task[[int, int], Any]:
    """A task whose jobs note in a list when they begin and end."""
    log: Any = raw(concert)

    @concert.task(name="limited", limit=Limit(MOST), key=first, key_limit=MOST_OF_A_KEY)
    async def limited(key: int, number: int) -> None:
        await log.rpush(LOG, f"begin {worker} {key} {number}")
        if number % 10 == 0 and current_job().attempt == 1:
            await log.rpush(LOG, f"end {worker} {key} {number}")
            raise ValueError(number)
        await log.rpush(LOG, f"end {worker} {key} {number}")

    return limited


async def work(url: str, namespace: str, worker: str) -> None:
    """In a child: run jobs until it is killed."""
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:
        register(concert, worker)
        tell("works")
        await concert.run_worker("default", concurrency=4)


def check(history: list[bytes]) -> set[str]:
    """Raise AssertionError if more ran at once than may; returns which were run to their end."""
    running: dict[str, set[tuple[str, str]]] = defaultdict(set)
    done: set[str] = set()
    killed: set[str] = set()
    for entry in history:
        what, worker, *job = entry.decode().split()
        if what == "killed":
            running.pop(worker, None)
            killed.add(worker)
        elif worker in killed:
            continue  # it was on its way
        elif what == "end":
            key, number = job
            running[worker].remove((key, number))
            done.add(number)
        else:
            key, number = job
            running[worker].add((key, number))
            keys = [key for jobs in running.values() for key, _ in jobs]
            assert len(keys) <= MOST
            assert keys.count(key) <= MOST_OF_A_KEY
    return done


@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.torture)])
async def test_limits_hold_though_workers_are_killed(namespace: str, rounds: int) -> None:
    """Kill -9 at any moment: never more than may, and all run."""
    with RealServer() as own:
        for number in range(rounds):
            await _kill_two_of_four(own.url, f"{namespace}-{number}")


async def _kill_two_of_four(url: str, namespace: str) -> None:
    async with Coordinator(url, namespace=namespace) as concert:
        client: Any = raw(concert)
        await client.delete(LOG)
        limited = register(concert, "here")
        jobs = await concert.enqueue_many([limited.call(number % 3, number) for number in range(JOBS)])
        async with spawn(f"{HERE}:work", url, namespace, "stays"):
            for worker in ("first", "second"):
                async with spawn(f"{HERE}:work", url, namespace, worker) as child:
                    await child.wait_for("works")
                    length = await client.llen(LOG) + random.randrange(10)

                    async def is_as_long(length: int = length) -> bool:
                        found: int = await client.llen(LOG)
                        return found >= min(length, 2 * JOBS)

                    await eventually(is_as_long)
                    child.kill()
                    await client.rpush(LOG, f"killed {worker}")
            for job in jobs:
                await job.result(timeout=WITHIN)
        history: list[bytes] = await client.lrange(LOG, 0, -1)
        assert check(history) <= {str(number) for number in range(JOBS)}
        assert await places(concert) == 0


def test_check_finds_an_exceeded_limit() -> None:
    """Of the task, and of a key."""
    begun = [f"begin {worker} {worker % 2} {number}".encode() for number, worker in enumerate((0, 1, 2, 3))]
    check(begun[:3])
    with pytest.raises(AssertionError):
        check(begun)
    with pytest.raises(AssertionError):
        check([b"begin one a 1", b"begin two a 2", b"end one a 1", b"begin one a 3", b"begin one a 4"])


async def test_reply_lost_at_each_step_leaks_no_place(proxy: Proxy, namespace: str, concert: Coordinator) -> None:
    """A claim or an end that was not answered is sent again, and counts once."""
    ran: list[int] = []

    def register_in(each: Coordinator) -> Task[[int], Any]:
        @each.task(name="limited", limit=Limit(1))
        async def limited(number: int) -> None:
            ran.append(number)

        return limited

    limited = register_in(concert)
    for steps in range(12):
        ran.clear()
        jobs = await concert.enqueue_many([limited.call(number) for number in range(3)])
        async with Coordinator(proxy.url, namespace=namespace) as bad:
            register_in(bad)
            proxy.cut_after_replies(steps, lose_next=True)
            await bad.run_worker("default", burst=True)
        await proxy.heal()
        async with in_background(concert.run_worker("default")):
            for job in jobs:
                await job.result(timeout=WITHIN)
        assert sorted(set(ran)) == [0, 1, 2]
        assert await places(concert) == 0
