"""Reading what was set aside."""

from typing import NamedTuple

from inconcert._claims.keys import DEAD, ClaimKeys
from inconcert._core.session import Session
from inconcert._redis.replies import rows

__all__ = ["DeadRow", "read_dead", "read_one_dead"]


class DeadRow(NamedTuple):
    """One that was set aside, as the script answers it."""

    id: bytes
    died_ms: bytes
    reason: bytes
    body: bytes


async def read_dead(session: Session, keys: ClaimKeys, limit: int) -> list[DeadRow]:
    """The latest that were set aside, the latest first; in portions of 1 MiB, so that none holds up other replies.

    Raises:
        ValueError: `limit` is not from 1 to 1,000.
    """
    if type(limit) is not int or not 1 <= limit <= 1000:
        raise ValueError(f"limit is {limit!r}; give a whole number from 1 to 1,000")
    found: dict[bytes, DeadRow] = {}  # by id: what is set aside between two portions moves the others on
    passed_over, has_more = 0, True
    while has_more and len(found) < limit:
        has_more, portion = await _read(session, keys, "", passed_over, limit - len(found))
        passed_over += len(portion)
        found |= {row.id: row for row in portion}
    return [*found.values()]


async def read_one_dead(session: Session, keys: ClaimKeys, dead_id: str) -> DeadRow | None:
    """The one of this id; None if it was not set aside."""
    _, found = await _read(session, keys, dead_id, 0, 1)
    return found[0] if found else None


async def _read(
    session: Session, keys: ClaimKeys, dead_id: str, passed_over: int, limit: int
) -> tuple[bool, list[DeadRow]]:
    has_more, *flat = await session.run(DEAD(keys, id=dead_id, skip=passed_over, limit=limit))
    return bool(has_more), rows(flat, DeadRow)
