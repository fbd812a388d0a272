"""A server that refuses a release for a moment, as one does whose replica is away: nothing stays held by nobody."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import Any

import anyio
import pytest
import redis.asyncio

from inconcert import Coordinator, LeaseLost, NotClaimed, NotHeld, QuorumLock, QuorumNotReached, Unavailable, wait_all
from inconcert._redis.wire.call import Call
from inconcert.quorum import rounds
from tests.support.eventually import eventually
from tests.support.servers import RealServer

TTL = 10.0  # seconds; a release is repeated after a tenth of it
SOON = 6.0  # seconds, in which the next one has it: well before it would lapse

Acquire = Callable[[Coordinator], Awaitable[Any]]

KINDS: dict[str, Acquire] = {
    "lock": lambda concert: concert.lock("a", ttl=TTL).acquire(),
    "semaphore": lambda concert: concert.semaphore("a", limit=1, ttl=TTL).acquire(),
    "reader": lambda concert: concert.rwlock("a", ttl=TTL).read().acquire(),
    "writer": lambda concert: concert.rwlock("a", ttl=TTL).write().acquire(),
    "election": lambda concert: concert.election("a", ttl=TTL).acquire(),
    "locks": lambda concert: concert.locks("a", "b", ttl=TTL).acquire(),
    "members": lambda concert: concert.members("a", ttl=TTL).join(),
}


@pytest.fixture
async def concert(own_server: RealServer) -> AsyncIterator[Coordinator]:
    """On a server whose replica can be taken away."""
    async with Coordinator(own_server.url) as concert:
        yield concert


@pytest.fixture
async def other(own_server: RealServer) -> AsyncIterator[Coordinator]:
    """As another process sees it."""
    async with Coordinator(own_server.url) as other:
        yield other


def refuse(server: RealServer, *, writes: bool) -> None:
    """Whether the server refuses writes, as if its replica were away."""
    server.command("CONFIG", "SET", "min-replicas-to-write", int(writes))


@pytest.mark.parametrize("kind", KINDS)
async def test_release_that_was_refused_can_be_tried_again(
    concert: Coordinator, own_server: RealServer, kind: str
) -> None:
    """As its error says; then it is released, and a third release says so."""
    lease = await KINDS[kind](concert)
    refuse(own_server, writes=True)
    for _ in range(2):
        with pytest.raises(Unavailable, match="NOREPLICAS"):
            await lease.release()
    refuse(own_server, writes=False)
    await lease.release()
    with pytest.raises(NotHeld):
        await lease.release()
    with anyio.fail_after(SOON):
        await (await KINDS[kind](concert)).release()


@pytest.mark.parametrize("kind", KINDS)
async def test_release_that_was_refused_is_repeated(
    concert: Coordinator, own_server: RealServer, other: Coordinator, kind: str
) -> None:
    """Also if nothing refers to the lease any more; and a caller that tries again hears that it is released."""
    lease = await KINDS[kind](concert)
    states = [each._state for each in lease.values()] if kind == "locks" else [lease._state]
    refuse(own_server, writes=True)
    with pytest.raises(Unavailable):
        await lease.release()
    refuse(own_server, writes=False)

    async def is_known() -> bool:
        return all(state._unconfirmed._outcome is True for state in states)

    await eventually(is_known, timeout=SOON)
    await lease.release()
    with pytest.raises(NotHeld):
        await lease.release()
    if kind == "members":
        assert await other.members("a").list() == {}


@pytest.mark.parametrize("kind", ["lock", "semaphore"])
async def test_lease_of_a_body_is_released_soon_after_a_refusal(
    concert: Coordinator, own_server: RealServer, other: Coordinator, kind: str
) -> None:
    """The body has ended well, and nothing refers to its lease."""
    make: dict[str, Callable[[Coordinator], Any]] = {
        "lock": lambda concert: concert.lock("a", ttl=TTL, timeout=SOON),
        "semaphore": lambda concert: concert.semaphore("a", limit=1, ttl=TTL, timeout=SOON),
    }
    async with make[kind](concert):
        refuse(own_server, writes=True)
    gc.collect()
    refuse(own_server, writes=False)
    async with make[kind](other):
        pass


async def cancelled_once_granted(
    concert: Coordinator, server: RealServer, monkeypatch: pytest.MonkeyPatch, acquire: Acquire, *, key: str = ""
) -> None:
    """Acquire, and be cancelled while the grant is on its way here; then the server refuses to take it back.

    The server knows the scripts, and has this key, or the first one of the call, once it has granted it.
    """
    channel = concert._ref.session.channel
    submit, asked = channel.submit, list[Call]()

    def watched(call: Call) -> None:
        if call.command.script.name.endswith(("/acquire", "/join", "/fetch", "/take")):
            asked.append(call)
        submit(call)

    monkeypatch.setattr(channel, "submit", watched)
    task = asyncio.ensure_future(acquire(concert))
    while not (asked and asked[0].sends):
        await asyncio.sleep(0)
    deadline = time.monotonic() + SOON
    while not server.command("EXISTS", key or asked[0].key):  # the loop is blocked, and does not read the grant
        assert time.monotonic() < deadline
    refuse(server, writes=True)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await eventually(lambda: concert._ref.session.renewal.is_needed)
    refuse(server, writes=False)


@pytest.mark.parametrize("kind", KINDS)
async def test_grant_to_a_caller_that_has_gone_is_given_back_after_a_refusal(
    concert: Coordinator, own_server: RealServer, other: Coordinator, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Nobody has it; the next one does not wait until it would lapse, and nothing is repeated any more."""
    await (await KINDS[kind](concert)).release()
    await cancelled_once_granted(concert, own_server, monkeypatch, KINDS[kind])
    if kind == "members":
        members = other.members("a")

        async def is_alone() -> bool:
            return await members.list() == {}

        await eventually(is_alone, timeout=SOON)
    else:
        with anyio.fail_after(SOON):
            await (await KINDS[kind](other)).release()
    await eventually(lambda: not concert._ref.session.renewal.is_needed)


