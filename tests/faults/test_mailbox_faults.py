"""Mailboxes while readers die or stand still, links break, servers forget and callers vanish at every await."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, Mailbox, MailboxMessage, NotConnected, Unavailable, WrongState
from inconcert._rules.payloads import JSON
from inconcert.mailboxes.fetch import Fetch
from tests.support.cancelling import MOMENTS, Means, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.inner import channel_of
from tests.support.lines import in_line_at
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import RealServer

HERE = "tests.faults.test_mailbox_faults"


def bodies(messages: list[MailboxMessage]) -> list[JSON]:
    """What was sent, without the wrapping."""
    return [message.body for message in messages]


async def in_line(concert: Coordinator, number: int) -> None:
    """Return when so many wait for messages."""
    await in_line_at(concert, concert.mailbox("jack451")._keys.waiters, number)


def kept(mailbox: Mailbox) -> tuple[str, ...]:
    """The keys of a mailbox, but for its memory of requests and of the last id."""
    keys = mailbox._keys
    return (keys.messages, keys.unread, keys.claims, keys.claimed, keys.dropped, keys.waiters)


async def nothing_is_left(*concerts: Coordinator) -> None:
    """No message, no claim, nobody in line; nobody here who listens."""
    keys = kept(concerts[0].mailbox("jack451"))

    async def is_over() -> bool:
        left: int = await raw(concerts[0]).exists(*keys)
        return left == 0

    await eventually(is_over)
    for concert in concerts:
        session = concert._ref.session
        assert not session.inbox._receivers
        assert not session.lines._lines


def fetching(concert: Coordinator, **options: Any) -> "asyncio.Task[list[MailboxMessage]]":
    """Let one wait for messages."""
    return asyncio.create_task(concert.mailbox("jack451").fetch(timeout=None, **options))


# Processes that die or stand still.


async def fetch_in_child(url: str, namespace: str, ttl: float) -> None:
    """In a child: fetch once, tell of it, stay a while, and acknowledge late."""
    async with Coordinator(url, namespace=namespace) as concert:
        mailbox = concert.mailbox("jack451", ttl=ttl)
        messages = await mailbox.fetch(timeout=None, ack=False)
        tell("fetched", bodies=bodies(messages))
        await asyncio.sleep(4 * ttl)
        await mailbox.ack(messages)
        tell("acknowledged")


@pytest.mark.parametrize("fault", ["kill", "pause"])
async def test_messages_of_a_reader_that_is_gone_come_back(
    concert: Coordinator, server: RealServer, namespace: str, fault: str
) -> None:
    """When its claim has lapsed, to one who waits; and what it says late does no harm."""
    await concert.mailbox("jack451").send_many([1, 2])
    async with spawn(f"{HERE}:fetch_in_child", server.url, namespace, 0.25) as child:
        assert (await child.wait_for("fetched"))["bodies"] == [1, 2]
        getattr(child, fault)()
        with anyio.fail_after(5):
            messages = await fetching(concert, ack=False)
        assert [(message.body, message.attempt) for message in messages] == [(1, 2), (2, 2)]
        if fault == "pause":
            child.resume()
            await child.wait_for("acknowledged")
        await concert.mailbox("jack451").ack(messages)
        await nothing_is_left(concert)


@pytest.mark.parametrize("fault", ["kill", "pause"])
async def test_next_in_line_gets_what_the_first_cannot_take(
    concert: Coordinator, server: RealServer, namespace: str, fault: str
) -> None:
    """At once if that one's process is gone; if it stands still, two seconds later."""
    async with spawn(f"{HERE}:fetch_in_child", server.url, namespace, 10) as child:
        await in_line(concert, 1)
        second = fetching(concert)
        await in_line(concert, 2)
        getattr(child, fault)()
        if fault == "kill":
            inboxes = f"{namespace}:*:inbox:*"

            async def one_listens() -> bool:
                return len(await raw(concert).pubsub_channels(inboxes)) == 1

            await eventually(one_listens)
        await concert.mailbox("jack451").send(7)
        with anyio.fail_after(5 if fault == "pause" else 1.5):
            assert bodies(await second) == [7]
        if fault == "pause":
            child.resume()
            await concert.mailbox("jack451").send(8)
            assert (await child.wait_for("fetched"))["bodies"] == [8]
            await concert.mailbox("jack451").purge()
    await nothing_is_left(concert)


