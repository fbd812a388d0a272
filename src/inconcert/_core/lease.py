"""What acquiring returns: the right to act for a time, renewed in the background."""

import asyncio
import logging
import time
from contextlib import suppress
from typing import NamedTuple

import anyio

from inconcert._core.body import Body
from inconcert._core.line import Parting
from inconcert._core.session import Session
from inconcert._redis.channel import Call
from inconcert._redis.replies import Reply
from inconcert._redis.scripts import load
from inconcert._rules.durations import milliseconds
from inconcert.errors import InconcertError, LeaseLost, NotConnected, NotHeld

__all__ = ["Grant", "Lease", "local_deadline"]

_log = logging.getLogger("inconcert")

_RENEW = load("permits/renew")
_RELEASE = load("permits/release")

_CLOCK_DRIFT = 0.01  # of a ttl: how much slower than the server's our clock may run; also time for a body to stop in
_RENEW_AFTER = 1 / 3  # of what is left of a lease
_TRY_AGAIN = 1 / 10  # of a ttl, when a renewal failed


class Grant(NamedTuple):
    """What the server, or one who handed over, has granted."""

    fencing_token: int
    deadline: float  # by the local monotonic clock


def local_deadline(asked_at: float, life: float) -> float:
    """When a lease of `life` seconds ends for us, if it was asked for at `asked_at`."""
    return asked_at + life * (1 - _CLOCK_DRIFT)


