"""A Redis Cluster on private ports, whose slots can be moved and whose masters can be replaced."""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from redis.exceptions import RedisError

from inconcert._redis.protocol.slots import SLOTS, slot_of
from tests.support.processes import process_state
from tests.support.servers import Kind, RealServer, free_port
from tests.support.world import world

__all__ = ["Node", "RealCluster"]

_DEADLINE = 30.0  # seconds
_RECHECK_AFTER = 0.02  # seconds


class Node(RealServer):
    """One server of a cluster.

    Args:
        kind: Which server.
        options: Lines of its configuration, "_" for "-".

    Attributes:
        id: Its name in the cluster, which stays the same when it is restarted.
        bus: The port on which other nodes talk to it.
    """

    def __init__(self, kind: Kind | None, **options: str) -> None:
        super().__init__(kind, cluster_enabled="yes", **options)
        self.id = secrets.token_hex(20)
        self.bus = self.port + 10_000 if self.kind == "redis6" else free_port()

    def prepare(self, lines: list[str]) -> None:
        """Let it know the cluster before it starts; meeting the others takes seconds."""
        known = [line.replace("flags ", "myself," if line.startswith(self.id) else "", 1) for line in lines]
        self._file.write_text("\n".join([*known, f"vars currentEpoch {len(lines)} lastVoteEpoch 0", ""]))

    @property
    def admin_url(self) -> str:
        """For looking at it and doing it harm: as the default user, in the only database of a cluster."""
        return self.url_of(0)

    def _arguments(self) -> list[str]:
        bus = [] if self.kind == "redis6" else ["--cluster-port", str(self.bus)]
        return [*super()._arguments(), *bus, "--cluster-config-file", str(self._file)]

    @property
    def _file(self) -> Path:
        return self.folder / "nodes.conf"  # not beside its data, which a restart may remove