@pytest.mark.parametrize("kind", KINDS)
async def test_request_that_was_refused_is_not_given_back_again_and_again(
    concert: Coordinator, own_server: RealServer, kind: str
) -> None:
    """It was granted nothing."""
    await (await KINDS[kind](concert)).release()  # the server knows the scripts now
    refuse(own_server, writes=True)
    with pytest.raises(Unavailable, match="NOREPLICAS"):
        await KINDS[kind](concert)
    await concert._ref.session.check()  # after the reply to what was sent before
    assert not concert._ref.session.renewal.is_needed


async def test_release_that_stays_refused_is_a_loss_in_the_end(concert: Coordinator, own_server: RealServer) -> None:
    """It has lapsed by itself; nothing is sent any more."""
    lease = await concert.lock("a", ttl=0.5).acquire()
    refuse(own_server, writes=True)
    with pytest.raises(Unavailable):
        await lease.release()
    await anyio.sleep(0.6)  # longer than the lease could live
    refuse(own_server, writes=False)
    with pytest.raises(LeaseLost):
        await lease.release()
    with pytest.raises(NotHeld):
        await lease.release()


async def test_release_is_repeated_when_the_coordinator_closes(own_server: RealServer) -> None:
    """A last time."""
    async with Coordinator(own_server.url) as concert:
        lease = await concert.lock("a", ttl=600).acquire()
        refuse(own_server, writes=True)
        with pytest.raises(Unavailable):
            await lease.release()
        refuse(own_server, writes=False)
    async with Coordinator(own_server.url) as concert:
        assert not await concert.lock("a").locked()


