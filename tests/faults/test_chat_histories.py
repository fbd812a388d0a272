"""A chat in several processes that are killed at any moment, and what its users saw of it, checked."""

import random
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from inconcert import Chats, Coordinator
from tests.support.chat_history import Event, Fetched, Joined, Left, Seen, Sent, all_violations, as_event
from tests.support.processes import Child, spawn, tell
from tests.support.raw import raw
from tests.support.servers import RealServer

HERE = "tests.faults.test_chat_histories"
ROUNDS = 2  # of killing all children
CAP = 300  # messages; one member never reads


# In processes of their own.


def record(event: Event) -> None:
    """Tell the test, which knows of it from then on even if we are killed."""
    tell("history", name=type(event).__name__, values=list(event))


async def latest(chat: Chats, chat_id: str) -> int:
    """The id of the latest message: who has joined just now begins there, and the host is always a member."""
    [message] = await chat.history(chat_id, "host", limit=1)
    return message.id


async def write(url: str, namespace: str, chat_id: str, user: str) -> None:
    """Send for ever."""
    async with Coordinator(url, namespace=namespace) as concert:
        while True:
            record(Sent(user, (await concert.chat.send(chat_id, user, user)).id))
            await anyio.sleep(0.001)


async def read(url: str, namespace: str, chat_id: str, user: str) -> None:
    """Fetch in two tasks at a time, handle, and acknowledge, for ever."""
    async with Coordinator(url, namespace=namespace) as concert:

        async def fetch() -> None:
            while True:
                for batch in await concert.chat.fetch(user, limit=20, ack=False):
                    record(Fetched(user, [message.id for message in batch.messages], batch.missed, batch.last_id))
                    await concert.chat.ack(user, chat_id, batch.last_id)
                    record(Seen(user, (await concert.chat.members(chat_id))[user]))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fetch)
            tasks.start_soon(fetch)


async def listen(url: str, namespace: str, user: str) -> None:
    """Listen for ever."""
    async with Coordinator(url, namespace=namespace) as concert:
        async for batch in concert.chat.listen(user):
            record(Fetched(user, [message.id for message in batch.messages], batch.missed, batch.last_id))


async def come_and_go(url: str, namespace: str, chat_id: str, user: str) -> None:
    """Join, read a while, and leave, for ever; who was killed meanwhile leaves first, if that is not done."""
    async with Coordinator(url, namespace=namespace) as concert:
        chat = concert.chat
        while True:
            before = await latest(chat, chat_id)
            if user in await chat.members(chat_id):
                await chat.leave(chat_id, user)
            record(Left(user, before, await latest(chat, chat_id)))
            before = await latest(chat, chat_id)
            await chat.join(chat_id, user)
            record(Joined(user, before, await latest(chat, chat_id)))
            for _ in range(random.randrange(1, 5)):
                for batch in await chat.fetch(user, ack=False):
                    record(Fetched(user, [message.id for message in batch.messages], batch.missed, batch.last_id))
                    await chat.ack(user, chat_id, batch.last_id)


# Here.


def history_of(children: Sequence[Child]) -> list[Event]:
    """What they have told, each user's events in their order."""
    told: list[dict[str, Any]] = [message for child in children for message in child.messages]
    return [as_event(message["name"], *message["values"]) for message in told if message["event"] == "history"]


@pytest.mark.slow
async def test_every_member_gets_everything_whoever_is_killed(
    server: RealServer, concert: Coordinator, namespace: str
) -> None:
    """Senders, readers, a listener, and one who comes and goes are killed and started again: nothing is wrong."""
    chat = concert.chat
    users = ["ann", "bob", "cy", "dee", "host", "idle"]
    chat_id = await chat.create(users[0], users[1:], "hello", max_messages=CAP, history=1)
    url, children = server.url, list[Child]()
    for round_ in range(ROUNDS):
        running = [
            *(spawn(f"{HERE}:write", url, namespace, chat_id, user) for user in ("ann", "bob")),
            spawn(f"{HERE}:read", url, namespace, chat_id, "cy"),
            spawn(f"{HERE}:listen", url, namespace, "dee"),
            spawn(f"{HERE}:come_and_go", url, namespace, chat_id, "eve"),
        ]
        children += running
        for child in running:
            await child.wait_for("history")
        await anyio.sleep(0.02 * round_)  # anywhere in their work
        for child in random.sample(running, len(running)):
            child.close()

    at = await latest(chat, chat_id)
    if "eve" in await chat.members(chat_id):
        await chat.leave(chat_id, "eve")
    last = await chat.send(chat_id, "host", "last")
    events = [
        *(Joined(user, 0, 0) for user in users),
        *history_of(children),
        Left("eve", at, at),
        Sent("host", last.id),
    ]
    for user in users:
        for batch in await chat.fetch(user):
            ids = [message.id for message in batch.messages]
            events.append(Fetched(user, ids, batch.missed, batch.last_id))
    assert all_violations(events) == []
    assert await chat.members(chat_id) == dict.fromkeys(users, last.id)

    keys = chat._keys.chat(chat_id)
    assert await raw(concert).llen(keys.messages) <= CAP
    for user in users:
        await chat.leave(chat_id, user)
    client: Any = raw(concert)
    left = [key async for key in client.scan_iter(f"*{namespace}:chats*")]
    assert [key for key in left if not key.endswith((b":recent", b":older"))] == []


GOOD: list[Event] = [
    Joined("ann", 0, 0),
    Joined("bob", 0, 0),
    Sent("ann", 1),
    Sent("ann", 2),
    Fetched("bob", [1, 2], 0, 2),
    Seen("bob", 2),
    Fetched("ann", [2], 1, 2),
    Joined("cy", 2, 2),
    Sent("ann", 3),
    Fetched("cy", [3], 0, 3),
    Left("cy", 3, 4),
    Sent("ann", 4),
    Fetched("bob", [3, 4], 0, 4),
    Seen("bob", 4),
    Fetched("ann", [3, 4], 0, 4),
]


def test_good_history_passes() -> None:
    """Messages may be told as missed, and come twice."""
    assert all_violations([*GOOD, Fetched("bob", [4], 0, 4)]) == []


@pytest.mark.parametrize(
    ("bad", "found"),
    [
        ([event for event in GOOD if event != Fetched("bob", [1, 2], 0, 2)], "bob never got 1"),
        ([*GOOD, Sent("bob", 4)], "message 4 was sent twice"),
        ([*GOOD, Sent("bob", 6), Fetched("ann", [6], 0, 6), Fetched("bob", [6], 0, 6)], "message 5 never was"),
        ([*GOOD, Fetched("cy", [2, 3], 0, 3)], "cy got 2, and was no member"),
        ([*GOOD, Fetched("cy", [5], 0, 5)], "cy got 5, and was no member"),
        ([*GOOD, Fetched("bob", [2, 1], 0, 2)], "bob got [2, 1] of a batch up to 2"),
        ([*GOOD, Fetched("bob", [1], 0, 2)], "bob got [1] of a batch up to 2"),
        ([*GOOD, Seen("bob", 3)], "the position of bob fell from 4 to 3"),
        ([event for event in GOOD if event != Fetched("ann", [2], 1, 2)], "ann never got 1"),
    ],
)
def test_bad_history_is_found(bad: list[Event], found: str) -> None:
    """Each thing that must not happen is named."""
    assert found in all_violations(bad)
