"""A private Valkey server: a child process that lives and dies with the program that started it.

The data, if kept, are in an append-only file: what the server acknowledged survives the server.  A power failure can
lose about the last second.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import anyio
import anyio.to_thread

from inconcert._redis.embedded.server_process import ServerProcess, find_binary, starting, stop
from inconcert.errors import Unavailable

_HANDOVER_TIMEOUT = 2.0  # seconds; a predecessor whose process was killed flushes its file and ends much sooner
_RECHECK_AFTER = 0.01  # seconds between two tries to lock a folder
_LONGEST_SOCKET_PATH = 100  # bytes; the system's own limit is 104 on macOS and 108 on Linux


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
        self._process: ServerProcess | None = None

    @property
    def url(self) -> str:
        """The URL of the server, `unix:///...`; a new path after every start.

        Raises:
            Unavailable: The server is not started.
        """
        if self._process is None:
            raise Unavailable("the embedded server is not running, so it has no address; start() it first")
        return f"unix://{quote(str(_socket(self._process.folder)))}"

    async def start(self) -> None:
        """Start the server and return when it answers; if this fails or is cancelled, nothing is left behind.

        Raises:
            ImportError: The extra is not installed.
            Unavailable: The folder is in use, or the server did not start; with its log.
            RuntimeError: It is already started.
        """
        if self._process is not None:
            raise RuntimeError("the embedded server is already started; stop() it first")
        binary = await anyio.to_thread.run_sync(find_binary)
        lock = None if self._data_dir is None else await _lock(self._data_dir)
        try:
            with starting():
                folder = _socket_folder()
                self._process = ServerProcess.spawn(folder, _command(binary, folder, self._data_dir), lock=lock)
        finally:
            if lock is not None:
                os.close(lock)
        try:
            await self._process.answers(lambda: _ping(_socket(folder)), b"+PONG")
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the server; everything it acknowledged is in its file. Does nothing if it is not started.

        A cancellation is raised only once the server has ended.
        """
        process, self._process = self._process, None
        if process is not None:
            await stop([process])


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


def _command(binary: Path, folder: Path, data_dir: Path | None) -> list[str]:
    return [
        str(binary),
        *("--port", "0"),
        *("--unixsocket", str(_socket(folder))),
        *("--unixsocketperm", "700"),
        *("--dir", str(data_dir or folder)),
        *("--appendonly", "yes" if data_dir else "no"),
        *("--save", ""),  # no snapshots: the append-only file has everything, and shutdown is quick
        *("--loglevel", "warning"),
    ]


def _socket(folder: Path) -> Path:
    return folder / "socket"


def _socket_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="inconcert-"))  # mode 0700
    if len(os.fsencode(_socket(folder))) > _LONGEST_SOCKET_PATH:
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
