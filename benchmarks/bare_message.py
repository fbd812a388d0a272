"""The floor of all that wakes another process: one bare message through the server, without anything around it."""

import argparse
import asyncio
import time
from collections.abc import Sequence

import redis.asyncio

from benchmarks.processes import all_numbers, start

__all__ = ["latencies"]

_CHANNEL = "floor"


async def latencies(url: str, rounds: int, pause: float) -> list[float]:
    """Milliseconds that each message takes from this process to another.

    Args:
        url: The server.
        rounds: How many messages.
        pause: Seconds between two of them, so that both processes are asleep before.
    """
    child = await start("bare_message", url, rounds)
    sent_at: list[float] = []
    async with redis.asyncio.Redis.from_url(url) as client:
        while not await client.pubsub_channels(_CHANNEL):
            await asyncio.sleep(0.01)
        for _ in range(rounds):
            await asyncio.sleep(pause)
            sent_at.append(time.monotonic())
            await client.publish(_CHANNEL, "")
    return [(received - sent) * 1000 for sent, received in zip(sent_at, await all_numbers(child), strict=True)]


async def listen(url: str, rounds: int) -> None:
    """Print when each message has come, by the machine's monotonic clock."""
    received_at: list[float] = []
    async with redis.asyncio.Redis.from_url(url) as client, client.pubsub() as subscription:
        await subscription.subscribe(_CHANNEL)
        while len(received_at) < rounds:
            if await subscription.get_message(ignore_subscribe_messages=True, timeout=5):
                received_at.append(time.monotonic())
    print("\n".join(map(str, received_at)))


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the process that listens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("rounds", type=int)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = parse()
    asyncio.run(listen(options.url, options.rounds))
