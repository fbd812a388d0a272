"""What operators do with tasks: inspect queues and dead letters, replay, purge, pause."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import msgspec

from inconcert._claims.dead_letters import DeadLetter, DeadLetters
from inconcert._claims.keys import split_body
from inconcert._core.session import SessionRef
from inconcert._redis.replies import rows
from inconcert._rules.durations import Seconds
from inconcert._rules.names import check_job_id
from inconcert._rules.payloads import JSON
from inconcert._rules.signing import KeyRing
from inconcert.errors import InvalidPayload, JobNotFound
from inconcert.tasks.envelope import JOB, Envelope, open_envelope, seal
from inconcert.tasks.job import Job
from inconcert.tasks.store import COUNT_CLAIMED, PAUSE, STATS, WORKERS, ClaimedCount, JobKeys, StatsRow
from inconcert.tasks.watch import Watches

__all__ = ["DeadJob", "QueueStats", "TaskStats", "Tasks"]

_UNREADABLE = Envelope("?")


@dataclass(frozen=True, slots=True)
class DeadJob:
    """A dead-lettered job.

    Attributes:
        id: Which job.
        name: Which task; `?` if its envelope cannot be read.
        args: Its positional arguments.
        kwargs: Its named arguments.
        queue: The queue that it came from.
        reason: Why it was dead-lettered, in one line.
        traceback: Where its last error was raised, as text; empty if none was.
        attempts: How many attempts there were, including those whose worker died.
        died_at: When it was dead-lettered, in seconds since 1970 by the server's clock.
    """

    id: str
    name: str
    args: Sequence[JSON]
    kwargs: Mapping[str, JSON]
    queue: str
    reason: str
    traceback: str
    attempts: int
    died_at: float


@dataclass(frozen=True, slots=True)
class QueueStats:
    """How much work one queue has.

    Attributes:
        ready: Jobs that may run now. Some of them may have been cancelled.
        delayed: Jobs that are due later.
        waiting: Jobs that run after others that have not ended.
        running: Jobs that workers have claimed from it.
        oldest_age: Seconds since the first ready job was enqueued; None if there is none.
        is_paused: Whether claims from it are paused.
        finished: Jobs from this queue that succeeded, or were cancelled while running, since it was created. Its growth
            over a time is the queue's throughput.
    """

    ready: int
    delayed: int
    waiting: int
    running: int
    oldest_age: float | None
    is_paused: bool
    finished: int


@dataclass(frozen=True, slots=True)
class TaskStats:
    """How much work there is.

    Attributes:
        workers: Consumers that are alive.
        dead: Jobs that were dead-lettered.
        queues: Queue name -> its work.
    """

    workers: int
    dead: int
    queues: Mapping[str, QueueStats]


class Tasks:
    """What operators do with the tasks of a namespace: `concert.tasks`."""

    def __init__(self, ref: SessionRef, keys: JobKeys, watches: Watches) -> None:
        self._ref = ref
        self._keys = keys
        self._watches = watches
        self._dead_letters = DeadLetters(ref, keys)

    def job(self, job_id: str) -> Job[JSON]:
        """The job of this id, to ask for its status or result; no I/O, so it may not exist.

        Raises:
            InvalidName: `job_id` is not a job id.
        """
        return Job(self._ref, self._keys, self._watches, check_job_id(job_id), is_new=False)

    async def stats(self, *queues: str) -> TaskStats:
        """How much work there is, in these queues.

        Args:
            queues: Names of queues, at least one.

        Raises:
            ValueError: No queue is given.
            InvalidName: A name is empty or longer than 512 bytes.

        Cost: 3 round trips, and 2 more for each 100 workers; O(claimed jobs).
        """
        if not queues:
            raise ValueError("no queue is given; name at least one")
        keys = self._keys
        places = [keys.queue(name) for name in queues]
        parts = [key for place in places for key in (place.queue, place.delayed)]
        running = await self._running()
        workers, dead, *flat = await self._ref.session.run(STATS(keys, queues=parts, names=queues))
        found = zip(queues, rows(flat, StatsRow), strict=True)
        return TaskStats(workers, dead, {name: _stats(row, running[name]) for name, row in found})

    async def pause(self, queue: str) -> None:
        """Pause claims from a queue until `resume`. Running jobs go on, and enqueued ones wait.

        Raises:
            InvalidName: The name is empty or longer than 512 bytes.

        Cost: 1 round trip.
        """
        await self._pause(queue, is_paused=1)

    async def resume(self, queue: str) -> None:
        """Resume claims from a queue.

        Raises:
            InvalidName: The name is empty or longer than 512 bytes.

        Cost: 1 round trip.
        """
        await self._pause(queue, is_paused=0)

    async def dead(self, *, limit: int = 100) -> list[DeadJob]:
        """Dead-lettered jobs, latest first.

        Args:
            limit: How many at most, 1 to 1,000.

        Raises:
            ValueError: `limit` is out of its range.

        Cost: 1 round trip, and 1 for each further MiB.
        """
        letters = await self._dead_letters.latest(limit=limit)
        key_ring = self._ref.session.key_ring
        return [_dead_job(key_ring, letter) for letter in letters]

    async def replay(
        self,
        job_id: str,
        *,
        args: Sequence[JSON] | None = None,
        kwargs: Mapping[str, JSON] | None = None,
        queue: str | None = None,
    ) -> None:
        """Enqueue a dead-lettered job again, as if it were new, under its old id.

        It takes its unique name again, unless another job has it by now; it runs in both cases. It no longer waits for
        the jobs that it runs after. Jobs that were dead-lettered because of it stay dead-lettered: replay them when it
        has succeeded.

        Args:
            job_id: Which job.
            args: New positional arguments; None keeps its own.
            kwargs: New keyword arguments; None keeps its own.
            queue: Another queue; None for the one that it came from.

        Raises:
            JobNotFound: It is not in the dead-letter list.
            InvalidName: `job_id` is not a job id, or `queue` is empty or longer than 512 bytes.
            InvalidPayload: An argument is not JSON; or arguments are given, and its envelope cannot be read.
            OutcomeUnknown: The server did not answer; it may be in its queue.

        Cost: 2 round trips.
        """
        letter = await self._dead_letters.find(check_job_id(job_id))
        if letter is None:
            raise JobNotFound(job_id, among_the_dead=True)
        key_ring = self._ref.session.key_ring
        changes = {name: value for name, value in (("args", args), ("kwargs", kwargs)) if value is not None}
        changed = b""
        try:
            envelope = open_envelope(key_ring.verify(JOB, job_id, split_body(letter.body)[1]))
        except InvalidPayload:
            if changes:
                raise
            envelope = _UNREADABLE
        if changes:
            changed = key_ring.sign(JOB, job_id, seal(msgspec.structs.replace(envelope, **changes)))
        place = self._keys.queue(queue or letter.queue)
        if not await self._dead_letters.replay(job_id, place, envelope=changed, unique=envelope.unique):
            raise JobNotFound(job_id, among_the_dead=True)

    async def purge(self, job_id: str) -> None:
        """Drop a dead-lettered job.

        Raises:
            JobNotFound: It is not in the dead-letter list.
            InvalidName: `job_id` is not a job id.

        Cost: 1 round trip.
        """
        if not await self._dead_letters.purge(check_job_id(job_id)):
            raise JobNotFound(job_id, among_the_dead=True)

    async def purge_all(self, *, older_than: Seconds = 0.0, keep: int = 0) -> int:
        """Drop dead-lettered jobs, oldest first.

        Args:
            older_than: Only jobs that were dead-lettered longer ago than this, in seconds.
            keep: How many of the latest stay whatever their age; 0 for none.

        Returns:
            How many were dropped.

        Raises:
            ValueError: A number is out of its range.

        Cost: 1 round trip for 500 jobs.
        """
        return await self._dead_letters.purge_all(older_than=older_than, keep=keep)

    # Below.

    async def _running(self) -> Counter[str]:
        """How many jobs of each queue workers hold, read for some workers at a time."""
        keys, session = self._keys, self._ref.session
        running, seen = Counter[str](), set[bytes]()
        cursor = b""
        while cursor != b"0":
            cursor, *found = await session.run(WORKERS(keys, cursor=cursor or b"0"))
            if new := set(found) - seen:
                answer = await session.run(COUNT_CLAIMED(claimed=[keys.claimed(worker.decode()) for worker in new]))
                for row in rows(answer, ClaimedCount):
                    running[row.queue.decode()] += row.jobs
            seen |= new
        return running

    async def _pause(self, queue: str, *, is_paused: int) -> None:
        keys, session = self._keys, self._ref.session
        request = session.new_address()
        await session.run(PAUSE(keys, keys.queue(queue), name=queue, is_paused=is_paused, request=request))


def _stats(row: StatsRow, running: int) -> QueueStats:
    return QueueStats(
        ready=row.ready,
        delayed=row.delayed,
        waiting=row.waiting,
        running=running,
        oldest_age=row.oldest_ms / 1000 if row.oldest_ms >= 0 else None,
        is_paused=bool(row.is_paused),
        finished=row.finished,
    )


def _dead_job(key_ring: KeyRing, letter: DeadLetter) -> DeadJob:
    try:
        envelope = open_envelope(key_ring.verify(JOB, letter.id, split_body(letter.body)[1]))
    except InvalidPayload:
        envelope = _UNREADABLE
    return DeadJob(
        id=letter.id,
        name=envelope.name,
        args=cast("Sequence[JSON]", envelope.args),
        kwargs=cast("Mapping[str, JSON]", envelope.kwargs),
        queue=letter.queue,
        reason=letter.reason.reason,
        traceback=letter.reason.traceback,
        attempts=letter.reason.attempts,
        died_at=letter.died_at,
    )
