"""At most three calls of one API run at once, whichever of two tasks and queues they come from.

python -m examples.shared_limit
"""

import asyncio
from collections import Counter

from inconcert import Coordinator

concert = Coordinator.embedded()
running: Counter[str] = Counter()
most: Counter[str] = Counter()

api = concert.limit("api", 3)
tokens = concert.rate("tokens", 10_000, per=1.0)


async def call_api(text: str) -> int:
    running["api"] += 1
    most["api"] = max(most["api"], running["api"])
    await asyncio.sleep(0.01)  # it reads
    running["api"] -= 1
    return len(text)


@concert.task(queue="texts", limit=api, rate=tokens, cost=len)
async def summarize(text: str) -> int:
    return await call_api(text)


@concert.task(queue="chats", limit=api)
async def answer(question: str) -> int:
    return await call_api(question)


async def main() -> None:
    async with concert:
        jobs = await concert.enqueue_many([task.call(f"text {n}") for n in range(6) for task in (summarize, answer)])
        await concert.run_worker("texts", "chats", burst=True)
        for job in jobs:
            await job.result(timeout=5)
        print("at once, at most:", dict(most))


if __name__ == "__main__":
    asyncio.run(main())
