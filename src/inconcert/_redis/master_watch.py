"""Hearing from a Sentinel that another server has become the master.

A process that only waits would otherwise stay with the old master: it may live on, cut off from the others, and never
close a connection.
"""

import asyncio
import itertools
import logging
import random
from collections.abc import Callable
from typing import Any, Self, cast

import anyio
import redis.asyncio.sentinel

from inconcert._redis.pubsub import PubSub
from inconcert._redis.wire import Connection, Pool
from inconcert._rules.backoff import backoff
from inconcert._rules.urls import Node
from inconcert.errors import InconcertError

__all__ = ["MasterWatch", "sentinel_pools"]

_log = logging.getLogger("inconcert.redis")

_SWITCH = "+switch-master"
_PING_EVERY = 5.0  # seconds; a Sentinel that is cut off along with the old master must be noticed, and another asked
_TIMEOUT = 2.0  # seconds for a Sentinel to answer
_INSIST = 10.0  # seconds in which the other Sentinels must have heard of a switch as well
_RECHECK_AFTER = 0.2  # seconds between questions until then


class MasterWatch:
    """One connection to one Sentinel; to another if that one is lost.

    Args:
        pool: The pool of connections to the master.
        moved: Called with the master's address when it may have changed.
    """

    def __init__(self, pool: redis.asyncio.sentinel.SentinelConnectionPool, moved: Callable[[Node], None]) -> None:
        self._pool = cast("Any", pool)
        self._moved = moved
        sentinels = cast("Pool", _AnySentinel(sentinel_pools(pool)))
        self._events = PubSub(sentinels, timeout=_TIMEOUT, ping_every=_PING_EVERY, purpose="Sentinel")
        self._listening: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, pool: Pool, moved: Callable[[Node], None]) -> Self | None:
        """The watch over the master that a pool leads to; None if it does not ask Sentinels for it."""
        if isinstance(pool, redis.asyncio.sentinel.SentinelConnectionPool) and sentinel_pools(pool):
            return cls(pool, moved)
        return None

    def start(self) -> None:
        """Begin, without waiting for a Sentinel: commands need none while the master stays where it is."""
        self._listening = asyncio.create_task(self._listen(), name="inconcert Sentinel")

    async def close(self) -> None:
        """Release the connection."""
        with anyio.CancelScope(shield=True):
            tasks = [task for task in (self._listening, self._asking) if task is not None]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            await self._events.close()

    # What the connection tells us.

    def on_message(self, channel: str, text: bytes) -> None:
        """Ask, rather than believe one Sentinel: whether it is right is for all of them to say."""
        del channel  # there is only one
        name, _, _, host, port = text.decode().split(" ")
        if name == self._pool.service_name:
            _log.info("Sentinel: the master %s is now at %s:%s", name, host, port)
            self._ask((host, int(port)))

    def missed(self) -> None:
        """A switch may have been missed."""
        self._ask(None)

    def closed(self, error: InconcertError) -> None:
        """Nothing waits for these messages."""

    # Private.

    async def _listen(self) -> None:
        for failures in itertools.count(1):
            try:
                await self._events.listen(_SWITCH, self)
            except InconcertError as error:
                _log.warning("Sentinel: %s; trying again", error)
            else:
                return
            await anyio.sleep(backoff(failures, random.random()))

    def _ask(self, announced: Node | None) -> None:
        if self._asking is not None:
            self._asking.cancel()
        self._asking = asyncio.create_task(self._find(announced), name="inconcert master")

    async def _find(self, announced: Node | None) -> None:
        """Ask for the master until it is the announced one; a client of the user's may ask a Sentinel that lags."""
        with anyio.move_on_after(_INSIST):
            while True:
                master = await self._master()
                if master is not None:
                    self._moved(master)
                if announced is None or master == announced:
                    return
                await anyio.sleep(_RECHECK_AFTER)

    async def _master(self) -> Node | None:
        try:
            host, port = await self._pool.get_master_address()
        except Exception as error:  # noqa: BLE001 - any: the connections ask again themselves when they are lost
            _log.debug("Sentinel: %s", error)
            return None
        return (host, port)


def sentinel_pools(pool: Pool) -> list[Pool]:
    """Those of the Sentinels that a pool asks; none if it asks none."""
    manager = getattr(pool, "sentinel_manager", None)
    return [client.connection_pool for client in getattr(manager, "sentinels", [])]


class _AnySentinel:
    """The part of a pool that a wire needs: connections to one Sentinel after the other."""

    def __init__(self, pools: list[Pool]) -> None:
        self._pools = itertools.cycle(pools)

    def get_available_connection(self) -> Connection:
        connection: Connection = next(self._pools).make_connection()  # type: ignore[no-untyped-call]
        return connection

    async def release(self, connection: Connection) -> None:
        """Nothing to keep: it is closed."""
