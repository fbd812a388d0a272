"""One term: the lease of a leader, proclaimed as long as it is held."""

import asyncio
from types import TracebackType
from typing import NamedTuple, Self

from inconcert._core.lease import Grant, Lease, PermitKeys, RenewCall
from inconcert._core.session import Session
from inconcert._redis.call import Call
from inconcert._redis.scripts import load
from inconcert._rules.durations import milliseconds
from inconcert.errors import LeaseLost

__all__ = ["Candidacy", "Resigned", "Term"]

_RENEW = load("elections/renew").bind(PermitKeys)
_VACATE = load("elections/vacate").bind(PermitKeys)


class Candidacy(NamedTuple):
    """One candidate in one election.

    Attributes:
        keys: The keys of the permit.
        record: The key of the record.
        changes: The channel on which changes of the record are published.
        candidate: The candidate's name.
    """

    keys: PermitKeys
    record: str
    changes: str
    candidate: str


class Resigned(LeaseLost):
    """A body was stopped because its term was resigned. Never raised to users."""


class Term(Lease):
    """The right to lead until it is released, resigned or lost.

    It is renewed in the background: a live leader stays.  `async with term` runs a body that is cancelled when the term
    is lost or resigned, and then ends quietly: check `is_lost`.  After the body the next in line leads.

    Made by `Election.terms`, `Election.acquire` and `async with election`.

    Attributes:
        kind: What it is a lease on, such as `election`.
        name: Which election.
        holder: This term's identity, unique every time.
        fencing_token: The same as `number`.
        candidate: The leader's name as others see it.
    """

    __slots__ = ("_candidacy", "_is_resigned", "_left", "candidate")

    def __init__(
        self, session: Session, kind: str, name: str, *, candidacy: Candidacy, ttl: float, grant: Grant
    ) -> None:
        self.candidate = candidacy.candidate
        self._candidacy = candidacy
        self._is_resigned = False
        self._left = asyncio.Event()
        super().__init__(session, kind, name, keys=candidacy.keys, ttl=ttl, grant=grant)

    @property
    def number(self) -> int:
        """Larger than that of any earlier term. Pass it to the resource, which must refuse a lower one."""
        return self.fencing_token

    async def __aenter__(self) -> Self:
        self.enter()
        if self._is_over:  # the body is stopped at its first await
            self._stop_body_soon()
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        try:
            await self.exit(error)
        except LeaseLost:
            return True
        return False

    # Called by the election.

    @property
    def leads(self) -> bool:
        """Whether the term is held now."""
        return not self._is_over

    async def resign(self) -> None:
        """Stop the body, and wait until it has ended and the term is released."""
        was_resigned, self._is_resigned = self._is_resigned, True
        if self._body is None:
            await self.release()
            return
        if not was_resigned:
            self._stop_body_soon()
        await self._left.wait()

    async def exit(self, error: BaseException | None) -> None:
        """End a body, as every `Held` does."""
        try:
            await super().exit(error)
        finally:
            self._left.set()

    # Private.

    @property
    def _is_over(self) -> bool:
        return self._is_released or self.is_lost

    def _stop_body_soon(self) -> None:
        """Outside all tasks: a body that stops itself is cancelled too."""
        asyncio.get_running_loop().call_soon(self._stop_body)

    def _stop_body(self) -> None:
        if self._body is not None:
            self._body.stop()

    def _send_renewal(self) -> Call:
        candidacy = self._candidacy
        command = _RENEW(
            candidacy.keys,
            record=candidacy.record,
            holder=self.holder,
            ttl_ms=milliseconds(self._ttl),
            number=self.number,
            candidate=candidacy.candidate,
            changes=candidacy.changes,
        )
        call = RenewCall(self, command)
        self._session.channel.submit(call)
        return call

    def _start_release(self) -> Call:
        release = super()._start_release()
        candidacy = self._candidacy
        command = _VACATE(candidacy.keys, record=candidacy.record, holder=self.holder, changes=candidacy.changes)
        self._session.channel.submit(Call(command, must_run=True))
        return release

    def _loss(self) -> LeaseLost:
        kind = Resigned if self._is_resigned else LeaseLost
        return kind(self.kind, self.name, self.number)
