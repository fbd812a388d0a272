"""Enqueueing jobs.

The first is sent at once if nothing is under way.  All others that are enqueued in one turn of the event loop go
together, by one script for each queue in each partition, and one for each that runs after others, or replaces another.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

EnqueueMiddleware = Callable[[str, str], Mapping[str, str]]
"""Given the name of a task and of a queue, returns headers for a job that is about to be enqueued."""

_MOST = 500  # jobs in one script
_MOST_BYTES = 2**20  # in one script, so that none holds up the server for long
_MOST_AT_ONCE = 10 * _MOST  # jobs of one call that are under way; the rest waits for them
_MOST_BYTES_AT_ONCE = 8 * _MOST_BYTES

_ID, _TEXT, _PATTERN = itemgetter(0), attrgetter("text"), attrgetter("pattern")
_OWN_ID = attrgetter("pattern.options.id")
_PARENTS, _IS_PLAIN = attrgetter("pattern.options.after"), attrgetter("draft.pattern.is_plain")
_PLACE = attrgetter("keys", "draft.pattern.options")  # jobs of which it is equal may go in one script
_JOBS = itemgetter(1)
_NONE: Mapping[str, str] = {}


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

    async def add_one(self, draft: Draft[R]) -> Job[R]:
        """Enqueue this one, and return its job; see `Coordinator.enqueue`."""
        session, pattern = self._ref.session, draft.pattern
        if session.observers or not pattern.is_plain or session.channel.is_full:
            [job] = await self.add([draft])
            return job
        queue = pattern.options.queue
        id_, keys, *_ = new = NewJob.of(draft, session, self._jobs)
        caller = _Caller(session.loop, 1)
        self._wait(session, keys, queue, (caller, (new,)))
        await caller  # if this is cancelled, what was not sent stays here
        return Job(self.link, id_, is_new=True, queue=queue, returns=pattern.returns, yields=pattern.yields)

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
        new = _with_own_ids(drafts) if any(map(_OWN_ID, drafts)) else NewJob.of
        jobs = [new(draft, session, self._jobs, trace=trace) for draft in drafts]
        caller = _Caller(session.loop, len(jobs))
        for (keys, options), alike in groupby(jobs, _PLACE):
            most = 1 if options.go_alone else _MOST
            for part in _portions(list(alike), most, _MOST_BYTES):
                self._wait(session, keys, options.queue, (caller, part))
        known = await caller  # as above
        if any(map(_PARENTS, drafts)):
            followed = {job.keys for job in jobs if job.draft.options.after and job.follows_elsewhere}
            await self._ask_parents(session, followed)
        return [
            Job(
                self.link,
                known.get(id_, id_),
                is_new=id_ not in known,
                queue=pattern.options.queue,
                returns=pattern.returns,
                yields=pattern.yields,
            )
            for id_, pattern in zip(map(_ID, jobs), map(_PATTERN, drafts), strict=True)
        ]

    def _wait(self, session: Session, keys: JobKeys, queue: str, part: "_Part") -> None:
        """Send these now if nothing is under way, otherwise at the end of this turn with all that come until then."""
        waiting = self._waiting.get(place := (session, keys, queue))
        if waiting is not None:
            waiting.append(part)
        elif session.channel.is_idle:
            self._send(*place, [part])
        else:
            self._waiting[place] = [part]
            session.loop.call_soon(self._end_turn, place)

    async def _ask_parents(self, session: Session, partitions: Iterable[JobKeys]) -> None:
        """Let parents in other partitions know of the jobs that were added to these."""
        try:
            await pass_on(session, self._jobs, partitions)
        except InconcertError as error:  # the next heartbeat of a worker finds it again
            _log.warning("jobs that wait for jobs in other partitions cannot ask for these yet: %s", error)

    def _end_turn(self, place: tuple[Session, JobKeys, str]) -> None:
        self._send(*place, self._waiting.pop(place))

    def _send(self, session: Session, keys: JobKeys, queue: str, parts: "list[_Part]") -> None:
        batch: list[_Part] = []
        count = size = 0
        try:
            for part in parts:
                caller, jobs = part
                if caller.done():  # it has gone
                    continue
                if jobs[0].draft.pattern.goes_alone:
                    _submit(_alone(session, keys, queue, part), session)
                    continue
                many = len(jobs)
                bulk = len(jobs[0].text) if many == 1 else sum(map(len, map(_TEXT, jobs)))
                if batch and (count + many > _MOST or size + bulk > _MOST_BYTES):
                    _submit(_Adding(session, keys, queue, batch), session)
                    session.channel.flush()  # so that the server works on these while we prepare the next
                    batch, count, size = [], 0, 0
                batch.append(part)
                count += many
                size += bulk
            if batch:
                _submit(_Adding(session, keys, queue, batch), session)
        except Exception as error:  # noqa: BLE001 - any: their callers would wait forever
            for caller, _ in parts:  # some of these may have been sent
                if not caller.done():
                    caller.set_exception(error)
                    caller.exception()


def _alone(session: Session, keys: JobKeys, queue: str, part: "_Part") -> Call:
    """The call of a job that goes alone."""
    caller, [job] = part
    replacing = replacing_job(job, session)
    return _Adding(session, keys, queue, [part]) if replacing is None else _Replacing(session, caller, replacing)


def _with_own_ids(drafts: Sequence[Draft[Any]]) -> Callable[..., NewJob]:
    """The maker of a job of each of these; raises ValueError if two have one id."""
    ids = [id_ for draft in drafts if (id_ := draft.options.id) is not None]
    if len(set(ids)) < len(ids):
        twice = next(id_ for id_ in ids if ids.count(id_) > 1)
        raise ValueError(f"two of these jobs have id={twice!r}; give each an id of its own")
    return NewJob.named


def _submit(call: Call, session: Session) -> None:
    try:
        session.channel.submit(call)
    except InconcertError as error:
        call.fail(error)


def _portions(all_of_them: Sequence[T], most: int, most_bytes: int) -> Iterable[Sequence[T]]:
    """In their order, in parts of so many and so many bytes at most, and of at least one."""
    count = len(all_of_them)
    if count == 1 or (count <= most and sum(map(len, map(_TEXT, all_of_them))) <= most_bytes):
        return (all_of_them,)
    return _cut(all_of_them, most, most_bytes)


def _cut(all_of_them: Sequence[T], most: int, most_bytes: int) -> Iterator[Sequence[T]]:
    first = size = 0
    for last, each in enumerate(all_of_them):
        if last > first and (last - first == most or size + len(each.text) > most_bytes):
            yield all_of_them[first:last]
            first, size = last, 0
        size += len(each.text)
    yield all_of_them[first:]


class _Caller(asyncio.Future[Mapping[str, str]]):
    """Waits until all its jobs are enqueued; then for each that was not new the id of the live job with its name."""

    __slots__ = ("_known", "_left")

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        super().__init__(loop=loop)
        self._left = count
        self._known = _NONE

    def answered(self, jobs: Sequence[NewJob], answers: Sequence[bytes]) -> None:
        """For each of these jobs, which are some of its own: the id of the live job; empty if it was added."""
        if any(answers):
            known = {job.id: answer.decode() for job, answer in zip(jobs, answers, strict=True) if answer}
            self._known = {**self._known, **known}
        self.added(len(jobs))

    def added(self, count: int) -> None:
        """So many of its jobs are done with."""
        self._left -= count
        if not self._left and not self.done():
            self.set_result(self._known)


# Jobs of one caller that may go in one script: those that go alone are parts of one.
_Part = tuple[_Caller, Sequence[NewJob]]


class _Adding(AwaitedCall):
    """The call that enqueues jobs to one queue."""

    __slots__ = ("_are_plain", "_batch", "_jobs", "_observers")

    def __init__(self, session: Session, keys: JobKeys, queue: str, batch: Sequence[_Part]) -> None:
        self._jobs = jobs = list(chain.from_iterable(map(_JOBS, batch)))
        self._are_plain = all(map(_IS_PLAIN, jobs))
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
        return any(not caller.done() for caller, _ in self._batch)

    def answered(self, reply: Reply) -> None:
        if self._are_plain:  # all are new
            for caller, jobs in self._batch:
                caller.added(len(jobs))
        else:
            known = iter(reply)
            for caller, jobs in self._batch:
                caller.answered(jobs, [*islice(known, len(jobs))])
        if self._observers:
            for job, answer in zip_longest(self._jobs, () if self._are_plain else reply):
                if not answer:
                    self._observers.job_enqueued(job.draft.name, job.draft.options.queue)
        super().answered(reply)

    def callers(self) -> Callers:
        return (self, *(caller for caller, _ in self._batch))


class _Replacing(Call):
    """The call that enqueues a job that may replace another one; until it is known how, the next call goes on."""

    __slots__ = ("_caller", "_replacing", "_session")

    def __init__(self, session: Session, caller: _Caller, replacing: ReplacingJob) -> None:
        super().__init__(replacing.enqueue())
        self._session = session
        self._caller = caller
        self._replacing = replacing

    @property
    def is_wanted(self) -> bool:
        return not self._caller.done()

    def answered(self, reply: Reply) -> None:
        job, known = self._replacing.job, self._replacing.added(reply)
        if known is not None:
            self._caller.answered([job], [known.encode()])
            if not known:
                self._session.observers.job_enqueued(job.draft.name, job.draft.options.queue)
        elif not self._caller.done():
            _submit(_Replacing(self._session, self._caller, self._replacing), self._session)
        super().answered(reply)

    def callers(self) -> Callers:
        return (self, self._caller)
