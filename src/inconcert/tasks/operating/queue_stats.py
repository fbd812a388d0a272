"""The work in each queue of jobs, and the use of each limit of tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from inconcert._core.session import Session
from inconcert._redis.protocol.replies import Reply, rows
from inconcert._redis.wire.call import Call
from inconcert.tasks.records.limits import SHARED, Limit, limit_of, shared_limit
from inconcert.tasks.records.store import PLACES_IN_USE, STATS, JobKeyspace, StatsRow
from inconcert.tasks.running.workers import Workers

_AT_ONCE = 500  # limits that one script looks up
_QUEUES_AT_ONCE = 250  # queues that one script looks at: about 5 ms


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The work of one queue, in numbers.

    Attributes:
        ready: Jobs that may run now, also those that wait for nothing but the turn of their key. Jobs that were
            cancelled between others count until a worker comes to them.
        delayed: Jobs that are due later, or that a limit holds back.
        held_back: Those of the delayed that wait for a place in the limits of their task, or for its rate. Of those
            that wait for a rate, the next one is due at a known time, and does not count.
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
    held_back: int
    waiting: int
    running: int
    oldest_age: float | None
    is_paused: bool
    consumers: int
    finished: int


@dataclass(frozen=True, slots=True)
class LimitStats:
    """The use of a task's limit.

    Attributes:
        queue: The queue of its jobs.
        places: How many of its jobs may run at once.
        in_use: How many are claimed now; of a limit that tasks share, of all of these.
        name: The name of a limit that tasks share; None for one that the task has to itself.
    """

    queue: str
    places: int
    in_use: int
    name: str | None = None


@dataclass(frozen=True, slots=True)
class TaskStats:
    """The work of a namespace, in numbers.

    Attributes:
        workers: Consumers that are alive.
        dead: Jobs that were dead-lettered.
        queues: Queue name -> its work.
        unserved: Names of the queues among these in which jobs wait, although nobody serves them: a worker is missing,
            or a name is misspelt.
        limits: Task -> how far its `limit=` is used, of the tasks of these queues that are registered here.
    """

    workers: int
    dead: int
    queues: Mapping[str, QueueStats]
    unserved: Sequence[str]
    limits: Mapping[str, LimitStats]


async def read_stats(
    session: Session,
    keyspace: JobKeyspace,
    workers: Workers,
    queues: Sequence[str],
    limits: Mapping[str, tuple[str, Limit]],  # of each task that has one: its queue, and its limit
) -> TaskStats:
    """Count the work in these queues; see `Tasks.stats`."""
    starts = range(0, max(1, len(queues)), _QUEUES_AT_ONCE)  # without queues, the workers and the dead
    portions = [queues[start : start + _QUEUES_AT_ONCE] for start in starts]
    running, consumers = await workers.running(), await workers.consumers()
    replies: list[Reply] = []  # of each partition, to the first portion
    found: list[tuple[StatsRow, ...]] = []
    for portion in portions:
        calls = [Call(STATS(keys, queues=keys.lists(portion), names=portion)) for keys in keyspace.partitions]
        answers = await session.gather(calls)
        replies = replies or answers
        found += zip(*(rows(flat, StatsRow) for _, _, *flat in answers), strict=True)
    stats = {
        name: _stats(parts, running=running.get(name, 0), consumers=consumers.get(name, 0))
        for name, parts in zip(queues, found, strict=True)
    }
    return TaskStats(
        workers=max(alive for alive, *_ in replies),  # a consumer works in all partitions
        dead=sum(dead for _, dead, *_ in replies),
        queues=stats,
        unserved=tuple(name for name, queue in stats.items() if _is_unserved(queue)),
        limits=await _read_limits(session, keyspace, {task: of for task, of in limits.items() if of[0] in stats}),
    )


async def _read_limits(
    session: Session, keyspace: JobKeyspace, limits: Mapping[str, tuple[str, Limit]]
) -> Mapping[str, LimitStats]:
    """The use of these limits: all jobs of a limit lie in one partition."""
    tasks: list[str] = []
    calls: list[Call] = []
    for keys in keyspace.partitions:
        here = [task for task, (_, limit) in limits.items() if keyspace.of_task(SHARED if limit.name else task) is keys]
        for start in range(0, len(here), _AT_ONCE):
            some = here[start : start + _AT_ONCE]
            tasks += some
            calls.append(Call(PLACES_IN_USE(keys, limits=[_stored(task, *limits[task]) for task in some])))
    counts = chain.from_iterable(await session.gather(calls))
    return {
        task: LimitStats(queue, limit.jobs, count, limit.name)
        for task, count in zip(tasks, counts, strict=True)
        for queue, limit in [limits[task]]
    }


def _stored(task: str, queue: str, limit: Limit) -> str:
    """The limit as scripts know it."""
    return limit_of(task, queue) if limit.name is None else shared_limit(limit)


def _stats(parts: Sequence[StatsRow], *, running: int, consumers: int) -> QueueStats:
    """The work of a queue in all its partitions."""
    oldest_ms = max(part.oldest_ms for part in parts)
    return QueueStats(
        ready=sum(part.ready for part in parts),
        delayed=sum(part.delayed for part in parts),
        held_back=sum(part.held_back for part in parts),
        waiting=sum(part.waiting for part in parts),
        running=running,
        oldest_age=oldest_ms / 1000 if oldest_ms >= 0 else None,
        is_paused=all(part.is_paused for part in parts),
        consumers=consumers,
        finished=sum(part.finished for part in parts),
    )


def _is_unserved(queue: QueueStats) -> bool:
    return queue.consumers == 0 and queue.ready + queue.delayed + queue.waiting > 0
