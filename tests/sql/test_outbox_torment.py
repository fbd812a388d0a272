"""An outbox while its processes and its servers are killed at random.

Orders are committed together with their jobs, and each third is rolled back. Meanwhile producers, relays and workers
are killed, the server loses all of its data, and the database restarts. The history says then that each order that the
database has was shipped exactly once, that no job of a transaction that was rolled back ever began, and that no job
began twice while the server had kept its data.
"""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine

from inconcert import Coordinator, current_job
from inconcert.sql import Outbox
from tests.support.databases import RealPostgres
from tests.support.eventually import eventually
from tests.support.processes import Child, spawn, tell
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease

HERE = "tests.sql.test_outbox_torment"
NAMESPACE = "shop"

_LEASE = 1.0  # seconds of silence after which a worker is dead
_UNTIL_BEGUN = 5.0  # seconds at most from the moment at which a worker has a job to its first line


def opened(url: str, database: str) -> tuple[Coordinator, AsyncEngine, Outbox, Any]:
    """What each process has."""
    concert = with_lease(Coordinator(url, namespace=NAMESPACE), _LEASE)
    engine = create_async_engine(database)
    outbox, sessions = Outbox(concert, engine), async_sessionmaker(engine)

    @concert.task(name="ship", queue="shipping", max_attempts=1000, max_crashes=1000, backoff=lambda _attempt: 0.1)
    async def ship(number: int) -> None:
        tell("begins", number=number, attempt=current_job().attempt, at=time.monotonic())
        async with sessions.begin() as session:
            if await outbox.claim(session):
                await session.execute(text("insert into shipped values (:id)"), {"id": number})

    return concert, engine, outbox, ship


async def produce(url: str, database: str, first: int) -> None:
    """Commit orders from this number on, and roll back each third, until this is killed."""
    _, engine, outbox, ship = opened(url, database)
    number = first
    while True:
        number += 1
        try:
            async with engine.connect() as connection, connection.begin() as transaction:
                await connection.execute(text("insert into orders values (:id)"), {"id": number})
                await outbox.enqueue(connection, ship.call(number))
                tell("ends")  # the transaction, one way or the other
                if not number % 3:
                    await transaction.rollback()
        except (SQLAlchemyError, OSError):  # the database is away, or busy
            await asyncio.sleep(0.05)
        except Exception as error:
            if "asyncpg" not in type(error).__module__:
                raise
            await asyncio.sleep(0.05)


async def work(url: str, database: str) -> None:
    """Hand over, and ship, until this is killed."""
    concert, _, outbox, _ = opened(url, database)
    async with concert, outbox.relay():
        await concert.run_worker("shipping", concurrency=10)


async def relay(url: str, database: str) -> None:
    """Hand over only."""
    concert, _, outbox, _ = opened(url, database)
    async with concert, outbox.relay():
        await asyncio.sleep(10**6)


class Begun(NamedTuple):
    """The first line of an attempt."""

    number: int
    attempt: int
    at: float


class Loss(NamedTuple):
    """The server has lost its data at some instant in between, by the clock that all processes have."""

    after: float
    before: float


class History:
    """What has happened."""

    def __init__(self) -> None:
        self.producers: list[Child] = []
        self.others: list[Child] = []
        self.losses: list[Loss] = []

    def spawn(self, role: str, *arguments: object) -> Child:
        """Start a process, whose messages are kept."""
        child = spawn(f"{HERE}:{role}", *arguments)
        (self.producers if role == "produce" else self.others).append(child)
        return child

    def transactions(self) -> int:
        """How many were about to end."""
        return sum(len(child.messages) for child in self.producers)

    def has(self, transactions: int) -> bool:
        """Whether so many were about to end."""
        return self.transactions() >= transactions

    def attempts(self) -> Iterator[Begun]:
        """Each that has begun, of each process in turn."""
        for child in self.others:
            for message in child.messages:
                yield Begun(message["number"], message["attempt"], message["at"])


def begun_twice(attempts: Iterable[Begun], losses: Sequence[Loss]) -> list[tuple[Begun, Begun]]:
    """Attempts of one number of one job, while the server had kept its data."""
    by_attempt: defaultdict[tuple[int, int], list[Begun]] = defaultdict(list)
    for begun in attempts:
        by_attempt[begun.number, begun.attempt].append(begun)
    return [
        (first, second)
        for same in by_attempt.values()
        for first, second in pairwise(sorted(same, key=lambda begun: begun.at))
        if not any(loss.after < second.at and loss.before > first.at - _UNTIL_BEGUN for loss in losses)
    ]


