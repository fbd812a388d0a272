"""Reader-writer locks while holders die, links break and callers vanish at every await."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, LeaseLost, OutcomeUnknown, RWLock, Unavailable
from tests.support.cancelling import MOMENTS, Means, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.fenced import FencedRegister
from tests.support.inner import channel_of
from tests.support.lines import in_line
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import RealServer

HERE = "tests.faults.test_rwlock_faults"


async def is_free(doc: RWLock) -> bool:
    """Whether nobody holds either side and nobody waits."""
    return not await doc.read().holders() and not await doc.write().locked()


# What children do.


async def hold(url: str, namespace: str, side: str, ttl: float) -> None:
    """In a child: hold one side, say so, and write to what it protects even after it was lost."""
    register = FencedRegister(url, namespace)
    async with Coordinator(url, namespace=namespace) as concert:
        try:
            async with getattr(concert.rwlock("doc", ttl=ttl), side)() as lease:
                tell("held")
                try:
                    await anyio.sleep_forever()
                finally:
                    tell("stopped", accepted=register.write(lease.fencing_token, "too late"))
        except LeaseLost:
            tell("lost")


# Enters or leaves a room on the server, and takes note of what must not be: a writer together with anyone.
WITNESS = """
redis.call('HINCRBY', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], 60000)
local readers = tonumber(redis.call('HGET', KEYS[1], 'read') or '0')
local writers = tonumber(redis.call('HGET', KEYS[1], 'write') or '0')
if writers > 1 or (writers == 1 and readers > 0) then
  redis.call('HINCRBY', KEYS[1], 'broken', 1)
end
if readers > 1 then
  redis.call('HINCRBY', KEYS[1], 'shared', 1)
end
redis.call('HINCRBY', KEYS[1], 'seen', 1)
"""


async def come_and_go(url: str, namespace: str, seed: int, visits: int) -> None:
    """In a child: read, write and downgrade in turn, each time before a witness."""
    chance = random.Random(seed)

    async with Coordinator(url, namespace=namespace) as concert:

        async def witness(kind: str, by: int) -> None:
            await raw(concert).eval(WITNESS, 1, f"{namespace}:witness", kind, by)

        async def visit() -> None:
            doc = concert.rwlock("doc")
            if chance.random() < 0.6:
                async with doc.read():
                    await witness("read", 1)
                    await anyio.sleep(0.001)
                    await witness("read", -1)
            else:
                async with doc.write() as lease:
                    await witness("write", 1)
                    await anyio.sleep(0.001)
                    await witness("write", -1)
                    if chance.random() < 0.5:
                        await lease.downgrade()
                        await witness("read", 1)
                        await witness("read", -1)

        async def visitor() -> None:
            for _ in range(visits):
                await visit()

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(visitor)


# Processes that die or stand still.


@pytest.mark.parametrize("side", ["read", "write"])
async def test_killed_holder_blocks_the_other_side_for_its_lease_only(
    concert: Coordinator, server: RealServer, namespace: str, side: str
) -> None:
    """`kill -9`: nobody tells those who wait, and all of them get in."""
    doc = concert.rwlock("doc")
    async with spawn(f"{HERE}:hold", server.url, namespace, side, 0.8) as child:
        await child.wait_for("held")
        others = [doc.write()] if side == "read" else [doc.read(), doc.read()]
        waiters: list[asyncio.Task[Any]] = [asyncio.create_task(other.acquire()) for other in others]
        await in_line(doc.read(), len(others))
        child.kill()
        with anyio.fail_after(0.8 + 1.0):
            for lease in await asyncio.gather(*waiters):
                await lease.release()


@pytest.mark.parametrize("side", ["read", "write"])
async def test_paused_holder_is_told_when_it_goes_on_and_its_late_write_is_refused(
    concert: Coordinator, server: RealServer, namespace: str, side: str
) -> None:
    """SIGSTOP for longer than the lease: its body is cancelled, and the next writer's fencing token is higher."""
    register = FencedRegister(server.url, namespace)
    async with spawn(f"{HERE}:hold", server.url, namespace, side, 0.5) as child:
        await child.wait_for("held")
        child.pause()
        async with concert.rwlock("doc", timeout=5).write() as lease:
            assert register.write(lease.fencing_token, "after")
            child.resume()
            assert not (await child.wait_for("stopped"))["accepted"]
            await child.wait_for("lost")
    assert register.read() == "after"
    register.close()


async def test_a_writer_is_alone_among_many_processes(concert: Coordinator, server: RealServer, namespace: str) -> None:
    """By a witness on the server, while connections are killed."""
    async with AsyncExitStack() as stack:
        children = [
            await stack.enter_async_context(spawn(f"{HERE}:come_and_go", server.url, namespace, seed, 30))
            for seed in range(3)
        ]
        for _ in range(5):
            await anyio.sleep(0.1)
            await raw(concert).execute_command("CLIENT KILL TYPE PUBSUB")
        assert [await child.wait(timeout=40) for child in children] == [0, 0, 0], [c.errors() for c in children]
    seen = await raw(concert).hgetall(f"{namespace}:witness")
    assert b"broken" not in seen
    assert int(seen[b"seen"]) >= 3 * 5 * 30 * 2
    assert int(seen[b"shared"]) > 0
    assert await is_free(concert.rwlock("doc"))


# Links that break.


