"""Delayed tasks: a delayed job waits in Redis, and jobs run in the order in which they are due. One is rescheduled.

The server's clock decides, so it does not matter which machine enqueued a job, or whether it is still running.

    python -m examples.delayed_task
"""

import asyncio
import time

from inconcert import Coordinator

concert = Coordinator.embedded()
reminded: asyncio.Queue[str] = asyncio.Queue()


@concert.task(queue="reminders")
async def remind(user: str) -> None:
    await reminded.put(user)


async def main() -> None:
    async with concert, asyncio.TaskGroup() as tasks:
        worker = tasks.create_task(concert.run_worker("reminders"))
        enqueued_at = time.monotonic()
        await remind.options(delay=0.9).enqueue("cy")
        late = await remind.options(delay=3600).enqueue("dee")
        await remind.options(delay=0.6).enqueue("bob")
        await remind.options(delay=0.3).enqueue("ann")

        await late.reschedule(delay=1.2)
        for _ in range(4):
            user = await reminded.get()
            print(f"{user} is reminded after {time.monotonic() - enqueued_at:.1f} s")
        worker.cancel()


if __name__ == "__main__":
    asyncio.run(main())
