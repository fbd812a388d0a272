"""What all ways to get a permit have in common; and ours, by the same verbs."""

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio

from inconcert import AcquireTimeout, Coordinator, Lease, LeaseLost, OutcomeUnknown
from inconcert._core.permits import Permits
from inconcert.testing import Process

__all__ = ["TTL", "Held", "OurLock", "OurSemaphore", "OurWriteLock", "Recipe"]

TTL = 10  # seconds; life of a lease
_RECHECK_AFTER = 0.1  # seconds


@dataclass(frozen=True, slots=True)
class Held:
    """What acquiring returns.

    Attributes:
        what: What the recipe knows it by.
        token: What a resource can compare.
        lost: Returns when the holder is told that it holds no more.
    """

    what: Any = None
    token: int | None = None
    lost: Callable[[], Awaitable[None]] = anyio.sleep_forever


class Recipe(ABC):
    """A way to get a permit.

    Args:
        process: Which process uses it.
        limit: How many may hold at once.
    """

    def __init__(self, process: Process, limit: int = 1) -> None:
        self.redis = process.client
        self.process = process
        self.limit = limit

    @abstractmethod
    async def try_acquire(self) -> Held | None:
        """What is held, or None."""

    @abstractmethod
    async def release(self, held: Held) -> bool | None:
        """Give it back; whether it was held, None if nobody said."""

    async def acquire(self, timeout: float) -> Held | None:
        """Poll for at most so many seconds."""
        deadline = time.monotonic() + timeout
        while (held := await self.try_acquire()) is None and time.monotonic() < deadline:
            await anyio.sleep(_RECHECK_AFTER)
        return held

    async def renew(self, held: Held) -> bool:
        """Make the lease last longer; whether it was held."""
        raise NotImplementedError

    def new_id(self) -> str:
        return f"{self.process.name}-{self.process.world.random.random()}"


class OurSemaphore(Recipe):
    """`concert.semaphore`."""

    def __init__(self, process: Process, limit: int = 1) -> None:
        super().__init__(process, limit)
        self._permits: Permits[Lease] = self._make(process.concert)

    def _make(self, concert: Coordinator) -> Permits[Lease]:
        return concert.semaphore("it", limit=self.limit, ttl=TTL)

    async def try_acquire(self) -> Held | None:
        return _held(await self._permits.try_acquire())

    async def acquire(self, timeout: float) -> Held | None:
        try:
            return _held(await self._permits.acquire(timeout=timeout))
        except AcquireTimeout:
            return None

    async def release(self, held: Held) -> bool | None:
        try:
            await held.what.release()
        except LeaseLost:
            return False
        except OutcomeUnknown:
            return None
        return True

    async def renew(self, held: Held) -> bool:
        try:
            await held.what.renew()
        except LeaseLost:
            return False
        return True


class OurLock(OurSemaphore):
    """`concert.lock`."""

    def _make(self, concert: Coordinator) -> Permits[Lease]:
        return concert.lock("it", ttl=TTL)


class OurWriteLock(OurSemaphore):
    """`concert.rwlock(...).write()`."""

    def _make(self, concert: Coordinator) -> Permits[Lease]:
        return concert.rwlock("it", ttl=TTL).write()


def _held(lease: Lease | None) -> Held | None:
    return None if lease is None else Held(lease, lease.fencing_token, lease.lost)
