"""One engine for everything that lets only so many in at once: locks, semaphores, elections.

A holder has a permit under a lease; whoever finds none joins a line that the server keeps, and is handed a permit by
whoever releases one.  The server's keys hold the truth; this module adds how one process waits.

    holders   zset    holder -> lease end, server ms; at .5 until one that was handed over is extended
    waiters   zset    'limit:handoff_ms:ttl_ms holder' -> ticket
    fence     string  last fencing token

Source: docs/explanation/permits.md
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from inconcert._core.acquirable import Acquirable
from inconcert._core.lease import Lease
from inconcert._core.lease_state import local_deadline
from inconcert._core.line import ReleaseCall
from inconcert._core.permit_state import Grant, PermitKeys, PermitState
from inconcert._core.place import Place
from inconcert._core.session import Session, SessionRef
from inconcert._redis.keys import Keyspace
from inconcert._redis.replies import Reply
from inconcert._redis.scripts import Command, load
from inconcert._rules import durations
from inconcert._rules.durations import Seconds, milliseconds
from inconcert.errors import InconcertError

__all__ = ["Permits"]

_ACQUIRE = load("permits/acquire").bind(PermitKeys)
_RELEASE = load("permits/release").bind(PermitKeys)
_INSPECT = load("permits/inspect").bind(PermitKeys)

_HANDOFF = 2.0  # seconds; life of a lease that is handed to a process that may stand still, until it is extended
_NO_WAIT, _JOIN = -1, 0  # in place of a ticket

LeaseT_co = TypeVar("LeaseT_co", bound=Lease, covariant=True)


class Permits(Acquirable[PermitState, LeaseT_co]):
    """So many permits of one name; the base of everything that a server grants in the order of a line.

    Args:
        ref: The way to the open session.
        kind: What it is to its users, such as `lock`; part of its keys.
        name: Which one.
        limit: How many holders there may be at once.
        ttl: Life of a lease between renewals, in seconds.
        timeout: Longest wait of `async with` and `acquire()`, in seconds; None waits forever.
        face: What makes a holder's lease of the state of one.
        mark: What its holders' names end in; 'w' lets nobody in beside its holder.
    """

    def __init__(
        self,
        ref: SessionRef,
        kind: str,
        name: str,
        *,
        limit: int,
        ttl: Seconds,
        timeout: Seconds | None,
        face: Callable[[PermitState], LeaseT_co],
        mark: str = "",
    ) -> None:
        super().__init__(kind, name, timeout)
        self._ref = ref
        self._keys = ref.keys.of(PermitKeys, kind, name)
        self._ttl = durations.ttl(ttl)
        self._terms = _Terms(limit, self._ttl)
        self._make_face = face
        self._mark = mark

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

    async def _take(self, *, waits: bool) -> PermitState | None:
        session = self._ref.session
        await session.channel.has_room()
        holder = session.new_address() + self._mark
        ticket = _JOIN if waits else _NO_WAIT
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
                lease = self._lease(session, grant)
                if not grant.is_short or await lease.extend():
                    return lease
            elif not waits:
                attempt.withdraw()
                return None
            # It was granted while we could not act on it: ask whether it still is, or have our place back.
            ticket = attempt.ticket

    def _trouble(self, since: float) -> InconcertError | None:
        return self._ref.session.channel.trouble(since)

    def _lease(self, session: Session, grant: Grant) -> PermitState:
        """What was granted."""
        return PermitState(session, self._kind, self._name, keys=self._keys, ttl=self._ttl, grant=grant)

    def _face(self, held: PermitState) -> LeaseT_co:
        return self._make_face(held)

    async def _inspect(self) -> Reply:
        return await self._ref.session.run(_INSPECT(self._keys))


class _Terms:
    """What a caller asks for."""

    __slots__ = ("handoff_ms", "limit", "ttl", "ttl_ms")

    def __init__(self, limit: int, ttl: float) -> None:
        self.limit = limit
        self.ttl = ttl
        self.ttl_ms = milliseconds(ttl)
        self.handoff_ms = milliseconds(min(ttl, _HANDOFF))

    def place(self, holder: str) -> str:
        """What stands in line for this holder."""
        return f"{self.limit}:{self.handoff_ms}:{self.ttl_ms} {holder}"


class _Attempt(Place):
    """One who acquires: its call for a permit, and its place in line until it is granted one."""

    __slots__ = (
        "_early",
        "_grant",
        "_is_in_line",
        "_is_withdrawn",
        "_keys",
        "_must_recheck",
        "_server_ms",
        "_terms",
        "holder",
        "ticket",
    )

    def __init__(self, session: Session, keys: PermitKeys, holder: str, terms: _Terms, ticket: int) -> None:
        super().__init__(session, _ask(session, keys, holder, terms, ticket))
        self._keys = keys
        self.holder = holder
        self.ticket = ticket
        self._terms = terms
        self._server_ms: int | None = None
        self._early: str | None = None
        self._grant: Grant | None = None
        self._is_in_line = False
        self._must_recheck = False
        self._is_withdrawn = False

    def ask(self) -> None:
        """Ask for a permit; this is done when one is granted, or refused to a caller that does not wait."""
        # First of all be ready to hear of a grant: it may come through the inbox before the reply does.
        self._session.inbox.register(self.holder, self)
        if self.ticket != _NO_WAIT:
            self._session.inbox.on_unclaimed("permit", partial(_decline, self._session))
        self._submit()

    def grant(self) -> Grant | None:
        """What was granted; None if nothing was free."""
        self.raise_if_closed()
        return self._grant

    def withdraw(self) -> None:
        """Leave the line on the server, too, or give back what was granted."""
        if self.sends and not self._is_withdrawn and not self._session.channel.is_closed:
            self._is_withdrawn = True
            _release(self._session, self._keys, self.holder, self._terms.place(self.holder))

    def leave(self) -> None:
        """Wait no more."""
        self._session.inbox.unregister(self.holder)
        if self._is_in_line:
            self._session.lines.leave(self.key, self)

    # What it is told.

    def on_reply(self, reply: Reply, asked_at: float) -> None:
        """Take a reply of the script, to our call or to a later look."""
        if reply[0]:
            place = self._terms.place(self.holder) if len(reply) > 1 or self._is_in_line else ""
            self._settle(Grant(self.holder, reply[0], local_deadline(asked_at, self._terms.ttl), place))
        elif self.ticket == _NO_WAIT:
            self._settle(None)
        if len(reply) == 1:
            if self._is_in_line:  # the server has forgotten the line
                self._session.lines.recheck_all(self.key, asked_at)
            return
        _, _, self._server_ms, self.ticket, joined = reply[:5]
        self._asked_at = asked_at
        if not self.done():
            self._session.lines.join(self.key, self)
        self._session.lines.on_reply(self.key, reply)
        if joined and self._is_in_line:
            self._session.lines.recheck_all(self.key, asked_at)
        self._is_in_line = True
        early, self._early = self._early, None
        if early is not None:
            self.on_message(early)
        if self._must_recheck:
            self._must_recheck = False
            self.recheck()

    def on_message(self, rest: str) -> None:
        if self.done():
            return
        # First of all, for a stranger may have said it.
        token, end_ms, lease_ms = (int(part) for part in rest.split(" ", 3)[:3])
        if self._server_ms is None:
            self._early = rest
            return
        now = time.monotonic()
        life = (end_ms - self._server_ms) / 1000
        # It cannot last longer from now either: that bounds what a step of the server's clock can do.
        deadline = min(local_deadline(self._asked_at, life), local_deadline(now, lease_ms / 1000))
        if not token:  # it went to another, whose lease we wait for
            self._session.lines.recheck_within(self.key, self._asked_at + life - now)
        elif now < deadline:
            is_short = lease_ms < self._terms.ttl_ms
            self._settle(Grant(self.holder, token, deadline, self._terms.place(self.holder), is_short=is_short))
        else:
            self.recheck()

    def recheck(self) -> bool:
        if self.done():
            return False
        if not self._is_in_line:
            self._must_recheck = True  # the reply under way may be from before what was missed
            return True
        command = _ask(self._session, self._keys, self.holder, self._terms, self.ticket)
        self._submit_recheck(command)
        return True

    def closed(self, error: InconcertError) -> None:
        super().closed(error)
        self.withdraw()
        self.failed(error)

    def _settle(self, grant: Grant | None) -> None:
        if not self.done():
            self._grant = grant
            self.set_result(None)


def _decline(session: Session, holder: str, rest: str) -> None:
    """Give a permit back, or leave the line, for a holder that nobody here waits for any more."""
    if session.channel.is_closed or session.renewal.keeps(holder):  # held: its acquirer heard of it in another way
        return
    _, _, _, terms, key = rest.split(" ", 4)
    _release(session, Keyspace.beside(PermitKeys, key), holder, f"{terms} {holder}")


def _release(session: Session, keys: PermitKeys, holder: str, place: str) -> None:
    command = _RELEASE(keys, holder=holder, inboxes=session.inboxes(keys.holders), place=place)
    session.channel.submit(ReleaseCall(session.lines, command))


def _ask(session: Session, keys: PermitKeys, holder: str, terms: _Terms, ticket: int) -> Command:
    return _ACQUIRE(
        keys,
        holder=holder,
        limit=terms.limit,
        ttl_ms=terms.ttl_ms,
        handoff_ms=terms.handoff_ms,
        ticket=ticket,
        inboxes=session.inboxes(keys.holders),
    )
