"""The position of a loop over many items, in one attempt of its job: see `loop.py`."""

import time
from typing import Any
from weakref import ref

import msgspec

from inconcert.tasks.durable.kept_step import Position, StepCall


class Cursor:
    """A loop of this attempt."""

    __slots__ = ("begun", "call", "is_saved", "loop", "name", "number", "position", "saved_at")

    def __init__(self, name: str, call: StepCall, position: Position, number: int) -> None:
        self.name = name
        self.call = call
        self.position = position
        self.number = number  # as a step; 0 before it was kept
        self.saved_at = time.monotonic()  # when it was kept, by the monotonic clock
        self.is_saved = True  # whether its position was kept
        self.loop: ref[object] | None = None  # what goes through its items now; None before, and once that has failed
        self.begun = 0  # how often it was begun in this attempt

    @property
    def is_in_use(self) -> bool:
        """True if something may still go through its items."""
        return self.loop is not None and self.loop() is not None

    @property
    def is_left(self) -> bool:
        """True if the body has left it before its end, and that is not noted yet."""
        return not self.is_in_use and not self.position.is_at_end and self.position.left < self.begun

    def move(self, key: str) -> None:
        """Note that the item with this key is done."""
        self._change(key=key)

    def end(self) -> None:
        """Note that no item is left."""
        self._change(is_at_end=True)

    def leave(self) -> None:
        """Note that the body has left it before its end, and goes on behind it."""
        self._change(left=self.begun)

    # Private.

    def _change(self, **changes: Any) -> None:  # noqa: ANN401 - of a position
        self.position = msgspec.structs.replace(self.position, done=self.position.done + 1, **changes)
        self.is_saved = False
