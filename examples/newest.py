"""The newest wins: each push to a site builds it anew, and a build of an older commit is cancelled for it.

python -m examples.newest
"""

import asyncio

from inconcert import Coordinator, Job

concert = Coordinator.embedded()
began = asyncio.Event()


@concert.task(queue="builds")
async def build(site: str, commit: str) -> str:
    print(f"{site} at {commit}: the build begins")
    began.set()
    try:
        await asyncio.sleep(30 if commit == "first" else 0.1)
    except asyncio.CancelledError:
        await asyncio.sleep(0.3)  # it tidies up, and the next one does not begin before it has
        print(f"{site} at {commit}: the build is cancelled")
        raise
    return f"{site} at {commit} is online"


async def push(site: str, commit: str) -> Job[str]:
    job = await build.options(unique=f"site:{site}", newest="replaces").enqueue(site, commit)
    print(f"{commit}: {'a new job' if job.created else 'in the place of the job that waits'}")
    return job


async def main() -> None:
    async with concert, asyncio.TaskGroup() as tasks:
        worker = tasks.create_task(concert.run_worker("builds"))
        await push("shop", "first")
        await began.wait()
        await push("shop", "second")  # cancels the first, and waits until it has ended
        last = await push("shop", "third")
        print(await last.result(timeout=10))
        worker.cancel()


if __name__ == "__main__":
    asyncio.run(main())
