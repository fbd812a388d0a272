"""A lock that several independent servers grant by majority: Redlock.

No server knows of the others.  Whoever gets the lock on more than half of them has it, so it outlives the loss of a
minority.  What a holder has where is in `rounds.py`; this module adds waiting, and how long a lease lasts.

Source: docs/explanation/quorum-locks.md
"""

import random
import time
from collections.abc import Sequence
from types import EllipsisType
from typing import TYPE_CHECKING

import anyio

from inconcert._core.acquirable import Acquirable
from inconcert._core.held import Held, local_deadline
from inconcert._core.renewal import Renewal
from inconcert._redis.keys import Keyspace
from inconcert._redis.peers import Peer
from inconcert._rules import durations
from inconcert._rules.backoff import backoff
from inconcert._rules.durations import Seconds, milliseconds
from inconcert.quorum.rounds import QuorumHolding, QuorumKeys, QuorumRound, inspect

if TYPE_CHECKING:
    import redis.asyncio

__all__ = ["QuorumLease", "QuorumLock"]

DEFAULT_TTL = 10.0  # seconds; shorter than a lock's, for what cannot be given back at a dead server stays taken so long

_SHORTEST_TTL = 0.05  # seconds; in less, no majority could be asked over a network
_ONE_SERVER = 0.5  # seconds; a server that works connects and answers within it, with TLS and from another continent
_OF_A_TTL = 1 / 4  # at most, so that most of a lease is left when a mute server had to be waited for
_FIRST_DELAY, _LONGEST_DELAY = 0.02, 1.0  # seconds between tries: several round trips, and what one may wait in vain


class QuorumLease(Held):
    """A lock that a majority of the servers has granted, held until it is released, or lost.

    It is renewed in the background as long as someone keeps it, and it is lost at its deadline unless a majority has
    renewed it: then the body is cancelled.  It has no fencing token, for no counter is common to the servers.

    Attributes:
        kind: What it is a lease on: `quorum lock`.
        name: Which one.
        holder: This acquisition's identity, unique every time.
    """

    __slots__ = ("_shares",)

    def __init__(self, name: str, holding: QuorumHolding, *, ttl: float, deadline: float) -> None:
        self._shares = holding
        super().__init__("quorum lock", name, holder=holding.holder, ttl=ttl, deadline=deadline, renewal=Renewal())

    async def renew(self) -> None:
        """Make it last a full ttl from now. The background does so by itself; this is for just before a long step.

        Raises:
            LeaseLost: It has lapsed, or a majority has granted it to others.
            NotHeld: It was released before.
            QuorumNotReached: No majority still had it and answered; the background tries again until the deadline.

        Cost: 1 round trip to all servers, and the majority's answers are waited for.
        """
        await super().renew()

    async def release(self) -> None:
        """Give it back. Once this has started, cancelling it changes nothing: the releases are on their way.

        Raises:
            LeaseLost: It had lapsed before, or a majority did not have it any more; another may hold it now.
            NotHeld: It was released before.
            QuorumNotReached: No majority confirmed it; where it was not given back, it lapses by itself.

        Cost: 1 round trip to all servers, and the majority's answers are waited for.
        """
        await super().release()

    def _send_renewal(self) -> QuorumRound:
        return self._shares.renew(self)

    def _start_release(self) -> QuorumRound:
        self._is_released = True
        self._renewal.close()
        return self._shares.release()


class QuorumLock(Acquirable[QuorumLease]):
    """Mutual exclusion by a majority of independent servers: it works while more than half of them do.

    Use it where a single server, even one with replicas, must not be able to stop or to forget the lock.  Prefer
    `Coordinator.lock` everywhere else: that one is fair, waits without asking, costs one server's work, and gives out
    fencing tokens.  This one assumes clocks that run at nearly the same speed and servers that do not come back empty
    within a ttl, it polls while it waits, in no order, and it has no token to stop a holder that was paused.

    It uses clients that you made and close.  The servers must not be replicas of each other.  It needs no coordinator,
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
        timeout: Longest wait of `async with` and `acquire()`, in seconds; None waits for ever, 0 tries once.
        namespace: What all keys begin with.
        server_timeout: Longest that one server may take to answer, in seconds; above 0 and below half of the ttl. By
            default 0.5 s, or a quarter of the ttl if that is less.

    Raises:
        ValueError: The number of clients is even or below 3, two lead to one server, or a time is out of its range.
        TypeError: One of the clients is no `redis.asyncio.Redis`.
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
        super().__init__("quorum lock", name, timeout)
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
        """Ask all servers, again and again at random times, until a majority grants it.

        Args:
            timeout: Longest wait in seconds; None for ever, 0 tries once. By default the object's own.

        Raises:
            AcquireTimeout: No majority granted it in time; what the others granted is on its way back.
            QuorumNotReached: A majority could not be asked; what the others granted is on its way back.

        Cost: 1 round trip to all servers for each try, and the majority's answers are waited for. After a try in vain
            1 release wherever it was, or may have been granted, and a wait of up to 20 ms, doubled each time up to 1 s.
        """
        return await super().acquire(timeout=timeout)

    async def try_acquire(self) -> QuorumLease | None:
        """Ask all servers once.

        Returns:
            The lease, or None if no majority granted it.

        Raises:
            QuorumNotReached: A majority could not be asked; what the others granted is on its way back.

        Cost: 1 round trip to all servers, and the majority's answers are waited for.
        """
        return await super().try_acquire()

    async def locked(self) -> bool:
        """Whether someone has it on a majority of the servers.

        Raises:
            QuorumNotReached: Too few servers answered to know.

        Cost: 1 round trip to all servers, and all answers are waited for.
        """
        return bool(await self.holders())

    async def holders(self) -> list[str]:
        """The `QuorumLease.holder` of the one who has it on a majority of the servers, or nothing.

        Raises:
            QuorumNotReached: Too few servers answered to know.

        Cost: 1 round trip to all servers, and all answers are waited for.
        """
        holder = await inspect(self._name, self._peers, self._keys)
        return [] if holder is None else [holder]

    # Below.

    async def _take(self, *, waits: bool) -> QuorumLease | None:
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
                return QuorumLease(self._name, holding, ttl=self._ttl, deadline=deadline)
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
