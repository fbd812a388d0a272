"""What signals promise: who hears what, in which order, and what is told to those who missed something."""

import asyncio
import logging
import time
from datetime import timedelta
from math import inf, nan
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import anyio
import pytest

from inconcert import (
    Coordinator,
    Gap,
    InvalidName,
    InvalidPayload,
    NotConnected,
    Signal,
    Signalled,
    Subscription,
    wait_all,
    wait_any,
)
from inconcert._rules.payloads import JSON
from inconcert.signals import signal as signal_module
from tests.support.inner import topics_of
from tests.support.lines import in_line_at
from tests.support.raw import client_of, let_hear, listeners, publish, raw

PAYLOADS: list[JSON] = [None, True, 0, -1.5, "", "two words", "ä\n\0", [], [1, [2]], {}, {"version": 7, "a b": None}]


@pytest.fixture
def signal(any_concert: Coordinator) -> Signal:
    """A signal for which nobody waits."""
    return any_concert.signal("deploy")


@pytest.fixture
def signal_elsewhere(elsewhere: Coordinator) -> Signal:
    """The same signal, as another process sees it."""
    return elsewhere.signal("deploy")


async def in_line(concert: Coordinator, number: int, name: str = "deploy") -> None:
    """Return when so many wait to be notified."""
    await in_line_at(concert, concert.signal(name)._keys.waiters, number)


async def waiting(concert: Coordinator, *signals: Signal) -> "list[asyncio.Task[JSON]]":
    """Let one wait for each of these, in this order."""
    tasks: list[asyncio.Task[JSON]] = []
    for signal in signals:
        tasks.append(asyncio.create_task(signal.wait()))
        await in_line(concert, len(tasks), signal.name)
    return tasks


async def leave(*tasks: "asyncio.Task[Any]") -> None:
    """Let these give up."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


# Broadcasts.


@pytest.mark.parametrize("payload", PAYLOADS, ids=repr)
async def test_waiter_and_subscriber_get_the_payload(any_concert: Coordinator, signal: Signal, payload: JSON) -> None:
    """Whatever JSON it is, by a broadcast and by a notification."""
    for send in (signal.broadcast, signal.notify):
        [waiter] = await waiting(any_concert, signal)
        assert await send(payload)
        assert await waiter == payload
    async with signal.subscribe() as subscription:
        await signal.broadcast(payload)
        assert await subscription.next() == payload


async def test_broadcast_wakes_all_who_wait_and_counts_their_processes(
    any_concert: Coordinator, signal: Signal, signal_elsewhere: Signal
) -> None:
    """Not the waiters in them; nobody is left in line."""
    tasks = await waiting(any_concert, signal, signal_elsewhere, signal, signal_elsewhere, signal)
    assert await signal.broadcast({"version": 7}) == 2
    assert await asyncio.gather(*tasks) == [{"version": 7}] * 5
    await in_line(any_concert, 0)


async def test_broadcast_that_nobody_hears_is_gone(signal: Signal) -> None:
    """It reaches no process, and none who waits later."""
    assert await signal.broadcast(7) == 0
    with pytest.raises(TimeoutError, match=r"signal 'deploy' did not come within 0\.02 s"):
        await signal.wait(timeout=0.02)


async def test_broadcast_from_before_the_wait_is_not_heard(signal: Signal) -> None:
    """Also when this process listens already, so that it is still on its way when the wait begins."""
    async with signal.subscribe():
        for number in range(20):
            await signal.broadcast(number)
            with pytest.raises(TimeoutError):
                await signal.wait(timeout=0.005)


async def test_waiters_share_one_subscription_of_their_process(any_concert: Coordinator, signal: Signal) -> None:
    """A thousand cost the server one, and it ends with the last of them."""
    tasks = [asyncio.create_task(signal.wait()) for _ in range(1000)]
    await in_line(any_concert, 1000)
    processes = await listeners(any_concert, signal._channel)
    assert processes == 1
    assert await signal.broadcast("go") == 1
    assert await asyncio.gather(*tasks) == ["go"] * 1000
    assert not topics_of(any_concert._ref.session)


async def test_signals_of_different_names_do_not_meet(any_concert: Coordinator) -> None:
    """Not even names that look like a part of another's keys or channels."""
    names = ["a", "a}", "{a", "{a}", "a}:waiters", "a:waiters", "*", "\0", "ä", " ", "\n", "a" * 512]
    tasks = [(await waiting(any_concert, any_concert.signal(name)))[0] for name in names]
    for name, task in zip(names, tasks, strict=True):
        assert await any_concert.signal(name).broadcast(name) == 1
        assert await task == name


