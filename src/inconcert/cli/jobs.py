"""`inconcert jobs`: the jobs that there are, a page at a time."""

from typing import Annotated

import typer

from inconcert.cli.output import say
from inconcert.cli.server import Json, Namespace, Url, ask
from inconcert.cli.tables import ago, call, print_json, print_table


def jobs(
    *,
    state: Annotated[
        str | None, typer.Option(help="waiting, delayed, queued, running or failed.", show_default="all")
    ] = None,
    queue: Annotated[str | None, typer.Option(help="Only of this queue.", show_default="all")] = None,
    task: Annotated[str | None, typer.Option(help="Only of this task.", show_default="all")] = None,
    limit: Annotated[int, typer.Option(help="How many at most, 1 to 1,000.")] = 100,
    after: Annotated[str | None, typer.Option(help="Where the page before ended.", show_default=False)] = None,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """The jobs that there are, a page at a time."""
    page = ask(
        url,
        namespace,
        lambda concert: concert.tasks.jobs(state=state, queue=queue, task=task, limit=limit, after=after),
    )
    if as_json:
        print_json(page)
        return
    print_table(
        ("job", "task", "queue", "priority", "state", "attempts", "enqueued", "call", "error"),
        (
            (
                job.id,
                job.task,
                job.queue,
                job.priority,
                str(job.status),
                job.attempts,
                ago(job.enqueued_at),
                call(job.args, job.kwargs),
                job.error,
            )
            for job in page.jobs
        ),
        empty="no job on this page",
    )
    if page.after is not None:
        say(f"more with --after {page.after}")
