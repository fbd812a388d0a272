"""What happens on a cluster while slots move and masters fail: nothing is lost, nothing done twice, and all goes on."""

import asyncio
import random
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from inconcert import Coordinator, Gap, Restarted, Signalled
from inconcert._cluster import cluster as cluster_module
from inconcert._core.renewal import local_deadline
from inconcert._redis.protocol.slots import slot_of
from tests.support.background import in_background
from tests.support.cluster_traffic import KEYS, Traffic, traffic
from tests.support.clusters import Node, RealCluster
from tests.support.eventually import eventually
from tests.support.streams import check

LEASE = 3.0  # seconds
SOON = 10.0  # seconds; docs/explanation/topology.md has what a calm machine takes


def another(cluster: RealCluster, than: Node) -> Node:
    """Another master than this one."""
    return random.choice([node for node in cluster.masters if node is not than])


def old_way(cluster: RealCluster, key: str) -> None:
    """Move the slot key by key, slowly enough that commands meet it half moved."""
    for _ in cluster.moving_slot(slot_of(key), another(cluster, cluster.owner(key))):
        time.sleep(0.03)


def atomically(cluster: RealCluster, key: str) -> None:
    """Move the slot at once."""
    cluster.migrate_atomically([slot_of(key)], another(cluster, cluster.owner(key)))


def failed_over(cluster: RealCluster, key: str) -> None:
    """A replica takes the master's place in good order."""
    cluster.fail_over(cluster.owner(key))


def killed(cluster: RealCluster, key: str) -> Node:
    """SIGKILL."""
    master = cluster.owner(key)
    cluster.settle()
    master.kill()
    cluster.wait_for_new_master(master)
    return master


def paused(cluster: RealCluster, key: str) -> Node:
    """SIGSTOP: connections stay open, and it does not know that it was replaced."""
    master = cluster.owner(key)
    cluster.settle()
    master.pause()
    cluster.wait_for_new_master(master)
    return master


def back(cluster: RealCluster, node: Node) -> None:
    """Let a node that was killed or paused go on, as a replica of its successor."""
    if node.is_running():
        node.resume()
    else:
        node.start()
    cluster.settle()


async def under(
    change: Callable[[RealCluster, str], Node | None], cluster: RealCluster, namespace: str, times: int
) -> Traffic:
    """Do this to the nodes of the keys in use, in turn, while they are in use; returns what came of the traffic."""
    async with traffic(cluster.url, namespace) as found:
        for number in range(times):
            key = KEYS[number % len(KEYS)].format(namespace)
            gone = await asyncio.to_thread(change, cluster, key)
            found.longest = max(found.longest, await found.all_goes_on(within=15))
            if gone is not None:
                await found.has_left(gone)  # one that goes on before would lose what it still answers
                await asyncio.to_thread(back, cluster, gone)
    return found


@pytest.mark.parametrize("change", [old_way, atomically])
async def test_nothing_is_lost_or_doubled_while_slots_move(
    change: Callable[[RealCluster, str], Node | None], own_cluster: RealCluster, namespace: str
) -> None:
    """The very slots that are in use."""
    found = await under(change, own_cluster, namespace, times=len(KEYS))
    assert (found.violations, found.lost, found.doubled, dict(found.errors)) == ([], set(), [], {})


@pytest.mark.parametrize("change", [old_way, atomically])
async def test_stream_of_a_job_is_whole_though_its_slot_moves(
    change: Callable[[RealCluster, str], Node | None], own_cluster: RealCluster, namespace: str
) -> None:
    """Under its worker, and under its follower."""
    is_over = asyncio.Event()
    url = own_cluster.url
    async with Coordinator(url, namespace=namespace) as concert, Coordinator(url, namespace=namespace) as viewer:

        @concert.task()
        async def count() -> AsyncIterator[int]:
            number = 0
            while not is_over.is_set():
                yield number
                number += 1
                await asyncio.sleep(0.002)

        job = await count.enqueue()

        history: list[Any] = []

        async def follow() -> None:
            async for item in viewer.tasks.job(job.id).stream():
                history.append(item)  # noqa: PERF401 - it is looked at meanwhile

        async with in_background(concert.run_worker("default")):
            following = asyncio.create_task(follow())
            await eventually(lambda: history)
            for _ in range(2):
                await asyncio.to_thread(change, own_cluster, concert._jobs.of_id(job.id).bodies)
            is_over.set()
            async with asyncio.timeout(SOON):
                await following
    assert not any(isinstance(item, Restarted) for item in history)
    assert check(history) == list(range(len(history)))
    assert len(history) > 10


