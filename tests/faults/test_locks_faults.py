"""Several locks as one, while holders die and links break."""

import asyncio
import random
from collections.abc import Awaitable

import anyio
import pytest

from inconcert import (
    AcquireTimeout,
    Coordinator,
    Lease,
    LeaseLost,
    Leases,
    NotConnected,
    OutcomeUnknown,
    Unavailable,
)
from tests.support.eventually import eventually
from tests.support.inner import channel_of
from tests.support.lines import in_line
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import RealServer

HERE = "tests.faults.test_locks_faults"


async def is_free(concert: Coordinator, *names: str) -> bool:
    """Whether nobody holds any of these locks and nobody waits."""
    return not any([await concert.lock(name).locked() for name in names])


# What children do.


async def hold(url: str, namespace: str, ttl: float) -> None:
    """In a child: hold two locks."""
    async with Coordinator(url, namespace=namespace) as concert, concert.locks("a", "b", ttl=ttl):
        tell("held")
        await anyio.sleep_forever()


async def wait_with_one(url: str, namespace: str, ttl: float) -> None:
    """In a child: hold one lock, and wait for the other."""
    async with Coordinator(url, namespace=namespace) as concert, concert.locks("a", "b", ttl=ttl):
        tell("held")


ENTER = """
local inside = redis.call('INCRBY', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], 60000)
return inside
"""


async def come_and_go(url: str, namespace: str, seed: int, visits: int) -> None:
    """In a child: take some of four locks, named in any order, and look whether one is alone in each."""
    chance = random.Random(seed)
    async with Coordinator(url, namespace=namespace) as concert:

        async def visitor() -> None:
            for _ in range(visits):
                names = chance.sample("abcd", chance.randint(1, 3))
                async with concert.locks(*names):
                    for by in (1, -1):
                        for name in names:
                            inside = await raw(concert).eval(ENTER, 1, f"{namespace}:inside:{name}", by)
                            assert inside == max(by, 0), f"{inside} are inside {name}"

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(visitor)


# Processes that die.


