"""The shop on each web framework, started as an operator does."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import ExitStack, aclosing
from pathlib import Path

import httpx
import pytest

from inconcert import Coordinator, Job
from inconcert.integrations._idempotency import IdempotentRequest
from inconcert.tasks.records.store import JobKeys
from tests.support.eventually import eventually
from tests.support.http import client_at, events
from tests.support.lines import in_line
from tests.support.processes import Leashed
from tests.support.raw import raw
from tests.support.servers import RealServer

ROOT = Path(__file__).parents[2]

COMMANDS = {
    "aiohttp": ["aiohttp.web", "examples.aiohttp_service.app:make_app", "-U"],
    "fastapi": ["uvicorn", "examples.fastapi_service.app:app", "--loop", "uvloop", "--uds"],
    "litestar": ["uvicorn", "examples.litestar_service.app:app", "--loop", "uvloop", "--uds"],
}
USUAL = ("INFO:", "INFO - ", "DEBUG:asyncio:", "Stopped")  # what a server says that starts and ends as it should

Start = Callable[[Path], Awaitable[Leashed]]


@pytest.fixture
def start(framework: str, server: RealServer, namespace: str) -> Generator[Start]:
    """Start the shop at a socket, as its first lines say; what it complains of is in a file beside the socket."""
    import_path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    variables = {"PYTHONPATH": import_path, "INCONCERT_URL": server.url, "INCONCERT_NAMESPACE": namespace}
    with ExitStack() as stack:

        async def start(socket: Path) -> Leashed:
            service = Leashed(
                [sys.executable, "-m", *COMMANDS[framework], str(socket)],
                stdout=subprocess.DEVNULL,
                stderr=stack.enter_context(socket.with_suffix(".errors").open("wb")),
                env=os.environ | variables,
            )
            stack.callback(service.kill)
            await eventually(socket.exists)
            return service

        yield start


@pytest.mark.in_turn("service")
@pytest.mark.parametrize("framework", COMMANDS)
async def test_shop_serves_and_ends_with_open_streams(framework: str, start: Start, tmp_path: Path) -> None:
    """A payment is made once, its job runs beside, chats stream; SIGTERM ends all, without a complaint."""
    socket = tmp_path / "socket"
    service = await start(socket)
    async with client_at(socket) as http:
        key = {"X-User": "ann", "Idempotency-Key": "k1"}
        paid = [(await http.post(f"/orders/{framework}/pay", headers=key)).json() for _ in range(2)]
        assert paid[0] == paid[1]
        assert paid[0]["charge"] == f"{framework}-1"
        job = await http.get(f"/jobs/{paid[0]['job']}")
        assert job.json() == {"result": f"the receipt of {framework} is sent"}
        assert (await http.get("/jobs/none")).status_code == 404
        assert (await http.get("/health/ready")).status_code == 200

        begun = await http.post("/chats", headers={"X-User": "ann"}, json={"to": "bob", "text": "hello"})
        headers = {"X-User": "bob"}
        async with (
            http.stream("GET", "/messages", headers=headers) as response,
            aclosing(events(response)) as stream,
        ):
            batch = json.loads((await anext(stream))["data"])
            assert [message["body"] for message in batch["messages"]] == ["hello"]
            seen = await http.put(f"/chats/{begun.json()}/read/{batch['last_id']}", headers=headers)
            assert seen.status_code == 204

            service.process.send_signal(signal.SIGTERM)
            assert [event async for event in stream] == []  # it ends as a whole answer does
    assert service.process.wait(timeout=10) in {0, -signal.SIGTERM}
    lines = socket.with_suffix(".errors").read_text().splitlines()
    assert [line for line in lines if not line.startswith(USUAL)] == []


@pytest.mark.in_turn("service")
@pytest.mark.parametrize(
    "framework",
    [
        pytest.param("aiohttp", marks=pytest.mark.torture),
        "fastapi",
        pytest.param("litestar", marks=pytest.mark.torture),
    ],
)
async def test_shop_that_is_killed_loses_nothing(
    framework: str, concert: Coordinator, start: Start, tmp_path: Path
) -> None:
    """Kill -9 amid a payment and jobs: what the process held lapses, and the next one answers and goes on."""
    before, amid = f"{framework}-before", f"{framework}-amid"
    order = concert.lock(f"order:{amid}")

    @concert.task(name=f"examples.{framework}_service.app.send_receipt")
    async def send_receipt(order_id: str) -> str:
        raise NotImplementedError(order_id)  # no worker runs here

    service = await start(tmp_path / "killed")
    async with client_at(tmp_path / "killed") as http:
        paid = await _pay(http, before)
        chat = await http.post("/chats", headers={"X-User": "ann"}, json={"to": "bob", "text": "hello"})
        await concert.tasks.pause("default")
        jobs = await concert.enqueue_many([send_receipt.call(str(number)) for number in range(1000)])
        async with order:
            payment = asyncio.create_task(_pay(http, amid))
            await in_line(order, 1)
            await concert.tasks.resume("default")
            claimed = await _stopped_with_jobs(service, concert)
        assert len(await order.holders()) == 1  # it was handed to the process, which stands still
        service.kill()
        with pytest.raises(httpx.TransportError):
            await payment

    workers = JobKeys(concert._ref.keys).workers
    await _lapse(concert, workers, await raw(concert).zrange(workers, 0, -1))
    await start(tmp_path / "next")
    async with client_at(tmp_path / "next") as http:
        assert (await _pay(http, before)).json() == paid.json()
        assert (await _pay(http, amid)).status_code == 409  # for all that the process knows, it is being handled
        for lock in (order, concert.lock(f"idempotency:{_payment(amid).name}")):
            await _lapse(concert, lock._keys.holders, await lock.holders())
        assert (await _pay(http, amid)).json()["charge"] == f"{amid}-1"

        for job_id in claimed:
            assert (await http.get(f"/jobs/{job_id}")).status_code == 200
        await eventually(lambda: _are_done(jobs))
        async with (
            http.stream("GET", "/messages", headers={"X-User": "bob"}) as response,
            aclosing(events(response)) as stream,
        ):
            assert chat.json() in (await anext(stream))["data"]


def _payment(order_id: str) -> IdempotentRequest:
    return IdempotentRequest(f"k{order_id}", "POST", f"/orders/{order_id}/pay", "ann", b"")


async def _pay(http: httpx.AsyncClient, order_id: str) -> httpx.Response:
    request = _payment(order_id)
    return await http.post(request.path, headers={"X-User": request.user, "Idempotency-Key": request.key})


async def _stopped_with_jobs(service: Leashed, concert: Coordinator) -> Sequence[str]:
    """Let the service stand still at a moment at which it has claimed jobs; their ids."""

    async def stopped() -> Sequence[str]:
        service.pause()
        [worker] = await concert.tasks.workers()
        if not worker.running:
            service.resume()
        return [job.id for job in worker.running]

    claimed: Sequence[str] = await eventually(stopped)
    return claimed


async def _lapse(concert: Coordinator, leases: str, holders: Sequence[str | bytes]) -> None:
    """Let these lapse now, instead of in 10 or 30 s."""
    if holders:
        await raw(concert).zadd(leases, dict.fromkeys(holders, 1), xx=True)


async def _are_done(jobs: Sequence[Job[str]]) -> bool:
    return all(status == "succeeded" for status in await asyncio.gather(*(job.status() for job in jobs)))
