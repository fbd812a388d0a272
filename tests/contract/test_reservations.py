"""Reservations of rate limiters: what was used counts in place of the estimate; and several limiters, all or none."""

import asyncio
from contextlib import nullcontext
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, NotConnected, RateDecision, RateLimited, RateLimiter, RateStatus
from tests.support.eventually import eventually
from tests.support.servers import RealServer


@pytest.fixture
def limiter(any_concert: Coordinator) -> RateLimiter:
    """One that gives nothing back in the time of a test: ten permits, one each 1,000 s."""
    return any_concert.rate_limiter("tokens", 10, 10_000.0)


@pytest.fixture
def limiter_elsewhere(elsewhere: Coordinator) -> RateLimiter:
    """The same, as another process sees it."""
    return elsewhere.rate_limiter("tokens", 10, 10_000.0)


async def remaining(limiter: RateLimiter, number: int) -> None:
    """Return when so many permits are left."""

    async def so_many() -> bool:
        return (await limiter.inspect()).remaining == number

    await eventually(so_many)


# Settling.


async def test_what_was_not_used_comes_back_at_once(limiter: RateLimiter, limiter_elsewhere: RateLimiter) -> None:
    """In the middle of the body, for everyone."""
    async with limiter.reserve(cost=8) as reservation:
        assert (await limiter_elsewhere.inspect()).remaining == 2
        reservation.settle(3)
        assert (await limiter.try_acquire(cost=7)).remaining == 0
    assert reservation.cost == 3
    assert not await limiter_elsewhere.try_acquire()


async def test_overdraft_delays_who_comes_next(limiter: RateLimiter, limiter_elsewhere: RateLimiter) -> None:
    """By as many permits as were used beyond, also beyond the burst."""
    async with limiter.reserve(cost=8) as reservation:
        reservation.settle(25)
        refused = await limiter.try_acquire()
    assert (refused.is_allowed, refused.remaining) == (False, 0)
    assert 15_990 < refused.retry_after <= 16_000
    assert 24_990 < (await limiter_elsewhere.inspect()).full_in <= 25_000


async def test_latest_number_counts(limiter: RateLimiter) -> None:
    """As a stream goes on, and also after the body."""
    async with limiter.reserve(cost=2) as reservation:
        for used in (1, 4, 4, 6):
            reservation.settle(used)
        await remaining(limiter, 4)
    reservation.settle(0)
    await remaining(limiter, 10)


@pytest.mark.parametrize("error", [None, RuntimeError("of the body"), asyncio.CancelledError()])
async def test_estimate_counts_if_nothing_else_is_said(limiter: RateLimiter, error: BaseException | None) -> None:
    """However the body ends: the other side may have done the work."""
    with nullcontext() if error is None else pytest.raises(type(error)):
        async with limiter.reserve(cost=8):
            if error is not None:
                raise error
    assert (await limiter.inspect()).remaining == 2


async def test_settlement_serves_who_waits(limiter: RateLimiter, limiter_elsewhere: RateLimiter) -> None:
    """In their order, as far as it goes."""
    async with limiter.reserve(cost=10) as reservation:
        waiters = [asyncio.create_task(limiter_elsewhere.acquire(cost=cost)) for cost in (4, 4)]

        async def both_wait() -> bool:
            return (await limiter.inspect()).waiting == 2

        await eventually(both_wait)
        reservation.settle(6)
        with anyio.fail_after(5):
            await waiters[0]
        assert not waiters[1].done()
        reservation.settle(2)
        with anyio.fail_after(5):
            await waiters[1]


async def test_wait_that_an_overdraft_makes_too_long_ends_at_its_timeout(any_concert: Coordinator) -> None:
    """It was short enough when it began; nothing is taken, and nobody stands in line."""
    limiter = any_concert.rate_limiter("tokens", 10, 1.0)
    async with limiter.reserve(cost=10) as reservation:
        waiter = asyncio.create_task(limiter.acquire(cost=2, timeout=0.4))

        async def waits() -> bool:
            return (await limiter.inspect()).waiting == 1

        await eventually(waits)
        reservation.settle(10_000)
    with anyio.fail_after(5), pytest.raises(RateLimited) as caught:
        await waiter
    assert caught.value.retry_after is not None
    assert caught.value.retry_after > 900

    async def nobody_waits() -> bool:
        status = await limiter.inspect()
        return status.waiting == 0 and status.full_in < 1000

    await eventually(nobody_waits)


async def test_more_than_all_never_comes_back(limiter: RateLimiter) -> None:
    """A limiter that is full stays as full as it may be."""
    async with limiter.reserve(cost=5) as reservation:
        await limiter.reset()
        reservation.settle(0)
        await limiter.refund(3)
        assert await limiter.inspect() == RateStatus(remaining=10, full_in=0.0, waiting=0)
    assert (await limiter.try_acquire(cost=10)).remaining == 0


async def test_permits_may_be_refunded(limiter: RateLimiter, limiter_elsewhere: RateLimiter) -> None:
    """Those of anybody: who waits is served."""
    await limiter.acquire(cost=10)
    waiter = asyncio.create_task(limiter.acquire(cost=2))

    async def waits() -> bool:
        return (await limiter.inspect()).waiting == 1

    await eventually(waits)
    await limiter_elsewhere.refund()
    await limiter_elsewhere.refund(4)
    with anyio.fail_after(5):
        await waiter
    assert (await limiter.inspect()).remaining == 3


