"""A semaphore: 30 payments are to be made, and the provider takes 5 at once.

All processes share the limit, waiters are served in order, and waiting sends nothing.

    python -m examples.semaphore
"""

import asyncio

from inconcert import Coordinator


class Provider:
    """A provider that takes time for each payment, and remembers how many it has had at once."""

    inside = most = paid = 0

    async def pay(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(0.05)
        self.inside -= 1
        self.paid += 1


async def pay(concert: Coordinator, provider: Provider) -> None:
    """Make one payment as soon as it is our turn."""
    async with concert.semaphore("payments", limit=5, timeout=10.0):
        await provider.pay()


async def main() -> None:
    provider = Provider()
    async with Coordinator.embedded() as concert:
        await asyncio.gather(*(pay(concert, provider) for _ in range(30)))

    print(f"payments made: {provider.paid}")
    print(f"most at once:  {provider.most}")


if __name__ == "__main__":
    asyncio.run(main())
