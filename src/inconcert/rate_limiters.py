"""Several rate limiters at once, all or none, such as requests and tokens of a minute.

They are taken in the order in which they were given.  Permits are not held: they come back by themselves.  So callers
with other orders never wait for each other, each line is served in its order, and a caller that gets no more gives back
what it has.

Source: docs/explanation/rate-limits.md
"""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert._rules.limits import whole
from inconcert.errors import NotConnected
from inconcert.rate_limiter import RateDecision, RateLimiter, reservation_of, terms_of
from inconcert.reservation import Reservation


class RateLimiters:
    """Takes permits of several rate limiters, all or none.

    Made by `Coordinator.rate_limiters`:

    ```python
    tokens = concert.rate_limiter("openai:tokens", 100_000, period=60.0)
    requests = concert.rate_limiter("openai:requests", 500, period=60.0)
    openai = concert.rate_limiters(tokens, requests)

    async with openai.reserve(cost=(900, 1)) as (used, _):
        answer = await model.complete(prompt)
        used.settle(answer.usage.total_tokens)
    ```

    They may be in different slots of a cluster.  Each is taken in turn, in the order given; when one refuses, what was
    taken of those before it is given back.  So give the one first for which callers wait longest: who waits for it has
    taken nothing of the others.

    Args:
        limiters: One or more, of any coordinators.

    Raises:
        TypeError: One of them is not a rate limiter.
        ValueError: None is given.
    """

    def __init__(self, *limiters: RateLimiter) -> None:
        self._limiters = limiters
        for limiter in limiters:
            if not isinstance(limiter, RateLimiter):  # pyright: ignore[reportUnnecessaryIsInstance] - users may
                raise TypeError(f"{limiter!r} is not a rate limiter; give those of Coordinator.rate_limiter()")
        if not limiters:
            raise ValueError("rate_limiters() has no rate limiter; give one or more of Coordinator.rate_limiter()")

    def __repr__(self) -> str:
        return f"<RateLimiters {', '.join(map(repr, self._limiters))}>"

    async def try_acquire(self, *, cost: int | Sequence[int] = 1) -> RateDecision:
        """Take permits of all to use now, or none; never waits for any.

        Args:
            cost: How many of each, 1 to its `burst`: one number for all, or one for each in order.

        Returns:
            The decision; true if all were taken.  `remaining` is that of the limiter with the fewest, and `retry_after`
            that of the one that refused.

        Raises:
            ValueError: `cost` is out of range, or has not one number for each.
            Unavailable: A server could not be asked; what was taken is given back.
            OutcomeUnknown: A server did not answer; permits that it took come back with time.
        """
        remaining: list[int] = []
        async with AsyncExitStack() as stack:
            for limiter, each in self._each(cost):
                decision = await limiter.try_acquire(cost=each)
                remaining.append(decision.remaining)
                if not decision:
                    return RateDecision(is_allowed=False, remaining=min(remaining), retry_after=decision.retry_after)
                stack.callback(_give_back, reservation_of(limiter, each))
            stack.pop_all()
        return RateDecision(is_allowed=True, remaining=min(remaining), retry_after=0.0)

    async def acquire(self, *, timeout: Seconds | None = None, cost: int | Sequence[int] = 1) -> None:
        """Take permits of all, and return when they may be used.

        Args:
            timeout: Longest wait for all of them in seconds; None waits forever, 0 does not wait.
            cost: How many of each, 1 to its `burst`: one number for all, or one for each in order.

        Raises:
            RateLimited: The wait for the one that it names would be longer; nothing was taken.
            ValueError: `cost` or `timeout` is out of range, or `cost` has not one number for each.
            Unavailable: A server could not be asked; what was taken is given back.
            OutcomeUnknown: A server did not answer; permits that it took come back with time.

        Cost: That of each limiter's `acquire`, one after the other; 1 round trip for each that is given back.
        """
        await self._acquire(timeout, cost)

    @asynccontextmanager
    async def reserve(
        self, *, cost: int | Sequence[int], timeout: Seconds | None = None
    ) -> AsyncGenerator[tuple[Reservation, ...]]:
        """Take permits of all by an estimate, and settle each in the body; see `RateLimiter.reserve`.

        Yields one `Reservation` for each limiter, in order.

        Args:
            cost: The estimate for each, 1 to its `burst`: one number for all, or one for each in order.
            timeout: Longest wait for all of them in seconds; None waits forever, 0 does not wait.

        Raises:
            RateLimited: See `acquire`, also for the other errors.
        """
        yield await self._acquire(timeout, cost)

    # Private.

    async def _acquire(self, timeout: Seconds | None, cost: int | Sequence[int]) -> tuple[Reservation, ...]:
        seconds = durations.timeout(timeout)
        until = None if seconds is None else time.monotonic() + seconds
        taken: list[Reservation] = []
        async with AsyncExitStack() as stack:
            for limiter, each in self._each(cost):
                left = None if until is None else max(0.0, until - time.monotonic())
                await limiter.acquire(timeout=left, cost=each)
                taken.append(reservation_of(limiter, each))
                stack.callback(_give_back, taken[-1])
            stack.pop_all()
        return tuple(taken)

    def _each(self, cost: int | Sequence[int]) -> list[tuple[RateLimiter, int]]:
        """Each limiter with its cost, all checked before anything is sent."""
        costs = [cost] * len(self._limiters) if isinstance(cost, int) else [*cost]
        if len(costs) != len(self._limiters):
            raise ValueError(f"cost is {cost!r}; give one number, or {len(self._limiters)}, one for each limiter")
        for limiter, each in zip(self._limiters, costs, strict=True):
            whole("cost", each, most=terms_of(limiter).burst)
        return [*zip(self._limiters, costs, strict=True)]


def _give_back(reservation: Reservation) -> None:
    with suppress(NotConnected):  # its coordinator is closed; it comes back with time
        reservation.settle(0)