async def test_settlement_counts_permits_in_other_numbers(any_concert: Coordinator, limiter: RateLimiter) -> None:
    """A release with a higher limit: as many permits come back, whatever each takes to do so."""
    async with limiter.reserve(cost=8) as reservation:
        quick = any_concert.rate_limiter("tokens", 100, 100.0)
        assert (await quick.try_acquire()).remaining in (91, 92)
        reservation.settle(3)
        assert (await quick.inspect()).remaining in (95, 96, 97)
        reservation.settle(53)
        assert (await quick.inspect()).remaining in (45, 46, 47, 48)


# Several.


async def test_several_are_taken_all_or_none(any_concert: Coordinator, limiter: RateLimiter) -> None:
    """Whichever of them refuses, the others keep theirs."""
    requests = any_concert.rate_limiter("requests", 3, 3000.0)
    both = any_concert.rate_limiters(limiter, requests)
    assert await both.try_acquire(cost=(4, 1)) == RateDecision(is_allowed=True, remaining=2, retry_after=0.0)
    await both.acquire()
    for cost in ((6, 1), (1, 2)):
        refused = await both.try_acquire(cost=cost)
        assert not refused
        assert 900 < refused.retry_after <= 1000
        with pytest.raises(RateLimited):
            await both.acquire(cost=cost, timeout=1)
        await remaining(limiter, 5)
        await remaining(requests, 1)
    assert await both.try_acquire(cost=(5, 1))


async def test_several_are_settled_each_for_itself(any_concert: Coordinator, limiter: RateLimiter) -> None:
    """One reservation for each, in order."""
    requests = any_concert.rate_limiter("requests", 3, 3000.0)
    async with any_concert.rate_limiters(limiter, requests).reserve(cost=(8, 1)) as (tokens, request):
        tokens.settle(2)
        await remaining(limiter, 8)
        assert (tokens.cost, request.cost) == (2, 1)
    assert (await requests.inspect()).remaining == 2


async def test_several_wait_one_after_the_other_within_one_timeout(any_concert: Coordinator) -> None:
    """Those in other orders do not hold each other up: what is taken comes back by itself."""
    limiters = [any_concert.rate_limiter(name, 20, 1.0, burst=1) for name in "ab"]
    forwards, backwards = any_concert.rate_limiters(*limiters), any_concert.rate_limiters(*reversed(limiters))
    with anyio.fail_after(5):
        await asyncio.gather(*(each.acquire(timeout=4) for each in (forwards, backwards) for _ in range(5)))
    assert not await forwards.try_acquire()


async def test_one_that_is_cancelled_gives_back_what_it_has(any_concert: Coordinator, limiter: RateLimiter) -> None:
    """While it waits for the next."""
    requests = any_concert.rate_limiter("requests", 3, 3000.0)
    await requests.acquire(cost=3)
    waiter = asyncio.create_task(any_concert.rate_limiters(limiter, requests).acquire(cost=(6, 1)))
    await remaining(limiter, 4)
    waiter.cancel()
    await asyncio.wait([waiter])
    assert waiter.cancelled()
    await remaining(limiter, 10)


# Bad input: refused before anything is sent, so the coordinator need not be open.


@pytest.mark.parametrize("cost", [0, -1, 4, 1.0, True, "3", None])
async def test_estimate_is_a_whole_number_up_to_the_burst(cost: Any) -> None:
    """Anything else is a `ValueError`."""
    with pytest.raises(ValueError, match=r"cost is .* from 1 to 3"):
        async with Coordinator().rate_limiter("api", 3, 1.0).reserve(cost=cost):
            pass


@pytest.mark.parametrize("cost", [-1, 1.0, True, "3", None, 10**12])
async def test_what_was_used_is_a_whole_number_from_0(any_concert: Coordinator, cost: Any) -> None:
    """Anything else is a `ValueError`, and the estimate counts."""
    async with any_concert.rate_limiter("api", 3, 3000.0).reserve(cost=2) as reservation:
        with pytest.raises(ValueError, match=r"cost is .* from 0 to"):
            reservation.settle(cost)
        assert reservation.cost == 2


@pytest.mark.parametrize("cost", [0, -1, 1.0, True, "3", None, 10**12])
async def test_refund_is_a_whole_number_from_1(cost: Any) -> None:
    """Anything else is a `ValueError`."""
    with pytest.raises(ValueError, match=r"cost is .* from 1 to"):
        await Coordinator().rate_limiter("api", 3, 1.0).refund(cost)


@pytest.mark.parametrize(
    ("cost", "error"),
    [((1,), "give one number, or 2"), ((1, 2, 3), "give one number, or 2"), ((1, 4), "from 1 to 3"), (0, "from 1 to")],
)
async def test_several_have_a_cost_each(cost: Any, error: str) -> None:
    """Or one for all; checked before any is taken."""
    concert = Coordinator()
    both = concert.rate_limiters(concert.rate_limiter("a", 5, 1.0), concert.rate_limiter("b", 3, 1.0))
    for call in (both.acquire, both.try_acquire):
        with pytest.raises(ValueError, match=error):
            await call(cost=cost)


def test_only_rate_limiters_are_taken_together() -> None:
    """A semaphore is held, and so cannot be among them."""
    concert = Coordinator()
    with pytest.raises(TypeError, match="<Semaphore 's'> is not a rate limiter"):
        concert.rate_limiters(concert.semaphore("s", limit=1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no rate limiter"):
        concert.rate_limiters()


async def test_closed_coordinator_settles_nothing(server: RealServer, namespace: str) -> None:
    """And says so."""
    async with Coordinator(server.url, namespace=namespace) as concert:
        limiter = concert.rate_limiter("api", 3, 3000.0)
        async with limiter.reserve(cost=2) as reservation:
            pass
    with pytest.raises(NotConnected):
        reservation.settle(1)
    assert reservation.cost == 2
