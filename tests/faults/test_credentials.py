"""Credentials that change while connections live: rotating tokens, and providers that tell of new ones."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.credentials
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from inconcert import Coordinator, Unavailable
from inconcert._redis.operate.rights import least_rights
from inconcert._redis.protocol.scripts import Command, Script
from tests.support.blocking import blocking_channel
from tests.support.clusters import RealCluster
from tests.support.eventually import eventually
from tests.support.sentinels import SentinelSet
from tests.support.servers import RealServer

# From redis-py 5.3 on; before, nobody tells of new tokens.
Streaming: Any = getattr(redis.credentials, "StreamingCredentialProvider", redis.CredentialProvider)
streams = pytest.mark.skipif(Streaming is redis.CredentialProvider, reason="this redis-py has no streaming providers")


class Token:
    """What a streaming provider emits."""

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password

    def try_get(self, key: str) -> str | None:
        return self._user if key == "oid" else None

    def get_value(self) -> str:
        return self._password


class Provider(Streaming):  # type: ignore[misc] # it is one of two
    """A provider whose credentials a test changes."""

    def __init__(self, user: str, password: str) -> None:
        self.credentials = (user, password)
        self._callback: Callable[[Token], Any] | None = None

    def get_credentials(self) -> tuple[str, str]:
        return self.credentials

    async def get_credentials_async(self) -> tuple[str, str]:
        return self.credentials

    def on_next(self, callback: Callable[[Token], Any]) -> None:
        self._callback = callback

    def on_error(self, callback: Callable[[Exception], Any]) -> None:
        self._on_error = callback

    def is_streaming(self) -> bool:
        return True

    @property
    def is_ours(self) -> bool:
        """Whether it tells the coordinator, and not only the driver."""
        return getattr(self._callback, "__module__", "").startswith("inconcert.")

    async def fail(self, error: Exception) -> None:
        """Have no new credentials, and tell the client."""
        await self._on_error(error)

    async def emit(self, user: str, password: str) -> None:
        """Have new credentials, and tell the client."""
        self.credentials = (user, password)
        assert self._callback is not None
        await self._callback(Token(user, password))


@pytest.fixture
def guarded(own_server: RealServer) -> RealServer:
    """A server with the users `old` and `new`, who may use the namespace `shop`; their passwords are their names."""
    for user in "old", "new":
        own_server.command("ACL", "SETUSER", user, "on", f">{user}", *least_rights("shop", server=own_server.version))
    return own_server


@asynccontextmanager
async def at(server: RealServer, provider: Provider, protocol: int = 3) -> AsyncGenerator[Coordinator]:
    """A coordinator that logs in with what the provider has, and listens, waits in line and sleeps."""
    make: Any = redis.asyncio.Redis
    client = make(port=server.port, credential_provider=provider, protocol=protocol, client_name="ours")
    async with (
        client,
        Coordinator.from_client(client, namespace="shop") as concert,
        concert.signal("s").subscribe(),
        asyncio.TaskGroup() as group,
    ):
        sleeper = group.create_task(concert.queue("q").get())
        await eventually(lambda: is_settled(server))
        yield concert
        sleeper.cancel()


def ours(server: RealServer) -> dict[str, dict[str, str]]:
    """The coordinator's connections, by id."""
    lines = server.command("CLIENT", "LIST").splitlines()
    connections = [dict(field.partition("=")[::2] for field in line.split()) for line in lines]
    return {each["id"]: each for each in connections if each["name"] == "ours"}


def is_settled(server: RealServer) -> bool:
    """Whether one sleeps, two are subscribed, and one carries commands."""
    states = sorted(each["cmd"] if each["sub"] == "0" else "subscribed" for each in ours(server).values())
    return len(states) == 4 and states.count("subscribed") == 2 and "blpop" in states


def users(server: RealServer) -> list[str]:
    """As whom the coordinator's connections are logged in."""
    return [each["user"] for each in ours(server).values()]


