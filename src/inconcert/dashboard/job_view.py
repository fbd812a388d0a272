"""What the pages show of single jobs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from inconcert.coordinator import Coordinator
from inconcert.dashboard.formats import as_json, shortened
from inconcert.dashboard.redaction import Redact
from inconcert.errors import JobCancelled, JobFailed, JobNotFound
from inconcert.tasks.admin import DeadJob
from inconcert.tasks.status import JobStatus

__all__ = ["DeadView", "JobView", "dead_jobs", "job_view"]

_AT_ONCE = 50  # on a page
_LONGEST = 400  # characters of a value in a list


@dataclass(frozen=True, slots=True)
class DeadView:
    """A dead-lettered job, redacted."""

    id: str
    task: str
    queue: str
    arguments: str
    reason: str
    attempts: int
    died_at: float


@dataclass(frozen=True, slots=True)
class JobView:
    """A job, redacted; what is not known of it is None."""

    id: str
    status: JobStatus
    fraction: float | None = None
    progress: str | None = None
    result: str | None = None
    error: str | None = None
    traceback: str | None = None
    attempts: int | None = None
    arguments: str | None = None

    @property
    def can_be_cancelled(self) -> bool:
        """Whether it has not ended."""
        return self.status in {JobStatus.QUEUED, JobStatus.WAITING, JobStatus.DELAYED, JobStatus.RUNNING}

    @property
    def can_be_rescheduled(self) -> bool:
        """Whether it is not in its queue yet."""
        return self.status in {JobStatus.WAITING, JobStatus.DELAYED}


async def dead_jobs(concert: Coordinator, redact: Redact, reason: str | None) -> dict[str, object]:
    """The latest dead-lettered jobs, and how often each reason is among them.

    Args:
        concert: The coordinator.
        redact: What to show instead of a text.
        reason: Only those with this reason, as it is shown; None for all.
    """
    found = [_dead_view(redact, job) for job in await concert.tasks.dead(limit=_AT_ONCE)]
    reasons: Sequence[tuple[str, int]] = Counter(job.reason for job in found).most_common()
    shown = [job for job in found if reason in (None, job.reason)]
    return {"jobs": shown, "reasons": reasons, "reason": reason, "looked_at": len(found)}


async def job_view(concert: Coordinator, redact: Redact, job_id: str) -> JobView:
    """A job, by its id.

    Raises:
        InvalidName: It is not a job id.
    """
    job = concert.tasks.job(job_id)
    status = await job.status()
    try:
        progress = await job.progress() if status is JobStatus.RUNNING else None
        result = await job.result(timeout=0) if status is JobStatus.SUCCEEDED else None
        if status is JobStatus.FAILED:
            await job.result(timeout=0)
    except JobFailed as error:
        return JobView(
            job.id,
            status,
            error=redact("error", shortened(error.reason)),
            traceback=redact("traceback", shortened(error.traceback)),
            attempts=error.attempts,
            arguments=await _arguments(concert, redact, job.id),
        )
    except (JobCancelled, JobNotFound, TimeoutError):  # it went on meanwhile
        return JobView(job.id, await job.status())
    return JobView(
        job.id,
        status,
        fraction=None if progress is None else progress.fraction,
        progress=None if progress is None else redact("progress", progress.text),
        result=redact("result", as_json(result)) if status is JobStatus.SUCCEEDED else None,
    )


async def _arguments(concert: Coordinator, redact: Redact, job_id: str) -> str | None:
    """Those of a dead-lettered job that is among the latest."""
    for dead in await concert.tasks.dead(limit=_AT_ONCE):
        if dead.id == job_id:
            return redact("arguments", as_json({"args": dead.args, "kwargs": dead.kwargs}))
    return None


def _dead_view(redact: Redact, job: DeadJob) -> DeadView:
    return DeadView(
        id=job.id,
        task=redact("task", job.name),
        queue=redact("queue", job.queue),
        arguments=shortened(redact("arguments", as_json({"args": job.args, "kwargs": job.kwargs})), _LONGEST),
        reason=shortened(redact("error", job.reason), _LONGEST),
        attempts=job.attempts,
        died_at=job.died_at,
    )
