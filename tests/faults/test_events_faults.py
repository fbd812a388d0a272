"""Events, latches and barriers while processes die or stand still, links break and servers forget."""

import asyncio
import time
from collections.abc import Callable, Coroutine

import anyio
import pytest

from inconcert import Barrier, BarrierBroken, Coordinator, Unavailable
from tests.support.cancelling import MOMENTS, Means, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import RealServer

Flow = Callable[[Coordinator, str], Coroutine[object, object, None]]

HERE = "tests.faults.test_events_faults"


async def waiting(barrier: Barrier, number: int) -> None:
    """Return when so many wait."""

    async def so_many() -> bool:
        return await barrier.n_waiting() == number

    await eventually(so_many)


async def listening(concert: Coordinator, channel: str, number: int = 1) -> None:
    """Return when so many processes listen."""

    async def so_many() -> bool:
        [(_, count)] = await raw(concert).pubsub_numsub(channel)
        return bool(count == number)

    await eventually(so_many)


async def broken(task: "asyncio.Task[int]") -> BarrierBroken:
    """Wait for a round to be broken, sooner than by a renewal of the default lease, and return how."""
    with pytest.raises(BarrierBroken) as caught, anyio.fail_after(3):
        await task
    return caught.value


# What children do.


async def take_part(url: str, namespace: str, parties: int, ttl: float) -> None:
    """In a child: wait at the barrier, and tell how that ended."""
    async with Coordinator(url, namespace=namespace) as concert:
        try:
            tell("passed", position=await concert.barrier("epoch", parties, ttl=ttl).wait())
        except BarrierBroken as error:
            tell("broken", holder=error.holder)


# Processes that die or stand still.


async def test_killed_participant_breaks_the_round(concert: Coordinator, server: RealServer, namespace: str) -> None:
    """`kill -9`: those who wait are told who died, within a lease and the time to the next renewal."""
    barrier = concert.barrier("epoch", 3, ttl=0.6)
    tasks = [asyncio.create_task(barrier.wait())]
    await waiting(barrier, 1)
    async with spawn(f"{HERE}:take_part", server.url, namespace, 3, 0.6) as child:
        await waiting(barrier, 2)
        _, dead = await raw(concert).zrange(barrier._terms.keys.order, 0, -1)
        child.kill()
        killed_at = time.monotonic()
        error = await broken(tasks[0])
        assert time.monotonic() - killed_at < 0.6 * 4 / 3 + 1.0
        assert error.holder == dead.decode()


