"""Statements of our own, each a transaction by itself: on the event loop, or in a thread if the engine has none."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")

_LONGEST_END = 1.0  # seconds that a statement has to end in when its caller is cancelled


async def uncut(work: Coroutine[Any, Any, T]) -> T:
    """Do this in a task of its own. A cancellation waits for a moment until it is done.

    A connection that is cancelled while it is taken from the pool, or given back, would be lost to it.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with anyio.move_on_after(_LONGEST_END, shield=True):
            await asyncio.wait([task])
        raise
    finally:
        if not task.done():
            task.cancel()
        elif not task.cancelled():
            task.exception()  # it has been seen


class Database:
    """A database that has the table of an outbox.

    Raises:
        TypeError: It is not an engine of SQLAlchemy.
        ValueError: It is one of another kind of database.
    """

    def __init__(self, engine: AsyncEngine | Engine) -> None:
        if not isinstance(engine, AsyncEngine | Engine):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
            raise TypeError(f"an outbox was given {engine!r}; give an AsyncEngine or an Engine of SQLAlchemy")
        self.dialect: str = engine.dialect.name  # `postgresql` or `sqlite`
        if self.dialect not in {"postgresql", "sqlite"}:
            raise ValueError(f"an outbox was given an engine for {self.dialect}; it works on postgresql and sqlite")
        self.engine = engine
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Do this on a connection on which each statement commits by itself: one round trip for one statement."""
        if isinstance(self._engine, AsyncEngine):
            return await uncut(self._run(self._engine, work))
        return await anyio.to_thread.run_sync(self.run_sync, work)

    @staticmethod
    async def _run(engine: AsyncEngine, work: Callable[[Connection], T]) -> T:
        async with engine.connect() as connection:
            done: T = await connection.run_sync(work)
            return done

    def run_sync(self, work: Callable[[Connection], T]) -> T:
        """The same, in the thread that calls it, on an engine without an event loop."""
        assert not isinstance(self._engine, AsyncEngine)  # noqa: S101 - its callers have looked
        with self._engine.connect() as connection:
            return work(connection)
