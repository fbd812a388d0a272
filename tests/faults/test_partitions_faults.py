"""Jobs of several partitions while workers are killed, replies are lost and calls are cancelled."""

import asyncio
import random
from collections import Counter
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, Job, JobFailed, JobStatus, current_job
from inconcert._claims import consumer
from inconcert.tasks.records.dependents import Relay
from inconcert.tasks.running.sweeper import Asker
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.jobs import LEASE, asleep, forget_all
from tests.support.ledger import until
from tests.support.partitions import COUNT, in_partition, nothing_is_kept, one_in_each
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
    async with Coordinator(server.url, namespace=namespace, partitions=COUNT) as concert:
        async for steps in proxy.losing_each(stride=4, least=12, most=100):
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


class Snapshot:
    """What one partition has, to bring it back there: its master goes back in time, and those of the others do not."""

    def __init__(self, concert: Coordinator, number: int) -> None:
        self._client = raw(concert)
        self._pattern = concert._jobs.partitions[number].bodies.removesuffix("bodies") + "*"
        self._values: dict[bytes, bytes] = {}

    async def take(self) -> None:
        """Keep it."""
        self._values = {key: await self._client.dump(key) async for key in self._client.scan_iter(self._pattern)}

    async def restore(self) -> None:
        """Bring it back."""
        async for key in self._client.scan_iter(self._pattern):
            await self._client.delete(key)
        for key, value in self._values.items():
            await self._client.restore(key, 60_000, value)


async def ask_now(concert: Coordinator) -> None:
    """Let the jobs of all partitions ask, and tell them."""
    await raw(concert).delete(*(keys.asked for keys in concert._jobs.partitions))
    await Asker(concert._ref.session, concert._jobs, Relay(concert._ref.session, concert._jobs)).ask()
    await tell_all(concert)


async def tell_all(concert: Coordinator) -> None:
    """Pass on what there is, also what a consumer that was closed had in hand, which would be left to it for 5 s."""
    await raw(concert).delete(*(keys.passing for keys in concert._jobs.partitions))
    await Relay(concert._ref.session, concert._jobs).pass_on_all()


async def end(concert: Coordinator, *jobs: Job[Any]) -> None:
    """Run these, which are all that may run, and tell those that wait for them."""
    async with concert.consume("q") as consumer:
        with anyio.fail_after(10.0):
            claimed = await consumer.claim(len(jobs))
        for job in claimed:
            async with job:
                assert job.id in {one.id for one in jobs}
    await tell_all(concert)


@pytest.fixture
def nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers do not ask by themselves."""

    async def sleep(_: Asker) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(Asker, "run", sleep)


@pytest.mark.usefixtures("nobody_asks")
@pytest.mark.parametrize("forgets", ["who runs after the parent", "how the parent has ended", "the parent"])
async def test_child_is_told_of_its_parent_after_a_partition_went_back(
    server: RealServer, namespace: str, forgets: str
) -> None:
    """Whatever the partition of the parent, or its own, has forgotten; a parent that is lost fails it."""
    async with Coordinator(server.url, namespace=namespace, partitions=COUNT) as concert:
        past = Snapshot(concert, 1 if forgets == "how the parent has ended" else 0)
        if forgets == "the parent":
            await past.take()
        parent = await in_partition(concert, 0)
        if forgets == "who runs after the parent":
            await past.take()
        child = await in_partition(concert, 1, after=[parent])
        if forgets == "how the parent has ended":
            await past.take()
            await end(concert, parent)
        await past.restore()
        if forgets == "who runs after the parent":
            await end(concert, parent)
        assert await child.status() is JobStatus.WAITING
        await ask_now(concert)
        if forgets == "the parent":
            with pytest.raises(JobFailed, match="is not known"):
                await child.result(timeout=0)
            assert await concert.tasks.purge_all() == 1
        else:
            await end(concert, child)
        await nothing_is_kept(concert)


@pytest.mark.usefixtures("nobody_asks")
async def test_child_that_is_lost_is_forgotten_by_its_parent(server: RealServer, namespace: str) -> None:
    """Its partition went back to before it was enqueued: the outcome of the parent is not kept for it."""
    async with Coordinator(server.url, namespace=namespace, partitions=COUNT) as concert:
        past = Snapshot(concert, 1)
        await past.take()
        parent = await in_partition(concert, 0)
        await in_partition(concert, 1, after=[parent])
        await end(concert, parent)
        await past.restore()
        here = concert._jobs.partitions[0]
        assert await raw(concert).exists(here.outcomes)
        assert not await raw(concert).exists(here.news)
        await ask_now(concert)
        await nothing_is_kept(concert)


async def test_many_jobs_that_wait_ask_some_at_a_time(server: RealServer, namespace: str) -> None:
    """All of them are asked for, in portions, however many consumers ask; and then there is a pause."""
    count, asked = 1200, set[bytes]()
    async with Coordinator(server.url, namespace=namespace, partitions=COUNT) as concert:
        keys, relay = concert._jobs.partitions[1], Relay(concert._ref.session, concert._jobs)
        asker = Asker(concert._ref.session, concert._jobs, relay)
        await raw(concert).hset(keys.pending, mapping={f"job-{n}.1": "parent.0" for n in range(count)})
        portions = 0
        while len(asked) < count:
            assert await asker.ask() == 5.0 or len(asked) + 500 >= count
            assert await asker.ask() <= 5.0 or len(asked) + 500 >= count
            found = await raw(concert).hkeys(keys.unfollowed)
            assert len(found) < 2 * 500
            assert await raw(concert).llen(keys.news) == len(found)
            asked |= set(found)
            portions += 1
            await raw(concert).delete(keys.unfollowed, keys.news)
            _, *cursors = (await raw(concert).get(keys.asked)).split()
            await raw(concert).set(keys.asked, b" ".join([b"0", *cursors]), px=60_000)
        assert portions >= 2
        await raw(concert).delete(keys.pending)
        assert await asker.ask() == 30.0
