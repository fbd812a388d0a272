"""A job, seen from both sides: what enqueueing returns, and what a consumer is given to run."""

import logging
import random
import traceback as tracebacks
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Literal, Protocol, Self, cast

from inconcert._core.body import Body
from inconcert._rules import durations
from inconcert._rules.backoff import retry_delay
from inconcert._rules.durations import Seconds
from inconcert._rules.payloads import JSON, encode
from inconcert.errors import InconcertError, NotHeld
from inconcert.tasks.envelope import Envelope

__all__ = ["ClaimedJob", "Claimer", "Job", "Verdict"]

_log = logging.getLogger("inconcert.tasks")

_LONGEST_TRACEBACK = 10_000  # characters that are kept of a dead job

Verdict = Literal["retry", "back", "dead"]


class Job:
    """A job that was enqueued.

    Attributes:
        id: Which job; unique, and so a good idempotency key for what the job does.
    """

    __slots__ = ("id",)

    def __init__(self, job_id: str) -> None:
        self.id = job_id

    def __repr__(self) -> str:
        return f"<Job {self.id}>"


class Claimer(Protocol):
    """Who holds a claimed job."""

    async def done(self, job: "ClaimedJob") -> bool:
        """Acknowledge; returns whether it was still held."""
        ...

    async def not_done(self, job: "ClaimedJob", verdict: Verdict, *, delay: float, reason: bytes) -> bool:
        """Give back, or set aside; returns whether it was still held."""
        ...


class ClaimedJob:
    """A job that this process has claimed and is to run.

    As a context manager it ends the job: leaving the body acknowledges it.  An exception in the body is logged,
    counted as a failed attempt, and *not* passed on, so that a consumer's loop goes on with the next job; the job is
    tried again after 1 s, 2 s, 4 s ..., and after its last attempt set aside with the reason.  A cancelled body gives
    the job back at once, and that is no attempt.

    If this worker is taken for dead, because it did not reach the server for the length of a heartbeat's lease, the
    body is cancelled, for the job may run elsewhere then.

    Attributes:
        id: Which job; the same at each attempt.
        name: Which task.
        args: Positional arguments, as they came out of JSON.
        kwargs: Named arguments.
        queue: Where it was claimed from.
        attempt: Which try this is, from 1; tries that ended with their worker count, too.
    """

    __slots__ = (
        "_body",
        "_claimer",
        "_failures",
        "_is_over",
        "_max_attempts",
        "args",
        "attempt",
        "id",
        "kwargs",
        "name",
        "queue",
    )

    def __init__(
        self, claimer: Claimer, job_id: str, envelope: Envelope, *, queue: str, attempt: int, failures: int
    ) -> None:
        self.id = job_id
        self.name = envelope.name
        self.args = cast("Sequence[JSON]", envelope.args)
        self.kwargs = cast("Mapping[str, JSON]", envelope.kwargs)
        self.queue = queue
        self.attempt = attempt
        self._max_attempts = envelope.max_attempts
        self._failures = failures
        self._claimer = claimer
        self._is_over = False
        self._body: Body | None = None

    def __repr__(self) -> str:
        return f"<ClaimedJob {self.id} {self.name!r} attempt {self.attempt}>"

    async def __aenter__(self) -> Self:
        if self._is_over:
            raise NotHeld("job", self.id)
        self._body = Body()
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        assert self._body is not None  # noqa: S101 - entered before
        was_stopped = self._body.end(error)
        self._body = None
        if isinstance(error, Exception):
            _log.error("%r failed", self, exc_info=error)
        try:
            if self._is_over:
                pass  # lost, or ended by hand in the body
            elif error is None:
                await self.ack()
            elif isinstance(error, Exception):
                await self._fail(error)
            else:
                await self._end("back")
        except InconcertError as unconfirmed:
            _log.warning("%r: its end was not confirmed, so it may run again: %s", self, unconfirmed)
        return was_stopped or isinstance(error, Exception)

    async def ack(self) -> None:
        """Say that the job is done. Once this has started, cancelling it changes nothing.

        Raises:
            NotHeld: It has ended before, or this worker was taken for dead.
            OutcomeUnknown: The server did not answer; the job may run again.

        Cost: 1 round trip, shared by all jobs that end in the same turn of the event loop.
        """
        self._end_once()
        if not await self._claimer.done(self):
            raise NotHeld("job", self.id)

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
        await self._end("dead", reason=_reason(error, self.attempt))

    def lose(self) -> None:
        """Take note that it is not ours any more, and stop the body."""
        self._is_over = True
        if self._body is not None:
            self._body.stop()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or was lost."""
        return self._is_over

    async def _fail(self, error: Exception | None, *, delay: float | None = None) -> None:
        failures = self._failures + 1
        if failures >= self._max_attempts:
            await self._end("dead", reason=_reason(error, self.attempt))
        else:
            await self._end("retry", delay=retry_delay(failures, random.random()) if delay is None else delay)

    async def _end(self, verdict: Verdict, *, delay: float = 0.0, reason: bytes = b"") -> None:
        self._end_once()
        if not await self._claimer.not_done(self, verdict, delay=delay, reason=reason):
            raise NotHeld("job", self.id)

    def _end_once(self) -> None:
        if self._is_over:
            raise NotHeld("job", self.id)
        self._is_over = True


def _reason(error: Exception | None, attempts: int) -> bytes:
    """Why a job is dead, for whoever looks at it later; as text, never as code."""
    lines = "".join(tracebacks.format_exception(error)) if error is not None else ""
    # Not str(error): that of a user's own class may fail.
    reason = tracebacks.format_exception_only(error)[-1].strip() if error is not None else "nacked"
    return encode(
        "the reason",
        {
            "reason": reason[:1000].encode(errors="replace").decode(),
            "traceback": lines[-_LONGEST_TRACEBACK:].encode(errors="replace").decode(),
            "attempts": attempts,
        },
    )
