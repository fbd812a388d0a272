"""Acquiring what may require a wait: with `async with`, `acquire` or `try_acquire`."""

import asyncio
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import anyio

from inconcert._core.entry import Entry, Exits, looked_up
from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert.errors import AcquireTimeout, InconcertError, Unavailable

__all__ = ["Acquirable", "Enterable"]


class Enterable(Protocol):
    """What is acquired: the engine's side of it."""

    def enter(self) -> None:
        """Begin a body."""

    async def exit(self, error: BaseException | None) -> None:
        """End the body, which raised this error, and release."""


StateT = TypeVar("StateT", bound=Enterable)
FaceT_co = TypeVar("FaceT_co", covariant=True)


class Acquirable(ABC, Generic[StateT, FaceT_co]):
    """Something to acquire; many tasks may share it.

    What an `async with` acquires belongs to that statement, see `_core/entry.py`. The only state here is what was
    entered by a plain call of `__aenter__`, such as by a class that wraps this one.

    Args:
        kind: What it is to its users, such as `lock`.
        name: Which one.
        timeout: Longest wait of `async with` and `acquire()`, in seconds; None waits forever.
        face: Makes what users get of what was acquired, once for each acquisition.
    """

    def __init__(self, kind: str, name: str, timeout: Seconds | None, face: Callable[[StateT], FaceT_co]) -> None:
        self._kind = kind
        self._name = name
        self._face = face
        self._timeout = durations.timeout(timeout)
        self._entered: list[tuple[weakref.ref[asyncio.Task[Any]], Enterable]] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"

    async def _leave(self, held: Enterable | None, error: BaseException | None) -> bool | None:
        """Release what an entry has acquired, whatever task, context and order it is left in."""
        await self._found(held).exit(error)
        return None

    if TYPE_CHECKING:

        async def __aenter__(self) -> FaceT_co: ...

        async def __aexit__(
            self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
        ) -> None: ...

    else:

        def __aenter__(self) -> Coroutine[Any, Any, FaceT_co]:
            return self._enter(looked_up(self))

        __aexit__ = Exits(_leave)

    async def acquire(self, *, timeout: Seconds | EllipsisType | None = ...) -> FaceT_co:
        """Wait in line and take it.

        Args:
            timeout: Longest wait in seconds; None waits forever, 0 tries once. Defaults to the object's `timeout`.

        Raises:
            AcquireTimeout: It was not free in time, or the server did not answer in time, as `__cause__` and the
                message say; the waiter has left the line.
            NotConnected: The coordinator is not open, or was closed meanwhile.
            Unavailable: The server could not be asked, or is unreachable when the time is up; nothing was acquired.
            OutcomeUnknown: The server did not answer; what it may have granted is released or lapses.

        Cost: 1 round trip when it is free. Otherwise 1 to join the line, 0 while waiting, 1 message to wake.
        """
        return self._face(await self._acquire(self._timeout if timeout is ... else durations.timeout(timeout)))

    async def try_acquire(self) -> FaceT_co | None:
        """Take it if it is free and nobody waits for it; never joins the line.

        Returns:
            What was acquired, or None.

        Raises:
            NotConnected: The coordinator is not open.
            Unavailable: The server could not be asked; nothing was acquired.
            OutcomeUnknown: The server did not answer; what it may have granted is released or lapses.

        Cost: 1 round trip.
        """
        held = await self._take(waits=False)
        return None if held is None else self._face(held)

    # Below.

    async def _enter(self, entry: Entry | None) -> FaceT_co:
        held = await self._acquire(self._timeout)
        held.enter()
        if entry is not None:
            entry.held = held
        else:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - nothing here runs outside a task
            self._entered.append((weakref.ref(task), held))
        return self._face(held)

    async def _acquire(self, seconds: float | None) -> StateT:
        """Take it within this time; None waits for as long as it takes, 0 tries once."""
        if not seconds:
            held = await self._take(waits=seconds is None)
            if held is None:
                raise self._not_acquired(0.0, None)
            return held
        held, began = None, asyncio.get_running_loop().time()
        with anyio.move_on_after(seconds):
            held = await self._take(waits=True)
        if held is None:
            raise self._not_acquired(seconds, self._trouble(began))
        return held

    def _trouble(self, since: float) -> InconcertError | None:
        """What has prevented the server from answering since this time, by the loop's clock; None if unknown."""
        del since
        return None

    def _not_acquired(self, seconds: float, trouble: InconcertError | None) -> InconcertError:
        error: InconcertError
        if isinstance(trouble, Unavailable):
            error = Unavailable(
                f"{self._kind} {self._name!r} was not acquired within {seconds:g} s: {trouble}; try again",
                operation="acquire",
                kind=self._kind,
                name=self._name,
            )
        else:
            error = AcquireTimeout(self._kind, self._name, seconds, why=str(trouble or ""))
        error.__cause__ = trouble
        return error

    def _found(self, held: Enterable | None) -> Enterable:
        """What to release: the entry's; for a plain call, the last of this task, or else of a task that has ended."""
        if held is not None:
            return held
        if not self._entered:
            raise RuntimeError(
                f"{self!r} is left, but it was not entered, or was left before; use `async with`, or call acquire()"
            )
        current = asyncio.current_task()
        tasks = [reference() for reference, _ in self._entered]
        ours = [at for at, task in enumerate(tasks) if task is current]
        ended = [at for at, task in enumerate(tasks) if task is None or task.done()]  # so nobody is in its body
        _, found = self._entered.pop((ours or ended or [-1])[-1])
        return found

    @abstractmethod
    async def _take(self, *, waits: bool) -> StateT | None:
        """Take it; None if it is not free and the caller does not wait."""
