"""A link that is slow but works: large calls take their time, and nothing else waits for them."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, NotConnected, OutcomeUnknown, Unavailable
from inconcert._redis.protocol.scripts import Script
from inconcert._redis.wire import channel as channel_module
from inconcert._redis.wire.call import Call
from tests.support.channels import ECHO, KEY, echo, session_of
from tests.support.eventually import eventually
from tests.support.inner import channel_of
from tests.support.proxy import Proxy
from tests.support.servers import RealServer

LENGTH = Script("test/length", "-- KEYS  key\n-- ARGV  text\nreturn #ARGV[1]").bind()
TEXT = Script("test/text", "-- KEYS  key\n-- ARGV  length\nreturn string.rep('x', tonumber(ARGV[1]))").bind()
LARGE = Script(
    "test/large",
    "-- KEYS  key\n-- ARGV  length\n"
    "local has_room = false\n"
    "if not has_room then return redis.error_reply('LARGE ' .. ARGV[1]) end\n"
    "return string.rep('x', tonumber(ARGV[1]))",
).bind()
NOTE = Script(
    "test/note",
    "-- KEYS  keys..\n-- ARGV  notes\n-- ARGV  text\nreturn redis.call('RPUSH', ARGV[1], ARGV[2]:sub(1, 1))",
).bind()


class _Urgent(Call):
    overtakes = True


@pytest.fixture
async def slow(server: RealServer) -> AsyncIterator[Proxy]:
    """A link of 1 MB/s to the common server."""
    async with Proxy(server.tcp_url, rate=1e6) as opened:
        yield opened


@pytest.fixture
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts as large, and as much, is little."""
    monkeypatch.setattr(channel_module, "_LARGE", 2000)
    monkeypatch.setattr(channel_module, "_WINDOW", 3000)


async def test_connection_that_carries_a_call_is_not_given_up(slow: Proxy) -> None:
    """Although that takes longer than the server may be silent."""
    async with Coordinator(slow.url) as concert:
        channel_of(session_of(concert))._patience = 0.6
        await echo(session_of(concert), "well")
        began = time.monotonic()
        assert await session_of(concert).run(LENGTH(key=KEY, text="x" * 850_000)) == 850_000
        assert time.monotonic() - began > 0.7
        assert slow.opened == 2


async def test_connection_that_carries_a_reply_is_not_given_up(slow: Proxy) -> None:
    """Although no reply is whole for longer than the server may be silent."""
    async with Coordinator(slow.url) as concert:
        channel_of(session_of(concert))._patience = 0.6
        await echo(session_of(concert), "well")
        began = time.monotonic()
        assert len(await session_of(concert).run(TEXT(key=KEY, length=850_000))) == 850_000
        assert time.monotonic() - began > 0.7
        assert slow.opened == 2


