"""What a quorum lock promises, on three and five real servers, and on three fakes: one at a time, by majority."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from math import inf, nan
from typing import Any

import anyio
import pytest
import redis.asyncio
from fakeredis.aioredis import FakeRedis

from inconcert import (
    AcquireTimeout,
    InvalidName,
    LeaseLost,
    NotHeld,
    OutcomeUnknown,
    QuorumLease,
    QuorumLock,
    QuorumNotReached,
)
from inconcert._core.renewal import local_deadline
from inconcert._redis.find.peers import Peer
from inconcert._redis.protocol.commands import Argument
from inconcert._redis.protocol.replies import Reply
from inconcert._rules.durations import Seconds
from inconcert.quorum import lock as quorum_module
from inconcert.quorum import rounds
from inconcert.quorum.rounds import QuorumKeys
from tests.support.cancelling import MOMENTS, Means, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.raw import as_admin, new_client
from tests.support.scripts import command_of
from tests.support.servers import RealServer

OTHER = b"another"


@dataclass(frozen=True, slots=True)
class Bench:
    """Independent servers with nothing on them."""

    clients: list[Any]
    namespace: str
    key: str

    @property
    def majority(self) -> int:
        """How many servers decide."""
        return len(self.clients) // 2 + 1

    def quorum(
        self, *, ttl: Seconds = 10.0, timeout: Seconds | None = None, server_timeout: Seconds | None = None
    ) -> QuorumLock:
        """Make the lock, as users do."""
        return QuorumLock(
            self.clients, "door", ttl=ttl, timeout=timeout, namespace=self.namespace, server_timeout=server_timeout
        )

    async def holders(self) -> list[bytes | None]:
        """Who has it at each server."""
        return [await client.get(self.key) for client in self.clients]

    async def put(self, holder: bytes | None, servers: int) -> None:
        """Let someone have it at so many servers; None is nobody."""
        for client in self.clients[:servers]:
            if holder is None:
                await client.delete(self.key)
            else:
                await client.set(self.key, holder, px=60_000)

    async def is_free(self) -> bool:
        """Whether nobody has it anywhere."""
        return await self.holders() == [None] * len(self.clients)


@pytest.fixture(scope="module")
def servers() -> Iterator[list[RealServer]]:
    """Five real servers that know nothing of each other."""
    with ExitStack() as stack:
        yield [stack.enter_context(RealServer()) for _ in range(5)]


@pytest.fixture(params=["3 servers", "5 servers", "3 fakes"])
async def bench(request: pytest.FixtureRequest, servers: list[RealServer], namespace: str) -> AsyncIterator[Bench]:
    """A lock that nobody has; after the test nothing may stay forever, and no connection may be in use."""
    clients: list[Any]
    if request.param == "3 fakes":
        clients = [FakeRedis() for _ in range(3)]
    else:
        clients = [new_client(server.url) for server in servers[: int(request.param[0])]]
    yield Bench(clients, namespace, f"{{{namespace}:quorum:door}}:holder")
    await eventually(lambda: not rounds._under_way)  # a straggler may be about to take a connection
    for client in clients:
        for key in await as_admin(client).keys(f"*{namespace}*"):
            assert await as_admin(client).pttl(key) != -1
        await eventually(partial(is_idle, client))
        await client.aclose()


def is_idle(client: Any) -> bool:
    """Whether every connection of a client was given back."""
    return not client.connection_pool._in_use_connections


# One at a time.


async def test_majority_has_it_and_nobody_else_gets_it(bench: Bench) -> None:
    """Every server grants it to the same holder; who asks next is refused by all."""
    lease = await bench.quorum().acquire()
    await eventually(lambda: _all_are(bench, lease.holder.encode()))

    assert await bench.quorum().try_acquire() is None

    await lease.release()
    await eventually(bench.is_free)


async def _all_are(bench: Bench, holder: bytes) -> bool:
    return set(await bench.holders()) == {holder}


async def test_one_at_a_time_among_many(bench: Bench) -> None:
    """Through one shared object and through many, nobody meets another inside."""
    shared = bench.quorum()
    inside = 0

    async def visit(quorum: QuorumLock) -> None:
        nonlocal inside
        for _ in range(3):
            async with quorum:
                inside += 1
                assert inside == 1
                await asyncio.sleep(0.001)
                assert inside == 1
                inside -= 1

    async with asyncio.timeout(20):
        await asyncio.gather(visit(shared), visit(shared), visit(bench.quorum()), visit(bench.quorum()))


async def test_waiter_gets_it_when_it_is_released(bench: Bench) -> None:
    """It asks again by itself."""
    lease = await bench.quorum().acquire()
    waiter = asyncio.create_task(bench.quorum().acquire())
    await asyncio.sleep(0)
    assert not waiter.done()
    await lease.release()

    assert (await waiter).holder != lease.holder

    await waiter.result().release()


async def test_every_acquisition_is_another_holder(bench: Bench) -> None:
    """So a late release of one cannot undo another."""
    quorum = bench.quorum()
    seen: set[str] = set()
    for _ in range(3):
        async with quorum as lease:
            seen.add(lease.holder)
    assert len(seen) == 3


async def test_minority_of_another_does_not_keep_one_out(bench: Bench) -> None:
    """More than half is enough."""
    await bench.put(OTHER, bench.majority - 1)

    async with bench.quorum() as lease:
        assert (await bench.holders()).count(lease.holder.encode()) >= bench.majority

    await eventually(lambda: _has_only(bench, OTHER, bench.majority - 1))


async def test_who_has_a_minority_only_gives_it_back(bench: Bench) -> None:
    """Those whom the servers split between them do not block each other for a ttl."""
    await bench.put(OTHER, bench.majority)

    assert await bench.quorum().try_acquire() is None
    await eventually(lambda: _has_only(bench, OTHER, bench.majority))

    with pytest.raises(AcquireTimeout):
        await bench.quorum().acquire(timeout=0.1)
    await eventually(lambda: _has_only(bench, OTHER, bench.majority))


async def _has_only(bench: Bench, holder: bytes, servers: int) -> bool:
    holders = await bench.holders()
    return holders.count(holder) == servers and holders.count(None) == len(holders) - servers


async def test_names_and_namespaces_are_apart(bench: Bench) -> None:
    """Another name, or the same in another namespace, is another lock."""
    async with (
        bench.quorum(),
        QuorumLock(bench.clients, "window", namespace=bench.namespace, timeout=0),
        QuorumLock(bench.clients, "door", namespace=f"{bench.namespace}-b", timeout=0),
    ):
        pass


# Waiting.


async def test_timeout_ends_the_wait(bench: Bench) -> None:
    """`timeout` of the object or of the call, 0 included; the error says what and how long."""
    async with bench.quorum():
        for acquire in (
            bench.quorum(timeout=0.05).acquire,
            partial(bench.quorum().acquire, timeout=timedelta(milliseconds=50)),
            partial(bench.quorum(timeout=60).acquire, timeout=0),
        ):
            with pytest.raises(AcquireTimeout, match="quorum lock 'door' was not granted") as raised:
                await acquire()
            assert (raised.value.kind, raised.value.name) == ("quorum lock", "door")


async def test_lapsed_holder_lets_the_next_in(bench: Bench) -> None:
    """Nobody tells the waiter."""
    await bench.put(OTHER, len(bench.clients))
    waiter = asyncio.create_task(bench.quorum().acquire())
    for client in bench.clients[: bench.majority]:
        await client.pexpire(bench.key, 1)
    async with asyncio.timeout(5):
        lease = await waiter
    await lease.release()


# Validity.


async def test_validity_is_the_ttl_less_what_asking_took_and_drift(bench: Bench) -> None:
    """It counts from before the first server was asked, and leaves 1 % and 2 ms for the clocks."""
    before = time.monotonic()
    lease = await bench.quorum(ttl=10.0).acquire()

    assert before - 0.002 <= lease._state.deadline - 9.9 <= time.monotonic() - 0.002
    assert 0 < lease.remaining <= 9.9 - 0.002

    await lease.release()
    assert lease.remaining == 0


async def test_grant_that_came_too_late_is_given_back_and_asked_for_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A majority granted it, but the answers took so long that nothing is left of it."""
    lives = iter([0.0, 10.0])

    def of_that_life(asked_at: float, life: float) -> float:
        del life
        return local_deadline(asked_at, next(lives))

    monkeypatch.setattr(quorum_module, "local_deadline", of_that_life)

    lease = await bench.quorum().acquire()

    await eventually(lambda: _all_are(bench, lease.holder.encode()))
    await lease.release()
    assert next(lives, None) is None


