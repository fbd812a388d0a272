"""No password, token or signing key is in a log, a `repr()` or an error, however it was given and whatever breaks."""

import asyncio
import gc
import json
import logging
import os
import subprocess
import sys
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from inconcert import Coordinator, QuorumLock, QuorumNotReached
from inconcert.errors import InconcertError
from tests.support.eventually import eventually
from tests.support.servers import RealServer, free_port

PASSWORD = "pass&word of the-test"
WRONG = "another&word of the-test"
SIGNING_KEY = "signing key of the-test"
PART = "the-test"  # of each, whether it is escaped or not

Opener = Callable[[int, str], AbstractAsyncContextManager[Coordinator]]


class Provider(redis.CredentialProvider):
    """One that has this password."""

    def __init__(self, password: str) -> None:
        self._credentials = ("default", password)

    def get_credentials(self) -> tuple[str, str]:
        return self._credentials

    async def get_credentials_async(self) -> tuple[str, str]:
        return self._credentials


@asynccontextmanager
async def by_url(port: int, password: str) -> AsyncGenerator[Coordinator]:
    """The password in the URL."""
    url = f"redis://default:{quote(password, safe='')}@127.0.0.1:{port}/0"
    async with Coordinator(url, timeout=0.5, signing_keys={"now": SIGNING_KEY}) as concert:
        yield concert


@asynccontextmanager
async def by_client(port: int, password: str, **options: object) -> AsyncGenerator[Coordinator]:
    """The password in a client."""
    make: Any = redis.asyncio.Redis
    client = make(port=port, retry=Retry(NoBackoff(), 0), **(options or {"password": password}))
    concert = Coordinator.from_client(client, timeout=0.5, signing_keys={"now": SIGNING_KEY})
    async with client, concert:
        yield concert


def by_provider(port: int, password: str) -> AbstractAsyncContextManager[Coordinator]:
    """The password in what a credential provider gives."""
    return by_client(port, password, credential_provider=Provider(password))


class Shown:
    """What users may see."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def error(self, error: BaseException) -> None:
        """An error with all its causes, and each with its attributes."""
        self.texts.append("".join(traceback.format_exception(error)))
        cause: BaseException | None = error
        while cause is not None:
            self.texts += [repr(cause), repr(vars(cause))]
            cause = cause.__cause__ or cause.__context__

    async def of(self, opened: AbstractAsyncContextManager[Coordinator]) -> None:
        """The error with which it does not open."""
        with pytest.raises(InconcertError) as caught:
            await opened.__aenter__()
        self.error(caught.value)


@pytest.fixture
def guarded(own_server: RealServer) -> RealServer:
    """A server with a password, which its own helpers do not have."""
    own_server.command("CONFIG", "SET", "requirepass", PASSWORD)
    own_server._password = quote(PASSWORD, safe="")
    return own_server


@pytest.mark.parametrize("opener", [by_url, by_client, by_provider])
async def test_nothing_shows_a_secret(opener: Opener, guarded: RealServer, caplog: pytest.LogCaptureFixture) -> None:
    """What is refused, what works, what breaks meanwhile, and every object of ours that is there then."""
    caplog.set_level(logging.DEBUG)
    shown = Shown()
    await shown.of(opener(free_port(), PASSWORD))
    await shown.of(opener(guarded.port, WRONG))

    async with opener(guarded.port, PASSWORD) as concert:

        @concert.task(name="fail", max_attempts=1)
        async def fail() -> None:
            raise ValueError("wrong")

        await fail.enqueue()
        await concert.run_worker("default", burst=True)
        guarded.command("CLIENT", "KILL", "TYPE", "normal")
        await eventually(concert.lock("a").try_acquire)
        ours = [each for each in gc.get_objects() if str(type(each).__module__).startswith("inconcert")]
        shown.texts += [repr(each) for each in [*ours, concert.url, concert.redis]]
        guarded.pause()
        with pytest.raises(InconcertError) as caught:
            await concert.lock("a").try_acquire()
        shown.error(caught.value)
        guarded.resume()
        guarded.kill()
        with pytest.raises(InconcertError) as caught:
            await concert.lock("a").try_acquire()
        shown.error(caught.value)

    shown.texts += [f"{record.getMessage()} {record.exc_text} {record.args!r}" for record in caplog.records]
    assert len(caplog.records) > 5
    assert [text for text in shown.texts if PART in text] == []


async def test_quorum_lock_shows_no_password(guarded: RealServer) -> None:
    """Neither of servers that refuse it, nor of those that are away."""
    make: Any = redis.asyncio.Redis
    ports = guarded.port, free_port(), free_port()
    clients = [make(port=port, password=WRONG, retry=Retry(NoBackoff(), 0)) for port in ports]
    lock = QuorumLock(clients, "a", timeout=0.2)
    shown = Shown()
    with pytest.raises((QuorumNotReached, InconcertError)) as caught:
        await lock.acquire()
    shown.error(caught.value)
    assert [text for text in [*shown.texts, repr(lock)] if PART in text] == []
    await asyncio.gather(*(client.aclose() for client in clients))


@pytest.mark.parametrize("arguments", [["health", "app:concert"], ["worker", "app:concert", "--log-level=debug"]])
def test_command_line_shows_no_secret(guarded: RealServer, tmp_path: Path, arguments: list[str]) -> None:
    """In a process of its own, which logs all that there is to stderr."""
    code = "from inconcert import Coordinator\nconcert = Coordinator.from_env()\n"
    (tmp_path / "app.py").write_text(f"import logging\nlogging.basicConfig(level=logging.DEBUG)\n{code}")
    environment = {
        "INCONCERT_URL": f"redis://default:{quote(WRONG, safe='')}@127.0.0.1:{guarded.port}/0",
        "INCONCERT_SIGNING_KEYS": json.dumps({"now": SIGNING_KEY}),
    }
    ended = subprocess.run(
        [sys.executable, "-m", "inconcert", *arguments],
        cwd=tmp_path,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert "password" in ended.stdout + ended.stderr  # it says what is wrong
    assert PART not in ended.stdout + ended.stderr
