"""The engine of everything that limits the number of holders: locks, semaphores, elections.

A holder has a permit under a lease; a caller that finds none joins a line that the server keeps, and is handed a permit
by the next release.  The server's keys hold the truth; this module adds how one process waits.

    holders   zset    holder -> lease end, server ms; at .5 until one that was handed over is extended; and 'HOLDER+2'
                      to 'HOLDER+N', for the other permits of one whose name ends in 'xN'
    waiters   zset    'limit:handoff_ms:ttl_ms holder' -> ticket
    fence     string  last fencing token; ' lost' after it until the next grant, if a holder has lost its lease since

Source: docs/explanation/permits.md
"""

import time
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeVar

from inconcert._core.acquirable import Acquirable
from inconcert._core.caller import note
from inconcert._core.lease import Lease
from inconcert._core.permit_state import RELEASE, Grant, PermitKeys, PermitState, give_back
from inconcert._core.place import JOIN, NO_WAIT, Place
from inconcert._core.renewal import local_deadline
from inconcert._core.session import Session, SessionRef
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command, load
from inconcert._rules import durations
from inconcert._rules.durations import Seconds, milliseconds
from inconcert.errors import InconcertError

_ACQUIRE = load("permits/acquire").bind(PermitKeys)
_INSPECT = load("permits/inspect").bind(PermitKeys)

_HANDOFF = 2.0  # seconds; life of a lease that is handed to a process that may stand still, until it is extended

LeaseT_co = TypeVar("LeaseT_co", bound=Lease, covariant=True)


