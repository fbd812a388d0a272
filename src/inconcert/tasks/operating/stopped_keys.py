"""Keys in strict order that a dead job stops: which, and that they go on when it is purged.

Source: docs/explanation/strict-order.md
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from inconcert._claims.dead_letters import DeadLetters
from inconcert._core.session import Session, SessionRef
from inconcert._redis.protocol.replies import rows
from inconcert._redis.protocol.scripts import Command
from inconcert._redis.wire.call import Call
from inconcert.tasks.records.store import GO_ON, STOPPED_KEYS, JobKeys, JobKeyspace


@dataclass(frozen=True, slots=True)
class StoppedKey:
    """A key in strict order that waits for the replay or the purge of a dead job.

    Attributes:
        job_id: The dead job.
        waiting: How many jobs of the key wait behind it.
    """

    job_id: str
    waiting: int


class _Row(NamedTuple):
    id: bytes
    waiting: int


class _Stopping(NamedTuple):
    id: bytes
    queue: bytes


async def read_stopped_keys(session: Session, keyspace: JobKeyspace) -> list[StoppedKey]:
    """Those of all partitions; see `Tasks.stopped_keys`."""
    replies = await session.gather([Call(STOPPED_KEYS(keys)) for keys in keyspace.partitions])
    return [StoppedKey(row.id.decode(), row.waiting) for flat in replies for row in rows(flat, _Row)]


class DeadJobLetters(DeadLetters):
    """The dead letters of one partition of jobs: a key goes on before the job that stops it is purged."""

    def __init__(self, ref: SessionRef, keys: JobKeys) -> None:
        super().__init__(ref, keys)
        self._job_keys = keys

    async def _purge_portion(self, command: Command) -> tuple[int, int]:
        dropped, has_more, *kept = await self._ref.session.run(command)
        by_queue: defaultdict[str, list[str]] = defaultdict(list)
        for row in rows(kept, _Stopping):  # the script kept them; the next run drops them
            by_queue[row.queue.decode()].append(row.id.decode())
        keys = self._job_keys
        calls: Sequence[Call] = [Call(GO_ON(keys, keys.queue(queue), ids=ids)) for queue, ids in by_queue.items()]
        await self._ref.session.gather(calls)
        return dropped, has_more
