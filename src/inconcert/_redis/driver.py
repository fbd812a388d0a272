"""What differs between versions of redis-py; everything else used here is the same in 5.1 to 8."""

from typing import Any, cast

import redis
import redis.asyncio
import redis.asyncio.connection

__all__ = ["get_connection", "has_input", "without_maintenance"]

Connection = redis.asyncio.connection.AbstractConnection

_VERSION = cast("tuple[int, ...]", redis.VERSION)


async def get_connection(pool: redis.asyncio.ConnectionPool) -> Connection:
    """Take a connection from the pool, connected."""
    get: Any = pool.get_connection
    connection: Connection = await (get() if _VERSION >= (5, 3) else get("EVALSHA"))  # the command name is ignored
    return connection


async def has_input(connection: Connection) -> bool:
    """Whether there is unread input. Before 8.0 this call consumes it, so that it is lost.

    Raises:
        redis.exceptions.ConnectionError: The server closed the connection.
    """
    asked: Any = connection
    found: bool = await (asked.can_read() if _VERSION >= (8, 0) else asked.can_read_destructive())
    return found


def without_maintenance() -> dict[str, Any]:
    """Options of a client that does not subscribe to maintenance notifications; from 8.1 on it does by default.

    A pool that receives them may hand out a connection with an unread reply, which then answers another command.
    """
    if _VERSION < (8, 1):
        return {}
    from redis.maint_notifications import MaintNotificationsConfig  # noqa: PLC0415 - new in 7.0

    return {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}
