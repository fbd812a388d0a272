"""A job that this process has claimed and runs."""

import asyncio
from collections.abc import Awaitable, Generator, Mapping, Sequence
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, overload

from inconcert._claims.claimed import Claimed
from inconcert._core.scope import innermost
from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert._rules.payloads import JSON
from inconcert.tasks.records.group_ids import group_of
from inconcert.tasks.records.status import JobStatus, read_outcome
from inconcert.tasks.running.job_state import JobState
from inconcert.tasks.sending.draft import Draft

if TYPE_CHECKING:  # a group is imported when it is asked for
    from inconcert.tasks.sending.group import Group

T = TypeVar("T")

lifespan_values: ContextVar[tuple[Any, ...]] = ContextVar("inconcert_lifespan", default=())  # one, if there is one


def current_job() -> "ClaimedJob":
    """The current job, in the body of a task; also for a plain function in its thread.

    Raises:
        RuntimeError: No job runs here.
    """
    scope = innermost()
    work = None if scope is None else scope.work
    if isinstance(work, JobState):  # of a worker, whose jobs seldom ask
        work = cast("Any", scope).work = ClaimedJob(work)
    if not isinstance(work, ClaimedJob):
        raise RuntimeError("no job runs here; call this in the body of a task, or inside `async with job`")  # noqa: TRY004
    return work


def job_in(context: Context) -> str | None:
    """The id of the job that runs in a context; None if none does."""
    scope = innermost(context)
    return scope.work.id if scope is not None and isinstance(scope.work, ClaimedJob | JobState) else None


