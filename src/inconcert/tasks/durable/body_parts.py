"""Parts of a body that later runs pass over once they are done: the functions of steps, and the items of loops."""

from contextvars import ContextVar
from weakref import ref


class BodyPart:
    """A part of the body of one attempt, as long as it is referred to."""

    __slots__ = ("__weakref__", "attempt", "is_under_way")

    def __init__(self, attempt: object) -> None:
        self.attempt = attempt  # the steps of the attempt
        self.is_under_way = False  # whether it runs now

    def begin(self) -> None:
        """Count all that runs in this context from now on as in it, while it is under way."""
        self.is_under_way = True
        parts = _parts.get()
        if not any(part() is self for part in parts):
            _parts.set((*(part for part in parts if part() is not None), ref(self)))

    def end(self) -> None:
        """It does not run any more, or not now."""
        self.is_under_way = False


def parts_here(attempt: object) -> tuple[ref[BodyPart], ...]:
    """The parts of the body of this attempt in which the caller is."""

    def is_around(part: BodyPart | None) -> bool:
        return part is not None and part.is_under_way and part.attempt is attempt

    return tuple(part for part in _parts.get() if is_around(part()))


_parts: ContextVar[tuple[ref[BodyPart], ...]] = ContextVar("inconcert_body_parts", default=())
