"""What a rate limiter promises: never more than its limit, nobody early, in order, and no place wasted."""

import asyncio
import math
import time
from datetime import timedelta
from math import inf, nan
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, InvalidName, NotConnected, RateDecision, RateLimited, RateLimiter, RateStatus
from tests.support.eventually import eventually
from tests.support.raw import infos, raw
from tests.support.scripts import scripts_run


@pytest.fixture
def limiter(any_concert: Coordinator) -> RateLimiter:
    """One that gives nothing back in the time of a test: three permits, one each 1,000 s."""
    return any_concert.rate_limiter("api", 3, 3000.0)


@pytest.fixture
def limiter_elsewhere(elsewhere: Coordinator) -> RateLimiter:
    """The same, as another process sees it."""
    return elsewhere.rate_limiter("api", 3, 3000.0)


async def pass_time(concert: Coordinator, limiter: RateLimiter, seconds: float) -> None:
    """Let the server find that so much time has passed."""
    end, queued, pace = map(int, (await raw(concert).get(limiter._keys.state)).split())
    await raw(concert).set(limiter._keys.state, f"{end - round(seconds * 1_000_000)} {queued} {pace}", keepttl=True)


async def taken(concert: Coordinator, limiter: RateLimiter) -> int:
    """How many permits are not back, or promised to someone."""
    now: tuple[int, int] = await raw(concert).time()
    text: bytes = await raw(concert).get(limiter._keys.state) or b"0 0 1"
    end, queued, _ = map(int, text.split())
    return math.ceil((max(0, end - now[0] * 1_000_000 - now[1]) + queued) / limiter._interval_us)


async def places(concert: Coordinator, limiter: RateLimiter, number: int) -> None:
    """Return when so many permits are taken or promised."""

    async def so_many() -> bool:
        return await taken(concert, limiter) == number

    await eventually(so_many)


# At once.


async def test_full_limiter_gives_its_burst_at_once(limiter: RateLimiter, limiter_elsewhere: RateLimiter) -> None:
    """Whoever takes them; and then says when the next comes back."""
    assert await limiter.try_acquire() == RateDecision(is_allowed=True, remaining=2, retry_after=0.0)
    assert await limiter_elsewhere.try_acquire() == RateDecision(is_allowed=True, remaining=1, retry_after=0.0)
    assert await limiter.try_acquire() == RateDecision(is_allowed=True, remaining=0, retry_after=0.0)
    for each in (limiter, limiter_elsewhere):
        refused = await each.try_acquire()
        assert not refused
        assert (refused.is_allowed, refused.remaining) == (False, 0)
        assert 990 < refused.retry_after <= 1000


async def test_permits_come_back_one_by_one(any_concert: Coordinator, limiter: RateLimiter) -> None:
    """Each after its share of the period, and never more than the burst."""
    for _ in range(3):
        await limiter.try_acquire()
    await pass_time(any_concert, limiter, 999)
    assert not await limiter.try_acquire()
    await pass_time(any_concert, limiter, 1)
    assert await limiter.try_acquire()
    assert not await limiter.try_acquire()
    await pass_time(any_concert, limiter, 100_000)
    assert [(await limiter.try_acquire()).is_allowed for _ in range(4)] == [True, True, True, False]


async def test_cost_takes_several_or_none(limiter: RateLimiter) -> None:
    """Of three that are there, two, then not two more, but one."""
    assert await limiter.try_acquire(cost=2) == RateDecision(is_allowed=True, remaining=1, retry_after=0.0)
    refused = await limiter.try_acquire(cost=2)
    assert (refused.is_allowed, refused.remaining) == (False, 1)
    assert 990 < refused.retry_after <= 1000
    assert await limiter.try_acquire()


async def test_burst_may_be_smaller_or_larger_than_the_limit(any_concert: Coordinator) -> None:
    """Smaller spreads the permits over the period; larger lets more be used after a quiet time."""
    even = any_concert.rate_limiter("even", 3, 3000.0, burst=1)
    assert [(await even.try_acquire()).is_allowed for _ in range(2)] == [True, False]
    bursty = any_concert.rate_limiter("bursty", 3, 3000.0, burst=5)
    assert [(await bursty.try_acquire()).is_allowed for _ in range(6)] == [True] * 5 + [False]


