"""The commands, their options, and the errors for wrong ones."""

import asyncio
import json
import logging
import os
import shlex
import sys
import time
from collections.abc import Coroutine
from dataclasses import asdict
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NoReturn

import anyio
import typer

from inconcert._redis.rights import Server, least_rights, sentinel_rights
from inconcert._rules import durations
from inconcert._version import __version__
from inconcert.cli.processes import CANNOT_START, Parent
from inconcert.cli.serving import serve
from inconcert.cli.target import BadTarget, load
from inconcert.coordinator import Coordinator
from inconcert.errors import InconcertError
from inconcert.tasks.options import DEFAULT_QUEUE
from inconcert.tasks.worker import DEFAULT_GRACE

__all__ = ["app"]

_log = logging.getLogger("inconcert.cli")

_LINE = "%(asctime)s %(levelname)s %(name)s[%(process)d]: %(message)s"
_FAILED = 1  # exit code: the command failed, and may succeed another time
_NOBODYS_QUEUE = "inconcert health"

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

Target = Annotated[
    str, typer.Argument(metavar="MODULE:ATTR", help="Location of the Coordinator, for example shop.app:concert.")
]


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - as typer calls it
    if wanted:
        typer.echo(f"inconcert {__version__}")
        raise typer.Exit


class LogLevel(StrEnum):
    """What `--log-level` takes."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


@app.callback()
def inconcert(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Coordination for asyncio services on Redis and Valkey."""