# Renewal.


async def pttls(bench: Bench) -> list[int]:
    """How long the lease has left at each server."""
    return [await client.pttl(bench.key) for client in bench.clients]


async def test_renewal_makes_the_lease_last_a_full_ttl_everywhere(bench: Bench) -> None:
    """By hand, on all servers."""
    async with bench.quorum() as lease:
        await eventually(lambda: _all_are(bench, lease.holder.encode()))
        for client in bench.clients:
            await client.pexpire(bench.key, 2_000)
        first = lease._state.deadline
        await lease.renew()
        assert lease._state.deadline > first

        async def all_are_long() -> bool:
            return min(await pttls(bench)) > 9_000

        await eventually(all_are_long)


async def test_background_renews(bench: Bench) -> None:
    """A lease outlasts its ttl as long as someone holds it."""
    async with bench.quorum(ttl=0.5, server_timeout=0.24) as lease:
        first = lease._state.deadline
        await eventually(lambda: lease._state.deadline > first + 0.5)
        assert not lease.is_lost


async def test_renewal_counts_those_who_had_it_all_the_time(bench: Bench) -> None:
    """A majority that had forgotten it has it again, but only the next renewal is a success."""
    lease = await bench.quorum().acquire()
    await eventually(lambda: _all_are(bench, lease.holder.encode()))
    await bench.put(None, bench.majority)
    deadline = lease._state.deadline

    with pytest.raises(QuorumNotReached, match="did not have the lease"):
        await lease.renew()
    assert lease._state.deadline == deadline
    assert not lease.is_lost

    await eventually(lambda: _all_are(bench, lease.holder.encode()))
    await lease.renew()
    assert lease._state.deadline > deadline
    await lease.release()


