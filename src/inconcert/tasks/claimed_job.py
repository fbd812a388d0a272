"""A job that this process has claimed, and is to run."""

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from contextvars import ContextVar
from typing import Protocol, Self, TypeVar, cast, overload

from inconcert._claims.claimed import Claimed, Claimer
from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert._rules.payloads import JSON, encode
from inconcert.errors import InvalidPayload, NotHeld
from inconcert.tasks.arguments import encode_result
from inconcert.tasks.envelope import Envelope
from inconcert.tasks.job import JobStatus, read_outcome
from inconcert.tasks.retry import RetryPolicy

__all__ = ["ClaimedJob", "JobClaimer", "current_job", "fields_of"]

_log = logging.getLogger("inconcert.tasks")

T = TypeVar("T")

_CANCELLED = b"cancelled "
_CANCELLED_TTL = 3600.0  # seconds for which it is kept that a job was cancelled


class _Entered:
    """A job that was entered somewhere, until it is left.

    Attributes:
        job: Which job; None once it was left, which another context may have done.
        outer: What ran where it was entered.
    """

    __slots__ = ("job", "outer")

    def __init__(self, job: "ClaimedJob", outer: "_Entered | None") -> None:
        self.job: ClaimedJob | None = job
        self.outer = outer


_last_entered: ContextVar[_Entered | None] = ContextVar("inconcert_last_entered", default=None)


def _innermost() -> _Entered | None:
    """The last that was entered here, and not left."""
    entered = _last_entered.get()
    while entered is not None and entered.job is None:
        entered = entered.outer
    return entered


def current_job() -> "ClaimedJob":
    """The job that is running here: in the body of a task, also of a plain function in its thread.

    Raises:
        RuntimeError: No job runs here.
    """
    entered = _innermost()
    if entered is None or entered.job is None:
        raise RuntimeError("no job runs here; call current_job() in the body of a task, or inside `async with job`")
    return entered.job


class JobClaimer(Claimer, Protocol):
    """Who holds a claimed job."""

    async def progressed(self, job: "ClaimedJob", how_far: bytes) -> bool:
        """Say how far it is; returns whether it was still held."""
        ...

    async def outcomes(self, ids: Sequence[str]) -> list[bytes]:
        """What became of the jobs of these ids, which a job runs after; empty for one that is not known."""
        ...


