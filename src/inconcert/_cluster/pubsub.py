"""Sharded channels of a cluster: each is subscribed to at the master of its slot, on one connection to each master.

A server that loses a slot ends its subscriptions and says so; this moves them to the new master.  Then their listeners
are notified that messages may have been missed, as after a lost connection.

The answer to `SUNSUBSCRIBE` cannot be told from that: if the slot leaves in the same moment, the node says that the
subscription has ended, and refuses the command.  So a `PING` follows it: whatever comes before its reply is the answer.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable
from itertools import chain
from typing import Literal

from inconcert._cluster.cluster import Cluster
from inconcert._cluster.slot_map import Node
from inconcert._redis.protocol.commands import pack
from inconcert._redis.protocol.operations import Operation
from inconcert._redis.protocol.replies import ErrorReply, is_passing
from inconcert._redis.protocol.slots import slot_of
from inconcert._redis.wire.background import attempt
from inconcert._redis.wire.pubsub import Listener, PubSub, Topic
from inconcert._redis.wire.turns import each_in_turns
from inconcert._redis.wire.wire import Pool, Wire
from inconcert.errors import InconcertError, Unavailable

_SOON = 0.05  # seconds until a subscription that was refused or ended is tried again


class ShardedPubSub:
    """A connection to each master with any number of channels, each with any number of listeners.

    Patterns are not sharded: they have a connection of their own, to any node.
    """

    def __init__(self, cluster: Cluster, *, timeout: float, purpose: str) -> None:
        self._cluster = cluster
        self._timeout = timeout  # seconds that a node may take to answer
        self._purpose = purpose  # as log messages name it
        self._shards: dict[Node, _Shard] = {}
        self._homeless: deque[Topic] = deque()  # to subscribe to again soon
        self._patterns: PubSub | None = None
        self._pattern_node: Node | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._closing: set[asyncio.Task[None]] = set()
        self._end: InconcertError | None = None
        self._is_closing = False  # no more connections
        cluster.on_change(self._map_changed)
        cluster.watch(self._is_whole)

    async def open(self) -> None:
        """Nothing to do: the first listener of a node starts the connection."""

    async def close(self) -> None:
        """Release the connections."""
        self._is_closing = True
        if self._retry is not None:
            self._retry.cancel()
        if self._patterns is not None:
            await self._patterns.close()
        await asyncio.gather(*(shard.close() for shard in self._shards.values()), *self._closing)

    def closed(self, error: InconcertError) -> Awaitable[object]:
        """End all listeners, and refuse new ones; the awaitable is done when the last has ended."""
        self._end = error
        told = [each.closed(error) for each in self._shards.values()]
        if self._patterns is not None:
            told.append(self._patterns.closed(error))
        ends = chain.from_iterable(topic.ends() for topic in [*self._homeless])
        return asyncio.gather(*told, each_in_turns("ending a subscription", ends, lambda end: end(error)))

    async def listen(self, channel: str, listener: Listener, *, is_pattern: bool = False) -> None:
        """Subscribe a listener to a channel until `forget`. It receives everything published after this returns.

        Raises:
            Unavailable: The node did not confirm in time, or refused.
        """
        if self._end is not None:
            raise self._end.with_traceback(None)  # many raise this one
        if is_pattern:
            await self._plain().listen(channel, listener, is_pattern=True)
            return
        shard = self._shard_of(channel)
        if shard is None:
            what = "was not confirmed: the cluster has no master for it now; try again later"
            raise Operation.subscribing(channel).error(Unavailable, what)
        await shard.listen(channel, listener)

    def follow(self, channel: str, listener: Listener) -> None:
        """Subscribe a listener without waiting: it is told that it may have missed something once this is confirmed.

        While this is closing it does nothing.
        """
        if self._is_closing:
            return
        topic = Topic(channel, "SSUBSCRIBE")
        shard = self._shard_of(channel)
        if shard is not None:
            topic = shard.adopt(topic)
        else:
            self._try_again(topic)
        topic.listeners[listener] = None

    def forget(self, channel: str, listener: Listener, *, is_pattern: bool = False) -> None:
        """End `listen`, at once."""
        if is_pattern:
            self._plain().forget(channel, listener, is_pattern=True)
            return
        for shard in self._shards.values():
            shard.forget(channel, listener)
        for topic in self._homeless:
            if topic.name == channel:
                topic.listeners.pop(listener, None)
                topic.newcomers.pop(listener, None)

    @property
    def has_listeners(self) -> bool:
        """True if anyone listens."""
        every = [*self._shards.values(), *([self._patterns] if self._patterns is not None else [])]
        return bool(self._homeless) or any(each.has_listeners for each in every)

    def server_was_lost(self, at: float) -> bool:
        """Nothing to drop: a node that fails breaks the connections to it, and no others."""
        del at
        return False

    # Called by shards.

    def ended(self, topic: Topic, reply: ErrorReply | None = None) -> None:
        """A node does not serve this channel, or no longer; the reply may name the node that does."""
        if reply is not None and reply.code == "MOVED":
            self._cluster.moved(slot_of(topic.name), self._cluster.named_in(reply))
        self._cluster.refresh()
        self._try_again(topic)

    # Private.

    def _is_whole(self) -> bool:
        return not self._homeless and all(shard.is_connected for shard in self._shards.values())

    def _plain(self) -> PubSub:
        if self._patterns is None:
            node = self._pattern_node = random.choice([*self._cluster.map.masters])
            pool = self._cluster.pool(node)
            self._patterns = PubSub(pool, timeout=self._timeout, purpose=f"{self._purpose} by pattern")
        return self._patterns

    def _shard_of(self, channel: str) -> "_Shard | None":
        node = self._cluster.owner_of(channel)
        if node is None:
            return None
        shard = self._shards.get(node)
        if shard is None:
            purpose = f"{self._purpose} of {node}"
            pool = self._cluster.pool(node)
            shard = self._shards[node] = _Shard(pool, timeout=self._timeout, purpose=purpose, owner=self)
        return shard

    def _try_again(self, topic: Topic) -> None:
        self._homeless.append(topic)
        if self._retry is None and not self._is_closing:
            self._retry = self._loop.call_later(_SOON, self._find_homes)

    def _find_homes(self) -> None:
        self._retry = None
        homeless, self._homeless = self._homeless, deque()
        for topic in homeless:
            if topic.listeners or topic.newcomers:
                attempt("subscribing at another master", self._find_home, topic)

    def _find_home(self, topic: Topic) -> None:
        shard = self._shard_of(topic.name)
        if shard is not None:
            shard.adopt(topic)
        else:
            self._try_again(topic)

    def _map_changed(self) -> None:
        """Move subscriptions elsewhere than at the master of its slot; leave nodes that are not masters."""
        if self._end is not None or self._is_closing:
            return
        for node, shard in list(self._shards.items()):
            for topic in shard.give_back(lambda topic: self._cluster.owner_of(topic.name) != node):  # noqa: B023
                self._find_home(topic)
            if node not in self._cluster.map.masters:
                del self._shards[node]
                self._leave(shard)
        if self._patterns is not None and self._pattern_node not in self._cluster.map.masters:
            left, self._patterns = self._patterns, None
            for topic in left.give_back(lambda _: True):
                self._plain().adopt(topic)
            self._leave(left)

    def _leave(self, pubsub: PubSub) -> None:
        closing = asyncio.ensure_future(pubsub.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


class _Shard(PubSub):
    """The subscriptions at one master."""

    _verb: Literal["SUBSCRIBE", "SSUBSCRIBE"] = "SSUBSCRIBE"

    def __init__(self, pool: Pool, *, timeout: float, purpose: str, owner: ShardedPubSub) -> None:
        super().__init__(pool, timeout=timeout, purpose=purpose)
        self._owner = owner  # moves channels from one master to another

    def _unsubscribe(self, wire: Wire, topic: Topic) -> None:
        wire.write(pack("SUNSUBSCRIBE", topic.name) + pack("PING"))
        self._unanswered.append("SUNSUBSCRIBE")  # until the reply to the PING

    def _subscription_ended(self, name: bytes) -> None:
        topic = self._channels.get(name)
        if topic is not None and topic.is_confirmed:  # otherwise it was one from before
            del self._channels[name]
            self._owner.ended(topic)

    def _refused(self, reply: ErrorReply) -> None:
        topic = self._unanswered[0]
        if topic == "SUNSUBSCRIBE":
            if reply.code != "MOVED":
                self._link.drop(ConnectionError(f"a subscription could not be ended: {reply}"))
        elif isinstance(topic, Topic) and (reply.code == "MOVED" or is_passing(reply)):
            self._unanswered.popleft()
            if self._has(topic):
                del self._channels[topic.name.encode()]
                self._owner.ended(topic, reply)
        else:
            super()._refused(reply)
