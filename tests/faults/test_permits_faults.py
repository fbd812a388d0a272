"""Locks and semaphores while holders die, links break, servers forget and callers vanish at every await."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest
import redis.asyncio

from inconcert import AcquireTimeout, Coordinator, Lease, LeaseLost, NotConnected, OutcomeUnknown
from inconcert._core import permits as permits_module
from inconcert._core import renewal as renewal_module
from inconcert._core.permit_state import PermitState
from inconcert._core.permits import Permits
from inconcert._redis.wire.call import Call
from inconcert._redis.wire.channel import Channel
from tests.support.cancelling import MOMENTS, Means, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.fenced import FencedRegister
from tests.support.inner import channel_of
from tests.support.lines import in_line
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import commands_processed, raw
from tests.support.scripts import scripts_run
from tests.support.servers import RealServer

HERE = "tests.faults.test_permits_faults"


@pytest.fixture
def short_handoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that is handed over begins with 0.3 s instead of 2 s."""
    monkeypatch.setattr(permits_module, "_HANDOFF", 0.3)


async def wait_long(concert: Coordinator, permits: Permits[Lease]) -> None:
    """Let all in line have joined a minute ago: the server cannot know whether they still run."""
    waiters = permits._keys.waiters
    for place, ticket in await raw(concert).zrange(waiters, 0, -1, withscores=True):
        await raw(concert).zadd(waiters, {place: ticket - 60_000_000})


async def is_free(permits: Permits[Lease]) -> bool:
    """Whether nobody holds it and nobody waits."""
    return await permits.holders() == [] and await permits.waiters() == 0


# What children do.


async def hold(url: str, namespace: str, ttl: float) -> None:
    """In a child: hold the lock, and say so."""
    async with Coordinator(url, namespace=namespace) as concert, concert.lock("door", ttl=ttl) as lease:
        tell("held", token=lease.fencing_token)
        await anyio.sleep_forever()


async def hold_and_write(url: str, namespace: str, ttl: float) -> None:
    """In a child: hold the lock, and write to what it protects even after it was lost."""
    register = FencedRegister(url, namespace)
    async with Coordinator(url, namespace=namespace) as concert:
        try:
            async with concert.lock("door", ttl=ttl) as lease:
                assert register.write(lease.fencing_token, "before")
                tell("held")
                try:
                    await anyio.sleep_forever()
                except BaseException as error:
                    accepted = register.write(lease.fencing_token, "too late")
                    tell("stopped", by=type(error).__name__, accepted=accepted)
                    raise
        except LeaseLost:
            tell("lost")


async def stand_in_line(url: str, namespace: str) -> None:
    """In a child: wait for the lock, with a short hand-off."""
    permits_module._HANDOFF = 0.3
    async with Coordinator(url, namespace=namespace) as concert:
        tell("waits")
        async with concert.lock("door"):
            tell("held")
            await anyio.sleep_forever()


async def stand_in_line_as_many(url: str, namespace: str, count: int) -> None:
    """In a child: wait for the lock as so many tasks, with a short hand-off."""
    permits_module._HANDOFF = 0.3

    async def stand(number: int) -> None:
        async with concert.lock("door"):
            tell("held", number=number)

    async with Coordinator(url, namespace=namespace) as concert:
        await asyncio.gather(*(stand(number) for number in range(count)))


# Processes that die or stand still.


async def test_waiter_gets_in_within_the_lease_of_a_killed_holder(concert: Coordinator, server: RealServer) -> None:
    """`kill -9`: nobody tells the waiter."""
    lock = concert.lock("door")
    async with spawn(f"{HERE}:hold", server.url, concert._ref.keys.namespace, 0.8, fresh=True) as child:
        held = await child.wait_for("held")
        waiter = asyncio.create_task(lock.acquire())
        await in_line(lock, 1)
        child.kill()
        killed_at = time.monotonic()
        lease = await waiter
        assert time.monotonic() - killed_at < 0.8 + 1.0
        assert lease.fencing_token > held["token"]
        await lease.release()


