"""Signals against a small model: in whatever order things happen, they agree on who is in line and who heard what."""

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

from inconcert import Coordinator, Gap, NotConnected, Signal, Subscription
from inconcert._rules.payloads import JSON
from tests.support.eventually import eventually
from tests.support.raw import new_client
from tests.support.servers import RealServer
from tests.support.world import examples

CLIENTS = 3
BUFFER = 3

clients = st.integers(0, CLIENTS - 1)
picks = st.integers(0, 1000)

MakeClient = Callable[[], Any]


@dataclass(eq=False)
class Waiter:
    """One who waits."""

    client: int
    task: "asyncio.Task[JSON]"


class SignalsModel(RuleBasedStateMachine):
    """Three processes and one signal; the first process has a slow subscriber."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.line: list[Waiter] = []
        self.said: list[int] = []  # broadcasts that the subscriber has not read
        self.missed = 0
        self.number = 0  # of the last payload

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
        self.subscription: Subscription[JSON] = await self.signal(0).subscribe(buffer=BUFFER).__aenter__()
        self.witness: Subscription[JSON] = await self.signal(0).subscribe().__aenter__()

    def teardown(self) -> None:
        self.runner.run(self._tear_down())
        self.runner.close()

    async def _tear_down(self) -> None:
        for concert in self.concerts:
            await concert.__aexit__(None, None, None)
        await asyncio.gather(*(waiter.task for waiter in self.line), return_exceptions=True)
        keys = self.signal(0)._keys
        assert await self.redis.exists(keys.waiters, keys.handed, keys.earlier) == 0, "closing all has left something"
        await self.redis.delete(*keys)
        await self.redis.aclose()

    def signal(self, client: int) -> Signal:
        return self.concerts[client].signal("deploy")

    # Rules.

    @rule(client=clients)
    def wait(self, client: int) -> None:
        """Stand in line."""
        self.runner.run(self._wait(client))

    async def _wait(self, client: int) -> None:
        self.line.append(Waiter(client, asyncio.create_task(self.signal(client).wait())))
        await self.settle()

    @rule(client=clients)
    def notify(self, client: int) -> None:
        """Wake the first."""
        self.runner.run(self._notify(client))

    async def _notify(self, client: int) -> None:
        self.number += 1
        assert await self.signal(client).notify(self.number) == bool(self.line)
        if self.line:
            assert await asyncio.wait_for(self.line.pop(0).task, 5) == self.number
        await self.settle()

    @rule(client=clients)
    def broadcast(self, client: int) -> None:
        """Wake all, and tell the subscriber."""
        self.runner.run(self._broadcast(client))

    async def _broadcast(self, client: int) -> None:
        self.number += 1
        reached = await self.signal(client).broadcast(self.number)
        assert reached >= len({0, *(waiter.client for waiter in self.line)})
        for waiter in self.line:
            assert await asyncio.wait_for(waiter.task, 5) == self.number
        self.line.clear()
        assert await asyncio.wait_for(self.witness.next(), 5) == self.number
        self.said.append(self.number)
        if len(self.said) > BUFFER:
            self.said.pop(0)
            self.missed += 1
        await self.settle()

    @rule()
    def read(self) -> None:
        """The subscriber reads all that it has."""
        self.runner.run(self._read())

    async def _read(self) -> None:
        expected: list[JSON | Gap] = [Gap(self.missed)] if self.missed else []
        expected += self.said
        assert [await self.subscription.next(timeout=1) for _ in expected] == expected
        with pytest.raises(TimeoutError):
            await self.subscription.next(timeout=0)
        self.said.clear()
        self.missed = 0

    @precondition(lambda self: self.line)
    @rule(pick=picks)
    def give_up(self, pick: int) -> None:
        """Leave the line."""
        self.runner.run(self._give_up(pick))

    async def _give_up(self, pick: int) -> None:
        waiter = self.line.pop(pick % len(self.line))
        waiter.task.cancel()
        await asyncio.wait([waiter.task])
        assert waiter.task.cancelled()
        await self.settle()

    @precondition(lambda self: self.line)
    @rule(client=clients, turns=st.integers(0, 6))
    def give_up_while_being_notified(self, client: int, turns: int) -> None:
        """The first in line goes at the moment at which it is woken: the payload is its own, or the next one's."""
        self.runner.run(self._give_up_while_being_notified(client, turns))

    async def _give_up_while_being_notified(self, client: int, turns: int) -> None:
        self.number += 1
        first = self.line.pop(0)
        notify = asyncio.create_task(self.signal(client).notify(self.number))
        for _ in range(turns):
            await asyncio.sleep(0)
        first.task.cancel()
        reached = await notify
        [outcome] = await asyncio.gather(first.task, return_exceptions=True)
        if isinstance(outcome, BaseException) and self.line:
            assert reached
            assert await asyncio.wait_for(self.line.pop(0).task, 5) == self.number
        elif not isinstance(outcome, BaseException):
            assert reached
            assert outcome == self.number
        await self.settle()

    @rule()
    def recheck(self) -> None:
        """Everyone looks again, as after a reconnect."""
        self.runner.run(self._look())

    async def _look(self) -> None:
        for concert in self.concerts:
            concert._ref.session.inbox.missed()
        await self.settle()

    @rule()
    def forget_scripts(self) -> None:
        """The server's script cache is emptied."""
        self.runner.run(self._run("SCRIPT FLUSH"))

    @rule()
    def forget_line(self) -> None:
        """The server loses its keys, and all look: they stand in their old order."""
        self.runner.run(self._forget_line())

    async def _forget_line(self) -> None:
        await self.redis.delete(*self.signal(0)._keys)
        await self._look()

    @rule(client=st.integers(1, CLIENTS - 1))
    def reopen(self, client: int) -> None:
        """A process ends, and begins anew."""
        self.runner.run(self._reopen(client))

    async def _reopen(self, client: int) -> None:
        await self.concerts[client].__aexit__(None, None, None)
        for waiter in self.line:
            if waiter.client == client:
                assert isinstance((await asyncio.gather(waiter.task, return_exceptions=True))[0], NotConnected)
        self.line = [waiter for waiter in self.line if waiter.client != client]
        await self.concerts[client].__aenter__()
        await self.settle()

    async def _run(self, *command: object) -> Any:
        return await self.redis.execute_command(*command)

    # What must hold.

    async def settle(self) -> None:
        """Wait until the server's line is as long as the model's; nobody in it has heard anything."""
        await eventually(self._line_is_as_long, timeout=2)
        assert not any(waiter.task.done() for waiter in self.line), "someone heard what was not for them"

    async def _line_is_as_long(self) -> bool:
        keys = self.signal(0)._keys
        length: int = await self.redis.zcard(keys.waiters)
        return length == len(self.line) and await self.redis.exists(keys.handed, keys.earlier) == 0

    @invariant()
    def line_is_that_of_the_model(self) -> None:
        """In its order."""
        places: list[bytes] = self.runner.run(self._run("ZRANGE", self.signal(0)._keys.waiters, 0, -1))
        sessions = [place.decode().rpartition(".")[0] for place in places]
        ids = [concert._ref.opened.id if concert._ref.opened else "" for concert in self.concerts]
        assert sessions == [ids[waiter.client] for waiter in self.line]


@pytest.fixture(params=["fakeredis", "real"])
def make_client(request: pytest.FixtureRequest, server: RealServer) -> Iterator[MakeClient]:
    """Makes a client of fakeredis, anew each time, or of the common server."""
    if request.param == "real":
        yield lambda: new_client(server.url)
    else:
        yield lambda: FakeRedis(server=FakeServer())


def test_signals_agree_with_the_model(request: pytest.FixtureRequest, make_client: MakeClient) -> None:
    """Each notification wakes exactly the first, a broadcast all, and nobody is lost."""

    class SignalsModelHere(SignalsModel):
        def make_client(self) -> Any:
            return make_client()

    run_state_machine_as_test(
        SignalsModelHere,
        settings=settings(
            max_examples=examples(15 if "real" in request.node.name else 30),
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
