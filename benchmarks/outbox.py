"""Jobs that are rows of a transaction, beside jobs that are enqueued without a database, on one private server.

python -m benchmarks.outbox [--quick]

Each database is a private one: a PostgreSQL that does not sync to its disk, and a file of SQLite with WAL.  One job at
a time is committed, or enqueued; the worker sleeps before.  Its body claims the row.
"""

import argparse
import asyncio
import math
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from benchmarks import results
from benchmarks.figures import Table, percentile, ratio
from benchmarks.processes import next_line, start
from benchmarks.server import version
from inconcert import Coordinator
from inconcert.sql import Outbox
from tests.support.databases import RealPostgres

NAMESPACE = "outbox"
PAUSE = 0.01  # seconds between two jobs, in which all fall asleep
BEHIND = 10_000  # rows when a relay begins
AT_ONCE = 500  # in one transaction


class Shop:
    """What enqueues jobs, and sees them start.

    Args:
        concert: An open coordinator.
        engine: A database without tables.
    """

    def __init__(self, concert: Coordinator, engine: AsyncEngine) -> None:
        self.outbox = Outbox(concert, engine)
        self._engine = engine
        self._started = asyncio.Event()
        self._started_at = 0.0
        self._concert = concert
        self._task = concert.task(name=f"ship_{engine.dialect.name}", queue=engine.dialect.name)(self._ship)

    async def create(self) -> None:
        """Create the tables."""
        await self.outbox.create_table()
        async with self._engine.connect() as connection:
            if self._engine.dialect.name == "sqlite":
                await connection.execute(text("pragma journal_mode = wal"))
        async with self._engine.begin() as connection:
            await connection.execute(text("create table orders (id integer)"))

    async def _ship(self, *, has_row: bool) -> None:
        self._started_at = time.perf_counter()
        self._started.set()
        if has_row:
            async with self._engine.begin() as connection:
                await self.outbox.claim(connection)

    @asynccontextmanager
    async def worker(self) -> AsyncGenerator[None]:
        """Run jobs meanwhile."""
        running = asyncio.create_task(self._concert.run_worker(self._engine.dialect.name))
        yield
        running.cancel()
        await asyncio.wait([running])

    async def until_start(self, begin: Callable[[], Awaitable[float]]) -> float:
        """Milliseconds from the instant that this returns to the first line of its job."""
        self._started.clear()
        began_at = await begin()
        await self._started.wait()
        await asyncio.sleep(PAUSE)
        return (self._started_at - began_at) * 1000

    async def enqueue(self) -> float:
        """Enqueue a job; returns the instant before."""
        began_at = time.perf_counter()
        await self._task.enqueue(has_row=False)
        return began_at

    async def commit(self) -> float:
        """Commit an order and its job; returns the instant before the commit."""
        async with self._engine.connect() as connection, connection.begin() as transaction:
            await connection.execute(text("insert into orders values (1)"))
            await self.outbox.enqueue(connection, self._task.call(has_row=True))
            began_at = time.perf_counter()
            await transaction.commit()
        return began_at

    async def fall_behind(self) -> None:
        """Commit many jobs that nobody runs."""
        for _ in range(BEHIND // AT_ONCE):
            async with self._engine.begin() as connection:
                for _ in range(AT_ONCE):
                    await self.outbox.enqueue(connection, self._task.options(queue="nobody").call(has_row=True))

    async def enqueue_many(self) -> None:
        """The same without a database."""
        for _ in range(BEHIND // AT_ONCE):
            calls = [self._task.options(queue="nobody").call(has_row=False) for _ in range(AT_ONCE)]
            await self._concert.enqueue_many(calls)

    async def catch_up(self) -> None:
        """Hand over all rows."""
        async with self.outbox.relay(), self._engine.connect() as connection:
            while (await connection.execute(text("select 1 from inconcert_outbox where looks = 0 limit 1"))).first():
                await connection.rollback()
                await asyncio.sleep(0.005)

    async def empty(self) -> None:
        """Forget all rows."""
        async with self._engine.begin() as connection:
            await connection.execute(text("delete from inconcert_outbox"))


async def pick_up(table: Table, title: str, shop: Shop, count: int) -> None:
    """Rows with the time until jobs start, by their outbox and without."""
    ours: list[float] = []
    plain: list[float] = []
    async with shop.worker():
        for begin, took in ((shop.commit, ours), (shop.enqueue, plain)):
            await shop.until_start(begin)  # all are connected
            took.clear()
        for _ in range(count):
            ours.append(await shop.until_start(shop.commit))
            plain.append(await shop.until_start(shop.enqueue))
    for name, share in (("p50", 0.5), ("p90", 0.9)):
        of_ours, of_plain = percentile(ours, share), percentile(plain, share)
        table.row(f"{title}, {name}, ms", of_ours, of_plain, of_ours - of_plain, ratio(of_ours, of_plain))


async def seconds(work: Awaitable[object]) -> float:
    began_at = time.perf_counter()
    await work
    return time.perf_counter() - began_at


async def measure(*, quick: bool) -> Table:
    count = 50 if quick else 400
    table = Table("outbox", "enqueue", "more", "ratio", width=58)
    async with AsyncExitStack() as stack:
        postgres = stack.enter_context(RealPostgres())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        concert = await stack.enter_async_context(Coordinator.embedded(namespace=NAMESPACE))
        urls = {"PostgreSQL": postgres.url("asyncpg"), "SQLite": f"sqlite+aiosqlite:///{folder}/shop.db"}
        for name, url in urls.items():
            engine = create_async_engine(url)
            stack.push_async_callback(engine.dispose)
            shop = Shop(concert, engine)
            await shop.create()
            async with shop.outbox.relay():
                await pick_up(table, f"{name}: commit to start", shop, count)
            if name == "PostgreSQL":
                assert concert.url
                child = await start("outbox", "--relay", concert.url, url)
                await next_line(child)
                await pick_up(table, f"{name}, relay in another process", shop, count)
                child.terminate()
                await child.wait()
            await shop.fall_behind()
            ours = BEHIND / await seconds(shop.catch_up())
            plain = BEHIND / await seconds(shop.enqueue_many())
            table.row(f"{name}: jobs handed over, per second", ours, plain, math.nan, ratio(ours, plain))
            await shop.empty()
        table.versions["server"] = await version(concert.redis)
        table.versions["postgresql"] = postgres.run("show server_version")
    return table


async def relay(server: str, database: str) -> None:
    """Hand over until this is killed."""
    engine = create_async_engine(database)
    async with Coordinator(server, namespace=NAMESPACE) as concert, Outbox(concert, engine).relay():
        await asyncio.sleep(1.0)  # it listens
        print("relays", flush=True)
        await asyncio.Event().wait()


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer jobs")
    parser.add_argument("--relay", nargs=2, metavar=("SERVER", "DATABASE"), help=argparse.SUPPRESS)
    results.add_option(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options: Any = parse()
    if options.relay:
        asyncio.run(relay(*options.relay))
    else:
        results.save(options.json, "outbox", asyncio.run(measure(quick=options.quick)))