class ClaimedJob(Claimed):
    """A job that this process has claimed and is to run.

    As a context manager it ends the job, in whatever task and context it is left: leaving the body acknowledges it.  An
    exception in the body is logged, counted as a failed attempt, and *not* passed on, so that a consumer's loop goes on
    with the next job; the job is tried again after 1 s, 2 s, 4 s ..., and after its last attempt set aside with the
    reason.  A cancelled body gives the job back at once, and that does not count as an attempt.  What is not an
    `Exception` is counted likewise unless it came from outside, and passed on; `KeyboardInterrupt` and `SystemExit`
    count as a death of the worker.

    If this worker is taken for dead, because it did not reach the server for the length of a heartbeat's lease, the
    body is cancelled, for the job may run elsewhere then.  It is cancelled, too, if somebody cancels the job: then the
    job has ended, and is not tried again.

    Attributes:
        id: Which job; the same at each attempt.
        name: Which task.
        args: Positional arguments, as they came out of JSON.
        kwargs: Named arguments.
        queue: Where it was claimed from.
        attempt: Which try this is, from 1; tries that ended with their worker count, too.
        enqueued_at: When it was enqueued, in seconds since 1970 by the server's clock.
        after: Ids of the jobs that it runs after.
        scheduled_at: The instant of the schedule that enqueued it, in seconds since 1970; None for no schedule.
        result: Set it in the body to what `Job.result` is to return: a JSON value, or what msgspec makes one of.
        retrying: Which failures are tried again, and when.
        time_limit: After how many seconds `run_worker` stops this attempt; None for never.
    """

    __slots__ = (
        "_claims",
        "_entered",
        "_is_cancelled",
        "_outcomes",
        "_result_ttl",
        "after",
        "args",
        "enqueued_at",
        "frees_its_name",
        "is_ahead",
        "kwargs",
        "name",
        "queue",
        "result",
        "retrying",
        "scheduled_at",
        "time_limit",
    )

    def __init__(
        self,
        claims: JobClaimer,
        job_id: str,
        envelope: Envelope,
        *,
        queue: str,
        place: int,
        attempt: int,
        failures: int,
        enqueued_at: float,
    ) -> None:
        super().__init__(
            "job",
            claims,
            job_id,
            source=queue,
            place=place,
            attempt=attempt,
            failures=failures,
            max_attempts=envelope.max_attempts,
            unique=envelope.unique,
        )
        self.name = envelope.name
        self.queue = queue
        self.args = cast("Sequence[JSON]", envelope.args)
        self.kwargs = cast("Mapping[str, JSON]", envelope.kwargs)
        self.enqueued_at = enqueued_at
        self.after = envelope.after
        self.scheduled_at = envelope.scheduled_at
        self.time_limit = envelope.time_limit
        self.frees_its_name = envelope.unique_until_started
        self.result: object = None
        self.retrying = RetryPolicy()
        self.is_ahead = True  # claimed, and nobody has been given it yet
        self._outcomes: list[bytes] | None = None  # of those that it runs after, if they were looked at before
        self._result_ttl = envelope.result_ttl
        self._claims = claims
        self._is_cancelled = False
        self._entered: _Entered | None = None

    def __repr__(self) -> str:
        return f"<ClaimedJob {self.id} {self.name!r} attempt {self.attempt}>"

    def __str__(self) -> str:
        return f"job {self.id} attempt {self.attempt} (task {self.name!r}, queue {self.queue!r})"

    async def __aenter__(self) -> Self:
        body = self._enter()
        self._entered = _Entered(self, _innermost())
        _last_entered.set(self._entered)
        if self._is_cancelled:  # while it waited to be run
            asyncio.get_running_loop().call_soon(body.stop)
        return self

    async def ack(self) -> None:
        """Say that the job is done. Once this has started, cancelling it changes nothing.

        Raises:
            InvalidPayload: JSON cannot hold `result`, or it is larger than 1 MiB; the job has not ended.
            NotHeld: It has ended before, or this worker was taken for dead.
            OutcomeUnknown: The server did not answer; the job may run again.

        Cost: 1 round trip, shared by all jobs that end in the same turn of the event loop.
        """
        try:
            result = b"succeeded " + encode_result(f"the result of job {self.id}", self.result)
        except InvalidPayload:
            if self._result_ttl:
                raise
            result = b""  # it was not to be kept anyway
        await self._done(result, self._result_ttl)

    async def nack(self, *, delay: Seconds = 0.0) -> None:
        """Count a failed attempt: the job is tried again after `delay` seconds, or set aside after its last attempt.

        Raises:
            ValueError: `delay` is negative, or no number.
            NotHeld: It has ended before, or this worker was taken for dead.
            OutcomeUnknown: The server did not answer; the job may run again.

        Cost: 1 round trip.
        """
        await self._fail_with(None, "retry", delay=durations.delay(delay))

    async def progress(self, fraction: float, text: str = "") -> None:
        """Say how far the job is, for whoever asks `Job.progress`.

        Args:
            fraction: From 0 to 1.
            text: What it is doing.

        Raises:
            ValueError: `fraction` is not from 0 to 1.
            TypeError: `text` is not a string.
            NotHeld: It has ended, or this worker was taken for dead.

        Cost: 1 round trip.
        """
        if not 0 <= fraction <= 1:
            raise ValueError(f"the progress of job {self.id} is {fraction!r}; give a number from 0 to 1")
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
            raise TypeError(f"the text of the progress of job {self.id} is {text!r}; give a string")
        how_far = encode(f"the progress of job {self.id}", [float(fraction), text])
        if self._is_over or not (self._is_settled or await self._claims.progressed(self, how_far)):
            raise NotHeld("job", self.id)

    @overload
    async def parent_results(self) -> list[JSON]: ...

    @overload
    async def parent_results(self, as_type: type[T]) -> list[T]: ...

    async def parent_results(self, as_type: type[T] | None = None) -> list[JSON] | list[T]:
        """The results of the jobs that it runs after, in the order of `after`.

        They are kept until this job has ended, whatever their own `result_ttl`.

        Args:
            as_type: What to read each as, such as the dataclass that their function returned; None for the JSON value.

        Raises:
            JobFailed: One was set aside, and this job was replayed without it.
            JobCancelled: One was cancelled, likewise.
            JobNotFound: One is not known, likewise; or this job has ended.
            InvalidPayload: A result is not of this type.
            TypeError: JSON has no way to this type.

        Cost: 1 round trip; 0 if there are none.
        """
        outcomes = self._outcomes
        if outcomes is None:
            outcomes = await self._claims.outcomes(self.after) if self.after else []
        return cast(
            "list[JSON] | list[T]",
            [_read(job_id, outcome, as_type) for job_id, outcome in zip(self.after, outcomes, strict=True)],
        )

    async def cancelled(self) -> None:
        """End it as cancelled."""
        _log.info("%s was cancelled", self, extra=fields_of(self))
        await self._done(_CANCELLED, _CANCELLED_TTL, outcome="cancelled")

    def cancel(self) -> None:
        """Stop the body, or end the job if nobody has been given it: somebody has cancelled it."""
        if not self._is_over and not self._is_cancelled:
            self._is_cancelled = True
            if self._body is not None:
                self._body.stop()
            elif self.is_ahead:
                self._end_once("cancelled")
                if not self._is_settled:
                    self._claims.done(self, _CANCELLED, _CANCELLED_TTL)

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has cancelled it."""
        return self._is_cancelled

    # Below.

    def _fields(self) -> dict[str, object]:
        return fields_of(self)

    def _leave(self, error: BaseException | None) -> bool:
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.job = None
            if _last_entered.get() is entered:  # else it was entered in another context, or is not the innermost
                _last_entered.set(entered.outer)
        return super()._leave(error)

    def _end_of_body(self, error: BaseException | None, *, was_stopped: bool) -> Awaitable[None]:
        if self._is_cancelled and error is not None and (was_stopped or isinstance(error, Exception)):
            return self.cancelled()
        return super()._end_of_body(error, was_stopped=was_stopped)

    async def _settle(self) -> bool:
        if self.after:
            self._outcomes = await self._claims.outcomes(self.after)
        return await self._claims.done(self, b"succeeded null", self._result_ttl, is_run=False)

    async def _succeed(self) -> None:
        try:
            await self.ack()
        except InvalidPayload as error:  # it has done its work: another attempt would do it twice
            await self.bury(error)

    async def _fail(self, error: BaseException | None) -> None:
        failures = self._failures + 1
        delay: float | None = 0.0
        if failures < self._max_attempts:
            try:
                delay = self.retrying.delay(failures, error)
            except Exception:  # noqa: BLE001 - of the user's backoff
                _log.exception("%s: its backoff failed, so the usual one is taken", self, extra=fields_of(self))
                delay = RetryPolicy().delay(failures, None)
        await self._fail_with(error, "retry", delay=delay)


def fields_of(job: ClaimedJob) -> dict[str, object]:
    """What a record of the log has of a job, beside the text that `str` makes of it."""
    return {"job_id": job.id, "attempt": job.attempt, "task": job.name, "queue": job.queue}


def _read(job_id: str, outcome: bytes, as_type: type[T] | None) -> JSON | T:
    status, _, about = (outcome or b"unknown ").partition(b" ")
    return read_outcome(job_id, JobStatus(status.decode()), about, as_type)
