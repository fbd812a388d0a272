"""A database refuses the transaction of a holder that is too late."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import create_engine, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session

from inconcert import Coordinator, InconcertError
from inconcert.coordinator import session_ref_of
from inconcert.sql import StaleToken, fence, fence_statement, fence_sync, fences
from tests.support.processes import spawn, tell


@pytest.fixture
async def sessions(engine: AsyncEngine) -> async_sessionmaker[AsyncSession]:
    """Sessions on a database with the table of fences, and one to write to."""
    async with engine.begin() as connection:
        await connection.run_sync(fences.create)
        await connection.execute(text("create table item (name varchar(20), writer varchar(20))"))
        await connection.execute(text("insert into item values ('item', 'nobody')"))
    return async_sessionmaker(engine)


async def write(sessions: async_sessionmaker[AsyncSession], fenced: Any, writer: str, *, name: str = "item") -> None:
    """What a holder does in its body."""
    async with sessions.begin() as session:
        await fence(session, fenced)
        change = text("update item set writer = :writer where name = :name")
        await session.execute(change, {"writer": writer, "name": name})


async def writer_of(sessions: async_sessionmaker[AsyncSession], *, name: str = "item") -> str:
    """Who wrote last."""
    async with sessions() as session:
        question = text("select writer from item where name = :name")
        return str((await session.execute(question, {"name": name})).scalar_one())


async def test_older_token_is_refused_and_rolls_back(sessions: async_sessionmaker[AsyncSession]) -> None:
    """A newer one, and the same again, are not."""
    await write(sessions, ("item", 5), "first")
    await write(sessions, ("item", 5), "first again")
    await write(sessions, ("item", 7), "second")

    with pytest.raises(StaleToken, match="fence 'item' refuses token 6: a newer holder has written") as caught:
        await write(sessions, ("item", 6), "late")

    assert isinstance(caught.value, InconcertError)
    assert (caught.value.name, caught.value.fencing_token) == ("item", 6)
    assert await writer_of(sessions) == "second"


async def test_names_do_not_disturb_each_other(sessions: async_sessionmaker[AsyncSession]) -> None:
    """Each has a row of its own."""
    await write(sessions, ("a", 2**63 - 1), "first")
    await write(sessions, ("b", 0), "second")

    async with sessions() as session:
        assert {tuple(row) for row in await session.execute(select(fences))} == {("a", 2**63 - 1), ("b", 0)}


async def test_lease_is_named_by_kind_and_namespace(
    concert: Coordinator, namespace: str, sessions: async_sessionmaker[AsyncSession]
) -> None:
    """A lock, a write lock, a semaphore and an election of one name have a fence each, whatever is in the name."""
    async with concert.lock("a}:holders") as lease:
        await write(sessions, lease, "lock")
    async with concert.rwlock("a").write() as writing:
        await write(sessions, writing, "rwlock")
    async with concert.semaphore("a", limit=1) as permit:
        await write(sessions, permit, "semaphore")
    async with concert.election("a") as term:
        await write(sessions, term, "term")

    async with sessions() as session:
        rows = {row.name: row.token for row in await session.execute(select(fences))}
    assert rows == {
        f"{namespace}:lock:a}}:holders": lease.fencing_token,
        f"{namespace}:rwlock:a": writing.fencing_token,
        f"{namespace}:semaphore:a": permit.fencing_token,
        f"{namespace}:election:a": term.number,
    }


async def test_next_holder_is_newer(concert: Coordinator, sessions: async_sessionmaker[AsyncSession]) -> None:
    """So the earlier lease is refused once the later one has written, and not before."""
    lock = concert.lock("item")
    async with lock as earlier:
        await write(sessions, earlier, "earlier")
    async with lock as later:
        await write(sessions, earlier, "earlier again")
        await write(sessions, later, "later")
        with pytest.raises(StaleToken):
            await write(sessions, earlier, "late")

    assert await writer_of(sessions) == "later"


async def test_newer_holder_waits_for_a_transaction_that_has_fenced(postgres_url: str) -> None:
    """And then writes last: the older one's write is there before, never after."""
    engine = create_async_engine(postgres_url)
    async with engine.begin() as connection:
        await connection.run_sync(fences.create)
    order: list[str] = []

    async def newer() -> None:
        async with engine.begin() as connection:
            await fence(connection, ("item", 2))
            order.append("newer")

    async with engine.begin() as connection:
        await fence(connection, ("item", 1))
        waiting = asyncio.create_task(newer())
        async with engine.connect() as other:
            blocked = text("select count(*) from pg_stat_activity where wait_event_type = 'Lock'")
            async with asyncio.timeout(10):
                while not (await other.execute(blocked)).scalar_one():
                    await other.rollback()
        order.append("older")
    await waiting
    assert order == ["older", "newer"]
    await engine.dispose()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_older_holder_is_kept_out_at_each_isolation_level(postgres_url: str, level: Any) -> None:
    """One whose snapshot is from before the newer holder's write fails, by the fence or by the database."""
    engine = create_async_engine(postgres_url, isolation_level=level)
    async with engine.begin() as connection:
        await connection.run_sync(fences.create)
    async with engine.connect() as older:
        await older.execute(text("select 1 from inconcert_fences"))  # its snapshot
        async with engine.begin() as newer:
            await fence(newer, ("item", 2))
        with pytest.raises(Exception, match=r"newer holder|could not serialize"):
            await fence(older, ("item", 1))
    await engine.dispose()


