"""The lifespan: an async context manager around all workers of a process, and its value, which their jobs get.

It is entered and left in an asyncio task of its own.  Of several workers in one process the first to begin may be the
first to end, and a task group or a cancel scope must be left in the task that entered it.  So a worker joins it, and
leaves it; the last one to leave ends it.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import anyio

from inconcert._core.body import Body, body_here
from inconcert._core.cancellation import cancel_all
from inconcert._core.shield import run_shielded
from inconcert.tasks.running.claimed_job import lifespan_values


class Lifespan:
    """The lifespan of one coordinator.

    Args:
        make: Called without arguments each time that it begins.

    Raises:
        TypeError: `make` does not return an async context manager, as far as can be seen, or needs arguments.
    """

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        if not callable(make) or inspect.isasyncgenfunction(make) or inspect.iscoroutinefunction(make):
            raise TypeError(
                f"the lifespan {make!r} does not return an async context manager; put @asynccontextmanager of "
                "contextlib under @concert.lifespan, on an `async def` with one yield"
            )
        try:
            inspect.signature(make).bind()
        except TypeError as error:
            raise TypeError(f"the lifespan {make!r} cannot be called without arguments: {error}") from None
        self._make = make
        self._opening: _Opening | None = None

    @asynccontextmanager
    async def around(self, stop: asyncio.Event | None) -> AsyncGenerator[None]:
        """Begin it, unless a worker of this process has; end it, if this worker is the last.

        If `stop` is set before it has begun, its beginning is cancelled, and the body runs without it.

        Raises:
            Exception: The one that it has raised.
            RuntimeError: It has ended by itself.
        """
        loop, last = asyncio.get_running_loop(), self._opening
        if last is not None and last.loop is not loop:
            last = None
        if last is None or not last.workers:
            last = self._opening = _Opening(self._make, None if last is None else last.task)
        opening = last
        opening.workers += 1
        try:
            if await opening.has_begun(stop):
                with opening.surround():
                    yield
            else:
                yield
        finally:
            opening.workers -= 1
            await opening.leave()


class _Opening:
    """One life of it.

    Attributes:
        loop: On which event loop.
        workers: How many it surrounds, or will once it has begun.
        value: What its context manager returned.
        task: Enters and leaves the context manager.
    """

    def __init__(
        self, make: Callable[[], AbstractAsyncContextManager[object]], before: "asyncio.Task[None] | None"
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.workers = 0
        self.value: object = None
        self._begun: asyncio.Future[None] = self.loop.create_future()
        self._end = asyncio.Event()
        self._bodies: set[Body] = set()
        self.task = asyncio.create_task(self._run(make, before), name="inconcert: lifespan")
        self.task.add_done_callback(self._ended)

    async def has_begun(self, stop: asyncio.Event | None) -> bool:
        """Wait until it has begun; False if `stop` was set before."""
        awaited: set[asyncio.Future[Any]] = {self.task, self._begun}
        stopping = None if stop is None else asyncio.create_task(stop.wait())
        if stopping is not None:
            awaited.add(stopping)
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if stopping is not None:
                stopping.cancel()
        if self.task.done():
            self._raise_its_error()
        return self._begun.done()

    @contextmanager
    def surround(self) -> Generator[None]:
        """The body of a worker, which is cancelled if this ends before it."""
        values, body = lifespan_values.set((self.value,)), body_here()
        self._bodies.add(body)
        try:
            yield
        except BaseException as error:
            self._bodies.discard(body)
            if not body.end(error):  # otherwise our own cancellation, and the error of this is raised in its place
                raise
        else:
            self._bodies.discard(body)
            body.end(None)
        finally:
            lifespan_values.reset(values)

    async def leave(self) -> None:
        """A worker has ended: end this if that was the last; raise its error if it has ended."""
        if not self.workers and not self.task.done():
            if not self._begun.done():
                await run_shielded(cancel_all([self.task]))
                return
            await self._end_it()
        if self.task.done():
            self._raise_its_error()

    # Private.

    async def _run(
        self, make: Callable[[], AbstractAsyncContextManager[object]], before: "asyncio.Task[None] | None"
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        async with make() as self.value:
            self._begun.set_result(None)
            await self._end.wait()

    async def _end_it(self) -> None:
        """Let the context manager end, however long that takes; a cancellation meanwhile cancels it."""
        self._end.set()
        with anyio.CancelScope(shield=True):
            try:
                await asyncio.wait([self.task])
            except asyncio.CancelledError:
                await run_shielded(cancel_all([self.task]))
                raise

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not self._end.is_set():
            for body in self._bodies:
                body.stop()
        if not task.cancelled():
            task.exception()  # it is raised where a worker leaves; not logged besides

    def _raise_its_error(self) -> None:
        if not self.task.cancelled():
            self.task.result()
        if not self._end.is_set():
            raise RuntimeError("the lifespan has ended while workers ran; it must not end before its yield returns")
