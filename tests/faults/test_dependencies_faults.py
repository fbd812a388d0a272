"""Jobs that run after others while workers die, replies are lost, calls are cancelled and servers are killed."""

import random
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any
from unittest.mock import patch

import anyio
import pytest

from inconcert import Consumer, Coordinator, Job, JobFailed, JobNotFound, JobStatus, current_job
from inconcert.tasks.records.dependents import Relay
from inconcert.tasks.records.store import JobKeys
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.jobs import LEASE, STRIDES, forget_all
from tests.support.ledger import ledger_of
from tests.support.partitions import in_partition
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease

HERE = "tests.faults.test_dependencies_faults"
SOON = 3.0  # seconds


async def nothing_is_kept(concert: Coordinator) -> None:
    """All jobs have ended, and it is forgotten who ran after whom."""
    for keys in concert._jobs.partitions:
        await raw(concert).delete(keys.passing)  # as after 5 s: a worker that ended may have had something in hand
    await concert.run_worker("nothing", burst=True)
    for keys in concert._jobs.partitions:
        kept = (keys.parents, keys.children, keys.followers, keys.outcomes, keys.news, keys.pending, keys.unfollowed)
        assert not await raw(concert).exists(*kept, keys.passing)


# Workers that die.


async def end_and_hang(url: str, namespace: str) -> None:
    """In a child: end a job, and stop before those that wait for it are told."""

    def found(relay: Relay, keys: JobKeys) -> None:
        del relay, keys
        tell("ended")

    with patch.object(Relay, "found", found):
        async with Coordinator(url, namespace=namespace) as concert:
            async with concert.consume("q") as jobs, await anext(jobs) as job:
                job.result = 7
            await anyio.sleep_forever()


async def test_child_runs_though_the_worker_died_after_its_parent(
    server: RealServer, concert: Coordinator, namespace: str, short_lease: None
) -> None:
    """Between the acknowledgement and what comes after it; any other worker is told by its heartbeat."""
    parent = await concert.enqueue("t", queue="q", result_ttl=0)
    child = await concert.enqueue("t", queue="other", after=[parent])
    async with spawn(f"{HERE}:end_and_hang", server.url, namespace) as process:
        await process.wait_for("ended")
        process.kill()
    assert await child.status() is JobStatus.WAITING
    with anyio.fail_after(LEASE + SOON):
        async with concert.consume("other") as jobs, await anext(jobs) as job:
            assert await job.parent_results() == [7]
    await nothing_is_kept(concert)


async def run_graph(url: str, namespace: str, partitions: int) -> None:
    """In a child: add up what the parents returned, and 1."""
    async with with_lease(Coordinator(url, namespace=namespace, partitions=partitions), LEASE) as concert:

        @concert.task(name="add")
        async def add() -> int:
            tell("running")
            await anyio.sleep(0.03)
            return 1 + sum(await current_job().parent_results(int))

        del add
        await concert.run_worker("a", "b", concurrency=20)


@pytest.mark.parametrize("partitions", [1, 3])
async def test_graph_runs_to_its_end_while_workers_are_killed(
    server: RealServer, namespace: str, partitions: int
) -> None:
    """Each job once in effect: the numbers are those of the graph, whatever was killed when."""
    async with with_lease(Coordinator(server.url, namespace=namespace, partitions=partitions), LEASE) as concert:
        await kill_workers_of_a_graph(server, concert, namespace, partitions)


