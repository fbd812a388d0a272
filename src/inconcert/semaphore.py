"""A semaphore: up to a limit of holders at a time, among all processes on one server."""

from types import EllipsisType

from inconcert._core.lease import Lease
from inconcert._core.permits import Permits
from inconcert._core.session import SessionRef
from inconcert._rules.defaults import LOCK_TTL
from inconcert._rules.durations import Seconds
from inconcert._rules.limits import whole

_MOST = 100_000  # permits; a higher limit bounds nothing, and the server would spend long on dead holders
_MOST_AT_ONCE = 1_000  # permits of one acquisition, each of which is an entry on the server


class Semaphore(Permits[Lease]):
    """A limited number of permits, each under its own lease: a dead holder's permit is free when its lease lapses.

    Fair and strict: never more than `limit` holders by the server's clock, and waiters are served in the order in which
    the server saw them.  Each caller is judged by its own `limit`, so that a limit can change in a rolling release.

    An acquisition may take several permits: all of them or none, in its turn.  Nobody behind it gets a permit before,
    so that one that wants many is not starved by those that want one.

    `async with` raises `AcquireTimeout` if no permit was free in time, renews the lease while its body runs, and
    cancels the body and raises `LeaseLost` if the lease is lost.

    Use it to bound how many do something at once, such as calls to a payment provider.  To bound how many begin per
    second, use `Coordinator.rate_limiter`.

    Made by `Coordinator.semaphore`:

    ```python
    async with concert.semaphore("payment", limit=5):
        await provider.charge(order)
    ```

    Args:
        name: Which semaphore. The same name in the same namespace is the same semaphore, on any machine.
        limit: How many permits there are, 1 to 100,000.
        permits: How many an acquisition takes, all of them or none, 1 to `limit` and at most 1,000; by default 1.
        ttl: Life of a lease between renewals, in seconds; by default 30. After that long the permits of a dead holder
            are free.
        timeout: Longest wait of `async with` and `acquire()`, in seconds; None waits forever, 0 tries once.
        metrics_name: Its name in metrics, written in the code, because each makes time series; None for none.
        label: What `Coordinator.inspect` shows of its acquisitions, such as the number of an order; None for nothing.

    Raises:
        ValueError: `limit`, `permits` or `ttl` is out of its range, or `timeout` is below 0.
    """

    def __init__(
        self,
        ref: SessionRef,
        name: str,
        *,
        limit: int,
        permits: int = 1,
        ttl: Seconds = LOCK_TTL,
        timeout: Seconds | None = None,
        metrics_name: str | None = None,
        label: str | None = None,
    ) -> None:
        super().__init__(
            ref,
            "semaphore",
            name,
            limit=limit,
            permits=permits,
            ttl=ttl,
            timeout=timeout,
            face=Lease,
            metrics_name=metrics_name,
            label=label,
        )
        whole(f"limit of semaphore {name!r}", limit, most=_MOST)
        whole(f"permits of semaphore {name!r}", permits, most=min(limit, _MOST_AT_ONCE))

    async def acquire(self, *, permits: int | None = None, timeout: Seconds | EllipsisType | None = ...) -> Lease:
        """Wait in line and take permits, all of them at once, under one lease.

        Args:
            permits: How many, 1 to `limit` and at most 1,000. Defaults to the object's `permits`.
            timeout: Longest wait in seconds; None waits forever, 0 tries once. Defaults to the object's `timeout`.

        Raises:
            AcquireTimeout: They were not free in time, or the server did not answer in time, as `__cause__` and the
                message say; the waiter has left the line.
            Unavailable: The server could not be asked, or is unreachable when the time is up; nothing was acquired.
            OutcomeUnknown: The server did not answer; a grant that it made is released or lapses.

        Cost: 1 round trip when they are free. Otherwise 1 to join the line, 0 while waiting, 1 message to wake.
        """
        if permits is not None:
            return await self._taking(permits).acquire(timeout=timeout)
        return await super().acquire(timeout=timeout)

    async def try_acquire(self, *, permits: int | None = None) -> Lease | None:
        """Take permits if they are free and nobody waits; never joins the line.

        Args:
            permits: See `acquire`.

        Returns:
            What was acquired, or None.

        Raises:
            OutcomeUnknown: The server did not answer; a grant that it made is released or lapses.
        """
        if permits is not None:
            return await self._taking(permits).try_acquire()
        return await super().try_acquire()

    # Private.

    def _taking(self, permits: int) -> "Semaphore":
        """The same semaphore, for acquisitions of so many permits."""
        return Semaphore(
            self._ref,
            self._name,
            limit=self._terms.limit,
            permits=permits,
            ttl=self._terms.ttl,
            timeout=self._timeout,
            metrics_name=self._metrics_name or None,
            label=self._label,
        )