@pytest.mark.parametrize(
    "change",
    [pytest.param(failed_over, marks=pytest.mark.torture), killed, pytest.param(paused, marks=pytest.mark.torture)],
)
async def test_nothing_is_lost_or_doubled_when_a_master_is_replaced(
    change: Callable[[RealCluster, str], Node | None], own_cluster: RealCluster, namespace: str
) -> None:
    """And all goes on soon after the nodes know the new one."""
    found = await under(change, own_cluster, namespace, times=1)
    assert (found.violations, found.lost, found.doubled, dict(found.errors)) == ([], set(), [], {})
    assert found.longest < SOON


async def test_lease_is_renewed_while_its_slot_is_half_moved(own_cluster: RealCluster, namespace: str) -> None:
    """For as long as that lasts: a renewal has one key, and is answered by whichever node has it."""
    key = KEYS[0].format(namespace)
    async with (
        Coordinator(own_cluster.url, namespace=namespace) as concert,
        concert.lock("a", ttl=LEASE) as lease,
    ):
        waiter = asyncio.create_task(concert.lock("a").acquire())
        source, to = own_cluster.owner(key), another(own_cluster, own_cluster.owner(key))
        for _ in await asyncio.to_thread(lambda: iter(own_cluster.moving_slot(slot_of(key), to))):
            since_now = local_deadline(time.monotonic(), LEASE)
            await eventually(lambda: lease._state.deadline >= since_now)  # noqa: B023 - asked at once
        assert own_cluster.owner(key) is not source
        assert not waiter.done()
        await lease.release()
        await (await asyncio.wait_for(waiter, 5)).release()


