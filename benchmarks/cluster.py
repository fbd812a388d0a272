"""One server, a cluster of one node and a cluster of three, all private and on TCP, side by side in one run.

python -m benchmarks.cluster [--quick]
"""

import argparse
import asyncio
import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from socket import create_server
from typing import Any

from benchmarks import results
from benchmarks.figures import Table, percentile, ratio
from benchmarks.processes import start
from benchmarks.server import cpu_seconds, memory, scripts_run, version
from inconcert import Coordinator

BASE = "1 server"
WORLDS = {BASE: None, "1 node": 1, "3 nodes": 3}  # name -> masters of the cluster
PARTITIONS = 1, 8
COROUTINES = 100
WAITING = 50  # processes whose memory is measured

HOLD, PAUSE = 0.02, 0.01  # seconds; the hold is longer, so that the other process waits by the time of the release

Figures = dict[str, dict[str, list[float]]]  # title -> world -> one for each round


async def per_second(count: int, work: Iterable[Coroutine[Any, Any, None]]) -> float:
    """How many of `count` things are done in a second by coroutines that do all of them."""
    started_at = time.perf_counter()
    await asyncio.gather(*work)
    return count / (time.perf_counter() - started_at)


async def pairs_per_second(concert: Coordinator, pairs: int) -> float:
    """`async with lock` around nothing, each coroutine with a name of its own."""

    async def work(number: int) -> None:
        lock = concert.lock(f"pairs-{number}")
        for _ in range(pairs // COROUTINES):
            async with lock:
                pass

    return await per_second(pairs, map(work, range(COROUTINES)))


async def items_per_second(concert: Coordinator, items: int) -> tuple[float, float]:
    """Items put, and then got and acknowledged, each coroutine with a queue of its own."""

    async def put(number: int) -> None:
        for item in range(items // COROUTINES):
            await concert.queue(f"items-{number}").put(item)

    async def get(number: int) -> None:
        for _ in range(items // COROUTINES):
            async with await concert.queue(f"items-{number}").get():
                pass

    return await per_second(items, map(put, range(COROUTINES))), await per_second(items, map(get, range(COROUTINES)))


async def jobs_per_second(concert: Coordinator, jobs: int) -> float:
    """Jobs that do nothing, run by a worker with 100 at once, from its start to the end of the last body."""
    remaining, done = jobs, asyncio.Event()

    async def run() -> None:
        nonlocal remaining
        remaining -= 1
        if remaining == 0:
            done.set()

    queue = f"queue-{time.monotonic_ns()}"
    task = concert.task(name=queue, queue=queue, result_ttl=0)(run)
    for _ in range(jobs // 1_000):
        await concert.enqueue_many(task.call() for _ in range(1_000))
    started_at = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(concert.run_worker(queue, concurrency=COROUTINES, stop=done))
        await done.wait()
        rate = jobs / (time.perf_counter() - started_at)
        await worker
    return rate


async def run_singly(concert: Coordinator, jobs: int) -> None:
    """Jobs that do nothing, each enqueued when the one before has run, by a worker that sleeps in between."""
    ran, stop = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        ran.set()

    queue = f"queue-{time.monotonic_ns()}"
    task = concert.task(name=queue, queue=queue, result_ttl=0)(run)
    async with asyncio.TaskGroup() as group:
        group.create_task(concert.run_worker(queue, concurrency=COROUTINES, stop=stop))
        for _ in range(jobs):
            await task.enqueue()
            await ran.wait()
            ran.clear()
        stop.set()


async def hand_off(url: str, rounds: int) -> list[float]:
    """Milliseconds from one process's release to the other's acquisition, in turns."""
    children = [await start("cluster", "take-turns", url, rounds) for _ in range(2)]
    events: list[tuple[float, str, int]] = []
    for number, child in enumerate(children):
        output, _ = await child.communicate()
        for line in output.decode().splitlines():
            event, at = line.split()
            events.append((float(at), event, number))
    events.sort()
    return [
        (later - sooner) * 1000
        for (sooner, event, process), (later, next_event, next_process) in itertools.pairwise(events)
        if (event, next_event) == ("released", "acquired") and process != next_process
    ]


async def take_turns(url: str, rounds: int) -> None:
    """One process of `hand_off`: hold the lock while the other waits for it, then pause, so that the other gets it."""
    log: list[str] = []
    async with Coordinator(url) as concert:
        lock = concert.lock("hand-off")
        for _ in range(rounds):
            async with lock:
                log.append(f"acquired {time.monotonic()}")
                await asyncio.sleep(HOLD)
                log.append(f"released {time.monotonic()}")
            await asyncio.sleep(PAUSE)
    print("\n".join(log))


@asynccontextmanager
async def world(masters: int | None) -> AsyncGenerator[str]:
    """The URL of a private server or cluster, over TCP either way."""
    async with Coordinator.embedded(cluster=masters) as concert:
        if masters is None:
            with create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            await concert.redis.config_set("bind", "127.0.0.1")
            await concert.redis.config_set("port", port)
            yield f"redis://127.0.0.1:{port}"
        else:
            assert concert.url
            yield concert.url


@asynccontextmanager
async def counting_cpu(concert: Coordinator, title: str, count: int, figures: Figures) -> AsyncGenerator[None]:
    """Note how many microseconds of a server's CPU each of so many operations takes."""
    before = await cpu_seconds(concert)
    yield
    figures[title][BASE].append((await cpu_seconds(concert) - before) / count * 1e6)


async def measure_one(name: str, url: str, concerts: dict[int, Coordinator], figures: Figures, scale: float) -> None:
    """One round of one world."""
    one = concerts[1]
    count = int(8_000 * scale)
    figures["lock pairs/s, 100 names"][name].append(await pairs_per_second(one, count))
    put, got = await items_per_second(one, count)
    figures["queue: put/s, 100 queues"][name].append(put)
    figures["queue: get and ack/s, 100 queues"][name].append(got)
    for partitions, concert in concerts.items():
        title = f"tasks: drain/s, partitions={partitions}"
        figures[title][name].append(await jobs_per_second(concert, count))
    took = await hand_off(url, int(100 * scale))
    figures["hand-off between processes, p50 ms"][name].append(statistics.median(took))
    figures["hand-off between processes, p99 ms"][name].append(percentile(took, 0.99))


async def measure_server(concert: Coordinator, url: str, figures: Figures, scale: float) -> None:
    """What the one server spends on all this."""
    count = int(8_000 * scale)
    async with counting_cpu(concert, "server CPU, us: lock pair", count, figures):
        await pairs_per_second(concert, count)
    async with counting_cpu(concert, "server CPU, us: item put, got and acked", count, figures):
        await items_per_second(concert, count)
    async with counting_cpu(concert, "server CPU, us: job of many", count, figures):
        await jobs_per_second(concert, count)
    async with counting_cpu(concert, "server CPU, us: job by itself", count // 10, figures):
        await run_singly(concert, count // 10)
    before = await memory(concert)
    async with AsyncExitStack() as stack:
        for _ in range(WAITING):
            other = await stack.enter_async_context(Coordinator(url, namespace="in-1"))
            await stack.enter_async_context(other.signal("go").subscribe())
        figures["server memory, bytes: process that listens"][BASE].append((await memory(concert) - before) / WAITING)


async def measure(*, quick: bool) -> Table:
    figures: Figures = defaultdict(lambda: defaultdict(list))
    async with AsyncExitStack() as stack:
        urls: dict[str, str] = {}
        concerts: dict[str, dict[int, Coordinator]] = {}
        for name, masters in WORLDS.items():
            urls[name] = url = await stack.enter_async_context(world(masters))
            concerts[name] = {
                partitions: await stack.enter_async_context(
                    Coordinator(url, namespace=f"in-{partitions}", partitions=partitions)
                )
                for partitions in PARTITIONS
            }
        for _ in range(2 if quick else 5):
            for name, url in urls.items():
                await measure_one(name, url, concerts[name], figures, 0.25 if quick else 1.0)
            await measure_server(concerts[BASE][1], urls[BASE], figures, 0.25 if quick else 1.0)
        server = await version(concerts[BASE][1].redis)
        shares = {name: await scripts_run(concerts[name][1]) for name, masters in WORLDS.items() if masters}
    table = Table(*WORLDS, *(f"{name}, ratio" for name in WORLDS if name != BASE))
    table.versions["server"] = server
    for title, of in figures.items():
        medians = {name: statistics.median(values) for name, values in of.items()}
        others = [name for name in WORLDS if name != BASE and name in medians]
        table.row(title, *medians.values(), *(ratio(medians[name], medians[BASE]) for name in others))
    for name, counts in shares.items():
        print(f"scripts run by each node of {name}:", ", ".join(f"{count / sum(counts):.0%}" for count in counts))
    return table


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of a run, or of a process that a run starts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    results.add_option(parser)
    turns = parser.add_subparsers(dest="process", title="processes that a run starts").add_parser("take-turns")
    turns.add_argument("url")
    turns.add_argument("rounds", type=int)
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    if options.process == "take-turns":
        asyncio.run(take_turns(options.url, options.rounds))
    else:
        results.save(options.json, "cluster", asyncio.run(measure(quick=options.quick)))


if __name__ == "__main__":
    main()
