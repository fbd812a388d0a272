"""Enqueueing jobs.

The first is sent at once if nothing is under way.  All others that are enqueued in one turn of the event loop go
together, by one script for each queue in each partition, and one for each that runs after others, or replaces another.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice, zip_longest
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from inconcert._core.session import Session, SessionRef
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.wire.call import AwaitedCall, Call, Callers
from inconcert.errors import InconcertError
from inconcert.tasks.following.job import Job, JobLink
from inconcert.tasks.following.watch import Watches
from inconcert.tasks.records.dependents import pass_on
from inconcert.tasks.records.store import JobKeys, JobKeyspace
from inconcert.tasks.sending.debounced import ReplacingJob, replacing_job
from inconcert.tasks.sending.draft import Draft, NewJob, enqueue, enqueue_own, enqueue_plain
from inconcert.tasks.sending.options import Options
from inconcert.tasks.sending.traced import Traced

_log = logging.getLogger("inconcert.tasks")

R = TypeVar("R")
T = TypeVar("T", Draft[Any], NewJob)
P = TypeVar("P")

EnqueueMiddleware = Callable[[str, str], Mapping[str, str]]
"""Given the name of a task and of a queue, returns headers for a job that is about to be enqueued."""

_MOST = 500  # jobs in one script
_MOST_BYTES = 2**20  # in one script, so that none holds up the server for long
_MOST_AT_ONCE = 10 * _MOST  # jobs of one call that are under way; the rest waits for them
_MOST_BYTES_AT_ONCE = 8 * _MOST_BYTES

_ID, _KEYS, _TEXT = attrgetter("id"), attrgetter("keys"), attrgetter("text")
_PATTERN, _ALIKE = attrgetter("pattern"), attrgetter("pattern.alike")
_ANSWER, _JOBS, _IF_NEW = itemgetter(0), itemgetter(1), itemgetter(2)  # of a _Part
_is_done, _new_job = asyncio.Future[Any].done, NewJob.of


class EnqueueBatcher:
    """Sends new jobs to the server, in batches.

    Args:
        watches: The waits for jobs in this process.

    Attributes:
        link: How handles of jobs reach these.
        middlewares: What adds headers to the jobs of this process.
    """

    def __init__(self, ref: SessionRef, jobs: JobKeyspace, watches: Watches) -> None:
        self._ref = ref
        self._jobs = jobs
        self.link = JobLink(ref, jobs, watches)
        self.middlewares: list[EnqueueMiddleware] = []
        self._waiting: dict[tuple[Session, JobKeys, str], list[_Part]] = {}

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

    def add_one(self, draft: Draft[R]) -> Awaitable[Job[R]]:
        """Enqueue this one; its job is there when the server has it. See `Coordinator.enqueue`."""
        session, pattern = self._ref.session, draft.pattern
        # The first of the jobs that wait for the end of this turn has seen that there is room.
        if session.observers or not pattern.is_plain or (not self._waiting and session.channel.is_full):
            return self._add_only(draft)
        new = _new_job(draft, session, self._jobs)
        answer: _Answer = asyncio.Future()  # if it is cancelled, what was not sent stays here
        job: Job[R] = Job(self.link, new.id, pattern.kind)
        self._send_soon(session, new.keys, pattern.kind.queue, (answer, (new,), job))
        return answer

    async def _add_only(self, draft: Draft[R]) -> Job[R]:
        [job] = await self.add([draft])
        return job

    async def add(self, drafts: Sequence[Draft[R]]) -> list[Job[R]]:
        """Enqueue these, and return their jobs in the same order; see `Coordinator.enqueue_many`."""
        session = self._ref.session
        if not drafts:
            return []
        if not session.observers:
            return await self._add(session, drafts, "")
        with Traced(session.observers, drafts) as traced:
            traced.jobs = jobs = await self._add(session, drafts, traced.trace)
        return jobs

    async def _add(self, session: Session, drafts: Sequence[Draft[R]], trace: str) -> list[Job[R]]:
        jobs: list[Job[R]] = []
        for portion in _portions(drafts, _MOST_AT_ONCE, _MOST_BYTES_AT_ONCE):
            if session.channel.is_full:
                for keys in self._jobs.partitions:
                    await session.channel.has_room(keys.bodies)
            jobs += await self._add_at_once(session, portion, trace)
        return jobs

    async def _add_at_once(self, session: Session, drafts: Sequence[Draft[R]], trace: str) -> list[Job[R]]:
        runs = _runs(drafts, session, self._jobs, trace)
        parts: list[_Part] = []
        for options, are_plain, jobs in runs:
            for keys, together in _by_partition(jobs).items():
                for few in _portions(together, 1 if options.go_alone else _MOST, _MOST_BYTES):
                    part: _Part = asyncio.Future(), few, () if are_plain else None
                    parts.append(part)
                    self._send_soon(session, keys, options.queue, part)
        known = await _known(parts)  # as above
        followed = {job.keys for options, _, jobs in runs if options.after for job in jobs if job.follows_elsewhere}
        if followed:
            await self._ask_parents(session, followed)
        ids = map(_ID, chain.from_iterable(jobs for *_, jobs in runs))
        return [
            Job(self.link, known[id_], pattern.kind, created=False)
            if id_ in known
            else Job(self.link, id_, pattern.kind)
            for id_, pattern in zip(ids, map(_PATTERN, drafts), strict=True)
        ]

    def _send_soon(self, session: Session, keys: JobKeys, queue: str, part: "_Part") -> None:
        """Send these now if nothing is under way, otherwise at the end of this turn with all that come until then."""
        waiting = self._waiting.get(destination := (session, keys, queue))
        if waiting is not None:
            waiting.append(part)
        elif session.channel.is_idle:
            self._send(*destination, [part])
        else:
            if next(iter(self._waiting), destination)[0] is not session:
                self._waiting.clear()  # their turn will not end: its loop was closed, or runs in the parent process
            self._waiting[destination] = [part]
            session.loop.call_soon(self._end_turn, destination)

    async def _ask_parents(self, session: Session, partitions: Iterable[JobKeys]) -> None:
        """Let parents in other partitions know of the jobs that were added to these."""
        try:
            await pass_on(session, self._jobs, partitions)
        except InconcertError as error:  # the next heartbeat of a worker finds it again
            _log.warning("jobs that wait for jobs in other partitions cannot ask for these yet: %s", error)

    def _end_turn(self, destination: tuple[Session, JobKeys, str]) -> None:
        self._send(*destination, self._waiting.pop(destination))

    def _send(self, session: Session, keys: JobKeys, queue: str, parts: "list[_Part]") -> None:
        try:
            for number, batch in enumerate(_batches([part for part in parts if not part[0].done()])):
                if number:
                    session.channel.flush()  # so that the server works on the one before while we prepare this
                _submit(_call_of(session, keys, queue, batch), session)
        except Exception as error:  # noqa: BLE001 - any: their callers would wait forever
            for answer, *_ in parts:  # some of these may have been sent
                if not answer.done():
                    answer.set_exception(error)
                    answer.exception()


def _runs(
    drafts: Sequence[Draft[Any]], session: Session, keyspace: JobKeyspace, trace: str
) -> list[tuple[Options, bool, list[NewJob]]]:
    """The jobs of these in their order, those with the same options together; whether they are plain.

    Raises:
        ValueError: Two have one id.
    """
    runs: list[tuple[Options, bool, list[NewJob]]] = []
    for (options, are_plain), alike in groupby(drafts, _ALIKE):
        new = NewJob.of if options.id is None else NewJob.named
        runs.append((options, are_plain, [new(draft, session, keyspace, trace=trace) for draft in alike]))
    ids = [job.id for options, _, jobs in runs if options.id is not None for job in jobs]
    if len(set(ids)) < len(ids):
        twice = next(id_ for id_ in ids if ids.count(id_) > 1)
        raise ValueError(f"two of these jobs have id={twice!r}; give each an id of its own")
    return runs


def _submit(call: Call, session: Session) -> None:
    try:
        session.channel.submit(call)
    except InconcertError as error:
        call.fail(error)


def _by_partition(jobs: Iterable[NewJob]) -> dict[JobKeys, list[NewJob]]:
    found: dict[JobKeys, list[NewJob]] = {}
    for keys, some in groupby(jobs, _KEYS):
        found.setdefault(keys, []).extend(some)
    return found


def _portions(all_of_them: Sequence[T], most: int, most_bytes: int) -> Iterator[Sequence[T]]:
    """In their order, in parts of so many and so many bytes at most, and of at least one."""
    for first in range(0, len(all_of_them), most):
        some = all_of_them[first : first + most]
        if _fit(some, most, most_bytes):
            yield some
        else:
            yield from _cut(some, lambda each: (1, len(each.text)), most, most_bytes)


def _batches(parts: "Sequence[_Part]") -> "Iterable[Sequence[_Part]]":
    """In their order, as many together as may go in one script."""
    if len(parts) < 2:
        return [parts] if parts else []
    if None not in map(_IF_NEW, parts) and _fit([*chain.from_iterable(map(_JOBS, parts))], _MOST, _MOST_BYTES):
        return [parts]
    return _cut(parts, _weight, _MOST, _MOST_BYTES)


def _fit(jobs: Sequence[Draft[Any] | NewJob], most: int, most_bytes: int) -> bool:
    return len(jobs) == 1 or (len(jobs) <= most and sum(map(len, map(_TEXT, jobs))) <= most_bytes)


def _weight(part: "_Part") -> tuple[int, int]:
    """How many jobs it has, and of how many bytes; as many as there may be if nothing may go with it."""
    jobs = part[1]
    return _MOST if jobs[0].draft.options.go_alone else len(jobs), sum(map(len, map(_TEXT, jobs)))


def _cut(
    all_of_them: Sequence[P], weight: Callable[[P], tuple[int, int]], most: int, most_bytes: int
) -> Iterator[Sequence[P]]:
    first = count = size = 0
    for last, each in enumerate(all_of_them):
        more, bytes_ = weight(each)
        if last > first and (count + more > most or size + bytes_ > most_bytes):
            yield all_of_them[first:last]
            first, count, size = last, 0, 0
        count += more
        size += bytes_
    yield all_of_them[first:]


_Answer = asyncio.Future[Any]
_Part = tuple[_Answer, Sequence[NewJob], object]
"""Jobs of one caller that may go in one script; those that go alone are parts of one.

