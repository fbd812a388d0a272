"""Priorities: a worker takes what is urgent first, whatever came first.

A job whose function raises is tried again, after 1 s at first; one whose worker dies is run by another.

    python -m examples.worker
"""

import asyncio

from inconcert import Coordinator

concert = Coordinator.embedded()
done: asyncio.Queue[str] = asyncio.Queue()


@concert.task(queue="low")
async def clean_up(folder: str) -> None:
    await done.put(f"low     clean up {folder}")


@concert.task(queue="medium")
async def send_newsletter(user: str) -> None:
    await done.put(f"medium  newsletter to {user}")


@concert.task(queue="high")
async def reset_password(user: str) -> None:
    await done.put(f"high    new password for {user}")


async def main() -> None:
    async with concert, asyncio.TaskGroup() as tasks:
        await clean_up.enqueue("/uploads")
        await send_newsletter.enqueue("ann")
        await reset_password.enqueue("bob")
        await send_newsletter.enqueue("cy")

        worker = tasks.create_task(concert.run_worker("high", "medium", "low", concurrency=1))
        for _ in range(4):
            print(await done.get())
        worker.cancel()


if __name__ == "__main__":
    asyncio.run(main())
