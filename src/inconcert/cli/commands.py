"""The commands of `inconcert`: each is in a module of its name."""

from typing import Annotated

import typer

from inconcert._version import __version__
from inconcert.cli.acl import acl
from inconcert.cli.bench import bench
from inconcert.cli.cancel import cancel
from inconcert.cli.dashboard import dashboard
from inconcert.cli.dead import app as dead
from inconcert.cli.demo import demo
from inconcert.cli.doctor import doctor
from inconcert.cli.drain import drain
from inconcert.cli.explain import explain
from inconcert.cli.health import health
from inconcert.cli.history import history
from inconcert.cli.jobs import jobs
from inconcert.cli.ls import ls
from inconcert.cli.output import say
from inconcert.cli.promote import promote
from inconcert.cli.queues import queues
from inconcert.cli.release import release
from inconcert.cli.schedules import app as schedules
from inconcert.cli.show import show
from inconcert.cli.top import top
from inconcert.cli.worker import worker
from inconcert.cli.workers import workers

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
for command in (
    demo,
    worker,
    health,
    ls,
    explain,
    top,
    release,
    queues,
    jobs,
    history,
    show,
    cancel,
    promote,
    drain,
    workers,
    doctor,
    dashboard,
    bench,
    acl,
):
    app.command()(command)
app.add_typer(dead, name="dead")
app.add_typer(schedules, name="schedules")


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
