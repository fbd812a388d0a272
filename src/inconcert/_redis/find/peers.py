"""Independent servers, each queried through the user's own client with its own deadline.

A connection is taken from the client's pool for one request and its reply.  A connection with an outstanding reply is
closed: its next user must not receive that reply.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, cast

import redis.asyncio
import redis.asyncio.connection
import redis.exceptions

from inconcert._redis.driver.clients import Client, check_client
from inconcert._redis.driver.driver import get_connection
from inconcert._redis.protocol.replies import ErrorReply, Reply, error_for
from inconcert._redis.protocol.scripts import Command
from inconcert.errors import OutcomeUnknown, Unavailable

Connection = redis.asyncio.connection.AbstractConnection
Undo = Callable[[], bytes | None]


class Answer(NamedTuple):
    """A server's reply to a request."""

    reply: Reply
    sends: int  # more than 1: an earlier run may have been executed, and its reply lost


class Peer:
    """One server among several, by the user's client, which the user closes.

    Raises:
        TypeError: `client` is not a `redis.asyncio.Redis`.
    """

    def __init__(self, client: Client, *, timeout: float) -> None:
        self._pool = check_client("each server needs", client).connection_pool
        self._timeout = timeout  # of a request, connecting included, in seconds
        # its address, without secrets: `host:port`, a socket's path, or the name that Sentinel knows it by
        self.title = _title(self._pool)

    async def run(self, command: Command, *, undo: Undo | None = None) -> Answer:
        """Run a script.  If the connection breaks (it may have died while idle), the script is sent once more.

        Args:
            command: The script with its keys and arguments.
            undo: Called when the reply is no longer waited for; returns a command to send after it on the same
                connection, so that a server that was stopped runs both, in this order.

        Raises:
            Unavailable: The script was not run.
            OutcomeUnknown: The script was sent, but no reply came in time.
            WrongState: A key holds something that inconcert did not write.
        """
        packed = command.pack_with_source()  # short enough to send each time, so no server can lack it
        sends = 0
        try:
            async with asyncio.timeout(self._timeout) as limit:
                while True:
                    async with self._connection(anew=sends > 0) as connection:
                        sends += 1
                        try:
                            return Answer(await _exchange(connection, packed, undo, limit), sends)
                        except redis.exceptions.ConnectionError:
                            if sends > 1:
                                raise
        except redis.exceptions.ResponseError as error:
            raise error_for(ErrorReply.of(error), command.operation, sends=sends) from error
        except Exception as error:  # also what escapes redis-py when a transport dies (AttributeError)
            why = _why(error)
            if isinstance(error, TimeoutError):
                why = f"no answer within {self._timeout:g} s" + (f": {why}" if why else "")
            raise (OutcomeUnknown if sends else Unavailable)(why or repr(error)) from error

    @asynccontextmanager
    async def _connection(self, *, anew: bool) -> AsyncGenerator[Connection]:
        connection = await get_connection(self._pool)
        try:
            if anew:
                await connection.disconnect(nowait=True)
                await connection.connect()  # type: ignore[no-untyped-call]
            yield connection
        finally:
            with suppress(KeyError):  # the client was closed, and its pool has forgotten the connection
                await self._pool.release(connection)


async def _exchange(connection: Connection, packed: bytes, undo: Undo | None, limit: asyncio.Timeout) -> Reply:
    try:
        await connection.send_packed_command(packed, check_health=False)
        if limit.expired():
            raise asyncio.CancelledError  # the driver's wait_for swallowed it, as it can in Python 3.11
        return await cast("Any", connection).read_response(
            disable_decoding=True, timeout=math.inf, disconnect_on_error=False
        )
    except redis.exceptions.ResponseError:  # also a reply
        raise
    except BaseException:
        last = undo() if undo is not None else None
        if last is not None and connection.is_connected:
            with suppress(redis.exceptions.RedisError):  # the connection was broken
                await connection.send_packed_command(last, check_health=False)
        await connection.disconnect(nowait=True)
        raise


def _title(pool: redis.asyncio.ConnectionPool) -> str:
    options: dict[str, Any] = pool.connection_kwargs
    address = options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
    return str(getattr(pool, "service_name", address))


def _why(error: BaseException | None) -> str:
    """The cause of an error: the driver may have been about to retry when it timed out."""
    while error is not None:
        if isinstance(error, redis.exceptions.RedisError | OSError) and not isinstance(error, TimeoutError):
            return str(error).rstrip(".")
        error = error.__context__
    return ""