async def test_inspection_takes_nothing(any_concert: Coordinator, limiter: RateLimiter) -> None:
    """It shows what is left, in the numbers of the caller; of a limiter that was never used, all."""
    assert await limiter.inspect() == RateStatus(remaining=3, full_in=0.0, waiting=0)
    await limiter.try_acquire(cost=2)
    for _ in range(2):
        status = await limiter.inspect()
        assert (status.remaining, status.waiting) == (1, 0)
        assert 1900 < status.full_in <= 2000
    assert (await any_concert.rate_limiter("api", 5, 5000.0).inspect()).remaining == 3
    await pass_time(any_concert, limiter, 1500.0)
    assert (await limiter.inspect()).remaining == 2
    assert (await limiter.try_acquire()).remaining == 1


async def test_inspection_counts_the_line(any_concert: Coordinator, limiter: RateLimiter) -> None:
    """Those in it come first, so nothing remains although a permit is there."""
    await limiter.try_acquire(cost=2)
    waiting = asyncio.ensure_future(limiter.acquire(cost=3))
    await places(any_concert, limiter, 5)
    status = await limiter.inspect()
    waiting.cancel()
    await asyncio.wait([waiting])
    await places(any_concert, limiter, 2)

    assert (status.remaining, status.waiting) == (0, 1)
    assert 4900 < status.full_in <= 5000
    assert (await limiter.inspect()).remaining == 1


async def test_refusal_takes_nothing(any_concert: Coordinator, limiter: RateLimiter) -> None:
    """However often one tries: the next permit comes no later."""
    await limiter.try_acquire(cost=3)
    for _ in range(20):
        assert not await limiter.try_acquire()
        with pytest.raises(RateLimited):
            await limiter.acquire(timeout=5)
    await pass_time(any_concert, limiter, 1000)
    assert await limiter.try_acquire()


async def test_names_and_namespaces_do_not_meet(any_concert: Coordinator, limiter: RateLimiter) -> None:
    """Nor do a limiter and a semaphore of one name."""
    await limiter.try_acquire(cost=3)
    assert await any_concert.rate_limiter("api2", 1, 1000.0).try_acquire()
    assert await any_concert.semaphore("api", limit=1).try_acquire()


async def test_interval_is_rounded_up_to_microseconds(any_concert: Coordinator) -> None:
    """Never more than asked for: 3 per second are one in 333,334 us; and the burst fits all the same."""
    limiter = any_concert.rate_limiter("thirds", 3, 1.0)
    assert limiter._interval_us == 333_334
    assert await limiter.try_acquire(cost=3)
    assert any_concert.rate_limiter("fast", 100_000, timedelta(seconds=1))._interval_us == 10


# Other numbers: a new release comes with another limit.


async def test_permits_that_were_taken_stay_taken_under_a_higher_limit(
    any_concert: Coordinator, limiter: RateLimiter
) -> None:
    """As many of them, and they come back at its pace: also if the new limiter only looks, or is refused."""
    await limiter.try_acquire(cost=3)
    assert (await any_concert.rate_limiter("api", 300, 3000.0).try_acquire()).remaining == 296
    quick = any_concert.rate_limiter("api", 3, 3.0)
    status = await quick.inspect()
    assert status.remaining == 0
    assert 39 < status.full_in <= 40
    refused = await quick.try_acquire()
    assert (refused.is_allowed, refused.remaining) == (False, 0)
    assert 1 < refused.retry_after <= 2
    await pass_time(any_concert, limiter, 2)
    assert await quick.try_acquire()


async def test_permits_that_were_taken_stay_taken_under_a_lower_limit(
    any_concert: Coordinator, limiter: RateLimiter
) -> None:
    """They come back at the pace at which they were taken, until one is granted at the new one."""
    await any_concert.rate_limiter("api", 30, 300.0).try_acquire(cost=30)
    for seconds in (280, 10):
        refused = await limiter.try_acquire()
        assert (refused.is_allowed, refused.remaining) == (False, 0)
        assert seconds - 1 < refused.retry_after <= seconds
        await pass_time(any_concert, limiter, 270)
    assert await limiter.try_acquire()
    assert 990 < (await limiter.inspect()).full_in <= 1000


async def test_caller_of_a_lower_limit_does_not_hold_up_those_of_a_higher_one(
    any_concert: Coordinator, limiter: RateLimiter
) -> None:
    """In a rolling release: what it takes are as many permits of theirs, not as much of their time."""
    quick = any_concert.rate_limiter("api", 100, 1.0)
    assert await limiter.try_acquire(cost=2)
    assert (await quick.try_acquire()).remaining in (97, 98)


