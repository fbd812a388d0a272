"""What PostgreSQL alone has: rights of users, and isolation levels."""

import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from inconcert import ClaimedJob, Coordinator
from inconcert.sql import Outbox, fence, fences
from tests.support.background import again_and_again, in_background
from tests.support.databases import RealPostgres
from tests.support.eventually import eventually

LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Any:
    """Each isolation level."""
    return request.param


@pytest.fixture
async def engine(postgres_url: str, level: Any) -> AsyncIterator[AsyncEngine]:
    """All transactions of which have the level."""
    engine = create_async_engine(postgres_url, isolation_level=level)
    yield engine
    await engine.dispose()


async def count(engine: AsyncEngine, table: str) -> int:
    """How many rows it has."""
    async with engine.connect() as connection:
        return int((await connection.execute(text(f"select count(*) from {table}"))).scalar_one())


@asynccontextmanager
async def claimed(concert: Coordinator, engine: AsyncEngine) -> AsyncGenerator[tuple[Outbox, ClaimedJob]]:
    """A job with a row, which was handed over, and which a worker has claimed; no relay looks at it."""
    outbox = Outbox(concert, engine)
    await outbox.create_table()

    @concert.task(name="ship", queue="shipping")
    async def ship() -> None: ...

    async with engine.begin() as connection:
        await outbox.enqueue(connection, ship.call())
    async with concert.consume("shipping") as jobs:
        async with outbox.relay():
            [job] = await jobs.claim(1)
        yield outbox, job
        await job.ack()


async def look(connection: AsyncConnection) -> None:
    """Begin the transaction: at a strict level it sees the database as it is now."""
    await connection.execute(text("select 1 from inconcert_outbox"))


async def is_blocked(engine: AsyncEngine) -> bool:
    """Whether a transaction waits for another one."""
    async with engine.connect() as connection:
        waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        return bool((await connection.execute(text(waits))).scalar_one())


@pytest.mark.parametrize("ends", ["commit", "rollback"])
async def test_one_of_two_transactions_claims(concert: Coordinator, engine: AsyncEngine, level: str, ends: str) -> None:
    """The second waits for the first, and has the row only if that rolls back."""
    async with claimed(concert, engine) as (outbox, job), engine.connect() as first, engine.connect() as second:
        for connection in (first, second):
            await look(connection)
        assert await outbox.claim(first, job)
        async with in_background(outcome(outbox, second, job)) as waiting:
            await eventually(lambda: is_blocked(engine))
            await getattr(first, ends)()
            outcome_of_second = await waiting
        if ends == "rollback":
            assert outcome_of_second is True
        elif level != LEVELS[0]:
            assert outcome_of_second == "could not serialize"
            await second.rollback()
            await look(second)
            assert not await outbox.claim(second, job)
        else:
            assert outcome_of_second is False


async def test_claim_of_a_row_that_a_relay_has_moved_on(concert: Coordinator, engine: AsyncEngine, level: str) -> None:
    """A strict transaction that began before fails, and the next one claims."""
    async with claimed(concert, engine) as (outbox, job), engine.connect() as connection:
        await look(connection)
        async with engine.begin() as relay:
            await relay.execute(text("update inconcert_outbox set looks = looks + 1"))
        if level != LEVELS[0]:
            assert await outcome(outbox, connection, job) == "could not serialize"
            await connection.rollback()
            await look(connection)
        assert await outbox.claim(connection, job)


async def outcome(outbox: Outbox, connection: AsyncConnection, job: ClaimedJob) -> bool | str:
    """Of a claim."""
    try:
        return await outbox.claim(connection, job)
    except DBAPIError as error:
        if "could not serialize" not in str(error):
            raise
        return "could not serialize"


async def test_effects_are_made_once_at_each_level(concert: Coordinator, engine: AsyncEngine) -> None:
    """While relays move the rows on, and other transactions write what these read."""
    jobs = 30
    outbox = Outbox(concert, engine)
    await outbox.create_table()
    async with engine.begin() as connection:
        await connection.execute(text("create table shipped (id integer, number integer)"))

    @concert.task(name="ship", queue="shipping", max_attempts=200, backoff=lambda _attempt: 0.0)
    async def ship(number: int) -> None:
        async with engine.begin() as connection:
            shipped = (await connection.execute(text("select count(*) from shipped where id < 5"))).scalar_one()
            if await outbox.claim(connection):
                row = {"id": number, "number": shipped}
                await connection.execute(text("insert into shipped values (:id, :number)"), row)

    async def look_at_all() -> None:
        async with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            await connection.execute(text("update inconcert_outbox set look_at_ms = 1"))

    async with engine.begin() as connection:
        for number in range(jobs):
            await outbox.enqueue(connection, ship.call(number))
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(outbox.relay())
        await stack.enter_async_context(again_and_again(look_at_all, every=0.01))
        await stack.enter_async_context(in_background(concert.run_worker("shipping", concurrency=5)))

        async def is_empty() -> bool:
            return await count(engine, "inconcert_outbox") == 0

        await eventually(is_empty, timeout=30)
    async with engine.connect() as connection:
        assert sorted((await connection.execute(text("select id from shipped"))).scalars()) == [*range(jobs)]


