"""The connections of threads to the masters of a cluster: one for commands to each that is in use."""

from collections.abc import Callable, Iterable
from functools import partial

from inconcert._cluster.slot_map import Node, SlotMap
from inconcert._redis.blocking.blocking_pools import BlockingPool
from inconcert._redis.blocking.blocking_server import BlockingServer
from inconcert._redis.blocking.blocking_wire import BlockingWire
from inconcert._redis.protocol.commands import pack
from inconcert._redis.protocol.replies import ErrorReply, is_passing
from inconcert._redis.protocol.slots import slot_of
from inconcert.errors import Unavailable

Address = tuple[str, int]
Reachable = Callable[[str, int, str], Address]

_ASKING = pack("ASKING")
_SLOTS = pack("CLUSTER", "SLOTS")


class BlockingCluster(BlockingServer):
    """The masters of a cluster.

    The map of slots is asked for when it is needed, and again after a connection was lost or a slot is not served.
    """

    is_cluster = True

    def __init__(
        self, seeds: Iterable[Address], pool: BlockingPool, *, timeout: float, reachable: Reachable | None = None
    ) -> None:
        super().__init__(pool, timeout=timeout)
        self._reachable = reachable or _as_named
        self._seeds = [Node(*seed) for seed in seeds]
        self._map = SlotMap()
        self._wires: dict[Node, BlockingWire] = {}
        self._asking: BlockingWire | None = None  # where the next command goes instead, while its slot moves there

    def wire(self, key: str) -> BlockingWire:
        asking, self._asking = self._asking, None
        return asking or self._wire_to(self._owner(key))

    def new_wire(self, key: str) -> BlockingWire:
        return self._connect(self._owner(key))

    def lost(self, wire: BlockingWire) -> None:
        wire.close()
        self._wires = {node: other for node, other in self._wires.items() if other is not wire}
        self._map = SlotMap()

    def refused(self, wire: BlockingWire, key: str, reply: ErrorReply) -> bool:
        if reply.code in ("MOVED", "ASK"):
            node = self._named_in(wire, reply)
            if reply.code == "MOVED":
                self._map.move(slot_of(key), node)
            else:
                self._ask(node)
        elif is_passing(reply):
            self._map = SlotMap()
        else:
            return False
        return True

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()
        self._wires.clear()

    # Private.

    def _owner(self, key: str) -> Node:
        slot = slot_of(key)
        if self._map.owner(slot) is None:
            self._map = self._ask_for_map()
        node = self._map.owner(slot)
        if node is None:
            raise Unavailable("no node of the cluster has the slot of this key; check the cluster")
        return node

    def _wire_to(self, node: Node) -> BlockingWire:
        if node not in self._wires:
            self._wires[node] = self._connect(node)
        return self._wires[node]

    def _connect(self, node: Node) -> BlockingWire:
        try:
            wire = self._open(node)
            wire.check_kind(expects_cluster=True)
        except Unavailable:
            self._map = SlotMap()  # it may have been replaced
            raise
        return wire

    def _open(self, node: Node) -> BlockingWire:
        options = {**self._pool.connection_kwargs, "host": node.host, "port": node.port}
        return BlockingWire(self._pool.connection_class(**options), timeout=self._timeout)

    def _ask(self, node: Node) -> None:
        """Have a node that is still importing a slot serve the next command."""
        try:
            wire = self._wire_to(node)
        except Unavailable:
            return  # the owner refuses again, until it is there
        try:
            wire.exchange_soon(_ASKING)
        except OSError:
            self.lost(wire)
        else:
            self._asking = wire

    def _ask_for_map(self) -> SlotMap:
        errors: list[str] = []
        for node in dict.fromkeys([*self._wires, *self._seeds]):
            try:
                wire = self._open(node)
            except Unavailable as error:
                errors.append(f"{node}: {error}")
                continue
            try:
                reply = wire.exchange_soon(_SLOTS)
                if not isinstance(reply, ErrorReply):
                    return SlotMap.read(reply, partial(self._named_by, node))
                errors.append(f"{node}: {reply}")
            except OSError as error:
                errors.append(f"{node}: {error}")
            finally:
                wire.close()
        raise Unavailable(f"no node of the cluster says which slots it has: {'; '.join(errors)}")

    def _named_in(self, wire: BlockingWire, reply: ErrorReply) -> Node:
        host, _, port = str(reply).split(" ")[2].rpartition(":")
        asked = next((node for node, other in self._wires.items() if other is wire), self._seeds[0])
        return Node(*self._named_by(asked, host, int(port)))

    def _named_by(self, asked: Node, host: str, port: int) -> Address:
        return self._reachable(host, port, asked.host)


def _as_named(host: str, port: int, asked: str) -> Address:
    """An empty host means that of the node that was asked."""
    return (host if host not in ("", "?") else asked, port)
