"""Questions of tests about jobs, and running them without a worker."""

import asyncio
import inspect
import re
import reprlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any, NamedTuple, cast

from inconcert._claims.keys import split_body
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.wire.call import PlainCall
from inconcert._rules.payloads import JSON
from inconcert._rules.signing import KeyRing
from inconcert.coordinator import Coordinator
from inconcert.errors import JobFailed
from inconcert.tasks.following.job import Job
from inconcert.tasks.front.task_coordinator import parts_of
from inconcert.tasks.records.envelope import Envelope, open_envelope, read_envelope
from inconcert.tasks.records.queue_names import queue_names
from inconcert.tasks.records.retry import Retry
from inconcert.tasks.records.store import JobKeys
from inconcert.tasks.running.claimed_job import ClaimedJob, state_of
from inconcert.tasks.running.worker import Worker
from inconcert.tasks.sending.draft import Draft, Pattern
from inconcert.tasks.sending.options import Options
from inconcert.tasks.sending.task import Task

_MOST_ATTEMPTS = 10_000  # in one drain: jobs that enqueue more of them do not end
_MOST_TURNS = 100  # in one drain, each of which brings new jobs: the same with a delay
_MOST_DEAD = 1000  # dead letters that are compared with those from before
_MOST_SHOWN = 20  # jobs in one message

_RATE = re.compile(rb"(\d+ ){6}")  # how far a rate is used up, as read_rate.lua reads it; a limit has three numbers

AnyTask = Task[..., Any] | str


async def drain(concert: Coordinator, *, delayed: bool = False, may_fail: bool = False) -> None:
    """Run all jobs that may run now, in whatever queues, and what they enqueue, and return when none is left.

    They run in this process, inside the coordinator's lifespan and middlewares, and as a worker runs them: several at
    once, and plain functions in threads.  Timetables of `Coordinator.cron` are not followed.

    Args:
        concert: Which coordinator; open.
        delayed: Whether jobs that are delayed, or that a rate holds back, and the next attempts of those that failed,
            run at once, too. Then `durable.sleep()` ends at once, and `durable.wait_for()` times out unless its
            message was sent.
        may_fail: Whether failures count as they do in a worker, and nothing more. Otherwise the error of the first one
            is raised when nothing is left to run, unless the job raised it to ask for another attempt (`Retry`).

    Raises:
        Exception: What a job raised, unless it may fail.
        JobFailed: A job could not be run, for example of an unknown task, unless it may fail.
        AssertionError: 10,000 attempts were run, and more jobs are there; or 100 times in turn, delayed jobs have
            enqueued others, as a job does that enqueues itself with a delay.

    Cost: some 10 round trips, and those of a worker.
    """
    __tracebackhide__ = True
    before = {letter.id for letter in await concert.tasks.dead(limit=_MOST_DEAD)}
    drain = _Drain(concert, delayed=delayed)
    async with parts_of(concert).lifespan_around():
        await drain.run_all()
    if not may_fail:
        for letter in await concert.tasks.dead(limit=_MOST_DEAD):
            if letter.id not in before:
                error = JobFailed(letter.id, letter.error, letter.traceback, letter.attempts)
                drain.failures.setdefault(letter.id, error)
        drain.raise_failure()


async def assert_enqueued(
    concert: Coordinator, task: Task[..., Any] | str, /, *args: object, **kwargs: object
) -> Job[JSON]:
    """Fail unless a job of a task is enqueued: ready, delayed, or waiting for others, and not running.

    Args:
        concert: Which coordinator; open.
        task: The task, or its name.
        *args: With which arguments. Without any, and without keywords: with any.
        **kwargs: With which keywords. Defaults of the function count, and it does not matter which arguments are
            keywords.

    Returns:
        The job that was enqueued first.

    Raises:
        AssertionError: There is no such job; it says which are enqueued.
        TypeError: The arguments do not fit the function.

    Cost: 2 round trips for each partition, and 1 more for each 500 queues.
    """
    __tracebackhide__ = True
    jobs = await _enqueued(concert)
    found = _matching(jobs, task, args, kwargs)
    if not found:
        raise AssertionError(f"no job {_wanted(task, args, kwargs)} is enqueued; {_listed(jobs)}")
    return concert.tasks.job(found[0].id)


