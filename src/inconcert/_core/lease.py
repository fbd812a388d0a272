"""What acquiring a permit returns: the right to act for a time, with a number to show to what it protects."""

import time
from contextlib import suppress
from typing import NamedTuple

from inconcert._core.held import Held
from inconcert._core.line import ReleaseCall
from inconcert._core.session import Session
from inconcert._redis.call import Call
from inconcert._redis.replies import Reply
from inconcert._redis.scripts import Command, load
from inconcert._rules.durations import milliseconds
from inconcert.errors import InconcertError, LeaseLost, OutcomeUnknown, Unavailable

__all__ = ["Grant", "Lease", "PermitKeys", "RenewCall"]


class PermitKeys(NamedTuple):
    """Where the permits of one name are kept, see `_core/permits.py`."""

    holders: str
    waiters: str
    fence: str


_RENEW = load("permits/renew").bind(PermitKeys)
_RELEASE = load("permits/release").bind(PermitKeys)


class Grant(NamedTuple):
    """What the server, or one who handed over, has granted."""

    holder: str
    fencing_token: int
    deadline: float  # by the local monotonic clock
    place: str = ""  # in the line, if it came from there: what may have come late is taken out along with the holder
    is_short: bool = False  # it was handed over, and must be extended at once to last its ttl


class Lease(Held):
    """A permit that is held until it is released, or lost.

    It is renewed in the background as long as someone keeps it.  If the server cannot be reached, it is lost at its
    deadline by the local clock, which comes before anyone else may get the permit.

    Attributes:
        kind: What it is a lease on, such as `lock`.
        name: Which one.
        holder: This acquisition's identity, unique every time.
        fencing_token: Rises with every grant of the name.  Give it to the resource that the permit protects, and let
            the resource refuse a lower one than it has seen.
    """

    __slots__ = ("_keys", "_place", "_session", "fencing_token")

    def __init__(self, session: Session, kind: str, name: str, *, keys: PermitKeys, ttl: float, grant: Grant) -> None:
        self.fencing_token = grant.fencing_token
        self._session = session
        self._keys = keys
        self._place = grant.place
        super().__init__(kind, name, holder=grant.holder, ttl=ttl, deadline=grant.deadline, renewal=session.renewal)

    def __repr__(self) -> str:
        token = f"fencing token {self.fencing_token}"
        return f"<{type(self).__name__} on {self.kind} {self.name!r}, {token}, {self._state}>"

    # For what acquires it.

    async def extend(self) -> bool:
        """Make a lease that was handed over last its ttl; return when that is on its way, or False if it was lost."""
        renewal = self._send_renewal()
        self._session.channel.flush()
        if renewal.sends == 0:  # there is no connection, or it is full
            try:
                with suppress(Unavailable, OutcomeUnknown):
                    await renewal
            except BaseException:
                self.let_go()
                raise
        if self.is_lost:
            self._renewal.remove(self)
            return False
        return True

    def lose(self) -> None:
        super().lose()
        # This process stood still, or was cut off: the server may have passed over everyone here who is in line.
        self._session.lines.recheck_all(self._keys.holders, time.monotonic())

    # Below.

    def _send_renewal(self) -> Call:
        call = RenewCall(self, _RENEW(self._keys, holder=self.holder, ttl_ms=milliseconds(self._ttl)))
        self._session.channel.submit(call)
        return call

    def _start_release(self) -> Call:
        self._is_released = True
        self._renewal.remove(self)
        command = _RELEASE(self._keys, holder=self.holder, inboxes=self._session.inboxes, place=self._place)
        call = _Release(self, self._session, command)
        self._session.channel.submit(call)
        return call

    def _loss(self) -> LeaseLost:
        return LeaseLost(self.kind, self.name, self.fencing_token)


class RenewCall(Call):
    """A renewal under way, by a script that answers 1 if it found the holder, and 0 if not.

    Args:
        held: What is renewed.
        command: The script, with its keys and arguments.
    """

    __slots__ = ("_asked_at", "_held", "_holder")

    def __init__(self, held: Held, command: Command) -> None:
        super().__init__(command)
        self._held = held
        self._holder = held.holder
        self._asked_at = time.monotonic()

    def answered(self, reply: Reply) -> None:
        if self._holder == self._held.holder:  # else it was asked for under a name that has been given up since
            self._held.renewed(is_held=reply == 1, asked_at=self._asked_at)
        super().answered(reply)

    def failed(self, error: InconcertError) -> None:
        self._held.renewal_failed(error)
        super().failed(error)


class _Release(ReleaseCall):
    """A release under way; its result is whether the lease was still held."""

    __slots__ = ("_lease",)

    def __init__(self, lease: Lease, session: Session, command: Command) -> None:
        super().__init__(session.lines, command)
        self._lease = lease

    def answered(self, reply: Reply) -> None:
        # A release that was sent twice finds nothing the second time; in time, the first was a success.
        was_held = reply[0] == 1 or (self.sends > 1 and time.monotonic() < self._lease.deadline)
        self.on_reply(reply)
        if not self.done():
            self.set_result(was_held)
