"""Signals beside a bare message, on one private server, in one run.

python -m benchmarks.signals [--quick]
"""

import argparse
import asyncio
import math
import statistics
import time
from collections.abc import Sequence

from benchmarks import bare_message, results
from benchmarks.figures import Table, percentile
from benchmarks.processes import all_numbers, start
from benchmarks.server import commands_processed, version
from inconcert import Coordinator

PROCESSES = 4
WAITERS = 1_000
PAUSE = 0.02  # seconds between two notifications, so that each wakes a process that is asleep


async def in_line(concert: Coordinator, number: int) -> None:
    """Return when so many wait on the server."""
    while await concert.redis.zcard("{inconcert:signal:go}:waiters") != number:
        await asyncio.sleep(0.001)


async def wake_all(concert: Coordinator, url: str, rounds: int) -> tuple[list[float], float]:
    """Milliseconds from a broadcast until the last of all waiters runs; and commands per second while they wait."""
    children = [await start("signals", "wait", url, WAITERS // PROCESSES, rounds) for _ in range(PROCESSES)]
    sent_at: list[float] = []
    commands = 0.0
    for number in range(rounds):
        await in_line(concert, WAITERS)
        if number == 0:
            before = await commands_processed(concert.redis)
            await asyncio.sleep(2)
            commands = (await commands_processed(concert.redis) - before - 1) / 2
        sent_at.append(time.monotonic())
        assert await concert.signal("go").broadcast(number) == PROCESSES
    woken_at = await asyncio.gather(*map(all_numbers, children))
    return [(max(last) - sent) * 1000 for sent, *last in zip(sent_at, *woken_at, strict=True)], commands


async def wake_one(concert: Coordinator, url: str, rounds: int) -> list[float]:
    """Milliseconds from a notification until the one waiter, in another process, runs."""
    child = await start("signals", "wait", url, 1, rounds)
    sent_at: list[float] = []
    for _ in range(rounds):
        await in_line(concert, 1)
        await asyncio.sleep(PAUSE)
        sent_at.append(time.monotonic())
        assert await concert.signal("go").notify()
    return [(woken - sent) * 1000 for sent, woken in zip(sent_at, await all_numbers(child), strict=True)]


async def throughput(concert: Coordinator, count: int) -> float:
    """Broadcasts per second, 100 at a time, that a subscriber in the same process takes in."""
    signal = concert.signal("flood")
    async with signal.subscribe(buffer=count) as subscription:
        started_at = time.perf_counter()
        for _ in range(count // 100):
            await asyncio.gather(*(signal.broadcast(7) for _ in range(100)))
        for _ in range(count):
            assert await subscription.next() == 7
        return count / (time.perf_counter() - started_at)


async def wait_in_rounds(url: str, waiters: int, rounds: int) -> None:
    """The other processes of `wake_all` and `wake_one`: print when the last of the waiters was woken."""
    async with Coordinator(url) as concert:
        signal = concert.signal("go")

        async def wait() -> float:
            await signal.wait()
            return time.monotonic()

        async with signal.subscribe(buffer=1):  # so that a round costs no subscription
            woken_at = [max(await asyncio.gather(*(wait() for _ in range(waiters)))) for _ in range(rounds)]
    print("\n".join(map(str, woken_at)))


async def measure(*, quick: bool) -> Table:
    rounds = 100 if quick else 500
    async with Coordinator.embedded() as concert:
        assert concert.url
        broadcast, commands = await wake_all(concert, concert.url, 10 if quick else 30)
        notify = await wake_one(concert, concert.url, rounds)
        floor = await bare_message.latencies(concert.url, rounds, PAUSE)
        taken_in = await throughput(concert, 2_000 if quick else 10_000)
        server = await version(concert.redis)
    table = Table("p50", "p99", "per second", width=66)
    table.versions["server"] = server
    for title, figures in (
        (f"broadcast to {WAITERS:,} waiters in {PROCESSES} processes, the last one, ms", broadcast),
        ("notify a waiter in another process, ms", notify),
        ("floor: one bare message, ms", floor),
    ):
        table.row(title, statistics.median(figures), percentile(figures, 0.99))
    table.row(f"commands while {WAITERS:,} wait", math.nan, math.nan, commands)
    table.row("broadcasts that a subscriber takes in, 100 at a time", math.nan, math.nan, taken_in)
    return table


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of a run, or of a process that a run starts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    results.add_option(parser)
    wait = parser.add_subparsers(dest="process", title="processes that a run starts").add_parser("wait")
    wait.add_argument("url")
    wait.add_argument("waiters", type=int)
    wait.add_argument("rounds", type=int)
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    if options.process == "wait":
        asyncio.run(wait_in_rounds(options.url, options.waiters, options.rounds))
    else:
        results.save(options.json, "signals", asyncio.run(measure(quick=options.quick)))


if __name__ == "__main__":
    main()
