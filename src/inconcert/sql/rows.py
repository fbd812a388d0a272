"""The table of an outbox, and all statements on it.

Theory of operation. A row is written in the caller's transaction, and is seen by others when that commits. It carries
`look_at_ms`, the instant at which a relay looks at it next, by the database's clock; 0 at first. A relay *reserves*
rows that are due: one statement moves their `look_at_ms` on, and skips those that another relay has locked. Only then
it hands them over. So no transaction is open while the server is asked, each row has one relay at a time, and a row
whose relay dies is due again by itself. Each look moves the next one further away: 1 s, 2 s, 4 s ... 10 min; 30 min for
a row that is due later than in an hour.

    look_at_ms = 0   nobody has seen it                      -> reserved, and handed over
    looks >= 2       it was handed over, or may have been    -> the server is asked; handed over again if unknown
    dead_life        it was dead-lettered in this life of the server's data; never handed over again
    no row           it has ended, or the caller has claimed it

Source: docs/explanation/database.md
"""

from typing import Literal, NamedTuple, TypeAlias

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    bindparam,
    func,
    text,
)
from sqlalchemy.engine import Connection

CHANNEL = "inconcert_outbox"
"""The channel of PostgreSQL on which a commit is announced, with the namespace."""

Keep: TypeAlias = Literal["until_done", "until_sent"]
"""How long a row of a job stays: until the job has ended, or until the server has it."""

Kind: TypeAlias = Literal["job", "item", "message"]

CLAIM = text("DELETE FROM inconcert_outbox WHERE id = :id")
"""Takes the row of a job, if there is one."""

IS_THERE = text("SELECT 1 FROM inconcert_outbox WHERE id = :id AND dead_life IS NULL")
"""Finds the row of a job that was not dead-lettered."""

_AT_ONCE = 5_000  # rows that one statement makes due

_NOW = {
    "postgresql": "CAST(extract(epoch FROM statement_timestamp()) * 1000 AS bigint)",
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS integer)",
}
_LOCK = {"postgresql": "FOR UPDATE SKIP LOCKED", "sqlite": ""}  # SQLite has one writer at a time
_NOTIFY = {"postgresql": f"RETURNING pg_notify('{CHANNEL}', :namespace)", "sqlite": ""}

_ADD = """
INSERT INTO inconcert_outbox (id, namespace, kind, destination, terms, body, due_ms, looks, look_at_ms)
VALUES (:id, :namespace, :kind, :destination, :terms, :body,
    CASE WHEN :delay_ms > 0 THEN {now} + :delay_ms ELSE 0 END, 0, 0)
{notify}
"""
_RESERVE = """
WITH due AS MATERIALIZED (
    SELECT seq FROM inconcert_outbox WHERE namespace = :namespace AND look_at_ms <= {now}
    ORDER BY look_at_ms, seq LIMIT :most {lock}
)
UPDATE inconcert_outbox SET looks = looks + 1, look_at_ms = {now} + CASE
    WHEN due_ms > {now} + 3600000 THEN 1800000 WHEN looks < 9 THEN 1000 << looks ELSE 600000 END
WHERE seq IN (SELECT seq FROM due)
RETURNING seq, id, kind, destination, terms, body, due_ms - {now}, looks, dead_life
"""
_LOOK_AT_ALL = """
UPDATE inconcert_outbox SET look_at_ms = 1 WHERE seq IN (
    WITH handed_over AS MATERIALIZED (
        SELECT seq FROM inconcert_outbox
        WHERE namespace = :namespace AND look_at_ms > {now} + 1000 AND dead_life IS NULL
        LIMIT :most {lock}
    )
    SELECT seq FROM handed_over
)
"""  # begins with UPDATE: of any other statement, SQLite's driver does not count the rows
_IDS = bindparam("ids", expanding=True, type_=Text)
_DELETE = text("DELETE FROM inconcert_outbox WHERE id IN :ids").bindparams(_IDS)
_RETURN = text("UPDATE inconcert_outbox SET look_at_ms = 1 WHERE id IN :ids").bindparams(_IDS)
_MARK = text("UPDATE inconcert_outbox SET dead_life = :life WHERE id = :id")