async def works(concert: Coordinator) -> None:
    """Commands, wake-ups and broadcasts come through."""
    async with asyncio.timeout(5):
        lease = await concert.lock("a").acquire()
        waiter = asyncio.create_task(concert.lock("a").acquire())
        await eventually(concert.lock("a").waiters)
        await lease.release()
        await (await waiter).release()
        async with concert.signal("t").subscribe() as subscription:
            await concert.signal("t").broadcast("heard")
            assert await subscription.next() == "heard"


async def test_new_connection_logs_in_with_the_new_token(guarded: RealServer) -> None:
    """Each connection asks the provider; one that is lost is replaced by one with what the provider has then."""
    provider = Provider("old", "old")
    async with at(guarded, provider) as concert:
        provider.credentials = ("old", "rotated")
        guarded.command("ACL", "SETUSER", "old", "resetpass", ">rotated")
        await works(concert)  # connections that live stay logged in
        before = ours(guarded)
        guarded.command("CLIENT", "KILL", "USER", "old")
        await eventually(lambda: is_settled(guarded))
        assert before.keys().isdisjoint(ours(guarded))
        await works(concert)


async def test_file_of_a_password_is_read_for_each_connection(guarded: RealServer, tmp_path: Path) -> None:
    """One that is replaced counts from the next connection on; one that is missing is named."""
    file = tmp_path / "password"
    file.write_text("old\n", "utf-8")
    url = f"redis://old@127.0.0.1:{guarded.port}?password_file={file}"
    async with Coordinator(url, namespace="shop") as concert:
        await works(concert)
        file.write_text("rotated", "utf-8")
        guarded.command("ACL", "SETUSER", "old", "resetpass", ">rotated")
        guarded.command("CLIENT", "KILL", "USER", "old")
        await works(concert)
        file.unlink()
        with pytest.raises(Unavailable, match=r"No such file .*password"):
            await Coordinator(url, namespace="shop").__aenter__()


async def test_wrong_token_is_unavailable(guarded: RealServer) -> None:
    """As a wrong password is; and not shown."""
    make: Any = redis.asyncio.Redis
    client = make(port=guarded.port, credential_provider=Provider("old", "a-wrong-token"), retry=Retry(NoBackoff(), 0))
    with pytest.raises(Unavailable, match="user name and the password") as caught:
        await Coordinator.from_client(client, namespace="shop").__aenter__()
    assert "a-wrong-token" not in repr(caught.value)
    await client.aclose()


@streams
async def test_connections_log_in_again_when_the_provider_tells(guarded: RealServer) -> None:
    """On RESP3 all of them stay open, and nothing is missed; the driver alone would leave them as they are."""
    provider = Provider("old", "old")
    async with at(guarded, provider) as concert:
        before = ours(guarded).keys()
        await provider.emit("new", "new")
        await concert.queue("q").put(1)  # wakes the sleeper, whose connection was waiting
        await eventually(lambda: users(guarded) == ["new"] * 4)
        assert ours(guarded).keys() == before
        guarded.command("ACL", "DELUSER", "old")  # which cuts its connections
        await works(concert)
        assert ours(guarded).keys() == before


@streams
async def test_subscribed_connections_are_replaced_before_resp3(guarded: RealServer) -> None:
    """They may only subscribe, so they log in anew; commands go on on their connection."""
    provider = Provider("old", "old")
    async with at(guarded, provider, protocol=2) as concert:
        [commands] = [number for number, each in ours(guarded).items() if each["sub"] == "0" and each["cmd"] != "blpop"]
        await provider.emit("new", "new")
        await concert.queue("q").put(1)
        await eventually(lambda: users(guarded) == ["new"] * 4)
        assert commands in ours(guarded)
        await works(concert)


@streams
async def test_provider_may_tell_from_a_thread_of_its_own(guarded: RealServer) -> None:
    """As those do that refresh their tokens in one."""
    provider = Provider("old", "old")
    async with at(guarded, provider) as concert:
        thread = threading.Thread(target=lambda: asyncio.run(provider.emit("new", "new")))
        thread.start()
        await asyncio.to_thread(thread.join)
        await concert.queue("q").put(1)
        await eventually(lambda: users(guarded) == ["new"] * 4)


