"""What a chat promises to its members, on a real server and on fakeredis."""

import asyncio
import time
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import pytest

from inconcert import (
    Batch,
    ChatNotFound,
    Chats,
    Coordinator,
    InvalidName,
    InvalidPayload,
    Message,
    NotAMember,
    NotConnected,
)
from inconcert._rules.payloads import JSON
from tests.support.eventually import eventually
from tests.support.inner import topics_of
from tests.support.raw import raw
from tests.support.servers import RealServer

NOBODY = "there is no such chat"


@pytest.fixture
def chat(any_concert: Coordinator) -> Chats:
    """The chats of a namespace that no other test uses."""
    return any_concert.chat


@pytest.fixture
async def kitchen(chat: Chats) -> str:
    """A chat of ann, bob and cy, with the message that ann began it with."""
    return await chat.create("ann", ["bob", "cy"], "hello")


@pytest.fixture
def chat_elsewhere(elsewhere: Coordinator) -> Chats:
    """The same chats, as another process has them."""
    return elsewhere.chat


async def bodies(chat: Chats, user: str, **options: Any) -> list[JSON]:
    """What a user fetches from the only chat with news, without the wrapping."""
    batches = await chat.fetch(user, **options)
    assert len(batches) <= 1
    return [message.body for batch in batches for message in batch.messages]


async def keys_of(concert: Coordinator, pattern: str) -> list[str]:
    """The keys of the test's namespace that match."""
    client: Any = raw(concert)
    return sorted([key.decode() async for key in client.scan_iter(f"{{{concert._ref.keys.namespace}:{pattern}")])


async def kept(concert: Coordinator) -> list[str]:
    """All keys of the test's namespace, but for those that remember requests for two minutes."""
    return [key for key in await keys_of(concert, "chats:*") if not key.endswith((":recent", ":older"))]


async def key_of(concert: Coordinator, chat_id: str, part: str) -> str:
    """The key of one part of a chat."""
    [key] = await keys_of(concert, f"chats:?}}:chat:{chat_id}:{part}")
    return key


async def make_older(concert: Coordinator, chat_id: str, count: int, seconds: int) -> None:
    """Let the first messages of a chat have been sent earlier than they were."""
    client: Any = raw(concert)
    key = await key_of(concert, chat_id, "messages")
    for index in range(count):
        at_ms, _, rest = (await client.lindex(key, index)).partition(b"\n")
        await client.lset(key, index, b"%d\n" % (int(at_ms) - seconds * 1000) + rest)


# Create, send, fetch.


async def test_first_message_reaches_all_members_and_its_sender(chat: Chats, kitchen: str) -> None:
    """Whoever was named in `create` fetches the message that it began with."""
    for user in ("ann", "bob", "cy"):
        [batch] = await chat.fetch(user)
        [message] = batch.messages
        assert (batch.chat_id, batch.missed, batch.last_id) == (kitchen, 0, 1)
        assert (message.id, message.sender, message.body) == (1, "ann", "hello")


async def test_sent_message_is_what_others_fetch(chat: Chats, kitchen: str) -> None:
    """`send` returns the message as every member gets it."""
    sent = await chat.send(kitchen, "bob", {"text": "hi", "to": ("ann", "cy")})

    [batch] = await chat.fetch("cy")

    assert batch.messages[-1] == sent
    assert sent == Message(2, sent.time, "bob", {"text": "hi", "to": ["ann", "cy"]})


async def test_ids_count_up_from_one_and_times_do_not_fall(chat: Chats, kitchen: str) -> None:
    """Ids have no gaps; times are the server's, in seconds, and in the order of the ids."""
    for number in range(2, 12):
        await chat.send(kitchen, "ann", number)

    [batch] = await chat.fetch("bob")

    times = [message.time for message in batch.messages]
    assert [message.id for message in batch.messages] == list(range(1, 12))
    assert times == sorted(times)
    assert abs(times[0] - time.time()) < 60


async def test_fetch_moves_the_position(chat: Chats, kitchen: str) -> None:
    """What was fetched is not fetched again; what came since is."""
    assert await bodies(chat, "bob") == ["hello"]
    assert await chat.fetch("bob") == []

    await chat.send(kitchen, "ann", "more")

    assert await bodies(chat, "bob") == ["more"]
    assert (await chat.members(kitchen))["bob"] == 2


async def test_fetch_without_ack_moves_nothing(chat: Chats, kitchen: str) -> None:
    """With `ack=False` the same messages come again until they are acknowledged."""
    [first] = await chat.fetch("bob", ack=False)
    [again] = await chat.fetch("bob", ack=False)

    assert first == again
    assert (await chat.members(kitchen))["bob"] == 0

    await chat.ack("bob", kitchen, first.last_id)

    assert await chat.fetch("bob") == []


async def test_own_messages_are_fetched(chat: Chats, kitchen: str) -> None:
    """Who sends reads along, on every device."""
    await chat.send(kitchen, "ann", "and me?")

    assert await bodies(chat, "ann") == ["hello", "and me?"]