@pytest.mark.parametrize("lose_next", [False, True], ids=["after", "instead of"])
async def test_link_may_break_at_any_reply(server: RealServer, namespace: str, lose_next: bool) -> None:
    """Read, write, downgrade and wait all come to their end, whichever reply is the last one or is lost."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(server.url, namespace=namespace) as elsewhere:
        number = 0 if lose_next else 1
        while True:
            async with Coordinator(proxy.url, namespace=namespace) as concert:
                proxy.cut_after_replies(number, lose_next=lose_next)
                with anyio.fail_after(5):
                    await flow(concert.rwlock("doc"), elsewhere.rwlock("doc"))
                assert await is_free(elsewhere.rwlock("doc"))
                is_cut = proxy.opened > 2
                proxy.opened = 0
                await proxy.heal()
            if not is_cut:
                break
            number += 1
        assert number > 5


async def flow(doc: RWLock, other: RWLock) -> None:
    """Write while others wait, go on as a reader beside one of them, and wait behind the other."""
    async with doc.write() as lease:
        reader = asyncio.create_task(other.read().acquire())
        await in_line(other.read(), 1)
        writer = asyncio.create_task(other.write().acquire())
        await in_line(other.read(), 2)
        await lease.downgrade()
        await (await reader).release()
        assert not writer.done()
        behind = asyncio.create_task(doc.read().acquire())
        await in_line(other.read(), 2)
    await (await writer).release()
    await (await behind).release()


async def test_downgrade_that_was_not_run_leaves_a_writer(own_server: RealServer) -> None:
    """`Unavailable`, and it is renewed and released as it was."""
    async with Proxy(own_server.tcp_url) as proxy, Coordinator(proxy.url, timeout=1) as concert:
        doc = concert.rwlock("doc")
        lease = await doc.write().acquire()
        holder = lease.holder
        proxy.refuse()
        proxy.cut()
        await eventually(lambda: channel_of(concert._ref.session)._wire is None)
        with pytest.raises(Unavailable):
            await lease.downgrade()
        assert lease.holder == holder
        await proxy.heal()
        await eventually(lambda: channel_of(concert._ref.session)._wire)
        await lease.renew()
        assert await doc.write().holders() == [holder]
        await lease.release()
        assert await is_free(doc)


@pytest.mark.parametrize("is_run", [False, True])
async def test_downgrade_without_an_answer_is_a_reader_s_or_lost(own_server: RealServer, is_run: bool) -> None:
    """`OutcomeUnknown`; the next renewal finds out, and nobody is inside with a writer meanwhile."""
    async with (
        Proxy(own_server.tcp_url) as proxy,
        Coordinator(proxy.url, timeout=1.0) as concert,
        Coordinator(own_server.url) as elsewhere,
    ):
        lease = await concert.rwlock("doc").write().acquire()
        (proxy.hold_replies if is_run else proxy.mute)()
        with pytest.raises(OutcomeUnknown):
            await lease.downgrade()
        reader = await elsewhere.rwlock("doc").read().try_acquire()
        assert (reader is not None) == is_run
        proxy.cut()
        await proxy.heal()
        if reader is not None:
            await lease.renew()
            await lease.release()
            await reader.release()
        else:
            with pytest.raises(LeaseLost):
                await lease.renew()


async def test_downgrade_whose_first_reply_was_lost_is_a_success(server: RealServer, namespace: str) -> None:
    """The second run finds the reader."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(proxy.url, namespace=namespace) as concert:
        lease = await concert.rwlock("doc").write().acquire()
        proxy.cut_after_replies(0, lose_next=True)
        await lease.downgrade()
        assert proxy.opened > 2
        assert await concert.rwlock("doc").read().holders() == [lease.holder]
        await lease.release()


# Callers that vanish.


async def read(doc: RWLock) -> None:
    """A reader's whole visit."""
    async with doc.read():
        await anyio.sleep(0)


async def write(doc: RWLock) -> None:
    """A writer's whole visit."""
    async with doc.write():
        await anyio.sleep(0)


async def write_and_read(doc: RWLock) -> None:
    """A writer who goes on as a reader."""
    async with doc.write() as lease:
        await anyio.sleep(0)
        await lease.downgrade()
        await anyio.sleep(0)


@pytest.mark.parametrize("how", [(moment, means) for moment in MOMENTS for means in ("task", "scope")], ids=" by ".join)
@pytest.mark.parametrize("story", [read, write, write_and_read])
@pytest.mark.parametrize("is_held", [False, True], ids=["free", "held"])
async def test_cancellation_at_any_await_leaves_nothing(
    concert: Coordinator,
    elsewhere: Coordinator,
    is_held: bool,
    story: Callable[[RWLock], Coroutine[Any, Any, None]],
    how: tuple[Moment, Means],
) -> None:
    """No holder and no waiter, and those who come next, one of each side, are served at once."""
    doc, other = concert.rwlock("doc"), elsewhere.rwlock("doc")

    async def cancel_once(number: int) -> bool:
        lease = await other.write().acquire(timeout=1) if is_held else None
        victim = asyncio.create_task(cancel_at(number, how[0], story(doc), means=how[1]))
        await eventually(lambda: victim.done() or concert._ref.session.lines._lines)
        followers = [asyncio.create_task(follow(other)) for follow in (read, write)]
        if lease is not None:
            await eventually(lambda: elsewhere._ref.session.lines._lines)
            await lease.release()
        with anyio.fail_after(1.8):  # less than the life of a lease that is handed over
            await asyncio.gather(*followers)
            return await victim

    number = 1
    while await cancel_once(number):
        await eventually(lambda: is_free(doc))
        number += 1
    assert number > 2
