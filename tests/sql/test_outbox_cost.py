"""The cost of an outbox: its statements are counted, and looked at where many rows lie."""

import asyncio
import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from inconcert import Coordinator
from inconcert.sql import Outbox
from inconcert.sql import relay as relay_module
from inconcert.sql.relay import Relay
from inconcert.sql.rows import Keep
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.raw import client_of

MANY = 12_000  # rows; it takes three statements to make so many due


class Statement(NamedTuple):
    """One that was sent."""

    text: str
    parameters: Any


@contextmanager
def statements_on(engine: AsyncEngine) -> Generator[list[Statement]]:
    """Those that are sent meanwhile."""
    sent: list[Statement] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        sent.append(Statement(statement, parameters))

    event.listen(engine.sync_engine, "before_cursor_execute", note)
    yield sent
    event.remove(engine.sync_engine, "before_cursor_execute", note)


async def relay_of(outbox: Outbox) -> Relay:
    """One that has looked once, and does nothing by itself."""
    await outbox.create_table()
    relay = Relay(outbox._ref, outbox._keyspace, outbox._rows, outbox._database)
    assert not await relay._turn()
    relay._look_at_lives_at += 3600.0  # asks the server each second, and this counts the rest
    return relay


async def scripts(concert: Coordinator) -> int:
    """How many the server has run."""
    stats: dict[str, Any] = await client_of(concert).info("commandstats")
    return sum(int(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in ("eval", "evalsha"))


async def fill(engine: AsyncEngine, namespace: str) -> None:
    """Write rows of jobs that were handed over, and at which nobody is to look for long."""
    statement = f"""
        insert into inconcert_outbox (id, namespace, kind, destination, terms, body, due_ms, looks, look_at_ms)
        with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < {MANY})
        select 'id' || n, '{namespace}', 'job', 'shipping', '{{}}', '', 0, 10, 9000000000000 + n from numbers
    """
    async with engine.begin() as connection:
        await connection.execute(text(statement))


@pytest.mark.parametrize(("keep", "statements"), [("until_done", 1), ("until_sent", 2)])
async def test_500_rows_are_1_script_and_at_most_2_statements(
    own_server: Any, engine: AsyncEngine, namespace: str, keep: Keep, statements: int
) -> None:
    """One statement reserves them, and one deletes those that have served."""
    async with Coordinator(own_server.url, namespace=namespace) as concert:
        outbox = Outbox(concert, engine, keep=keep)
        relay = await relay_of(outbox)

        @concert.task(name="ship", queue="shipping")
        async def ship(number: int) -> None: ...

        async with engine.begin() as connection:
            for number in range(500):
                await outbox.enqueue(connection, ship.call(number))
        before = await scripts(concert)
        with statements_on(engine) as sent:
            assert await relay._turn()
        assert await scripts(concert) == before + 1
        assert len(sent) == statements
        assert await client_of(concert).hlen(f"{{{namespace}:tasks:0}}:bodies") == 500


async def test_idle_look_is_1_statement(concert: Coordinator, engine: AsyncEngine) -> None:
    """While nothing was committed, nor is unconfirmed."""
    relay = await relay_of(Outbox(concert, engine))
    with statements_on(engine) as sent:
        for turn in range(1, 4):
            assert not await relay._turn()
            assert len(sent) == turn


async def test_idle_relay_looks_at_its_pace(
    concert: Coordinator, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look is one statement, and nothing is sent in between."""
    pace = 0.2
    monkeypatch.setattr(relay_module, "_PACE", pace)
    relay = await relay_of(Outbox(concert, engine))
    loop = asyncio.get_running_loop()
    with statements_on(engine) as sent:
        began = loop.time()
        async with in_background(relay.run()):
            await eventually(lambda: len(sent) >= 5)
        assert loop.time() - began >= 4 * 0.75 * pace
    assert len({statement.text for statement in sent}) == 1


async def test_look_reads_no_row_that_is_not_due(concert: Coordinator, engine: AsyncEngine, namespace: str) -> None:
    """The index has the instant as its bound, so a million rows behind it cost a look nothing."""
    relay = await relay_of(Outbox(concert, engine))
    await fill(engine, namespace)
    with statements_on(engine) as sent:
        assert not await relay._turn()
    [look] = sent
    async with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            plan = await connection.exec_driver_sql(f"explain query plan {look.text}", look.parameters)
            assert "INDEX inconcert_outbox_due (namespace=? AND look_at_ms<?)" in str(plan.all())
            return
        explain = f"explain (analyze, format json) {look.text}"
        plan = await connection.exec_driver_sql(explain, look.parameters)
        assert "Rows Removed by Filter" not in json.dumps(plan.scalar_one())


async def test_loss_makes_all_rows_due(concert: Coordinator, engine: AsyncEngine, namespace: str) -> None:
    """More than one statement makes due at once."""
    outbox = Outbox(concert, engine)
    relay = await relay_of(outbox)
    await fill(engine, namespace)
    await client_of(concert).flushall()
    relay._look_at_lives_at = 0.0
    await relay._turn()
    async with engine.connect() as connection:
        late = await connection.execute(text("select count(*) from inconcert_outbox where look_at_ms > 9000000000000"))
        assert late.scalar_one() == 0