async def kill_workers_of_a_graph(server: RealServer, concert: Coordinator, namespace: str, partitions: int) -> None:
    """Let a graph of 82 jobs run, while two workers are killed."""
    chance = random.Random(7)
    layers: list[list[Job[Any]]] = [[await concert.enqueue("add", queue="a")]]
    for number in range(4):
        queue = "ab"[number % 2]
        layers.append([await concert.enqueue("add", queue=queue, after=layers[-1]) for _ in range(20)])
    last = await concert.enqueue("add", queue="b", after=layers[-1])
    for _ in range(2):  # a third crash would set a job aside
        async with spawn(f"{HERE}:run_graph", server.url, namespace, partitions) as process:
            await process.wait_for("running")
            await anyio.sleep(chance.uniform(0, 0.05))
            process.kill()
    async with spawn(f"{HERE}:run_graph", server.url, namespace, partitions):
        expected = 1
        for layer in layers[1:]:
            expected = 1 + expected * (1 if layer is layers[1] else 20)
        assert await last.result(int, timeout=30) == 1 + 20 * expected
    await nothing_is_kept(concert)


# Replies that are lost, and calls that are cancelled.


async def use_them(concert: Coordinator, jobs: Consumer) -> None:
    """A diamond that ends well, a child that is cancelled, and one whose parent is; all in one worker's hands."""
    top = await concert.enqueue("t", queue="q")
    left, right = [await concert.enqueue("t", queue="q", after=[top]) for _ in range(2)]
    bottom = await concert.enqueue("t", queue="other", after=[left, right])
    cancelled = await concert.enqueue("t", queue="q", after=[top])
    assert await cancelled.cancel()
    for job, results in ((top, []), (left, [1]), (right, [1]), (bottom, [1, 1])):
        async with await anext(jobs) as claimed:
            assert claimed.id == job.id
            assert await claimed.parent_results() == results
            claimed.result = 1
    parent = await concert.enqueue("t", queue="q")
    child = await concert.enqueue("t", queue="q", after=[parent])
    assert await parent.cancel()
    with pytest.raises(JobFailed):
        await child.result(timeout=5)
    await concert.tasks.purge(child.id)


@STRIDES
async def test_reply_lost_at_each_step_changes_nothing(
    proxy: Proxy, namespace: str, concert: Coordinator, short_lease: None, stride: int
) -> None:
    """No parent is counted twice, and none forgotten."""
    async for steps in proxy.losing_each(stride=stride, least=15, most=80):
        async with (
            with_lease(Coordinator(proxy.url, namespace=namespace), LEASE) as bad,
            bad.consume("q", "other") as jobs,
        ):
            proxy.cut_after_replies(steps, lose_next=True)
            await use_them(bad, jobs)
        (await ledger_of(concert)).check(put=7, done=7)
        await nothing_is_kept(concert)
        await forget_all(concert)


async def test_reply_lost_at_some_step_between_partitions_changes_nothing(
    server: RealServer, proxy: Proxy, namespace: str
) -> None:
    """What one partition was to tell another is told, once in effect."""
    async with Coordinator(server.url, namespace=namespace, partitions=3) as concert:
        async for steps in proxy.losing_each(stride=7, least=40, most=200):
            bad = with_lease(Coordinator(proxy.url, namespace=namespace, partitions=3), LEASE)
            async with bad, bad.consume("q", prefetch=10) as jobs:
                proxy.cut_after_replies(steps, lose_next=True)
                await use_partitions(bad, jobs)
            (await ledger_of(concert)).check(put=7, done=7)
            await nothing_is_kept(concert)
            await forget_all(concert)


async def use_partitions(concert: Coordinator, jobs: Consumer) -> None:
    """Parents in all partitions, a child that is given their results, and one that fails with one of them."""
    parents = [await in_partition(concert, number) for number in range(3)]
    child = await in_partition(concert, 0, after=parents)
    failing = await in_partition(concert, 1, after=parents)
    cancelled = await in_partition(concert, 2)
    follower = await in_partition(concert, 0, after=[cancelled])
    assert await failing.cancel()
    assert await cancelled.cancel()
    with pytest.raises(JobFailed):
        await follower.result(timeout=5)
    await concert.tasks.purge(follower.id)
    for _ in range(4):
        async with await anext(jobs) as job:
            if job.id == child.id:
                assert await job.parent_results() == [1, 1, 1]
            job.result = 1
    assert await child.result(timeout=5) == 1


