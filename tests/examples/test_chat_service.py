"""The chat service in two processes, with a WebSocket to each."""

import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.eventually import eventually
from tests.support.processes import Leashed
from tests.support.servers import RealServer

ROOT = Path(__file__).parents[2]


class Service:
    """One process of the service, on a unix socket."""

    def __init__(self, folder: Path, url: str, namespace: str) -> None:
        self.socket = folder / "socket"
        self.errors = (folder / "errors").open("w+b")
        self.leashed = Leashed(
            [sys.executable, "-m", "aiohttp.web", "-U", str(self.socket), "examples.chat_service.app:make_app"],
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
                "INCONCERT_URL": url,
                "INCONCERT_NAMESPACE": namespace,
            },
        )

    @asynccontextmanager
    async def window(self, user: str) -> AsyncGenerator[Any]:
        """A WebSocket of a user."""
        await eventually(self.is_listening)
        connector = aiohttp.UnixConnector(str(self.socket))
        async with (
            aiohttp.ClientSession("http://chat", connector=connector) as http,
            http.ws_connect(f"/users/{user}") as window,
        ):
            yield window

    def is_listening(self) -> bool:
        """Whether it takes connections; the socket's file is there a moment earlier."""
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def stop(self) -> list[str]:
        """End it as an operator does, and return what it complained of."""
        assert self.leashed.terminate() == 0
        self.errors.seek(0)
        lines = self.errors.read().decode().splitlines()
        return [line for line in lines if not line.startswith(("DEBUG:", "INFO:", "Stopped"))]


@pytest.fixture
async def services(server: RealServer, namespace: str, tmp_path: Path) -> AsyncIterator[list[Service]]:
    """Two, started, and ended in good order."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    started = [Service(folder, server.url, namespace) for folder in folders]
    yield started
    for service in started:
        service.leashed.kill()
        service.errors.close()


async def test_users_talk_across_processes(services: list[Service]) -> None:
    """Live, from the history, by count; strangers are refused; and the processes end at once, without a complaint."""
    one, two = services
    async with AsyncExitStack() as stack:
        ann = await stack.enter_async_context(one.window("ann"))
        bob = await stack.enter_async_context(two.window("bob"))
        assert await ann.receive_json(timeout=10) == await bob.receive_json(timeout=10) == {"unread": {}}

        await ann.send_json({"do": "create", "users": ["bob", "cy"], "text": "Lunch?"})
        first = await bob.receive_json(timeout=10)
        chat = first["chat"]
        assert [(message["sender"], message["body"]) for message in first["messages"]] == [("ann", "Lunch?")]
        assert await ann.receive_json(timeout=10) == first

        await bob.send_json({"do": "send", "chat": chat, "text": "Yes!"})
        for window in (ann, bob):
            news = await window.receive_json(timeout=10)
            assert [(message["id"], message["body"]) for message in news["messages"]] == [(2, "Yes!")]

        cy = await stack.enter_async_context(one.window("cy"))
        assert await cy.receive_json(timeout=10) == {"unread": {chat: 2}}
        assert len((await cy.receive_json(timeout=10))["messages"]) == 2
        await cy.send_json({"do": "open", "chat": chat, "before": 2})
        assert [message["body"] for message in (await cy.receive_json(timeout=10))["history"]] == ["Lunch?"]

        eve = await stack.enter_async_context(two.window("eve"))
        await eve.receive_json(timeout=10)
        for asked in ({"do": "send", "chat": chat, "text": "Hi"}, {"do": "open", "chat": chat}, {"do": "sing"}, {}):
            await eve.send_json(asked)
            assert list(await eve.receive_json(timeout=10)) == ["error"]
        await bob.send_json({"do": "add", "chat": chat, "user": "eve"})
        await bob.send_json({"do": "send", "chat": chat, "text": "Welcome"})
        assert (await eve.receive_json(timeout=10))["messages"][-1]["body"] == "Welcome"

        assert [service.stop() for service in services] == [[], []]
