"""Processes that tests kill and pause, and that never outlive the test run, not even one that is killed.

`spawn()` runs a function of a test module in a Python process of its own, a fork, which starts in no time:

    async def hold_lock(url: str, name: str) -> None:      # in tests/support/children.py
        ...
        tell("granted", token=lease.fencing_token)

    async with spawn("tests.support.children:hold_lock", url, "door") as child:
        granted = await child.wait_for("granted")
        child.kill()
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

import anyio

from tests.support.forks import Fork, environment, run

__all__ = ["Child", "Leashed", "is_alive", "process_state", "spawn", "tell"]

_ROOT = Path(__file__).parents[2]
_RECHECK_AFTER = 0.005  # seconds

# A background shell reads from the socket whose other end only we have, and this shell becomes the program itself, so
# that its process id is the one we know. A line calls the watch off; the end of the file means that we are dead.
_LEASH = """
exec 3<&0
{ echo >&3; read -r line <&3 || kill -9 $$; } >/dev/null 2>&1 &
exec "$@" 3<&- </dev/null
"""


class Leashed:
    """A process that dies, even if paused, when the test run dies."""

    def __init__(
        self, command: Sequence[str], *, stdout: int | IO[bytes], stderr: IO[bytes], env: dict[str, str] | None = None
    ) -> None:
        self._leash, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", _LEASH, "leash", *command],
                stdin=theirs.fileno(),
                stdout=stdout,
                stderr=stderr,
                cwd=_ROOT,
                env=env,
                start_new_session=True,
            )
        self._leash.recv(1)  # the watch is on, so whatever happens to this process now, it will not stay

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_running(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def pause(self) -> None:
        """SIGSTOP, and return when the process stands still."""
        self.process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self.process.returncode = os.waitstatus_to_exitcode(status)
            raise AssertionError(f"the process has ended with {self.process.returncode} and cannot be paused")

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def terminate(self, *, timeout: float = 10.0) -> int:
        """SIGTERM, with `timeout` seconds to end in; the exit code."""
        self.process.terminate()
        self.resume()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout)
        return self.kill()

    def kill(self) -> int:
        """SIGKILL, and return the exit code when it is dead; does nothing more if it is dead already."""
        self.process.kill()
        code = self.process.wait()
        with self._leash, suppress(OSError):  # killed before
            self._leash.sendall(b"\n")
        return code


class Child:
    """A Python process that runs one function and tells how far it came. Leaving the `async with` kills it."""

    def __init__(self, target: str, args: tuple[object, ...], *, fresh: bool) -> None:
        self.messages: list[dict[str, Any]] = []
        self._target = target
        self._seen: set[int] = set()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        told, stdout = os.pipe()
        self._told = os.fdopen(told, encoding="utf-8")
        with os.fdopen(stdout, "wb") as out:
            self._process = (
                _interpreter(target, args, stdout=out, stderr=self._errors)
                if fresh
                else Fork(target, args, stdout=out, stderr=self._errors)
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_running(self) -> bool:
        return self._process.is_running()

    async def wait_for(self, event: str, *, timeout: float = 20.0) -> dict[str, Any]:
        """Return the next message of this event that was not returned before."""
        deadline = time.monotonic() + timeout
        while True:
            ended = not self._reader.is_alive()
            for number, message in enumerate(self.messages):
                if message["event"] == event and number not in self._seen:
                    self._seen.add(number)
                    return message
            if ended or time.monotonic() > deadline:
                what = "ended" if ended else f"ran for {timeout:g} s"
                raise AssertionError(
                    f"{self._target} {what} without {event!r}; it told {self.messages}; its errors:\n{self.errors()}"
                )
            await anyio.sleep(_RECHECK_AFTER)

    async def wait(self, *, timeout: float = 20.0) -> int:
        """Wait until it ends by itself, and return the exit code."""
        deadline = time.monotonic() + timeout
        while self.is_running():
            if time.monotonic() > deadline:
                raise AssertionError(f"{self._target} did not end within {timeout:g} s; it told {self.messages}")
            await anyio.sleep(_RECHECK_AFTER)
        return self._process.kill()

    def errors(self) -> str:
        """Return what it wrote to standard error."""
        # Read without moving the place where it writes on, which the two processes share.
        length = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), length, 0).decode(errors="replace")

    def kill(self) -> None:
        self._process.kill()

    def signal(self, number: int) -> None:
        """Send a signal (SIGTERM, SIGINT), without waiting for what comes of it."""
        self._process.signal(number)

    def pause(self) -> None:
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    def close(self) -> None:
        self.kill()
        # A process that the child left behind may hold the pipe open: then the thread waits on, and closes it later.
        self._reader.join(timeout=1)
        self._errors.close()

    def _read(self) -> None:
        with self._told as lines:
            for line in lines:
                self.messages.append(json.loads(line))


def _interpreter(target: str, args: tuple[object, ...], *, stdout: IO[bytes], stderr: IO[bytes]) -> Leashed:
    return Leashed(
        [sys.executable, "-u", "-m", "tests.support.processes", target, json.dumps(args)],
        stdout=stdout,
        stderr=stderr,
        env=environment(),
    )


def spawn(target: str, *args: object, fresh: bool = False) -> Child:
    """Run a function in a process of its own.

    Args:
        target: "package.module:function", plain or async, importable from the root of the repository.
        args: Its arguments; JSON values.
        fresh: Start a new interpreter, as users do, instead of a fork of one that has imported the module.
    """
    return Child(target, args, fresh=fresh)


def tell(event: str, **facts: object) -> None:
    """In the child: send a message to the test."""
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


def process_state(pid: int) -> str:
    """Return "R" for running, "S" for sleeping, "T" for paused and so on, "" if there is no such process."""
    if Path("/proc/self/stat").exists():  # a cluster asks 40 times while it starts
        try:
            return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
        except OSError:
            return ""
    ps = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return ps.stdout.strip()[:1]


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and one that has not ended."""
    return process_state(pid) not in ("", "Z")


if __name__ == "__main__":
    run(sys.argv[1], json.loads(sys.argv[2]))
