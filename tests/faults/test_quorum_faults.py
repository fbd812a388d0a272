"""A quorum lock while servers die, fall silent, forget and answer late, and while holders die and stand still."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import Any

import anyio
import pytest

from inconcert import LeaseLost, OutcomeUnknown, QuorumLock, QuorumNotReached
from inconcert._redis.find.peers import Peer
from inconcert._redis.protocol.scripts import Script
from inconcert.quorum import rounds
from tests.support.eventually import eventually
from tests.support.processes import Child, spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import new_client
from tests.support.servers import RealServer, command

HERE = "tests.faults.test_quorum_faults"

NEVER = 20.0  # seconds; the deadline of a server that a test must not wait for
SOON = 5.0  # seconds; much less than that


@pytest.fixture(scope="module")
def running() -> Iterator[list[RealServer]]:
    """Five servers and a witness."""
    with ExitStack() as stack:
        yield [stack.enter_context(RealServer()) for _ in range(6)]


@pytest.fixture
def servers(running: list[RealServer]) -> Iterator[list[RealServer]]:
    """Five servers, all of which work when a test begins."""
    yield running[:5]
    for server in running:
        if server.is_running():
            server.resume()
        else:
            server.start()


@pytest.fixture
async def clients(servers: list[RealServer]) -> AsyncIterator[list[Any]]:
    """One client for each, as users make them; in the end none of their connections is in use."""
    made = [new_client(server.tcp_url) for server in servers]
    yield made
    await all_are_idle(made)


@pytest.fixture
async def proxies(servers: list[RealServer]) -> AsyncIterator[list[Proxy]]:
    """Three of the servers behind a network that can be broken."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Proxy(server.tcp_url)) for server in servers[:3]]


@pytest.fixture
async def far(proxies: list[Proxy]) -> AsyncIterator[list[Any]]:
    """Clients behind that network."""
    made = [new_client(proxy.url) for proxy in proxies]
    yield made
    for proxy in proxies:
        await proxy.heal()
    await all_are_idle(made)


@pytest.fixture
def key(namespace: str) -> str:
    """Where a server keeps the holder."""
    return f"{{{namespace}:quorum:door}}:holder"


async def all_are_idle(clients: list[Any]) -> None:
    """Nobody is asked any more, and every connection was given back; then close them."""
    await eventually(lambda: not rounds._under_way)  # a straggler may be about to take a connection
    for client in clients:
        await eventually(partial(is_idle, client))
        await client.aclose()


def is_idle(client: Any) -> bool:
    """Whether every connection of a client was given back."""
    return not client.connection_pool._in_use_connections


async def at_each(servers: list[RealServer], key: str) -> list[str | None]:
    """Who has it at each server."""
    return [server.command("GET", key) for server in servers]


async def use_once(quorum: QuorumLock, clients: list[Any]) -> None:
    """Let each server have a connection that is ready."""
    async with quorum:
        pass
    for client in clients:
        await eventually(partial(has_nothing, client, quorum._keys.holder))
        await eventually(partial(is_idle, client))


async def has_nothing(client: Any, key: str) -> bool:
    """Whether a server has no holder."""
    return await client.get(key) is None


async def nowhere(servers: list[RealServer], key: str) -> None:
    """Return when nobody has it at any of these."""

    async def nobody() -> bool:
        return not any(await at_each(servers, key))

    await eventually(nobody)


async def everywhere(servers: list[RealServer], key: str, holder: str) -> None:
    """Return when this one has it at all of these."""

    async def all_have() -> bool:
        return set(await at_each(servers, key)) == {holder}

    await eventually(all_have)


# A minority is gone.


