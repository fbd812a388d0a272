"""The dashboard as a sub-application of aiohttp, over real HTTP."""

import asyncio
import logging
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from aiohttp import web
from starlette.requests import Request

from inconcert import Coordinator, Tasks
from inconcert.dashboard import Dashboard, Permission, read_only
from inconcert.dashboard import app as dashboard_app
from inconcert.dashboard.aiohttp import subapp
from tests.support.dashboard import OURS, PAGES, bury, reference_in
from tests.support.eventually import eventually
from tests.support.http import client_at, events

FORM = {"content-type": "application/x-www-form-urlencoded"} | OURS


class Service:
    """A service of aiohttp with a dashboard below `/staff/ops`."""

    def __init__(self, concert: Coordinator, socket: Path) -> None:
        self.dashboard = Dashboard(concert, allow=self.allow, queues=["mail"])
        staff = web.Application()
        staff.add_subapp("/ops", subapp(self.dashboard))
        self.app = web.Application()
        self.app.add_subapp("/staff", staff)
        self.socket = socket
        self.was_asked = asyncio.Event()

    def allow(self, request: Request, permission: Permission) -> str | None:
        """Everybody may look; Ann may do everything."""
        asked: web.Request = request.scope["aiohttp.request"]
        user = asked.headers.get("x-user", "ann")
        self.was_asked.set()
        return user if user == "ann" or permission is Permission.VIEW else None

    @asynccontextmanager
    async def served(self) -> AsyncGenerator[httpx.AsyncClient]:
        """A browser of it; it is shut down at the end of the body."""
        runner = web.AppRunner(self.app, access_log=None)
        await runner.setup()
        await web.UnixSite(runner, str(self.socket)).start()
        async with client_at(self.socket) as client:
            try:
                yield client
            finally:
                await runner.cleanup()


@pytest.fixture
def service(concert: Coordinator, tmp_path: Path) -> Service:
    """The service, which is not started."""
    return Service(concert, tmp_path / "s")


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """A browser of the service."""
    async with service.served() as client:
        yield client


@pytest.fixture(autouse=True)
def _nothing_is_wrong(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever clients do, aiohttp and asyncio have no error to log."""
    yield
    records = [record for record in caplog.get_records("call") if record.name.startswith(("aiohttp", "asyncio"))]
    assert [record.getMessage() for record in records if record.levelno >= logging.ERROR] == []


@pytest.fixture
def lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams do not end by themselves."""
    monkeypatch.setattr(dashboard_app, "_STREAM", 3600.0)


async def test_each_link_stays_below_the_prefix(concert: Coordinator, client: httpx.AsyncClient) -> None:
    """Of pages, forms and assets; and each leads somewhere."""
    dead = await bury(concert)
    found: set[str] = set()
    for page in [*PAGES, f"jobs/{dead}"]:
        if page != "live":
            answer = await client.get(f"/staff/ops/{page}")
            assert answer.status_code == 200
            found |= set(re.findall(r'(?:href|src|action|data-live-from)="([^"]+)"', answer.text))
    statuses = {link: (await client.get(link)).status_code for link in found - {"/staff/ops/live", "/staff/ops/other"}}

    assert {link for link in found if not link.startswith("/staff/ops/")} == set()
    assert {link for link, status in statuses.items() if status != (405 if "/actions/" in link else 200)} == set()


async def test_redirects_stay_below_the_prefix(concert: Coordinator, client: httpx.AsyncClient) -> None:
    """To a job that was searched for, and from the prefix without its slash."""
    job = await concert.enqueue("send", queue="mail")
    found = await client.get("/staff/ops/search", params={"q": job.id})
    home = await client.get("/staff/ops?a=1")

    assert (found.status_code, found.headers["location"]) == (303, f"/staff/ops/jobs/{job.id}")
    assert (home.status_code, home.headers["location"]) == (307, "http://shop/staff/ops/?a=1")


async def test_dashboard_is_served_alone(concert: Coordinator, tmp_path: Path) -> None:
    """Without a prefix."""
    runner = web.AppRunner(subapp(Dashboard(concert, allow=read_only)), access_log=None)
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "s")).start()
    async with client_at(tmp_path / "s") as client:
        page = await client.get("/queues")
    await runner.cleanup()

    assert 'href="/assets/site.css"' in page.text


@pytest.mark.parametrize(
    ("page", "status"),
    [("", 200), ("assets/site.css", 200), ("nowhere", 404), ("jobs/%00", 404), ("jobs/%ff", 200), ("jobs/a%2Fb", 404)],
)
async def test_answers_are_those_of_the_dashboard(client: httpx.AsyncClient, page: str, status: int) -> None:
    """With its headers, and for HEAD without a body."""
    head = await client.head(f"/staff/ops/{page}")
    answer = await client.get(f"/staff/ops/{page}")

    assert answer.status_code == status
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["content-type"].startswith("text/")
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert (head.status_code, head.content) == (answer.status_code, b"")