async def refute_enqueued(concert: Coordinator, task: Task[..., Any] | str, /, *args: object, **kwargs: object) -> None:
    """Fail if a job of a task is enqueued, as `assert_enqueued` understands it.

    Raises:
        AssertionError: There is such a job; it says which are enqueued.
        TypeError: The arguments do not fit the function.
    """
    __tracebackhide__ = True
    jobs = await _enqueued(concert)
    if _matching(jobs, task, args, kwargs):
        raise AssertionError(f"a job {_wanted(task, args, kwargs)} is enqueued; {_listed(jobs)}")


async def _forget_rates(concert: Coordinator) -> None:
    """Let the next jobs of each rate begin now, as many as its burst."""
    parts = parts_of(concert)
    for keys in parts.keyspace.partitions:
        [found] = await parts.ref.session.gather([PlainCall("HGETALL", keys.places, key=keys.places)])
        places = _fields(found)
        rates = [name for name, text in places.items() if _RATE.match(text)]
        if rates:
            await parts.ref.session.gather([PlainCall("HDEL", keys.places, *rates, key=keys.places)])


class _Enqueued(NamedTuple):
    """A job that has not begun."""

    put_ms: int
    id: str
    envelope: Envelope
    queue: str
    state: str  # ready, delayed or waiting

    def __str__(self) -> str:
        where = "" if self.state == "ready" else f", {self.state}"
        return f"{_call(self.envelope.name, self.envelope.args, self.envelope.kwargs)}  in queue {self.queue!r}{where}"


class _Drain:
    """Runs jobs, and notes what becomes of them."""

    def __init__(self, concert: Coordinator, *, delayed: bool) -> None:
        self._concert = concert
        self._delayed = delayed
        self._stop = asyncio.Event()
        self.attempts = 0  # how many were begun
        self.failures: dict[str, Exception] = {}  # what jobs have raised, by their ids: of each the first

    async def run_all(self) -> None:
        """Run the jobs that are enqueued, and those that they enqueue, until nothing is left that may run."""
        __tracebackhide__ = True
        seen: object = None
        known: set[str] = set()  # ids
        turns = 0  # in which there were new jobs
        while (jobs := await _enqueued(self._concert)) and seen != (self.attempts, jobs):
            seen = self.attempts, jobs
            turns += not known.issuperset(job.id for job in jobs)
            known.update(job.id for job in jobs)
            if self._delayed:
                await _forget_rates(self._concert)
                for job in jobs:
                    await self._concert.tasks.job(job.id).reschedule(delay=0)
            await self.run({job.queue for job in jobs})
            if self.attempts >= _MOST_ATTEMPTS:
                raise AssertionError(f"{self.attempts:,} attempts were run, and there is no end; {_listed(jobs)}")
            if turns >= _MOST_TURNS:
                raise AssertionError(
                    f"{turns} times in turn, delayed jobs have enqueued others, and there is no end; test such a job "
                    f"without delayed=True; {_listed(jobs)}"
                )

    async def run(self, queues: set[str]) -> None:
        """Run the due jobs in these queues."""
        parts = parts_of(self._concert)
        worker = Worker(
            parts.ref,
            self._concert.consume(*sorted(queues)),
            parts.registry,
            concurrency=100,
            stop=self._stop,
            burst=True,
            middlewares=[self._watch, *parts.middlewares],
        )
        await worker.run()

    def raise_failure(self) -> None:
        """Raise what the first job that failed has raised, if one has."""
        __tracebackhide__ = True
        for job_id, error in self.failures.items():
            error.add_note(f"raised by job {job_id}; if jobs are to fail, write drain(..., may_fail=True)")
            raise error

    @asynccontextmanager
    async def _watch(self, job: ClaimedJob) -> AsyncGenerator[None]:
        state_of(job).steps.is_awake = self._delayed
        self.attempts += 1
        if self.attempts >= _MOST_ATTEMPTS:
            self._stop.set()
        try:
            yield
        except Retry:
            raise
        except Exception as error:
            self.failures.setdefault(job.id, error)
            raise


