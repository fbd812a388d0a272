"""A connection that waits in `BLPOP` for a token: how an idle consumer sleeps until there is work.

A token only says "look again", so losing one costs at most the longest sleep.  Connections of this kind are never
shared: a command behind a blocked one would wait with it.
"""

import asyncio
import logging

from inconcert._redis.commands import pack
from inconcert._redis.link import Link
from inconcert._redis.replies import ErrorReply, Reply
from inconcert._redis.wire import Pool, Wire

__all__ = ["Bells"]

_log = logging.getLogger("inconcert")


class Bells:
    """The bells that one consumer listens for.

    Args:
        pool: Where the connection comes from.
        keys: The bells, the most urgent first.
        timeout: How long the server may take to answer beyond the sleep itself, in seconds.
    """

    def __init__(self, pool: Pool, keys: tuple[str, ...], *, timeout: float) -> None:
        self._keys = keys
        self._timeout = timeout
        self._link = Link(pool, self, timeout=timeout, purpose="bells")
        self._wire: Wire | None = None
        self._change = asyncio.Event()  # a reply came, or the wire came or went
        self._is_waiting = False  # a BLPOP is under way
        self._has_rung = False

    async def open(self) -> None:
        """Connect.

        Raises:
            Unavailable: The server cannot be reached, or refuses us.
        """
        await self._link.open()

    async def close(self) -> None:
        """Give the connection back."""
        await self._link.close()
        self._wire = None

    async def rung(self, seconds: float) -> None:
        """Sleep until a bell has rung, and at most this long; may return early. Cancelling it loses no token."""
        if self._has_rung:  # while nobody was listening
            self._has_rung = False
            return
        if self._wire is not None and not self._is_waiting:
            self._is_waiting = True
            self._wire.write(pack("BLPOP", *self._keys, seconds))
        self._change.clear()
        try:
            async with asyncio.timeout(seconds + self._timeout):
                await self._change.wait()
        except TimeoutError:
            self._link.drop(ConnectionError(f"no reply for {self._timeout:g} s"))
        self._has_rung = False

    def interrupt(self) -> None:
        """Let whoever sleeps return now."""
        self._has_rung = True
        self._change.set()

    def connect_again(self) -> None:
        """Leave the present connection: the server may have moved."""
        self._link.drop(ConnectionError("the server may have moved"))

    def connected(self, wire: Wire) -> None:
        self._wire = wire
        self._change.set()

    def received(self, reply: Reply) -> None:
        if isinstance(reply, ErrorReply):  # a new connection comes after a pause, which grows while they do not last
            _log.warning("bells: the server refused to wait: %s", reply)
            self._link.drop(reply)
            return
        self._is_waiting = False  # which bell it was does not matter: a claim looks at all queues
        self._has_rung = True
        self._change.set()

    def disconnected(self, error: Exception) -> None:
        del error  # the link logs it
        self._wire = None
        self._is_waiting = False
        self._change.set()

    def writable(self) -> None:
        """Nothing waits to be written here."""
