"""`inconcert explain KIND:NAME`: who holds it and who waits for it, or why a job or schedule does not run."""

from typing import Annotated

import typer

from inconcert.cli.output import console, styled
from inconcert.cli.server import Json, Namespace, Url, ask
from inconcert.cli.tables import print_json


def explain(
    thing: Annotated[
        str,
        typer.Argument(
            metavar="KIND:NAME",
            help="Such as lock:item:42, job:ID, queue:mail, items:photos, members:crawlers or schedule:nightly.",
            show_default=False,
        ),
    ],
    *,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Tell who holds a lock, permit or leadership and who waits, or why a job, queue or schedule does not go on."""
    found = ask(url, namespace, lambda concert: concert.explain(thing))
    if as_json:
        print_json(found)
        return
    title, *lines = str(found).split("\n")
    console().print(styled(title, "bold"), *map(styled, lines), sep="\n", soft_wrap=True)
