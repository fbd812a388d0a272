"""The engine of a lease on a permit: how one holder renews and releases it on the server."""

import re
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple, Self

from inconcert._core.caller import Noted
from inconcert._core.lease_state import LeaseState
from inconcert._core.line import ReleaseCall
from inconcert._core.session import Session, on_unclaimed
from inconcert._core.unconfirmed import Withdrawal
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command, load
from inconcert._redis.wire.background import attempt
from inconcert._redis.wire.call import Call
from inconcert._rules.durations import milliseconds
from inconcert.errors import InconcertError, LeaseLost, OutcomeUnknown, Unavailable

_MANY = re.compile(r"x(\d{1,6})")  # at the end of a holder's name


class PermitKeys(NamedTuple):
    """The keys of the permits of one name, see `_core/permits.py`."""

    holders: str  # zset: holder, and its other permits -> lease end, server ms; its fraction: see hold and serve_line
    waiters: str  # zset: 'limit:handoff_ms:ttl_ms holder' -> ticket
    fence: str  # string: last fencing token; ' lost' after it: see mark_lost


_RENEW = load("permits/renew").bind(PermitKeys)
_RENEW_MANY = load("permits/renew_many").bind()
RELEASE = load("permits/release")
_RELEASE = RELEASE.bind(PermitKeys)
_DROP = load("permits/drop").bind(PermitKeys)


@dataclass(slots=True)
class Grant:
    """A grant by the server, or by a holder that handed over."""

    holder: str
    fencing_token: int
    deadline: float  # by the local monotonic clock
    place: str = ""  # its place in line, if it had one: a late request is removed from there along with the holder
    previous_lost: bool = False  # whether a holder before had lost its lease
    is_short: bool = False  # it was handed over, and must be extended at once to its ttl


def give_back(session: Session, keys: PermitKeys, holder: str, *, life: float, place: str = "") -> None:
    """Release what was granted to a holder that has gone, or may have been, and leave the line.

    Args:
        session: The open session.
        keys: The keys of the permits.
        holder: Its name.
        life: How long the server may keep the grant from now on, in seconds; 0 if it refused to grant anything.
        place: The holder's place in line; empty if it never had one.
    """

    def release() -> Call:
        inboxes = session.inboxes(keys.holders)
        command = _RELEASE(keys, holder=holder, inboxes=inboxes, special=(place, "unused"))
        return ReleaseCall(session.lines, command)

    Withdrawal(session, keys.holders, holder, release, life=life)


def permits_of(holder: str) -> int:
    """The number of permits that a holder of this name has."""
    many = _MANY.fullmatch(holder, max(holder.rfind("x"), 0))
    return int(many[1]) if many else 1


class PermitState(LeaseState):
    """A permit that is held until it is released, or lost.

    Args:
        kind: The kind of the thing, such as `lock`.
        ttl: Life between renewals, in seconds.
        grant: The grant of the server.
        metrics_name: Its name in metrics; empty for none.

    Attributes:
        noted: From where it was acquired.
        since: When that was, by the local monotonic clock.
    """

    __slots__ = (
        "_acquired_at",
        "_is_unused",
        "_place",
        "fencing_token",
        "keys",
        "metrics_name",
        "noted",
        "previous_lost",
        "session",
        "since",
    )

    noted: Noted
    since: float

    def __init__(  # noqa: PLR0917 - see `LeaseState`
        self,
        session: Session,
        kind: str,
        name: str,
        keys: PermitKeys,
        ttl: float,
        grant: Grant,
        metrics_name: str = "",
    ) -> None:
        self.fencing_token = grant.fencing_token
        self.previous_lost = grant.previous_lost
        self.session = session
        self.keys = keys
        self.metrics_name = metrics_name
        self._place = grant.place
        self._is_unused = False  # released without having reached a caller
        self._acquired_at = 0.0  # by the local monotonic clock; 0 while nobody observes
        LeaseState.__init__(self, kind, name, grant.holder, ttl, grant.deadline, session.renewal)

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}, fencing token {self.fencing_token}, {self._left}"

    @property
    def permits(self) -> int:
        """The number of permits that it holds."""
        return permits_of(self.holder)

    def loss(self) -> LeaseLost:
        return LeaseLost(self.kind, self.name, self.fencing_token)

    def acquired(self, asked_at: float) -> Self:
        """Tell observers that it was acquired, which was asked for at this time; returns itself."""
        self._acquired_at = time.monotonic()
        self.session.observers.lease_acquired(self, self._acquired_at - asked_at)
        return self

    async def extend(self) -> bool:
        """Extend a lease that was handed over to its ttl; return once that is sent, or False if the lease was lost."""
        renewal = self._send_renewal()
        self.session.channel.flush()
        if renewal.sends == 0:  # there is no connection, or it is full
            try:
                with suppress(Unavailable, OutcomeUnknown):
                    await renewal
            except BaseException:
                self.release_nowait()
                raise
        if self.is_lost:
            self._renewal.remove(self)
            return False
        return True

    def lose(self) -> None:
        super().lose()
        if self._acquired_at:
            self._tell_end()
        # This process stood still, or was disconnected: the server may have passed over all its waiters in line.
        self.session.lines.recheck_all(self.keys.holders, time.monotonic())

    def release_nowait(self) -> None:
        self._is_unused = not self.is_released
        super().release_nowait()

    def go_on_as(self, holder: str) -> None:
        """Renew and release it under this name from now on."""
        if not (self._is_lost or self.is_released):
            self._renewal.remove(self)
            self.holder = holder
            self._keep_until(self.deadline)

    def start_renewal(self) -> None:
        self._renewal_starts()
        due = self.session.due
        if not due:
            self.session.loop.call_soon(_renew, self.session)
        due.append(self)

    def terms(self) -> tuple[str, int]:
        """Its holder, and for how many milliseconds it is renewed."""
        return self.holder, milliseconds(self._ttl)

    def renewal(self) -> Call:
        """A renewal that is not sent yet."""
        return RenewCall(self, _RENEW(self.keys, holder=self.holder, ttl_ms=milliseconds(self._ttl)))

    # Private.

    def _send_renewal(self) -> Call:
        call = self.renewal()
        self.session.channel.submit(call)
        return call

    def _start_release(self) -> Call:
        session, keys, holder = self.session, self.keys, self.holder
        ended = "lost" if self._is_lost else "unused" if self._is_unused else "late" if self.is_lost else ""
        self.is_released = True
        self._renewal.remove(self)
        special = (self._place, ended) if self._place or ended or "x" in holder else ()
        call = _Release(self, _RELEASE(keys, holder=holder, inboxes=session.inboxes(keys.holders), special=special))
        session.channel.submit(call)
        if self._acquired_at:
            self._tell_end()
        return call

    def _release_at_close(self) -> None:
        self._is_lost = True  # for the next holder: what this one began may be half done
        try:
            super()._release_at_close()
        finally:
            self._is_lost = False

    def _tell_end(self) -> None:
        """Tell observers, once, that it was released or lost."""
        held, self._acquired_at = time.monotonic() - self._acquired_at, 0.0
        self.session.observers.lease_ended(self, held, is_lost=self._is_lost)


