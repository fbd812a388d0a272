"""The commands by which operators change jobs: their choice, the question before, and the count after."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from inconcert.cli.ends import fail, refuse
from inconcert.cli.output import say
from inconcert.cli.server import ask
from inconcert.cli.tables import print_json
from inconcert.coordinator import Coordinator
from inconcert.errors import JobNotFound

T = TypeVar("T")

_SLOW = 1.0  # seconds, after which a bar says that it goes on

Ids = Annotated[list[str] | None, typer.Argument(metavar="[JOB]...", help="These jobs; or choose by options.")]
All = Annotated[bool, typer.Option("--all", help="All of the namespace.")]
Queue = Annotated[str | None, typer.Option(help="Only of this queue.", show_default="all")]
Task = Annotated[str | None, typer.Option(help="Only of this task.", show_default="all")]
Reason = Annotated[str | None, typer.Option(help="Only with this text in their reason.", show_default="all")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask whether you are sure.")]


@dataclass(frozen=True, slots=True)
class Action:
    """An act of a command on jobs."""

    verb: str  # such as `purge`
    done: str  # such as `purged`
    things: str  # to what, such as `dead letters`
    so: str  # what follows from it, in a sentence

    def chosen(self, ids: Sequence[str] | None, *, is_all: bool, **options: object) -> str:
        """The jobs that were named, or that these options choose, in words; if there are none, the command ends."""
        given = {name.replace("_", "-"): value for name, value in options.items() if value is not None}
        if bool(ids) + is_all + bool(given) != 1:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in options)
            refuse(f"which {self.things}? Give their ids, or options of {names}, or --all")
        if ids:
            return f"{len(ids):,} {self.things}"
        return f"all {self.things}" + "".join(f", {name} {value!r}" for name, value in given.items())

    def run(
        self,
        which: str,
        act: Callable[[Coordinator], Awaitable["int | Left"]],
        *,
        url: str | None,
        namespace: str | None,
        is_sure: bool,
        as_json: bool,
    ) -> None:
        """Do it, if the operator is sure, and print to how many."""
        if not is_sure and not sys.stdin.isatty():
            refuse(f"nobody can be asked whether to {self.verb} {which}; give --yes")
        if not is_sure and not typer.confirm(f"{self.verb.capitalize()} {which}? {self.so}", err=True):
            fail("nothing was done")
        answer = ask(url, namespace, lambda concert: with_bar(self.verb, act(concert)))
        count, left = (answer, []) if isinstance(answer, int) else answer
        if as_json:
            print_json({self.done: count, "left": left})
        else:
            say(f"{self.done} {count:,} {self.things.removesuffix('s') if count == 1 else self.things}")
        if left:
            fail(f"it is too late for {', '.join(left)}, or they are not {self.things}")


class Left(NamedTuple):
    """The outcome for jobs that were named, one by one.

    Attributes:
        done: To how many.
        left: The ids of the others.
    """

    done: int
    left: list[str]


async def one_by_one(ids: Sequence[str], act: Callable[[str], Awaitable[object]]) -> Left:
    """Do it to each of these; to one that is not there, or for which `act` answers False, it was not done."""
    left: list[str] = []
    for job_id in ids:
        try:
            was_done = await act(job_id)
        except JobNotFound:
            was_done = False
        if was_done is False:
            left.append(job_id)
    return Left(len(ids) - len(left), left)


async def with_bar(verb: str, work: Awaitable[T]) -> T:
    """Await it; if that takes long, show on a terminal that it goes on."""
    bar = asyncio.create_task(_bar(verb))
    try:
        return await work
    finally:
        bar.cancel()
        await asyncio.wait([bar])


async def _bar(verb: str) -> None:
    await asyncio.sleep(_SLOW)
    console = Console(stderr=True)
    if console.is_terminal:
        columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
        with Progress(*columns, console=console, transient=True) as progress:
            progress.add_task(verb, total=None)
            await asyncio.Event().wait()
