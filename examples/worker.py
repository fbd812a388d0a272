"""Priorities: a worker takes the most urgent job first, whatever came first.

A job whose function raises is retried, after 1 s at first; a job whose worker dies is run by another.

    python -m examples.worker
"""

import asyncio

from inconcert import Coordinator

concert = Coordinator.embedded()


@concert.task(queue="low")
async def clean_up(folder: str) -> None:
    print(f"low     clean up {folder}")


@concert.task(queue="medium")
async def send_newsletter(user: str) -> None:
    print(f"medium  newsletter to {user}")


@concert.task(queue="high")
async def reset_password(user: str) -> None:
    print(f"high    new password for {user}")


async def main() -> None:
    async with concert:
        await clean_up.enqueue("/uploads")
        await send_newsletter.enqueue("ann")
        await reset_password.enqueue("bob")
        await send_newsletter.enqueue("cy")

        await concert.run_worker("high", "medium", "low", concurrency=1, burst=True)  # until nothing is left


if __name__ == "__main__":
    asyncio.run(main())