async def test_killed_holder_blocks_each_lock_for_its_lease_only(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """`kill -9`: whoever waits for one of them, or for all, gets in."""
    async with spawn(f"{HERE}:hold", server.url, namespace, 0.8) as child:
        await child.wait_for("held")
        single = asyncio.create_task(concert.lock("b").acquire())
        await in_line(concert.lock("b"), 1)
        both = asyncio.create_task(concert.locks("b", "a").acquire())
        await in_line(concert.lock("a"), 1)
        child.kill()
        with anyio.fail_after(0.8 + 1.0):
            await (await single).release()
            await (await both).release()


async def test_killed_waiter_frees_what_it_had(concert: Coordinator, server: RealServer, namespace: str) -> None:
    """When the lease of that has lapsed."""
    lease = await concert.lock("b").acquire()
    async with spawn(f"{HERE}:wait_with_one", server.url, namespace, 0.8) as child:
        await in_line(concert.lock("b"), 1)
        child.kill()
        with anyio.fail_after(0.8 + 1.0):
            await (await concert.lock("a").acquire()).release()
        await lease.release()
        await (await concert.locks("a", "b").acquire(timeout=3)).release()


async def test_nobody_waits_in_a_circle_among_many_processes(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """Fifteen visitors of three processes take overlapping locks in all orders, while connections are killed."""
    children = [spawn(f"{HERE}:come_and_go", server.url, namespace, seed, 20) for seed in range(3)]
    try:
        for _ in range(5):
            await anyio.sleep(0.1)
            await raw(concert).execute_command("CLIENT KILL TYPE PUBSUB")
        for child in children:
            assert await child.wait(timeout=40) == 0, child.errors()
    finally:
        for child in children:
            child.close()
    assert await is_free(concert, *"abcd")


# Links that break.


@pytest.mark.parametrize("lose_next", [False, True], ids=["after", "instead of"])
async def test_link_may_break_at_any_reply(server: RealServer, namespace: str, lose_next: bool) -> None:
    """Taking them at once, and waiting for one, come to their end, whichever reply is the last one or is lost."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(server.url, namespace=namespace) as elsewhere:
        number = 0 if lose_next else 1
        while True:
            async with Coordinator(proxy.url, namespace=namespace) as concert:
                proxy.cut_after_replies(number, lose_next=lose_next)
                with anyio.fail_after(5):
                    await flow(concert, elsewhere)
                assert await is_free(elsewhere, "a", "b")
                is_cut = proxy.opened > 2
                proxy.opened = 0
                await proxy.heal()
            if not is_cut:
                break
            number += 1
        assert number > 5


async def flow(concert: Coordinator, elsewhere: Coordinator) -> None:
    """Take them free, and behind another who has one."""
    async with concert.locks("a", "b") as leases:
        await leases.renew()
    lease = await elsewhere.lock("b").acquire()
    waiter = asyncio.create_task(concert.locks("a", "b").acquire())
    await in_line(elsewhere.lock("b"), 1)
    await lease.release()
    await (await waiter).release()


async def test_grant_that_came_after_its_end_is_asked_for_again(server: RealServer, namespace: str) -> None:
    """A link that was down for longer than a lease: whoever takes them then has whole ones."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(proxy.url, namespace=namespace) as concert:
        proxy.refuse()
        proxy.cut()
        await eventually(lambda: channel_of(concert._ref.session)._wire is None)
        task = asyncio.create_task(concert.locks("a", "b", ttl=0.3).acquire())
        await anyio.sleep(0.35)
        await proxy.heal()
        leases: Leases = await task
        assert leases.remaining > 0
        assert not leases.is_lost
        await leases.release()


async def test_leases_are_lost_when_the_server_cannot_be_reached(own_server: RealServer) -> None:
    """The body is stopped by the local clock, and raises `LeaseLost`."""
    async with Proxy(own_server.tcp_url) as proxy, Coordinator(proxy.url, timeout=0.4) as concert:

        async def hold() -> None:
            async with concert.locks("a", "b", ttl=0.5):
                proxy.mute()
                await anyio.sleep_forever()

        with pytest.raises(LeaseLost), anyio.fail_after(3):
            await hold()
        await proxy.heal()


@pytest.mark.parametrize("turns", range(4))
async def test_error_of_a_body_is_raised_though_a_lease_is_lost_as_it_ends(concert: Coordinator, turns: int) -> None:
    """And not the cancellation of a body that has ended."""
    loop = asyncio.get_running_loop()

    def lose(lease: Lease, turns: int) -> None:
        if turns:
            loop.call_soon(lose, lease, turns - 1)
        else:
            lease._state.lose()

    async def fail() -> None:
        async with concert.locks("a", "b") as leases:
            loop.call_soon(lose, leases["a"], turns)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await fail()
    await eventually(lambda: is_free(concert, "a", "b"))


async def test_closing_gives_back_what_is_granted_at_that_moment(own_server: RealServer) -> None:
    """Whoever asks is sent away, and holds nothing that nobody would renew."""
    async with Coordinator(own_server.url) as elsewhere:
        async with anyio.create_task_group() as group, Coordinator(own_server.url) as concert:
            channel = channel_of(concert._ref.session)

            async def acquire() -> None:
                with pytest.raises(NotConnected, match="was closed while this call waited"):
                    await concert.locks("a", "b").acquire()

            async def resume() -> None:
                await eventually(lambda: channel.is_closed)
                own_server.resume()

            own_server.pause()
            group.start_soon(acquire)
            group.start_soon(resume)
            await eventually(lambda: channel._unanswered)
        assert await is_free(elsewhere, "a", "b")


async def test_release_that_cannot_be_confirmed_is_no_error_of_the_body(own_server: RealServer) -> None:
    """The body ended in time; the leases lapse by themselves, and waiting for the reply takes one timeout for all."""
    async with Proxy(own_server.tcp_url) as proxy, Coordinator(proxy.url, timeout=0.3) as concert:
        with anyio.fail_after(0.3 + 1.0):
            async with concert.locks(*"abcdef", ttl=20):
                proxy.mute()
        await proxy.heal()


# A server that is away or mute, for callers with little time.


def acquire(concert: Coordinator, kind: str, timeout: float) -> Awaitable[object]:
    """Acquire it in this time."""
    match kind:
        case "locks":
            return concert.locks("a", "b").acquire(timeout=timeout)
        case "write":
            return concert.rwlock("a").write().acquire(timeout=timeout)
        case "semaphore":
            return concert.semaphore("a", limit=2).acquire(timeout=timeout)
        case _:
            return concert.lock("a").acquire(timeout=timeout)


@pytest.mark.parametrize("kind", ["lock", "semaphore", "write", "locks"])
async def test_server_that_is_away_is_not_taken_for_a_holder(own_server: RealServer, kind: str) -> None:
    """Those who wait for less than a call may take are told so, too."""
    async with Coordinator(own_server.url) as concert:
        own_server.kill()
        await eventually(lambda: channel_of(concert._ref.session)._wire is None)
        with pytest.raises(Unavailable, match=r"was not acquired within 0\.3 s: the server is away \(.+\)"):
            await acquire(concert, kind, 0.3)


@pytest.mark.parametrize("kind", ["lock", "locks"])
async def test_server_that_says_nothing_is_not_taken_for_a_holder(own_server: RealServer, kind: str) -> None:
    """The message does not send its reader to the holders."""
    async with Coordinator(own_server.url) as concert:
        await acquire(concert, kind, 1)
        own_server.pause()
        with pytest.raises(
            AcquireTimeout, match=r"check the server: the server has not answered for 0\.\d+ s"
        ) as caught:
            await acquire(concert, kind, 0.3)
        assert isinstance(caught.value.__cause__, OutcomeUnknown)
        own_server.resume()


async def test_connection_that_is_cut_for_a_moment_is_no_server_that_is_away(
    server: RealServer, namespace: str
) -> None:
    """Who waits for another when the time is up is told that."""
    async with (
        Proxy(server.tcp_url) as proxy,
        Coordinator(server.url, namespace=namespace) as elsewhere,
        Coordinator(proxy.url, namespace=namespace) as concert,
        elsewhere.lock("a"),
    ):
        waiting = asyncio.create_task(concert.lock("a").acquire(timeout=0.4))
        await in_line(elsewhere.lock("a"), 1)
        proxy.refuse()
        proxy.cut()
        with pytest.raises(AcquireTimeout, match="holders") as caught:
            await waiting
        assert caught.value.__cause__ is None
        await proxy.heal()
