"""A fleet of workers and what it shares, on a private server: schedules that operators change.

    python -m benchmarks.fleet [--quick]

All workers are in one process, each with a coordinator of its own; the server is another process.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta

from benchmarks import results
from benchmarks.figures import Table
from benchmarks.server import info, version
from inconcert import Coordinator, current_job

WORKERS = 20
SCHEDULES = 1_000
EVERY = 10  # seconds; all schedules have the same instants
INSTANTS = 3
CHANGES = 100
SOON = timedelta(seconds=-1)  # of a schedule that is due as soon as it is put

started: asyncio.Queue[tuple[str, float, float]] = asyncio.Queue()  # text, instant, and when its job was enqueued


async def begin(text: str) -> None:
    """A job that says that it has begun."""
    job = current_job()
    await started.put((text, job.scheduled_at or 0.0, job.enqueued_at))


@asynccontextmanager
async def fleet(url: str, count: int) -> AsyncGenerator[None]:
    """So many workers."""
    async with AsyncExitStack() as stack:
        working: list[asyncio.Task[None]] = []
        for _ in range(count):
            concert = await stack.enter_async_context(Coordinator(url))
            concert.task(name="begin")(begin)
            working.append(asyncio.create_task(concert.run_worker("default", concurrency=50)))
        try:
            yield
        finally:
            for task in working:
                task.cancel()
            await asyncio.wait(working)


async def scripts(concert: Coordinator) -> int:
    """How many scripts the server has run."""
    calls = (await info(concert.redis, "commandstats"))["cmdstat_evalsha"]["calls"]
    return int(calls)


async def begun(text: str) -> None:
    """Wait for the job with this text."""
    while (await started.get())[0] != text:
        pass


async def measure_schedules(concert: Coordinator, table: Table, *, schedules: int, changes: int) -> None:
    """Add the rows of schedules to the table, in milliseconds."""
    task = concert.task(name="begin")(begin)
    await asyncio.gather(
        *(concert.schedules.put(f"s{number}", task.call("of many"), every=EVERY) for number in range(schedules))
    )
    late: list[float] = []
    before = await scripts(concert)
    while len(late) < schedules * INSTANTS:
        _, scheduled_at, enqueued_at = await started.get()
        late.append((enqueued_at - scheduled_at) * 1000)
    ran = await scripts(concert) - before
    table.row(f"an instant of {schedules:,} schedules is late by", statistics.median(late), max(late))
    table.row("scripts for each of its jobs, claims included", ran / len(late), ran / len(late))
    took: list[float] = []
    for number in range(changes):
        began_at = time.perf_counter()
        await concert.schedules.put("changed", task.call(f"{number}"), at=datetime.now(UTC) + SOON)
        await begun(f"{number}")
        took.append((time.perf_counter() - began_at) * 1000)
    table.row("a change is put, until its job runs", statistics.median(took), max(took))
    took.clear()
    await concert.schedules.put("changed", task.call("again"), every=0.1)
    for _ in range(changes):
        await concert.schedules.pause("changed")
        while not started.empty():
            started.get_nowait()
        began_at = time.perf_counter()
        await concert.schedules.resume("changed")
        await begun("again")
        took.append((time.perf_counter() - began_at) * 1000)
    table.row("one of 0.1 s is resumed, until its job runs", statistics.median(took), max(took))


async def measure(*, quick: bool) -> Table:
    schedules, changes = (100, 20) if quick else (SCHEDULES, CHANGES)
    table = Table("median", "most", width=50)
    async with Coordinator.embedded() as concert:
        assert concert.url is not None
        table.versions["server"] = await version(concert.redis)
        async with fleet(concert.url, WORKERS):
            await measure_schedules(concert, table, schedules=schedules, changes=changes)
    return table


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer schedules")
    results.add_option(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = parse()
    results.save(options.json, "fleet", asyncio.run(measure(quick=options.quick)))
