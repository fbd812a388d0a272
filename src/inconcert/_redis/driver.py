"""What differs from one version of redis-py to another; the rest of what is used here is alike in 5.1 to 8."""

from typing import Any, cast

import redis
import redis.asyncio
import redis.asyncio.connection

__all__ = ["get_connection", "has_input", "without_maintenance"]

Connection = redis.asyncio.connection.AbstractConnection

_VERSION = cast("tuple[int, ...]", redis.VERSION)


async def get_connection(pool: redis.asyncio.ConnectionPool) -> Connection:
    """A connection of the pool, connected."""
    get: Any = pool.get_connection
    connection: Connection = await (get() if _VERSION >= (5, 3) else get("EVALSHA"))  # for which command: not looked at
    return connection


async def has_input(connection: Connection) -> bool:
    """Whether something came in that nobody has read. Before 8.0, asking reads it, so that it is lost.

    Raises:
        redis.exceptions.ConnectionError: The server has hung up.
    """
    asked: Any = connection
    found: bool = await (asked.can_read() if _VERSION >= (8, 0) else asked.can_read_destructive())
    return found


def without_maintenance() -> dict[str, Any]:
    """Options of a client that does not ask its server for news of maintenance; from 8.1 on it asks by default.

    A pool that gets such news may give out a connection with an unread reply, which then answers another command.
    """
    if _VERSION < (8, 1):
        return {}
    from redis.maint_notifications import MaintNotificationsConfig  # noqa: PLC0415 - it came with 7.0

    return {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}
