"""What a job undoes before it ends without success: its body runs once more, and the latest is undone first.

A body is the only place that knows what there is to undo, and with which values. So the job is not ended at once: its
body runs again, on its kept steps alone. It comes as far as it had come, having registered everything anew; and as its
blocks are left, each runs what was registered there, as steps.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, ParamSpec, Self

from inconcert._rules.conversion import Converter
from inconcert._rules.names import check_name
from inconcert.tasks.kept_step import StepCall
from inconcert.tasks.steps import Steps, Undoing, is_undoing

__all__ = ["StepRunner", "Undo"]

P = ParamSpec("P")

StepRunner = Callable[[Steps, str, Callable[..., object], tuple[object, ...], dict[str, object]], Awaitable[object]]
"""Runs a function as a step of this name, which undoes something."""

_ENTERED = StepCall("durable.undo", "", Converter("the beginning of durable.undo()", bool))
_LEFT = StepCall("durable.undo", "left", Converter("the end of durable.undo()", bool))


class Undo:
    """What to undo when the job ends without success while this block is open.

    Args:
        steps: The steps of the attempt.
        name: Which block of the job.
        run: Runs a function as a step.
    """

    __slots__ = ("_is_stopped", "_later", "_name", "_run", "_steps", "_task")

    def __init__(self, steps: Steps, name: str, run: StepRunner) -> None:
        self._steps = steps
        self._name = name
        self._run = run
        self._later: dict[str, Callable[[], Awaitable[object]]] = {}
        self._task: asyncio.Task[Any] | None = None  # in which its body runs, while it does
        self._is_stopped = False

    async def __aenter__(self) -> Self:
        await self._steps.note_undo()
        self._task = asyncio.current_task()
        self._steps.open_undos.append(self._stop)
        try:
            await self._steps.take(self._name, _ENTERED, _true)
        except BaseException:
            self._steps.open_undos.remove(self._stop)
            raise
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        left, steps = f"{self._name} left", self._steps
        task, self._task = self._task, None  # from now on it is not stopped
        if self._is_stopped and task is not None:
            task.uncancel()
        is_stopped = self._is_stopped and isinstance(error, asyncio.CancelledError)
        if not steps.is_undoing:
            if error is None:
                await steps.take(left, _LEFT, _true)
        elif error is None and await steps.was_kept(left):
            steps.open_undos.remove(self._stop)
        elif steps.misses_some:  # the body has failed sooner than it had: what is undone first is not known yet
            if error is None:
                raise Undoing
        elif error is None or is_stopped or isinstance(error, Exception) or is_undoing(error):
            with steps.running_again():
                for run in reversed(self._later.values()):
                    await run()
            steps.open_undos.remove(self._stop)
            raise Undoing from error

    def later(self, name: str, function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """If the job ends without success before this block is left, run this function, as the step `BLOCK NAME`.

        Call it right behind the step that it undoes. What was registered last is undone first.

        Args:
            name: What is undone; each has a name of its own in the block.
            function: What to run; plain or a coroutine function.
            args: Its arguments.
            kwargs: Its keyword arguments.

        Raises:
            InvalidName: `name` is empty, or the name of the step is longer than 512 bytes.
            ValueError: The name was used before in this block.
        """
        step = check_name("step", f"{self._name} {check_name('undo', name)}")
        if name in self._later:
            raise ValueError(f"{name!r} is registered in {self._name!r} already; give each a name of its own")

        def run() -> Awaitable[object]:
            return self._run(self._steps, step, function, args, kwargs)

        self._later[name] = run

    # Below.

    def _stop(self) -> None:
        """Stop the body of this block where it waits: it has asked for all that was kept."""
        if self._task is not None and not self._is_stopped:
            self._is_stopped = True
            self._task.cancel()


async def _true() -> bool:
    return True