# Notifications.


async def test_notify_wakes_exactly_one_the_longest_waiting(
    any_concert: Coordinator, signal: Signal, signal_elsewhere: Signal
) -> None:
    """Across two processes, in the order in which they came."""
    tasks = await waiting(any_concert, signal, signal_elsewhere, signal_elsewhere, signal)
    for number, task in enumerate(tasks):
        assert await signal.notify(number)
        assert await task == number
        assert [other.done() for other in tasks] == [place <= number for place in range(4)]
    assert not await signal.notify("nobody waits")


async def test_notify_is_not_heard_by_subscribers(signal: Signal) -> None:
    """They are not in line, and do not count."""
    async with signal.subscribe() as subscription:
        assert not await signal.notify(7)
        with pytest.raises(TimeoutError, match=r"signal 'deploy' was not broadcast within 0\.02 s"):
            await subscription.next(timeout=0.02)


async def test_notify_passes_over_those_who_are_gone(any_concert: Coordinator, signal: Signal) -> None:
    """However many: a hundred are dropped in one step."""
    await raw(any_concert).zadd(signal._keys.waiters, {f"gone.{number}": number for number in range(250)})
    task = asyncio.create_task(signal.wait())
    await in_line(any_concert, 251)
    assert await signal.notify(7)
    assert await task == 7
    await in_line(any_concert, 0)


async def test_notify_answers_false_when_all_are_gone(any_concert: Coordinator, signal: Signal) -> None:
    """None of them is taken for a waiter."""
    await raw(any_concert).zadd(signal._keys.waiters, {f"gone.{number}": number for number in range(150)})
    assert not await signal.notify(7)
    await in_line(any_concert, 0)


async def test_one_who_gives_up_leaves_the_line(
    any_concert: Coordinator, signal: Signal, signal_elsewhere: Signal
) -> None:
    """By a cancellation or a timeout; the next is notified."""
    tasks = await waiting(any_concert, signal_elsewhere, signal)
    await leave(tasks[0])
    with pytest.raises(TimeoutError):
        await signal_elsewhere.wait(timeout=0.01)
    await in_line(any_concert, 1)
    assert await signal.notify(7)
    assert await tasks[1] == 7


async def test_notification_of_one_who_was_cancelled_goes_to_the_next(
    any_concert: Coordinator, signal: Signal, signal_elsewhere: Signal
) -> None:
    """Whenever the cancellation comes: one of the two has the payload in the end."""
    for turns in range(8):
        first, second = await waiting(any_concert, signal_elsewhere, signal)
        notify = asyncio.create_task(signal.notify(turns))
        for _ in range(turns):
            await asyncio.sleep(0)
        first.cancel()
        assert await notify
        [outcome] = await asyncio.gather(first, return_exceptions=True)
        if outcome == turns:
            await leave(second)
        else:
            assert await second == turns
        await in_line(any_concert, 0)


# Several signals.


async def test_wait_any_returns_the_signal_that_came_first(any_concert: Coordinator) -> None:
    """With its payload, by broadcast or notification; all lines are left."""
    a, b = any_concert.signal("a"), any_concert.signal("b")
    for sent, send in ((a, a.notify), (b, b.notify), (a, a.broadcast), (b, b.broadcast)):
        task = asyncio.create_task(wait_any(a, b))
        for name in "ab":
            await in_line(any_concert, 1, name)
        await send("go")
        came, payload = await task
        assert came is sent
        assert payload == "go"
        for name in "ab":
            await in_line(any_concert, 0, name)


async def test_wait_any_hands_on_what_it_does_not_return(any_concert: Coordinator) -> None:
    """Of two notifications at the same moment, one goes to the next in its line."""
    a, b = any_concert.signal("a"), any_concert.signal("b")
    task = asyncio.create_task(wait_any(a, b))
    for name in "ab":
        await in_line(any_concert, 1, name)
    behind = [asyncio.create_task(each.wait()) for each in (a, b)]
    for name in "ab":
        await in_line(any_concert, 2, name)
    assert all(await asyncio.gather(a.notify("to a"), b.notify("to b")))
    came, _ = await task
    assert await behind[came is a] == ("to b" if came is a else "to a")
    await leave(behind[came is not a])


