"""The cluster for tests itself: that slots and masters go where a test sends them, with their keys."""

from collections.abc import Iterator

import pytest

from inconcert._redis.protocol.slots import slot_of
from tests.support.clusters import Node, RealCluster

_KEYS = [f"{{tag}}{number}" for number in range(3)]
_SLOT = slot_of("{tag}")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    """Three masters, of whom two can depose one, with a replica each, and a few keys in one slot."""
    with RealCluster(replicas=1) as opened:
        opened.owner(_KEYS[0]).command("MSET", *(part for key in _KEYS for part in (key, "value")))
        yield opened


def _other(cluster: RealCluster) -> Node:
    return next(node for node in cluster.masters if node is not cluster.owner_of(_SLOT))


def _keys(node: Node) -> set[str]:
    return set(node.command("CLUSTER", "GETKEYSINSLOT", _SLOT, 10))


def test_cluster_shares_the_slots(cluster: RealCluster) -> None:
    """In order, and each master has its replica."""
    assert cluster.masters == cluster.nodes[:3]
    assert cluster.owner_of(0) is cluster.owner_of(5460) is cluster.nodes[0]
    assert cluster.replicas_of(cluster.nodes[1]) == [cluster.nodes[4]]
    assert all(cluster.owner(name).command("SPUBLISH", name, "") == 0 for name in _KEYS)
    assert cluster.url.startswith(f"redis+cluster://127.0.0.1:{cluster.nodes[0].port},")


def test_slot_moves_key_by_key(cluster: RealCluster) -> None:
    """A test can stop in the middle, where some keys are here and some there."""
    source, target = cluster.owner_of(_SLOT), _other(cluster)
    steps = cluster.moving_slot(_SLOT, target)
    assert (next(steps), next(steps)) == (0, 1)
    assert (len(_keys(source)), len(_keys(target))) == (2, 1)
    assert list(steps) == [2, 3]
    assert cluster.owner(_KEYS[0]) is target
    assert _keys(target) == set(_KEYS)


def test_slots_migrate_at_once(cluster: RealCluster) -> None:
    """Also those without keys, and together with others."""
    target = _other(cluster)
    cluster.migrate_atomically([_SLOT, _SLOT + 1], target)
    assert cluster.owner_of(_SLOT) is cluster.owner_of(_SLOT + 1) is target
    assert _keys(target) == set(_KEYS)


def test_replica_takes_the_place_of_a_master(cluster: RealCluster) -> None:
    """When it is asked to, when the master is killed, and when it only does not answer; nothing is lost."""
    cluster.settle()
    first = cluster.owner_of(_SLOT)
    second = cluster.fail_over(first)
    assert cluster.owner_of(_SLOT) is second is not first
    cluster.settle()
    second.kill()
    assert cluster.wait_for_new_master(second) is first
    second.start()
    cluster.settle()
    first.pause()
    assert cluster.wait_for_new_master(first) is second
    first.resume()
    cluster.settle()
    assert first not in cluster.masters
    assert _keys(second) == set(_KEYS)
