"""Demos that run as a person starts them, with all that they start; and what they print."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.support.pages import ROOT
from tests.support.processes import Leashed

__all__ = ["Demo", "without_numbers"]


class Demo:
    """A demo as a process, with a session and a folder for temporary files of its own.

    Args:
        folder: For its temporary files; empty.
        module: What is run, as after `python -m`, with its arguments.
    """

    def __init__(self, folder: Path, *module: str) -> None:
        self.folder = folder
        self.errors = (folder / "errors").open("w+b")
        self.leashed = Leashed(
            [sys.executable, "-u", "-m", *module],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]), "TMPDIR": str(folder), "TERM": "dumb"},
        )
        self.process = self.leashed.process

    def read_until(self, text: str) -> str:
        """Return what it prints up to the line with this text."""
        assert self.process.stdout is not None
        read = ""
        while text not in read:
            line = self.process.stdout.readline().decode()
            assert line, f"the demo ended without {text!r}; it printed:\n{read}\n{self.errors.read().decode()}"
            read += line
        return read

    def wait(self) -> int:
        """Wait for its end, and return the exit status."""
        self.process.wait(10)
        return self.leashed.kill()

    def close(self) -> None:
        """End it if it has not ended, and what it may have left."""
        self.leashed.kill()
        for pid in self.left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.errors.close()

    def left(self) -> list[int]:
        """Processes in its session, and those elsewhere whose arguments name its folder: the embedded server."""
        ps = subprocess.run(["ps", "-A", "-o", "pid=,stat=,args="], capture_output=True, text=True, check=True)
        rows = [line.split(maxsplit=2) for line in ps.stdout.splitlines()]
        return [
            int(pid)
            for pid, state, *args in rows
            if not state.startswith("Z")
            and (_session(int(pid)) == self.process.pid or str(self.folder) in "".join(args))
        ]


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def without_numbers(text: str) -> set[str]:
    """The lines of a demo, of whatever size and on whatever machine."""
    numbers = re.sub(r"\d+(\.\d+)?( m?s\b)?", "N", text)
    return {" ".join(line.split()) for line in numbers.splitlines() if line}
