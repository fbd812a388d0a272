"""One inbox per process: a subscribed connection on which scripts tell its waiters to look.

A script publishes `ADDRESS TEXT` to the inbox of the process in which the addressee waits.  It asks first whether
anyone listens there, so it knows at once whether that process is still there.  A message is a hint: what it says is
also in the server's keys, and after a lost connection everyone who waits looks again.
"""

import asyncio
import logging
from typing import Protocol

import anyio

from inconcert._redis.commands import pack
from inconcert._redis.link import Link
from inconcert._redis.replies import ErrorReply, Reply
from inconcert._redis.wire import Pool, Wire
from inconcert.errors import InconcertError, Unavailable

__all__ = ["Addressee", "Wakeups"]

_log = logging.getLogger("inconcert")

_PING_EVERY = 15.0  # seconds; a half-open connection would otherwise never be noticed, for nothing is sent on it


class Addressee(Protocol):
    """Someone who waits for a message."""

    def hear(self, text: str) -> None:
        """A message came."""

    def look(self) -> object:
        """Messages may have been missed: look at the server whether what one waits for has come."""

    def abandon(self, error: InconcertError) -> None:
        """Stop waiting, with this error, and leave nothing behind on the server."""


class Wakeups:
    """The inbox of one process.

    Args:
        pool: Where the connection comes from.
        inbox: The channel to listen on, this process's own.
        timeout: How long the server may take to answer, in seconds.
    """

    def __init__(self, pool: Pool, inbox: str, *, timeout: float) -> None:
        self.inbox = inbox
        self._timeout = timeout
        self._link = Link(pool, self, timeout=timeout, purpose="wake-ups")
        self._loop = asyncio.get_running_loop()
        self._wire: Wire | None = None
        self._listening = asyncio.Event()
        self._refusal: ErrorReply | None = None
        self._addressees: dict[str, Addressee] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._connected_at = self._heard_at = self._pinged_at = 0.0

    async def open(self) -> None:
        """Connect and subscribe.

        Raises:
            Unavailable: The server cannot be reached, or refuses us.
        """
        await self._link.open()
        try:
            with anyio.move_on_after(self._timeout):
                await self._listening.wait()
            if self._refusal is not None:
                raise Unavailable(f"the server refused to subscribe to {self.inbox!r}: {self._refusal}")
            if not self._listening.is_set():
                raise Unavailable(f"the server did not answer within {self._timeout:g} s")
        except BaseException:
            await self.close()
            raise
        self._timer = self._loop.call_later(_PING_EVERY, self._ping)

    async def close(self) -> None:
        """Give the connection back."""
        if self._timer is not None:
            self._timer.cancel()
        await self._link.close()
        self._wire = None

    def expect(self, address: str, addressee: Addressee) -> None:
        """Let someone hear what comes for `address`, until `forget`."""
        self._addressees[address] = addressee

    def forget(self, address: str) -> None:
        """End `expect`."""
        self._addressees.pop(address, None)

    def tell(self, message: str) -> None:
        """Pass on a message, `ADDRESS TEXT`, as if it had come through the inbox."""
        address, _, text = message.partition(" ")
        addressee = self._addressees.get(address)
        if addressee is not None:
            addressee.hear(text)

    def server_was_lost(self, at: float) -> None:
        """Leave a connection from before: the server may have moved. Replies that told of grants may be lost, too."""
        if self._connected_at < at:
            self._link.drop(ConnectionError("the server may have moved"))
        else:
            self._everyone_look()

    def _everyone_look(self) -> None:
        for addressee in list(self._addressees.values()):
            addressee.look()

    def abandon(self, error: InconcertError) -> None:
        """Send everyone who waits away."""
        for addressee in list(self._addressees.values()):
            addressee.abandon(error)

    # What the link tells us.

    def connected(self, wire: Wire) -> None:
        self._wire = wire
        self._connected_at = self._heard_at = self._loop.time()
        wire.write(pack("SUBSCRIBE", self.inbox))

    def received(self, reply: Reply) -> None:
        self._heard_at = self._loop.time()
        if isinstance(reply, ErrorReply):
            _log.error("wake-ups: the server refused to subscribe to %r: %s", self.inbox, reply)
            self._refusal = reply
            self._listening.set()
            return
        kind: Reply = reply[0]  # of a PONG, which may be no list, the first letter
        if kind == b"message":
            self.tell(reply[2].decode())
        elif kind == b"subscribe":
            if self._listening.is_set():  # again, so messages may have been missed
                self._everyone_look()
            self._listening.set()

    def disconnected(self, error: Exception) -> None:
        del error  # the link logs it
        self._wire = None

    def writable(self) -> None:
        """Nothing waits to be written here."""

    def _ping(self) -> None:
        delay = _PING_EVERY
        if self._wire is not None and self._addressees:
            if self._heard_at < self._pinged_at:
                self._link.drop(ConnectionError(f"no reply to a ping for {self._timeout:g} s"))
            elif self._loop.time() - self._heard_at >= self._timeout:
                self._pinged_at = self._loop.time()
                self._wire.write(pack("PING"))
                delay = self._timeout
        self._timer = self._loop.call_later(delay, self._ping)
