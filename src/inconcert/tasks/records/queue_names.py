"""The known queues: those to which a job was ever enqueued."""

from collections.abc import Sequence

from inconcert._core.session import Session
from inconcert._redis.protocol.replies import Reply
from inconcert.tasks.records.store import QUEUE_NAMES, JobKeys


async def queue_names(session: Session, keys: JobKeys) -> Sequence[str]:
    """The names of a partition's queues, sorted.

    Cost: 1 round trip for each 500.
    """
    names: set[str] = set()
    cursor: Reply = b""
    while cursor != b"0":
        cursor, *found = await session.run(QUEUE_NAMES(keys, cursor=cursor or b"0"))
        names.update(name.decode() for name in found)
    return sorted(names)
