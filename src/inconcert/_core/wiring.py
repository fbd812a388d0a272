"""The connections of a session: to one server, or to the masters of a cluster."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from inconcert._core.safeguards import Conditions, Safeguards
from inconcert._redis.blocking.blocking_pools import twin_of
from inconcert._redis.blocking.blocking_server import BlockingServer
from inconcert._redis.driver.clients import Client, ClusterClient
from inconcert._redis.driver.tokens import listen_for_tokens
from inconcert._redis.find.master_watch import MasterWatch, sentinel_pools
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.wire.bells import Bells
from inconcert._redis.wire.channel import Channel
from inconcert._redis.wire.greeting import greet
from inconcert._redis.wire.inbox import Inbox, Messages
from inconcert._redis.wire.pubsub import PubSub
from inconcert._redis.wire.transport import Commands
from inconcert._redis.wire.wire import Pool
from inconcert._rules.urls import Node

if TYPE_CHECKING:  # imported where there is a cluster
    from inconcert._core.cluster_wiring import ClusterWiring


class Needs(NamedTuple):
    """The demands of a session on its connections."""

    keys: Keyspace  # the keys and channels of the namespace
    session: str  # the session's id
    conditions: Conditions  # the conditions on a grant
    timeout: float  # how long a call may take, reconnecting included, in seconds
    lost: Callable[[], None]  # called when a connection for commands is back after a loss
    holds: Callable[[], bool]  # says whether the session holds anything


def wiring_of(client: Client, needs: Needs) -> "_ServerWiring | ClusterWiring":
    """The connections to the servers of a client, which is the user's own or made for a URL."""
    if isinstance(client, ClusterClient):
        from inconcert._core.cluster_wiring import ClusterWiring  # noqa: PLC0415 - not where there is one server

        return ClusterWiring(client, needs)
    return _ServerWiring(client.connection_pool, needs)


class _ServerWiring:
    """Those to one server: one for commands, one for the inbox, one for broadcasts, and one for bells."""

    def __init__(self, pool: Pool, needs: Needs) -> None:
        self._pool = pool
        self._lost = needs.lost
        keys, session, timeout = needs.keys, needs.session, needs.timeout
        safeguards = Safeguards(needs.conditions, keys, lambda _: pool, timeout=timeout)
        self.safeguards = safeguards if safeguards.is_needed else None
        [bell] = keys.parts("session", session, "bell")
        channel = Channel(pool, timeout=timeout, reconnected=self._reconnected, greeting=safeguards.greeting)
        wake_ups = PubSub(pool, timeout=timeout / 2, purpose="wake-ups")
        broadcasts = PubSub(pool, timeout=timeout / 2, purpose="broadcasts")
        bells = Bells(pool, channel, bell, timeout=timeout / 2)
        self._all = channel, wake_ups, broadcasts, bells
        self.channel: Commands = channel
        self.inbox = Inbox(wake_ups, keys.inboxes(bell) + session)
        self.broadcasts: Messages = broadcasts
        self.bells = bells
        self._watch = MasterWatch.of(pool, self._moved)

    async def open(self) -> None:
        await self.channel.open()
        await greet(self.channel)
        if self.safeguards is not None:
            await self.safeguards.check()
        if self._watch is not None:
            self._watch.start()
            self._listen_for_tokens()

    async def close(self) -> None:
        if self._watch is not None:
            await self._watch.close()
        if self.safeguards is not None:
            await self.safeguards.close()

    def _listen_for_tokens(self) -> None:
        """Have the credential provider tell the connections to the master, and those to Sentinels that share it."""
        provider = self._pool.connection_kwargs.get("credential_provider")
        pools = [self._pool, *sentinel_pools(self._pool)]
        shared = [pool for pool in pools if pool.connection_kwargs.get("credential_provider") is provider]
        listen_for_tokens(provider, lambda: [pool.re_auth_callback for pool in shared])

    def new_blocking_server(self, *, timeout: float) -> BlockingServer | None:
        twin = twin_of(self._pool, timeout=timeout)
        return BlockingServer(twin, timeout=timeout) if twin is not None else None

    def _reconnected(self, lost_at: float) -> None:
        _, _, broadcasts, bells = self._all
        self.inbox.server_was_lost(lost_at)
        broadcasts.server_was_lost(lost_at)
        bells.server_was_lost(lost_at)
        self._lost()

    def _moved(self, to: Node | None) -> None:
        for connection in self._all:
            connection.server_moved(to)
        if self.safeguards is not None:
            self.safeguards.server_moved(to)
