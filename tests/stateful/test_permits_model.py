"""Semaphores and reader-writer locks against a small model: whatever happens, they agree on who holds and waits."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
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

from inconcert import Coordinator, Lease, LeaseLost, NotConnected, NotHeld, WriteLease
from inconcert._core import permits as permits_module
from inconcert._core.permits import Permits
from tests.support.eventually import eventually
from tests.support.raw import new_client
from tests.support.servers import RealServer
from tests.support.world import examples

CLIENTS = 3
READERS = 100_000  # the limit by which readers are judged

clients = st.integers(0, CLIENTS - 1)
limits = st.sampled_from([1, 1, 2, 3])
sides = st.sampled_from([1, READERS, READERS])
picks = st.integers(0, 1000)

MakeClient = Callable[[], Any]


@dataclass(eq=False)
class Visitor:
    """One who acquires."""

    client: int
    limit: int
    task: "asyncio.Task[Lease]"
    permits: int = 1
    lease: Lease | None = None


@dataclass
class Model:
    """What the server should think: leases that have not lapsed, and those in line, the first first."""

    held: list[Visitor] = field(default_factory=list[Visitor])
    line: list[Visitor] = field(default_factory=list[Visitor])
    granted: list[Visitor] = field(default_factory=list[Visitor])  # by the last step, in order

    def has_room(self, limit: int, permits: int) -> bool:
        """Whether one of this limit may come in, with so many permits."""
        return sum(visitor.permits for visitor in self.held) + permits <= limit

    def serve(self) -> None:
        """Let in who may come in."""
        while self.line and self.has_room(self.line[0].limit, self.line[0].permits):
            self.grant(self.line.pop(0))

    def grant(self, visitor: Visitor) -> None:
        self.held.append(visitor)
        self.granted.append(visitor)


class PermitsModel(RuleBasedStateMachine):
    """Three processes and one semaphore, whose callers do not agree on its limit."""

    make_model = Model

    def __init__(self, make_client: MakeClient) -> None:
        super().__init__()
        self.make_client = make_client
        self.runner = asyncio.Runner()
        self.model = self.make_model()
        self.last_token = 0
        self.lapsed: list[Visitor] = []
        self.unnoticed: list[Visitor] = []  # lapsed, and the server has not looked since
        self.loss_is_noted = False  # and nobody has been told

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
        for concert in self.concerts:
            await concert.__aexit__(None, None, None)
        await asyncio.gather(*(visitor.task for visitor in self.model.line), return_exceptions=True)
        keys = self.permits(0)._keys
        assert await self.redis.zcount(keys.holders, 2, "inf") == 0, "closing all has left holders"
        assert await self.redis.exists(keys.waiters) == 0, "closing all has left waiters"
        await self.redis.delete(*keys)
        await self.redis.aclose()

    def permits(self, client: int, limit: int = 1, permits: int = 1) -> Permits[Lease]:
        """Where one of this limit acquires so many."""
        return self.concerts[client].semaphore("door", limit=limit, permits=permits, ttl=300)

    # Rules.

    @rule(client=clients, limit=limits, pick=picks)
    def acquire(self, client: int, limit: int, pick: int) -> None:
        """Wait for some permits."""
        self.runner.run(self._acquire(client, limit, 1 + pick % limit))

    async def _acquire(self, client: int, limit: int, permits: int = 1) -> None:
        task = asyncio.create_task(self.permits(client, limit, permits).acquire())
        visitor = Visitor(client, limit, task, permits)
        self.model.line.append(visitor)
        self.model.serve()
        await self.settle()

    @rule(client=clients, limit=limits, pick=picks)
    def try_acquire(self, client: int, limit: int, pick: int) -> None:
        """Do not wait for them."""
        self.runner.run(self._try(client, limit, 1 + pick % limit))

    async def _try(self, client: int, limit: int, permits: int = 1) -> None:
        lease = await self.permits(client, limit, permits).try_acquire()
        self.model.serve()
        if self.model.line or not self.model.has_room(limit, permits):
            assert lease is None
        else:
            assert lease is not None
            visitor = Visitor(client, limit, asyncio.create_task(_given(lease)), permits)
            self.model.grant(visitor)
        await self.settle()

    @precondition(lambda self: self.model.held)
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        """Give one back."""
        self.runner.run(self._release(pick))

    async def _release(self, pick: int) -> None:
        visitor = self.model.held.pop(pick % len(self.model.held))
        assert visitor.lease is not None
        await visitor.lease.release()
        with pytest.raises(NotHeld):
            await visitor.lease.release()
        self.model.serve()
        await self.settle()

    @precondition(lambda self: self.model.line)
    @rule(pick=picks)
    def give_up(self, pick: int) -> None:
        """Leave the line."""
        self.runner.run(self._give_up(pick))

    async def _give_up(self, pick: int) -> None:
        visitor = self.model.line.pop(pick % len(self.model.line))
        visitor.task.cancel()
        await asyncio.wait([visitor.task])
        assert visitor.task.cancelled()
        self.model.serve()
        await self.settle()

    @precondition(lambda self: self.model.line)
    @rule(pick=picks, is_first=st.booleans())
    def give_up_while_another_releases(self, pick: int, is_first: bool) -> None:
        """Leave the line at the moment at which one may be handed a permit."""
        self.runner.run(self._give_up_while_another_releases(pick, is_first))

    async def _give_up_while_another_releases(self, pick: int, is_first: bool) -> None:
        visitor = self.model.line.pop(pick % len(self.model.line))
        if self.model.held:
            holder = self.model.held.pop(pick % len(self.model.held))
            assert holder.lease is not None
            if is_first:
                visitor.task.cancel()
                await holder.lease.release()
            else:
                release = asyncio.create_task(holder.lease.release())
                await asyncio.sleep(0)
                visitor.task.cancel()
                await release
        visitor.task.cancel()
        [outcome] = await asyncio.gather(visitor.task, return_exceptions=True)
        if isinstance(outcome, Lease):  # too late to leave
            if outcome.previous_lost:
                self.told_of_loss()
            await outcome.release()
        self.model.serve()
        await self.settle(may_hold_back=True)

    @precondition(lambda self: self.model.held)
    @rule(pick=picks)
    def renew(self, pick: int) -> None:
        """Keep one."""
        visitor = self.model.held[pick % len(self.model.held)]
        assert visitor.lease is not None
        self.runner.run(visitor.lease.renew())

    @precondition(lambda self: self.model.held)
    @rule(pick=picks)
    def lapse(self, pick: int) -> None:
        """The server's clock passes the end of a lease; nobody is told."""
        visitor = self.model.held.pop(pick % len(self.model.held))
        self.lapsed.append(visitor)
        self.unnoticed.append(visitor)
        self.runner.run(self._lapse(visitor))

    async def _lapse(self, visitor: Visitor) -> None:
        assert visitor.lease is not None
        key, holder = self.permits(0)._keys.holders, visitor.lease.holder.encode()
        lapsed = {each: 1 for each in await self.redis.zrange(key, 0, -1) if each.partition(b"+")[0] == holder}
        assert len(lapsed) == visitor.permits
        await self.redis.zadd(key, lapsed, xx=True)

    @precondition(lambda self: self.model.held)
    @rule()
    def lapse_all(self) -> None:
        """All leases end, and their key with them."""
        self.lapsed += self.model.held
        self.model.held.clear()
        self.unnoticed.clear()
        self.runner.run(self._run("DEL", self.permits(0)._keys.holders))

    @precondition(lambda self: self.lapsed)
    @rule(pick=picks, releases=st.booleans())
    def learn_of_a_lapse(self, pick: int, releases: bool) -> None:
        """By renewing or by releasing what is not held any more: nobody else's permit is touched by it."""
        self.runner.run(self._learn(pick, releases))

    async def _learn(self, pick: int, releases: bool) -> None:
        visitor = self.lapsed.pop(pick % len(self.lapsed))
        assert visitor.lease is not None
        if releases:
            try:
                await visitor.lease.release()
            except LeaseLost:
                assert visitor not in self.unnoticed
            else:  # nobody else has noticed the lapse
                self.unnoticed.remove(visitor)
            self.model.serve()
        else:
            with pytest.raises(LeaseLost):
                await visitor.lease.renew()
            if any(waiter.client == visitor.client for waiter in self.model.line):
                self.model.serve()  # its process looks again for all of its own in line
        await self.settle()

    @rule()
    def recheck(self) -> None:
        """Someone in line looks again."""
        self.runner.run(self._look())

    async def _look(self) -> None:
        for concert in self.concerts:
            concert._ref.session.inbox.missed()
        if self.model.line:
            self.model.serve()
        await self.settle()

    @rule()
    def forget_scripts(self) -> None:
        """The server's script cache is emptied."""
        self.runner.run(self._run("SCRIPT FLUSH"))

    @rule()
    def forget_token(self) -> None:
        """The counter of the fencing tokens lapses."""
        self.runner.run(self._run("DEL", self.permits(0)._keys.fence))
        self.loss_is_noted = False

    @rule(client=clients)
    def reopen(self, client: int) -> None:
        """A process ends, and begins anew."""
        self.runner.run(self._reopen(client))

    async def _reopen(self, client: int) -> None:
        await self.concerts[client].__aexit__(None, None, None)
        gone = [visitor for visitor in self.model.line if visitor.client == client]
        for visitor in gone:
            assert isinstance((await asyncio.gather(visitor.task, return_exceptions=True))[0], NotConnected)
        ended = [visitor for visitor in [*self.model.held, *self.lapsed] if visitor.client == client]
        assert all(visitor.lease is not None and visitor.lease.remaining == 0 for visitor in ended)
        released = [visitor for visitor in ended if visitor in [*self.model.held, *self.unnoticed]]
        self.loss_is_noted = self.loss_is_noted or bool(released)
        self.unnoticed = [visitor for visitor in self.unnoticed if visitor not in released]
        for visitors in (self.model.line, self.model.held, self.lapsed):
            visitors[:] = [visitor for visitor in visitors if visitor.client != client]
        if gone or ended:
            self.model.serve()
        await self.concerts[client].__aenter__()
        await self.settle()

    async def _run(self, *command: object) -> Any:
        return await self.redis.execute_command(*command)

    # What must hold.

    def told_of_loss(self) -> None:
        """A holder knows that one before it has lost its lease: nobody else is told."""
        assert self.loss_is_noted or self.unnoticed, "there was no loss"
        self.loss_is_noted = False
        self.unnoticed.clear()

    async def settle(self, *, may_hold_back: bool = False) -> None:
        """Wait until all who should have been let in are in, and look whether only they are.

        Args:
            may_hold_back: Whether one that left may have been granted first, and so told of a loss.
        """
        granted, self.model.granted = self.model.granted, []
        for visitor in granted:
            visitor.lease = await asyncio.wait_for(visitor.task, 10)
        told = [visitor.lease.previous_lost for visitor in granted if visitor.lease is not None].count(True)
        assert told <= 1, "two were told of the same loss"
        if told:
            self.told_of_loss()
        elif granted and not may_hold_back:
            assert not self.loss_is_noted, "nobody was told of a loss"
            assert not self.unnoticed, "nobody was told of a loss"
        # Those whom one step lets in together hold together, so the order among them does not matter.
        tokens = [visitor.lease.fencing_token for visitor in granted if visitor.lease is not None]
        assert all(token > self.last_token for token in tokens), "fencing tokens fell"
        assert len(set(tokens)) == len(tokens), "two have the same fencing token"
        self.last_token = max([self.last_token, *tokens])
        await eventually(self._line_is_as_long)
        await eventually(self._all_is_answered)
        assert not any(visitor.task.done() for visitor in self.model.line), "someone overtook"
        await self._learn_what_is_noticed()

    async def _line_is_as_long(self) -> bool:
        return await self.permits(0).waiters() == len(self.model.line)

    def _all_is_answered(self) -> bool:
        """Also what nobody waits for, such as another look: it would see what the next step does."""
        channels: list[Any] = [concert._ref.session.channel for concert in self.concerts]
        return not any(channel._bytes for channel in channels)

    async def _learn_what_is_noticed(self) -> None:
        """The server has dropped those whose lapse it knows of, even if nobody was let in since who could be told."""
        places = await self._run("ZRANGE", self.permits(0)._keys.holders, 0, -1)
        unnoticed = [visitor for visitor in self.unnoticed if visitor.lease and visitor.lease.holder.encode() in places]
        self.loss_is_noted = self.loss_is_noted or len(unnoticed) < len(self.unnoticed)
        self.unnoticed = unnoticed

    @invariant()
    def holders_are_those_of_the_model(self) -> None:
        """By name."""
        holders = self.runner.run(self.holders())
        expected = {visitor.lease.holder for visitor in self.model.held if visitor.lease is not None}
        assert set(holders) == expected
        count = self.runner.run(self._run("ZCOUNT", self.permits(0)._keys.holders, 2, "inf"))
        assert count == sum(visitor.permits for visitor in self.model.held)

    async def holders(self) -> list[str]:
        """Ask who holds."""
        return await self.permits(0).holders()

    @invariant()
    def line_is_that_of_the_model(self) -> None:
        """In its order."""
        places: list[bytes] = self.runner.run(self._run("ZRANGE", self.permits(0)._keys.waiters, 0, -1))
        limits = [int(place.split(b":")[0]) for place in places]
        sessions = [place.split(b" ")[1].split(b".")[0].decode() for place in places]
        assert limits == [visitor.limit for visitor in self.model.line]
        ids = [concert._ref.opened.id if concert._ref.opened else "" for concert in self.concerts]
        assert sessions == [ids[visitor.client] for visitor in self.model.line]


