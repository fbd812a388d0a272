"""A chat when replies are lost, calls cancelled, processes killed, servers full: nothing is lost or left behind."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from functools import partial
from itertools import chain
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from inconcert import Chats, Coordinator, InconcertError, NotAMember, Unavailable, WrongState
from inconcert._redis.protocol.replies import Reply
from inconcert.chat.keys import ListKeys
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.inner import broadcasts_of
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.scripts import command_of
from tests.support.servers import RealServer, redis6_available


@pytest.fixture
def chat(concert: Coordinator) -> Chats:
    """The chats of a namespace that no other test uses."""
    return concert.chat


@pytest.fixture
def chat_elsewhere(elsewhere: Coordinator) -> Chats:
    """The same chats, as another process has them."""
    return elsewhere.chat


async def contents(concert: Coordinator) -> dict[str, tuple[Any, bool]]:
    """Every key of the namespace but those that remember requests: what it holds, and whether it has a TTL."""
    client: Any = raw(concert)
    reads: dict[bytes, Callable[[bytes], Awaitable[Any]]] = {
        b"list": lambda key: client.lrange(key, 0, -1),
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        b"set": client.smembers,
        b"hash": client.hgetall,
        b"string": client.get,
    }
    found: dict[str, tuple[Any, bool]] = {}
    async for key in client.scan_iter(f"*{concert._ref.keys.namespace}:chats:*"):
        if key.endswith((b":recent", b":older")):
            continue
        value = await reads[await client.type(key)](key)
        found[key.decode()] = (value, await client.pttl(key) >= 0)
    return found


async def listed(concert: Coordinator, user: str) -> list[str]:
    """The chats on a user's list."""
    client: Any = raw(concert)
    entries = [await client.smembers(keys.chats) for keys in concert.chat._keys.user_lists(user)]
    return [entry.decode().split()[0] for entry in chain(*entries)]


async def nothing_is_under_way(concert: Coordinator) -> None:
    """Return when the server has answered all that the coordinator sent before."""
    await concert._ref.session.run(command_of("chat/members", concert.chat._keys.chat("nobody's"), cursor=0))


# Each script, run twice.


NEW = {"chat": "kitchen", "max_messages": 100, "max_age_ms": 0, "history": 0, "listeners": "channel:"}
RUNS: dict[str, dict[str, Any]] = {
    "create": {**NEW, "body": '"again"', "users": ["bob"]},
    "send": {"chat": "kitchen", "sender": "bob", "request": "request-1", "body": '"x"', "channel": "channel"},
    "fetch": {"user": "bob", "after": -1, "count": 10},
    "history": {"user": "bob", "before": 0, "count": 10},
    "unread": {"user": "bob", "after": -1},
    "ack": {"chat": "kitchen", "user": "bob", "id": 2},
    "join": {"chat": "kitchen", "user": "dee", "request": "request-1", "by": "", "channel": "channel"},
    "leave": {"chat": "kitchen", "user": "bob", "request": "request-1", "by": "ann", "channel": "channel"},
    "members": {"cursor": 0},
    "list": {},
    "news": {},
}


async def run(concert: Coordinator, verb: str, chat_id: str, user: str, /, **named: Any) -> Reply:
    """Run a script once, on a chat and, if it needs that, on the list of this user."""
    keyspace = concert.chat._keys
    keys = keyspace.chat(chat_id)
    lists = ListKeys(keyspace.user_list(user, chat_id), keys.heads)
    if verb == "create":
        named["chats"] = [lists.chats]
    return await concert._ref.session.run(command_of(f"chat/{verb}", keys, lists, **named))


async def send(concert: Coordinator, chat_id: str, request: str = "request") -> Reply:
    """Run the script that sends, for ann."""
    named = {"chat": chat_id, "sender": "ann", "request": request, "body": '"x"', "channel": "channel"}
    return await run(concert, "send", chat_id, "ann", **named)


async def come_or_go(concert: Coordinator, verb: str, chat_id: str, request: str) -> Reply:
    """Run the script that joins or leaves, for bob."""
    named = {"chat": chat_id, "user": "bob", "request": request, "by": "", "channel": "channel"}
    return await run(concert, verb, chat_id, "bob", **named)


@pytest.mark.parametrize("verb", [pytest.param(verb, marks=pytest.mark.twice(f"chat/{verb}")) for verb in RUNS])
async def test_second_run_changes_nothing_and_answers_the_same(any_concert: Coordinator, verb: str) -> None:
    """A script whose reply was lost is sent again: what its header says of the second run is so."""
    session, keyspace = any_concert._ref.session, any_concert.chat._keys
    users = ("ann", "bob", "cy")
    chats = [keyspace.user_list(member, "kitchen") for member in users]
    create = command_of("chat/create", keyspace.chat("kitchen"), chats=chats, **NEW, body='"hello"', users=users)
    await session.run(create)
    await send(any_concert, "kitchen")
    user = "dee" if verb == "join" else "bob"

    first = await run(any_concert, verb, "kitchen", user, **RUNS[verb])
    state = await contents(any_concert)
    second = await run(any_concert, verb, "kitchen", user, **RUNS[verb])

    assert second == first
    assert await contents(any_concert) == state


