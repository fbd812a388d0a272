"""`inconcert history TASK`: how the last jobs of a task have ended."""

from typing import Annotated

import typer

from inconcert.cli.server import Json, Namespace, Url, ask
from inconcert.cli.tables import ago, call, print_json, print_table
from inconcert.tasks.records.history import EndedJob


def history(
    task: Annotated[str, typer.Argument(metavar="TASK", help="The name of the task.", show_default=False)],
    *,
    limit: Annotated[int, typer.Option(help="How many at most, 1 to 10,000.")] = 100,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """List how the last jobs of a task with history= have ended, the latest first."""
    found = ask(url, namespace, lambda concert: concert.tasks.history(task, limit=limit))
    if as_json:
        print_json(found)
        return
    print_table(
        ("job", "outcome", "attempts", "enqueued", "began", "ended", "call", "error"),
        (
            (
                job.job_id,
                str(job.outcome),
                job.attempts,
                ago(job.enqueued_at),
                ago(job.began_at),
                ago(job.ended_at),
                _call(job),
                job.error,
            )
            for job in found
        ),
        empty="no job in its history",
    )


def _call(job: EndedJob) -> str | None:
    if job.is_too_long:
        return "longer than 4 KiB"
    return None if job.args is None or job.kwargs is None else call(job.args, job.kwargs)
