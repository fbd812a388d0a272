"""`inconcert release KIND:NAME`: release by force what another process holds."""

from typing import Annotated, cast

import typer

from inconcert.cli.actions import Action, Yes
from inconcert.cli.ends import refuse
from inconcert.cli.server import Json, Namespace, Url
from inconcert.coordinator import Coordinator
from inconcert.reports.force import Forcible

_RELEASE = Action("release", "released", "holders", "Each holder is stopped, and the next in line gets it.")


def release(
    thing: Annotated[str, typer.Argument(metavar="KIND:NAME", help="Such as lock:item:42 or election:scheduler.")],
    *,
    holder: Annotated[str | None, typer.Option(help="Only this holder.", show_default="all")] = None,
    yes: Yes = False,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Release a lock, semaphore, rwlock or leadership by force; its holders are stopped, as by a lost lease."""
    kind, colon, name = thing.partition(":")
    if not colon or not name:
        refuse(f"{thing!r} is not KIND:NAME; write such as {kind if colon and kind else 'lock'}:{name or 'item:42'}")

    async def act(concert: Coordinator) -> int:
        try:
            return len(await concert.release_by_force(cast("Forcible", kind), name, holder=holder))
        except ValueError as error:
            refuse(str(error))

    which = f"{kind} {name!r} by force" if holder is None else f"{kind} {name!r} by force from {holder}"
    _RELEASE.run(which, act, url=url, namespace=namespace, is_sure=yes, as_json=as_json)
