"""A lock that several independent servers grant by majority: Redlock.

The servers do not know of each other.  A caller that gets the lock on more than half of them holds it, so the lock
survives the loss of a minority.  `rounds.py` tracks each server's grant; this module adds waiting and the lease's life.

Source: docs/explanation/quorum-locks.md
"""

import random
import time
from collections.abc import Sequence
from types import EllipsisType
from typing import TYPE_CHECKING

import anyio

from inconcert._core.acquirable import Acquirable
from inconcert._core.lease import HeldLease
from inconcert._core.lease_state import LeaseState
from inconcert._core.renewal import Renewal, local_deadline
from inconcert._redis.find.peers import Peer
from inconcert._redis.protocol.keys import Keyspace
from inconcert._rules import durations
from inconcert._rules.backoff import backoff
from inconcert._rules.durations import Seconds, milliseconds
from inconcert.errors import InconcertError
from inconcert.quorum.rounds import QuorumHolding, QuorumKeys, QuorumRound, inspect

if TYPE_CHECKING:
    import redis.asyncio

DEFAULT_TTL = 10.0  # seconds; shorter than a lock's, because a grant that cannot be released stays that long

_SHORTEST_TTL = 0.05  # seconds; too short for a majority to answer over a network if less
_ONE_SERVER = 0.5  # seconds; enough to connect and answer, with TLS and from another continent
_OF_A_TTL = 1 / 4  # at most, so that most of a lease is left after waiting for a silent server
_FIRST_DELAY, _LONGEST_DELAY = 0.02, 1.0  # seconds between attempts: several round trips, and a tolerable delay


class QuorumLease(HeldLease["_QuorumState"]):
    """A lock that a majority of the servers has granted, held until it is released, or lost.

    It is renewed in the background as long as it is referenced.  Unless a majority renews it, it is lost at its
    deadline, and the body is cancelled.  It has no fencing token, because the servers share no counter.
    """

    __slots__ = ()

    async def renew(self) -> None:
        """Make it last a full ttl from now. This happens in the background anyway; call it just before a long step.

        Raises:
            LeaseLost: It has lapsed, or a majority has granted it to others.
            NotHeld: It was already released.
            QuorumNotReached: No majority confirmed that it holds the lease; background renewal continues until the
                deadline.

        Cost: 1 round trip to all servers; waits for a majority.
        """
        await super().renew()

    async def release(self) -> None:
        """Release the lease. Once started, cancelling this call does not stop the release.

        Raises:
            LeaseLost: It had already lapsed, or a majority no longer had it; another may hold it now.
            NotHeld: It was already released.
            QuorumNotReached: No majority confirmed it. It is sent again until the lease lapses; call this again
                to know.

        Cost: 1 round trip to all servers; waits for a majority.
        """
        await super().release()


class _QuorumState(LeaseState):
    """The engine of a lease on what a majority has granted."""

    __slots__ = ("_holding",)

    def __init__(self, name: str, holding: QuorumHolding, *, ttl: float, deadline: float) -> None:
        self._holding = holding
        super().__init__("quorum lock", name, holder=holding.holder, ttl=ttl, deadline=deadline, renewal=Renewal())

    def _send_renewal(self) -> QuorumRound:
        return self._holding.renew(self)

    def _start_release(self) -> QuorumRound:
        self.is_released = True
        self._renewal.close()
        return self._holding.release(self)

    def release_failed(self, error: InconcertError) -> None:
        self._renewal = Renewal()  # its own, which the release has closed
        super().release_failed(error)


