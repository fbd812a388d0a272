"""Debouncing: while someone types, each change is enqueued, and one job indexes the last of them when it is quiet.

The task keeps a history, which shows how its last jobs have ended.

    python -m examples.debounce
"""

import asyncio

from inconcert import Coordinator, Job

concert = Coordinator.embedded()


@concert.task(queue="search", history=10)
async def index(page: int, text: str) -> None:
    print(f"page {page} is indexed: {text!r}")


async def save(page: int, text: str) -> Job[None]:
    job = await index.options(unique=f"page:{page}", debounce=0.3, max_wait=5).enqueue(page, text)
    print(f"page {page}: {'a job waits' if job.created else 'the same job'}, for {text!r}")
    return job


async def main() -> None:
    async with concert, asyncio.TaskGroup() as tasks:
        worker = tasks.create_task(concert.run_worker("search"))
        jobs = [await save(7, text) for text in ("A", "A sword", "A sword for sale")]
        await jobs[0].result()
        for ended in await index.history():
            waited = ended.ended_at - ended.enqueued_at
            print(f"{ended.outcome} after {ended.attempts} attempt, {waited:.1f} s after the last change")
        worker.cancel()


if __name__ == "__main__":
    asyncio.run(main())
