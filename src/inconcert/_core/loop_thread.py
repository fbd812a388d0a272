"""An event loop in a thread of its own, on which a coordinator is open for threads that have none."""

import concurrent.futures
import os
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import Protocol, TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from inconcert._core.lease import Lease, state_of
from inconcert.errors import NotConnected

R = TypeVar("R")

_LEAVING = 5.0  # seconds that an interrupted caller waits at most until it has left the line


class Opened(Protocol):
    """The object that is open there."""

    async def open(self) -> object:
        """Open it."""
        ...

    async def close(self) -> None:
        """Close it."""


class LoopThread:
    """The event loop on which a coordinator is open, in a thread of one process."""

    def __init__(self, opened: Opened) -> None:
        self._process = os.getpid()
        self._opened = opened
        with ExitStack() as stack:
            self._portal: BlockingPortal = stack.enter_context(start_blocking_portal("asyncio"))
            self._portal.call(opened.open)
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Close the coordinator, and end the thread."""
        with self._stack:
            self._portal.call(self._opened.close)

    def call(self, function: Callable[[], Awaitable[R]]) -> R:
        """Call a coroutine function there, and wait; an interrupt cancels it."""
        self._check()
        future = self._portal.start_task_soon(function)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def acquire(self, function: Callable[[], Awaitable[Lease | None]]) -> Lease | None:
        """Acquire there, and wait; an interrupt leaves nothing in line, and nothing held."""
        self._check()
        acquisition = Acquisition(function)
        future = self._portal.start_task_soon(acquisition.run)
        try:
            return future.result()
        except BaseException:
            with suppress(RuntimeError):  # the loop has ended, and released all
                self._portal.call(acquisition.abandon)
                concurrent.futures.wait([future], timeout=_LEAVING)
            raise

    def _check(self) -> None:
        if self._process != os.getpid():
            raise NotConnected(
                f"this was acquired in process {self._process}, of which this one is a fork; acquire it again here",
                is_misuse=True,
            )


class Acquisition:
    """An acquisition for a thread that may be interrupted meanwhile; runs on the loop."""

    def __init__(self, acquire: Callable[[], Awaitable[Lease | None]]) -> None:
        self._acquire = acquire
        self._scope: anyio.CancelScope | None = None  # once it runs
        self._is_abandoned = False
        self._lease: Lease | None = None

    async def run(self) -> Lease | None:
        """Acquire it, unless it was abandoned before."""
        if not self._is_abandoned:
            with anyio.CancelScope() as self._scope:
                self._lease = await self._acquire()
        return self._lease

    def abandon(self) -> None:
        """Leave the line, or release what was acquired."""
        self._is_abandoned = True
        if self._scope is not None:
            self._scope.cancel()
        if self._lease is not None and not state_of(self._lease).is_released:
            state_of(self._lease).release_nowait()
