"""`inconcert relay module:outbox`, in a process of its own."""

import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from inconcert import Coordinator, JobStatus, Task
from inconcert.sql import Outbox
from tests.support.command_line import SERVICE, here, start
from tests.support.eventually import eventually
from tests.support.servers import RealServer

MODULE = """
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from inconcert import Coordinator
from inconcert.sql import Outbox

concert = Coordinator.from_env()
outbox = Outbox(concert, {engine})
"""


def module_in(folder: Path, engine: str) -> str:
    """Write a module of its own name with an outbox, and return where that is."""
    (folder / f"{folder.name}_shop.py").write_text(MODULE.format(engine=engine))
    return f"{folder.name}_shop:outbox"


async def commit(engine: AsyncEngine, outbox: Outbox, ship: Task[[int], Any], number: int) -> str:
    """Enqueue in a transaction, and return the id."""
    async with engine.begin() as connection:
        return (await outbox.enqueue(connection, ship.call(number))).id


async def is_handed_over(concert: Coordinator, job_id: str) -> bool:
    """Whether the server has it."""
    return await concert.tasks.job(job_id).status() is JobStatus.QUEUED


def shop(concert: Coordinator, engine: AsyncEngine) -> tuple[Outbox, Task[[int], Any]]:
    """What a producer has."""

    @concert.task(name="ship")
    async def ship(number: int) -> None: ...

    return Outbox(concert, engine), ship


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_relay_hands_over_until_a_signal(
    concert: Coordinator, engine: AsyncEngine, database_url: str, tmp_path: Path, number: int
) -> None:
    """Rows from before its start, and rows of other processes while it runs; it ends with 0."""
    outbox, ship = shop(concert, engine)
    await outbox.create_table()
    before = await commit(engine, outbox, ship, 1)
    assert not await is_handed_over(concert, before)

    target = module_in(tmp_path, f"create_async_engine({database_url!r})")
    async with start(concert, "relay", target, folder=tmp_path, fresh=number == signal.SIGTERM) as child:
        await eventually(lambda: is_handed_over(concert, before))
        during = await commit(engine, outbox, ship, 2)
        await eventually(lambda: is_handed_over(concert, during))
        child.signal(number)
        assert await child.wait() == 0
        said = [line.partition("]: ")[2] for line in child.errors().splitlines()]
    assert [line.rpartition(" ")[2] for line in said] == ["starts", "stops"]
    assert said[0] == f"the relay of {outbox!r} starts"

    after = await commit(engine, outbox, ship, 3)
    assert not await is_handed_over(concert, after)


async def test_relay_of_an_engine_without_an_event_loop(concert: Coordinator, tmp_path: Path) -> None:
    """It works in threads, and ends as the other does."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db")
    outbox, ship = shop(concert, engine)
    await outbox.create_table()
    target = module_in(tmp_path, f"create_engine('sqlite:///{tmp_path}/shop.db')")
    async with start(concert, "relay", target, folder=tmp_path) as child:
        job = await commit(engine, outbox, ship, 1)
        await eventually(lambda: is_handed_over(concert, job))
        child.signal(signal.SIGTERM)
        assert await child.wait() == 0
        assert "Traceback" not in child.errors()
    await engine.dispose()


async def test_relay_waits_for_its_table(
    concert: Coordinator, engine: AsyncEngine, database_url: str, tmp_path: Path
) -> None:
    """It may be started before the migration."""
    outbox, ship = shop(concert, engine)
    target = module_in(tmp_path, f"create_async_engine({database_url!r})")
    async with start(concert, "relay", target, folder=tmp_path) as child:
        await eventually(lambda: "the outbox cannot be relayed now, and is tried again" in child.errors())
        await outbox.create_table()
        job = await commit(engine, outbox, ship, 1)
        await eventually(lambda: is_handed_over(concert, job))
        child.signal(signal.SIGTERM)
        assert await child.wait() == 0


async def test_relay_of_a_server_that_is_away_ends_with_1(own_server: RealServer, tmp_path: Path) -> None:
    """It says so: another try may go better."""
    concert = Coordinator(own_server.url)
    own_server.kill()
    target = module_in(tmp_path, "create_async_engine('sqlite+aiosqlite://')")
    async with start(concert, "relay", target, folder=tmp_path) as child:
        assert await child.wait() == 1
        assert child.errors().startswith("inconcert: the server could not be reached")


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("shop", "'shop' does not name an object of a module; give module:attr, for example shop.app:outbox"),
        ("tests.support.service:outbox", "module 'tests.support.service' has no 'outbox'; give the name of its Outbox"),
        (SERVICE, f"'{SERVICE}' is an object of type 'Coordinator'; give the name of the module's Outbox"),
    ],
)
async def test_module_without_an_outbox_is_refused(concert: Coordinator, target: str, why: str) -> None:
    """With exit code 2, and with what to do."""
    ended = await here(concert, "relay", target)
    assert (ended.exit_code, ended.stderr) == (2, f"inconcert: {why}\n")


async def test_missing_extra_is_named(concert: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the module has."""
    for name in [name for name in sys.modules if name.startswith("inconcert.sql")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    ended = await here(concert, "relay", SERVICE)
    said = "inconcert: inconcert.sql needs sqlalchemy, which is not installed; run  pip install 'inconcert[sql]'\n"
    assert (ended.exit_code, ended.stderr) == (2, said)