async def test_wait_all_returns_payloads_in_the_order_of_the_arguments(any_concert: Coordinator) -> None:
    """Whatever the order in which they come."""
    names = ["a", "b", "c"]
    task = asyncio.create_task(wait_all(*(any_concert.signal(name) for name in names)))
    for name in names:
        await in_line(any_concert, 1, name)
    await any_concert.signal("b").broadcast(2)
    await any_concert.signal("c").notify(3)
    assert not task.done()
    await any_concert.signal("a").notify(1)
    assert await task == [1, 2, 3]


async def test_wait_all_that_times_out_hands_on_what_it_has(
    any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not returned, so the next in line gets it."""
    time_is_up = anyio.CancelScope()  # ended by hand: no machine is too slow for what comes before
    monkeypatch.setattr(signal_module, "anyio", SimpleNamespace(move_on_after=Mock(return_value=time_is_up)))
    a, b = any_concert.signal("a"), any_concert.signal("b")
    task = asyncio.create_task(wait_all(a, b, timeout=0.1))
    await in_line(any_concert, 1, "a")
    monkeypatch.undo()
    behind = asyncio.create_task(a.wait())
    await in_line(any_concert, 2, "a")
    assert await a.notify("to a")
    time_is_up.cancel()
    with pytest.raises(TimeoutError, match=r"signal 'a', 'b' did not come within 0\.1 s"):
        await task
    assert await behind == "to a"
    await in_line(any_concert, 0, "b")


async def test_wait_all_that_lasted_long_hands_on_what_it_has(any_concert: Coordinator) -> None:
    """Also when the server has forgotten by then what was notified."""
    a, b = any_concert.signal("a"), any_concert.signal("b")
    task = asyncio.create_task(wait_all(a, b))
    await in_line(any_concert, 1, "a")
    behind = asyncio.create_task(a.wait())
    await in_line(any_concert, 2, "a")
    assert await a.notify("to a")
    await raw(any_concert).delete(a._keys.handed, a._keys.earlier)
    await leave(task)
    with anyio.fail_after(5):
        assert await behind == "to a"
    await in_line(any_concert, 0, "b")


async def test_signals_of_two_coordinators_are_waited_for_together(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """Each through its own connections."""
    a, b = any_concert.signal("a"), elsewhere.signal("b")
    task = asyncio.create_task(wait_any(a, b))
    await in_line(any_concert, 1, "b")
    assert await b.notify(7)
    assert await task == (b, 7)


async def test_one_signal_named_twice_is_waited_for_twice(any_concert: Coordinator, signal: Signal) -> None:
    """Two places in line, and one broadcast for both."""
    task = asyncio.create_task(wait_all(signal, signal))
    await in_line(any_concert, 2)
    assert await signal.notify(1)
    assert await signal.notify(2)
    assert await task == [1, 2]
    task = asyncio.create_task(wait_all(signal, signal))
    await in_line(any_concert, 2)
    await signal.broadcast(3)
    assert await task == [3, 3]


@pytest.mark.parametrize("wait", [wait_any, wait_all])
async def test_no_signal_is_not_waited_for(wait: Any) -> None:
    """`ValueError`, and not for ever."""
    with pytest.raises(ValueError, match="name at least one"):
        await wait()


# Subscriptions.


async def test_subscriber_gets_every_broadcast_in_order(signal: Signal, signal_elsewhere: Signal) -> None:
    """From the moment of subscribing, whoever sends."""
    await signal.broadcast("before")
    async with signal_elsewhere.subscribe() as subscription:
        for number in range(50):
            await (signal, signal_elsewhere)[number % 2].broadcast(number)
        received: list[JSON | Gap] = []
        async for item in subscription:
            received.append(item)
            if item == 49:
                break
    assert received == list(range(50))
    assert await signal.broadcast("after") == 0


async def test_slow_subscriber_is_told_how_many_it_missed(signal: Signal) -> None:
    """In their place, before what it still has; the others miss nothing."""
    async with signal.subscribe(buffer=3) as slow, signal.subscribe() as fast:
        for number in range(10):
            await signal.broadcast(number)
        assert [await fast.next() for _ in range(10)] == list(range(10))
        assert [await slow.next() for _ in range(4)] == [Gap(7), 7, 8, 9]
        await signal.broadcast(10)
        assert await slow.next() == 10


async def test_cancelled_next_loses_nothing(signal: Signal) -> None:
    """Nor does one that times out at the moment of a broadcast."""
    async with signal.subscribe() as subscription:
        for number in range(20):
            task = asyncio.create_task(subscription.next())
            broadcast = asyncio.create_task(signal.broadcast(number))
            for _ in range(number % 10):
                await asyncio.sleep(0)
            task.cancel()
            await broadcast
            [item] = await asyncio.gather(task, return_exceptions=True)
            assert (await subscription.next() if isinstance(item, BaseException) else item) == number


async def test_next_with_timeout_0_returns_what_has_come(signal: Signal) -> None:
    """And never waits."""
    async with signal.subscribe() as subscription, signal.subscribe() as other:
        with pytest.raises(TimeoutError):
            await subscription.next(timeout=0)
        await signal.broadcast(1)
        await other.next()
        assert await subscription.next(timeout=0) == 1


async def test_pattern_hears_all_signals_whose_names_fit(any_concert: Coordinator) -> None:
    """With the name of each, those too that come later; and no others."""
    await let_hear(any_concert, "deploy.*")
    async with any_concert.signals("deploy.*").subscribe() as subscription:
        for name in ["deploy.web", "other", "deploy.", "undeploy.web", "deploy.{a}:b\n*", "deploy.ä"]:
            await any_concert.signal(name).broadcast(name)
        await any_concert.signal("deploy.end").broadcast()
        names = ["deploy.web", "deploy.", "deploy.{a}:b\n*", "deploy.ä"]
        expected = [*(Signalled(name, name) for name in names), Signalled("deploy.end", None)]
        heard = [await subscription.next() for _ in expected]
        if any_concert._ref.keys.is_sharded:  # which does not keep the order of messages from several nodes
            assert set(heard) == set(expected)
        else:
            assert heard == expected


@pytest.mark.parametrize(
    ("pattern", "other", "name"),
    [
        ("a?c", "abbc", "abc"),
        ("a[bx]c", "ayc", "axc"),
        ("a\\*c", "abc", "a*c"),
        ("a:*", "b:a:c", "a:b:c"),
        ("*x", "inbox:y", "inbox:x"),
    ],
)
async def test_pattern_is_a_glob(any_concert: Coordinator, pattern: str, other: str, name: str) -> None:
    """As the server understands it: one name fits, and the other does not."""
    await let_hear(any_concert, pattern)
    async with any_concert.signals(pattern).subscribe() as subscription:
        await any_concert.signal(other).broadcast()
        await any_concert.signal(name).broadcast()
        assert await subscription.next() == Signalled(name, None)


async def test_characters_of_a_namespace_are_not_those_of_a_glob(any_concert: Coordinator) -> None:
    """A namespace with them hears itself, and no other."""
    async with (
        Coordinator.from_client(client_of(any_concert), namespace="a*[b]?\\") as odd,
        Coordinator.from_client(client_of(any_concert), namespace="axbyz") as other,
    ):
        await let_hear(odd, "*")
        async with odd.signals("*").subscribe() as subscription:
            assert await other.signal("deploy").broadcast() == 0
            await odd.signal("deploy").broadcast()
            assert await subscription.next() == Signalled("deploy", None)


async def test_message_of_another_is_ignored(
    any_concert: Coordinator, signal: Signal, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever publishes on the channel by hand disturbs nobody, and is logged."""
    async with signal.subscribe() as subscription:
        [waiter] = await waiting(any_concert, signal)
        with caplog.at_level(logging.WARNING):
            for foreign in ("hello", f"{10**16} 0 v1.2.3", f"{10**16} 0 " + "[" * 2000 + "]" * 2000):
                await publish(any_concert, signal._channel, foreign)
            await signal.broadcast(7)
            assert await subscription.next() == 7
            assert await waiter == 7
        assert "'hello'" in caplog.text
        assert "v1.2.3" in caplog.text


async def test_subscription_is_entered_once_at_a_time(any_concert: Coordinator, signal: Signal) -> None:
    """Also while the server has not confirmed yet; afterwards nobody listens any more."""
    subscription = signal.subscribe()
    first = asyncio.create_task(subscription.__aenter__())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="is entered already"):
        await subscription.__aenter__()
    await first
    await subscription.__aexit__()
    assert not topics_of(any_concert._ref.session)
    async with subscription:
        await signal.broadcast(7)
        assert await subscription.next(timeout=5) == 7


