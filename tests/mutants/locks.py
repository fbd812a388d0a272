"""Locks as textbooks have them, each with its defect."""

import hashlib
import time
from contextlib import suppress

import anyio
from redis.exceptions import NoScriptError

from inconcert.testing import Process
from tests.mutants.permits import TTL, Held, Recipe

__all__ = [
    "CachedScriptLock",
    "CarelessReleaseLock",
    "ClientClockLock",
    "ClientClockTokenLock",
    "CountedTokenLock",
    "EndlessLock",
    "LapsingLock",
    "RenewedLock",
    "RepairedLock",
    "SetnxThenExpireLock",
]

_DELETE_MINE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class LapsingLock(Recipe):
    """SET NX PX, and deleted by whoever's it is: lapses under a holder that takes longer, and tells nobody."""

    def __init__(self, process: Process, limit: int = 1, *, key: str = "lock") -> None:
        super().__init__(process, limit)
        self._key = key

    async def try_acquire(self) -> Held | None:
        me = self.new_id()
        return Held(me) if await self.redis.set(self._key, me, nx=True, px=TTL * 1000) else None

    async def release(self, held: Held) -> bool:
        return bool(await self.redis.eval(_DELETE_MINE, 1, self._key, held.what))


class SetnxThenExpireLock(LapsingLock):
    """Two steps: whoever dies between them leaves a lock that never lapses."""

    async def try_acquire(self) -> Held | None:
        me = self.new_id()
        if await self.redis.setnx(self._key, me):
            await self.redis.expire(self._key, TTL)
            return Held(me)
        await self._refused()
        return None

    async def _refused(self) -> None:
        """Leave it."""


class RepairedLock(SetnxThenExpireLock):
    """Who is refused gives a lock without a life one; but that shows as -1, and 0 is one in its last half second."""

    async def _refused(self) -> None:
        if not await self.redis.ttl(self._key):
            await self.redis.expire(self._key, TTL)


class CachedScriptLock(LapsingLock):
    """A script that the server does not know is loaded, and then run: it may be forgotten in between."""

    async def release(self, held: Held) -> bool:
        sha = hashlib.sha1(_DELETE_MINE.encode()).hexdigest()
        try:
            return bool(await self.redis.evalsha(sha, 1, self._key, held.what))
        except NoScriptError:
            await self.redis.script_load(_DELETE_MINE)
        with suppress(NoScriptError):  # a service that logs it
            return bool(await self.redis.evalsha(sha, 1, self._key, held.what))
        return False


class EndlessLock(LapsingLock):
    """A lock without a life: held by the dead for ever."""

    async def try_acquire(self) -> Held | None:
        me = self.new_id()
        return Held(me) if await self.redis.setnx(self._key, me) else None


class CarelessReleaseLock(LapsingLock):
    """Deleted without a look at whose it is."""

    async def release(self, held: Held) -> bool:
        del held  # which is the defect
        return bool(await self.redis.delete(self._key))


class ClientClockLock(LapsingLock):
    """The key says when it ends, and who finds it ended takes over: by their own clock."""

    async def try_acquire(self) -> Held | None:
        now = time.time()
        if await self.redis.setnx(self._key, now + TTL):
            return Held(now + TTL)
        ends = await self.redis.get(self._key)
        if ends is not None and float(ends) < now and await self.redis.getset(self._key, now + TTL) == ends:
            return Held(now + TTL)
        return None


class CountedTokenLock(LapsingLock):
    """A fencing token from a counter, which begins anew when the server loses it."""

    async def try_acquire(self) -> Held | None:
        held = await super().try_acquire()
        return held and Held(held.what, await self.redis.incr("fence"))


class ClientClockTokenLock(LapsingLock):
    """A fencing token from the holder's clock."""

    async def try_acquire(self) -> Held | None:
        held = await super().try_acquire()
        return held and Held(held.what, int(time.time() * 1e6))


class RenewedLock(LapsingLock):
    """Renewed by a task, which ends after the release: a release that is cancelled leaves it running."""

    async def try_acquire(self) -> Held | None:
        held = await super().try_acquire()
        if held is not None:
            self._renewal = self.process.start(self._keep())
        return held

    async def release(self, held: Held) -> bool:
        was_held = await super().release(held)
        self._renewal.cancel()
        return was_held

    async def _keep(self) -> None:
        while await self.redis.pexpire(self._key, TTL * 1000):
            await anyio.sleep(TTL / 3)
