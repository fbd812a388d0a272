"""Processes that end when the process that started them ends, however it ends.

Each has a pipe as its standard input.  Only the starting process has the other end, and never writes to it.  The system
closes it when that process is gone, `kill -9` included; a thread in the child notices, and ends the child.
"""

import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

_GRACE = 5.0  # seconds to end in


class Processes:
    """Python modules that run as separate processes, for the length of a `with`."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, module: str, *args: str, env: dict[str, str]) -> int:
        """Run `python -m module args`, with `env` added to the environment; returns the process's id."""
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, module, *args],
            env=os.environ | env,
            stdin=subprocess.PIPE,
            process_group=0,  # Ctrl-C is for the starting process only
        )
        self._started.append(process)
        return process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._started:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE + 1.0)
            process.kill()
            process.wait()


def _end_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)  # returns when the pipe is closed
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