async def test_limit_is_per_chat_and_oldest_come_first(chat: Chats) -> None:
    """Each chat gives up to `limit` messages, and the rest with the next fetch."""
    chats = {await chat.create("ann", ["bob"], 1) for _ in range(2)}
    for chat_id in chats:
        await chat.send(chat_id, "ann", 2)
        await chat.send(chat_id, "ann", 3)

    first = await chat.fetch("bob", limit=2)
    second = await chat.fetch("bob", limit=2)

    assert {batch.chat_id for batch in first} == {batch.chat_id for batch in second} == chats
    assert [[message.body for message in batch.messages] for batch in [*first, *second]] == [[1, 2], [1, 2], [3], [3]]


@pytest.mark.parametrize("limit", [None, 1_000, 1_001, 10**9])
async def test_fetch_brings_more_than_one_reply_holds(concert: Coordinator, limit: int | None) -> None:
    """The server answers in pages, and `fetch` with all that was asked for."""
    chat = concert.chat
    chat_id = await chat.create("ann", ["bob"], 1)
    await asyncio.gather(*(chat.send(chat_id, "ann", number) for number in range(2, 2_502)))

    [batch] = await chat.fetch("bob", limit=limit)

    wanted = min(limit or 2_501, 2_501)
    assert [message.body for message in batch.messages] == list(range(1, wanted + 1))
    assert (batch.missed, batch.last_id) == (0, wanted)


async def test_large_messages_are_fetched_whole(chat: Chats) -> None:
    """Messages of nearly 1 MiB each come in several replies, and none is left out."""
    chat_id = await chat.create("ann", ["bob"], 0)
    for number in range(1, 25):
        await chat.send(chat_id, "ann", f"{number}" + "x" * 1_000_000)

    [batch] = await chat.fetch("bob")

    assert [len(str(message.body)) for message in batch.messages] == [1] + [1_000_001] * 9 + [1_000_002] * 15


async def test_fetch_brings_only_chats_with_news(chat: Chats) -> None:
    """A chat in which all is read is not in the answer."""
    quiet = await chat.create("ann", ["bob"], "quiet")
    await chat.fetch("bob")
    busy = await chat.create("ann", ["bob"], "busy")

    assert [batch.chat_id for batch in await chat.fetch("bob")] == [busy]
    assert await chat.fetch("nobody") == []
    assert {batch.chat_id for batch in await chat.fetch("ann")} == {quiet, busy}


async def test_other_sessions_see_the_same(chat: Chats, kitchen: str, chat_elsewhere: Chats) -> None:
    """What one process sends and acknowledges is so for all."""
    await chat_elsewhere.send(kitchen, "bob", "from elsewhere")

    assert await bodies(chat, "cy") == ["hello", "from elsewhere"]
    assert await chat_elsewhere.fetch("cy") == []


async def test_sender_counts_once_however_often_named(chat: Chats) -> None:
    """Repeated names make one member each."""
    chat_id = await chat.create("ann", ["bob", "ann", "bob"], "hello")

    assert await chat.members(chat_id) == {"ann": 0, "bob": 0}


async def test_chat_can_begin_with_one_member(chat: Chats) -> None:
    """No recipients: the others join later."""
    chat_id = await chat.create("ann", [], "hello")
    await chat.join(chat_id, "bob")

    assert await chat.members(chat_id) == {"ann": 0, "bob": 1}


# Ack.


async def test_position_never_goes_back(chat: Chats, kitchen: str) -> None:
    """An earlier message changes nothing, in whatever order acknowledgements arrive."""
    for number in range(2, 6):
        await chat.send(kitchen, "ann", number)

    for message_id, position in ((3, 3), (1, 3), (3, 3), (5, 5), (4, 5)):
        await chat.ack("bob", kitchen, message_id)
        assert (await chat.members(kitchen))["bob"] == position


async def test_ack_beyond_the_latest_means_the_latest(chat: Chats, kitchen: str) -> None:
    """Nothing that is sent later is read before it was there."""
    await chat.ack("bob", kitchen, 2**70)
    await chat.send(kitchen, "ann", "later")

    assert (await chat.members(kitchen))["bob"] == 1
    assert await bodies(chat, "bob") == ["later"]


async def test_what_all_have_read_is_dropped(any_concert: Coordinator, chat: Chats, kitchen: str) -> None:
    """The slowest reader decides how much is kept, and a leaver is none."""
    messages = await key_of(any_concert, kitchen, "messages")
    for number in range(2, 6):
        await chat.send(kitchen, "ann", number)

    await chat.fetch("ann")
    await chat.fetch("bob")
    assert await raw(any_concert).llen(messages) == 5

    await chat.ack("cy", kitchen, 2)
    assert await raw(any_concert).llen(messages) == 3

    await chat.leave(kitchen, "cy")
    assert await raw(any_concert).llen(messages) == 0
    assert (await chat.send(kitchen, "ann", "ids go on")).id == 6


# Caps.


