"""Undo what a job has begun: it is cancelled while it waits, and what it has charged is refunded first.

python -m examples.undo
"""

import asyncio

from inconcert import Coordinator, JobCancelled, JobStatus, durable

concert = Coordinator.embedded()


async def charge(order: str) -> str:
    print("charges the", order)
    return f"payment of the {order}"


async def refund(payment: str) -> None:
    print("refunds the", payment)


@concert.task()
async def sell(order: str) -> str:
    async with durable.undo() as undo:
        payment = await durable.step("charge", charge, order)
        undo.later("refund", refund, payment)
        return await durable.wait_for("packed", str, timeout=3600)


async def main() -> None:
    async with concert:
        worker = asyncio.create_task(concert.run_worker("default"))
        job = await sell.enqueue("sword")
        while await job.status() is not JobStatus.DELAYED:
            await asyncio.sleep(0.01)
        print("cancelled:", await job.cancel(timeout=5))
        try:
            await job.result(timeout=5)
        except JobCancelled as error:
            print(error)
        worker.cancel()
        await asyncio.wait([worker])


if __name__ == "__main__":
    asyncio.run(main())
