"""Locks beside redis-py's own `Lock`, on one private server, in one run.

python benchmarks/locks.py [--quick]
"""

import argparse
import asyncio
import itertools
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import redis.asyncio

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


async def pairs_per_second(make: MakeLock, coroutines: int, names: int, pairs: int) -> float:
    """`async with lock` around nothing, by so many coroutines on so many names."""

    async def work(number: int) -> None:
        lock = make(f"pairs-{number % names}")
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
        waiting = []
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

    async def processed() -> int:
        return int((await monitor.info("stats"))["total_commands_processed"])

    async with lock:
        waiting = [asyncio.create_task(wait()) for _ in range(waiters)]
        await asyncio.sleep(0.5)
        before = await processed()
        await asyncio.sleep(seconds)
        counted = await processed() - before - 1  # without our own INFO
    await asyncio.gather(*waiting)
    return counted / seconds


async def connections(monitor: redis.asyncio.Redis, use: Callable[[], Awaitable[object]]) -> int:
    """How many connections are open after `use`, beyond those before it."""
    before = len(await monitor.client_list())
    await use()
    return len(await monitor.client_list()) - before


async def hand_off(name: str, url: str, rounds: int) -> list[float]:
    """Milliseconds from one process's release to the other's acquisition, in turns."""
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--player", name, url, str(rounds), str(number), stdout=asyncio.subprocess.PIPE
        )
        for number in range(2)
    ]
    events: list[tuple[float, str, str]] = []
    for number, child in enumerate(children):
        output, _ = await child.communicate()
        for line in output.decode().splitlines():
            what, at = line.split()
            events.append((float(at), what, str(number)))
    events.sort()
    return [
        (later - sooner) * 1000
        for (sooner, what, who), (later, then, other) in itertools.pairwise(events)
        if what == "released" and then == "acquired" and who != other
    ]


async def play(name: str, url: str, rounds: int) -> None:
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


async def message_floor(url: str, rounds: int) -> list[float]:
    """Milliseconds that one bare message takes from one process to another, each of them asleep before."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--listener", url, str(rounds), stdout=asyncio.subprocess.PIPE
    )
    client = redis.asyncio.Redis.from_url(url)
    while not await client.pubsub_channels("floor"):
        await asyncio.sleep(0.01)
    for _ in range(rounds):
        await asyncio.sleep(HOLD)
        await client.publish("floor", repr(time.monotonic()))
    output, _ = await child.communicate()
    await client.aclose()
    return sorted(float(line) for line in output.decode().splitlines())


async def listen(url: str, rounds: int) -> None:
    """The other process of `message_floor`."""
    took: list[float] = []
    async with redis.asyncio.Redis.from_url(url) as client, client.pubsub() as subscription:
        await subscription.subscribe("floor")
        while len(took) < rounds:
            message = await subscription.get_message(ignore_subscribe_messages=True, timeout=5)
            if message:
                took.append((time.monotonic() - float(message["data"])) * 1000)
    print("\n".join(map(str, took)))


async def measure(*, quick: bool) -> None:
    scale = 0.25 if quick else 1.0
    rounds = 3 if quick else 5
    rows: list[tuple[str, dict[str, float]]] = []
    async with Coordinator.embedded() as server:
        assert server.url
        monitor = redis.asyncio.Redis.from_url(server.url)
        client = redis.asyncio.Redis.from_url(server.url, max_connections=500)
        async with Coordinator(server.url) as concert:
            make = makers(concert, client)

            async def compare(title: str, measure_one: Callable[[str], Awaitable[float]], times: int = rounds) -> None:
                figures: dict[str, list[float]] = {name: [] for name in NAMES}
                for _ in range(times):
                    for name in NAMES:
                        figures[name].append(await measure_one(name))
                rows.append((title, {name: statistics.median(figures[name]) for name in NAMES}))

            for title, coroutines, names, pairs in (
                ("pairs/s, 1 coroutine", 1, 1, 2_000),
                ("pairs/s, 100 coroutines on 100 names", 100, 100, 10_000),
            ):
                await compare(
                    title,
                    lambda name, c=coroutines, n=names, p=int(pairs * scale): pairs_per_second(make[name], c, n, p),
                )
            await compare("50 wait: commands/s", lambda name: commands_while_waiting(make[name], monitor, 50, 3), 1)
            await compare("50 in line: inversions of 1,225", lambda name: inversions(make[name], 50), 1)

        async def fresh_connections(name: str) -> float:
            fresh = redis.asyncio.Redis.from_url(server.url or "", max_connections=500)
            async with Coordinator(server.url or "") as opened:
                make_fresh = makers(opened, fresh)[name]

                async def use() -> None:
                    await pairs_per_second(make_fresh, 100, 100, 1_000)

                base = 2 if name == "inconcert" else 0  # its own two are open before it is used
                used = await connections(monitor, use) + base
            await fresh.aclose()
            return used

        await compare("connections, 100 coroutines", fresh_connections, 1)
        hops = {name: sorted(await hand_off(name, server.url, int(100 * scale))) for name in NAMES}
        for title, share in (("hand-off between processes, p50 ms", 0.5), ("hand-off between processes, p99 ms", 0.99)):
            rows.append((title, {name: hops[name][int(len(hops[name]) * share)] for name in NAMES}))
        floor = await message_floor(server.url, int(60 * scale))
        await client.aclose()
        await monitor.aclose()

    print(f"\n{'':40}{NAMES[0]:>12}{NAMES[1]:>12}{'ratio':>9}")
    for title, figures in rows:
        ours, theirs = (figures[name] for name in NAMES)
        ratio = f"{ours / theirs:9.2f}" if theirs else ""
        print(
            f"{title:40}{ours:12,.2f}{theirs:12,.2f}{ratio}"
            if ours < 100
            else f"{title:40}{ours:12,.0f}{theirs:12,.0f}{ratio}"
        )

    print(f"{'floor: one message, p50 ms':40}{statistics.median(floor):12,.2f}")


def main() -> None:
    if "--listener" in sys.argv:
        url, rounds = sys.argv[sys.argv.index("--listener") + 1 :]
        asyncio.run(listen(url, int(rounds)))
        return
    if "--player" in sys.argv:
        name, url, rounds, _ = sys.argv[sys.argv.index("--player") + 1 :]
        asyncio.run(play(name, url, int(rounds)))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    asyncio.run(measure(quick=parser.parse_args().quick))


if __name__ == "__main__":
    main()
