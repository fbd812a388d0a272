"""Why something was set aside: text for whoever looks at it later, never code."""

import traceback as tracebacks
from typing import Self

import msgspec

from inconcert._rules.payloads import encode

__all__ = ["Reason"]

_LONGEST_REASON = 1_000  # characters
_LONGEST_TRACEBACK = 10_000  # characters, the last of it


class Reason(msgspec.Struct, frozen=True):
    """Why something was set aside.

    Attributes:
        reason: The last error, in one line.
        traceback: Where it was raised; empty if nothing was.
        attempts: How many attempts there were.
    """

    reason: str
    traceback: str = ""
    attempts: int = 0

    @classmethod
    def of(cls, error: BaseException | None, attempts: int) -> Self:
        """The reason that an error is; without one it was nacked."""
        if error is None:
            return cls("nacked", "", attempts)
        # Not str(error): that of a user's own class may fail.
        line = tracebacks.format_exception_only(error)[-1].strip()
        lines = "".join(tracebacks.format_exception(error))
        return cls(_clean(line[:_LONGEST_REASON]), _clean(lines[-_LONGEST_TRACEBACK:]), attempts)

    @classmethod
    def read(cls, text: bytes) -> Self:
        """Read what was stored, with or without the name of the queue behind it."""
        try:
            return msgspec.json.decode(text.partition(b"\n")[0], type=cls)
        except msgspec.MsgspecError:
            return cls("the reason cannot be read")

    def stored(self) -> bytes:
        """The reason as it is stored: JSON, in one line."""
        return encode("the reason", {"reason": self.reason, "traceback": self.traceback, "attempts": self.attempts})


def _clean(text: str) -> str:
    return text.encode(errors="replace").decode()
