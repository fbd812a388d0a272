"""The verbs of an outbox for transactions without an event loop, and inside `run_sync`."""

from typing import Any, TypeVar

from sqlalchemy import Table
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert.mailboxes.mailbox import Mailbox
from inconcert.queues.queue import Queue
from inconcert.sql.author import HEADER, Author
from inconcert.sql.bell import Bell
from inconcert.sql.database import Database
from inconcert.sql.driver import execute_sync
from inconcert.sql.rows import CLAIM, Rows, Written
from inconcert.sql.transaction import Handle, connection_of
from inconcert.sync_producer import EnqueuedJob
from inconcert.tasks.running.claimed_job import ClaimedJob, current_job
from inconcert.tasks.sending.draft import Draft

T = TypeVar("T")


class SyncOutbox:
    """The verbs of an `Outbox` for a `Session`, a `Connection` or a `psycopg.Connection`. It is `Outbox.sync`.

    Each takes a transaction that has begun, and what the verb of `Outbox` takes, and raises the same errors.
    """

    def __init__(self, table: Table, author: Author, rows: Rows, database: Database, bell: Bell) -> None:
        self._table = table
        self._author = author
        self._rows = rows
        self._database = database
        self._bell = bell

    def enqueue(self, transaction: Handle, call: Draft[Any]) -> EnqueuedJob:
        """As `Outbox.enqueue`: `outbox.sync.enqueue(session, ship.call(order.id))`."""
        written = self._author.job(call)
        self.add(transaction, written, "Outbox.enqueue()")
        return EnqueuedJob(written.id, created=True)

    def put(self, transaction: Handle, queue: Queue[T], item: T, *, delay: Seconds = 0.0) -> None:
        """As `Outbox.put`."""
        self.add(transaction, self._author.item(queue, item, durations.delay(delay)), "Outbox.put()")

    def send(self, transaction: Handle, mailbox: Mailbox[T], message: T) -> None:
        """As `Outbox.send`."""
        self.add(transaction, self._author.message(mailbox, message), "Outbox.send()")

    def claim(self, transaction: Handle, job: ClaimedJob | None = None) -> bool:
        """As `Outbox.claim`, such as in a plain function that a worker runs in a thread."""
        job_id = claimed_id(job)
        if not isinstance(transaction, Session | Connection):
            return execute_sync(transaction, CLAIM, {"id": job_id}, "Outbox.claim()") == 1
        return self._rows.claim(connection_of(transaction, "Outbox.claim()"), job_id)

    def create_table(self) -> None:
        """As `Outbox.create_table`, of an outbox with an `Engine`.

        Raises:
            TypeError: It has an `AsyncEngine`.
        """
        if isinstance(self._database.engine, AsyncEngine):
            raise TypeError("this outbox has an AsyncEngine; use  await outbox.create_table()")
        self._database.run_sync(self._create)

    # For the outbox.

    def add(self, transaction: Handle, written: Written, what: str) -> None:
        """Write a row, for this verb."""
        if not isinstance(transaction, Session | Connection):
            self.check_database("postgresql", what)
            execute_sync(transaction, self._rows.insert, written._asdict(), what)
            return
        connection = connection_of(transaction, what)
        self.check_database(connection.dialect.name, what)
        self._rows.add(connection, written)
        self._bell.ring_at_commit(transaction)

    def check_database(self, dialect: str, what: str) -> None:
        """Raise `ValueError` if the outbox is on another kind of database."""
        if dialect != self._database.dialect:
            raise ValueError(
                f"{what} was given a transaction on {dialect}, and the outbox is on {self._database.dialect}; give one "
                "on the database of the outbox"
            )

    # Private.

    def _create(self, connection: Connection) -> None:
        self._table.create(connection, checkfirst=True)


def claimed_id(job: ClaimedJob | None) -> str:
    """The id of a job whose row can be claimed; of the current one for None.

    Raises:
        RuntimeError: It has none, or no job runs here.
    """
    if job is None:
        job = current_job()
    keep = job.headers.get(HEADER)
    if keep == "until_done":
        return job.id
    why = "was not enqueued by an outbox" if keep is None else "comes from an outbox with keep='until_sent'"
    raise RuntimeError(
        f"job {job.id} of task {job.name!r} {why}, so it has no row to claim; enqueue it by one that keeps it"
    )
