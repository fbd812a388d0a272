"""A block of `durable.undo()` that a body has entered and not left."""

import asyncio


class OpenUndo:
    """A block that may still have something to undo; it is entered in the current task."""

    __slots__ = ("_is_left", "_is_stopped", "is_over", "name", "task")

    def __init__(self, name: str) -> None:
        self.name = name
        self.task = asyncio.current_task()
        self.is_over = False  # whether it was left, with all that it undoes then
        self._is_stopped = False
        self._is_left = False

    def stop(self) -> None:
        """Stop its body where it waits, once: it has asked for all that was kept."""
        if self.task is not None and not self._is_left and not self._is_stopped:
            self._is_stopped = True
            self.task.cancel()

    def leave(self) -> bool:
        """Its body has ended, and is stopped no more; returns whether it was."""
        was_stopped = self._is_stopped and not self._is_left
        self._is_left = True
        if was_stopped and self.task is not None:
            self.task.uncancel()
        return was_stopped