async def test_second_send_is_known_after_the_message_is_gone(chat: Chats, concert: Coordinator) -> None:
    """Even when all have read the message meanwhile, a late second run adds none, whatever its sender is by then."""
    chat_id = await chat.create("ann", ["bob"], "hello")
    first = await send(concert, chat_id)
    for user in ("ann", "bob"):
        await chat.fetch(user)
    await chat.leave(chat_id, "ann")

    assert await send(concert, chat_id) == first
    assert await chat.fetch("bob") == []


async def test_late_twins_of_join_and_leave_change_nothing(chat: Chats, concert: Coordinator) -> None:
    """A second run that comes after the opposite was done, from a connection that was given up, does not undo it."""
    chat_id = await chat.create("ann", ["bob"], "hello")

    left = await come_or_go(concert, "leave", chat_id, "request-1")
    await chat.join(chat_id, "bob")
    assert await come_or_go(concert, "leave", chat_id, "request-1") == left
    assert await chat.members(chat_id) == {"ann": 0, "bob": 1}

    joined = await come_or_go(concert, "join", chat_id, "request-2")
    await chat.leave(chat_id, "bob")
    assert await come_or_go(concert, "join", chat_id, "request-2") == joined
    assert await chat.members(chat_id) == {"ann": 0}


async def test_memory_of_requests_moves_on_with_time(chat: Chats, concert: Coordinator) -> None:
    """A request is known for at least a minute: what is older makes room, and ends by itself."""
    client: Any = raw(concert)
    chat_id = await chat.create("ann", ["bob"], "hello")
    keys = chat._keys.chat(chat_id)
    answers: dict[str, Any] = {}
    for number in range(3):
        answers[f"r{number}"] = await send(concert, chat_id, f"r{number}")
        assert 119_000 < await client.pttl(keys.recent) <= 120_000
        await client.pexpire(keys.recent, 59_999)  # a minute passes
    assert await client.hkeys(keys.older) == [b"r1"]
    assert 0 < await client.pttl(keys.older) < 60_000

    for request in ("r1", "r2"):
        assert await send(concert, chat_id, request) == answers[request]


async def test_memory_of_requests_is_bounded(chat: Chats, concert: Coordinator) -> None:
    """However fast members send, it holds at most two times 10,000 of them."""
    client: Any = raw(concert)
    chat_id = await chat.create("ann", ["bob"], "hello")
    keys = chat._keys.chat(chat_id)
    await chat.send(chat_id, "ann", "x")
    await client.hset(keys.recent, mapping={f"r{number}": "1 1" for number in range(9_998)})

    await chat.send(chat_id, "ann", "y")

    assert (await client.hlen(keys.recent), await client.hlen(keys.older)) == (1, 10_000)


# A reply is lost: the call is sent again on a new connection.


@pytest.fixture
async def far(proxy: Proxy, concert: Coordinator, namespace: str) -> AsyncIterator[Chats]:
    """The chats as seen through it."""
    async with Coordinator(proxy.url, namespace=namespace) as opened:
        yield opened.chat


async def at_each_reply(proxy: Proxy, attempt: Callable[[], Coroutine[Any, Any, None]], *, step: int = 1) -> None:
    """Run something again and again, with its first, second ... reply lost, until none is left to lose.

    Each loss makes the client pause a little longer before it connects; with a `step` fewer are lost.
    """
    for count in itertools.count(step=step):
        proxy.cut_after_replies(count, lose_next=True)
        opened = proxy.opened
        await attempt()
        if proxy.opened == opened:
            assert count > 0, "nothing was lost"
            await proxy.heal()
            return


async def test_chat_is_made_once_whichever_reply_is_lost(
    concert: Coordinator, chat: Chats, far: Chats, proxy: Proxy
) -> None:
    """All members get it, it stays, and there is one."""

    async def attempt() -> None:
        chat_id = await far.create("ann", ["bob", "cy"], "hello")
        for user in ("ann", "bob", "cy"):
            [batch] = await chat.fetch(user)
            assert (batch.chat_id, [message.body for message in batch.messages]) == (chat_id, ["hello"])
        assert not [key for key, (_, ends) in (await contents(concert)).items() if ends]
        for user in ("ann", "bob", "cy"):
            await chat.leave(chat_id, user)

    await at_each_reply(proxy, attempt)
    assert await contents(concert) == {}


async def test_message_is_sent_once_when_its_reply_is_lost(chat: Chats, far: Chats, proxy: Proxy) -> None:
    """The sender gets the id that it had the first time, and nobody gets the message twice."""
    chat_id = await chat.create("ann", ["bob"], "hello")
    sent: list[int] = []

    async def attempt() -> None:
        sent.append((await far.send(chat_id, "ann", "x")).id)

    await at_each_reply(proxy, attempt)
    [batch] = await chat.fetch("bob")
    assert sent == [message.id for message in batch.messages[1:]] == list(range(2, len(sent) + 2))


