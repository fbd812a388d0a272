"""Workers whose event loop stands still while the keys of their jobs go to another server."""

import time
from collections.abc import Callable, Iterator

import pytest

from inconcert import Coordinator
from inconcert._claims import watchdog
from inconcert._redis.protocol.slots import slot_of
from inconcert.tasks.records.store import JobKeys
from tests.support.clusters import Node, RealCluster
from tests.support.sentinels import SentinelSet
from tests.support.short_lease import with_lease
from tests.support.watchdog import life_of, threads

LEASE = 60.0  # seconds of a heartbeat: it outlives the search for a master on a machine that stands still for a while
HURRY = 1 / 12  # of what the thread waits for otherwise: it looks, renews and tries again as with a lease of 5 s


@pytest.fixture(autouse=True)
def hurried_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the thread wait for less of the lease."""
    for share in ("_ASK_EVERY", "_ANSWER_WITHIN", "RENEW_AFTER", "TRY_AGAIN"):
        monkeypatch.setattr(watchdog, share, getattr(watchdog, share) * HURRY)


async def block_while(happens: Callable[[str], Iterator[int] | None], url: str, namespace: str) -> None:
    """Claim a job, do this to the servers in it and stand still until its heartbeat was renewed since; end the job.

    Args:
        happens: What is done, given a key of the worker; what it returns is exhausted when the loop may turn again.
        url: The servers.
        namespace: Of the job.
    """
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:
        await concert.enqueue("t", queue="q")
        async with concert.consume("q") as jobs:
            job = await anext(jobs)
            rest = happens(JobKeys(concert._ref.keys).workers)
            lapses_at = life_of(jobs).deadline
            while life_of(jobs).deadline == lapses_at and time.monotonic() < lapses_at:
                time.sleep(0.01)
            assert life_of(jobs).deadline > lapses_at
            for _ in rest or ():
                pass
            await job.ack()
            assert not life_of(jobs).is_lost
    assert threads() == []


def another(cluster: RealCluster, key: str) -> Node:
    """A master that does not have this key."""
    return next(node for node in cluster.masters if node is not cluster.owner(key))


@pytest.mark.parametrize("how", ["at once", "key by key"])
async def test_blocked_worker_keeps_its_jobs_when_their_slot_moves(
    how: str, own_cluster: RealCluster, namespace: str
) -> None:
    """The thread follows it, although only the loop would ask for the map."""

    def moves(key: str) -> None:
        to = another(own_cluster, key)
        if how == "at once":
            own_cluster.migrate_atomically([slot_of(key)], to)
        else:
            own_cluster.move_slot(slot_of(key), to)

    await block_while(moves, own_cluster.url, namespace)


@pytest.mark.parametrize("left", ["all", "some", "none"])
async def test_blocked_worker_keeps_its_jobs_while_their_slot_is_half_moved(
    left: str, own_cluster: RealCluster, namespace: str
) -> None:
    """Whatever the node that it leaves still has."""

    def half_moves(key: str) -> Iterator[int]:
        slot = slot_of(key)
        source = own_cluster.owner_of(slot)
        keys = source.command("CLUSTER", "COUNTKEYSINSLOT", slot)
        move = own_cluster.moving_slot(slot, another(own_cluster, key))
        moved = [next(move) for _ in range({"all": 1, "some": 3, "none": keys + 1}[left])]
        assert (left == "none") is (moved[-1] == keys)
        return move

    await block_while(half_moves, own_cluster.url, namespace)


async def test_blocked_worker_keeps_its_jobs_when_a_replica_takes_its_master_s_place(
    own_cluster: RealCluster, namespace: str
) -> None:
    """Killed, and found dead by the other nodes."""

    def fails(key: str) -> None:
        own_cluster.settle()
        master = own_cluster.owner(key)
        master.kill()
        own_cluster.wait_for_new_master(master)

    await block_while(fails, own_cluster.url, namespace)


async def test_blocked_worker_keeps_its_jobs_when_sentinels_name_another_master(namespace: str) -> None:
    """The thread asks them, as the loop would."""
    with SentinelSet() as sentinels:

        def fails(key: str) -> None:
            del key
            sentinels.settle()
            before = sentinels.master
            before.kill()
            sentinels.wait_for_new_master(before)

        await block_while(fails, sentinels.url, namespace)