class Permits(Acquirable[PermitState, LeaseT_co]):
    """The permits of one name; the base of everything that a server grants in the order of a line.

    Args:
        kind: What users call it, such as `lock`; part of its keys.
        limit: How many holders there may be at once.
        ttl: Life of a lease between renewals, in seconds.
        timeout: Longest wait of `async with` and `acquire()`, in seconds; None waits forever.
        face: Makes a holder's lease from its state.
        mark: The end of its holders' names; a holder with 'w' excludes all others.
        permits: How many each of its holders takes; if it is N, not 1, their names end in 'xN'.
        metrics_name: Its name in metrics, written in the code; None for none.
        label: What reports call its acquisitions.
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
        permits: int = 1,
        metrics_name: str | None = None,
        label: str | None = None,
    ) -> None:
        Acquirable.__init__(self, kind, name, timeout, face)
        self._ref = ref
        self._keys = ref.keys.of(PermitKeys, kind, name)
        self._terms = _terms(limit, durations.ttl(ttl), _HANDOFF)
        self._mark = mark if permits == 1 else f"x{permits}"
        self._permits = permits
        self._metrics_name = metrics_name or ""
        self._label = label

    async def locked(self) -> bool:
        """True if `acquire` would wait: there are not enough free permits, or others wait already."""
        standing = await self._inspect()
        return standing.held + self._permits > self._terms.limit or standing.waiting > 0

    async def holders(self) -> list[str]:
        """The `Lease.holder` of each holder, in the order in which their leases end; at most 1,000."""
        standing = await self._inspect()
        return [holder.decode() for holder in standing.holders]

    async def waiters(self) -> int:
        """The number of waiters in line. One that died in line counts until its turn comes."""
        standing = await self._inspect()
        return standing.waiting

    # Private.

    async def _take(self, *, waits: bool) -> PermitState | None:
        session = self._ref.session
        asked_at = time.monotonic()
        if session.channel.is_full:
            await session.channel.has_room(self._keys.holders)
        holder = session.new_address() + self._mark
        noted = note(self._label, 3)
        ticket = JOIN if waits and session.inbox.listens(self._keys.holders) else NO_WAIT
        while True:
            attempt = _Attempt(session, self._keys, holder, self._terms, ticket)
            attempt.noted = noted
            try:
                attempt.ask()
                grant: Grant | None = await attempt
                attempt.raise_if_closed()
            except BaseException:
                attempt.withdraw()
                raise
            attempt.leave()
            if grant is None:
                if not waits:
                    return None
                await session.inbox.listen(self._keys.holders)
                ticket = JOIN
                continue
            now = time.monotonic()
            if now < grant.deadline:
                lease = self._lease(session, grant)
                lease.noted, lease.since = noted, now
                is_held = not grant.is_short or await lease.extend()
                if is_held and (session.safeguards is None or await session.safeguards.admit([lease], waits=waits)):
                    return lease.acquired(asked_at) if session.observers else lease
                if is_held and not waits:
                    return None
            elif not waits:
                attempt.withdraw()
                return None
            # It was granted while we could not act on it: ask whether it still is, or return to our place.
            ticket = attempt.ticket

    def _trouble(self, since: float) -> InconcertError | None:
        return self._ref.session.channel.trouble(self._keys.holders, since)

    def _lease(self, session: Session, grant: Grant) -> PermitState:
        """The grant."""
        return PermitState(session, self._kind, self._name, self._keys, self._terms.ttl, grant, self._metrics_name)

    async def _inspect(self) -> "Standing":
        waiting, held, *holders = await self._ref.session.run(_INSPECT(self._keys))
        return Standing(waiting, held, holders)


class Standing(NamedTuple):
    """The number of waiters, the number of holders, and the first 1,000 holders."""

    waiting: int
    held: int
    holders: list[bytes]


class _Terms:
    """Limit and times that a caller asks for."""

    __slots__ = ("limit", "line", "ttl", "ttl_ms")

    def __init__(self, limit: int, ttl: float, handoff: float) -> None:
        self.limit = limit
        self.ttl = ttl
        self.ttl_ms = milliseconds(ttl)
        self.line = f"{limit}:{milliseconds(min(ttl, handoff))}"  # what the line says of it


# A program has few of them, and makes many objects with each.  By type, because a limit that is refused may equal one.
_terms = lru_cache(maxsize=256, typed=True)(_Terms)


class _Attempt(Place):
    """A request for a permit, and its place in line until one is granted; its result is None if none was free."""

    __slots__ = ("_early", "_keys", "_server_ms", "_terms")

    kind = "permit"

    def __init__(self, session: Session, keys: PermitKeys, holder: str, terms: _Terms, ticket: int) -> None:
        self._keys = keys
        self._terms = terms
        self._server_ms: int | None = None
        self._early: str | None = None
        Place.__init__(self, session, holder, ticket)

    @staticmethod
    def leave_for(session: Session, address: str, rest: str) -> None:
        if session.channel.is_closed or session.renewal.keeps(address):  # its acquirer has it, or it is given back
            return
        _, _, _, lease_ms, terms, key = rest.split(" ", 5)
        keys = Keyspace.beside(PermitKeys, key)
        give_back(session, keys, address, life=int(lease_ms) / 1000, place=f"{terms} {address}")

    def on_message(self, rest: str) -> None:
        if self.done():
            return
        # First of all, because it may be foreign.
        token, is_after_loss, end_ms, lease_ms = (int(part) for part in rest.split(" ", 4)[:4])
        if self._server_ms is None:
            self._early = rest
            return
        now = time.monotonic()
        life = (end_ms - self._server_ms) / 1000
        # It cannot last longer from now either: that bounds what a step of the server's clock can do.
        deadline = min(local_deadline(self._asked_at, life), local_deadline(now, lease_ms / 1000))
        if not token:  # it went to another holder, whose lease we wait for
            self._session.lines.recheck_within(self.key, self._asked_at + life - now)
        elif now < deadline:
            is_short = lease_ms < self._terms.ttl_ms
            self.set_result(
                Grant(self.address, token, deadline, self._place(), previous_lost=is_after_loss == 1, is_short=is_short)
            )
        else:
            self.recheck()

    # Private.

    def _request(self) -> Command:
        return _ACQUIRE(
            self._keys,
            holder=self.address,
            ttl_ms=self._terms.ttl_ms,
            line=f"{self._terms.line} {self.ticket} {self._session.inboxes(self._keys.holders)}",
        )

    def _take(self, reply: Reply) -> None:
        line: Reply
        if isinstance(reply, int):
            token, is_after_loss, line = reply, 0, ()
        else:
            token, is_after_loss, *line = reply
        if not self.done():
            if token:
                place = self._place() if line or self.ticket > 0 else ""
                deadline = local_deadline(self._asked_at, self._terms.ttl)
                self.set_result(Grant(self.address, token, deadline, place, is_after_loss == 1))
            elif self.ticket == NO_WAIT:
                self.set_result(None)
        if line:
            RELEASE.prepare()  # while there is time; when it leaves the line others wait
            self._server_ms, *standing = line
            self._stand(*standing)
            early, self._early = self._early, None
            if early is not None:
                self.on_message(early)
        elif self.ticket > 0:  # the server has forgotten the line
            self._session.lines.recheck_all(self.key, self._asked_at)

    def _give_back(self) -> None:
        life = 0.0 if self.was_refused else self._terms.ttl
        give_back(self._session, self._keys, self.address, life=life, place=self._place())

    def _place(self) -> str:
        """Its entry in the line."""
        return f"{self._terms.line}:{self._terms.ttl_ms} {self.address}"
