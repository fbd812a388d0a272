"""Work that lasts: durable steps and streams, beside jobs without any, on a private server in one run.

    python -m benchmarks.work [--quick]

One process enqueues and runs the jobs; the server is another process.
"""

import argparse
import asyncio
import math
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from benchmarks import results
from benchmarks.figures import Table
from benchmarks.server import cpu_seconds, version
from inconcert import Coordinator, Job, StreamItem, durable

ROUNDS = 5
STEPS = 100  # of each job
AT_ONCE = 100  # jobs
VIEWERS = 1_000  # of one stream, in one process
SEEN = 50  # items of the stream that all of them follow


async def nothing(number: int) -> int:
    """A step that takes no time."""
    return number


async def plain(number: int) -> None:
    """A job without steps."""


async def in_steps(number: int) -> None:
    """A job with a hundred steps."""
    for step in range(STEPS):
        await durable.step(f"step {step}", nothing, number)


async def items(count: int, pause: float) -> AsyncIterator[int]:
    """A job that streams."""
    for number in range(count):
        yield number
        if pause:
            await asyncio.sleep(pause)


async def follow(job: Job[Any]) -> tuple[int, float]:
    """Follow a job to its end: how many items came, and when the first did."""
    count, first_at = 0, 0.0
    async for item in job.stream():
        count += isinstance(item, StreamItem)
        first_at = first_at or time.perf_counter()
    return count, first_at


async def stream(concert: Coordinator, count: int, pause: float, viewers: int) -> tuple[float, float, float]:
    """Seconds until all viewers of one job have all its items; of this process's processor, and of the server's."""
    began_at, began_cpu, began_server = time.perf_counter(), time.process_time(), await cpu_seconds(concert)
    job = await concert.enqueue("items", [count, pause])
    seen = await asyncio.gather(*(follow(job) for _ in range(viewers)))
    assert {number for number, _ in seen} == {count}
    seconds, cpu = time.perf_counter() - began_at, time.process_time() - began_cpu
    return seconds, cpu, await cpu_seconds(concert) - began_server


async def first_item(concert: Coordinator) -> float:
    """Seconds from enqueueing a job until its first item is there."""
    began_at = time.perf_counter()
    _, first_at = await follow(await concert.enqueue("items", [1, 0.0]))
    return first_at - began_at


async def measure_streams(concert: Coordinator, table: Table, *, count: int, rounds: int) -> None:
    """Add the rows of streams to the table."""
    concert.task(name="items")(items)
    working = asyncio.create_task(concert.run_worker("default", concurrency=AT_ONCE))
    for title, each, pause, viewers in (
        ("stream items, one follower", count, 0.0, 1),
        (f"stream items, {VIEWERS:,} followers", SEEN, 0.01, VIEWERS),
    ):
        took = [await stream(concert, each, pause, viewers) for _ in range(rounds)]
        seconds, cpu, server = (statistics.median(each_round) for each_round in zip(*took, strict=True))
        units = each * viewers
        table.row(title, units / seconds, cpu / units * 1e6, server / units * 1e6)
    firsts = sorted([await first_item(concert) for _ in range(200)])
    table.row("first items, one after the other", 1 / statistics.median(firsts), math.nan, math.nan)
    working.cancel()
    await asyncio.wait([working])


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
        await measure_streams(concert, table, count=jobs * 5, rounds=rounds)
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
