"""A fleet of workers and what it shares, on a private server: schedules that operators change, limits, and turns.

    python -m benchmarks.fleet [--quick]

All workers are in one process, each with a coordinator of its own; the server is another process.  Queues are drained
by a worker that runs already, beside one that runs as many jobs at once without a limit.
"""

import argparse
import asyncio
import math
import statistics
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks import results
from benchmarks.figures import Table, ratio
from benchmarks.server import calls_of_scripts, info, version
from inconcert import Coordinator, Limit, Rate, current_job

WORKERS = 20
SCHEDULES = 1_000
EVERY = 10  # seconds; all schedules have the same instants
INSTANTS = 3
CHANGES = 100
SOON = timedelta(seconds=-1)  # of a schedule that is due as soon as it is put
ROUNDS = 5
AT_ONCE = 100  # jobs that a worker may run
BATCH = 5_000  # jobs that are enqueued at once
KEYS = 100
TENANTS, JOBS_OF_A_TENANT = 100, 10
FLOOD = 1_000_000  # jobs of one of them
LASTS = 0.01  # seconds of each job of a tenant
AT_ONCE_OF_TENANTS = 50

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
    return calls_of_scripts(await info(concert.redis, "commandstats"))


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
    table.row(f"an instant of {schedules:,} schedules is late by", statistics.median(late), max(late), math.nan)
    table.row("scripts for each of its jobs, claims included", ran / len(late), ran / len(late), math.nan)
    took: list[float] = []
    for number in range(changes):
        began_at = time.perf_counter()
        await concert.schedules.put("changed", task.call(f"{number}"), at=datetime.now(UTC) + SOON)
        await begun(f"{number}")
        took.append((time.perf_counter() - began_at) * 1000)
    table.row("a change is put, until its job runs", statistics.median(took), max(took), math.nan)
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
    table.row("one of 0.1 s is resumed, until its job runs", statistics.median(took), max(took), math.nan)


def number_of(number: int) -> int:
    """The key of a job."""
    return number % KEYS


class Drain:
    """A queue of its own, with a task and a running worker.

    Args:
        concert: The coordinator.
        name: Of the queue and of the task.
        at_once: How many jobs the worker runs at once.
        limits: Of the task.
    """

    def __init__(self, concert: Coordinator, name: str, at_once: int, **limits: Any) -> None:  # noqa: ANN401 - any of them
        self._concert = concert
        self._name = name
        self._left = 0
        self._is_done = asyncio.Event()
        self._task = concert.task(name=name, queue=name, **limits)(self._run)
        self.worker = asyncio.create_task(concert.run_worker(name, concurrency=at_once))

    async def _run(self, number: int) -> None:
        del number
        self._left -= 1
        if not self._left:
            self._is_done.set()

    async def seconds(self, jobs: int) -> float:
        """How long the worker takes for so many, all of which are there before the first begins."""
        self._left = jobs
        self._is_done.clear()
        await self._concert.tasks.pause(self._name)
        call = self._task.options(result_ttl=0).call
        for start in range(0, jobs, BATCH):
            await self._concert.enqueue_many([call(number) for number in range(start, min(start + BATCH, jobs))])
        began_at = time.perf_counter()
        await self._concert.tasks.resume(self._name)
        await self._is_done.wait()
        return time.perf_counter() - began_at


async def measure_limits(table: Table, *, jobs: int, rounds: int) -> None:
    """Add the rows of limits to the table: microseconds for each job."""
    limited: dict[int, dict[str, dict[str, Any]]] = {
        5: {"limit=Limit(5)": {"limit": Limit(5)}},
        50: {"limit=Limit(50)": {"limit": Limit(50)}},
        AT_ONCE: {
            f"key_limit=2, {KEYS} keys": {"key": number_of, "key_limit": 2},
            f"share=True, {KEYS} keys": {"key": number_of, "share": True},
            "rate=Rate(100_000, per=1.0)": {"rate": Rate(100_000, per=1.0)},
        },
    }
    for at_once, tasks in limited.items():
        async with Coordinator.embedded() as concert:
            drains = {f"{jobs:,} jobs without limits, {at_once} at once": Drain(concert, "plain", at_once)}
            drains |= {title: Drain(concert, title, AT_ONCE, **limits) for title, limits in tasks.items()}
            took = [[await drain.seconds(count) for drain in drains.values()] for count in [100, *[jobs] * rounds]][1:]
            for drain in drains.values():
                drain.worker.cancel()
            await asyncio.wait([drain.worker for drain in drains.values()])
        for title, times in zip(drains, zip(*took, strict=True), strict=True):
            share = statistics.median(ratio(plain, each) for (plain, *_), each in zip(took, times, strict=True))
            each_us = [seconds / jobs * 1e6 for seconds in times]
            table.row(f"{title}, us each", statistics.median(each_us), max(each_us), share)


async def begin_of_few(concert: Coordinator, name: str, *, flood: int) -> float:
    """Seconds until all jobs of all tenants but one have begun; that one has so many more, enqueued before."""
    left = (TENANTS - 1) * JOBS_OF_A_TENANT
    all_began = asyncio.Event()

    def tenant_of(tenant: int) -> int:
        return tenant

    @concert.task(name=name, queue=name, result_ttl=0, key=tenant_of, share=True)
    async def work(tenant: int) -> None:
        nonlocal left
        left -= tenant > 0
        if not left:
            all_began.set()
        await asyncio.sleep(LASTS)

    for _ in range(0, flood, BATCH):
        await concert.enqueue_many([work.call(0)] * BATCH)
    await concert.enqueue_many([work.call(tenant) for tenant in range(TENANTS) for _ in range(JOBS_OF_A_TENANT)])
    began_at = time.perf_counter()
    worker = asyncio.create_task(concert.run_worker(name, concurrency=AT_ONCE_OF_TENANTS))
    await all_began.wait()
    took = time.perf_counter() - began_at
    worker.cancel()
    await asyncio.wait([worker])
    return took


async def measure_turns(table: Table, *, flood: int, rounds: int) -> None:
    """Add the rows of tenants that take turns, in milliseconds: one has so many jobs, or as few as the others."""
    async with Coordinator.embedded() as concert:
        alone = [await begin_of_few(concert, f"alone{n}", flood=0) for n in range(rounds)]
        beside = [await begin_of_few(concert, f"beside{n}", flood=flood) for n in range(rounds)]
    few = f"{TENANTS - 1} x {JOBS_OF_A_TENANT} jobs of {LASTS * 1000:g} ms, {AT_ONCE_OF_TENANTS} at once, begin"
    for name, times in ((f"{few}, ms", alone), (f"the same, behind {flood:,} of one tenant, ms", beside)):
        share = ratio(statistics.median(alone), statistics.median(times))
        table.row(name, statistics.median(times) * 1000, max(times) * 1000, share)


async def measure(*, quick: bool) -> Table:
    schedules, changes, jobs, rounds = (100, 20, 1_000, 3) if quick else (SCHEDULES, CHANGES, 10_000, ROUNDS)
    table = Table("median", "most", "of plain", width=60)
    async with Coordinator.embedded() as concert:
        assert concert.url is not None
        table.versions["server"] = await version(concert.redis)
        async with fleet(concert.url, WORKERS):
            await measure_schedules(concert, table, schedules=schedules, changes=changes)
    await measure_limits(table, jobs=jobs, rounds=rounds)
    await measure_turns(table, flood=BATCH if quick else FLOOD, rounds=1 if quick else 2)
    return table


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer schedules and jobs")
    results.add_option(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = parse()
    results.save(options.json, "fleet", asyncio.run(measure(quick=options.quick)))
