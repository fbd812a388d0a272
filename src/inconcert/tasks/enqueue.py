"""Enqueueing jobs.

All that are enqueued in one turn of the event loop go together, by one script for each queue in each partition, and one
for each job that runs after others, or after a silence.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from inconcert._core.session import Session, SessionRef
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.wire.call import Call, Callers
from inconcert.errors import InconcertError
from inconcert.tasks.debounced import DebouncedJob
from inconcert.tasks.dependents import pass_on
from inconcert.tasks.draft import Draft, NewJob, enqueue
from inconcert.tasks.job import Job
from inconcert.tasks.options import Options
from inconcert.tasks.store import JobKeys, JobKeyspace
from inconcert.tasks.traced import Traced
from inconcert.tasks.watch import Watches

__all__ = ["EnqueueBatcher", "EnqueueMiddleware"]

_log = logging.getLogger("inconcert.tasks")

R = TypeVar("R")

EnqueueMiddleware = Callable[[str, str], Mapping[str, str]]
"""Given the name of a task and of a queue, returns headers for a job that is about to be enqueued."""

_MOST = 500  # jobs in one script
_MOST_BYTES = 2**20  # in one script, so that none holds up the server for long
_MOST_AT_ONCE = 10 * _MOST  # jobs of one call that are under way; the rest waits for them
_MOST_BYTES_AT_ONCE = 8 * _MOST_BYTES


class EnqueueBatcher:
    """Sends new jobs to the server, in batches.

    Args:
        ref: Refers to the open session.
        jobs: The keys of all jobs.
        watches: The waits for jobs in this process.

    Attributes:
        middlewares: What adds headers to the jobs of this process.
    """

    def __init__(self, ref: SessionRef, jobs: JobKeyspace, watches: Watches) -> None:
        self._ref = ref
        self._jobs = jobs
        self._watches = watches
        self.middlewares: list[EnqueueMiddleware] = []
        self._waiting: dict[tuple[Session, JobKeys, str], list[_Entry]] = {}

    def with_headers(self, task: str, options: Options) -> Options:
        """The options of a job of this task, with the headers that the middlewares add; its own come first."""
        if not self.middlewares:
            return options
        headers: dict[str, str] = {}
        for middleware in self.middlewares:
            added = middleware(task, options.queue)
            if not isinstance(added, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
                raise TypeError(f"an enqueue middleware returned {added!r}; return a dictionary of strings, or {{}}")
            headers.update(added)
        return options.changed(headers=headers | dict(options.headers))

    async def add(self, drafts: Sequence[Draft[R]]) -> list[Job[R]]:
        """Enqueue these, and return their jobs in the same order; see `Coordinator.enqueue_many`."""
        session = self._ref.session
        jobs: list[Job[R]] = []
        if not drafts:
            return jobs
        with Traced(session.observers, drafts) as traced:
            for portion in _portions(drafts):
                if session.channel.is_full:
                    for keys in self._jobs.partitions:
                        await session.channel.has_room(keys.bodies)
                jobs += await self._add(session, portion, traced.trace)
            traced.jobs = jobs
        return jobs

    async def _add(self, session: Session, drafts: Sequence[Draft[R]], trace: str) -> list[Job[R]]:
        entries: list[_Entry] = []
        for draft in drafts:
            job = NewJob.of(draft, session, self._jobs, trace=trace)
            entry = job, session.loop.create_future()
            entries.append(entry)
            place = session, job.keys, draft.options.queue
            waiting = self._waiting.get(place)
            if waiting is None:
                waiting = self._waiting[place] = []
                session.loop.call_soon(self._send, *place)
            waiting.append(entry)
        try:
            jobs = [
                Job(
                    self._ref,
                    self._jobs,
                    self._watches,
                    await other or job.id,
                    is_new=not other.result(),
                    queue=job.draft.options.queue,
                    returns=job.draft.returns,
                    yields=job.draft.yields,
                )
                for job, other in entries
            ]
        finally:
            for _, other in entries:
                other.cancel()  # after a cancellation: those that are not sent stay here, all of them
        if followed := {job.keys for job, _ in entries if job.draft.options.after and job.follows_elsewhere}:
            await self._ask_parents(session, followed)
        return jobs

    async def _ask_parents(self, session: Session, partitions: Iterable[JobKeys]) -> None:
        """Let parents in other partitions know of the jobs that were added to these."""
        try:
            await pass_on(session, self._jobs, partitions)
        except InconcertError as error:  # the next heartbeat of a worker finds it again
            _log.warning("jobs that wait for jobs in other partitions cannot ask for these yet: %s", error)

    def _send(self, session: Session, keys: JobKeys, queue: str) -> None:
        batch: list[_Entry] = []
        size = 0
        entries = self._waiting.pop((session, keys, queue))
        try:
            for entry in entries:
                job, other = entry
                if other.done():  # its caller has gone
                    continue
                if job.draft.options.after:
                    _submit(_Adding(session, keys, queue, [entry]), session)
                    continue
                if job.draft.options.debounce is not None:
                    _submit(_Debouncing(session, entry, DebouncedJob(job, session.key_ring)), session)
                    continue
                if batch and (len(batch) == _MOST or size + len(job.text) > _MOST_BYTES):
                    _submit(_Adding(session, keys, queue, batch), session)
                    session.channel.flush()  # so that the server works on these while we prepare the next
                    batch, size = [], 0
                batch.append(entry)
                size += len(job.text)
            if batch:
                _submit(_Adding(session, keys, queue, batch), session)
        except Exception as error:  # noqa: BLE001 - any: their callers would wait forever
            for _, other in entries:  # some of them may have been sent
                if not other.done():
                    other.set_exception(error)
                    other.exception()


def _submit(call: Call, session: Session) -> None:
    try:
        session.channel.submit(call)
    except InconcertError as error:
        call.fail(error)


def _portions(drafts: Sequence[Draft[R]]) -> Iterator[Sequence[Draft[R]]]:
    """In their order, in parts that may be under way at once; of at least one."""
    first = size = 0
    for last, draft in enumerate(drafts):
        if last > first and (last - first == _MOST_AT_ONCE or size + len(draft.text) > _MOST_BYTES_AT_ONCE):
            yield drafts[first:last]
            first, size = last, 0
        size += len(draft.text)
    yield drafts[first:]


# One job to be enqueued, and the live job that has its unique name already; '' if it was added.
_Entry = tuple[NewJob, asyncio.Future[str]]


class _Adding(Call):
    """The call that enqueues jobs to one queue."""

    __slots__ = ("_batch", "_observers")

    def __init__(self, session: Session, keys: JobKeys, queue: str, batch: list[_Entry]) -> None:
        super().__init__(enqueue(keys, queue, [job for job, _ in batch]))
        self._batch = batch
        self._observers = session.observers

    @property
    def is_wanted(self) -> bool:
        return any(not other.done() for _, other in self._batch)

    def answered(self, reply: Reply) -> None:
        for (_, other), answer in zip(self._batch, reply, strict=True):
            if not other.done():
                other.set_result(answer.decode())
        for observer in self._observers:
            for (job, _), answer in zip(self._batch, reply, strict=True):
                if not answer:
                    observer.job_enqueued(job.draft.name, job.draft.options.queue)
        super().answered(reply)

    def callers(self) -> Callers:
        return (self, *(other for _, other in self._batch))


class _Debouncing(Call):
    """The call that enqueues a job after a silence, or replaces the one that waits for it."""

    __slots__ = ("_debounced", "_entry", "_session")

    def __init__(self, session: Session, entry: _Entry, debounced: DebouncedJob) -> None:
        super().__init__(debounced.enqueue())
        self._session = session
        self._entry = entry
        self._debounced = debounced

    @property
    def is_wanted(self) -> bool:
        return not self._entry[1].done()

    def answered(self, reply: Reply) -> None:
        job, other = self._entry
        known = self._debounced.added(reply)
        if known is not None:
            if not other.done():
                other.set_result(known)
            for observer in () if known else self._session.observers:
                observer.job_enqueued(job.draft.name, job.draft.options.queue)
        elif not other.done():
            _submit(_Debouncing(self._session, self._entry, self._debounced), self._session)
        super().answered(reply)

    def callers(self) -> Callers:
        return (self, self._entry[1])
