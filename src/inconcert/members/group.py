"""The keys and the channel of a group of members, and reading it from there."""

from collections.abc import Sequence
from typing import NamedTuple, Self

from inconcert._core.session import Session, SessionRef
from inconcert._redis.protocol.scripts import load
from inconcert._rules.payloads import JSON, decode, encode
from inconcert.errors import InvalidPayload

_LARGEST = 4096  # bytes of a value; each process has those of all members


class MemberKeys(NamedTuple):
    """The keys of a group."""

    members: str  # zset: member -> lease end, server ms
    values: str  # hash: member -> its value, JSON
    state: str  # hash: version -> of the last change; turn:MEMBER -> the last turn of its claims; sweep -> cursor
    claims: str  # hash: key -> 'TOKEN MEMBER' that has it
    look: str  # string: the member that looks when the next lease ends; until then
    recent: str
    older: str


LIST = load("members/list").bind(MemberKeys)
LOOK = load("members/look").bind(MemberKeys)
_COUNT = load("members/count").bind(MemberKeys)


class Group(NamedTuple):
    """A group: its keys, and the channel of its changes."""

    name: str  # the group's
    keys: MemberKeys
    changes: str  # the channel on which its changes are published

    @classmethod
    def of(cls, ref: SessionRef, name: str) -> Self:
        """The group `name`."""
        keys = ref.keys.of(MemberKeys, "members", name)
        return cls(name, keys, ref.keys.channel(keys.members, "members", name))


async def read_group(session: Session, group: Group) -> dict[str, JSON]:
    """Ask the server who is in a group."""
    found: dict[str, JSON] = {}
    cursor: bytes | int = 0
    while True:
        _, cursor, flat, lost = await session.run(LIST(group.keys, cursor=cursor, changes=group.changes))
        if lost:  # perhaps more have lapsed than one script drops
            found, cursor = {}, 0
            continue
        found |= values_of(flat)
        if int(cursor) == 0:
            return found


async def count_members(session: Session, group: Group) -> int:
    """Ask the server how many are in a group."""
    count: int = await session.run(_COUNT(group.keys))
    return count


def values_of(flat: Sequence[bytes]) -> dict[str, JSON]:
    """Member -> value, of what `HSCAN` returns."""
    return {member.decode(): decode(value) for member, value in zip(flat[::2], flat[1::2], strict=True)}


def encode_value(name: str, value: JSON) -> bytes:
    """Encode the value of a member of this group; raises `InvalidPayload` if it is not JSON, or too long."""
    what = f"value of a member of {name!r}"
    text = encode(what, value)
    if len(text) > _LARGEST:
        raise InvalidPayload(
            f"{what} has {len(text)} bytes as JSON; give at most {_LARGEST}, or its address in a store"
        )
    return text
