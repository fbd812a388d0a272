"""The connections of a session to the masters of a cluster."""

from typing import TYPE_CHECKING

from inconcert._cluster.bells import ShardedBells
from inconcert._cluster.cluster import Cluster
from inconcert._cluster.inbox import ShardedInbox
from inconcert._cluster.pubsub import ShardedPubSub
from inconcert._cluster.router import Router
from inconcert._cluster.slot_map import Node
from inconcert._core.safeguards import Safeguards
from inconcert._redis.blocking.blocking_server import BlockingServer
from inconcert._redis.driver.clients import ClusterClient
from inconcert._redis.find.node_pools import NodePools
from inconcert._redis.wire.greeting import greet
from inconcert._redis.wire.inbox import Inbox, Messages
from inconcert._redis.wire.transport import Commands

if TYPE_CHECKING:  # which imports this module
    from inconcert._core.wiring import Needs


class ClusterWiring:
    """Those to the masters of a cluster: for each in use, one for commands, one for the inbox, one for broadcasts.

    With `replicas=` the last two are one, because there is one for `WAIT`: a process has three to a master at most.
    """

    def __init__(self, client: ClusterClient, needs: "Needs") -> None:
        self._cluster = cluster = Cluster(NodePools(client))
        self._lost = needs.lost
        keys, session, timeout = needs.keys, needs.session, needs.timeout
        safeguards = Safeguards(needs.conditions, keys, cluster.pool_of, timeout=timeout)
        self.safeguards = safeguards if safeguards.is_needed else None
        if safeguards.is_needed:
            cluster.on_change(lambda: safeguards.masters_changed([*map(cluster.pool, cluster.map.masters)]))
        router = Router(cluster, timeout=timeout, reconnected=self._reconnected)
        self.channel: Commands = router
        wake_ups = ShardedPubSub(cluster, timeout=timeout / 2, purpose="wake-ups")
        inbox = self._inbox = ShardedInbox(wake_ups, lambda key: keys.inboxes(key) + session, timeout=timeout / 2)
        self.inbox: Inbox = inbox
        broadcasts = wake_ups
        if not needs.conditions.replicas:
            broadcasts = ShardedPubSub(cluster, timeout=timeout / 2, purpose="broadcasts")
        self.broadcasts: Messages = broadcasts
        self.bells = ShardedBells(router, inbox, session)
        cluster.look_while(lambda: needs.holds() or inbox.has_waiters)
        cluster.look_while(lambda: broadcasts.has_listeners)

    async def open(self) -> None:
        await self._cluster.open()
        await self.channel.open()
        await greet(self.channel, expects_cluster=True)

    async def close(self) -> None:
        if self.safeguards is not None:
            await self.safeguards.close()
        await self._cluster.close()

    def new_blocking_server(self, *, timeout: float) -> BlockingServer | None:
        return self._cluster.new_blocking_cluster(timeout=timeout)

    def _reconnected(self, node: Node) -> None:
        self._inbox.recheck(lambda slot: self._cluster.map.owner(slot) == node)
        self._lost()
