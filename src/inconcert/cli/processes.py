"""The parent of worker processes: it restarts them when they die, and passes signals on as orders."""

import asyncio
import logging
import os
import random
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from inconcert._rules.backoff import backoff
from inconcert.cli.ends import CANNOT_START
from inconcert.cli.forks import SIGNALS
from inconcert.cli.probes import CHILDREN
from inconcert.cli.serving import NOW, STOP, obey_hangup

_log = logging.getLogger("inconcert.cli")

_LONGEST_PAUSE = 30.0  # seconds before a process that died is restarted
_STEADY = 60.0  # seconds of life after which earlier deaths are forgotten


class Parent:
    """Keeps a number of processes running."""

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        *,
        burst: bool,
        is_renewed: bool,
        watch: Path | None,
        port: int | None = None,
    ) -> None:
        self._command = command  # the number and the pipe of each, and where it answers probes, are added
        self._count = count
        self._burst = burst  # whether one that ended by itself stays ended
        self._is_renewed = is_renewed  # whether one that ended by itself is replaced at once
        self._watch = watch  # restart them when a `.py` file in this folder changes
        self._port = port  # they answer probes, each at a port of its own after this one
        self._children: dict[Process, int] = {}  # and the pipe for its orders
        self._orders = b""  # what the parent itself was ordered to do
        self._news = asyncio.Event()  # an order, or a change of the code; replaced after each change
        self._exit_code = 0

    async def run(self) -> int:
        """Start the processes, and return an exit code when all have ended: 0 if all ended in good order."""
        loop = asyncio.get_running_loop()
        for signal in SIGNALS:
            loop.add_signal_handler(signal, self._signalled)
        obey_hangup(self._hung_up)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._reload(self._watch)) if self._watch else None
            async with asyncio.TaskGroup() as keeping:
                for number in range(1, self._count + 1):
                    keeping.create_task(self._keep(number))
            if watching is not None:
                watching.cancel()
        return self._exit_code

    def _signalled(self) -> None:
        """The first signal drains, the second requeues everything at once, the third kills."""
        if NOW in self._orders:
            for child in self._children:
                child.kill()
            self._exit_code = 1
        else:
            self._order(NOW if self._orders else STOP)

    def _hung_up(self) -> None:
        if not self._orders:
            self._order(STOP)

    def _order(self, order: bytes) -> None:
        self._orders += order
        self._news.set()
        for pipe in self._children.values():
            _tell(pipe, order)

    async def _keep(self, number: int) -> None:
        deaths = 0
        while not self._orders:
            news, started_at = self._news, time.monotonic()
            code = await self._run_one(number)
            if news.is_set():  # it was ordered to end
                deaths = 0
            elif code == 0 and self._burst:
                break
            elif code == 0 and self._is_renewed:
                _log.info("worker process %d has run as many jobs as it may; another starts", number)
                deaths = 0
            elif code == CANNOT_START and self._watch is None:
                self._exit_code = CANNOT_START
                self._order(STOP)
            else:
                deaths = 1 if time.monotonic() - started_at > _STEADY else deaths + 1
                await self._pause(number, code, deaths, news)

    async def _pause(self, number: int, code: int, deaths: int, news: asyncio.Event) -> None:
        if code == CANNOT_START:
            pause = None
            _log.error("worker process %d cannot start; waiting for a change of the code", number)
        else:
            pause = backoff(deaths, random.random(), first=1.0, most=_LONGEST_PAUSE)
            _log.error("worker process %d ended with %d; another starts in %.1f s", number, code, pause)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await news.wait()

    async def _run_one(self, number: int) -> int:
        orders, pipe = os.pipe()
        try:
            command = [*self._command, f"--parent={orders}", f"--number={number}"]
            if self._port is not None:
                command.append(f"--health={CHILDREN}:{self._port + number}")
            child = await asyncio.create_subprocess_exec(*command, pass_fds=[orders])
        finally:
            os.close(orders)
        _log.info("worker process %d started, pid %d", number, child.pid)
        self._children[child] = pipe
        if self._orders:  # received while it was starting
            _tell(pipe, self._orders)
        try:
            return await child.wait()
        finally:
            del self._children[child]
            os.close(pipe)

    async def _reload(self, folder: Path) -> None:
        # An extra; its absence was reported before. Its types are incomplete.
        from watchfiles import PythonFilter, awatch  # noqa: PLC0415  # pyright: ignore[reportUnknownVariableType]

        async for changes in awatch(folder, watch_filter=PythonFilter()):
            _log.info("%s changed: restarting all worker processes", ", ".join(sorted({path for _, path in changes})))
            self._news.set()
            self._news = asyncio.Event()
            for pipe in self._children.values():
                _tell(pipe, NOW)


def _tell(pipe: int, order: bytes) -> None:
    with suppress(BrokenPipeError):  # it is already dead
        os.write(pipe, order)
