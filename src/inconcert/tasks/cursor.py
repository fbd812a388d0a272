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

    def move(self, key: str, *, is_at_end: bool = False) -> None:
        """Note that the item with this key is done, or that none is left."""
        self.position = Position(self.position.done + 1, key, is_at_end)
        self.is_saved = False
