"""A lease: the small public face that acquiring returns, which refers to its engine."""

from typing import Generic, TypeVar

from inconcert._core.lease_state import LeaseState
from inconcert._core.own_loop import check_loop
from inconcert._core.permit_state import PermitState

StateT = TypeVar("StateT", bound=LeaseState)


class HeldLease(Generic[StateT]):
    """The right to act for a time, until it is released, or lost."""

    __slots__ = ("__weakref__", "_state")

    def __init__(self, state: StateT) -> None:
        self._state = state

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._state}>"

    @property
    def kind(self) -> str:
        """The kind of object that it is a lease on, such as `lock`."""
        return self._state.kind

    @property
    def name(self) -> str:
        """Its name."""
        return self._state.name

    @property
    def holder(self) -> str:
        """This acquisition's identity, unique every time."""
        return self._state.holder

    @property
    def remaining(self) -> float:
        """Seconds until it is lost unless renewed, by the local monotonic clock; 0 once it is lost or released."""
        return self._state.remaining

    @property
    def is_lost(self) -> bool:
        """True if it ended without a release; known without asking the server."""
        return self._state.is_lost

    async def lost(self) -> None:
        """Wait until it is lost: for leases without a body. Never returns if it is released first.

        Cost: Nothing is sent.
        """
        self._check_loop()
        await self._state.lost()

    async def renew(self) -> None:
        """Extend it to a full ttl from now. That is also done in the background; call it just before a long step.

        Raises:
            LeaseLost: It has lapsed.
            NotHeld: It was released before.
            NotConnected: This is another event loop than the one on which it was acquired.
            OutcomeUnknown: The server did not answer; renewal is retried in the background until the deadline.
        """
        self._check_loop()
        await self._state.renew()

    async def release(self) -> None:
        """Release it. Once started, cancelling this call does not stop the release.

        Raises:
            LeaseLost: It had lapsed before; another may hold it now.
            NotHeld: It was released before.
            NotConnected: This is another event loop than the one on which it was acquired.
            Unavailable: The server refuses it for now. It is sent again until the lease lapses; ask again to know.
            OutcomeUnknown: The server did not answer. It is sent again until the lease lapses, as after `Unavailable`.

        Cost: 1 round trip, and 1 message if someone waits.
        """
        self._check_loop()
        await self._state.release()

    def _check_loop(self) -> None:
        """Raise `NotConnected` unless this is called on the event loop on which it was acquired."""
        check_loop(self._state.loop, self)


class Lease(HeldLease[PermitState]):
    """A permit that is held until it is released, or lost.

    It is renewed in the background as long as it is referenced. If the server cannot be reached, it is lost at its
    deadline by the local clock, which comes before anyone else may get the permit.
    """

    __slots__ = ()

    @property
    def fencing_token(self) -> int:
        """Rises with every grant of the name.

        Pass it to the resource that the permit protects, and let the resource refuse any lower one than it has seen.
        """
        return self._state.fencing_token

    @property
    def previous_lost(self) -> bool:
        """True if a holder before lost its lease instead of releasing it: its work may be half done.

        It died, stood still, dropped its lease, was closed with it, or the lease was released by force. Each loss is
        told once, to the next holder; if that one is cancelled before it has the lease, to the one after it. A
        semaphore tells whichever is granted a permit next, a reader-writer lock the next reader or writer. The
        server remembers a loss for two days; after that, and if the server has lost its data, this is False.
        """
        return self._state.previous_lost


def state_of(lease: Lease) -> PermitState:
    """The engine of a lease, for the tests of users."""
    return lease._state  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
