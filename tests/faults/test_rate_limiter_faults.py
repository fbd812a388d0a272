"""Rate limiters while processes die, callers vanish, links break and servers forget; and their scripts run twice."""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, NotConnected, OutcomeUnknown, RateLimiter, Unavailable
from inconcert.testing import World, simulate
from tests.support.cancelling import MOMENTS, Means, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.scripts import command_of
from tests.support.servers import RealServer
from tests.support.waiters import wait_as

Flow = Callable[[RateLimiter], Coroutine[object, object, object]]

HERE = "tests.faults.test_rate_limiter_faults"


def slow(concert: Coordinator, name: str = "api") -> RateLimiter:
    """Make one that gives nothing back in the time of a test: a hundred permits, one each 1,000 s."""
    return concert.rate_limiter(name, 1, 1000.0, burst=100)


async def taken(concert: Coordinator, limiter: RateLimiter) -> int:
    """How many permits are not back, or promised to someone."""
    now: tuple[int, int] = await raw(concert).time()
    text: bytes = await raw(concert).get(limiter._keys.state) or b"0 0 1"
    end, queued, _ = map(int, text.split())
    return math.ceil((max(0, end - now[0] * 1_000_000 - now[1]) + queued) / limiter._interval_us)


async def becomes(concert: Coordinator, limiter: RateLimiter, number: int) -> None:
    """Return when so many permits are taken or promised."""

    async def so_many() -> bool:
        return await taken(concert, limiter) == number

    await eventually(so_many)


# What children do.


async def call_often(url: str, namespace: str, number: int) -> None:
    """In a child: make so many calls, each as soon as it may, and tell when they were, by the server's clock."""
    async with Coordinator(url, namespace=namespace) as concert:
        limiter = concert.rate_limiter("calls", 200, 1.0, burst=10)
        times: list[float] = []

        async def call() -> None:
            await limiter.acquire()
            times.append(time.time())

        began = time.time()
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
    began = min(each["began"] for each in told) - 1e-6  # the server's clock has whole microseconds
    times = sorted(at for each in told for at in each["times"])
    assert len(times) == 120
    assert all(at - began >= (number - 10) * 0.005 for number, at in enumerate(times, 1))