@pytest.mark.parametrize("moment", MOMENTS)
async def test_call_that_is_cancelled_at_any_await_leaves_nothing_behind(concert: Coordinator, moment: Moment) -> None:
    """Each job that is there afterwards can be cancelled, and then nothing is kept."""

    async def consume_and_use_them() -> None:
        async with concert.consume("q", "other") as jobs:
            await use_them(concert, jobs)

    number = 1
    while await cancel_at(number, moment, consume_and_use_them()):
        await concert.tasks.stats("q")  # on the same connection, so later
        for id_ in (await ledger_of(concert)).bodies:
            await concert.tasks.job(id_).cancel()
        await concert.tasks.purge_all()
        (await ledger_of(concert)).check(put=0, done=0)
        await nothing_is_kept(concert)
        number += 1
    assert number > 10


@pytest.mark.parametrize("moment", MOMENTS)
async def test_replay_that_is_cancelled_at_any_await_can_go_on(concert: Coordinator, moment: Moment) -> None:
    """A second one takes along what was dead-lettered because of the job, though that is not dead any more."""

    @concert.task(name="fail", queue="q", max_attempts=1)
    async def fail(number: int) -> None:
        if number < 0:
            raise ValueError("no luck")

    number, came_so_far = 1, True
    while came_so_far:
        parent = await concert.enqueue("fail", [-1], queue="q", max_attempts=1)
        child = await concert.enqueue("fail", [1], queue="q", after=[parent])
        grandchild = await concert.enqueue("fail", [2], queue="q", after=[child, parent])
        await concert.run_worker("q", burst=True)
        assert len(await concert.tasks.dead()) == 3
        replay = partial(concert.tasks.replay, parent.id, args=[0], dependants=True)
        came_so_far = await cancel_at(number, moment, replay())
        with suppress(JobNotFound):  # nothing was left to be replayed
            await replay()
        await concert.run_worker("q", burst=True)
        assert await concert.tasks.dead() == []
        assert await grandchild.status() is JobStatus.SUCCEEDED
        number += 1
    assert number > 5
    await nothing_is_kept(concert)


# Servers that fail, and many children.


async def test_those_who_wait_outlast_a_server_that_was_killed(namespace: str) -> None:
    """Its append-only file has who waits for whom, and what became of these."""
    with RealServer(appendonly="yes", appendfsync="always") as own:
        async with Coordinator(own.tcp_url, namespace=namespace) as concert:
            parents = [await concert.enqueue("t", queue="q", result_ttl=0) for _ in range(2)]
            child = await concert.enqueue("t", queue="q", after=parents)
            async with concert.consume("q") as jobs:
                for number in range(2):
                    async with await anext(jobs) as job:
                        job.result = number
                    own.kill()
                    own.start()
                async with await anext(jobs) as job:
                    assert (job.id, await job.parent_results()) == (child.id, [0, 1])
            await nothing_is_kept(concert)


async def test_ten_thousand_children_do_not_block_the_server(concert: Coordinator) -> None:
    """They are told in portions, none of which takes long, and each once."""
    client: Any = raw(concert)
    task = concert.task(name="t", queue="q", result_ttl=0)(len)
    parent = await concert.enqueue("t", [[]], queue="q")
    children = await concert.enqueue_many([task.options(after=[parent]).call([]) for _ in range(10_000)])
    await client.config_resetstat()
    ran = Counter[str]()
    async with concert.consume("q", prefetch=500) as jobs:
        for _ in range(10_001):
            job = await anext(jobs)
            ran[job.id] += 1
            if len(ran) == 1 or len(ran) % 500 == 0:
                await job.ack()
            else:
                job._state._claimer.done(job._state, b"", 0)
                job._state.is_over = True
    assert ran == Counter([parent.id, *(job.id for job in children)])
    calls = (await client.info("commandstats"))["cmdstat_zrangebylex"]["calls"]
    assert calls >= 100
    await nothing_is_kept(concert)
