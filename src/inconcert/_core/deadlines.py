"""The deadlines around the code that a task runs: found when somebody asks, so that nothing need be noted before.

A coroutine that is suspended has the exits of its `async with` and `with` statements on its stack, in their order; the
garbage collector shows them.
"""

import asyncio
import gc
import inspect
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType, MethodType
from typing import NamedTuple

import anyio

from inconcert._core.scope import innermost
from inconcert._core.stacks import Task, awaited_by

_OURS = f"{Path(__file__).parents[1]}/"  # whose deadlines, such as that of a time limit, are not the user's
_EXITS = {"__exit__", "__aexit__"}


class Deadline(NamedTuple):
    """A deadline."""

    of: str  # what has set it, such as `asyncio.timeout()`
    at: float  # when it is, by the clock of the event loop


async def deadline_here(body: Task) -> Deadline | None:
    """The innermost deadline in the current body, around what the current task runs; None for none.

    Of `asyncio.timeout()`, `asyncio.wait_for()` and the scopes of anyio, in the current task and in that of the body.
    Those of other tasks, of exit stacks and of the code around the body are not found.

    Cost: a task of its own, and some microseconds for each caller.
    """
    scope, current = innermost(), asyncio.current_task()
    tasks = [body] if current is None or current is body else [body, current]

    async def look() -> Deadline | None:  # a task of its own: only of others, which are suspended, is the stack seen
        found = [each for task in tasks for each in _of_task(task, None if scope is None else scope.work)]
        return found[-1] if found else None

    return await asyncio.create_task(look())


# Private.


def _of_task(task: Task, work: object) -> list[Deadline]:
    """The deadlines in a task, the innermost last; of those around the body of this work none."""
    found: list[Deadline] = []
    running: object = task.get_coro()
    while running is not None:
        code = getattr(running, "cr_code", None) or getattr(running, "ag_code", None)
        is_ours = code is not None and code.co_filename.startswith(_OURS)
        for manager in _entered(running):
            if manager is work:
                found.clear()
            elif not is_ours:
                found += _of_manager(manager)
        if code is asyncio.wait_for.__code__:  # up to Python 3.11 it waits beside a timer
            found += [Deadline("asyncio.wait_for()", each.when()) for each in _timers(running)]
        running = awaited_by(running)
    return found


def _entered(running: object) -> Iterator[object]:
    """The context managers that a suspended coroutine or generator has entered, the outermost first."""
    on_stack = gc.get_referents(running)
    for at, found in enumerate(on_stack):
        if isinstance(found, MethodType) and found.__name__ in _EXITS:
            yield found.__self__
        elif isinstance(found, FunctionType) and found.__name__ in _EXITS and at + 1 < len(on_stack):
            yield on_stack[at + 1]  # from Python 3.14 on both are apart


def _of_manager(manager: object) -> Iterator[Deadline]:
    if isinstance(manager, asyncio.Timeout):
        if (at := manager.when()) is not None:
            yield Deadline("asyncio.timeout()", at)
    elif isinstance(manager, anyio.CancelScope):
        if manager.deadline != math.inf:
            yield Deadline("a scope of anyio", manager.deadline)
    else:
        generator = getattr(manager, "gen", None)  # of `contextlib.contextmanager`, which `anyio.fail_after()` is
        if inspect.isgenerator(generator) or inspect.isasyncgen(generator):
            for inner in _entered(generator):
                yield from _of_manager(inner)


def _timers(running: object) -> Iterable[asyncio.TimerHandle]:
    """The timers in variables of a coroutine; those of uvloop are of another type."""
    return (each for each in gc.get_referents(running) if type(each).__name__ == "TimerHandle")
