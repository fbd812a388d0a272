"""Plain jobs with this code, and with another checkout of it, in turns: what its other features cost jobs without them.

    git worktree add ../before SOME_COMMIT
    python -m benchmarks.plain_jobs ../before [--quick]

Three processes, each with a server of its own, take turns at enqueueing jobs that do nothing, and then running them:
one with this code, and two with the other.  The two say how far figures drift that should be the same.  Once in a
while all three are started anew, because a process may be slower than another all its life.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Iterable, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks import results
from benchmarks.figures import Table, ratio
from benchmarks.processes import ROOT, next_line, start
from benchmarks.server import cpu_seconds, version
from inconcert import Coordinator, Task

AT_ONCE = 5_000  # jobs of a turn; enqueued at once
SETS, TURNS = 10, 20  # of three processes; of each of them
MEASURED = 3  # in each row: seconds by the clock, of a core here, and of the server's
COLUMNS = "us", "before", "ratio", "here, us", "before", "ratio", "server, us", "before", "ratio"

Took: TypeAlias = list[float]
"""Microseconds a job: by the clock, of this process and of the server for enqueueing, and then for running."""


async def plain(number: int) -> None:
    """Do nothing."""


async def spent(concert: Coordinator, work: Awaitable[object]) -> Took:
    """What each of the jobs takes of the clock, of this process and of the server."""
    server, here, began_at = await cpu_seconds(concert), time.process_time(), time.perf_counter()
    await work
    took = [time.perf_counter() - began_at, time.process_time() - here]
    return [seconds / AT_ONCE * 1e6 for seconds in (*took, await cpu_seconds(concert) - server)]


async def enqueue(concert: Coordinator, task: Task[[int], Any]) -> None:
    await concert.enqueue_many([task.call(number) for number in range(AT_ONCE)])


async def take_turns() -> None:
    """For each line that comes in, enqueue jobs and run them, and print what that took."""
    async with Coordinator.embedded() as concert:
        task = concert.task(name="plain", result_ttl=0)(plain)
        while await asyncio.to_thread(sys.stdin.readline):
            took = await spent(concert, enqueue(concert, task))
            took += await spent(concert, concert.run_worker("default", concurrency=100, burst=True))
            print(*took, flush=True)


async def one_set(trees: Iterable[Path], turns: int) -> list[list[Took]]:
    """What each turn took of a process for each checkout; the first turn warms them up."""
    children: list[asyncio.subprocess.Process] = []
    for tree in trees:
        os.environ["PYTHONPATH"] = str(tree / "src")
        children.append(await start("plain_jobs", "--take-turns"))
    took: list[list[Took]] = [[] for _ in children]
    for turn in range(turns + 1):
        numbers = range(len(children))
        for number in numbers if turn % 2 else reversed(numbers):
            stdin = children[number].stdin
            assert stdin is not None
            stdin.write(b"\n")
            took[number].append([float(figure) for figure in (await next_line(children[number])).split()])
    for child in children:
        await child.communicate(b"")  # which ends its input
    return [of[1:] for of in took]


def compared(ours: Sequence[Took], others: Sequence[Took]) -> list[list[float]]:
    """For each figure: the medians of both, and that of the ratios of turns that followed each other."""
    return [
        [statistics.median(one), statistics.median(other), statistics.median(map(ratio, one, other))]
        for one, other in zip(zip(*ours, strict=True), zip(*others, strict=True), strict=True)
    ]


async def measure(before: Path, *, quick: bool) -> Table:
    sets, turns = (1, 5) if quick else (SETS, TURNS)
    all_sets = [await one_set([ROOT, before, before], turns) for _ in range(sets)]
    table = Table(*COLUMNS, width=24)
    async with Coordinator.embedded() as concert:
        table.versions["server"] = await version(concert.redis)
    took = [list(chain.from_iterable(of)) for of in zip(*all_sets, strict=True)]
    for title, (ours, others) in zip(("", ", before twice"), pairwise(took), strict=True):
        figures = compared(ours, others)
        table.row(f"enqueue{title}", *chain.from_iterable(figures[:MEASURED]))
        table.row(f"run{title}", *chain.from_iterable(figures[MEASURED:]))
    return table


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, nargs="?", default=ROOT, help="the other checkout; by default, this one")
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    parser.add_argument("--take-turns", action="store_true", help="take a turn for each line of input; compare nothing")
    results.add_option(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = parse()
    if options.take_turns:
        asyncio.run(take_turns())
    else:
        results.save(options.json, "plain_jobs", asyncio.run(measure(options.before.resolve(), quick=options.quick)))
