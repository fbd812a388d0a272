"""`inconcert worker module:attr`: run jobs until a signal."""

import asyncio
import logging
import os
import random
import sys
from collections.abc import Coroutine, Generator
from contextlib import ExitStack, contextmanager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from inconcert._rules import durations
from inconcert._rules.defaults import DEFAULT_GRACE, DEFAULT_QUEUE, UNKNOWN_TASK_GRACE
from inconcert.cli.ends import FAILED, fail, refuse
from inconcert.cli.logs import Format, Level, log_to_stderr
from inconcert.cli.metrics import measured
from inconcert.cli.probes import answer_for_all
from inconcert.cli.processes import Parent
from inconcert.cli.serving import serve
from inconcert.cli.target import Target, address_in, load_or_refuse, names_in
from inconcert.coordinator import Coordinator
from inconcert.errors import InconcertError
from inconcert.tasks.running.health import WorkerHealth
from inconcert.tasks.running.health_server import HealthServer

_log = logging.getLogger("inconcert.cli")


def worker(
    target: Target,
    stray: Annotated[list[str] | None, typer.Argument(hidden=True, metavar="")] = None,
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
    max_jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="End after so many jobs; of several processes each is replaced, up to a tenth earlier, but not with"
            " --burst.",
            show_default=False,
        ),
    ] = None,
    unknown_task_grace: Annotated[
        float,
        typer.Option(
            min=0, help="Seconds for which jobs that this release cannot run are given back, before they are dead."
        ),
    ] = UNKNOWN_TASK_GRACE,
    processes: Annotated[int, typer.Option(min=1, help="How many worker processes.")] = 1,
    health: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Answer /livez and /readyz there.", show_default=False),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve metrics for Prometheus there; of several processes, each at the next port.",
            show_default=False,
        ),
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when a .py file here changes. For development.")
    ] = False,
    uvloop: Annotated[bool, typer.Option("--uvloop", help="Use uvloop's event loop.")] = False,
    log_level: Level = None,
    log_format: Format = None,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
    number: Annotated[int, typer.Option(hidden=True)] = 1,
) -> None:
    """Run jobs until SIGTERM or Ctrl-C: running jobs then have the grace to end; a second signal stops them at once."""
    if stray:
        refuse(f"{' '.join(stray)!r} is one argument too many; give queues as  --queues {','.join(stray)}")
    names = names_in(queues)
    probes = None if health is None else _address(health)
    if reload and find_spec("watchfiles") is None:
        refuse("--reload needs watchfiles; run  pip install 'inconcert[reload]'")
    if uvloop and find_spec("uvloop") is None:
        refuse("--uvloop needs uvloop; run  pip install 'inconcert[uvloop]'")
    if parent is None and (processes > 1 or reload):
        options = [f"--queues={queues}", f"--concurrency={concurrency}", f"--grace={grace}"]
        options += [f"--unknown-task-grace={unknown_task_grace}"]
        options += [f"--weights={weights}"] if weights else []
        options += [f"--log-level={log_level}"] if log_level else []
        options += [f"--log-format={log_format}"] if log_format else []
        options += [f"--metrics={metrics}"] if metrics else []
        options += [f"--max-jobs={max_jobs}"] if max_jobs else []
        options += ["--burst"] * burst + ["--uvloop"] * uvloop
        command = [sys.executable, "-m", "inconcert", "worker", target, *options]
        log_to_stderr(log_level, log_format)
        folder = Path.cwd() if reload else None
        with nullcontext() if probes is None else _listening(answer_for_all(*probes, processes)):
            of_children = None if probes is None else probes[1]
            keeper = Parent(
                command, processes, burst=burst, is_renewed=max_jobs is not None, watch=folder, port=of_children
            )
            sys.exit(asyncio.run(keeper.run()))
    concert = load_or_refuse(target, Coordinator)
    log_to_stderr(log_level, log_format)
    try:
        durations.in_seconds("grace", grace)
        durations.in_seconds("unknown_task_grace", unknown_task_grace)
        shares = _shares(names, weights) if weights else None
        concert.consume(*names, weights=shares)
    except ValueError as error:
        refuse(str(error))

    state = WorkerHealth()
    count = max_jobs
    if count is not None and parent is not None:
        count = of_one(count)

    async def run_worker(stop: asyncio.Event) -> None:
        await concert.run_worker(
            *names,
            concurrency=concurrency,
            stop=stop,
            grace=grace,
            burst=burst,
            max_jobs=count,
            weights=shares,
            health=state,
            unknown_task_grace=unknown_task_grace,
        )

    probed = nullcontext() if probes is None else _listening(state.serve(*probes))
    with probed, measured(concert, metrics, names, number):
        _run(serve(concert, run_worker, parent=parent), uvloop=uvloop)


def of_one(max_jobs: int) -> int:
    """The number of jobs for one of several processes: up to a tenth fewer, so that they do not all end together."""
    return max_jobs - random.randrange(max_jobs // 10 + 1)


def _address(health: str) -> tuple[str, int]:
    try:
        return address_in("--health", health)
    except ValueError as error:
        refuse(str(error))


@contextmanager
def _listening(server: HealthServer) -> Generator[None]:
    """Answer probes; if the port is taken, the command ends and says so."""
    with ExitStack() as stack:
        try:
            stack.enter_context(server)
        except OSError as error:
            fail(f"probes cannot be answered at {server.url}: {error.strerror or error}; give --health another port")
        yield


def _shares(queues: list[str], weights: str) -> dict[str, int]:
    numbers = weights.split(",")
    if len(numbers) != len(queues) or not all(number.strip().isdecimal() for number in numbers):
        raise ValueError(f"weights are {weights!r}; give a whole number for each of the {len(queues)} queues")
    return dict(zip(queues, map(int, numbers), strict=True))


def _run(work: Coroutine[object, object, None], *, uvloop: bool) -> None:
    new_loop = import_module("uvloop").new_event_loop if uvloop else None
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            try:
                runner.run(work)
            except (SystemExit, KeyboardInterrupt) as error:  # raised by a job, in an asyncio task of its own
                _log.critical("a job ended this process with %r; this counts as a crash", error)
                logging.shutdown()
                os._exit(FAILED)  # a requeued job does not count as crashed, so it would end one process after another
    except ImportError as error:  # an extra is missing
        refuse(str(error))
    except InconcertError as error:
        fail(str(error))
