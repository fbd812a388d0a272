"""The tasks and the objects on their stacks, found when somebody asks, so that nothing need be noted before."""

import asyncio
import gc
import inspect
from collections.abc import Iterator
from contextvars import Context
from types import MethodType
from typing import Any, NamedTuple, TypeAlias, TypeVar

from inconcert._core.caller import is_user_code

_STEPS = {"async_generator_asend", "async_generator_athrow", "anext_awaitable"}  # what `async for` awaits

Task: TypeAlias = asyncio.Task[Any]
T = TypeVar("T")


class OnStack(NamedTuple):
    """The place of a find: the task, and the line of the user's code at which that is now."""

    task: Task
    line: str | None


def on_stack(task: Task, wanted: tuple[type[T], ...]) -> Iterator[tuple[T, OnStack]]:
    """Objects of these types that are in a variable of a task.

    Cost: in proportion to the depth of its stack. The variables themselves are left as they are; reading `f_locals`
        would keep alive what it reads.
    """
    coroutine: object = task.get_coro()
    line: str | None = None
    while coroutine is not None:
        line = _line(coroutine) or line
        for found in gc.get_referents(coroutine):
            thing = found.__self__ if isinstance(found, MethodType) else found  # such as its `__aexit__`
            if isinstance(thing, wanted):
                yield thing, OnStack(task, line)
        coroutine = awaited_by(coroutine)


def awaited_by(coroutine: object) -> object:
    """The thing that a coroutine or a generator of either kind awaits now; None if that is something else."""
    awaited: object = (
        getattr(coroutine, "cr_await", None)
        or getattr(coroutine, "gi_yieldfrom", None)
        or getattr(coroutine, "ag_await", None)
    )
    if type(awaited).__name__ in _STEPS:
        return next((found for found in gc.get_referents(awaited) if inspect.isasyncgen(found)), None)
    return awaited


def context_of(task: Task) -> Context | None:
    """The context in which a task runs."""
    return next((found for found in gc.get_referents(task) if isinstance(found, Context)), None)


def _line(coroutine: object) -> str | None:
    """`file:line` at which it is; None if the code is not the user's."""
    frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
    if frame is None or not is_user_code(frame.f_code):
        return None
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
