"""Claims of workers, as the server knows them."""

from collections.abc import Sequence
from typing import NamedTuple

from inconcert._claims.keys import HELD, WORKERS, ClaimKeys
from inconcert._core.session import Session
from inconcert._redis.protocol.replies import Reply, rows

_AT_ONCE = 100  # workers of which one script says what they hold


class HeldClaim(NamedTuple):
    """A job or an item that a worker holds."""

    worker: bytes  # the id of the worker
    id: str  # which job or item
    attempt: int  # which attempt this is, from 1
    claimed_at: float  # since when, in seconds since 1970 by the server's clock
    queue: str  # the name of its queue; empty if there is only one
    body: bytes  # the beginning of its stored body


class _Row(NamedTuple):
    """The same as the script returns it; `nth` of the workers that were asked about."""

    nth: int
    id: bytes
    claim: bytes
    body: bytes

    def read(self, workers: Sequence[bytes]) -> HeldClaim:
        _, attempt, since_ms, queue = self.claim.decode().split(" ", 3)
        return HeldClaim(workers[self.nth], self.id.decode(), int(attempt), int(since_ms) / 1000, queue, self.body)


async def holding(session: Session, keys: ClaimKeys) -> list[bytes]:
    """The workers that hold something, also those that are dead and not recovered yet; in no order.

    Cost: 1 round trip for about 100.
    """
    found: dict[bytes, None] = {}
    cursor: Reply = b""
    while cursor != b"0":
        cursor, *workers = await session.run(WORKERS(keys, cursor=cursor or b"0"))
        found |= dict.fromkeys(workers)
    return list(found)


async def read_held(session: Session, keys: ClaimKeys, workers: Sequence[bytes]) -> list[HeldClaim]:
    """Find the claims that these workers hold.

    Cost: 1 round trip for 100 workers, or for a MiB.
    """
    held: list[HeldClaim] = []
    while workers:
        asked = workers[:_AT_ONCE]
        claimed = [keys.claimed(worker.decode()) for worker in asked]
        count, *flat = await session.run(HELD(keys, claimed=claimed))
        held += (row.read(asked) for row in rows(flat, _Row))
        workers = workers[count:]
    return held
