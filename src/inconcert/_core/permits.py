"""One engine for everything that lets only so many in at once: locks, semaphores, elections.

A holder has a permit under a lease; whoever finds none joins a line that the server keeps, and is handed a permit by
whoever releases one.  The server's keys hold the truth; this module adds how one process waits.

    holders   zset    holder -> lease end, server ms
    waiters   zset    'limit:handoff_ms:holder' -> ticket
    fence     string  last fencing token

Source: docs/explanation/permits.md
"""

import asyncio
import time
from types import EllipsisType, TracebackType

import anyio

from inconcert._core.lease import Grant, Lease, local_deadline
from inconcert._core.line import Parting
from inconcert._core.session import Access, Session
from inconcert._redis.channel import Call
from inconcert._redis.commands import Argument
from inconcert._redis.replies import Reply
from inconcert._redis.scripts import load
from inconcert._rules import durations
from inconcert._rules.durations import Seconds, milliseconds
from inconcert.errors import AcquireTimeout, InconcertError

__all__ = ["Permits"]

_ACQUIRE = load("permits/acquire")
_WITHDRAW = load("permits/withdraw")
_INSPECT = load("permits/inspect")

_HANDOFF = 2.0  # seconds; life of a lease that is handed over, until its holder extends it: more than a busy loop needs
_NO_WAIT, _JOIN = -1, 0  # in place of a ticket


class Permits:
    """So many permits of one name; the base of everything that is acquired.

    Args:
        access: The way to the open session.
        kind: What it is to its users, such as `lock`; part of its keys.
        name: Which one.
        limit: How many holders there may be at once.
        ttl: Life of a lease between renewals, in seconds.
        timeout: Longest wait of `async with` and `acquire()`, in seconds; None waits for ever.
    """

    def __init__(
        self, access: Access, kind: str, name: str, *, limit: int, ttl: Seconds, timeout: Seconds | None
    ) -> None:
        self._access = access
        self._kind = kind
        self._name = name
        self._keys = access.keys.of(kind, name, "holders", "waiters", "fence")
        self._ttl = durations.ttl(ttl)
        self._timeout = durations.timeout(timeout)
        self._terms = _Terms(limit, self._ttl)
        self._entered: dict[asyncio.Task[object] | None, list[Lease]] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"

    async def __aenter__(self) -> Lease:
        lease = await self.acquire()
        lease.enter()
        self._entered.setdefault(asyncio.current_task(), []).append(lease)
        return lease

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        leases = self._entered.get(task)
        if not leases:
            raise RuntimeError(f"{self!r} is left in another task than entered in; use acquire() and release() by hand")
        lease = leases.pop()
        if not leases:
            del self._entered[task]
        await lease.exit(error)

    async def acquire(self, *, timeout: Seconds | EllipsisType | None = ...) -> Lease:
        """Wait in line for a permit and take it.

        Args:
            timeout: Longest wait in seconds; None for ever, 0 tries once. By default the object's own.

        Raises:
            AcquireTimeout: None was free in time; the line has been left.
            NotConnected: The coordinator is not open, or was closed meanwhile.
            Unavailable: The server could not be asked; nothing was acquired.
            OutcomeUnknown: The server did not answer; what it may have granted is given back or lapses.

        Cost: 1 round trip when one is free. Else 1 to join the line, 0 while waiting, 1 message to wake.
        """
        seconds = self._timeout if timeout is ... else durations.timeout(timeout)
        lease: Lease | None = None
        if seconds is None:
            lease = await self._take(_JOIN)
        elif seconds == 0:
            lease = await self._take(_NO_WAIT)
        else:
            with anyio.move_on_after(seconds):
                lease = await self._take(_JOIN)
        if lease is None:
            raise AcquireTimeout(self._kind, self._name, seconds or 0.0)
        return lease

    async def try_acquire(self) -> Lease | None:
        """Take a permit if one is free and nobody waits for it; never waits in line.

        Returns:
            The lease, or None.

        Raises:
            NotConnected: The coordinator is not open.
            Unavailable: The server could not be asked; nothing was acquired.
            OutcomeUnknown: The server did not answer; what it may have granted is given back or lapses.

        Cost: 1 round trip.
        """
        return await self._take(_NO_WAIT)

    async def locked(self) -> bool:
        """Whether `acquire` would wait: every permit is held, or others wait already.

        Cost: 1 round trip.
        """
        reply = await self._inspect()
        return bool(reply[1] >= self._terms.limit or reply[0])

    async def holders(self) -> list[str]:
        """Who holds a permit now: the `Lease.holder` of each, in the order in which their leases end; at most 1,000.

        Cost: 1 round trip.
        """
        reply = await self._inspect()
        return [holder.decode() for holder in reply[2:]]

    async def waiters(self) -> int:
        """How many stand in line now. Those who died in line count until it is their turn.

        Cost: 1 round trip.
        """
        reply = await self._inspect()
        return int(reply[0])

    # Below.

    async def _take(self, ticket: int) -> Lease | None:
        session = self._access.session
        if session.channel.is_full:
            await session.channel.has_room()
        holder = session.new_address()
        while True:
            attempt = _Attempt(session, self._keys, holder, self._terms, ticket)
            try:
                attempt.ask()
                await attempt
                grant = attempt.grant()
            except BaseException:
                attempt.withdraw()
                raise
            finally:
                attempt.leave()
            if grant is None:
                return None
            if time.monotonic() < grant.deadline:
                break
            # It was granted while we could not act on it: ask whether it still is, or have our place back.
            ticket = attempt.ticket
        return Lease(session, self._kind, self._name, keys=self._keys, holder=holder, ttl=self._ttl, grant=grant)

    async def _inspect(self) -> Reply:
        return await self._access.session.run(_INSPECT, self._keys[:2])