async def test_killed_holder_is_known_long_after_its_lease(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """Nobody was in line: the next holder is told of the loss, and the one after it is not."""
    lock = concert.lock("door")
    async with spawn(f"{HERE}:hold", server.url, namespace, 0.2) as child:
        await child.wait_for("held")
        child.kill()

    async def has_lapsed() -> bool:
        return await lock.holders() == []

    await eventually(has_lapsed, timeout=10)
    async with lock as lease:
        assert lease.previous_lost
    async with lock as lease:
        assert not lease.previous_lost


async def test_next_waiter_is_served_at_once_when_the_first_was_killed(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """The release finds out that nobody listens there any more, in the same step."""
    lock = concert.lock("door")
    lease = await lock.acquire()
    async with spawn(f"{HERE}:stand_in_line", server.url, namespace) as child:
        await in_line(lock, 1)
        waiter = asyncio.create_task(lock.acquire())
        await in_line(lock, 2)
        child.kill()

        async def one_inbox() -> bool:
            return len(await raw(concert).pubsub_channels(f"{namespace}:*:inbox:*")) == 1

        await eventually(one_inbox)
        released_at = time.monotonic()
        await lease.release()
        await (await waiter).release()
        assert time.monotonic() - released_at < 1.0  # a lease that is handed over lives for 2 s


async def test_paused_holder_is_told_when_it_goes_on_and_its_late_write_is_refused(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """SIGSTOP for longer than the lease: its body is cancelled, and the fencing token is too low."""
    register = FencedRegister(server.url, namespace)
    async with spawn(f"{HERE}:hold_and_write", server.url, namespace, 0.5) as child:
        await child.wait_for("held")
        child.pause()
        async with concert.lock("door", timeout=5) as lease:
            assert lease.previous_lost
            assert register.write(lease.fencing_token, "after")
            child.resume()
            stopped = await child.wait_for("stopped")
            assert (stopped["by"], stopped["accepted"]) == ("CancelledError", False)
            await child.wait_for("lost")
        assert register.read() == "after"
        assert [accepted for _, accepted in register.log()] == [True, True, False]
        register.close()


async def test_paused_waiter_holds_up_the_line_for_the_handoff_only(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """It was granted a short lease that it cannot extend; then the next one gets in."""
    lock = concert.lock("door")
    lease = await lock.acquire()
    async with spawn(f"{HERE}:stand_in_line", server.url, namespace) as child:
        await in_line(lock, 1)
        waiter = asyncio.create_task(lock.acquire())
        await in_line(lock, 2)
        child.pause()
        await wait_long(concert, lock)
        await lease.release()
        released_at = time.monotonic()
        lease = await waiter
        assert 0.1 < time.monotonic() - released_at < 1.8
        child.resume()
        await in_line(lock, 1)  # it has its place back, and nothing else
        await lease.release()
        await child.wait_for("held")


async def test_paused_process_holds_up_the_line_once_however_many_of_it_wait(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """Its other places are passed over with the first, and it has them back when it goes on."""
    lock = concert.lock("door")
    lease = await lock.acquire()
    async with spawn(f"{HERE}:stand_in_line_as_many", server.url, namespace, 5) as child:
        await in_line(lock, 5)
        waiter = asyncio.create_task(lock.acquire())
        await in_line(lock, 6)
        child.pause()
        await wait_long(concert, lock)
        await lease.release()
        released_at = time.monotonic()
        lease = await waiter
        assert 0.1 < time.monotonic() - released_at < 1.2  # not five times 0.3 s
        last = asyncio.create_task(lock.acquire())
        child.resume()
        await in_line(lock, 6)
        await lease.release()
        for number in range(5):
            assert (await child.wait_for("held"))["number"] == number
        await (await last).release()


async def test_paused_waiter_holds_up_those_behind_a_dead_one_no_longer(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """Whoever is next and alive is told when to look, also when the one before it has died in line."""
    lock = concert.lock("door")
    lease = await lock.acquire()
    async with spawn(f"{HERE}:stand_in_line", server.url, namespace) as child:
        await in_line(lock, 1)
        waiters = lock._keys.waiters
        [(_, ticket)] = await raw(concert).zrange(waiters, 0, 0, withscores=True)
        await raw(concert).zadd(waiters, {"1:2000:30000 dead.1": ticket + 1})
        async with Coordinator(server.url, namespace=namespace) as elsewhere:
            waiter = asyncio.create_task(elsewhere.lock("door").acquire())
            await in_line(lock, 3)
            child.pause()
            await wait_long(concert, lock)
            await lease.release()
            with anyio.fail_after(2):
                await (await waiter).release()
        child.resume()
        await child.wait_for("held")


async def test_paused_server_loses_nobody(own_server: RealServer) -> None:
    """Standing still for longer than a connection is believed in, and shorter than the leases."""
    async with Coordinator(own_server.url, timeout=1.0) as concert:
        lock = concert.lock("door")
        lease = await lock.acquire()
        waiter = asyncio.create_task(lock.acquire())
        await in_line(lock, 1)
        own_server.pause()
        release = asyncio.create_task(lease.release())
        link = channel_of(concert._ref.session)._link
        await eventually(lambda: link.last_error is not None)
        own_server.resume()
        with anyio.fail_after(3):
            await release
            await (await waiter).release()
        assert await is_free(lock)


# Event loops that stand still.


@pytest.mark.parametrize("awaits", [True, False])
async def test_body_that_blocked_the_loop_for_longer_than_its_lease_has_lost_it(
    concert: Coordinator, awaits: bool
) -> None:
    """It is stopped at its next await, or told at its end."""
    went_on = False

    async def block() -> None:
        nonlocal went_on
        async with concert.lock("door", ttl=0.1):
            time.sleep(0.15)
            if awaits:
                await anyio.sleep(0.1)
                went_on = True

    with pytest.raises(LeaseLost):
        await block()
    assert not went_on


async def test_waiter_whose_loop_was_blocked_after_its_grant_asks_again(
    concert: Coordinator, elsewhere: Coordinator, short_handoff: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was granted has lapsed meanwhile, so it stands in line again, and others in its line go on, too."""
    hear = permits_module._Attempt.on_message
    blocked = 0

    def hear_and_block(attempt: Any, text: str) -> None:
        nonlocal blocked
        hear(attempt, text)
        if blocked == 0 and attempt.done():
            blocked = 1
            time.sleep(0.4)

    lease = await elsewhere.lock("door").acquire()
    first, second = (asyncio.create_task(concert.lock("door").acquire()) for _ in range(2))
    await in_line(elsewhere.lock("door"), 2)
    third = asyncio.create_task(elsewhere.lock("door").acquire())
    await in_line(elsewhere.lock("door"), 3)
    monkeypatch.setattr(permits_module._Attempt, "on_message", hear_and_block)
    await lease.release()
    with anyio.fail_after(5):
        for task in (first, second, third):
            lease = await task
            assert not lease.is_lost
            assert await elsewhere.lock("door").holders() == [lease.holder]
            await lease.release()
    assert blocked


async def test_hint_that_came_before_the_reply_is_followed_once(
    concert: Coordinator,
    elsewhere: Coordinator,
    short_handoff: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A waiter does not ask again and again because of a time that has long passed."""
    answered = permits_module._Attempt.answered

    def late(attempt: Any, reply: Any) -> None:
        asyncio.get_running_loop().call_later(0.1, answered, attempt, reply)

    lock = concert.lock("door")
    lease = await lock.acquire()
    first = asyncio.create_task(elsewhere.lock("door").acquire())
    await in_line(lock, 1)
    monkeypatch.setattr(permits_module._Attempt, "answered", late)
    second = asyncio.create_task(elsewhere.lock("door").acquire())
    await in_line(lock, 2)
    await lease.release()  # the first has it, and the second is told how long that may last
    lease = await first
    await anyio.sleep(0.4)
    before = await commands_processed(concert)
    await anyio.sleep(0.2)
    assert await commands_processed(concert) - before < 5
    await lease.release()
    await (await second).release()


# Servers that forget.


async def test_holder_learns_that_the_server_forgot_it(own_server: RealServer) -> None:
    """Within a third of its ttl; until then two believe that they hold, and the newer one's token is higher."""
    async with Coordinator(own_server.url) as concert, Coordinator(own_server.url) as elsewhere:
        old = await concert.lock("door", ttl=3).acquire()
        own_server.restart(empty=True)
        new = await elsewhere.lock("door", ttl=3).acquire()
        assert new.fencing_token > old.fencing_token
        with anyio.fail_after(3 / 3 + 1):
            await old.lost()
        with pytest.raises(LeaseLost):
            await old.release()
        assert await elsewhere.lock("door").holders() == [new.holder]
        await new.release()


async def test_holder_keeps_what_an_orderly_restart_has_kept(own_server: RealServer) -> None:
    """A server that comes back with its data comes back with the leases."""
    async with Coordinator(own_server.url) as concert:
        lock = concert.lock("door", ttl=20)
        lease = await lock.acquire()
        own_server.restart(empty=False)
        await lease.renew()
        assert await lock.holders() == [lease.holder]
        await lease.release()


async def test_waiters_whom_the_server_forgot_get_in(own_server: RealServer) -> None:
    """All of them, of all processes, when the lease that they wait for should have ended."""
    async with Coordinator(own_server.url) as concert, Coordinator(own_server.url) as elsewhere:
        lease = await concert.lock("door", ttl=0.6).acquire()
        inside = 0

        async def visit(lock: Permits[Lease]) -> None:
            nonlocal inside
            async with lock:
                inside += 1
                assert inside == 1
                await anyio.sleep(0)
                inside -= 1

        tasks = [
            asyncio.create_task(visit(each.lock("door", ttl=5))) for each in (concert, elsewhere) for _ in range(5)
        ]
        await in_line(concert.lock("door"), 10)
        own_server.command("FLUSHALL")
        with anyio.fail_after(2):
            await asyncio.gather(*tasks)
        assert lease.is_lost
        assert await is_free(concert.lock("door"))


# Links that break.


async def test_nobody_is_lost_and_never_too_many_are_inside_while_connections_are_killed(
    own_server: RealServer,
) -> None:
    """Forty visitors of two processes, three at a time, and every connection is killed ten times."""
    async with Coordinator(own_server.url) as concert, Coordinator(own_server.url) as elsewhere:
        inside = most = served = 0

        async def visit(each: Coordinator) -> None:
            nonlocal inside, most, served
            async with each.semaphore("door", limit=3):
                inside += 1
                most = max(most, inside)
                await anyio.sleep(0.005)
                inside -= 1
                served += 1

        async def kill() -> None:
            for _ in range(10):
                await anyio.sleep(0.03)
                for kind in ("NORMAL", "PUBSUB"):
                    own_server.command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "YES")

        with anyio.fail_after(20):
            await asyncio.gather(kill(), *(visit(each) for each in (concert, elsewhere) for _ in range(20)))
        assert (served, inside) == (40, 0)
        assert most == 3
        assert await is_free(concert.semaphore("door", limit=3))


@pytest.mark.parametrize("lose_next", [False, True], ids=["after", "instead of"])
async def test_link_may_break_at_any_reply(server: RealServer, namespace: str, lose_next: bool) -> None:
    """Acquire, wait and release all come to their end, whichever reply is the last one or the one that is lost."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(server.url, namespace=namespace) as elsewhere:
        number = 0 if lose_next else 1
        while True:
            async with Coordinator(proxy.url, namespace=namespace) as concert:
                lock = concert.lock("door")
                seen = proxy.replies
                proxy.cut_after_replies(number, lose_next=lose_next)
                with anyio.fail_after(5):
                    tokens = await flow(lock, elsewhere.lock("door"))
                assert tokens == sorted(set(tokens))
                assert await is_free(lock)
                is_cut = proxy.opened > 2
                proxy.opened = 0
                await proxy.heal()
            if not is_cut:
                break
            number += 1
        assert number > 5, proxy.replies - seen


async def test_message_that_is_missed_before_the_reply_is_not_missed_for_good(
    server: RealServer, namespace: str
) -> None:
    """The process was passed over while it listened to nothing, and hears that it is in line only afterwards."""
    async with (
        Proxy(server.tcp_url) as proxy,
        Coordinator(server.url, namespace=namespace) as elsewhere,
        Coordinator(proxy.url, namespace=namespace) as concert,
    ):
        held = await elsewhere.lock("door", ttl=30).acquire()
        proxy.hold_replies()
        waiter = asyncio.create_task(concert.lock("door").acquire())
        await in_line(elsewhere.lock("door"), 1)
        await raw(elsewhere).delete(elsewhere.lock("door")._keys.waiters)
        concert._ref.session.inbox.missed()
        proxy.release_replies()
        await in_line(elsewhere.lock("door"), 1)
        await held.release()
        with anyio.fail_after(5):
            await (await waiter).release()


async def test_waiter_whose_recheck_failed_asks_again(
    concert: Coordinator, elsewhere: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is under way for it any more, so the next recheck does not wait for a reply."""

    def fail(_: Channel, call: Call) -> None:
        call.failed(OutcomeUnknown("no reply"))

    held = await elsewhere.lock("door").acquire()
    waiter = asyncio.create_task(concert.lock("door").acquire())
    await in_line(elsewhere.lock("door"), 1)
    with monkeypatch.context() as patch:
        patch.setattr(Channel, "submit", fail)
        concert._ref.session.inbox.missed()
    await raw(elsewhere).delete(elsewhere.lock("door")._keys.waiters)
    concert._ref.session.inbox.missed()
    await in_line(elsewhere.lock("door"), 1)
    await held.release()
    with anyio.fail_after(5):
        await (await waiter).release()


async def flow(lock: Permits[Lease], other: Permits[Lease]) -> list[int]:
    """Take it free, wait for it, hand it to the other process and within one's own; return all tokens in order."""
    tokens: list[int] = []
    async with lock as lease:
        tokens.append(lease.fencing_token)
        await lease.renew()
    lease = await other.acquire()
    tokens.append(lease.fencing_token)
    waiter = asyncio.create_task(lock.acquire())
    await in_line(other, 1)
    await lease.release()
    lease = await waiter
    tokens.append(lease.fencing_token)
    for each in (lock, other):
        waiter = asyncio.create_task(each.acquire())
        await in_line(other, 1)
        await lease.release()
        lease = await waiter
        tokens.append(lease.fencing_token)
    await lease.release()
    return tokens


async def test_waiter_that_was_out_of_reach_at_its_turn_has_its_place_back(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """It was passed over once, and is the next when it is back."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(proxy.url, namespace=namespace) as elsewhere:
        lock = concert.lock("door")
        lease = await lock.acquire()
        first = asyncio.create_task(elsewhere.lock("door").acquire())
        await in_line(lock, 1)
        others = [asyncio.create_task(lock.acquire())]
        await in_line(lock, 2)
        others.append(asyncio.create_task(lock.acquire()))
        await in_line(lock, 3)
        proxy.refuse()
        proxy.cut()

        async def one_inbox() -> bool:
            return len(await raw(concert).pubsub_channels(f"{namespace}:*:inbox:*")) == 1

        await eventually(one_inbox)
        await lease.release()
        lease = await others[0]
        await proxy.heal()
        await in_line(lock, 2)
        await lease.release()
        lease = await first
        assert not others[1].done()
        await lease.release()
        await (await others[1]).release()


async def test_lease_outlives_a_link_that_is_down_for_less(
    own_server: RealServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A renewal that failed is tried again until one succeeds."""
    async with Proxy(own_server.tcp_url) as proxy, Coordinator(proxy.url, timeout=0.5) as concert:
        lock = concert.lock("door", ttl=3)
        async with lock as lease:
            proxy.mute()
            await eventually(lambda: "could not be renewed yet" in caplog.text)
            await proxy.heal()
            await eventually(lambda: lease.remaining > 2.4)
        assert await is_free(lock)


async def test_blocked_event_loop_is_told_of_when_a_renewal_is_late(
    concert: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, and not if it was blocked for a moment; the record names the lock in a field."""
    lock = concert.lock("door", ttl=1.5)
    async with lock as lease:
        time.sleep(0.2)
        await asyncio.sleep(0)
        assert caplog.records == []
        time.sleep(0.7)
        await eventually(lambda: bool(caplog.records))
        await eventually(lambda: lease.remaining > 1.2)
    [told] = caplog.records
    assert "s late: the event loop stood still" in told.getMessage()
    assert vars(told)["lock"] == "door"


async def test_lease_is_lost_before_the_server_gives_it_to_another(own_server: RealServer) -> None:
    """When the server is out of reach, its holder stops by its own clock, and first."""
    async with (
        Proxy(own_server.tcp_url) as proxy,
        Coordinator(proxy.url, timeout=0.4) as concert,
        Coordinator(own_server.url) as elsewhere,
    ):
        stopped_at = 0.0

        async def body() -> None:
            nonlocal stopped_at
            try:
                async with concert.lock("door", ttl=0.6):
                    entered.set()
                    await anyio.sleep_forever()
            except LeaseLost:
                stopped_at = time.monotonic()

        entered = asyncio.Event()
        task = asyncio.create_task(body())
        await entered.wait()
        proxy.mute()
        lease = await elsewhere.lock("door").acquire()
        entered_at = time.monotonic()
        assert stopped_at
        assert stopped_at <= entered_at
        await task
        await lease.release()
        await proxy.heal()


async def test_release_that_cannot_be_confirmed_is_no_error_of_the_body(own_server: RealServer) -> None:
    """The body ended in time; the lease lapses by itself."""
    async with Proxy(own_server.tcp_url) as proxy, Coordinator(proxy.url, timeout=0.5) as concert:
        async with concert.lock("door", ttl=20):
            proxy.mute()
        await proxy.heal()


async def test_body_s_error_wins_over_a_release_that_cannot_be_confirmed(own_server: RealServer) -> None:
    """It is what the caller gets, itself."""
    error = RuntimeError("the body's own")

    async def fail() -> None:
        async with concert.lock("door", ttl=20):
            proxy.mute()
            raise error

    async with Proxy(own_server.tcp_url) as proxy, Coordinator(proxy.url, timeout=0.5) as concert:
        with pytest.raises(RuntimeError) as caught:
            await fail()
        assert caught.value is error
        await proxy.heal()


async def test_release_whose_first_reply_was_lost_is_a_success(server: RealServer, namespace: str) -> None:
    """The second finds nothing, for the first one worked."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(proxy.url, namespace=namespace) as concert:
        lease = await concert.lock("door").acquire()
        proxy.cut_after_replies(0, lose_next=True)
        await lease.release()
        assert proxy.opened > 2
        assert await is_free(concert.lock("door"))


async def test_acquire_on_a_mute_link_keeps_its_timeout(own_server: RealServer) -> None:
    """`AcquireTimeout`, and what the server may have granted is given back when it can be."""
    async with Proxy(own_server.tcp_url) as proxy, Coordinator(proxy.url, timeout=2.0) as concert:
        lock = concert.lock("door")
        assert await is_free(lock)
        proxy.hold_replies()
        began = time.monotonic()
        with pytest.raises(AcquireTimeout):
            await lock.acquire(timeout=0.1)
        assert time.monotonic() - began < 1.0
        proxy.release_replies()
        await eventually(lambda: is_free(lock))


# Callers that vanish.


async def visit(lock: Permits[Lease]) -> None:
    """The whole of it."""
    async with lock:
        await anyio.sleep(0)
        await anyio.sleep(0)


async def acquire_and_release(lock: Permits[Lease]) -> None:
    """By the verbs; a lease that was got is given back, whatever happens."""
    lease = await lock.acquire()
    await lease.release()


async def acquire_for_a_time(lock: Permits[Lease]) -> None:
    """With a timeout."""
    lease = await lock.acquire(timeout=20)
    await lease.release()


async def fail_inside(lock: Permits[Lease]) -> None:
    """The body has an error of its own."""
    with pytest.raises(RuntimeError):
        async with lock:
            raise RuntimeError("the body's own")


@pytest.mark.parametrize("how", [(moment, means) for moment in MOMENTS for means in ("task", "scope")], ids=" by ".join)
@pytest.mark.parametrize("story", [visit, acquire_and_release, acquire_for_a_time, fail_inside])
@pytest.mark.parametrize("is_held", [False, True], ids=["free", "held"])
async def test_cancellation_at_any_await_leaves_nothing(
    concert: Coordinator,
    elsewhere: Coordinator,
    is_held: bool,
    story: Callable[[Permits[Lease]], Coroutine[Any, Any, None]],
    how: tuple[Moment, Means],
) -> None:
    """No holder and no waiter, and who comes next is served at once."""
    lock, other = concert.lock("door"), elsewhere.lock("door")

    async def cancel_once(number: int) -> bool:
        lease = await other.acquire(timeout=1) if is_held else None
        victim = asyncio.create_task(cancel_at(number, how[0], story(lock), means=how[1]))
        await eventually(lambda: not is_held or victim.done() or _stands_in_line(concert))
        follower = asyncio.create_task(acquire_and_release(other))
        if lease is not None:
            await eventually(lambda: follower.done() or _stands_in_line(elsewhere))
            await lease.release()
        with anyio.fail_after(1.8):  # less than the life of a lease that is handed over
            await follower
            return await victim

    number = 1
    while await cancel_once(number):
        await eventually(lambda: is_free(lock))
        number += 1
    assert number > 2


def _stands_in_line(concert: Coordinator) -> bool:
    return bool(concert._ref.session.lines._lines)


async def test_closing_at_any_await_of_an_acquire_leaves_nothing(server: RealServer, namespace: str) -> None:
    """A coordinator that closes around its waiters takes them with it."""
    async with Coordinator(server.url, namespace=namespace) as elsewhere:
        for turns in range(12):
            lease = await elsewhere.lock("door").acquire(timeout=1)
            async with Coordinator(server.url, namespace=namespace) as concert:
                waiter = asyncio.create_task(concert.lock("door").acquire())
                for _ in range(turns):
                    await anyio.sleep(0)
                release = asyncio.create_task(lease.release())
                for _ in range(turns % 3):
                    await anyio.sleep(0)
            assert isinstance((await asyncio.gather(waiter, return_exceptions=True))[0], NotConnected | Lease)
            await release
            assert await is_free(elsewhere.lock("door"))


# Cost.


async def test_two_thousand_waiters_use_few_connections_and_are_served_in_order(own_server: RealServer) -> None:
    """However many wait for one name."""
    async with Coordinator(own_server.url) as concert:
        lock = concert.lock("door")
        served: list[int] = []

        async def wait(number: int) -> None:
            async with lock:
                served.append(number)

        async with lock:
            tasks = [asyncio.create_task(wait(number)) for number in range(2000)]
            await in_line(lock, 2000)
            assert len(str(own_server.command("CLIENT", "LIST")).splitlines()) <= 8
        await asyncio.gather(*tasks)
        assert served == list(range(2000))
        assert await is_free(lock)


async def test_those_who_wait_send_nothing(own_server: RealServer) -> None:
    """Fifty in line, and for as long as nothing happens the server is left alone."""
    async with Coordinator(own_server.url) as concert, Coordinator(own_server.url) as elsewhere:
        lease = await concert.lock("door").acquire()
        tasks = [
            asyncio.create_task(each.lock("door").acquire(timeout=60))
            for each in (concert, elsewhere)
            for _ in range(25)
        ]
        await in_line(concert.lock("door"), 50)
        before = await commands_processed(concert)
        await anyio.sleep(0.5)
        assert await commands_processed(concert) == before + 1
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await lease.release()
        await eventually(lambda: is_free(concert.lock("door")))


async def test_handing_over_costs_one_command_and_no_message_within_a_process(own_server: RealServer) -> None:
    """The release's own answer has the grant."""
    async with Coordinator(own_server.url) as concert:
        lock = concert.lock("door")
        lease = await lock.acquire()
        waiters = [asyncio.create_task(lock.acquire()) for _ in range(10)]
        await in_line(lock, 10)
        before = own_server.command("INFO", "commandstats")
        for waiter in waiters:
            await lease.release()
            lease = await waiter
        after = own_server.command("INFO", "commandstats")
        await lease.release()

        def calls(info: dict[str, Any], name: str) -> int:
            return int(info.get(f"cmdstat_{name}", {}).get("calls", 0))

        assert scripts_run(after) - scripts_run(before) == 10
        assert calls(after, "publish") == calls(before, "publish")


async def test_many_leases_are_renewed_together(concert: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred, taken one after the other, in one go."""
    together: list[int] = []
    look, start = renewal_module.Renewal._tick, PermitState.start_renewal

    def counted_look(renewal: Any) -> None:
        together.append(0)
        look(renewal)

    def counted_start(lease: Any) -> None:
        together[-1] += 1
        start(lease)

    monkeypatch.setattr(renewal_module.Renewal, "_tick", counted_look)
    monkeypatch.setattr(PermitState, "start_renewal", counted_start)
    leases = [await concert.lock(f"door {number}", ttl=6).acquire() for number in range(200)]
    ends = [lease._state.deadline for lease in leases]
    before = (await raw(concert).info("commandstats"))["cmdstat_evalsha"]["calls"]
    await eventually(lambda: all(lease._state.deadline > end for lease, end in zip(leases, ends, strict=True)))
    assert [number for number in together if number] == [200]
    assert (await raw(concert).info("commandstats"))["cmdstat_evalsha"]["calls"] - before < 3
    await asyncio.gather(*(lease.release() for lease in leases))


async def test_lease_that_is_renewed_with_others_harms_none(any_concert: Coordinator) -> None:
    """One has lapsed, and the key of another holds something that is not ours."""
    lapsed, foreign, kept, released = [await any_concert.lock(name, ttl=9).acquire() for name in "lfkr"]
    states = [lease._state for lease in (lapsed, foreign, kept, released)]
    await raw(any_concert).delete(states[0].keys.holders, states[1].keys.holders)
    await raw(any_concert).set(states[1].keys.holders, "x")
    ends = [state.deadline for state in states]
    for state in states:
        state.start_renewal()
    await released.release()
    await eventually(lambda: kept._state.deadline > ends[2] and lapsed.is_lost)
    assert not foreign.is_lost
    await eventually(lambda: states[1].renew_at < states[1].deadline)  # it will be tried again
    await raw(any_concert).delete(states[1].keys.holders)
    states[1].start_renewal()
    await eventually(lambda: foreign.is_lost)
    await kept.release()


# Opening and closing.


def test_coordinator_may_be_used_on_one_event_loop_after_the_other(server: RealServer, namespace: str) -> None:
    """Opened anew on each; the locks that it made stay good."""
    concert = Coordinator(server.url, namespace=namespace)
    lock = concert.lock("door")

    async def use() -> None:
        async with concert:
            waiter = asyncio.create_task(visit(lock))
            await visit(lock)
            await waiter

    for _ in range(3):
        asyncio.run(use())


async def test_coordinator_is_not_connected_on_another_event_loop(concert: Coordinator) -> None:
    """It says so, instead of doing harm."""
    caught: list[BaseException] = []

    def use() -> None:
        try:
            asyncio.run(visit(concert.lock("door")))
        except NotConnected as error:
            caught.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert "another event loop" in str(caught[0])


async def test_coordinator_may_be_opened_in_one_task_and_closed_in_another(server: RealServer, namespace: str) -> None:
    """As web frameworks do."""
    concert = Coordinator(server.url, namespace=namespace)
    await asyncio.create_task(concert.__aenter__())
    await asyncio.create_task(visit(concert.lock("door")))
    await asyncio.create_task(concert.__aexit__(None, None, None))
    with pytest.raises(NotConnected):
        await concert.lock("door").acquire()


async def test_coordinator_may_be_opened_again(server: RealServer, namespace: str) -> None:
    """With the locks that it made before; a lease of the time before is released."""
    concert = Coordinator(server.url, namespace=namespace)
    lock = concert.lock("door")
    for _ in range(3):
        async with concert:
            assert await is_free(lock)
            lease = await lock.acquire()
        assert (lease.is_lost, lease.remaining) == (False, 0)


async def test_open_coordinator_is_not_opened_twice(concert: Coordinator) -> None:
    """It says so, and goes on working."""
    with pytest.raises(RuntimeError, match="cannot be opened twice"):
        await concert.__aenter__()
    await visit(concert.lock("door"))


async def test_client_of_the_user_s_may_be_used_beside_it(server: RealServer, namespace: str) -> None:
    """By `redis`, the coordinator's own connections are left alone."""
    async with Coordinator(server.url, namespace=namespace) as concert:
        assert isinstance(raw(concert), redis.asyncio.Redis)
        async with concert.lock("door") as lease:
            assert await raw(concert).zscore(concert.lock("door")._keys.holders, lease.holder)
    with pytest.raises(NotConnected):
        _ = concert.redis