async def test_caller_that_is_refused_forgives_nothing(any_concert: Coordinator, limiter: RateLimiter) -> None:
    """However small its burst, and however long its interval."""
    quick = any_concert.rate_limiter("api", 100, 1000.0)
    assert await quick.try_acquire(cost=90)
    assert not await limiter.try_acquire()
    assert not await any_concert.rate_limiter("api", 1, 10.0, burst=2).try_acquire()
    assert (await quick.try_acquire()).remaining == 9


async def test_waiters_with_other_numbers_are_served_in_their_order(
    any_concert: Coordinator, limiter: RateLimiter, elsewhere: Coordinator
) -> None:
    """One of the old limit keeps its place before one of the new, whose pace is that of both."""
    await limiter.acquire(cost=3)
    old = asyncio.create_task(limiter.acquire())
    await places(any_concert, limiter, 4)
    quick = elsewhere.rate_limiter("api", 100, 1.0, burst=3)
    with anyio.fail_after(5):
        await quick.acquire()
        assert (await limiter.inspect()).waiting == 0  # the old one was served by then, whether it has run or not
        await old


async def test_waiter_with_other_numbers_leaves_nothing_behind(any_concert: Coordinator, limiter: RateLimiter) -> None:
    """It is cancelled in a line behind one of another limit."""
    await limiter.acquire(cost=3)
    waiters = [asyncio.create_task(limiter.acquire(cost=3))]
    await places(any_concert, limiter, 6)
    slow = any_concert.rate_limiter("api", 1, 5000.0)
    waiters.append(asyncio.create_task(slow.acquire()))
    await places(any_concert, limiter, 11)
    for waiter, left in zip(reversed(waiters), (6, 3), strict=True):
        waiter.cancel()
        await places(any_concert, limiter, left)


async def test_limiter_may_be_reset(any_concert: Coordinator, limiter: RateLimiter) -> None:
    """All permits are back at once."""
    await limiter.reset()
    await limiter.try_acquire(cost=3)
    await limiter.reset()
    assert await limiter.inspect() == RateStatus(remaining=3, full_in=0.0, waiting=0)
    assert (await limiter.try_acquire(cost=3)).remaining == 0


async def test_reset_serves_those_in_line(
    any_concert: Coordinator, limiter: RateLimiter, limiter_elsewhere: RateLimiter
) -> None:
    """As many as there are permits, in their order; the next has its permit when one is back."""
    waiters = await stand_in_line(any_concert, (limiter, limiter_elsewhere), [1, 2, 1])
    await limiter.reset()
    with anyio.fail_after(5):
        await asyncio.gather(*waiters[:2])
    assert not waiters[2].done()
    assert 3990 < (await limiter.inspect()).full_in <= 4000
    waiters[2].cancel()


async def test_full_limiter_leaves_no_key(any_concert: Coordinator) -> None:
    """But for the memory of requests, which lapses by itself."""
    limiter = any_concert.rate_limiter("brief", 1, 0.02)
    await limiter.try_acquire()
    assert await raw(any_concert).pttl(limiter._keys.state) <= 21

    async def is_gone() -> bool:
        return not await raw(any_concert).exists(limiter._keys.state)

    await eventually(is_gone)


# Waiting.


