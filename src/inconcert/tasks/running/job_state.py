"""The engine's state of a claimed job, and its requests to its worker while the job runs."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from inconcert._claims.claimed import ClaimState, Ending, Verdict
from inconcert._claims.dead_letters import Reason
from inconcert._core.scope import Scope, enter
from inconcert._redis.protocol.commands import Argument
from inconcert._redis.protocol.scripts import Binder, Command
from inconcert._rules.payloads import encode
from inconcert.errors import InconcertError, InvalidPayload, NotClaimed
from inconcert.tasks.durable.body_exits import Asleep, Undoing, and_within, asleep, is_undoing
from inconcert.tasks.durable.doom import Doom
from inconcert.tasks.durable.steps import Steps
from inconcert.tasks.following.job import JobLink
from inconcert.tasks.following.messages import packed_name
from inconcert.tasks.records.arguments import encode_result
from inconcert.tasks.records.envelope import Envelope
from inconcert.tasks.records.group_ids import is_callback
from inconcert.tasks.records.history import history_note
from inconcert.tasks.records.limits import has_a_place, is_let_in
from inconcert.tasks.records.retry import RetryPolicy
from inconcert.tasks.records.store import (
    CANCELLED_TTL,
    NOTE_UNDO,
    PROGRESS,
)
from inconcert.tasks.running.claim_link import ClaimLink
from inconcert.tasks.running.step_store import JobStepStore
from inconcert.tasks.sending.draft import Draft, NewJob
from inconcert.tasks.sending.task import Task

if TYPE_CHECKING:  # it makes these
    from inconcert.tasks.running.worker_lease import JobWorkerLease

_log = logging.getLogger("inconcert.tasks")

AddItem = Callable[[object], Awaitable[None]]

_USUAL = RetryPolicy()
_A_MOMENT = 0.002  # seconds by which a job that expires comes back later, so that it has
_CANCELLED, _FAILED = b"cancelled ", b"failed "  # as outcomes begin
_NO_RESULT = b"succeeded null"
UNDO, UNDONE_NOW = b"u", b"v"  # flags of a job that has something to undo, and of one that is being undone
_HAS_FAILED = b"a"  # flag of a job of which attempts that failed are noted
_MOST_NOTED, _BYTES_NOTED = 20, 2_000  # how many of these, and about how many bytes of each


class JobState(ClaimState, eq=False):
    """The engine's state of a claimed job.

    Attributes:
        envelope: The call that it is.
        known: Its task, if that is registered in this process.
        enqueued_at: When it was enqueued, in seconds since 1970 by the server's clock.
        claimed_at: When it was claimed, by the same clock.
        started_at: When its body began, by the local monotonic clock; 0 before, and while nobody observes.
        expires_at: When it expires, by the same clock.
        result: Its result, to be kept when it is done.
        is_handed_out: Whether it was handed out; until then it is only claimed ahead.
        is_awaited: Whether the caller that leaves its body waits until the server has acknowledged its success.
        is_cancelled: Whether it was cancelled.
        is_undoing: Whether it ends without success, and is undone before.
        is_let_in: Whether it may have waited in a line from which `tasks/let_in` takes it.
        follow_ups: The jobs to be added when it succeeds.
        doomed: Why this attempt cannot end well, whatever its body does; None if it may.
        final: An error that makes the attempt that it ends the last: another one would end with it, too.
        has_undo: Whether it has something that is undone before it ends without success.
    """

    _kind = "job"
    if TYPE_CHECKING:
        _claimer: JobWorkerLease

    envelope: Envelope
    known: Task[Any, Any] | None
    enqueued_at: float
    claimed_at: float

    started_at: float = 0.0
    expires_at: float = math.inf
    result: object = None
    is_handed_out: bool = False
    is_awaited: bool = False
    is_cancelled: bool = False
    is_undoing: bool = False
    is_let_in: bool = False
    follow_ups: Sequence[NewJob] = ()
    doomed: Doom | None = None
    final: Exception | None = None
    has_undo: bool = False

    _scope: Scope | None = None  # of its body, while that runs
    _said: int = 0  # progress reports of this claim
    _outcomes: list[bytes] | None = None  # of those that it runs after, if they were read before
    _steps: Steps | None = None  # until one is asked for
    _finish_stream: Callable[[], Awaitable[None]] | None = None  # sends what it has yielded, if it streams
    _add_item: AddItem | None = None  # to its stream, once it has emitted one
    _stops_at: float = math.inf  # by the monotonic clock, when its body is to stop
    _asleep: Asleep | None = None  # once its body has left its place to come back later

    def has_more(self, flags: bytes) -> None:
        """Note what it has beside a call, by its envelope and these flags."""
        envelope = self.envelope
        self.unique = envelope.unique
        if envelope.limits:
            self.is_limited, self.is_let_in = has_a_place(envelope.limits), is_let_in(envelope.limits)
        if envelope.history:
            note = history_note(envelope.name, envelope.history, has_arguments=envelope.history_arguments)
            self.history = f"{round(self.enqueued_at * 1000)} {note}"
        self.is_plain = not (has_terms(self.id, envelope) or flags.strip(b"w"))
        self.is_undoing = UNDONE_NOW in flags
        self.has_undo = UNDO in flags or self.is_undoing
        self.has_failed = _HAS_FAILED in flags

    def __str__(self) -> str:
        return self.title()

    def title(self) -> str:
        """The job, as log lines name it, and its asyncio task."""
        return f"job {self.id} {_about(self.attempt, self.envelope.name, self.queue)}"

    def begin(self, job: object, task: "asyncio.Task[Any] | None" = None) -> None:
        """Begin the body of this job, which is cancelled when the job is lost or cancelled.

        Args:
            job: The job as users hold it; this one itself until `current_job` is asked for it.
            task: In which task it runs; None for the current one.
        """
        self.enter(task)
        if self.is_cancelled:  # while it waited to be run
            asyncio.get_running_loop().call_soon(self._stop_body)
        if self.observers:
            self.started_at = time.monotonic()
            self.observers.job_started(self)
        self._scope = enter(job)

    @property
    def task(self) -> str:
        """The name of its task."""
        return self.envelope.name

    @property
    def due_at(self) -> float | None:
        """The instant for which it was enqueued, in seconds since 1970; None if to run at once, or after others."""
        if self.envelope.scheduled_at is not None or not self.envelope.delay or self.is_dependent:
            return self.envelope.scheduled_at
        return self.enqueued_at + self.envelope.delay

    @property
    def is_dependent(self) -> bool:
        """True if it runs after others."""
        return bool(self.envelope.after) or is_callback(self.id)

    @property
    def was_begun(self) -> bool:
        """True if steps of it were kept before this run; known once its body has asked for one."""
        return self._steps is not None and self._steps.journal.some_were_kept

    @property
    def begins_anew(self) -> bool:
        """True if it was given back, and nothing of this run is kept: the next one is as if this had not been."""
        return self.outcome in ("back", "later") and not (self._steps is not None and self._steps.journal.bulk)

    @property
    def trace(self) -> str:
        """The trace context in which it was enqueued, as a W3C `traceparent`; empty for none."""
        return self.envelope.trace

    def end_in_body(self) -> None:
        """Stop a body that is doomed, or that of a job that is undone: how it ends was decided before."""
        if self._body is None or self.is_over:
            return
        if self.doomed is not None:
            raise self.doomed.again()
        if self.is_undoing:
            raise Undoing

    async def ack(self) -> None:
        """Acknowledge the job; see `ClaimedJob.ack`."""
        if self._finish_stream is not None:
            await self._finish_stream()
        await self._done(self._stored_result(), self.envelope.result_ttl)

    async def nack(self, delay: float) -> None:
        """Count a failed attempt; see `ClaimedJob.nack`."""
        if self._finish_stream is not None:
            await self._finish_stream()
        await self._fail_with(None, "retry", delay=delay)

    async def progress(self, fraction: float, text: str) -> None:
        """Report the job's progress; see `ClaimedJob.progress`."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"the progress of job {self.id} is {fraction!r}; give a number from 0 to 1")
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
            raise TypeError(f"the text of the progress of job {self.id} is {text!r}; give a string")
        self.is_plain = False
        how_far = encode(f"the progress of job {self.id}", [float(fraction), text])
        if self.is_over or not (self.is_settled or await self._progressed(how_far)):
            raise NotClaimed("job", self.id)

    async def emit(self, item: object, begin: Callable[["JobState"], AddItem]) -> None:
        """Add an item to the job's stream, which the first one begins; see `ClaimedJob.emit`."""
        if self._finish_stream is not None:
            raise RuntimeError(f"job {self.id} is an async generator, whose items are what it yields; use yield")
        if self.is_settled:
            raise RuntimeError(
                f"job {self.id} is delivered at most once, so it has ended already, and its stream with it; consume "
                "with delivery='at_least_once'"
            )
        if self.doomed is not None:
            raise self.doomed.again()
        if self.is_undoing:
            return  # its items were in the stream before
        if self._add_item is None:
            self._add_item = begin(self)
        await self._add_item(item)

    async def outcomes(self) -> list[bytes]:
        """The stored outcomes of the jobs that it runs after."""
        if self._outcomes is not None:
            return self._outcomes
        after = self.envelope.after
        return await self._claimer.outcomes(after) if after else []

    def enqueue_on_success(self, drafts: Sequence[Draft[Any]]) -> list[str]:
        """Add jobs when it succeeds; see `ClaimedJob.enqueue_on_success`."""
        if self.is_settled:
            raise RuntimeError(
                f"job {self.id} is delivered at most once, so it has ended already; enqueue in its body, or consume "
                "with delivery='at_least_once'"
            )
        if self.is_over:
            raise NotClaimed("job", self.id)
        jobs = self._claimer.draw_follow_ups(self, drafts)
        self.follow_ups = [*self.follow_ups, *jobs]
        self.is_plain = False
        return [job.id for job in jobs]

    @property
    def ends_alone(self) -> bool:
        """True if jobs follow it, which one script adds when it ends."""
        return bool(self.follow_ups) and self.outcome == "done"

    def stop_at(self, at: float) -> None:
        """Its body is to stop at this instant, by the monotonic clock, if it looks."""
        self._stops_at = at

    @property
    def must_stop(self) -> bool:
        """True if its body is to stop; may be asked from any thread."""
        is_late = time.monotonic() >= self._stops_at
        return self.is_cancelled or self.outcome == "lost" or is_late

    @property
    def steps(self) -> Steps:
        """Its durable steps.

        Raises:
            RuntimeError: It is delivered at most once, so there is no later attempt. Or it runs on another event loop.
        """
        if self._body is not None and not _may_wait_for(self._body.task):
            raise RuntimeError(
                f"job {self.id} runs on another event loop; from its thread a plain function calls "
                "`anyio.from_thread.run(durable.step, ...)`, not `asyncio.run()`"
            )
        if self._steps is None:
            if self.is_settled:
                raise RuntimeError(
                    f"job {self.id} is delivered at most once, and steps are for jobs that may run again; consume "
                    "with delivery='at_least_once'"
                )
            self.is_plain = False
            self._steps = Steps(JobStepStore(self), is_undoing=self.is_undoing)
        return self._steps

    @property
    def body_task(self) -> "asyncio.Task[Any] | None":
        """The task of its body; None if none runs."""
        return None if self._body is None else self._body.task

    @property
    def link(self) -> ClaimLink:
        """The way to the server for all that its body keeps while it runs."""
        return self._claimer.link

    @property
    def handles(self) -> JobLink:
        """Handles of jobs and groups reach the server through this."""
        return self._claimer.handles

    def before_its_end(self, finish: Callable[[], Awaitable[None]]) -> None:
        """Call this before its body itself ends it."""
        self._finish_stream = finish

    def on_its_claim(self, script: Binder, **arguments: Argument) -> Command:
        """A script that names its claim, and changes nothing if the job is not claimed by it any more."""
        keys, claimed = self.link.keys, self.link.claimed
        command: Command = script(keys, claimed=claimed, id=self.id, position=self.position, **arguments)
        return command

    async def ends_undone(self) -> bytes:
        """Note that it has something to undo; returns how it ends once that is undone, empty if it is not held."""
        command = self.on_its_claim(NOTE_UNDO)
        noted: bytes = await self.link.effects.keep(f"durable.undo() of {self}", command)
        return noted or b""

    async def leave_to_others(self, error: Exception) -> None:
        """Give it back for a worker that can run it; dead-letter it if none could for the grace of this one."""
        delay = await self._claimer.delay_for_others(self, error)
        if delay is None:
            await self.bury(error)
        else:
            await self._end("later", delay=delay)

    def doom(self, error: Exception) -> None:
        """Dead-letter the job with this error when the attempt ends, however it ends."""
        self.is_plain = False
        if self.doomed is None:
            self.doomed = Doom(error)

    @property
    def bulk(self) -> int:
        """Roughly how many bytes the server drops, or moves, with its steps and its attempts that failed."""
        noted = min(self.attempt, _MOST_NOTED) * _BYTES_NOTED if self.has_failed else 0
        return noted + (0 if self._steps is None else self._steps.journal.bulk)

    async def end_cancelled(self) -> None:
        """End it as cancelled, or undo it before."""
        _log.info("%s was cancelled", self, extra=self.fields())
        if self.has_undo:
            await self._end("undo", reason=_CANCELLED)
            return
        await self._done(_CANCELLED, CANCELLED_TTL, outcome="cancelled")

    def cancel_nowait(self) -> None:
        """The job was cancelled: stop the body, or end the job if it was not handed out."""
        if not self.is_over and not self.is_cancelled and not self.is_undoing:
            self.is_cancelled = True
            if self._body is not None:
                self._body.stop()
            elif not self.is_handed_out and not self.has_undo:
                self._end_once("cancelled")
                if not self.is_settled:
                    self._claimer.done(self, _CANCELLED, CANCELLED_TTL)

    def fields(self) -> dict[str, object]:
        """The extra fields of its log records."""
        return {"job_id": self.id, "attempt": self.attempt, "task": self.envelope.name, "queue": self.queue}

    # Private.

    async def _progressed(self, how_far: bytes) -> bool:
        """Report its progress; returns whether it was still held."""
        self._said += 1
        command = self.on_its_claim(PROGRESS, how_far=how_far, number=self._said)
        return bool(await self.link.session.run(command))

    def _leave_body(self, error: BaseException | None) -> bool:
        if self._scope is not None:
            self._scope.leave()
        if error is None and self._steps is None:
            return False
        self._asleep = asleep(error)
        if self._steps is not None and (error is None or self._asleep is not None):  # also if the body has caught it
            self._asleep = self._steps.leaving or self._asleep
        was_stopped = self._steps is not None and self._steps.end_body()
        if was_stopped and isinstance(error, asyncio.CancelledError):
            return True
        return self._asleep is not None or is_undoing(error)

    def _tell_end(self) -> None:
        self.observers.job_ended(self)

    def _tell_left(self, error: BaseException | None) -> None:
        self.observers.job_left(self, error if self._asleep is None else None)

    def _end_of_body(self, error: BaseException | None, *, was_stopped: bool) -> Ending | None:
        if error is None and self.is_plain and self._asleep is None and self.doomed is None:
            return self._succeed()
        if self.doomed is not None:
            return self.end_cancelled if self.is_cancelled else partial(self._end_doomed, self.doomed.error, error)
        if self.is_undoing and self._asleep is None and (error is None or isinstance(error, Exception)):
            return partial(self._end_undoing, error)
        if self.is_cancelled and error is not None and (was_stopped or isinstance(error, Exception)):
            return self.end_cancelled
        if self._asleep is not None:
            return self.end_cancelled if self.is_cancelled else partial(self._sleep, self._asleep)
        return super()._end_of_body(error, was_stopped=was_stopped)

    async def _end_doomed(self, why: Exception, error: BaseException | None) -> None:
        """Dead-letter it, or undo it before; its body has raised this error, or none."""
        has_said = _is_or_has(error, why)
        if not has_said:
            _log.error("%s is dead-lettered, although its body went on: %s", self, why, extra=self.fields())
        await self._fail_with(error if has_said else why, "retry", delay=None)

    async def _end_undoing(self, error: Exception | None) -> None:
        """End it as it would have ended at first, if everything is undone."""
        steps, failure = self.steps, error if _is_or_has(error, self.final) else self.steps.failure
        outcome = b""
        try:
            await steps.journal.read()
            outcome = await self.ends_undone()
        except InvalidPayload as unreadable:
            failure = unreadable
        except InconcertError:  # not known now: it is undone again, and what was kept is not
            await self.give_back()
            raise
        if failure is None and (steps.open_undos or steps.unasked):
            if steps.unasked:
                missed = f"to its step {steps.unasked[0]!r} again"
            else:
                missed = (
                    f"to the end of block {steps.open_undos[-1].name!r}; leave each in its task, the inner one first"
                )
            failure = RuntimeError(f"it was not undone: its body did not come {missed}")
            failure.__cause__ = error
        if failure is not None:
            await self._fail(failure)
            return
        _log.info("%s is undone", self, extra=self.fields())
        if outcome == _CANCELLED:
            await self._done(_CANCELLED, CANCELLED_TTL, outcome="cancelled")
        else:
            await self._end("undone", reason=outcome.removeprefix(_FAILED))

    async def _end(self, verdict: Verdict, *, delay: float = 0.0, reason: bytes = b"") -> None:
        verdict, reason = self._undone_before(verdict, reason)
        if delay and self.envelope.expires is not None and not self.is_undoing:
            delay = min(delay, max(0.0, self.expires_at - time.monotonic()) + _A_MOMENT)  # it expires in time
        if self._steps is not None and not self.is_over:
            self._steps.save_cursors_nowait()  # sent before the end, and so run before it
        await super()._end(verdict, delay=delay, reason=reason)

    def _why_failed(self, error: BaseException | None) -> bytes:
        return Reason.of(error, self.attempt).stored()

    def _undone_before(self, verdict: Verdict, reason: bytes) -> tuple[Verdict, bytes]:
        is_due = verdict == "dead" and self.has_undo and not self.is_undoing
        return ("undo", _FAILED + reason) if is_due else (verdict, reason)

    async def _sleep(self, asleep: Asleep) -> None:
        names = "".join(map(packed_name, sorted(asleep.awaited)))
        await self._end("asleep", delay=asleep.delay, reason=names.encode())

    async def _settle(self) -> bool:
        if self.envelope.after:
            self._outcomes = await self._claimer.outcomes(self.envelope.after)
        return await self._claimer.done(self, _NO_RESULT, self.envelope.result_ttl, is_run=False)

    def _succeed(self) -> Ending | None:
        try:
            outcome = _NO_RESULT if self.result is None else self._stored_result()
        except Exception as error:  # noqa: BLE001 - it has done its work: another attempt would repeat it
            return partial(self.bury, error)
        if self.is_awaited:
            return partial(self._done, outcome, self.envelope.result_ttl)
        self._end_once("done")
        if not self.is_settled:
            self._claimer.done_nowait(self, outcome, self.envelope.result_ttl)
        return None

    def _stored_result(self) -> bytes:
        if self.result is None:  # what most functions return
            return _NO_RESULT
        try:
            return b"succeeded " + encode_result(f"the result of job {self.id}", self.result)
        except InvalidPayload:
            if self.envelope.result_ttl:
                raise
            return b""  # it was not to be kept anyway

    async def _fail(self, error: BaseException | None) -> None:
        failures = self._failures + 1
        delay: float | None = 0.0
        if self.doomed is not None or _is_or_has(error, self.final):
            delay = None
        elif failures < self._max_attempts:
            try:
                delay = (_USUAL if self.known is None else self.known.retrying).delay(failures, error)
            except Exception:  # noqa: BLE001 - of the user's backoff
                _log.exception("%s: its backoff failed, so the usual one is taken", self, extra=self.fields())
                delay = _USUAL.delay(failures, None)
        await self._fail_with(error, "retry", delay=delay)


def has_terms(job_id: str, envelope: Envelope) -> bool:
    """True if a job has something by its envelope, or as a member of a group, that is for plugs."""
    return bool(envelope.unique or envelope.after or envelope.limits or envelope.history or "~" in job_id)


@lru_cache(maxsize=256)  # as it is in the name of the asyncio task of each job
def _about(attempt: int, task: str, queue: str) -> str:
    return f"attempt {attempt} (task {task!r}, queue {queue!r})"


def _may_wait_for(task: "asyncio.Task[Any]") -> bool:
    """True if a loop runs here that is that of the task, or none: then nothing is waited for here."""
    try:
        return asyncio.get_running_loop() is task.get_loop()
    except RuntimeError:
        return True


def _is_or_has(error: BaseException | None, sought: Exception | None) -> bool:
    """True if it is that error, or a group that has it."""
    return sought is not None and any(each is sought for each in and_within(error))
