"""Wakes the relays of this process when a transaction has committed that has written a row."""

import asyncio
from contextlib import suppress
from weakref import WeakSet

from sqlalchemy import event
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from inconcert.sql.transaction import OfSQLAlchemy

# Seconds after which a relay looks again: a connection tells of its commit just before it is made.
_AGAIN = 0.005, 0.05


class Bell:
    """A bell that rings when a transaction commits; from any thread."""

    def __init__(self) -> None:
        self._relays: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._known: WeakSet[OfSQLAlchemy] = WeakSet()
        self._written: WeakSet[OfSQLAlchemy] = WeakSet()  # have written a row since their last commit

    def add(self, woken: asyncio.Event) -> None:
        """Set this from now on, on the event loop that runs here."""
        self._relays[woken] = asyncio.get_running_loop()

    def remove(self, woken: asyncio.Event) -> None:
        """Set it no longer."""
        del self._relays[woken]

    def ring_at_commit(self, handle: OfSQLAlchemy) -> None:
        """Ring when this transaction commits, if there is a relay here."""
        self._written.add(handle)
        if handle not in self._known:
            self._known.add(handle)
            is_session = isinstance(handle, Session)
            event.listen(handle, "after_commit" if is_session else "commit", self._committed)

    def _committed(self, handle: Session | Connection) -> None:
        if handle in self._written:
            if not (isinstance(handle, Session) and handle.in_nested_transaction()):
                self._written.discard(handle)
            self.ring(*(() if isinstance(handle, Session) else _AGAIN))

    def ring(self, *again: float) -> None:
        """Wake the relays, and again after so many seconds each."""
        for woken, loop in list(self._relays.items()):
            with suppress(RuntimeError):  # that loop is closed, and its relay with it
                loop.call_soon_threadsafe(woken.set)
                for delay in again:
                    loop.call_soon_threadsafe(loop.call_later, delay, woken.set)
