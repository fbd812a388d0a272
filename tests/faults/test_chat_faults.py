"""A chat when replies are lost, calls cancelled, processes killed, servers full: nothing is lost or left behind."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from inconcert import Chats, Coordinator, NotAMember, OutcomeUnknown, Unavailable, WrongState
from inconcert._redis.scripts import load
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.servers import RealServer, redis6_available

SCRIPTS = Path(__file__).parents[2] / "src/inconcert/_lua"


@pytest.fixture
def chat(concert: Coordinator) -> Chats:
    """The chats of a namespace that no other test uses."""
    return concert.chat


@pytest.fixture
async def elsewhere(server: RealServer, concert: Coordinator, namespace: str) -> AsyncIterator[Chats]:
    """The same chats from a second session, as another process has it."""
    async with Coordinator(server.url, namespace=namespace) as opened:
        yield opened.chat


async def contents(concert: Coordinator) -> dict[str, tuple[Any, bool]]:
    """Every key of the namespace: what it holds, and whether it has a TTL."""
    client: Any = concert.redis
    reads: dict[bytes, Callable[[bytes], Awaitable[Any]]] = {
        b"list": lambda key: client.lrange(key, 0, -1),
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        b"hash": client.hgetall,
        b"string": client.get,
    }
    found: dict[str, tuple[Any, bool]] = {}
    async for key in client.scan_iter(f"*{concert._access.keys.namespace}:*"):
        value = await reads[await client.type(key)](key)
        found[key.decode()] = (value, await client.pttl(key) >= 0)
    return found


async def listed(concert: Coordinator, user: str) -> list[str]:
    """The chats on a user's list."""
    client: Any = concert.redis
    [key] = concert._access.keys.of("user", user, "chats")
    return [chat_id.decode() for chat_id in await client.zrange(key, 0, -1)]


async def nothing_is_under_way(concert: Coordinator) -> None:
    """Return when the server has answered all that the coordinator sent before."""
    await concert._access.session.run(load("chat_lists/read"), concert._access.keys.of("user", "nobody", "chats"), 0)


# Each script, run twice.


KITCHEN = ("members", "state", "messages", "recent", "older")
RUNS: dict[str, tuple[tuple[str, ...], tuple[str | int, ...]]] = {
    "chat/create": (KITCHEN[:3], (100, 0, '"again"', "ann", "bob")),
    "chat/keep": (KITCHEN[:3], ()),
    "chat/send": (KITCHEN, ("ann", '"x"', "request-1")),
    "chat/fetch": (KITCHEN[:3], ("bob", -1, 10)),
    "chat/ack": (KITCHEN[:3], ("bob", 2)),
    "chat/join": (KITCHEN, ("dee", "request-1")),
    "chat/leave": (KITCHEN, ("bob", "request-1")),
    "chat/members": (KITCHEN[:1], (0,)),
    "chat_lists/add": (("chats",), ("other", 3)),
    "chat_lists/remove": (("chats",), ("kitchen", 3)),
    "chat_lists/read": (("chats",), (0,)),
}
SECOND_ANSWERS = {"chat_lists/remove": 0}


def test_every_script_is_run_twice_here() -> None:
    """A new script adds itself."""
    assert set(RUNS) == {f"{path.parent.name}/{path.stem}" for path in SCRIPTS.glob("chat*/*.lua")}


@pytest.mark.parametrize("name", RUNS)
async def test_second_run_changes_nothing_and_answers_the_same(any_concert: Coordinator, name: str) -> None:
    """A script whose reply was lost is sent again: what its header says of the second run is so."""
    session, keyspace = any_concert._access.session, any_concert._access.keys
    kitchen = keyspace.of("chat", "kitchen", *KITCHEN)
    [bobs_list] = keyspace.of("user", "bob", "chats")
    await session.run(load("chat/create"), kitchen[:3], 100, 0, '"hello"', "ann", "bob", "cy")
    await session.run(load("chat/keep"), kitchen[:3])
    await session.run(load("chat/send"), kitchen, "ann", '"more"', "request-0")
    await session.run(load("chat_lists/add"), (bobs_list,), "kitchen", 1)
    parts, args = RUNS[name]
    keys = (bobs_list,) if parts == ("chats",) else kitchen[: len(parts)]

    first = await session.run(load(name), keys, *args)
    state = await contents(any_concert)
    second = await session.run(load(name), keys, *args)

    assert second == SECOND_ANSWERS.get(name, first)
    assert await contents(any_concert) == state


