"""What a chat promises to its members, on a real server and on fakeredis."""

import asyncio
import time
from collections.abc import AsyncIterator
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
async def elsewhere(any_concert: Coordinator, namespace: str) -> AsyncIterator[Chats]:
    """The same chats from a second session, as another process has it."""
    async with Coordinator.from_client(any_concert.redis, namespace=namespace) as opened:
        yield opened.chat


async def bodies(chat: Chats, user: str, **options: Any) -> list[JSON]:
    """What a user fetches from the only chat with news, without the wrapping."""
    batches = await chat.fetch(user, **options)
    assert len(batches) <= 1
    return [message.body for batch in batches for message in batch.messages]


async def keys_of(concert: Coordinator, pattern: str) -> list[str]:
    """The keys of the test's namespace that match."""
    client: Any = concert.redis
    return sorted([key.decode() async for key in client.scan_iter(f"*{concert._access.keys.namespace}:{pattern}")])


async def key_of(concert: Coordinator, chat_id: str, part: str) -> str:
    """The key of one part of a chat."""
    [key] = await keys_of(concert, f"chat:{chat_id}*:{part}")
    return key


async def make_older(concert: Coordinator, chat_id: str, count: int, seconds: int) -> None:
    """Let the first messages of a chat have been sent earlier than they were."""
    client: Any = concert.redis
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


async def test_other_sessions_see_the_same(chat: Chats, kitchen: str, elsewhere: Chats) -> None:
    """What one process sends and acknowledges is so for all."""
    await elsewhere.send(kitchen, "bob", "from elsewhere")

    assert await bodies(chat, "cy") == ["hello", "from elsewhere"]
    assert await elsewhere.fetch("cy") == []


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
    assert await any_concert.redis.llen(messages) == 5

    await chat.ack("cy", kitchen, 2)
    assert await any_concert.redis.llen(messages) == 3

    await chat.leave(kitchen, "cy")
    assert await any_concert.redis.llen(messages) == 0
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
        assert await any_concert.redis.llen(await key_of(any_concert, chat_id, "messages")) == 2


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

    assert await any_concert.redis.llen(await key_of(any_concert, chat_id, "messages")) == 2


async def test_messages_without_max_age_are_kept(any_concert: Coordinator, chat: Chats, kitchen: str) -> None:
    """By default no message is too old."""
    await make_older(any_concert, kitchen, 1, seconds=10**9)

    assert await bodies(chat, "bob") == ["hello"]


async def test_quiet_chat_forgets_by_itself(any_concert: Coordinator, chat: Chats) -> None:
    """With `max_age` the messages' key ends with the last message, even if nobody ever looks."""
    chat_id = await chat.create("ann", ["bob"], 1, max_age=100)
    messages = await key_of(any_concert, chat_id, "messages")
    assert 90_000 < await any_concert.redis.pttl(messages) <= 100_000

    await any_concert.redis.pexpire(messages, 50)
    await chat.send(chat_id, "ann", 2)
    assert 90_000 < await any_concert.redis.pttl(messages) <= 100_000

    await any_concert.redis.delete(messages)  # as if its time had come
    [batch] = await chat.fetch("bob", ack=False)
    assert batch == Batch(chat_id, [], missed=2, last_id=2)

    await chat.ack("bob", chat_id, batch.last_id)
    assert await chat.fetch("bob") == []
    assert (await chat.send(chat_id, "ann", 3)).id == 3
    assert await bodies(chat, "bob") == [3]


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
        assert await keys_of(any_concert, "*") != []
        await chat.leave(kitchen, user)

    assert await keys_of(any_concert, "*") == []
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

    for attempt in (chat.send(kitchen, "dee", "x"), chat.ack("dee", kitchen, 1), chat.leave(kitchen, "dee")):
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
        chat.members(NOBODY),
    ):
        with pytest.raises(ChatNotFound) as caught:
            await attempt
        assert caught.value.chat_id == NOBODY

    assert await keys_of(any_concert, "*") == []


async def test_listed_chat_without_membership_is_struck_off(
    any_concert: Coordinator, chat: Chats, kitchen: str
) -> None:
    """What a leaver who died half-way left on the list is removed by the next fetch."""
    [members] = await keys_of(any_concert, f"chat:{kitchen}*:members")
    await any_concert.redis.zrem(members, "bob")
    assert len(await keys_of(any_concert, "user:bob*")) == 1

    assert await chat.fetch("bob") == []

    await chat.members(kitchen)  # the removal is under way when fetch returns, and in front of this
    assert await keys_of(any_concert, "user:bob*") == []


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
    [batch] = await chat.fetch("bob")

    assert {message.sender for message in batch.messages} == {name}
    assert await chat.members(chat_id) == {name: 0, "bob": 2, f"{name[:500]}+": 1}
    assert len((await chat.fetch(name, ack=False))[0].messages) == 2

    await chat.ack(name, chat_id, message.id)
    for user in (name, "bob", f"{name[:500]}+"):
        await chat.leave(chat_id, user)
    assert await keys_of(any_concert, "*") == []


async def test_names_of_chats_and_users_never_meet(chat: Chats) -> None:
    """Users whose names look like keys of others do not get their chats."""
    ours = await chat.create("a", ["b}:chats"], "ours")
    theirs = await chat.create("a}:chats", ["b"], "theirs")

    assert [batch.chat_id for batch in await chat.fetch("a")] == [ours]
    assert [batch.chat_id for batch in await chat.fetch("b")] == [theirs]


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
    if value is not None:
        with pytest.raises(ValueError, match="limit"):
            await closed.fetch("ann", limit=value)


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
        closed.members("kitchen"),
    ):
        with pytest.raises(NotConnected):
            await attempt