async def _enqueued(concert: Coordinator) -> list[_Enqueued]:
    """The jobs that have not begun, the earliest first."""
    parts = parts_of(concert)
    found: list[_Enqueued] = []
    for keys in parts.keyspace.partitions:
        found += await _enqueued_in(concert, keys)
    return sorted(found, key=lambda job: (job.put_ms, job.id))


async def _enqueued_in(concert: Coordinator, keys: JobKeys) -> list[_Enqueued]:
    session = parts_of(concert).ref.session
    names = await queue_names(session, keys)
    calls = [PlainCall("HGETALL", key, key=key) for key in (keys.bodies, keys.states)]
    for queue in map(keys.queue, names):
        # Those that may run now: they are in the list, but for those that have a priority, see rank.lua.
        calls.append(PlainCall("LRANGE", queue.queue, 0, -1, key=queue.queue))
        calls.append(PlainCall("ZRANGEBYSCORE", queue.delayed, "-inf", "(0", key=queue.delayed))
    bodies, states, *ready = await session.gather(calls)
    texts = _fields(bodies)
    found = [(job_id, "ready", names[n // 2]) for n, ids in enumerate(ready) for job_id in ids]
    found += [(job_id, *_whereabouts(state.decode())) for job_id, state in _fields(states).items()]
    return [
        _Enqueued(*_opened(session.key_ring, job_id.decode(), texts[job_id]), queue, state)
        for job_id, state, queue in found
        if state and job_id in texts
    ]


def _fields(reply: Reply) -> dict[bytes, bytes]:
    """A hash, as the server answers it in either protocol."""
    flat: list[bytes] = list(chain(*cast("dict[bytes, bytes]", reply).items())) if isinstance(reply, dict) else reply
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _whereabouts(state: str) -> tuple[str, str]:
    """The state of a job that is not in its queue, and the name of the queue; nothing if it runs."""
    match state.split(" "):
        case ["delayed", *queue]:
            return "delayed", " ".join(queue)
        case ["waiting", _, *queue]:
            return "waiting", " ".join(queue)
        case _:
            return "", ""


def _opened(key_ring: KeyRing, job_id: str, body: bytes) -> tuple[int, str, Envelope]:
    put_ms, text = split_body(body)
    return put_ms, job_id, read_envelope(key_ring, job_id, text)


def _matching(
    jobs: Sequence[_Enqueued], task: AnyTask, args: tuple[object, ...], kwargs: Mapping[str, Any]
) -> list[_Enqueued]:
    if not args and not kwargs:
        return [job for job in jobs if job.envelope.name == _name(task)]
    if isinstance(task, Task):
        draft: Draft[Any] = task.call(*args, **kwargs)
    else:
        draft = Pattern[Any](task, Options()).draft(args, kwargs)  # type: ignore[arg-type]  # it checks them
    wanted = _arguments(task, open_envelope(draft.text))
    return [job for job in jobs if job.envelope.name == draft.name and _arguments(task, job.envelope) == wanted]


def _arguments(task: AnyTask, envelope: Envelope) -> object:
    """The arguments of a job, in a form in which those of equal calls are equal."""
    if isinstance(task, Task):
        try:
            bound = inspect.signature(task.function).bind(*envelope.args, **envelope.kwargs)
        except TypeError:  # enqueued by name
            return None
        bound.apply_defaults()
        return bound.arguments
    return list(envelope.args), dict(envelope.kwargs)


def _name(task: AnyTask) -> str:
    return task.name if isinstance(task, Task) else task


def _wanted(task: AnyTask, args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    return f"of task {_name(task)!r}" if not args and not kwargs else _call(_name(task), args, kwargs)


def _call(name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    given = [reprlib.repr(value) for value in args]
    given += [f"{key}={reprlib.repr(value)}" for key, value in kwargs.items()]
    return f"{name}({', '.join(given)})"


def _listed(jobs: Sequence[_Enqueued]) -> str:
    if not jobs:
        return "nothing is"
    more = [f"  and {len(jobs) - _MOST_SHOWN} more"] if len(jobs) > _MOST_SHOWN else []
    return "\n".join(["enqueued are:", *(f"  {job}" for job in jobs[:_MOST_SHOWN]), *more])
