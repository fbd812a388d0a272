"""The engine of a term: the lease of a leader, proclaimed as long as it is held."""

import asyncio
import time
from typing import NamedTuple

from inconcert._core.own_loop import check_loop
from inconcert._core.permit_state import Grant, PermitKeys, PermitState, RenewCall
from inconcert._core.session import Session
from inconcert._core.unconfirmed import Withdrawal
from inconcert._redis.protocol.scripts import Command, load
from inconcert._redis.wire.call import Call
from inconcert._rules.durations import milliseconds
from inconcert.errors import LeaseLost

_RENEW = load("elections/renew").bind(PermitKeys)
_VACATE = load("elections/vacate").bind(PermitKeys)


class Candidacy(NamedTuple):
    """One candidate in one election."""

    keys: PermitKeys
    record: str  # the key of the record
    changes: str  # the channel on which changes of the record are published
    candidate: str


class Resigned(LeaseLost):
    """A body was stopped because its term was resigned: never raised to users."""


class TermState(PermitState):
    """A term, from its proclamation until it is released, resigned or lost."""

    __slots__ = ("_candidacy", "_is_resigned", "_left_body")

    def __init__(
        self, session: Session, kind: str, name: str, *, candidacy: Candidacy, ttl: float, grant: Grant
    ) -> None:
        self._candidacy = candidacy
        self._is_resigned = False
        self._left_body = asyncio.Event()
        super().__init__(session, kind, name, keys=candidacy.keys, ttl=ttl, grant=grant)

    def enter(self) -> None:
        """Begin a body."""
        super().enter()
        if self.is_over:  # the body is stopped at its first await
            self._stop_body_soon()

    async def resign(self) -> None:
        """Stop the body, and wait until it has ended and the term is released."""
        check_loop(self.loop, self)
        was_resigned, self._is_resigned = self._is_resigned, True
        if self._body is None:
            await self.release()
            return
        if not was_resigned:
            self._stop_body_soon()
        await self._left_body.wait()

    async def exit(self, error: BaseException | None) -> None:
        """End a body; `resign` waits for it."""
        try:
            await super().exit(error)
        finally:
            self._left_body.set()

    def loss(self) -> LeaseLost:
        """The error that the stopped body raises."""
        kind = Resigned if self._is_resigned else LeaseLost
        return kind(self.kind, self.name, self.fencing_token)

    # Private.

    def _stop_body_soon(self) -> None:
        """Outside all tasks: a body that stops itself is cancelled too."""
        asyncio.get_running_loop().call_soon(self._stop_body)

    def _stop_body(self) -> None:
        if self._body is not None:
            self._body.stop()

    def start_renewal(self) -> None:
        """Renewed by itself, not with other leases: its script also proclaims who leads."""
        self._renewal_starts()
        self._send_renewal()

    def _send_renewal(self) -> Call:
        candidacy = self._candidacy
        command = _RENEW(
            candidacy.keys,
            record=candidacy.record,
            holder=self.holder,
            ttl_ms=milliseconds(self._ttl),
            number=self.fencing_token,
            candidate=candidacy.candidate,
            changes=candidacy.changes,
        )
        call = _RenewTerm(self, command)
        self.session.channel.submit(call)
        return call

    def _start_release(self) -> Call:
        release = super()._start_release()
        record, life = self._candidacy.record, self.deadline - time.monotonic()
        Withdrawal(self.session, record, f"{self.holder} {record}", self._vacation, life=max(0.0, life))
        return release

    def _vacation(self) -> Call:
        candidacy = self._candidacy
        command = _VACATE(candidacy.keys, record=candidacy.record, holder=self.holder, changes=candidacy.changes)
        return Call(command, must_run=True)


class _RenewTerm(RenewCall):
    """The call that renews a term."""

    __slots__ = ("_term",)

    goes_at_once = True  # it proclaims the term: who asks next, on any connection, is to see it

    def __init__(self, term: TermState, command: Command) -> None:
        super().__init__(term, command)
        self._term = term

    def with_one_key(self) -> Call | None:
        return self._term.renewal()
