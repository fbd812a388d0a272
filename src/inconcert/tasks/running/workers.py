"""The workers of a namespace: each describes itself with its heartbeat, and lists the jobs that it runs."""

import os
import re
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from inconcert._claims.held import holding, read_held
from inconcert._claims.keys import split_body
from inconcert._core.session import SessionRef
from inconcert._redis.protocol.replies import Reply, rows
from inconcert.tasks.records.store import COUNT_CLAIMED, DESCRIBED, ClaimedCount, JobKeys, JobKeyspace

_NAME = re.compile(rb'(?:hmac1 \S+ \S+ )?\{"name":("(?:[^"\\]|\\.)*")')  # at the beginning of an envelope
_AT_ONCE = 100  # workers of which one script counts what they hold


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that a worker has claimed.

    Attributes:
        id: Which job.
        task: The name of its task; `?` if its envelope cannot be read.
        queue: The queue that it came from.
        attempt: Which attempt this is, from 1.
        claimed_at: Since when, in seconds since 1970 by the server's clock.
    """

    id: str
    task: str
    queue: str
    attempt: int
    claimed_at: float


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker, or another consumer of jobs.

    Attributes:
        id: Unique to this opening of it; begins with the id that its log lines have.
        host: The name of its machine; None if it is not known, because it died an hour ago or longer.
        pid: Its process; None if it is not known.
        queues: The queues that it serves, the most urgent first.
        capacity: How many jobs it runs at once at most; None for a consumer whose caller decides, or if unknown.
        running: The jobs that it has claimed, the oldest first.
        heard_at: When its last heartbeat came, in seconds since 1970 by the server's clock; None if unknown.
        is_alive: Whether its heartbeat has not lapsed. What a dead worker has claimed is requeued by the others.
    """

    id: str
    host: str | None
    pid: int | None
    queues: Sequence[str]
    capacity: int | None
    running: Sequence[RunningJob]
    heard_at: float | None
    is_alive: bool


class _About(msgspec.Struct, frozen=True):
    """The description of a worker, as JSON; the workers of one consumer, one in each partition, say the same."""

    consumer: str
    host: str = ""
    pid: int = 0
    queues: tuple[str, ...] = ()
    capacity: int | None = None


class _DescribedRow(NamedTuple):
    """A worker, as the script returns it."""

    worker: bytes
    is_alive: int
    said: bytes


class _Found:
    """The known facts of one consumer."""

    def __init__(self, about: _About | None) -> None:
        self.about = about
        self.heard_ms = 0
        self.is_alive = False
        self.running: list[RunningJob] = []

    def status(self, id_: str) -> WorkerStatus:
        about = self.about
        return WorkerStatus(
            id=id_,
            host=about.host if about else None,
            pid=about.pid if about else None,
            queues=about.queues if about else (),
            capacity=about.capacity if about else None,
            running=tuple(sorted(self.running, key=lambda job: job.claimed_at)),
            heard_at=self.heard_ms / 1000 if about else None,
            is_alive=self.is_alive,
        )


def describe(consumer: str, queues: Sequence[str], capacity: int | None) -> bytes:
    """The description of a worker of this consumer."""
    return msgspec.json.encode(_About(consumer, socket.gethostname(), os.getpid(), tuple(queues), capacity))


def consumer_of(worker: str, said: bytes) -> str:
    """The id of the consumer of which this worker is a part; that of the worker if it has not said who it is."""
    try:
        return msgspec.json.decode(split_body(said)[1], type=_About).consumer
    except (msgspec.MsgspecError, UnicodeDecodeError):  # of another release
        return worker


class Workers:
    """The workers of a namespace."""

    def __init__(self, ref: SessionRef, keyspace: JobKeyspace) -> None:
        self._ref = ref
        self._keyspace = keyspace

    async def statuses(self) -> Sequence[WorkerStatus]:
        """All that are alive, and those that are dead and not recovered yet."""
        found: dict[str, _Found] = {}
        for keys in self._keyspace.partitions:
            of: dict[bytes, _Found] = {}  # each worker of this partition
            for row, heard_ms, about in await self._described(keys):
                one = of[row.worker] = found.setdefault(about.consumer, _Found(about))
                one.is_alive = one.is_alive or bool(row.is_alive)
                one.heard_ms = max(one.heard_ms, heard_ms)
            for worker in await self.holding(keys):
                if worker not in of:
                    of[worker] = found[worker.decode()] = _Found(None)
            for held in await read_held(self._ref.session, keys, list(of)):
                job = RunningJob(held.id, _task_of(held.body), held.queue, held.attempt, held.claimed_at)
                of[held.worker].running.append(job)
        statuses = [one.status(id_) for id_, one in found.items()]
        return sorted(statuses, key=lambda one: (one.host or "", one.pid or 0, one.id))

    async def running(self) -> Mapping[str, int]:
        """Of each queue how many jobs workers hold."""
        running = Counter[str]()
        for keys in self._keyspace.partitions:
            workers = await self.holding(keys)
            for start in range(0, len(workers), _AT_ONCE):
                claimed = [keys.claimed(worker.decode()) for worker in workers[start : start + _AT_ONCE]]
                for row in rows(await self._ref.session.run(COUNT_CLAIMED(claimed=claimed)), ClaimedCount):
                    running[row.queue.decode()] += row.jobs
        return running

    async def consumers(self) -> Mapping[str, int]:
        """Of each queue how many consumers serve it."""
        serving: dict[str, tuple[str, ...]] = {}  # a consumer has a worker in each partition
        for keys in self._keyspace.partitions:
            for row, _, about in await self._described(keys):
                if row.is_alive:
                    serving[about.consumer] = about.queues
        return Counter(queue for queues in serving.values() for queue in queues)

    async def holding(self, keys: JobKeys) -> list[bytes]:
        """The workers of this partition that hold something, in no order."""
        return await holding(self._ref.session, keys)

    # Private.

    async def _described(self, keys: JobKeys) -> list[tuple[_DescribedRow, int, _About]]:
        """The workers of a partition that have said who they are, when they were heard, and what they said."""
        found: dict[bytes, tuple[_DescribedRow, int, _About]] = {}
        cursor: Reply = b""
        while cursor != b"0":
            cursor, *flat = await self._ref.session.run(DESCRIBED(keys, cursor=cursor or b"0"))
            for row in rows(flat, _DescribedRow):
                heard_ms, text = split_body(row.said)
                try:
                    found[row.worker] = row, heard_ms, msgspec.json.decode(text, type=_About)
                except (msgspec.MsgspecError, UnicodeDecodeError):  # of another release
                    continue
        return list(found.values())


def _task_of(body: bytes) -> str:
    """The name of the task, from the beginning of a body."""
    name = _NAME.match(split_body(body)[1])
    return msgspec.json.decode(name[1], type=str) if name is not None else "?"
