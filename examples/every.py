"""A function that runs periodically, in one process at a time, although several have registered it.

Here two coordinators stand for two processes of a service.  The first closes, and the second keeps to the same rhythm.

    python -m examples.every
"""

import asyncio
import itertools
import time
from contextlib import AsyncExitStack

from inconcert import Coordinator

PERIOD = 0.2  # seconds

runs: list[tuple[str, float]] = []


def service(url: str, name: str) -> Coordinator:
    """Run one process: the decorated function runs while its coordinator is open."""
    concert = Coordinator(url)

    @concert.every(PERIOD, name="tidy")
    async def tidy() -> None:
        runs.append((name, time.monotonic()))

    return concert


async def ran(times: int) -> None:
    while len(runs) < times:
        await asyncio.sleep(0.01)


async def main() -> None:
    async with Coordinator.embedded() as server, AsyncExitStack() as later:
        async with service(server.url or "", "first"):
            await ran(3)
            await later.enter_async_context(service(server.url or "", "second"))
        await ran(6)

    gaps = [second - first for (_, first), (_, second) in itertools.pairwise(runs)]
    print("ran in:    ", *(name for name, _ in runs))
    print("too early: ", sum(gap < PERIOD - 0.01 for gap in gaps))


if __name__ == "__main__":
    asyncio.run(main())
