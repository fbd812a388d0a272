"""Jobs that follow another, while workers are killed and replies lost: each is added once, or its job is not done."""

import random
from collections import Counter
from typing import Any

import pytest

from inconcert import Coordinator, current_job
from tests.support.eventually import eventually
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease

HERE = "tests.faults.test_follow_ups_faults"
LEASE = 1.0  # seconds of a heartbeat, here
LENGTH = 6  # jobs in a chain, each added by the one before
CHAINS = 20
LOG = "{log}"  # a list on the server: the jobs that ran, in all processes


def register(concert: Coordinator) -> None:
    """Define the task of a chain."""
    log = raw(concert)

    @concert.task(name="link", max_attempts=100)
    async def link(chain: int, number: int) -> None:
        if number + 1 < LENGTH:
            current_job().enqueue_on_success(link.call(chain, number + 1))
        await log.rpush(LOG, f"{chain} {number} {current_job().id}")


async def work(url: str, namespace: str) -> None:
    """In a child: run chains until it is killed."""
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:
        register(concert)
        tell("works")
        await concert.run_worker("default", concurrency=4)


@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.torture)])
async def test_chain_is_neither_cut_nor_forked_though_workers_are_killed(namespace: str, rounds: int) -> None:
    """Kill -9 at any moment: each link of each chain is one job, though it may run twice."""
    with RealServer() as own:
        for number in range(rounds):
            await _kill_two_workers(own.url, f"{namespace}-{number}")


async def _kill_two_workers(url: str, namespace: str) -> None:
    """A third would be one too many for some job."""
    async with Coordinator(url, namespace=namespace) as concert:
        client: Any = raw(concert)
        await client.delete(LOG)
        for chain in range(CHAINS):
            await concert.enqueue("link", [chain, 0])
        for _ in range(2):
            async with spawn(f"{HERE}:work", url, namespace) as child:
                await child.wait_for("works")
                length = await client.llen(LOG) + random.randrange(5, 40)

                async def is_as_long(length: int = length) -> bool:
                    found: int = await client.llen(LOG)
                    return found >= length

                await eventually(is_as_long)
                child.kill()
        async with spawn(f"{HERE}:work", url, namespace):

            async def all_have_run() -> bool:
                return len({entry.rpartition(b" ")[0] for entry in await client.lrange(LOG, 0, -1)}) == CHAINS * LENGTH

            await eventually(all_have_run, timeout=30)
        jobs = Counter(
            link for link, _, _ in {tuple(entry.rpartition(b" ")) for entry in await client.lrange(LOG, 0, -1)}
        )
        assert set(jobs.values()) == {1}, [link for link, ids in jobs.items() if ids > 1]


async def test_reply_lost_at_each_step_neither_cuts_nor_forks_a_chain(
    proxy: Proxy, namespace: str, concert: Coordinator
) -> None:
    """An end that was not answered is sent again, and finds that the job is done."""
    ran: list[tuple[int, str]] = []

    def register_in(each: Coordinator) -> None:
        @each.task(name="link", queue="q")
        async def link(number: int) -> None:
            ran.append((number, current_job().id))
            if number < 2:
                current_job().enqueue_on_success(link.call(number + 1))

    register_in(concert)
    for steps in range(12):
        ran.clear()
        await concert.enqueue("link", [0], queue="q")
        async with Coordinator(proxy.url, namespace=namespace) as bad:
            register_in(bad)
            proxy.cut_after_replies(steps, lose_next=True)
            await bad.run_worker("q", burst=True)
        await proxy.heal()
        await concert.run_worker("q", burst=True)
        assert sorted({number for number, _ in ran}) == [0, 1, 2]
        assert len({id_ for _, id_ in ran}) == 3
        assert (await concert.tasks.stats()).queues["q"].ready == 0
