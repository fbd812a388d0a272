"""Jobs that run after others: pages are read at the same time, and then one job adds up their results.

A job that waits for others takes no place in any worker.  If one of them does not succeed, it is dead-lettered.

    python -m examples.pipeline
"""

import asyncio

from inconcert import Coordinator, JobFailed, current_job

concert = Coordinator.embedded()

PAGES = {"home": "welcome to the shop", "terms": "pay and be happy", "help": "call us"}


@concert.task(result_ttl=0)
async def count_words(page: str) -> int:
    return len(PAGES[page].split())


@concert.task()
async def add_up() -> int:
    return sum(await current_job().parent_results(int))


async def main() -> None:
    async with concert:
        pages = await concert.enqueue_many([count_words.call(page) for page in PAGES])
        total = await add_up.options(after=pages).enqueue()
        print("the sum is", await total.status())
        await concert.run_worker("default", burst=True)
        print("words:", await total.result(int, timeout=5))

        page = await count_words.enqueue("home")
        total = await add_up.options(after=[page]).enqueue()
        await page.cancel()
        try:
            await total.result(timeout=5)
        except JobFailed as error:
            print("no sum:", error.reason.replace(page.id, "ID"))


if __name__ == "__main__":
    asyncio.run(main())
