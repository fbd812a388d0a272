"""The parts of a consumer in one partition: a worker, and the tasks that move and recover its entries.

All that is claimed under one tag is a partition: a queue of items has one, tasks may have several.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from inconcert._claims.claimed import ClaimState
from inconcert._claims.keys import ClaimKeys, QueueKeys
from inconcert._claims.promoter import Promoter
from inconcert._claims.reaper import Reaper
from inconcert._claims.worker_lease import WorkerLease
from inconcert._core.cancellation import cancel_all
from inconcert._core.session import Session
from inconcert._redis.wire.background import in_background
from inconcert._redis.wire.call import Call
from inconcert.errors import InconcertError

if TYPE_CHECKING:  # it makes these
    from inconcert._claims.consumer import ClaimConsumer

_log = logging.getLogger("inconcert.claims")

C = TypeVar("C", bound=ClaimState)

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0  # seconds for which a partition that cannot be reached is left out


class ClaimPartition(Generic[C]):
    """One partition of a consumer: it claims by one worker after the other, a new one if the last was presumed dead."""

    def __init__(
        self,
        session: Session,
        number: int,
        keys: ClaimKeys,
        queues: Sequence[QueueKeys],
        *,
        owner: "ClaimConsumer[C]",
        new_worker: Callable[["ClaimPartition[C]"], WorkerLease[C]],
        to_the_front: bool,
        max_crashes: int,
    ) -> None:
        self.number = number
        self.bells = tuple(queue.bell for queue in queues)  # the bells of its queues
        self.promoter = Promoter(session, keys, queues, to_the_front=to_the_front)  # moves due entries
        self.worker: WorkerLease[C] | None = None  # the one that claims now; None before the first claim
        # when a claim was last answered, by the monotonic clock; None before the first
        self.claimed_at: float | None = None
        # whether the last claim found less than it asked for, and nothing has said since that there is more
        self.is_dry = False
        self._session = session
        self._owner = owner
        self._new_worker = new_worker
        self._reaper = Reaper(session, keys, max_crashes, self.on_news, owner.on_recovered)
        self._left_out_until = self._pause = 0.0
        self._asked: asyncio.Task[tuple[list[C], float | None]] | None = None  # a claim that is under way
        self._is_late = False

    def start(self) -> list[asyncio.Task[None]]:
        """Start what runs while the consumer is open."""
        return [
            in_background("moving what is due", self.promoter.run),
            in_background("recovering what dead workers hold", self._reaper.run),
        ]

    def retire(self) -> None:
        """Give back the claims that are not done, without waiting for it."""
        if self.worker is not None:
            self.worker.retire()

    async def claim(self, count: int, send: Callable[[Call], None] | None = None) -> tuple[list[C], float | None]:
        """Claim what may be claimed now, up to `count`; and in how many seconds something is due, 0 for now.

        May be cancelled: the next one is answered with the same.  One at a time.

        Raises:
            NotConnected: The consumer was closed.
            Unavailable: The server cannot be reached.
            OutcomeUnknown: It did not answer.
        """
        worker = await self.living_worker()
        claimed, due_in = await worker.claim(count, send)
        if worker.is_lost:  # presumed dead: everything is there for a new worker, now and not after a sleep
            worker = await self.living_worker()
            claimed, due_in = await worker.claim(count)
        self.claimed_at = time.monotonic()
        self.is_dry = not worker.is_behind
        self._left_out_until = self._pause = 0.0
        if due_in is not None:
            self.promoter.recheck_in(due_in)
        return claimed, due_in

    async def claim_within(self, patience: float | None, count: int) -> tuple[list[C], float | None] | None:
        """The same, or None if no answer has come within so many seconds, or it was closed.

        The next claim waits for the same answer.
        """
        asked = self._asked = self._asked or asyncio.create_task(self.claim(count))
        await asyncio.wait([asked], timeout=patience)
        self._is_late = not asked.done()
        if self._is_late:
            _log.warning(
                "partition %d has not answered within %g s, and is left out until it does", self.number, patience
            )
            asked.add_done_callback(self._answered)
            return None
        self._asked = None
        return None if asked.cancelled() else asked.result()

    async def close(self) -> None:
        """Wait for no answer anymore."""
        asked = self._asked
        if asked is not None:
            await cancel_all([asked])
            await asyncio.gather(asked, return_exceptions=True)  # so that asyncio does not warn of its error

    @property
    def may_have_more(self) -> bool:
        """True if a claim is worth its round trip."""
        return not self._is_late and not self.is_dry and time.monotonic() >= self._left_out_until

    def leave_out(self) -> None:
        """Claim nothing here for a while: the server cannot be reached."""
        self._pause = min(max(2 * self._pause, _SHORTEST_PAUSE), _LONGEST_PAUSE)
        self._left_out_until = time.monotonic() + self._pause

    def look_again(self) -> None:
        """Claim here next time: there may be something."""
        self.is_dry = False
        self._left_out_until = 0.0

    async def living_worker(self) -> WorkerLease[C]:
        """The worker, or a new one if that was presumed dead."""
        if self.worker is not None and not self.worker.is_lost:
            return self.worker
        self._owner.raise_if_closed()
        worker = self.worker = await self._new_worker(self).begin()
        try:
            self._owner.raise_if_closed()
        except InconcertError:  # closed while it began, and then nobody else ends it
            if not self._session.channel.is_closed:
                worker.retire()
            raise
        self._owner.watch(worker)
        return worker

    def _answered(self, _: asyncio.Task[Any]) -> None:
        self._is_late = self.is_dry = False
        self._owner.on_room()

    # What its worker tells.

    def on_dead_workers(self, workers: list[str]) -> None:
        """Give back what these other workers hold."""
        self._reaper.found(workers)

    def on_news(self) -> None:
        """Something has ended that others wait for."""
        self._owner.on_news(self.number)

    def on_room(self) -> None:
        """There is something to claim that its worker could not take before."""
        self._owner.on_room()

    def on_alive(self) -> None:
        """Claim here at once if it was left out: the server answers again."""
        if self._left_out_until:
            self.look_again()
            self._owner.on_room()
