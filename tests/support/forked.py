"""Processes that start in no time: forks of one that has imported what they need.

For tests that kill hundreds of them; others use `processes.py`.
"""

import asyncio
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["Forked"]

Target = Callable[..., Awaitable[object]]

_forks = multiprocessing.get_context("forkserver")


class Forked:
    """A process that runs one function and tells how far it came, as `processes.tell` does.

    Args:
        target: A coroutine function of a module, with arguments that can be pickled.

    Attributes:
        messages: What it has told.
        stopped_at: When it was killed, by the monotonic clock; None while it lives.
    """

    def __init__(self, target: Target, *args: object) -> None:
        _forks.set_forkserver_preload([target.__module__])
        self.messages: list[dict[str, Any]] = []
        self.stopped_at: float | None = None
        self._told, told = _forks.Pipe(duplex=False)
        self._process = _forks.Process(target=_run, args=(told, target, args), daemon=True)
        self._process.start()
        told.close()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process.pid is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL, and return when it is dead and all that it told is here."""
        self.stopped_at = self.stopped_at or time.monotonic()
        self._process.kill()
        self._process.join()
        self._reader.join()
        self._told.close()

    def _read(self) -> None:
        with open(self._told.fileno(), closefd=False, encoding="utf-8") as lines:
            for line in lines:
                if line.endswith("\n"):  # otherwise it died while it told
                    self.messages.append(json.loads(line))


def _run(told: Connection, target: Target, args: tuple[object, ...]) -> None:
    os.dup2(told.fileno(), 1)
    threading.Thread(target=_die_with, args=(os.getppid(),), daemon=True).start()
    asyncio.run(_main(target, args))


async def _main(target: Target, args: tuple[object, ...]) -> None:
    await target(*args)


def _die_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
