"""Work that lasts: durable steps, beside jobs without any, on a private server in one run.

    python -m benchmarks.work [--quick]

One process enqueues and runs the jobs; the server is another process.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence

from benchmarks import results
from benchmarks.figures import Table
from benchmarks.server import cpu_seconds, version
from inconcert import Coordinator, durable

ROUNDS = 5
STEPS = 100  # of each job
AT_ONCE = 100  # jobs


async def nothing(number: int) -> int:
    """A step that takes no time."""
    return number


async def plain(number: int) -> None:
    """A job without steps."""


async def in_steps(number: int) -> None:
    """A job with a hundred steps."""
    for step in range(STEPS):
        await durable.step(f"step {step}", nothing, number)


async def drain(concert: Coordinator, task: str, jobs: int) -> tuple[float, float, float]:
    """Seconds to run so many jobs: by the clock, of this process's processor, and of the server's."""
    for number in range(jobs):
        await concert.enqueue(task, [number], result_ttl=0)
    began_at, began_cpu, began_server = time.perf_counter(), time.process_time(), await cpu_seconds(concert)
    await concert.run_worker("default", concurrency=AT_ONCE, burst=True)
    seconds, cpu = time.perf_counter() - began_at, time.process_time() - began_cpu
    return seconds, cpu, await cpu_seconds(concert) - began_server


async def measure(*, quick: bool) -> Table:
    jobs, rounds = (2_000, 3) if quick else (10_000, ROUNDS)
    table = Table("per second", "us of a core", "of the server", width=30)
    async with Coordinator.embedded() as concert:
        table.versions["server"] = await version(concert.redis)
        concert.task(name="plain")(plain)
        concert.task(name="in steps")(in_steps)
        for title, task, count, each in (
            ("steps, 100 jobs at once", "in steps", jobs // STEPS, STEPS),
            ("steps, one after the other", "in steps", 1, STEPS),
            ("jobs without steps", "plain", jobs, 1),
        ):
            took = [await drain(concert, task, count) for _ in range(rounds)]
            seconds, cpu, server = (statistics.median(each_round) for each_round in zip(*took, strict=True))
            units = count * each
            table.row(title, units / seconds, cpu / units * 1e6, server / units * 1e6)
    return table


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer jobs")
    results.add_option(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = parse()
    results.save(options.json, "work", asyncio.run(measure(quick=options.quick)))
