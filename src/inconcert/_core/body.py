"""The code under an `async with`, which is cancelled when the lease that it relies on is lost.

This is what `asyncio.timeout` does at its deadline.  An `anyio.CancelScope` would do as well, but entering and leaving
one takes a sixth of the time of a whole acquire and release.
"""

import asyncio
from typing import Any

from msgspec import Struct

from inconcert._core.cancellation import CANCEL_AGAIN


class Body(Struct, eq=False):
    """A body that runs in a task, or is about to, as `body_here` notes it."""

    task: "asyncio.Task[Any]"
    _before: int  # how often the task was to be cancelled
    _stops: int = 0
    _again: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Cancel the body, and again every second until it has ended.

        A body that ends what it relies on itself, by closing the coordinator, is not cancelled during that. A body
        whose task has ended continues in another, which is unknown: it is not cancelled at all.
        """
        if asyncio.current_task() is not self.task and not self.task.done():
            self._stops += 1
            self.task.cancel()
            if self._again is not None:
                self._again.cancel()
            self._again = asyncio.get_running_loop().call_later(CANCEL_AGAIN, self.stop)

    def end(self, error: BaseException | None) -> bool:
        """The body has ended with this exception; returns whether that is only our own cancellation.

        If it ends in another task than it began in, we have not cancelled that task.
        """
        if self._again is None:
            return False
        self._again.cancel()
        others = self._before
        for _ in range(self._stops):
            others = self.task.uncancel()
        is_ours = asyncio.current_task() is self.task and others <= self._before
        return is_ours and isinstance(error, asyncio.CancelledError)


def body_here() -> Body:
    """The body that the current task is about to run."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - nothing here runs outside a task
    return Body(task, task.cancelling())
