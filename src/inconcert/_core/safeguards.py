"""Conditions for handing out a grant, beyond that the server has made it.

Redis replicates asynchronously, so a replica that is promoted may lack the last grants of the old master.  Two options
of a coordinator keep that from making two holders; the grant is held and renewed meanwhile, in its place in the line.

Source: docs/explanation/topology.md
"""

import asyncio
import logging
import time
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Self

import anyio

from inconcert._redis.find.replicas import Replicas
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import load
from inconcert._redis.wire.call import Call
from inconcert._redis.wire.wire import Pool
from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert._rules.limits import whole
from inconcert._rules.urls import Node
from inconcert.errors import InconcertError, LeaseLost, Unavailable

if TYPE_CHECKING:  # it is admitted by these
    from inconcert._core.permit_state import PermitState

_log = logging.getLogger("inconcert.leases")

_MOST_REPLICAS = 100


class _MasterKeys(NamedTuple):
    master: str  # hash: 'id' -> replication id, 'since_ms' -> server ms


_GUARD = load("sessions/guard").bind(_MasterKeys)


class Conditions(NamedTuple):
    """The conditions that a coordinator sets for a grant."""

    failover_guard: float = 0.0  # for how long a new master hands out nothing, in seconds; 0 for not at all
    replicas: int = 0  # how many replicas must have acknowledged it

    @classmethod
    def checked(cls, failover_guard: Seconds | None, replicas: int, *, is_cluster: bool) -> Self:
        """Those that a user gives.

        Raises:
            ValueError: One is out of range, or `failover_guard` is demanded of a cluster.
        """
        seconds = durations.in_seconds("failover_guard", 0 if failover_guard is None else failover_guard)
        conditions = cls(seconds, whole("replicas", replicas, least=0, most=_MOST_REPLICAS))
        if is_cluster and conditions.failover_guard:
            raise ValueError(
                "failover_guard is for one server or Sentinel; a cluster does not have it, so use replicas"
            )
        return conditions


class Safeguards:
    """Holds grants back until the conditions are met."""

    def __init__(
        self, conditions: Conditions, keys: Keyspace, pool_of: Callable[[str], Pool], *, timeout: float
    ) -> None:
        self._guard = conditions.failover_guard
        self._count = conditions.replicas
        self._keys = _MasterKeys(*keys.shared("namespace", "master"))
        self._pool_of = pool_of  # where a connection to the master of a key comes from
        self._timeout = timeout
        self._replicas: dict[Pool, Replicas] = {}  # of each master that has granted something
        self._closing: set[asyncio.Task[None]] = set()
        self._guarded_until = 0.0  # by the monotonic clock
        self._last: _Guard | None = None

    @property
    def is_needed(self) -> bool:
        """True if there are any conditions."""
        return bool(self._guard or self._count)

    def greeting(self) -> Call | None:
        """The command to send first on each connection; its reply is there before that of any call that grants."""
        if not self._guard:
            return None
        self._last = _Guard(self, self._keys)
        return self._last

    async def check(self) -> None:
        """Wait for the reply to the first greeting.

        Raises:
            Unavailable: The server refuses to say how long it has been the master.
        """
        if self._last is None:
            return
        try:
            await self._last
        except InconcertError as error:
            what = f"the server does not say how long it has been the master, as failover_guard needs: {error}"
            raise Unavailable(f"{what}; give the user the right to INFO") from error

    def guard(self, master_for: float) -> None:
        """Hand out nothing until the master, which has been one for so many seconds, has been one for long enough."""
        self._guarded_until = time.monotonic() + self._guard - master_for

    async def admit(self, leases: Sequence["PermitState"], *, waits: bool) -> bool:
        """Return when the leases may be handed out; False if they may not, and are released, or were lost.

        Args:
            leases: Leases that one server has granted together.
            waits: Whether the caller would wait.

        Raises:
            Unavailable: Fewer replicas than demanded have acknowledged them in time; they are released.
        """
        try:
            if self._guard and not await self._outlast_guard(leases, waits=waits):
                for lease in leases:
                    lease.release_nowait()
                return False
            if self._count:
                await self._replicate(leases)
        except BaseException:
            for lease in leases:
                lease.release_nowait()
            raise
        return not any(lease.is_lost for lease in leases)

    def server_moved(self, to: Node | None) -> None:
        """Connect to this server at once, unless connected to it; to none if it is None."""
        for replicas in self._replicas.values():
            replicas.server_moved(to)

    def masters_changed(self, pools: Container[Pool]) -> None:
        """Leave all servers but these; who waits for replicas of another asks the successor."""
        for pool in [pool for pool in self._replicas if pool not in pools]:
            closing = asyncio.ensure_future(self._replicas.pop(pool).close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Release the connections."""
        await asyncio.gather(*(replicas.close() for replicas in self._replicas.values()), *self._closing)

    # Private.

    async def _outlast_guard(self, leases: Sequence["PermitState"], *, waits: bool) -> bool:
        for lease in leases:  # a grant may come through the inbox, and then be ahead of the greeting's reply
            with suppress(LeaseLost):
                await lease.renew()
        while (seconds := self._guarded_until - time.monotonic()) > 0:
            if not waits or any(lease.is_lost for lease in leases):
                return False
            with anyio.move_on_after(seconds):
                await leases[0].lost()
        return True

    async def _replicate(self, leases: Sequence["PermitState"]) -> None:
        replicas, count = await self._acknowledged(leases)
        if count < self._count and not any(lease.is_lost for lease in leases):
            lease = leases[0]
            raise Unavailable(
                f"{lease.kind} {lease.name!r} was granted and released again: {count} of {self._count} replicas "
                f"acknowledged it within {replicas.patience:g} s; look at the replicas, or try again",
                operation="acquire",
                kind=lease.kind,
                name=lease.name,
            )

    async def _acknowledged(self, leases: Sequence["PermitState"]) -> tuple[Replicas, int]:
        """The number of replicas that acknowledged the leases."""
        key = leases[0].renewal().key
        while True:
            pool = self._pool_of(key)
            replicas = self._replicas.get(pool)
            if replicas is None:
                replicas = self._replicas[pool] = Replicas(pool, self._count, timeout=self._timeout)
            error: InconcertError | None = None
            count = 0
            try:
                count = await replicas.acknowledged(lambda: [lease.renewal() for lease in leases])
            except InconcertError as raised:
                error = raised
            if count < self._count:
                with suppress(LeaseLost):
                    await leases[0].renew()  # which finds out where they are now
            if self._pool_of(key) is pool:
                if error is not None:
                    raise error
                return replicas, count


class _Guard(Call):
    """The question how long the server has been the master."""

    __slots__ = ("_safeguards",)

    def __init__(self, safeguards: Safeguards, keys: _MasterKeys) -> None:
        super().__init__(_GUARD(keys), must_run=True)
        self.carry_source()
        self._safeguards = safeguards

    def answered(self, reply: Reply) -> None:
        self._safeguards.guard(reply / 1000)
        super().answered(reply)

    def failed(self, error: InconcertError) -> None:
        self._safeguards.guard(0.0)  # as if it had been promoted just now
        _log.error("the server does not say how long it has been the master: %s", error)
        super().failed(error)
