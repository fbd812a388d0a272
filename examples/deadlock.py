"""A deadlock: two transfers take the locks of two accounts in different orders, and are told why nothing goes on.

python -m examples.deadlock
"""

import asyncio

from inconcert import AcquireTimeout, Coordinator

concert = Coordinator.embedded(namespace="bank")
both = asyncio.Barrier(2)


async def transfer(source: str, target: str) -> None:
    async with concert.lock(f"account:{source}", label=f"{source} to {target}"):
        await both.wait()
        async with concert.lock(f"account:{target}", timeout=2):
            ...


async def safe_transfer(source: str, target: str) -> None:
    async with concert.locks(f"account:{source}", f"account:{target}"):  # in the same order, however they are named
        ...


async def main() -> None:
    async with concert:
        transfers = [
            asyncio.create_task(transfer("ann", "bob"), name="ann to bob"),
            asyncio.create_task(transfer("bob", "ann"), name="bob to ann"),
        ]
        found = await concert.explain("lock:account:ann")
        while not found.deadlocks:
            await asyncio.sleep(0.1)
            found = await concert.explain("lock:account:ann")
        print(found)

        ended = await asyncio.gather(*transfers, return_exceptions=True)
        print("ended by its timeout:", any(isinstance(error, AcquireTimeout) for error in ended))
        await asyncio.gather(safe_transfer("ann", "bob"), safe_transfer("bob", "ann"))
        print("with locks(): both done")


if __name__ == "__main__":
    asyncio.run(main())
