"""An outbox at what databases do: several engines, replicas, long transactions, and clocks that differ."""

import logging
import time
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from inconcert import Coordinator, Job, JobStatus, Task
from inconcert.sql import Outbox
from tests.support.background import in_background
from tests.support.eventually import eventually


@pytest.fixture
def ship(concert: Coordinator) -> Task[[int], Any]:
    """Returns its number."""

    @concert.task(name="ship", queue="shipping")
    async def ship(number: int) -> int:
        return number

    return ship


async def is_known(concert: Coordinator, job_id: str) -> bool:
    """Whether the server has it."""
    return await concert.tasks.job(job_id).status() is not JobStatus.UNKNOWN


@pytest.mark.parametrize("kind", ["sqlite", "psycopg"])
async def test_two_engines_of_one_database_have_one_table(
    concert: Coordinator, ship: Task[[int], Any], kind: str, request: pytest.FixtureRequest, tmp_path: Any
) -> None:
    """One for threads, which writes, and one for the event loop, whose relay hands over."""
    url = f"sqlite+aiosqlite:///{tmp_path}/a.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    engine = create_async_engine(url)
    threads = create_engine(url.replace("+aiosqlite", "").replace("+asyncpg", "+psycopg"))
    outbox, other = Outbox(concert, engine), Outbox(concert, threads)
    await outbox.create_table()
    with threads.begin() as connection:
        written = other.sync.enqueue(connection, ship.call(17))
    async with outbox.relay(), in_background(concert.run_worker("shipping")):
        assert await outbox.job(written.id).result(timeout=20) == 17
    threads.dispose()
    await engine.dispose()


async def test_transaction_of_another_kind_of_database_is_refused(concert: Coordinator, ship: Task[[int], Any]) -> None:
    """Before anything is written: the relay would not see the row."""
    outbox = Outbox(concert, create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:1/none"))
    engine = create_async_engine("sqlite+aiosqlite://")
    async with engine.begin() as connection:
        with pytest.raises(ValueError, match="a transaction on sqlite, and the outbox is on postgresql"):
            await outbox.enqueue(connection, ship.call(1))
    await engine.dispose()


async def test_row_of_a_transaction_that_was_long_open_is_handed_over(
    concert: Coordinator, ship: Task[[int], Any], postgres_url: str
) -> None:
    """Although rows that were written after it, and committed before it, are gone."""
    engine = create_async_engine(postgres_url)
    outbox = Outbox(concert, engine)
    await outbox.create_table()
    async with outbox.relay(), in_background(concert.run_worker("shipping")):
        async with engine.begin() as long:
            first = await outbox.enqueue(long, ship.call(1))
            async with engine.begin() as short:
                second: Job[Any] = await outbox.enqueue(short, ship.call(2))
            assert await second.result(timeout=20) == 2
            assert not await is_known(concert, first.id)
        assert await first.result(timeout=20) == 1
    await engine.dispose()


async def test_relay_at_a_replica_says_so_and_hands_nothing_over(
    concert: Coordinator, ship: Task[[int], Any], postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It reads only, so the rows wait for a relay at the primary."""
    engine = create_async_engine(postgres_url)
    read_only = {"server_settings": {"default_transaction_read_only": "on"}}
    replica = create_async_engine(postgres_url, connect_args=read_only)
    outbox = Outbox(concert, engine)
    await outbox.create_table()
    async with engine.begin() as connection:
        job = await outbox.enqueue(connection, ship.call(1))
    with caplog.at_level(logging.WARNING, "inconcert.sql"):
        async with Outbox(concert, replica).relay():
            await eventually(lambda: "read-only transaction" in caplog.text)
    assert not await is_known(concert, job.id)
    async with outbox.relay():
        await eventually(lambda: is_known(concert, job.id))
    for each in engine, replica:
        await each.dispose()


@pytest.mark.parametrize("days", [-1000, 1000])
async def test_clock_of_a_process_counts_nothing(
    concert: Coordinator, ship: Task[[int], Any], engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """A row is due by the database's clock, and so is a delay."""
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + days * 86400)
    outbox = Outbox(concert, engine)
    await outbox.create_table()
    async with engine.begin() as connection:
        soon = await outbox.enqueue(connection, ship.call(1))
        later = await outbox.enqueue(connection, ship.options(delay=3600).call(2))
    async with outbox.relay(), in_background(concert.run_worker("shipping")):
        assert await soon.result(timeout=20) == 1
        await eventually(lambda: is_known(concert, later.id))
        assert await later.status() is JobStatus.DELAYED
    async with engine.connect() as connection:
        due_ms = (await connection.execute(text("select max(due_ms) from inconcert_outbox"))).scalar_one()
    assert abs(due_ms / 1000 - now() - 3600) < 60
