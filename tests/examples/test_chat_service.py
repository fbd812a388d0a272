"""The chat service in two processes, with a WebSocket to each."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

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
    async def http(self) -> AsyncGenerator[aiohttp.ClientSession]:
        """A browser."""
        await eventually(self.is_listening)
        async with aiohttp.ClientSession("http://chat", connector=aiohttp.UnixConnector(str(self.socket))) as http:
            yield http

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


async def news(socket: aiohttp.ClientWebSocketResponse) -> tuple[str, list[tuple[int, str, str]]]:
    """The next batch: the chat, and its messages. The client says that the user has seen them."""
    batch = await socket.receive_json(timeout=10)
    await socket.send_json({"chat_id": batch["chat_id"], "last_id": batch["last_id"]})
    return batch["chat_id"], [(message["id"], message["sender"], message["body"]) for message in batch["messages"]]


@pytest.mark.in_turn("service")
async def test_users_talk_across_processes(services: list[Service]) -> None:
    """Live, from the history, by count; strangers are refused; and the processes end at once, without a complaint."""
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(service.http()) for service in services]
        ann, bob = await one.ws_connect("/users/ann/news"), await two.ws_connect("/users/bob/news")

        begun = await one.post("/users/ann/chats", json={"users": ["bob", "cy"], "text": "Lunch?"})
        assert begun.status == 201
        chat = await begun.json()
        for window in (ann, bob):
            assert await news(window) == (chat, [(1, "ann", "Lunch?")])
        assert (await two.post(f"/users/bob/chats/{chat}/messages", json={"text": "Yes!"})).status == 201
        for window in (ann, bob):
            assert await news(window) == (chat, [(2, "bob", "Yes!")])

        assert await (await one.get("/users/cy/unread")).json() == {chat: 2}
        cy = await one.ws_connect("/users/cy/news")
        assert await news(cy) == (chat, [(1, "ann", "Lunch?"), (2, "bob", "Yes!")])

        async def all_seen() -> bool:
            return not await (await one.get("/users/cy/unread")).json()

        await eventually(all_seen)
        older = await (await two.get(f"/users/cy/chats/{chat}/messages?before=2")).json()
        assert [message["body"] for message in older] == ["Lunch?"]

        eve = await two.ws_connect("/users/eve/news")
        strange = f"/users/eve/chats/{chat}/messages"
        refused = await two.post(strange, json={"text": "Hi"}), await two.get(strange)
        assert [(answer.status, (await answer.json())["error"]) for answer in refused] == [(403, "NotAMember")] * 2
        assert (await two.put(f"/users/bob/chats/{chat}/members/eve")).status == 204
        await two.post(f"/users/bob/chats/{chat}/messages", json={"text": "Welcome"})
        windows = ann, bob, cy, eve
        for window in windows:
            assert (await news(window))[1][-1] == (3, "bob", "Welcome")
        assert (await two.delete(f"/users/eve/chats/{chat}/members/eve")).status == 204
        assert (await two.get(strange)).status == 403

        goodbyes = [asyncio.create_task(window.receive(timeout=10)) for window in windows]
        assert [await asyncio.to_thread(service.stop) for service in services] == [[], []]
        assert [(await goodbye).data for goodbye in goodbyes] == [aiohttp.WSCloseCode.GOING_AWAY] * 4
