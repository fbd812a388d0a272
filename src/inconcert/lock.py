"""A lock with one holder at a time, among all processes on one server.

A `Lock` keeps no state of a holder: acquiring returns a `Lease`, which is what gets renewed, released, or shown to the
guarded resource.  Many tasks may share one `Lock`.
"""

from inconcert._core.lease import Lease
from inconcert._core.permits import Permits
from inconcert._core.session import SessionRef
from inconcert._rules.defaults import LOCK_TTL
from inconcert._rules.durations import Seconds


class Lock(Permits[Lease]):
    """Mutual exclusion with a lease: a dead holder blocks others only until its lease lapses.

    Waiters are served in the order in which the server saw them, across all processes, and send nothing while they
    wait.  `async with` raises `AcquireTimeout` if the lock was not free in time.  The lease is renewed in the
    background, however long the body takes; if it is lost, the body is cancelled and `LeaseLost` is raised.

    A lease does not protect against a paused process: pass `Lease.fencing_token` on to the resource that the lock
    protects.

    Use it where work must not be done twice at the same time.  For up to N at a time use `Coordinator.semaphore`.
    The lock is not reentrant: a task that holds it and acquires it again waits for itself.

    Made by `Coordinator.lock`:

    ```python
    async with concert.lock("item:42") as lease:
        await store(item, fencing_token=lease.fencing_token)
    ```

    Args:
        name: Which lock. The same name in the same namespace is the same lock, on any machine.
        ttl: Life of a lease between renewals, in seconds; by default 30. That long a dead holder blocks the others.
        timeout: Longest wait of `async with` and `acquire()`, in seconds; None waits forever, 0 tries once.
        metrics_name: Its name in metrics, written in the code, because each makes time series; None for none.
        label: What `Coordinator.inspect` shows of its acquisitions, such as the number of an order; None for nothing.

    Raises:
        ValueError: `ttl` is not above 0, or `timeout` is below 0.
    """

    def __init__(
        self,
        ref: SessionRef,
        name: str,
        *,
        ttl: Seconds = LOCK_TTL,
        timeout: Seconds | None = None,
        metrics_name: str | None = None,
        label: str | None = None,
    ) -> None:
        Permits.__init__(
            self,
            ref,
            "lock",
            name,
            limit=1,
            ttl=ttl,
            timeout=timeout,
            face=Lease,
            metrics_name=metrics_name,
            label=label,
        )
