"""A rate limiter: so many permits in a time, among all processes on one server.

The server keeps one instant for each limiter: when all permits will be back, one each so many microseconds.  To grant
some moves it further away.  It also keeps a line of waiters.  Each of them knows when its turn comes at the latest, and
asks then; the script that is asked serves the line, and tells the first in it when to ask.  So a place that is given
back is used by the next, and nobody polls.

Source: docs/explanation/rate-limits.md
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from inconcert._core.place import JOIN, Place
from inconcert._core.session import Session, SessionRef
from inconcert._core.unconfirmed import REMEMBERED, Withdrawal
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command, load
from inconcert._redis.wire.call import Call
from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert._rules.limits import whole
from inconcert.errors import InconcertError, RateLimited
from inconcert.reservation import Reservation

_REFUSED, _GRANTED, _IN_LINE = 0, 1, 2  # what the script answers that takes

_SECOND = 1_000_000  # microseconds, in which all is counted: a server's clock has no finer ones
_LONGEST = 10 * 365 * 24 * 3600 * _SECOND  # of any wait; an instant that far away is still a whole number in Lua
_ASK_BEFORE = 0.0025  # seconds; half of what the server looks ahead: it is asked in time, and the answer is not "wait"
_FASTEST = 100_000  # permits per second; a permit is a whole number of microseconds, so more would be far off


class _Keys(NamedTuple):
    # When all are back, server us; what those in line want; in which time one is back.
    state: str  # string: 'END_US QUEUED_US PACE_US'
    line: str  # zset: 'REQUEST COST_US BURST_US INTERVAL_US' -> ticket, server us
    recent: str
    older: str


class _Answer(NamedTuple):
    """Answer of `rate_limits/take`."""

    outcome: int
    wait_us: int  # until the permits may be used, or until to ask again
    full_us: int  # as many permits as are out if those in line take theirs, in the time in which they come back
    ticket: int = 0  # of a place in line


_TAKE = load("rate_limits/take").bind(_Keys)
_REFUND = load("rate_limits/refund").bind(_Keys)
_RESET = load("rate_limits/reset").bind(_Keys)
_SETTLE = load("rate_limits/settle").bind(_Keys)
_INSPECT = load("rate_limits/inspect").bind(_Keys)


@dataclass(frozen=True, slots=True)
class RateDecision:
    """The answer of a limiter; true if permits were taken.

    Attributes:
        is_allowed: Whether they were taken, and may be used.
        remaining: How many more could be taken at once just then.
        retry_after: After how many seconds there would be enough of them, if nobody else comes; 0 if they were taken.
    """

    is_allowed: bool
    remaining: int
    retry_after: float

    def __bool__(self) -> bool:
        return self.is_allowed


@dataclass(frozen=True, slots=True)
class RateStatus:
    """The use of a limiter.

    Attributes:
        remaining: How many permits could be taken at once; 0 while callers wait, because they come first.
        full_in: After how many seconds all permits are back, if the waiters take theirs and nobody else comes.
        waiting: How many callers wait.
    """

    remaining: int
    full_in: float
    waiting: int


class RateTerms(NamedTuple):
    """The terms of a limiter, for answers that tell clients."""

    limit: int
    period: float  # seconds
    burst: int
    interval: float  # seconds in which one permit comes back


class RateLimiter:
    """Lets `limit` permits be used per `period`, and up to `burst` at once after a quiet time.

    A permit that was used comes back by itself, one each `period / limit`.  So in no time span t are more used than
    `burst + t * limit / period`.  The server's clock alone decides when.  Waiters are served in the order in which the
    server saw them, across all processes, and send nothing while they wait.

    Use it to bound how often something begins, such as requests of one client or calls to a service that counts them.
    To bound how many run at the same time, use `Coordinator.semaphore`.

    Made by `Coordinator.rate_limiter`:

    ```python
    limiter = concert.rate_limiter(f"api:{user}", limit=100, period=60.0)
    if not await limiter.try_acquire():
        ...  # too many requests
    ```

    Args:
        name: Which limiter. The same name in the same namespace is the same limiter, on any machine. A caller with
            another `limit`, `period` or `burst` is judged by its own, and finds as many permits taken.
        limit: How many permits come back per period: 1 or more, and at most 100,000 per second.
        period: In which time, in seconds.
        burst: How many may be used at once when all are back; None for `limit`.

    Raises:
        ValueError: `limit`, `period` or `burst` is out of range; `burst` permits may need 10 years to come back.
    """

    def __init__(self, ref: SessionRef, name: str, limit: int, period: Seconds, *, burst: int | None = None) -> None:
        self._ref = ref
        self._name = name
        self._keys = ref.keys.of(_Keys, "rate_limiter", name)
        period_us = round(durations.period(period) * _SECOND)
        whole(f"limit of rate limiter {name!r}", limit, most=period_us * _FASTEST // _SECOND)
        self._interval_us = -(-period_us // limit)  # rounded up: never more than asked for
        self._most = most = _LONGEST // self._interval_us
        self._burst = whole(f"burst of rate limiter {name!r}", limit if burst is None else burst, most=most)
        self._allows = RateTerms(limit, period_us / _SECOND, self._burst, self._interval_us / _SECOND)

    def __repr__(self) -> str:
        return f"<RateLimiter {self._name!r}>"

    async def try_acquire(self, *, cost: int = 1) -> RateDecision:
        """Take permits to use now, if that many are there and nobody waits; never waits for any.

        Args:
            cost: How many, 1 to `burst`.

        Returns:
            The decision; it is true if the permits were taken.

        Raises:
            OutcomeUnknown: The server did not answer; permits that it took come back with time.
        """
        answer = await self._take(cost, 0)
        remaining = max(0, self._burst - -(-answer.full_us // self._interval_us))
        return RateDecision(answer.outcome == _GRANTED, remaining, answer.wait_us / _SECOND)

    async def acquire(self, *, timeout: Seconds | None = None, cost: int = 1) -> None:
        """Take permits, and return when they may be used.

        A caller that is cancelled while it waits leaves the line, and all behind it move up.

        Args:
            timeout: Longest wait for them in seconds; None waits forever, 0 does not wait.
            cost: How many, 1 to `burst`.

        Raises:
            RateLimited: The wait would be longer, which is known at once, or became so because others used more than
                they had reserved; nothing was taken.
            Unavailable: The server could not be asked, now or when the turn came; nothing was taken.
            OutcomeUnknown: The server did not answer; permits that it took come back with time.

        Cost: 1 round trip. After a wait 1 more (seldom 2), or a message; 0 while waiting.
        """
        seconds = durations.timeout(timeout)
        answer = await self._take(cost, _LONGEST if seconds is None else int(seconds * _SECOND))
        if answer.outcome != _GRANTED:
            raise RateLimited(self._name, seconds or 0.0, retry_after=answer.wait_us / _SECOND)

    @asynccontextmanager
    async def reserve(self, *, cost: int, timeout: Seconds | None = None) -> AsyncGenerator[Reservation]:
        """Take permits by an estimate, as `acquire` does, and say in the body how many were used.

        ```python
        tokens = concert.rate_limiter("openai:tokens", 100_000, period=60.0)
        async with tokens.reserve(cost=900) as reservation:
            answer = await model.complete(prompt)
            reservation.settle(answer.usage.total_tokens)
        ```

        Only `settle` changes what counts.  A body that leaves without it, by an exception, a cancellation or the death
        of the process, has used its estimate: the other side may have done the work.  Where it surely has not, call
        `settle(0)`.

        Args:
            cost: The estimate, 1 to `burst`.
            timeout: Longest wait for it in seconds; None waits forever, 0 does not wait.

        Raises:
            RateLimited: See `acquire`, also for the other errors.

        Cost: That of `acquire`, and 1 round trip to settle, which nobody waits for.
        """
        await self.acquire(timeout=timeout, cost=cost)
        yield reservation_of(self, cost)

    async def refund(self, cost: int = 1) -> None:
        """Give back permits that were taken and not used; who waits is served.

        Of more than are out, only those count: a limiter never has more than `burst`.

        Args:
            cost: How many, 1 or more.

        Raises:
            OutcomeUnknown: The server did not answer; they may be back or not.
        """
        whole("cost", cost, most=self._most)
        session = self._ref.session
        await session.run(self._settlement(session, session.new_address(), -cost))

    async def inspect(self) -> RateStatus:
        """Look at how far it is used up; takes nothing.

        To refuse callers use `try_acquire`: the permits there now may be gone when they take it.
        """
        command = _INSPECT(self._keys, interval_us=self._interval_us)
        full_us, out_us, waiting = await self._ref.session.run(command)
        remaining = 0 if waiting else self._burst - -(-out_us // self._interval_us)
        return RateStatus(max(0, remaining), full_us / _SECOND, waiting)

    async def reset(self) -> None:
        """Give all permits back at once; who waits is served first.

        For an operator, after a mistake or a limit that was too strict: what was taken is forgotten.
        """
        session = self._ref.session
        inboxes = session.inboxes(self._keys.line)
        await session.run(_RESET(self._keys, request=session.new_address(), inboxes=inboxes))

    async def _take(self, cost: int, longest_us: int) -> _Answer:
        whole("cost", cost, most=self._burst)
        session = self._ref.session
        await session.channel.has_room(self._keys.line)
        terms = _Terms(cost * self._interval_us, self._burst * self._interval_us, self._interval_us, longest_us)
        turn = _Turn(session, self._keys, terms)
        try:
            turn.ask()
            answer: _Answer = await turn
            if answer.outcome == _REFUSED and turn.ticket > 0:
                turn.withdraw()
            return answer
        except BaseException:
            turn.withdraw()
            raise
        finally:
            turn.leave()

    def _settle(self, counted: int, cost: int) -> None:
        """Let `cost` permits count where `counted` did: begun, not waited for, and repeated while it is refused."""
        whole("cost", cost, least=0, most=self._most)
        session = self._ref.session
        if cost != counted:
            request = session.new_address()
            command = self._settlement(session, request, cost - counted)
            Withdrawal(session, self._keys.line, request, lambda: Call(command, must_run=True), life=REMEMBERED)

    def _settlement(self, session: Session, request: str, by: int) -> Command:
        return _SETTLE(
            self._keys,
            request=request,
            by_us=by * self._interval_us,
            interval_us=self._interval_us,
            inboxes=session.inboxes(self._keys.line),
        )


class _Terms(NamedTuple):
    """A caller's wish, in microseconds."""

    cost: int
    burst: int
    interval: int
    longest: int