async def test_slow_reader_is_told_once_how_many_it_missed(chat: Chats) -> None:
    """Beyond `max_messages` the oldest are dropped; their number is told until the position has moved past them."""
    chat_id = await chat.create("ann", ["bob"], 1, max_messages=3)
    for number in range(2, 11):
        await chat.send(chat_id, "ann", number)

    [seen] = await chat.fetch("bob", ack=False)
    [told] = await chat.fetch("bob", limit=1)
    [rest] = await chat.fetch("bob")

    assert ([message.id for message in seen.messages], seen.missed) == ([8, 9, 10], 7)
    assert ([message.id for message in told.messages], told.missed) == ([8], 7)
    assert ([message.id for message in rest.messages], rest.missed) == ([9, 10], 0)


async def test_chat_keeps_no_more_than_max_messages(any_concert: Coordinator, chat: Chats) -> None:
    """The oldest are gone as soon as there are more."""
    chat_id = await chat.create("ann", ["bob"], 1, max_messages=2)
    for number in range(2, 11):
        await chat.send(chat_id, "ann", number)
        assert await raw(any_concert).llen(await key_of(any_concert, chat_id, "messages")) == 2


@pytest.mark.parametrize("old", range(1, 8))
async def test_messages_over_max_age_are_dropped_by_fetch(any_concert: Coordinator, chat: Chats, old: int) -> None:
    """Of seven messages the first ones are too old: they are not delivered, and counted as missed."""
    chat_id = await chat.create("ann", ["bob"], 1, max_age=100)
    for number in range(2, 8):
        await chat.send(chat_id, "ann", number)
    await make_older(any_concert, chat_id, old, seconds=101)

    [batch] = await chat.fetch("bob")

    assert [message.id for message in batch.messages] == list(range(old + 1, 8))
    assert (batch.missed, batch.last_id) == (old, 7)
    assert await chat.fetch("bob") == []


async def test_messages_over_max_age_are_dropped_by_send(any_concert: Coordinator, chat: Chats) -> None:
    """Whoever sends makes the chat forget what is too old."""
    chat_id = await chat.create("ann", ["bob"], 1, max_age=timedelta(seconds=100))
    await chat.send(chat_id, "ann", 2)
    await make_older(any_concert, chat_id, 1, seconds=101)

    await chat.send(chat_id, "ann", 3)

    assert await raw(any_concert).llen(await key_of(any_concert, chat_id, "messages")) == 2


async def test_messages_without_max_age_are_kept(any_concert: Coordinator, chat: Chats, kitchen: str) -> None:
    """By default no message is too old."""
    await make_older(any_concert, kitchen, 1, seconds=10**9)

    assert await bodies(chat, "bob") == ["hello"]


async def test_quiet_chat_forgets_by_itself(any_concert: Coordinator, chat: Chats) -> None:
    """With `max_age` the messages' key ends with the last message, even if nobody ever looks."""
    chat_id = await chat.create("ann", ["bob"], 1, max_age=100)
    messages = await key_of(any_concert, chat_id, "messages")
    assert 90_000 < await raw(any_concert).pttl(messages) <= 100_000

    await raw(any_concert).pexpire(messages, 50)
    await chat.send(chat_id, "ann", 2)
    assert 90_000 < await raw(any_concert).pttl(messages) <= 100_000

    await raw(any_concert).delete(messages)  # as if its time had come
    [batch] = await chat.fetch("bob", ack=False)
    assert batch == Batch(chat_id, [], missed=2, last_id=2)

    await chat.ack("bob", chat_id, batch.last_id)
    assert await chat.fetch("bob") == []
    assert (await chat.send(chat_id, "ann", 3)).id == 3
    assert await bodies(chat, "bob") == [3]


