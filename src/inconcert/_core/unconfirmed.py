"""A release that the server has not confirmed: it is repeated while nobody else can have what was held.

A server refuses for a moment what its replica cannot take or its disk cannot keep, and a reply may be lost.  What was
released would be held by nobody for the rest of its ttl.  So it stays with the renewals, which send it again.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from inconcert._core.renewal import Renewal, next_try
from inconcert._core.session import Session
from inconcert._redis.wire.call import Call
from inconcert.errors import InconcertError, NotConnected, OutcomeUnknown, Unavailable

REMEMBERED = 60.0  # seconds; for at least so long the server remembers a request, or what it has handed to a waiter
_OFTEN = 20.0  # seconds of life at most that count for how soon a withdrawal is sent again


class Unconfirmed:
    """One release, from its first failure until it is confirmed, or the lease has lapsed."""

    __slots__ = (
        "__weakref__",
        "_call",
        "_may_have_run",
        "_outcome",
        "_send",
        "_ttl",
        "deadline",
        "holder",
        "kind",
        "name",
        "renew_at",
    )

    def __init__(
        self, kind: str, name: str, holder: str, *, deadline: float, ttl: float, send: Callable[[], asyncio.Future[Any]]
    ) -> None:
        self.kind = kind
        self.name = name
        self.holder = holder
        self.deadline = deadline  # when it lapses, by the local monotonic clock
        self.renew_at = deadline
        self._ttl = ttl  # life between renewals, in seconds
        self._send = send  # sends the release; `failed` is called if it fails again
        self._call: asyncio.Future[Any] | None = None  # that is under way
        self._may_have_run = False
        self._outcome: bool | None = None  # whether it was still held; None while that is not known

    def failed(self, error: InconcertError, renewal: Renewal) -> None:
        """Send it again soon: the server has refused it, or did not answer."""
        self._may_have_run |= not isinstance(error, Unavailable)
        self.renew_at = next_try(self.deadline, self._ttl)
        renewal.keep(self)

    async def outcome(self) -> bool:
        """True if it was still held when it was released; asks now if that is not known.

        Raises:
            Unavailable: The server refuses it still, and it is sent again.
            OutcomeUnknown: The server did not answer, and it is sent again.
        """
        if self._outcome is None and time.monotonic() < self.deadline:
            await asyncio.shield(self._call or self._start())
        return bool(self._outcome)

    # Called by the renewal.

    def start_renewal(self) -> None:
        """Send it again."""
        with suppress(NotConnected):
            self._start()

    def lose(self) -> None:
        """It has lapsed."""

    def give_up(self) -> None:
        """Send it a last time: the coordinator is closing."""
        self.start_renewal()

    # Private.

    def _start(self) -> asyncio.Future[Any]:
        self.renew_at = self.deadline
        call = self._call = self._send()
        call.add_done_callback(self._ended)
        return call

    def _ended(self, call: asyncio.Future[Any]) -> None:
        self._call = None
        if not call.cancelled() and call.exception() is None:
            # What it released before its reply was lost, it does not find again.
            self._outcome = bool(call.result()) or (self._may_have_run and time.monotonic() < self.deadline)


class Withdrawal(Unconfirmed):
    """The release of what has reached no caller: it is sent now, and again while the server refuses it.

    Args:
        key: One of those of what was asked for.
        holder: Who may hold it, or is in its line.
        make: Makes the call that releases it.
        life: How long the server may keep it from now on, in seconds; 0 to send it once.
    """

    __slots__ = ("_make", "_session")

    def __init__(self, session: Session, key: str, holder: str, make: Callable[[], Call], *, life: float) -> None:
        self._session = session
        self._make = make
        deadline, ttl = time.monotonic() + life, min(life, _OFTEN)
        super().__init__("withdrawal", key, holder, deadline=deadline, ttl=ttl, send=self._submit)
        self.start_renewal()

    def _submit(self) -> Call:
        call = self._make()
        self._session.channel.submit(call)
        return call

    def _ended(self, call: asyncio.Future[Any]) -> None:
        super()._ended(call)
        error = None if call.cancelled() else call.exception()
        if isinstance(error, Unavailable | OutcomeUnknown) and time.monotonic() < self.deadline:
            self.failed(error, self._session.renewal)
        else:
            self._session.renewal.remove(self)