class ClaimedJob(Claimed[JobState]):
    """A job that this process has claimed and runs.

    As a context manager it ends the job, in whatever task and context it is left: leaving the body acknowledges it.  An
    exception in the body is logged, counted as a failed attempt, and *not* propagated, so that a consumer's loop
    continues with the next job; the job is retried after 1 s, 2 s, 4 s ..., and dead-lettered with the reason after its
    last attempt. A cancelled body requeues the job at once, and that does not count as an attempt. A `BaseException`
    that is not an `Exception` counts as failed, too, unless it came from outside, and propagated; `KeyboardInterrupt`
    and `SystemExit` count as a crash of the worker.

    If this worker is presumed dead, because it did not reach the server for the length of a heartbeat's lease, the body
    is cancelled, because the job may run elsewhere then. It is also cancelled if the job is cancelled: then the job has
    ended, and is not retried.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<ClaimedJob {self.id} {self.name!r} attempt {self.attempt}>"

    async def __aenter__(self) -> Self:
        self._state.begin(self)
        return self

    async def ack(self) -> None:
        """Acknowledge the job. Once started, cancelling this call does not stop it.

        Raises:
            InvalidPayload: JSON cannot hold `result`, or it is larger than 1 MiB; the job has not ended.
            NotClaimed: It has already ended, or this worker was presumed dead.
            OutcomeUnknown: The server did not answer; the job may run again.

        Cost: 1 round trip, shared by all jobs that end in the same turn of the event loop.
        """
        self._check_loop()
        self._state.end_in_body()
        await self._state.ack()

    async def nack(self, *, delay: Seconds = 0.0) -> None:
        """Count a failed attempt: retry the job after `delay` seconds, or dead-letter it after its last attempt.

        Raises:
            ValueError: `delay` is negative, or not a number.
            NotClaimed: It has already ended, or this worker was presumed dead.
            OutcomeUnknown: The server did not answer; the job may run again.
        """
        seconds = durations.delay(delay)
        self._check_loop()
        self._state.end_in_body()
        await self._state.nack(seconds)

    def progress(self, fraction: float, text: str = "") -> Awaitable[None]:
        """Report the job's progress, which `Job.progress` returns.

        To be awaited; in a plain function, in its thread, it has returned only when the server has answered.

        Args:
            fraction: From 0 to 1.
            text: Its present work.

        Raises:
            ValueError: `fraction` is not from 0 to 1.
            TypeError: `text` is not a string.
            NotClaimed: It has ended, or this worker was presumed dead.
        """
        if not _has_loop():
            asyncio.run_coroutine_threadsafe(self._state.progress(fraction, text), self._state.loop).result()
            return _Done()
        self._check_loop()
        return self._state.progress(fraction, text)

    def emit(self, item: object) -> Awaitable[None]:
        """Add an item to the job's stream, which `Job.stream` follows: for a task that is not an async generator.

        To be awaited: then the item is in the stream, behind those before it. In a plain function, in its thread, it is
        there when the call returns. Each attempt begins the stream again. While the server cannot be
        reached, it keeps trying. If this call is cancelled, the item may be in the stream, or come with the next one.

        Args:
            item: A value of any type that a result may have: numbers, texts, lists, dates, dataclasses and others.

        Raises:
            InvalidPayload: JSON cannot hold the item, or it is larger than 1 MiB; nothing was added.
            RuntimeError: The job is an async generator, or is delivered at most once.
            NotClaimed: It has ended, or this worker was presumed dead.

        Cost: 1 round trip, shared by the items that tasks of the body emit at once.
        """
        from inconcert.tasks.running.emitter import begin_stream  # noqa: PLC0415 - few jobs emit

        if not _has_loop():
            asyncio.run_coroutine_threadsafe(self._state.emit(item, begin_stream), self._state.loop).result()
            return _Done()
        self._check_loop()
        return self._state.emit(item, begin_stream)

    def enqueue_on_success(self, *drafts: Draft[Any]) -> list[str]:
        """Enqueue these jobs when this one succeeds: the script that acknowledges this one adds them.

        So they are added once, or not at all: a worker that dies before the end adds none, and the next attempt adds
        its own. Nothing is added when the job fails, is cancelled, or is requeued. They lie in this job's partition.
        Several calls add up.

        Args:
            drafts: What `Task.call` returns, with its options; at most 100 in all, and 1 MiB.

        Returns:
            Their ids, in the same order; there is no such job until this one has succeeded.

        Raises:
            TypeError: One is not a draft.
            ValueError: One has `unique` or `after`, or limits where jobs are spread over several partitions; or there
                are more than 100.
            InvalidPayload: All together exceed 1 MiB.
            NotClaimed: This job has ended, or its worker was presumed dead.
            RuntimeError: It is delivered at most once, so it ended before its body began.

        Cost: 0 round trips. Such a job is acknowledged by a script of its own.
        """
        return self._state.enqueue_on_success(drafts)

    @overload
    async def parent_results(self) -> list[JSON]: ...

    @overload
    async def parent_results(self, as_type: type[T]) -> list[T]: ...

    async def parent_results(self, as_type: type[T] | None = None) -> list[JSON] | list[T]:
        """The results of the jobs that it runs after, in the order of `after`.

        They are kept until this job has ended, whatever their `result_ttl`.

        Args:
            as_type: The type to read each as, such as the dataclass that their function returned; None for the JSON
                value.

        Raises:
            JobFailed: One was dead-lettered, and this job was replayed without it.
            JobCancelled: One was cancelled, and this job was replayed without it.
            JobNotFound: One is unknown, and this job was replayed without it; or this job has ended.
            UnreadablePayload: A result is not of this type.
            TypeError: JSON cannot represent this type.

        Cost: 1 round trip; 0 if there are none.
        """
        self._check_loop()
        outcomes = await self._state.outcomes()
        return cast(
            "list[JSON] | list[T]",
            [_read(job_id, outcome, as_type) for job_id, outcome in zip(self.after, outcomes, strict=True)],
        )

    @property
    def name(self) -> str:
        """The name of the task."""
        return self._state.envelope.name

    @property
    def args(self) -> Sequence[JSON]:
        """Positional arguments, as decoded from JSON."""
        return self._state.envelope.args

    @property
    def kwargs(self) -> Mapping[str, JSON]:
        """Keyword arguments."""
        return self._state.envelope.kwargs

    @property
    def headers(self) -> Mapping[str, str]:
        """The strings that it was enqueued with."""
        return self._state.envelope.headers

    @property
    def enqueued_at(self) -> float:
        """The time at which it was enqueued, in seconds since 1970 by the server's clock."""
        return self._state.enqueued_at

    @property
    def after(self) -> tuple[str, ...]:
        """Ids of the jobs that it runs after."""
        return self._state.envelope.after

    @property
    def group(self) -> "Group | None":
        """The group that it is a member or the callback of; None for none. Cost: 0."""
        from inconcert.tasks.sending.group import Group  # noqa: PLC0415 - few jobs ask

        group_id = group_of(self.id)
        return None if group_id is None else Group(self._state.handles, group_id)

    @property
    def scheduled_at(self) -> float | None:
        """The instant of the schedule that enqueued it, or of `at=`, in seconds since 1970; None for no instant."""
        return self._state.envelope.scheduled_at

    @property
    def time_limit(self) -> float | None:
        """Seconds after which `run_worker` stops this attempt; None for never."""
        return self._state.envelope.time_limit

    @property
    def is_cancelled(self) -> bool:
        """True if its body is to stop: it was cancelled or lost, is past its time limit, or its worker's grace is over.

        For a plain function, which runs in a thread and cannot be stopped: it looks at this from time to time, in its
        thread, and returns. If the job was cancelled, that is how it ends; otherwise its result or exception counts.
        """
        return self._state.must_stop

    @property
    def state(self) -> Any:  # noqa: ANN401 - of the user's own type
        """The value that the lifespan around its worker has yielded; see `Coordinator.lifespan`.

        Annotate the variable: `clients: Clients = current_job().state`.

        Raises:
            RuntimeError: No lifespan surrounds it.
        """
        values = lifespan_values.get()
        if not values:
            raise RuntimeError(
                "no lifespan surrounds this job; give its coordinator one with @concert.lifespan, and run the job by "
                "run_worker, `inconcert worker` or drain"
            )
        return values[0]

    @property
    def result(self) -> object:
        """Set this in the body to what `Job.result` is to return: JSON, or a value that msgspec can encode as JSON."""
        return self._state.result

    @result.setter
    def result(self, value: object) -> None:
        self._state.result = value


class HandedOutJob(ClaimedJob):
    """A job that a user's code claims: it warns if it is forgotten, as a worker forgets none."""

    __slots__ = ()

    def __del__(self) -> None:
        self._state.dropped()


def state_of(job: ClaimedJob) -> JobState:
    """The engine's state of a job, for the worker."""
    return job._state  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


class _Done:
    """An awaitable for an act that is done already, in the thread that has asked for it."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


def _has_loop() -> bool:
    """True if an event loop runs in this thread; in that of a plain function none does."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _read(job_id: str, outcome: bytes, as_type: type[T] | None) -> JSON | T:
    status, _, about = (outcome or b"unknown ").partition(b" ")
    return read_outcome(job_id, JobStatus(status.decode()), about, as_type)
