"""Work in transactions of our own: on the event loop, or in a thread if the engine has none."""

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ["Database"]

T = TypeVar("T")


class Database:
    """A database that has the table of an outbox.

    Args:
        engine: With whichever driver.

    Attributes:
        engine: As given.
        dialect: `postgresql` or `sqlite`.

    Raises:
        TypeError: It is not an engine of SQLAlchemy.
        ValueError: It is one of another kind of database.
    """

    def __init__(self, engine: AsyncEngine | Engine) -> None:
        if not isinstance(engine, AsyncEngine | Engine):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
            raise TypeError(f"an outbox was given {engine!r}; give an AsyncEngine or an Engine of SQLAlchemy")
        self.dialect: str = engine.dialect.name
        if self.dialect not in {"postgresql", "sqlite"}:
            raise ValueError(f"an outbox was given an engine for {self.dialect}; it works on postgresql and sqlite")
        self.engine = engine
        # Also if the user's own transactions are stricter, which the statements of a relay do not need.
        options = {"isolation_level": "READ COMMITTED"} if self.dialect == "postgresql" else {}
        self._engine = engine.execution_options(**options) if options else engine

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Do this in a transaction."""
        if isinstance(self._engine, AsyncEngine):
            async with self._engine.begin() as connection:
                done: T = await connection.run_sync(work)
                return done
        return await anyio.to_thread.run_sync(self.run_sync, work)

    def run_sync(self, work: Callable[[Connection], T]) -> T:
        """The same, in the thread that calls it, on an engine without an event loop."""
        assert not isinstance(self._engine, AsyncEngine)  # noqa: S101 - its callers have looked
        with self._engine.begin() as connection:
            return work(connection)
