"""Lists of jobs, a page at a time: by their state, their queue and their task.

A job is where its state says: in the list of its queue, among the delayed ones of its queue, with its worker, among
those that wait for others, or among the dead.  Each of these is listed in portions: ids first, and then the stored
facts of them, as far as they are still there.
"""

import base64
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Self

import msgspec

from inconcert._core.session import SessionRef
from inconcert._redis.protocol.replies import rows
from inconcert._rules.limits import whole
from inconcert.tasks.operating.job_info import DescribedRow, JobInfo, job_info, state_and_name
from inconcert.tasks.records.limits import HELD_BACK_MS
from inconcert.tasks.records.queue_names import queue_names
from inconcert.tasks.records.status import JobStatus
from inconcert.tasks.records.store import (
    CLAIMED_IDS,
    DEAD_IDS,
    DELAYED_IDS,
    DESCRIBE_JOBS,
    QUEUED_IDS,
    STATS,
    WAITING_IDS,
    JobKeys,
    JobKeyspace,
    StatsRow,
)
from inconcert.tasks.running.workers import Workers

# In the order of a job's life: one that goes on while it is listed is shown once more, and not left out.
_LISTED = (JobStatus.WAITING, JobStatus.DELAYED, JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.FAILED)

_BY_QUEUE = (JobStatus.DELAYED, JobStatus.QUEUED)  # what each queue has for itself
_NAMING = (JobStatus.DELAYED, JobStatus.RUNNING)  # whose states name the queue, or the worker

_MOST_JOBS = 1_000  # in a page
_MOST_PORTIONS = 20  # read for one page: 5,000 jobs, or about 20 MiB
_MOST_AT_ONCE = 250  # jobs in one portion
_MOST_QUEUES = 100  # of which one script says how much they have


@dataclass(frozen=True, slots=True)
class JobPage:
    """A part of a list of jobs.

    Attributes:
        jobs: These jobs; may be fewer than asked for, or none, although others follow.
        after: Give it as `after` for the next page; None if this was the last.
    """

    jobs: Sequence[JobInfo]
    after: str | None


