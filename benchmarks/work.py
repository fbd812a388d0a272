"""Work that lasts: durable steps, sleeps, streams and groups, beside jobs without any, on a private server in one run.

    python -m benchmarks.work [--quick]

One process enqueues and runs the jobs; the server is another process.  Bytes are what the server keeps of each: all
that there is of a job that sleeps or waits; of a group's member what it has beyond a job of its own.
"""

import argparse
import asyncio
import itertools
import math
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from benchmarks import results
from benchmarks.figures import Table
from benchmarks.server import cpu_seconds, memory, version
from inconcert import Coordinator, Draft, Job, StreamItem, durable

ROUNDS = 5
STEPS = 100  # of each job
AT_ONCE = 100  # jobs
BATCH = 5_000  # jobs that are enqueued at once
VIEWERS = 1_000  # of one stream, in one process
SEEN = 50  # items of the stream that all of them follow
HOUR = 3600.0
NOT_MEASURED = (math.nan,) * 3  # of a row that has a rate only


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


async def asleep() -> None:
    """A job that sleeps for an hour."""
    await durable.sleep("an hour", HOUR)


async def expecting() -> None:
    """A job that waits for a message."""
    await durable.wait_for("word", str, timeout=HOUR)


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
        table.row(title, units / seconds, cpu / units * 1e6, server / units * 1e6, math.nan)
    firsts = sorted([await first_item(concert) for _ in range(200)])
    table.row("first items, one after the other", 1 / statistics.median(firsts), *NOT_MEASURED)
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


async def measure_suspended(table: Table, *, count: int) -> None:
    """Add the rows of jobs that sleep, and of those that wait for a message until it comes."""
    for title, body in (("jobs put to sleep", asleep), ("jobs that begin to wait", expecting)):
        async with Coordinator.embedded() as concert:
            task = concert.task(name="suspended", queue="suspended")(body)
            await concert.run_worker("suspended", burst=True)  # what a worker itself leaves is not counted
            before = await memory(concert)
            jobs = await concert.enqueue_many([task.call() for _ in range(count)])
            began_at, began_cpu, began_server = time.perf_counter(), time.process_time(), await cpu_seconds(concert)
            await concert.run_worker("suspended", concurrency=AT_ONCE, burst=True)
            seconds, cpu = time.perf_counter() - began_at, time.process_time() - began_cpu
            server, kept = await cpu_seconds(concert) - began_server, await memory(concert) - before
            table.row(title, count / seconds, cpu / count * 1e6, server / count * 1e6, kept / count)
            if body is expecting:
                began_at = time.perf_counter()
                for start in range(0, count, AT_ONCE):
                    await asyncio.gather(*(job.send("word", "go") for job in jobs[start : start + AT_ONCE]))
                table.row("messages to them", count / (time.perf_counter() - began_at), *NOT_MEASURED)


async def enqueue(concert: Coordinator, calls: Iterator[Draft[Any]]) -> None:
    """Enqueue jobs in batches, each on its own."""
    while batch := list(itertools.islice(calls, BATCH)):
        await concert.enqueue_many(batch)


async def measure_groups(table: Table, *, members: int) -> None:
    """Add the rows of a group's members, and of the same jobs without a group."""
    kept: list[int] = []
    for title, add in ((f"{members:,} jobs enqueued", enqueue), ("the same as a group's members", Coordinator.group)):
        async with Coordinator.embedded() as concert:
            task = concert.task(name="plain")(plain)
            before, began_server = await memory(concert), await cpu_seconds(concert)
            began_at, began_cpu = time.perf_counter(), time.process_time()
            group = await add(concert, (task.options(result_ttl=0).call(number) for number in range(members)))
            seconds, cpu = time.perf_counter() - began_at, time.process_time() - began_cpu
            server = await cpu_seconds(concert) - began_server
            kept.append(await memory(concert) - before)
            beyond = (kept[1] - kept[0]) / members if group else math.nan
            table.row(title, members / seconds, cpu / members * 1e6, server / members * 1e6, beyond)
            if group:
                began_at = time.perf_counter()
                await concert.run_worker("default", concurrency=AT_ONCE, burst=True)
                assert (await group.progress()).succeeded == members
                table.row("members run", members / (time.perf_counter() - began_at), *NOT_MEASURED)


async def measure(*, quick: bool) -> Table:
    jobs, rounds = (2_000, 3) if quick else (10_000, ROUNDS)
    table = Table("per second", "us of a core", "of the server", "bytes each", width=32)
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
            table.row(title, units / seconds, cpu / units * 1e6, server / units * 1e6, math.nan)
        await measure_streams(concert, table, count=jobs * 5, rounds=rounds)
    await measure_suspended(table, count=jobs)
    await measure_groups(table, members=100_000 if quick else 1_000_000)
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
