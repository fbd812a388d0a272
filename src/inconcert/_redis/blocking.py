"""A connection for a thread that runs a script while the event loop is blocked.

It connects to the same server as the shared pool, with the same user and certificates, through the synchronous half of
the driver.
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
from inconcert._redis.roles import HELLO, role_in
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

# The pool options for the address and the credentials; the others concern event loops, or are not needed here.
_WHERE = {"host", "port", "path", "db"}
_AS_WHOM = {"username", "password", "credential_provider", "client_name", "driver_info"}


class BlockingConnection:
    """One connection, opened when it is first needed.

    Args:
        pool: The pool whose address and credentials it uses.
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
        """Whether a connection like this pool's can be made; requires one of the driver's own connection classes."""
        return pool.connection_class in _TWINS and not pool.connection_kwargs.get("redis_connect_func")

    def run(self, command: Command) -> Reply:
        """Run a script and block until it replies.

        Raises:
            Unavailable: The script was not run.
            OutcomeUnknown: The script was sent, but no valid reply came in time.

        Cost: 1 round trip, plus connecting and logging in before the first.
        """
        try:
            if self._connection is None:
                self._connection = self._make()
            self._connection.connect()  # does nothing if connected
            self._check_role()
        except Exception as error:
            raise command.operation.error(Unavailable, f"could not reach the server: {error}") from error
        try:
            self._connection.send_packed_command([command.pack_with_source()], check_health=False)
            return self._connection.read_response(disable_decoding=True)
        except (redis.RedisError, OSError) as error:
            self._connection.disconnect()
            what = f"got no valid reply: {error}; it may have been executed, so check before repeating it"
            raise command.operation.error(OutcomeUnknown, what) from error

    def _check_role(self) -> None:
        """Raise ConnectionError if Sentinels have named the server, and it is not the master now."""
        if isinstance(self._pool, redis.asyncio.sentinel.SentinelConnectionPool):
            self._connection.send_packed_command([HELLO], check_health=False)
            role = role_in(self._connection.read_response(disable_decoding=True))
            if role != "master":
                self._connection.disconnect()
                raise ConnectionError(f"it is a {role}, not a master")

    def _make(self) -> Any:  # noqa: ANN401 - one of several classes, whose common base has no type hints
        pool = self._pool
        options = {
            name: value
            for name, value in pool.connection_kwargs.items()
            if name in _WHERE | _AS_WHOM or name.startswith("ssl_")
        }
        if isinstance(pool, redis.asyncio.sentinel.SentinelConnectionPool):
            options["host"], options["port"] = cast("Any", pool).master_address  # as the pool last saw it
        return _TWINS[pool.connection_class](
            **options,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=self._timeout,
            socket_connect_timeout=self._timeout,
        )
