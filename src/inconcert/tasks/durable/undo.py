"""Undoing a job that ends without success: its body runs once more, and the latest is undone first.

A body is the only place that knows what there is to undo, and with which values. So the job is not ended at once: its
body runs again, on its kept steps alone. It comes as far as it had come, having registered everything again; and as its
blocks are left, each runs what was registered there, as steps.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, ParamSpec, Self
from weakref import ref

import anyio

from inconcert._core.cancellation import CANCEL_AGAIN
from inconcert._rules.conversion import Converter
from inconcert._rules.functions import check_function
from inconcert._rules.names import check_name
from inconcert.tasks.durable.body_exits import Undoing, is_undoing
from inconcert.tasks.durable.body_parts import BodyPart, parts_here
from inconcert.tasks.durable.kept_step import UNDO_BLOCK, StepCall
from inconcert.tasks.durable.open_undo import OpenUndo
from inconcert.tasks.durable.steps import Steps

P = ParamSpec("P")

StepMaker = Callable[
    [Steps, str, Callable[..., object], tuple[object, ...], dict[str, object]], Callable[[], Awaitable[object]]
]
"""Makes a step of this name of a function, which undoes something; refuses what could not run."""

_ENTERED = StepCall(UNDO_BLOCK, "", Converter("the beginning of durable.undo()", bool))
_LEFT = StepCall(UNDO_BLOCK, "left", Converter("the end of durable.undo()", bool))


class Undo:
    """The functions to call when the job ends without success while this block is open.

    Args:
        steps: The steps of the attempt.
        name: Which block of the job.
        make: Makes a step of a function.
    """

    __slots__ = ("_later", "_make", "_name", "_open", "_parts", "_steps")

    def __init__(self, steps: Steps, name: str, make: StepMaker) -> None:
        self._steps = steps
        self._name = name
        self._make = make
        self._later: dict[str, Callable[[], Awaitable[object]]] = {}
        self._open: OpenUndo | None = None  # while it is
        self._parts: tuple[ref[BodyPart], ...] = ()  # of the body in which it was entered

    async def __aenter__(self) -> Self:
        if self._steps.is_undoing_here:
            raise RuntimeError(f"durable.undo({self._name!r}) is in what is undone, which is not undone itself")
        await self._steps.note_undo()
        self._parts = parts_here(self._steps)
        self._open = OpenUndo(self._name)
        self._steps.open_undos.append(self._open)
        try:
            await self._steps.take(self._name, _ENTERED, _true)
        except BaseException:
            self._steps.open_undos.remove(self._open)
            self._steps.leave_undo(self._open)
            raise
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        block, self._open = self._open, None
        assert block is not None  # noqa: S101 - it was entered
        if error is None:
            self._steps.note_left_loops()
        was_cancelled = not block.leave() and isinstance(error, asyncio.CancelledError)
        try:
            goes_on = await self._leave(block, error, was_cancelled=was_cancelled)
        finally:
            self._steps.leave_undo(block)
        if not goes_on:
            await self._steps.wait_for_others()
            raise Undoing from error

    def later(self, name: str, function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """If the job ends without success before this block is left, run this function, as the step `BLOCK NAME`.

        Call it right behind the step that it undoes. What was registered last is undone first.

        Args:
            name: The name of the act that is undone; each has a name of its own in the block.
            function: What to run; plain or a coroutine function.
            args: Its arguments.
            kwargs: Its keyword arguments.

        Raises:
            InvalidName: `name` is empty, or the name of the step is longer than 512 bytes.
            TypeError: `function` is not a function, such as a coroutine that was called already; it cannot be called
                with these arguments; or JSON cannot represent its result.
            RuntimeError: The block is not open: it was left, or not entered. Or this is called in a step, or in an item
                of `durable.each`, that began inside of the block.
            ValueError: The name was used before in this block, or another step of the job is called `BLOCK NAME`.
        """
        check_function(f"undo {name!r}", function, 'undo.later("refund", refund, payment)')
        step = check_name("step", f"{self._name} {check_name('thing to undo', name)}")
        if self._open is None:
            raise RuntimeError(
                f"durable.undo({self._name!r}) is not open, so {name!r} would never be undone; call it inside"
            )
        if parts_here(self._steps) != self._parts:
            raise RuntimeError(
                f"{name!r} is registered in a step, or in an item of durable.each(), which is passed over once it is "
                "done; then it would not be undone, so register it before the step or the loop, or behind it"
            )
        if name in self._later:
            raise ValueError(f"{name!r} is registered in {self._name!r} already; give each a name of its own")
        if step == self._left:
            raise ValueError(f"{step!r} is the step of leaving {self._name!r}; give what is undone another name")
        run = self._make(self._steps, step, function, args, kwargs)
        self._steps.reserve(step)
        self._steps.note_left_loops()
        self._later[name] = run

    # Private.

    @property
    def _left(self) -> str:
        """The name of the step of leaving it."""
        return f"{self._name} left"

    async def _leave(self, block: OpenUndo, error: BaseException | None, *, was_cancelled: bool) -> bool:
        """Leave it, and undo all that is to be undone; returns whether the body goes on as it would."""
        left, steps = self._left, self._steps
        if not steps.is_undoing:
            if error is None:
                await steps.take(left, _LEFT, _true)
            return True
        if error is None and await steps.was_kept(left):
            steps.open_undos.remove(block)
            return True
        if steps.misses_some:  # the body has failed sooner than it had: what is undone first is not known yet
            return error is not None
        if not (error is None or isinstance(error, Exception | asyncio.CancelledError) or is_undoing(error)):
            return True
        if was_cancelled:  # by its group, or because the worker stops: which is not known, so there is a moment for it
            with suppress(Exception), anyio.move_on_after(CANCEL_AGAIN):
                await steps.check_claim()
                await self._undo(block)
            return True
        await self._undo(block)
        return False

    async def _undo(self, block: OpenUndo) -> None:
        blocks = self._steps.open_undos
        if any(later.is_over or later.task is block.task for later in blocks[blocks.index(block) + 1 :]):
            return  # that one should have been left, and undone, before
        with self._steps.undoing_here():
            for run in reversed(self._later.values()):
                await run()
        blocks.remove(block)


async def _true() -> bool:
    return True
