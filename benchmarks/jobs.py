"""Looking into queues and clearing them: pages of jobs, and what is done to many, among a few jobs and among many.

    python -m benchmarks.jobs [--quick]

Half of the jobs are queued, half are delayed.  The ratio says what ten times as many jobs cost.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence

from benchmarks import results
from benchmarks.figures import Table, ratio
from benchmarks.server import version
from inconcert import Coordinator

ROUNDS = 5
AT_ONCE = 5_000
HOUR = 3600.0


async def fill(concert: Coordinator, count: int) -> None:
    """So many jobs, and a few of another task behind all others."""

    @concert.task(name="bench.job", queue="q")
    async def job(number: int) -> None: ...

    @concert.task(name="bench.rare", queue="q")
    async def rare(number: int) -> None: ...

    for start in range(0, count // 2, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, count // 2))
        await concert.enqueue_many([job.call(number) for number in numbers])
        await concert.enqueue_many([job.options(delay=HOUR).call(number) for number in numbers])
    await concert.enqueue_many([rare.call(number) for number in range(10)])


async def seconds(act: Callable[[], Awaitable[object]]) -> float:
    """How long it takes."""
    started_at = time.perf_counter()
    await act()
    return time.perf_counter() - started_at


async def look_and_clear(concert: Coordinator, count: int) -> dict[str, float]:
    """What each row shows."""
    tasks = concert.tasks
    await fill(concert, count)
    deep: str | None = None
    for _ in range(count // 4 // 1000):
        deep = (await tasks.jobs(state="queued", queue="q", limit=1000, after=deep)).after
    pages = {
        "a page of 100 queued jobs, ms": lambda: tasks.jobs(state="queued", queue="q", limit=100),
        "the same from the middle of the queue, ms": lambda: tasks.jobs(
            state="queued", queue="q", limit=100, after=deep
        ),
        "a page of 100 delayed jobs, ms": lambda: tasks.jobs(state="delayed", queue="q", limit=100),
        "a page of a rare task, ms": lambda: tasks.jobs(task="bench.rare", limit=100),
    }
    found = {
        title: 1000 * statistics.median([await seconds(page) for _ in range(ROUNDS)]) for title, page in pages.items()
    }
    some = min(count // 10, 50_000)
    acts = {
        "delayed jobs promoted per second": lambda: tasks.promote_all(limit=some),
        "queued jobs cancelled per second": lambda: tasks.cancel_all(state="queued", limit=some),
        "delayed jobs cancelled per second": lambda: tasks.cancel_all(state="delayed", limit=some),
    }
    return found | {title: some / await seconds(act) for title, act in acts.items()}


async def measure(*, quick: bool) -> Table:
    few = 10_000 if quick else 100_000
    found: list[dict[str, float]] = []
    async with Coordinator.embedded() as concert:
        server = await version(concert.redis)
    for count in (few, 10 * few):
        async with Coordinator.embedded() as concert:
            found.append(await look_and_clear(concert, count))
    table = Table(f"{few:,} jobs", f"{10 * few:,} jobs", "ratio", width=44)
    table.versions["server"] = server
    for title in found[0]:
        table.row(title, found[0][title], found[1][title], ratio(found[1][title], found[0][title]))
    return table


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer jobs")
    results.add_option(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = parse()
    results.save(options.json, "jobs", asyncio.run(measure(quick=options.quick)))
