"""The durable agent as its reader runs it: a service, and a worker that is killed."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from inconcert import Coordinator
from tests.support.eventually import eventually
from tests.support.http import client_at, events
from tests.support.jobs import lapse_all
from tests.support.processes import Leashed
from tests.support.servers import RealServer

ROOT = Path(__file__).parents[2]


class Processes:
    """Starts the service and workers; what they log is in files of the folder."""

    def __init__(self, url: str, namespace: str, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._variables = {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            "INCONCERT_URL": url,
            "INCONCERT_NAMESPACE": namespace,
            "AGENT_FOLDER": str(folder),
        }

    @asynccontextmanager
    async def service(self) -> AsyncGenerator[httpx.AsyncClient]:
        socket = self._folder / "socket"
        self._start("service", "uvicorn", "examples.agent_service.app:app", "--uds", str(socket))
        await eventually(socket.exists, timeout=30.0)
        async with client_at(socket) as http:
            yield http

    def worker(self, name: str) -> Leashed:
        return self._start(name, "inconcert", "worker", "tests.examples.held_agent:concert", "--queues", "agent")

    def _start(self, name: str, *arguments: str) -> Leashed:
        log = self._stack.enter_context((self._folder / f"{name}.log").open("wb"))
        command = [sys.executable, "-m", *arguments]
        leashed = Leashed(command, stdout=subprocess.DEVNULL, stderr=log, env=os.environ | self._variables)
        self._stack.callback(leashed.kill)
        return leashed


@pytest.fixture
def processes(server: RealServer, namespace: str, tmp_path: Path) -> Generator[Processes]:
    """None is left."""
    with ExitStack() as stack:
        yield Processes(server.url, namespace, tmp_path, stack)


class Page:
    """What a browser shows of an answer."""

    def __init__(self, http: httpx.AsyncClient, job: str) -> None:
        self._http = http
        self._path = f"/answers/{job}"
        self._last_event_id = ""
        self.text = ""
        self.restarts = 0
        self.status = ""

    async def read(self, *, to: str | None = None) -> None:
        """Go on until the text ends like this, or to the end of the answer, and hang up."""
        headers = {"Last-Event-ID": self._last_event_id}
        async with (
            self._http.stream("GET", self._path, headers=headers) as response,
            aclosing(events(response)) as stream,
        ):
            async for event in stream:
                self._show(event.get("event", "message"), json.loads(event["data"]))
                self._last_event_id = event.get("id", self._last_event_id)
                if to and self.text.endswith(to):
                    return

    def _show(self, kind: str, data: Any) -> None:
        if kind == "restarted":
            self.text = ""
            self.restarts += 1
        elif kind == "end":
            self.status = data["status"]
        else:
            self.text += data["value"]["text"]


@pytest.mark.in_turn("service")
async def test_agent_survives_its_worker(concert: Coordinator, processes: Processes, tmp_path: Path) -> None:
    """A kill costs only the call that was under way; pages go on where they were; a human decides, once."""

    def calls() -> list[str]:
        return (tmp_path / "calls").read_text().split()

    async with processes.service() as http:
        job = (await http.post("/answers", json={"question": "My lamp came broken."})).json()
        begun = f"I look at your order first. order 17: a lamp, 40 euros (request {job}:look_up 2)"
        asked = f"{begun}It broke on its way to you. I would like to pay you back. May the agent pay 40 euros back?"
        paid = f"{asked}40 euros paid back (request {job}:refund 4)Thank you for telling us. Is there anything else? "

        worker = processes.worker("first")
        page = Page(http, job)
        await page.read(to="way ")
        worker.kill()
        assert page.text == f"{begun}It broke on its way "
        assert calls() == ["1", "3"]

        await lapse_all(concert)
        (tmp_path / "go").touch()
        processes.worker("second")
        await page.read(to="euros back?")
        assert (page.text, page.restarts) == (asked, 1)
        assert calls() == ["1", "3", "3"]
        loaded_again = Page(http, job)
        await loaded_again.read(to="euros back?")
        assert loaded_again.text == asked

        approvals = [await http.put(f"/answers/{job}/approval", json={"approved": it}) for it in (True, False)]
        assert [answer.json() for answer in approvals] == [True, False]
        for shown in (page, loaded_again, Page(http, job)):
            await shown.read()
            assert (shown.text, shown.status) == (paid, "succeeded")
        assert calls() == ["1", "3", "3", "5"]

        refused = (await http.post("/answers", json={"question": "My lamp came broken."})).json()
        assert (await http.put(f"/answers/{refused}/approval", json={"approved": False})).json() is True
        page = Page(http, refused)
        await page.read()
        assert page.text.endswith("May the agent pay 40 euros back?the refund was refused")
        assert page.status == "succeeded"
