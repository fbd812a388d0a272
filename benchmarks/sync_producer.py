"""`SyncProducer` in one thread beside `Coordinator.enqueue` in one coroutine, on one private server, in one run.

python -m benchmarks.sync_producer [--quick]
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence

from benchmarks import results
from benchmarks.figures import Table, percentile, ratio
from benchmarks.server import version
from inconcert import Coordinator, SyncProducer

ROUNDS = 5
TASK = "shop.receipt"


def enqueue(producer: SyncProducer, count: int) -> list[float]:
    """Seconds that each of so many jobs took, one after the other."""
    took: list[float] = []
    for number in range(count):
        started_at = time.perf_counter()
        producer.enqueue(TASK, [number])
        took.append(time.perf_counter() - started_at)
    return took


async def enqueue_in_loop(concert: Coordinator, count: int) -> list[float]:
    """The same by a coordinator."""
    took: list[float] = []
    for number in range(count):
        started_at = time.perf_counter()
        await concert.enqueue(TASK, [number])
        took.append(time.perf_counter() - started_at)
    return took


async def measure(*, quick: bool) -> Table:
    count = 1_000 if quick else 5_000
    blocking: list[list[float]] = []
    in_loop: list[list[float]] = []
    async with Coordinator.embedded() as concert:
        assert concert.url
        with SyncProducer(concert.url) as producer:
            producer.enqueue(TASK)  # connected
            for _ in range(ROUNDS):
                await concert.redis.flushdb()
                await concert.enqueue(TASK)
                blocking.append(enqueue(producer, count))  # the event loop has nothing else to do
                in_loop.append(await enqueue_in_loop(concert, count))
        server = await version(concert.redis)
    table = Table("SyncProducer", "Coordinator", "ratio", width=36)
    table.versions["server"] = server
    ours, theirs = (statistics.median(count / sum(took) for took in rounds) for rounds in (blocking, in_loop))
    table.row("jobs enqueued one by one, per second", ours, theirs, ratio(ours, theirs))
    for title, share in (("one of them, p50, ms", 0.5), ("one of them, p99, ms", 0.99)):
        ours, theirs = (
            statistics.median(percentile(took, share) * 1000 for took in rounds) for rounds in (blocking, in_loop)
        )
        table.row(title, ours, theirs, ratio(ours, theirs))
    return table


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer jobs")
    results.add_option(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = parse()
    results.save(options.json, "sync_producer", asyncio.run(measure(quick=options.quick)))
