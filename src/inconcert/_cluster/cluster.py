"""A cluster as a process knows it: its nodes, their slots, and connecting to them.

A node that refuses a command names the right one, and that patches one slot.  The whole map is asked for when that
happens, when a connection is lost, and every 5 s while anything is held or waits, because a process that only listens
to a node that has left would hear of nothing.  One request at a time, and one for all who want it.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial

import anyio

from inconcert._cluster.blocking_cluster import BlockingCluster
from inconcert._cluster.slot_map import Node, SlotMap
from inconcert._redis.blocking.blocking_pools import twin_of
from inconcert._redis.find.node_pools import NodePools
from inconcert._redis.protocol.commands import pack
from inconcert._redis.protocol.replies import ErrorReply, Reply
from inconcert._redis.protocol.slots import slot_of
from inconcert._redis.wire.background import in_background
from inconcert._redis.wire.call import PlainCall
from inconcert._redis.wire.channel import Channel
from inconcert._redis.wire.wire import Pool, Wire, open_wire
from inconcert.errors import InconcertError, Unavailable

_log = logging.getLogger("inconcert.cluster")

_SLOTS = pack("CLUSTER", "SLOTS")
_EVERY = 5.0  # seconds between two looks while something waits
_CHECK_EVERY = 0.5  # seconds between two checks of the own connections, which send nothing
_APART = 0.1  # seconds between two requests at least
_PATIENCE = 1.0  # seconds that a node may take to answer
_LATE = f"a node of the cluster did not answer within {_PATIENCE:g} s"


class Cluster:
    """The nodes of a cluster."""

    def __init__(self, pools: NodePools) -> None:
        self._pools = pools
        self._seeds = [Node(*seed) for seed in pools.seeds]
        self._listeners: list[Callable[[], None]] = []
        self._checks: list[Callable[[], bool]] = []
        self._waits: list[Callable[[], bool]] = []
        self._loop = asyncio.get_running_loop()
        self._moved_at: dict[int, float] = {}  # slot -> when a node said so, by the loop's clock
        self._is_wanted = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._stop: anyio.CancelScope | None = None  # a task's own cancellation may be lost as a wait in it times out
        self.map = SlotMap()  # which master has which slots
        # gives the channel to a node if it is connected, so that no other connection is needed to ask it
        self.channel_to: Callable[[Node], Channel | None] = lambda _: None
        # whether a node does not answer now, so that it is asked last
        self.is_suspect: Callable[[Node], bool] = lambda _: False

    async def open(self) -> None:
        """Ask for the map, and keep it up to date from now on.

        Raises:
            Unavailable: No node answers, or it is not one of a cluster.
        """
        if errors := await self._refresh(self._seeds):
            raise Unavailable(f"no node of the cluster answers: {'; '.join(map(str, errors))}") from errors[0]
        self._keeper = in_background("asking the cluster for its slots", self._keep)

    async def close(self) -> None:
        """Ask no more, and close the connections left in the pools."""
        if self._keeper is not None:
            if self._stop is not None:
                self._stop.cancel()
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        await self._pools.close()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call this whenever the map has changed."""
        self._listeners.append(listener)

    def owner_of(self, key: str) -> Node | None:
        """The master that has this key, or this sharded channel; None if its slot has none now."""
        return self.map.owner(slot_of(key))

    def pool(self, node: Node) -> Pool:
        """The pool of connections to this node."""
        return self._pools.pool(node)

    def pool_of(self, key: str) -> Pool:
        """The source of connections to the master of this key; raises `Unavailable` if its slot has none now."""
        node = self.owner_of(key)
        if node is None:
            raise Unavailable("the cluster has no master for this key now; try again later")
        return self.pool(node)

    def new_blocking_cluster(self, *, timeout: float) -> BlockingCluster | None:
        """The masters for a thread, found by itself; None if its connections are not the driver's own."""
        nodes = [*self.map.masters, *self._seeds]
        twin = twin_of(self.pool(nodes[0]), timeout=timeout)
        if twin is None:
            return None
        return BlockingCluster(nodes, twin, timeout=timeout, reachable=self._pools.reachable)

    def watch(self, is_whole: Callable[[], bool]) -> None:
        """Ask for the map often as long as this says that something is not as it should be."""
        self._checks.append(is_whole)

    def look_while(self, is_waiting: Callable[[], bool]) -> None:
        """Ask for the map every 5 s as long as this, or another such, says that something is held or waits."""
        self._waits.append(is_waiting)

    def named_in(self, reply: ErrorReply) -> Node:
        """The node that a reply names: `MOVED SLOT HOST:PORT` or `ASK SLOT HOST:PORT`."""
        _, slot, address = str(reply).split(" ")[:3]
        host, _, port = address.rpartition(":")
        asked = self.map.owner(int(slot)) or self._seeds[0]
        return Node(*self._pools.reachable(host, int(port), asked.host))

    def moved(self, slot: int, node: Node) -> bool:
        """Note that this node has the slot now, because another said so.

        False if the slot was said to be elsewhere only a moment ago: nodes do not agree yet, and the next one would
        say something else again.
        """
        self.refresh()
        if self.map.owner(slot) == node:
            return True
        now = self._loop.time()
        if now < self._moved_at.get(slot, 0.0) + _APART:
            return False
        self._moved_at[slot] = now
        self.map.move(slot, node)
        self._tell()
        return True

    def refresh(self) -> None:
        """Ask for the map soon: it seems to be out of date."""
        self._is_wanted.set()

    async def _keep(self) -> None:
        with anyio.CancelScope() as self._stop:
            while True:
                look_at = self._loop.time() + _EVERY * random.uniform(0.8, 1.2)
                while not self._is_wanted.is_set() and (self._loop.time() < look_at or not self._is_awaited()):
                    with anyio.move_on_after(_CHECK_EVERY):
                        await self._is_wanted.wait()
                    if not all(is_whole() for is_whole in self._checks):
                        break
                self._is_wanted.clear()
                self._moved_at.clear()
                nodes = [*self.map.nodes]
                random.shuffle(nodes)
                nodes.sort(key=self.is_suspect)
                if errors := await self._refresh([*nodes, *self._seeds]):
                    _log.warning("no node of the cluster answers: %s", "; ".join(map(str, errors)))
                await anyio.sleep(_APART)

    def _is_awaited(self) -> bool:
        return any(is_waiting() for is_waiting in self._waits)

    async def _refresh(self, nodes: list[Node]) -> list[InconcertError]:
        """Ask these nodes until one answers; returns the errors if none does."""
        errors: list[InconcertError] = []
        for node in dict.fromkeys(nodes):
            try:
                reply = await self._ask(node)
            except InconcertError as error:
                errors.append(error)
                continue
            self._pools.listen_for_tokens()
            new = SlotMap.read(reply, partial(self._pools.reachable, asked=node.host))
            has_changed = new.changed_since(self.map)
            self.map = new
            if has_changed:
                self._tell()
            return []
        return errors

    async def _ask(self, node: Node) -> Reply:
        channel = self.channel_to(node)
        if channel is None:
            return await _Question(self.pool(node)).answer()
        try:
            with anyio.fail_after(_PATIENCE):
                call = PlainCall("CLUSTER", "SLOTS")
                channel.submit(call)
                return await call
        except TimeoutError as error:
            raise Unavailable(_LATE) from error

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


class _Question:
    """`CLUSTER SLOTS` on a connection of its own."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._replied: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    async def answer(self) -> Reply:
        """Ask and wait for the answer; raises `Unavailable` if the node did not answer in time, or refused."""
        wire: Wire | None = None
        try:
            with anyio.fail_after(_PATIENCE):
                wire = await open_wire(self._pool, self, timeout=_PATIENCE)
                wire.write(_SLOTS)
                return await self._replied
        except TimeoutError as error:
            raise Unavailable(_LATE) from error
        finally:
            if wire is not None:
                with anyio.CancelScope(shield=True):
                    await wire.close()

    def received(self, reply: Reply) -> None:
        if self._replied.done():
            return
        if isinstance(reply, ErrorReply):
            self._replied.set_exception(Unavailable(f"the node does not say which slots it has: {reply}"))
        else:
            self._replied.set_result(reply)

    def disconnected(self, error: Exception) -> None:
        if not self._replied.done():
            self._replied.set_exception(Unavailable(f"the connection to a node was lost: {error}"))

    def writable(self) -> None:
        """Nothing to do: one command was written."""

    def log_in(self, credentials: tuple[str, ...]) -> None:
        """Nothing to do: the connection is about to be closed."""
