"""A job that this process has claimed, and is to run."""

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Literal, Protocol, Self, TypeVar, cast, overload

from inconcert._core.body import Body
from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert._rules.payloads import JSON, encode
from inconcert.errors import InconcertError, InvalidPayload, NotHeld
from inconcert.tasks.arguments import encode_result
from inconcert.tasks.envelope import Envelope
from inconcert.tasks.job import JobStatus, read_outcome
from inconcert.tasks.reason import Reason
from inconcert.tasks.retrying import Retrying

__all__ = ["ClaimedJob", "Claimer", "Verdict", "current_job"]

_log = logging.getLogger("inconcert.tasks")

T = TypeVar("T")

_SUSPECT = 2  # workers that have died with a job, as the script that claims has it, too
_ENDS_OF_WORK = (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit)  # not the job's fault
_CANCELLED = b"cancelled "
_CANCELLED_TTL = 3600.0  # seconds for which it is kept that a job was cancelled

Verdict = Literal["retry", "back", "dead"]
Outcome = Literal["running", "done", "cancelled", "lost"] | Verdict


_current: ContextVar["ClaimedJob"] = ContextVar("inconcert_current_job")


def current_job() -> "ClaimedJob":
    """The job that is running here: in the body of a task, also of a plain function in its thread.

    Raises:
        RuntimeError: No job runs here.
    """
    job = _current.get(None)
    if job is None:
        raise RuntimeError("no job runs here; call current_job() in the body of a task, or inside `async with job`")
    return job


class Claimer(Protocol):
    """Who holds a claimed job."""

    def done(self, job: "ClaimedJob", result: bytes, ttl: float, *, is_run: bool = True) -> Awaitable[bool]:
        """Acknowledge, and keep what became of it for `ttl` seconds; the answer is whether it was still held.

        One that was run is acknowledged again until that is confirmed.
        """
        ...

    async def progressed(self, job: "ClaimedJob", how_far: bytes) -> bool:
        """Say how far it is; returns whether it was still held."""
        ...

    async def not_done(self, job: "ClaimedJob", verdict: Verdict, *, delay: float, reason: bytes) -> bool:
        """Give back, or set aside; returns whether it was still held."""
        ...

    async def outcomes(self, ids: Sequence[str]) -> list[bytes]:
        """What became of the jobs of these ids, which a job runs after; empty for one that is not known."""
        ...


