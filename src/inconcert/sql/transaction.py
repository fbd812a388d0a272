"""The caller's transaction: a write for it is made in it, or not at all."""

from typing import TypeAlias, TypeVar

from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from inconcert.sql.driver import AsyncDriverConnection, DriverConnection

AsyncHandle: TypeAlias = AsyncSession | AsyncConnection | AsyncDriverConnection
"""A transaction of a program with an event loop."""

Handle: TypeAlias = Session | Connection | DriverConnection
"""A transaction of a program without one, or inside `run_sync`."""

OfSQLAlchemy: TypeAlias = Session | Connection
HandleT = TypeVar("HandleT", bound=OfSQLAlchemy)


def sync_handle(handle: AsyncSession | AsyncConnection, what: str) -> OfSQLAlchemy:
    """The synchronous object behind a handle of an event loop, in a transaction.

    Raises:
        RuntimeError: No transaction has begun.
    """
    if isinstance(handle, AsyncSession):
        return _begun(handle.sync_session, what)
    if handle.sync_connection is None:
        raise RuntimeError(_outside(what))
    return _begun(handle.sync_connection, what)


def connection_of(handle: OfSQLAlchemy, what: str) -> Connection:
    """The connection of a transaction that has begun.

    Raises:
        RuntimeError: No transaction has begun, or the connection commits each statement by itself.
    """
    _begun(handle, what)
    connection = handle.connection() if isinstance(handle, Session) else handle
    if _commits_by_itself(connection):
        raise RuntimeError(f"{what} was given a connection in AUTOCOMMIT, which has no transaction; {_REMEDY}")
    return connection


_REMEDY = "call it inside `async with session.begin():`, with what is to commit together with it"


def _begun(handle: HandleT, what: str) -> HandleT:
    if not handle.in_transaction():
        raise RuntimeError(_outside(what))
    return handle


def _outside(what: str) -> str:
    return f"{what} was called outside of a transaction; {_REMEDY}"


def _commits_by_itself(connection: Connection) -> bool:
    of_engine: str | None = getattr(connection.dialect, "_on_connect_isolation_level", None)
    level = connection.get_execution_options().get("isolation_level", of_engine)
    return bool(level == "AUTOCOMMIT")
