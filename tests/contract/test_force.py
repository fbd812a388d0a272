"""Releasing by force: the holder's body is stopped, the next in line goes on, and nothing else is touched."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, InvalidName, LeaseLost, NobodyHolds
from inconcert._redis.protocol.scripts import load
from inconcert.reports.reporter import ReportKeys, report_keys
from tests.support.eventually import eventually
from tests.support.raw import raw
from tests.support.reports import held, may_ask

__all__ = ["may_ask"]  # the fixture

WITHIN = 5.0  # seconds; a holder that is not told finds it out after a third of its ttl, 10 s


def lock(concert: Coordinator, kind: str) -> Any:
    """The thing of this kind, with one place."""
    makes: dict[str, Callable[[Coordinator], Any]] = {
        "lock": lambda each: each.lock("x"),
        "semaphore": lambda each: each.semaphore("x", limit=1),
        "rwlock": lambda each: each.rwlock("x").write(),
        "election": lambda each: each.election("x", ttl=30),
    }
    return makes[kind](concert)


@pytest.mark.parametrize("kind", ["lock", "semaphore", "rwlock", "election"])
async def test_holder_is_stopped_and_the_next_goes_on(
    any_concert: Coordinator, elsewhere: Coordinator, kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """At once, in whatever process they are; the fencing token rises."""
    holds, got = asyncio.Event(), asyncio.Event()
    tokens: list[int] = []

    async def hold() -> None:
        async with lock(elsewhere, kind) as lease:
            tokens.append(lease.fencing_token)
            holds.set()
            await anyio.sleep_forever()

    async def follow() -> None:
        async with lock(any_concert, kind) as lease:
            tokens.append(lease.fencing_token)
            got.set()
            await anyio.sleep(0.05)
            await lease.renew()

    holder = asyncio.create_task(hold())
    await holds.wait()
    follower = asyncio.create_task(follow())
    await eventually(lambda: _count(lock(any_concert, kind).waiters, 1))
    [evicted] = await any_concert.release_by_force(kind, "x")
    with anyio.fail_after(WITHIN):
        with pytest.raises(LeaseLost):
            await holder
        await got.wait()
        await follower
    assert tokens == sorted(set(tokens))
    assert f"{kind} 'x' was released by force" in caplog.text
    assert evicted in caplog.text
    assert await lock(any_concert, kind).holders() == []


async def test_election_watchers_hear_that_there_is_no_leader(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """As when a leader resigns; its candidate may lead again."""
    term = await elsewhere.election("x").acquire()
    seen: list[Any] = []

    async def watch() -> None:
        changes = any_concert.election("x").watch()
        while True:
            seen.append(await anext(changes))

    watching = asyncio.create_task(watch())
    await eventually(lambda: len(seen) == 1)
    await any_concert.release_by_force("election", "x")
    await eventually(lambda: len(seen) == 2)
    assert seen[-1] is None
    assert term.is_lost
    watching.cancel()
    await elsewhere.election("x").acquire()


async def test_one_of_several_holders(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """By its name; the others hold on."""
    semaphore = elsewhere.semaphore("x", limit=3)
    first, second = await semaphore.acquire(), await semaphore.acquire()
    assert await any_concert.release_by_force("semaphore", "x", holder=first.holder) == [first.holder]
    await eventually(lambda: first.is_lost)
    await second.renew()
    with pytest.raises(NobodyHolds, match=r"nobody holds semaphore 'x' now"):
        await any_concert.release_by_force("semaphore", "x", holder=first.holder)
    assert await any_concert.release_by_force("semaphore", "x") == [second.holder]


async def test_readers_leave_for_a_writer(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """All of them."""
    readers = [await elsewhere.rwlock("x").read().acquire() for _ in range(3)]
    writer = asyncio.create_task(any_concert.rwlock("x").write().acquire())
    await eventually(lambda: _count(any_concert.rwlock("x").write().waiters, 1))
    assert len(await any_concert.release_by_force("rwlock", "x")) == 3
    with anyio.fail_after(WITHIN):
        await (await writer).release()
    await eventually(lambda: all(reader.is_lost for reader in readers))


async def test_one_of_several_locks_ends_all(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """The body of `locks()` must have all."""
    holds = asyncio.Event()

    async def hold() -> None:
        async with elsewhere.locks("x", "y"):
            holds.set()
            await anyio.sleep_forever()

    holder = asyncio.create_task(hold())
    await holds.wait()
    await any_concert.release_by_force("lock", "x")
    with anyio.fail_after(WITHIN), pytest.raises(LeaseLost):
        await holder
    await (await any_concert.lock("y").acquire(timeout=1)).release()


@pytest.mark.twice("reports/evicted")
async def test_holder_that_is_told_so_and_holds_holds_on(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """It renews its lease, and the server knows; as often as it is told."""
    lease = await elsewhere.lock("x").acquire()
    session, keys = any_concert._ref.session, report_keys(any_concert._ref.keys)
    left = lease.remaining
    await anyio.sleep(0.05)
    for _ in range(2):
        command = load("reports/evicted").bind(ReportKeys)(
            keys, inboxes=session.inboxes(keys.asked), holders=[lease.holder, f"{session.id}.99"]
        )
        assert await session.run(command) >= 1
    await eventually(lambda: lease.remaining > left - 0.05)
    assert not lease.is_lost


async def test_line_that_begins_with_many_who_have_gone_is_served(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """More than one script passes over."""
    lock = any_concert.lock("x")
    lease = await elsewhere.lock("x").acquire()
    keys, client = lock._keys, raw(any_concert)
    waiting = asyncio.create_task(lock.acquire())
    await eventually(lambda: _count(lock.waiters, 1))
    await client.zadd(keys.waiters, {f"1:2000:30000 {number:016x}.11": number for number in range(250)})
    assert await any_concert.release_by_force("lock", "x") == [lease.holder]
    with anyio.fail_after(WITHIN):
        await (await waiting).release()
    await eventually(lambda: lease.is_lost)


async def test_what_is_free_or_no_such_kind_is_refused(any_concert: Coordinator) -> None:
    """By name, and nothing is changed."""
    with pytest.raises(NobodyHolds, match="nobody holds lock 'x' now"):
        await any_concert.release_by_force("lock", "x")
    with pytest.raises(ValueError, match="kind is 'mailbox'; give 'lock', 'semaphore', 'rwlock', 'election'"):
        await any_concert.release_by_force("mailbox", "x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidName):
        await any_concert.release_by_force("lock", "")


async def test_locks_held_are_shown_with_their_process(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """The oldest first, and how many wait for each."""
    leases = [await elsewhere.lock("x", label="order 7").acquire()]
    leases.append(await any_concert.semaphore("s", limit=2).acquire())
    waiting = asyncio.create_task(any_concert.lock("x").acquire())
    await eventually(lambda: _count(any_concert.lock("x").waiters, 1))
    first, second = await any_concert.locks_held()
    assert (first.kind, first.name, first.label, first.waiters) == ("lock", "x", "order 7", 1)
    assert (second.kind, second.name, second.waiters) == ("semaphore", "s", 0)
    assert first.process != second.process
    [entry] = [entry for entry in held(await any_concert.inspect()) if entry.name == "x"]
    assert (entry.holder, entry.line) == (first.holder, first.line)
    assert await any_concert.release_by_force("lock", first.name, holder=first.holder) == [first.holder]
    leases.append(await waiting)


async def _count(ask: Callable[[], Awaitable[int]], expected: int) -> bool:
    return await ask() == expected
