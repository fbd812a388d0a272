"""Changes of a group, as scripts publish them and as watchers get them."""

from dataclasses import dataclass
from typing import NamedTuple, Self, TypeAlias

import msgspec

from inconcert._rules.payloads import JSON, decode


@dataclass(frozen=True, slots=True)
class Joined:
    """A member has joined, or is there when watching begins, or begins again.

    Attributes:
        member: Its id.
        value: Its value.
    """

    member: str
    value: JSON


@dataclass(frozen=True, slots=True)
class Changed:
    """A member has another value.

    Attributes:
        member: Its id.
        value: Its new value.
    """

    member: str
    value: JSON


@dataclass(frozen=True, slots=True)
class Left:
    """A member has left.

    Attributes:
        member: Its id.
    """

    member: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease of a member has lapsed: its process has died, stood still, or was cut off.

    Attributes:
        member: Its id.
    """

    member: str


MemberChange: TypeAlias = Joined | Changed | Left | Lost
"""The changes that `watch` yields, apart from a `Gap`."""


@dataclass(frozen=True, slots=True)
class Freed:
    """A member has let go of keys."""

    member: str
    keys: frozenset[str]


class StartOver:
    """Changes were missed: look at the whole group."""


class Reconnected:
    """The connection was lost, and is back."""


Change: TypeAlias = MemberChange | Freed
News: TypeAlias = Change | StartOver | Reconnected


class Update(NamedTuple):
    """One change, between two versions of the group."""

    last: int
    version: int
    change: Change

    @classmethod
    def read(cls, text: bytes) -> Self:
        """Parse 'LAST_VERSION VERSION KIND MEMBER REST'.

        Raises:
            ValueError: It did not come from a script of ours.
        """
        last, version, kind, member, rest = (*text.decode().split(" ", 4), "")[:5]
        return cls(int(last), int(version), _change(kind, member, rest))


def _change(kind: str, member: str, rest: str) -> Change:
    match kind:
        case "joined":
            return Joined(member, decode(rest))
        case "changed":
            return Changed(member, decode(rest))
        case "left":
            return Left(member)
        case "lost":
            return Lost(member)
        case "freed":
            return Freed(member, frozenset(msgspec.json.decode(rest, type=list[str])))
        case _:
            raise ValueError(f"{kind!r} is not a change of a group")
