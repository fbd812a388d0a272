"""Chat against a small model: in whatever order things happen, they agree on who is in, and what is kept and new."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from fakeredis import FakeServer
from fakeredis.aioredis import FakeRedis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from inconcert import Batch, ChatNotFound, Coordinator, InconcertError, NotAMember
from tests.support.eventually import eventually
from tests.support.raw import new_client
from tests.support.servers import RealServer
from tests.support.world import examples

USERS = ["ann", "b}o{b", "cy\n*"]

users = st.sampled_from(USERS)
picks = st.integers(0, 1000)

MakeClient = Callable[[], Any]


@dataclass(eq=False)
class Room:
    """A chat: its members' positions, the sender of each message, how many of the first are gone, and the caps."""

    max_messages: int
    history: int
    members: dict[str, int]
    senders: list[str]
    dropped: int = 0

    @property
    def last(self) -> int:
        return len(self.senders)

    def trim(self) -> None:
        """Drop what all have read, but for the history."""
        self.dropped = max(self.dropped, min([*self.members.values(), self.last - self.history]))

    def unread(self, user: str) -> int:
        """How many messages of others are new to a user; what was dropped is no longer anyone's."""
        ids = range(self.members[user] + 1, self.last + 1)
        return sum(id_ <= self.dropped or self.senders[id_ - 1] != user for id_ in ids)


