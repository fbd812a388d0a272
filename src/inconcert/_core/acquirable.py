"""Acquiring what may require a wait: with `async with`, `acquire` or `try_acquire`."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Coroutine
from types import EllipsisType
from typing import Any, TypeVar

import anyio

from inconcert._core.async_with import AsyncWith, Enterable
from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert.errors import AcquireTimeout, InconcertError, Unavailable

StateT = TypeVar("StateT", bound=Enterable)
FaceT_co = TypeVar("FaceT_co", covariant=True)


class Acquirable(AsyncWith[StateT, FaceT_co]):
    """Something to acquire, perhaps after a wait; many tasks may share it.

    Args:
        kind: Its kind in the words of users, such as `lock`.
        name: Which one.
        timeout: Longest wait of `async with` and `acquire()`, in seconds; None waits forever.
        face: Makes what users get of what was acquired, once for each acquisition.
    """

    def __init__(self, kind: str, name: str, timeout: Seconds | None, face: Callable[[StateT], FaceT_co]) -> None:
        AsyncWith.__init__(self, kind, name, face)
        self._timeout = durations.timeout(timeout)

    async def acquire(self, *, timeout: Seconds | EllipsisType | None = ...) -> FaceT_co:
        """Wait in line and take it.

        Args:
            timeout: Longest wait in seconds; None waits forever, 0 tries once. Defaults to the object's `timeout`.

        Raises:
            AcquireTimeout: It was not free in time, or the server did not answer in time, as `__cause__` and the
                message say; the waiter has left the line.
            Unavailable: The server could not be asked, or is unreachable when the time is up; nothing was acquired.
            OutcomeUnknown: The server did not answer; a grant that it made is released or lapses.

        Cost: 1 round trip when it is free. Otherwise 1 to join the line, 0 while waiting, 1 message to wake.
        """
        return self._face(await self._acquire(self._timeout if timeout is ... else durations.timeout(timeout)))

    async def try_acquire(self) -> FaceT_co | None:
        """Take it if it is free and nobody waits for it; never joins the line.

        Returns:
            What was acquired, or None.

        Raises:
            OutcomeUnknown: The server did not answer; a grant that it made is released or lapses.
        """
        held = await self._take(waits=False)
        return None if held is None else self._face(held)

    # Private.

    def _obtain(self) -> Coroutine[Any, Any, StateT]:
        return self._acquire(self._timeout)

    def _acquire(self, seconds: float | None) -> Coroutine[Any, Any, StateT]:
        """Take it within this time; None waits for as long as it takes, 0 tries once."""
        taking: Coroutine[Any, Any, Any] = self._take(waits=True) if seconds is None else self._take_in_time(seconds)
        return taking  # who waits for as long as it takes gets it, or an error

    async def _take_in_time(self, seconds: float) -> StateT:
        held, began = None, asyncio.get_running_loop().time()
        if seconds:
            with anyio.move_on_after(seconds):
                held = await self._take(waits=True)
        else:
            held = await self._take(waits=False)
        if held is None:
            raise self._not_acquired(seconds, self._trouble(began) if seconds else None)
        return held

    def _trouble(self, since: float) -> InconcertError | None:
        """The cause that has kept the server from answering since this time, by the loop's clock; None if unknown."""
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

    @abstractmethod
    async def _take(self, *, waits: bool) -> StateT | None:
        """Take it; None if it is not free and the caller does not wait."""
