"""Bad networks between a process and the nodes of a cluster, and addresses that cannot be reached as they are named."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
import redis.asyncio

from inconcert import Coordinator, NotConnected, Unavailable
from inconcert._cluster import cluster as cluster_module
from inconcert._cluster.bells import ShardedBells
from inconcert._cluster.router import Router
from inconcert._redis.replies import ErrorReply
from tests.support.clusters import RealCluster
from tests.support.eventually import eventually
from tests.support.lines import in_line
from tests.support.proxy import Proxy
from tests.support.servers import free_port

TIMEOUT = 2.0


class Network:
    """A proxy before each node of a cluster.

    Attributes:
        proxies: By the port of the node.
    """

    def __init__(self, cluster: RealCluster, proxies: dict[int, Proxy]) -> None:
        self.cluster = cluster
        self.proxies = proxies

    def client(self) -> Any:
        """A client that reaches every node through its proxy."""
        first = next(iter(self.proxies.values()))
        return redis.asyncio.RedisCluster(
            host="127.0.0.1",
            port=first.port,
            address_remap=lambda address: (address[0], self.proxies[address[1]].port),
        )

    def before(self, key: str) -> Proxy:
        """The proxy before the master of this key."""
        return self.proxies[self.cluster.owner(key).port]


@pytest.fixture
async def network(cluster: RealCluster) -> AsyncIterator[Network]:
    """Between the test and the common cluster."""
    async with AsyncExitStack() as stack:
        proxies = {node.port: await stack.enter_async_context(Proxy(node.tcp_url)) for node in cluster.nodes}
        yield Network(cluster, proxies)


def names_by_node(network: Network, namespace: str) -> list[str]:
    """For each node the name of a lock that it has."""
    found: dict[Proxy, str] = {}
    for number in range(100):
        found.setdefault(network.before(f"{{{namespace}:lock:{number}}}"), str(number))
    return list(found.values())


async def test_addresses_are_replaced_as_the_client_says(network: Network, namespace: str) -> None:
    """Those that nodes name may lead nowhere from here: not one connection is made to them."""
    async with Coordinator.from_client(network.client(), namespace=namespace) as concert:
        for name in names_by_node(network, namespace):
            async with concert.lock(name):
                pass
    assert all(proxy.opened for proxy in network.proxies.values())


async def test_lost_link_to_one_node_harms_no_other(network: Network, namespace: str) -> None:
    """Its waiters go on when it is back; the connections to the others stay."""
    names = names_by_node(network, namespace)
    async with (
        Coordinator.from_client(network.client(), namespace=namespace) as concert,
        Coordinator(network.cluster.url, namespace=namespace) as elsewhere,
    ):
        held = {name: await elsewhere.lock(name).acquire() for name in names}
        waiters = {name: asyncio.create_task(concert.lock(name).acquire()) for name in names}
        for name in names:
            await in_line(elsewhere.lock(name), 1)
        proxy = network.before(f"{{{namespace}:lock:{names[0]}}}")
        await eventually(lambda: all(one.open == 2 for one in network.proxies.values()))  # commands and wake-ups
        opened = {one: one.opened for one in network.proxies.values()}
        proxy.cut()
        for name in names:
            await held[name].release()
        for waiter in waiters.values():
            await (await asyncio.wait_for(waiter, 5)).release()
        assert [one for one in opened if one.opened != opened[one]] == [proxy]


async def test_half_open_link_is_replaced(network: Network, namespace: str) -> None:
    """One that takes bytes and answers nothing is dropped after half of the call timeout, and the call is answered."""
    name = names_by_node(network, namespace)[0]
    proxy = network.before(f"{{{namespace}:lock:{name}}}")
    async with Coordinator.from_client(network.client(), namespace=namespace, timeout=TIMEOUT) as concert:
        async with concert.lock(name):
            pass
        proxy.mute()
        opened = proxy.opened
        acquiring = asyncio.create_task(concert.lock(name).acquire())
        await eventually(lambda: proxy.opened > opened)
        assert not acquiring.done()
        await proxy.heal()
        await (await asyncio.wait_for(acquiring, TIMEOUT)).release()


@pytest.mark.parametrize("restarted", [True, False])
async def test_node_is_followed_to_another_address(restarted: bool, namespace: str) -> None:
    """Also while it runs and all its connections are whole: the next look at the map finds it."""
    key = f"{{{namespace}:lock:a}}"
    with RealCluster(masters=2) as cluster:
        node = cluster.owner(key)
        async with (
            Proxy(node.tcp_url) as proxy,
            Coordinator(cluster.url, namespace=namespace) as concert,
            Coordinator(cluster.url, namespace=namespace) as other,
        ):
            lease = await concert.lock("a").acquire()
            waiter = asyncio.create_task(other.lock("a").acquire())
            await in_line(concert.lock("a"), 1)
            old = node.port
            if restarted:
                node.port = free_port()
                await asyncio.to_thread(node.restart, empty=False)
            else:
                node.command("CONFIG", "SET", "cluster-announce-port", proxy.port)
            new = node.port if restarted else proxy.port
            await eventually(lambda: all(new in ports(one) and old not in ports(one) for one in (concert, other)))
            await lease.release()
            await (await asyncio.wait_for(waiter, 5)).release()


def ports(concert: Coordinator) -> set[int]:
    """Of the nodes to which it sends commands."""
    router = concert._ref.session.channel
    assert isinstance(router, Router)
    return {address.port for address in router._channels}


async def test_node_that_cannot_be_reached_is_named(namespace: str) -> None:
    """With what was tried."""
    concert = Coordinator("redis+cluster://127.0.0.1:1,127.0.0.1:2", namespace=namespace)
    with pytest.raises(Unavailable, match=r"no node of the cluster answers: .*127\.0\.0\.1:1\b.*127\.0\.0\.1:2\b"):
        await concert.__aenter__()


async def test_closing_fails_what_waits_for_a_slot(network: Network, namespace: str) -> None:
    """And leaves nothing behind, whatever the nodes do."""
    name = names_by_node(network, namespace)[0]
    proxy = network.before(f"{{{namespace}:lock:{name}}}")
    concert = Coordinator.from_client(network.client(), namespace=namespace)
    async with concert:
        async with concert.lock(name):
            pass
        proxy.refuse()
        proxy.cut()
        acquiring = asyncio.create_task(concert.lock(name).acquire())
        await asyncio.sleep(0.1)
    with pytest.raises((NotConnected, Unavailable)):
        await acquiring
    await eventually(lambda: len(asyncio.all_tasks()) <= 1 + sum(proxy.opened for proxy in network.proxies.values()))


async def test_idle_consumer_is_refused_for_a_moment_only(cluster: RealCluster, namespace: str) -> None:
    """While a master is replaced: it sleeps on, on the same connection, and does not begin to poll."""
    async with Coordinator(cluster.url, namespace=namespace) as concert:
        getter = asyncio.create_task(concert.queue("q").get())
        sharded = concert._ref.session.bells
        assert isinstance(sharded, ShardedBells)
        bells = sharded.at(f"{{{namespace}:queue:q}}:bell")
        assert bells is not None
        await eventually(lambda: bells._covered)
        wire = bells._wire
        bells.received(ErrorReply("CLUSTERDOWN The cluster is down"))
        assert not bells._covered
        await eventually(lambda: bells._covered)
        assert bells._wire is wire
        await concert.queue("q").put(1)
        await (await asyncio.wait_for(getter, 1)).ack()


async def test_sleep_over_many_slots_leaves_a_cancellation_as_it_is(cluster: RealCluster, namespace: str) -> None:
    """A cancel scope around it knows its own again, and what rings meanwhile is for another."""
    async with Coordinator(cluster.url, namespace=namespace) as concert:
        keys = tuple(f"{{{namespace}:{number}}}:bell" for number in range(9))
        sleeper: Any = concert._ref.session.bells.sleeper(keys)
        for _ in range(20):
            with anyio.CancelScope() as scope:
                asyncio.get_running_loop().call_soon(scope.cancel)
                await sleeper.rung(5)
            assert scope.cancelled_caught
        for turns in range(6):
            sleep = asyncio.create_task(sleeper.rung(5))
            await eventually(lambda: sleeper._asleep and all(one._woken for one in sleeper._asleep))
            concert._ref.session.bells.pass_on(keys[0])  # wakes it
            for _ in range(turns):
                await asyncio.sleep(0)
            if sleep.cancel():
                await asyncio.wait([sleep])
            assert keys[0] == (await sleeper.rung(5) if sleep.cancelled() else sleep.result())


async def test_map_is_asked_for_only_while_something_is_held_or_waits(
    own_cluster: RealCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is open, and has worked before, sends no command."""
    monkeypatch.setattr(cluster_module, "_EVERY", 0.1)
    monkeypatch.setattr(cluster_module, "_CHECK_EVERY", 0.02)

    def asked() -> int:
        each = [node.command("INFO", "commandstats") for node in own_cluster.nodes]
        return sum(stats.get("cmdstat_cluster|slots", {"calls": 0})["calls"] for stats in each)

    async def is_asked_for() -> bool:
        before = asked()
        await asyncio.sleep(1)  # in which it would be ten times
        return asked() > before

    async with Coordinator(own_cluster.url, namespace=namespace) as concert:
        assert not await is_asked_for()
        async with concert.lock("a"):
            assert await is_asked_for()
            waiter = asyncio.create_task(concert.lock("a").acquire())
            await in_line(concert.lock("a"), 1)
        await (await waiter).release()
        await asyncio.sleep(0.2)  # a look may be under way
        assert not await is_asked_for()
        for wait in (concert.signal("s").wait, concert.queue("q").get):
            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0.2)
            assert await is_asked_for()
            waiting.cancel()
            await asyncio.wait([waiting])
        async with concert.signals("s*").subscribe():
            assert await is_asked_for()
