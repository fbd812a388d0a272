"""A rate limiter: so many permits in a time, among all processes on one server.

The server keeps one instant for each limiter: when all permits will be back.  To take some moves it further away.  One
who would have to wait is told at once for how long: a place in time instead of a place in line.

Source: docs/explanation/rate-limits.md
"""

import asyncio
from dataclasses import dataclass

from inconcert._core.session import Access, Session
from inconcert._redis.channel import Call
from inconcert._redis.replies import Reply
from inconcert._redis.scripts import load
from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert.errors import AcquireTimeout, InconcertError

__all__ = ["RateDecision", "RateLimiter"]

_TAKE, _GIVE_BACK = load("rate_limits/take"), load("rate_limits/give_back")

_SECOND = 1_000_000  # microseconds, in which all is counted: a server's clock has no finer ones
_LONGEST = 10 * 365 * 24 * 3600 * _SECOND  # of any wait; an instant that far away is still a whole number in Lua
_FASTEST = 100_000  # permits per second; a permit is a whole number of microseconds, so more would be far off


@dataclass(frozen=True, slots=True)
class RateDecision:
    """Whether permits were taken; true if they were.

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


class RateLimiter:
    """Lets `limit` permits be used per `period`, and up to `burst` at once after a quiet time.

    A permit that was used comes back by itself, one each `period / limit`.  So in no time span t are more used than
    `burst + t * limit / period`.  The server's clock alone says when; whoever waits is served in the order in which the
    server saw them, across all processes, and sends nothing while it waits.

    Use it to bound how often something begins, such as requests of one client or calls to a service that counts them.
    To bound how many run at the same time, use `Coordinator.semaphore`.

    Made by `Coordinator.rate_limiter`:

    ```python
    limiter = concert.rate_limiter(f"api:{user}", limit=100, period=60.0)
    if not await limiter.try_acquire():
        ...  # too many requests
    ```

    Args:
        access: The way to the open session.
        name: Which limiter. The same name in the same namespace is the same limiter, on any machine; each caller is
            judged by its own `limit`, `period` and `burst`.
        limit: How many permits come back per period: 1 or more, and at most 100,000 per second.
        period: In which time, in seconds.
        burst: How many may be used at once when all are back; None for `limit`.

    Raises:
        ValueError: `limit`, `period` or `burst` is out of range; `burst` permits may need 10 years to come back.
        InvalidName: `name` is empty or longer than 512 bytes.
    """

    def __init__(self, access: Access, name: str, limit: int, period: Seconds, *, burst: int | None = None) -> None:
        self._access = access
        self._name = name
        self._keys = access.keys.of("rate_limiter", name, "taken", "recent", "older")
        period_us = round(durations.period(period) * _SECOND)
        _whole(f"limit of rate limiter {name!r}", limit, most=period_us * _FASTEST // _SECOND)
        self._interval_us = -(-period_us // limit)  # rounded up: never more than asked for
        most = _LONGEST // self._interval_us
        self._burst = _whole(f"burst of rate limiter {name!r}", limit if burst is None else burst, most=most)

    def __repr__(self) -> str:
        return f"<RateLimiter {self._name!r}>"

    async def try_acquire(self, *, cost: int = 1) -> RateDecision:
        """Take permits to use now, if that many are there and nobody waits; never waits for any.

        Args:
            cost: How many, 1 to `burst`.

        Returns:
            What is so; it is true if they were taken.

        Raises:
            ValueError: `cost` is out of range.
            NotConnected: The coordinator is not open.
            Unavailable: The server could not be asked; nothing was taken.
            OutcomeUnknown: The server did not answer; what it may have taken comes back with time.

        Cost: 1 round trip.
        """
        is_allowed, wait_us, full_us = await self._take(cost, 0)
        remaining = max(0, self._burst - -(-full_us // self._interval_us))
        return RateDecision(bool(is_allowed), remaining, wait_us / _SECOND)

    async def acquire(self, *, timeout: Seconds | None = None, cost: int = 1) -> None:
        """Take permits, and return when they may be used.

        One who is cancelled while it waits gives them back. Others who wait keep their times, so its own is given to
        somebody else only if all who came later have given back, too; else it passes unused.

        Args:
            timeout: Longest wait for them in seconds; None for ever, 0 for not at all.
            cost: How many, 1 to `burst`.

        Raises:
            AcquireTimeout: The wait would be longer, which is known at once; nothing was taken.
            ValueError: `cost` or `timeout` is out of range.
            NotConnected: The coordinator is not open, or was closed meanwhile.
            Unavailable: The server could not be asked; nothing was taken.
            OutcomeUnknown: The server did not answer; what it may have taken comes back with time.

        Cost: 1 round trip, and 0 while waiting.
        """
        seconds = durations.timeout(timeout)
        is_granted, wait_us, _ = await self._take(cost, _LONGEST if seconds is None else int(seconds * _SECOND))
        if not is_granted:
            raise AcquireTimeout("rate limiter", self._name, seconds or 0.0, retry_after=wait_us / _SECOND)

    async def _take(self, cost: int, longest_us: int) -> Reply:
        _whole("cost", cost, most=self._burst)
        session = self._access.session
        await session.channel.has_room()
        turn = _Turn(session, self._keys, cost * self._interval_us, self._burst * self._interval_us, longest_us)
        try:
            turn.begin()
            return await turn
        except BaseException:
            turn.give_back()
            raise
        finally:
            turn.end()


class _Turn(Call):
    """A call for permits; its result is there when they may be used, or were refused."""

    __slots__ = ("_request", "_session", "_timer")

    def __init__(self, session: Session, keys: tuple[str, ...], cost_us: int, burst_us: int, longest_us: int) -> None:
        self._session = session
        self._request = session.new_address()
        self._timer: asyncio.TimerHandle | None = None
        super().__init__(_TAKE, keys, (self._request, cost_us, burst_us, longest_us))

    def begin(self) -> None:
        self._session.wakeups.expect(self._request, self)  # to hear when the coordinator closes
        self._session.channel.submit(self)

    def give_back(self) -> None:
        if self.sends and not self._session.channel.is_closed:
            self._session.channel.submit(Call(_GIVE_BACK, self.keys[:1], (self._request,), must_run=True))

    def end(self) -> None:
        self._session.wakeups.forget(self._request)
        if self._timer is not None:
            self._timer.cancel()

    # What it is told.

    def answered(self, reply: Reply) -> None:
        is_granted, wait_us, _ = reply
        if is_granted and wait_us and not self.done():  # counted from here, which is after the server has counted it
            self._timer = self._session.loop.call_later(wait_us / _SECOND, super().answered, reply)
        else:
            super().answered(reply)

    def hear(self, text: str) -> None:
        """Nobody writes to it."""

    def look(self) -> None:
        """There is nothing to look for: its time is known."""

    def abandon(self, error: InconcertError) -> None:
        if not self.done():  # else its permits are about to be used
            self.give_back()
            self.failed(error)


def _whole(what: str, value: int, *, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(f"{what} is {value!r}; give a whole number from 1 to {most}")
    return value
