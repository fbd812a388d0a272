"""`inconcert drain`: empty a queue."""

from typing import Annotated

import typer

from inconcert.cli.actions import Action, Yes
from inconcert.cli.server import Json, Namespace, Url

_DRAIN = Action("drain", "cancelled", "jobs", "Those that do not run yet are cancelled.")


def drain(
    queue: Annotated[str, typer.Argument(help="Which one.")],
    *,
    yes: Yes = False,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Cancel all jobs of a queue that do not run yet: those in it, delayed ones, and those that wait for others."""
    _DRAIN.run(
        f"queue {queue!r}",
        lambda concert: concert.tasks.drain(queue),
        url=url,
        namespace=namespace,
        is_sure=yes,
        as_json=as_json,
    )
