"""Rate limiters while processes die, callers vanish, links break and servers forget; and their scripts run twice."""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, NotConnected, OutcomeUnknown, RateLimiter, Unavailable
from inconcert._redis.scripts import load
from tests.support.cancelling import MOMENTS, Means, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import RealServer

Flow = Callable[[RateLimiter], Coroutine[object, object, object]]

HERE = "tests.faults.test_rate_limiter_faults"
LUA = Path(__file__).parents[2] / "src/inconcert/_lua/rate_limits"


def slow(concert: Coordinator, name: str = "api") -> RateLimiter:
    """Make one that gives nothing back in the time of a test: a hundred permits, one each 1,000 s."""
    return concert.rate_limiter(name, 1, 1000.0, burst=100)


async def taken(concert: Coordinator, limiter: RateLimiter) -> int:
    """How many permits are not back, or promised to someone."""
    seconds, microseconds = await raw(concert).time()
    last = await raw(concert).zrange(limiter._keys[0], -1, -1, withscores=True)
    full_us = max(0.0, last[0][1] - seconds * 1_000_000 - microseconds) if last else 0.0
    return math.ceil(full_us / limiter._interval_us)


async def becomes(concert: Coordinator, limiter: RateLimiter, number: int) -> None:
    """Return when so many permits are taken or promised."""

    async def so_many() -> bool:
        return await taken(concert, limiter) == number

    await eventually(so_many)


# What children do.


async def call_often(url: str, namespace: str, number: int) -> None:
    """In a child: make so many calls, each as soon as it may, and tell when they were."""
    async with Coordinator(url, namespace=namespace) as concert:
        limiter = concert.rate_limiter("calls", 200, 1.0, burst=10)
        times: list[float] = []

        async def call() -> None:
            await limiter.acquire()
            times.append(time.monotonic())

        began = time.monotonic()
        await asyncio.gather(*(call() for _ in range(number)))
        tell("called", began=began, times=times)


async def wait_long(url: str, namespace: str) -> None:
    """In a child: wait for longer than any test lasts."""
    async with Coordinator(url, namespace=namespace) as concert:
        await slow(concert).acquire(cost=50)


# Processes.


async def test_processes_share_one_limit(server: RealServer, namespace: str) -> None:
    """Two of them: none is early, so at no time are there more calls than the limit allows."""
    async with (
        spawn(f"{HERE}:call_often", server.url, namespace, 60) as one,
        spawn(f"{HERE}:call_often", server.url, namespace, 60) as other,
    ):
        told = [await child.wait_for("called") for child in (one, other)]
    began = min(each["began"] for each in told)
    times = sorted(at for each in told for at in each["times"])
    assert len(times) == 120
    assert all(at - began >= (number - 10) * 0.005 for number, at in enumerate(times, 1))


