"""What a mailbox promises to its recipient, on a real server and on fakeredis."""

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from inconcert import Coordinator, InvalidName, InvalidPayload, Mailbox, MailboxMessage, NotConnected
from inconcert._redis.wire.call import Call
from inconcert._rules.payloads import JSON
from tests.support.lines import in_line_at
from tests.support.raw import raw


@pytest.fixture
def mailbox(any_concert: Coordinator) -> Mailbox:
    """One that no other test uses."""
    return any_concert.mailbox("jack451")


def bodies(messages: list[MailboxMessage]) -> list[JSON]:
    """What was sent, without the wrapping."""
    return [message.body for message in messages]


async def stored(concert: Coordinator, mailbox: Mailbox) -> list[str]:
    """The parts of a mailbox that are there for good, when what was sent before has been done."""
    await mailbox.unread()
    keys = [key for key in mailbox._keys if await raw(concert).pttl(key) == -1]
    return [key.rpartition(":")[2] for key in keys]


async def let_claims_lapse(concert: Coordinator, mailbox: Mailbox) -> None:
    """All of them, now."""
    claims = await raw(concert).zrange(mailbox._keys.claims, 0, -1)
    await raw(concert).zadd(mailbox._keys.claims, dict.fromkeys(claims, 1))


# Sending and fetching.


async def test_messages_come_oldest_first_and_once(any_concert: Coordinator, mailbox: Mailbox) -> None:
    """At most `limit` of them; and then nothing is left of the mailbox but what lapses."""
    before = time.time()
    for number in range(5):
        await mailbox.send({"number": number})
    assert await mailbox.unread() == 5

    first = await mailbox.fetch(limit=2)
    rest = await mailbox.fetch()
    assert bodies(first + rest) == [{"number": number} for number in range(5)]
    assert sorted(message.id for message in first + rest) == [message.id for message in first + rest]
    assert all(before - 5 < message.time < time.time() + 5 for message in first)
    assert {(message.attempt, message.missed) for message in first + rest} == {(1, 0)}
    assert (await mailbox.fetch(), await mailbox.unread()) == ([], 0)
    assert await stored(any_concert, mailbox) == []


