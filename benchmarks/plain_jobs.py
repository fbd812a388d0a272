"""Plain jobs with this code, and with another checkout of it, in turns: what its other features cost jobs without them.

    git worktree add ../before SOME_COMMIT
    python -m benchmarks.plain_jobs ../before [--quick]

Without a folder it compares with itself, which says how far figures drift.

Each round is a process with a server of its own, which enqueues jobs that do nothing, and then runs them.
"""

import argparse
import asyncio
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Sequence
from itertools import chain
from pathlib import Path

from benchmarks import results
from benchmarks.figures import Table, ratio
from benchmarks.processes import ROOT, all_numbers, start
from benchmarks.server import cpu_seconds, version
from inconcert import Coordinator

AT_ONCE = 5_000  # enqueued
ROUNDS, JOBS = 15, 20_000
MEASURED = 3  # in each row: seconds by the clock, of a core here, and of the server's
COLUMNS = "us", "before", "ratio", "here, us", "before", "ratio", "server, us", "before", "ratio"


async def plain(number: int) -> None:
    """Do nothing."""


async def spent(concert: Coordinator, work: Awaitable[object]) -> list[float]:
    """Seconds that it takes, by the clock, of this process and of the server."""
    server, here, began_at = await cpu_seconds(concert), time.process_time(), time.perf_counter()
    await work
    took = [time.perf_counter() - began_at, time.process_time() - here]
    return [*took, await cpu_seconds(concert) - server]


async def enqueue(concert: Coordinator, jobs: int) -> None:
    task = concert.task(name=f"plain-{time.monotonic_ns()}", result_ttl=0)(plain)
    for start_at in range(0, jobs, AT_ONCE):
        await concert.enqueue_many([task.call(number) for number in range(start_at, start_at + AT_ONCE)])


async def one_round(jobs: int) -> None:
    """Print what was spent on enqueueing, and on running, in microseconds a job."""
    async with Coordinator.embedded() as concert:
        for is_warm in (False, True):
            took = await spent(concert, enqueue(concert, jobs))
            took += await spent(concert, concert.run_worker("default", concurrency=100, burst=True))
            if is_warm:
                print(*(seconds / jobs * 1e6 for seconds in took), sep="\n")


async def measure(before: Path, *, quick: bool) -> Table:
    rounds, jobs = (3, AT_ONCE) if quick else (ROUNDS, JOBS)
    took: dict[str, list[list[float]]] = defaultdict(list)
    trees = {"here": ROOT, "before": before}
    for number in range(rounds):
        for name in ("here", "before") if number % 2 else ("before", "here"):
            os.environ["PYTHONPATH"] = str(trees[name] / "src")
            took[name].append(await all_numbers(await start("plain_jobs", "--round", jobs)))
    table = Table(*COLUMNS, width=10)
    async with Coordinator.embedded() as concert:
        table.versions["server"] = await version(concert.redis)
    ours, others = (list(map(statistics.median, zip(*took[name], strict=True))) for name in trees)
    compared = [(us, was, ratio(us, was)) for us, was in zip(ours, others, strict=True)]
    table.row("enqueue", *chain.from_iterable(compared[:MEASURED]))
    table.row("run", *chain.from_iterable(compared[MEASURED:]))
    return table


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, nargs="?", default=ROOT, help="the other checkout; by default, this one")
    parser.add_argument("--quick", action="store_true", help="fewer jobs")
    parser.add_argument(
        "--round", type=int, metavar="JOBS", help="print one round with so many jobs, and compare nothing"
    )
    results.add_option(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = parse()
    if options.round:
        asyncio.run(one_round(options.round))
    else:
        results.save(options.json, "plain_jobs", asyncio.run(measure(options.before.resolve(), quick=options.quick)))
