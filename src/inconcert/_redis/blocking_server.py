"""The connections of threads to one server, which a URL or Sentinels name."""

from typing import Any, cast

import redis
import redis.sentinel
from redis.backoff import NoBackoff
from redis.retry import Retry

from inconcert._redis.blocking_wire import BlockingWire
from inconcert._redis.clients import client_options, login_options
from inconcert._redis.replies import ErrorReply, is_passing
from inconcert._redis.sentinel_source import master_options, sentinel_options
from inconcert._rules.urls import ServerUrl

__all__ = ["OneServer", "blocking_pool"]


class OneServer:
    """One connection for commands to one server, and others when they are asked for.

    Args:
        parts: The URL of the server, or of its Sentinels.
        timeout: How long each step of connecting may take, in seconds.

    Attributes:
        database: The number of the database that its connections select.

    Raises:
        ValueError: An option is not one of the driver's.
    """

    is_cluster = False

    def __init__(self, parts: ServerUrl, *, timeout: float) -> None:
        self._timeout = timeout
        self._wire: BlockingWire | None = None
        self._pool = blocking_pool(parts, timeout=timeout)
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


def blocking_pool(parts: ServerUrl, *, timeout: float) -> redis.ConnectionPool:
    """A pool of the driver's synchronous half, of which only the options are used.

    Raises:
        ValueError: An option is not one of the driver's.
    """
    once: dict[str, Any] = {"retry": Retry(NoBackoff(), 0)}
    with parts.naming_options():
        if parts.topology == "sentinel":
            options = master_options(parts, timeout=timeout)
            sentinels = cast("Any", redis.sentinel).Sentinel(
                parts.nodes, sentinel_kwargs=sentinel_options(parts, options) | once
            )
            pool = sentinels.master_for(parts.service, **options | once).connection_pool
        else:
            options = client_options(timeout=timeout) | login_options(parts) | once
            pool = cast("Any", redis.ConnectionPool).from_url(parts.url, **options)
        pool.connection_class(**pool.connection_kwargs)  # without I/O
    return cast("redis.ConnectionPool", pool)
