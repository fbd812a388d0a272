"""Handing out work as textbooks do it, each way with its defect; and ours, by the same verbs."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio

from inconcert.testing import Process
from tests.mutants.locks import EndlessLock

__all__ = [
    "BlpopWorker",
    "CarelessPoller",
    "Handler",
    "LockingPoller",
    "OurMailbox",
    "OurQueue",
    "OurTasks",
    "WorkRecipe",
]

_RECHECK_AFTER = 0.05  # seconds

Handler = Callable[[int], Awaitable[None]]


class WorkRecipe(ABC):
    """A way to hand out work.

    Args:
        process: Which process uses it.
    """

    def __init__(self, process: Process) -> None:
        self.redis = process.client
        self.process = process

    @abstractmethod
    async def put(self, item: int, *, delay: float = 0) -> None:
        """Add an item, to be handled after so many seconds."""

    @abstractmethod
    async def work(self, handle: Handler) -> None:
        """Handle items one after the other, for ever."""

    @abstractmethod
    async def move(self, handle: Handler) -> None:
        """See to what is due, for ever; where workers do that, work."""


class BlpopWorker(WorkRecipe):
    """BLPOP, and then the work; ZREM, and then RPUSH: what the dead had in hand is gone."""

    async def put(self, item: int, *, delay: float = 0) -> None:
        if delay:
            await self.redis.zadd("delayed", {json.dumps(item): time.time() + delay})
        else:
            await self.redis.rpush("queue", json.dumps(item))

    async def work(self, handle: Handler) -> None:
        while True:
            popped = await self.redis.blpop("queue", 30)
            if popped is not None:
                await handle(json.loads(popped[1]))

    async def move(self, handle: Handler) -> None:
        del handle  # workers are others
        while True:
            first = await self.redis.zrange("delayed", 0, 0, withscores=True)
            if first and first[0][1] <= time.time():
                await self._move(first[0][0])
            else:
                await anyio.sleep(_RECHECK_AFTER)

    async def _move(self, entry: Any) -> None:
        if await self.redis.zrem("delayed", entry):
            await self.redis.rpush("queue", entry)


class CarelessPoller(BlpopWorker):
    """Moves what is due without a look at whether another has just moved it."""

    async def _move(self, entry: Any) -> None:
        await self.redis.zrem("delayed", entry)
        await self.redis.rpush("queue", entry)


class LockingPoller(BlpopWorker):
    """Moves each entry inside a lock for it: an entry whose mover dies stays where it is, and all behind it."""

    async def _move(self, entry: Any) -> None:
        lock = EndlessLock(self.process, key=f"lock:{entry}")
        locked = await lock.acquire(timeout=10)
        if locked is None:
            return
        await super()._move(entry)
        await lock.release(locked)


class OurTasks(WorkRecipe):
    """`concert.enqueue` and `concert.consume`."""

    async def put(self, item: int, *, delay: float = 0) -> None:
        await self.process.concert.enqueue("handle", [item], queue="queue", delay=delay)

    async def move(self, handle: Handler) -> None:
        await self.work(handle)

    async def work(self, handle: Handler) -> None:
        async with self.process.concert.consume("queue") as jobs:
            async for job in jobs:
                async with job:
                    await handle(cast("int", job.args[0]))


class OurQueue(WorkRecipe):
    """`concert.queue`."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self._queue = process.concert.queue("queue", ttl=10)

    async def put(self, item: int, *, delay: float = 0) -> None:
        await self._queue.put(item, delay=delay)

    async def move(self, handle: Handler) -> None:
        await self.work(handle)

    async def work(self, handle: Handler) -> None:
        async for delivery in self._queue:
            async with delivery as item:
                await handle(cast("int", item))


class OurMailbox(WorkRecipe):
    """`concert.mailbox`, in which nothing is put off."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self._mailbox = process.concert.mailbox("queue", ttl=10)

    async def put(self, item: int, *, delay: float = 0) -> None:
        assert delay == 0
        await self._mailbox.send(item)

    async def move(self, handle: Handler) -> None:
        await self.work(handle)

    async def work(self, handle: Handler) -> None:
        while True:
            for message in await self._mailbox.fetch(limit=1, timeout=None, ack=False):
                await handle(cast("int", message.body))
                await self._mailbox.ack([message])
