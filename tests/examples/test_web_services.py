"""The shop on each web framework, started as an operator does."""

import json
import os
import signal
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.http import client_at, events
from tests.support.processes import Leashed
from tests.support.servers import RealServer

ROOT = Path(__file__).parents[2]

COMMANDS = {
    "aiohttp": ["aiohttp.web", "examples.aiohttp_service.app:make_app", "-U"],
    "fastapi": ["uvicorn", "examples.fastapi_service.app:app", "--loop", "uvloop", "--uds"],
    "litestar": ["uvicorn", "examples.litestar_service.app:app", "--loop", "uvloop", "--uds"],
}
USUAL = ("INFO:", "INFO - ", "DEBUG:asyncio:", "Stopped")  # what a server says that starts and ends as it should


@pytest.mark.parametrize("framework", COMMANDS)
async def test_shop_serves_and_ends_with_open_streams(
    framework: str, server: RealServer, namespace: str, tmp_path: Path
) -> None:
    """A payment is made once, its job runs beside, chats stream; SIGTERM ends all, without a complaint."""
    socket = tmp_path / "socket"
    with (tmp_path / "errors").open("w+b") as errors:
        service = Leashed(
            [sys.executable, "-m", *COMMANDS[framework], str(socket)],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
                "INCONCERT_URL": server.url,
                "INCONCERT_NAMESPACE": namespace,
            },
        )
        try:
            await eventually(socket.exists)
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
        finally:
            service.kill()
        errors.seek(0)
        lines = errors.read().decode().splitlines()
    assert [line for line in lines if not line.startswith(USUAL)] == []
