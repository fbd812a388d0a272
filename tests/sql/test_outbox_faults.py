"""An outbox while its processes are killed, the server is emptied, and the database restarts.

Each order is committed together with its job; some are rolled back. In the end each order that the database has was
shipped exactly once, and nothing else was.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine

from inconcert import Coordinator
from inconcert.sql import Outbox
from tests.support.background import in_background
from tests.support.databases import RealPostgres
from tests.support.eventually import eventually
from tests.support.processes import Child, spawn
from tests.support.raw import client_of
from tests.support.short_lease import with_lease

_LEASE = 1.0  # seconds of silence after which a worker is dead
_PATIENCE = 60.0  # seconds until everything that was committed has had its effect
HERE = "tests.sql.test_outbox_faults"


def opened(url: str, namespace: str, database: str) -> tuple[Coordinator, AsyncEngine, Outbox, Any]:
    """What each process has."""
    concert = with_lease(Coordinator(url, namespace=namespace), _LEASE)
    engine = create_async_engine(database)
    outbox, sessions = Outbox(concert, engine), async_sessionmaker(engine)

    @concert.task(name="ship", queue="shipping", max_attempts=50, max_crashes=50, backoff=lambda _attempt: 0.1)
    async def ship(number: int) -> None:
        async with sessions.begin() as session:
            if await outbox.claim(session):
                await session.execute(text("insert into shipped values (:id)"), {"id": number})

    return concert, engine, outbox, ship


async def produce(url: str, namespace: str, database: str, first: int) -> None:
    """Commit orders from this number on, and roll back each third, until this is killed."""
    _, engine, outbox, ship = opened(url, namespace, database)
    number = first
    while True:
        number += 1
        try:
            async with engine.connect() as connection, connection.begin() as transaction:
                await connection.execute(text("insert into orders values (:id)"), {"id": number})
                await outbox.enqueue(connection, ship.call(number))
                if not number % 3:
                    await transaction.rollback()
        except (SQLAlchemyError, OSError):  # the database is away, or busy
            await asyncio.sleep(0.05)
        except Exception as error:
            if "asyncpg" not in type(error).__module__:
                raise
            await asyncio.sleep(0.05)


async def relay_and_work(url: str, namespace: str, database: str) -> None:
    """Hand over, and ship, until this is killed."""
    concert, _, outbox, _ = opened(url, namespace, database)
    async with concert, outbox.relay():
        await concert.run_worker("shipping", concurrency=10)


async def relay(url: str, namespace: str, database: str) -> None:
    """Hand over only."""
    concert, _, outbox, _ = opened(url, namespace, database)
    async with concert, outbox.relay():
        await asyncio.sleep(3600)


class Shop:
    """What the test sees of the database."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def numbers(self, table: str) -> list[int]:
        """Of orders or of shipped ones, with repetitions."""
        async with self._engine.connect() as connection:
            return sorted((await connection.execute(text(f"select id from {table}"))).scalars())

    async def count(self, table: str) -> int:
        """How many rows a table has."""
        async with self._engine.connect() as connection:
            return int((await connection.execute(text(f"select count(*) from {table}"))).scalar_one())

    async def is_quiet(self) -> bool:
        """Whether the outbox is empty; False also while the database is away."""
        try:
            return await self.count("inconcert_outbox") == 0
        except (SQLAlchemyError, OSError):
            return False


@asynccontextmanager
async def shop_at(concert: Coordinator, database: str) -> AsyncGenerator[Shop]:
    """With its tables."""
    engine = create_async_engine(database, pool_pre_ping=True)  # the database may have been killed
    async with engine.begin() as connection:
        if database.startswith("sqlite"):
            await connection.execute(text("pragma journal_mode = wal"))
        await connection.execute(text("create table orders (id integer primary key)"))
        await connection.execute(text("create table shipped (id integer)"))
    await Outbox(concert, engine).create_table()
    yield Shop(engine)
    await engine.dispose()


