"""Locks beside redis-py's own `Lock`, on one private server, in one run.

python -m benchmarks.locks [--quick]
"""

import argparse
import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

import redis.asyncio

from benchmarks import bare_message, results
from benchmarks.figures import Table, percentile, ratio
from benchmarks.processes import start
from benchmarks.server import commands_processed, version
from inconcert import Coordinator

NAMES = "inconcert", "redis-py"

# Seconds. The pause is longer than a poller sleeps (0.1), or it would never get the lock; the hold is longer than the
# pause, so that the other process waits by the time of the release.
PAUSE, HOLD = 0.11, 0.12

MakeLock = Callable[[str], AbstractAsyncContextManager[object]]


def makers(concert: Coordinator, client: redis.asyncio.Redis) -> dict[str, MakeLock]:
    """How each contestant makes a lock with a lease of 30 s."""
    return {
        "inconcert": lambda name: concert.lock(name, ttl=30),
        "redis-py": lambda name: client.lock(f"redis-py:{name}", timeout=30),
    }


async def pairs_per_second(make: MakeLock, coroutines: int, pairs: int) -> float:
    """`async with lock` around nothing, by so many coroutines, each on a name of its own."""

    async def work(number: int) -> None:
        lock = make(f"pairs-{number}")
        for _ in range(pairs // coroutines):
            async with lock:
                pass

    started_at = time.perf_counter()
    await asyncio.gather(*(work(number) for number in range(coroutines)))
    return pairs / (time.perf_counter() - started_at)


async def inversions(make: MakeLock, coroutines: int) -> float:
    """How many of all pairs of waiters were served in the wrong order, when each asks once, 2 ms apart."""
    lock, order = make("order"), list[int]()

    async def wait(number: int) -> None:
        async with lock:
            order.append(number)

    async with lock:
        waiting: list[asyncio.Task[None]] = []
        for number in range(coroutines):
            waiting.append(asyncio.create_task(wait(number)))
            await asyncio.sleep(0.002)
    await asyncio.gather(*waiting)
    return sum(order[i] > order[j] for i in range(coroutines) for j in range(i + 1, coroutines))


async def commands_while_waiting(make: MakeLock, monitor: redis.asyncio.Redis, waiters: int, seconds: float) -> float:
    """Commands per second that the server runs while so many coroutines wait for one lock."""
    lock = make("waiting")

    async def wait() -> None:
        async with lock:
            pass

    async with lock:
        waiting = [asyncio.create_task(wait()) for _ in range(waiters)]
        await asyncio.sleep(0.5)
        before = await commands_processed(monitor)
        await asyncio.sleep(seconds)
        counted = await commands_processed(monitor) - before - 1  # without our own INFO
    await asyncio.gather(*waiting)
    return counted / seconds


async def connections(monitor: redis.asyncio.Redis, use: Callable[[], Awaitable[object]]) -> int:
    """How many connections are open after `use`, beyond those before it."""

    async def count() -> int:
        return len(await monitor.client_list())

    before = await count()
    await use()
    return await count() - before


async def hand_off(name: str, url: str, rounds: int) -> list[float]:
    """Milliseconds from one process's release to the other's acquisition, in turns."""
    children = [await start("locks", "take-turns", name, url, rounds) for _ in range(2)]
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


async def take_turns(name: str, url: str, rounds: int) -> None:
    """One process of `hand_off`: hold the lock while the other waits for it, then pause, so that the other gets it."""
    client = redis.asyncio.Redis.from_url(url)
    log: list[str] = []
    async with Coordinator(url) as concert:
        lock = makers(concert, client)[name]("hand-off")
        for _ in range(rounds):
            async with lock:
                log.append(f"acquired {time.monotonic()}")
                await asyncio.sleep(HOLD)
                log.append(f"released {time.monotonic()}")
            await asyncio.sleep(PAUSE)
    await client.aclose()
    print("\n".join(log))


async def measure(*, quick: bool) -> Table:
    scale = 0.25 if quick else 1.0
    rounds = 3 if quick else 5
    table = Table(*NAMES, "ratio")

    async def compare(title: str, measure_one: Callable[[str], Awaitable[float]], times: int = rounds) -> None:
        figures: dict[str, list[float]] = {name: [] for name in NAMES}
        for _ in range(times):
            for name, values in figures.items():
                values.append(await measure_one(name))
        ours, theirs = map(statistics.median, figures.values())
        table.row(title, ours, theirs, ratio(ours, theirs))

    async with Coordinator.embedded() as server:
        assert server.url
        url = server.url
        monitor = redis.asyncio.Redis.from_url(url)
        client = redis.asyncio.Redis.from_url(url, max_connections=500)
        async with Coordinator(url) as concert:
            make = makers(concert, client)
            await compare(
                "pairs/s, 1 coroutine",
                lambda name: pairs_per_second(make[name], 1, int(2_000 * scale)),
            )
            await compare(
                "pairs/s, 100 coroutines on 100 names",
                lambda name: pairs_per_second(make[name], 100, int(10_000 * scale)),
            )
            await compare("50 wait: commands/s", lambda name: commands_while_waiting(make[name], monitor, 50, 3), 1)
            await compare("50 in line: inversions of 1,225", lambda name: inversions(make[name], 50), 1)

        async def fresh_connections(name: str) -> float:
            fresh = redis.asyncio.Redis.from_url(url, max_connections=500)
            async with Coordinator(url) as opened:
                make_fresh = makers(opened, fresh)[name]
                base = 2 if name == "inconcert" else 0  # its own two are open before it is used
                used = await connections(monitor, lambda: pairs_per_second(make_fresh, 100, 1_000)) + base
            await fresh.aclose()
            return used

        await compare("connections, 100 coroutines", fresh_connections, 1)
        hand_offs = [await hand_off(name, url, int(100 * scale)) for name in NAMES]
        for title, share in (("hand-off between processes, p50 ms", 0.5), ("hand-off between processes, p99 ms", 0.99)):
            ours, theirs = (percentile(took, share) for took in hand_offs)
            table.row(title, ours, theirs, ratio(ours, theirs))
        table.versions["server"] = await version(client)
        floor = await bare_message.latencies(url, int(60 * scale), HOLD)
        table.row("floor: one message, p50 ms", statistics.median(floor))
        await client.aclose()
        await monitor.aclose()
    return table


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of a run, or of a process that a run starts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    results.add_option(parser)
    turns = parser.add_subparsers(dest="process", title="processes that a run starts").add_parser("take-turns")
    turns.add_argument("name", choices=NAMES)
    turns.add_argument("url")
    turns.add_argument("rounds", type=int)
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    if options.process == "take-turns":
        asyncio.run(take_turns(options.name, options.url, options.rounds))
    else:
        results.save(options.json, "locks", asyncio.run(measure(quick=options.quick)))


if __name__ == "__main__":
    main()