class _Turn(Place):
    """A call for permits; its result is there when they may be used, or were refused."""

    __slots__ = ("_is_granted", "_keys", "_terms", "_timer", "_until")

    kind = "limiter"

    def __init__(self, session: Session, keys: _Keys, terms: _Terms) -> None:
        self._keys = keys
        self._terms = terms
        self._timer: asyncio.TimerHandle | None = None
        self._until = inf if terms.longest == _LONGEST else time.monotonic() + terms.longest / _SECOND
        self._is_granted = False
        super().__init__(session, session.new_address(), JOIN)

    def leave(self) -> None:
        super().leave()
        self._set_timer(None)

    @staticmethod
    def leave_for(session: Session, address: str, rest: str) -> None:
        _, _, cost, burst, interval, line = rest.split(" ", 5)
        if not session.channel.is_closed and not session.renewal.keeps(address):
            terms = _Terms(int(cost), int(burst), int(interval), 0)
            _refund(session, Keyspace.beside(_Keys, line), address, terms, life=REMEMBERED)

    def on_message(self, rest: str) -> None:
        """The line has moved: 'GRANTED WAIT_US COST_US BURST_US INTERVAL_US', and the key of the line."""
        if not self.done() and not self._is_granted:
            is_granted, wait_us, *_ = rest.split(" ", 2)
            if is_granted == "1":
                self._use(_Answer(_GRANTED, int(wait_us), 0))
            else:
                self._wait(int(wait_us))

    def recheck(self) -> bool:
        """Ask whether its time has come, and for its place in the line."""
        return not self._is_granted and super().recheck()

    def recheck_failed(self, error: InconcertError) -> None:
        self.failed(error)

    def closed(self, error: InconcertError) -> None:
        if not self.done():  # else its permits are about to be used
            super().closed(error)

    # Private.

    def _request(self) -> Command:
        return _TAKE(
            self._keys,
            request=self.address,
            cost_us=self._terms.cost,
            burst_us=self._terms.burst,
            interval_us=self._terms.interval,
            longest_us=self._terms.longest,
            ticket=self.ticket,
            inboxes=self._session.inboxes(self._keys.line),
        )

    def _take(self, reply: Reply) -> None:
        if self.done() or self._is_granted:
            return
        answer = _Answer(*reply)
        if answer.outcome == _IN_LINE:
            self._has_place(answer.ticket)
            self._wait(answer.wait_us)
        elif answer.outcome == _GRANTED:
            self._use(answer)
        else:
            self.set_result(answer)

    def _give_back(self) -> None:
        life = 0.0 if self.was_refused and self.ticket <= 0 else REMEMBERED
        _refund(self._session, self._keys, self.address, self._terms, life=life)

    def _wait(self, wait_us: int) -> None:
        """Ask again after this time, so that the answer is there when it is over; or at the end of the longest wait."""
        left = self._until - time.monotonic()
        if left <= 0:  # an overdraft has made the wait longer than it was when it began
            self.set_result(_Answer(_REFUSED, wait_us, 0))
        else:
            wait = max(0.0, wait_us / _SECOND - _ASK_BEFORE)
            self._set_timer(self._session.loop.call_later(min(wait, left), self.recheck))

    def _use(self, grant: _Answer) -> None:
        """The permits may be used after a time, counted from here, which is after the server has counted it."""
        self._is_granted = True
        self._use_at(time.monotonic() + grant.wait_us / _SECOND, grant)

    def _use_at(self, at: float, grant: _Answer) -> None:
        early = at - time.monotonic()
        if early > 0:  # also when the timer has fired: those of uvloop count in milliseconds
            self._set_timer(self._session.loop.call_later(early, self._use_at, at, grant))
        elif not self.done():
            self.set_result(grant)

    def _set_timer(self, timer: asyncio.TimerHandle | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer


def _refund(session: Session, keys: _Keys, request: str, terms: _Terms, *, life: float) -> None:
    def refund() -> Call:
        inboxes = session.inboxes(keys.line)
        command = _REFUND(
            keys, request=request, cost_us=terms.cost, burst_us=terms.burst, interval_us=terms.interval, inboxes=inboxes
        )
        return Call(command, must_run=True)

    Withdrawal(session, keys.line, request, refund, life=life)


def terms_of(limiter: RateLimiter) -> RateTerms:
    """The terms of a limiter."""
    return limiter._allows  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def reservation_of(limiter: RateLimiter, cost: int) -> Reservation:
    """A reservation that settles so many permits of a limiter, just taken."""
    return Reservation(limiter._name, cost, limiter._settle)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
