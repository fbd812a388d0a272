"""How anything is acquired that may have to be waited for: by `async with`, `acquire` or `try_acquire`."""

import asyncio
from abc import ABC, abstractmethod
from types import EllipsisType, TracebackType
from typing import Generic, Protocol, TypeVar

import anyio

from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert.errors import AcquireTimeout

__all__ = ["Acquirable"]


class Enterable(Protocol):
    """What is acquired."""

    def enter(self) -> None:
        """Begin a body."""

    async def exit(self, error: BaseException | None) -> None:
        """End the body, which has raised this, and release."""


HeldT_co = TypeVar("HeldT_co", bound=Enterable, covariant=True)


class Acquirable(ABC, Generic[HeldT_co]):
    """Something to acquire; may be shared by all tasks.

    Its only state is the stack of what each task has entered with `async with`.

    Args:
        kind: What it is to its users, such as `lock`.
        name: Which one.
        timeout: Longest wait of `async with` and `acquire()`, in seconds; None waits for ever.
    """

    def __init__(self, kind: str, name: str, timeout: Seconds | None) -> None:
        self._kind = kind
        self._name = name
        self._timeout = durations.timeout(timeout)
        self._entered: dict[asyncio.Task[object] | None, list[HeldT_co]] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"

    async def __aenter__(self) -> HeldT_co:
        held = await self.acquire()
        held.enter()
        self._entered.setdefault(asyncio.current_task(), []).append(held)
        return held

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        entered = self._entered.get(task)
        if not entered:
            raise RuntimeError(f"{self!r} is left in another task than entered in; use acquire() and release() by hand")
        held = entered.pop()
        if not entered:
            del self._entered[task]
        await held.exit(error)

    async def acquire(self, *, timeout: Seconds | EllipsisType | None = ...) -> HeldT_co:
        """Wait in line and take it.

        Args:
            timeout: Longest wait in seconds; None for ever, 0 tries once. By default the object's own.

        Raises:
            AcquireTimeout: It was not free in time; the line has been left.
            NotConnected: The coordinator is not open, or was closed meanwhile.
            Unavailable: The server could not be asked; nothing was acquired.
            OutcomeUnknown: The server did not answer; what it may have granted is given back or lapses.

        Cost: 1 round trip when it is free. Else 1 to join the line, 0 while waiting, 1 message to wake.
        """
        seconds = self._timeout if timeout is ... else durations.timeout(timeout)
        held: HeldT_co | None = None
        if seconds is None:
            held = await self._take(waits=True)
        elif seconds == 0:
            held = await self._take(waits=False)
        else:
            with anyio.move_on_after(seconds):
                held = await self._take(waits=True)
        if held is None:
            raise AcquireTimeout(self._kind, self._name, seconds or 0.0)
        return held

    async def try_acquire(self) -> HeldT_co | None:
        """Take it if it is free and nobody waits for it; never waits in line.

        Returns:
            What was acquired, or None.

        Raises:
            NotConnected: The coordinator is not open.
            Unavailable: The server could not be asked; nothing was acquired.
            OutcomeUnknown: The server did not answer; what it may have granted is given back or lapses.

        Cost: 1 round trip.
        """
        return await self._take(waits=False)

    @abstractmethod
    async def _take(self, *, waits: bool) -> HeldT_co | None:
        """Take it; None if it is not free and one does not wait."""
