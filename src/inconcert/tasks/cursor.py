"""How far a loop over many items is, in one attempt of its job: see `loop.py`."""

import time
from weakref import ref

from inconcert.tasks.kept_step import Position, StepCall

__all__ = ["Cursor"]


class Cursor:
    """A loop of this attempt.

    Args:
        name: Its name, as a step.
        call: What it is kept as.
        position: How far it is.
        number: Its number as a step; 0 before it was kept.

    Attributes:
        saved_at: When it was kept, by the monotonic clock.
        is_saved: Whether its position was kept.
        loop: What goes through its items now; None before, and once that has failed.
    """

    __slots__ = ("call", "is_saved", "loop", "name", "number", "position", "saved_at")

    def __init__(self, name: str, call: StepCall, position: Position, number: int) -> None:
        self.name = name
        self.call = call
        self.position = position
        self.number = number
        self.saved_at = time.monotonic()
        self.is_saved = True
        self.loop: ref[object] | None = None

    @property
    def is_in_use(self) -> bool:
        """Whether something may still go through its items."""
        return self.loop is not None and self.loop() is not None

    def move(self, key: str) -> None:
        """Note that the item with this key is done."""
        self._keep(Position(self.position.done + 1, key))

    def end(self) -> None:
        """Note that no item is left."""
        self._keep(Position(self.position.done + 1, self.position.key, is_at_end=True))

    def leave(self) -> None:
        """Note that the body has left it before its end, and goes on behind it."""
        self._keep(Position(self.position.done + 1, self.position.key, is_left=True))

    # Private.

    def _keep(self, position: Position) -> None:
        self.position = position
        self.is_saved = False