@pytest.mark.parametrize("body", [b"v1.2.3", b"[" * 2000 + b"]" * 2000], ids=["no JSON", "too deep"])
async def test_message_that_cannot_be_read_is_passed_over_and_counted(
    any_concert: Coordinator, chat: Chats, kitchen: str, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody has sent it by `send()`: it keeps no reader from the rest, nor from the other chats."""
    other = await chat.create("eve", ["bob"], "hi")
    await chat.send(kitchen, "ann", "important")
    messages = await key_of(any_concert, kitchen, "messages")
    await raw(any_concert).lset(messages, 0, b"1800000000000\n" + body + b"\nann")
    batches = {batch.chat_id: batch for batch in await chat.fetch("bob")}
    assert [message.body for message in batches[kitchen].messages] == ["important"]
    assert (batches[kitchen].missed, batches[kitchen].last_id) == (1, 2)
    assert [message.body for message in batches[other].messages] == ["hi"]
    assert await chat.fetch("bob") == []
    assert [message.body for message in await chat.history(kitchen, "cy")] == ["important"]
    assert "is passed over, because it cannot be read" in caplog.text


# Members.


async def test_joiner_gets_what_is_sent_after(chat: Chats, kitchen: str) -> None:
    """What was said before is not for them."""
    await chat.join(kitchen, "dee")
    assert await chat.fetch("dee") == []

    await chat.send(kitchen, "ann", "welcome")

    assert await bodies(chat, "dee") == ["welcome"]


async def test_joining_twice_changes_nothing(chat: Chats, kitchen: str) -> None:
    """A member who joins keeps their position, and is a member once."""
    await chat.send(kitchen, "ann", "more")
    before = await chat.members(kitchen)

    await chat.join(kitchen, "bob")
    await chat.join(kitchen, "bob")

    assert await chat.members(kitchen) == before
    assert await bodies(chat, "bob") == ["hello", "more"]


async def test_leaver_gets_nothing_and_may_not_send(chat: Chats, kitchen: str) -> None:
    """Who has left is a stranger, with nothing on their list."""
    await chat.leave(kitchen, "bob")
    await chat.send(kitchen, "ann", "about bob")

    assert await chat.fetch("bob") == []
    assert await chat.members(kitchen) == {"ann": 0, "cy": 0}
    with pytest.raises(NotAMember, match="'bob'"):
        await chat.send(kitchen, "bob", "still here")


async def test_leaver_who_joins_again_begins_anew(chat: Chats, kitchen: str) -> None:
    """Between leaving and joining nothing is for them."""
    await chat.leave(kitchen, "bob")
    await chat.send(kitchen, "ann", "about bob")
    await chat.join(kitchen, "bob")
    await chat.send(kitchen, "ann", "hello bob")

    assert await bodies(chat, "bob") == ["hello bob"]


async def test_last_to_leave_takes_everything_along(any_concert: Coordinator, chat: Chats, kitchen: str) -> None:
    """Without members there is no chat, and no key of it or of its members' lists."""
    await chat.send(kitchen, "ann", "bye")
    for user in ("ann", "bob", "cy"):
        assert await kept(any_concert) != []
        await chat.leave(kitchen, user)

    assert await kept(any_concert) == []
    with pytest.raises(ChatNotFound):
        await chat.members(kitchen)


async def test_members_have_their_positions(chat: Chats, kitchen: str) -> None:
    """Read receipts: the last message that each has read."""
    await chat.send(kitchen, "ann", 2)
    await chat.fetch("bob")
    await chat.fetch("cy", limit=1)

    assert await chat.members(kitchen) == {"ann": 0, "bob": 2, "cy": 1}


async def test_members_of_a_large_chat_are_all_there(chat: Chats) -> None:
    """A thousand and more members come in several replies."""
    users = [f"user-{number}" for number in range(2_500)]
    chat_id = await chat.create(users[0], users[1:], "hello")

    assert await chat.members(chat_id) == dict.fromkeys(users, 0)
    assert await bodies(chat, users[-1]) == ["hello"]


async def test_strangers_are_refused(chat: Chats, kitchen: str) -> None:
    """Who is not a member may not send, acknowledge or leave; nothing is changed."""
    before = await chat.members(kitchen)

    for attempt in (
        chat.send(kitchen, "dee", "x"),
        chat.ack("dee", kitchen, 1),
        chat.history(kitchen, "dee"),
        chat.leave(kitchen, "dee"),
    ):
        with pytest.raises(NotAMember) as caught:
            await attempt
        assert (caught.value.chat_id, caught.value.user) == (kitchen, "dee")

    assert await chat.members(kitchen) == before
    assert await bodies(chat, "bob") == ["hello"]


async def test_unknown_chat_is_not_found_and_not_made(any_concert: Coordinator, chat: Chats) -> None:
    """Nothing of a chat comes to be but by `create`."""
    for attempt in (
        chat.send(NOBODY, "ann", "x"),
        chat.ack("ann", NOBODY, 1),
        chat.join(NOBODY, "ann"),
        chat.leave(NOBODY, "ann"),
        chat.add(NOBODY, "ann", "bob"),
        chat.remove(NOBODY, "ann", "bob"),
        chat.history(NOBODY, "ann"),
        chat.members(NOBODY),
    ):
        with pytest.raises(ChatNotFound) as caught:
            await attempt
        assert caught.value.chat_id == NOBODY

    assert await kept(any_concert) == []


async def test_member_adds_and_removes_another(chat: Chats, kitchen: str) -> None:
    """As if they had joined and left by themselves."""
    await chat.add(kitchen, "bob", "dee")
    await chat.add(kitchen, "bob", "dee")
    await chat.send(kitchen, "ann", "welcome")
    assert await bodies(chat, "dee") == ["welcome"]

    await chat.remove(kitchen, "cy", "dee")
    await chat.remove(kitchen, "cy", "cy")

    assert set(await chat.members(kitchen)) == {"ann", "bob"}
    assert await chat.fetch("dee") == await chat.fetch("cy") == []


async def test_only_members_add_and_remove(any_concert: Coordinator, chat: Chats, kitchen: str) -> None:
    """A stranger changes nothing, and is the one who is named; nor is a stranger removed."""
    before = await chat.members(kitchen), await keys_of(any_concert, "*")

    for attempt, who in (
        (chat.add(kitchen, "eve", "dee"), "eve"),
        (chat.add(kitchen, "eve", "eve"), "eve"),
        (chat.remove(kitchen, "eve", "bob"), "eve"),
        (chat.remove(kitchen, "bob", "dee"), "dee"),
    ):
        with pytest.raises(NotAMember) as caught:
            await attempt
        assert (caught.value.chat_id, caught.value.user) == (kitchen, who)

    assert (await chat.members(kitchen), await keys_of(any_concert, "*")) == before
    assert len(await chat.fetch("bob")) == 1


# History.


async def test_history_is_what_the_chat_still_has(chat: Chats, kitchen: str) -> None:
    """The latest messages in their order, also read ones and those from before one joined; no position moves."""
    sent = [await chat.send(kitchen, "ann", number) for number in range(2, 8)]
    await chat.fetch("bob")
    await chat.join(kitchen, "dee")
    before = await chat.members(kitchen)

    assert await chat.history(kitchen, "bob", limit=3) == sent[-3:]
    assert await chat.history(kitchen, "dee", before=5, limit=2) == sent[1:3]
    assert [message.id for message in await chat.history(kitchen, "cy", before=4)] == [1, 2, 3]
    assert await chat.history(kitchen, "cy", before=1) == []
    assert await chat.history(kitchen, "cy", before=2**60) == await chat.history(kitchen, "cy")
    assert await chat.members(kitchen) == before


async def test_read_messages_are_kept_for_history_only_if_asked_for(chat: Chats) -> None:
    """With `history=3` the latest three stay when all have read everything; by default none."""
    chat_id = ""
    for history in (0, 3):
        chat_id = await chat.create("ann", ["bob"], 1, history=history)
        for number in range(2, 6):
            await chat.send(chat_id, "ann", number)
        await chat.fetch("ann")
        await chat.fetch("bob")

        found = await chat.history(chat_id, "bob")

        assert [message.id for message in found] == list(range(6 - history, 6))
        assert await chat.fetch("bob") == []

    await chat.send(chat_id, "ann", 6)
    await chat.leave(chat_id, "bob")
    assert [message.id for message in await chat.history(chat_id, "ann")] == [4, 5, 6]


async def test_history_stops_at_what_is_too_old(any_concert: Coordinator, chat: Chats) -> None:
    """Neither cap is exceeded for its sake."""
    chat_id = await chat.create("ann", [], 1, max_age=100, max_messages=4, history=4)
    for number in range(2, 7):
        await chat.send(chat_id, "ann", number)
    await make_older(any_concert, chat_id, 1, seconds=101)

    assert [message.id for message in await chat.history(chat_id, "ann")] == [4, 5, 6]


async def test_history_of_large_messages_is_whole(chat: Chats) -> None:
    """It comes in several replies, each of about 1 MiB, and nothing is left out or doubled."""
    chat_id = await chat.create("ann", [], 1)
    for number in range(2, 9):
        await chat.send(chat_id, "ann", f"{number}" + "x" * 500_000)

    assert [message.id for message in await chat.history(chat_id, "ann")] == list(range(1, 9))
    assert [message.id for message in await chat.history(chat_id, "ann", before=8, limit=5)] == [3, 4, 5, 6, 7]


# Unread.


async def test_unread_counts_what_others_sent_and_moves_nothing(chat: Chats, kitchen: str) -> None:
    """Only chats in which there is something are named; one's own messages do not count."""
    other = await chat.create("bob", ["ann"], "mine")
    await chat.send(kitchen, "bob", 2)
    await chat.send(kitchen, "ann", 3)
    await chat.send(kitchen, "cy", 4)
    before = await chat.members(kitchen)

    assert await chat.unread("bob") == {kitchen: 3}
    assert await chat.unread("ann") == {kitchen: 2, other: 1}
    assert await chat.unread("nobody") == {}
    assert await chat.members(kitchen) == before

    await chat.ack("bob", kitchen, 1)
    assert await chat.unread("bob") == {kitchen: 2}
    await chat.fetch("bob")
    assert await chat.unread("bob") == {}
    await chat.send(kitchen, "bob", 5)
    assert await chat.unread("bob") == {}


async def test_dropped_messages_count_as_unread(chat: Chats) -> None:
    """Nobody has read them; one's own can no longer be told apart."""
    chat_id = await chat.create("ann", ["bob"], 1, max_messages=3)
    for number in range(2, 11):
        await chat.send(chat_id, "bob" if number % 2 else "ann", number)

    assert await chat.unread("bob") == {chat_id: 9}  # 7 dropped; 8 and 10
    assert await chat.unread("ann") == {chat_id: 8}  # 7 dropped; 9


async def test_unread_counts_many(concert: Coordinator) -> None:
    """More than one reply holds, and users whose names end alike are told apart."""
    chat = concert.chat
    chat_id = await chat.create("ann", ["a\nann", "ann\n"], 1)
    senders = ["ann", "a\nann", "ann\n"]
    await asyncio.gather(*(chat.send(chat_id, senders[number % 3], number) for number in range(2_000)))

    assert await chat.unread("ann") == {chat_id: 1_333}
    assert await chat.unread("a\nann") == {chat_id: 2_001 - 667}
    assert await chat.unread("ann\n") == {chat_id: 2_001 - 666}


# Listen.


async def test_listener_gets_what_is_there_and_then_what_comes(
    chat: Chats, kitchen: str, chat_elsewhere: Chats
) -> None:
    """From the read position on, live, one's own messages too."""
    async with aclosing(chat.listen("bob")) as news:
        first = await anext(news)
        sent = [await chat_elsewhere.send(kitchen, "ann", "more"), await chat_elsewhere.send(kitchen, "bob", "own")]
        got = list((await anext(news)).messages)
        while len(got) < 2:
            got += (await anext(news)).messages

    assert [message.body for message in first.messages] == ["hello"]
    assert got == sent


async def test_listening_moves_the_position_when_the_loop_comes_back(chat: Chats, kitchen: str) -> None:
    """A batch that is still being handled is unread; with `ack=False` it stays so."""
    async with aclosing(chat.listen("cy", ack=False)) as patient, aclosing(chat.listen("bob")) as news:
        for number in (2, 3):
            await anext(news)
            await anext(patient)
            position = (await chat.members(kitchen))["bob"]
            assert position < number
            await chat.send(kitchen, "ann", number)
            position = number
        await anext(news)

    assert await chat.members(kitchen) == {"ann": 0, "bob": 2, "cy": 0}


async def test_listener_hears_chats_as_it_gets_into_them(chat: Chats, kitchen: str, chat_elsewhere: Chats) -> None:
    """Created with it, joined, added: each is heard at once."""
    async with aclosing(chat.listen("dee")) as news:
        waiting = asyncio.ensure_future(anext(news))
        created = await chat_elsewhere.create("ann", ["dee"], "new")
        assert (await waiting).chat_id == created

        await chat_elsewhere.add(kitchen, "ann", "dee")
        await chat_elsewhere.send(kitchen, "ann", "welcome")
        batch = await anext(news)
        assert (batch.chat_id, [message.body for message in batch.messages]) == (kitchen, ["welcome"])


@pytest.mark.parametrize("notices", [True, False])
async def test_listener_gets_nothing_from_between_leaving_and_joining(
    chat: Chats, kitchen: str, chat_elsewhere: Chats, notices: bool
) -> None:
    """Whoever is removed hears no more, and one who is back what comes from then on, whether or not they looked."""
    async with aclosing(chat.listen("bob")) as news:
        await anext(news)
        await chat_elsewhere.remove(kitchen, "ann", "bob")
        await chat_elsewhere.send(kitchen, "ann", "about bob")
        if notices:
            other = await chat_elsewhere.create("cy", ["bob"], "psst")
            assert (await anext(news)).chat_id == other

        await chat_elsewhere.add(kitchen, "ann", "bob")
        await chat_elsewhere.send(kitchen, "ann", "hello bob")
        batch = await anext(news)
        assert ([message.body for message in batch.messages], batch.missed) == (["hello bob"], 0)


async def test_all_listeners_of_a_user_get_everything(chat: Chats, chat_elsewhere: Chats) -> None:
    """What the other has read, and is kept, comes all the same; what is gone is not told as missed."""
    chat_id = await chat.create("ann", ["bob"], 1, history=100)
    async with aclosing(chat.listen("bob")) as one, aclosing(chat_elsewhere.listen("bob")) as other:
        assert [(await anext(news)).last_id for news in (one, other)] == [1, 1]
        for number in range(2, 6):
            await chat.send(chat_id, "ann", number)
            assert [message.id for message in (await anext(one)).messages] == [number]
        late: list[int] = []
        while 5 not in late:
            batch = await anext(other)
            assert batch.missed == 0
            late += [message.id for message in batch.messages]
        assert late == [2, 3, 4, 5]


async def test_what_was_read_elsewhere_was_not_missed(chat: Chats) -> None:
    """A listener that comes too late for it is not told so, for its user has it."""
    chat_id = await chat.create("ann", ["bob"], 1)
    async with aclosing(chat.listen("bob")) as news:
        await anext(news)
        await chat.send(chat_id, "ann", 2)
        for user in ("ann", "bob"):
            await chat.fetch(user)
        await chat.send(chat_id, "ann", 3)
        batch = await anext(news)

    assert ([message.id for message in batch.messages], batch.missed) == ([3], 0)


async def test_listener_is_told_what_it_missed(chat: Chats) -> None:
    """A slow one, in a chat with a cap."""
    chat_id = await chat.create("ann", ["bob"], 1, max_messages=2)
    async with aclosing(chat.listen("bob")) as news:
        await anext(news)
        for number in range(2, 7):
            await chat.send(chat_id, "ann", number)
        got = [await anext(news)]
        while got[-1].last_id < 6:
            got.append(await anext(news))

    # 1 is acknowledged when the loop comes back, so nothing before 2 was missed.
    assert [message.id for batch in got for message in batch.messages] == [5, 6]
    assert sum(batch.missed for batch in got) == 3


async def test_listener_gets_more_than_one_page(concert: Coordinator) -> None:
    """A long chat comes in batches of at most 1,000."""
    chat = concert.chat
    chat_id = await chat.create("ann", ["bob"], 1)
    await asyncio.gather(*(chat.send(chat_id, "ann", number) for number in range(2, 2_502)))

    ids: list[int] = []
    sizes: list[int] = []
    async with aclosing(chat.listen("bob")) as news:
        while len(ids) < 2_501:
            batch = await anext(news)
            ids += [message.id for message in batch.messages]
            sizes.append(len(batch.messages))

    assert ids == list(range(1, 2_502))
    assert sizes == [1_000, 1_000, 501]


async def test_broken_off_loop_leaves_no_subscription(any_concert: Coordinator, chat: Chats, kitchen: str) -> None:
    """Leaving by `break` is enough."""
    async for batch in chat.listen("bob"):
        assert batch.chat_id == kitchen
        assert topics_of(any_concert._ref.session)
        break

    await eventually(lambda: not topics_of(any_concert._ref.session))


async def test_closing_the_coordinator_ends_the_loop(server: RealServer, namespace: str) -> None:
    """Whether it waits just then, or is at work."""
    concert = Coordinator(server.url, namespace=namespace)
    async with concert:
        await concert.chat.create("ann", ["bob", "cy"], "hello")
        waiting, working = concert.chat.listen("bob"), concert.chat.listen("cy", ack=False)
        await anext(waiting)
        await anext(working)
        waits = asyncio.ensure_future(anext(waiting))
        await concert.chat.fetch("bob")
        assert not waits.done()
    with pytest.raises(NotConnected):
        await waits
    with pytest.raises(NotConnected):
        await anext(working)


# Values and names.


BODIES: list[JSON] = [
    2**53 + 1,
    -(2**63),
    0.1,
    1e300,
    "",
    "grüße, 世界 \U0001f600 \u2028 \x00 \n \r \t \\ \" '",
    None,
    True,
    [],
    {},
    [[], [{}], [None, False, "", 0]],
    {"": {"a\nb": [1, {"c": None}]}, "__proto__": 1},
    [[[[[[[[[["deep"]]]]]]]]]],
]


@pytest.mark.parametrize("body", BODIES, ids=repr)
async def test_body_arrives_exactly(chat: Chats, kitchen: str, body: JSON) -> None:
    """Whatever JSON can hold comes out as it went in, and of the same type."""
    sent = await chat.send(kitchen, "ann", body)
    first = await chat.create("dee", [], body)

    [batch] = await chat.fetch("bob")
    [started] = await chat.fetch("dee")

    for message in (sent, batch.messages[-1], started.messages[0]):
        assert message.body == body
        assert type(message.body) is type(body)
    assert started.chat_id == first


@pytest.mark.parametrize(
    "name", ["{}", "}", "{", "{a}:b", "a:b", " ", "\x00", "a\nb", "\n", "-1", "*", "世界", "x" * 512], ids=repr
)
async def test_user_may_have_any_name(any_concert: Coordinator, chat: Chats, name: str) -> None:
    """A name is only a name: all verbs work with it, and nothing is left in the end."""
    chat_id = await chat.create(name, ["bob"], "hello")
    await chat.join(chat_id, f"{name[:500]}+")
    message = await chat.send(chat_id, name, "from me")
    async with aclosing(chat.listen(name, ack=False)) as news:
        assert [item.id for item in (await anext(news)).messages] == [1, 2]
    assert await chat.unread("bob") == {chat_id: 2}
    assert await chat.history(chat_id, name, before=3, limit=1) == [message]
    await chat.add(chat_id, name, f"+{name[:500]}")
    await chat.remove(chat_id, f"+{name[:500]}", f"+{name[:500]}")
    [batch] = await chat.fetch("bob")

    assert {message.sender for message in batch.messages} == {name}
    assert await chat.members(chat_id) == {name: 0, "bob": 2, f"{name[:500]}+": 1}
    assert len((await chat.fetch(name, ack=False))[0].messages) == 2

    await chat.ack(name, chat_id, message.id)
    for user in (name, "bob", f"{name[:500]}+"):
        await chat.leave(chat_id, user)
    assert await kept(any_concert) == []


async def test_names_of_chats_and_users_never_meet(chat: Chats) -> None:
    """Users whose names look like keys of others do not get their chats."""
    ours = await chat.create("a", ["b}:chats"], "ours")
    theirs = await chat.create("a}:chats", ["b"], "theirs")

    assert [batch.chat_id for batch in await chat.fetch("a")] == [ours]
    assert [batch.chat_id for batch in await chat.fetch("b")] == [theirs]


@pytest.mark.parametrize("name", ["ann", "{}", "}{", "{a}:b"])
def test_keys_that_change_together_lie_in_one_slot(name: str) -> None:
    """What is between the first braces is the same, whatever a chat or a user is called."""
    keyspace = Coordinator().chat._keys
    lists = keyspace.user_lists(name)
    keys, chats = keyspace.chat(name), keyspace.user_list(name, name)

    assert len({key.split("}")[0] for key in (*keys, chats)}) == 1
    assert [len({key.split("}")[0] for key in pair}) for pair in lists] == [1] * 4
    assert chats in [each.chats for each in lists]


# Refused before anything is sent: these coordinators are closed, and would raise NotConnected.


@pytest.fixture
def closed() -> Chats:
    """Chats that cannot send anything."""
    return Coordinator().chat


@pytest.mark.parametrize("value", [0, -1, 1.5, "1", True, None])
async def test_counts_out_of_range_are_refused(closed: Chats, value: Any) -> None:
    """Counts and ids are whole numbers from 1 upwards."""
    with pytest.raises(ValueError, match="max_messages"):
        await closed.create("ann", ["bob"], "hello", max_messages=value)
    with pytest.raises(ValueError, match="message_id"):
        await closed.ack("ann", "kitchen", value)
    with pytest.raises(ValueError, match="limit"):
        await closed.history("kitchen", "ann", limit=value)
    if value != 0:
        with pytest.raises(ValueError, match="history"):
            await closed.create("ann", ["bob"], "hello", history=value)
    if value is not None:
        with pytest.raises(ValueError, match="before"):
            await closed.history("kitchen", "ann", before=value)
        with pytest.raises(ValueError, match="limit"):
            await closed.fetch("ann", limit=value)


async def test_more_than_is_kept_is_refused(closed: Chats) -> None:
    """A history longer than the chat, and more messages than one answer has."""
    with pytest.raises(ValueError, match="history"):
        await closed.create("ann", [], "hello", max_messages=10, history=11)
    with pytest.raises(ValueError, match="limit"):
        await closed.history("kitchen", "ann", limit=1_001)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), timedelta(0), "1", True])
