"""Signals while waiters die, links break, replies are lost and callers vanish at every await."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, Gap, Signal, Unavailable, wait_any
from inconcert._core.channel_subscription import ChannelSubscription
from inconcert._redis.wire import pubsub as pubsub_module
from inconcert._rules.payloads import JSON
from inconcert.signals.waiter import Waiter
from tests.support.cancelling import MOMENTS, Means, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.inner import broadcasts_of, channel_of
from tests.support.lines import in_line_at
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import RealServer

HERE = "tests.faults.test_signals_faults"


async def in_line(concert: Coordinator, number: int) -> None:
    """Return when so many wait to be notified of the signal."""
    await in_line_at(concert, concert.signal("deploy")._keys.waiters, number)


async def nothing_is_left(*concerts: Coordinator) -> None:
    """Nobody in line, no payload that someone should have, no one who listens."""
    keys = concerts[0].signal("deploy")._keys

    async def is_over() -> bool:
        left: int = await raw(concerts[0]).exists(keys.waiters, keys.handed, keys.earlier)
        return left == 0

    await eventually(is_over)
    for concert in concerts:
        session = concert._ref.session
        assert not broadcasts_of(session)._channels
        assert not session.inbox._receivers
        assert not session.lines._lines


async def listens(concert: Coordinator, number: int) -> None:
    """Return when so many processes have an inbox on the server."""

    async def so_many() -> bool:
        return len(await raw(concert).pubsub_channels(f"{concert._ref.keys.namespace}:*:inbox:*")) == number

    await eventually(so_many)


def ignore(message: str) -> None:
    """Lose a message."""


def waiter(concert: Coordinator) -> "asyncio.Task[JSON]":
    """Let one wait for the signal."""
    return asyncio.create_task(concert.signal("deploy").wait())


# Processes that die or stand still.


async def wait_in_child(url: str, namespace: str) -> None:
    """In a child: wait for the signal, and say what came."""
    async with Coordinator(url, namespace=namespace) as concert:
        tell("heard", payload=await concert.signal("deploy").wait())


async def test_notify_goes_to_the_next_when_the_first_was_killed(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """`kill -9`: the script finds out that nobody listens there any more."""
    async with spawn(f"{HERE}:wait_in_child", server.url, namespace) as child:
        await in_line(concert, 1)
        second = waiter(concert)
        await in_line(concert, 2)
        child.kill()
        await listens(concert, 1)
        assert await concert.signal("deploy").notify(7)
        assert await second == 7


async def test_paused_waiter_is_notified_and_hears_it_when_it_goes_on(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """SIGSTOP: the server cannot know, so it counts as one who waits."""
    async with spawn(f"{HERE}:wait_in_child", server.url, namespace) as child:
        await in_line(concert, 1)
        second = waiter(concert)
        await in_line(concert, 2)
        child.pause()
        assert await concert.signal("deploy").notify(7)
        child.resume()
        assert (await child.wait_for("heard"))["payload"] == 7
        assert await concert.signal("deploy").notify(8)
        assert await second == 8


# Servers that forget.


async def test_waiters_survive_a_server_that_comes_back_empty(own_server: RealServer) -> None:
    """They stand in line again, in their old order, and a subscriber is told of the gap."""
    async with Coordinator(own_server.url) as concert, Coordinator(own_server.url) as elsewhere:
        tasks: list[asyncio.Task[JSON]] = []
        for number in range(6):
            tasks.append(waiter((concert, elsewhere)[number % 2]))
            await in_line(concert, number + 1)
        async with concert.signal("deploy").subscribe() as subscription:
            own_server.restart(empty=True)
            await eventually(lambda: len(own_server.command("PUBSUB", "CHANNELS", "*:inbox:*")) == 2)
            await eventually(lambda: own_server.command("ZCARD", concert.signal("deploy")._keys.waiters) == 6)
            for number, task in enumerate(tasks[:3]):
                assert await concert.signal("deploy").notify(number)
                assert await task == number
            with anyio.fail_after(5):
                assert await subscription.next() == Gap(None)
            await concert.signal("deploy").broadcast("all")
            assert await asyncio.gather(*tasks[3:]) == ["all"] * 3
            assert await subscription.next() == "all"


async def test_waiters_whom_the_server_forgot_stand_in_line_again(concert: Coordinator) -> None:
    """When one of them looks, all of its process do."""
    tasks = [waiter(concert) for _ in range(5)]
    await in_line(concert, 5)
    keys = concert.signal("deploy")._keys
    await raw(concert).delete(*keys)
    [line] = concert._ref.session.lines._lines.values()
    line.recheck_in(0)
    await in_line(concert, 5)
    assert await concert.signal("deploy").notify(0)
    assert await tasks[0] == 0
    await concert.signal("deploy").broadcast(1)
    assert await asyncio.gather(*tasks[1:]) == [1] * 4


async def test_line_outlives_an_hour_without_a_signal(concert: Coordinator) -> None:
    """The timed look makes its key live on."""
    task = waiter(concert)
    await in_line(concert, 1)
    waiters = concert.signal("deploy")._keys.waiters
    [line] = concert._ref.session.lines._lines.values()
    assert 1700 < line.time_to_recheck() <= 1800
    await raw(concert).pexpire(waiters, 60_000)
    line.recheck_in(0)

    async def lives_on() -> bool:
        return bool(await raw(concert).pttl(waiters) > 3_500_000)

    await eventually(lives_on)
    assert 1700 < line.time_to_recheck() <= 1800
    assert await concert.signal("deploy").notify()
    assert await task is None


async def test_full_server_takes_no_new_waiter_and_lets_the_others_end(own_server: RealServer) -> None:
    """`Unavailable` for what needs room; notifying and leaving need none."""
    async with Coordinator(own_server.url) as concert:
        signal = concert.signal("deploy")
        tasks = [waiter(concert), waiter(concert)]
        await in_line(concert, 2)
        own_server.command("CONFIG", "SET", "maxmemory", "1")
        for refused in (signal.broadcast(), signal.wait()):
            with pytest.raises(Unavailable):
                await refused
        assert await signal.notify(7)
        assert await tasks[0] == 7
        tasks[1].cancel()
        await asyncio.wait(tasks)
        own_server.command("CONFIG", "SET", "maxmemory", "0")
        await nothing_is_left(concert)


# Links that break.


def holes(items: list[JSON | Gap]) -> list[JSON | Gap]:
    """Numbers that do not follow those before them, with no gap between."""
    found: list[JSON | Gap] = []
    next_one: int | None = 0
    for item in items:
        if isinstance(item, int):
            if next_one is not None and item != next_one:
                found.append(item)
            next_one = item + 1
        else:
            next_one = None
    return found


async def test_every_broadcast_or_a_gap_in_its_place_reaches_every_subscriber(own_server: RealServer) -> None:
    """While the connections on which they come are killed again and again."""
    async with Coordinator(own_server.url) as sender, Coordinator(own_server.url) as concert:
        received: list[list[JSON | Gap]] = [[], [], []]
        ready = [asyncio.Event() for _ in received]

        async def read(number: int) -> None:
            async with concert.signal("deploy").subscribe() as subscription:
                ready[number].set()
                async for item in subscription:
                    received[number].append(item)
                    if item == "end":
                        return

        readers = [asyncio.create_task(read(number)) for number in range(3)]
        for event in ready:
            await event.wait()
        for number in range(600):
            await sender.signal("deploy").broadcast(number)
            if number % 100 == 50:
                own_server.command("CLIENT", "KILL", "TYPE", "PUBSUB")
        await eventually(lambda: broadcasts_of(concert._ref.session)._wire is not None)

        async def all_listen() -> bool:
            return bool(await sender.signal("deploy").broadcast("end"))

        await eventually(all_listen)
        await asyncio.gather(*readers)
        for items in received:
            assert items == received[0]
            assert Gap(None) in items
            assert holes(items) == []


async def test_broadcast_that_was_missed_by_one_who_waits_is_heard_later(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """Its connections were away, and it was in line: it asks when they are back."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(proxy.url, namespace=namespace) as elsewhere:
        task = waiter(elsewhere)
        await in_line(concert, 1)
        proxy.refuse()
        proxy.cut()
        await listens(concert, 1)
        await concert.signal("deploy").broadcast(7)
        await concert.signal("deploy").broadcast(8)
        await proxy.heal()
        assert await task == 8
        await nothing_is_left(concert, elsewhere)


