"""Locks and permits that a handler holds or takes for its request.

Source: https://www.ietf.org/archive/id/draft-ietf-httpapi-ratelimit-headers-11.html
"""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from math import ceil
from typing import TypeVar

from inconcert.errors import RateLimited
from inconcert.rate_limiter import RateDecision, RateLimiter, terms_of

T = TypeVar("T")

Fields = list[tuple[str, str]]
"""Names and values of header fields."""

RATE_NAMES = ("ratelimit-policy", "ratelimit")
"""Their names."""

RATE_FIELDS = "inconcert_rate_fields"
"""Under which a request has the `Fields` of the limiters that have let it pass."""


@asynccontextmanager
async def hold(
    primitive: AbstractAsyncContextManager[T], connected: AbstractAsyncContextManager[None]
) -> AsyncGenerator[T]:
    """Hold a primitive during the body.

    Args:
        primitive: The primitive that is entered.
        connected: Ends the wait when the client hangs up, and not the body: what was begun is brought to its end.
    """
    async with AsyncExitStack() as stack:
        async with connected:
            lease = await stack.enter_async_context(primitive)
        yield lease


async def take(limiter: RateLimiter, name: str, fields: Fields) -> RateDecision:
    """Take a permit of the rate limiter of this name, without waiting, and add the headers for the client.

    They say its policy, the permits left, and when all are back.  The policy is named by its numbers: names of limiters
    are not for clients.

    Raises:
        RateLimited: There is none; `retry_after` says when there is.
    """
    decision = await limiter.try_acquire()
    if not decision:
        raise RateLimited(name, 0.0, retry_after=decision.retry_after)
    limit, period, burst, interval = terms_of(limiter)
    policy = f'"{limit}-per-{period:g}-s"'
    window = f";w={period:.0f}" if period.is_integer() else ""  # which is in whole seconds
    full_in = ceil((burst - decision.remaining) * interval)
    fields.append((RATE_NAMES[0], f"{policy};q={limit}{window}"))
    fields.append((RATE_NAMES[1], f"{policy};r={decision.remaining};t={full_in}"))
    return decision
