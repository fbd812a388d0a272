"""An answer is read word by word while it is made, by a reader who comes late as well, and again when it begins anew.

python -m examples.stream
"""

import asyncio
from collections.abc import AsyncIterator

from inconcert import Coordinator, Job, Restarted, StreamItem, current_job

concert = Coordinator.embedded()


@concert.task()
async def answer(question: str) -> AsyncIterator[str]:
    for word in ("it", "depends", "on", question):
        if word == "on" and current_job().attempt == 1:
            await current_job().nack(delay=0)  # the model hung up
            return
        yield word


async def read(name: str, job: Job[AsyncIterator[str]]) -> None:
    words: list[str] = []
    async for item in job.stream():
        match item:
            case StreamItem(value=word):
                words.append(word)
            case Restarted():
                print(name, "begins anew")
                words.clear()
            case _:
                words.append("...")  # a Gap: the oldest items are no longer kept
    print(name, "reads:", *words)


async def main() -> None:
    async with concert:
        job = await answer.enqueue("the weather")
        reader = asyncio.create_task(read("a reader", job))
        await concert.run_worker("default", burst=True)
        await reader
        await read("a late reader", job)


if __name__ == "__main__":
    asyncio.run(main())
