"""Hears of commits in other processes, where the database tells of them: PostgreSQL's LISTEN.

A relay that hears nothing, because of another driver or a proxy that shares connections, looks at its pace instead.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import anyio
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from inconcert.sql.database import Database, uncut
from inconcert.sql.rows import CHANNEL

_log = logging.getLogger("inconcert.sql")

_PAUSE = 1.0  # seconds after which a lost connection is made again
_DRIVERS = {"asyncpg", "psycopg"}


def can_listen(database: Database) -> bool:
    """True if the driver can."""
    engine = database.engine
    return isinstance(engine, AsyncEngine) and database.dialect == "postgresql" and engine.dialect.driver in _DRIVERS


async def listen(database: Database, namespace: str, ring: Callable[[], None]) -> None:
    """Call `ring` at each commit that has written rows of this namespace, until this is cancelled.

    Cost: a connection, which is taken out of the engine's pool.
    """
    engine = database.engine
    assert isinstance(engine, AsyncEngine)  # noqa: S101 - its caller has looked
    while True:
        try:
            connection = engine.execution_options(isolation_level="AUTOCOMMIT").connect()
            try:
                driver = await uncut(_driver_of(connection))
                if engine.dialect.driver == "asyncpg":
                    await _listen_asyncpg(driver, namespace, ring)
                else:
                    await driver.execute(f"LISTEN {CHANNEL}")
                    ring()
                    async for notice in driver.notifies():
                        if notice.payload == namespace:
                            ring()
            finally:
                await uncut(_drop(connection))
        except (SQLAlchemyError, OSError) as error:
            _log.debug("the outbox cannot listen to the database, and looks at its pace: %s", error)
        except Exception as error:  # noqa: BLE001 - the driver's own errors, whose classes are not imported
            _log.debug("the outbox has lost the connection on which it listens: %s", error)
        await anyio.sleep(_PAUSE)


async def _driver_of(connection: AsyncConnection) -> Any:  # noqa: ANN401 - the drivers have no types
    await connection.start()
    return (await connection.get_raw_connection()).driver_connection


async def _drop(connection: AsyncConnection) -> None:
    """It still listens, and so it is not for others."""
    if connection.sync_connection is not None:
        await connection.invalidate()
        await connection.close()


async def _listen_asyncpg(driver: Any, namespace: str, ring: Callable[[], None]) -> None:  # noqa: ANN401 - has no types
    lost = asyncio.Event()

    def on_notice(_connection: object, _pid: int, _channel: str, payload: str) -> None:
        if payload == namespace:
            ring()

    def on_end(_connection: object) -> None:
        lost.set()

    driver.add_termination_listener(on_end)
    await driver.add_listener(CHANNEL, on_notice)
    ring()  # for what was committed before
    try:
        await lost.wait()
    finally:
        driver.remove_termination_listener(on_end)
        if not driver.is_closed():
            await driver.remove_listener(CHANNEL, on_notice)
