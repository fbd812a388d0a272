"""The pairing of `__aexit__` with its `__aenter__`, when many tasks enter and leave one object in any order.

`async with` looks `__aexit__` up before it calls `__aenter__`, and at the end calls what it has looked up: the language
defines it so, and `AsyncExitStack` does the same. Here each look-up returns another entry, and the `__aenter__` that
follows puts its acquisition into it. So the entry lives where the statement lives: in the frame of a coroutine or
generator, or in an exit stack. It releases its own, whatever task, context and order it is left in. If the frame is
dropped without being left, the entry is dropped with it, and its lease lapses.

Source: https://docs.python.org/3/reference/compound_stmts.html#the-async-with-statement
"""

import threading
import weakref
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeAlias

Leave: TypeAlias = Callable[[Any, Any, BaseException | None], Coroutine[Any, Any, bool | None]]


class Entry:
    """One execution of an `async with`.

    Args:
        manager: The object that is entered; None while unknown, because it was looked up on its class.
        leave: The function that leaves it.

    Attributes:
        held: Its acquisition; None before it is entered and after it is left.
        is_taken: Whether an `__aenter__` has found it.
    """

    __slots__ = ("__weakref__", "_leave", "held", "is_taken", "manager")

    def __init__(self, manager: object, leave: Leave) -> None:
        self.manager = manager
        self.held: Any = None
        self.is_taken = False
        self._leave = leave

    def exit(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Coroutine[Any, Any, bool | None]:
        """Leave it: `__aexit__` of its manager."""
        del error_type, traceback
        held, self.held = self.held, None
        return self._leave(self.manager, held, error)

    def exit_of(
        self,
        manager: object,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Coroutine[Any, Any, bool | None]:
        """Leave it: `__aexit__` of its manager's class."""
        del error_type, traceback
        held, self.held = self.held, None
        return self._leave(manager, held, error)


class Exits:
    """The `__aexit__` of a class: a new entry each time it is looked up.

    Args:
        leave: A method that is called with what the entry has acquired, and with what its body has raised; with None if
            `__aexit__` was not looked up before its `__aenter__` was called, so that there is no entry.
    """

    def __init__(self, leave: Leave) -> None:
        self._leave = leave

    def __get__(self, manager: object, owner: type) -> Callable[..., Coroutine[Any, Any, bool | None]]:
        entry = Entry(manager, self._leave)
        _last.entry = weakref.ref(entry)
        return entry.exit_of if manager is None else entry.exit


class _LookedUp(threading.local):
    """The entry that was looked up last in this thread, until it is entered."""

    entry: weakref.ref[Entry] | None = None  # weak: an unused one is gone at once


_last = _LookedUp()


def looked_up(manager: object) -> Entry | None:
    """The entry that `__aenter__` of this manager is called for; None if `__aexit__` was not looked up before."""
    reference = _last.entry
    entry = None if reference is None else reference()
    if entry is None or entry.is_taken or (entry.manager is not manager and entry.manager is not None):
        return None
    entry.is_taken = True
    return entry
