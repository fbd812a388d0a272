"""A connection for a thread that runs a script while the event loop stands still.

It leads where the connections of the shared pool lead, with the same user and the same certificates, but is opened by
the synchronous half of the driver.
"""

from typing import Any, Self, cast

import redis
import redis.asyncio
import redis.asyncio.connection
import redis.asyncio.sentinel
import redis.connection
from redis.backoff import NoBackoff
from redis.retry import Retry

from inconcert._redis.replies import Reply
from inconcert._redis.scripts import Command
from inconcert._redis.wire import Pool
from inconcert.errors import OutcomeUnknown, Unavailable

__all__ = ["BlockingConnection"]

_TWINS: dict[Any, Any] = {
    redis.asyncio.connection.Connection: redis.connection.Connection,
    redis.asyncio.connection.SSLConnection: redis.connection.SSLConnection,
    redis.asyncio.connection.UnixDomainSocketConnection: redis.connection.UnixDomainSocketConnection,
    redis.asyncio.sentinel.SentinelManagedConnection: redis.connection.Connection,
    redis.asyncio.sentinel.SentinelManagedSSLConnection: redis.connection.SSLConnection,
}

# Of a pool's options those that say where to and as whom; the others are about event loops, or of no use here.
_WHERE = {"host", "port", "path", "db"}
_AS_WHOM = {"username", "password", "credential_provider", "client_name", "driver_info"}


class BlockingConnection:
    """One connection, opened when it is first needed.

    Args:
        pool: Whose connections it resembles.
        timeout: How long the server may take for each step, in seconds.
    """

    def __init__(self, pool: Pool, *, timeout: float) -> None:
        self._pool = pool
        self._timeout = timeout
        self._connection: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._connection is not None:
            self._connection.disconnect()

    @staticmethod
    def is_possible(pool: Pool) -> bool:
        """Whether there can be one like those of this pool: not if their class is not the driver's own."""
        return pool.connection_class in _TWINS and not pool.connection_kwargs.get("redis_connect_func")

    def run(self, command: Command) -> Reply:
        """Run a script and block until its reply is here.

        Raises:
            Unavailable: It was not run.
            OutcomeUnknown: It was sent, and no good reply came in time.

        Cost: 1 round trip, and those of connecting and logging in before the first.
        """
        try:
            if self._connection is None:
                self._connection = self._make()
            self._connection.connect()  # which does nothing if it is connected
        except Exception as error:
            raise Unavailable(f"{command.title}: the server could not be reached: {error}") from error
        try:
            self._connection.send_packed_command([command.pack_with_source()], check_health=False)
            return self._connection.read_response(disable_decoding=True)
        except (redis.RedisError, OSError) as error:
            self._connection.disconnect()
            raise OutcomeUnknown(f"{command.title}: no good reply: {error}; it may have been executed") from error

    def _make(self) -> Any:  # noqa: ANN401 - of one of several classes, whose common one has no type hints
        pool = self._pool
        options = {
            name: value
            for name, value in pool.connection_kwargs.items()
            if name in _WHERE | _AS_WHOM or name.startswith("ssl_")
        }
        if isinstance(pool, redis.asyncio.sentinel.SentinelConnectionPool):
            options["host"], options["port"] = cast("Any", pool).master_address  # as the pool has seen it last
        return _TWINS[pool.connection_class](
            **options,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=self._timeout,
            socket_connect_timeout=self._timeout,
        )
