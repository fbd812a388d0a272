"""Connections of asyncpg and psycopg that the caller uses without SQLAlchemy."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from importlib import import_module
from typing import Any

import psycopg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from inconcert import Coordinator, JobStatus
from inconcert.sql import Outbox, StaleToken, fence, fence_sync, fences
from tests.support.background import in_background

asyncpg: Any = import_module("asyncpg")  # has no type hints

Connect = Callable[[], AbstractAsyncContextManager[Any]]
CONNECTIONS = ["asyncpg", "pool", "psycopg"]


@pytest.fixture
def address(postgres_url: str) -> str:
    """Of an empty database, as drivers read it."""
    return postgres_url.replace("+asyncpg", "")


@pytest.fixture
async def outbox(concert: Coordinator, postgres_url: str) -> AsyncIterator[Outbox]:
    """On that database, with the table of fences and one of effects."""
    engine = create_async_engine(postgres_url)
    outbox = Outbox(concert, engine)
    await outbox.create_table()
    async with engine.begin() as connection:
        await connection.run_sync(fences.create)
        await connection.exec_driver_sql("create table shipped (id integer)")
    yield outbox
    await engine.dispose()


@pytest.fixture(params=CONNECTIONS)
def connect(request: pytest.FixtureRequest, address: str) -> Connect:
    """Opens a connection of each kind."""

    @asynccontextmanager
    async def connect() -> AsyncGenerator[Any]:
        if request.param == "psycopg":
            async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
                yield connection
        elif request.param == "pool":
            async with asyncpg.create_pool(address, min_size=1) as pool, pool.acquire() as connection:
                yield connection
        else:
            opened = await asyncpg.connect(address)
            try:
                yield opened
            finally:
                await opened.close()

    return connect


async def test_job_runs_if_its_transaction_commits(concert: Coordinator, outbox: Outbox, connect: Connect) -> None:
    """Its effect in the database is made once; what was rolled back leaves nothing."""

    @concert.task(name="ship", queue="shipping")
    async def ship(number: int) -> int:
        async with connect() as connection, connection.transaction():
            assert await outbox.claim(connection)
            assert not await outbox.claim(connection)  # the row is gone in this transaction
            await connection.execute(f"insert into shipped values ({number})")
        return number

    queue = concert.queue("parcels", int)
    async with connect() as connection:
        lost = None
        with suppress(ZeroDivisionError):
            async with connection.transaction():
                lost = await outbox.enqueue(connection, ship.call(1))
                raise ZeroDivisionError
        async with connection.transaction():
            job = await outbox.enqueue(connection, ship.call(2))
            await outbox.put(connection, queue, 7)
            await outbox.send(connection, concert.mailbox("ann"), "shipped")
        assert await job.status() is JobStatus.QUEUED
        assert lost is not None
        assert await lost.status() is JobStatus.UNKNOWN
        async with outbox.relay(), in_background(concert.run_worker("shipping")):
            assert await job.result(timeout=10) == 2
            async with await queue.get(timeout=10) as item:
                assert item == 7
            assert [each.body for each in await concert.mailbox("ann").fetch(timeout=10)] == ["shipped"]


async def test_late_holder_is_refused(outbox: Outbox, connect: Connect) -> None:
    """As by a connection of SQLAlchemy."""
    del outbox  # which has made the tables
    async with connect() as connection:
        async with connection.transaction():
            await fence(connection, ("item", 2))
        with pytest.raises(StaleToken):
            async with connection.transaction():
                await fence(connection, ("item", 1))


async def test_outside_of_a_transaction_nothing_is_sent(concert: Coordinator, outbox: Outbox, connect: Connect) -> None:
    """It would be written at once, whatever becomes of the rest."""
    ship = concert.task(name="ship", queue="shipping")(print)
    async with connect() as connection:
        with pytest.raises(RuntimeError, match=r"Outbox.enqueue\(\) was called outside of a transaction"):
            await outbox.enqueue(connection, ship.call())
        with pytest.raises(RuntimeError, match=r"fence\(\) was called outside of a transaction"):
            await fence(connection, ("item", 1))
        elsewhere = Outbox(concert, create_async_engine("sqlite+aiosqlite://"))
        async with connection.transaction():
            with pytest.raises(ValueError, match="a transaction on postgresql, and the outbox is on sqlite"):
                await elsewhere.enqueue(connection, ship.call())


async def test_connection_of_psycopg_without_an_event_loop(concert: Coordinator, outbox: Outbox, address: str) -> None:
    """It begins a transaction by itself, and `outbox.sync` has its verbs."""

    @concert.task(name="ship", queue="shipping")
    def ship(number: int) -> str:
        return str(number)

    with psycopg.connect(address) as connection:
        lost = outbox.sync.enqueue(connection, ship.call(1))
        connection.rollback()
        job = outbox.sync.enqueue(connection, ship.call(2))
        fence_sync(connection, ("item", 2))
        connection.commit()
        with pytest.raises(StaleToken):
            fence_sync(connection, ("item", 1))
        with pytest.raises(TypeError, match=r"give a psycopg.AsyncConnection, or use the verb without await"):
            await fence(connection, ("item", 3))
    assert await outbox.job(lost.id).status() is JobStatus.UNKNOWN
    async with outbox.relay(), in_background(concert.run_worker("shipping")):
        assert await outbox.job(job.id).result(timeout=10) == "2"
    async with await psycopg.AsyncConnection.connect(address) as waiting:
        with pytest.raises(TypeError, match=r"needs an event loop; give a psycopg\.Connection"):
            fence_sync(waiting, ("item", 3))