async def test_nobody_is_early(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """In two processes together: the n-th at its time or later."""
    limiters = [each.rate_limiter("calls", 200, 1.0, burst=2) for each in (any_concert, elsewhere)]
    times: list[float] = []

    async def call(number: int) -> None:
        await limiters[number % 2].acquire()
        times.append(time.monotonic())

    began = time.monotonic()
    await asyncio.gather(*map(call, range(40)))
    assert all(at - began >= (number - 1) * 0.005 for number, at in enumerate(times))


async def stand_in_line(
    concert: Coordinator, limiters: tuple[RateLimiter, ...], costs: list[int]
) -> list[asyncio.Task[None]]:
    """Waiters in this order, each behind three permits that were used and all that came before it."""
    await limiters[0].acquire(cost=3)
    waiters: list[asyncio.Task[None]] = []
    for number, cost in enumerate(costs):
        waiters.append(asyncio.create_task(limiters[number % len(limiters)].acquire(cost=cost)))
        await places(concert, limiters[0], 3 + sum(costs[: number + 1]))
    return waiters


async def test_places_are_in_the_order_of_arrival(
    any_concert: Coordinator, limiter: RateLimiter, limiter_elsewhere: RateLimiter
) -> None:
    """Whichever process one is in, and whoever finds that the time has come."""
    waiters = await stand_in_line(any_concert, (limiter, limiter_elsewhere), [1] * 10)
    for number, waiter in enumerate(waiters):
        await pass_time(any_concert, limiter, 1000)
        assert not await limiter_elsewhere.try_acquire()
        with anyio.fail_after(5):
            await waiter
        assert not any(later.done() for later in waiters[number + 1 :])


async def test_all_whose_time_has_come_are_served_together(any_concert: Coordinator, limiter: RateLimiter) -> None:
    """However many, a hundred at a time."""
    many = any_concert.rate_limiter("many", 1, 1000.0, burst=250)
    await many.acquire(cost=250)
    waiters = [asyncio.create_task(many.acquire()) for _ in range(250)]
    await places(any_concert, many, 500)
    await pass_time(any_concert, many, 250_000)
    assert not await many.try_acquire()
    with anyio.fail_after(5):
        await asyncio.gather(*waiters)
    assert await taken(any_concert, many) == 250


async def test_one_who_waits_is_not_overtaken(any_concert: Coordinator, limiter: RateLimiter) -> None:
    """Its permit is promised: who tries is refused, and who waits comes after it."""
    await limiter.acquire(cost=3)
    first = asyncio.create_task(limiter.acquire(cost=2))
    await places(any_concert, limiter, 5)
    await pass_time(any_concert, limiter, 1000)
    refused = await limiter.try_acquire()
    assert not refused.is_allowed
    assert 1990 < refused.retry_after <= 2000
    assert not first.done()
    first.cancel()
    await asyncio.wait([first])


async def test_wait_that_would_be_too_long_is_refused_at_once(limiter: RateLimiter) -> None:
    """With the time that it would have taken."""
    await limiter.acquire(timeout=0, cost=3)
    with (
        anyio.fail_after(5),
        pytest.raises(RateLimited, match=r"rate limiter 'api' had no permit within 900 s.* try again in") as caught,
    ):
        await limiter.acquire(timeout=900)
    error = caught.value
    assert (error.name, error.timeout) == ("api", 900)
    assert 990 < error.retry_after <= 1000
    with pytest.raises(RateLimited, match="within 0 s"):
        await limiter.acquire(timeout=0)


async def test_waiting_costs_about_two_round_trips(concert: Coordinator) -> None:
    """However many wait: one to join the line, and one when its time has come; seldom a third."""
    limiter = concert.rate_limiter("calls", 1000, 1.0, burst=1)
    await limiter.acquire()
    await concert._ref.session.inbox.listen(limiter._keys.line)  # on a cluster all would ask again once it does

    async def calls() -> int:
        return sum(scripts_run(each) for each in await infos(concert, "commandstats"))

    before = await calls()
    await asyncio.gather(*(limiter.acquire() for _ in range(100)))
    assert before + 100 < await calls() <= before + 300


# Giving back.


async def test_cancelled_waiter_gives_its_place_back(any_concert: Coordinator, limiter: RateLimiter) -> None:
    """As if it had never come."""
    await limiter.acquire(cost=3)
    waiter = asyncio.create_task(limiter.acquire(cost=2))
    await places(any_concert, limiter, 5)
    waiter.cancel()
    await places(any_concert, limiter, 3)


async def test_those_behind_a_cancelled_waiter_move_up(
    any_concert: Coordinator, limiter: RateLimiter, limiter_elsewhere: RateLimiter
) -> None:
    """Its place is used by the next, wherever in the line it was."""
    waiters = await stand_in_line(any_concert, (limiter, limiter_elsewhere), [1] * 6)
    for index, left in ((2, 8), (0, 7), (5, 6)):
        waiters[index].cancel()
        await places(any_concert, limiter, left)
    for index in (1, 3, 4):
        await pass_time(any_concert, limiter, 1000)
        assert not await limiter.try_acquire()
        with anyio.fail_after(5):
            await waiters[index]


async def test_next_is_told_at_once_when_a_cancelled_waiter_makes_room(
    any_concert: Coordinator, limiter: RateLimiter, limiter_elsewhere: RateLimiter
) -> None:
    """Nobody else needs to come, and it does not wait for the time that it was told before."""
    first, second = await stand_in_line(any_concert, (limiter, limiter_elsewhere), [3, 1])
    await pass_time(any_concert, limiter, 1000)
    assert not await limiter.try_acquire()
    assert not second.done()
    first.cancel()
    with anyio.fail_after(5):
        await second
    assert await taken(any_concert, limiter) == 3


async def test_waiters_are_sent_away_when_their_coordinator_closes(
    any_concert: Coordinator, elsewhere: Coordinator, limiter: RateLimiter, limiter_elsewhere: RateLimiter
) -> None:
    """With `NotConnected`, and all their places are given back."""
    await limiter.acquire(cost=3)
    waiters = [asyncio.create_task(limiter_elsewhere.acquire()) for _ in range(10)]
    await places(any_concert, limiter, 13)
    await elsewhere.__aexit__(None, None, None)
    for waiter in waiters:
        with pytest.raises(NotConnected):
            await waiter
    assert await taken(any_concert, limiter) == 3


async def test_line_holds_only_those_who_wait(any_concert: Coordinator) -> None:
    """Whatever was taken and given back before."""
    limiter = any_concert.rate_limiter("calls", 1, 1000.0, burst=200)

    async def length() -> int:
        found: int = await raw(any_concert).zcard(limiter._keys.line)
        return found

    await asyncio.gather(*(limiter.acquire() for _ in range(200)))
    assert await length() == 0
    waiters = [asyncio.create_task(limiter.acquire()) for _ in range(150)]
    await places(any_concert, limiter, 350)
    assert await length() == 150
    for waiter in waiters[:100]:
        waiter.cancel()
    await places(any_concert, limiter, 250)
    assert await length() == 50
    for waiter in waiters[100:]:
        waiter.cancel()
    await places(any_concert, limiter, 200)
    assert await length() == 0


@pytest.mark.parametrize("verb", ["try_acquire", "acquire", "reset"])
async def test_closed_coordinator_is_not_connected(verb: str) -> None:
    """Whatever is asked of it."""
    with pytest.raises(NotConnected):
        await getattr(Coordinator("redis://127.0.0.1:1/0").rate_limiter("api", 1, 1.0), verb)()


# Bad input: refused before anything is sent, so the coordinator need not be open.


@pytest.mark.parametrize("limit", [0, -1, 100_001, 1.0, True, "3", None])
def test_limit_is_a_whole_number_from_1_to_100_000_per_second(limit: Any) -> None:
    """Anything else is a `ValueError`."""
    with pytest.raises(ValueError, match=r"limit of rate limiter 'api' is .* from 1 to 100,000"):
        Coordinator().rate_limiter("api", limit, 1.0)


@pytest.mark.parametrize("period", [0, -1, nan, inf, True, "1", None])
def test_period_is_a_time_above_0(period: Any) -> None:
    """Anything else is a `ValueError`."""
    with pytest.raises(ValueError, match="period is"):
        Coordinator().rate_limiter("api", 3, period)


@pytest.mark.parametrize("burst", [0, -1, 315_361, 1.0, True, "3"])
def test_burst_is_a_whole_number_that_comes_back_within_10_years(burst: Any) -> None:
    """Anything else is a `ValueError`."""
    with pytest.raises(ValueError, match=r"burst of rate limiter 'api' is .* from 1 to 315,360"):
        Coordinator().rate_limiter("api", 1, 1000.0, burst=burst)


@pytest.mark.parametrize("cost", [0, -1, 4, 1.0, True, "3", None])
@pytest.mark.parametrize("verb", ["try_acquire", "acquire"])
async def test_cost_is_a_whole_number_up_to_the_burst(verb: str, cost: Any) -> None:
    """Anything else is a `ValueError`: it would never be granted."""
    with pytest.raises(ValueError, match=r"cost is .* from 1 to 3"):
        await getattr(Coordinator().rate_limiter("api", 3, 1.0), verb)(cost=cost)


@pytest.mark.parametrize("timeout", [-1, nan, inf, False, "1"])
async def test_timeout_is_a_time_from_0(timeout: Any) -> None:
    """Anything else is a `ValueError`."""
    with pytest.raises(ValueError, match="timeout is"):
        await Coordinator().rate_limiter("api", 3, 1.0).acquire(timeout=timeout)


@pytest.mark.parametrize("name", ["", "a" * 513, "\ud800", 1, None])
def test_name_is_a_string_of_1_to_512_bytes(name: Any) -> None:
    """Anything else is `InvalidName`."""
    with pytest.raises(InvalidName):
        Coordinator().rate_limiter(name, 3, 1.0)
