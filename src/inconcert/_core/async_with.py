"""Entering with `async with`: each statement releases its own acquisition, in any task and order."""

import asyncio
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from inconcert._core.entry import Entry, Exits, looked_up


class Enterable(Protocol):
    """The engine's side of the thing that is acquired."""

    def enter(self) -> None:
        """Begin a body."""

    def exit(self, error: BaseException | None) -> Coroutine[Any, Any, None]:
        """End the body, which raised this error, and release."""
        ...


StateT = TypeVar("StateT", bound=Enterable)
FaceT_co = TypeVar("FaceT_co", covariant=True)


class AsyncWith(ABC, Generic[StateT, FaceT_co]):
    """Something to enter; many tasks may share it.

    What an `async with` acquires belongs to that statement, see `_core/entry.py`. The only state here is what was
    entered by a plain call of `__aenter__`, such as by a class that wraps this one.

    Args:
        kind: Its kind in the words of users, such as `lock`.
        name: Which one.
        face: Makes what users get of what was acquired, once for each acquisition.
    """

    def __init__(self, kind: str, name: str, face: Callable[[StateT], FaceT_co]) -> None:
        self._kind = kind
        self._name = name
        self._face = face
        self._entered: list[tuple[weakref.ref[asyncio.Task[Any]], Enterable]] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"

    def _leave(self, held: Enterable | None, error: BaseException | None) -> Coroutine[Any, Any, bool | None]:
        """Release what an entry has acquired, whatever task, context and order it is left in."""
        return (self._entered_last() if held is None else held).exit(error)

    if TYPE_CHECKING:

        async def __aenter__(self) -> FaceT_co: ...

        async def __aexit__(
            self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
        ) -> None: ...

    else:

        def __aenter__(self) -> Coroutine[Any, Any, FaceT_co]:
            return self._enter(looked_up(self))

        __aexit__ = Exits(_leave)

    # Private.

    async def _enter(self, entry: Entry | None) -> FaceT_co:
        held = await self._obtain()
        held.enter()
        if entry is not None:
            entry.held = held
        else:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - nothing here runs outside a task
            self._entered.append((weakref.ref(task), held))
        return self._face(held)

    def _entered_last(self) -> Enterable:
        """The lease to release after plain calls: the last that this task has entered, or a task that has ended."""
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
    def _obtain(self) -> Coroutine[Any, Any, StateT]:
        """Acquire it for an `async with`."""
