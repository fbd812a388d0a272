"""The meaning of the server's error replies: whether to ask again, and which error the caller gets."""

import re
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar, cast

import redis.exceptions

from inconcert._redis.protocol.operations import Operation
from inconcert.errors import InconcertError, OutcomeUnknown, Unavailable, WrongState

# One reply as hiredis parses it: integers, bytes, None, lists of these.  The header of each script says which.
Reply = Any

R = TypeVar("R", bound=NamedTuple)
_new = cast("Any", tuple).__new__

# The node cannot serve writes now, and executed nothing; another connection, or the same one later, may lead to one
# that can.
_PASSING = frozenset({"READONLY", "LOADING", "MASTERDOWN", "BUSY", "UNBLOCKED", "TRYAGAIN", "CLUSTERDOWN"})

_CODES: dict[type[redis.exceptions.ResponseError], str] = {
    redis.exceptions.NoScriptError: "NOSCRIPT",
    redis.exceptions.ReadOnlyError: "READONLY",
    redis.exceptions.OutOfMemoryError: "OOM",
}

_REFUSED = frozenset({"OOM", "NOAUTH", "NOPERM", "WRONGPASS", "MISCONF", "NOREPLICAS", "MOVED", "ASK", "CROSSSLOT"})

_REMEDIES = {
    "OOM": "nothing was executed, so free memory or raise maxmemory, then try again",
    "NOPERM": "nothing was executed; give this user the right with ACL SETUSER",
}
_OTHER_REMEDY = "nothing was executed, so try again when the server accepts it"

# How Redis and Valkey name the script in which an error came up.
_SCRIPT = re.compile(
    r"[\s.,]*\bscript: (?:\w+, )?on @user_script:\d+\.?$|Error running script .*?@user_script:\s?\d+: -?"
)
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

    @property
    def text(self) -> str:
        """The server's message, without its position in a script."""
        return _SCRIPT.sub("", str(self)).rstrip(" .")


def is_passing(reply: ErrorReply) -> bool:
    """True if the same command may succeed soon, on a new connection; it was not executed now."""
    return reply.code in _PASSING


def error_for(reply: ErrorReply, operation: Operation, *, sends: int) -> InconcertError:
    """The error that the caller of an operation gets for this reply.

    Args:
        reply: What the server said.
        operation: What was called.
        sends: How often it was sent.  A refusal says only that it was not executed this time.
    """
    text = reply.text
    if sends > 1:
        return operation.error(
            OutcomeUnknown,
            f"was sent again because a reply was lost, and was then refused: {text}; "
            "it may have been executed the first time, so check before repeating it",
        )
    # Redis 6.2 and 7.0 put an error raised inside a script behind a prefix of their own.
    if reply.code == "WRONGTYPE" or "WRONGTYPE" in text:
        return operation.error(
            WrongState,
            f"found a value of another type in its keys ({text}); use another namespace, "
            "or delete what another program stored there",
        )
    if reply.code in _PASSING | _REFUSED or "OOM command not allowed" in text:
        return operation.error(Unavailable, f"was refused by the server: {text}; {_remedy(reply)}")
    return operation.error(
        OutcomeUnknown,
        f"was stopped by an error of the server: {text}; a part may have been executed, so check before repeating it",
    )


def _remedy(reply: ErrorReply) -> str:
    return next((remedy for code, remedy in _REMEDIES.items() if code in str(reply)), _OTHER_REMEDY)


def head(reply: list[Any], head_type: type[R]) -> tuple[R, list[Any]]:
    """The first fields of a reply, and what follows them.

    Raises:
        TypeError: A field is missing.
    """
    size = len(head_type._fields)
    return head_type._make(reply[:size]), reply[size:]


def rows(flat: Iterable[Any], row_type: type[R]) -> list[R]:
    """The rows of a reply that has them one after the other, each field by itself.

    Raises:
        ValueError: The last row lacks a field.
    """
    # As `_make` does, without a call for each row: a page has hundreds.
    made: Iterable[R] = map(partial(_new, row_type), zip(*[iter(flat)] * len(row_type._fields), strict=True))
    return list(made)
