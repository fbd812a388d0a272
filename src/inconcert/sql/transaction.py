"""The caller's transaction: what is written for it is written in it, or not at all."""

from typing import TypeAlias, TypeVar

from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

__all__ = ["AsyncHandle", "Handle", "connection_of", "sync_handle"]

AsyncHandle: TypeAlias = AsyncSession | AsyncConnection
"""A transaction of a program with an event loop."""

Handle: TypeAlias = Session | Connection
"""A transaction of a program without one, or inside `run_sync`."""

HandleT = TypeVar("HandleT", bound=Handle)


def sync_handle(handle: AsyncHandle, what: str) -> Handle:
    """What a handle of an event loop stands for, in a transaction.

    Raises:
        TypeError: It is another kind of object.
        RuntimeError: No transaction has begun.
    """
    if isinstance(handle, AsyncSession):
        return _begun(handle.sync_session, what)
    if not isinstance(handle, AsyncConnection):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
        raise TypeError(f"{what} was given {handle!r}; give an AsyncSession or an AsyncConnection")
    if handle.sync_connection is None:
        raise RuntimeError(_outside(what))
    return _begun(handle.sync_connection, what)


def connection_of(handle: Handle, what: str) -> Connection:
    """The connection of a transaction that has begun.

    Raises:
        TypeError: It is another kind of object.
        RuntimeError: No transaction has begun, or the connection commits each statement by itself.
    """
    if not isinstance(handle, Session | Connection):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
        raise TypeError(f"{what} was given {handle!r}; give a Session or a Connection of SQLAlchemy")
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
