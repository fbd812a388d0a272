"""`inconcert doctor`: faults in a namespace or its server, and their remedies."""

from dataclasses import replace

import typer

from inconcert._redis.operate.examination import Examination, examine
from inconcert.cli.ends import FAILED
from inconcert.cli.findings import Seen, findings
from inconcert.cli.output import say
from inconcert.cli.server import Json, Namespace, Url, ask_unopened
from inconcert.cli.tables import print_json, print_table
from inconcert.coordinator import Coordinator, fresh_source_of, session_ref_of
from inconcert.errors import OutcomeUnknown, Unavailable

_TIMEOUT = 5.0  # seconds to connect, and for each answer


def doctor(*, url: Url = None, namespace: Namespace = None, as_json: Json = False) -> None:
    """Check the server and the namespace for problems; exit with 1 if there is one."""
    seen = ask_unopened(url, namespace, _seen)
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
            say(f"could not be seen: {what}")
    if found:
        raise typer.Exit(FAILED)


async def _seen(concert: Coordinator) -> Seen:
    """The state to examine, also of a server that serves nobody, such as a cluster without all of its slots."""
    examination = await _examined(concert)
    try:
        async with concert:
            tasks = concert.tasks
            return Seen(examination, await tasks.stats(), await tasks.workers(), await tasks.stopped_keys())
    except (Unavailable, OutcomeUnknown) as error:
        seen = Seen(replace(examination, unseen=(*examination.unseen, f"jobs and workers: {error}")))
        if not findings(seen):
            raise
        return seen


async def _examined(concert: Coordinator) -> Examination:
    source = fresh_source_of(concert)
    try:
        return await examine(await source.open(timeout=_TIMEOUT), session_ref_of(concert).keys)
    finally:
        await source.close()
