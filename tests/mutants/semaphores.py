"""Semaphores as textbooks have them, each with its defect."""

import time

import anyio

from tests.mutants.locks import LapsingLock
from tests.mutants.permits import TTL, Held, Recipe

__all__ = ["ClockSemaphore", "CounterSemaphore", "FairSemaphore", "GuardedSemaphore"]


class CounterSemaphore(Recipe):
    """INCR and DECR: the permits of the dead are gone."""

    async def try_acquire(self) -> Held | None:
        if await self.redis.incr("semaphore") <= self.limit:
            return Held()
        await self.redis.decr("semaphore")
        return None

    async def release(self, held: Held) -> bool:
        del held  # permits have no names
        await self.redis.decr("semaphore")
        return True


class ClockSemaphore(Recipe):
    """Scores are the holders' clocks, and the lowest ones hold: who is behind comes in over the limit."""

    async def try_acquire(self) -> Held | None:
        me, now = self.new_id(), time.time()
        async with self.redis.pipeline() as pipe:
            pipe.zremrangebyscore("semaphore", "-inf", now - TTL)
            pipe.zadd("semaphore", {me: now})
            pipe.zrank("semaphore", me)
            rank = (await pipe.execute())[-1]
        if rank < self.limit:
            return Held(me)
        await self.redis.zrem("semaphore", me)
        return None

    async def release(self, held: Held) -> bool:
        return bool(await self.redis.zrem("semaphore", held.what))


class FairSemaphore(Recipe):
    """Ranked by a counter, with lives by clocks: counting and entering are two steps, and overtake each other."""

    async def try_acquire(self) -> Held | None:
        me, now = self.new_id(), time.time()
        async with self.redis.pipeline() as pipe:
            pipe.zremrangebyscore("semaphore", "-inf", now - TTL)
            pipe.zinterstore("owners", {"owners": 1, "semaphore": 0})
            pipe.incr("counter")
            counter = (await pipe.execute())[-1]
            pipe.zadd("semaphore", {me: now})
            pipe.zadd("owners", {me: counter})
            pipe.zrank("owners", me)
            rank = (await pipe.execute())[-1]
        held = Held(me)
        if rank is not None and rank < self.limit:
            return held
        await self.release(held)
        return None

    async def release(self, held: Held) -> bool:
        async with self.redis.pipeline() as pipe:
            pipe.zrem("semaphore", held.what)
            pipe.zrem("owners", held.what)
            return bool((await pipe.execute())[0])

    async def renew(self, held: Held) -> bool:
        if await self.redis.zadd("semaphore", {held.what: time.time()}):  # it was not there
            await self.release(held)
            return False
        return True


class GuardedSemaphore(FairSemaphore):
    """The same inside a lock, for which it waits 10 ms: who does not get it is refused, whatever is free."""

    async def try_acquire(self) -> Held | None:
        lock = LapsingLock(self.process)
        deadline = time.monotonic() + 0.01
        while (locked := await lock.try_acquire()) is None:
            if time.monotonic() >= deadline:
                return None
            await anyio.sleep(0.001)
        try:
            return await super().try_acquire()
        finally:
            await lock.release(locked)