class ClaimedJob:
    """A job that this process has claimed and is to run.

    As a context manager it ends the job: leaving the body acknowledges it.  An exception in the body is logged,
    counted as a failed attempt, and *not* passed on, so that a consumer's loop goes on with the next job; the job is
    tried again after 1 s, 2 s, 4 s ..., and after its last attempt set aside with the reason.  A cancelled body gives
    the job back at once, and that is no attempt.

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
        "_body",
        "_claimer",
        "_failures",
        "_is_cancelled",
        "_is_over",
        "_last_current",
        "_max_attempts",
        "_outcome",
        "_outcomes",
        "_result_ttl",
        "after",
        "args",
        "attempt",
        "enqueued_at",
        "id",
        "is_ahead",
        "kwargs",
        "name",
        "place",
        "queue",
        "result",
        "retrying",
        "scheduled_at",
        "time_limit",
        "unique",
    )

    def __init__(
        self,
        claimer: Claimer,
        job_id: str,
        envelope: Envelope,
        *,
        queue: str,
        place: int,
        attempt: int,
        failures: int,
        enqueued_at: float,
    ) -> None:
        self.id = job_id
        self.name = envelope.name
        self.args = cast("Sequence[JSON]", envelope.args)
        self.kwargs = cast("Mapping[str, JSON]", envelope.kwargs)
        self.queue = queue
        self.place = place
        self.attempt = attempt
        self.enqueued_at = enqueued_at
        self.after = envelope.after
        self.scheduled_at = envelope.scheduled_at
        self.unique = envelope.unique
        self.time_limit = envelope.time_limit
        self.result: object = None
        self.retrying = Retrying()
        self._outcomes: list[bytes] | None = None  # of those that it runs after, if they were looked at before
        self._max_attempts = envelope.max_attempts
        self._result_ttl = envelope.result_ttl
        self._failures = failures
        self._claimer = claimer
        self._is_over = False
        self._is_cancelled = False
        self.is_ahead = True  # claimed, and nobody has been given it yet
        self._outcome: Outcome = "running"
        self._last_current: Token[ClaimedJob]
        self._body: Body | None = None

    def __repr__(self) -> str:
        return f"<ClaimedJob {self.id} {self.name!r} attempt {self.attempt}>"

    async def __aenter__(self) -> Self:
        if self._is_over:
            raise NotHeld("job", self.id)
        self._body = Body()
        self._last_current = _current.set(self)
        if self._is_cancelled:  # while it waited to be run
            asyncio.get_running_loop().call_soon(self._body.stop)
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        assert self._body is not None  # noqa: S101 - entered before
        was_stopped = self._body.end(error)
        self._body = None
        _current.reset(self._last_current)
        if error is not None and not isinstance(error, _ENDS_OF_WORK):
            _log.error("%r failed", self, exc_info=error)
        try:
            if self._is_over:
                pass  # lost, or ended by hand in the body
            elif error is None:
                await self._succeed()
            elif self._is_cancelled and (was_stopped or isinstance(error, Exception)):
                await self.cancelled()
            elif isinstance(error, _ENDS_OF_WORK):
                await self._end("back")
            else:  # also what is no Exception, such as a panic of an extension: it would come again at once, for ever
                await self._fail(error)
        except InconcertError as unconfirmed:
            _log.warning("%r: its end was not confirmed, so it may run again: %s", self, unconfirmed)
        return was_stopped or isinstance(error, Exception)

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
        await self._fail(None, delay=durations.delay(delay))

    async def bury(self, error: Exception) -> None:
        """Set the job aside at once, because another attempt cannot go better.

        Raises:
            NotHeld: It has ended before, or this worker was taken for dead.
            OutcomeUnknown: The server did not answer; the job may run again.

        Cost: 1 round trip.
        """
        _log.error("%r is set aside: %s", self, error)
        await self._end("dead", reason=Reason.of(error, self.attempt).stored())

    async def progress(self, fraction: float, text: str = "") -> None:
        """Say how far the job is, for whoever asks `Job.progress`.

        Args:
            fraction: From 0 to 1.
            text: What it is doing.

        Raises:
            ValueError: `fraction` is not from 0 to 1.
            NotHeld: It has ended, or this worker was taken for dead.

        Cost: 1 round trip.
        """
        if not 0 <= fraction <= 1:
            raise ValueError(f"the progress of job {self.id} is {fraction!r}; give a number from 0 to 1")
        how_far = encode(f"the progress of job {self.id}", [float(fraction), text])
        if self._is_over or not await self._claimer.progressed(self, how_far):
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
            outcomes = await self._claimer.outcomes(self.after) if self.after else []
        return cast(
            "list[JSON] | list[T]",
            [_read(job_id, outcome, as_type) for job_id, outcome in zip(self.after, outcomes, strict=True)],
        )

    async def cancelled(self) -> None:
        """End it as cancelled."""
        _log.info("%r was cancelled", self)
        await self._done(_CANCELLED, _CANCELLED_TTL, outcome="cancelled")

    async def settle(self) -> None:
        """Let it count as done before it runs, so that it never comes back: for delivery at most once.

        If that is not sure, it is over, and must not run: it may come back.
        """
        if self._is_over or isinstance(self._claimer, _Nobody):
            return
        try:
            if self.after:
                self._outcomes = await self._claimer.outcomes(self.after)
            is_settled = await self._claimer.done(self, b"succeeded null", self._result_ttl, is_run=False)
        except InconcertError as unconfirmed:
            _log.warning("%r is not handed out: %s", self, unconfirmed)
            is_settled = False
        self._is_over = not is_settled
        self._claimer = _Nobody()

    def cancel(self) -> None:
        """Stop the body, or end the job if nobody has been given it: somebody has cancelled it."""
        if not self._is_over and not self._is_cancelled:
            self._is_cancelled = True
            if self._body is not None:
                self._body.stop()
            elif self.is_ahead:
                self._end_once("cancelled")
                self._claimer.done(self, _CANCELLED, _CANCELLED_TTL)

    def lose(self) -> None:
        """Take note that it is not ours any more, and stop the body."""
        self._is_over = True
        self._outcome = "lost"
        if self._body is not None:
            self._body.stop()

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has cancelled it."""
        return self._is_cancelled

    @property
    def is_suspect(self) -> bool:
        """Whether two workers have died with it: then it runs beside no other such job."""
        return self.attempt - self._failures - 1 >= _SUSPECT

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or was lost."""
        return self._is_over

    @property
    def outcome(self) -> Outcome:
        """What became of this attempt."""
        return self._outcome

    async def _succeed(self) -> None:
        try:
            await self.ack()
        except InvalidPayload as error:  # it has done its work: another attempt would do it twice
            await self.bury(error)

    async def _fail(self, error: BaseException | None, *, delay: float | None = None) -> None:
        failures = self._failures + 1
        if delay is None and failures < self._max_attempts:
            try:
                delay = self.retrying.delay(failures, error)
            except Exception:  # noqa: BLE001 - of the user's backoff
                _log.exception("%r: its backoff failed, so the usual one is taken", self)
                delay = Retrying().delay(failures, None)
        if failures >= self._max_attempts or delay is None:
            await self._end("dead", reason=Reason.of(error, self.attempt).stored())
        else:
            await self._end("retry", delay=delay)

    async def _done(self, result: bytes, ttl: float, *, outcome: Outcome = "done") -> None:
        self._end_once(outcome)
        if not await self._claimer.done(self, result, ttl):
            raise NotHeld("job", self.id)

    async def _end(self, verdict: Verdict, *, delay: float = 0.0, reason: bytes = b"") -> None:
        self._end_once(verdict)
        if not await self._claimer.not_done(self, verdict, delay=delay, reason=reason):
            raise NotHeld("job", self.id)

    def _end_once(self, outcome: Outcome) -> None:
        if self._is_over:
            raise NotHeld("job", self.id)
        self._is_over = True
        self._outcome = outcome


def _read(job_id: str, outcome: bytes, as_type: type[T] | None) -> JSON | T:
    status, _, about = (outcome or b"unknown ").partition(b" ")
    return read_outcome(job_id, JobStatus(status.decode()), about, as_type)


class _Nobody:
    """Holds a job that counted as done before it ran: whatever becomes of it changes nothing."""

    async def done(self, job: ClaimedJob, result: bytes, ttl: float, *, is_run: bool = True) -> bool:
        del job, result, ttl, is_run
        return True

    async def progressed(self, job: ClaimedJob, how_far: bytes) -> bool:
        del job, how_far
        return True

    async def not_done(self, job: ClaimedJob, verdict: Verdict, *, delay: float, reason: bytes) -> bool:
        del job, verdict, delay, reason
        return True

    async def outcomes(self, ids: Sequence[str]) -> list[bytes]:
        return [b""] * len(ids)  # they were looked at before
