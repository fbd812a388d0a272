"""A server in this process, for one test: fakeredis."""

import asyncio
from typing import Any, Self

from fakeredis import FakeServer
from fakeredis.aioredis import AsyncFakeSocket, FakeRedis

from inconcert._redis.driver.clients import Client
from inconcert._redis.find.sources import Source

_BLOCKED = f"{AsyncFakeSocket.__name__}._async_blocking"  # the coroutine of a command that waits, such as BLPOP


class FakeSource(Source):
    """A fakeredis of its own: empty at first, and it keeps its content from one opening to the next."""

    def __init__(self) -> None:
        self._server = FakeServer()

    async def close(self) -> None:
        """Close the client, and end what still waits for the server."""
        is_open = self._client is not None
        await super().close()
        if is_open:
            await _end_blocked()

    def anew(self, *, is_forked: bool) -> Self:
        """Itself on another loop. Refuse a fork, which has a copy of the server that nobody else sees."""
        if not is_forked:
            self._client = None
            return self
        raise RuntimeError("fakeredis is in the process of which this one is a fork; give the test a real server")

    def new_client(self, *, timeout: float | None) -> Client:  # noqa: ARG002 - it answers at once
        """Make a client of the one server."""
        return FakeRedis(server=self._server)


async def _end_blocked() -> None:
    """End what fakeredis leaves of a BLPOP whose connection was closed. To one that is open it seems to time out."""
    left: list[asyncio.Task[Any]] = [
        task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__qualname__", "") == _BLOCKED
    ]
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left)
