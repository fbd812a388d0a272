"""An election: one leader among many candidates, in all processes on one server.

The incumbent renews its term and stays; candidates wait in line, and send nothing while they wait.

    holders, waiters, fence   as for a lock
    record   string  who leads, for everyone who asks

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

from inconcert._core.acquirable import Enterable
from inconcert._core.channel_subscription import ChannelMessage, ChannelSubscription
from inconcert._core.entry import Exits
from inconcert._core.lease import Grant, PermitKeys
from inconcert._core.permits import Permits
from inconcert._core.retry import retry_until_answered
from inconcert._core.session import Session, SessionRef
from inconcert._redis.scripts import load
from inconcert._rules.durations import Seconds
from inconcert._rules.names import check_name
from inconcert.elections.record import ElectionRecord, LeaderView
from inconcert.elections.term import Candidacy, Resigned, Term
from inconcert.errors import InconcertError, LeaseLost, NotHeld

__all__ = ["ELECTION_TTL", "Election"]

_log = logging.getLogger("inconcert.elections")

_RECORD = load("elections/record").bind(PermitKeys)

ELECTION_TTL = 10.0  # seconds; how long there is no leader after one has died

P = ParamSpec("P")
R = TypeVar("R")


class _Keys(NamedTuple):
    record: str


class Election(Permits[Term]):
    """One leader at a time, for a term that ends when the leader ends it, dies, or loses touch with the server.

    `async with` waits to lead, and its body runs while this candidate leads.  When the term is lost the body is
    cancelled before another may lead, by the process's own clock even if the server cannot be reached.  Candidates
    follow each other in the order in which they came.

    Use it for what one process does for all, and goes on doing: a scheduler, a consumer of one stream.  Use a lock for
    a short step that everyone takes in turn, and `Coordinator.every` for a function to run now and then.

    Made by `Coordinator.election`:

    ```python
    async for term in concert.election("scheduler").terms():
        async with term:
            await schedule(fencing_token=term.number)
    ```

    Args:
        ref: The way to the open session.
        name: Which election. The same name in the same namespace is the same election, on any machine.
        ttl: Life of a lease between renewals, in seconds: how long there may be no leader after one has died.
        timeout: Longest wait of `async with` and `acquire()`, in seconds; None waits for ever, 0 tries once.
        candidate: What others are told of the leader, 1 to 512 bytes; by default the host's name and the process's id.
        kind: What it is to its users; part of its keys.

    Raises:
        ValueError: `ttl` is not above 0, or `timeout` is below 0.
        InvalidName: `name` or `candidate` is empty or longer than 512 bytes.
    """

    def __init__(
        self,
        ref: SessionRef,
        name: str,
        *,
        ttl: Seconds = ELECTION_TTL,
        timeout: Seconds | None = None,
        candidate: str | None = None,
        kind: str = "election",
    ) -> None:
        super().__init__(ref, kind, name, limit=1, ttl=ttl, timeout=timeout)
        self._record = ref.keys.of(_Keys, kind, name).record
        self._changes = ref.keys.channel(kind, name)
        self._candidate = None if candidate is None else check_name("candidate", candidate)
        self._terms_here: WeakSet[Term] = WeakSet()

    @property
    def candidate(self) -> str:
        """What others are told when this process leads."""
        # Looked up late, for a process may have been forked since this was made.
        return self._candidate or f"{socket.gethostname()}:{os.getpid()}"

    async def _leave(self, held: Enterable | None, error: BaseException | None) -> bool:
        try:
            await self._found(held).exit(error)
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
        """Lead again and again, for as long as the loop goes on: each time round, once this candidate leads.

        Enter the term: `async with term` runs a body that is cancelled when the term is lost or resigned, and ends
        quietly then, and the loop stands for election again.  An exception of the body ends the loop, after the term
        was given back.  A term that was not entered is given back when the loop goes on or is left.  The object's
        `timeout` does not count here.

        While the server cannot be reached the loop goes on trying, with pauses of up to 2 s and a warning in the log
        for each try.

        Raises:
            NotConnected: The coordinator is not open, or was closed meanwhile.

        Cost: that of `acquire()` for each term.
        """
        while True:
            term = await self._win()
            try:
                yield term
            finally:
                if term.leads:
                    with suppress(InconcertError):  # it lapses by itself then
                        await term.release()

    async def run(self, function: Callable[P, Coroutine[Any, Any, R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Wait to lead, run a coroutine function to its end while leading, and give the office to the next.

        If the term is lost or resigned, the function is cancelled, and run again in this candidate's next term.  Called
        in each of many processes, it runs in one of them at a time.  The object's `timeout` does not count here.

        Args:
            function: What to run; called anew in each term.
            args: Its positional arguments.
            kwargs: Its named arguments.

        Returns:
            What it returned.

        Raises:
            TypeError: It is not a coroutine function.
            NotConnected: The coordinator is not open, or was closed meanwhile.
        """
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"{function!r} is not a coroutine function, and could not be stopped; write `async def`")
        while True:
            async with await self._win():
                return await function(*args, **kwargs)

    async def resign(self) -> bool:
        """Give up the office if this object leads: stop the body, and return when the next in line may lead.

        The body is cancelled, as by a loss, and again every second until it has ended; the office is kept until then.
        `async with election` ends quietly, and `terms()` and `run()` stand for election again, behind all who wait.
        Called by the body itself, it ends the body right there.

        Returns:
            Whether it led.

        Raises:
            OutcomeUnknown: It led without a body, and the server did not answer; the term lapses by itself.

        Cost: 1 round trip, and 1 message if someone waits.
        """
        for term in list(self._terms_here):
            if term.leads:
                with suppress(LeaseLost, NotHeld):  # it ended at that moment by itself
                    await term.resign()
                return True
        return False

    async def leader(self) -> str | None:
        """Which candidate leads now, or None.

        Cost: 1 round trip.
        """
        record = await self.record()
        return None if record is None else record.candidate

    async def record(self) -> ElectionRecord | None:
        """Who leads now, in which term and since when, or None.

        Cost: 1 round trip.
        """
        sight = await self._view()
        return sight.record

    async def watch(self) -> AsyncGenerator[ElectionRecord | None, None]:
        """Who leads now, and then each change: a record, or None when nobody leads.

        A leader that dies without a successor is noticed when its lease has lapsed, and so is one whose successor gives
        up before it has begun.  The same is never said twice in a row.  While the server cannot be reached nothing is
        said; afterwards, what is so then.

        Raises:
            NotConnected: The coordinator is not open, or was closed meanwhile.
            Unavailable: The server could not be asked at the beginning, or refused us later.
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

    # Below.

    def _lease(self, session: Session, grant: Grant) -> Term:
        candidacy = Candidacy(self._keys, self._record, self._changes, self.candidate)
        term = Term(session, self._kind, self._name, candidacy=candidacy, ttl=self._ttl, grant=grant)
        if not grant.is_short:  # one that was handed over is renewed at once anyway
            # Its renewal proclaims it. Nobody waits for that: a question over the same connection comes behind it.
            term.start_renewal()
        self._terms_here.add(term)
        return term

    async def _win(self) -> Term:
        return await retry_until_answered(
            _log, f"standing for {self._kind} {self._name!r}", partial(self.acquire, timeout=None)
        )

    async def _view(self) -> LeaderView:
        return LeaderView.read(await self._ref.session.run(_RECORD(self._keys, record=self._record)))

    async def _next_sight(self, subscription: ChannelSubscription, latest: LeaderView) -> LeaderView:
        with anyio.move_on_after(latest.lasts):
            message = await subscription.next()
            with suppress(ValueError):  # it cannot be read, for anyone may publish on a channel
                if (
                    isinstance(message, ChannelMessage)
                    and (sight := LeaderView.read(message.text)).at_us > latest.at_us
                ):
                    return sight
        # The record should have lapsed, or something was missed, or said before we looked and may not be so any more.
        return await retry_until_answered(_log, f"watching {self._kind} {self._name!r}", self._view)
