"""`inconcert history TASK`: how the last jobs of a task have ended."""

from typing import Annotated

import typer

from inconcert.cli.server import Json, Namespace, Url, ask
from inconcert.cli.tables import ago, print_json, print_table


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
        ("job", "outcome", "attempts", "enqueued", "began", "ended", "error"),
        (
            (
                job.job_id,
                str(job.outcome),
                job.attempts,
                ago(job.enqueued_at),
                ago(job.began_at),
                ago(job.ended_at),
                job.error,
            )
            for job in found
        ),
        empty="no job in its history",
    )
