"""A call that asks the server again when it is told to, and from time to time in case it was not."""

import asyncio
import time
from typing import ClassVar, Literal

import anyio

from inconcert._core.session import Session
from inconcert._redis.wire.inbox import InboxReceiver
from inconcert.errors import InconcertError

SHORTEST_WAIT, LONGEST_WAIT = 2.0, 5.0  # seconds after which a waiter asks again, even without a notification


class QueueWaiter(InboxReceiver):
    """Waits for messages to one address."""

    verb: ClassVar[Literal["put", "join"]]  # what was called

    def __init__(self, session: Session, queue: str, key: str, address: str) -> None:
        self._session = session
        self._key = key  # of whose scripts
        self.queue = queue
        self.address = address  # to whom they send
        self.since = time.monotonic()  # since when, by the local monotonic clock
        self._told = session.loop.create_future()

    # Called by the inbox.

    def on_message(self, rest: str) -> None:
        """It may go on."""
        del rest
        self.recheck()

    def recheck(self) -> None:
        """Ask again: a message may have been missed."""
        if not self._told.done():
            self._told.set_result(None)

    def closed(self, error: InconcertError) -> None:
        """Stop waiting, with this error."""
        super().closed(error)
        self.recheck()

    # For subclasses.

    async def _register(self, timeout: float | None) -> None:
        inbox = self._session.inbox
        if not inbox.listens(self._key):
            with anyio.move_on_after(timeout):
                await inbox.listen(self._key)
        inbox.register(self.address, self)
        inbox.follow(self._key, self.address)

    def _unregister(self) -> None:
        self._session.inbox.unregister(self.address)

    async def _told_within(self, seconds: float) -> None:
        await asyncio.wait([self._told], timeout=seconds)
        self.raise_if_closed()
        self._told = self._session.loop.create_future()