class _Terms:
    """What one who acquires asks for."""

    __slots__ = ("handoff_ms", "limit", "ttl", "ttl_ms")

    def __init__(self, limit: int, ttl: float) -> None:
        self.limit = limit
        self.ttl = ttl
        self.ttl_ms = milliseconds(ttl)
        self.handoff_ms = milliseconds(min(ttl, _HANDOFF))


class _Attempt(Call):
    """One who acquires: its call for a permit, and its place in line until it is granted one."""

    __slots__ = (
        "_asked_at",
        "_early",
        "_grant",
        "_is_in_line",
        "_is_withdrawn",
        "_sent_away",
        "_server_ms",
        "_session",
        "_terms",
        "holder",
        "ticket",
    )

    def __init__(self, session: Session, keys: tuple[str, ...], holder: str, terms: _Terms, ticket: int) -> None:
        super().__init__(_ACQUIRE, keys, _ask(session, holder, terms, ticket))
        self.holder = holder
        self.ticket = ticket
        self._session = session
        self._terms = terms
        self._asked_at = 0.0
        self._server_ms: int | None = None
        self._early: str | None = None
        self._grant: Grant | None = None
        self._is_in_line = False
        self._is_withdrawn = False
        self._sent_away: InconcertError | None = None

    def ask(self) -> None:
        """Ask for a permit; this is done when one is granted, or refused to one who does not wait."""
        # First of all be ready to hear of a grant: it may come through the inbox before the reply does.
        self._session.wakeups.expect(self.holder, self)
        self._asked_at = time.monotonic()
        self._session.channel.submit(self)

    def grant(self) -> Grant | None:
        """What was granted; None if nothing was free."""
        if self._sent_away is not None:
            raise self._sent_away
        return self._grant

    def withdraw(self) -> None:
        """Leave the line on the server, too, or give back what was granted."""
        if self.sends and not self._is_withdrawn and not self._session.channel.is_closed:
            self._is_withdrawn = True
            session, terms = self._session, self._terms
            args = (self.holder, terms.limit, terms.handoff_ms, session.inboxes)
            session.channel.submit(Parting(session.lines, _WITHDRAW, self.keys, *args))

    def leave(self) -> None:
        """Wait no more."""
        self._session.wakeups.forget(self.holder)
        if self._is_in_line:
            self._session.lines.leave(self.key, self)

    # What it is told.

    def answered(self, reply: Reply) -> None:
        self.told(reply, self._asked_at)

    def told(self, reply: Reply, asked_at: float) -> None:
        """Take a reply of the script, to our call or to a later look."""
        if reply[0]:
            self._settle(Grant(reply[0], local_deadline(asked_at, self._terms.ttl)))
        elif self.ticket == _NO_WAIT:
            self._settle(None)
        if len(reply) == 1:
            if self._is_in_line:  # the server has forgotten the line
                self._session.lines.everyone_look(self.key, asked_at)
            return
        _, _, self._server_ms, self.ticket, joined = reply[:5]
        self._asked_at = asked_at
        if not self.done():
            self._session.lines.join(self.key, self)
        self._session.lines.heard(self.key, reply)
        if joined and self._is_in_line:
            self._session.lines.everyone_look(self.key, asked_at)
        self._is_in_line = True
        early, self._early = self._early, None
        if early is not None:
            self.hear(early)

    def hear(self, text: str) -> None:
        if self.done():
            return
        if self._server_ms is None:
            self._early = text
            return
        token, end_ms = (int(part) for part in text.split())
        now = time.monotonic()
        life = (end_ms - self._server_ms) / 1000
        # It cannot last longer from now either: that bounds what a step of the server's clock can do.
        deadline = min(local_deadline(self._asked_at, life), local_deadline(now, self._terms.handoff_ms / 1000))
        if not token:  # it went to another, whose lease we wait for
            self._session.lines.look_within(self.key, self._asked_at + life - now)
        elif now < deadline:
            self._settle(Grant(token, deadline))
        else:
            self.look()

    def look(self) -> bool:
        if not self._is_in_line or self.done():
            return False
        self._session.channel.submit(_Look(self, self.keys, _ask(self._session, self.holder, self._terms, self.ticket)))
        return True

    def abandon(self, error: InconcertError) -> None:
        self._sent_away = error
        self.withdraw()
        self.failed(error)

    def _settle(self, grant: Grant | None) -> None:
        if not self.done():
            self._grant = grant
            self.set_result(None)


class _Look(Call):
    """Someone in line asks again."""

    __slots__ = ("_asked_at", "_attempt")

    def __init__(self, attempt: _Attempt, keys: tuple[str, ...], args: tuple[Argument, ...]) -> None:
        super().__init__(_ACQUIRE, keys, args)
        self._asked_at = time.monotonic()
        self._attempt = attempt

    @property
    def is_wanted(self) -> bool:
        return not self._attempt.done()

    def answered(self, reply: Reply) -> None:
        self._attempt.told(reply, self._asked_at)

    def failed(self, error: InconcertError) -> None:
        """Whoever waits goes on waiting, and looks again later."""


def _ask(session: Session, holder: str, terms: _Terms, ticket: int) -> tuple[Argument, ...]:
    """The arguments of the script that acquires."""
    return (holder, terms.limit, terms.ttl_ms, terms.handoff_ms, ticket, session.inboxes)