async def test_many_messages_are_sent_once_when_the_connection_breaks(chat: Chats, far: Chats, proxy: Proxy) -> None:
    """With a hundred under way at a time, none is lost, doubled or given another's id."""
    chat_id = await chat.create("ann", ["bob"], "hello")
    sent: dict[int, str] = {}

    async def send(sender: int) -> None:
        for number in range(20):
            message = await far.send(chat_id, "ann", f"{sender}-{number}")
            assert message.id not in sent
            sent[message.id] = str(message.body)

    async def interfere() -> None:
        for count in (10, 150, 300, 200, 250, 100):
            proxy.cut_after_replies(count, lose_next=True)
            opened = proxy.opened
            while proxy.opened == opened and len(sent) < 2_000:
                await anyio.sleep(0.001)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(interfere())
        for sender in range(100):
            tasks.create_task(send(sender))

    [batch] = await chat.fetch("bob")
    assert [message.id for message in batch.messages] == list(range(1, 2_002))
    assert {message.id: message.body for message in batch.messages[1:]} == sent


async def test_joins_and_leaves_are_done_whichever_reply_is_lost(
    concert: Coordinator, chat: Chats, far: Chats, proxy: Proxy
) -> None:
    """Both sides are changed, and nobody is told that a leaver was no member."""
    chat_id = await chat.create("ann", [], "hello")

    async def come(verb: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await verb()
        assert (await chat.members(chat_id))["bob"] == 1
        assert await listed(concert, "bob") == [chat_id]
        await chat.leave(chat_id, "bob")

    async def go(verb: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await chat.join(chat_id, "bob")
        await verb()
        assert await chat.members(chat_id) == {"ann": 0}
        assert await listed(concert, "bob") == []

    await at_each_reply(proxy, partial(come, partial(far.join, chat_id, "bob")))
    await at_each_reply(proxy, partial(come, partial(far.add, chat_id, "ann", "bob")))
    await at_each_reply(proxy, partial(go, partial(far.leave, chat_id, "bob")))
    await at_each_reply(proxy, partial(go, partial(far.remove, chat_id, "ann", "bob")))


async def test_looks_answer_whichever_reply_is_lost(chat: Chats, far: Chats, proxy: Proxy) -> None:
    """history() and unread() are asked again."""
    chat_id = await chat.create("ann", ["bob"], "hello")

    async def look() -> None:
        assert [message.body for message in await far.history(chat_id, "bob")] == ["hello"]
        assert await far.unread("bob") == {chat_id: 1}

    await at_each_reply(proxy, look, step=3)


async def test_last_leave_is_done_whichever_reply_is_lost(
    concert: Coordinator, chat: Chats, far: Chats, proxy: Proxy
) -> None:
    """The second run finds no chat any more, and that is what was wanted."""

    async def attempt() -> None:
        chat_id = await chat.create("ann", [], "hello")
        await far.leave(chat_id, "ann")
        assert await contents(concert) == {}

    await at_each_reply(proxy, attempt)


async def test_fetch_and_ack_are_done_whichever_reply_is_lost(chat: Chats, far: Chats, proxy: Proxy) -> None:
    """What was fetched is what was there, and the position moves."""
    chat_id = await chat.create("ann", ["bob"], "hello")
    numbers = itertools.count(2)

    async def fetch() -> None:
        message = await chat.send(chat_id, "ann", "x")
        [batch] = await far.fetch("bob")
        assert batch.last_id == message.id == next(numbers)
        assert (await far.members(chat_id))["bob"] == message.id

    async def ack() -> None:
        message = await chat.send(chat_id, "ann", "x")
        await far.ack("bob", chat_id, message.id)
        assert (await chat.members(chat_id))["bob"] == message.id

    await at_each_reply(proxy, fetch, step=3)
    await at_each_reply(proxy, ack)


async def test_scripts_that_the_server_forgot_are_loaded_again(concert: Coordinator, chat: Chats) -> None:
    """After SCRIPT FLUSH every verb works as before."""
    client: Any = raw(concert)
    chat_id = await chat.create("ann", ["bob"], "hello")
    for number in range(2, 102):
        if number % 10 == 0:
            await client.script_flush()
        assert (await chat.send(chat_id, "ann", number)).id == number

    await client.script_flush()
    [batch] = await chat.fetch("bob")
    assert len(batch.messages) == 101
    await client.script_flush()
    await chat.leave(chat_id, "bob")
    await client.script_flush()
    await chat.leave(chat_id, "ann")
    assert await contents(concert) == {}


# A caller is cancelled.


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_fetch_loses_nothing(
    concert: Coordinator, chat: Chats, chat_elsewhere: Chats, moment: Moment
) -> None:
    """The positions move when `fetch` returns; cancelled at any await, it has moved none."""
    rooms = [await chat.create("ann", ["bob"], "hello") for _ in range(3)]
    number = 0
    for number in itertools.count(1):
        sent = {(chat_id, (await chat.send(chat_id, "ann", number)).id) for chat_id in rooms}
        got: set[tuple[str, int]] = set()

        async def fetch(got: set[tuple[str, int]] = got) -> None:
            got.update((batch.chat_id, message.id) for batch in await chat.fetch("bob") for message in batch.messages)

        came_so_far = await cancel_at(number, moment, fetch())
        await nothing_is_under_way(concert)
        again = {
            (batch.chat_id, message.id) for batch in await chat_elsewhere.fetch("bob") for message in batch.messages
        }
        assert got | again >= sent
        assert got == set() or again == set()
        if not came_so_far:
            break
    assert number >= 3


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_ack_moves_the_position_forward_or_not_at_all(
    concert: Coordinator, chat: Chats, moment: Moment
) -> None:
    """Acknowledging again always works."""
    chat_id = await chat.create("ann", ["bob"], "hello")
    number = 0
    for number in itertools.count(1):
        message = await chat.send(chat_id, "ann", number)
        before = (await chat.members(chat_id))["bob"]
        came_so_far = await cancel_at(number, moment, chat.ack("bob", chat_id, message.id))
        await nothing_is_under_way(concert)
        assert (await chat.members(chat_id))["bob"] in (before, message.id)
        await chat.ack("bob", chat_id, message.id)
        assert (await chat.members(chat_id))["bob"] == message.id
        if not came_so_far:
            break


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_change_is_done_wholly_or_not_at_all(concert: Coordinator, chat: Chats, moment: Moment) -> None:
    """Who is a member has the chat on the list, and nobody else has; doing it again always works."""
    chat_id = await chat.create("ann", [], "hello")
    verbs: list[Callable[[], Coroutine[Any, Any, None]]] = [
        partial(chat.join, chat_id, "bob"),
        partial(chat.leave, chat_id, "bob"),
        partial(chat.add, chat_id, "ann", "bob"),
        partial(chat.remove, chat_id, "ann", "bob"),
    ]
    came_so_far, number = True, 0
    while came_so_far:
        number += 1
        came_so_far = False
        for verb in verbs:
            came_so_far |= await cancel_at(number, moment, verb())
            await nothing_is_under_way(concert)
            assert ("bob" in await chat.members(chat_id)) == (chat_id in await listed(concert, "bob"))
            with suppress(NotAMember):
                await verb()
    assert number >= 2


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_create_makes_a_whole_chat_or_none(concert: Coordinator, chat: Chats, moment: Moment) -> None:
    """A chat that is there is on the lists of all its members."""
    users = ("ann", "bob", "cy")
    came_so_far, number = True, 0
    while came_so_far:
        number += 1
        came_so_far = await cancel_at(number, moment, chat.create("ann", ["bob", "cy"], "hello"))
        await nothing_is_under_way(concert)
        if await contents(concert):
            for user in users:
                [chat_id] = await listed(concert, user)
                await chat.leave(chat_id, user)
        assert await contents(concert) == {}
    assert number >= 2


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_look_changes_nothing(concert: Coordinator, chat: Chats, moment: Moment) -> None:
    """Neither history() nor unread() moves anything, cancelled or not."""
    chat_id = await chat.create("ann", ["bob"], "hello")
    before = await contents(concert)
    came_so_far, number = True, 0
    while came_so_far:
        number += 1
        came_so_far = await cancel_at(number, moment, chat.history(chat_id, "bob"))
        came_so_far |= await cancel_at(number, moment, chat.unread("bob"))
        assert await contents(concert) == before
    assert await chat.unread("bob") == {chat_id: 1}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_listener_loses_nothing_and_leaves_no_subscription(
    concert: Coordinator, chat: Chats, chat_elsewhere: Chats, moment: Moment
) -> None:
    """What it had not handed out, or the body had not finished, is there for the next one."""
    chat_id = await chat.create("ann", ["bob"], 0)
    got: list[int] = []

    async def listen(last: int) -> None:
        async with aclosing(chat.listen("bob")) as news:
            async for batch in news:
                got.extend(message.id for message in batch.messages)
                await anyio.lowlevel.checkpoint()
                if batch.last_id == last:
                    break

    came_so_far, number = True, 0
    while came_so_far:
        number += 1
        last = (await chat_elsewhere.send(chat_id, "ann", number)).id
        came_so_far = await cancel_at(number, moment, listen(last))
        await nothing_is_under_way(concert)
        assert broadcasts_of(concert._ref.session)._channels == {}
        position = (await chat.members(chat_id))["bob"]
        assert set(got) >= set(range(1, position + 1))
    got += [message.id for batch in await chat.fetch("bob") for message in batch.messages]
    assert set(got) == set(range(1, number + 2))
    assert number >= 4


# Many at a time.


async def test_busy_members_leave_neither_ghosts_nor_keys(
    server: RealServer, concert: Coordinator, namespace: str
) -> None:
    """Three sessions join, leave, send and fetch for the same users at random: the sides agree, and nothing is left."""
    users = [f"user-{number}" for number in range(8)]
    chat = concert.chat
    rooms = [await chat.create("host", users, "hello") for _ in range(5)]

    async def live(chat: Chats, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(60):
            user, chat_id = chance.choice(users), chance.choice(rooms)
            verbs: list[Callable[[], Coroutine[Any, Any, object]]] = [
                partial(chat.join, chat_id, user),
                partial(chat.leave, chat_id, user),
                partial(chat.send, chat_id, user, "x"),
                partial(chat.fetch, user),
            ]
            try:
                with anyio.move_on_after(chance.choice([0, 0.001, 0.01, 10])):
                    await chance.choice(verbs)()
            except NotAMember:
                pass

    async with (
        Coordinator(server.url, namespace=namespace) as second,
        Coordinator(server.url, namespace=namespace) as third,
        asyncio.TaskGroup() as tasks,
    ):
        for seed in range(24):
            tasks.create_task(live((concert, second, third)[seed % 3].chat, seed))

    for chat_id in rooms:
        for user in await chat.members(chat_id):
            assert chat_id in await listed(concert, user)
    for user in [*users, "host"]:
        await chat.fetch(user)
        await nothing_is_under_way(concert)
        for chat_id in await listed(concert, user):
            await chat.leave(chat_id, user)
    assert await contents(concert) == {}


async def test_ids_have_no_gaps_with_many_senders(chat: Chats, chat_elsewhere: Chats) -> None:
    """Fifty senders in two sessions: each message has an id of its own, and every reader gets all, in order."""
    chat_id = await chat.create("ann", ["bob", "cy"], "hello")

    async def send(chat: Chats, sender: int) -> list[int]:
        return [(await chat.send(chat_id, "ann", [sender, number])).id for number in range(40)]

    ids = await asyncio.gather(*(send(chat if sender % 2 else chat_elsewhere, sender) for sender in range(50)))

    assert sorted(itertools.chain(*ids)) == list(range(2, 2_002))
    assert all(each == sorted(each) for each in ids)
    for user in ("bob", "cy"):
        [batch] = await chat_elsewhere.fetch(user)
        assert [message.id for message in batch.messages] == list(range(1, 2_002))


async def test_joiners_miss_nothing_while_others_send(chat: Chats, chat_elsewhere: Chats) -> None:
    """From the moment of joining on, every message arrives, without a gap."""
    chat_id = await chat.create("ann", [], 1)
    joined_at: dict[str, int] = {}

    async def join(number: int) -> None:
        user = f"user-{number}"
        await anyio.sleep(random.Random(number).random() / 10)
        await chat_elsewhere.join(chat_id, user)
        joined_at[user] = (await chat_elsewhere.members(chat_id))[user]

    async with asyncio.TaskGroup() as tasks:
        for number in range(100):
            tasks.create_task(join(number))
        while len(joined_at) < 100:
            last = (await chat.send(chat_id, "ann", "x")).id
    last = (await chat.send(chat_id, "ann", "last")).id

    assert len(set(joined_at.values())) > 2
    for user, position in joined_at.items():
        [batch] = await chat.fetch(user)
        assert [message.id for message in batch.messages] == list(range(position + 1, last + 1))


async def test_fetchers_of_one_user_get_everything_between_them(chat: Chats, chat_elsewhere: Chats) -> None:
    """Many fetch for one user while others send: all arrives, each fetch in order, and the position never goes back."""
    chat_id = await chat.create("ann", ["bob"], "hello")
    got: set[int] = set()
    is_over = False

    async def fetch(chat: Chats) -> None:
        position = 0
        while not is_over:
            for batch in await chat.fetch("bob", limit=7):
                ids = [message.id for message in batch.messages]
                assert ids == list(range(ids[0], ids[0] + len(ids)))
                got.update(ids)
            now = (await chat.members(chat_id))["bob"]
            assert now >= position
            position = now

    async with asyncio.TaskGroup() as tasks:
        for number in range(10):
            tasks.create_task(fetch(chat if number % 2 else chat_elsewhere))
        for number in range(300):
            await chat.send(chat_id, "ann", number)
        is_over = True

    got.update(message.id for batch in await chat.fetch("bob") for message in batch.messages)
    assert got == set(range(1, 302))


async def test_slow_reader_is_told_of_every_message_that_it_missed(chat: Chats, chat_elsewhere: Chats) -> None:
    """What arrived and what was missed add up to all, and each gap is where it was told."""
    chat_id = await chat.create("ann", ["bob"], "hello", max_messages=20)
    reached = missed = 0

    async def fetch() -> None:
        nonlocal reached, missed
        for batch in await chat_elsewhere.fetch("bob", limit=5):
            missed += batch.missed
            assert [message.id for message in batch.messages] == [reached + batch.missed + n + 1 for n in range(5)][
                : len(batch.messages)
            ]
            reached = batch.last_id

    async with asyncio.TaskGroup() as tasks:
        for _ in range(10):
            tasks.create_task(send_many(chat, chat_id, 100))
        for _ in range(30):
            await fetch()
    while reached < 1_001:
        await fetch()

    assert 0 < missed < 1_001


async def send_many(chat: Chats, chat_id: str, count: int) -> None:
    """Send so many messages, one after the other."""
    for number in range(count):
        await chat.send(chat_id, "ann", number)


@pytest.mark.parametrize("small", [1, 650])
async def test_reply_to_fetch_is_bounded_in_bytes(chat: Chats, concert: Coordinator, small: int) -> None:
    """One run of the script stops soon after 1 MiB, whatever comes before large messages, and brings one at least."""
    chat_id = await chat.create("ann", ["bob"], "hello")
    await asyncio.gather(*(chat.send(chat_id, "ann", "x") for _ in range(small - 1)))
    for _ in range(40):
        await chat.send(chat_id, "ann", "x" * 200_000)

    command = command_of("chat/fetch", chat._keys.chat(chat_id), user="bob", after=-1, count=1_000)
    reply = await concert._ref.session.run(command)

    assert reply[:4] == [1, 0, 1, small + 40]
    assert 1 <= len(reply[4:]) <= small + 5 + 16


async def test_fetch_in_a_thousand_chats_is_cheap(concert: Coordinator, chat: Chats) -> None:
    """One of them has news: fewer than 60 commands, those inside scripts counted; and a send costs the same for all."""
    client: Any = raw(concert)

    async def commands(attempt: Awaitable[object]) -> int:
        await nothing_is_under_way(concert)
        await client.config_resetstat()
        await attempt
        await nothing_is_under_way(concert)  # 2 commands
        stats: dict[str, dict[str, int]] = await client.info("commandstats")
        return sum(each["calls"] for name, each in stats.items() if not name.startswith("cmdstat_config")) - 2

    rooms = await asyncio.gather(*(chat.create("ann", ["bob"], "hello") for _ in range(1_000)))
    await chat.fetch("bob")
    await chat.send(rooms[7], "ann", "news")
    assert await commands(chat.fetch("bob")) < 60

    large = await chat.create("ann", [f"user-{number}" for number in range(1_000)], "hello")
    await chat.send(large, "ann", "news")
    assert await commands(chat.send(large, "ann", "x")) == await commands(chat.send(rooms[7], "ann", "x"))


# Listeners.


async def test_thousand_listeners_share_one_connection(
    concert: Coordinator, chat: Chats, chat_elsewhere: Chats
) -> None:
    """All of them wait without asking, and hear at once."""
    client: Any = raw(concert)
    users = [f"user-{number}" for number in range(1_000)]
    chat_id = await chat_elsewhere.create("host", users, "hello")
    listeners = [chat.listen(user, ack=False) for user in users]
    firsts = await asyncio.gather(*(anext(listener) for listener in listeners))
    assert {batch.last_id for batch in firsts} == {1}
    connections = len(await client.client_list())
    waiting = [asyncio.ensure_future(anext(listener)) for listener in listeners]
    await chat.members(chat_id)  # whoever asked when it began to wait has its answer now
    commands = (await client.info("stats"))["total_commands_processed"]
    assert (await client.info("stats"))["total_commands_processed"] - commands <= 2
    assert len(await client.client_list()) == connections

    await chat_elsewhere.send(chat_id, "host", "news")

    assert {batch.last_id for batch in await asyncio.gather(*waiting)} == {2}
    subscribed = [each for each in await client.client_list() if int(each["sub"]) > 1]
    assert [int(each["sub"]) for each in subscribed] == [1_001]
    for listener in listeners:
        await listener.aclose()
    assert broadcasts_of(concert._ref.session)._channels == {}


async def test_listener_loses_and_repeats_nothing_when_its_connections_break(
    concert: Coordinator, chat: Chats, far: Chats, proxy: Proxy
) -> None:
    """Cut again and again while others send: it gets each message once, in order."""
    chat_id = await chat.create("ann", ["bob"], 1)
    ids: list[int] = []

    async def listen() -> None:
        async with aclosing(far.listen("bob")) as news:
            async for batch in news:
                assert batch.missed == 0
                ids.extend(message.id for message in batch.messages)
                if ids[-1] == 300:
                    return

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(listen())
        for number in range(2, 301):
            await chat.send(chat_id, "ann", number)
            if number % 60 == 0:
                proxy.cut()
            await anyio.sleep(0.001)

    assert ids == list(range(1, 301))


async def test_listener_hears_after_its_subscription_was_killed(concert: Coordinator, chat: Chats) -> None:
    """CLIENT KILL of whoever is subscribed: what was said meanwhile comes."""
    client: Any = raw(concert)
    chat_id = await chat.create("ann", ["bob"], 1)
    async with aclosing(chat.listen("bob")) as news:
        await anext(news)
        for number in range(2, 5):
            waiting = asyncio.ensure_future(anext(news))
            await client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            await chat.send(chat_id, "ann", number)
            assert (await waiting).last_id == number


async def test_listener_outlasts_its_server(namespace: str) -> None:
    """The server is killed, and comes back with its data: nothing is lost or repeated, and new chats are heard."""
    with RealServer(appendonly="yes", appendfsync="always") as mortal:
        async with Coordinator(mortal.url, namespace=namespace, timeout=1.0) as concert:
            chat = concert.chat
            chat_id = await chat.create("ann", ["bob"], 1)
            async with aclosing(chat.listen("bob")) as news:
                assert (await anext(news)).last_id == 1
                waiting = asyncio.ensure_future(anext(news))
                mortal.kill()
                mortal.start()
                await chat.send(chat_id, "ann", 2)
                batch = await waiting
                assert [message.id for message in batch.messages] == [2]
                other = await chat.create("ann", ["bob"], "new")
                assert (await anext(news)).chat_id == other


async def test_listener_gets_what_is_read_elsewhere_before_it_hears(
    chat: Chats, chat_elsewhere: Chats, concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sent and read by another after it knew of the chat, and before the server let it listen there: it gets it."""
    chat_id = await chat.create("ann", ["bob"], 1, history=100)
    await chat.ack("bob", chat_id, 1)
    broadcasts = concert._ref.session.broadcasts
    listen = broadcasts.listen

    async def listen_late(channel: str, listener: Any) -> None:
        if channel == chat._keys.chat_channel(chat_id):
            await chat_elsewhere.send(chat_id, "ann", 2)
            await chat_elsewhere.ack("bob", chat_id, 2)
        await listen(channel, listener)

    monkeypatch.setattr(broadcasts, "listen", listen_late)
    async with aclosing(chat.listen("bob")) as news, asyncio.timeout(10):
        batch = await anext(news)
    assert ([message.id for message in batch.messages], batch.missed) == ([2], 0)


async def test_listener_begins_a_chat_where_its_user_got_in(chat: Chats, far: Chats, proxy: Proxy) -> None:
    """Though another has read there before it could hear of the chat, it gets what is kept; from before, nothing."""
    async with aclosing(far.listen("bob")) as news:
        await chat.create("ann", ["bob"], "hello")
        await anext(news)
        waiting = asyncio.ensure_future(anext(news))
        proxy.refuse()
        proxy.cut()
        chat_id = await chat.create("ann", [], 1, history=100)
        await chat.join(chat_id, "bob")
        await chat.send(chat_id, "ann", 2)
        await chat.ack("bob", chat_id, 2)
        await proxy.heal()

        batch = await asyncio.wait_for(waiting, 10)

    assert (batch.chat_id, [message.id for message in batch.messages], batch.missed) == (chat_id, [2], 0)


async def test_listener_goes_on_with_ids_that_are_given_again(
    concert: Coordinator, chat: Chats, chat_elsewhere: Chats
) -> None:
    """A replica that lacks the latest messages takes over: those sent then have their ids, and are heard, too."""
    client: Any = raw(concert)
    chat_id = await chat.create("ann", ["bob"], 1)
    async with aclosing(chat.listen("bob")) as news:
        await anext(news)
        keys, chats = chat._keys.chat(chat_id), chat._keys.user_list("bob", chat_id)
        kept = (keys.members, keys.state, keys.messages, keys.heads, chats)
        dumps = {key: await client.dump(key) for key in kept}
        for number in (2, 3):
            await chat_elsewhere.send(chat_id, "ann", number)
            assert (await anext(news)).last_id == number
        waiting = asyncio.ensure_future(anext(news))
        await eventually(lambda: _has_read(chat, chat_id, "bob", 3))

        for key, dump in dumps.items():
            await client.restore(key, 0, dump, replace=True)
        await chat_elsewhere.send(chat_id, "ann", "2 again")
        await client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")

        batch = await asyncio.wait_for(waiting, 10)
        assert [message.body for message in batch.messages][-1] == "2 again"
        assert batch.last_id == 2
        await chat_elsewhere.send(chat_id, "ann", "3 again")
        assert [message.body for message in (await anext(news)).messages] == ["3 again"]


async def _has_read(chat: Chats, chat_id: str, user: str, position: int) -> bool:
    return (await chat.members(chat_id))[user] == position


async def test_what_a_listener_has_handled_counts_as_read_however_long_its_server_is_away(namespace: str) -> None:
    """It says so again until the server has heard it, also past the time of one call."""
    with RealServer(appendonly="yes", appendfsync="always") as mortal:
        async with Coordinator(mortal.url, namespace=namespace, timeout=1.0) as concert:
            chat = concert.chat
            chat_id = await chat.create("ann", ["bob"], 1)
            async with aclosing(chat.listen("bob")) as news:
                await anext(news)
                mortal.kill()
                waiting = asyncio.ensure_future(anext(news))
                with pytest.raises(InconcertError):
                    await chat.ack("ann", chat_id, 1)  # begun later, and it has given up
                mortal.start()
                async with Coordinator(mortal.url, namespace=namespace) as patient:
                    await eventually(lambda: _has_read(patient.chat, chat_id, "bob", 1))
                assert not waiting.done()
                waiting.cancel()
                await asyncio.wait([waiting])


# Processes and servers die.


async def only_fetch(url: str, namespace: str, user: str) -> None:
    """In a process of its own: fetch, and never come to acknowledge."""
    async with Coordinator(url, namespace=namespace) as concert:
        [batch] = await concert.chat.fetch(user, ack=False)
        tell("fetched", ids=[message.id for message in batch.messages])
        await anyio.sleep_forever()


async def test_reader_killed_between_fetch_and_ack_loses_nothing(
    server: RealServer, chat: Chats, namespace: str
) -> None:
    """What it had fetched comes again."""
    chat_id = await chat.create("ann", ["bob"], "hello")
    await chat.send(chat_id, "ann", "more")

    async with spawn("tests.faults.test_chat_faults:only_fetch", server.url, namespace, "bob") as child:
        assert (await child.wait_for("fetched"))["ids"] == [1, 2]
        child.kill()

    [batch] = await chat.fetch("bob")
    assert [message.id for message in batch.messages] == [1, 2]


async def test_chat_outlives_its_server(namespace: str) -> None:
    """With an append-only file that is always synced, nothing that was answered is lost by kill -9; ids go on."""
    with RealServer(appendonly="yes", appendfsync="always") as mortal:
        async with Coordinator(mortal.url, namespace=namespace) as concert:
            chat = concert.chat
            chat_id = await chat.create("ann", ["bob"], "hello")
            sent = [await chat.send(chat_id, "ann", number) for number in range(20)]
            await chat.ack("bob", chat_id, 5)

            mortal.kill()
            mortal.start()

            sent.append(await chat.send(chat_id, "ann", "after"))
            [batch] = await chat.fetch("bob")
            assert batch.messages == sent[4:]
            assert sent[-1].id == 22


async def test_time_does_not_fall_when_the_clock_does(concert: Coordinator, chat: Chats) -> None:
    """The server's clock was an hour ahead and is set back: messages go on from the latest time."""
    client: Any = raw(concert)
    chat_id = await chat.create("ann", ["bob"], "hello")
    state = chat._keys.chat(chat_id).state
    ahead = int(await client.hget(state, "at")) + 3_600_000
    await client.hset(state, "at", ahead)

    message = await chat.send(chat_id, "ann", "x")

    assert message.time == ahead / 1000
    [batch] = await chat.fetch("bob")
    assert batch.messages[-1] == message


async def test_full_server_lets_members_read_and_leave(namespace: str) -> None:
    """Sending and joining are refused and change nothing; fetching, acknowledging and leaving work, and make room."""
    with RealServer(maxmemory="20mb", maxmemory_policy="noeviction") as small:
        async with Coordinator(small.url, namespace=namespace) as concert:
            client: Any = raw(concert)
            chat = concert.chat
            chat_id = await chat.create("ann", ["bob", "cy"], "hello")
            for _ in range(28):
                await chat.send(chat_id, "ann", "x" * 10_000)
            await client.config_set("maxmemory", "1mb")
            before = await contents(concert)

            for attempt in (
                chat.send(chat_id, "ann", "y"),
                chat.join(chat_id, "dee"),
                chat.create("ann", ["bob"], "hello"),
            ):
                with pytest.raises(Unavailable, match="memory"):
                    await attempt
            assert await contents(concert) == before

            for user in ("ann", "bob"):
                [batch] = await chat.fetch(user)
                assert len(batch.messages) == 29
            await chat.ack("cy", chat_id, 10)
            assert await chat.members(chat_id) == {"ann": 29, "bob": 29, "cy": 10}
            assert await client.llen(chat._keys.chat(chat_id).messages) == 19

            for user in ("cy", "bob", "ann"):
                await chat.leave(chat_id, user)
            assert await contents(concert) == {}


async def test_foreign_data_is_left_alone(concert: Coordinator, chat: Chats) -> None:
    """A key of ours that holds something else is an error and not overwritten, and nothing is half done."""
    client: Any = raw(concert)
    chat_id = await chat.create("ann", [], "hello")
    before = await contents(concert)
    lists = [keys.chats for keys in chat._keys.user_lists("bob")]
    for key in lists:
        await client.set(key, "foreign")

    for attempt in (chat.fetch("bob"), chat.create("ann", ["cy", "bob"], "hello"), chat.join(chat_id, "bob")):
        with pytest.raises(WrongState):
            await attempt
    assert [await client.getdel(key) for key in lists] == [b"foreign"] * len(lists)
    assert await contents(concert) == before

    heads = chat._keys.chat(chat_id).heads
    latest = await client.smembers(heads)
    all_heads = [keys.heads for keys in chat._keys.user_lists("bob")]
    for key in all_heads:
        await client.set(key, "foreign")
    for making in (chat.send(chat_id, "ann", "x"), chat.create("ann", ["cy"], "hello")):
        with pytest.raises(WrongState):
            await making
    assert [await client.getdel(key) for key in all_heads] == [b"foreign"] * len(all_heads)
    await client.sadd(heads, *latest)
    assert await contents(concert) == before

    messages = chat._keys.chat(chat_id).messages
    await client.set(messages, "foreign")
    for verb in (chat.send(chat_id, "ann", "x"), chat.fetch("ann"), chat.ack("ann", chat_id, 1)):
        with pytest.raises(WrongState):
            await verb
    assert await client.get(messages) == b"foreign"


@pytest.mark.skipif(not redis6_available(), reason="Redis 6.2 is not here: its wheel is missing for this platform")
async def test_oldest_server_knows_all_that_is_used(namespace: str) -> None:
    """The whole story on Redis 6.2."""
    with RealServer("redis6") as old:
        async with Coordinator(old.url, namespace=namespace) as concert:
            chat = concert.chat
            chat_id = await chat.create("ann", ["bob"], 1, max_messages=50, max_age=100)
            for number in range(2, 102):
                await chat.send(chat_id, "ann", number)
            await chat.join(chat_id, "cy")
            await chat.send(chat_id, "cy", 102)
            [bobs] = await chat.fetch("bob")
            [cys] = await chat.fetch("cy")
            assert ([message.body for message in bobs.messages], bobs.missed) == (list(range(53, 103)), 52)
            assert [message.body for message in cys.messages] == [102]
            await chat.ack("ann", chat_id, 102)
            assert await chat.members(chat_id) == {"ann": 102, "bob": 102, "cy": 102}
            for user in ("ann", "bob", "cy"):
                await chat.leave(chat_id, user)
            assert await contents(concert) == {}
