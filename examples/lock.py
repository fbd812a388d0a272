"""A lock: ten cashiers sell from one shelf, and no piece is sold twice.

Checking first and taking afterwards is safe only if nobody else can take in between.  The lock ensures that, for all
coroutines of all processes that use the same server.

    python -m examples.lock
"""

import asyncio

from inconcert import Coordinator

PIECES = 25


async def sell(concert: Coordinator, sold: list[int]) -> None:
    """Run one cashier: take pieces off the shelf until it is empty."""
    while True:
        async with concert.lock("shelf", timeout=5.0) as lease:
            left = int(await concert.redis.get("left") or 0)
            if left == 0:
                return
            await asyncio.sleep(0.005)  # wraps it; without the lock, another would now see the same piece
            await concert.redis.set("left", left - 1)
            sold.append(lease.fencing_token)


async def main() -> None:
    async with Coordinator.embedded() as concert:
        await concert.redis.set("left", PIECES)
        sold: list[int] = []
        await asyncio.gather(*(sell(concert, sold) for _ in range(10)))

        print(f"pieces on the shelf:  {PIECES}")
        print(f"pieces sold:          {len(sold)}")
        print(f"fencing tokens rose:  {sold == sorted(set(sold))}")


if __name__ == "__main__":
    asyncio.run(main())
