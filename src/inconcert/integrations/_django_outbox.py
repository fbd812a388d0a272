"""Rows of an outbox that are written by Django's own connection, in its transaction."""

from importlib import import_module
from typing import Any

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.elements import TextClause

from inconcert._rules.payloads import JSON
from inconcert.coordinator import Coordinator, key_ring_of, session_ref_of
from inconcert.sql.author import Author
from inconcert.sql.rows import CLAIM, IS_THERE, Rows
from inconcert.sql.sync_outbox import claimed_id
from inconcert.tasks.front.task_coordinator import parts_of
from inconcert.tasks.sending.options import JobOptions
from inconcert.tasks.sending.task import draft_of

_DIALECTS = {"postgresql": postgresql.dialect, "sqlite": sqlite.dialect}

_db: Any = import_module("django.db")  # has no type hints


class DjangoOutbox:
    """Statements on the table of an outbox in the default database of Django.

    Args:
        concert: Whose jobs they are; it is not opened.

    Raises:
        ValueError: The database is of another kind than PostgreSQL or SQLite.
    """

    def __init__(self, concert: Coordinator) -> None:
        vendor: str = _db.connection.vendor
        if vendor not in _DIALECTS:
            raise ValueError(f"outbox is True, and the default database is {vendor}; it works on postgresql and sqlite")
        ref, parts = session_ref_of(concert), parts_of(concert)
        self._author = Author(ref.keys, key_ring_of(concert), ref.observers, parts.keyspace, "until_done")
        rows = Rows(ref.keys.namespace, vendor)
        self._insert, self._claim, self._find = [
            _with_percents(statement, vendor) for statement in (rows.insert, CLAIM, IS_THERE)
        ]

    def enqueue(self, path: str, args: list[JSON], kwargs: dict[str, JSON], options: JobOptions) -> str:
        """Write a job as a row, and return its id; outside of a transaction the row is committed at once."""
        written = self._author.job(draft_of(path, args, kwargs, options))
        with _db.connection.cursor() as cursor:
            cursor.execute(self._insert, written._asdict())
        return written.id

    def claim(self) -> bool:
        """Delete the row of the current job; returns whether there was one."""
        job_id = claimed_id(None)
        if not _db.connection.in_atomic_block:
            raise RuntimeError(
                "claim() was called outside of a transaction; call it inside `with transaction.atomic():`, with what "
                "is to commit together with it"
            )
        with _db.connection.cursor() as cursor:
            cursor.execute(self._claim, {"id": job_id})
            return bool(cursor.rowcount == 1)

    def has(self, job_id: str) -> bool:
        """True if a job has a row, and was not dead-lettered."""
        with _db.connection.cursor() as cursor:
            cursor.execute(self._find, {"id": job_id})
            return cursor.fetchone() is not None


def _with_percents(statement: TextClause, vendor: str) -> str:
    """As Django takes it, with parameters such as `%(id)s`."""
    return str(statement.compile(dialect=_DIALECTS[vendor](paramstyle="pyformat")))
