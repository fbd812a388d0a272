"""The pytest plugin of inconcert: the fixture `concert`, an open coordinator for one test.

pytest imports this at its start in each project that has inconcert installed. So it is a package of its own, because
any module of inconcert brings the rest, and it imports inconcert only in a fixture.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING, cast

import pytest

if TYPE_CHECKING:
    from inconcert import Coordinator

__all__ = ["concert", "opened", "pytest_addoption", "pytest_configure"]

_SERVER = "inconcert_server"  # the ini option, and the mark
_SERVERS = ("fakeredis", "embedded")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Have an ini option choose the server; `-o inconcert_server=embedded` chooses it for one run."""
    parser.addini(_SERVER, "what the fixture `concert` is opened on: fakeredis or embedded", default="fakeredis")


def pytest_configure(config: pytest.Config) -> None:
    """Name the mark, and add the fixtures of pytest-asyncio if it is there."""
    config.addinivalue_line("markers", f"{_SERVER}(name): what the fixture `concert` is opened on, in this test")
    if config.pluginmanager.hasplugin("asyncio"):
        from pytest_inconcert import loops

        config.pluginmanager.register(loops)


@pytest.fixture
def concert(request: pytest.FixtureRequest) -> Coordinator:
    """An open coordinator, in a namespace that no other test has.

    For asynchronous tests, of pytest-asyncio or of anyio's plugin on asyncio. Its server is fakeredis, unless the ini
    option `inconcert_server` or a mark, `inconcert_server("embedded")`, chooses the embedded server, which is started
    once for all tests.
    """
    if "anyio_backend" in request.fixturenames:
        backend: str | tuple[str, object] = request.getfixturevalue("anyio_backend")
        name = backend if isinstance(backend, str) else backend[0]
        if name != "asyncio":
            pytest.fail(
                f"the fixture `concert` needs asyncio, and this test runs on {name}; let the fixture `anyio_backend` "
                "return 'asyncio'",
                pytrace=False,
            )
        return cast("Coordinator", request.getfixturevalue("_inconcert_anyio"))
    node: pytest.Item = request.node
    mark = node.get_closest_marker("asyncio")
    if mark is None:
        pytest.fail(
            "the fixture `concert` is for asynchronous tests; mark the test with `pytest.mark.asyncio` or "
            "`pytest.mark.anyio`, or in a synchronous one write `with override(...)` of inconcert.testing",
            pytrace=False,
        )
    if not request.config.pluginmanager.hasplugin("asyncio"):
        pytest.fail(
            "the fixture `concert` needs a plugin that runs asynchronous tests, and pytest-asyncio is not there; "
            "`pip install pytest-asyncio`, or mark the test with `pytest.mark.anyio`",
            pytrace=False,
        )
    scope = mark.kwargs.get("loop_scope") or request.config.getini("asyncio_default_test_loop_scope")
    return cast("Coordinator", request.getfixturevalue(f"_inconcert_on_{scope}"))


@pytest.fixture(scope="session")
def _inconcert_embedded() -> Iterator[str | None]:
    """The URL of one server for all tests, on an event loop in a thread: those of the tests come and go."""
    from anyio.from_thread import start_blocking_portal

    from inconcert import Coordinator

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Coordinator.embedded()) as server:
        yield server.url


async def opened(request: pytest.FixtureRequest) -> AsyncGenerator[Coordinator]:
    """A coordinator on the server that the test has chosen."""
    from inconcert import Coordinator
    from inconcert.testing.fake_server import FakeSource

    node: pytest.Item = request.node
    mark = node.get_closest_marker(_SERVER)
    name = mark.args[0] if mark is not None and mark.args else request.config.getini(_SERVER)
    if name not in _SERVERS:
        pytest.fail(f"{_SERVER} is {name!r}; give {' or '.join(map(repr, _SERVERS))}", pytrace=False)
    server = FakeSource() if name == "fakeredis" else cast("str", request.getfixturevalue("_inconcert_embedded"))
    async with Coordinator(server, namespace=f"test-{secrets.token_hex(4)}") as concert:
        yield concert


_inconcert_anyio = pytest.fixture(opened, name="_inconcert_anyio")