async def test_paused_participant_breaks_the_round_and_is_told_when_it_goes_on(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """SIGSTOP for longer than its lease: it is the dead one itself."""
    barrier = concert.barrier("epoch", 3, ttl=0.5)
    task = asyncio.create_task(barrier.wait())
    await waiting(barrier, 1)
    async with spawn(f"{HERE}:take_part", server.url, namespace, 3, 0.5) as child:
        await waiting(barrier, 2)
        child.pause()
        error = await broken(task)
        child.resume()
        assert (await child.wait_for("broken"))["holder"] == error.holder


async def test_participant_that_was_paused_when_its_round_passed_passes(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """However long it stood still afterwards: the server says so, and not its own clock."""
    barrier = concert.barrier("epoch", 2, ttl=0.5)
    async with spawn(f"{HERE}:take_part", server.url, namespace, 2, 0.5) as child:
        await waiting(barrier, 1)
        child.pause()
        assert await barrier.wait() == 1
        await anyio.sleep(0.6)  # longer than its lease
        child.resume()
        assert (await child.wait_for("passed"))["position"] == 0


# Servers that forget, and links that break.


async def test_participants_learn_that_the_server_forgot_them(own_server: RealServer) -> None:
    """A restart without data breaks the round; a new one can begin at once."""
    async with Coordinator(own_server.url) as concert, Coordinator(own_server.url) as elsewhere:
        tasks = [asyncio.create_task(each.barrier("epoch", 3).wait()) for each in (concert, elsewhere)]
        await waiting(concert.barrier("epoch", 3), 2)
        own_server.restart(empty=True)
        for task in tasks:
            assert (await broken(task)).holder is not None
        places = await asyncio.gather(*(each.barrier("epoch", 2).wait() for each in (concert, elsewhere)))
        assert sorted(places) == [0, 1]


async def test_waiters_go_on_after_a_restart(own_server: RealServer) -> None:
    """With or without data: an event that is set, and a latch that is counted, later on."""
    async with Coordinator(own_server.url) as concert, Coordinator(own_server.url) as elsewhere:
        waiters: list[asyncio.Task[object]] = [
            asyncio.create_task(concert.event("ready").wait()),
            asyncio.create_task(concert.latch("import", 2).wait()),
        ]

        def both_listen() -> bool:
            return len(own_server.command("PUBSUB", "CHANNELS", "inconcert:?:[el]*")) == 2

        await eventually(both_listen)
        for empty in (False, True):
            own_server.restart(empty=empty)
            await eventually(both_listen)
        await elsewhere.event("ready").set()
        await elsewhere.latch("import", 2).count_down(2)
        with anyio.fail_after(10):
            await asyncio.gather(*waiters)


@pytest.mark.parametrize("kinds", [("NORMAL",), ("PUBSUB",), ("NORMAL", "PUBSUB")], ids="+".join)
async def test_nobody_is_forgotten_while_connections_are_killed(own_server: RealServer, kinds: tuple[str, ...]) -> None:
    """Four workers of two processes go through many rounds, in step, and every connection is killed ten times."""
    async with Coordinator(own_server.url) as concert, Coordinator(own_server.url) as elsewhere:
        rounds: list[list[int]] = [[] for _ in range(40)]

        async def work(each: Coordinator) -> None:
            for number in range(40):
                rounds[number].append(await each.barrier("epoch", 4).wait())
                await anyio.sleep(0.01)
                await each.latch(f"latch {number}", 4).count_down()
                await each.latch(f"latch {number}", 4).wait()

        async def kill() -> None:
            for _ in range(10):
                await anyio.sleep(0.03)
                for kind in kinds:
                    own_server.command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "YES")

        with anyio.fail_after(30):
            await asyncio.gather(kill(), *(work(each) for each in (concert, concert, elsewhere, elsewhere)))
        assert [sorted(places) for places in rounds] == [[0, 1, 2, 3]] * 40
        assert await concert.latch("latch 39", 5).remaining() == 1


async def test_waiter_that_missed_the_message_looks_when_it_is_back(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """Each of the three."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(proxy.url, namespace=namespace) as away:
        barrier = concert.barrier("epoch", 2)
        tasks: list[asyncio.Task[object]] = [
            asyncio.create_task(away.event("ready").wait()),
            asyncio.create_task(away.latch("import", 1).wait()),
            asyncio.create_task(away.barrier("epoch", 2).wait()),
        ]
        await waiting(barrier, 1)
        for channel in (concert.event("ready")._changes, concert.latch("import", 1)._changes):
            await listening(concert, channel)
        proxy.refuse()
        proxy.cut()
        for channel in (concert.event("ready")._changes, concert.latch("import", 1)._changes):
            await listening(concert, channel, 0)
        await listening(concert, barrier._terms.changes, 0)
        await concert.event("ready").set()
        await concert.latch("import", 1).count_down()
        assert await barrier.wait() == 1
        await proxy.heal()
        with anyio.fail_after(3):  # sooner than by a renewal
            assert await asyncio.gather(*tasks) == [True, None, 0]


async def test_participant_that_cannot_reach_the_server_is_the_dead_one(own_server: RealServer) -> None:
    """It learns it after its lease and the coordinator's timeout at the latest; the others are told by the server."""
    async with (
        Proxy(own_server.tcp_url) as proxy,
        Coordinator(proxy.url, timeout=0.4) as away,
        Coordinator(own_server.url) as concert,
    ):
        barrier = concert.barrier("epoch", 3, ttl=0.6)
        cut_off = asyncio.create_task(away.barrier("epoch", 3, ttl=0.6).wait())
        await waiting(barrier, 1)
        other = asyncio.create_task(barrier.wait())
        await waiting(barrier, 2)
        proxy.mute()
        began = time.monotonic()
        own = await broken(cut_off)
        assert time.monotonic() - began < 0.6 + 0.4 + 1.0
        assert own.holder == (await broken(other)).holder
        await proxy.heal()


async def test_full_server_lets_one_leave_renew_and_clear_and_refuses_the_rest_whole(own_server: RealServer) -> None:
    """What frees memory or keeps what is there works; what grows is refused, and has changed nothing."""
    async with Coordinator(own_server.url) as concert:
        event, latch, barrier = concert.event("ready"), concert.latch("import", 2), concert.barrier("epoch", 3, ttl=0.6)
        await event.set()
        tasks = [asyncio.create_task(barrier.wait()) for _ in range(2)]
        await waiting(barrier, 2)
        own_server.command("CONFIG", "SET", "maxmemory", "1")
        for grow in (concert.event("other").set, latch.count_down, concert.barrier("other", 2).wait):
            with pytest.raises(Unavailable, match="OOM"):
                await grow()
        assert not await concert.event("other").is_set()
        assert await latch.remaining() == 2
        assert await concert.barrier("other", 2).n_waiting() == 0
        await event.clear()
        assert not await event.is_set()
        tasks[0].cancel()
        await waiting(barrier, 1)
        participants = barrier._terms.keys.participants
        [(_, end)] = await raw(concert).zrange(participants, 0, 0, withscores=True)

        async def is_renewed_beyond_it() -> bool:
            [(_, later)] = await raw(concert).zrange(participants, 0, 0, withscores=True)
            return bool(later > end + 600)

        await eventually(is_renewed_beyond_it)
        await barrier.abort()
        await broken(tasks[1])


# Replies that are lost, and callers that vanish.


@pytest.mark.parametrize("lose_next", [False, True], ids=["after", "instead of"])
async def test_link_may_break_at_any_reply(server: RealServer, namespace: str, lose_next: bool) -> None:
    """Nothing is done twice and nothing is left undone, whichever reply is the last one or the one that is lost."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(server.url, namespace=namespace) as elsewhere:
        number = 0 if lose_next else 1
        while True:
            async with Coordinator(proxy.url, namespace=namespace) as concert:
                proxy.cut_after_replies(number, lose_next=lose_next)
                with anyio.fail_after(10):
                    await flow(concert, elsewhere, f"{number}")
                is_cut = proxy.opened > 3
                proxy.opened = 0
                await proxy.heal()
            if not is_cut:
                break
            number += 1
        assert number > 10


async def flow(concert: Coordinator, elsewhere: Coordinator, name: str) -> None:
    """Everything once, on this side of a bad link, with another process on a good one."""
    waiter = asyncio.create_task(concert.event(name).wait())
    await listening(elsewhere, concert.event(name)._changes)
    await elsewhere.event(name).set()
    await waiter
    await concert.event(name).clear()
    assert not await elsewhere.event(name).is_set()
    await concert.event(name).set()
    assert await elsewhere.event(name).is_set()

    latch = concert.latch(name, 3)
    counts = asyncio.create_task(latch.wait())
    assert await latch.count_down() == 2
    assert await elsewhere.latch(name, 3).count_down() == 1
    assert await latch.count_down() == 0
    await counts
    assert await elsewhere.latch(name, 4).remaining() == 1

    barrier, other = concert.barrier(name, 2), elsewhere.barrier(name, 2)
    first = asyncio.create_task(barrier.wait())
    await waiting(other, 1)
    assert (await other.wait(), await first) == (1, 0)
    second = asyncio.create_task(other.wait())
    await waiting(other, 1)
    assert (await barrier.wait(), await second) == (1, 0)
    third = asyncio.create_task(other.wait())
    await waiting(other, 1)
    await barrier.abort()
    await broken(third)


async def wait_for_event(concert: Coordinator, name: str) -> None:
    """Wait until another sets it."""
    await concert.event(name).wait()


async def set_event(concert: Coordinator, name: str) -> None:
    """Let it pass."""
    await concert.event(name).set()


async def count_and_wait(concert: Coordinator, name: str) -> None:
    """Count for oneself, and wait for another."""
    await concert.latch(name, 2).count_down()
    await concert.latch(name, 2).wait()


async def pass_barrier(concert: Coordinator, name: str) -> None:
    """Wait for each other."""
    async with concert.barrier(name, 2):
        pass


FLOWS = [(wait_for_event, set_event), (count_and_wait, count_and_wait), (pass_barrier, pass_barrier)]


@pytest.mark.parametrize("means", ["task", "scope"])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: str(flow[0].__name__))
async def test_cancelled_at_any_await_leaves_nothing(
    concert: Coordinator, elsewhere: Coordinator, flow: tuple[Flow, Flow], moment: Moment, means: Means
) -> None:
    """Nobody listens and nobody takes part any more, and no round is broken."""
    mine, theirs = flow

    async def is_quiet() -> bool:
        namespace = concert._ref.keys.namespace
        channels = await raw(concert).pubsub_channels(f"{namespace}:*")
        return all(b":inbox:" in channel for channel in channels)

    number = 1
    while True:
        name = f"it {number}"
        other = asyncio.create_task(theirs(elsewhere, name))
        was_cancelled = await cancel_at(number, moment, mine(concert, name), means=means)
        if was_cancelled:
            other.cancel()
        await asyncio.wait([other])
        assert other.cancelled() or other.exception() is None
        await waiting(elsewhere.barrier(name, 2), 0)
        await eventually(is_quiet)
        if not was_cancelled:
            break
        number += 1
    assert number > 1
