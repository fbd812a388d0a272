"""A mailbox against a small model: in whatever order things happen, they agree on who has which message."""

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
    rule,
    run_state_machine_as_test,
)

from inconcert import Coordinator, Mailbox, MailboxMessage
from tests.support.eventually import eventually
from tests.support.raw import new_client
from tests.support.servers import RealServer
from tests.support.world import examples

CLIENTS = 2
MOST = 6

clients = st.integers(0, CLIENTS - 1)
picks = st.integers(0, 1000)
limits = st.integers(1, 4)

MakeClient = Callable[[], Any]


@dataclass(slots=True)
class Letter:
    """One message."""

    number: int
    lapses: int = 0


@dataclass(slots=True)
class Claim:
    """What one fetch has in hand."""

    letters: list[Letter]
    missed: int
    messages: list[MailboxMessage]


@dataclass(eq=False, slots=True)
class Waiter:
    """One who waits."""

    limit: int
    task: "asyncio.Task[list[MailboxMessage]]"


class MailboxModel(RuleBasedStateMachine):
    """Two processes and one mailbox.

    Each rule may be drawn at any time, and does nothing when it cannot be: what is drawn must not depend on how far a
    cancelled fetch had come.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.number = 0
        self.unread: list[Letter] = []
        self.dropped = 0
        self.claims: list[Claim] = []
        self.line: list[Waiter] = []

    def make_client(self) -> Any:
        """Make a client of the server to test on."""
        raise NotImplementedError

    @initialize()
    def open(self) -> None:
        self.runner.run(self._open())

    async def _open(self) -> None:
        self.redis = self.make_client()
        self.concerts = [Coordinator.from_client(self.redis, namespace="model") for _ in range(CLIENTS)]
        for concert in self.concerts:
            await concert.__aenter__()

    def teardown(self) -> None:
        self.runner.run(self._tear_down())
        self.runner.close()

    async def _tear_down(self) -> None:
        for waiter in self.line:
            waiter.task.cancel()
            await asyncio.wait([waiter.task])
        for claim in self.claims:
            await self.mailbox(0).ack(claim.messages)
        rest = [message for _ in range(MOST) for message in await self.mailbox(0).fetch()]
        await self.mailbox(0).unread()
        keys = self.mailbox(0)._keys
        assert len(rest) == len(self.unread)
        left: int = await self.redis.exists(keys.messages, keys.unread, keys.claims, keys.claimed)
        assert left == 0, "all is acknowledged, and something is left"
        for concert in self.concerts:
            await concert.__aexit__(None, None, None)
        await self.redis.delete(*keys)
        await self.redis.aclose()

    def mailbox(self, client: int) -> Mailbox:
        return self.concerts[client].mailbox("jack451", max_messages=MOST)

    # Rules.

    @rule(client=clients, count=st.integers(1, MOST + 2))
    def send(self, client: int, count: int) -> None:
        """Some messages in one step."""
        self.runner.run(self._send(client, count))

    async def _send(self, client: int, count: int) -> None:
        numbers = range(self.number + 1, self.number + count + 1)
        self.number += count
        self.unread += [Letter(number) for number in numbers]
        excess = max(0, len(self.unread) - MOST)
        del self.unread[:excess]
        self.dropped += excess
        await self.mailbox(client).send_many(numbers)
        await self.serve_line()

    @rule(client=clients, limit=limits)
    def fetch(self, client: int, limit: int) -> None:
        """What is there."""
        if not self.line:
            self.runner.run(self._fetch(client, limit))

    async def _fetch(self, client: int, limit: int) -> None:
        self.claim(limit, await self.mailbox(client).fetch(limit=limit, ack=False))

    @rule(client=clients, limit=limits)
    def wait(self, client: int, limit: int) -> None:
        """Stand in line."""
        if not self.unread:
            self.runner.run(self._wait(client, limit))

    async def _wait(self, client: int, limit: int) -> None:
        task = asyncio.create_task(self.mailbox(client).fetch(limit=limit, timeout=None, ack=False))
        self.line.append(Waiter(limit, task))
        await self.settle()

    @rule(pick=picks)
    def give_up(self, pick: int) -> None:
        """Leave the line."""
        if self.line:
            self.runner.run(self._give_up(pick))

    async def _give_up(self, pick: int) -> None:
        waiter = self.line.pop(pick % len(self.line))
        waiter.task.cancel()
        await asyncio.wait([waiter.task])
        await self.settle()

    @rule(client=clients, pick=picks, count=st.integers(1, 4))
    def ack(self, client: int, pick: int, count: int) -> None:
        """The first so many of what one has in hand."""
        if self.claims:
            self.runner.run(self._ack(client, pick, count))

    async def _ack(self, client: int, pick: int, count: int) -> None:
        claim = self.claims[pick % len(self.claims)]
        await self.mailbox(client).ack(claim.messages[:count])
        del claim.letters[:count], claim.messages[:count]
        claim.missed = 0
        if not claim.letters:
            self.claims.remove(claim)

    @rule(pick=picks)
    def lapse(self, pick: int) -> None:
        """One has kept its messages for too long."""
        if self.claims and not self.line:
            self.runner.run(self._lapse(pick))

    async def _lapse(self, pick: int) -> None:
        claim = self.claims.pop(pick % len(self.claims))
        await self.redis.zadd(self.mailbox(0)._keys.claims, {claim.messages[0].claim: 1})
        self.dropped += claim.missed
        self.unread += [Letter(letter.number, letter.lapses + 1) for letter in claim.letters]
        self.unread.sort(key=lambda letter: letter.number)
        assert await self.mailbox(0).unread() == len(self.unread)

    @rule(client=clients, turns=st.integers(0, 6))
    def fetch_and_be_cancelled(self, client: int, turns: int) -> None:
        """Then it has the messages, or they are back."""
        if not self.line:
            self.runner.run(self._fetch_and_be_cancelled(client, turns))

    async def _fetch_and_be_cancelled(self, client: int, turns: int) -> None:
        task = asyncio.create_task(self.mailbox(client).fetch(limit=2, ack=False))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await self.mailbox(client).unread()  # behind what the cancelled one has sent
        if not task.cancelled():
            self.claim(2, task.result())

    # What must hold.

    def claim(self, limit: int, messages: list[MailboxMessage]) -> None:
        """Someone has fetched: those that it should have."""
        letters, self.unread = self.unread[:limit], self.unread[limit:]
        missed = [self.dropped if index == 0 else 0 for index in range(len(letters))]
        expected = [(letter.number, letter.lapses + 1, gap) for letter, gap in zip(letters, missed, strict=True)]
        assert [(message.body, message.attempt, message.missed) for message in messages] == expected
        if letters:
            self.claims.append(Claim(letters, self.dropped, messages))
            self.dropped = 0

    async def serve_line(self) -> None:
        """The longest waiting have what there is, and nobody else has anything."""
        while self.line and self.unread:
            waiter = self.line.pop(0)
            self.claim(waiter.limit, await asyncio.wait_for(waiter.task, 5))
        await self.settle()

    async def settle(self) -> None:
        """Wait until the server's line is as long as the model's."""
        await eventually(self._line_is_as_long, timeout=2)
        assert not any(waiter.task.done() for waiter in self.line), "someone got what was not for them"

    async def _line_is_as_long(self) -> bool:
        length: int = await self.redis.zcard(self.mailbox(0)._keys.waiters)
        return length == len(self.line)

    @invariant()
    def count_is_that_of_the_model(self) -> None:
        """Of those that nobody has in hand."""
        assert self.runner.run(self.mailbox(0).unread()) == len(self.unread)


@pytest.fixture(params=["fakeredis", "real"])
def make_client(request: pytest.FixtureRequest, server: RealServer) -> Iterator[MakeClient]:
    """Makes a client of fakeredis, anew each time, or of the common server."""
    if request.param == "real":
        yield lambda: new_client(server.url)
    else:
        yield lambda: FakeRedis(server=FakeServer())


def test_mailbox_agrees_with_the_model(request: pytest.FixtureRequest, make_client: MakeClient) -> None:
    """Each message is in one place, in its order, and what was dropped is told."""

    class MailboxModelHere(MailboxModel):
        def make_client(self) -> Any:
            return make_client()

    run_state_machine_as_test(
        MailboxModelHere,
        settings=settings(
            max_examples=examples(12 if "real" in request.node.name else 20),
            stateful_step_count=50,
            deadline=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
