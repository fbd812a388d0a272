"""Signals beside a bare message, on one private server, in one run.

python benchmarks/signals.py [--quick]
"""

import argparse
import asyncio
import statistics
import sys
import time

import redis.asyncio

from inconcert import Coordinator

PROCESSES = 4
WAITERS = 1_000
PAUSE = 0.02  # seconds between two notifications, so that each wakes a process that is asleep


async def start(role: str, url: str, *args: int) -> asyncio.subprocess.Process:
    """One process that waits; it says on its standard output when it has heard."""
    return await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--role", role, url, *map(str, args), stdout=asyncio.subprocess.PIPE
    )


async def times(child: asyncio.subprocess.Process) -> list[float]:
    """What a process said in the end."""
    output, _ = await child.communicate()
    return [float(line) for line in output.split()]


async def in_line(concert: Coordinator, number: int) -> None:
    """Return when so many wait on the server."""
    while await concert.redis.zcard("{inconcert:signal:go}:waiters") != number:
        await asyncio.sleep(0.001)


async def wake_all(concert: Coordinator, url: str, rounds: int) -> tuple[list[float], float]:
    """Milliseconds from a broadcast until the last of all waiters runs; and commands per second while they wait."""
    children = [await start("waiters", url, WAITERS // PROCESSES, rounds) for _ in range(PROCESSES)]
    sent_at: list[float] = []
    commands = 0.0
    for number in range(rounds):
        await in_line(concert, WAITERS)
        if number == 0:
            before = (await concert.redis.info("stats"))["total_commands_processed"]
            await asyncio.sleep(2)
            commands = ((await concert.redis.info("stats"))["total_commands_processed"] - before - 1) / 2
        sent_at.append(time.monotonic())
        assert await concert.signal("go").broadcast(number) == PROCESSES
    heard = await asyncio.gather(*map(times, children))
    return [(max(last) - sent) * 1000 for sent, *last in zip(sent_at, *heard, strict=True)], commands


async def wake_one(concert: Coordinator, url: str, rounds: int) -> list[float]:
    """Milliseconds from a notification until the one waiter, in another process, runs."""
    child = await start("waiters", url, 1, rounds)
    sent_at: list[float] = []
    for _ in range(rounds):
        await in_line(concert, 1)
        await asyncio.sleep(PAUSE)
        sent_at.append(time.monotonic())
        assert await concert.signal("go").notify()
    return [(heard - sent) * 1000 for sent, heard in zip(sent_at, await times(child), strict=True)]


async def message_floor(url: str, rounds: int) -> list[float]:
    """Milliseconds that one bare message takes from one process to another, each of them asleep before."""
    child = await start("listener", url, rounds)
    client = redis.asyncio.Redis.from_url(url)
    while not await client.pubsub_channels("floor"):
        await asyncio.sleep(0.01)
    sent_at: list[float] = []
    for _ in range(rounds):
        await asyncio.sleep(PAUSE)
        sent_at.append(time.monotonic())
        await client.publish("floor", "")
    await client.aclose()
    return [(heard - sent) * 1000 for sent, heard in zip(sent_at, await times(child), strict=True)]


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
    """The other processes of `wake_all` and `wake_one`."""
    async with Coordinator(url) as concert:
        signal = concert.signal("go")

        async def wait() -> float:
            await signal.wait()
            return time.monotonic()

        async with signal.subscribe(buffer=1):  # so that a round costs no subscription
            heard = [max(await asyncio.gather(*(wait() for _ in range(waiters)))) for _ in range(rounds)]
    print("\n".join(map(str, heard)))


async def listen(url: str, rounds: int) -> None:
    """The other process of `message_floor`."""
    heard: list[float] = []
    async with redis.asyncio.Redis.from_url(url) as client, client.pubsub() as subscription:
        await subscription.subscribe("floor")
        while len(heard) < rounds:
            if await subscription.get_message(ignore_subscribe_messages=True, timeout=5):
                heard.append(time.monotonic())
    print("\n".join(map(str, heard)))


async def measure(*, quick: bool) -> None:
    rounds = 100 if quick else 500
    async with Coordinator.embedded() as concert:
        assert concert.url
        every, commands = await wake_all(concert, concert.url, 10 if quick else 30)
        ones = await wake_one(concert, concert.url, rounds)
        floor = await message_floor(concert.url, rounds)
        taken_in = await throughput(concert, 2_000 if quick else 10_000)
    for title, figures in (
        (f"broadcast to {WAITERS:,} waiters in {PROCESSES} processes, the last one", every),
        ("notify a waiter in another process", ones),
        ("floor: one bare message", floor),
    ):
        figures.sort()
        print(f"{title:60}p50 {statistics.median(figures):7.2f} ms  p99 {figures[int(len(figures) * 0.99)]:7.2f} ms")
    print(f"{f'{WAITERS:,} wait':60}{commands:11.1f} commands/s")
    print(f"{'broadcasts that a subscriber takes in, 100 at a time':60}{taken_in:11,.0f} /s")


def main() -> None:
    if "--role" in sys.argv:
        role, url, *numbers = sys.argv[sys.argv.index("--role") + 1 :]
        play = {"waiters": wait_in_rounds, "listener": listen}[role]
        asyncio.run(play(url, *map(int, numbers)))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    asyncio.run(measure(quick=parser.parse_args().quick))


if __name__ == "__main__":
    main()
