"""Reservations while processes die, links break and servers refuse; and what a fleet of them uses in all."""

import asyncio
import random
import time
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, RateLimiter
from inconcert.testing import World, simulate
from tests.support.cancelling import MOMENTS, Means, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.scripts import command_of
from tests.support.servers import RealServer

HERE = "tests.faults.test_reservations_faults"


def slow(concert: Coordinator, name: str = "tokens") -> RateLimiter:
    """Make one that gives nothing back in the time of a test: a hundred permits, one each 1,000 s."""
    return concert.rate_limiter(name, 1, 1000.0, burst=100)


async def remaining(limiter: RateLimiter, number: int) -> None:
    """Return when so many permits are left."""

    async def so_many() -> bool:
        return (await limiter.inspect()).remaining == number

    await eventually(so_many)


# Processes.


async def reserve_for_long(url: str, namespace: str) -> None:
    """In a child: reserve, settle once, and go on."""
    async with (
        Coordinator(url, namespace=namespace) as concert,
        slow(concert).reserve(cost=10) as first,
        slow(concert).reserve(cost=20),
    ):
        first.settle(1)
        tell("reserved")
        await anyio.sleep(60)


async def test_estimate_of_a_killed_process_counts(concert: Coordinator, server: RealServer, namespace: str) -> None:
    """And so does what it has settled."""
    async with spawn(f"{HERE}:reserve_for_long", server.url, namespace) as child:
        await child.wait_for("reserved")
        await remaining(slow(concert), 79)
        child.kill()
    assert (await slow(concert).inspect()).remaining == 79


LIMIT = 1000  # permits per second


async def call(limiter: RateLimiter, seed: str, used: list[int], until: float, longest: float) -> None:
    """Make calls one after the other, each of which uses 0.2 to 3 times as much as was thought."""
    dice = random.Random(seed)
    while time.monotonic() < until:
        estimate = dice.randint(5, 40)
        async with limiter.reserve(cost=estimate) as reservation:
            await anyio.sleep(dice.uniform(0.01, longest))
            actual = round(estimate * dice.uniform(0.2, 3.0))
            if time.monotonic() < until:
                used.append(actual)
            reservation.settle(actual)