async def test_subscription_is_entered_before_it_is_read(signal: Signal) -> None:
    """And once at a time; later again."""
    subscription = signal.subscribe()
    with pytest.raises(RuntimeError, match="not entered"):
        await subscription.next()
    for _ in range(2):
        async with subscription as entered:
            assert entered is subscription
            with pytest.raises(RuntimeError, match="entered already"):
                await subscription.__aenter__()
            assert await signal.broadcast() == 1


# Opening and closing.


async def test_waiter_is_sent_away_when_its_coordinator_closes(
    any_concert: Coordinator, elsewhere: Coordinator, signal: Signal, signal_elsewhere: Signal
) -> None:
    """With `NotConnected`, and the next is notified."""
    tasks = await waiting(any_concert, signal_elsewhere, signal)
    await elsewhere.__aexit__(None, None, None)
    with pytest.raises(NotConnected):
        await tasks[0]
    assert await signal.notify(7)
    assert await tasks[1] == 7


async def test_subscriber_gets_what_had_come_when_its_coordinator_closes(
    elsewhere: Coordinator, signal_elsewhere: Signal
) -> None:
    """And `NotConnected` after it."""
    async with signal_elsewhere.subscribe() as subscription, signal_elsewhere.subscribe() as other:
        await signal_elsewhere.broadcast(7)
        assert await other.next() == 7
        waits = asyncio.create_task(other.next())
        await asyncio.sleep(0)
        await elsewhere.__aexit__(None, None, None)
        assert await subscription.next() == 7
        for item in (subscription.next(), waits):
            with pytest.raises(NotConnected):
                await item