async def test_second_send_is_known_after_the_message_is_gone(chat: Chats, concert: Coordinator) -> None:
    """Even when all have read the message meanwhile, a late second run adds none, whatever its sender is by then."""
    chat_id = await chat.create("ann", ["bob"], "hello")
    session, keys = concert._access.session, chat._keys(chat_id)
    first = await session.run(load("chat/send"), keys, "ann", '"x"', "request")
    for user in ("ann", "bob"):
        await chat.fetch(user)
    await chat.leave(chat_id, "ann")

    assert await session.run(load("chat/send"), keys, "ann", '"x"', "request") == first
    assert await chat.fetch("bob") == []


async def test_late_twins_of_join_and_leave_change_nothing(chat: Chats, concert: Coordinator) -> None:
    """A second run that comes after the opposite was done, from a connection that was given up, does not undo it."""
    chat_id = await chat.create("ann", ["bob"], "hello")
    session, keys = concert._access.session, chat._keys(chat_id)

    left = await session.run(load("chat/leave"), keys, "bob", "request-1")
    await chat.join(chat_id, "bob")
    assert await session.run(load("chat/leave"), keys, "bob", "request-1") == left
    assert await chat.members(chat_id) == {"ann": 0, "bob": 1}

    joined = await session.run(load("chat/join"), keys, "bob", "request-2")
    await chat.leave(chat_id, "bob")
    assert await session.run(load("chat/join"), keys, "bob", "request-2") == joined
    assert await chat.members(chat_id) == {"ann": 0}


async def test_memory_of_requests_moves_on_with_time(chat: Chats, concert: Coordinator) -> None:
    """A request is known for at least a minute: what is older makes room, and ends by itself."""
    client: Any = concert.redis
    chat_id = await chat.create("ann", ["bob"], "hello")
    session, keys = concert._access.session, chat._keys(chat_id)
    recent, older = keys[3:]
    answers: dict[str, Any] = {}
    for number in range(3):
        answers[f"r{number}"] = await session.run(load("chat/send"), keys, "ann", '"x"', f"r{number}")
        assert 119_000 < await client.pttl(recent) <= 120_000
        await client.pexpire(recent, 59_999)  # a minute passes
    assert await client.hkeys(older) == [b"r1"]
    assert 0 < await client.pttl(older) < 60_000

    for request in ("r1", "r2"):
        assert await session.run(load("chat/send"), keys, "ann", '"x"', request) == answers[request]


async def test_memory_of_requests_is_bounded(chat: Chats, concert: Coordinator) -> None:
    """However fast members send, it holds at most two times 10,000 of them."""
    client: Any = concert.redis
    chat_id = await chat.create("ann", ["bob"], "hello")
    recent, older = chat._keys(chat_id)[3:]
    await chat.send(chat_id, "ann", "x")
    await client.hset(recent, mapping={f"r{number}": "1 1" for number in range(9_999)})

    await chat.send(chat_id, "ann", "y")

    assert (await client.hlen(recent), await client.hlen(older)) == (1, 10_000)


# A reply is lost: the call is sent again on a new connection.


@pytest.fixture
async def proxy(server: RealServer) -> AsyncIterator[Proxy]:
    """A network between us and the server."""
    async with Proxy(server.tcp_url) as between:
        yield between


@pytest.fixture
async def far(proxy: Proxy, concert: Coordinator, namespace: str) -> AsyncIterator[Chats]:
    """The chats as seen through it."""
    async with Coordinator(proxy.url, namespace=namespace) as opened:
        yield opened.chat