async def test_renewal_passes_over_a_minority_that_forgot(bench: Bench) -> None:
    """They have it again afterwards."""
    async with bench.quorum() as lease:
        await eventually(lambda: _all_are(bench, lease.holder.encode()))
        await bench.put(None, bench.majority - 1)
        await lease.renew()
        await eventually(lambda: _all_are(bench, lease.holder.encode()))


async def test_lease_that_nobody_keeps_lapses(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """It is not renewed for ever."""
    lease: QuorumLease | None = await bench.quorum(ttl=0.5, server_timeout=0.24).acquire()
    assert lease is not None
    del lease
    gc.collect()
    await eventually(lambda: "dropped without a release" in caplog.text)
    await eventually(bench.is_free)


# Loss.


async def test_loss_cancels_the_body(bench: Bench) -> None:
    """A majority has granted it to another."""
    stopped: list[bool] = []

    async def body() -> None:
        async with bench.quorum(ttl=0.6, server_timeout=0.29) as lease:
            await eventually(lambda: _all_are(bench, lease.holder.encode()))
            await bench.put(OTHER, bench.majority)
            try:
                await asyncio.sleep(10)
            finally:
                stopped.append(lease.is_lost)

    with pytest.raises(LeaseLost, match="quorum lock 'door'"):
        await body()
    assert stopped == [True]
    await eventually(lambda: _has_only(bench, OTHER, bench.majority))


async def test_renewal_by_hand_tells_of_a_loss(bench: Bench) -> None:
    """At once, and `lost()` returns."""
    lease = await bench.quorum().acquire()
    await eventually(lambda: _all_are(bench, lease.holder.encode()))
    await bench.put(OTHER, bench.majority)

    with pytest.raises(LeaseLost):
        await lease.renew()

    await lease.lost()
    assert lease.remaining == 0
    with pytest.raises(LeaseLost):
        await lease.release()
    await eventually(lambda: _has_only(bench, OTHER, bench.majority))


async def test_release_tells_of_a_loss(bench: Bench) -> None:
    """A majority says that it was not mine any more; what another has is left alone."""
    lease = await bench.quorum().acquire()
    await eventually(lambda: _all_are(bench, lease.holder.encode()))
    await bench.put(OTHER, bench.majority)

    with pytest.raises(LeaseLost):
        await lease.release()

    await eventually(lambda: _has_only(bench, OTHER, bench.majority))


async def test_error_of_the_body_wins_over_a_loss(bench: Bench) -> None:
    """The loss is a note on it."""

    async def body() -> None:
        async with bench.quorum() as lease:
            await eventually(lambda: _all_are(bench, lease.holder.encode()))
            await bench.put(OTHER, bench.majority)
            raise KeyError("mine")

    with pytest.raises(KeyError) as raised:
        await body()
    assert "was lost" in raised.value.__notes__[0]


async def test_released_lease_cannot_be_used_again(bench: Bench) -> None:
    """Neither renewed nor released."""
    lease = await bench.quorum().acquire()
    await lease.release()
    for verb in (lease.renew, lease.release):
        with pytest.raises(NotHeld):
            await verb()
    assert repr(lease) == "<QuorumLease on quorum lock 'door', released>"


async def test_release_does_not_overtake_a_renewal(bench: Bench) -> None:
    """A renewal that is under way would take the lock anew, for a holder who is gone."""
    for _ in range(20):
        lease = await bench.quorum().acquire()
        lease._state.start_renewal()
        await lease.release()
        await eventually(bench.is_free)


# Looking.


async def test_holders_are_those_of_a_majority(bench: Bench) -> None:
    """One, or nobody; a minority is nobody, and so is a split."""
    quorum = bench.quorum()
    assert (await quorum.locked(), await quorum.holders()) == (False, [])
    async with quorum as lease:
        assert (await quorum.locked(), await quorum.holders()) == (True, [lease.holder])
    await eventually(bench.is_free)
    await bench.put(OTHER, bench.majority - 1)
    assert (await quorum.locked(), await quorum.holders()) == (False, [])
    await bench.put(OTHER, bench.majority)
    assert (await quorum.locked(), await quorum.holders()) == (True, [OTHER.decode()])
    await bench.put(b"third", 1)
    assert (await quorum.locked(), await quorum.holders()) == (False, [])


# Cancellation.


async def visit(quorum: QuorumLock) -> None:
    """By `async with`."""
    async with quorum:
        await asyncio.sleep(0)


async def by_hand(quorum: QuorumLock) -> None:
    """By every verb."""
    lease = await quorum.acquire(timeout=5)
    try:
        await lease.renew()
    finally:
        await lease.release()


@pytest.mark.parametrize("how", [(moment, means) for moment in MOMENTS for means in ("task", "scope")], ids=" by ".join)
@pytest.mark.parametrize("story", [visit, by_hand])
async def test_cancellation_at_any_await_leaves_nothing(
    bench: Bench, story: Callable[[QuorumLock], Coroutine[Any, Any, None]], how: tuple[Moment, Means]
) -> None:
    """No key on any server, and the next gets it."""
    number = 1
    while await cancel_at(number, how[0], story(bench.quorum()), means=how[1]):
        await eventually(bench.is_free)
        number += 1
    assert number > 2
    await visit(bench.quorum())


async def test_cancelled_waiter_leaves_nothing(bench: Bench) -> None:
    """Whether it was asking just then, or sleeping."""
    async with bench.quorum() as lease:
        for pause in (0, 0.001, 0.01, 0.03):
            with anyio.move_on_after(pause):
                await bench.quorum().acquire()
        await eventually(lambda: _all_are(bench, lease.holder.encode()))
    await eventually(bench.is_free)


# Bad input.


async def test_number_of_servers_is_odd_and_three_or_more(servers: list[RealServer]) -> None:
    """Else a majority is no better than all."""
    for number in (0, 1, 2, 4):
        clients = [redis.asyncio.Redis(port=server.port) for server in servers[:number]]
        with pytest.raises(ValueError, match="odd number of clients, 3 or more"):
            QuorumLock(clients, "door")


async def test_server_given_twice_is_refused(servers: list[RealServer]) -> None:
    """The same client, or another one to the same place; the error names it and no secret."""
    a, b, c = (redis.asyncio.Redis(port=server.port, password="secret") for server in servers[:3])
    again = redis.asyncio.Redis(port=servers[0].port, db=5, password="secret")
    for clients in ([a, b, a], [a, b, again]):
        with pytest.raises(ValueError, match=f"two clients lead to localhost:{servers[0].port}") as raised:
            QuorumLock(clients, "door")
        assert "secret" not in str(raised.value)
    QuorumLock([a, b, c], "door")


@pytest.mark.parametrize("ttl", [0, -1, 0.04, nan, inf, "10"])
async def test_bad_ttl_is_refused(bench: Bench, ttl: Any) -> None:
    """Before anything is sent."""
    with pytest.raises(ValueError, match="ttl is"):
        bench.quorum(ttl=ttl)


@pytest.mark.parametrize("server_timeout", [0, -1, 5.0, 60, nan, "1"])
async def test_bad_server_timeout_is_refused(bench: Bench, server_timeout: Any) -> None:
    """A lease must outlast the wait for a server."""
    with pytest.raises(ValueError, match=r"server_timeout is|delay is"):
        bench.quorum(ttl=10, server_timeout=server_timeout)


async def test_bad_names_and_clients_are_refused(bench: Bench) -> None:
    """With an error that says what is wrong."""
    with pytest.raises(InvalidName):
        QuorumLock(bench.clients, "")
    with pytest.raises(InvalidName):
        QuorumLock(bench.clients, "door", namespace="a:b")
    with pytest.raises(ValueError, match="timeout is -1"):
        bench.quorum(timeout=-1)
    strangers: Any = ["redis://localhost"] * 3
    with pytest.raises(TypeError, match=r"redis\.asyncio\.Redis"):
        QuorumLock(strangers, "door")


def test_error_is_one_of_an_unknown_outcome() -> None:
    """With the facts as attributes."""
    error = QuorumNotReached("door", {"a:1": "refused", "b:2": "no answer within 0.5 s"}, 3)
    assert isinstance(error, OutcomeUnknown)
    assert (error.name, error.reasons["a:1"], error.servers) == ("door", "refused", 3)
    assert "2 of 3 servers failed" in str(error)
    assert "b:2 (no answer within 0.5 s)" in str(error)


# A script whose reply was lost is sent again.


Run = Callable[..., Awaitable[Reply]]


async def take_free(run: Run, client: Any, key: str) -> None:
    """1, then 2, with a full lease."""
    assert await run("quorum/take", me="me", ttl_ms=10_000) == 1
    await client.pexpire(key, 100)
    assert await run("quorum/take", me="me", ttl_ms=10_000) == 2
    assert await client.get(key) == b"me"
    assert await client.pttl(key) > 9_000


async def take_held(run: Run, client: Any, key: str) -> None:
    """0 and 0; the holder's lease is not changed."""
    await client.set(key, OTHER, px=1_000)
    for _ in range(2):
        assert await run("quorum/take", me="me", ttl_ms=10_000) == 0
    assert await client.get(key) == OTHER
    assert 0 < await client.pttl(key) <= 1_000


async def release(run: Run, client: Any, key: str) -> None:
    """1, then 0."""
    await run("quorum/take", me="me", ttl_ms=10_000)
    assert [await run("quorum/release", me="me") for _ in range(2)] == [1, 0]
    assert await client.get(key) is None


async def release_of_another(run: Run, client: Any, key: str) -> None:
    """0 and 0; it stays."""
    await client.set(key, OTHER, px=1_000)
    assert [await run("quorum/release", me="me") for _ in range(2)] == [0, 0]
    assert await client.get(key) == OTHER


async def look(run: Run, client: Any, key: str) -> None:
    """The same; nothing is changed."""
    assert [await run("quorum/inspect") for _ in range(2)] == [b"", b""]
    await client.set(key, OTHER, px=1_000)
    assert [await run("quorum/inspect") for _ in range(2)] == [OTHER, OTHER]


TWICE: dict[str, list[Callable[[Run, Any, str], Awaitable[None]]]] = {
    "quorum/take": [take_free, take_held],
    "quorum/release": [release, release_of_another],
    "quorum/inspect": [look],
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.__name__, marks=pytest.mark.twice(name))
        for name, cases in TWICE.items()
        for case in cases
    ],
)
async def test_second_run_answers_as_the_header_says(
    bench: Bench, case: Callable[[Run, Any, str], Awaitable[None]]
) -> None:
    """See each case."""
    client = bench.clients[0]
    server = Peer(client, timeout=5.0)

    async def run(name: str, **named: Argument) -> Reply:
        answer = await server.run(command_of(name, QuorumKeys(bench.key), **named))
        return answer.reply

    await case(run, client, bench.key)