class Terms(msgspec.Struct, frozen=True, omit_defaults=True):
    """The form in which a row is handed over, as JSON."""

    keep: Keep = "until_done"  # how long the row stays
    task: str = ""  # the name of the task of a job
    unique: str = ""  # the unique name of a job; empty for none
    window_ms: int = 0  # for how long the job has it; 0 until it has ended
    order: str = "fifo"  # to which end of its queue an item goes
    max: int = -1  # how many items the queue, or messages the mailbox may hold; -1 for any number
    max_age_ms: int = 0  # how long a message is kept unread; 0 for any time


class Written(NamedTuple):
    """A row on its way into the table."""

    id: str  # of the job, item or message
    namespace: str
    kind: Kind
    destination: str  # the name of the queue or mailbox
    terms: str  # JSON: see Terms
    body: bytes  # as the server stores it: signed, if there are keys
    delay_ms: int  # from now; 0 for at once


class Row(NamedTuple):
    """A row that was reserved."""

    seq: int
    id: str
    kind: Kind
    destination: str
    terms: str
    body: bytes
    due_in_ms: int  # below 0 if it is due
    looks: int  # this one included
    dead_life: str | None


class Settled:
    """The fate of rows that were reserved."""

    def __init__(self) -> None:
        self.gone: list[str] = []  # the ids of those that are deleted
        # the ids of jobs that were dead-lettered, and in which life of the server's data; None for no longer
        self.dead: dict[str, str | None] = {}
        self.again: list[str] = []  # the ids of those that could not be handed over, and are due at once

    def __bool__(self) -> bool:
        return bool(self.gone or self.dead or self.again)


def new_table() -> Table:
    """The table, with a `MetaData` of its own."""
    table = Table(
        "inconcert_outbox",
        MetaData(),
        Column("seq", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True),  # order of insertion
        Column("id", Text, nullable=False, unique=True),
        Column("namespace", Text, nullable=False),
        Column("kind", Text, nullable=False),
        Column("destination", Text, nullable=False),
        Column("terms", Text, nullable=False),
        Column("body", LargeBinary, nullable=False),
        Column("due_ms", BigInteger, nullable=False),  # by the database's clock; 0 for at once
        Column("looks", Integer, nullable=False),
        Column("look_at_ms", BigInteger, nullable=False),
        Column("dead_life", Text),
        Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),  # for people
    )
    Index("inconcert_outbox_due", table.c.namespace, table.c.look_at_ms, table.c.seq)
    return table


class Rows:
    """The rows of one namespace. Each method is one statement, but for `settle`."""

    def __init__(self, namespace: str, dialect: str) -> None:
        self._namespace = namespace
        parts = {"now": _NOW[dialect], "lock": _LOCK[dialect], "notify": _NOTIFY[dialect]}
        # adds a row: the fields of `Written` are its parameters
        self.insert = text(_ADD.format(**parts)).bindparams(
            bindparam("delay_ms", type_=BigInteger), bindparam("body", type_=LargeBinary)
        )
        self._reserve = text(_RESERVE.format(**parts))
        self._look_at_all = text(_LOOK_AT_ALL.format(**parts))

    def add(self, connection: Connection, written: Written) -> None:
        """Write a row in this transaction."""
        connection.execute(self.insert, written._asdict())

    @staticmethod
    def claim(connection: Connection, job_id: str) -> bool:
        """Delete the row of a job in this transaction; False if there is none."""
        return bool(connection.execute(CLAIM, {"id": job_id}).rowcount == 1)

    @staticmethod
    def has(connection: Connection, job_id: str) -> bool:
        """True if a job has a row, and was not dead-lettered."""
        return connection.execute(IS_THERE, {"id": job_id}).first() is not None

    def reserve(self, connection: Connection, most: int) -> list[Row]:
        """Rows that are due, in the order in which they were written; no other relay gets them for a while."""
        found = connection.execute(self._reserve, {"namespace": self._namespace, "most": most})
        return sorted(Row(*row) for row in found.all())

    def look_at_all(self, connection: Connection) -> bool:
        """Make rows due that were handed over; returns whether there may be more."""
        changed = connection.execute(self._look_at_all, {"namespace": self._namespace, "most": _AT_ONCE}).rowcount
        return bool(changed == _AT_ONCE)

    @staticmethod
    def settle(connection: Connection, settled: Settled) -> None:
        """Note what has become of rows. What an error keeps from being noted is found again at a later look."""
        if settled.gone:
            connection.execute(_DELETE, {"ids": settled.gone})
        if settled.dead:
            connection.execute(_MARK, [{"id": job_id, "life": life} for job_id, life in settled.dead.items()])
        if settled.again:
            connection.execute(_RETURN, {"ids": settled.again})
