"""A wire that is reconnected whenever it is lost, as long as the link is open."""

import asyncio
import logging
import random
import time
from typing import Protocol

import anyio

from inconcert._redis.protocol.commands import pack
from inconcert._redis.protocol.replies import ErrorReply, Reply
from inconcert._redis.wire.background import in_background
from inconcert._redis.wire.wire import Pool, Wire, open_wire
from inconcert._rules.backoff import backoff
from inconcert._rules.urls import Node
from inconcert.errors import InconcertError

_log = logging.getLogger("inconcert.redis")

_SETTLED = 1.0  # seconds; a connection that lasted less and answered nothing counts as a failure to connect
_APART = 0.1  # seconds; shortest time from one connection to the next, even if each answers before it is lost


class LinkUser(Protocol):
    """The user of a link."""

    def connected(self, wire: Wire) -> None:
        """A new wire is up."""

    def received(self, reply: Reply) -> None:
        """Process the next reply, in order."""

    def disconnected(self, error: Exception) -> None:
        """The wire is lost; `connected` will be called again."""

    def writable(self) -> None:
        """The peer accepts bytes again."""

    def log_in(self, command: bytes) -> None:
        """Send this `AUTH` in its turn, and discard the reply."""


class Link:
    """Keeps one wire of a user open."""

    def __init__(self, pool: Pool, user: LinkUser, *, timeout: float, purpose: str) -> None:
        self._pool = pool
        self._user = user
        self.received = user.received  # without a wrapper, because it is called for every reply
        self._timeout = timeout  # of one try to connect, in seconds
        self._purpose = purpose  # as log lines name it
        self._wire: Wire | None = None
        self._connected_at = 0.0
        self._is_given_up = False  # whether we dropped the current wire
        self._lost = asyncio.Event()
        self._may_connect = asyncio.Event()  # cleared while the master is being replaced
        self._may_connect.set()
        self._keeper: asyncio.Task[None] | None = None
        self._stop: anyio.CancelScope | None = None  # made by the keeper: a link may be made outside of any task
        self._is_closed = False
        self._attempts: anyio.CancelScope | None = None  # to connect, and the pauses between them
        self.last_error: Exception | None = None

    async def open(self) -> None:
        """Connect, and keep connected from now on; raises `Unavailable` if the first try failed."""
        await self._connect()
        self.start()

    def start(self) -> None:
        """Keep connected from now on, without waiting for the first connection."""
        self._keeper = in_background(f"{self._purpose}: keeping the connection", self._keep)

    async def close(self) -> None:
        """Release the connection. Time-limited, and complete even when cancelled."""
        with anyio.CancelScope(shield=True):
            self._is_closed = True
            if self._stop is not None:
                self._stop.cancel()
            if self._keeper is not None:
                await asyncio.wait([self._keeper])
            await self._leave()

    def drop(self, error: Exception) -> None:
        """Drop the current wire, because it is silent or leads to the wrong node."""
        if self._wire is not None:
            self._is_given_up = True
            self._wire.drop(error)

    def login_refused(self, reply: ErrorReply) -> None:
        """Report what the server says of new credentials; the connection stays logged in as before."""
        _log.error("%s: the server refused the new credentials: %s", self._purpose, reply)

    def server_moved(self, to: Node | None) -> None:
        """Connect again at once, unless to this server; if it is None, to none until called again."""
        if to is None:
            self._may_connect.clear()
        else:
            self._may_connect.set()
        if self._wire is None:
            if self._attempts is not None:
                self._attempts.cancel()
        elif self._wire.node != to:
            why = f"is now {to[0]}:{to[1]}" if to is not None else "is being replaced"
            self._wire.drop(ConnectionError(f"the master {why}"))

    def writable(self) -> None:
        self._user.writable()

    def log_in(self, credentials: tuple[str, ...]) -> None:
        if self._wire is not None:
            _log.debug("%s: logging in again, with new credentials", self._purpose)
            self._user.log_in(pack("AUTH", *credentials))

    def disconnected(self, error: Exception) -> None:
        self.last_error = error
        self._user.disconnected(error)
        self._lost.set()

    async def _keep(self) -> None:
        failures = 0
        with anyio.CancelScope() as self._stop:
            while not self._is_closed:
                while self._wire is None:
                    with anyio.CancelScope() as self._attempts:
                        await self._reconnect(failures)
                    failures = 0  # if it was cancelled, the server has moved
                await self._lost.wait()
                self._lost.clear()
                failures = 0 if self._was_of_use() else failures + 1
                await self._leave()
                _log.warning("%s: connection lost (%s); reconnecting", self._purpose, self.last_error)

    def _was_of_use(self) -> bool:
        """True if the lost wire was usable; otherwise back off, so as not to flood a server that closes at once."""
        if time.monotonic() >= self._connected_at + _SETTLED:
            return True
        return self._wire is not None and self._wire.has_answered and not self._is_given_up

    async def _reconnect(self, failures: int) -> None:
        await anyio.sleep(max(0.0, self._connected_at + _APART - time.monotonic()))
        await self._may_connect.wait()
        is_first = not self._connected_at
        while self._wire is None:
            if failures:
                await anyio.sleep(backoff(failures, random.random()))
            try:
                await self._connect()
            except InconcertError as error:
                self.last_error = error
                _log.debug("%s: connection attempt %d failed: %s", self._purpose, failures + 1, error)
            except Exception as error:  # noqa: BLE001 - reconnecting continues after any error
                self.last_error = error
                _log.exception("%s: connection attempt %d failed", self._purpose, failures + 1)
            failures += 1
        if not is_first:
            _log.info("%s: reconnected", self._purpose)

    async def _connect(self) -> None:
        """Try once, and let the user write first; if either fails, close the connection."""
        self._wire = await open_wire(self._pool, self, timeout=self._timeout)
        self._connected_at = time.monotonic()
        self._is_given_up = False
        try:
            self._user.connected(self._wire)
        except BaseException as error:
            await self._leave()
            if isinstance(error, Exception):
                self._user.disconnected(error)
            raise

    async def _leave(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            with anyio.CancelScope(shield=True):
                await wire.close()