async def torment(
    arguments: Sequence[str], concert: Coordinator, shop: Shop, *, kills: int, flushes: int, restart: Any = None
) -> list[int]:
    """Kill one process after the other; then let one ship what is left. Returns the orders."""
    draw = random.Random(kills)
    firsts = iter(range(0, 10**9, 10**6))

    def start(role: str) -> Child:
        return spawn(f"{HERE}:{role}", *arguments, *([next(firsts)] if role == "produce" else []))

    roles = ["produce", "relay_and_work", "relay"]
    living = [start(role) for role in roles]
    emptied = set(draw.sample(range(kills), flushes))
    restarts = {kills // 3, 2 * kills // 3} if restart else set[int]()
    try:
        for number in range(kills):
            orders = await shop.count("orders")
            await eventually(partial(has_more, shop, orders + draw.randrange(1, 30)), timeout=_PATIENCE)
            if number in emptied:
                await client_of(concert).flushall()
            if number in restarts:
                await asyncio.to_thread(restart)
            at = draw.randrange(len(roles))
            living[at].close()
            living[at] = start(roles[at])
        living[0].close()
        await eventually(shop.is_quiet, timeout=_PATIENCE)
    finally:
        for child in living:
            child.close()
    return await shop.numbers("orders")


async def has_more(shop: Shop, orders: int) -> bool:
    """Whether there are so many orders."""
    try:
        return await shop.count("orders") >= orders
    except (SQLAlchemyError, OSError):
        return False


@pytest.mark.slow
async def test_killed_processes_and_a_server_without_data_lose_and_double_nothing(
    own_server: Any, namespace: str, database_url: str
) -> None:
    """Producers, relays and workers; the server is emptied twice."""
    arguments = own_server.url, namespace, database_url
    async with Coordinator(own_server.url, namespace=namespace) as concert, shop_at(concert, database_url) as shop:
        orders = await torment(arguments, concert, shop, kills=4, flushes=2)
        assert orders
        assert await shop.numbers("shipped") == orders
        assert not [number for number in orders if number % 3 == 0]


@pytest.mark.torture
@pytest.mark.timeout(1200)
async def test_long_torment_of_everything_loses_and_doubles_nothing(
    own_server: Any, own_postgres: RealPostgres, namespace: str
) -> None:
    """The database is killed twice, too, and the server emptied twenty times."""

    def restart() -> None:
        own_postgres.kill()
        own_postgres.start()

    database = own_postgres.url("asyncpg")
    arguments = own_server.url, namespace, database
    async with Coordinator(own_server.url, namespace=namespace) as concert, shop_at(concert, database) as shop:
        orders = await torment(arguments, concert, shop, kills=120, flushes=20, restart=restart)
        assert await shop.numbers("shipped") == orders


def is_longer(runs: list[int], length: int) -> bool:
    """Whether there are more than so many."""
    return len(runs) > length


async def test_killed_relays_double_no_job_while_the_server_keeps_its_data(
    server: Any, concert: Coordinator, namespace: str, database_url: str
) -> None:
    """Each runs once, although it does not claim."""
    runs: list[int] = []

    @concert.task(name="note", queue="shipping")
    async def note(number: int) -> None:
        runs.append(number)

    engine = create_async_engine(database_url)
    async with shop_at(concert, database_url):
        outbox = Outbox(concert, engine)
        worker = asyncio.create_task(concert.run_worker("shipping"))
        for start in range(0, 400, 100):
            child = spawn(f"{HERE}:relay", server.url, namespace, database_url)
            async with engine.begin() as connection:
                for number in range(start, start + 100):
                    await outbox.enqueue(connection, note.call(number))
            await eventually(partial(is_longer, runs, start), timeout=30)
            child.close()
        async with outbox.relay():
            await eventually(lambda: len(runs) >= 400, timeout=30)
        worker.cancel()
        await asyncio.wait([worker])
    await engine.dispose()
    assert sorted(runs) == list(range(400))


async def test_relay_that_is_cancelled_at_any_moment_leaves_no_connection_behind(
    concert: Coordinator, database_url: str
) -> None:
    """Nor does a look at a job; and no job is lost."""
    engine = create_async_engine(database_url)

    @concert.task(name="note", queue="shipping")
    async def note() -> None: ...

    async with shop_at(concert, database_url) as shop:
        outbox = Outbox(concert, engine)
        job = None
        for turn in range(30):
            async with engine.begin() as connection:
                job = await outbox.enqueue(connection, note.call())
            looking = asyncio.create_task(job.status())
            async with outbox.relay():
                for _ in range(turn):
                    await asyncio.sleep(0)
            looking.cancel()
            await asyncio.wait([looking])
        pool: Any = engine.sync_engine.pool
        assert pool.checkedout() == 0
        async with outbox.relay(), in_background(concert.run_worker("shipping")):
            async with engine.begin() as connection:
                await connection.execute(text("update inconcert_outbox set look_at_ms = 1 where looks > 0"))
            await eventually(lambda: has_ended(concert, job.id if job else ""), timeout=20)
            async with engine.begin() as connection:
                await connection.execute(text("update inconcert_outbox set look_at_ms = 1"))
            await eventually(shop.is_quiet, timeout=20)
    await engine.dispose()


async def has_ended(concert: Coordinator, job_id: str) -> bool:
    """Whether a job has succeeded."""
    return await concert.tasks.job(job_id).status() == "succeeded"