class ChatModel(RuleBasedStateMachine):
    """Two processes, three users, and a few chats."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.rooms: dict[str, Room] = {}

    def make_client(self) -> Any:
        """Make a client of the server to test on."""
        raise NotImplementedError

    @initialize()
    def open(self) -> None:
        self.runner.run(self._open())

    async def _open(self) -> None:
        self.redis = self.make_client()
        self.concerts = [Coordinator.from_client(self.redis, namespace="chat-model") for _ in range(2)]
        for concert in self.concerts:
            await concert.__aenter__()
        self.chat = self.concerts[0].chat

    def teardown(self) -> None:
        self.runner.run(self._tear_down())
        self.runner.close()

    async def _tear_down(self) -> None:
        for chat_id, room in self.rooms.items():
            for user in room.members:
                await self.chat.leave(chat_id, user)
        left = [
            key
            async for key in self.redis.scan_iter("*chat-model:chats*")
            if not key.endswith((b":recent", b":older"))  # what remembers requests lapses by itself
        ]
        for concert in self.concerts:
            await concert.__aexit__(None, None, None)
        await self.redis.aclose()
        assert left == [], "the last leave has left something"

    def pick(self, number: int) -> tuple[str, Room]:
        return list(self.rooms.items())[number % len(self.rooms)]

    async def expect(self, attempt: Any, error: type[InconcertError] | None) -> Any:
        """Await it; it raises exactly this."""
        if error is None:
            return await attempt
        with pytest.raises(error):
            await attempt
        return None

    # Rules.

    @precondition(lambda self: len(self.rooms) < 4)
    @rule(sender=users, others=st.sets(users), max_messages=st.integers(2, 6), history=st.integers(0, 2))
    def create(self, sender: str, others: set[str], max_messages: int, history: int) -> None:
        """Make a chat."""
        made = self.chat.create(sender, others, 1, max_messages=max_messages, history=history)
        chat_id = self.runner.run(made)
        self.rooms[chat_id] = Room(max_messages, history, dict.fromkeys({sender, *others}, 0), [sender])

    @precondition(lambda self: self.rooms)
    @rule(pick=picks, user=users, elsewhere=st.booleans(), times=st.integers(1, 4))
    def send(self, pick: int, user: str, elsewhere: bool, times: int) -> None:
        """Say something, from either process."""
        chat_id, room = self.pick(pick)
        error = None if user in room.members else NotAMember
        for _ in range(times):
            sending = self.concerts[elsewhere].chat.send(chat_id, user, room.last + 1)
            message = self.runner.run(self.expect(sending, error))
            if message is not None:
                room.senders.append(user)
                assert message.id == room.last
                room.dropped = max(room.dropped, room.last - room.max_messages)

    @precondition(lambda self: self.rooms)
    @rule(user=users, limit=st.none() | st.integers(1, 3), ack=st.booleans())
    def fetch(self, user: str, limit: int | None, ack: bool) -> None:
        """Read what is new in all chats."""
        expected: dict[str, tuple[list[int], int]] = {}
        for chat_id, room in self.rooms.items():
            if user in room.members and room.members[user] < room.last:
                position = room.members[user]
                first = max(position, room.dropped) + 1
                end = min(room.last, room.last if limit is None else first + limit - 1)
                expected[chat_id] = list(range(first, end + 1)), first - position - 1
        batches: list[Batch] = self.runner.run(self.chat.fetch(user, limit=limit, ack=ack))
        got = {batch.chat_id: ([message.id for message in batch.messages], batch.missed) for batch in batches}
        assert got == expected
        for batch in batches:
            room = self.rooms[batch.chat_id]
            assert [message.sender for message in batch.messages] == [
                room.senders[message.id - 1] for message in batch.messages
            ]
            if ack:
                room.members[user] = batch.last_id
                room.trim()
                self.runner.run(self._has_acknowledged(user, batch))

    async def _has_acknowledged(self, user: str, batch: Batch) -> None:
        """Nobody waits for that, and a server that forgot the script gets it a second time."""

        async def is_there() -> bool:
            return (await self.chat.members(batch.chat_id))[user] == batch.last_id

        await eventually(is_there, timeout=2)

    @precondition(lambda self: self.rooms)
    @rule(pick=picks, user=users, id_=st.integers(1, 12))
    def acknowledge(self, pick: int, user: str, id_: int) -> None:
        """Move a position; never back."""
        chat_id, room = self.pick(pick)
        error = None if user in room.members else NotAMember
        self.runner.run(self.expect(self.chat.ack(user, chat_id, id_), error))
        if error is None and min(id_, room.last) > room.members[user]:
            room.members[user] = min(id_, room.last)
            room.trim()

    @precondition(lambda self: self.rooms)
    @rule(pick=picks, user=users, by=st.none() | users)
    def come(self, pick: int, user: str, by: str | None) -> None:
        """Join, or be added."""
        chat_id, room = self.pick(pick)
        coming = self.chat.join(chat_id, user) if by is None else self.chat.add(chat_id, by, user)
        error = None if by is None or by in room.members else NotAMember
        self.runner.run(self.expect(coming, error))
        if error is None:
            room.members.setdefault(user, room.last)

    @precondition(lambda self: self.rooms)
    @rule(pick=picks, user=users, by=st.none() | users)
    def go(self, pick: int, user: str, by: str | None) -> None:
        """Leave, or be removed; the last one takes the chat along."""
        chat_id, room = self.pick(pick)
        going = self.chat.leave(chat_id, user) if by is None else self.chat.remove(chat_id, by, user)
        error = None if user in room.members and (by is None or by in room.members) else NotAMember
        self.runner.run(self.expect(going, error))
        if error is not None:
            return
        del room.members[user]
        if room.members:
            room.trim()
        else:
            del self.rooms[chat_id]
            self.runner.run(self.expect(self.chat.send(chat_id, user, "x"), ChatNotFound))

    @precondition(lambda self: self.rooms)
    @rule(pick=picks, user=users, before=st.none() | st.integers(1, 12), limit=st.integers(1, 5))
    def look_back(self, pick: int, user: str, before: int | None, limit: int) -> None:
        """Read what there is, and move nothing."""
        chat_id, room = self.pick(pick)
        error = None if user in room.members else NotAMember
        found = self.runner.run(self.expect(self.chat.history(chat_id, user, before=before, limit=limit), error))
        if found is not None:
            end = min(room.last + 1, before or room.last + 1)
            first = max(room.dropped + 1, end - limit)
            assert [message.id for message in found] == list(range(first, end))

    @rule()
    def forget_scripts(self) -> None:
        """The server's script cache is emptied."""
        self.runner.run(self.redis.execute_command("SCRIPT FLUSH"))

    # What must hold.

    @invariant()
    def positions_and_counts_are_those_of_the_model(self) -> None:
        """Also those of users who are nowhere."""
        self.runner.run(self._compare())

    async def _compare(self) -> None:
        for chat_id, room in self.rooms.items():
            assert await self.chat.members(chat_id) == room.members
        for user in USERS:
            counts = {id_: room.unread(user) for id_, room in self.rooms.items() if user in room.members}
            assert await self.chat.unread(user) == {chat_id: count for chat_id, count in counts.items() if count}


@pytest.fixture(params=["fakeredis", "real"])
def make_client(request: pytest.FixtureRequest, server: RealServer) -> Iterator[MakeClient]:
    """Makes a client of fakeredis, anew each time, or of the common server."""
    if request.param == "real":
        yield lambda: new_client(server.url)
    else:
        yield lambda: FakeRedis(server=FakeServer())


def test_chat_agrees_with_the_model(request: pytest.FixtureRequest, make_client: MakeClient) -> None:
    """Every member gets what is for them, and nobody else; what is dropped is told; nothing is left in the end."""

    class ChatModelHere(ChatModel):
        def make_client(self) -> Any:
            return make_client()

    run_state_machine_as_test(
        ChatModelHere,
        settings=settings(
            max_examples=examples(12),
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
