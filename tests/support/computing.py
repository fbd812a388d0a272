"""A process that computes a value once, as the tests start and kill it."""

import asyncio
import time

import anyio

from inconcert import Coordinator
from tests.support.processes import tell


async def ask(url: str, namespace: str, callers: int, seconds: float, begin_at: float) -> None:
    """So many callers ask at one instant for a value whose computation takes so long; tell what each got, and when."""

    async def make() -> int:
        tell("computes", at=time.time())
        await anyio.sleep(seconds)
        return 7

    async def call() -> tuple[int, float]:
        return await concert.once("v", make, ttl=60), time.time()

    async with Coordinator(url, namespace=namespace) as concert:
        tell("ready")
        await anyio.sleep(max(0.0, begin_at - time.time()))
        values = await asyncio.gather(*(call() for _ in range(callers)))
        await anyio.sleep(0.5)  # telling and closing would take the processors from those that still wait
        tell("got", values=values)