async def test_small_call_waits_for_little_of_what_is_large(slow: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes large calls about other things that were made before it."""
    monkeypatch.setattr(channel_module, "_WINDOW", 100_000)
    async with Coordinator(slow.url, timeout=4) as concert:
        session = session_of(concert)
        await echo(session, "well")
        answered: list[str] = []

        async def call(name: str, key: str, text: str) -> None:
            await session.run(LENGTH(key=key, text=text))
            answered.append(name)

        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(call, f"large {number}", "{large}", "x" * 120_000)
            await anyio.sleep(0)
            group.start_soon(call, "small", "{small}", "x")
        assert answered.index("small") <= 1
        assert [name for name in answered if name != "small"] == [f"large {number}" for number in range(6)]


@pytest.mark.usefixtures("_narrow")
@pytest.mark.parametrize("is_cut", [False, True], ids=["", "cut"])
async def test_calls_about_the_same_keep_their_order(
    server: RealServer, namespace: str, proxy: Proxy, is_cut: bool
) -> None:
    """Those about other things pass what is held back, and so do those that keep alive."""
    notes = f"{namespace}:notes"
    async with Coordinator(proxy.url, namespace=namespace, timeout=4) as concert:
        session = session_of(concert)
        await echo(session, "well")
        proxy.mute()

        def submit(text: str, *keys: str, kind: type[Call] = Call) -> Call:
            call = kind(NOTE(keys=keys, notes=notes, text=text))
            session.channel.submit(call)
            return call

        calls = [
            submit("a" * 4000, "{one}:x"),
            submit("b" * 4000, "{one}:x"),
            submit("c", "{one}:y"),
            submit("d", "{two}:x"),
            submit("e", "{two}:x", "{one}:z"),
            submit("f", "{one}:x", kind=_Urgent),
        ]
        session.channel.flush()
        if is_cut:
            proxy.cut()
        await proxy.heal()
        await asyncio.gather(*calls)
        assert "".join(server.command("LRANGE", notes, 0, -1)) == "dfabce"
        assert channel_of(session)._bytes == channel_of(session)._held_back.bytes == 0
        assert not channel_of(session)._held_back._tags
    server.command("DEL", notes)


@pytest.mark.usefixtures("_narrow")
async def test_held_back_call_that_is_cancelled_is_not_sent_and_holds_nothing_up(
    proxy: Proxy, concert: Coordinator
) -> None:
    """Those behind it are sent."""
    del concert
    async with Coordinator(proxy.url, timeout=4) as concert:
        session = session_of(concert)
        await echo(session, "well")
        proxy.hold_replies()
        calls = [Call(ECHO(key=KEY, text=str(number) * 4000)) for number in range(6)]
        for call in calls:
            session.channel.submit(call)
        await anyio.sleep(0)
        for call in calls[1:5]:
            call.cancel()
        proxy.release_replies()
        with anyio.fail_after(5):
            assert await calls[5] == b"5" * 4000
        assert [call.sends for call in calls] == [1, 0, 0, 0, 0, 1]


@pytest.mark.usefixtures("_narrow")
async def test_held_back_call_ends_at_its_time(proxy: Proxy) -> None:
    """As `Unavailable`, for it was never sent; and when the channel closes."""
    async with Coordinator(proxy.url, timeout=0.6) as concert:
        session = session_of(concert)
        await echo(session, "well")
        proxy.mute()
        calls = [Call(ECHO(key=KEY, text=str(number) * 4000)) for number in range(3)]
        for call in calls:
            session.channel.submit(call)
        with pytest.raises(Unavailable, match="was not sent"):
            await calls[2]
        late = Call(ECHO(key=KEY, text="x" * 4000))
        session.channel.submit(late)
    with pytest.raises(Unavailable, match="closed"):
        await late
    await proxy.heal()


async def test_large_calls_leave_room_for_small_ones(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are."""
    monkeypatch.setattr(channel_module, "_MOST_LARGE_BYTES", 100_000)
    async with Coordinator(proxy.url, timeout=4) as concert:
        session = session_of(concert)
        await echo(session, "well")
        proxy.hold_replies()
        large = [asyncio.create_task(session.run(ECHO(key="{large}", text="x" * 50_000))) for _ in range(20)]
        await anyio.sleep(0)
        assert len(channel_of(session)._unanswered) <= 3
        small = asyncio.create_task(session.run(ECHO(key="{small}", text="x")))
        await anyio.sleep(0)
        assert channel_of(session)._unsent or channel_of(session)._unanswered
        await eventually(lambda: channel_of(session)._unanswered[-1].key == "{small}")  # type: ignore[union-attr]
        large[3].cancel()
        proxy.release_replies()
        await small
        outcomes = await asyncio.gather(*large, return_exceptions=True)
        assert sum(outcome == b"x" * 50_000 for outcome in outcomes) == 19


async def test_wait_for_room_ends_when_nothing_is_answered(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `Unavailable`, for all who wait at once."""
    monkeypatch.setattr(channel_module, "_MOST_LARGE_BYTES", 100_000)
    async with Coordinator(proxy.url, timeout=0.5) as concert:
        session = session_of(concert)
        await echo(session, "well")
        proxy.refuse()
        proxy.cut()
        await eventually(lambda: channel_of(session)._wire is None)
        began = time.monotonic()
        calls = (session.run(ECHO(key=KEY, text="x" * 50_000)) for _ in range(20))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {Unavailable}
        assert time.monotonic() - began < 1.5


async def test_renewals_pass_what_is_large(
    slow: Proxy, concert: Coordinator, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease outlives large puts of its own process, and so does a consumer of the same queue."""
    monkeypatch.setattr(channel_module, "_WINDOW", 100_000)
    async with Coordinator(slow.url, namespace=namespace, timeout=4) as elsewhere:
        queue = elsewhere.queue("big", ttl=1.0)
        await queue.put("first")
        async with elsewhere.lock("door", ttl=1.0) as lease:
            delivery = await queue.get()
            await asyncio.gather(*(queue.put("x" * 150_000) for _ in range(12)))
            assert not lease.is_lost
            await delivery.ack()
        assert slow.opened <= 3
    await concert.queue("big").purge()


async def test_small_reply_waits_for_little_of_what_is_large(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much was asked for before: a heartbeat passes 20 MB of results, at each moment."""
    async with Coordinator(proxy.url, timeout=4) as concert:
        session = session_of(concert)
        await echo(session, "well")
        received, before = channel_of(session).received, 0
        waits: list[int] = []  # bytes that came before each small reply

        def receive(reply: Any) -> None:
            nonlocal before
            received(reply)
            if isinstance(reply, bytes) and len(reply) == 1_000_000:
                before += len(reply)
                small, asked_at = Call(ECHO(key=KEY, text="small")), before
                session.channel.submit(small)
                small.add_done_callback(lambda _: waits.append(before - asked_at))

        monkeypatch.setattr(channel_of(session)._link, "received", receive)
        asked = [session.run(LARGE(key=KEY, length=1_000_000)) for _ in range(20)]
        assert {len(text) for text in await asyncio.gather(*asked)} == {1_000_000}
        await eventually(lambda: len(waits) == 20)
        assert max(waits) <= 2_000_000
        assert not channel_of(session)._large_replies._bytes


async def test_middling_replies_come_together(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there is room for: a round trip for each would take long on a long way."""
    async with Coordinator(proxy.url, timeout=4) as concert:
        session = session_of(concert)
        await echo(session, "well")
        proxy.delay(0.2, direction="to_client")  # so that the line can be looked at
        asked = [asyncio.create_task(session.run(LARGE(key=KEY, length=100_000))) for _ in range(20)]
        line = channel_of(session)._large_replies
        await eventually(lambda: line._bytes == 500_000)
        assert len(line._line) == 15
        assert {len(text) for text in await asyncio.gather(*asked)} == {100_000}


async def test_large_reply_of_a_caller_that_has_gone_is_not_sent(proxy: Proxy) -> None:
    """And holds nobody up."""
    async with Coordinator(proxy.url, timeout=4) as concert:
        session = session_of(concert)
        await echo(session, "well")
        proxy.delay(0.2, direction="to_client")  # so that the line can be looked at
        line = channel_of(session)._large_replies
        asked = [asyncio.create_task(session.run(LARGE(key=KEY, length=1_000_000))) for _ in range(20)]
        await eventually(lambda: len(line._line) == 19)
        for task in asked[:18]:  # the one under way among them
            task.cancel()
        replies = channel_of(session)._unanswered
        assert [len(text) for text in await asyncio.gather(*asked[18:])] == [1_000_000] * 2
        assert not line._bytes
        assert not replies


async def test_large_replies_outlive_a_cut(proxy: Proxy) -> None:
    """Those on their way are asked for again, and those in line in their turn."""
    async with Coordinator(proxy.url, timeout=4) as concert:
        session = session_of(concert)
        await echo(session, "well")
        proxy.delay(0.2, direction="to_client")  # so that the line can be looked at
        asked = [asyncio.create_task(session.run(LARGE(key=KEY, length=1_000_000))) for _ in range(5)]
        line = channel_of(session)._large_replies
        await eventually(lambda: len(line._line) == 4)
        proxy.cut()
        assert {len(text) for text in await asyncio.gather(*asked)} == {1_000_000}
        assert not line._bytes


@pytest.mark.parametrize("is_closed", [False, True], ids=["", "closed"])
async def test_wait_for_a_large_reply_ends(proxy: Proxy, is_closed: bool) -> None:
    """For all at once, when the one before them is not answered in time, or the coordinator closes."""
    concert = await Coordinator(proxy.url, timeout=0.6).__aenter__()
    session = session_of(concert)
    await echo(session, "well")
    proxy.delay(0.2, direction="to_client")  # so that the line can be looked at
    asked = [asyncio.create_task(session.run(LARGE(key=KEY, length=1_000_000))) for _ in range(20)]
    await eventually(lambda: len(channel_of(session)._large_replies._line) == 19)
    proxy.mute()
    proxy.refuse()
    if is_closed:
        await concert.__aexit__(None, None, None)
    outcomes = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 5)
    assert {type(outcome) for outcome in outcomes} == {OutcomeUnknown}
    await proxy.heal()
    await concert.__aexit__(None, None, None)


async def test_callers_that_wait_for_room_end_when_the_coordinator_closes(proxy: Proxy) -> None:
    """Those whose calls are under way, and those that have not sent anything yet."""
    concert = await Coordinator(proxy.url, timeout=4).__aenter__()
    session = session_of(concert)
    await echo(session, "well")
    proxy.mute()
    calls = [asyncio.create_task(session.run(ECHO(key=KEY, text="x" * 900_000))) for _ in range(20)]
    await eventually(lambda: sum(map(len, channel_of(session)._room.lines.values())) > 10)
    await concert.__aexit__(None, None, None)
    outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5)
    assert {type(outcome) for outcome in outcomes} <= {NotConnected, OutcomeUnknown, Unavailable}
    assert NotConnected in map(type, outcomes)
    await proxy.heal()