class QuorumLock(Acquirable[_QuorumState, QuorumLease]):
    """Mutual exclusion by a majority of independent servers: it works while more than half of them do.

    Use it where a single server, even one with replicas, must not be able to stop or to forget the lock.  Prefer
    `Coordinator.lock` everywhere else: it is fair, waits without polling, costs one server's work, and issues fencing
    tokens.  This one assumes clocks that run at nearly the same speed and servers that do not come back empty within a
    ttl.  It polls while it waits, in no order, and has no token to stop a holder that was paused.

    It uses clients that you make and close.  The servers must not be replicas of each other.  It needs no coordinator
    and keeps no state of a holder, so many tasks may share one.  It is not reentrant.

    ```python
    quorum = QuorumLock([client_a, client_b, client_c], "item:42")
    async with quorum as lease:
        ...
    ```

    Args:
        clients: One `redis.asyncio.Redis` for each server: an odd number, 3 or more.
        name: Which lock. The same name in the same namespace on the same servers is the same lock, on any machine.
        ttl: Life of a lease between renewals, in seconds; at least 0.05.
        timeout: Longest wait of `async with` and `acquire()`, in seconds; None waits forever, 0 tries once.
        namespace: Prefix of all keys.
        server_timeout: Longest that one server may take to answer, in seconds; above 0 and below half of the ttl. By
            default 0.5 s, or a quarter of the ttl if that is less.

    Raises:
        ValueError: The number of clients is even or below 3, two lead to one server, or a time is out of its range.
        TypeError: One of the clients is not a `redis.asyncio.Redis`.
        InvalidName: `name` or `namespace` is empty or too long.
    """

    def __init__(
        self,
        clients: "Sequence[redis.asyncio.Redis]",
        name: str,
        *,
        ttl: Seconds = DEFAULT_TTL,
        timeout: Seconds | None = None,
        namespace: str = "inconcert",
        server_timeout: Seconds | None = None,
    ) -> None:
        super().__init__("quorum lock", name, timeout, QuorumLease)
        self._keys = Keyspace(namespace).of(QuorumKeys, "quorum", name)
        self._ttl = durations.ttl(ttl)
        if self._ttl < _SHORTEST_TTL:
            raise ValueError(f"ttl is {ttl!r}; give at least {_SHORTEST_TTL} s, so that servers can answer within it")
        limit = min(_ONE_SERVER, self._ttl * _OF_A_TTL) if server_timeout is None else durations.delay(server_timeout)
        if not 0 < limit < self._ttl / 2:
            raise ValueError(f"server_timeout is {server_timeout!r}; give more than 0 and less than half of the ttl")
        self._peers = [Peer(client, timeout=limit) for client in clients]
        _check(self._peers)

    async def acquire(self, *, timeout: Seconds | EllipsisType | None = ...) -> QuorumLease:
        """Ask all servers, repeatedly at random intervals, until a majority grants the lock.

        Args:
            timeout: Longest wait in seconds; None waits forever, 0 tries once. Defaults to the object's `timeout`.

        Raises:
            AcquireTimeout: No majority granted it in time; what a minority granted is being released.
            QuorumNotReached: A majority could not be reached; what the others granted is being released.

        Cost: 1 round trip to all servers per attempt; waits for a majority. After a failed attempt, 1 release on each
            server that granted it or may have, and a wait of up to 20 ms, doubled each time up to 1 s.
        """
        return await super().acquire(timeout=timeout)

    async def try_acquire(self) -> QuorumLease | None:
        """Ask all servers once.

        Returns:
            The lease, or None if no majority granted it.

        Raises:
            QuorumNotReached: A majority could not be reached; what the others granted is being released.

        Cost: 1 round trip to all servers; waits for a majority.
        """
        return await super().try_acquire()

    async def locked(self) -> bool:
        """True if it is held on a majority of the servers.

        Raises:
            QuorumNotReached: Too few servers answered to know.

        Cost: 1 round trip to all servers; waits for all.
        """
        return bool(await self.holders())

    async def holders(self) -> list[str]:
        """The `QuorumLease.holder` that has it on a majority of the servers, or an empty list.

        Raises:
            QuorumNotReached: Too few servers answered to know.

        Cost: 1 round trip to all servers; waits for all.
        """
        holder = await inspect(self._name, self._peers, self._keys)
        return [] if holder is None else [holder]

    # Private.

    async def _take(self, *, waits: bool) -> _QuorumState | None:
        failures = 0
        while True:
            holding = QuorumHolding(self._name, self._peers, self._keys, milliseconds(self._ttl))
            taking = holding.take()
            try:
                is_granted = await taking
            except BaseException:
                holding.release()
                raise
            deadline = local_deadline(taking.asked_at, self._ttl)
            if is_granted and time.monotonic() < deadline:
                return _QuorumState(self._name, holding, ttl=self._ttl, deadline=deadline)
            holding.release()
            if not waits:
                return None
            failures += 1
            await anyio.sleep(backoff(failures, random.random(), first=_FIRST_DELAY, most=_LONGEST_DELAY))


def _check(peers: Sequence[Peer]) -> None:
    if len(peers) < 3 or len(peers) % 2 == 0:
        raise ValueError(f"a quorum lock on {len(peers)} servers; give an odd number of clients, 3 or more")
    titles = [peer.title for peer in peers]
    twice = {title for title in titles if titles.count(title) > 1}
    if twice:
        raise ValueError(f"two clients lead to {', '.join(sorted(twice))}; give one client for each server")
