"""A namespace with something of everything that the dashboard shows."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio

from inconcert import Coordinator, Job, durable
from tests.support.background import in_background
from tests.support.eventually import eventually

__all__ = [
    "OURS",
    "PAGES",
    "at_work",
    "bury",
    "fill_others",
    "hold",
    "is_held",
    "reference_in",
    "waiting_for",
    "waits_of",
]

OURS = {"sec-fetch-site": "same-origin"}
PAGES = (
    "",
    "queues",
    "jobs",
    "tasks",
    "locks",
    "schedules",
    "workers",
    "dead",
    "others",
    "other?kind=items&name=parcels",
    "other?kind=signal&name=deploy",
    "search?q=mail",
    "jobs/0123456789abcdef.1.0",
    "live",
)


async def bury(concert: Coordinator, reason: str = "boom", *args: str) -> str:
    """A dead-lettered job."""
    job = await concert.enqueue("send", [*args], queue="mail")
    async with concert.consume("mail") as jobs:
        [claimed] = await jobs.try_claim(1)
        await claimed.bury(ValueError(reason))
    return job.id


def reference_in(page: str, queue: str) -> str:
    """What stands for a queue in its form."""
    found = re.search(rf"{queue}.*?name=\"queue\" value=\"(\w+)\"", page, re.DOTALL)
    assert found is not None
    return found[1]


@asynccontextmanager
async def at_work(concert: Coordinator, text: str) -> AsyncGenerator[Job[Any]]:
    """A job of a group that runs, with this text in its steps and items; one waits for it."""
    go_on, has_begun = asyncio.Event(), asyncio.Event()

    @concert.task(name=text, queue="bread", max_attempts=1)
    async def bake(kind: str) -> AsyncIterator[str]:
        await durable.step(text, knead, kind)
        yield text
        yield kind
        has_begun.set()
        await go_on.wait()

    async def knead(kind: str) -> str:
        return f"{kind}, kneaded"

    @concert.task(name="sell", queue="bread")
    async def sell() -> None: ...

    group = await concert.group(then=sell.call())
    await group.add([bake.call(text), sell.options(delay=3600).call()])
    await group.close()
    job = group.member(0)
    await concert.enqueue(text, queue="mail", after=[job.id])
    async with in_background(concert.run_worker("bread")):
        await has_begun.wait()
        await eventually(partial(has_items, job))
        yield job
        go_on.set()
        await job.result()


async def has_items(job: Job[Any]) -> bool:
    """Whether both have arrived."""
    return len(await job.items()) == 2


async def is_held(concert: Coordinator) -> bool:
    """Whether a process says that it holds something."""
    return any(process.holds for process in (await concert.inspect()).processes)


async def hold(concert: Coordinator, name: str, label: str = "") -> None:
    """Hold a lock until it is lost."""
    async with concert.lock(name, label=label):
        await anyio.sleep_forever()


async def waits_of(concert: Coordinator, number: int) -> bool:
    """Whether processes wait for so many things."""
    return sum(len(process.waits) for process in (await concert.inspect()).processes) == number


async def fill_others(concert: Coordinator, text: str) -> list[str]:
    """A queue of items, a mailbox and a chat with this text in every place; the kinds of which one has this name."""
    queue = concert.queue(text, max_attempts=1)
    await queue.put({text: text})
    await queue.put(text)
    async with await queue.get():
        raise ValueError(text)
    await concert.mailbox(text).send(text)
    return ["items", "mailbox", "rate limiter", "signal"]


@asynccontextmanager
async def waiting_for(concert: Coordinator, text: str) -> AsyncGenerator[None]:
    """Somebody waits for a signal of this name."""
    waiting = asyncio.ensure_future(concert.signal(text).wait())
    await eventually(partial(waits_of, concert, 1))
    yield
    waiting.cancel()
    await asyncio.wait([waiting])
