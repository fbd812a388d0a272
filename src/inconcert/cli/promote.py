"""`inconcert promote`: let delayed jobs run now."""

from inconcert.cli.actions import Action, All, Ids, Left, Queue, Task, Yes, one_by_one
from inconcert.cli.server import Json, Namespace, Url
from inconcert.coordinator import Coordinator

_PROMOTE = Action("promote", "promoted", "delayed jobs", "They run now.")


def promote(
    ids: Ids = None,
    *,
    queue: Queue = None,
    task: Task = None,
    is_all: All = False,
    yes: Yes = False,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Let delayed jobs run now, also those that wait for their next attempt."""
    which = _PROMOTE.chosen(ids, is_all=is_all, queue=queue, task=task)

    async def act(concert: Coordinator) -> int | Left:
        tasks = concert.tasks
        if ids:
            return await one_by_one(ids, lambda job_id: tasks.job(job_id).reschedule(delay=0))
        return await tasks.promote_all(queue=queue, task=task)

    _PROMOTE.run(which, act, url=url, namespace=namespace, is_sure=yes, as_json=as_json)
