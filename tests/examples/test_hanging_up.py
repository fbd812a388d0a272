"""What docs/how-to/web.md and locks.md say of clients that hang up, over real HTTP."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from aiohttp import web
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from inconcert import Coordinator
from tests.support.eventually import eventually
from tests.support.pages import DOCS, python
from tests.support.servers import RealServer

Connections = Callable[[], int]


@asynccontextmanager
async def uvicorn_serving(app: Any, socket: Path) -> AsyncGenerator[Connections]:
    """An ASGI application on uvicorn; how many connections it has."""
    server = uvicorn.Server(uvicorn.Config(app, uds=str(socket), log_level="error"))
    serving = asyncio.create_task(server.serve())
    await eventually(lambda: server.started)
    try:
        yield lambda: len(server.server_state.connections)
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def aiohttp_serving(
    handler: Callable[[web.Request], Any], socket: Path, *, handler_cancellation: bool
) -> AsyncGenerator[Connections]:
    """A handler of aiohttp at /; how many connections it has."""
    app = web.Application()
    app.router.add_post("/", handler)
    runner = web.AppRunner(app, handler_cancellation=handler_cancellation)
    await runner.setup()
    await web.UnixSite(runner, str(socket)).start()
    try:
        assert runner.server is not None
        server = runner.server
        yield lambda: sum(connection.transport is not None for connection in server.connections)
    finally:
        await runner.cleanup()


async def ask(socket: Path, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request, and do not wait for the answer."""
    reader, writer = await asyncio.open_unix_connection(str(socket))
    writer.write(f"POST {path} HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n\r\n".encode())
    return reader, writer


async def hang_up(writer: asyncio.StreamWriter, connections: Connections) -> None:
    """Close the connection, and wait until the server has noticed."""
    writer.close()
    await writer.wait_closed()
    await eventually(lambda: connections() == 0)


