"""A group: one job runs once after many others, however these have ended.

python -m examples.group
"""

import asyncio

from inconcert import Coordinator, current_job

concert = Coordinator.embedded()


@concert.task()
async def resize(picture: int) -> str:
    return f"{picture}.webp"


@concert.task()
async def publish() -> str:
    group = current_job().group
    assert group is not None
    names = [str(each.result()) async for each in group.results() if each.exception() is None]
    return f"publishes {len(names)} pictures, the last one is {names[-1]}"


async def main() -> None:
    async with concert:
        group = await concert.group(then=publish.call(), when="ended", keep_results=True)
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