@pytest.mark.parametrize("has_left", [False, True])
async def test_subscription_may_end_as_its_slot_leaves(
    has_left: bool, cluster: RealCluster, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The node says that it has ended, and is asked to end it: no answer is taken for one to a later request."""
    async with Coordinator(cluster.url, namespace=namespace) as concert:
        signal = concert.signal("s")
        slot = slot_of(signal._channel)
        owner = cluster.owner_of(slot)
        same_node = (concert.signal(f"s{number}") for number in range(100))
        next_signal = next(each for each in same_node if cluster.owner(each._channel) is owner)
        async with signal.subscribe():
            assert await signal.broadcast() == 1
            if has_left:
                cluster.move_slot(slot, another(cluster, owner))  # nothing is read meanwhile
        if not has_left:
            cluster.move_slot(slot, another(cluster, owner))
        async with next_signal.subscribe() as heard, signal.subscribe() as again:
            assert (await next_signal.broadcast(1), await signal.broadcast(2)) == (1, 1)
            assert [await anext(heard), await anext(again)] == [1, 2]

        async def is_unheard() -> bool:  # soon: leaving has a connection of its own, and is not awaited
            return (await next_signal.broadcast(), await signal.broadcast()) == (0, 0)

        await eventually(is_unheard)
    assert not [record for record in caplog.records if record.levelname != "DEBUG"]


async def test_pattern_is_heard_elsewhere_when_its_node_leaves(
    own_cluster: RealCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a gap, because nobody listened between the two."""
    monkeypatch.setattr(cluster_module, "_EVERY", 0.2)
    async with (
        asyncio.timeout(15),
        Coordinator(own_cluster.url, namespace=namespace) as concert,
        concert.signals("a*").subscribe() as heard,
    ):
        port = concert._ref.session.broadcasts._pattern_node.port  # type: ignore[attr-defined]
        [node] = [master for master in own_cluster.masters if master.port == port]
        await asyncio.to_thread(own_cluster.fail_over, node)
        assert await anext(heard) == Gap(None)
        await concert.signal("ab").broadcast(1)
        assert await anext(heard) == Signalled("ab", 1)


@asynccontextmanager
async def half_moved(cluster: RealCluster, *keys: str) -> AsyncGenerator[None]:
    """Some of the keys in the slots of these have moved, key by key, and others have not, as long as the body lasts."""
    moves = [cluster.moving_slot(slot_of(key), another(cluster, cluster.owner(key))) for key in keys]
    for move in moves:
        for _ in range(2):
            await asyncio.to_thread(next, move)
    yield
    for move in moves:
        await asyncio.to_thread(list[int], move)


async def test_worker_keeps_its_claims_while_its_slot_is_half_moved(own_cluster: RealCluster, namespace: str) -> None:
    """For longer than its lease, and no other gets them; afterwards it goes on."""
    async with (
        Coordinator(own_cluster.url, namespace=namespace) as concert,
        Coordinator(own_cluster.url, namespace=namespace) as other,
    ):
        queue = concert.queue("items", ttl=1)
        await queue.put_many(["first", "second"])
        first = await queue.get()
        elsewhere = other.queue("items", ttl=1)
        second = await elsewhere.get()
        waiting = [asyncio.create_task(one.get()) for one in (queue, elsewhere)]
        async with half_moved(own_cluster, KEYS[2].format(namespace)):
            await asyncio.sleep(2.5)
        await asyncio.sleep(1.2)  # the clock of leases goes on, and so do heartbeats
        assert not any(task.done() for task in waiting)
        await first.ack()
        await second.ack()
        await queue.put_many(["third", "fourth"])
        got = [await asyncio.wait_for(task, 5) for task in waiting]
        assert {str(delivery.item) for delivery in got} == {"third", "fourth"}
        for delivery in got:
            await delivery.ack()
        assert (await queue.counts()).claimed == 0


async def test_participant_and_leader_stay_while_their_slots_are_half_moved(
    own_cluster: RealCluster, namespace: str
) -> None:
    """For longer than their leases; then the round is passed, and the term goes on."""
    async with Coordinator(own_cluster.url, namespace=namespace) as concert:
        barrier = concert.barrier("b", parties=2, ttl=1.5)
        first = asyncio.create_task(barrier.wait())
        await eventually(barrier.n_waiting)
        async with concert.election("e", ttl=1.5) as term:
            async with half_moved(own_cluster, f"{{{namespace}:barrier:b}}", f"{{{namespace}:election:e}}"):
                await asyncio.sleep(3)
                assert not first.done()
                assert not term.is_lost
            await asyncio.sleep(1.6)
            assert not term.is_lost
        assert sorted([await barrier.wait(timeout=5), await first]) == [0, 1]


async def test_lock_is_released_while_its_slot_is_half_moved(own_cluster: RealCluster, namespace: str) -> None:
    """At once; the waiter gets it when the slot has moved, by itself."""
    async with Coordinator(own_cluster.url, namespace=namespace) as concert:
        lock = concert.lock("a")
        lease = await lock.acquire()
        waiter = asyncio.create_task(lock.acquire())
        await eventually(lock.waiters)
        async with half_moved(own_cluster, KEYS[0].format(namespace)):
            await asyncio.wait_for(lease.release(), 1)
            assert not waiter.done()
        await (await asyncio.wait_for(waiter, 5)).release()


@pytest.mark.torture
@pytest.mark.parametrize(
    ("change", "times"), [(old_way, 50), (atomically, 50), (failed_over, 20), (killed, 10), (paused, 10)]
)
async def test_nothing_is_lost_or_doubled_however_often(
    change: Callable[[RealCluster, str], Node | None], times: int, own_cluster: RealCluster, namespace: str
) -> None:
    """The figures of docs/explanation/topology.md are what this writes with `-s`."""
    found = await under(change, own_cluster, namespace, times)
    errors = sum(found.errors.values())
    sys.stdout.write(
        f"\n| {change.__name__} | {times} | {sum(found.done.values()):,} | {len(found.violations)} "
        f"| {len(found.lost)} | {len(found.doubled)} | {errors} | {found.longest:.2f} s |\n"
    )
    assert (found.violations, found.lost, found.doubled) == ([], set(), [])
