"""A worker: sends the e-mails that the service asked for, the most urgent first.

Start as many as you like with `python -m examples.marketplace.worker`; INCONCERT_URL names their server.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable

import anyio

from examples.marketplace.outside import send_mail
from inconcert import Coordinator

concert = Coordinator.from_env()

# A job is delivered at least once: again if its worker died after sending the e-mail and before it could say so.
# The job's id is the same each time, and the post office refuses a second e-mail with a key that it has seen.


async def send_sold_email(job_id: str, seller: str, item_id: str, price: float, buyer: str) -> None:
    await send_mail(concert.redis, seller, f"{buyer} has bought your {item_id} for {price:.2f}", key=job_id)


async def send_invoice(job_id: str, buyer: str, item_id: str, price: float) -> None:
    await send_mail(concert.redis, buyer, f"Your invoice for {item_id}: {price:.2f}", key=job_id)


async def ask_for_feedback(job_id: str, buyer: str, item_id: str, due_at: float) -> None:
    await send_mail(concert.redis, buyer, f"How do you like your {item_id}?", key=job_id, due_at=due_at)


TASKS: dict[str, Callable[..., Awaitable[None]]] = {
    task.__name__: task for task in (send_sold_email, send_invoice, ask_for_feedback)
}


async def main() -> None:
    with anyio.CancelScope() as scope:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, scope.cancel)
        async with concert, concert.consume("high", "medium", "low") as jobs:
            async for job in jobs:
                async with job:  # an exception in here is logged, and the job tried again later
                    await TASKS[job.name](job.id, *job.args)


if __name__ == "__main__":
    logging.basicConfig(format="         the log of worker process %(process)d: %(message)s")
    asyncio.run(main())
