"""Where the idle consumers of a process sleep on a cluster: one connection for each slot that has bells of theirs.

`BLPOP` takes keys of one slot only.  When the slot moves, the sleepers wake, check again, and sleep at its new master.
"""

import asyncio

from inconcert._cluster.cluster import Cluster
from inconcert._cluster.router import Router
from inconcert._cluster.slot_map import Node
from inconcert._redis.bells import Bells, Sleeper
from inconcert._redis.keys import bell_beside
from inconcert._redis.slots import slot_of

__all__ = ["ShardedBells"]

_SOON = 0.1  # seconds after which a slot without a master is looked at again


class ShardedBells:
    """The bells that the consumers of a session listen for.

    Args:
        cluster: Which master has which slots.
        router: Returns tokens that no sleeper here waits for.
        session: Its id.
        timeout: How long a node may take to answer beyond the sleep itself, in seconds.
    """

    def __init__(self, cluster: Cluster, router: Router, session: str, *, timeout: float) -> None:
        self._cluster = cluster
        self._router = router
        self._session = session
        self._timeout = timeout
        self._bells: dict[int, tuple[Node, Bells]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        cluster.on_change(self._map_changed)

    async def close(self) -> None:
        """Release the connections; the router must still be open."""
        await asyncio.gather(*(bells.close() for _, bells in self._bells.values()), *self._closing)

    def sleeper(self, keys: tuple[str, ...]) -> "ShardedSleeper":
        """A sleeper that wakes when one of these bells rings."""
        return ShardedSleeper(self, keys)

    @property
    def waits_since(self) -> float | None:
        """Since when a connection has not answered, by the monotonic clock; None if none needs to. From any thread."""
        waits = [bells.waits_since for _, bells in list(self._bells.values())]
        return min((since for since in waits if since is not None), default=None)

    def pass_on(self, key: str) -> None:
        """Wake a sleeper for this bell, or return its token for a sleeper in another process."""
        bells = self.at(key)
        if bells is not None:
            bells.pass_on(key)

    @property
    def has_sleepers(self) -> bool:
        """Whether anyone sleeps."""
        return any(bells.has_sleepers for _, bells in self._bells.values())

    def at(self, key: str) -> Bells | None:
        """The bells in the slot of this key; None while it has no master."""
        node = self._cluster.owner_of(key)
        if node is None:
            return None
        found = self._bells.get(slot_of(key))
        if found is None:
            pool = self._cluster.pool(node)
            bells = Bells(pool, self._router, bell_beside(key, self._session), timeout=self._timeout)
            found = self._bells[slot_of(key)] = node, bells
        return found[1]

    def _map_changed(self) -> None:
        for slot, (node, bells) in list(self._bells.items()):
            if self._cluster.map.owner(slot) != node and not self._router.is_closed:
                del self._bells[slot]
                closing = asyncio.ensure_future(bells.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)


class ShardedSleeper:
    """One consumer's sleep, on bells in any slots.

    Args:
        bells: The connections to sleep on.
        keys: The bells that wake it.
    """

    def __init__(self, bells: ShardedBells, keys: tuple[str, ...]) -> None:
        self._bells = bells
        self._slots: dict[int, tuple[str, ...]] = {}
        for key in keys:
            self._slots[slot_of(key)] = (*self._slots.get(slot_of(key), ()), key)
        self._asleep: list[Sleeper] = []
        self._is_due = False  # interrupted while awake

    async def rung(self, seconds: float) -> str:
        """Sleep until a bell rings, at most this long; may return early. Cancelling it loses no token.

        Returns:
            The bell that rang, or an empty string. No other sleeper receives this ring: a caller that does not check
            now must pass it on.
        """
        if self._is_due:
            self._is_due = False
            return ""
        found = [(self._bells.at(keys[0]), keys) for keys in self._slots.values()]
        self._asleep = [bells.sleeper(keys) for bells, keys in found if bells is not None]
        if len(self._asleep) < len(found):
            seconds = min(seconds, _SOON)
        try:
            if len(self._asleep) == 1:
                return await self._asleep[0].rung(seconds)
            return await self._first_rung(seconds)
        finally:
            self._asleep = []

    def interrupt(self) -> None:
        """Make the current sleep return now, or the next one if none is under way."""
        self._is_due = not self._asleep
        for sleeper in self._asleep:
            sleeper.interrupt()

    async def _first_rung(self, seconds: float) -> str:
        """Sleep in all slots at once; what rings in others than the first, or once this is cancelled, is passed on."""
        sleeps = [asyncio.ensure_future(sleeper.rung(seconds)) for sleeper in self._asleep]
        first: asyncio.Future[str] | None = None
        try:
            await asyncio.wait(sleeps, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            first = next((sleep for sleep in sleeps if sleep.done() and sleep.result()), None)
        finally:
            for sleep in sleeps:
                sleep.cancel()
                if sleep is not first:
                    sleep.add_done_callback(self._pass_on)
        return first.result() if first is not None else ""

    def _pass_on(self, sleep: asyncio.Future[str]) -> None:
        if not sleep.cancelled() and sleep.result():
            self._bells.pass_on(sleep.result())
