"""How much work each queue of jobs has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inconcert._core.session import Session
from inconcert._redis.call import Call
from inconcert._redis.replies import rows
from inconcert._redis.scripts import Command
from inconcert.tasks.store import STATS, JobKeyspace, StatsRow
from inconcert.tasks.workers import Workers

__all__ = ["QueueStats", "TaskStats", "read_stats"]


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
        consumers: Workers and other consumers that are alive and serve it.
        finished: Jobs from this queue that succeeded, or were cancelled while running, since it was created. Its growth
            over a time is the queue's throughput.
    """

    ready: int
    delayed: int
    waiting: int
    running: int
    oldest_age: float | None
    is_paused: bool
    consumers: int
    finished: int


@dataclass(frozen=True, slots=True)
class TaskStats:
    """How much work there is.

    Attributes:
        workers: Consumers that are alive.
        dead: Jobs that were dead-lettered.
        queues: Queue name -> its work.
        unserved: Names of the queues among these in which jobs wait, although nobody serves them: a worker is missing,
            or a name is misspelt.
    """

    workers: int
    dead: int
    queues: Mapping[str, QueueStats]
    unserved: Sequence[str]


async def read_stats(session: Session, jobs: JobKeyspace, workers: Workers, queues: Sequence[str]) -> TaskStats:
    """How much work there is in these queues; see `Tasks.stats`."""
    commands: list[Command] = []
    for keys in jobs.partitions:
        places = [keys.queue(name) for name in queues]
        parts = [key for place in places for key in (place.queue, place.delayed)]
        commands.append(STATS(keys, queues=parts, names=queues))
    running, consumers = await workers.running(), await workers.consumers()
    replies = await session.gather([Call(command) for command in commands])
    found = zip(*(rows(flat, StatsRow) for _, _, *flat in replies), strict=True)
    stats = {
        name: _stats(parts, running=running.get(name, 0), consumers=consumers.get(name, 0))
        for name, parts in zip(queues, found, strict=True)
    }
    return TaskStats(
        workers=max(alive for alive, *_ in replies),  # a consumer works in all partitions
        dead=sum(dead for _, dead, *_ in replies),
        queues=stats,
        unserved=tuple(name for name, queue in stats.items() if _is_unserved(queue)),
    )


def _stats(parts: Sequence[StatsRow], *, running: int, consumers: int) -> QueueStats:
    """How much work a queue has in all its partitions."""
    oldest_ms = max(part.oldest_ms for part in parts)
    return QueueStats(
        ready=sum(part.ready for part in parts),
        delayed=sum(part.delayed for part in parts),
        waiting=sum(part.waiting for part in parts),
        running=running,
        oldest_age=oldest_ms / 1000 if oldest_ms >= 0 else None,
        is_paused=all(part.is_paused for part in parts),
        consumers=consumers,
        finished=sum(part.finished for part in parts),
    )


def _is_unserved(queue: QueueStats) -> bool:
    return queue.consumers == 0 and queue.ready + queue.delayed + queue.waiting > 0