async def read_in_child(url: str, namespace: str) -> None:
    """In a child: fetch, tell of it, acknowledge; again and again."""
    async with Coordinator(url, namespace=namespace) as concert:
        mailbox = concert.mailbox("jack451", ttl=1.0)
        while True:
            messages = await mailbox.fetch(limit=5, timeout=None, ack=False)
            tell("handled", messages=[[message.body, message.attempt] for message in messages])
            await mailbox.ack(messages)


async def test_every_message_is_handled_whoever_is_killed(
    concert: Coordinator, elsewhere: Coordinator, server: RealServer, namespace: str
) -> None:
    """Nothing is lost, and nothing was in two hands at once: whatever came twice had lapsed in between."""
    chance = random.Random(7)
    senders = (concert.mailbox("jack451"), elsewhere.mailbox("jack451"))
    children = [spawn(f"{HERE}:read_in_child", server.url, namespace) for _ in range(3)]

    def handled() -> Counter[tuple[Any, int]]:
        told = [message for child in children for message in child.messages]
        return Counter((tuple(body), attempt) for facts in told for body, attempt in facts["messages"])

    async def all_acknowledged() -> bool:
        keys = senders[0]._keys
        left: int = await raw(concert).exists(keys.messages, keys.unread, keys.claims, keys.claimed, keys.dropped)
        return left == 0

    try:
        await in_line(concert, 3)
        sent = [(sender, number) for number in range(200) for sender in range(2)]
        for sender, number in sent:
            await senders[sender].send([sender, number])
            if number in {60, 120} and sender == 0:
                children[number // 60 - 1].kill()
                children.append(spawn(f"{HERE}:read_in_child", server.url, namespace))
            if chance.random() < 0.05:
                await asyncio.sleep(chance.random() / 50)
        await eventually(lambda: {body for body, _ in handled()} == set(sent), timeout=20)
        await eventually(all_acknowledged)
        assert set(handled().values()) == {1}  # each attempt once
    finally:
        for child in children:
            child.close()


# Servers that forget, are full, or hold something else.


async def test_waiting_survives_a_server_that_comes_back_empty(own_server: RealServer) -> None:
    """Those who waited stand in line again, in their old order."""
    async with Coordinator(own_server.url) as concert, Coordinator(own_server.url) as elsewhere:
        tasks: list[asyncio.Task[list[MailboxMessage]]] = []
        for number in range(4):
            tasks.append(fetching((concert, elsewhere)[number % 2], limit=1))
            await in_line(concert, number + 1)
        look = ("ZRANGE", concert.mailbox("jack451")._keys.waiters, 0, -1)
        line = own_server.command(*look)
        own_server.restart(empty=True)
        await eventually(lambda: len(own_server.command("PUBSUB", "CHANNELS", "*:inbox:*")) == 2)
        await eventually(lambda: own_server.command(*look) == line)
        for number in range(4):
            await concert.mailbox("jack451").send(number)
        assert sorted(map(str, [bodies(await task) for task in tasks])) == ["[0]", "[1]", "[2]", "[3]"]
        await nothing_is_left(concert, elsewhere)


async def test_messages_and_claims_survive_a_restart(own_server: RealServer) -> None:
    """With data: the reader acknowledges what it has, and fetches the rest."""
    async with Coordinator(own_server.url) as concert:
        mailbox = concert.mailbox("jack451", max_messages=2)
        await mailbox.send_many(range(4))
        held = await mailbox.fetch(limit=1, ack=False)
        own_server.restart(empty=False)
        assert bodies(await mailbox.fetch()) == [3]
        await mailbox.ack(held)
        assert (bodies(held), held[0].missed) == ([2], 2)
        await nothing_is_left(concert)


async def test_waiters_whom_the_server_forgot_stand_in_line_again(concert: Coordinator) -> None:
    """When one of them looks, all of its process do; and the timed look makes the line live on."""
    tasks = [fetching(concert, limit=1) for _ in range(3)]
    await in_line(concert, 3)
    waiters = concert.mailbox("jack451")._keys.waiters
    await raw(concert).delete(waiters)
    [line] = concert._ref.session.lines._lines.values()
    assert 1700 < line.time_to_recheck() <= 1800
    line.recheck_in(0)
    await in_line(concert, 3)
    assert 3_500_000 < await raw(concert).pttl(waiters) <= 3_600_000
    await concert.mailbox("jack451").send_many(range(3))
    assert sorted(map(str, [bodies(await task) for task in tasks])) == ["[0]", "[1]", "[2]"]


async def test_full_server_refuses_messages_and_lets_them_be_read(own_server: RealServer) -> None:
    """All of a `send_many` or nothing; what is there can be fetched, come back and be acknowledged."""
    async with Coordinator(own_server.url) as concert:
        mailbox = concert.mailbox("jack451", max_messages=4)
        await mailbox.send_many(range(5))
        own_server.command("CONFIG", "SET", "maxmemory", "1")
        for refused in (mailbox.send(5), mailbox.send_many([5, 6])):
            with pytest.raises(Unavailable, match="memory"):
                await refused
        assert bodies(await mailbox.fetch(limit=1)) == [1]
        held = await mailbox.fetch(limit=2, ack=False)
        cancelled = asyncio.create_task(mailbox.fetch())
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        await mailbox.ack(held[:1])
        assert [(message.body, message.attempt) for message in await mailbox.fetch()] == [(4, 1)]
        own_server.command("CONFIG", "SET", "maxmemory", "0")
        await raw(concert).zadd(mailbox._keys.claims, {held[0].claim: 1})
        own_server.command("CONFIG", "SET", "maxmemory", "1")
        assert await mailbox.unread() == 1
        assert [(message.body, message.attempt) for message in await mailbox.fetch()] == [(3, 2)]
        own_server.command("CONFIG", "SET", "maxmemory", "0")
        await nothing_is_left(concert)


@pytest.mark.parametrize("part", ["messages", "unread", "claims", "claimed", "dropped", "waiters"])
async def test_foreign_data_is_an_error_and_left_alone(concert: Coordinator, part: str) -> None:
    """Whichever key it is in; and what is refused has changed nothing."""
    mailbox = concert.mailbox("jack451", max_messages=2)
    await mailbox.send_many(range(3))
    await mailbox.fetch(limit=1, ack=False)
    await mailbox.send_many("abc")
    keys = kept(mailbox)
    key = getattr(mailbox._keys, part)
    await raw(concert).delete(key)
    await raw(concert).sadd(key, "theirs")
    await raw(concert).pexpire(key, 60_000)
    refused: set[str] = set()
    for verb, call in (
        ("send", mailbox.send("d")),
        ("fetch", mailbox.fetch(limit=1, ack=False)),
        ("wait", mailbox.fetch(timeout=0.1)),
        ("purge", mailbox.purge()),
    ):
        before = [await raw(concert).dump(key) for key in keys]
        try:
            await call
        except WrongState:
            refused.add(verb)
            assert [await raw(concert).dump(key) for key in keys] == before
    assert refused >= ({"send", "fetch"} if part == "waiters" else {"fetch", "purge"})
    assert await raw(concert).smembers(key) == {b"theirs"}
    await raw(concert).delete(*mailbox._keys)


# Links that break, and replies that are lost.


async def test_link_may_break_at_any_reply(server: RealServer, namespace: str, concert: Coordinator) -> None:
    """Each message comes once, in its order, on its first attempt; and nothing is left."""
    number = 0
    while True:
        async with Proxy(server.tcp_url) as proxy, Coordinator(proxy.url, namespace=namespace) as elsewhere:
            mailbox = elsewhere.mailbox("jack451")
            opened = proxy.opened
            proxy.cut_after_replies(number, lose_next=True)
            await mailbox.send(1)
            await mailbox.send_many([2, 3])
            found = await mailbox.fetch(limit=2, ack=False)
            await mailbox.ack(found)
            found += await mailbox.fetch()
            waiting = fetching(elsewhere)
            await in_line(concert, 1)
            await concert.mailbox("jack451").send(4)
            with anyio.fail_after(5):
                found += await waiting
            assert [(message.body, message.attempt) for message in found] == [(1, 1), (2, 1), (3, 1), (4, 1)]
            await nothing_is_left(concert, elsewhere)
            if proxy.opened == opened:
                break
            await proxy.heal()
        number += 1
    assert number > 6


async def test_each_message_comes_once_while_links_are_cut_and_readers_vanish(own_server: RealServer) -> None:
    """All connections are killed again and again, and fetches cancelled at any moment: none takes a message along."""
    chance = random.Random(7)
    async with Coordinator(own_server.url) as concert, Coordinator(own_server.url) as elsewhere:
        found: list[MailboxMessage] = []
        is_over = asyncio.Event()

        async def read(reader: Coordinator) -> None:
            while not is_over.is_set():
                task = asyncio.create_task(reader.mailbox("jack451").fetch(limit=3, timeout=0.05))
                if chance.random() < 0.5:
                    await asyncio.wait([task], timeout=chance.random() / 100)
                    task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():
                    found.extend(task.result())

        readers = [asyncio.create_task(read(reader)) for reader in (concert, elsewhere) * 3]
        for number in range(300):
            await elsewhere.mailbox("jack451").send(number)
            if number % 50 == 25:
                own_server.command("CLIENT", "KILL", "TYPE", chance.choice(["NORMAL", "PUBSUB"]))
        await eventually(lambda: len(found) >= 300)
        is_over.set()
        await asyncio.gather(*readers)
        await nothing_is_left(concert, elsewhere)
        assert sorted(message.id for message in found) == sorted({message.id for message in found})
        assert {message.attempt for message in found} == {1}
        assert len(found) == 300


async def test_waiter_that_did_not_hear_of_a_message_looks_when_its_inbox_is_back(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """It was not there when the message came, and nobody else was."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(proxy.url, namespace=namespace) as elsewhere:
        waiting = fetching(elsewhere)
        await in_line(concert, 1)
        proxy.refuse()
        proxy.cut()
        await in_line_after_sending(concert, 0)
        await proxy.heal()
        with anyio.fail_after(5):
            assert bodies(await waiting) == [7]
        await nothing_is_left(concert, elsewhere)


async def in_line_after_sending(concert: Coordinator, number: int) -> None:
    """Send 7 once the server knows who has gone, and return when so many are in line."""

    async def one_listens() -> bool:
        return len(await raw(concert).pubsub_channels(f"{concert._ref.keys.namespace}:*:inbox:*")) == 1

    await eventually(one_listens)
    await concert.mailbox("jack451").send(7)
    await in_line(concert, number)


async def test_one_that_gives_up_when_it_was_told_leaves_it_to_the_next(
    concert: Coordinator, elsewhere: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, also in the same process, in which nobody else was told."""
    first = fetching(elsewhere)
    await in_line(concert, 1)
    second = fetching(elsewhere)
    await in_line(concert, 2)
    told: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(elsewhere._ref.session.inbox, "dispatch", told.append)
        await concert.mailbox("jack451").send(7)
        await eventually(lambda: told)
    assert len(told) == 1
    first.cancel()
    with anyio.fail_after(5):
        assert bodies(await second) == [7]
    await asyncio.wait([first])
    await nothing_is_left(concert, elsewhere)


async def test_one_whose_leaving_was_forgotten_does_not_stand_in_the_way(
    concert: Coordinator, elsewhere: Coordinator
) -> None:
    """Its process takes it out of the line when it is told, and the next one there has the message at once."""
    line = concert.mailbox("jack451")._keys.waiters
    lost = fetching(elsewhere)
    await in_line(concert, 1)
    places: list[tuple[bytes, float]] = await raw(concert).zrange(line, 0, -1, withscores=True)
    lost.cancel()
    await asyncio.wait([lost])
    await in_line(concert, 0)
    await raw(concert).zadd(line, dict(places))  # as a server has it that came back with older data
    second = fetching(elsewhere)
    await in_line(concert, 2)
    await concert.mailbox("jack451").send(7)
    with anyio.fail_after(1.5):
        assert bodies(await second) == [7]
    await nothing_is_left(concert, elsewhere)


async def test_one_that_gives_up_while_cut_off_leaves_when_the_connection_is_back(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """Its leaving could not be sent in time, and is sent again."""
    async with (
        Proxy(server.tcp_url) as proxy,
        Coordinator(proxy.url, namespace=namespace, timeout=0.3) as cut_off,
    ):
        lost = fetching(cut_off)
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


async def test_one_in_line_who_has_fetched_keeps_what_it_has(concert: Coordinator, elsewhere: Coordinator) -> None:
    """It is there because the server forgot that it was served: the next in line gets what is new, and at once."""
    name = "a b:{c}\n:d"
    mailbox = concert.mailbox(name)
    await mailbox.send("old")
    held = await elsewhere.mailbox(name).fetch(ack=False)
    await raw(concert).zadd(mailbox._keys.waiters, {held[0].claim: 1})
    waiting = asyncio.create_task(mailbox.fetch(timeout=None))
    await eventually(lambda: concert._ref.session.lines._lines)
    await mailbox.send("new")
    with anyio.fail_after(1.5):
        assert bodies(await waiting) == ["new"]
    assert await mailbox.unread() == 0
    await mailbox.ack(held)
    await eventually(partial(_are_gone, concert, kept(mailbox)))


async def _are_gone(concert: Coordinator, keys: tuple[str, ...]) -> bool:
    left: int = await raw(concert).exists(*keys)
    return left == 0


async def test_messages_that_came_just_when_the_coordinator_closed_are_back(
    concert: Coordinator, server: RealServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were given back, so nobody has them in hand."""
    async with Coordinator(server.url, namespace=namespace) as elsewhere:
        inbox = elsewhere._ref.session.inbox
        register = inbox.register

        def close(done: object) -> None:
            del done
            inbox.closed(NotConnected("closed"))

        def close_when_done(address: str, fetch: Any) -> None:
            register(address, fetch)
            fetch.add_done_callback(close)

        monkeypatch.setattr(inbox, "register", close_when_done)
        await concert.mailbox("jack451").send(1)
        with pytest.raises(NotConnected):
            await elsewhere.mailbox("jack451").fetch(ack=False)
    assert bodies(await concert.mailbox("jack451").fetch()) == [1]
    await nothing_is_left(concert)


async def test_message_that_comes_before_the_reply_to_joining_is_fetched(
    concert: Coordinator, elsewhere: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint comes on another connection; one who waits does not know yet that it is in line."""
    answered, hear = Fetch.answered, Fetch.on_message
    replies: list[Callable[[], None]] = []
    heard: list[str] = []

    def keep_back(fetch: Fetch, reply: Any) -> None:
        replies.append(partial(answered, fetch, reply))

    def take_note(fetch: Fetch, text: str) -> None:
        heard.append(text)
        hear(fetch, text)

    monkeypatch.setattr(Fetch, "answered", keep_back)
    monkeypatch.setattr(Fetch, "on_message", take_note)
    waiting = fetching(elsewhere)
    await in_line(concert, 1)
    await concert.mailbox("jack451").send(7)
    await eventually(lambda: heard)
    assert not waiting.done()
    monkeypatch.setattr(Fetch, "answered", answered)
    replies[0]()
    with anyio.fail_after(5):
        assert bodies(await waiting) == [7]
    await nothing_is_left(concert, elsewhere)


# Callers that vanish.

HOWS = [(moment, means) for moment in MOMENTS for means in ("task", "scope")]


async def fetch(mailbox: Mailbox) -> list[MailboxMessage]:
    """What is there."""
    return await mailbox.fetch()


async def fetch_with_patience(mailbox: Mailbox) -> list[MailboxMessage]:
    """What is there, or comes."""
    return await mailbox.fetch(timeout=20, ack=False)


@pytest.mark.parametrize("how", HOWS, ids=" by ".join)
@pytest.mark.parametrize(
    ("story", "comes_later"), [(fetch, False), (fetch_with_patience, False), (fetch_with_patience, True)]
)
async def test_fetch_cancelled_at_any_await_loses_nothing(
    concert: Coordinator,
    elsewhere: Coordinator,
    story: Callable[[Mailbox], Coroutine[Any, Any, list[MailboxMessage]]],
    how: tuple[Moment, Means],
    comes_later: bool,
) -> None:
    """Unless it has the message, that is there for the next at once, as if it had not been fetched."""
    mailbox = concert.mailbox("jack451")

    async def cancel_once(number: int) -> bool:
        found: list[MailboxMessage] = []

        async def take() -> None:
            found.extend(await story(mailbox))

        if not comes_later:
            await mailbox.send(number)
        victim = asyncio.create_task(cancel_at(number, how[0], take(), means=how[1]))
        if comes_later:
            await eventually(lambda: victim.done() or bool(concert._ref.session.lines._lines))
            await elsewhere.mailbox("jack451").send(number)
        came_so_far = await victim
        await mailbox.ack(found)
        if not found:
            with anyio.fail_after(5):
                found += await fetching(elsewhere)
        assert [(message.body, message.attempt) for message in found] == [(number, 1)]
        return came_so_far

    number = 1
    while await cancel_once(number):
        await nothing_is_left(concert, elsewhere)
        number += 1
    assert number > 1


async def send_and_acknowledge(mailbox: Mailbox) -> None:
    """What others do not wait for."""
    await mailbox.send(1)
    messages = await mailbox.fetch(ack=False)
    await mailbox.ack(messages)
    await mailbox.unread()


@pytest.mark.parametrize("how", HOWS, ids=" by ".join)
async def test_cancellation_at_any_await_leaves_nothing(concert: Coordinator, how: tuple[Moment, Means]) -> None:
    """But messages, or claims of those who have them."""
    number = 1
    while await cancel_at(number, how[0], send_and_acknowledge(concert.mailbox("jack451")), means=how[1]):
        number += 1
        await concert.mailbox("jack451").unread()
        await concert.mailbox("jack451").purge()
    await nothing_is_left(concert)
    assert number > 3