class RealCluster:
    """Masters that share the slots, and replicas of them.

    It takes 2 s to start: a master waits that long before it takes commands.  With fewer than three masters none is
    replaced by itself when it fails: most masters must agree that it has.

    Args:
        masters: How many masters; each has the same number of slots, in order.
        replicas: How many replicas each of them has.
        kind: Which server; by default the one of the tests' world.
        options: Lines of the configuration of each, "_" for "-".

    Attributes:
        nodes: All servers, first those that were masters in the beginning. Each can be killed, paused and restarted,
            and keeps its place in the cluster.
    """

    def __init__(self, masters: int = 3, replicas: int = 0, *, kind: Kind | None = None, **options: str) -> None:
        self._masters = masters
        self._options = {
            "cluster_node_timeout": "1000",
            "cluster_replica_validity_factor": "0",
            "cluster_allow_replica_migration": "no",
            "repl_diskless_sync_delay": "0",
            "repl_ping_replica_period": "1",
        } | options
        self._opened = ExitStack()
        self.nodes = [Node(kind, **self._options) for _ in range(masters * (1 + replicas))]

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._opened.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._opened.close()

    @property
    def url(self) -> str:
        """For coordinators: as the user of the tests' world."""
        login = f"{world().login}@" if world().login else ""
        addresses = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        protocol = f"?protocol={world().protocol}" if world().protocol else ""
        return f"redis+cluster://{login}{addresses}{protocol}"

    @property
    def admin_url(self) -> str:
        """For the default user."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    @property
    def masters(self) -> list[Node]:
        """Those that have slots now, as a node that answers says."""
        return self._masters_by(self._living()[0])

    def owner(self, key: str) -> Node:
        """The master that has this key now."""
        return self.owner_of(slot_of(key))

    def owner_of(self, slot: int) -> Node:
        """The master that has this slot now, as a node that answers says."""
        owner = self._owner(self._living()[0], slot)
        assert owner is not None, f"slot {slot} has no master"
        return owner

    def replicas_of(self, master: Node) -> list[Node]:
        """The nodes that follow this one or, when it has failed, that could take its place."""
        return [node for node in self._family(master) if node is not master]

    def move_slot(self, slot: int, to: Node) -> None:
        """Move a slot the old way, key by key."""
        for _ in self.moving_slot(slot, to):
            pass

    def moving_slot(self, slot: int, to: Node) -> Iterator[int]:
        """Move a slot the old way, one key after each step, the change of the owner last.

        Yields:
            How many keys have been moved so far: 0 when the nodes have agreed to begin.
        """
        source = self.owner_of(slot)
        to.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
        moved = 0
        yield moved
        while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot, 1):
            source.command("MIGRATE", "127.0.0.1", to.port, keys[0], 0, 5000)
            moved += 1
            yield moved
        others = [node for node in self.masters if node not in (to, source)]
        for node in (to, source, *others):
            node.command("CLUSTER", "SETSLOT", slot, "NODE", to.id)

    def migrate_atomically(self, slots: Sequence[int], to: Node) -> None:
        """Move slots with all their keys at once, as Valkey 9 does, and return when all nodes know."""
        for source in {self.owner_of(slot) for slot in slots} - {to}:
            ranges = [part for slot in slots if self.owner_of(slot) is source for part in (slot, slot)]
            source.command("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", *ranges, "NODE", to.id)
        self._wait(lambda: all(self._owner(node, slot) is to for node in self._living() for slot in slots))

    def fail_over(self, master: Node) -> Node:
        """Let a replica of a living master take its place, and return it when all nodes know."""
        self.settle()
        self.replicas_of(master)[0].command("CLUSTER", "FAILOVER")
        return self.wait_for_new_master(master)

    def wait_for_new_master(self, before: Node) -> Node:
        """Return the replica that has taken the place of a master, when every node that runs knows."""
        self._wait(lambda: all(before not in self._masters_by(node) for node in self._living()))
        self._wait(self._is_agreed)
        masters = self.masters
        return next(node for node in self._family(before) if node in masters)

    def settle(self) -> None:
        """Return when every node that runs takes commands, knows the same masters, and has all that its master has."""
        self._wait(self._is_agreed)
        masters = self.masters
        replicas = [node for node in self._living() if node not in masters]
        self._wait(lambda: all(self._follows(replica, masters) for replica in replicas))

    def _start(self) -> None:
        masters, count = self.nodes[: self._masters], self._masters
        lines: list[str] = []
        for number, node in enumerate(self.nodes):
            master = masters[number % count]
            shard = f",,shard-id={master.id}" if node.kind == "valkey" else ""  # a Valkey without one dies of SPUBLISH
            address = f"{node.id} 127.0.0.1:{node.port}@{node.bus}{shard}"
            if node is master:
                slots = f"{SLOTS * number // count}-{SLOTS * (number + 1) // count - 1}"
                lines.append(f"{address} flags master - 0 0 {number + 1} connected {slots}")
            else:
                lines.append(f"{address} flags slave {master.id} 0 0 {number % count + 1} connected")
        for node in self.nodes:
            node.prepare(lines)
            self._opened.enter_context(node)
        self.settle()

    def _living(self) -> list[Node]:
        return [node for node in self.nodes if node.is_running() and process_state(node.pid) != "T"]

    def _family(self, node: Node) -> list[Node]:
        """A master and its replicas; they keep together, whichever of them is the master."""
        return self.nodes[self.nodes.index(node) % self._masters :: self._masters]

    def _masters_by(self, node: Node) -> list[Node]:
        return list(dict.fromkeys(owner for _, _, owner in self._ranges(node)))

    def _owner(self, asked: Node, slot: int) -> Node | None:
        return next((owner for first, last, owner in self._ranges(asked) if first <= slot <= last), None)

    def _ranges(self, asked: Node) -> list[tuple[int, int, Node]]:
        """The first and last slot of each range of slots, and its master, as this node says."""
        by_id = {node.id: node for node in self.nodes}
        try:
            found = asked.command("CLUSTER", "SLOTS")
        except RedisError:  # killed just now
            return []
        return sorted(((first, last, by_id[master[2]]) for first, last, master, *_ in found), key=lambda one: one[:2])

    def _is_agreed(self) -> bool:
        """Whether all nodes that run take commands, and say the same of who has which slots."""
        living = self._living()
        first = self._ranges(living[0])
        return all(self._takes_commands(node) and self._ranges(node) == first for node in living)

    def _takes_commands(self, node: Node) -> bool:
        try:
            return "cluster_state:ok" in node.command("CLUSTER", "INFO")
        except RedisError:
            return False

    def _follows(self, replica: Node, masters: list[Node]) -> bool:
        """Whether this replica has had all that its master has."""
        master = next(node for node in self._family(replica) if node in masters)
        try:
            ours = master.command("INFO", "replication")  # first: it goes on meanwhile
            theirs = replica.command("INFO", "replication")
        except RedisError:
            return False
        is_linked = theirs.get("master_link_status") == "up"
        return is_linked and bool(theirs["slave_repl_offset"] >= ours["master_repl_offset"])

    def _wait(self, fact: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _DEADLINE
        while not fact():
            if time.monotonic() > deadline:
                states = [node.command("CLUSTER", "NODES") for node in self._living()]
                raise AssertionError("the cluster does not get there:\n" + "\n".join(states))
            time.sleep(_RECHECK_AFTER)