First what the caller waits for: the last of these if all are new, as plain jobs are; if that is None, for each job the
id of the live job that has its name, empty for one that is new.
"""


async def _known(parts: Sequence[_Part]) -> dict[str, str]:
    """Wait until these are enqueued; for each job that was not new its id, and that of the live job with its name."""
    waits = list(map(_ANSWER, parts))
    try:
        replies = [await waits[0]] if len(waits) == 1 else await asyncio.gather(*waits)
    except BaseException:
        for answer in waits:  # what was not sent stays here
            answer.cancel()
        raise
    pairs = chain.from_iterable(map(zip, map(_JOBS, parts), replies))
    return {job.id: answer.decode() for job, answer in pairs if answer}


def _call_of(session: Session, keys: JobKeys, queue: str, batch: Sequence[_Part]) -> Call:
    """The call that enqueues these."""
    answer, jobs, if_new = batch[0]
    replacing = replacing_job(jobs[0], session) if if_new is None else None
    return _Adding(session, keys, queue, batch) if replacing is None else _Replacing(session, answer, replacing)


class _Adding(AwaitedCall):
    """The call that enqueues jobs to one queue."""

    __slots__ = ("_are_plain", "_batch", "_jobs", "_observers")

    def __init__(self, session: Session, keys: JobKeys, queue: str, batch: Sequence[_Part]) -> None:
        self._jobs = jobs = list(chain.from_iterable(map(_JOBS, batch)))
        self._are_plain = None not in map(_IF_NEW, batch)
        if self._are_plain:
            command = enqueue_plain(keys, queue, jobs, session)
        elif jobs[0].draft.options.id is not None:
            command = enqueue_own(keys, queue, jobs[0], session.new_address())
        else:
            command = enqueue(keys, queue, jobs)
        super().__init__(command)
        self._batch = batch
        self._observers = session.observers

    @property
    def is_wanted(self) -> bool:
        return not all(map(_is_done, self.callers()))

    def answered(self, reply: Reply) -> None:
        if self._are_plain:
            for answer, _, if_new in self._batch:
                if not answer.done():
                    answer.set_result(if_new)
        else:
            each = iter(reply)
            for answer, new, if_new in self._batch:
                known = [*islice(each, len(new))]
                if not answer.done():
                    answer.set_result(known if if_new is None else if_new)
        if self._observers:
            for job, answer in zip_longest(self._jobs, () if self._are_plain else reply):
                if not answer:
                    self._observers.job_enqueued(job.draft.name, job.draft.options.queue)

    def callers(self) -> Callers:
        return map(_ANSWER, self._batch)


class _Replacing(Call):
    """The call that enqueues a job that may replace another one; until it is known how, the next call goes on."""

    __slots__ = ("_answer", "_replacing", "_session")

    def __init__(self, session: Session, answer: _Answer, replacing: ReplacingJob) -> None:
        super().__init__(replacing.enqueue())
        self._session = session
        self._answer = answer
        self._replacing = replacing

    @property
    def is_wanted(self) -> bool:
        return not self._answer.done()

    def answered(self, reply: Reply) -> None:
        job, known = self._replacing.job, self._replacing.added(reply)
        if known is not None:
            if not self._answer.done():
                self._answer.set_result([known.encode()])
            if not known:
                self._session.observers.job_enqueued(job.draft.name, job.draft.options.queue)
        elif not self._answer.done():
            _submit(_Replacing(self._session, self._answer, self._replacing), self._session)

    def callers(self) -> Callers:
        return (self._answer,)
