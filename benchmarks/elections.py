"""Elections beside those of `grelmicro`, on one private server, in one run.

python -m benchmarks.elections [--quick]        # needs the extra `bench`
"""

import argparse
import asyncio
import random
import signal
import statistics
import time
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from importlib import metadata

from benchmarks import results
from benchmarks.figures import Table, ratio
from benchmarks.processes import next_line, start
from benchmarks.server import version
from inconcert import Coordinator

NAMES = "inconcert", "grelmicro"
TTL = 2.0  # seconds; of both


@asynccontextmanager
async def leading(url: str, ttl: float) -> AsyncGenerator[None]:
    """Stand for election, and lead while the body runs."""
    async with Coordinator(url) as concert, concert.election("bench", ttl=ttl):
        yield


def report(event: str) -> None:
    """Print what has happened, and when, by the machine's monotonic clock."""
    print(event, time.monotonic(), flush=True)


async def run_candidate(name: str, url: str) -> None:
    """One process of a measurement: lead until it is told to end."""
    stand = leading
    if name != "inconcert":
        from benchmarks.contestants.grelmicro_election import leading as stand  # noqa: PLC0415 - only a run needs it

    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    report("ready")
    async with stand(url, TTL):
        report("leads")
        await end.wait()
        report("ended")


@asynccontextmanager
async def candidate(name: str, url: str) -> AsyncGenerator[Process]:
    """A process that stands for election, until the body ends."""
    process = await start("elections", "candidate", name, url)
    try:
        await time_of("ready", process)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def time_of(event: str, process: Process) -> float:
    """When a candidate reported this, which must be what it reports next."""
    reported, at = (await next_line(process)).split()
    assert reported == event, reported
    return float(at)


async def fail_over(name: str, url: str) -> float:
    """Milliseconds from `kill -9` of the leader to the next one's lead."""
    async with candidate(name, url) as leader:
        await time_of("leads", leader)
        async with candidate(name, url) as follower:
            await asyncio.sleep(1 + random.random() * TTL / 2)  # so that it waits, and at any point of a renewal
            killed_at = time.monotonic()
            leader.kill()
            took = await time_of("leads", follower) - killed_at
            follower.terminate()
            await follower.wait()
    return took * 1000


async def hand_over(name: str, url: str) -> float:
    """Milliseconds from the end of the leader's work to the next one's lead."""
    async with candidate(name, url) as leader:
        await time_of("leads", leader)
        async with candidate(name, url) as follower:
            await asyncio.sleep(1 + random.random() * TTL / 2)
            leader.terminate()
            ended_at = await time_of("ended", leader)
            took = await time_of("leads", follower) - ended_at
            follower.terminate()
            await follower.wait()
    return took * 1000


async def measure(*, quick: bool) -> Table:
    rounds = 3 if quick else 10
    print(f"lease: {TTL:g} s, {rounds} rounds\n")
    table = Table(*NAMES, "ratio")
    async with Coordinator.embedded() as server:
        assert server.url
        table.versions |= {"server": await version(server.redis), "grelmicro": metadata.version("grelmicro")}
        for title, measure_one in (("fail-over after kill -9", fail_over), ("hand-over after a clean exit", hand_over)):
            figures: dict[str, list[float]] = {name: [] for name in NAMES}
            for _ in range(rounds):
                for name, values in figures.items():
                    values.append(await measure_one(name, server.url))
            ours, theirs = figures.values()
            medians = statistics.median(ours), statistics.median(theirs)
            table.row(f"{title}, p50 ms", *medians, ratio(*medians))
            table.row(f"{title}, max ms", max(ours), max(theirs), ratio(max(ours), max(theirs)))
    return table


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of a run, or of a process that a run starts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    results.add_option(parser)
    stand = parser.add_subparsers(dest="process", title="processes that a run starts").add_parser("candidate")
    stand.add_argument("name", choices=NAMES)
    stand.add_argument("url")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    if options.process == "candidate":
        asyncio.run(run_candidate(options.name, options.url))
    else:
        results.save(options.json, "elections", asyncio.run(measure(quick=options.quick)))


if __name__ == "__main__":
    main()