async def test_savepoint_that_is_rolled_back_takes_the_fence_with_it(
    sessions: async_sessionmaker[AsyncSession],
) -> None:
    """As all that was written in it."""
    async with sessions.begin() as session:
        nested = await session.begin_nested()
        await fence(session, ("item", 9))
        await nested.rollback()
        await fence(session, ("item", 5))

    async with sessions() as session:
        assert (await session.execute(select(fences.c.token))).scalar_one() == 5


async def test_statement_is_for_own_transactions(engine: AsyncEngine) -> None:
    """It returns no row when the token is too small."""
    async with engine.begin() as connection:
        await connection.run_sync(fences.create)
        assert (await connection.execute(fence_statement(("a", 2)))).all() == [(2,)]
        assert (await connection.execute(fence_statement(("a", 1)))).all() == []


@pytest.mark.parametrize("kind", ["sqlite", "psycopg"])
def test_plain_transactions_have_the_same_fence(kind: str, request: pytest.FixtureRequest, tmp_path: Any) -> None:
    """A session and a connection without an event loop: a plain call."""
    url = f"sqlite:///{tmp_path}/a.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    engine = create_engine(url.replace("+asyncpg", "+psycopg"))
    with engine.begin() as connection:
        fences.create(connection)
        fence_sync(connection, ("item", 2))
    with pytest.raises(StaleToken), Session(engine).begin() as transaction:
        fence_sync(transaction.session, ("item", 1))
    engine.dispose()


async def test_outside_of_a_transaction_it_is_refused_before_anything_is_sent() -> None:
    """There is no server at this address."""
    engine = create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:1/none")
    async with AsyncSession(engine) as session:
        with pytest.raises(RuntimeError, match=r"fence\(\) was called outside of a transaction; call it inside"):
            await fence(session, ("a", 1))
    with pytest.raises(RuntimeError, match="outside of a transaction"):
        await fence(engine.connect(), ("a", 1))
    with pytest.raises(RuntimeError, match="outside of a transaction"):
        fence_sync(Session(create_engine("sqlite://")), ("a", 1))


async def test_autocommit_is_refused(engine: AsyncEngine) -> None:
    """The lock of the row would end with the statement."""
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    async with autocommit.begin() as connection:
        with pytest.raises(RuntimeError, match="a connection in AUTOCOMMIT"):
            await fence(connection, ("a", 1))
    whole = create_async_engine(engine.url, isolation_level="AUTOCOMMIT")
    async with whole.begin() as connection:
        with pytest.raises(RuntimeError, match="a connection in AUTOCOMMIT"):
            await fence(connection, ("a", 1))
    await whole.dispose()


@pytest.mark.parametrize("fenced", [("", 1), ("a\0", 1), (b"a", 1), ("a", -1), ("a", 2**63), ("a", 1.0), ("a", True)])
def test_bad_pair_is_refused(fenced: Any) -> None:
    """With what would be right."""
    with pytest.raises(ValueError, match=r"give a (text|whole number)"):
        fence_statement(fenced)


