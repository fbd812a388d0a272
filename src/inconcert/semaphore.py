"""A semaphore: up to a limit of holders at a time, among all processes on one server."""

from inconcert._core.lease import Lease
from inconcert._core.permits import Permits
from inconcert._core.session import SessionRef
from inconcert._rules.durations import Seconds
from inconcert._rules.limits import whole

__all__ = ["Semaphore"]

DEFAULT_TTL = 30.0  # seconds; as for a lock
_MOST = 100_000  # permits; a higher limit bounds nothing, and the server would spend long on dead holders


class Semaphore(Permits[Lease]):
    """A limited number of permits, each under its own lease: a dead holder's permit is free when its lease lapses.

    Fair and strict: never more than `limit` holders by the server's clock, and waiters are served in the order in which
    the server saw them.  Each caller is judged by its own `limit`, so that a limit can change in a rolling release.

    Use it to bound how many do something at once, such as calls to a payment provider.  To bound how many begin per
    second, use `Coordinator.rate_limiter`.

    Made by `Coordinator.semaphore`:

    ```python
    async with concert.semaphore("payment", limit=5):
        await provider.charge(order)
    ```

    Args:
        name: Which semaphore. The same name in the same namespace is the same semaphore, on any machine.
        limit: How many holders there may be at once, 1 to 100,000.
        ttl: Life of a lease between renewals, in seconds.
        timeout: Longest wait of `async with` and `acquire()`, in seconds; None waits forever, 0 tries once.
        metrics_name: Its name in metrics, written in the code, because each makes time series; None for none.
        label: What `Coordinator.inspect` shows of its acquisitions, such as the number of an order; None for nothing.

    Raises:
        ValueError: `limit` or `ttl` is not above 0, or `timeout` is below 0.
        InvalidName: `name` is empty or longer than 512 bytes.
    """

    def __init__(
        self,
        ref: SessionRef,
        name: str,
        *,
        limit: int,
        ttl: Seconds = DEFAULT_TTL,
        timeout: Seconds | None = None,
        metrics_name: str | None = None,
        label: str | None = None,
    ) -> None:
        super().__init__(
            ref,
            "semaphore",
            name,
            limit=limit,
            ttl=ttl,
            timeout=timeout,
            face=Lease,
            metrics_name=metrics_name,
            label=label,
        )
        whole(f"limit of semaphore {name!r}", limit, most=_MOST)
