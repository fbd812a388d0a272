"""Processes that start in no time: forks of one that has imported what they need.

Each test run has one server of forks, started with its first `Fork`. For each fork it is given a socket, by which it is
asked, and tells what becomes of the process. It has no threads, and imports the module of a function before it forks.

The end of that socket means that the test run is dead: then the server kills the process, even if it is paused.
"""

import asyncio
import atexit
import gc
import importlib
import inspect
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import IO, Any

import anyio.lowlevel

import inconcert
from tests.support.world import new_loop

__all__ = ["Fork", "environment", "run"]

_ROOT = Path(__file__).parents[2]
_NUMBER = struct.Struct("=i")  # the process id, and then each status, as `os.waitpid` has it


class Fork:
    """A Python process that runs one function, and dies, even if paused, when the test run dies.

    Args:
        target: "package.module:function", plain or async, importable from the root of the repository.
        args: Its arguments; JSON values.
        stdout: Where it writes.
        stderr: Where it writes its errors.
    """

    def __init__(self, target: str, args: tuple[object, ...], *, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self._server, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(_control(), [b"+"], [theirs.fileno(), stdout.fileno(), stderr.fileno()])
        self._server.sendall(json.dumps([target, args, environment()]).encode() + b"\n")
        self._pid: int | None = None  # until it is told: the server imports first, and the caller's event loop runs on
        self._code: int | None = None

    @property
    def pid(self) -> int:
        """Of the process; waits until it is there."""
        if self._pid is None:
            self._pid = self._number()
        return self._pid

    def is_running(self) -> bool:
        while self._code is None and select.select([self._server], [], [], 0)[0]:
            if self._pid is None:
                self._pid = self._number()
            else:
                self._change()
        return self._code is None

    def signal(self, number: int) -> None:
        if self.is_running():
            os.kill(self.pid, number)

    def pause(self) -> None:
        """SIGSTOP, and return when the process stands still."""
        self.signal(signal.SIGSTOP)
        if self._code is not None or not self._change():
            raise AssertionError(f"the process has ended with {self._code} and cannot be paused")

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def wait(self, timeout: float) -> int:
        """Wait until it ends by itself, and return the exit code; after `timeout` seconds kill it."""
        deadline = time.monotonic() + timeout
        while self.is_running():
            select.select([self._server], [], [], max(0, deadline - time.monotonic()))
            if time.monotonic() > deadline:
                break
        return self.kill()

    def kill(self) -> int:
        """SIGKILL, and return the exit code when it is dead; does nothing more if it is dead already."""
        self.signal(signal.SIGKILL)
        while self._code is None:
            self._change()
        self._server.close()
        return self._code

    def _change(self) -> bool:
        """Wait for the next change; whether it stands still now, and has not ended."""
        assert self.pid  # which comes first
        status = self._number()
        if not os.WIFSTOPPED(status):
            self._code = os.waitstatus_to_exitcode(status)
        return self._code is None

    def _number(self) -> int:
        told = self._server.recv(_NUMBER.size, socket.MSG_WAITALL)
        assert told, "the server of forks has ended"
        number: int = _NUMBER.unpack(told)[0]
        return number


@cache
def _control() -> socket.socket:
    """The socket by which the server of forks is given others, and whose end it ends with."""
    ours, theirs = socket.socketpair()
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-u", "-m", "tests.support.forks", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            cwd=_ROOT,
            env=environment(),
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )

    @atexit.register
    def end() -> None:
        ours.close()
        server.wait()

    return ours


def environment() -> dict[str, str]:
    """The environment of a process that runs functions of our modules, as are the processes that it starts."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), str(_ROOT / "src")])}


def run(target: str, args: list[Any]) -> None:
    """Run this function to its end, in the event loop of this world if it is async."""
    module, _, function = target.partition(":")
    result = getattr(importlib.import_module(module), function)(*args)
    if inspect.iscoroutine(result):
        with asyncio.Runner(loop_factory=new_loop()) as runner:
            runner.run(result)


@dataclass(frozen=True)
class _Request:
    target: str
    args: list[Any]
    variables: dict[str, str]
    stdout: int
    stderr: int

    def run(self) -> None:
        """In a fork: be a process of its own, and run the function."""
        os.setsid()
        for number, place in (self.stdout, 1), (self.stderr, 2):
            os.dup2(number, place)
            os.close(number)
        sys.argv = [self.target]
        os.environ.clear()
        os.environ.update(self.variables)
        run(self.target, self.args)


class _Server:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._askers: dict[int, socket.socket] = {}  # by the process id of what they have asked for
        self._changed, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        signal.signal(signal.SIGCHLD, _go_on)
        signal.set_wakeup_fd(self._wake)

    def serve(self) -> _Request | None:
        """Fork until the test run has ended: then None; in each fork, return what it is asked for."""
        while True:
            sockets = [self._control, *self._askers.values()]
            ready, _, _ = select.select([self._changed, *(each.fileno() for each in sockets)], [], [])
            if self._changed in ready:
                os.read(self._changed, 100)
                self._tell()
            for pid, asker in self._askers.items():
                if asker.fileno() in ready:  # its end, for it has no more to say
                    os.kill(pid, signal.SIGKILL)
            if self._control.fileno() in ready:
                _, given, _, _ = socket.recv_fds(self._control, 1, 3)
                if not given:
                    for pid in self._askers:
                        os.kill(pid, signal.SIGKILL)
                    return None
                if request := self._fork(socket.socket(fileno=given[0]), *given[1:]):
                    return request

    def _fork(self, asker: socket.socket, stdout: int, stderr: int) -> _Request | None:
        with asker.makefile() as asked:
            target, args, environ = json.loads(asked.readline())
            request = _Request(target, args, environ, stdout, stderr)
        with suppress(Exception):  # then it fails in the fork again, which says so
            importlib.import_module(target.partition(":")[0])
        gc.freeze()  # otherwise each fork would look at, and so copy, all that is imported
        pid = os.fork()
        if pid == 0:
            asker.close()
            self._forget()
            return request
        self._askers[pid] = asker
        asker.send(_NUMBER.pack(pid))
        os.close(stdout)
        os.close(stderr)
        return None

    def _tell(self) -> None:
        for pid, status in _changes():
            with suppress(OSError):  # nobody asks any more
                self._askers[pid].send(_NUMBER.pack(status))
            if not os.WIFSTOPPED(status):
                self._askers.pop(pid).close()

    def _forget(self) -> None:
        """In a fork: have nothing of what the server has open."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in self._control, *self._askers.values():
            each.close()
        os.close(self._changed)
        os.close(self._wake)


def _go_on(number: int, frame: FrameType | None) -> None:
    """Let a signal do no more than wake the server, by a byte in its pipe."""


def _changes() -> Iterator[tuple[int, int]]:
    """What became of forks: their process ids and statuses."""
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG | os.WUNTRACED))[0]:
            yield found


def _import_all() -> None:
    """What each fork would otherwise have to import when it uses it first; less what few use."""
    for module in pkgutil.walk_packages(inconcert.__path__, "inconcert."):
        if module.name.split(".")[1] not in ("__main__", "cli", "dashboard", "integrations", "sql", "testing"):
            importlib.import_module(module.name)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_loop()) as runner:
        runner.run(anyio.lowlevel.checkpoint())
    _import_all()
    asked = _Server(socket.socket(fileno=int(sys.argv[1]))).serve()
    if asked:
        asked.run()
