"""`inconcert doctor`: what is not as it should be, and what to do about it."""

import typer

from inconcert._redis.clients import Client
from inconcert._redis.examination import examine
from inconcert.cli.ends import FAILED
from inconcert.cli.findings import Seen, findings
from inconcert.cli.server import Json, Namespace, Url, ask
from inconcert.cli.tables import print_json, print_table
from inconcert.coordinator import Coordinator, session_ref_of

__all__ = ["doctor"]


def doctor(*, url: Url = None, namespace: Namespace = None, as_json: Json = False) -> None:
    """What is not as it should be, on the server and in the namespace; exit with 1 if there is something."""

    async def question(concert: Coordinator) -> Seen:
        return Seen(
            examination=await examine(_client_of(concert), session_ref_of(concert).keys),
            stats=await concert.tasks.stats(),
            workers=await concert.tasks.workers(),
        )

    seen = ask(url, namespace, question)
    found, unseen = findings(seen), seen.examination.unseen
    if as_json:
        print_json({"findings": found, "unseen": unseen})
    else:
        print_table(
            ("check", "thing", "what is so", "what to do"),
            ((one.check, one.thing, one.so, one.do) for one in found),
            empty="nothing was found",
        )
        for what in unseen:
            typer.echo(f"could not be seen: {what}")
    if found:
        raise typer.Exit(FAILED)


def _client_of(concert: Coordinator) -> Client:
    try:
        return concert.redis
    except TypeError:  # it is a cluster
        return concert.redis_cluster