async def test_hook_finds_the_request_of_aiohttp(concert: Coordinator, client: httpx.AsyncClient) -> None:
    """And in it the user: Ann pauses a queue, and Eve does not."""
    key = reference_in((await client.get("/staff/ops/queues")).text, "mail")
    refused = await client.post("/staff/ops/actions/pause", data={"queue": key}, headers=OURS | {"x-user": "eve"})
    is_paused = (await concert.tasks.stats("mail")).queues["mail"].is_paused
    done = await client.post("/staff/ops/actions/pause", data={"queue": key}, headers=OURS)

    assert (refused.status_code, is_paused) == (403, False)
    assert (done.status_code, done.headers["location"]) == (303, "/staff/ops/queues")
    assert (await concert.tasks.stats("mail")).queues["mail"].is_paused


async def test_large_form_is_refused_before_it_is_read(client: httpx.AsyncClient) -> None:
    """Whether its length is known or not; one with arguments may be larger, and comes in parts."""

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1_000):
            yield b"x" * 1_000

    sized = await client.post("/staff/ops/actions/purge", content=b"x" * 5_000, headers=FORM)
    chunked = await client.post("/staff/ops/actions/purge", content=endless(), headers=FORM)
    edited = await client.post("/staff/ops/actions/edit", content=b"job=" + b"x" * 150_000, headers=FORM)

    assert [answer.status_code for answer in (sized, chunked, edited)] == [413, 413, 422]


async def test_form_that_breaks_off_changes_nothing(concert: Coordinator, service: Service) -> None:
    """The client hangs up in the middle of it."""
    dead = await bury(concert)
    async with service.served():
        _, writer = await asyncio.open_unix_connection(str(service.socket))
        writer.write(b"POST /staff/ops/actions/purge HTTP/1.1\r\nHost: shop\r\nSec-Fetch-Site: same-origin\r\n")
        writer.write(f"Content-Length: 4000\r\n\r\njob={dead}&".encode())
        await service.was_asked.wait()
        writer.close()
        await writer.wait_closed()
        await eventually(lambda: not any("RequestHandler" in repr(task) for task in asyncio.all_tasks()))

    assert [job.id for job in await concert.tasks.dead()] == [dead]


@pytest.mark.usefixtures("lasting")
async def test_stream_ends_when_the_viewer_goes(
    concert: Coordinator, service: Service, client: httpx.AsyncClient
) -> None:
    """At once; until then it tells what changes."""
    async with client.stream("GET", "/staff/ops/live") as response, aclosing(events(response)) as stream:
        await anext(stream)
        await concert.enqueue("send", queue="mail")
        assert '"ready":"1"' in (await anext(stream))["data"]
        assert service.dashboard._streams.open == 1

    await eventually(lambda: service.dashboard._streams.open == 0)


@pytest.mark.usefixtures("lasting")
async def test_streams_end_when_the_service_stops(service: Service) -> None:
    """As whole answers, so that browsers come back in order; none is waited for."""
    async with client_at(service.socket) as viewer:
        async with service.served():
            response = await viewer.send(viewer.build_request("GET", "/staff/ops/live"), stream=True)
            stream = events(response)
            await anext(stream)
        assert service.dashboard._streams.open == 0
        assert [event async for event in stream if "ready" in event["data"]] == []
        await response.aclose()


async def test_action_is_logged_although_its_user_has_gone(
    concert: Coordinator, service: Service, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on to its end."""
    caplog.set_level(logging.INFO, "inconcert.dashboard")
    has_begun, may_end = asyncio.Event(), asyncio.Event()
    purge = concert.tasks.purge

    async def slow(_: Tasks, job_id: str) -> None:
        has_begun.set()
        await may_end.wait()
        await purge(job_id)

    monkeypatch.setattr(Tasks, "purge", slow)
    dead = await bury(concert)
    async with service.served():
        async with client_at(service.socket) as client:
            asking = asyncio.ensure_future(client.post("/staff/ops/actions/purge", data={"job": dead}, headers=OURS))
            await has_begun.wait()
            asking.cancel()
            await asyncio.wait([asking])
        may_end.set()

    assert await concert.tasks.dead() == []
    assert f"purge: job {dead}, by 'ann'" in caplog.text


def test_aiohttp_is_not_needed_elsewhere() -> None:
    """Only the file that is about it imports it."""
    code = "import sys, inconcert.dashboard, inconcert.cli.dashboard; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
