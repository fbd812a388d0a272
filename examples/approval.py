"""A job waits for a decision, and a thread without an event loop gives it, as a view of Django or Flask would.

The job holds no place in a worker meanwhile, so it may wait for days. The first answer counts.

    python -m examples.approval
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from inconcert import Coordinator, JobStatus, SyncProducer, durable

concert = Coordinator.embedded(namespace="shop")


@dataclass
class Decision:
    by: str
    is_approved: bool


async def pay(order: int) -> str:
    return f"refund of order {order}"


@concert.task(name="refund")
async def refund(order: int) -> str:
    decision = await durable.wait_for("decision", Decision, timeout=timedelta(days=3))
    if not decision.is_approved:
        return f"{decision.by} said no"
    return f"{await durable.step('pay', pay, order)}, approved by {decision.by}"


def decide(producer: SyncProducer, job_id: str, decision: Decision) -> None:
    counts = producer.send_to_job(job_id, "decision", decision)
    print(f"{decision.by} has decided, and it counts: {counts}")


async def main() -> None:
    async with concert:
        job = await refund.enqueue(17)
        await concert.run_worker("default", burst=True)
        print("waits:", await job.status() is JobStatus.DELAYED)
        with SyncProducer(concert.url or "", namespace="shop") as producer:
            await asyncio.to_thread(decide, producer, job.id, Decision("ann", is_approved=True))
            await asyncio.to_thread(decide, producer, job.id, Decision("bob", is_approved=False))
        await concert.run_worker("default", burst=True)
        print(await job.result())


if __name__ == "__main__":
    asyncio.run(main())