async def test_waiter_whose_inbox_was_away_has_its_place_back(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """It was passed over once, and is the next when it is back."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(proxy.url, namespace=namespace) as elsewhere:
        first = waiter(elsewhere)
        await in_line(concert, 1)
        others = [waiter(concert), waiter(concert)]
        await in_line(concert, 3)
        proxy.refuse()
        proxy.cut()
        await listens(concert, 1)
        assert await concert.signal("deploy").notify(0)
        assert await others[0] == 0
        await proxy.heal()
        await listens(concert, 2)
        await in_line(concert, 2)
        assert await concert.signal("deploy").notify(1)
        assert await first == 1
        await concert.signal("deploy").notify(2)
        assert await others[1] == 2


async def test_one_that_gives_up_while_cut_off_leaves_when_the_connection_is_back(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """Its leaving could not be sent in time, and is sent again."""
    async with (
        Proxy(server.tcp_url) as proxy,
        Coordinator(proxy.url, namespace=namespace, timeout=0.3) as cut_off,
    ):
        lost = waiter(cut_off)
        await in_line(concert, 1)
        proxy.refuse()
        proxy.cut()
        channel = channel_of(cut_off._ref.session)
        await eventually(lambda: channel._wire is None)
        lost.cancel()
        await asyncio.wait([lost])
        await eventually(lambda: not channel._unsent)  # it was not said in time
        await proxy.heal()
        await nothing_is_left(concert, cut_off)


async def test_notification_passes_all_whom_a_server_with_older_data_has_in_line(own_server: RealServer) -> None:
    """They had left since; it goes from one to the next, as it is, to the first who does wait."""
    name, payload = "a b:{c}\n:d", {"text": "a\nb c"}
    async with Coordinator(own_server.url) as concert, Coordinator(own_server.url) as elsewhere:
        signal = concert.signal(name)
        gone: list[asyncio.Task[JSON]] = []
        for number in range(4):
            gone.append(asyncio.create_task((signal, elsewhere.signal(name))[number % 2].wait()))
            await eventually(lambda: own_server.command("ZCARD", signal._keys.waiters) == len(gone))
        own_server.command("SAVE")
        for task in gone:
            task.cancel()
        await asyncio.wait(gone)
        for each in (concert, elsewhere):
            await each.signal("other").notify()  # whoever has this reply has those to all leaving, too
        own_server.kill()
        own_server.start()
        await eventually(lambda: len(own_server.command("PUBSUB", "CHANNELS", "*:inbox:*")) == 2)
        waits = asyncio.create_task(elsewhere.signal(name).wait())
        await eventually(lambda: own_server.command("ZCARD", signal._keys.waiters) == 5)
        assert await signal.notify(payload)
        with anyio.fail_after(5):
            assert await waits == payload
        keys = signal._keys
        await eventually(lambda: not own_server.command("EXISTS", keys.waiters, keys.handed, keys.earlier))


@pytest.mark.parametrize("gives_up", [False, True])
async def test_notification_whose_message_was_lost_is_not(
    concert: Coordinator, elsewhere: Coordinator, monkeypatch: pytest.MonkeyPatch, gives_up: bool
) -> None:
    """The server keeps it until the waiter looks, or goes and leaves it to the next."""
    first = waiter(elsewhere)
    await in_line(concert, 1)
    second = waiter(concert)
    await in_line(concert, 2)
    monkeypatch.setattr(elsewhere._ref.session.inbox, "dispatch", ignore)
    assert await concert.signal("deploy").notify(7)
    if gives_up:
        first.cancel()
        assert await second == 7
    else:
        elsewhere._ref.session.inbox.missed()
        assert await first == 7
        second.cancel()
    await asyncio.wait([first, second])
    await nothing_is_left(concert, elsewhere)


async def test_notification_is_handed_on_past_any_number_of_dead(
    concert: Coordinator, elsewhere: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred are dropped in one step, and the step is repeated."""
    first = waiter(elsewhere)
    await in_line(concert, 1)
    monkeypatch.setattr(elsewhere._ref.session.inbox, "dispatch", ignore)
    assert await concert.signal("deploy").notify(7)
    dead = {f"gone.{number}": number for number in range(250)}
    await raw(concert).zadd(concert.signal("deploy")._keys.waiters, dead)
    second = waiter(concert)
    await in_line(concert, 251)
    first.cancel()
    assert await second == 7
    await nothing_is_left(concert, elsewhere)


async def test_broadcast_that_comes_before_the_reply_to_joining_is_heard(
    concert: Coordinator, elsewhere: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come on two connections; one who waits does not know yet that it was in line."""
    answered = Waiter.answered
    replies: list[Callable[[], None]] = []

    def keep_back(waiter: Waiter, reply: Any) -> None:
        replies.append(partial(answered, waiter, reply))

    monkeypatch.setattr(Waiter, "answered", keep_back)
    async with elsewhere.signal("deploy").subscribe() as subscription:
        task = waiter(elsewhere)
        await eventually(lambda: replies)
        await concert.signal("deploy").broadcast(7)
        assert await subscription.next() == 7
        assert not task.done()
        monkeypatch.setattr(Waiter, "answered", answered)
        replies[0]()
        assert await task == 7
    await nothing_is_left(concert, elsewhere)


async def test_broadcast_from_before_the_wait_is_not_heard_however_late_it_comes(concert: Coordinator) -> None:
    """It says when it was said, by the clock that gave the ticket."""
    signal = concert.signal("deploy")
    async with signal.subscribe() as subscription:
        task = waiter(concert)
        await in_line(concert, 1)
        await raw(concert).publish(signal._channel, '1000000 0 "long ago"')
        assert await subscription.next() == "long ago"
        await signal.broadcast("now")
        assert await task == "now"


async def test_notification_comes_before_a_broadcast_that_came_after_it(
    concert: Coordinator, elsewhere: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the broadcast is heard first: who was notified must not be gone with something else."""
    task = waiter(elsewhere)
    await in_line(concert, 1)
    monkeypatch.setattr(elsewhere._ref.session.inbox, "dispatch", ignore)
    assert await concert.signal("deploy").notify("to one")
    assert await concert.signal("deploy").broadcast("to all") == 1
    assert await task == "to one"
    await nothing_is_left(concert, elsewhere)


async def test_half_open_connection_of_broadcasts_is_noticed(
    server: RealServer, namespace: str, concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a PING that is not answered: the subscriber is told of a gap, and hears again."""
    monkeypatch.setattr(pubsub_module, "_PING_EVERY", 0.1)
    async with (
        Proxy(server.tcp_url) as proxy,
        Coordinator(proxy.url, namespace=namespace, timeout=0.4) as elsewhere,
        elsewhere.signal("deploy").subscribe() as subscription,
    ):
        proxy.drop_replies()
        await eventually(lambda: broadcasts_of(elsewhere._ref.session)._wire is None)
        await proxy.heal()
        with anyio.fail_after(5):
            assert await subscription.next() == Gap(None)
        assert await concert.signal("deploy").broadcast(7)
        assert await subscription.next() == 7


async def test_subscribing_without_a_server_is_unavailable(own_server: RealServer) -> None:
    """Within the timeout, and it works again when the server is back."""
    async with Coordinator(own_server.url, timeout=0.4) as concert:
        own_server.kill()
        for _ in range(2):
            with (
                anyio.fail_after(2),
                pytest.raises(
                    Unavailable, match=r"signal 'deploy': subscribe was not confirmed by the server within 0\.2 s"
                ),
            ):
                await concert.signal("deploy").subscribe().__aenter__()
        own_server.start()

        async def is_back() -> bool:
            try:
                async with concert.signal("deploy").subscribe():
                    return True
            except Unavailable:
                return False

        await eventually(is_back)


SELF = ("&shop:0:inbox:*", "&shop:0:session:*")  # the channels that every session uses


async def test_user_without_the_right_to_a_channel_is_told(own_server: RealServer) -> None:
    """At once, and others who listen are not disturbed; also when the right is taken away meanwhile."""
    own_server.command("ACL", "SETUSER", "shop", "on", ">secret", "~*", "+@all", *SELF, "&shop:0:signal:a")
    url = own_server.tcp_url.replace("redis://", "redis://shop:secret@")
    async with Coordinator(url, namespace="shop") as concert, concert.signal("a").subscribe() as subscription:
        for _ in range(2):
            with anyio.fail_after(2), pytest.raises(Unavailable, match=r"signal 'b': subscribe was refused.*NOPERM"):
                await concert.signal("b").subscribe().__aenter__()
        assert await concert.signal("a").broadcast(7) == 1
        assert await subscription.next() == 7
        own_server.command("ACL", "SETUSER", "shop", "resetchannels", *SELF)  # this cuts the connection
        with anyio.fail_after(5), pytest.raises(Unavailable, match="signal 'a': subscribe was refused"):
            await subscription.next()


async def test_inbox_that_was_refused_for_a_while_hears_again(
    own_server: RealServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without it a hand-off would not reach this process until it is started anew."""
    monkeypatch.setattr(pubsub_module, "_PING_EVERY", 0.05)
    own_server.command("ACL", "SETUSER", "shop", "on", ">secret", "~*", "+@all", "allchannels")
    url = own_server.tcp_url.replace("redis://", "redis://shop:secret@")
    async with (
        Coordinator(own_server.url, namespace="shop") as elsewhere,
        Coordinator(url, namespace="shop") as concert,
    ):
        own_server.command("ACL", "SETUSER", "shop", "resetchannels")  # this cuts the connection
        await listens(elsewhere, 1)
        await eventually(lambda: "refused to subscribe" in caplog.text)
        own_server.command("ACL", "SETUSER", "shop", "allchannels")
        await listens(elsewhere, 2)
        lease = await elsewhere.lock("item").acquire()
        waiting = asyncio.create_task(concert.lock("item").acquire())
        await eventually(elsewhere.lock("item").waiters)
        await lease.release()
        with anyio.fail_after(5):
            await (await waiting).release()


async def test_channels_may_come_and_go_in_any_order(concert: Coordinator) -> None:
    """One who listens always has the server's subscription, whoever leaves or is cancelled meanwhile."""
    session = concert._ref.session

    async def come_and_go(number: int) -> None:
        for turns in range(20):
            async with ChannelSubscription(session, f"channel {(number + turns) % 3}") as listening:
                await raw(concert).publish(f"channel {(number + turns) % 3}", "now")
                assert await listening.next()
            with anyio.move_on_after(0):
                async with ChannelSubscription(session, f"channel {number % 3}"):
                    pass

    with anyio.fail_after(20):
        await asyncio.gather(*(come_and_go(number) for number in range(20)))
    assert not broadcasts_of(session)._channels


# Replies that are lost.


@pytest.mark.parametrize("verb", ["notify", "broadcast"])
async def test_signal_whose_reply_was_lost_is_sent_once(
    concert: Coordinator, server: RealServer, namespace: str, verb: str
) -> None:
    """The second run answers as the first, and wakes nobody more."""
    async with (
        Proxy(server.tcp_url) as proxy,
        Coordinator(proxy.url, namespace=namespace) as elsewhere,
        concert.signal("deploy").subscribe() as subscription,
    ):
        tasks = [waiter(concert), waiter(concert)]
        await in_line(concert, 2)
        signal = elsewhere.signal("deploy")
        proxy.cut_after_replies(0, lose_next=True)
        assert await getattr(signal, verb)(1) == 1
        assert proxy.opened > 2
        await concert.signal("deploy").broadcast("end")
        assert [await task for task in tasks] == ([1, 1] if verb == "broadcast" else [1, "end"])
        assert await subscription.next() == (1 if verb == "broadcast" else "end")


async def test_one_whose_place_was_confirmed_too_late_misses_no_broadcast(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """The first reply to its joining was lost, and the broadcast came before the second: it was in line."""
    async with (
        Proxy(server.tcp_url) as proxy,
        Coordinator(proxy.url, namespace=namespace) as elsewhere,
        elsewhere.signal("deploy").subscribe(),
    ):
        proxy.hold_replies()
        task = waiter(elsewhere)
        await in_line(concert, 1)
        proxy.refuse()
        proxy.cut()
        await listens(concert, 1)
        await concert.signal("deploy").broadcast(7)
        await proxy.heal()
        assert await task == 7


async def test_link_may_break_at_any_reply(server: RealServer, namespace: str, concert: Coordinator) -> None:
    """Of a wait: it ends with the one payload that there is, and nothing is left."""
    number = 0
    while True:
        async with Proxy(server.tcp_url) as proxy, Coordinator(proxy.url, namespace=namespace) as elsewhere:
            opened = proxy.opened
            proxy.cut_after_replies(number, lose_next=True)
            task = waiter(elsewhere)

            async def sent() -> bool:
                return await concert.signal("deploy").notify(7)

            await eventually(sent)
            with anyio.fail_after(5):
                assert await task == 7
            await nothing_is_left(concert, elsewhere)
            if proxy.opened <= opened + 1:  # the connection of broadcasts, and none again
                break
            await proxy.heal()
        number += 1
    assert number > 3


# Callers that vanish.

HOWS = [(moment, means) for moment in MOMENTS for means in ("task", "scope")]


async def wait(signal: Signal) -> None:
    """For a signal."""
    await signal.wait()


async def wait_for_a_time(signal: Signal) -> None:
    """With a timeout."""
    await signal.wait(timeout=20)


async def wait_for_any(signal: Signal) -> None:
    """Of two, one of which never comes."""
    await wait_any(signal, signal, timeout=20)


@pytest.mark.parametrize("how", HOWS, ids=" by ".join)
@pytest.mark.parametrize("story", [wait, wait_for_a_time, wait_for_any])
async def test_notification_of_one_cancelled_at_any_await_is_not_lost(
    concert: Coordinator,
    elsewhere: Coordinator,
    story: Callable[[Signal], Coroutine[Any, Any, None]],
    how: tuple[Moment, Means],
) -> None:
    """Either it got the payload, or the next in line has; and nothing is left."""

    async def cancel_once(number: int) -> bool:
        heard: list[JSON] = []

        async def hear() -> None:
            heard.append(await elsewhere.signal("deploy").wait())

        async def victim_hears() -> None:
            await story(concert.signal("deploy"))
            heard.append("victim")

        victim = asyncio.create_task(cancel_at(number, how[0], victim_hears(), means=how[1]))
        await eventually(lambda: victim.done() or bool(concert._ref.session.lines._lines))
        follower = asyncio.create_task(hear())
        await eventually(lambda: bool(elsewhere._ref.session.lines._lines))
        assert await elsewhere.signal("deploy").notify(7)
        came_so_far = await victim
        await eventually(lambda: len(heard) == 1)
        follower.cancel()
        await asyncio.wait([follower])
        return came_so_far

    number = 1
    while await cancel_once(number):
        await nothing_is_left(concert, elsewhere)
        number += 1
    assert number > 2


async def send(signal: Signal) -> None:
    """Both ways."""
    await signal.notify(1)
    await signal.broadcast(2)


async def subscribe(signal: Signal) -> None:
    """And read."""
    async with signal.subscribe() as subscription:
        await signal.broadcast(1)
        await subscription.next()


@pytest.mark.parametrize("how", HOWS, ids=" by ".join)
@pytest.mark.parametrize("story", [send, subscribe])
async def test_cancellation_at_any_await_leaves_nothing(
    concert: Coordinator, story: Callable[[Signal], Coroutine[Any, Any, None]], how: tuple[Moment, Means]
) -> None:
    """No one who listens, and nobody in line."""
    number = 1
    while await cancel_at(number, how[0], story(concert.signal("deploy")), means=how[1]):
        await nothing_is_left(concert)
        number += 1
    assert number > 2


# Many.


async def test_a_thousand_waiters_are_notified_once_each(concert: Coordinator, elsewhere: Coordinator) -> None:
    """In two processes, by two who notify at the same time."""
    tasks = [waiter((concert, elsewhere)[number % 2]) for number in range(1000)]
    await in_line(concert, 1000)
    signals = (concert.signal("deploy"), elsewhere.signal("deploy"))
    assert all(await asyncio.gather(*(signals[number % 2].notify(number) for number in range(1000))))
    assert sorted(int(str(task)) for task in await asyncio.gather(*tasks)) == list(range(1000))
    assert not await signals[0].notify()
    await nothing_is_left(concert, elsewhere)