async def test_place_of_a_killed_process_is_used_by_the_next(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """Nobody gives it back: whoever comes finds that its process is gone."""
    limiter = slow(concert)
    await limiter.acquire(cost=80)
    async with spawn(f"{HERE}:wait_long", server.url, namespace) as child:
        await becomes(concert, limiter, 130)
        assert not await limiter.try_acquire()
        child.kill()
        await eventually(limiter.try_acquire)
    assert await taken(concert, limiter) == 81


async def test_process_that_stands_still_wastes_its_own_place_and_no_other(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """Those behind it ask when their time has come, and find it before them: its permit passes unused."""
    limiter = slow(concert)
    await limiter.acquire(cost=80)
    async with spawn(f"{HERE}:wait_long", server.url, namespace) as child:
        await becomes(concert, limiter, 130)
        child.pause()
        waiter = asyncio.create_task(limiter.acquire(cost=5))
        await becomes(concert, limiter, 135)
        await raw(concert).set(limiter._keys.state, "1 55000000000 1000000000", keepttl=True)  # as if all were back
        assert await limiter.try_acquire()
        with anyio.fail_after(5):
            await waiter
    assert await taken(concert, limiter) == 56


async def test_waiter_that_nobody_knows_any_more_does_not_stay_in_line(concert: Coordinator) -> None:
    """Its process gives back for it."""
    limiter = slow(concert)
    await limiter.acquire(cost=100)
    waiter = asyncio.create_task(limiter.acquire())
    await becomes(concert, limiter, 101)
    stray = f"{concert._ref.session.id}.999 1000000000 100000000000 1000000000"
    await raw(concert).zadd(limiter._keys.line, {stray: 1})
    await raw(concert).set(limiter._keys.state, "1 2000000000 1000000000", keepttl=True)  # all are back
    assert await limiter.try_acquire()
    with anyio.fail_after(5):
        await waiter
    await becomes(concert, limiter, 2)


def test_callers_who_give_up_leave_their_places_to_those_behind_them() -> None:
    """What is let through beside a line that those who give up leave at once: as much, but for a tenth."""
    through = {"here": 0, "reference": 0}
    limit, per_second, patience, seconds = 20, 45, 1.0, 10

    async def call(acquire: Callable[[], Coroutine[Any, Any, object]], whose: str) -> None:
        with anyio.move_on_after(patience):
            await acquire()
            through[whose] += 1

    async def story(world: World) -> None:
        processes = [await world.process(name) for name in ("ann", "bob")]
        bucket = Bucket(limit, burst=5)
        ended_at = world.now() + seconds
        while world.now() < ended_at:
            process = world.random.choice(processes)
            limiter = process.concert.rate_limiter("calls", limit, 1.0, burst=5)
            process.start(call(limiter.acquire, "here"))
            process.start(call(bucket.acquire, "reference"))
            await anyio.sleep(world.random.expovariate(per_second))
        await anyio.sleep(2 * patience)

    simulate(story, seeds=[1])
    assert through["reference"] > 0.9 * limit * seconds
    assert through["here"] > 0.9 * through["reference"]


class Bucket:
    """A bucket of tokens with a line, in one process."""

    def __init__(self, limit: int, burst: int) -> None:
        self.limit = limit
        self.burst = burst
        self.tokens = float(burst)
        self.seen_at = time.monotonic()
        self.line = anyio.Lock()

    async def acquire(self) -> None:
        """Wait in line for a token, and leave the line when cancelled."""
        async with self.line:
            now = time.monotonic()
            self.tokens = min(self.burst, self.tokens + (now - self.seen_at) * self.limit)
            self.seen_at = now
            if self.tokens < 1:
                await anyio.sleep((1 - self.tokens) / self.limit)
                self.tokens += (time.monotonic() - self.seen_at) * self.limit
                self.seen_at = time.monotonic()
            self.tokens -= 1


# Links and servers.


@pytest.mark.parametrize("lose_next", [False, True], ids=["after", "instead of"])
async def test_link_may_break_at_any_reply(server: RealServer, namespace: str, lose_next: bool) -> None:
    """Whichever reply is the last one or the one that is lost: each call takes once."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(server.url, namespace=namespace) as elsewhere:
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
            assert await taken(elsewhere, limiter) == 15
            if not is_cut:
                break
            number += 1
        assert number > 4


async def test_wait_outlasts_a_lost_connection(server: RealServer, namespace: str) -> None:
    """One whose time comes meanwhile is served when the server is there again, and in its order."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(proxy.url, namespace=namespace) as concert:
        limiter = concert.rate_limiter("calls", 5, 1.0, burst=1)
        await limiter.acquire()
        order: list[int] = []

        async def wait(number: int) -> None:
            await limiter.acquire()
            order.append(number)

        waiters = [asyncio.create_task(wait(number)) for number in range(3)]
        await becomes(concert, limiter, 4)
        proxy.refuse()
        proxy.cut()
        await anyio.sleep(0.3)  # so that the first one's time has come
        await proxy.heal()
        with anyio.fail_after(5):
            await asyncio.gather(*waiters)
        assert order == [0, 1, 2]


async def test_wait_ends_with_an_error_when_the_server_stays_away(server: RealServer, namespace: str) -> None:
    """When its time has come, and then the time that any call may take."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(proxy.url, namespace=namespace, timeout=0.3) as concert:
        limiter = concert.rate_limiter("calls", 10, 1.0, burst=1)
        await limiter.acquire()
        waiter = asyncio.create_task(limiter.acquire())
        await becomes(concert, limiter, 2)
        proxy.refuse()
        proxy.cut()
        with anyio.fail_after(5), pytest.raises((Unavailable, OutcomeUnknown)):
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
            seconds, microseconds = await raw(concert).time()
            end = seconds * 1_000_000 + microseconds + 30_000  # so the wait for all five is 30 ms
            await raw(concert).set(limiter._keys.state, f"{end} 0 1000000000", keepttl=True)
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
    async with Coordinator(server.url, namespace=namespace) as elsewhere:
        inbox = elsewhere._ref.session.inbox
        register = inbox.register

        def close(done: object) -> None:
            del done
            inbox.closed(NotConnected("closed"))

        def close_when_done(address: str, turn: Any) -> None:
            register(address, turn)
            turn.add_done_callback(close)

        monkeypatch.setattr(inbox, "register", close_when_done)
        await slow(elsewhere).acquire(cost=5)
    assert await taken(concert, slow(concert)) == 5


# A script whose reply was lost is sent again, and the first sending may come late.


SECOND = 1_000_000
BURST = 100 * SECOND


async def take(concert: Coordinator, request: str, seconds: int, longest: int = 0) -> list[int]:
    """Run the script that takes permits which come back in so many seconds."""
    session = concert._ref.session
    command = command_of(
        "rate_limits/take",
        slow(concert)._keys,
        request=f"{session.id}.{request}",
        cost_us=seconds * SECOND,
        burst_us=BURST,
        interval_us=SECOND,
        longest_us=longest * SECOND,
        ticket=0,
        inboxes=session.inboxes(""),
    )
    reply: list[int] = await session.run(command)
    return reply


async def give_back(concert: Coordinator, request: str, seconds: int) -> int:
    """Run the script that gives them back."""
    session = concert._ref.session
    command = command_of(
        "rate_limits/refund",
        slow(concert)._keys,
        request=f"{session.id}.{request}",
        cost_us=seconds * SECOND,
        burst_us=BURST,
        interval_us=SECOND,
        inboxes=session.inboxes(""),
    )
    reply: int = await session.run(command)
    return reply


@pytest.mark.twice("rate_limits/take")
async def test_take_answers_a_second_run_as_its_header_says(any_concert: Coordinator) -> None:
    """The same place in the line, or the grant; one that was refused may be taken then."""
    assert await take(any_concert, "1", 100) == [1, 0, BURST]
    assert (await take(any_concert, "1", 100))[:2] == [1, 0]
    first = await take(any_concert, "2", 50, 60)
    await take(any_concert, "3", 50, 1000)
    again = await take(any_concert, "2", 50, 60)
    assert first[0] == again[0] == 2
    assert first[3] == again[3]
    assert 40 * SECOND < again[1] <= first[1] <= 50 * SECOND
    assert 190 * SECOND < again[2] <= 200 * SECOND
    for _ in range(2):
        assert (await take(any_concert, "4", 50))[0] == 0
    assert await raw(any_concert).zcard(slow(any_concert)._keys.line) == 2


@pytest.mark.twice("rate_limits/inspect")
async def test_inspection_answers_a_second_run_as_its_header_says(any_concert: Coordinator) -> None:
    """The same, but for the time that has passed; nothing is changed."""
    await take(any_concert, "1", 100)
    await take(any_concert, "2", 50, 60)
    keys = slow(any_concert)._keys
    before = [await raw(any_concert).get(keys.state), await raw(any_concert).zrange(keys.line, 0, -1, withscores=True)]
    for _ in range(2):
        inspect = command_of("rate_limits/inspect", keys, interval_us=SECOND)
        full_us, out_us, waiting = await any_concert._ref.session.run(inspect)
        assert out_us == full_us
        assert 140 * SECOND < full_us <= 150 * SECOND
        assert waiting == 1
    after = [await raw(any_concert).get(keys.state), await raw(any_concert).zrange(keys.line, 0, -1, withscores=True)]
    assert after == before


@pytest.mark.twice("rate_limits/refund")
async def test_give_back_answers_a_second_run_as_its_header_says(any_concert: Coordinator) -> None:
    """0, and what was taken in between stays taken: of what was granted, and of what was waited for."""
    await take(any_concert, "1", 100)
    await take(any_concert, "2", 10, 1000)
    session = any_concert._ref.session
    wait_as(session, f"{session.id}.92", f"{session.id}.91")
    for request, seconds, left in (("2", 10, 100), ("1", 100, 10)):
        assert await give_back(any_concert, request, seconds) == 1
        await take(any_concert, f"9{request}", 10, 1000)
        assert await give_back(any_concert, request, seconds) == 0
        full_us = (await take(any_concert, "5", 100))[2]
        assert (left + 9) * SECOND < full_us <= (left + 10) * SECOND


@pytest.mark.twice("rate_limits/reset")
async def test_reset_answers_a_second_run_as_its_header_says(any_concert: Coordinator) -> None:
    """What was taken since stays taken."""
    await take(any_concert, "1", 100)
    session = any_concert._ref.session
    command = command_of(
        "rate_limits/reset", slow(any_concert)._keys, request=f"{session.id}.8", inboxes=session.inboxes("")
    )
    assert await session.run(command) == 1
    assert (await take(any_concert, "2", 40))[0] == 1
    assert await session.run(command) == 0
    assert 98 * SECOND < (await take(any_concert, "3", 59))[2] <= 99 * SECOND


async def test_what_was_granted_counts_again_in_any_order(any_concert: Coordinator) -> None:
    """But for what is back by itself meanwhile."""
    for request in ("1", "2", "3"):
        await take(any_concert, request, 30)
    for request in ("2", "3", "1"):
        assert await give_back(any_concert, request, 30) == 1
    assert (await take(any_concert, "4", 100, 1))[0] in (1, 2)


async def test_call_that_comes_after_it_was_given_up_takes_nothing(any_concert: Coordinator) -> None:
    """Its first sending was under way in a connection that was given up."""
    assert await give_back(any_concert, "1", 10) == 0
    assert await take(any_concert, "1", 10, 1000) == [0, 0, 0]
    await take(any_concert, "2", 100)
    assert await give_back(any_concert, "3", 10) == 0
    assert (await take(any_concert, "3", 10, 1000))[0] == 0
    assert not await raw(any_concert).exists(slow(any_concert)._keys.line)