@app.command()
def worker(
    target: Target,
    *,
    queues: Annotated[str, typer.Option(help="Separated by commas, the most urgent first.")] = DEFAULT_QUEUE,
    weights: Annotated[
        str | None,
        typer.Option(help="One number per queue, such as 6,3,1, for each queue's share.", show_default="strict"),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="How many jobs may run at once in each process.")] = 100,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that running jobs have to end after SIGTERM or Ctrl-C.")
    ] = DEFAULT_GRACE,
    burst: Annotated[bool, typer.Option("--burst", help="End when the queues are empty.")] = False,
    processes: Annotated[int, typer.Option(min=1, help="How many worker processes.")] = 1,
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when a .py file here changes. For development.")
    ] = False,
    uvloop: Annotated[bool, typer.Option("--uvloop", help="Use uvloop's event loop.")] = False,
    log_level: Annotated[
        LogLevel | None,
        typer.Option(case_sensitive=False, help="The lowest level that is logged.", show_default="info"),
    ] = None,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run jobs until SIGTERM or Ctrl-C: running jobs then have the grace to end; a second signal stops them at once."""
    names = _names(queues)
    if reload and find_spec("watchfiles") is None:
        _refuse("--reload needs watchfiles; run  pip install 'inconcert[reload]'")
    if uvloop and find_spec("uvloop") is None:
        _refuse("--uvloop needs uvloop; run  pip install 'inconcert[uvloop]'")
    if parent is None and (processes > 1 or reload):
        options = [f"--queues={queues}", f"--concurrency={concurrency}", f"--grace={grace}"]
        options += [f"--weights={weights}"] if weights else []
        options += [f"--log-level={log_level}"] if log_level else []
        options += ["--burst"] * burst + ["--uvloop"] * uvloop
        command = [sys.executable, "-m", "inconcert", "worker", target, *options, "--parent"]
        _log_to_stderr(log_level)
        sys.exit(asyncio.run(Parent(command, processes, burst=burst, watch=Path.cwd() if reload else None).run()))
    concert = _load(target)
    _log_to_stderr(log_level)
    try:
        durations.in_seconds("grace", grace)
        shares = _shares(names, weights) if weights else None
        concert.consume(*names, weights=shares)
    except ValueError as error:
        _refuse(str(error))

    async def run_worker(stop: asyncio.Event) -> None:
        await concert.run_worker(*names, concurrency=concurrency, stop=stop, grace=grace, burst=burst, weights=shares)

    _run(serve(concert, run_worker, parent=parent), uvloop=uvloop)


@app.command()
def health(
    target: Target,
    *,
    queues: Annotated[
        str | None, typer.Option(help="Separated by commas: also report how much work these have.", show_default="none")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that the server may take to answer.")] = 5.0,
) -> None:
    """Exit with 0 if a worker could claim jobs now, otherwise with 1, and print the state as a line of JSON."""
    concert = _load(target)
    _log_to_stderr(None)
    names = _names(queues) if queues is not None else []
    try:
        concert.consume(_NOBODYS_QUEUE, *names)
    except ValueError as error:
        _refuse(str(error))
    logging.getLogger("inconcert").setLevel(logging.CRITICAL)  # the line of JSON has it
    started_at = time.monotonic()
    state: dict[str, object] = {"status": "ok"}
    try:
        state |= asyncio.run(_claim_nothing(concert, names, timeout))
    except ImportError as error:  # an extra is missing
        _refuse(str(error))
    except TimeoutError:
        state = {"status": "failed", "error": f"no answer in {timeout:g} s"}
    except InconcertError as error:
        state = {"status": "failed", "error": str(error)}
    typer.echo(json.dumps(state | {"seconds": round(time.monotonic() - started_at, 3)}))
    sys.exit(0 if state["status"] == "ok" else _FAILED)


@app.command()
def acl(
    *,
    namespace: Annotated[str, typer.Option(envvar="INCONCERT_NAMESPACE", help="The coordinator's.")] = "inconcert",
    user: Annotated[str | None, typer.Option(help="The user's name.", show_default="the namespace")] = None,
    server: Annotated[Server, typer.Option(help="What checks the rights: this version or later.")] = Server.REDIS_7,
    database: Annotated[
        int | None, typer.Option(min=0, help="The only one that the user may select: Valkey 9.1.", show_default="any")
    ] = None,
    cluster: Annotated[bool, typer.Option("--cluster", help="The server is a cluster.")] = False,
    failover_guard: Annotated[
        bool, typer.Option("--failover-guard", help="The coordinator has failover_guard=.")
    ] = False,
    replicas: Annotated[bool, typer.Option("--replicas", help="The coordinator has replicas=.")] = False,
    sentinel: Annotated[
        bool, typer.Option("--sentinel", help="Instead, the rights at a Sentinel, for its login.")
    ] = False,
) -> None:
    """Print the least rights of a user for one namespace, as a command for redis-cli; they leave its passwords."""
    try:
        rules = (
            sentinel_rights(server)
            if sentinel
            else least_rights(
                namespace,
                server=server,
                database=database,
                cluster=cluster,
                failover_guard=failover_guard,
                replicas=replicas,
            )
        )
    except ValueError as error:
        _refuse(str(error))
    typer.echo(shlex.join(["ACL", "SETUSER", user or namespace, "on", *rules]))


async def _claim_nothing(concert: Coordinator, queues: list[str], timeout: float) -> dict[str, object]:
    """Be a worker for a moment: send a heartbeat and a claim, which any worker needs. Returns the stats."""
    with anyio.fail_after(timeout):
        async with concert:
            async with concert.consume(_NOBODYS_QUEUE) as jobs:
                await jobs.try_claim(1)
            return asdict(await concert.tasks.stats(*queues)) if queues else {}


def _names(queues: str) -> list[str]:
    return [name.strip() for name in queues.split(",")]


def _shares(queues: list[str], weights: str) -> dict[str, int]:
    numbers = weights.split(",")
    if len(numbers) != len(queues) or not all(number.strip().isdecimal() for number in numbers):
        raise ValueError(f"weights are {weights!r}; give a whole number for each of the {len(queues)} queues")
    return dict(zip(queues, map(int, numbers), strict=True))


def _load(target: str) -> Coordinator:
    try:
        return load(target)
    except BadTarget as error:
        _refuse(str(error))


def _refuse(why: str) -> NoReturn:
    typer.echo(f"inconcert: {why}", err=True)
    sys.exit(CANNOT_START)


def _log_to_stderr(level: LogLevel | None) -> None:
    """Log to stderr. If the user's module has set up logging, only set a given level on inconcert's loggers."""
    logging.basicConfig(level=(level or LogLevel.INFO).upper(), format=_LINE)
    if level is not None:
        logging.getLogger("inconcert").setLevel(level.upper())


def _run(work: Coroutine[object, object, None], *, uvloop: bool) -> None:
    new_loop = import_module("uvloop").new_event_loop if uvloop else None
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            try:
                runner.run(work)
            except (SystemExit, KeyboardInterrupt) as error:  # raised by a job, in an asyncio task of its own
                _log.critical("a job ended this process with %r; this counts as a crash", error)
                logging.shutdown()
                os._exit(_FAILED)  # a requeued job does not count as crashed, so it would end one process after another
    except ImportError as error:  # an extra is missing
        _refuse(str(error))
    except InconcertError as error:
        typer.echo(f"inconcert: {error}", err=True)
        sys.exit(_FAILED)
