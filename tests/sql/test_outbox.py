"""Jobs that are rows of the caller's transaction until they have ended."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, NamedTuple

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session

from inconcert import Coordinator, InvalidPayload, JobCancelled, JobFailed, JobNotFound, JobStatus, Task
from inconcert._redis.wire import background
from inconcert.sql import Outbox
from inconcert.sql.rows import Row, Rows
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.raw import client_of


class Shop(NamedTuple):
    """A database with orders, an outbox, and a task whose effect is a row of that database."""

    concert: Coordinator
    engine: AsyncEngine
    sessions: async_sessionmaker[AsyncSession]
    outbox: Outbox
    ship: Task[[int], Any]

    async def rows(self, where: str = "1 = 1") -> int:
        """How many rows the outbox has."""
        async with self.engine.connect() as connection:
            return int(
                (await connection.execute(text(f"select count(*) from inconcert_outbox where {where}"))).scalar_one()
            )

    async def shipped(self) -> list[int]:
        """The orders that were shipped, once for each time."""
        async with self.engine.connect() as connection:
            return sorted((await connection.execute(text("select id from shipped"))).scalars())

    async def order(self, number: int) -> Any:
        """Commit an order."""
        async with self.sessions.begin() as session:
            return await self.outbox.enqueue(session, self.ship.call(number))

    async def run_until(self, fact: Any, *, timeout: float = 15.0) -> None:
        """Relay and work until this is so."""
        async with self.outbox.relay(), in_background(self.concert.run_worker("shipping")):
            await eventually(fact, timeout=timeout)

    async def look_now(self) -> None:
        """Make all rows due: nobody waits for the next look."""
        async with self.engine.begin() as connection:
            await connection.execute(text("update inconcert_outbox set look_at_ms = 1"))


async def shop_on(concert: Coordinator, engine: AsyncEngine) -> Shop:
    """A shop with its tables."""
    outbox, sessions = Outbox(concert, engine), async_sessionmaker(engine)
    await outbox.create_table()
    async with engine.begin() as connection:
        await connection.execute(text("create table shipped (id integer)"))

    @concert.task(name="ship", queue="shipping", backoff=lambda _attempt: 0.0)
    async def ship(number: int) -> int:
        async with sessions.begin() as session:
            if await outbox.claim(session):
                await session.execute(text("insert into shipped values (:id)"), {"id": number})
        return number

    return Shop(concert, engine, sessions, outbox, ship)


@pytest.fixture
async def shop(concert: Coordinator, engine: AsyncEngine) -> Shop:
    """On each database."""
    return await shop_on(concert, engine)


@pytest.fixture
async def sqlite_shop(concert: Coordinator, tmp_path: Any) -> AsyncIterator[Shop]:
    """On SQLite: for what the database does not decide."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db")
    yield await shop_on(concert, engine)
    await engine.dispose()


async def test_committed_job_runs_and_its_row_goes(shop: Shop) -> None:
    """It has its id before the commit, and is queued before it is handed over."""
    async with shop.sessions.begin() as session:
        job = await shop.outbox.enqueue(session, shop.ship.call(17))
        assert job.id
        assert await client_of(shop.concert).keys(f"{{{shop.concert._ref.keys.namespace}:tasks:0}}:bodies") == []
    assert await job.status() is JobStatus.QUEUED

    async with shop.outbox.relay(), in_background(shop.concert.run_worker("shipping")):
        assert await job.result(timeout=10) == 17
    assert await shop.shipped() == [17]
    assert await shop.rows() == 0


