"""Connections of asyncpg and psycopg that are used without SQLAlchemy: its dialects write the statements for them.

A driver tells nobody of its commits.  PostgreSQL does, where the relay listens; otherwise a relay looks every second.
"""

from collections.abc import Awaitable, Mapping
from functools import lru_cache
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Literal, Protocol, TypeAlias, cast

from sqlalchemy.dialects.postgresql import asyncpg, psycopg
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import TextClause

_Driver: TypeAlias = Literal["asyncpg", "psycopg"]
_DIALECTS: dict[_Driver, type[Dialect]] = {"asyncpg": asyncpg.dialect, "psycopg": psycopg.dialect}


class _Asyncpg(Protocol):
    """An `asyncpg.Connection`, or one of a pool."""

    def is_in_transaction(self) -> bool:
        """True if a transaction has begun."""
        ...

    def execute(self, query: str, *args: object) -> Awaitable[str]:
        """Run a statement; returns its command tag, such as `DELETE 1`."""
        ...


class DriverConnection(Protocol):
    """A `psycopg.Connection`, or an `AsyncConnection`, whose `execute` is awaited."""

    @property
    def autocommit(self) -> bool:
        """True if it begins no transaction by itself."""
        ...

    @property
    def info(self) -> Any:  # noqa: ANN401 - has the state of its transaction
        """Its state."""

    def execute(self, query: Any, params: Any, /) -> Any:  # noqa: ANN401 - drivers take literals alone, and more
        """Run a statement; returns a cursor, or an awaitable of one."""


AsyncDriverConnection: TypeAlias = _Asyncpg | DriverConnection
"""A connection of a driver with an event loop."""


async def execute(handle: AsyncDriverConnection, statement: TextClause, values: Mapping[str, object], what: str) -> int:
    """Run a statement in the transaction of a connection; returns how many rows it has written, or deleted.

    Raises:
        TypeError: It is something else, or a connection without an event loop.
        RuntimeError: No transaction has begun.
    """
    if _driver(handle) is None:
        raise TypeError(
            f"{what} was given {handle!r}; give an AsyncSession or an AsyncConnection of SQLAlchemy, or a connection "
            "of asyncpg or psycopg"
        )
    if _driver(handle) == "asyncpg":
        connection = cast("_Asyncpg", handle)
        _check(has_begun=connection.is_in_transaction(), what=what)
        compiled = _compiled(statement, "asyncpg")
        status = await connection.execute(str(compiled), *[values[name] for name in compiled.positiontup or ()])
        return int(status.rpartition(" ")[2])
    cursor = _begin(cast("DriverConnection", handle), statement, values, what)
    if not isawaitable(cursor):
        raise TypeError(f"{what} was given {handle!r}; give a psycopg.AsyncConnection, or use the verb without await")
    return int((await cursor).rowcount)


def execute_sync(handle: DriverConnection, statement: TextClause, values: Mapping[str, object], what: str) -> int:
    """The same without an event loop.

    Raises:
        TypeError: It is something else, or a connection that needs an event loop.
        RuntimeError: No transaction has begun.
    """
    if _driver(handle) is None:
        raise TypeError(
            f"{what} was given {handle!r}; give a Session or a Connection of SQLAlchemy, or a psycopg.Connection"
        )
    if _driver(handle) == "asyncpg" or iscoroutinefunction(handle.execute):
        raise TypeError(f"{what} was given {handle!r}, which needs an event loop; give a psycopg.Connection")
    return int(_begin(handle, statement, values, what).rowcount)


def _begin(  # returns a cursor, or an awaitable of one
    handle: DriverConnection, statement: TextClause, values: Mapping[str, object], what: str
) -> Any:  # noqa: ANN401 - of the driver
    """Run a statement on a connection of psycopg, which begins a transaction by itself unless it is in autocommit."""
    _check(has_begun=not handle.autocommit or handle.info.transaction_status.name != "IDLE", what=what)
    return handle.execute(str(_compiled(statement, "psycopg")), values)


def _check(*, has_begun: bool, what: str) -> None:
    if not has_begun:
        raise RuntimeError(
            f"{what} was called outside of a transaction; call it inside `async with connection.transaction():`, with "
            "what is to commit together with it"
        )


def _driver(handle: object) -> _Driver | None:
    for base in type(handle).__mro__:
        match base.__module__.partition(".")[0]:
            case "asyncpg" | "psycopg" as driver:
                return driver if hasattr(handle, "execute") else None
            case _:
                pass
    return None


@lru_cache(maxsize=16)
def _compiled(statement: TextClause, driver: _Driver) -> SQLCompiler:
    compiled = statement.compile(dialect=_DIALECTS[driver]())
    assert isinstance(compiled, SQLCompiler)  # noqa: S101 - of a text it is
    return compiled
