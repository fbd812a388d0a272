"""Bad networks between a process and the nodes of a cluster, and addresses that cannot be reached as they are named."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
import redis.asyncio

from inconcert import Coordinator, NotConnected, Unavailable
from inconcert._claims import consumer as consumer_module
from inconcert._cluster import bells as bells_module
from inconcert._cluster import cluster as cluster_module
from inconcert._cluster.bells import ShardedBells
from inconcert._cluster.inbox import ShardedInbox
from inconcert._cluster.router import Router
from tests.support.clusters import RealCluster
from tests.support.eventually import eventually
from tests.support.lines import in_line
from tests.support.proxy import Proxy
from tests.support.raw import raw
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


async def test_idle_consumer_notices_what_came_while_its_master_was_replaced(
    own_cluster: RealCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told nothing, or by a server that is gone; then it sleeps at the new master, and is told at once."""
    for module, name in (
        (consumer_module, "_SHORTEST_SLEEP"),
        (consumer_module, "_LONGEST_SLEEP"),
        (bells_module, "_AGAIN"),
    ):
        monkeypatch.setattr(module, name, 60.0)  # only what it is told ends its sleep
    master = own_cluster.owner(f"{{{namespace}:queue:q}}:bell")
    async with (
        Coordinator(own_cluster.url, namespace=namespace) as here,
        Coordinator(own_cluster.url, namespace=namespace) as there,
    ):
        queue = here.queue("q")
        for item in range(2):
            getter = asyncio.create_task(queue.get())
            await eventually(lambda: any(bell._is_in_line for bell in _bells(here)))
            if item == 0:
                master.kill()
                await asyncio.to_thread(own_cluster.wait_for_new_master, master)
            await there.queue("q").put(item)
            delivery = await asyncio.wait_for(getter, 20.0)
            assert delivery.item == item
            await delivery.ack()


async def test_place_that_is_lost_while_nobody_sleeps_is_taken_again(
    cluster: RealCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next sleeper does not rely on it, for a new master that wakes the first in line would have dropped it."""
    monkeypatch.setattr(bells_module, "_AGAIN", 60.0)
    key = f"{{{namespace}:queue:q}}:bell"
    async with Coordinator(cluster.url, namespace=namespace) as concert:
        queue = concert.queue("q")

        async def is_in_line() -> bool:
            return bool(await raw(concert).llen(key))

        for _ in range(2):
            getter = asyncio.create_task(queue.get())
            await eventually(is_in_line)
            getter.cancel()
            await asyncio.wait([getter])
            await raw(concert).delete(key)
            inbox = concert._ref.session.inbox
            assert isinstance(inbox, ShardedInbox)
            inbox.recheck(lambda _slot: True)  # as after its subscription was made again


async def test_place_that_is_lost_on_the_server_is_taken_again(
    cluster: RealCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that was deleted, or a server with older data, costs a few seconds."""
    monkeypatch.setattr(bells_module, "_AGAIN", 0.0)
    monkeypatch.setattr(consumer_module, "_SHORTEST_SLEEP", 0.1)
    monkeypatch.setattr(consumer_module, "_LONGEST_SLEEP", 0.2)
    key = f"{{{namespace}:queue:q}}:bell"
    async with Coordinator(cluster.url, namespace=namespace) as concert:
        getter = asyncio.create_task(concert.queue("q").get())
        for _ in range(2):

            async def is_in_line() -> bool:
                return bool(await raw(concert).llen(key))

            await eventually(is_in_line)
            await raw(concert).delete(key)
        getter.cancel()


def _bells(concert: Coordinator) -> Any:
    bells = concert._ref.session.bells
    assert isinstance(bells, ShardedBells)
    return bells._bells.values()


async def test_sleep_over_many_slots_leaves_a_cancellation_as_it_is(cluster: RealCluster, namespace: str) -> None:
    """A cancel scope around it knows its own again, and what rings meanwhile is for another."""
    async with Coordinator(cluster.url, namespace=namespace) as concert:
        keys = tuple(f"{{{namespace}:{number}}}:bell" for number in range(9))
        sleeper: Any = concert._ref.session.bells.sleeper(keys)
        for key in keys:  # the first time that it is heard there ends a sleep
            await concert._ref.session.inbox.listen(key)
        for _ in range(20):
            with anyio.CancelScope() as scope:
                asyncio.get_running_loop().call_soon(scope.cancel)
                await sleeper.rung(5)
            assert scope.cancelled_caught
        for turns in range(6):
            sleep = asyncio.create_task(sleeper.rung(5))
            await eventually(lambda: sleeper._woken is not None)
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
