"""Durable steps: what a job has done is kept, and its next attempt goes on after it.

python -m examples.durable_steps
"""

import asyncio
from dataclasses import dataclass

from inconcert import Coordinator, current_job, durable

concert = Coordinator.embedded()


@dataclass
class Payment:
    order: str
    cents: int


async def charge(order: str, cents: int) -> Payment:
    print("charges", cents, "cents for the", order)
    return Payment(order, cents)


async def pack(order: str) -> str:
    return f"parcel with the {order}"


@concert.task()
async def fulfil(order: str, cents: int) -> str:
    print("attempt", current_job().attempt)
    payment = await durable.step("charge", charge, order, cents)
    if current_job().attempt == 1:
        print("cannot pack it now")
        await current_job().nack(delay=0)
        return ""
    parcel = await durable.step("pack", pack, order)
    return f"{parcel}, paid with {payment.cents} cents"


async def main() -> None:
    async with concert:
        job = await fulfil.enqueue("sword", 1200)
        await concert.run_worker("default", burst=True)
        print(await job.result(timeout=5))


if __name__ == "__main__":
    asyncio.run(main())
