"""An outbox whose relays are killed, or cancelled at any moment. `test_outbox_torment.py` kills everything."""

import asyncio
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from inconcert import Coordinator, Job
from inconcert.sql import Outbox
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.processes import spawn


async def relay(url: str, namespace: str, database: str) -> None:
    """Hand over until this is killed."""
    concert = Coordinator(url, namespace=namespace)
    outbox = Outbox(concert, create_async_engine(database))
    async with concert, outbox.relay():
        await asyncio.sleep(3600)


@pytest.fixture
async def outbox(concert: Coordinator, engine: AsyncEngine) -> Outbox:
    """On each database, with its table."""
    if engine.dialect.name == "sqlite":  # others read while one writes
        async with engine.connect() as connection:
            await connection.execute(text("pragma journal_mode = wal"))
    outbox = Outbox(concert, engine)
    await outbox.create_table()
    return outbox


async def test_killed_relays_double_no_job_while_the_server_keeps_its_data(
    server: Any, concert: Coordinator, namespace: str, outbox: Outbox, engine: AsyncEngine
) -> None:
    """Each runs once, although it does not claim."""
    database = engine.url.render_as_string(hide_password=False)
    runs: list[int] = []

    @concert.task(name="note", queue="shipping")
    async def note(number: int) -> None:
        runs.append(number)

    async with in_background(concert.run_worker("shipping")):
        for start in range(0, 400, 100):
            async with spawn("tests.sql.test_outbox_faults:relay", server.url, namespace, database):
                async with engine.begin() as connection:
                    for number in range(start, start + 100):
                        await outbox.enqueue(connection, note.call(number))
                await eventually(partial(is_longer, runs, start), timeout=30)
        async with outbox.relay():
            await eventually(partial(is_longer, runs, 399), timeout=30)
    assert sorted(runs) == list(range(400))


def is_longer(runs: list[int], length: int) -> bool:
    """Whether there are more than so many."""
    return len(runs) > length


async def test_relay_that_is_cancelled_at_any_moment_leaves_no_connection_behind(
    concert: Coordinator, outbox: Outbox, engine: AsyncEngine
) -> None:
    """Nor does a look at a job; and no job is lost."""

    @concert.task(name="note", queue="shipping")
    async def note() -> None: ...

    jobs: list[Job[None]] = []
    for turn in range(30):
        async with engine.begin() as connection:
            jobs.append(await outbox.enqueue(connection, note.call()))
        looking = asyncio.create_task(jobs[-1].status())
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
        for job in jobs:
            await job.result(timeout=20)
