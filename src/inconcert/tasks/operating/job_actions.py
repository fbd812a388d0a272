"""Acts on many jobs at once: a portion is listed, and then changed by one script for each of its queues.

Whatever stops it, a job is done with or untouched, and a second call goes on with those that are left.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from itertools import groupby
from operator import attrgetter
from typing import TypeAlias

from inconcert._claims.dead_letters import DeadLetters, Replayed
from inconcert._claims.keys import QueueKeys
from inconcert._core.session import SessionRef
from inconcert._rules.limits import whole
from inconcert.tasks.following.cancellation import HAD_ENDED, cancel
from inconcert.tasks.operating.job_info import JobInfo
from inconcert.tasks.operating.job_pages import JobWalk, listed
from inconcert.tasks.records.status import JobStatus
from inconcert.tasks.records.store import RESCHEDULE, JobKeys, JobKeyspace

_LIVE = (JobStatus.WAITING, JobStatus.DELAYED, JobStatus.QUEUED, JobStatus.RUNNING)
_BEFORE_RUNNING = _LIVE[:-1]

Act: TypeAlias = Callable[[JobKeys, QueueKeys, Sequence[JobInfo]], Awaitable[int]]
"""Changes these jobs, which are of one queue; returns how many it has changed."""


class JobActions:
    """Acts on many jobs at once."""

    def __init__(self, ref: SessionRef, keyspace: JobKeyspace, dead_letters: Sequence[DeadLetters]) -> None:
        self._ref = ref
        self._keyspace = keyspace
        self._dead_letters = dead_letters

    async def cancel(self, *, state: str | None, queue: str | None, task: str | None, limit: int | None) -> int:
        """See `Tasks.cancel_all`."""
        statuses = _LIVE if state is None else listed(state)
        if JobStatus.FAILED in statuses:
            raise ValueError("state is 'failed'; a dead-lettered job has ended, so purge_all() drops it")
        return await self._do(self._cancel, self._found(statuses, queue, task), limit)

    async def drain(self, queue: str) -> int:
        """See `Tasks.drain`."""
        return await self._do(self._cancel, self._found(_BEFORE_RUNNING, queue, None), None)

    async def promote(self, *, queue: str | None, task: str | None, limit: int | None) -> int:
        """See `Tasks.promote_all`."""
        return await self._do(self._promote, self._found((JobStatus.DELAYED,), queue, task), limit)

    async def replay(self, *, queue: str | None, task: str | None, reason: str | None, limit: int | None) -> int:
        """See `Tasks.replay_all`."""
        return await self._do(self._replay, self._found((JobStatus.FAILED,), queue, task, reason), limit)

    async def purge(
        self, *, queue: str | None, task: str | None, reason: str | None, older_than: float, keep: Sequence[int]
    ) -> int:
        """See `Tasks.purge_all`; `keep` is for each partition."""

        async def purge(keys: JobKeys, queue: QueueKeys, records: Sequence[JobInfo]) -> int:
            del queue
            ids, kept = [record.id for record in records], keep[keys.number]
            return await self._dead_letters[keys.number].purge(ids, older_than=older_than, keep=kept)

        return await self._do(purge, self._found((JobStatus.FAILED,), queue, task, reason), None)

    # Private.

    async def _do(self, act: Act, portions: AsyncGenerator[list[JobInfo]], limit: int | None) -> int:
        """Change at most so many of these; returns how many were changed."""
        if limit is not None:
            whole("limit", limit)
        done = 0
        async with aclosing(portions):
            async for portion in portions:
                for queue, records in groupby(sorted(portion, key=_queue_of), key=_queue_of):
                    some = list(records)[: None if limit is None else limit - done]
                    keys = self._keyspace.of_id(some[0].id)  # the same of all in a portion
                    done += await act(keys, keys.queue(queue), some)
                    if done == limit:
                        return done
        return done

    async def _found(
        self, statuses: Sequence[JobStatus], queue: str | None, task: str | None, reason: str | None = None
    ) -> AsyncGenerator[list[JobInfo]]:
        """The jobs that are meant, in portions of one partition."""
        walk = JobWalk(self._ref, self._keyspace, statuses, queue=queue, task=task)
        async with aclosing(walk.portions()) as portions:
            async for portion in portions:
                records = [record for record, _ in portion if record is not None]
                if reason is not None:
                    records = [record for record in records if reason in record.error]
                if records:
                    yield records

    async def _cancel(self, keys: JobKeys, queue: QueueKeys, records: Sequence[JobInfo]) -> int:
        ids = [record.id for record in records]
        answers = await cancel(self._ref.session, self._keyspace, keys, queue, ids)
        return sum(answer != HAD_ENDED for answer in answers)

    async def _promote(self, keys: JobKeys, queue: QueueKeys, records: Sequence[JobInfo]) -> int:
        ids, session = [record.id for record in records], self._ref.session
        request = session.new_address()
        command = RESCHEDULE(keys, queue, delay_ms=0, name=queue.name, request=request, ids=ids)
        promoted: int = await session.run(command)
        return promoted

    async def _replay(self, keys: JobKeys, queue: QueueKeys, records: Sequence[JobInfo]) -> int:
        letters = [Replayed(record.id, unique=record.unique) for record in records]
        return await self._dead_letters[keys.number].replay(letters, queue)


_queue_of = attrgetter("queue")