class _Cursor(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """After which job a page ended."""

    status: JobStatus
    partition: int = 0
    source: str = ""  # the queue, or the worker; empty where there is only one
    position: tuple[str, ...] = ()  # of the job there, as the source notes it

    def written(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def read(cls, text: str) -> Self:
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=cls)
        except (ValueError, TypeError, msgspec.MsgspecError):
            raise ValueError(f"after is {text!r}; give the `after` of a page of this list") from None


class _Found(NamedTuple):
    """An id in a source."""

    id: str
    about: str  # its time in server ms, or its claim
    position: tuple[str, ...]  # after it


class _Pair(NamedTuple):
    """An id and the facts about it, as the scripts return them."""

    id: bytes
    about: bytes


class JobWalk:
    """The jobs of some states, one portion after the other."""

    def __init__(
        self,
        ref: SessionRef,
        keyspace: JobKeyspace,
        statuses: Sequence[JobStatus],
        *,
        queue: str | None,
        task: str | None,
        at_once: int = _MOST_AT_ONCE,
    ) -> None:
        self._ref = ref
        self._keyspace = keyspace
        self._workers = Workers(ref, keyspace)
        self._statuses = statuses
        self._queue = queue
        self._task = task
        self._head = b"" if task is None else b'{"name":' + msgspec.json.encode(task)
        self._at_once = min(at_once, _MOST_AT_ONCE)

    async def portions(self, cursor: _Cursor | None = None) -> AsyncGenerator[list[tuple[JobInfo | None, _Cursor]]]:
        """The jobs after this one, each with the cursor after it; None for one that is gone, or not meant."""
        for status in self._statuses[0 if cursor is None else self._statuses.index(cursor.status) :]:
            first = 0 if cursor is None or cursor.status is not status else cursor.partition
            for keys in self._keyspace.partitions[first:]:
                start = cursor if cursor and (cursor.status, cursor.partition) == (status, keys.number) else None
                for source in await self._sources(status, keys):
                    if start is not None and source < start.source:
                        continue
                    position = start.position if start is not None and source == start.source else ()
                    async with aclosing(self._portions_of(_Cursor(status, keys.number, source, position))) as portions:
                        async for portion in portions:
                            yield portion

    # Private.

    async def _portions_of(self, cursor: _Cursor) -> AsyncGenerator[list[tuple[JobInfo | None, _Cursor]]]:
        """The jobs of one source after this one."""
        keys, is_last = self._keyspace.partitions[cursor.partition], False
        while not is_last:
            found, is_last = await self._found(cursor, keys)
            while found:
                command = DESCRIBE_JOBS(keys, head=self._head, ids=[one.id for one in found])
                looked, *flat = await self._ref.session.run(command)
                described = {row.id.decode(): row for row in rows(flat, DescribedRow)}
                portion: list[tuple[JobInfo | None, _Cursor]] = []
                for one in found[:looked]:
                    cursor = msgspec.structs.replace(cursor, position=one.position)
                    row = described.get(one.id)
                    portion.append((None if row is None else self._record(cursor, one, row), cursor))
                yield portion
                found = found[looked:]

    async def _sources(self, status: JobStatus, keys: JobKeys) -> Sequence[str]:
        """The queues or workers that have jobs of this state in a partition, in the order in which they are listed."""
        if status is JobStatus.RUNNING:
            return sorted(worker.decode() for worker in await self._workers.holding(keys))
        if status not in _BY_QUEUE:
            return [""]
        if self._queue is not None:
            return [self._queue]
        names, is_filled = await queue_names(self._ref.session, keys), dict[str, int]()
        for start in range(0, len(names), _MOST_QUEUES):
            some = names[start : start + _MOST_QUEUES]
            _, _, *flat = await self._ref.session.run(STATS(keys, queues=keys.lists(some), names=some))
            for name, row in zip(some, rows(flat, StatsRow), strict=True):
                # Those that wait for their turn count as ready, and are delayed.
                is_filled[name] = row.ready if status is JobStatus.QUEUED else row.ready + row.delayed
        return [name for name in names if is_filled[name]]

    async def _found(self, cursor: _Cursor, keys: JobKeys) -> tuple[list[_Found], bool]:
        """Ids after this one, and whether these are the last."""
        position, limit = cursor.position, self._at_once
        run = self._ref.session.run
        if cursor.status is JobStatus.WAITING:
            return await self._waiting(keys, position)
        if cursor.status is JobStatus.QUEUED:
            number, last = position or ("0", "")
            first, *ids = await run(QUEUED_IDS(keys.queue(cursor.source), position=number, last=last, limit=limit))
            found = [_Found(id_.decode(), "", (str(first + n), id_.decode())) for n, id_ in enumerate(ids)]
        elif cursor.status is JobStatus.RUNNING:
            claimed = keys.claimed(cursor.source)
            flat = await run(CLAIMED_IDS(claimed=claimed, last=position[0] if position else "0", limit=limit))
            pairs = [(id_.decode(), claim.decode()) for id_, claim in rows(flat, _Pair)]
            found = [_Found(id_, claim, (claim.partition(" ")[0],)) for id_, claim in pairs]
        else:
            at_ms, last = position or ("", "")
            is_dead = cursor.status is JobStatus.FAILED
            ask = partial(DEAD_IDS, keys) if is_dead else partial(DELAYED_IDS, keys.queue(cursor.source))
            flat = await run(ask(at_ms=at_ms, last=last, limit=limit))
            pairs = [(id_.decode(), at.decode()) for id_, at in rows(flat, _Pair)]
            found = [_Found(id_, at, (at, id_)) for id_, at in pairs]
        return found, len(found) < limit

    async def _waiting(self, keys: JobKeys, position: tuple[str, ...]) -> tuple[list[_Found], bool]:
        """Waiting jobs. A scan answers with as many as it likes, so a position has those that are left over, too."""
        after, *ids = position or ("0",)
        if position == ("0",):
            return [], True
        if not ids:
            reply = await self._ref.session.run(WAITING_IDS(keys, cursor=after, count=self._at_once))
            after, *ids = (part.decode() for part in reply)
        found = [_Found(id_, "", (after, *ids[n + 1 :])) for n, id_ in enumerate(ids[:_MOST_AT_ONCE])]
        return found, after == "0" and len(found) == len(ids)

    def _record(self, cursor: _Cursor, found: _Found, row: DescribedRow) -> JobInfo | None:
        """The job; None if it is elsewhere by now, or not meant."""
        status, where = state_and_name(row.state.decode())
        if status is not cursor.status or (status in _NAMING and where != cursor.source):
            return None
        job = job_info(self._ref.session.key_ring, row)
        if status is JobStatus.QUEUED:
            job = replace(job, queue=cursor.source)
        elif status is JobStatus.DELAYED:
            due_ms = float(found.about)  # without end for one that a limit holds back
            job = replace(job, due_at=due_ms / 1000 if due_ms < HELD_BACK_MS else None)
        elif status is JobStatus.RUNNING:
            _, attempt, since_ms, queue = found.about.split(" ", 3)
            job = replace(job, queue=queue, attempts=int(attempt), claimed_at=int(since_ms) / 1000)
        is_meant = self._queue in (None, job.queue) and self._task in (None, job.task)
        return job if is_meant else None


async def read_page(
    ref: SessionRef,
    keyspace: JobKeyspace,
    *,
    state: str | None,
    queue: str | None,
    task: str | None,
    limit: int,
    after: str | None,
) -> JobPage:
    """A page of jobs; see `Tasks.jobs`."""
    whole("limit", limit, most=_MOST_JOBS)
    statuses = listed(state)
    cursor = None if after is None else _Cursor.read(after)
    if cursor and (cursor.status not in statuses or not 0 <= cursor.partition < len(keyspace.partitions)):
        raise ValueError(f"after is {after!r}, of another list; give the `after` of a page of this one")
    at_once = limit if task is None and (queue is None or state in _BY_QUEUE) else _MOST_AT_ONCE
    walk = JobWalk(ref, keyspace, statuses, queue=queue, task=task, at_once=at_once)
    jobs: list[JobInfo] = []
    read = 0
    async with aclosing(walk.portions(cursor)) as portions:
        async for portion in portions:
            for job, end in portion:
                cursor = end
                if job is not None:
                    jobs.append(job)
                if len(jobs) == limit:
                    return JobPage(jobs, cursor.written())
            read += 1
            if cursor is not None and read == _MOST_PORTIONS:
                return JobPage(jobs, cursor.written())
    return JobPage(jobs, None)


def listed(state: str | None) -> Sequence[JobStatus]:
    """The states that are meant, in the order of a job's life.

    Raises:
        ValueError: It is not a state, or jobs of this state cannot be listed.
    """
    if state is None:
        return _LISTED
    if state not in _LISTED:
        raise ValueError(
            f"state is {state!r}; give one of {', '.join(map(repr, map(str, _LISTED)))}: of a job that succeeded or "
            "was cancelled only its result is kept, under its id"
        )
    return (JobStatus(state),)
