"""ASGI applications on uvicorn, as clients meet them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import uvicorn.server

from tests.support.eventually import eventually

__all__ = ["client_at", "events", "served", "served_at_port"]


class _Brisk:
    """asyncio as the module of uvicorn's server has it, which sleeps 0.1 s before it looks whether it is to end."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / 20)


cast("Any", uvicorn.server).asyncio = _Brisk()


def client_at(socket: Path) -> httpx.AsyncClient:
    """A client of the service at this unix socket."""
    transport = httpx.AsyncHTTPTransport(uds=str(socket), verify=False)  # to load certificates takes longer than a test
    return httpx.AsyncClient(transport=transport, base_url="http://shop", timeout=20.0)


@asynccontextmanager
async def served(app: Any, socket: Path) -> AsyncGenerator[httpx.AsyncClient]:
    """An application on uvicorn, and a client of it."""
    async with _serving(uvicorn.Config(app, uds=str(socket), log_level="error")), client_at(socket) as client:
        yield client


@asynccontextmanager
async def served_at_port(app: Any) -> AsyncGenerator[str]:
    """An application on uvicorn, for a browser: its URL, with a slash at its end."""
    async with _serving(uvicorn.Config(app, port=0, log_level="error")) as server:
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/"


@asynccontextmanager
async def _serving(config: uvicorn.Config) -> AsyncGenerator[uvicorn.Server]:
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    await eventually(lambda: server.started or serving.done())
    try:
        yield server
    finally:
        server.should_exit = True
        await serving


async def events(response: httpx.Response) -> AsyncGenerator[dict[str, str]]:
    """The events of a stream, each with its fields."""
    event: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif "data" in event:
            yield event
            event = {}
