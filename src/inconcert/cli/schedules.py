"""`inconcert schedules list`, `pause`, `resume`, `trigger`, `delete`: schedules that operators change."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from inconcert.cli.actions import Action, Yes
from inconcert.cli.output import say
from inconcert.cli.server import Json, Namespace, Url, ask
from inconcert.cli.tables import call, print_json, print_table
from inconcert.coordinator import Coordinator

_DELETE = Action("delete", "deleted", "schedules", "It enqueues nothing more; jobs that it has enqueued stay.")

Id = Annotated[str, typer.Argument(metavar="ID", help="Which schedule, as `inconcert schedules list` shows it.")]

app = typer.Typer(no_args_is_help=True, help="List, pause, resume, trigger or delete schedules.")


@app.command("list")
def list_schedules(*, url: Url = None, namespace: Namespace = None, as_json: Json = False) -> None:
    """All schedules, with the last instant and the next, in UTC."""
    schedules = ask(url, namespace, lambda concert: concert.schedules.list())
    if as_json:
        print_json(schedules)
        return
    print_table(
        ("schedule", "rule", "task", "queue", "call", "missed", "overlap", "last", "next"),
        (
            (
                schedule.id,
                schedule.rule,
                schedule.task,
                schedule.queue,
                call(schedule.args, schedule.kwargs),
                schedule.missed,
                schedule.overlap,
                _when(schedule.last_at),
                schedule.problem or ("paused" if schedule.is_paused else _when(schedule.next_at)),
            )
            for schedule in schedules
        ),
        empty="no schedule",
    )


@app.command()
def pause(id_: Id, *, url: Url = None, namespace: Namespace = None, as_json: Json = False) -> None:
    """Let a schedule enqueue nothing until it is resumed."""
    was_changed = ask(url, namespace, lambda concert: concert.schedules.pause(id_))
    if as_json:
        print_json({"paused": was_changed})
    else:
        say(f"paused {id_}" if was_changed else f"{id_} was paused before")


@app.command()
def resume(id_: Id, *, url: Url = None, namespace: Namespace = None, as_json: Json = False) -> None:
    """Let a paused schedule go on with its next instant."""
    was_changed = ask(url, namespace, lambda concert: concert.schedules.resume(id_))
    if as_json:
        print_json({"resumed": was_changed})
    else:
        say(f"resumed {id_}" if was_changed else f"{id_} was not paused")


@app.command()
def trigger(id_: Id, *, url: Url = None, namespace: Namespace = None, as_json: Json = False) -> None:
    """Enqueue the job of a schedule now, once, also if it is paused."""
    job = ask(url, namespace, lambda concert: concert.schedules.trigger(id_))
    if as_json:
        print_json({"job": job.id})
    else:
        say(f"enqueued job {job.id}")


@app.command()
def delete(id_: Id, *, yes: Yes = False, url: Url = None, namespace: Namespace = None, as_json: Json = False) -> None:
    """Remove a schedule."""

    async def act(concert: Coordinator) -> int:
        await concert.schedules.delete(id_)
        return 1

    _DELETE.run(f"schedule {id_}", act, url=url, namespace=namespace, is_sure=yes, as_json=as_json)


def _when(moment: float | None) -> str | None:
    """An instant in UTC, by the clocks of people."""
    return None if moment is None else f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S}"
