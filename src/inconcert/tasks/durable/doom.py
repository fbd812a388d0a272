"""An error behind which an attempt of a job cannot end well, whatever its body makes of it."""

from types import TracebackType


class Doom:
    """The first such error of an attempt."""

    __slots__ = ("_traceback", "error")

    def __init__(self, error: Exception) -> None:
        self.error = error
        self._traceback: TracebackType | None = None

    def again(self) -> Exception:
        """The error, to be raised again, with the traceback of the first time: a loop of tries does not lengthen it."""
        if self._traceback is None:
            self._traceback = self.error.__traceback__
        return self.error.with_traceback(self._traceback)
