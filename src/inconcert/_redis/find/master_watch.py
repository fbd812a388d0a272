"""Hearing from the Sentinels that another server is becoming the master, or has become it.

The old master serves on while a replica is promoted, and what it answers then is lost with it.  So all connections
leave it as soon as the Sentinel that leads the failover is about to choose a replica, which is before it promotes one:
what was answered until then has a moment to reach the replicas.  Only that Sentinel says so, therefore all are listened
to.

A process that only waits would otherwise stay with the old master, too: it may live on, cut off from the others, and
never close a connection.
"""

import asyncio
import itertools
import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Self, cast

import anyio
import redis.asyncio.sentinel

from inconcert._redis.wire.background import in_background
from inconcert._redis.wire.pubsub import PubSub
from inconcert._redis.wire.wire import Connection, Pool
from inconcert._rules.backoff import backoff
from inconcert._rules.urls import Node
from inconcert.errors import InconcertError

_log = logging.getLogger("inconcert.redis")

_SWITCH = "+switch-master"  # 'NAME OLD-HOST OLD-PORT HOST PORT'
_BEGINS = "+failover-state-select-slave"  # 'master NAME HOST PORT': the Sentinels agree that it is to be replaced
_PROMOTED = "+promoted-slave"  # 'slave ID HOST PORT @ NAME OLD-HOST OLD-PORT'
_ABORTED = tuple(f"-failover-abort-{why}" for why in ("no-good-slave", "slave-timeout", "master-timeout"))  # as _BEGINS
EVENTS = (_SWITCH, _BEGINS, _PROMOTED, *_ABORTED)

_PING_EVERY = 5.0  # seconds; a Sentinel that is cut off along with the old master must be noticed
_TIMEOUT = 2.0  # seconds for a Sentinel to answer
_INSIST = 10.0  # seconds in which the other Sentinels must have heard of a switch as well
_RECHECK_AFTER = 0.2  # seconds between questions until then
_LONGEST_AWAY = 5.0  # seconds without a master, if no Sentinel says how the failover went; calls wait for 10 s


class MasterWatch:
    """One connection to each Sentinel.

    Args:
        moved: Called with the master's address when it may have changed, and with None when it is being replaced.
    """

    def __init__(
        self, pool: redis.asyncio.sentinel.SentinelConnectionPool, moved: Callable[[Node | None], None]
    ) -> None:
        self._pool = cast("Any", pool)
        self._moved = moved
        self._events = [
            PubSub(cast("Pool", _OneSentinel(each)), timeout=_TIMEOUT, ping_every=_PING_EVERY, purpose="Sentinel")
            for each in sentinel_pools(pool)
        ]
        self._left: Node | None = None  # the master that is being replaced
        self._announced: Node | None = None  # the master that a Sentinel named last
        self._listening: list[asyncio.Task[None]] = []
        self._asking: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, pool: Pool, moved: Callable[[Node | None], None]) -> Self | None:
        """The watch over the master that a pool leads to; None if it does not ask Sentinels for it."""
        if isinstance(pool, redis.asyncio.sentinel.SentinelConnectionPool) and sentinel_pools(pool):
            return cls(pool, moved)
        return None

    def start(self) -> None:
        """Begin, without waiting for a Sentinel: commands need none while the master stays where it is."""
        self._listening = [
            in_background("listening to a Sentinel", partial(self._listen, each)) for each in self._events
        ]

    async def close(self) -> None:
        """Release the connections."""
        with anyio.CancelScope(shield=True):
            tasks = [task for task in (*self._listening, self._asking) if task is not None]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            for events in self._events:
                await events.close()

    # What the connections tell us.

    def on_message(self, channel: str, text: bytes) -> None:
        """Ask, rather than believe one Sentinel: whether it is right is for all of them to say."""
        words = text.decode().split(" ")
        name = words[{_SWITCH: 0, _PROMOTED: 5}.get(channel, 1)]
        if name != self._pool.service_name:
            return
        host, port = words[{_SWITCH: slice(3, 5)}.get(channel, slice(2, 4))]
        node = (host, int(port))
        if channel == _BEGINS:
            _log.info("Sentinel: the master %s at %s:%s is being replaced", name, host, port)
            self._leave(node)
        elif channel in _ABORTED:
            _log.info("Sentinel: the master %s stays at %s:%s", name, host, port)
            self._left = None
            self._ask(None)
        else:
            if node != self._announced:  # each Sentinel says so
                _log.info("Sentinel: the master %s is now at %s:%s", name, host, port)
            self._announced = node
            self._ask(node)

    def missed(self) -> None:
        """A switch may have been missed."""
        if self._left is None:
            self._ask(None)

    def closed(self, error: InconcertError) -> None:
        """Nothing waits for these messages."""

    # Private.

    async def _listen(self, events: PubSub) -> None:
        for failures in itertools.count(1):
            try:
                for event in EVENTS:
                    await events.listen(event, self)
            except InconcertError as error:
                if failures == 1:
                    _log.warning("Sentinel: %s; trying again", error)
            else:
                return
            await anyio.sleep(backoff(failures, random.random()))

    def _leave(self, old: Node) -> None:
        self._left = old
        self._moved(None)
        self._ask(None, after=_LONGEST_AWAY)

    def _ask(self, announced: Node | None, *, after: float = 0.0) -> None:
        if self._asking is not None:
            self._asking.cancel()
        self._asking = in_background("asking Sentinels for the master", partial(self._find, announced, after))

    async def _find(self, announced: Node | None, after: float) -> None:
        """Ask for the master until it is the announced one; a client of the user's may ask a Sentinel that lags."""
        await anyio.sleep(after)
        with anyio.move_on_after(_INSIST):
            while True:
                master = await self._master()
                if master is not None and master != self._left:
                    self._left = None
                    self._moved(master)
                if announced is None or master == announced:
                    break
                await anyio.sleep(_RECHECK_AFTER)
        if self._left is not None:  # nobody knows of another
            left, self._left = self._left, None
            self._moved(left)

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


class _OneSentinel:
    """The part of a pool that a wire needs: connections to one Sentinel."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def get_available_connection(self) -> Connection:
        connection: Connection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        return connection

    async def release(self, connection: Connection) -> None:
        """Nothing to keep: it is closed."""