class Shop:
    """What the test sees of the database."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def numbers(self, table: str) -> list[int]:
        """Of orders or of shipped ones, with repetitions."""
        async with self._engine.connect() as connection:
            return sorted((await connection.execute(text(f"select id from {table}"))).scalars())

    async def is_quiet(self) -> bool:
        """Whether the outbox is empty; False also while the database is away."""
        try:
            async with self._engine.connect() as connection:
                return (await connection.execute(text("select 1 from inconcert_outbox limit 1"))).first() is None
        except (SQLAlchemyError, OSError):
            return False


@asynccontextmanager
async def shop_at(url: str, database: str) -> AsyncGenerator[Shop]:
    """With its tables."""
    engine = create_async_engine(database, pool_pre_ping=True)  # the database may have been killed
    async with engine.begin() as connection:
        if database.startswith("sqlite"):
            await connection.execute(text("pragma journal_mode = wal"))
        await connection.execute(text("create table orders (id integer primary key)"))
        await connection.execute(text("create table shipped (id integer)"))
    await Outbox(Coordinator(url), engine).create_table()
    yield Shop(engine)
    await engine.dispose()


class Torment:
    """Processes, and what is done to them.

    Args:
        server: Loses its data, and is killed.
        database: Its URL.
        postgres: What is killed of it; None if nothing can be.
        roles: Of the processes that run at any time.
    """

    def __init__(
        self, server: RealServer, database: str, postgres: RealPostgres | None, *, roles: Sequence[str]
    ) -> None:
        self.history = History()
        self._server = server
        self._database = database
        self._postgres = postgres
        self._firsts = iter(range(0, 10**9, 10**6))
        self._roles = roles
        self._living = [self._start(role) for role in roles]

    def _start(self, role: str) -> Child:
        first = [next(self._firsts)] if role == "produce" else []
        return self.history.spawn(role, self._server.url, self._database, *first)

    async def act(self, deed: str, at: int) -> None:
        """Do one of these things, perhaps to the process at this place."""
        began = time.monotonic()
        if deed == "empty":
            self._server.command("FLUSHALL")
        elif deed == "kill server":
            await asyncio.to_thread(self._server.restart)
        elif deed == "kill database":
            assert self._postgres is not None
            self._postgres.kill()
            await asyncio.to_thread(self._postgres.start)
        else:
            self._end(at)
            self._living[at] = self._start(self._roles[at])
        if deed in {"empty", "kill server"}:
            self.history.losses.append(Loss(began, time.monotonic()))

    def _end(self, at: int) -> None:
        child = self._living[at]
        assert child.is_running(), f"{self._roles[at]} has ended by itself:\n{child.errors()}"
        child.close()

    def end(self, role: str | None = None) -> None:
        """Kill all processes of a role, or all."""
        for at in range(len(self._roles)):
            if role in {None, self._roles[at]} and self._living[at].is_running():
                self._end(at)


async def torment(
    server: RealServer,
    database: str,
    deeds: dict[str, int],
    *,
    transactions: int,
    draw: random.Random,
    postgres: RealPostgres | None = None,
    roles: Sequence[str] = ("produce", "work", "relay"),
    patience: float = 60.0,
) -> History:
    """Do so many of each of these deeds while so many transactions end; check what has become of the orders."""
    order = [deed for deed, times in deeds.items() for _ in range(times)]
    draw.shuffle(order)
    goals = sorted(draw.sample(range(transactions), len(order)))
    async with shop_at(server.url, database) as shop:
        work = Torment(server, database, postgres, roles=roles)
        history = work.history
        try:
            for deed, goal in zip(order, goals, strict=True):
                await eventually(partial(history.has, goal), timeout=patience)
                await work.act(deed, draw.randrange(len(roles)))
            await eventually(partial(history.has, transactions), timeout=patience)
            work.end("produce")
            await eventually(shop.is_quiet, timeout=patience)
        finally:
            work.end()
        orders, shipped = await shop.numbers("orders"), await shop.numbers("shipped")
    assert orders
    assert shipped == orders
    assert {begun.number for begun in history.attempts()} == set(orders)
    assert not [number for number in orders if number % 3 == 0]
    assert begun_twice(history.attempts(), history.losses) == []
    return history


def test_history_tells_of_a_job_that_begins_twice() -> None:
    """Unless the server lost its data in between, or just before the first time; or it is another attempt."""
    first, again = Begun(1, 1, 10.0), Begun(1, 1, 30.0)
    assert begun_twice([again, first], [Loss(1.0, 2.0), Loss(31.0, 32.0)]) == [(first, again)]
    assert begun_twice([first, again], [Loss(11.0, 12.0)]) == []
    assert begun_twice([first, again], [Loss(8.0, 9.0)]) == []
    assert begun_twice([first, Begun(1, 2, 30.0)], []) == []


@pytest.mark.slow
async def test_short_torment_loses_and_doubles_nothing(own_server: RealServer, database_url: str) -> None:
    """Of each process, and of the server twice."""
    deeds = {"empty": 1, "kill server": 1, "kill": 3}
    history = await torment(own_server, database_url, deeds, transactions=100, draw=random.Random(1))
    assert len(history.losses) == 2


@pytest.mark.torture
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("kind", "transactions"), [("postgres", 100_000), ("sqlite", 10_000)])
async def test_long_torment_loses_and_doubles_nothing(
    own_server: RealServer, request: pytest.FixtureRequest, tmp_path: Any, kind: str, transactions: int
) -> None:
    """Of everything, and of the database twice."""
    postgres: RealPostgres | None = request.getfixturevalue("own_postgres") if kind == "postgres" else None
    history = await torment(
        own_server,
        postgres.url("asyncpg") if postgres else f"sqlite+aiosqlite:///{tmp_path}/shop.db",
        {"empty": 20, "kill server": 10, "kill": 120, "kill database": 2 if postgres else 0},
        transactions=transactions,
        draw=random.Random(request.config.getoption("--seed")),
        postgres=postgres,
        roles=("produce", "produce", "work", "work", "relay"),
        patience=1200.0,
    )
    jobs, attempts = len({begun.number for begun in history.attempts()}), len([*history.attempts()])
    killed = len(history.producers + history.others)
    print(f"{history.transactions()} transactions, {jobs} jobs, {attempts} attempts, {killed} killed processes")  # noqa: T201 - the figures, with -s
