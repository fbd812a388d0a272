"""A group: one job runs once after many others, however these have ended.

python -m examples.group
"""

import asyncio

from inconcert import Coordinator, current_job

concert = Coordinator.embedded()


@concert.task()
async def resize(picture: int) -> None: ...


@concert.task()
async def publish() -> str:
    group = concert.tasks.group(current_job().group or "")
    return f"publishes {(await group.progress()).succeeded} pictures"


async def main() -> None:
    async with concert:
        group = await concert.group(then=publish.call(), when="ended")
        await group.add(resize.call(picture) for picture in range(1000))
        await concert.run_worker("default", burst=True)
        print("publish is", await group.callback.status(), "- more pictures may come")
        await group.add([resize.call(1000), resize.call(1001)])
        await group.close()
        print("cancelled:", await group.member(1001).cancel())
        await concert.run_worker("default", burst=True)
        progress = await group.progress()
        print(f"{progress.succeeded} of {progress.total} succeeded, {progress.cancelled} was cancelled")
        print(await group.callback.result(timeout=5))


if __name__ == "__main__":
    asyncio.run(main())
