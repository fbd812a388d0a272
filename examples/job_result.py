"""Following jobs: one returns a result, one says why its first attempt failed, and another is cancelled.

Nobody polls: the end of the job wakes the callers that wait for its result, in whichever process they run.

    python -m examples.job_result
"""

import asyncio
import logging

from inconcert import Coordinator, JobCancelled, current_job

concert = Coordinator.embedded()
half_done = asyncio.Event()
may_go_on = asyncio.Event()


@concert.task()
async def total(prices: list[float]) -> float:
    await current_job().progress(0.5, "half of them added")
    half_done.set()
    await may_go_on.wait()
    return sum(prices)


@concert.task(backoff=lambda _: 0.0)
async def charge(order: str) -> str:
    if current_job().attempt == 1:
        raise ConnectionError("the bank does not answer")
    return f"{order} is paid"


@concert.task()
def remind(user: str) -> None:  # a plain function would run in a thread; this one never runs
    print("do not forget", user)


async def main() -> None:
    logging.disable(logging.ERROR)  # what fails is logged
    async with concert, asyncio.TaskGroup() as tasks:
        worker = tasks.create_task(concert.run_worker("default"))

        job = await total.options(unique="order:7").enqueue([9.5, 20.0])
        await half_done.wait()
        print("it is", await job.status(), "-", await job.progress())
        duplicate = await total.options(unique="order:7").enqueue([9.5, 20.0])
        print("enqueued twice:", duplicate.created)
        may_go_on.set()
        print("total:", await job.result(timeout=5))

        payment = await charge.enqueue("order:7")
        print(await payment.result(timeout=5))
        for attempt in await payment.attempts():
            print(f"attempt {attempt.number} failed: {attempt.error}")

        later = await remind.options(delay=3600).enqueue("ann")
        print("cancelled:", await later.cancel())
        try:
            await later.result()
        except JobCancelled:
            print("so it has no result")
        worker.cancel()


if __name__ == "__main__":
    asyncio.run(main())
