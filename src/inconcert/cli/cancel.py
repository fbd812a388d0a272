"""`inconcert cancel`: cancel jobs that wait or run."""

from typing import Annotated

import typer

from inconcert._rules.payloads import JSON
from inconcert.cli.actions import Action, All, Ids, Left, Queue, Task, Yes, one_by_one
from inconcert.cli.server import Json, Namespace, Url
from inconcert.coordinator import Coordinator
from inconcert.tasks.following.job import Job
from inconcert.tasks.records.status import JobStatus

_CANCEL = Action("cancel", "cancelled", "jobs", "They will not run, and those that run are stopped.")
_LIVE = (JobStatus.WAITING, JobStatus.DELAYED, JobStatus.QUEUED, JobStatus.RUNNING)


def cancel(
    ids: Ids = None,
    *,
    state: Annotated[
        str | None, typer.Option(help="Only waiting, delayed, queued or running ones.", show_default="all")
    ] = None,
    queue: Queue = None,
    task: Task = None,
    is_all: All = False,
    yes: Yes = False,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Cancel jobs that wait or run, without waiting for the latter to stop."""
    which = _CANCEL.chosen(ids, is_all=is_all, state=state, queue=queue, task=task)

    async def act(concert: Coordinator) -> int | Left:
        tasks = concert.tasks
        if ids:
            return await one_by_one(ids, lambda job_id: _cancelled(tasks.job(job_id)))
        return await tasks.cancel_all(state=state, queue=queue, task=task)

    _CANCEL.run(which, act, url=url, namespace=namespace, is_sure=yes, as_json=as_json)


async def _cancelled(job: Job[JSON]) -> bool:
    if await job.status() not in _LIVE:
        return False
    await job.cancel(timeout=0)
    return True