async def pass_on(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """A middleware that changes nothing, and puts its own `receive` between."""
    return await call_next(request)


@pytest.mark.parametrize("framework", ["fastapi", "starlette", "starlette with middleware", "aiohttp"])
async def test_handler_goes_on_when_its_client_hangs_up(framework: str, concert: Coordinator, tmp_path: Path) -> None:
    """As each framework is set by default: it stays in line, and runs its body for nobody."""
    socket = tmp_path / "socket"
    entered = asyncio.Event()

    async def handle() -> str:
        async with concert.lock("item", timeout=30.0):
            entered.set()
        return "sold"

    async def asgi_handler(_: Request) -> Response:
        return PlainTextResponse(await handle())

    async def aiohttp_handler(_: web.Request) -> web.Response:
        return web.Response(text=await handle())

    if framework == "aiohttp":
        serving = aiohttp_serving(aiohttp_handler, socket, handler_cancellation=False)
    elif framework == "fastapi":
        api = FastAPI()
        api.post("/")(handle)
        serving = uvicorn_serving(api, socket)
    else:
        layers = [Middleware(BaseHTTPMiddleware, dispatch=pass_on)] if framework.endswith("middleware") else []
        route = Route("/", asgi_handler, methods=["POST"])
        serving = uvicorn_serving(Starlette(routes=[route], middleware=layers), socket)

    async with serving as connections:
        async with concert.lock("item"):
            _, writer = await ask(socket, "/")
            await eventually(lambda: waiters(concert, "item", 1))
            await hang_up(writer, connections)
            assert await concert.lock("item").waiters() == 1
        await asyncio.wait_for(entered.wait(), 10)


async def test_handler_of_aiohttp_is_cancelled_if_told_so(concert: Coordinator, tmp_path: Path) -> None:
    """With `handler_cancellation=True` the one whose client hangs up leaves the line."""
    socket = tmp_path / "socket"

    async def handle(_: web.Request) -> web.Response:
        async with concert.lock("item", timeout=30.0):
            raise AssertionError("nobody gives the lock back")

    async with aiohttp_serving(handle, socket, handler_cancellation=True) as connections, concert.lock("item"):
        _, writer = await ask(socket, "/")
        await eventually(lambda: waiters(concert, "item", 1))
        await hang_up(writer, connections)
        await eventually(lambda: waiters(concert, "item", 0))


async def test_stream_is_cancelled_when_its_client_hangs_up(tmp_path: Path) -> None:
    """The generator of a StreamingResponse, on uvicorn, also while it waits for its next part."""
    socket = tmp_path / "socket"
    cancelled = asyncio.Event()

    async def parts() -> AsyncIterator[str]:
        yield "one"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def stream() -> StreamingResponse:
        return StreamingResponse(parts())

    api = FastAPI()
    api.post("/", response_model=None)(stream)
    async with uvicorn_serving(api, socket) as connections:
        reader, writer = await ask(socket, "/")
        await asyncio.wait_for(reader.readuntil(b"one"), 10)
        await hang_up(writer, connections)
        await asyncio.wait_for(cancelled.wait(), 10)


class Page:
    """The service of docs/how-to/locks.md, on a server of the tests."""

    def __init__(self, server: RealServer, namespace: str) -> None:
        self.selling: list[str] = []
        self.may_sell = asyncio.Event()
        self.sold: list[str] = []
        self.names: dict[str, Any] = {"sell": self.sell, "make_report": self.make_report}
        for block in python((DOCS / "how-to" / "locks.md").read_text("utf-8")):
            if "@app." in block.text:
                text = block.text.replace("redis://localhost:6379/0", server.url).replace('"shop"', repr(namespace))
                exec(text, self.names)
        self.app: FastAPI = self.names["app"]
        self.concert: Coordinator = self.names["concert"]

    async def sell(self, item_id: str) -> None:
        self.selling.append(item_id)
        await self.may_sell.wait()
        self.sold.append(item_id)

    async def make_report(self, year: int) -> str:
        return f"report of {year}"


@pytest.fixture(params=["plain", "with middleware"])
async def page(
    request: pytest.FixtureRequest, server: RealServer, namespace: str, tmp_path: Path
) -> AsyncIterator[tuple[Page, Path, Connections]]:
    """The page's service, started."""
    made = Page(server, namespace)
    if request.param == "with middleware":
        made.app.add_middleware(BaseHTTPMiddleware, dispatch=pass_on)
    async with uvicorn_serving(made.app, tmp_path / "socket") as connections:
        yield made, tmp_path / "socket", connections


async def test_recipe_leaves_the_line(page: tuple[Page, Path, Connections]) -> None:
    """`while_connected`: who has hung up leaves the line; who has not is answered."""
    service, socket, connections = page

    async with service.concert.lock("report:2025"):
        _, gone = await ask(socket, "/reports/2025")
        await eventually(lambda: waiters(service.concert, "report:2025", 1))
        await hang_up(gone, connections)
        await eventually(lambda: waiters(service.concert, "report:2025", 0))

        reader, writer = await ask(socket, "/reports/2025")
        await eventually(lambda: waiters(service.concert, "report:2025", 1))
    answer = await asyncio.wait_for(reader.readuntil(b'{"report":"report of 2025"}'), 10)
    assert answer.startswith(b"HTTP/1.1 200")
    await hang_up(writer, connections)


async def test_recipe_sells_nothing_to_nobody(page: tuple[Page, Path, Connections]) -> None:
    """With a shield around the body: who has hung up leaves the line, but a sale that has begun is made."""
    service, socket, connections = page

    async with service.concert.lock("cart:1"):
        _, gone = await ask(socket, "/carts/1/pay")
        await eventually(lambda: waiters(service.concert, "cart:1", 1))
        await hang_up(gone, connections)
        await eventually(lambda: waiters(service.concert, "cart:1", 0))
    assert service.selling == []

    _, hasty = await ask(socket, "/carts/2/pay")
    await eventually(lambda: service.selling)
    await hang_up(hasty, connections)
    service.may_sell.set()
    await eventually(lambda: service.sold)
    reader, writer = await ask(socket, "/carts/2/pay")  # behind the other
    answer = await asyncio.wait_for(reader.readuntil(b'{"state":"sold"}'), 10)

    assert answer.startswith(b"HTTP/1.1 200")
    assert service.sold == ["2", "2"]
    await hang_up(writer, connections)


async def waiters(concert: Coordinator, name: str, number: int) -> bool:
    """Whether so many stand in line for a lock."""
    return await concert.lock(name).waiters() == number
