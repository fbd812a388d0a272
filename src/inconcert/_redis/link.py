"""A wire that is brought back whenever it is lost, for as long as the link is open."""

import asyncio
import logging
import random
import time
from typing import Protocol

import anyio

from inconcert._redis.replies import Reply
from inconcert._redis.wire import Pool, Wire, open_wire
from inconcert._rules.backoff import backoff
from inconcert.errors import InconcertError

__all__ = ["Link", "LinkUser"]

_log = logging.getLogger("inconcert")

_SETTLED = 1.0  # seconds; a connection that lived for less counts as a failure to connect


class LinkUser(Protocol):
    """Who speaks over a link."""

    def connected(self, wire: Wire) -> None:
        """A new wire is up."""

    def received(self, reply: Reply) -> None:
        """The next reply on it, in order."""

    def disconnected(self, error: Exception) -> None:
        """The wire is lost; `connected` will be called again."""

    def writable(self) -> None:
        """The peer takes bytes again."""


class Link:
    """Keeps one wire of a user open.

    Args:
        pool: Where connections come from and go back to.
        user: Who is told of wires and replies.
        timeout: Longest time that one try to connect may take, in seconds.
        purpose: What the link is for, as log lines name it.
    """

    def __init__(self, pool: Pool, user: LinkUser, *, timeout: float, purpose: str) -> None:
        self._pool = pool
        self._user = user
        self.received = user.received  # straight through, for it is called with every reply
        self._timeout = timeout
        self._purpose = purpose
        self._wire: Wire | None = None
        self._lost = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._stop = anyio.CancelScope()
        self.last_error: Exception | None = None

    async def open(self) -> None:
        """Connect, and keep connected from now on.

        Raises:
            Unavailable: The first try failed.
        """
        self._wire = await open_wire(self._pool, self, timeout=self._timeout)
        self._user.connected(self._wire)
        self.start()

    def start(self) -> None:
        """Keep connected from now on, without waiting for the first connection."""
        self._keeper = asyncio.create_task(self._keep(), name=f"inconcert {self._purpose}")

    async def close(self) -> None:
        """Give the connection back. Bounded, and complete even when cancelled."""
        with anyio.CancelScope(shield=True):
            if self._keeper is not None:
                self._stop.cancel()
                await asyncio.wait([self._keeper])
            if self._wire is not None:
                await self._wire.close()
                self._wire = None

    def drop(self, error: Exception) -> None:
        """Give up the present wire, because it is mute or leads to the wrong node."""
        if self._wire is not None:
            self._wire.drop(error)

    def writable(self) -> None:
        self._user.writable()

    def disconnected(self, error: Exception) -> None:
        self.last_error = error
        self._user.disconnected(error)
        self._lost.set()

    async def _keep(self) -> None:
        failures = 0
        with self._stop:
            if self._wire is None:
                self._wire = await self._reconnect(failures)
                self._user.connected(self._wire)
            while True:
                connected_at = time.monotonic()
                await self._lost.wait()
                self._lost.clear()
                _log.warning("%s: connection lost (%s); connecting again", self._purpose, self.last_error)
                wire, self._wire = self._wire, None
                with anyio.CancelScope(shield=True):
                    await wire.close()
                # A server that accepts and hangs up at once is a failure, too: it must not be stormed.
                failures = failures + 1 if time.monotonic() - connected_at < _SETTLED else 0
                self._wire = await self._reconnect(failures)
                _log.info("%s: connected again", self._purpose)
                self._user.connected(self._wire)

    async def _reconnect(self, failures: int) -> Wire:
        while True:
            if failures:
                await anyio.sleep(backoff(failures, random.random()))
            try:
                return await open_wire(self._pool, self, timeout=self._timeout)
            except InconcertError as error:
                failures += 1
                self.last_error = error
                _log.debug("%s: try %d to connect failed: %s", self._purpose, failures, error)
