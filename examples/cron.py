"""A task that runs automatically: one job for each instant, however many workers there are.

Two workers follow the same schedule, as two processes would. The first to come enqueues the job of an instant, and
the other finds that it exists already.

    python -m examples.cron
"""

import asyncio
from datetime import UTC, datetime

from inconcert import Coordinator, current_job

concert = Coordinator.embedded()
reports: asyncio.Queue[datetime] = asyncio.Queue()


@concert.cron("* * * * * *")  # with seconds, so that you do not have to wait: "0 3 * * *" is each night at three
@concert.task(queue="reports")
async def report() -> None:
    scheduled_at = current_job().scheduled_at
    assert scheduled_at is not None
    await reports.put(datetime.fromtimestamp(scheduled_at, UTC))


async def main() -> None:
    async with concert, asyncio.TaskGroup() as tasks:
        workers = [tasks.create_task(concert.run_worker("reports")) for _ in range(2)]
        first = await reports.get()
        print("a report at a full second:", first.microsecond == 0)
        for _ in range(2):
            seconds = (await reports.get() - first).total_seconds()
            print(f"the next one {seconds:g} s after it")
        for worker in workers:
            worker.cancel()


if __name__ == "__main__":
    asyncio.run(main())
