"""Locks, semaphores and rate limiters for code without an event loop: views of web frameworks, threads, scripts.

All threads of a process share one `Coordinator`, which is opened with the first call, on an event loop in a thread of
its own: anyio's blocking portal.  That loop renews leases while the callers work.  So a lock here is the same lock, in
the same line, as one of a `Coordinator`.
"""

import concurrent.futures
import functools
import inspect
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from functools import partial
from types import EllipsisType, TracebackType
from typing import ParamSpec, TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from inconcert._core.layout import CHAT_GROUPS, PARTITIONS
from inconcert._core.lease import Lease, state_of
from inconcert._core.permit_state import PermitState
from inconcert._core.permits import Permits
from inconcert._rules.defaults import LOCK_TTL
from inconcert._rules.durations import Seconds
from inconcert._rules.signing import SigningKeys
from inconcert.coordinator import Coordinator
from inconcert.errors import NotConnected
from inconcert.rate_limiter import RateDecision, RateLimiter, RateStatus
from inconcert.sync_producer import SyncProducer

P = ParamSpec("P")
R = TypeVar("R")

_LEAVING = 5.0  # seconds that an interrupted caller waits at most until it has left the line

_of_parents: list[object] = []  # threads and loops that are not ours, whose finalizers must not run in a fork