def _look_now(session: Session, holder: str, rest: str) -> None:
    """A lease was released by force: its next renewal, which comes at once, finds it lost."""
    del rest
    lease = session.renewal.lease(holder)
    if isinstance(lease, LeaseState) and not lease.is_over:
        lease.start_renewal()


on_unclaimed("evicted", _look_now)


class RenewCall(Call):
    """The call of a renewal; its script returns 1 if it found the holder, and 0 if not.

    Args:
        command: The script, with its keys and arguments.
    """

    __slots__ = ("_asked_at", "_holder", "_lease")

    overtakes = True

    def __init__(self, lease: LeaseState, command: Command) -> None:
        super().__init__(command)
        self._lease = lease
        self._holder = lease.holder
        self._asked_at = time.monotonic()

    def answered(self, reply: Reply) -> None:
        if self._holder == self._lease.holder:  # otherwise it was requested under a name that is no longer used
            self._lease.renewed(is_held=reply == 1, asked_at=self._asked_at)
        super().answered(reply)

    def failed(self, error: InconcertError) -> None:
        self._lease.renewal_failed(error)
        super().failed(error)


def _renew(session: Session) -> None:
    """Renew what became due in a turn of the loop, at most 200 leases, by one script; on a cluster each by itself."""
    due, session.due = session.due, []
    leases = [lease for lease in due if not lease.is_over]
    if len(leases) == 1 or session.is_sharded:
        for lease in leases:
            session.channel.submit(lease.renewal())
    elif leases:
        session.channel.submit(_RenewMany(leases))


class _RenewMany(Call):
    """The call that renews several leases; each learns of its own."""

    __slots__ = ("_asked_at", "_leases")

    overtakes = True

    def __init__(self, leases: list[PermitState]) -> None:
        self._leases = [(lease, lease.holder) for lease in leases]
        self._asked_at = time.monotonic()
        holders = [lease.keys.holders for lease in leases]
        super().__init__(_RENEW_MANY(holders=holders, leases=chain.from_iterable(map(PermitState.terms, leases))))

    def answered(self, reply: Reply) -> None:
        for (lease, holder), answer in zip(self._leases, reply, strict=True):
            if answer < 0:
                attempt("renewing a lease", lease.session.channel.submit, lease.renewal())  # its own call has the error
            elif holder == lease.holder:  # as in RenewCall
                attempt("renewing a lease", partial(lease.renewed, is_held=answer == 1, asked_at=self._asked_at))
        super().answered(reply)

    def failed(self, error: InconcertError) -> None:
        for lease, _ in self._leases:
            attempt("renewing a lease", lease.renewal_failed, error)
        super().failed(error)


class _Release(ReleaseCall):
    """The call of a release; its result is whether the lease was still held."""

    __slots__ = ("lease",)

    goes_at_once = True

    def __init__(self, lease: PermitState, command: Command) -> None:
        ReleaseCall.__init__(self, lease.session.lines, command)
        self.lease = lease

    def answered(self, reply: Reply) -> None:
        self.confirm(self.held(reply) == 1, self.sends)

    def confirm(self, was_held: bool, sends: int) -> None:  # noqa: FBT001 - called by those here alone
        """Tell its caller. What was sent twice finds nothing the second time; in time, the first was a success."""
        if not self.done():
            self.set_result(was_held or (sends > 1 and time.monotonic() < self.lease.deadline))

    def failed(self, error: InconcertError) -> None:
        self.lease.release_failed(error)
        super().failed(error)

    def with_one_key(self) -> Call | None:
        return None if self.done() else _Drop(self)


class _Drop(Call):
    """The release of a lease while its line cannot be served, because its slot moves key by key; that is done later."""

    __slots__ = ("_release",)

    def __init__(self, release: _Release) -> None:
        lease = release.lease
        super().__init__(_DROP(lease.keys, holder=lease.holder), must_run=True)
        self._release = release

    def answered(self, reply: Reply) -> None:
        self._release.confirm(reply == 1, self.sends)
        self._release.lease.session.channel.submit(self._release)
        super().answered(reply)

    def failed(self, error: InconcertError) -> None:
        self._release.fail(error)
        super().failed(error)
