"""An election: one leader among many candidates, in all processes on one server.

The leader renews its term and stays; candidates wait in line, and send nothing while they wait.

    holders, waiters, fence   those of a lock
    record   string  the current leader

Source: docs/explanation/elections.md
"""

import inspect
import logging
import os
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar
from weakref import WeakSet

import anyio

from inconcert._core.async_with import Enterable
from inconcert._core.channel_subscription import ChannelMessage, ChannelSubscription
from inconcert._core.entry import Exits
from inconcert._core.permit_state import Grant, PermitKeys, PermitState
from inconcert._core.permits import Permits
from inconcert._core.retry import retry_until_answered
from inconcert._core.session import Session, SessionRef
from inconcert._redis.protocol.scripts import load
from inconcert._rules.defaults import ELECTION_TTL
from inconcert._rules.durations import Seconds
from inconcert._rules.names import check_name
from inconcert.elections.record import ElectionRecord, LeaderView
from inconcert.elections.term import Term
from inconcert.elections.term_state import Candidacy, Resigned, TermState
from inconcert.errors import InconcertError, LeaseLost, NotHeld

_log = logging.getLogger("inconcert.elections")

_RECORD = load("elections/record").bind(PermitKeys)


P = ParamSpec("P")
R = TypeVar("R")


class _Keys(NamedTuple):
    record: str


