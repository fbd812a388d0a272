"""Jobs, as the pages show them."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from inconcert._rules.defaults import PRIORITY
from inconcert.coordinator import Coordinator
from inconcert.dashboard.formats import ahead, as_json, shortened
from inconcert.dashboard.job_parts import JobParts, job_parts
from inconcert.dashboard.live import reference
from inconcert.dashboard.poll import Poll
from inconcert.dashboard.redaction import Redact
from inconcert.dashboard.requests import LARGEST_EDITED
from inconcert.dashboard.rows import AT_ONCE
from inconcert.errors import JobCancelled, JobFailed, JobNotFound
from inconcert.tasks.operating.job_info import JobInfo
from inconcert.tasks.records.history import EndedJob
from inconcert.tasks.records.status import JobStatus

_MOST_ENDED = 20  # jobs of the history of a task
_LONGEST = 400  # characters of a value in a list


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in a list, redacted."""

    id: str
    task: str
    queue: str
    priority: int | None  # None for the usual one
    status: JobStatus
    due: str  # when it is due, if it is delayed
    arguments: str
    attempts: int
    error: str  # why it failed last, if it did
    reason_key: str  # stands for that in links
    enqueued_at: float
    died_at: float | None
    waiting: int | None = None  # how many of its key wait for it; None if it does not stop a key in strict order


@dataclass(frozen=True, slots=True)
class EndedRow:
    """A job in a list of those that have ended, redacted."""

    id: str
    task: str
    task_key: str  # stands for its task in links
    outcome: JobStatus
    arguments: str  # empty if they were not kept
    attempts: int
    took: float | None  # the seconds that its last attempt took; None if it had none
    ended_at: float
    error: str


@dataclass(frozen=True, slots=True)
class JobView:
    """A job, redacted; a fact that is not known is None."""

    id: str
    status: JobStatus
    parts: JobParts
    reasons: Sequence[str] = ()  # why it does not run, or where it does, if it has not ended
    task: str | None = None
    can_be_read: bool = True  # whether its stored form can be read, and is signed as `signing_keys` demand
    fraction: float | None = None
    progress: str | None = None
    result: str | None = None
    error: str | None = None
    traceback: str | None = None
    attempts: int | None = None
    headers: Sequence[str] = ()
    arguments: str | None = None
    # its positional arguments as JSON, if they are shown as they are, and short enough to be edited
    args: str | None = None
    kwargs: str | None = None  # its named arguments as JSON, under the same terms

    @property
    def can_be_cancelled(self) -> bool:
        """True if it has not ended."""
        return self.status in {JobStatus.QUEUED, JobStatus.WAITING, JobStatus.DELAYED, JobStatus.RUNNING}

    @property
    def can_be_rescheduled(self) -> bool:
        """True if it is not in its queue yet."""
        return self.status in {JobStatus.WAITING, JobStatus.DELAYED}


async def dead_jobs(concert: Coordinator, redact: Redact, reason: str | None) -> dict[str, object]:
    """The latest dead-lettered jobs, or those of the reason that this refers to, and how often each reason is there."""
    dead, stopped = await asyncio.gather(concert.tasks.dead(limit=AT_ONCE), concert.tasks.stopped_keys())
    waiting = {key.job_id: key.waiting for key in stopped}
    found = [_row(redact, job, waiting.get(job.id)) for job in dead]
    numbers = Counter(job.reason_key for job in found)
    texts = {job.reason_key: job.error for job in found}
    reasons = [(key, texts[key], number) for key, number in numbers.most_common()]
    shown = [job for job in found if reason in (None, job.reason_key)]
    return {"jobs": shown, "reasons": reasons, "reason": reason, "looked_at": len(found)}


async def job_rows(
    concert: Coordinator, redact: Redact, *, state: str | None, queue: str | None, task: str | None, after: str | None
) -> tuple[list[JobRow], str | None]:
    """A page of jobs, and where the next one begins; see `Tasks.jobs`."""
    page = await concert.tasks.jobs(state=state, queue=queue, task=task, limit=AT_ONCE, after=after)
    return [_row(redact, job) for job in page.jobs], page.after


async def ended_jobs(concert: Coordinator, redact: Redact, task: str) -> list[EndedRow]:
    """The latest jobs in the history of a task, if it has one; see `Tasks.history`."""
    return [_ended(redact, job) for job in await concert.tasks.history(task, limit=_MOST_ENDED)]


