"""`inconcert queues`: how much work they have."""

from typing import Annotated

import typer

from inconcert.cli.output import say
from inconcert.cli.server import Json, Namespace, Url, ask
from inconcert.cli.tables import print_json, print_table, seconds


def queues(
    names: Annotated[list[str] | None, typer.Argument(metavar="[QUEUE]...", help="Only these; otherwise all.")] = None,
    *,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Show how much work the queues of tasks have."""
    stats = ask(url, namespace, lambda concert: concert.tasks.stats(*(names or ())))
    if as_json:
        print_json(stats)
        return
    print_table(
        ("queue", "ready", "delayed", "waiting", "running", "finished", "oldest", "paused", "consumers"),
        (
            (
                name,
                queue.ready,
                queue.delayed,
                queue.waiting,
                queue.running,
                queue.finished,
                seconds(queue.oldest_age),
                queue.is_paused,
                queue.consumers,
            )
            for name, queue in stats.queues.items()
        ),
        empty="no queue",
    )
    say(f"{stats.workers:,} workers, {stats.dead:,} dead letters")
    if stats.unserved:
        say(f"jobs wait, and nobody serves: {', '.join(stats.unserved)}")
