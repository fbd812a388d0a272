"""The engine of a lease: a deadline by the local clock, renewal, and the body that stops when it is lost.

Users never see it: they hold a face that refers to it, see `lease.py`.  Nothing else refers to it for long, so dropping
the face drops the lease.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from typing import Any

import anyio

from inconcert._core.body import Body, body_here
from inconcert._core.renewal import RENEW_AFTER, Renewal, local_deadline, next_try
from inconcert._core.scope import note_lease
from inconcert._core.unconfirmed import Unconfirmed
from inconcert.errors import InconcertError, LeaseLost, NotConnected, NotHeld, OutcomeUnknown, Unavailable

_log = logging.getLogger("inconcert.leases")

_TOLD_WHEN_LATE = 1 / 6  # of a ttl: a renewal that is due after a third of it, and begins after half


class LeaseState(ABC):
    """The state of one lease, and what can be done with it, until it is released or lost.

    It is renewed in the background as long as it is referenced.  If the server cannot be reached, it is lost at its
    deadline by the local clock, which comes before anyone else may get it.

    Args:
        kind: The kind of the thing, such as `lock`.
        holder: This acquisition's identity, unique every time.
        ttl: Life between renewals, in seconds.
        deadline: When it is lost unless renewed, by the local monotonic clock.
        renewal: Renews it in the background.
    """

    __slots__ = (
        "__weakref__",
        "_body",
        "_is_lost",
        "_lost",
        "_renewal",
        "_ttl",
        "_unconfirmed",
        "deadline",
        "holder",
        "is_released",
        "kind",
        "name",
        "renew_at",
    )

    renew_at: float

    def __init__(  # noqa: PLR0917 - made for each lease: names of arguments would take 3,000 instructions more
        self, kind: str, name: str, holder: str, ttl: float, deadline: float, renewal: Renewal
    ) -> None:
        self.kind = kind
        self.name = name
        self.holder = holder
        self._ttl = ttl
        self._renewal = renewal
        self._is_lost = False
        self.is_released = False
        self._lost: asyncio.Event | None = None
        self._body: Body | None = None
        self._keep_until(deadline)
        note_lease(self)

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}, {self._left}"

    @property
    def remaining(self) -> float:
        """Seconds until it is lost unless renewed; 0 once it is lost or released."""
        if self._is_lost or self.is_released:
            return 0.0
        return max(0.0, self.deadline - time.monotonic())

    @property
    def is_lost(self) -> bool:
        """True if it ended without a release, by the local clock."""
        return self._is_lost or (not self.is_released and time.monotonic() >= self.deadline)

    @property
    def is_over(self) -> bool:
        """True if it is released, or lost."""
        return self.is_released or self.is_lost

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop on which it was acquired."""
        return self._renewal.loop

    @property
    def body_task(self) -> "asyncio.Task[Any] | None":
        """The task that runs its body; None if it has no body."""
        return None if self._body is None else self._body.task

    async def lost(self) -> None:
        """Wait until it is lost."""
        if self._lost is None:
            self._lost = asyncio.Event()
        if self.is_lost:
            return
        await self._lost.wait()

    async def renew(self) -> None:
        """Extend it to a full ttl from now."""
        self.check_held()
        await self._send_renewal()
        if self.is_lost:
            raise self.loss()

    async def release(self) -> None:
        """Release it."""
        if self.is_released:
            await self._release_again()
            return
        if self._is_lost:
            self.release_nowait()
            raise self.loss()
        # Not by the clock: after the loop was blocked, the reply of a renewal may wait unread. The server knows.
        if not await self._start_release():
            raise self.loss()

    def check_held(self) -> None:
        """Raise `NotHeld` or `LeaseLost` if it is over."""
        if self.is_released:
            raise NotHeld(self.kind, self.name)
        if self.is_lost:
            raise self.loss()

    def loss(self) -> LeaseLost:
        """The error that its holder gets when it is lost."""
        return LeaseLost(self.kind, self.name)

    def fields(self) -> dict[str, object]:
        """The fields that the records of log lines about it have."""
        return {self.kind: self.name}

    # Called by the renewal, and by the entries.

    def start_renewal(self) -> None:
        """Send a renewal without waiting for its reply."""
        self._renewal_starts()
        self._send_renewal()

    def _renewal_starts(self) -> None:
        late = time.monotonic() - self.renew_at
        if late > self._ttl * _TOLD_WHEN_LATE:
            _log.warning(
                "lease on %s is renewed %.1f s late: the event loop stood still", self, late, extra=self.fields()
            )
        self.renew_at = self.deadline

    def renewed(self, *, is_held: bool, asked_at: float) -> None:
        """Process the reply of a renewal that was requested at this time."""
        if self._is_lost or self.is_released:
            return
        if is_held:
            self._keep_until(max(self.deadline, local_deadline(asked_at, self._ttl)))
        else:
            self._renewal.remove(self)
            self.lose()

    def renewal_failed(self, error: InconcertError) -> None:
        """Try a renewal again soon: the server did not answer this one."""
        if not (self._is_lost or self.is_released):
            _log.warning("lease on %s could not be renewed yet: %s", self, error, extra=self.fields())
            self.renew_at = next_try(self.deadline, self._ttl)
            self._renewal.add(self)

    def release_failed(self, error: InconcertError) -> None:
        """Repeat a release that the server refused, or did not answer: it would be held by nobody until it lapses."""
        if isinstance(error, Unavailable | OutcomeUnknown) and not self._is_lost and time.monotonic() < self.deadline:
            if self._repeated is None:
                self._unconfirmed = Unconfirmed(
                    self.kind,
                    self.name,
                    self.holder,
                    deadline=self.deadline,
                    ttl=self._ttl,
                    send=self._start_release,
                )
            self._unconfirmed.failed(error, self._renewal)

    def lose(self) -> None:
        """Note that it is lost, and stop its body."""
        self._is_lost = True
        _log.warning("lease on %s: its holder is stopped", self, extra=self.fields())
        if self._lost is not None:
            self._lost.set()
        if self._body is not None:
            self._body.stop()

    def give_up(self) -> None:
        """Release it: the coordinator is closing. Its body is stopped, and what waits for its loss returns."""
        if self._body is None and self._lost is None:
            _log.info("lease on %s, still held at close: released", self, extra=self.fields())
            self._release_at_close()
        else:
            self.lose()
            self._start_release()

    def release_nowait(self) -> None:
        """Release it without waiting for the reply: its caller has gone, or has lost it."""
        with suppress(NotConnected):  # it was released by closing, or lost before
            self._start_release()

    def enter(self) -> None:
        """Begin a body, which is cancelled when the lease is lost."""
        self._body = body_here()

    def exit(self, error: BaseException | None) -> Coroutine[Any, Any, None]:
        """End a body: release, and raise a loss unless the body raised another error."""
        return self.conclude(error, self.end_body(error))

    def end_body(self, error: BaseException | None) -> bool:
        """End a body, which no loss stops from now on; returns whether this error is only our cancellation of it."""
        assert self._body is not None  # noqa: S101 - entered before
        body, self._body = self._body, None
        return body.end(error)

    async def conclude(self, error: BaseException | None, was_stopped: bool) -> None:  # noqa: FBT001 - from `end_body`
        """Release after a body, and raise a loss unless the body raised another error."""
        try:
            if self.is_released:
                if self._is_lost:  # the coordinator was closed under the body
                    raise self.loss()
            elif error is None and not self._is_lost:  # as release() does, but in this coroutine
                if not await self._start_release():
                    raise self.loss()
            elif isinstance(error, Exception):
                # A cancelled scope around us must not replace the error of the body with its cancellation.
                with anyio.CancelScope(shield=True):
                    await self.release()
            else:
                await self.release()
        except LeaseLost as lost:
            if error is None or was_stopped:
                raise
            error.add_note(str(lost))
        except InconcertError as unconfirmed:
            _log.warning(
                "lease on %s: the release was not confirmed, and is repeated until it lapses: %s",
                self,
                unconfirmed,
                extra=self.fields(),
            )
        if was_stopped:  # although it was held to the end: our own cancellation must not escape
            raise self.loss()

    # Private.

    @abstractmethod
    def _send_renewal(self) -> Awaitable[object]:
        """Request a full ttl from now; `renewed` or `renewal_failed` is called with the outcome, awaited or not."""

    def _release_at_close(self) -> None:
        """Release what was held when its coordinator closed; nobody has lost it."""
        self._start_release()

    @abstractmethod
    def _start_release(self) -> asyncio.Future[Any]:
        """Begin to release it now, awaited or not; the result is whether it was still held.

        It is called again while it is not confirmed: `release_failed` is called with each error.
        """

    async def _release_again(self) -> None:
        """Say what has become of a release that was not confirmed."""
        repeated = self._repeated
        if repeated is None:
            raise NotHeld(self.kind, self.name)
        was_held = await repeated.outcome()
        del self._unconfirmed
        if not was_held:
            raise self.loss()

    @property
    def _repeated(self) -> Unconfirmed | None:
        return getattr(self, "_unconfirmed", None)  # which hardly any lease has

    @property
    def _left(self) -> str:
        return "released" if self.is_released else "lost" if self.is_lost else f"{self.remaining:.1f} s left"

    def _keep_until(self, deadline: float) -> None:
        now = time.monotonic()
        self.deadline = deadline
        self.renew_at = now + (deadline - now) * RENEW_AFTER
        self._renewal.add(self)