class Users:
    """Users of a database of its own, each with nothing but the rights that it is given."""

    def __init__(self, postgres: RealPostgres, admin: AsyncEngine) -> None:
        self._postgres = postgres
        self._admin = admin
        self.engines: list[AsyncEngine] = []

    async def user(self, rights: str, table: str = "inconcert_outbox") -> AsyncEngine:
        """A new one, with these rights on a table."""
        name = f"user_{secrets.token_hex(4)}"
        async with self._admin.begin() as connection:
            await connection.execute(text(f"create user {name}"))
            await connection.execute(text(f"grant {rights} on {table} to {name}"))
        engine = create_async_engine(self._postgres.url("asyncpg", str(self._admin.url.database), user=name))
        self.engines.append(engine)
        return engine


@pytest.fixture
async def users(postgres: RealPostgres, postgres_url: str) -> AsyncIterator[Users]:
    """Of an empty database, with the tables of `inconcert.sql`."""
    admin = create_async_engine(postgres_url)
    async with admin.begin() as connection:
        await connection.run_sync(fences.create)
        await connection.execute(text("create table shipped (id integer)"))
        await connection.execute(text("grant insert on shipped to public"))
    users = Users(postgres, admin)
    yield users
    for engine in (admin, *users.engines):
        await engine.dispose()


async def test_each_user_needs_the_rights_of_the_page_alone(
    concert: Coordinator, users: Users, postgres_url: str
) -> None:
    """Who enqueues, who relays, and a task that claims: three users, and a job from its call to its effect."""
    admin = create_async_engine(postgres_url)
    await Outbox(concert, admin).create_table()
    producer, relay, worker = [
        Outbox(concert, await users.user(rights)) for rights in ("insert", "select, update, delete", "select, delete")
    ]
    enqueuing, _, working = users.engines

    @concert.task(name="ship", queue="shipping", max_attempts=1)
    async def ship(number: int) -> None:
        async with working.begin() as connection:
            if await worker.claim(connection):
                await connection.execute(text("insert into shipped values (:id)"), {"id": number})

    @concert.task(name="note", queue="shipping", max_attempts=1)
    async def note() -> None: ...

    async with enqueuing.begin() as connection:
        job = await producer.enqueue(connection, ship.call(17))
        await producer.enqueue(connection, note.call())  # the relay ends its row, as it does not claim
    async with relay.relay(), in_background(concert.run_worker("shipping")):
        await relay.job(job.id).result(timeout=10)

        async def is_empty() -> bool:
            return await count(admin, "inconcert_outbox") == 0

        await eventually(is_empty)
    assert await count(admin, "shipped") == 1
    await admin.dispose()


@pytest.mark.parametrize("rights", ["insert", "insert, delete", "insert, select, update"])
async def test_user_who_may_enqueue_may_not_claim(
    concert: Coordinator, users: Users, postgres_url: str, rights: str
) -> None:
    """Without one of the rights to do so, and whatever else it has."""
    admin = create_async_engine(postgres_url)
    async with claimed(concert, admin) as (_, job):
        engine = await users.user(rights)
        with pytest.raises(DBAPIError, match="permission denied for table inconcert_outbox"):
            async with engine.begin() as connection:
                await Outbox(concert, engine).claim(connection, job)
    await admin.dispose()


@pytest.mark.parametrize("rights", ["select, insert", "select, update", "insert, update"])
async def test_fence_needs_to_read_insert_and_update(users: Users, rights: str) -> None:
    """All three of them, and nothing else."""
    enough = await users.user("select, insert, update", "inconcert_fences")
    async with enough.begin() as connection:
        await fence(connection, ("item", 1))

    too_little = await users.user(rights, "inconcert_fences")
    with pytest.raises(DBAPIError, match="permission denied for table inconcert_fences"):
        async with too_little.begin() as connection:
            await fence(connection, ("item", 1))