class Election(Permits[Term]):
    """One leader at a time, for a term that ends when the leader ends it, dies, or loses contact with the server.

    `async with` waits to lead, and its body runs while this candidate leads.  When the term is lost, the body is
    cancelled before another may lead, by the process's own clock even if the server cannot be reached.  Candidates
    lead in the order in which they came.

    Use it for continuous work that one process does for all: a scheduler, a consumer of one stream.  Use a lock for a
    short step that each process takes in turn, and `Coordinator.every` for a function that runs periodically.

    Made by `Coordinator.election`:

    ```python
    async for term in concert.election("scheduler").terms():
        async with term:
            await schedule(fencing_token=term.number)
    ```

    Args:
        name: Which election. The same name in the same namespace is the same election, on any machine.
        ttl: Life of a lease between renewals, in seconds; by default 10. It is the longest time without a leader after
            one has died.
        timeout: Longest wait of `async with` and `acquire()`, in seconds; None waits forever, 0 tries once.
        candidate: The leader's name as others see it, 1 to 512 bytes; by default the host name and the process id.

    Raises:
        ValueError: `ttl` is not above 0, or `timeout` is below 0.
    """

    _kind = "election"  # in its keys, and in what `inspect` shows

    def __init__(
        self,
        ref: SessionRef,
        name: str,
        *,
        ttl: Seconds = ELECTION_TTL,
        timeout: Seconds | None = None,
        candidate: str | None = None,
    ) -> None:
        kind, face = self._kind, partial(_term, candidate)
        super().__init__(ref, kind, name, limit=1, ttl=ttl, timeout=timeout, face=face)
        self._record = ref.keys.of(_Keys, kind, name).record
        self._changes = ref.keys.channel(self._record, kind, name)
        self._candidate = None if candidate is None else check_name("candidate", candidate)
        self._terms_here: WeakSet[TermState] = WeakSet()

    @property
    def candidate(self) -> str:
        """The leader's name as others see it when this object leads."""
        return _candidate(self._candidate)

    async def _leave(self, held: Enterable | None, error: BaseException | None) -> bool:
        try:
            await super()._leave(held, error)
        except Resigned:
            return True
        return False

    if TYPE_CHECKING:

        async def __aexit__(  # type: ignore[override]  # a lock's never returns True
            self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
        ) -> bool: ...

    else:
        __aexit__ = Exits(_leave)

    async def terms(self) -> AsyncGenerator[Term, None]:
        """Lead repeatedly, as long as the loop runs: yields a term each time this candidate leads.

        Enter the term: `async with term` runs a body that is cancelled when the term is lost or resigned; the body then
        ends quietly, and the loop stands for election again.  An exception in the body ends the loop, after the term is
        released.  A term that was not entered is released when the loop continues or ends.  The object's `timeout` does
        not apply here.

        While the server cannot be reached, the loop keeps retrying, with pauses of up to 2 s and a warning in the log
        for each attempt.

        Cost: that of `acquire()` for each term.
        """
        while True:
            term = await self._win()
            try:
                yield self._face(term)
            finally:
                if not term.is_over:
                    with suppress(InconcertError):  # it then lapses automatically
                        await term.release()

    async def run(self, function: Callable[P, Coroutine[Any, Any, R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Wait to lead, run a coroutine function to its end while leading, and release the term.

        If the term is lost or resigned, the function is cancelled, and run again in this candidate's next term.  When
        many processes call this, the function runs in one of them at a time.  The object's `timeout` does not apply
        here.

        Args:
            function: What to run; called once per term.
            args: Its positional arguments.
            kwargs: Its keyword arguments.

        Returns:
            What the function returned.

        Raises:
            TypeError: `function` is not a coroutine function.

        Cost: That of `acquire()` for each term.
        """
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"{function!r} is not a coroutine function, and could not be stopped; write `async def`")
        while True:
            async with self._face(await self._win()):
                return await function(*args, **kwargs)

    async def resign(self) -> bool:
        """End this object's term if it leads: stop the body, and return when the next in line may lead.

        The body is cancelled, as by a loss, and again every second until it has ended; the term is held until then.
        `async with election` ends quietly, and `terms()` and `run()` stand for election again, behind all waiters.
        Called by the body itself, it ends the body at that point.

        Returns:
            Whether this object led.

        Raises:
            OutcomeUnknown: It led without a body, and the server did not answer; the term lapses automatically.

        Cost: 1 round trip, and 1 message if there is a waiter.
        """
        for term in list(self._terms_here):
            if not term.is_over:
                with suppress(LeaseLost, NotHeld):  # it ended by itself at that moment
                    await term.resign()
                return True
        return False

    async def leader(self) -> str | None:
        """The candidate that leads now, or None."""
        record = await self.record()
        return None if record is None else record.candidate

    async def record(self) -> ElectionRecord | None:
        """The leader, its term and since when it leads, or None."""
        sight = await self._view()
        return sight.record

    async def watch(self) -> AsyncGenerator[ElectionRecord | None, None]:
        """Yield the current leader, and then each change: a record, or None when nobody leads.

        The death of a leader without a successor is noticed when its lease has lapsed, also when the successor gives up
        before its term begins.  The same value never comes twice in a row.  Nothing comes while the server cannot be
        reached; afterwards, the state at that time.

        Raises:
            Unavailable: The server could not be reached at the beginning, or refused the subscription later.
            OutcomeUnknown: The server did not answer at the beginning.

        Cost: 2 round trips, 1 message for each change, and 1 round trip in every ttl.
        """
        async with ChannelSubscription(self._ref.session, self._changes) as subscription:
            sight = await self._view()
            while True:
                yield sight.record
                seen = sight.record
                while sight.record == seen:
                    sight = await self._next_sight(subscription, sight)

    # Private.

    def _lease(self, session: Session, grant: Grant) -> TermState:
        candidacy = Candidacy(self._keys, self._record, self._changes, self.candidate)
        term = TermState(session, self._kind, self._name, candidacy=candidacy, ttl=self._terms.ttl, grant=grant)
        if not grant.is_short:  # a handed-over term is renewed at once anyway
            # The renewal proclaims the term. No need to wait: later requests on the same connection run after it.
            term.start_renewal()
        self._terms_here.add(term)
        return term

    async def _win(self) -> PermitState:
        return await retry_until_answered(
            _log, f"standing for {self._kind} {self._name!r}", partial(self._acquire, None)
        )

    async def _view(self) -> LeaderView:
        return LeaderView.read(await self._ref.session.run(_RECORD(self._keys, record=self._record)))

    async def _next_sight(self, subscription: ChannelSubscription, latest: LeaderView) -> LeaderView:
        with anyio.move_on_after(latest.lasts):
            message = await subscription.next()
            with suppress(ValueError):  # invalid: anyone may publish on a channel
                if (
                    isinstance(message, ChannelMessage)
                    and (sight := LeaderView.read(message.text)).at_us > latest.at_us
                ):
                    return sight
        # The record should have lapsed, or a message was missed, or was sent before the last read and may be outdated.
        return await retry_until_answered(_log, f"watching {self._kind} {self._name!r}", self._view)


def _candidate(given: str | None) -> str:
    """The name as others see it; computed late, because the process may have been forked meanwhile."""
    return given or f"{socket.gethostname()}:{os.getpid()}"


def _term(candidate: str | None, state: PermitState) -> Term:
    return Term(state, _candidate(candidate))
