"""An unexpected error in one of the calls and awaits of some code, chosen by number: as `cancel_at` cancels.

for number in itertools.count(1):
    with raising(number, in_files("_claims", "tasks")) as injected:
        ...                                    # nothing may be left behind
    if injected.where is None:
        break                                  # there were fewer
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import inconcert

__all__ = ["Injected", "Unexpected", "in_files", "raising"]

_PACKAGE = Path(inconcert.__file__).parent


class Unexpected(Exception):
    """An error that nothing expects."""


@dataclass
class Injected:
    """Where an error is raised.

    Attributes:
        number: In which call or await, from 1.
        count: How many there were so far.
        where: In what it was raised; None as long as it was not.
        is_armed: Whether they are counted.
    """

    number: int
    count: int = 0
    where: str | None = None
    is_armed: bool = False

    def arm(self) -> None:
        """Count calls and awaits from now on, in this thread."""
        self.is_armed = True

    def happens(self, where: str) -> Unexpected | None:
        """Count one; returns the error to raise there, if it is its turn."""
        if not self.is_armed or self.where is not None:
            return None
        self.count += 1
        if self.count < self.number:
            return None
        self.where = where
        return Unexpected(where)

    def at_awaits_of(self, coroutine: Coroutine[Any, Any, object]) -> "_Steps":
        """Run a coroutine, each await of which counts."""
        return _Steps(self, coroutine)


def in_files(*folders: str, without: frozenset[str] = frozenset()) -> Callable[[CodeType], bool]:
    """Whether a call is one of the package's in these folders or files, and of none of these names."""
    paths = tuple(str(_PACKAGE / folder) for folder in folders)
    left_out = without | {"__del__"}  # called by the garbage collector: nobody hears of its errors
    return lambda code: code.co_filename.startswith(paths) and code.co_name not in left_out


@contextmanager
def raising(number: int, counts: Callable[[CodeType], bool], *, task: str = "") -> Generator[Injected]:
    """Once armed, raise `Unexpected` in the call or await of this number among those that count, once.

    Args:
        number: Which, from 1.
        counts: Whether a call counts.
        task: How the name of an asyncio task begins in which it must be; callbacks of the loop count, too.
    """
    injected = Injected(number)

    def is_there() -> bool:
        current = asyncio.current_task()
        return current is None or current.get_name().startswith(task)

    def on_call(frame: FrameType, event: str, arg: object) -> None:
        del event, arg
        code = frame.f_code
        begins = frame.f_lineno == code.co_firstlineno  # otherwise it goes on after an await
        if begins and counts(code) and is_there() and (error := injected.happens(code.co_qualname)) is not None:
            raise error

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield injected
    finally:
        sys.settrace(before)


class _Steps:
    """An awaitable that runs a coroutine step by step."""

    def __init__(self, injected: Injected, coroutine: Coroutine[Any, Any, object]) -> None:
        self._injected = injected
        self._steps = coroutine.__await__()

    def __await__(self) -> Generator[Any, Any, object]:
        step: Callable[[], Any] = partial(next, self._steps)
        while True:
            try:
                awaited = step()
            except StopIteration as end:
                return end.value
            error: BaseException | None = self._injected.happens(f"an await of {awaited!r}")
            answer = None
            try:
                if error is None:
                    answer = yield awaited
            except BaseException as raised:  # noqa: BLE001 - it is the coroutine's to handle
                error = raised
            step = partial(self._steps.send, answer) if error is None else partial(self._steps.throw, error)