async def call_often(url: str, namespace: str, seed: int, begin: float, until: float) -> None:
    """In a child: make calls from then until then, and tell how much they have used."""
    async with Coordinator(url, namespace=namespace) as concert:
        limiter = concert.rate_limiter("tokens", LIMIT, 1.0, burst=LIMIT // 5)
        used: list[int] = []
        await anyio.sleep(begin - time.monotonic())  # a clock that all processes share
        await asyncio.gather(*(call(limiter, f"{seed} {each}", used, until, 0.3) for each in range(10)))
        tell("used", used=sum(used))


@pytest.mark.torture
async def test_processes_use_their_limit_and_no_more(server: RealServer, namespace: str) -> None:
    """Eight of them, for a minute: between 0.95 and 1.02 of it, the burst included."""
    seconds = 60.0
    begin = time.monotonic() + 20  # when all have begun
    used: list[int] = []
    async with anyio.create_task_group() as group:

        async def run(seed: int) -> None:
            async with spawn(f"{HERE}:call_often", server.url, namespace, seed, begin, begin + seconds) as child:
                used.append((await child.wait_for("used", timeout=seconds + 60))["used"])

        for seed in range(8):
            group.start_soon(run, seed)
    assert 0.95 * LIMIT * seconds <= sum(used) <= 1.02 * LIMIT * seconds


def test_fleet_uses_its_limit_and_no_more() -> None:
    """Three processes in three seconds of a simulated world: the burst, and what comes back in that time."""
    seconds = 3.0
    shares: list[float] = []

    async def story(world: World) -> None:
        used: list[int] = []
        until = time.monotonic() + seconds
        for name in ("ann", "bob", "cid"):
            process = await world.process(name)
            limiter = process.concert.rate_limiter("tokens", LIMIT, 1.0, burst=40)
            for each in range(4):
                process.start(call(limiter, f"{name} {each}", used, until, 0.05))
        await anyio.sleep(seconds + 5)
        shares.append(sum(used) / (LIMIT * seconds))

    simulate(story, seeds=[1])
    assert all(0.95 <= share <= 1.02 for share in shares)
    assert shares


# Links and servers.


@pytest.mark.parametrize("lose_next", [False, True], ids=["after", "instead of"])
async def test_link_may_break_at_any_reply(server: RealServer, namespace: str, lose_next: bool) -> None:
    """Whichever reply is the last one or the one that is lost: each settlement counts once."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(server.url, namespace=namespace) as elsewhere:
        number = 0 if lose_next else 1
        while True:
            async with Coordinator(proxy.url, namespace=namespace) as concert:
                limiter = slow(concert, f"{number}")
                proxy.cut_after_replies(number, lose_next=lose_next)
                with anyio.fail_after(10):
                    for actual in (3, 14):
                        async with limiter.reserve(cost=10) as reservation:
                            reservation.settle(actual)
                    await limiter.refund(2)
                is_cut = proxy.opened > 2
                proxy.opened = 0
                await proxy.heal()
                await remaining(slow(elsewhere, f"{number}"), 85)
            if not is_cut:
                break
            number += 1
        assert number > 4


async def test_settlement_that_is_refused_is_repeated(own_server: RealServer) -> None:
    """While the server's replica is away, and also by a process that closes then."""
    async with Coordinator(own_server.url) as concert, Coordinator(own_server.url) as elsewhere:
        limiter = slow(concert)
        async with limiter.reserve(cost=10) as reservation:
            own_server.command("CONFIG", "SET", "min-replicas-to-write", 1)
            reservation.settle(4)
            await eventually(lambda: concert._ref.session.renewal.is_needed)
        own_server.command("CONFIG", "SET", "min-replicas-to-write", 0)
        await remaining(slow(elsewhere), 96)
        await eventually(lambda: not concert._ref.session.renewal.is_needed)


async def test_settlement_of_a_process_that_closes_at_once_counts(own_server: RealServer) -> None:
    """Closing waits for what was begun."""
    async with Coordinator(own_server.url) as elsewhere:
        async with Coordinator(own_server.url) as concert, slow(concert).reserve(cost=10) as reservation:
            reservation.settle(4)
        assert (await slow(elsewhere).inspect()).remaining == 96


async def test_full_server_lets_one_settle(own_server: RealServer) -> None:
    """More as well as less: neither needs more memory than there was."""
    async with Coordinator(own_server.url) as concert:
        limiter = slow(concert)
        async with limiter.reserve(cost=50) as reservation:
            own_server.command("CONFIG", "SET", "maxmemory", "1")
            reservation.settle(20)
            await remaining(limiter, 80)
            reservation.settle(60)
            await remaining(limiter, 40)


# Callers that vanish.


@pytest.mark.parametrize("means", ["task", "scope"])
@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_at_any_await_takes_all_or_none(concert: Coordinator, moment: Moment, means: Means) -> None:
    """Of two limiters: the estimate of both once the body has begun, and nothing of either before."""
    number = 1
    while True:
        limiters = [slow(concert, f"{name} {number}") for name in "ab"]
        has_begun = False

        async def use(limiters: list[RateLimiter] = limiters) -> None:
            nonlocal has_begun
            async with concert.rate_limiters(*limiters).reserve(cost=(30, 1)):
                has_begun = True
                await anyio.lowlevel.checkpoint()

        was_cancelled = await cancel_at(number, moment, use(), means=means)
        for limiter, cost in zip(limiters, (30, 1), strict=True):
            await remaining(limiter, 100 - cost if has_begun else 100)
        if not was_cancelled:
            break
        number += 1
    assert number > 2


# A script whose reply was lost is sent again.


@pytest.mark.twice("rate_limits/settle")
async def test_settlement_answers_a_second_run_as_its_header_says(any_concert: Coordinator) -> None:
    """0, and what was taken or settled since stays so."""
    limiter = slow(any_concert)
    session = any_concert._ref.session
    await limiter.acquire(cost=50)

    async def settle(number: int, by: int) -> Any:
        interval_us = 1_000_000_000
        terms = {"by_us": by * interval_us, "interval_us": interval_us, "inboxes": session.inboxes("")}
        request = f"{session.id}.{number}"
        return await session.run(command_of("rate_limits/settle", limiter._keys, request=request, **terms))

    for number, by, left in ((1, -20, 70), (2, 30, 40)):
        assert [await settle(number, by), await settle(number, by)] == [1, 0]
        assert (await limiter.inspect()).remaining == left
    assert await settle(1, -20) == 0
    assert await raw(any_concert).pttl(limiter._keys.state) > 0