async def test_message_for_a_caller_that_has_gone_is_put_back_after_a_refusal(
    concert: Coordinator, own_server: RealServer, other: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one does not wait until the claim would lapse."""
    box = concert.mailbox("a", ttl=600)
    assert await box.fetch() == []
    await box.send("x")
    await cancelled_once_granted(concert, own_server, monkeypatch, lambda _: box.fetch(), key=box._keys.claims)
    [message] = await other.mailbox("a").fetch(timeout=SOON)
    assert message.body == "x"
    await eventually(lambda: not concert._ref.session.renewal.is_needed)


async def test_rate_permit_of_a_caller_that_has_gone_is_refunded_after_a_refusal(
    concert: Coordinator, own_server: RealServer, other: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not count for the hour for which it was taken."""
    await concert.rate_limiter("another", limit=1, period=3600).acquire()
    limiter = concert.rate_limiter("a", limit=1, period=3600)
    await cancelled_once_granted(concert, own_server, monkeypatch, lambda _: limiter.acquire(), key=limiter._keys.state)

    async def is_back() -> bool:
        return (await other.rate_limiter("a", limit=1, period=3600).inspect()).remaining == 1

    await eventually(is_back, timeout=SOON)
    await eventually(lambda: not concert._ref.session.renewal.is_needed)


async def test_unused_notification_is_passed_on_after_a_refusal(
    concert: Coordinator, own_server: RealServer, other: Coordinator
) -> None:
    """The waiter had it, and gave up waiting for another signal."""
    line = concert.signal("a")._keys.waiters
    first = asyncio.create_task(wait_all(concert.signal("a"), concert.signal("b")))
    await eventually(lambda: own_server.command("ZCARD", line) == 1)
    second = asyncio.create_task(other.signal("a").wait(timeout=60))
    await eventually(lambda: own_server.command("ZCARD", line) == 2)
    assert await other.signal("a").notify("x")
    await concert._ref.session.check()  # it has come
    refuse(own_server, writes=True)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await eventually(lambda: concert._ref.session.renewal.is_needed)
    assert not second.done()
    refuse(own_server, writes=False)
    with anyio.fail_after(SOON):
        assert await second == "x"


Waiting = tuple[Callable[[], Coroutine[Any, Any, object]], str]


def barrier(concert: Coordinator) -> Waiting:
    """A wait for another party, and the set of those who wait."""
    place = concert.barrier("a", parties=2, ttl=TTL)
    return place.wait, place._terms.keys.participants


def mailbox(concert: Coordinator) -> Waiting:
    """A wait for a message, and its line."""
    box = concert.mailbox("a", ttl=TTL)
    return partial(box.fetch, timeout=None), box._keys.waiters


def rate_limiter(concert: Coordinator) -> Waiting:
    """A wait for a permit, which comes in hours, and its line."""
    limiter = concert.rate_limiter("a", limit=1, period=36_000, burst=2)
    return partial(limiter.acquire, cost=2), limiter._keys.line


def signal(concert: Coordinator) -> Waiting:
    """A wait for a notification, and its line."""
    signal = concert.signal("a")
    return signal.wait, signal._keys.waiters


@pytest.mark.parametrize("kind", [barrier, mailbox, rate_limiter, signal])
async def test_place_of_a_waiter_that_has_gone_is_given_up_after_a_refusal(
    concert: Coordinator, own_server: RealServer, kind: Callable[[Coordinator], Waiting]
) -> None:
    """Nobody meets it there, or waits behind it."""
    wait, line = kind(concert)
    if kind is rate_limiter:
        await concert.rate_limiter("a", limit=1, period=36_000, burst=2).acquire()
    task = asyncio.create_task(wait())
    await eventually(lambda: own_server.command("ZCARD", line) == 1)
    refuse(own_server, writes=True)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: concert._ref.session.renewal.is_needed)
    assert own_server.command("ZCARD", line) == 1
    refuse(own_server, writes=False)
    await eventually(lambda: own_server.command("ZCARD", line) == 0, timeout=SOON)
    await eventually(lambda: not concert._ref.session.renewal.is_needed)


@pytest.mark.parametrize("kind", [barrier, mailbox, rate_limiter, signal])
async def test_wait_that_was_refused_leaves_nothing_to_repeat(
    concert: Coordinator, own_server: RealServer, kind: Callable[[Coordinator], Waiting]
) -> None:
    """It has no place."""
    wait, _ = kind(concert)
    refuse(own_server, writes=True)
    with pytest.raises(Unavailable, match="NOREPLICAS"):
        await wait()
    await concert._ref.session.check()  # after the reply to what was sent before
    assert not concert._ref.session.renewal.is_needed


