"""An outbox: jobs that are enqueued when, and only when, the caller's transaction commits.

A job is a row of that transaction, and the row stays until the job has ended. So it outlives the loss of everything
that the server has. `rows.py` has the theory of operation.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeVar, get_args

from sqlalchemy import Table
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.schema import CreateIndex, CreateTable

from inconcert._core.cancellation import cancel_all
from inconcert._redis.wire.background import in_background
from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert._rules.names import check_job_id
from inconcert._rules.payloads import JSON
from inconcert.coordinator import Coordinator, key_ring_of, session_ref_of
from inconcert.mailboxes.mailbox import Mailbox
from inconcert.queues.queue import Queue
from inconcert.sql.author import Author
from inconcert.sql.bell import Bell
from inconcert.sql.database import Database
from inconcert.sql.driver import execute
from inconcert.sql.listen import can_listen, listen
from inconcert.sql.outbox_job import outbox_job
from inconcert.sql.relay import Relay
from inconcert.sql.rows import CLAIM, Keep, Rows, Written, new_table
from inconcert.sql.sync_outbox import SyncOutbox, claimed_id
from inconcert.sql.transaction import AsyncHandle, sync_handle
from inconcert.tasks.following.job import Job, JobLink
from inconcert.tasks.front.task_coordinator import parts_of
from inconcert.tasks.running.claimed_job import ClaimedJob
from inconcert.tasks.sending.draft import Draft

R = TypeVar("R")
T = TypeVar("T")


class Outbox:
    """Enqueues jobs in the transactions of a database, PostgreSQL or SQLite.

    Define it at module level, beside the coordinator. Writing needs the database alone: the coordinator need not be
    open, and the server may be away.

    ```python
    from inconcert.sql import Outbox

    outbox = Outbox(concert, engine)
    await outbox.create_table()  # once

    async with sessions.begin() as session:
        await outbox.enqueue(session, ship.call(17))

    async with concert, outbox.relay():
        ...
    ```

    Args:
        concert: Whose jobs they are.
        engine: The database that has the table `inconcert_outbox`. A relay takes a connection of it for each turn, and
            one more to hear of commits with asyncpg and psycopg.
        keep: How long a row stays: `until_done`, until its job has ended or has claimed it; or `until_sent`, until the
            server has the job, which is lost then if the server loses it.

    Attributes:
        table: The table, for Alembic: its `metadata` has nothing else.
        sync: The same verbs for transactions without an event loop.

    Raises:
        TypeError: `engine` is not one of SQLAlchemy.
        ValueError: It is one of another database, or `keep` is something else.
    """

    def __init__(self, concert: Coordinator, engine: AsyncEngine | Engine, *, keep: Keep = "until_done") -> None:
        if keep not in get_args(Keep):
            raise ValueError(f"keep is {keep!r}; give 'until_done' or 'until_sent'")
        self._concert = concert
        self._database = Database(engine)
        self._ref = ref = session_ref_of(concert)
        parts = parts_of(concert)
        self._keyspace = parts.keyspace
        self._link = JobLink(ref, parts.keyspace, parts.watches)
        self._rows = Rows(ref.keys.namespace, self._database.dialect)
        self._author = Author(ref.keys, key_ring_of(concert), ref.observers, parts.keyspace, keep)
        self._bell = Bell()
        self.table: Table = new_table()
        self.sync = SyncOutbox(self.table, self._author, self._rows, self._database, self._bell)

    def __repr__(self) -> str:
        return f"<Outbox of {self._ref.keys.namespace!r} on {self._database.dialect}>"

    async def enqueue(self, transaction: AsyncHandle, call: Draft[R]) -> Job[R]:
        """Have a worker run this call once the transaction has committed; nothing is left of it if it rolls back.

        The job has its id at once. After the commit it is `queued`, also while it is not handed over yet, and
        `Job.result` of the returned job waits for it. Its result is kept for an hour at least.

        Args:
            transaction: An `AsyncSession` or `AsyncConnection` of SQLAlchemy whose transaction has begun; or a
                connection of asyncpg, or an `AsyncConnection` of psycopg, of whose commit only `LISTEN` tells a relay.
            call: A task and its arguments, with options if they differ: `ship.call(17)`,
                `ship.options(delay=60, unique="ship:17").call(17)`. Not with `after`, `debounce` or `newest`. A delay
                counts from now, by the database's clock; `expires` from the hand-over. If a live job has the unique
                name at the hand-over, that one stands for it, and this one is not known.

        Raises:
            TypeError: This is not a transaction, or not a call.
            ValueError: The call has `after`, `debounce` or `newest`, or the transaction is on another kind of database.
            RuntimeError: No transaction has begun, or the connection commits each statement by itself.

        Cost: 1 statement in the transaction. The relay: for each 500 rows 1 transaction, and 1 round trip to the server
            for each queue.
        """
        written = self._author.job(call)
        await self._add(transaction, written, "Outbox.enqueue()")
        return outbox_job(self._link, written.id, call, has_row=self._has_row, withdraw=self._withdraw)

    def job(self, job_id: str) -> Job[JSON]:
        """The handle of a job by its id, in any process: `queued` while it is committed and not handed over.

        `Coordinator.tasks.job` does not look into the database, so such a job is unknown to it.
        """
        return outbox_job(self._link, check_job_id(job_id), None, has_row=self._has_row, withdraw=self._withdraw)

    async def put(self, transaction: AsyncHandle, queue: Queue[T], item: T, *, delay: Seconds = 0.0) -> None:
        """Put an item into a queue once the transaction has committed.

        Its row goes when the queue has the item: the queue keeps it from then on, as far as the server keeps its data.
        While the queue is full or shut down, the row waits, and others overtake it.

        Args:
            transaction: See `enqueue`.
            queue: One of `Coordinator.queue`, with its `order` and `maxsize`.
            item: A value of the queue's type.
            delay: After how many seconds it may be taken.

        Raises:
            InvalidPayload: JSON cannot hold the item, it is not of the queue's type, or it is larger than 1 MiB.
            ValueError: `delay` is negative, or not a number.
            RuntimeError: See `enqueue`, also for the other errors.

        Cost: 1 statement in the transaction. The relay: 1 round trip for each item, without waiting for the others'.
        """
        written = self._author.item(queue, item, durations.delay(delay))
        await self._add(transaction, written, "Outbox.put()")

    async def send(self, transaction: AsyncHandle, mailbox: Mailbox[T], message: T) -> None:
        """Send a message to a mailbox once the transaction has committed.

        Its row goes when the mailbox has the message. A relay that dies just then, and has no successor for 2 min, has
        sent it, and the next one sends it again.

        Args:
            transaction: See `enqueue`.
            mailbox: One of `Coordinator.mailbox`, with its `max_messages` and `max_age`.
            message: A value of the mailbox's type.

        Raises:
            InvalidPayload: The message is not JSON, not of the mailbox's type, or too large.
            RuntimeError: See `enqueue`, also for the other errors.

        Cost: That of `put`.
        """
        await self._add(transaction, self._author.message(mailbox, message), "Outbox.send()")

    async def claim(self, transaction: AsyncHandle, job: ClaimedJob | None = None) -> bool:
        """In the body of a task: take the job's row, in the transaction of the job's effect.

        If the transaction commits, the job counts as done, and no other attempt gets True; if it rolls back, the next
        attempt does. So all that is written in that transaction is written exactly once.

        Args:
            transaction: One that has begun, on the database of the outbox.
            job: Which job; None for the current one.

        Returns:
            Whether the effect is to be made; False if an attempt has made it before, or the job was cancelled.

        Raises:
            RuntimeError: The job has no row to claim: it was not enqueued by an outbox, or by one that keeps rows
                `until_sent`; or no job runs here, or no transaction has begun.
            TypeError: This is not a transaction.

        Cost: 1 statement; it waits for another attempt that has claimed it and has not ended.
        """
        job_id = claimed_id(job)
        if not isinstance(transaction, AsyncSession | AsyncConnection):
            return await execute(transaction, CLAIM, {"id": job_id}, "Outbox.claim()") == 1
        sync_handle(transaction, "Outbox.claim()")
        is_first: bool = await transaction.run_sync(self.sync.claim, job)
        return is_first

    @asynccontextmanager
    async def relay(self) -> AsyncGenerator[None]:
        """Hand over rows in the background, while the body runs: in web processes, in workers, any number of them.

        The coordinator must be open for as long. Rows that are left are handed over by another relay, or by the next
        one.
        """
        self._ref.session  # noqa: B018 - raises if it is not open
        relay = Relay(self._ref, self._keyspace, self._rows, self._database)
        tasks = [in_background("relaying the outbox", relay.run)]
        self._bell.add(relay.woken)
        if can_listen(self._database):
            namespace = self._ref.keys.namespace
            tasks.append(
                in_background("listening for the outbox", lambda: listen(self._database, namespace, relay.woken.set))
            )
        try:
            yield
        finally:
            self._bell.remove(relay.woken)
            await cancel_all(tasks)

    async def create_table(self) -> None:
        """Create the table, unless it is there: for tries and tests. Migrations have `table` and `ddl`."""
        await self._database.run(self._create)

    def ddl(self) -> str:
        """The statements that create the table and its index, for the database of the engine."""
        dialect = self._database.engine.dialect
        statements = [str(CreateTable(self.table).compile(dialect=dialect))]
        statements += [str(CreateIndex(index).compile(dialect=dialect)) for index in self.table.indexes]
        return "\n\n".join(f"{each.strip()};" for each in statements)

    # Private.

    async def _add(self, transaction: AsyncHandle, written: Written, what: str) -> None:
        if not isinstance(transaction, AsyncSession | AsyncConnection):
            self.sync.check_database("postgresql", what)
            await execute(transaction, self._rows.insert, written._asdict(), what)
            return
        sync_handle(transaction, what)
        await transaction.run_sync(self.sync.add, written, what)

    def _create(self, connection: Connection) -> None:
        self.table.create(connection, checkfirst=True)

    async def _has_row(self, job_id: str) -> bool:
        return await self._database.run(lambda connection: self._rows.has(connection, job_id))

    async def _withdraw(self, job_id: str) -> bool:
        return await self._database.run(lambda connection: self._rows.claim(connection, job_id))


def coordinator_of(outbox: Outbox) -> Coordinator:
    """Whose jobs its rows are."""
    return outbox._concert  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


async def dispose_engine(outbox: Outbox) -> None:
    """Close the connections of its engine that nobody uses: at the end of a process that only relays."""
    engine = outbox._database.engine  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if isinstance(engine, AsyncEngine):
        await engine.dispose()
    else:
        engine.dispose()