async def test_ages_out_of_range_are_refused(closed: Chats, value: Any) -> None:
    """An age is a time above 0."""
    with pytest.raises(ValueError, match="max_age"):
        await closed.create("ann", ["bob"], "hello", max_age=value)


@pytest.mark.parametrize("recipients", ["bob", [f"user-{number}" for number in range(10_001)]], ids=["text", "many"])
async def test_recipients_that_cannot_be_meant_are_refused(closed: Chats, recipients: Any) -> None:
    """A string is one name and not a list of letters; and one script takes only so many."""
    with pytest.raises(ValueError, match="recipients"):
        await closed.create("ann", recipients, "hello")


@pytest.mark.parametrize("name", ["", "x" * 513, "\ud800", 7, None, b"bob"])
async def test_names_that_are_none_are_refused(closed: Chats, name: Any) -> None:
    """Users and chats are named by 1 to 512 bytes of text."""
    for attempt in (
        closed.create(name, ["bob"], "hello"),
        closed.create("ann", [name], "hello"),
        closed.send("kitchen", name, "x"),
        closed.send(name, "ann", "x"),
        closed.ack(name, "kitchen", 1),
        closed.fetch(name),
        closed.ack("ann", name, 1),
        closed.join(name, "ann"),
        closed.join("kitchen", name),
        closed.leave(name, "ann"),
        closed.leave("kitchen", name),
        closed.add("kitchen", name, "ann"),
        closed.add("kitchen", "ann", name),
        closed.remove("kitchen", name, "ann"),
        closed.remove(name, "ann", "bob"),
        closed.history(name, "ann"),
        closed.history("kitchen", name),
        closed.unread(name),
        anext(closed.listen(name)),
        closed.members(name),
    ):
        with pytest.raises(InvalidName):
            await attempt


@pytest.mark.parametrize("body", [float("nan"), float("-inf"), {1: 2}, b"x", {1, 2}, object(), "\ud800", "x" * 2**20])
async def test_bodies_that_are_not_json_are_refused(closed: Chats, body: Any) -> None:
    """What JSON cannot hold, or too much of it, is refused."""
    with pytest.raises(InvalidPayload):
        await closed.send("kitchen", "ann", body)
    with pytest.raises(InvalidPayload):
        await closed.create("ann", ["bob"], body)


async def test_closed_coordinator_is_not_connected(closed: Chats) -> None:
    """Every verb says so."""
    for attempt in (
        closed.create("ann", ["bob"], "hello"),
        closed.send("kitchen", "ann", "x"),
        closed.fetch("ann"),
        closed.ack("ann", "kitchen", 1),
        closed.join("kitchen", "ann"),
        closed.leave("kitchen", "ann"),
        closed.add("kitchen", "ann", "bob"),
        closed.remove("kitchen", "ann", "bob"),
        closed.history("kitchen", "ann"),
        closed.unread("ann"),
        anext(closed.listen("ann")),
        closed.members("kitchen"),
    ):
        with pytest.raises(NotConnected):
            await attempt
