"""What a dashboard changes: one permission each."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from starlette.exceptions import HTTPException

from inconcert.coordinator import Coordinator
from inconcert.dashboard.live import reference
from inconcert.dashboard.permissions import Permission
from inconcert.dashboard.poll import Poll
from inconcert.errors import InvalidName

__all__ = ["ACTIONS", "Act"]

Form: TypeAlias = Mapping[str, str]
Act: TypeAlias = Callable[[Coordinator, Poll, Form], Awaitable[tuple[str, str]]]
"""Does it; returns what it was done to, for the log, and the page that shows it."""


async def _pause(concert: Coordinator, poll: Poll, form: Form) -> tuple[str, str]:
    queue = await _queue(poll, form)
    await concert.tasks.pause(queue)
    return f"queue {queue!r}", "queues"


async def _resume(concert: Coordinator, poll: Poll, form: Form) -> tuple[str, str]:
    queue = await _queue(poll, form)
    await concert.tasks.resume(queue)
    return f"queue {queue!r}", "queues"


async def _cancel(concert: Coordinator, poll: Poll, form: Form) -> tuple[str, str]:
    del poll
    job = concert.tasks.job(_job_id(form))
    await job.cancel(timeout=0)
    return f"job {job.id}", f"jobs/{job.id}"


async def _reschedule(concert: Coordinator, poll: Poll, form: Form) -> tuple[str, str]:
    del poll
    job = concert.tasks.job(_job_id(form))
    try:
        is_due_then = await job.reschedule(delay=float(form.get("delay", "")))
    except ValueError:
        raise HTTPException(400, "The delay is not a number of seconds from 0 to 10 years.") from None
    if not is_due_then:
        raise HTTPException(409, f"Job {job.id} is too late to be rescheduled: it is in its queue, runs or has ended.")
    return f"job {job.id}", f"jobs/{job.id}"


async def _replay(concert: Coordinator, poll: Poll, form: Form) -> tuple[str, str]:
    del poll
    await concert.tasks.replay(_job_id(form))
    return f"job {_job_id(form)}", "dead"


async def _purge(concert: Coordinator, poll: Poll, form: Form) -> tuple[str, str]:
    del poll
    await concert.tasks.purge(_job_id(form))
    return f"job {_job_id(form)}", "dead"


async def _purge_all(concert: Coordinator, poll: Poll, form: Form) -> tuple[str, str]:
    del poll, form
    return f"{await concert.tasks.purge_all()} dead jobs", "dead"


ACTIONS: Mapping[Permission, Act] = {
    Permission.PAUSE: _pause,
    Permission.RESUME: _resume,
    Permission.CANCEL: _cancel,
    Permission.RESCHEDULE: _reschedule,
    Permission.REPLAY: _replay,
    Permission.PURGE: _purge,
    Permission.PURGE_ALL: _purge_all,
}


async def _queue(poll: Poll, form: Form) -> str:
    """The name of the queue that the form refers to."""
    for name in (await poll.latest()).stats.queues:
        if reference("q", name) == form.get("queue"):
            return name
    raise HTTPException(404, "There is no such queue any more.")


def _job_id(form: Form) -> str:
    if "job" not in form:
        raise InvalidName("the form names no job")
    return form["job"]
