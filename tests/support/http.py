"""ASGI applications on uvicorn, as clients meet them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from tests.support.eventually import eventually

__all__ = ["client_at", "events", "served"]


def client_at(socket: Path) -> httpx.AsyncClient:
    """A client of the service at this unix socket."""
    transport = httpx.AsyncHTTPTransport(uds=str(socket))
    return httpx.AsyncClient(transport=transport, base_url="http://shop", timeout=20.0)


@asynccontextmanager
async def served(app: Any, socket: Path) -> AsyncGenerator[httpx.AsyncClient]:
    """An application on uvicorn, and a client of it."""
    server = uvicorn.Server(uvicorn.Config(app, uds=str(socket), log_level="error"))
    serving = asyncio.create_task(server.serve())
    await eventually(lambda: server.started or serving.done())
    try:
        async with client_at(socket) as client:
            yield client
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