@pytest.mark.parametrize("goes_on", [False, True], ids=["ended", "goes on"])
async def test_shared_keys_are_let_go_of_again_after_a_refusal(
    concert: Coordinator, own_server: RealServer, other: Coordinator, goes_on: bool
) -> None:
    """Their member stays one: nothing would lapse; and keys that it asks for meanwhile stay its own."""
    keys = [f"key {number}" for number in range(20)]
    async with concert.members("a", ttl=TTL) as here:
        async with aclosing(here.shares(keys)) as shares:
            assert set(await anext(shares)) == set(keys)
            refuse(own_server, writes=True)
        await eventually(lambda: not here._state.has_let_go)
        refuse(own_server, writes=False)
        async with AsyncExitStack() as stack:
            few: dict[str, int] = {}
            if goes_on:
                few = await anext(await stack.enter_async_context(aclosing(here.shares(keys[:1]))))
            there = await stack.enter_async_context(other.members("a", ttl=TTL))
            theirs = await stack.enter_async_context(aclosing(there.shares(keys)))
            own = {key for key in keys if there._state.roster.owner(key) == there.id}
            with anyio.fail_after(SOON):
                while set(await anext(theirs)) != own - few.keys():
                    pass


async def test_watchers_learn_of_a_vacancy_after_a_refusal(
    concert: Coordinator, own_server: RealServer, other: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The term was released before: only the record of the leader was refused to be removed."""
    election = concert.election("a", ttl=TTL)
    record, term = election._record, await election.acquire()
    channel = concert._ref.session.channel
    submit, vacations = channel.submit, list[Call]()

    def watched(call: Call) -> None:
        if call.command.script.name == "elections/vacate" and not vacations:
            vacations.append(call)
        else:
            submit(call)

    async with aclosing(other.election("a").watch()) as records:
        assert await anext(records) is not None
        monkeypatch.setattr(channel, "submit", watched)
        await term.release()
        refuse(own_server, writes=True)
        [vacation] = vacations
        submit(vacation)
        with pytest.raises(Unavailable, match="NOREPLICAS"):
            await vacation
        refuse(own_server, writes=False)
        with anyio.fail_after(SOON):
            assert await anext(records) is None
    await eventually(lambda: not own_server.command("EXISTS", record))
    await eventually(lambda: not concert._ref.session.renewal.is_needed)


ENDS: dict[str, Callable[[Any], Awaitable[None]]] = {
    "ack": lambda delivery: delivery.ack(),
    "nack": lambda delivery: delivery.nack(),
    "give_back": lambda delivery: delivery.give_back(),
    "bury": lambda delivery: delivery.bury(ValueError("bad")),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("is_repeated", [False, True], ids=["at once", "later"])
async def test_end_of_an_item_that_was_refused_can_be_tried_again(
    concert: Coordinator, own_server: RealServer, end: str, is_repeated: bool
) -> None:
    """Whether or not the worker has repeated it meanwhile; in the same way only, and once."""
    queue = concert.queue("q", ttl=3.0)
    await queue.put("x")
    delivery = await queue.get(timeout=5)
    refuse(own_server, writes=True)
    for _ in range(2):
        with pytest.raises(Unavailable, match="NOREPLICAS"):
            await ENDS[end](delivery)
    with pytest.raises(NotClaimed):
        await ENDS["bury" if end == "ack" else "ack"](delivery)
    refuse(own_server, writes=False)

    async def has_ended() -> bool:
        counts = await queue.counts()
        return counts.claimed == 0

    if is_repeated:
        await eventually(has_ended)
    await ENDS[end](delivery)
    with pytest.raises(NotClaimed):
        await ENDS[end](delivery)
    assert await has_ended()


async def test_majority_that_is_back_releases_a_quorum_lock() -> None:
    """A release that too few servers have confirmed is repeated by itself, and may be tried again."""
    async with AsyncExitStack() as stack:
        servers = [stack.enter_context(RealServer()) for _ in range(3)]
        clients: list[redis.asyncio.Redis] = [redis.asyncio.Redis.from_url(server.url) for server in servers]  # pyright: ignore[reportUnknownMemberType] - its types have holes
        for client in clients:
            stack.push_async_callback(client.aclose)
        quorum = QuorumLock(clients, "a", ttl=TTL, timeout=SOON)
        for again in (True, False):
            lease = await quorum.acquire()
            for server in servers[:2]:
                refuse(server, writes=True)
            with pytest.raises(QuorumNotReached):
                await lease.release()
            for server in servers[:2]:
                refuse(server, writes=False)
            if again:
                await lease.release()
                with pytest.raises(NotHeld):
                    await lease.release()
        await eventually(lambda: not any(server.command("DBSIZE") for server in servers), timeout=SOON)
        await eventually(lambda: not rounds._under_way)
