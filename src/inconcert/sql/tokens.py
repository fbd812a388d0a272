"""Fences: the database refuses what a late holder writes.

A process may stand still between its look at the clock and its write. When it goes on, another holds the lock, and only
the database can tell the two apart. It keeps the largest fencing token of each name; a transaction first puts its own
there, by one statement that changes nothing if a larger one is stored. The row stays locked until the transaction ends,
so of two holders one waits for the other, and the newer one's write is the last.

Source: docs/explanation/database.md
"""

from typing import TypeAlias, cast

from sqlalchemy import BigInteger, Column, MetaData, Table, Text, bindparam, text
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import TextClause

from inconcert._core.lease import Lease, state_of
from inconcert.errors import StaleToken
from inconcert.sql.driver import execute, execute_sync
from inconcert.sql.transaction import AsyncHandle, Handle, connection_of, sync_handle

Fenced: TypeAlias = Lease | tuple[str, int]
"""What has a fencing token: a lease, or a name of the caller's own and the token."""

_LARGEST = 2**63 - 1  # what a BIGINT holds
_HOLDERS = "}:holders"

fences = Table(
    "inconcert_fences",
    MetaData(),
    Column("name", Text, primary_key=True),
    Column("token", BigInteger, nullable=False),
)
"""The largest token of each name, as a `sqlalchemy.Table`: one row for each name that was ever fenced."""

_FENCE = (
    "INSERT INTO inconcert_fences (name, token) VALUES (:name, :token) "
    "ON CONFLICT (name) DO UPDATE SET token = excluded.token WHERE inconcert_fences.token <= excluded.token "
    "RETURNING token"
)


def fence_statement(fenced: Fenced) -> TextClause:
    """The statement by which the database compares a token, for a transaction of the caller's own.

    It returns a row if no larger token is stored, and none if a newer holder has written: then roll back.

    Args:
        fenced: See `fence`.

    Raises:
        TypeError: It has no fencing token.
        ValueError: A name of the caller's own is empty or has a NUL, or the token is not from 0 to 2**63 - 1.
    """
    name, token = _name_and_token(fenced)
    return text(_FENCE).bindparams(bindparam("name", name, Text), bindparam("token", token, BigInteger))


async def fence(transaction: AsyncHandle, fenced: Fenced) -> None:
    """Let the database refuse this transaction if a newer holder has written.

    Call it first in the transaction, before the writes that it protects: `await fence(session, lease)`.

    Args:
        transaction: An `AsyncSession` or `AsyncConnection` whose transaction has begun, on PostgreSQL or SQLite, or a
            connection of asyncpg or psycopg that is in one; with the table `fences`.
        fenced: The lease of a lock, of the writing side of a reader-writer lock, of a semaphore with one permit, or a
            term; its name is that of its key, `shop:lock:item:42`. Or a name of the caller's own and a token, such as
            the key of a member: `("crawlers/7", token)`.

    Raises:
        StaleToken: A newer holder has written; the transaction is to be rolled back.
        TypeError: It has no fencing token, or this is not a transaction.
        ValueError: See `fence_statement`.
        RuntimeError: No transaction has begun, or the connection commits each statement by itself.

    Cost: 1 statement; it waits for a transaction that has fenced the same name and has not ended.
    """
    statement = fence_statement(fenced)  # its errors come before any I/O
    if not isinstance(transaction, AsyncSession | AsyncConnection):
        _check(await execute(transaction, statement, _values(fenced), "fence()"), fenced)
        return
    sync_handle(transaction, "fence()")
    await transaction.run_sync(fence_sync, fenced)


def fence_sync(transaction: Handle, fenced: Fenced) -> None:
    """As `fence`, of a `Session` or `Connection` whose transaction has begun: in plain functions, and in `run_sync`."""
    statement = fence_statement(fenced)
    if not isinstance(transaction, Session | Connection):
        _check(execute_sync(transaction, statement, _values(fenced), "fence()"), fenced)
        return
    _check(len(connection_of(transaction, "fence()").execute(statement).all()), fenced)


def _check(rows: int, fenced: Fenced) -> None:
    if not rows:
        raise StaleToken(*_name_and_token(fenced))


def _values(fenced: Fenced) -> dict[str, object]:
    return dict(zip(("name", "token"), _name_and_token(fenced), strict=True))


def _name_and_token(fenced: Fenced) -> tuple[str, int]:
    if isinstance(fenced, Lease):
        state = state_of(fenced)
        return state.keys.holders[1:].removesuffix(_HOLDERS), state.fencing_token
    if not isinstance(fenced, tuple) or len(fenced) != 2:  # pyright: ignore[reportUnnecessaryIsInstance, reportUnnecessaryComparison] - users without a type checker
        raise TypeError(
            f"{fenced!r} has no fencing token; give the lease of a lock, a write lock, a semaphore of one permit or an "
            "election, or a name and a token. A job is made to count once by Outbox.claim()"
        )
    name, token = cast("tuple[object, object]", fenced)
    if not isinstance(name, str) or not name or "\0" in name:
        raise ValueError(f"the name of a fence is {name!r}; give a text that is not empty, and has no NUL")
    if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token <= _LARGEST:
        raise ValueError(f"the token of fence {name!r} is {token!r}; give a whole number from 0 to {_LARGEST}")
    return name, token
