"""The connections of threads to one server, which its address or Sentinels name."""

from inconcert._redis.blocking.blocking_pools import BlockingPool
from inconcert._redis.blocking.blocking_wire import BlockingWire
from inconcert._redis.protocol.replies import ErrorReply, is_passing


class BlockingServer:
    """One connection for commands to one server, and others when they are asked for; a cluster has more servers."""

    is_cluster = False

    def __init__(self, pool: BlockingPool, *, timeout: float) -> None:
        self._timeout = timeout  # of each step of connecting, in seconds
        self._wire: BlockingWire | None = None
        self._pool = pool
        self.database = int(self._pool.connection_kwargs.get("db") or 0)

    def wire(self, key: str) -> BlockingWire:
        """The connection on which commands on this key go, connected; raises `Unavailable` if it cannot be made."""
        if self._wire is None:
            self._wire = self.new_wire(key)
        return self._wire

    def new_wire(self, key: str) -> BlockingWire:
        """Another connection to the server of this key; raises `Unavailable` if it cannot be made."""
        del key
        connection = self._pool.connection_class(**self._pool.connection_kwargs)  # a pool would end at its limit
        wire = BlockingWire(connection, timeout=self._timeout)
        wire.check_kind()  # each time: Sentinels may have named a server that is no longer the master
        return wire

    def lost(self, wire: BlockingWire) -> None:
        """Close a connection that broke: `wire` makes another."""
        wire.close()
        self._wire = None

    def refused(self, wire: BlockingWire, key: str, reply: ErrorReply) -> bool:
        """Take note of a refusal; returns whether the command was not executed, and is to be sent again."""
        del key
        if is_passing(reply):
            self.lost(wire)
            return True
        return False

    def close(self) -> None:
        """Close all connections that `wire` made."""
        if self._wire is not None:
            self.lost(self._wire)