async def test_relay_goes_on_after_an_unexpected_error(sqlite_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whichever kind: rows that it had reserved are due again by themselves."""
    monkeypatch.setattr(background, "_PAUSE", 0.01)
    reserve, failures = Rows.reserve, 0

    def fail_once(rows: Rows, connection: Connection, most: int) -> list[Row]:
        nonlocal failures
        found = reserve(rows, connection, most)
        if found and not failures:
            failures += 1
            raise ZeroDivisionError
        return found

    monkeypatch.setattr(Rows, "reserve", fail_once)
    job = await sqlite_shop.order(1)
    async with sqlite_shop.outbox.relay(), in_background(sqlite_shop.concert.run_worker("shipping")):
        await eventually(lambda: failures == 1)
        await sqlite_shop.look_now()
        assert await job.result(timeout=10) == 1


async def test_rolled_back_transaction_leaves_nothing(shop: Shop) -> None:
    """Neither the whole one nor a savepoint; what was committed beside it stays."""
    async with shop.sessions() as session:
        await session.begin()
        lost = await shop.outbox.enqueue(session, shop.ship.call(1))
        await session.rollback()
    async with shop.sessions.begin() as session:
        kept = await shop.outbox.enqueue(session, shop.ship.call(2))
        nested = await session.begin_nested()
        await shop.outbox.enqueue(session, shop.ship.call(3))
        await nested.rollback()

    assert await lost.status() is JobStatus.UNKNOWN
    with pytest.raises(JobNotFound):
        await lost.result(timeout=1)
    async with shop.outbox.relay(), in_background(shop.concert.run_worker("shipping")):
        assert await kept.result(timeout=10) == 2
        await eventually(lambda: is_empty(shop))
    assert await shop.shipped() == [2]


async def is_empty(shop: Shop) -> bool:
    """Whether the outbox has no rows."""
    return not await shop.rows()


async def test_jobs_survive_the_loss_of_all_data(shop: Shop) -> None:
    """They were handed over, and the server is emptied before they run; each has its effect once."""
    jobs = [await shop.order(number) for number in range(20)]
    async with shop.outbox.relay():
        await eventually(lambda: all_are_known(shop, jobs))
        await client_of(shop.concert).flushall()
        async with in_background(shop.concert.run_worker("shipping")):
            await eventually(lambda: is_empty(shop))
    assert await shop.shipped() == list(range(20))


async def all_are_known(shop: Shop, jobs: list[Any]) -> bool:
    """Whether the server knows all these jobs."""
    handles = [shop.concert.tasks.job(job.id) for job in jobs]
    return all([await handle.status() is not JobStatus.UNKNOWN for handle in handles])


async def test_job_that_the_server_has_lost_is_queued(shop: Shop) -> None:
    """Until it is handed over again, also for a handle of another process; then its result comes."""
    job = await shop.order(1)
    async with shop.outbox.relay():
        await eventually(lambda: all_are_known(shop, [job]))
    await client_of(shop.concert).flushall()
    assert await shop.concert.tasks.job(job.id).status() is JobStatus.UNKNOWN
    assert await shop.outbox.job(job.id).status() is JobStatus.QUEUED
    waiting = asyncio.create_task(shop.outbox.job(job.id).result(timeout=20))
    async with shop.outbox.relay(), in_background(shop.concert.run_worker("shipping")):
        assert await waiting == 1
        assert await job.result(timeout=5) == 1


async def test_one_attempt_claims(shop: Shop) -> None:
    """A second copy of the job finds it done; one whose transaction rolled back leaves it to the next."""
    claims: list[bool] = []

    @shop.concert.task(name="twice", queue="shipping", backoff=lambda _attempt: 0.0)
    async def twice() -> None:
        async with shop.sessions.begin() as session:
            claims.append(await shop.outbox.claim(session))
            if len(claims) == 1:
                raise RuntimeError("rolls back")
        async with shop.sessions.begin() as session:
            claims.append(await shop.outbox.claim(session))

    async with shop.sessions.begin() as session:
        job = await shop.outbox.enqueue(session, twice.call())
    async with shop.outbox.relay(), in_background(shop.concert.run_worker("shipping")):
        await job.result(timeout=10)
    assert claims == [True, True, False]


async def test_job_without_a_row_cannot_claim(sqlite_shop: Shop) -> None:
    """It would count as done before it was begun."""
    shop = sqlite_shop
    job = await shop.ship.options(max_attempts=1).enqueue(1)
    early = Outbox(shop.concert, shop.engine, keep="until_sent")
    async with shop.sessions.begin() as session:
        sent = await early.enqueue(session, shop.ship.options(max_attempts=1).call(2))
    async with early.relay(), in_background(shop.concert.run_worker("shipping")):
        with pytest.raises(JobFailed, match="was not enqueued by an outbox, so it has no row to claim"):
            await job.result(timeout=10)
        with pytest.raises(JobFailed, match="comes from an outbox with keep='until_sent', so it has no row to claim"):
            await sent.result(timeout=10)
        await eventually(lambda: is_empty(shop))
    async with shop.sessions.begin() as session:
        with pytest.raises(RuntimeError, match="no job runs here"):
            await shop.outbox.claim(session)


async def test_row_of_a_job_that_does_not_claim_goes_when_it_has_ended(shop: Shop) -> None:
    """And not while it waits or runs."""
    goes_on = asyncio.Event()

    @shop.concert.task(name="plain", queue="shipping", result_ttl=0)
    async def plain() -> None:
        await goes_on.wait()

    async with shop.sessions.begin() as session:
        job = await shop.outbox.enqueue(session, plain.call())
    async with shop.outbox.relay(), in_background(shop.concert.run_worker("shipping")):
        await eventually(lambda: is_running(job))
        await shop.look_now()
        await eventually(lambda: looked_at(shop, 2))
        assert await shop.rows() == 1
        goes_on.set()
        await job.result(timeout=10)
        await shop.look_now()
        await eventually(lambda: is_empty(shop))


async def is_running(job: Any) -> bool:
    """Whether a worker has claimed it."""
    return bool(await job.status() is JobStatus.RUNNING)


async def looked_at(shop: Shop, looks: int) -> bool:
    """Whether a row was looked at so often."""
    return bool(await shop.rows(f"looks >= {looks}"))


async def test_dead_lettered_job_keeps_its_row_until_it_is_replayed(shop: Shop) -> None:
    """It is marked, not handed over again, and a replay has its effect."""
    works = False

    @shop.concert.task(name="fails", queue="shipping", max_attempts=1)
    async def fails() -> str:
        if not works:
            raise RuntimeError("not yet")
        async with shop.sessions.begin() as session:
            return "claimed" if await shop.outbox.claim(session) else "done before"

    async with shop.sessions.begin() as session:
        job = await shop.outbox.enqueue(session, fails.call())
    async with shop.outbox.relay(), in_background(shop.concert.run_worker("shipping")):
        with pytest.raises(JobFailed, match="not yet"):
            await job.result(timeout=10)
        await shop.look_now()
        await eventually(lambda: shop.rows("dead_life is not null"))
        works = True
        await shop.concert.tasks.replay(job.id)
        assert await job.result(timeout=10) == "claimed"
    assert await shop.rows() == 0


async def test_dead_lettered_job_stays_dead_when_the_server_loses_its_data(shop: Shop) -> None:
    """Its row tells of it; it was purged if the server still has its data."""
    runs: list[int] = []

    @shop.concert.task(name="fails", queue="shipping", max_attempts=1)
    async def fails(number: int) -> None:
        runs.append(number)
        raise RuntimeError("never")

    async with shop.sessions.begin() as session:
        purged, flushed = [await shop.outbox.enqueue(session, fails.call(number)) for number in (1, 2)]
    async with shop.outbox.relay(), in_background(shop.concert.run_worker("shipping")):
        for job in purged, flushed:
            with pytest.raises(JobFailed):
                await job.result(timeout=10)
        await shop.look_now()
        await eventually(lambda: shop.rows("dead_life is not null") if len(runs) == 2 else 0)
        await eventually(lambda: both_are_dead(shop))
        await shop.concert.tasks.purge(purged.id)
        await shop.look_now()
        await eventually(lambda: has_one_row(shop))
        await client_of(shop.concert).flushall()
        await shop.look_now()
        await eventually(lambda: looked_at(shop, 4))
    assert await shop.rows(f"id = '{flushed.id}' and dead_life is not null") == 1
    assert sorted(runs) == [1, 2]


async def both_are_dead(shop: Shop) -> bool:
    """Whether two rows are marked."""
    return await shop.rows("dead_life is not null") == 2


async def has_one_row(shop: Shop) -> bool:
    """Whether one is left."""
    return await shop.rows() == 1


async def test_cancelled_job_does_not_come_back(shop: Shop) -> None:
    """Before and after the hand-over, and although the server is emptied."""
    early = await shop.order(1)
    assert await early.cancel()
    assert await shop.rows() == 0
    late, by_another = await shop.order(2), await shop.order(3)
    async with shop.outbox.relay():
        await eventually(lambda: all_are_known(shop, [late, by_another]))
        assert await late.cancel()
        assert await shop.concert.tasks.job(by_another.id).cancel()
        with pytest.raises(JobCancelled):
            await late.result(timeout=5)
        await shop.look_now()
        await eventually(lambda: is_empty(shop))
        await client_of(shop.concert).flushall()
        async with in_background(shop.concert.run_worker("shipping")):
            marker = await shop.order(4)
            assert await marker.result(timeout=10) == 4
    assert await shop.shipped() == [4]


async def test_options_of_a_job_are_kept(shop: Shop) -> None:
    """A delay counts from the call; a unique name that a live job has ends the row."""
    async with shop.sessions.begin() as session:
        later = await shop.outbox.enqueue(session, shop.ship.options(delay=3600, headers={"a": "b"}).call(1))
        first = await shop.outbox.enqueue(session, shop.ship.options(unique="u").call(2))
        second = await shop.outbox.enqueue(session, shop.ship.options(unique="u").call(3))
    async with shop.outbox.relay():
        await eventually(lambda: all_are_known(shop, [later, first]))
        assert await later.status() is JobStatus.DELAYED
        assert (await shop.concert.tasks.describe(later.id))[later.id].headers["a"] == "b"
        await eventually(lambda: has_two_rows(shop))
        assert await second.status() is JobStatus.UNKNOWN
        assert await later.reschedule(delay=0)
        async with in_background(shop.concert.run_worker("shipping")):
            await eventually(lambda: is_empty(shop))
    assert await shop.shipped() == [1, 2]


async def has_two_rows(shop: Shop) -> bool:
    """Whether two are left."""
    return await shop.rows() == 2


async def test_many_rows_go_in_order(shop: Shop) -> None:
    """More than one turn of a relay takes, by two relays."""
    order: list[int] = []

    @shop.concert.task(name="note", queue="shipping")
    async def note(number: int) -> None:
        order.append(number)

    async with shop.sessions.begin() as session:
        for number in range(1200):
            await shop.outbox.enqueue(session, note.call(number))
    async with shop.outbox.relay():
        await eventually(lambda: has_bodies(shop, 1200))
    async with in_background(shop.concert.run_worker("shipping", concurrency=1)):
        await eventually(lambda: len(order) == 1200, timeout=30)
    assert order == list(range(1200))


async def has_bodies(shop: Shop, count: int) -> bool:
    """Whether the server has so many jobs: a row that is only reserved is not handed over yet."""
    bodies = f"{{{shop.concert._ref.keys.namespace}:tasks:0}}:bodies"
    return bool(await client_of(shop.concert).hlen(bodies) == count)


async def test_writing_needs_no_server(engine: AsyncEngine) -> None:
    """The coordinator is not open, and there is nobody at its address."""
    concert = Coordinator("redis://127.0.0.1:1/0", namespace="shop")
    outbox = Outbox(concert, engine)
    await outbox.create_table()

    @concert.task
    async def ship() -> None: ...

    async with engine.begin() as connection:
        job = await outbox.enqueue(connection, ship.call())
    async with engine.connect() as connection:
        assert (await connection.execute(text("select id from inconcert_outbox"))).scalar_one() == job.id


async def test_outside_of_a_transaction_nothing_is_sent(sqlite_shop: Shop) -> None:
    """And what cannot be kept in a row is refused, before anything is written."""
    shop = sqlite_shop
    wrong: Any = shop.ship
    async with shop.sessions() as session:
        with pytest.raises(RuntimeError, match=r"Outbox.enqueue\(\) was called outside of a transaction"):
            await shop.outbox.enqueue(session, shop.ship.call(1))
        with pytest.raises(RuntimeError, match=r"outside of a transaction"):
            await shop.outbox.enqueue(shop.engine.connect(), shop.ship.call(1))
    async with shop.sessions.begin() as session:
        job = await shop.outbox.enqueue(session, shop.ship.call(1))
        with pytest.raises(ValueError, match="has after=, and what it runs after may be gone"):
            await shop.outbox.enqueue(session, shop.ship.options(after=[job]).call(1))
        with pytest.raises(ValueError, match="has debounce=, and a row is not replaced"):
            await shop.outbox.enqueue(session, shop.ship.options(debounce=1, unique="u").call(1))
        with pytest.raises(ValueError, match="has newest=, and an older row may be handed over again"):
            await shop.outbox.enqueue(session, shop.ship.options(newest="replaces", unique="u").call(1))
        with pytest.raises(TypeError, match="give a call of a task"):
            await shop.outbox.enqueue(session, wrong)
    assert await shop.rows() == 1
    with pytest.raises(ValueError, match="keep is 'forever'; give 'until_done' or 'until_sent'"):
        Outbox(shop.concert, shop.engine, keep="forever")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - that is the point
    with pytest.raises(TypeError, match="give an AsyncEngine or an Engine"):
        Outbox(shop.concert, wrong)


@pytest.mark.parametrize("kind", ["sqlite", "psycopg"])
async def test_plain_transactions_have_the_same_verbs(
    kind: str, request: pytest.FixtureRequest, tmp_path: Any, concert: Coordinator
) -> None:
    """With an engine without an event loop, in a relay and in a plain function, too."""
    url = f"sqlite:///{tmp_path}/a.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    engine = create_engine(url.replace("+asyncpg", "+psycopg"))
    outbox = Outbox(concert, engine)
    outbox.sync.create_table()
    await outbox.create_table()

    @concert.task(queue="shipping")
    def ship() -> bool:
        with Session(engine).begin() as transaction:
            return outbox.sync.claim(transaction.session)

    with Session(engine) as session, session.begin():
        enqueued = outbox.sync.enqueue(session, ship.call())
    async with outbox.relay(), in_background(concert.run_worker("shipping")):
        assert await outbox.job(enqueued.id).result(timeout=10) is True
    engine.dispose()


async def test_items_and_messages_go_at_the_commit(shop: Shop) -> None:
    """In their order, once, and not if it is rolled back; a full queue lets the row wait."""
    queue, mailbox = shop.concert.queue("parcels", int, maxsize=2), shop.concert.mailbox("ann", str)
    async with shop.sessions() as session:
        await session.begin()
        await shop.outbox.put(session, queue, 0)
        await shop.outbox.send(session, mailbox, "never")
        await session.rollback()
    async with shop.sessions.begin() as session:
        for number in (1, 2, 3):
            await shop.outbox.put(session, queue, number)
        await shop.outbox.put(session, shop.concert.queue("later", int), 4, delay=3600)
        for word in "a", "b":
            await shop.outbox.send(session, mailbox, word)
    async with shop.outbox.relay():
        await eventually(lambda: has_one_row(shop))
        assert [message.body for message in await mailbox.fetch(timeout=5)] == ["a", "b"]
        assert (await shop.concert.queue("later", int).counts()).delayed == 1
        taken: list[int] = []
        for _ in range(3):
            async with await queue.get(timeout=10) as item:
                taken.append(item)
            await shop.look_now()
        assert taken == [1, 2, 3]
        await eventually(lambda: is_empty(shop))


async def test_item_that_cannot_be_sent_is_refused_in_the_transaction(sqlite_shop: Shop) -> None:
    """Before anything is written."""
    wrong: Any = object()
    async with sqlite_shop.sessions.begin() as session:
        with pytest.raises(InvalidPayload):
            await sqlite_shop.outbox.put(session, sqlite_shop.concert.queue("q", int), wrong)
        with pytest.raises(InvalidPayload):
            await sqlite_shop.outbox.send(session, sqlite_shop.concert.mailbox("m"), wrong)
        with pytest.raises(ValueError, match="delay"):
            await sqlite_shop.outbox.put(session, sqlite_shop.concert.queue("q", int), 1, delay=-1)
    assert await sqlite_shop.rows() == 0


async def test_commit_wakes_the_relay_at_once(shop: Shop) -> None:
    """It does not wait for its next look: of 20 commits, most start sooner than that is."""
    loop, waits = asyncio.get_running_loop(), list[float]()
    async with shop.outbox.relay(), in_background(shop.concert.run_worker("shipping")):
        for number in range(20):
            job = await shop.order(number)
            began = loop.time()
            await eventually(partial(is_known, shop, job.id))
            waits.append(loop.time() - began)
    assert sorted(waits)[10] < 0.3


async def is_known(shop: Shop, job_id: str) -> bool:
    """Whether the server knows it."""
    return await shop.concert.tasks.job(job_id).status() is not JobStatus.UNKNOWN


async def test_signature_is_that_of_the_process_that_has_written(
    server: Any, namespace: str, engine: AsyncEngine
) -> None:
    """A row that somebody else has written is dead-lettered, as any job that is not signed."""
    keys = {"a": "0123456789abcdef"}
    async with Coordinator(server.url, namespace=namespace, signing_keys=keys) as concert:
        shop = await shop_on(concert, engine)
        good, forged = await shop.order(1), await shop.order(2)
        async with engine.begin() as connection:
            await connection.execute(
                text(
                    "update inconcert_outbox set body = (select body from inconcert_outbox where id = :good) "
                    "where id = :id"
                ),
                {"good": good.id, "id": forged.id},
            )
        async with shop.outbox.relay(), in_background(concert.run_worker("shipping")):
            assert await good.result(timeout=10) == 1
            with pytest.raises(JobFailed):
                await forged.result(timeout=10)
        assert await shop.shipped() == [1]


def test_ddl_is_what_creates_the_table(tmp_path: Any) -> None:
    """For migrations that are written in SQL."""
    ddl = Outbox(Coordinator(), create_engine(f"sqlite:///{tmp_path}/a.db")).ddl()
    assert "CREATE TABLE inconcert_outbox (" in ddl
    assert "CREATE INDEX inconcert_outbox_due ON inconcert_outbox (namespace, look_at_ms, seq);" in ddl
