"""Renews the leases of a process, all of them with one timer, and notifies a holder when its lease is lost.

All times here are of the process's own monotonic clock.  A lease's deadline counts from before the request that granted
it, so it comes before the server ends the lease, whatever the network does.
"""

import asyncio
import logging
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Protocol

from inconcert._redis.wire.background import attempt, recurring
from inconcert._redis.wire.turns import each_in_turns

_log = logging.getLogger("inconcert.leases")

RENEW_AFTER = 1 / 3  # of what is left of a lease
TRY_AGAIN = 1 / 10  # of a ttl, when a renewal failed
_CLOCK_DRIFT = 0.01  # of a ttl: how much slower than the server's our clock may run; also time for a body to stop
_A_MOMENT = 0.001  # seconds
_TOGETHER = 0.25  # of the time between a renewal and the deadline: leases that are due within it are renewed together


def local_deadline(asked_at: float, life: float) -> float:
    """The time at which a lease of `life` seconds that was requested at `asked_at` ends for us."""
    return asked_at + life * (1 - _CLOCK_DRIFT)


def next_renewal(deadline: float) -> float:
    """The time to renew a lease that lasts from now until this deadline."""
    now = time.monotonic()
    return now + (deadline - now) * RENEW_AFTER


def next_try(deadline: float, ttl: float) -> float:
    """The time to renew again after a renewal has failed now."""
    return min(deadline, time.monotonic() + ttl * TRY_AGAIN)


class Renewable(Protocol):
    """Something that is held under a lease."""

    @property
    def kind(self) -> str:
        """The kind of object that it is a lease on, such as `lock`."""
        ...

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def holder(self) -> str:
        """Its holder, unique in the process."""
        ...

    @property
    def deadline(self) -> float:
        """The time at which it is lost unless renewed."""
        ...

    @property
    def renew_at(self) -> float:
        """The time to renew it: the deadline itself while a renewal is under way."""
        ...

    def start_renewal(self) -> None:
        """Send a renewal; `Renewal.add` is called again when its reply has come."""

    def lose(self) -> None:
        """Note that it is lost."""

    def give_up(self) -> None:
        """Release it, and lose it: the coordinator is closing."""


class Renewal:
    """Renews what was added, until it is removed, lost, or no longer referenced."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._kept: dict[str, tuple[Callable[[], Renewable | None], str, str]] = {}  # by holder; its kind, name
        self.timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        self._is_looking = False  # at what is due, in several turns of the loop
        self._is_closed = False

    def add(self, lease: Renewable) -> None:
        """Renew this from now on."""
        if self._is_closed:
            return
        self._kept[lease.holder] = weakref.ref(lease), lease.kind, lease.name
        if self.timer is None or lease.renew_at < self._wakes_at:
            self._wake_at(lease.renew_at)

    def keep(self, lease: Renewable) -> None:
        """Renew this from now on, also if nothing else refers to it."""
        self.add(lease)
        if not self._is_closed:
            self._kept[lease.holder] = (lambda: lease), lease.kind, lease.name

    def remove(self, lease: Renewable) -> None:
        """Stop renewing this."""
        self._kept.pop(lease.holder, None)

    def keeps(self, holder: str) -> bool:
        """True if this holder was added, and not removed or lost."""
        return holder in self._kept

    @property
    def is_needed(self) -> bool:
        """True if anything is held."""
        return bool(self._kept)

    def lease(self, holder: str) -> Renewable | None:
        """The one of this holder, if it was added, and not removed or lost."""
        kept = self._kept.get(holder)
        return None if kept is None else kept[0]()

    def leases(self) -> Iterator[Renewable]:
        """Those that were added, in this order, and are not removed or lost when their turn comes."""
        for holder in [*self._kept]:
            if (lease := self.lease(holder)) is not None:
                yield lease

    def renew_all(self) -> None:
        """Renew everything now: the server may be another one, and lack what was granted last."""

        def renew(lease: Renewable) -> None:
            if lease.renew_at < lease.deadline:  # otherwise a renewal is under way
                lease.start_renewal()

        each_in_turns("renewing a lease", self.leases(), renew)

    def close(self) -> None:
        """Stop."""
        self._is_closed = True
        if self.timer is not None:
            self.timer.cancel()

    def take_all(self) -> Iterator[Renewable]:
        """Remove and return each lease that is still held when its turn comes."""
        for lease in self.leases():
            self.remove(lease)
            yield lease

    def _wake_at(self, when: float) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self._wakes_at = when
        self.timer = self.loop.call_later(max(0.0, when - time.monotonic()), self._tick)

    @recurring("renewing leases")
    def _tick(self) -> None:
        """Look at all that is held, at so much in each turn of the loop, and renew those that are due soon."""
        self.timer = None
        if self._is_looking:  # it began with what was added since
            self._wake_at(time.monotonic() + _A_MOMENT)
            return
        self._is_looking = True
        renewals: list[float] = []
        each_in_turns(
            "looking at a lease", [*self._kept], lambda holder: self._look(holder, renewals)
        ).add_done_callback(lambda _: self._looked(renewals))

    def _looked(self, renewals: list[float]) -> None:
        self._is_looking = False
        if renewals and not self._is_closed and (self.timer is None or min(renewals) < self._wakes_at):
            self._wake_at(min(renewals))

    def _look(self, holder: str, renewals: list[float]) -> None:
        """Renew this one if it is due soon, and note when it is due next; or lose it."""
        kept = self._kept.get(holder)
        if kept is None or self._is_closed:
            return
        reference, kind, name = kept
        lease = reference()
        now = time.monotonic()
        if lease is None:
            del self._kept[holder]
            _log.warning(
                "the lease on %s %r was dropped without a release; it lapses by itself", kind, name, extra={kind: name}
            )
        elif now >= lease.deadline:
            del self._kept[holder]
            attempt("ending what was lost", lease.lose)
        else:
            if now >= lease.renew_at - _TOGETHER * (lease.deadline - lease.renew_at):
                attempt("renewing a lease", lease.start_renewal)
            renewals.append(lease.renew_at)
