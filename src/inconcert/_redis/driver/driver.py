"""Differences between versions of redis-py; everything else used here is the same in 5.1 to 8."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import redis
import redis.asyncio
import redis.asyncio.connection

Connection = redis.asyncio.connection.AbstractConnection

_VERSION = cast("tuple[int, ...]", redis.VERSION)


async def get_connection(pool: redis.asyncio.ConnectionPool) -> Connection:
    """Take a connection from the pool, connected."""
    get: Any = pool.get_connection
    connection: Connection = await (get() if _VERSION >= (5, 3) else get("EVALSHA"))  # the command name is ignored
    return connection


async def has_input(connection: Connection) -> bool:
    """True if there is unread input. Before 8.0 this call consumes it, so that it is lost.

    Raises:
        redis.exceptions.ConnectionError: The server closed the connection.
    """
    asked: Any = connection
    found: bool = await (asked.can_read() if _VERSION >= (8, 0) else asked.can_read_destructive())
    return found


def on_new_credentials(connection: Connection, callback: Callable[[tuple[str, ...]], None]) -> None:
    """Call this with `AUTH`'s arguments when a streaming credential provider of the connection's pool has new ones.

    The driver, from 5.3 on, logs in again on connections that are idle in its pool.  On the others it only notes the
    token, with this method, for when they are released, which ours never are.
    """
    loop = asyncio.get_running_loop()

    def note(token: Any) -> None:  # noqa: ANN401 - a type that older versions do not have
        user = token.try_get("oid")
        arguments = (token.get_value(),) if user is None else (user, token.get_value())
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(callback, arguments)  # a provider may have a thread of its own

    vars(connection)["set_re_auth_token"] = note


def log_in_again(pool: redis.asyncio.ConnectionPool, token: Any) -> None:  # noqa: ANN401 - as above
    """Have the connections that are taken from a pool log in with a new token, and leave the idle ones alone."""
    for connection in [*vars(pool)["_in_use_connections"]]:
        connection.set_re_auth_token(token)


def forget_credentials(connection: Connection) -> None:
    """End `on_new_credentials`."""
    vars(connection).pop("set_re_auth_token", None)


def said_to_the_server() -> dict[str, Any]:
    """Options of a client whose connections name the driver's version without reading its package each time."""
    if _VERSION < (8, 0):  # a cluster's client does not take it
        return {}
    from redis.driver_info import DriverInfo  # noqa: PLC0415 - new in 7.2

    return {"driver_info": DriverInfo(lib_version=redis.__version__)}


def without_maintenance() -> dict[str, Any]:
    """Options of a client that does not subscribe to maintenance notifications; from 8.1 on it does by default.

    A pool that receives them may hand out a connection with an unread reply, which then answers another command.
    """
    if _VERSION < (8, 1):
        return {}
    from redis.maint_notifications import MaintNotificationsConfig  # noqa: PLC0415 - new in 7.0

    return {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}
