"""Servers that know nothing of each other, each asked through a client of the user's, with a deadline of its own.

A connection is taken from the client's pool for one question and its answer.  One on which an answer is outstanding is
closed: it must not reach whoever uses the connection next.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, cast

import redis.asyncio
import redis.asyncio.connection
import redis.exceptions

from inconcert._redis.clients import Client, check_client
from inconcert._redis.driver import get_connection
from inconcert._redis.replies import ErrorReply, Reply, error_for
from inconcert._redis.scripts import Command
from inconcert.errors import OutcomeUnknown, Unavailable

__all__ = ["Answer", "Client", "Peer"]

Connection = redis.asyncio.connection.AbstractConnection
Undo = Callable[[], bytes | None]


class Answer(NamedTuple):
    """What a server said to a question."""

    reply: Reply
    sends: int  # more than 1: an earlier run may have been executed, and its reply lost


class Peer:
    """One server among several.

    Args:
        client: The way to it; it stays its user's, who closes it.
        timeout: Longest that a question to it may take, connecting included, in seconds.

    Attributes:
        title: Where it is, without secrets: `host:port`, a socket's path, or the name that Sentinel knows it by.

    Raises:
        TypeError: `client` is no `redis.asyncio.Redis`.
    """

    def __init__(self, client: Client, *, timeout: float) -> None:
        self._pool = check_client("each server needs", client).connection_pool
        self._timeout = timeout
        self.title = _title(self._pool)

    async def run(self, command: Command, *, undo: Undo | None = None) -> Answer:
        """Run a script.  If the connection breaks, which may have died while it was idle, it is sent once more.

        Args:
            command: Which one, with its keys and arguments.
            undo: Asked, when its answer is not waited for any longer, for a command to send behind it on the same
                connection: a server that stood still then runs both, in this order.

        Raises:
            Unavailable: It was not run.
            OutcomeUnknown: It was sent, and no reply came in time.
            WrongState: A key holds something that is not ours.
        """
        packed = command.pack_with_source()  # short enough, and no server can lack it
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
            raise error_for(ErrorReply.of(error), command.script.name, sends=sends) from error
        except Exception as error:  # also what redis-py lets slip when a transport dies (AttributeError)
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
            with suppress(KeyError):  # the client was closed, and its pool does not know it any more
                await self._pool.release(connection)


async def _exchange(connection: Connection, packed: bytes, undo: Undo | None, limit: asyncio.Timeout) -> Reply:
    try:
        await connection.send_packed_command(packed, check_health=False)
        if limit.expired():
            raise asyncio.CancelledError  # it was swallowed: the driver uses wait_for, which does that in Python 3.11
        return await cast("Any", connection).read_response(
            disable_decoding=True, timeout=math.inf, disconnect_on_error=False
        )
    except redis.exceptions.ResponseError:  # an answer, too
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
    place = options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
    return str(getattr(pool, "service_name", place))


def _why(error: BaseException | None) -> str:
    """What lies behind an error: the driver may have been about to try again when its time was up."""
    while error is not None:
        if isinstance(error, redis.exceptions.RedisError | OSError) and not isinstance(error, TimeoutError):
            return str(error).rstrip(".")
        error = error.__context__
    return ""
