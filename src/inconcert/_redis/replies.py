"""What the server's error replies mean: whether to ask again, and which error the caller gets."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple, Self, TypeVar

import redis.exceptions

from inconcert.errors import InconcertError, OutcomeUnknown, Unavailable, WrongState

__all__ = ["ErrorReply", "Reply", "error_for", "is_passing", "rows"]

# One reply as hiredis parses it: integers, bytes, None, lists of these.  The header of each script says which.
Reply = Any

R = TypeVar("R", bound=NamedTuple)

# The node cannot serve writes now, and executed nothing; another connection, or the same one later, may lead to one
# that can.
_PASSING = frozenset({"READONLY", "LOADING", "MASTERDOWN", "BUSY", "UNBLOCKED", "TRYAGAIN", "CLUSTERDOWN"})

_CODES: dict[type[redis.exceptions.ResponseError], str] = {
    redis.exceptions.NoScriptError: "NOSCRIPT",
    redis.exceptions.ReadOnlyError: "READONLY",
    redis.exceptions.OutOfMemoryError: "OOM",
}

_REFUSED = frozenset({"OOM", "NOAUTH", "NOPERM", "WRONGPASS", "MISCONF", "NOREPLICAS", "MOVED", "ASK", "CROSSSLOT"})

_WITHIN_A_SCRIPT = re.compile(r"Error running script .* -([A-Z]+) ")


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
        """The first word, such as `NOSCRIPT`; if Redis 6.2 speaks of a command within a script, that of the command."""
        within = _WITHIN_A_SCRIPT.search(str(self))
        return within[1] if within else str(self).partition(" ")[0]


def is_passing(reply: ErrorReply) -> bool:
    """Whether the same command may succeed soon, on a new connection; it was not executed now."""
    return reply.code in _PASSING


def error_for(reply: ErrorReply, what: str, *, sends: int) -> InconcertError:
    """The error that the caller of `what` gets for this reply.

    Args:
        reply: What the server said.
        what: What was called, for the message.
        sends: How often it was sent.  A refusal says only that it was not executed this time.
    """
    text = str(reply)
    if sends > 1:
        return OutcomeUnknown(
            f"{what}: sent again because a reply was lost, and now the server says: {text}; "
            "it may have been executed the first time, so look before repeating it"
        )
    # Redis 6.2 and 7.0 put an error raised inside a script behind a prefix of their own.
    if reply.code == "WRONGTYPE" or "WRONGTYPE" in text:
        return WrongState(f"{what}: a key of this name holds something of another kind; use another namespace ({text})")
    if reply.code in _PASSING | _REFUSED or "OOM command not allowed" in text:
        return Unavailable(f"{what}: the server refused: {text}")
    return OutcomeUnknown(f"{what}: the server reported an error in the middle: {text}")


def rows(flat: Iterable[Any], row_type: type[R]) -> list[R]:
    """The rows of a reply that has them one after the other, each field by itself.

    Raises:
        ValueError: The last row lacks a field.
    """
    return [row_type._make(row) for row in zip(*[iter(flat)] * len(row_type._fields), strict=True)]
