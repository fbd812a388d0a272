"""`inconcert dead list`, `inconcert dead replay`, `inconcert dead purge`: jobs that were dead-lettered."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer

from inconcert._rules.limits import whole
from inconcert.cli.actions import Action, All, Ids, Left, Queue, Reason, Task, Yes, one_by_one
from inconcert.cli.server import Json, Namespace, Url, ask
from inconcert.cli.tables import ago, call, print_json, print_table
from inconcert.coordinator import Coordinator
from inconcert.tasks.operating.job_info import JobInfo
from inconcert.tasks.records.status import JobStatus

_REPLAY = Action("replay", "replayed", "dead letters", "They run again, as if they were new.")
_PURGE = Action("purge", "purged", "dead letters", "Their arguments are lost.")

app = typer.Typer(no_args_is_help=True, help="List, replay or purge jobs that were dead-lettered.")


@app.command("list")
def list_dead(
    *,
    queue: Queue = None,
    task: Task = None,
    reason: Reason = None,
    limit: Annotated[int, typer.Option(help="How many at most.")] = 100,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Jobs that were dead-lettered, the latest first."""

    async def question(concert: Coordinator) -> Sequence[JobInfo]:
        whole("limit", limit)
        found: list[JobInfo] = []
        after: str | None = None
        while True:
            page = await concert.tasks.jobs(state=JobStatus.FAILED, queue=queue, task=task, limit=1000, after=after)
            found += [job for job in page.jobs if reason is None or reason in job.error]
            after = page.after
            if after is None or len(found) >= limit:
                return found[:limit]

    jobs = ask(url, namespace, question)
    if as_json:
        print_json(jobs)
        return
    print_table(
        ("job", "task", "queue", "attempts", "died", "call", "reason"),
        (
            (job.id, job.task, job.queue, job.attempts, ago(job.died_at), call(job.args, job.kwargs), job.error)
            for job in jobs
        ),
        empty="no dead letter",
    )


@app.command()
def replay(
    ids: Ids = None,
    *,
    queue: Queue = None,
    task: Task = None,
    reason: Reason = None,
    is_all: All = False,
    dependants: Annotated[
        bool, typer.Option("--dependants", help="Also what was dead-lettered because of these jobs; it waits for them.")
    ] = False,
    yes: Yes = False,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Enqueue dead-lettered jobs again, as if they were new."""
    if dependants and not ids:
        raise typer.BadParameter("give the ids of the jobs whose dependants are to be replayed")
    which = _REPLAY.chosen(ids, is_all=is_all, queue=queue, task=task, reason=reason)

    async def act(concert: Coordinator) -> int | Left:
        if ids:
            return await one_by_one(ids, partial(concert.tasks.replay, dependants=dependants))
        return await concert.tasks.replay_all(queue=queue, task=task, reason=reason)

    _REPLAY.run(which, act, url=url, namespace=namespace, is_sure=yes, as_json=as_json)


@app.command()
def purge(
    ids: Ids = None,
    *,
    queue: Queue = None,
    task: Task = None,
    reason: Reason = None,
    older_than: Annotated[
        float | None, typer.Option(help="Only those dead for longer, in seconds.", show_default="all")
    ] = None,
    is_all: All = False,
    yes: Yes = False,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Drop dead-lettered jobs."""
    which = _PURGE.chosen(ids, is_all=is_all, queue=queue, task=task, reason=reason, older_than=older_than)

    async def act(concert: Coordinator) -> int | Left:
        tasks = concert.tasks
        if ids:
            return await one_by_one(ids, tasks.purge)
        return await tasks.purge_all(queue=queue, task=task, reason=reason, older_than=older_than or 0.0)

    _PURGE.run(which, act, url=url, namespace=namespace, is_sure=yes, as_json=as_json)
