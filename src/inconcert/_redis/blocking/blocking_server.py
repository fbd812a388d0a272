"""The connections of threads to one server, which its address or Sentinels name."""

from inconcert._redis.blocking.blocking_pools import BlockingPool
from inconcert._redis.blocking.blocking_wire import BlockingWire
from inconcert._redis.protocol.replies import ErrorReply, is_passing


class OneServer:
    """One connection for commands to one server, and others when they are asked for."""

    is_cluster = False

    def __init__(self, pool: BlockingPool, *, timeout: float) -> None:
        self._timeout = timeout  # of each step of connecting, in seconds
        self._wire: BlockingWire | None = None
        self._pool = pool
        self.database = int(self._pool.connection_kwargs.get("db") or 0)

    def wire(self, key: str) -> BlockingWire:
        if self._wire is None:
            self._wire = self.new_wire(key)
        return self._wire

    def new_wire(self, key: str) -> BlockingWire:
        del key
        wire = BlockingWire(
            self._pool.connection_class(
                **self._pool.connection_kwargs
            ),  # the pool would count it, and end at its limit
            timeout=self._timeout,
        )
        wire.check_kind()  # each time: Sentinels may have named a server that is no longer the master
        return wire

    def lost(self, wire: BlockingWire) -> None:
        wire.close()
        self._wire = None

    def refused(self, wire: BlockingWire, key: str, reply: ErrorReply) -> bool:
        del key
        if is_passing(reply):
            self.lost(wire)
            return True
        return False

    def close(self) -> None:
        if self._wire is not None:
            self.lost(self._wire)