async def at_each_reply(proxy: Proxy, attempt: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run something again and again, with its first, second ... reply lost, until none is left to lose."""
    for count in itertools.count():
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


async def test_join_and_leave_are_done_whichever_reply_is_lost(
    concert: Coordinator, chat: Chats, far: Chats, proxy: Proxy
) -> None:
    """Both sides are changed, and nobody is told that a leaver was no member."""
    chat_id = await chat.create("ann", [], "hello")

    async def join() -> None:
        await far.join(chat_id, "bob")
        assert (await chat.members(chat_id))["bob"] == 1
        assert await listed(concert, "bob") == [chat_id]

    async def leave() -> None:
        await chat.join(chat_id, "bob")
        await far.leave(chat_id, "bob")
        assert await chat.members(chat_id) == {"ann": 0}
        assert await listed(concert, "bob") == []

    await at_each_reply(proxy, join)
    await at_each_reply(proxy, leave)


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

    await at_each_reply(proxy, fetch)
    await at_each_reply(proxy, ack)


async def test_scripts_that_the_server_forgot_are_loaded_again(concert: Coordinator, chat: Chats) -> None:
    """After SCRIPT FLUSH every verb works as before."""
    client: Any = concert.redis
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
    concert: Coordinator, chat: Chats, elsewhere: Chats, moment: Moment
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
        again = {(batch.chat_id, message.id) for batch in await elsewhere.fetch("bob") for message in batch.messages}
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
async def test_cancelled_join_or_leave_is_done_on_both_sides_or_on_none(
    concert: Coordinator, chat: Chats, moment: Moment
) -> None:
    """Who is a member has the chat on the list, and nobody else has."""
    chat_id = await chat.create("ann", [], "hello")

    async def sides_agree() -> None:
        for _ in range(2):  # the second step goes out when the first one is answered
            await nothing_is_under_way(concert)
        assert ("bob" in await chat.members(chat_id)) == (chat_id in await listed(concert, "bob"))

    number = 0
    for number in itertools.count(1):
        came_so_far = await cancel_at(number, moment, chat.join(chat_id, "bob"))
        await sides_agree()
        await chat.join(chat_id, "bob")
        came_so_far |= await cancel_at(number, moment, chat.leave(chat_id, "bob"))
        await sides_agree()
        await chat.join(chat_id, "bob")
        await chat.leave(chat_id, "bob")
        if not came_so_far:
            break
    assert number >= 3


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_create_makes_a_whole_chat_or_one_that_lapses(
    concert: Coordinator, chat: Chats, moment: Moment
) -> None:
    """A chat that stays is on the lists of all its members; what else there is ends within a minute."""
    users = ("ann", "bob", "cy")
    number = 0
    for number in itertools.count(1):
        came_so_far = await cancel_at(number, moment, chat.create("ann", ["bob", "cy"], "hello"))
        await nothing_is_under_way(concert)
        lasting = {key for key, (_, ends) in (await contents(concert)).items() if not ends and ":chat:" in key}
        if lasting:
            assert len(lasting) == 3
            for user in users:
                [chat_id] = await listed(concert, user)
                await chat.leave(chat_id, user)
        else:
            await concert.redis.delete(*[key for key in await contents(concert) if ":chat:" in key] or ["none"])
            for user in users:  # as after that minute
                assert await chat.fetch(user) == []
            await nothing_is_under_way(concert)
        assert await contents(concert) == {}
        if not came_so_far:
            break
    assert number >= 4


async def test_join_that_lost_its_caller_and_its_reply_is_finished(
    concert: Coordinator, chat: Chats, far: Chats, proxy: Proxy
) -> None:
    """Done in the chat, cancelled, and cut off: it is sent again all the same, and the list gets the chat."""
    chat_id = await chat.create("ann", [], "hello")
    proxy.hold_replies()
    joining = asyncio.create_task(far.join(chat_id, "bob"))
    while "bob" not in await chat.members(chat_id):
        await anyio.sleep(0.001)
    joining.cancel()
    await asyncio.wait([joining])
    assert joining.cancelled()

    proxy.cut()
    await proxy.heal()

    while await listed(concert, "bob") != [chat_id]:
        await anyio.sleep(0.001)


async def test_join_that_meets_the_end_of_its_coordinator_does_not_know(
    server: RealServer, proxy: Proxy, concert: Coordinator, chat: Chats, namespace: str
) -> None:
    """Done in the chat and not on the list: the caller is told, and joining again repairs it."""
    chat_id = await chat.create("ann", [], "hello")
    async with Coordinator(proxy.url, namespace=namespace) as closing:
        proxy.hold_replies()
        joining = asyncio.create_task(closing.chat.join(chat_id, "bob"))
        while "bob" not in await chat.members(chat_id):
            await anyio.sleep(0.001)
        asyncio.get_running_loop().call_later(0.1, proxy.release_replies)
    with pytest.raises(OutcomeUnknown, match="do it again"):
        await joining
    assert await listed(concert, "bob") == []

    await chat.join(chat_id, "bob")

    assert await listed(concert, "bob") == [chat_id]
    assert await chat.members(chat_id) == {"ann": 0, "bob": 1}


# The list of a user follows the chat, in whatever order its changes arrive.


@pytest.mark.parametrize("steps", [*itertools.permutations([("add", 1), ("remove", 1), ("add", 2)])])
async def test_no_order_of_late_steps_loses_a_membership(
    any_concert: Coordinator, steps: tuple[tuple[str, int], ...]
) -> None:
    """Joined, left and joined again: the chat is on the list, in whatever order the three arrive."""
    session, key = any_concert._access.session, any_concert._access.keys.of("user", "bob", "chats")
    for verb, joins in steps:
        await session.run(load(f"chat_lists/{verb}"), key, "kitchen", joins)

    assert await session.run(load("chat_lists/read"), key, 0) == [b"kitchen"]


async def test_repair_spares_who_joined_meanwhile(concert: Coordinator, chat: Chats) -> None:
    """A fetch that saw no membership removes nothing that a join has put on the list since."""
    chat_id = await chat.create("ann", ["bob"], "hello")
    session, keys = concert._access.session, chat._keys(chat_id)
    await chat.leave(chat_id, "bob")
    _, joins = await session.run(load("chat/fetch"), keys[:3], "bob", -1, 10)  # what a fetch of bob's saw
    await chat.join(chat_id, "bob")

    key = concert._access.keys.of("user", "bob", "chats")
    assert await session.run(load("chat_lists/remove"), key, chat_id, joins) == 0
    assert await listed(concert, "bob") == [chat_id]


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


# Many at a time.


async def test_ids_have_no_gaps_with_many_senders(chat: Chats, elsewhere: Chats) -> None:
    """Fifty senders in two sessions: each message has an id of its own, and every reader gets all, in order."""
    chat_id = await chat.create("ann", ["bob", "cy"], "hello")

    async def send(chat: Chats, sender: int) -> list[int]:
        return [(await chat.send(chat_id, "ann", [sender, number])).id for number in range(40)]

    ids = await asyncio.gather(*(send(chat if sender % 2 else elsewhere, sender) for sender in range(50)))

    assert sorted(itertools.chain(*ids)) == list(range(2, 2_002))
    assert all(each == sorted(each) for each in ids)
    for user in ("bob", "cy"):
        [batch] = await elsewhere.fetch(user)
        assert [message.id for message in batch.messages] == list(range(1, 2_002))


async def test_joiners_miss_nothing_while_others_send(chat: Chats, elsewhere: Chats) -> None:
    """From the moment of joining on, every message arrives, without a gap."""
    chat_id = await chat.create("ann", [], 1)
    joined_at: dict[str, int] = {}

    async def join(number: int) -> None:
        user = f"user-{number}"
        await anyio.sleep(random.Random(number).random() / 10)
        await elsewhere.join(chat_id, user)
        joined_at[user] = (await elsewhere.members(chat_id))[user]

    async with asyncio.TaskGroup() as tasks:
        for number in range(100):
            tasks.create_task(join(number))
        while len(joined_at) < 100:
            last = (await chat.send(chat_id, "ann", "x")).id
    last = (await chat.send(chat_id, "ann", "last")).id

    assert len(set(joined_at.values())) > 10
    for user, position in joined_at.items():
        [batch] = await chat.fetch(user)
        assert [message.id for message in batch.messages] == list(range(position + 1, last + 1))


async def test_fetchers_of_one_user_get_everything_between_them(chat: Chats, elsewhere: Chats) -> None:
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
            tasks.create_task(fetch(chat if number % 2 else elsewhere))
        for number in range(300):
            await chat.send(chat_id, "ann", number)
        is_over = True

    got.update(message.id for batch in await chat.fetch("bob") for message in batch.messages)
    assert got == set(range(1, 302))


async def test_slow_reader_is_told_of_every_message_that_it_missed(chat: Chats, elsewhere: Chats) -> None:
    """What arrived and what was missed add up to all, and each gap is where it was told."""
    chat_id = await chat.create("ann", ["bob"], "hello", max_messages=20)
    reached = missed = 0

    async def fetch() -> None:
        nonlocal reached, missed
        for batch in await elsewhere.fetch("bob", limit=5):
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


async def test_reply_to_fetch_is_bounded_in_bytes(chat: Chats, concert: Coordinator) -> None:
    """One run of the script brings about 1 MiB, however large the messages are, and at least one of them."""
    chat_id = await chat.create("ann", ["bob"], "hello")
    for _ in range(40):
        await chat.send(chat_id, "ann", "x" * 200_000)

    reply = await concert._access.session.run(load("chat/fetch"), chat._keys(chat_id)[:3], "bob", -1, 1_000)

    assert reply[:4] == [1, 0, 1, 41]
    assert 1 <= len(reply[4:]) <= 10


# Processes and servers die.


async def handle_messages(url: str, namespace: str, user: str, limit: int) -> None:
    """In a process of its own: fetch, handle, acknowledge, for ever."""
    async with Coordinator(url, namespace=namespace) as concert:
        chat = concert.chat
        while True:
            for batch in await chat.fetch(user, limit=limit, ack=False):
                for message in batch.messages:
                    tell("handled", id=message.id)
                await chat.ack(user, batch.chat_id, batch.last_id)


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


async def test_reader_killed_at_any_time_has_handled_what_it_acknowledged(
    server: RealServer, chat: Chats, namespace: str
) -> None:
    """Killed again and again while it works, it has handled every message in the end."""
    chat_id = await chat.create("ann", ["bob"], "hello")
    await send_many(chat, chat_id, 499)
    handled: set[int] = set()
    target = "tests.faults.test_chat_faults:handle_messages"

    for round_ in range(4):
        async with spawn(target, server.url, namespace, "bob", 3) as child:
            await child.wait_for("handled")
            await anyio.sleep(0.001 * round_)  # anywhere in its work
            child.kill()
        handled.update(message["id"] for message in child.messages)
        position = (await chat.members(chat_id))["bob"]
        assert handled >= set(range(1, position + 1))

    handled.update(message.id for batch in await chat.fetch("bob") for message in batch.messages)
    assert handled == set(range(1, 501))


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
    client: Any = concert.redis
    chat_id = await chat.create("ann", ["bob"], "hello")
    state = chat._keys(chat_id)[1]
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
            client: Any = concert.redis
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
            assert await client.llen(chat._keys(chat_id)[2]) == 19

            for user in ("cy", "bob", "ann"):
                await chat.leave(chat_id, user)
            assert await contents(concert) == {}


async def test_foreign_data_is_left_alone(concert: Coordinator, chat: Chats) -> None:
    """A key of ours that holds something else is an error and not overwritten; a chat half made lapses."""
    client: Any = concert.redis
    [bobs_list] = concert._access.keys.of("user", "bob", "chats")
    await client.set(bobs_list, "foreign")

    with pytest.raises(WrongState):
        await chat.fetch("bob")
    with pytest.raises(WrongState):
        await chat.create("ann", ["bob"], "hello")
    assert {key for key, (_, ends) in (await contents(concert)).items() if not ends} == {
        bobs_list,
        *concert._access.keys.of("user", "ann", "chats"),
    }

    chat_id = await chat.create("ann", [], "hello")
    with pytest.raises(OutcomeUnknown, match="do it again"):
        await chat.join(chat_id, "bob")
    assert await client.get(bobs_list) == b"foreign"

    await client.delete(bobs_list)
    await chat.join(chat_id, "bob")
    await chat.send(chat_id, "ann", "hello bob")
    [batch] = await chat.fetch("bob")
    assert [message.body for message in batch.messages] == ["hello bob"]

    messages = chat._keys(chat_id)[2]
    await client.set(messages, "foreign")
    for attempt in (chat.send(chat_id, "ann", "x"), chat.fetch("ann"), chat.ack("ann", chat_id, 1)):
        with pytest.raises(WrongState):
            await attempt
    assert await client.get(messages) == b"foreign"


async def test_chat_that_lapsed_while_it_was_made_is_not_made(concert: Coordinator) -> None:
    """`keep` tells a creator who was paused for too long."""
    keys = concert._access.keys.of("chat", "kitchen", *KITCHEN[:3])
    session = concert._access.session
    await session.run(load("chat/create"), keys, 100, 0, '"hello"', "ann", "bob")
    client: Any = concert.redis
    for key in keys:
        assert 59_000 < await client.pttl(key) <= 60_000
        await client.delete(key)  # as if the minute had passed

    assert await session.run(load("chat/keep"), keys) == 0
    assert await contents(concert) == {}


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
