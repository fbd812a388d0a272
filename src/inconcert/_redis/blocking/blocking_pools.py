"""Pools of the driver's synchronous half, for threads; only their options are used, to make connections with."""

from typing import Any, cast

import redis
import redis.asyncio.connection
import redis.asyncio.sentinel
import redis.connection
import redis.sentinel
from redis.backoff import NoBackoff
from redis.retry import Retry

from inconcert._redis.driver.clients import client_options, login_options
from inconcert._redis.find.sentinels import master_options, sentinel_options
from inconcert._redis.wire.wire import Pool
from inconcert._rules.urls import ServerUrl

BlockingPool = redis.ConnectionPool

_Sentinel: Any = redis.sentinel.Sentinel  # their type hints are incomplete
_SentinelPool: Any = redis.sentinel.SentinelConnectionPool

_TWINS: dict[Any, Any] = {
    redis.asyncio.connection.Connection: redis.connection.Connection,
    redis.asyncio.connection.SSLConnection: redis.connection.SSLConnection,
    redis.asyncio.connection.UnixDomainSocketConnection: redis.connection.UnixDomainSocketConnection,
    redis.asyncio.sentinel.SentinelManagedConnection: redis.sentinel.SentinelManagedConnection,
    redis.asyncio.sentinel.SentinelManagedSSLConnection: redis.sentinel.SentinelManagedSSLConnection,
}

# The pool options for the address and the credentials; the others concern event loops, or are not needed here.
_WHERE = {"host", "port", "path", "db"}
_AS_WHOM = {"username", "password", "credential_provider", "client_name", "driver_info"}


def pool_for(parts: ServerUrl, *, timeout: float) -> BlockingPool:
    """A pool for the URL of a server, of its Sentinels, or of a cluster, whose first node it leads to.

    Raises:
        ValueError: An option is not one of the driver's.
    """
    once: dict[str, Any] = {"retry": Retry(NoBackoff(), 0)}
    with parts.naming_options():
        if parts.topology == "sentinel":
            options = master_options(parts, timeout=timeout)
            sentinels = _Sentinel(parts.nodes, sentinel_kwargs=sentinel_options(parts, options) | once)
            pool = sentinels.master_for(parts.service, **options | once).connection_pool
        else:
            options = client_options(timeout=timeout) | login_options(parts) | once
            pool = cast("Any", redis.ConnectionPool).from_url(parts.url, **options)
        pool.connection_class(**pool.connection_kwargs)  # without I/O
    return cast("BlockingPool", pool)


def twin_of(pool: Pool, *, timeout: float) -> BlockingPool | None:
    """A pool that leads where an asynchronous one does, which another thread may use, with its user and certificates.

    Returns:
        None if its connections are not of one of the driver's own classes, or are set up by the user's code.
    """
    if pool.connection_class not in _TWINS or pool.connection_kwargs.get("redis_connect_func"):
        return None
    options: dict[str, Any] = {
        name: value
        for name, value in pool.connection_kwargs.items()
        if name in _WHERE | _AS_WHOM or name.startswith("ssl_")
    }
    options |= {"protocol": 2, "retry": Retry(NoBackoff(), 0)}
    options |= {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    options["connection_class"] = _TWINS[pool.connection_class]
    if isinstance(pool, redis.asyncio.sentinel.SentinelConnectionPool):
        found: Any = pool
        sentinels = _twins_of_sentinels(found.sentinel_manager, timeout=timeout)
        return cast("BlockingPool", _SentinelPool(found.service_name, sentinels, **options))
    return redis.ConnectionPool(**options)


def _twins_of_sentinels(manager: Any, *, timeout: float) -> Any:  # noqa: ANN401 - their type hints are incomplete
    """Sentinels for threads; none of those whose connections have no twin."""
    pools = [twin_of(sentinel.connection_pool, timeout=timeout) for sentinel in manager.sentinels]
    sentinels = _Sentinel([])
    sentinels.sentinels = [redis.Redis(connection_pool=pool) for pool in pools if pool is not None]
    return sentinels
