"""A schedule that is changed while workers run: put, paused, resumed, triggered and deleted.

Two workers follow it, as two processes would. Neither needs to be restarted for a change.

    python -m examples.schedules
"""

import asyncio

from inconcert import Coordinator

concert = Coordinator.embedded()
fetched: asyncio.Queue[str] = asyncio.Queue()


@concert.task(queue="fetch")
async def fetch(source: str) -> None:
    await fetched.put(source)


async def main() -> None:
    async with concert, asyncio.TaskGroup() as tasks:
        workers = [tasks.create_task(concert.run_worker("fetch")) for _ in range(2)]
        await concert.schedules.put("prices", fetch.call("old shop"), every=0.2)
        print("fetched from:", await fetched.get())
        await concert.schedules.put("prices", fetch.call("new shop"), every=0.2)
        while await fetched.get() != "new shop":
            pass  # a job of before the change
        print("changed to:  ", "new shop")

        await concert.schedules.pause("prices")
        [schedule] = await concert.schedules.list()
        print("paused:      ", schedule.id, schedule.rule, schedule.next_at)
        job = await concert.schedules.trigger("prices")
        await job.result()
        print("triggered:    once")
        await concert.schedules.delete("prices")
        print("left:        ", len(await concert.schedules.list()))
        for worker in workers:
            worker.cancel()


if __name__ == "__main__":
    asyncio.run(main())