class RWModel(Model):
    """Readers together, or one writer: who asks with a limit of 1."""

    def has_room(self, limit: int, permits: int) -> bool:
        return super().has_room(limit, permits) and not any(visitor.limit == 1 for visitor in self.held)


class RWLockModel(PermitsModel):
    """Three processes and one reader-writer lock."""

    make_model = RWModel

    def permits(self, client: int, limit: int = 1, permits: int = 1) -> Permits[Lease]:
        del permits
        rwlock = self.concerts[client].rwlock("door", ttl=300)
        return rwlock.write() if limit == 1 else rwlock.read()

    @rule(client=clients, limit=sides, pick=picks)
    def acquire(self, client: int, limit: int, pick: int) -> None:
        """Wait to write or to read: each has one permit."""
        del pick
        self.runner.run(self._acquire(client, limit))

    @rule(client=clients, limit=sides, pick=picks)
    def try_acquire(self, client: int, limit: int, pick: int) -> None:
        """Do not wait for it."""
        del pick
        self.runner.run(self._try(client, limit))

    @precondition(lambda self: any(visitor.limit == 1 for visitor in self.model.held))
    @rule()
    def downgrade(self) -> None:
        """The writer goes on as a reader."""
        self.runner.run(self._downgrade())

    async def _downgrade(self) -> None:
        [writer] = self.model.held
        assert isinstance(writer.lease, WriteLease)
        await writer.lease.downgrade()
        writer.limit = READERS
        self.model.serve()
        await self.settle()

    async def holders(self) -> list[str]:
        return await self.permits(0, 1).holders() + await self.permits(0, READERS).holders()


async def _given(lease: Lease) -> Lease:
    return lease


@pytest.fixture(params=["fakeredis", "real"])
def make_client(request: pytest.FixtureRequest, server: RealServer) -> Iterator[MakeClient]:
    """Makes a client of fakeredis, anew each time, or of the common server."""
    if request.param == "real":
        yield lambda: new_client(server.url)
    else:
        yield lambda: FakeRedis(server=FakeServer())


@pytest.mark.parametrize("machine", [PermitsModel, RWLockModel])
def test_permits_agree_with_the_model(
    request: pytest.FixtureRequest,
    make_client: MakeClient,
    machine: type[PermitsModel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At most so many hold, tokens only grow, first come is first served, and nobody is lost."""
    monkeypatch.setattr(permits_module, "_HANDOFF", 300.0)  # so that no timer looks before the model does
    new_machine: Any = lambda: machine(make_client)  # noqa: E731 - its hint asks for a class, and calls it only
    run_state_machine_as_test(
        new_machine,
        settings=settings(
            max_examples=examples(15 if "real" in request.node.name else 40),
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