async def lately_ended(concert: Coordinator, redact: Redact, task: str | None = None) -> list[EndedRow]:
    """The jobs that ended last, of this task; None for all. See `Tasks.lately`."""
    found = [job for job in await concert.tasks.lately(limit=200) if task in (None, job.task)]
    return [_ended(redact, job) for job in found[:_MOST_ENDED]]


async def job_view(concert: Coordinator, poll: Poll, redact: Redact, job_id: str) -> JobView:
    """A job, by its id."""
    job = concert.tasks.job(job_id)
    status, known = await asyncio.gather(job.status(), concert.tasks.describe(job.id))
    described = known.get(job.id)
    view = JobView(job.id, status, await job_parts(concert, redact, job, described))
    if described is not None:
        view = _with_call(view, redact, described)
    if view.can_be_cancelled and view.can_be_read:
        reasons = await poll.reasons(job.id)
        shown = [redact("error" if one.code == "last_error" else "reason", one.text) for one in reasons]
        view = replace(view, reasons=shown)
    try:
        if view.can_be_cancelled and (progress := await job.progress()) is not None:
            return replace(view, fraction=progress.fraction, progress=redact("progress", progress.text))
        if status in {JobStatus.SUCCEEDED, JobStatus.FAILED}:
            return replace(view, result=redact("result", as_json(await job.result(timeout=0))))
    except JobFailed as error:
        return replace(
            view,
            error=redact("error", shortened(error.reason)),
            traceback=redact("traceback", shortened(error.traceback)),
            attempts=error.attempts,
        )
    except (JobCancelled, JobNotFound, TimeoutError):  # it went on meanwhile
        return replace(view, status=await job.status())
    return view


def _due(job: JobInfo) -> str:
    return "held back" if job.due_at is None else ahead(job.due_at)


def _kept_arguments(redact: Redact, job: EndedJob) -> str:
    if job.is_too_long:
        return "longer than 4 KiB, and not kept"
    if job.args is None:
        return ""
    return shortened(redact("arguments", as_json({"args": job.args, "kwargs": job.kwargs})), _LONGEST)


def _with_call(view: JobView, redact: Redact, job: JobInfo) -> JobView:
    """The same with its task and its arguments; those of a dead-lettered job to be edited, if they may be."""
    text = as_json({"args": job.args, "kwargs": job.kwargs})
    shown = redact("arguments", text)
    headers = [redact("header", f"{name}: {value}") for name, value in job.headers.items()]
    view = replace(view, task=redact("task", job.task), can_be_read=job.task != "?", headers=headers, arguments=shown)
    if job.status is not JobStatus.FAILED or not view.can_be_read or shown != text:
        return view
    args, kwargs = as_json(job.args, longest=LARGEST_EDITED), as_json(job.kwargs, longest=LARGEST_EDITED)
    return replace(view, args=args, kwargs=kwargs) if len((args + kwargs).encode()) <= LARGEST_EDITED else view


def _row(redact: Redact, job: JobInfo, waiting: int | None = None) -> JobRow:
    return JobRow(
        id=job.id,
        task=redact("task", job.task),
        queue=redact("queue", job.queue),
        priority=None if job.priority == PRIORITY else job.priority,
        status=job.status,
        due=_due(job) if job.status is JobStatus.DELAYED else "",
        arguments=shortened(redact("arguments", as_json({"args": job.args, "kwargs": job.kwargs})), _LONGEST),
        attempts=job.attempts,
        error=shortened(redact("error", job.error), _LONGEST) if job.error else "",
        reason_key=reference("r", job.error),
        enqueued_at=job.enqueued_at,
        died_at=job.died_at,
        waiting=waiting,
    )


def _ended(redact: Redact, job: EndedJob) -> EndedRow:
    return EndedRow(
        id=job.job_id,
        task=redact("task", job.task),
        task_key=reference("t", job.task),
        outcome=job.outcome,
        arguments=_kept_arguments(redact, job),
        attempts=job.attempts,
        took=None if job.began_at is None else job.ended_at - job.began_at,
        ended_at=job.ended_at,
        error=shortened(redact("error", job.error), _LONGEST) if job.error else "",
    )