async def test_place_of_a_killed_process_passes_unused(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """Nobody gives it back: whoever comes later waits as if it were used."""
    limiter = slow(concert)
    await limiter.acquire(cost=80)
    async with spawn(f"{HERE}:wait_long", server.url, namespace) as child:
        await becomes(concert, limiter, 130)
        child.kill()
    assert 29_000 < (await limiter.try_acquire()).retry_after <= 31_000


# Links and servers.


@pytest.mark.parametrize("lose_next", [False, True], ids=["after", "instead of"])
async def test_link_may_break_at_any_reply(server: RealServer, namespace: str, lose_next: bool) -> None:
    """Whichever reply is the last one or the one that is lost: each call takes once."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(server.url, namespace=namespace) as there:
        number = 0 if lose_next else 1
        while True:
            async with Coordinator(proxy.url, namespace=namespace) as concert:
                limiter = slow(concert, f"{number}")
                proxy.cut_after_replies(number, lose_next=lose_next)
                with anyio.fail_after(10):
                    for cost in (1, 2, 3):
                        assert await limiter.try_acquire(cost=cost)
                    await asyncio.gather(*(limiter.acquire(cost=cost) for cost in (4, 5)))
                is_cut = proxy.opened > 2
                proxy.opened = 0
                await proxy.heal()
            assert await taken(there, limiter) == 15
            if not is_cut:
                break
            number += 1
        assert number > 4


async def test_wait_needs_no_connection(server: RealServer, namespace: str) -> None:
    """Its time is known: it ends on time, however long the server is away."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(proxy.url, namespace=namespace) as concert:
        limiter = concert.rate_limiter("calls", 10, 1.0, burst=1)
        await limiter.acquire()
        waiter = asyncio.create_task(limiter.acquire())
        await becomes(concert, limiter, 2)
        proxy.refuse()
        proxy.cut()
        with anyio.fail_after(3):
            await waiter
        await proxy.heal()


async def test_server_that_does_not_answer_is_reported(server: RealServer, namespace: str) -> None:
    """With `OutcomeUnknown`; what it has taken is given back when the server is there again."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(proxy.url, namespace=namespace, timeout=0.3) as concert:
        limiter = slow(concert)
        await limiter.acquire(cost=10)
        proxy.hold_replies()
        with pytest.raises(OutcomeUnknown):
            await limiter.acquire(cost=20)
        await proxy.heal()
        await becomes(concert, limiter, 10)


async def test_restart_keeps_what_the_server_keeps(own_server: RealServer) -> None:
    """With its data it goes on, and without it the limiter is full again."""
    async with Coordinator(own_server.url) as concert:
        limiter = slow(concert)
        await limiter.acquire(cost=60)
        own_server.restart(empty=False)
        assert (await limiter.try_acquire()).remaining == 39
        own_server.restart(empty=True)
        assert (await limiter.try_acquire()).remaining == 99


async def test_full_server_refuses_to_take_and_lets_one_give_back(own_server: RealServer) -> None:
    """What frees memory works; what grows is refused, and has changed nothing."""
    async with Coordinator(own_server.url) as concert:
        limiter = slow(concert)
        await limiter.acquire(cost=99)
        waiter = asyncio.create_task(limiter.acquire(cost=2))
        await becomes(concert, limiter, 101)
        own_server.command("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(Unavailable, match="OOM"):
            await limiter.acquire()
        assert await taken(concert, limiter) == 101
        waiter.cancel()
        await becomes(concert, limiter, 99)


async def test_waiters_send_nothing(own_server: RealServer) -> None:
    """A hundred of them."""
    async with Coordinator(own_server.url) as concert:
        limiter = slow(concert)
        await limiter.acquire(cost=100)
        waiters = [asyncio.create_task(limiter.acquire()) for _ in range(100)]
        await becomes(concert, limiter, 200)

        async def commands() -> int:
            found: int = (await raw(concert).info("stats"))["total_commands_processed"]
            return found

        before = await commands()
        await anyio.sleep(0.3)
        assert await commands() == before + 1
        for waiter in waiters:
            waiter.cancel()
        await becomes(concert, limiter, 100)


# Callers that vanish.


async def try_it(limiter: RateLimiter) -> None:
    """Take some at once."""
    await limiter.try_acquire(cost=5)


async def wait_for_it(limiter: RateLimiter) -> None:
    """Take some a moment later."""
    await limiter.acquire(cost=5)


@pytest.mark.parametrize("means", ["task", "scope"])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("flow", [try_it, wait_for_it], ids=["at once", "waiting"])
async def test_cancelled_at_any_await_takes_nothing(
    concert: Coordinator, flow: Flow, moment: Moment, means: Means
) -> None:
    """On a limiter that was full, and on one that had to be waited for."""
    number = 1
    while True:
        limiter = concert.rate_limiter(f"calls {number}", 1, 1000.0, burst=5)
        if flow is wait_for_it:
            await limiter.acquire(cost=5)
            end = (await raw(concert).zrange(limiter._keys[0], -1, -1, withscores=True))[0][1]
            seconds, microseconds = await raw(concert).time()
            left = end - seconds * 1_000_000 - microseconds - 30_000  # so the wait for all five is 30 ms
            for request, score in await raw(concert).zrange(limiter._keys[0], 0, -1, withscores=True):
                await raw(concert).zadd(limiter._keys[0], {request: score - left})
        has_taken = False

        async def use(limiter: RateLimiter = limiter) -> None:
            nonlocal has_taken
            await flow(limiter)
            has_taken = True

        was_cancelled = await cancel_at(number, moment, use(), means=means)
        await becomes(concert, limiter, 5 if has_taken else 0)
        if not was_cancelled:
            break
        number += 1
    assert number > 1


async def test_permits_that_may_be_used_just_when_the_coordinator_closes_are_not_given_back(
    concert: Coordinator, server: RealServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their taker is about to use them."""
    async with Coordinator(server.url, namespace=namespace) as there:
        wakeups = there._access.session.wakeups
        expect = wakeups.expect

        def close(done: object) -> None:
            del done
            wakeups.abandon(NotConnected("closed"))

        def close_when_done(address: str, turn: Any) -> None:
            expect(address, turn)
            turn.add_done_callback(close)

        monkeypatch.setattr(wakeups, "expect", close_when_done)
        await slow(there).acquire(cost=5)
    assert await taken(concert, slow(concert)) == 5


# A script whose reply was lost is sent again.


async def test_take_answers_a_second_run_as_its_header_says(any_concert: Coordinator) -> None:
    """What is left of the same wait, whatever was taken since; one that was refused may be taken then."""
    keys = slow(any_concert)._keys
    session = any_concert._access.session
    take = load("rate_limits/take")
    second = 1_000_000
    assert await session.run(take, keys, "a.1", 100 * second, 100 * second, 0) == [1, 0, 100 * second]
    first = await session.run(take, keys, "a.2", 50 * second, 100 * second, 60 * second)
    await session.run(take, keys, "a.3", 50 * second, 100 * second, 1000 * second)
    again = await session.run(take, keys, "a.2", 50 * second, 100 * second, 60 * second)
    assert first[0] == again[0] == 1
    assert 40 * second < again[1] <= first[1] <= 50 * second
    assert 190 * second < again[2] <= 200 * second
    for _ in range(2):
        assert (await session.run(take, keys, "a.4", 50 * second, 100 * second, 0))[0] == 0


async def test_give_back_answers_a_second_run_as_its_header_says(any_concert: Coordinator) -> None:
    """0, and what was taken in between stays taken."""
    keys = slow(any_concert)._keys
    session = any_concert._access.session
    take, give_back = load("rate_limits/take"), load("rate_limits/give_back")
    await session.run(take, keys, "a.1", 10_000_000, 100_000_000, 0)
    await session.run(take, keys, "a.2", 10_000_000, 100_000_000, 0)
    assert await session.run(give_back, keys[:1], "a.2") == 1
    await session.run(take, keys, "a.3", 10_000_000, 100_000_000, 0)
    assert await session.run(give_back, keys[:1], "a.2") == 0
    reply = await session.run(take, keys, "a.4", 10_000_000, 100_000_000, 0)
    assert 29_000_000 < reply[2] <= 30_000_000


async def test_what_stands_for_all_before_it_is_not_given_back(any_concert: Coordinator) -> None:
    """Of what was taken at once only the latest can be: what was there before it is known, and nothing earlier."""
    keys = slow(any_concert)._keys
    session = any_concert._access.session
    take, give_back = load("rate_limits/take"), load("rate_limits/give_back")
    for request in ("a.1", "a.2", "a.3"):
        await session.run(take, keys, request, 10_000_000, 100_000_000, 0)
    assert [await session.run(give_back, keys[:1], request) for request in ("a.3", "a.2", "a.1")] == [1, 0, 0]
    reply = await session.run(take, keys, "a.4", 10_000_000, 100_000_000, 0)
    assert 29_000_000 < reply[2] <= 30_000_000


def test_every_script_is_run_twice() -> None:
    """None was forgotten."""
    assert {path.stem for path in LUA.glob("*.lua")} == {"take", "give_back"}