async def test_closed_coordinator_is_not_connected() -> None:
    """Whatever is asked of a signal."""
    concert = Coordinator("redis://127.0.0.1:1/0")
    signal = concert.signal("deploy")
    subscriptions: list[Subscription[Any]] = [signal.subscribe(), concert.signals("*").subscribe()]
    for attempt in (signal.wait(), signal.notify(), signal.broadcast(), *(each.__aenter__() for each in subscriptions)):
        with pytest.raises(NotConnected):
            await attempt


async def test_wait_gives_up_after_its_timeout(signal: Signal) -> None:
    """Not before."""
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await signal.wait(timeout=timedelta(milliseconds=50))
    assert 0.049 <= time.monotonic() - began < 1.0


async def test_wait_in_a_cancelled_scope_is_cancelled(any_concert: Coordinator, signal: Signal) -> None:
    """And not taken for a timeout."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        await signal.wait(timeout=5)
    assert scope.cancelled_caught
    await in_line(any_concert, 0)


# Bad input: refused before anything is sent, so the coordinator need not be open.


@pytest.mark.parametrize("name", ["", "a" * 513, "\ud800", b"deploy", 7, None])
def test_name_is_a_string_of_1_to_512_bytes(name: Any) -> None:
    """Anything else is `InvalidName`, of a signal and of a pattern."""
    for make in (Coordinator().signal, Coordinator().signals):
        with pytest.raises(InvalidName):
            make(name)


@pytest.mark.parametrize("buffer", [0, -1, True, 1.0, "1", None])
def test_buffer_is_a_whole_number_above_0(buffer: Any) -> None:
    """Anything else is a `ValueError`."""
    for subscribe in (Coordinator().signal("deploy").subscribe, Coordinator().signals("*").subscribe):
        with pytest.raises(ValueError, match="buffer of a subscription is"):
            subscribe(buffer=buffer)


@pytest.mark.parametrize(
    "payload", [nan, inf, {1}, b"bytes", {1: 2}, object(), "a" * 2**20], ids=lambda it: repr(it)[:9]
)
async def test_payload_is_json_of_at_most_1_mib(payload: Any) -> None:
    """Anything else is `InvalidPayload`."""
    signal = Coordinator().signal("deploy")
    for send in (signal.broadcast, signal.notify):
        with pytest.raises(InvalidPayload, match="of signal 'deploy'"):
            await send(payload)


@pytest.mark.parametrize("timeout", [-1, nan, inf, False, "1"])
async def test_timeout_is_a_time_from_0(timeout: Any) -> None:
    """Anything else but None is a `ValueError`."""
    signal = Coordinator().signal("deploy")
    for wait in (signal.wait, signal.subscribe().next):
        with pytest.raises(ValueError, match="timeout is"):
            await wait(timeout=timeout)