async def test_messages_of_one_sender_keep_their_order(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Whoever else sends at the same time."""

    async def send(concert: Coordinator, sender: str) -> None:
        await asyncio.gather(*(concert.mailbox("jack451").send([sender, number]) for number in range(50)))

    await asyncio.gather(send(any_concert, "ann"), send(elsewhere, "bob"))
    found: list[Any] = bodies(await any_concert.mailbox("jack451").fetch(limit=100))
    for sender in ("ann", "bob"):
        assert [number for by, number in found if by == sender] == [*range(50)]


async def test_ids_rise_even_if_the_clock_is_set_back(any_concert: Coordinator, mailbox: Mailbox) -> None:
    """They follow the last one, also when it has been fetched."""
    future = 4_000_000_000_000_000
    await mailbox.send("a")
    await raw(any_concert).set(mailbox._keys.last, future, px=60_000)
    await mailbox.send_many(["b", "c"])
    assert [message.id for message in await mailbox.fetch()][1:] == [future + 1, future + 2]
    await mailbox.send("d")
    await raw(any_concert).delete(mailbox._keys.last)
    await mailbox.send("e")
    assert [message.id for message in await mailbox.fetch()] == [future + 3, future + 4]


async def test_many_are_sent_in_one_step(any_concert: Coordinator, mailbox: Mailbox) -> None:
    """In their order; and none is nothing."""
    await mailbox.send_many([])
    assert await stored(any_concert, mailbox) == []
    await asyncio.gather(mailbox.send_many(range(1000)), mailbox.send_many(iter("abc")))
    found = bodies(await mailbox.fetch(limit=1000)) + bodies(await mailbox.fetch(limit=1000))
    assert found in ([*range(1000), *"abc"], [*"abc", *range(1000)])


BODIES: list[JSON] = [
    2**53 + 1,
    -(10**30),
    1.5,
    "",
    "two words\n\0 ä 😀",
    None,
    True,
    [],
    {},
    [[1, [2, {"a": None}]]],
    {"": 0, "a b": {"c": [False]}},
]


async def test_every_json_value_arrives_exactly(mailbox: Mailbox) -> None:
    """And of the same type."""
    for body in BODIES:
        await mailbox.send(body)
    found = bodies(await mailbox.fetch(limit=100))
    assert found == BODIES
    assert [type(body) for body in found] == [type(body) for body in BODIES]


@pytest.mark.parametrize("name", ["a{b", "a}b", "{}", "a\nb", "\0", "*", "a b", "ä", "x" * 512])
async def test_names_may_be_anything(any_concert: Coordinator, name: str) -> None:
    """And no two meet."""
    await any_concert.mailbox(name).send(1)
    assert await any_concert.mailbox(name + "}" if len(name) < 512 else "y").fetch() == []
    assert bodies(await any_concert.mailbox(name).fetch()) == [1]


async def test_large_messages_come_in_parts(mailbox: Mailbox) -> None:
    """Of about a mebibyte, and at least one."""
    await mailbox.send_many(["x" * 400_000] * 5)
    for _ in range(3):
        await mailbox.send("y" * (2**20 - 2))
    assert [len(await mailbox.fetch(limit=100)) for _ in range(6)] == [3, 3, 1, 1, 0, 0]


@pytest.mark.parametrize("body", [b"v1.2.3", b"[" * 2000 + b"]" * 2000], ids=["no JSON", "too deep"])
async def test_message_that_cannot_be_read_is_dropped_and_told(
    any_concert: Coordinator, mailbox: Mailbox, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody has sent it by `send()`: it does not keep the reader from the others, and does not come back."""
    await mailbox.send_many([1, 2, 3])
    ids = await raw(any_concert).hkeys(mailbox._keys.messages)
    await raw(any_concert).hset(mailbox._keys.messages, min(ids, key=int), body)
    [message] = await mailbox.fetch(limit=2)
    assert (message.body, message.missed) == (2, 1)
    assert "is dropped, because it cannot be read" in caplog.text
    await raw(any_concert).hset(mailbox._keys.messages, max(ids, key=int), body)
    waiting = asyncio.create_task(mailbox.fetch(limit=1, timeout=None))
    await in_line_at(any_concert, mailbox._keys.waiters, 1)
    await mailbox.send(4)
    assert bodies(await waiting) == [4]
    assert await stored(any_concert, mailbox) == []


# Claims.


async def test_message_that_is_not_acknowledged_comes_back_in_its_place(
    any_concert: Coordinator, mailbox: Mailbox
) -> None:
    """When its claim has lapsed, and counted; never before."""
    await mailbox.send_many([1, 2, 3])
    first = await mailbox.fetch(limit=2, ack=False)
    assert (bodies(first), await mailbox.unread()) == ([1, 2], 1)
    await mailbox.ack(first[1:])

    await let_claims_lapse(any_concert, mailbox)
    assert await mailbox.unread() == 2
    again = await mailbox.fetch(ack=False)
    assert [(message.body, message.attempt) for message in again] == [(1, 2), (3, 1)]
    assert again[0].id == first[0].id
    await let_claims_lapse(any_concert, mailbox)
    assert [message.attempt for message in await mailbox.fetch()] == [3, 2]
    assert await stored(any_concert, mailbox) == []


async def test_acknowledged_message_never_comes_back(any_concert: Coordinator, mailbox: Mailbox) -> None:
    """Whenever that is said, and by whom, and how often."""
    await mailbox.send_many([1, 2, 3])
    [late] = await mailbox.fetch(limit=1, ack=False)
    await let_claims_lapse(any_concert, mailbox)
    assert await mailbox.unread() == 3
    await mailbox.ack([late])
    assert await mailbox.unread() == 2

    held = await mailbox.fetch(ack=False)
    await let_claims_lapse(any_concert, mailbox)
    by_another = await mailbox.fetch(ack=False)
    await mailbox.ack(held[:1])
    await mailbox.ack(by_another[1:])
    await let_claims_lapse(any_concert, mailbox)
    assert await mailbox.fetch() == []
    for messages in ([late, *held], [*held, *by_another], []):
        await mailbox.ack(messages)
    assert await stored(any_concert, mailbox) == []


async def test_concurrent_fetches_share_the_messages(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Each is in one hand only, as long as the claims live."""
    await any_concert.mailbox("jack451").send_many(range(200))
    fetches = [concert.mailbox("jack451").fetch(limit=7, ack=False) for concert in (any_concert, elsewhere) * 20]
    found = [message for messages in await asyncio.gather(*fetches) for message in messages]
    assert sorted(str(message.body) for message in found) == sorted(map(str, range(200)))
    await elsewhere.mailbox("jack451").ack(found)
    assert await stored(any_concert, any_concert.mailbox("jack451")) == []


async def test_purge_drops_all(any_concert: Coordinator, mailbox: Mailbox) -> None:
    """What is in hand, too, and nobody is told."""
    await mailbox.send_many(range(5))
    held = await mailbox.fetch(limit=2, ack=False)
    assert (await mailbox.purge(), await mailbox.purge()) == (5, 0)
    await mailbox.ack(held)
    await mailbox.send("new")
    assert [(message.body, message.missed) for message in await mailbox.fetch()] == [("new", 0)]
    assert await stored(any_concert, mailbox) == []


# Caps.


async def test_oldest_go_when_there_are_too_many_and_the_reader_is_told(any_concert: Coordinator) -> None:
    """How many, with the first message of the next fetch, once; what is in hand stays."""
    mailbox = any_concert.mailbox("jack451", max_messages=3)
    await mailbox.send_many([1, 2])
    held = await mailbox.fetch(limit=1, ack=False)
    for number in range(3, 8):
        await mailbox.send(number)
    assert await mailbox.unread() == 3
    assert [(message.body, message.missed) for message in await mailbox.fetch()] == [(5, 3), (6, 0), (7, 0)]
    await mailbox.send_many(range(10))
    assert [(message.body, message.missed) for message in await mailbox.fetch()] == [(7, 7), (8, 0), (9, 0)]
    await mailbox.ack(held)
    assert await stored(any_concert, mailbox) == []


async def test_what_was_missed_is_told_until_it_is_acknowledged(any_concert: Coordinator) -> None:
    """A fetch that came to nothing has told nobody."""
    mailbox = any_concert.mailbox("jack451", max_messages=2)
    await mailbox.send_many(range(5))
    assert [message.missed for message in await mailbox.fetch(ack=False)] == [3, 0]
    await let_claims_lapse(any_concert, mailbox)
    first, second = await mailbox.fetch(ack=False)
    assert (first.missed, second.missed) == (3, 0)
    await mailbox.ack([second])
    await let_claims_lapse(any_concert, mailbox)
    assert [(message.missed, message.attempt) for message in await mailbox.fetch()] == [(0, 3)]
    assert await stored(any_concert, mailbox) == []


@pytest.mark.parametrize("noticed_by", ["fetch", "send"])
async def test_messages_over_age_go_and_the_reader_is_told(any_concert: Coordinator, noticed_by: str) -> None:
    """Whoever looks first; none that is too old is counted or fetched."""
    mailbox = any_concert.mailbox("jack451", max_age=timedelta(hours=1))
    await mailbox.send_many(["old", "old", "new"])
    unread = mailbox._keys.unread
    for index, age in ((0, 3_601), (1, 3_700), (2, 3_590)):
        [message] = await raw(any_concert).zrange(unread, index, index)
        await raw(any_concert).zadd(unread, {message: int(message) - age * 1_000_000})
    assert await mailbox.unread() == 1
    if noticed_by == "send":
        await mailbox.send("newer")
        assert await raw(any_concert).zcard(unread) == 2
    assert [(message.body, message.missed) for message in await mailbox.fetch(limit=1)] == [("new", 2)]


# Waiting.


async def test_waiting_fetch_is_woken_by_a_message(elsewhere: Coordinator, mailbox: Mailbox) -> None:
    """Sent from anywhere; and it sends nothing while it waits."""
    mailbox_elsewhere = elsewhere.mailbox("jack451")
    waiting = asyncio.create_task(mailbox_elsewhere.fetch(timeout=None))
    await in_line_at(elsewhere, mailbox._keys.waiters, 1)
    sent: list[Call] = []
    submit = elsewhere._ref.session.channel.submit

    def count(call: Call) -> None:
        sent.append(call)
        submit(call)

    elsewhere._ref.session.channel.submit = count  # type: ignore[method-assign]
    await asyncio.sleep(0.1)
    assert sent == []
    await mailbox.send(7)
    assert bodies(await waiting) == [7]
    assert len(sent) == 2  # one to look, one to acknowledge


async def test_longest_waiting_is_woken_and_nobody_else(
    any_concert: Coordinator, elsewhere: Coordinator, mailbox: Mailbox
) -> None:
    """One for each message, across processes; one who gave up is passed over."""
    tasks: list[asyncio.Task[list[MailboxMessage]]] = []
    for number in range(6):
        either = (any_concert, elsewhere)[number % 2].mailbox("jack451")
        tasks.append(asyncio.create_task(either.fetch(limit=1, timeout=None)))
        await in_line_at(any_concert, mailbox._keys.waiters, number + 1)
    tasks.pop(1).cancel()
    await in_line_at(any_concert, mailbox._keys.waiters, 5)
    for number, task in enumerate(tasks):
        await mailbox.send(number)
        assert bodies(await task) == [number]
        await in_line_at(any_concert, mailbox._keys.waiters, 4 - number)


async def test_one_step_with_many_messages_wakes_as_many_as_are_needed(
    any_concert: Coordinator, elsewhere: Coordinator, mailbox: Mailbox
) -> None:
    """Each who takes some lets the next in line look for the rest."""
    tasks: list[asyncio.Task[list[MailboxMessage]]] = []
    for number in range(6):
        either = (any_concert, elsewhere)[number % 2].mailbox("jack451")
        tasks.append(asyncio.create_task(either.fetch(limit=2, timeout=None)))
        await in_line_at(any_concert, mailbox._keys.waiters, number + 1)
    await mailbox.send_many(range(9))
    done = await asyncio.gather(*tasks[:5])
    assert sorted(map(str, (body for messages in done for body in bodies(messages)))) == sorted(map(str, range(9)))
    assert not tasks[5].done()
    await mailbox.send("last")
    assert bodies(await tasks[5]) == ["last"]


async def test_waiting_fetch_gets_what_another_did_not_acknowledge(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """When the claim lapses: whether that began before the wait, or during it."""
    mailbox, mailbox_elsewhere = any_concert.mailbox("jack451", ttl=0.1), elsewhere.mailbox("jack451")
    await mailbox.send("before")
    assert bodies(await mailbox.fetch(ack=False)) == ["before"]
    [message] = await mailbox_elsewhere.fetch(timeout=5)
    assert (message.body, message.attempt) == ("before", 2)

    tasks = [asyncio.create_task(mailbox.fetch(timeout=None, ack=False))]
    await in_line_at(any_concert, mailbox._keys.waiters, 1)
    tasks.append(asyncio.create_task(mailbox_elsewhere.fetch(timeout=5)))
    await in_line_at(any_concert, mailbox._keys.waiters, 2)
    await mailbox.send("during")
    first, second = await asyncio.gather(*tasks)
    assert [(message.body, message.attempt) for message in first + second] == [("during", 1), ("during", 2)]


async def test_wait_ends_in_time_with_nothing(any_concert: Coordinator, mailbox: Mailbox) -> None:
    """And leaves nothing behind."""
    started = time.monotonic()
    assert await mailbox.fetch(timeout=timedelta(seconds=0.1)) == []
    assert 0.09 < time.monotonic() - started < 2
    await in_line_at(any_concert, mailbox._keys.waiters, 0)
    session = any_concert._ref.session
    assert not session.inbox._receivers
    assert not session.lines._lines


async def test_closing_ends_the_wait(elsewhere: Coordinator, any_concert: Coordinator, mailbox: Mailbox) -> None:
    """With NotConnected, and leaves nothing in line."""
    waiting = asyncio.create_task(elsewhere.mailbox("jack451").fetch(timeout=None))
    await in_line_at(any_concert, mailbox._keys.waiters, 1)
    await elsewhere.__aexit__(None, None, None)
    with pytest.raises(NotConnected, match="was closed"):
        await waiting
    await in_line_at(any_concert, mailbox._keys.waiters, 0)
    await elsewhere.__aenter__()


# Bad input.


async def test_bad_settings_are_refused() -> None:
    """Before any I/O."""
    concert = Coordinator()
    for ttl in (0, -1, "1", True):
        with pytest.raises(ValueError, match="ttl is"):
            concert.mailbox("jack451", ttl=ttl)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    for most in (0, -1, 1.5, True, 1_000_001, "9"):
        with pytest.raises(ValueError, match="max_messages is"):
            concert.mailbox("jack451", max_messages=most)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    for age in (0, -1, float("nan"), "1"):
        with pytest.raises(ValueError, match="max_age is"):
            concert.mailbox("jack451", max_age=age)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    for name in ("", "x" * 513, "\ud800", 7):
        with pytest.raises(InvalidName):
            concert.mailbox(name)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(NotConnected):
        await concert.mailbox("jack451").send(1)


async def test_bad_calls_are_refused_and_change_nothing(any_concert: Coordinator, mailbox: Mailbox) -> None:
    """Not even what is good of them is sent."""
    bad: list[Any] = [float("nan"), {1, 2}, b"bytes", {1: 2}, "x" * 2**20]
    for body in bad:
        with pytest.raises(InvalidPayload, match="message"):
            await mailbox.send(body)
        with pytest.raises(InvalidPayload, match="message"):
            await mailbox.send_many(["good", body])
    with pytest.raises(InvalidPayload, match="together"):
        await mailbox.send_many(["x" * 1_000_000] * 9)
    with pytest.raises(ValueError, match="1001 messages"):
        await mailbox.send_many(range(1001))
    for limit in (0, -1, 1001, 2.0, True, None):
        with pytest.raises(ValueError, match="limit is"):
            await mailbox.fetch(limit=limit)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    for timeout in (-1, "1", float("nan")):
        with pytest.raises(ValueError, match="timeout is"):
            await mailbox.fetch(timeout=timeout)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert await stored(any_concert, mailbox) == []
