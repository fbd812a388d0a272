"""Periodic functions: each runs in one process at a time, in however many it is registered.

The processes of a service elect a leader for each function.  When the next run is due is kept on the server, so neither
a new leader nor a restart of the service runs anything too early.

    latest   string  request of the latest run; lapses when the next is due

Source: docs/explanation/elections.md
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import anyio

from inconcert._core.cancellation import cancel_all
from inconcert._core.retry import retry_until_answered
from inconcert._core.session import SessionRef
from inconcert._redis.protocol.scripts import load
from inconcert._redis.wire.background import in_background
from inconcert._rules import durations
from inconcert._rules.durations import Seconds, milliseconds
from inconcert._rules.functions import name_of
from inconcert.elections.election import Election
from inconcert.errors import NotConnected

_log = logging.getLogger("inconcert.periodic")


PeriodicFunction = Callable[[], Coroutine[Any, Any, object]]


class _Keys(NamedTuple):
    latest: str
    recent: str
    older: str


_BEGIN = load("periodic/begin").bind(_Keys)


class Timetable:
    """The periodic functions of a coordinator, each in a task of its own while the coordinator is open."""

    def __init__(self, ref: SessionRef) -> None:
        self._ref = ref
        self._entries: dict[str, _Entry] = {}
        self._tasks: set[asyncio.Task[None]] | None = None  # None while closed

    def add(self, function: PeriodicFunction, *, period: Seconds, name: str | None) -> None:
        """Register a function, and start it if the coordinator is open.

        Raises:
            TypeError: `function` is not a coroutine function, or needs arguments.
            ValueError: The name is registered already, or `period` is not above 0.
        """
        entry = _Entry(self._ref, function, period=period, name=name)
        if entry.name in self._entries:
            raise ValueError(f"a periodic function {entry.name!r} is registered already; give one another name=")
        self._entries[entry.name] = entry
        if self._tasks is not None:
            self._tasks.add(entry.start())

    def start(self) -> None:
        """Start all functions: the coordinator has opened."""
        self._tasks = {entry.start() for entry in self._entries.values()}

    @property
    def runs_here(self) -> bool:
        """True if the current task is one of these functions."""
        return self._tasks is not None and asyncio.current_task() in self._tasks

    async def stop(self) -> None:
        """Cancel all functions and wait until they have ended: the coordinator is closing."""
        tasks, self._tasks = self._tasks, None
        await cancel_all(tasks or ())

    def forget(self) -> object:
        """Leave the running tasks to the parent process after a fork, and return them."""
        left, self._tasks = self._tasks, None
        return left


class PeriodicElection(Election):
    """Decides which process runs a periodic function."""

    _kind = "periodic"


class _Entry:
    """One periodic function."""

    def __init__(self, ref: SessionRef, function: PeriodicFunction, *, period: Seconds, name: str | None) -> None:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"{function!r} is not a coroutine function, and could not be stopped; write `async def`")
        try:
            inspect.signature(function).bind()
        except TypeError as error:
            raise TypeError(f"{function!r} cannot be called without arguments: {error}") from error
        self.name = name_of(function) if name is None else name
        self._ref = ref
        self._function = function
        self._period_ms = milliseconds(durations.period(period))
        self._election = PeriodicElection(ref, self.name)
        self._keys = ref.keys.of(_Keys, "periodic", self.name)

    def start(self) -> asyncio.Task[None]:
        return in_background(f"running periodic function {self.name!r}", self._run)

    async def _run(self) -> None:
        with suppress(NotConnected):
            await self._election.run(self._lead)

    async def _lead(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - nothing here runs outside a task
        while True:
            await self._wait_until_due()
            try:
                await self._function()
            except (KeyboardInterrupt, SystemExit):  # the program ends
                raise
            except BaseException as error:  # noqa: BLE001 - an error must not stop the next run
                if not isinstance(error, asyncio.CancelledError) or not task.cancelling():
                    _log.exception("periodic function %r failed; it runs again when it is due", self.name)
            if task.cancelling():  # even if the function swallowed the cancellation
                raise asyncio.CancelledError

    async def _wait_until_due(self) -> None:
        """Wait until a run is due, and return when the server has noted that it begins."""
        session = self._ref.session
        while True:
            command = _BEGIN(self._keys, request=session.new_address(), period_ms=self._period_ms)
            wait_ms = await retry_until_answered(
                _log, f"periodic function {self.name!r}", partial(session.run, command)
            )
            if not wait_ms:
                return
            await anyio.sleep(wait_ms / 1000)
