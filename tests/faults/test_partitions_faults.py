"""Jobs of several partitions while workers are killed, replies are lost and calls are cancelled."""

import asyncio
import random
from collections import Counter

import anyio
import pytest

from inconcert import Coordinator, current_job
from inconcert._claims import consumer
from tests.contract.test_partitions import COUNT, in_partition, one_in_each
from tests.contract.test_tasks import asleep
from tests.faults.test_tasks_faults import LEASE, forget_all, until
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease

HERE = "tests.faults.test_partitions_faults"


async def run_all(url: str, namespace: str) -> None:
    """In a child: run jobs, and count each in the end."""
    async with with_lease(Coordinator(url, namespace=namespace, partitions=COUNT), LEASE) as concert:

        @concert.task(name="t", queue="q", result_ttl=0)
        async def run() -> None:
            tell("running")
            await anyio.sleep(0.01)
            await raw(concert).hincrby("{ran}", current_job().id, 1)
            await raw(concert).pexpire("{ran}", 60_000)

        del run
        await concert.run_worker("q", concurrency=10)


async def test_no_job_is_lost_in_any_partition_when_workers_are_killed(server: RealServer, namespace: str) -> None:
    """Others have what they held, in all partitions; what had ended does not run again."""
    chance = random.Random(7)
    worker = f"{HERE}:run_all"
    async with Coordinator(server.url, namespace=namespace, partitions=COUNT) as concert:
        jobs = await asyncio.gather(*(concert.enqueue("t", queue="q", result_ttl=0) for _ in range(300)))
        for _ in range(2):  # a third crash would set a job aside
            async with spawn(worker, server.url, namespace) as process:
                await process.wait_for("running")
                await anyio.sleep(chance.uniform(0.02, 0.1))
                process.kill()
        async with spawn(worker, server.url, namespace):
            ledger = await until(concert, lambda ledger: not ledger.bodies, timeout=20.0)
        ledger.check(put=300, done=300)
        ran = {job.decode(): int(times) for job, times in (await raw(concert).hgetall("{ran}")).items()}
        assert set(ran) == {job.id for job in jobs}
        assert sum(ran.values()) <= 300 + 2 * 10  # those that were killed between their end and its confirmation
        await raw(concert).delete("{ran}")


async def test_reply_lost_at_some_step_loses_no_job_and_doubles_none(
    server: RealServer, proxy: Proxy, namespace: str
) -> None:
    """Heartbeats, claims and acknowledgements of each partition are sent again, and act once."""
    steps = 0
    async with Coordinator(server.url, namespace=namespace, partitions=COUNT) as concert:
        while steps < 100:
            ran = Counter[str]()
            async with Coordinator(proxy.url, namespace=namespace, partitions=COUNT) as bad:
                proxy.cut_after_replies(steps, lose_next=True)
                put = [job.id for job in (*await one_in_each(bad), *await one_in_each(bad))]
                async with bad.consume("q", prefetch=4) as jobs:
                    while len(ran) < len(put):
                        async with await anext(jobs) as job:
                            ran[job.id] += 1
            assert ran == Counter(put)
            (await until(concert, lambda ledger: not ledger.bodies)).check(put=6, done=6)
            await forget_all(concert)
            if proxy._network.allowance is not None:  # it came to its end without a cut
                break
            steps += 4
    await proxy.heal()
    assert 12 < steps < 100


@pytest.mark.parametrize("moment", MOMENTS)
async def test_claim_that_is_cancelled_at_any_await_loses_no_job(
    server: RealServer, namespace: str, moment: Moment
) -> None:
    """What one partition has answered already is there for the next call, and goes back in the end."""
    async with Coordinator(server.url, namespace=namespace, partitions=COUNT) as concert:

        async def claim_and_close() -> None:
            async with concert.consume("q") as jobs:
                await jobs.claim(5)

        number, done = 1, False
        while not done:
            put = await one_in_each(concert)
            done = not await cancel_at(number, moment, claim_and_close())
            ledger = await until(concert, lambda ledger: not ledger.claimed)
            assert sorted(ledger.ready["q"]) == sorted(job.id for job in put)
            await forget_all(concert)
            number += 1
        assert number > 3


async def test_stolen_token_costs_three_sleeps_at_most(
    server: RealServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer was killed after it had popped it: others look into each partition in turn."""
    monkeypatch.setattr(consumer, "_SHORTEST_SLEEP", 0.1)
    monkeypatch.setattr(consumer, "_LONGEST_SLEEP", 0.2)
    async with Coordinator(server.url, namespace=namespace, partitions=COUNT) as concert, concert.consume("q") as jobs:
        waiting = asyncio.create_task(anext(jobs))
        await asleep(concert, count=COUNT)
        there, here = [concert._jobs.partitions[2].queue(name).queue for name in ("other", "q")]
        job = await in_partition(concert, 2, queue="other")
        await raw(concert).rename(there, here)  # and no bell rings
        with anyio.fail_after(3 * 0.2 + 1.0):
            assert (await waiting).id == job.id
