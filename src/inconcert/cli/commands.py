"""The commands of `inconcert`: each is in a module of its name, which is imported when it is asked for."""

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from inconcert._version import __version__
from inconcert.cli.output import say

__all__ = ["app"]

_NAMES = (
    *("demo", "worker", "health", "ls", "explain", "top", "release", "queues", "jobs", "history", "show", "cancel"),
    *("promote", "drain", "workers", "doctor", "dashboard", "bench", "acl", "dead", "schedules"),
)


class _Commands(TyperGroup):
    """In the order of help; each is the function of its module, or its `app` of several."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - of click's context each release has another type
        del ctx
        return [*_NAMES]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - as above
        del ctx
        if cmd_name not in _NAMES:
            return None
        module = import_module(f"inconcert.cli.{cmd_name}")
        made = getattr(module, "app", None)
        if made is None:
            made = typer.Typer(pretty_exceptions_enable=False)
            made.command(cmd_name)(getattr(module, cmd_name))
        command = typer.main.get_command(made)
        command.name = cmd_name
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