class SyncCoordinator(SyncProducer):
    """Locks, semaphores and rate limiters without an event loop, and all that a `SyncProducer` has.

    For views of Flask, Django and Pyramid, threads and scripts; any number of threads may share one.  It connects with
    the first lock, and renews leases in a thread of its own while the callers work.  A process that was forked since
    connects again, with a thread of its own; it does not hold what its parent holds.  Where an event loop runs, use a
    `Coordinator`: a call here blocks its thread.

    ```python
    sync = SyncCoordinator("redis://localhost:6379/0", namespace="shop")

    with sync.lock("item:42", timeout=2) as lease:
        print(lease.fencing_token)
    sync.close()
    ```

    It takes what a `SyncProducer` takes, and a label.  Waiting in line does not count in the `timeout` of a call.

    Args:
        label: What `Coordinator.inspect` shows of this process, such as "web"; None for nothing.
    """

    def __init__(
        self,
        url: str = "redis://localhost:6379/0",
        *,
        namespace: str = "inconcert",
        timeout: Seconds = 10.0,
        partitions: int = PARTITIONS,
        chat_groups: int = CHAT_GROUPS,
        signing_keys: SigningKeys | None = None,
        label: str | None = None,
    ) -> None:
        super().__init__(
            url,
            namespace=namespace,
            timeout=timeout,
            partitions=partitions,
            chat_groups=chat_groups,
            signing_keys=signing_keys,
        )
        self._concert = Coordinator(
            url,
            namespace=namespace,
            timeout=timeout,
            partitions=partitions,
            chat_groups=chat_groups,
            signing_keys=signing_keys,
            label=label,
        )
        self._thread: LoopThread | None = None
        self._process = os.getpid()
        self._mutex = threading.Lock()

    def close(self) -> None:
        """Release all leases, fail who waits, and disconnect; `with` does so. It may be called again."""
        super().close()
        if self._process != os.getpid():
            return
        with self._mutex:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()

    def lock(self, name: str, *, ttl: Seconds = LOCK_TTL, timeout: Seconds | None = None) -> "SyncPermits":
        """A lock, as `Coordinator.lock` makes it: `with sync.lock("item:42", timeout=2) as lease:`.

        Args:
            name: Which lock. The same name in the same namespace is the same lock, on any machine.
            ttl: Life of a lease between renewals, in seconds; by default 30.
            timeout: Longest wait, in seconds; None waits forever, 0 tries once.

        Raises:
            ValueError: `ttl` is not above 0, or `timeout` is below 0.
        """
        return SyncPermits(self, self._concert.lock(name, ttl=ttl, timeout=timeout))

    def semaphore(
        self, name: str, *, limit: int, permits: int = 1, ttl: Seconds = LOCK_TTL, timeout: Seconds | None = None
    ) -> "SyncPermits":
        """A semaphore, as `Coordinator.semaphore` makes it: at most `limit` permits are held at a time.

        Args:
            name: Which semaphore.
            limit: How many permits there are; all processes give the same.
            permits: How many each acquisition takes.
            ttl: See `lock`.
            timeout: See `lock`.

        Raises:
            ValueError: A number is out of its range.
        """
        return SyncPermits(self, self._concert.semaphore(name, limit=limit, permits=permits, ttl=ttl, timeout=timeout))

    def rate_limiter(self, name: str, limit: int, period: Seconds, *, burst: int | None = None) -> "SyncRateLimiter":
        """A rate limiter, as `Coordinator.rate_limiter` makes it.

        Args:
            name: Which rate limiter.
            limit: How many permits there are in each period.
            period: In seconds.
            burst: How many may be taken at once; None for `limit`.

        Raises:
            ValueError: A number is out of its range.
        """
        return SyncRateLimiter(self, self._concert.rate_limiter(name, limit, period, burst=burst))

    def held(
        self, name: str, *, ttl: Seconds = LOCK_TTL, timeout: Seconds | None = None
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Hold a lock while a function runs, such as a view: `@sync.held("item:{item_id}", timeout=2)`.

        Args:
            name: Which lock; a field in braces is the function's parameter of this name.
            ttl: See `lock`.
            timeout: See `lock`.

        Returns:
            A decorator for a plain function. Its result raises `AcquireTimeout` if the lock was not free in time.

        Raises:
            TypeError: The function is a coroutine function, which a `Coordinator` is for.
        """

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            if inspect.iscoroutinefunction(function):
                raise TypeError(f"{function!r} is a coroutine function; use `async with concert.lock(...)` in it")
            signature = inspect.signature(function)

            @functools.wraps(function)
            def holding(*args: P.args, **kwargs: P.kwargs) -> R:
                given = signature.bind(*args, **kwargs)
                given.apply_defaults()
                with self.lock(name.format_map(given.arguments), ttl=ttl, timeout=timeout):
                    return function(*args, **kwargs)

            return holding

        return decorate

    # Private.

    def _opened_thread(self) -> "LoopThread":
        if self._is_closed:
            raise NotConnected(f"{self!r} is closed; use it inside `with sync:`, or make another")
        if self._process != os.getpid():
            _of_parents.append(self._thread)
            self._thread, self._process, self._mutex = None, os.getpid(), threading.Lock()
        with self._mutex:
            if self._thread is None:
                self._thread = LoopThread(self._concert)
            return self._thread


class LoopThread:
    """The event loop on which a coordinator is open, in a thread of one process."""

    def __init__(self, concert: Coordinator) -> None:
        self._process = os.getpid()
        self._concert = concert
        with ExitStack() as stack:
            self._portal: BlockingPortal = stack.enter_context(start_blocking_portal("asyncio"))
            self._portal.call(concert.open)
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Close the coordinator, and end the thread."""
        with self._stack:
            self._portal.call(self._concert.close)

    def call(self, function: Callable[[], Awaitable[R]]) -> R:
        """Call a coroutine function there, and wait; an interrupt cancels it."""
        self._check()
        future = self._portal.start_task_soon(function)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def acquire(self, function: Callable[[], Awaitable[Lease | None]]) -> Lease | None:
        """Acquire there, and wait; an interrupt leaves nothing in line, and nothing held."""
        self._check()
        acquisition = Acquisition(function)
        future = self._portal.start_task_soon(acquisition.run)
        try:
            return future.result()
        except BaseException:
            with suppress(RuntimeError):  # the loop has ended, and released all
                self._portal.call(acquisition.abandon)
                concurrent.futures.wait([future], timeout=_LEAVING)
            raise

    def _check(self) -> None:
        if self._process != os.getpid():
            raise NotConnected(
                f"this was acquired in process {self._process}, of which this one is a fork; acquire it again here",
                is_misuse=True,
            )


class Acquisition:
    """An acquisition for a thread that may be interrupted meanwhile; runs on the loop."""

    def __init__(self, acquire: Callable[[], Awaitable[Lease | None]]) -> None:
        self._acquire = acquire
        self._scope: anyio.CancelScope | None = None  # once it runs
        self._is_abandoned = False
        self._lease: Lease | None = None

    async def run(self) -> Lease | None:
        """Acquire it, unless it was abandoned before."""
        if not self._is_abandoned:
            with anyio.CancelScope() as self._scope:
                self._lease = await self._acquire()
        return self._lease

    def abandon(self) -> None:
        """Leave the line, or release what was acquired."""
        self._is_abandoned = True
        if self._scope is not None:
            self._scope.cancel()
        if self._lease is not None and not state_of(self._lease).is_released:
            state_of(self._lease).release_nowait()


class SyncLease:
    """A lease that a thread holds until it is released, or lost. It is renewed meanwhile, while it is referenced.

    Nothing stops a thread whose lease is lost: look at `is_lost` before a step that must not be done twice, or pass
    `fencing_token` on to what the lock protects. The end of the `with` raises `LeaseLost`.
    """

    __slots__ = ("_lease", "_thread")

    def __init__(self, thread: LoopThread, lease: Lease) -> None:
        self._thread = thread
        self._lease = lease

    def __repr__(self) -> str:
        return f"<SyncLease on {state_of(self._lease)}>"

    @property
    def kind(self) -> str:
        """The kind of thing, such as `lock`."""
        return self._lease.kind

    @property
    def name(self) -> str:
        """Its name."""
        return self._lease.name

    @property
    def holder(self) -> str:
        """This acquisition's identity, unique every time."""
        return self._lease.holder

    @property
    def fencing_token(self) -> int:
        """Rises with every grant of the name; see `Lease.fencing_token`."""
        return self._lease.fencing_token

    @property
    def previous_lost(self) -> bool:
        """True if a holder before lost its lease instead of releasing it; see `Lease.previous_lost`."""
        return self._lease.previous_lost

    @property
    def remaining(self) -> float:
        """Seconds until it is lost unless renewed; 0 once it is lost or released."""
        return self._lease.remaining

    @property
    def is_lost(self) -> bool:
        """True if it ended without a release; known without asking the server."""
        return self._lease.is_lost

    def renew(self) -> None:
        """Extend it to a full ttl from now, as `Lease.renew` does.

        Raises:
            LeaseLost: It has lapsed.
            NotHeld: It was released before.
            NotConnected: This process is a fork of the one that acquired it.
            OutcomeUnknown: The server did not answer; renewal is retried in the background until the deadline.
        """
        self._thread.call(self._lease.renew)

    def release(self) -> None:
        """Release it, as `Lease.release` does.

        Raises:
            LeaseLost: It had lapsed before; another may hold it now.
            NotHeld: It was released before.
            NotConnected: This process is a fork of the one that acquired it.
            Unavailable: The server refuses it for now. It is sent again until the lease lapses.
            OutcomeUnknown: The server did not answer. It is sent again until the lease lapses.
        """
        self._thread.call(self._lease.release)


class SyncPermits:
    """A lock or a semaphore for threads; any number of them may share one object. Not reentrant.

    Made by `SyncCoordinator.lock` and `SyncCoordinator.semaphore`.
    """

    def __init__(self, sync: SyncCoordinator, permits: Permits[Lease]) -> None:
        self._sync = sync
        self._permits = permits
        self._entered = threading.local()  # of each thread the leases of its `with`, the last one innermost

    def __repr__(self) -> str:
        return f"<SyncPermits of {self._permits!r}>"

    def __enter__(self) -> SyncLease:
        thread, lease = self._acquire(...)
        self._stack().append((thread, state_of(lease)))
        return SyncLease(thread, lease)

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        stack = self._stack()
        if not stack:
            raise RuntimeError(f"{self!r} is left in a thread that has not entered it; leave it where it was entered")
        thread, state = stack.pop()
        thread.call(partial(state.conclude, error, was_stopped=False))  # releases, and raises a loss

    def acquire(self, *, timeout: Seconds | EllipsisType | None = ...) -> SyncLease:
        """Wait in line and take it. An interrupt, such as Ctrl-C, leaves the line, or releases what came of it.

        Args:
            timeout: Longest wait in seconds; None waits forever, 0 tries once. Defaults to the object's `timeout`.

        Raises:
            AcquireTimeout: It was not free in time.
            OutcomeUnknown: The server did not answer; a grant that it made is released or lapses.
            NotConnected: It was closed.
        """
        return SyncLease(*self._acquire(timeout))

    def try_acquire(self) -> SyncLease | None:
        """Take it if it is free and nobody waits for it.

        Returns:
            What was acquired, or None.

        Raises:
            OutcomeUnknown: The server did not answer; a grant that it made is released or lapses.
        """
        thread = self._opened()
        lease = thread.acquire(self._permits.try_acquire)
        return None if lease is None else SyncLease(thread, lease)

    def locked(self) -> bool:
        """True if `acquire` would wait."""
        return self._opened().call(self._permits.locked)

    def holders(self) -> list[str]:
        """The holder of each permit, in the order in which their leases end; at most 1,000."""
        return self._opened().call(self._permits.holders)

    def waiters(self) -> int:
        """The number of waiters in line."""
        return self._opened().call(self._permits.waiters)

    # Private.

    def _acquire(self, timeout: Seconds | EllipsisType | None) -> tuple[LoopThread, Lease]:
        thread = self._opened()
        lease = thread.acquire(partial(self._permits.acquire, timeout=timeout))
        assert lease is not None  # noqa: S101 - it was not abandoned
        return thread, lease

    def _stack(self) -> list[tuple[LoopThread, PermitState]]:
        found: list[tuple[LoopThread, PermitState]] = self._entered.__dict__.setdefault("leases", [])
        return found

    def _opened(self) -> LoopThread:
        return self._sync._opened_thread()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


class SyncRateLimiter:
    """A rate limiter for threads. Made by `SyncCoordinator.rate_limiter`."""

    def __init__(self, sync: SyncCoordinator, limiter: RateLimiter) -> None:
        self._sync = sync
        self._limiter = limiter

    def __repr__(self) -> str:
        return f"<SyncRateLimiter of {self._limiter!r}>"

    def acquire(self, *, timeout: Seconds | None = None, cost: int = 1) -> None:
        """Wait for permits, as `RateLimiter.acquire` does.

        Args:
            timeout: Longest wait in seconds; None waits forever.
            cost: How many permits, 1 to `burst`.

        Raises:
            RateLimited: They would not be there in time.
        """
        self._call(partial(self._limiter.acquire, timeout=timeout, cost=cost))

    def try_acquire(self, *, cost: int = 1) -> RateDecision:
        """Take permits if they are there; the answer is true then, and says otherwise when to try again.

        Args:
            cost: How many permits, 1 to `burst`.
        """
        return self._call(partial(self._limiter.try_acquire, cost=cost))

    def inspect(self) -> RateStatus:
        """The number of permits there now."""
        return self._call(self._limiter.inspect)

    def reset(self) -> None:
        """Make all permits available."""
        self._call(self._limiter.reset)

    # Private.

    def _call(self, function: Callable[[], Awaitable[R]]) -> R:
        return self._sync._opened_thread().call(function)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
