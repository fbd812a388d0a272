"""The slot map of a cluster, as a node answers it: each slot and its master."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Self

from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.slots import SLOTS

Reachable = Callable[[str, int], tuple[str, int]]


class Node(NamedTuple):
    """The address of a node."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class SlotMap:
    """The master of each slot."""

    def __init__(self, owners: Iterable[Node | None] = (), replicas: Iterable[Node] = ()) -> None:
        self.owners = list(owners) or [None] * SLOTS
        self._replicas = frozenset(replicas)
        self.masters = frozenset(owner for owner in self.owners if owner is not None)  # all that have slots

    @classmethod
    def read(cls, reply: Reply, reachable: Reachable) -> Self:
        """The slots and masters in the reply to `CLUSTER SLOTS`.

        It is `[[first, last, [host, port, ...] of the master, [host, port, ...] of a replica, ...], ...]`.
        """
        owners: list[Node | None] = [None] * SLOTS
        replicas: set[Node] = set()
        for first, last, *nodes in reply:
            master, *others = (Node(*reachable((node[0] or b"").decode(), int(node[1]))) for node in nodes)
            owners[first : last + 1] = [master] * (last + 1 - first)
            replicas.update(others)
        return cls(owners, replicas)

    @property
    def nodes(self) -> frozenset[Node]:
        """All nodes that it names."""
        return self.masters | self._replicas

    def owner(self, slot: int) -> Node | None:
        """The master of this slot; None if it has none."""
        return self.owners[slot]

    def move(self, slot: int, node: Node) -> None:
        """Note that this node has the slot now."""
        self.owners[slot] = node
        self.masters |= {node}

    def changed_since(self, other: "SlotMap") -> bool:
        """True if a slot has another master here than there."""
        return self.owners != other.owners
