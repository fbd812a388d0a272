"""The commands of `inconcert`: each is in a module of its name, which is imported when it is asked for."""

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from inconcert._version import __version__
from inconcert.cli.output import say

# In the order of help, with the first paragraph of each, so that help imports none of them.
_SUMMARIES = {
    "demo": "Watch it for 15 s: a killed worker, its job recovered, a lock handed over, a chat. Needs no server.",
    "worker": (
        "Run jobs until SIGTERM or Ctrl-C: running jobs then have the grace to end; a second signal stops them at once."
    ),
    "relay": "Hand over the rows of an outbox, beside a SQL database, until SIGTERM or Ctrl-C.",
    "health": "Exit with 0 if a worker could claim jobs now, otherwise with 1, and print the state as a line of JSON.",
    "ls": "List what all processes hold and wait for, as they answer it themselves.",
    "explain": (
        "Tell who holds a lock, permit or leadership and who waits, or why a job, queue or schedule does not go on."
    ),
    "top": "Queues, the longest waits and leases, and deadlocks, live; Ctrl-C ends it.",
    "release": "Release a lock, semaphore, rwlock or leadership by force; its holders are stopped, as by a lost lease.",
    "queues": "Show how much work the queues of tasks have.",
    "jobs": "The jobs that there are, a page at a time.",
    "history": "List how the last jobs of a task with history= have ended, the latest first.",
    "show": "All that is kept of a job: its call, its state, its steps, and how it ended; or the items of a queue.",
    "cancel": "Cancel jobs that wait or run, without waiting for the latter to stop.",
    "promote": "Let delayed jobs run now, also those that wait for their next attempt.",
    "drain": (
        "Cancel all jobs of a queue that do not run yet: those in it, delayed ones, and those that wait for others."
    ),
    "workers": "The workers of all processes: where they are, what they serve, and what they run.",
    "doctor": "Check the server and the namespace for problems; exit with 1 if there is one.",
    "dashboard": "Look at a namespace in a browser on this machine; it is read-only without --actions.",
    "bench": "Measure this machine and this server together: round trips, locks and jobs.",
    "acl": "Print the least rights of a user for one namespace, as a command for redis-cli; they leave its passwords.",
    "dead": "List, replay or purge jobs that were dead-lettered.",
    "schedules": "List, pause, resume, trigger or delete schedules.",
}


class _Commands(TyperGroup):
    """Each is the function of its module, or its `app` of several."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - of click's context each release has another type
        del ctx
        return [*_SUMMARIES]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - as above
        """Its line in a list."""
        del ctx
        return TyperCommand(cmd_name, help=_SUMMARIES[cmd_name]) if cmd_name in _SUMMARIES else None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:  # noqa: ANN401 - as above
        """The command that these arguments begin with, to be run, with those that are left."""
        name, _, left = super().resolve_command(ctx, args)
        return name, name and _imported(name), left


def _imported(name: str) -> object:
    module = import_module(f"inconcert.cli.{name}")
    made = getattr(module, "app", None)
    if made is None:
        made = typer.Typer(pretty_exceptions_enable=False)
        made.command(name)(getattr(module, name))
    command = typer.main.get_command(made)
    command.name = name
    return command


app = typer.Typer(cls=_Commands, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - as typer calls it
    if wanted:
        say(f"inconcert {__version__}")
        raise typer.Exit


@app.callback()
def inconcert(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Coordination for asyncio services on Redis and Valkey."""
