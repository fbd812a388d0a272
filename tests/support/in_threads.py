"""Locks and semaphores of threads, for the contract of the family: each verb runs in a thread, and is awaited here.

An `async with` enters and leaves in one thread, as a `with` does.  A thread cannot be cancelled while it waits, and its
body is not stopped when its lease is lost: tests of these are not `also_in_threads`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, TypeVar, cast

from inconcert import Coordinator, Lease, SyncCoordinator, SyncLease, SyncPermits
from inconcert._core.permits import Permits
from inconcert._rules.durations import Seconds
from tests.support.permits import Make, Member

__all__ = ["IN_THREADS", "threads_at"]

R = TypeVar("R")

_MOST = 64  # threads of one lock or semaphore

_here: "list[_Threads]" = []  # of the test that runs


class _Threads:
    """The coordinators of one test, one for each that it has itself."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self._url = url
        self._stack = stack
        self._made: dict[Coordinator, SyncCoordinator] = {}

    def beside(self, concert: Coordinator) -> SyncCoordinator:
        if concert not in self._made:
            opened = SyncCoordinator(self._url, namespace=concert._ref.keys.namespace)
            self._made[concert] = self._stack.enter_context(opened)
        return self._made[concert]

    def pool(self, most: int) -> ThreadPoolExecutor:
        return self._stack.enter_context(ThreadPoolExecutor(most))


@contextmanager
def threads_at(url: str) -> Generator[None]:
    """Make them on this server meanwhile, and close them in the end."""
    with ExitStack() as stack:
        _here.append(_Threads(url, stack))
        yield
        _here.pop()


class _Lease:
    """A lease that a thread holds."""

    def __init__(self, lease: SyncLease, run: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        self._lease = lease
        self._run = run
        self._state = cast("Any", lease)._lease._state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lease, name)

    def __repr__(self) -> str:
        return repr(self._lease)

    async def renew(self) -> None:
        await self._run(self._lease.renew)

    async def release(self) -> None:
        await self._run(self._lease.release)


class _InThreads:
    """A lock or a semaphore of threads."""

    def __init__(self, permits: SyncPermits) -> None:
        self._permits = permits
        self._keys = permits._permits._keys
        self._threads = _here[-1]
        self._pool = self._threads.pool(_MOST)
        self._entered: list[tuple[asyncio.Task[Any] | None, ThreadPoolExecutor]] = []

    async def acquire(self, **options: Any) -> _Lease:
        return _Lease(await self._run(partial(self._permits.acquire, **options)), self._run)

    async def try_acquire(self) -> _Lease | None:
        lease = await self._run(self._permits.try_acquire)
        return None if lease is None else _Lease(lease, self._run)

    async def locked(self) -> bool:
        return await self._run(self._permits.locked)

    async def holders(self) -> list[str]:
        return await self._run(self._permits.holders)

    async def waiters(self) -> int:
        return await self._run(self._permits.waiters)

    async def __aenter__(self) -> _Lease:
        thread = self._threads.pool(1)
        lease = await _run(thread, self._permits.__enter__)
        self._entered.append((asyncio.current_task(), thread))
        return _Lease(lease, self._run)

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        mine = [entry for entry in self._entered if entry[0] is asyncio.current_task()][-1]
        self._entered.remove(mine)
        await _run(mine[1], partial(self._permits.__exit__, error_type, error, traceback))

    def _run(self, function: Callable[[], R]) -> Awaitable[R]:
        return _run(self._pool, function)


def _run(pool: ThreadPoolExecutor, function: Callable[[], R]) -> Awaitable[R]:
    return asyncio.get_running_loop().run_in_executor(pool, function)


def _made(make: Callable[..., SyncPermits]) -> Make:
    def beside(
        concert: Coordinator, name: str, *, ttl: Seconds = 30.0, timeout: Seconds | None = None
    ) -> Permits[Lease]:
        return cast("Permits[Lease]", _InThreads(make(_here[-1].beside(concert), name, ttl=ttl, timeout=timeout)))

    return beside


IN_THREADS = [
    Member("lock in threads", 1, _made(SyncCoordinator.lock)),
    Member("semaphore of 3 in threads", 3, _made(partial(SyncCoordinator.semaphore, limit=3))),
]
