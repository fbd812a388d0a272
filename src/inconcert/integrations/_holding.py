"""What a handler holds or takes for its request."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeVar

from inconcert.errors import AcquireTimeout
from inconcert.rate_limiter import RateDecision, RateLimiter

__all__ = ["hold", "take"]

T = TypeVar("T")


@asynccontextmanager
async def hold(
    primitive: AbstractAsyncContextManager[T], connected: AbstractAsyncContextManager[None]
) -> AsyncGenerator[T]:
    """Hold a primitive during the body.

    Args:
        primitive: What is entered.
        connected: Ends the wait when the client hangs up, and not the body: what was begun is brought to its end.
    """
    async with AsyncExitStack() as stack:
        async with connected:
            lease = await stack.enter_async_context(primitive)
        yield lease


async def take(limiter: RateLimiter, name: str) -> RateDecision:
    """Take a permit of the rate limiter of this name, without waiting.

    Raises:
        AcquireTimeout: There is none; `retry_after` says when there is.
    """
    decision = await limiter.try_acquire()
    if not decision:
        raise AcquireTimeout("rate limiter", name, 0.0, retry_after=decision.retry_after)
    return decision
