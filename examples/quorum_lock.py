"""A quorum lock: hosts make their billing runs one at a time, and one of the three servers may be lost.

Each server grants the lock independently, and the host that has it on a majority of servers has the lock.

    python -m examples.quorum_lock
"""

import asyncio
from contextlib import AsyncExitStack

from inconcert import Coordinator, QuorumLock, QuorumNotReached


async def bill(lock: QuorumLock, steps: list[str]) -> None:
    """Make one host's run as soon as no other host is running."""
    async with lock:
        steps.append("begin")
        await asyncio.sleep(0.02)
        steps.append("end")


async def main() -> None:
    async with AsyncExitStack() as one_server, AsyncExitStack() as two_servers:
        lost_first = await one_server.enter_async_context(Coordinator.embedded())
        lost_next = await two_servers.enter_async_context(Coordinator.embedded())
        stays = await two_servers.enter_async_context(Coordinator.embedded())
        lock = QuorumLock([lost_first.redis, lost_next.redis, stays.redis], "billing")

        steps: list[str] = []
        await asyncio.gather(*(bill(lock, steps) for _ in range(3)))
        print("three servers:", *steps)

        await one_server.aclose()
        steps = []
        await asyncio.gather(*(bill(lock, steps) for _ in range(2)))
        print("two servers:  ", *steps)

        await two_servers.aclose()
        try:
            await bill(lock, steps)
        except QuorumNotReached as error:
            print("no server:    ", len(error.reasons), "of", error.servers, "failed")


if __name__ == "__main__":
    asyncio.run(main())