def give_users(*servers: RealServer) -> None:
    """The users `old` and `new`, as `guarded` has them, on each of these."""
    for server in servers:
        for user in "old", "new":
            server.command("ACL", "SETUSER", user, "on", f">{user}", "~*", "&*", "+@all")


def users_on(*servers: RealServer) -> set[str]:
    """As whom any connection of the client is logged in."""
    return {user for server in servers for user in users(server)}


@streams
async def test_connections_to_a_master_that_sentinels_name_log_in_again(caplog: pytest.LogCaptureFixture) -> None:
    """The driver tells none of them. That there is no token is logged, without what the provider says."""
    provider = Provider("old", "old")
    with SentinelSet() as sentinels:
        give_users(*sentinels.servers)
        addresses = [("127.0.0.1", one.port) for one in sentinels.sentinels]
        make: Any = redis.asyncio.sentinel.Sentinel
        named = make(addresses)
        client = named.master_for("shop", credential_provider=provider, protocol=3, client_name="ours")
        async with client, Coordinator.from_client(client, namespace="shop") as concert:
            await works(concert)
            before = ours(sentinels.master).keys()
            await provider.emit("new", "new")
            await eventually(lambda: users_on(sentinels.master) == {"new"})
            assert before <= ours(sentinels.master).keys()
            sentinels.master.command("ACL", "DELUSER", "old")
            await works(concert)
            assert before <= ours(sentinels.master).keys()
            await provider.fail(LookupError("a secret"))
            assert "no new token: LookupError" in caplog.text
            assert "secret" not in caplog.text
        for sentinel in named.sentinels:
            await sentinel.aclose()


@streams
async def test_connections_to_the_nodes_of_a_cluster_log_in_again(cluster: RealCluster, namespace: str) -> None:
    """Those of the client, too, however it and the coordinator took turns to listen to the provider."""
    provider = Provider("old", "old")
    give_users(*cluster.nodes)
    make: Any = redis.asyncio.RedisCluster
    nodes = [ClusterNode("127.0.0.1", node.port) for node in cluster.nodes]
    client = make(startup_nodes=nodes, credential_provider=provider, protocol=3, client_name="ours")
    try:
        async with client, Coordinator.from_client(client, namespace=namespace) as concert:
            leases = [await concert.lock(f"item:{number}").acquire() for number in range(9)]  # on each node
            assert await client.get(f"{namespace}:a") is None
            before = {number for node in cluster.masters for number in ours(node)}
            await eventually(lambda: provider.is_ours, timeout=20)
            await provider.emit("new", "new")
            await eventually(lambda: users_on(*cluster.masters) == {"new"})
            for node in cluster.nodes:
                node.command("ACL", "DELUSER", "old")
            await works(concert)
            assert await client.get(f"{namespace}:a") is None
            assert before <= {number for node in cluster.masters for number in ours(node)}
            for lease in leases:
                await lease.release()
    finally:
        for node in cluster.nodes:
            for user in "old", "new":
                node.command("ACL", "DELUSER", user)


@streams
async def test_refused_token_leaves_connections_as_they_are(
    guarded: RealServer, caplog: pytest.LogCaptureFixture
) -> None:
    """An error is logged, without the token."""
    provider = Provider("old", "old")
    async with at(guarded, provider) as concert:
        before = ours(guarded).keys()
        await provider.emit("new", "a-wrong-token")
        await concert.queue("q").put(1)
        await eventually(lambda: caplog.text.count("refused the new credentials") == 4)
        assert "a-wrong-token" not in caplog.text
        assert ours(guarded).keys() == before
        await works(concert)


async def test_blocking_connection_asks_the_provider(guarded: RealServer) -> None:
    """The thread that stands in for a blocked event loop logs in with what the provider has then."""
    provider = Provider("old", "gone")
    make: Any = redis.asyncio.Redis
    client = make(port=guarded.port, credential_provider=provider)
    provider.credentials = ("new", "new")
    with blocking_channel(client.connection_pool) as channel:
        assert channel.run(Command(Script("tests/one", "return 1"), ("{shop:a}:b",), ())) == 1
    await client.aclose()
