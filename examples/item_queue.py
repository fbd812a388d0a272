"""A queue: three consumers make thumbnails of ten pictures; one picture fails once, and another always.

An item is in Redis until it is acknowledged, so a consumer that fails or dies loses nothing.  The queue has room for
five, so the producer waits for the consumers.

    python -m examples.item_queue
"""

import asyncio
import logging
from collections import Counter

from inconcert import Coordinator, Queue

PICTURES = 10


async def work(queue: Queue, tries: Counter[int]) -> None:
    """Run one of the consumers."""
    async for delivery in queue:
        async with delivery as picture:
            assert isinstance(picture, int)
            tries[picture] += 1
            await asyncio.sleep(0.01)
            if picture == 3 and delivery.attempt == 1:
                raise ConnectionError("the store is away")
            if picture == 7:
                raise ValueError("not a picture")


async def main() -> None:
    logging.disable(logging.ERROR)  # what fails is logged
    async with Coordinator.embedded() as concert:
        queue = concert.queue("thumbnails", maxsize=5, max_attempts=3)
        tries: Counter[int] = Counter()
        workers = [asyncio.create_task(work(queue, tries)) for _ in range(3)]
        for picture in range(PICTURES):
            await queue.put(picture, timeout=5.0)
        await queue.shutdown()  # the consumers end when all is done
        await asyncio.gather(*workers)

        [dead] = await queue.dead()
        print(f"pictures done:  {len(tries) - 1} of {PICTURES}")
        print(f"tried again:    {tries[3]} tries of 3, {tries[7]} of 7")
        print(f"dead-lettered:  {dead.item}, for {dead.reason}")


if __name__ == "__main__":
    asyncio.run(main())