@pytest.mark.parametrize(("number", "fault"), [(3, "dead"), (3, "mute"), (5, "dead"), (5, "mute")])
async def test_minority_is_not_waited_for(
    servers: list[RealServer], clients: list[Any], key: str, number: int, fault: str
) -> None:
    """Acquire, renew and release go on without it."""
    namespace = key[1:].partition(":")[0]
    gone = servers[: number // 2]
    for server in gone:
        server.kill() if fault == "dead" else server.pause()

    others = servers[number // 2 : number]
    quorum = QuorumLock(clients[:number], "door", ttl=60, namespace=namespace, server_timeout=2)
    started = time.monotonic()
    async with quorum as lease:
        await lease.renew()
        assert await quorum.try_acquire() is None
    assert time.monotonic() - started < 1.8  # of the 2 s that each of these could have cost
    await nowhere(others, key)


async def test_slow_server_is_not_waited_for_and_counts_when_it_answers(
    servers: list[RealServer], proxies: list[Proxy], far: list[Any], namespace: str, key: str
) -> None:
    """Its grant is one more, and it is given back with the rest."""
    quorum = QuorumLock(far, "door", ttl=60, namespace=namespace, server_timeout=NEVER)
    await use_once(quorum, far)
    proxies[0].hold_replies()
    async with asyncio.timeout(SOON):
        async with quorum as lease:
            await everywhere(servers[:3], key, lease.holder)
            proxies[0].release_replies()
            await lease.renew()
        await nowhere(servers[:3], key)


async def test_late_grant_to_one_who_failed_is_given_back(
    servers: list[RealServer], proxies: list[Proxy], far: list[Any], namespace: str, key: str
) -> None:
    """A majority refused at once; the last one grants, and is slow to say so."""
    quorum = QuorumLock(far, "door", ttl=60, namespace=namespace, server_timeout=NEVER)
    await use_once(quorum, far)
    for server in servers[:2]:
        server.command("SET", key, "another", "PX", 60_000)
    proxies[2].hold_replies()
    async with asyncio.timeout(SOON):
        assert await quorum.try_acquire() is None
        await eventually(lambda: servers[2].command("GET", key))
        proxies[2].release_replies()
        await nowhere(servers[2:3], key)


async def test_grant_whose_answer_was_lost_is_given_back(
    servers: list[RealServer], proxies: list[Proxy], far: list[Any], namespace: str, key: str
) -> None:
    """By a release on the same connection, for no other gets an answer either."""
    quorum = QuorumLock(far, "door", ttl=60, namespace=namespace, server_timeout=0.3)
    await use_once(quorum, far)
    for server in servers[:2]:
        server.command("SET", key, "another", "PX", 60_000)
    before = evals(servers[2])
    proxies[2].hold_replies()
    assert await quorum.try_acquire() is None
    await eventually(lambda: evals(servers[2]) == before + 2)
    await nowhere(servers[2:3], key)


async def test_server_that_stood_still_keeps_nothing_for_those_who_did_not_wait(
    servers: list[RealServer], clients: list[Any], namespace: str, key: str
) -> None:
    """When it runs again, it reads what they asked for, and right behind it that they gave it back."""
    quorum = QuorumLock(clients[:3], "door", ttl=60, namespace=namespace, server_timeout=0.2)
    await use_once(quorum, clients[:3])
    before = evals(servers[0])
    servers[0].pause()
    async with quorum:
        pass
    await eventually(partial(is_idle, clients[0]))
    servers[0].resume()
    await eventually(lambda: evals(servers[0]) >= before + 2)
    await nowhere(servers[:1], key)


def evals(server: RealServer) -> int:
    """How many scripts it has run."""
    stats: dict[str, Any] = server.command("INFO", "commandstats")
    return int(stats["cmdstat_eval"]["calls"])


async def test_cancelled_acquire_gives_back_what_was_granted_late(
    servers: list[RealServer], proxies: list[Proxy], far: list[Any], namespace: str, key: str
) -> None:
    """All three granted it, and nobody knew."""
    quorum = QuorumLock(far, "door", ttl=60, namespace=namespace, server_timeout=NEVER)
    await use_once(quorum, far)
    for proxy in proxies:
        proxy.hold_replies()
    waiter = asyncio.create_task(quorum.acquire())

    async def all_granted() -> bool:
        return all(await at_each(servers[:3], key))

    await eventually(all_granted)
    waiter.cancel()
    await asyncio.wait([waiter])
    assert waiter.cancelled()
    for proxy in proxies:
        proxy.release_replies()
    await nowhere(servers[:3], key)


# A majority is gone.


@pytest.mark.parametrize("fault", ["dead", "mute"])
async def test_majority_gone_is_told_with_names_and_reasons(
    servers: list[RealServer], clients: list[Any], namespace: str, key: str, fault: str
) -> None:
    """By every verb that asks; the one that granted it has it back."""
    gone = servers[1:3]
    for server in gone:
        server.kill() if fault == "dead" else server.pause()
    quorum = QuorumLock(clients[:3], "door", namespace=namespace, server_timeout=0.3)
    why = "Error 111" if fault == "dead" else "no answer within 0.3 s"

    for ask in (quorum.acquire, quorum.try_acquire, quorum.locked):
        started = time.monotonic()
        with pytest.raises(QuorumNotReached, match="2 of 3 servers failed") as raised:
            await ask()
        assert time.monotonic() - started < 0.3 + 1.0
        assert raised.value.name == "door"
        assert raised.value.reasons.keys() == {f"127.0.0.1:{server.port}" for server in gone}
        assert all(why in reason for reason in raised.value.reasons.values())
    await nowhere(servers[:1], key)


async def test_password_is_in_no_error(namespace: str) -> None:
    """Only where the server is, and what it says."""
    with RealServer(requirepass="correct-horse") as server:
        others = [new_client(f"redis://:wrong-horse@127.0.0.1:{server.port}/{db}") for db in range(3)]
        others[1].connection_pool.connection_kwargs["host"] = "127.0.0.2"  # two more places that refuse it
        others[2].connection_pool.connection_kwargs["host"] = "127.0.0.3"
        with pytest.raises(QuorumNotReached) as raised:
            await QuorumLock(others, "door", namespace=namespace).acquire()
        assert "horse" not in str(raised.value)
        await all_are_idle(others)


async def test_lease_is_lost_when_a_majority_falls_silent(
    servers: list[RealServer], clients: list[Any], namespace: str
) -> None:
    """The body stops at the local deadline, before the servers let another in."""
    quorum = QuorumLock(clients[:3], "door", ttl=0.8, namespace=namespace, server_timeout=0.2)
    stopped_at: list[float] = []

    async def body() -> None:
        async with quorum as lease:
            for server in servers[1:3]:
                server.pause()
            try:
                await anyio.sleep_forever()
            finally:
                stopped_at.append(time.monotonic() - lease._state.deadline)

    with pytest.raises(LeaseLost):
        await body()
    assert 0 <= stopped_at[0] < 1.0


async def test_release_that_no_majority_confirms_says_so(
    servers: list[RealServer], clients: list[Any], namespace: str, key: str
) -> None:
    """By hand; what could not be given back lapses. In `async with` nothing is raised."""
    quorum = QuorumLock(clients[:3], "door", ttl=5, namespace=namespace, server_timeout=0.3)
    lease = await quorum.acquire()
    for server in servers[1:3]:
        server.pause()
    with pytest.raises(QuorumNotReached, match="no answer within"):
        await lease.release()
    await nowhere(servers[:1], key)


# A server comes back, and answers get lost.


async def test_server_that_comes_back_empty_has_the_lease_again(
    servers: list[RealServer], clients: list[Any], namespace: str, key: str
) -> None:
    """From the next renewal on; nobody gets in by it alone."""
    quorum = QuorumLock(clients[:3], "door", ttl=60, namespace=namespace)
    async with quorum as lease:
        await everywhere(servers[:3], key, lease.holder)
        servers[0].restart(empty=True)
        assert await quorum.try_acquire() is None

        async def has_it_again() -> bool:
            await lease.renew()
            return [lease.holder] == await at_each(servers[:1], key)

        await eventually(has_it_again)


async def test_connections_that_died_while_idle_cost_nothing(
    servers: list[RealServer], clients: list[Any], namespace: str
) -> None:
    """All servers were restarted since the last time: each is asked once more on a new connection."""
    quorum = QuorumLock(clients[:3], "door", namespace=namespace)
    await use_once(quorum, clients[:3])
    for server in servers[:3]:
        server.restart(empty=True)
    async with quorum:
        pass


async def test_answers_lost_by_a_cut_are_asked_for_again(
    servers: list[RealServer], proxies: list[Proxy], far: list[Any], namespace: str, key: str
) -> None:
    """Every connection breaks after the script ran, once for the grant and once for the release."""
    quorum = QuorumLock(far, "door", ttl=60, namespace=namespace, server_timeout=SOON)
    await use_once(quorum, far)
    for proxy in proxies:
        proxy.cut_after_replies(0, lose_next=True)
    lease = await quorum.acquire()
    await everywhere(servers[:3], key, lease.holder)

    for proxy in proxies:
        proxy.cut_after_replies(0, lose_next=True)
    await lease.release()  # finds nothing the second time, and does not take that for a loss
    await nowhere(servers[:3], key)


async def test_next_user_of_a_client_gets_their_own_answer(
    proxies: list[Proxy], far: list[Any], namespace: str
) -> None:
    """The connection on which an answer was given up is closed."""
    quorum = QuorumLock(far, "door", namespace=namespace, server_timeout=0.3)
    await use_once(quorum, far)
    proxies[0].hold_replies()
    async with quorum:
        pass
    await eventually(partial(is_idle, far[0]))
    proxies[0].release_replies()
    for number in range(5):
        assert await far[0].echo(f"{number}") == f"{number}".encode()


# Holders die and stand still.


async def hold(urls: list[str], namespace: str, ttl: float) -> None:
    """In a child: hold the lock, and tell what becomes of it."""
    clients = [new_client(url) for url in urls]
    quorum = QuorumLock(clients, "door", ttl=ttl, namespace=namespace)
    try:
        async with quorum:
            tell("held")
            try:
                await anyio.sleep_forever()
            finally:
                tell("stopped")
    except LeaseLost:
        tell("lost")
    for client in clients:
        await client.aclose()


async def test_killed_holder_blocks_for_one_ttl_at_most(
    servers: list[RealServer], clients: list[Any], namespace: str
) -> None:
    """`kill -9`: nobody tells the waiter, who asks again at least every second."""
    async with spawn(f"{HERE}:hold", [server.tcp_url for server in servers[:3]], namespace, 1.0) as child:
        await child.wait_for("held")
        quorum = QuorumLock(clients[:3], "door", namespace=namespace)
        waiter = asyncio.create_task(quorum.acquire())
        child.kill()
        killed_at = time.monotonic()
        lease = await waiter
        assert time.monotonic() - killed_at < 1.0 + 1.0 + 1.0
        await lease.release()


async def test_paused_holder_learns_of_its_loss(
    servers: list[RealServer], clients: list[Any], namespace: str, key: str
) -> None:
    """SIGSTOP for longer than the ttl: its body is stopped as soon as it runs, and it takes nothing back."""
    async with spawn(f"{HERE}:hold", [server.tcp_url for server in servers[:3]], namespace, 1.0) as child:
        await child.wait_for("held")
        child.pause()
        async with QuorumLock(clients[:3], "door", ttl=15, namespace=namespace) as lease:
            await everywhere(servers[:3], key, lease.holder)
            child.resume()
            await child.wait_for("stopped")
            await child.wait_for("lost")
            assert await child.wait() == 0
            await everywhere(servers[:3], key, lease.holder)


# Exclusion, as a witness saw it.


async def contend(urls: list[str], witness: str, namespace: str, me: str, visits: int) -> None:
    """In a child: enter again and again, and let a witness see whether another is inside."""
    clients = [new_client(url) for url in urls]
    quorum = QuorumLock(clients, "door", ttl=5, namespace=namespace, server_timeout=0.3)
    room, log = f"{namespace}:room", f"{namespace}:log"
    tell("ready")
    for _ in range(visits):
        async with quorum:
            alone = command(witness, "SET", room, me, "NX", "PX", 60_000)
            command(witness, "RPUSH", log, f"{me} {'alone' if alone else 'not alone'}")
            await anyio.sleep(0.002)
            command(witness, "DEL", room)
    tell("done")
    await all_are_idle(clients)


async def test_nobody_meets_another_while_servers_die_and_fall_silent(
    running: list[RealServer], servers: list[RealServer], namespace: str
) -> None:
    """Three processes on five servers: one is killed, one falls silent, and the killed one comes back after a ttl."""
    witness = running[5]
    urls = [server.tcp_url for server in servers]
    log = f"{namespace}:log"

    def seen() -> list[str]:
        entries: list[str] = witness.command("LRANGE", log, 0, -1)
        return entries

    async with AsyncExitStack() as stack:
        children: list[Child] = [
            await stack.enter_async_context(
                spawn(f"{HERE}:contend", urls, witness.url, namespace, f"process-{number}", 25)
            )
            for number in range(3)
        ]
        await eventually(lambda: len(seen()) > 10)
        servers[0].kill()
        await eventually(lambda: len(seen()) > 25)
        servers[1].pause()
        for child in children:
            await child.wait_for("done", timeout=40)
            assert await child.wait() == 0, child.errors()
    history = seen()
    witness.command("DEL", log, f"{namespace}:room")
    assert len(history) == 75
    assert {entry.partition(" ")[2] for entry in history} == {"alone"}


async def test_refusal_of_a_second_sending_says_nothing_of_the_first(namespace: str) -> None:
    """A server took it, its answer was lost, and then it refuses: the outcome is unknown, so it is given back later."""
    count = Script("test/count", "-- KEYS  key\nreturn redis.call('INCR', KEYS[1])").bind()
    key = f"{namespace}:count"
    with RealServer() as own_server:
        own_server.command("ACL", "SETUSER", "ann", "on", ">word", "~*", "&*", "+@all")
        async with (
            Proxy(own_server.tcp_url) as proxy,
            new_client(proxy.url.replace("redis://", "redis://ann:word@")) as client,
        ):
            await client.ping()
            proxy.hold_replies()
            asking = asyncio.create_task(Peer(client, timeout=5).run(count(key=key)))
            await eventually(lambda: own_server.command("GET", key) == "1")
            own_server.command("ACL", "SETUSER", "ann", "-eval")
            proxy.cut()
            proxy.release_replies()
            with pytest.raises(OutcomeUnknown, match=r"sent again.*NOPERM|sent again.*permission"):
                await asking