async def test_what_has_no_token_is_refused(concert: Coordinator) -> None:
    """A membership has none, and no other object; and only what SQLAlchemy knows is a transaction."""
    async with concert.members("crawlers") as member:
        wrong: Any = member
        with pytest.raises(TypeError, match="has no fencing token; give the lease of a lock"):
            fence_statement(wrong)
        with pytest.raises(TypeError, match="give an AsyncSession or an AsyncConnection"):
            await fence(wrong, ("a", 1))
        with pytest.raises(TypeError, match="give a Session or a Connection"):
            fence_sync(wrong, ("a", 1))


async def hold_and_write(where: tuple[str, str, str], name: str, fenced: bool, rounds: int) -> None:
    """In each round take the lock, be stopped for longer than the lease, and write then."""
    url, namespace, database = where
    engine = create_async_engine(database)
    async with Coordinator(url, namespace=namespace) as concert, engine.connect() as connection:
        for _ in range(rounds):
            lease = await concert.lock(name, ttl=0.5).acquire()
            await connection.execute(text("select 1"))
            await connection.rollback()
            tell("holding")
            async with asyncio.timeout(60):
                while not lease.is_lost:  # it stands still meanwhile
                    await asyncio.sleep(0.01)
            try:
                async with connection.begin():
                    if fenced:
                        await fence(connection, lease)
                    await connection.execute(text("update item set writer = 'late' where name = :name"), {"name": name})
            except StaleToken:
                tell("ended", how="refused")
            else:
                tell("ended", how="written")
    await engine.dispose()


async def overtaken(
    server: Any, concert: Coordinator, engine: AsyncEngine, name: str, *, fenced: bool, rounds: int
) -> tuple[list[str], list[str]]:
    """Stop a holder in each round, and write meanwhile; returns what became of its writes, and who wrote last."""
    sessions = async_sessionmaker(engine)
    database = engine.url.render_as_string(hide_password=False)
    where = server.url, session_ref_of(concert).keys.namespace, database
    how: list[str] = []
    writers: list[str] = []
    async with spawn("tests.sql.test_fence:hold_and_write", where, name, fenced, rounds) as child:
        for _ in range(rounds):
            await child.wait_for("holding", timeout=60.0)
            child.pause()
            async with concert.lock(name, timeout=60.0) as lease:  # when the lease of the other has lapsed
                await write(sessions, lease, "newer", name=name)
            child.resume()
            how.append((await child.wait_for("ended", timeout=60.0))["how"])
            writers.append(await writer_of(sessions, name=name))
    return how, writers


@pytest.mark.usefixtures("sessions")
@pytest.mark.parametrize("fenced", [False, True])
async def test_holder_that_stood_still_gets_nothing_in(
    server: Any, concert: Coordinator, engine: AsyncEngine, fenced: bool
) -> None:
    """With the fence; without, its write is the last one, so that the test tests something."""
    how, writers = await overtaken(server, concert, engine, "item", fenced=fenced, rounds=1)
    assert how == (["refused"] if fenced else ["written"])
    assert writers == (["newer"] if fenced else ["late"])


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("fenced", "rounds"), [(False, 100), (True, 1000)])
async def test_holders_that_stood_still_get_nothing_in(
    server: Any, concert: Coordinator, postgres_url: str, fenced: bool, rounds: int
) -> None:
    """Ten at a time, each a process with a lock of its own, which is stopped again and again."""
    engine = create_async_engine(postgres_url, pool_size=10)
    names = [f"item{number}" for number in range(10)]
    async with engine.begin() as connection:
        await connection.run_sync(fences.create)
        await connection.execute(text("create table item (name varchar(20), writer varchar(20))"))
        await connection.execute(text("insert into item values (:name, 'nobody')"), [{"name": name} for name in names])
    each = [overtaken(server, concert, engine, name, fenced=fenced, rounds=rounds // len(names)) for name in names]
    for how, writers in await asyncio.gather(*each):
        assert set(how) == ({"refused"} if fenced else {"written"})
        assert set(writers) == ({"newer"} if fenced else {"late"})
    await engine.dispose()
