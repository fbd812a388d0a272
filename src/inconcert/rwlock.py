"""A lock that many readers can hold at once, or one writer alone, among all processes on one server."""

from collections.abc import Callable

from inconcert._core.lease import Lease
from inconcert._core.line import ReleaseCall
from inconcert._core.permit_state import PermitKeys, PermitState
from inconcert._core.permits import LeaseT_co, Permits
from inconcert._core.session import SessionRef
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import load
from inconcert._rules.defaults import LOCK_TTL
from inconcert._rules.durations import Seconds
from inconcert.errors import InconcertError, OutcomeUnknown

_DOWNGRADE = load("permits/downgrade").bind(PermitKeys)

_READERS = 100_000  # at once; with more, the server would spend long on dead holders
_ALONE = "w"  # suffix of a writer's holder


class RWLock:
    """Readers together, or one writer alone, each under a lease of its own.

    Readers and writers wait in one line and are served in the order in which the server saw them: readers next to each
    other in line enter together, and a waiting writer keeps later readers out, so neither side starves.

    `async with` raises `AcquireTimeout` if it was not free in time, and cancels the body and raises `LeaseLost` if the
    lease is lost.

    Use it for things that are read far more often than written, and for long: entering and leaving cost a round trip
    each, as with a plain lock, so short steps gain little.

    It is not reentrant, and a reader cannot become a writer: two that tried would wait for each other forever.  A
    writer can become a reader, with `WriteLease.downgrade`.

    Made by `Coordinator.rwlock`:

    ```python
    doc = concert.rwlock("doc:42")
    async with doc.read():
        ...
    async with doc.write() as lease:
        await store(text, fencing_token=lease.fencing_token)
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
        self._name = name
        self._read = ReadLock(ref, name, ttl=ttl, timeout=timeout, metrics_name=metrics_name, label=label)
        self._write = WriteLock(ref, name, ttl=ttl, timeout=timeout, metrics_name=metrics_name, label=label)

    def __repr__(self) -> str:
        return f"<RWLock {self._name!r}>"

    def read(self) -> "ReadLock":
        """The readers' side, with the verbs of a lock."""
        return self._read

    def write(self) -> "WriteLock":
        """The writers' side, with the verbs of a lock."""
        return self._write


class _Side(Permits[LeaseT_co]):
    """One side of a reader-writer lock. `holders` are of this side only, `waiters` of both."""

    def __init__(
        self,
        ref: SessionRef,
        name: str,
        *,
        limit: int,
        ttl: Seconds,
        timeout: Seconds | None,
        face: Callable[[PermitState], LeaseT_co],
        mark: str,
        metrics_name: str | None,
        label: str | None,
    ) -> None:
        super().__init__(
            ref,
            "rwlock",
            name,
            limit=limit,
            ttl=ttl,
            timeout=timeout,
            face=face,
            mark=mark,
            metrics_name=metrics_name,
            label=label,
        )

    async def locked(self) -> bool:
        """True if `acquire` would wait: the other side holds the lock, or others already wait."""
        waiting, held, holders = await self._inspect()
        return bool(waiting or held >= self._terms.limit or (held and holders[0].endswith(_ALONE.encode())))

    async def holders(self) -> list[str]:
        """The `Lease.holder` of each holder of this side, in the order in which their leases end; at most 1,000."""
        return [holder for holder in await super().holders() if holder.endswith(_ALONE) == bool(self._mark)]


class ReadLock(_Side[Lease]):
    """The readers' side of an `RWLock`: up to 100,000 readers at once, and no writer beside them.

    `holders()` are the readers; `waiters()` counts readers and writers.  Made by `RWLock.read`.
    """

    def __init__(
        self,
        ref: SessionRef,
        name: str,
        *,
        ttl: Seconds,
        timeout: Seconds | None,
        metrics_name: str | None,
        label: str | None,
    ) -> None:
        super().__init__(
            ref,
            name,
            limit=_READERS,
            ttl=ttl,
            timeout=timeout,
            face=Lease,
            mark="",
            metrics_name=metrics_name,
            label=label,
        )


class WriteLock(_Side["WriteLease"]):
    """The writers' side of an `RWLock`: one writer, alone.

    `holders()` is the writer, if any; `waiters()` counts readers and writers.  Made by `RWLock.write`.
    """

    def __init__(
        self,
        ref: SessionRef,
        name: str,
        *,
        ttl: Seconds,
        timeout: Seconds | None,
        metrics_name: str | None,
        label: str | None,
    ) -> None:
        super().__init__(
            ref,
            name,
            limit=1,
            ttl=ttl,
            timeout=timeout,
            face=WriteLease,
            mark=_ALONE,
            metrics_name=metrics_name,
            label=label,
        )


class WriteLease(Lease):
    """A writer's lease, which can be downgraded to a reader's."""

    __slots__ = ()

    async def downgrade(self) -> None:
        """Continue as a reader, without releasing: no other writer comes in between. Readers next in line enter now.

        The lease keeps its body and its fencing token, and gets a new `holder`.  Does nothing if it is already a
        reader's.

        Raises:
            LeaseLost: It had already lapsed.
            NotHeld: It was already released.
            Unavailable: The server could not be reached; the lease is still the writer's.
            OutcomeUnknown: The server did not answer; either readers may enter beside the lease, or it is lost soon.

        Cost: 1 round trip, and 1 message for each process whose readers enter.
        """
        self._check_loop()
        state = self._state
        state.check_held()
        if not state.holder.endswith(_ALONE):
            return
        call = _Downgrade(state, reader=state.holder.removesuffix(_ALONE))
        state.session.channel.submit(call)
        state.go_on_as(call.reader)  # everything sent from here on comes after it
        await call
        if state.is_lost:
            raise state.loss()


class _Downgrade(ReleaseCall):
    """A downgrade under way; its outcome counts even if its caller was cancelled."""

    __slots__ = ("_lease", "_writer", "reader")

    def __init__(self, lease: PermitState, *, reader: str) -> None:
        session = lease.session
        inboxes = session.inboxes(lease.keys.holders)
        command = _DOWNGRADE(lease.keys, holder=lease.holder, inboxes=inboxes, heir=reader)
        super().__init__(session.lines, command)
        self.reader = reader
        self._lease = lease
        self._writer = lease.holder

    def answered(self, reply: Reply) -> None:
        was_held = self.held(reply)
        if not was_held:
            self._lease.renewed(is_held=False, asked_at=0.0)
        elif self._lease.is_released:
            # After a SCRIPT FLUSH it is sent again, behind a release that found nothing yet.
            self._lease.release_nowait()
        super().answered(was_held)

    def failed(self, error: InconcertError) -> None:
        if not isinstance(error, OutcomeUnknown):  # it was not run
            self._lease.go_on_as(self._writer)
        super().failed(error)