class Lease:
    """A permit that is held until it is released, or lost.

    It is renewed in the background as long as someone keeps it.  If the server cannot be reached, it is lost at its
    deadline by the local clock, which comes before anyone else may get the permit.

    Attributes:
        kind: What it is a lease on, such as `lock`.
        name: Which one.
        holder: This acquisition's identity, unique every time.
        fencing_token: Rises with every grant of the name.  Give it to the resource that the permit protects, and let
        the
            resource refuse a lower one than it has seen.
    """

    __slots__ = (
        "__weakref__",
        "_body",
        "_is_lost",
        "_is_released",
        "_keys",
        "_lost",
        "_session",
        "_ttl",
        "deadline",
        "fencing_token",
        "holder",
        "kind",
        "name",
        "renew_at",
    )

    def __init__(
        self, session: Session, kind: str, name: str, *, keys: tuple[str, ...], holder: str, ttl: float, grant: Grant
    ) -> None:
        self.kind = kind
        self.name = name
        self.holder = holder
        self.fencing_token = grant.fencing_token
        self._session = session
        self._keys = keys
        self._ttl = ttl
        self._is_lost = False
        self._is_released = False
        self._lost: asyncio.Event | None = None
        self._body: Body | None = None
        self._keep_until(grant.deadline)

    def __repr__(self) -> str:
        state = "released" if self._is_released else "lost" if self.is_lost else f"{self.remaining:.1f} s left"
        return f"<Lease on {self.kind} {self.name!r}, fencing token {self.fencing_token}, {state}>"

    @property
    def remaining(self) -> float:
        """Seconds until it is lost unless renewed, by the local monotonic clock; 0 once it is lost or released."""
        if self._is_lost or self._is_released:
            return 0.0
        return max(0.0, self.deadline - time.monotonic())

    @property
    def is_lost(self) -> bool:
        """Whether it ended without a release; known without asking the server."""
        return self._is_lost or (not self._is_released and time.monotonic() >= self.deadline)

    async def lost(self) -> None:
        """Wait until it is lost: for leases without a body. Never returns if it is released first."""
        if self._lost is None:
            self._lost = asyncio.Event()
        if self.is_lost:
            return
        await self._lost.wait()

    async def renew(self) -> None:
        """Make it last a full ttl from now. The background does so by itself; this is for just before a long step.

        Raises:
            LeaseLost: It has lapsed.
            NotHeld: It was released before.
            OutcomeUnknown: The server did not answer; the background tries again until the deadline.

        Cost: 1 round trip.
        """
        self._check_held()
        call = _Renewing(self, self._keys, self._ttl)
        self._session.channel.submit(call)
        await call
        if self.is_lost:
            raise LeaseLost(self.kind, self.name, self.fencing_token)

    async def release(self) -> None:
        """Give it back. Once this has started, cancelling it changes nothing: the release is on its way.

        Raises:
            LeaseLost: It had lapsed before; another may hold the permit now.
            NotHeld: It was released before.
            OutcomeUnknown: The server did not answer; the lease lapses by itself.

        Cost: 1 round trip, and 1 message if someone waits.
        """
        if self._is_released:
            raise NotHeld(self.kind, self.name)
        if self.is_lost:
            with suppress(NotConnected):  # the loss is what there is to tell, also if the coordinator was closed since
                self._start_release()
            raise LeaseLost(self.kind, self.name, self.fencing_token)
        reply = await (call := self._start_release())
        was_held = reply[0] == 1
        # A release that was sent twice finds nothing the second time; in time, the first was a success.
        if not was_held and (call.sends == 1 or time.monotonic() >= self.deadline):
            raise LeaseLost(self.kind, self.name, self.fencing_token)

    # For what keeps it.

    def start_renewal(self) -> None:
        """Send a renewal without waiting for its reply."""
        self.renew_at = self.deadline
        self._session.channel.submit(_Renewing(self, self._keys, self._ttl))

    def renewed(self, *, is_held: bool, asked_at: float) -> None:
        """Take the reply of a renewal that was asked for at this time."""
        if self._is_lost or self._is_released:
            return
        if is_held:
            self._keep_until(max(self.deadline, local_deadline(asked_at, self._ttl)))
        else:
            self._session.renewal.remove(self)
            self.lose()

    def renewal_failed(self, error: InconcertError) -> None:
        """Try a renewal again soon: the server did not answer this one."""
        if not (self._is_lost or self._is_released):
            _log.warning("%r could not be renewed yet: %s", self, error)
            self.renew_at = min(self.deadline, time.monotonic() + self._ttl * _TRY_AGAIN)
            self._session.renewal.add(self)

    def lose(self) -> None:
        """Take note that it is lost, and stop the body under it."""
        self._is_lost = True
        _log.warning("%r: its holder is stopped", self)
        if self._lost is not None:
            self._lost.set()
        if self._body is not None:
            self._body.stop()

    def give_up(self) -> None:
        """Release it, and lose it: the coordinator is closing."""
        self.lose()
        self._start_release()

    def enter(self) -> None:
        """Begin a body, which is cancelled when the lease is lost."""
        self._body = Body()

    async def exit(self, error: BaseException | None) -> None:
        """End a body: release, and tell of a loss if the body has nothing worse to tell."""
        assert self._body is not None  # noqa: S101 - entered before
        was_stopped = self._body.end(error)
        self._body = None
        try:
            if self._is_released:
                if self._is_lost:  # the coordinator was closed under the body
                    raise LeaseLost(self.kind, self.name, self.fencing_token)
            elif isinstance(error, Exception):
                # A cancelled scope around us must not put its cancellation in the place of what the body has raised.
                with anyio.CancelScope(shield=True):
                    await self.release()
            else:
                await self.release()
        except LeaseLost as lost:
            if error is None or was_stopped:
                raise
            error.add_note(str(lost))
        except InconcertError as unconfirmed:
            _log.warning("%r: the release was not confirmed, so it lapses by itself: %s", self, unconfirmed)

    # Below.

    def _check_held(self) -> None:
        if self._is_released:
            raise NotHeld(self.kind, self.name)
        if self.is_lost:
            raise LeaseLost(self.kind, self.name, self.fencing_token)

    def _keep_until(self, deadline: float) -> None:
        self.deadline = deadline
        now = time.monotonic()
        self.renew_at = now + (deadline - now) * _RENEW_AFTER
        self._session.renewal.add(self)

    def _start_release(self) -> Call:
        self._is_released = True
        self._session.renewal.remove(self)
        session = self._session
        call = Parting(session.lines, _RELEASE, self._keys, self.holder, session.inboxes)
        session.channel.submit(call)
        return call


class _Renewing(Call):
    """A renewal under way."""

    __slots__ = ("_asked_at", "_lease")

    def __init__(self, lease: Lease, keys: tuple[str, ...], ttl: float) -> None:
        super().__init__(_RENEW, keys[:1], (lease.holder, milliseconds(ttl)))
        self._lease = lease
        self._asked_at = time.monotonic()

    def answered(self, reply: Reply) -> None:
        self._lease.renewed(is_held=reply == 1, asked_at=self._asked_at)
        super().answered(reply)

    def failed(self, error: InconcertError) -> None:
        self._lease.renewal_failed(error)
        super().failed(error)
