"""What the server's error replies mean: whether to ask again, and which error the caller gets."""

from typing import Any, Self

import redis.exceptions

from inconcert.errors import InconcertError, OutcomeUnknown, Unavailable, WrongState

__all__ = ["ErrorReply", "Reply", "error_for", "is_passing"]

# One reply as hiredis parses it: integers, bytes, None, lists of these.  The header of each script says which.
Reply = Any

# The node cannot serve writes now, and executed nothing; another connection, or the same one later, may lead to one
# that can.
_PASSING = frozenset({"READONLY", "LOADING", "MASTERDOWN", "BUSY", "UNBLOCKED", "TRYAGAIN", "CLUSTERDOWN"})

_CODES: dict[type[redis.exceptions.ResponseError], str] = {
    redis.exceptions.NoScriptError: "NOSCRIPT",
    redis.exceptions.ReadOnlyError: "READONLY",
    redis.exceptions.OutOfMemoryError: "OOM",
}

_REFUSED = frozenset({"OOM", "NOAUTH", "NOPERM", "WRONGPASS", "MISCONF", "NOREPLICAS", "MOVED", "ASK", "CROSSSLOT"})


class ErrorReply(Exception):
    """An error reply of the server: a code in capitals, then prose."""

    @classmethod
    def of(cls, error: redis.exceptions.ResponseError) -> Self:
        """The reply that redis-py has raised, with its code, which it takes off where it has a class for it."""
        code = _CODES.get(type(error), "")
        text = str(error)
        return cls(text if text.startswith(code) else f"{code} {text}")

    @property
    def code(self) -> str:
        """The first word, such as `NOSCRIPT`."""
        return str(self).partition(" ")[0]


def is_passing(reply: ErrorReply) -> bool:
    """Whether the same command may succeed soon, on a new connection; it was not executed now."""
    return reply.code in _PASSING


def error_for(reply: ErrorReply, what: str) -> InconcertError:
    """The error that the caller of `what` gets for this reply."""
    text = str(reply)
    # Redis 6.2 and 7.0 put an error raised inside a script behind a prefix of their own.
    if reply.code == "WRONGTYPE" or "WRONGTYPE" in text:
        return WrongState(f"{what}: a key of this name holds something of another kind; use another namespace ({text})")
    if reply.code in _PASSING | _REFUSED or "OOM command not allowed" in text:
        return Unavailable(f"{what}: the server refused: {text}")
    return OutcomeUnknown(f"{what}: the server reported an error in the middle: {text}")
