"""What a consumer has while it is open: a worker, a way to sleep, and background tasks."""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from typing import Any, Generic, Literal, TypeVar

from inconcert._claims.claimed import ClaimState
from inconcert._claims.keys import ClaimKeys, QueueKeys
from inconcert._claims.promoter import Promoter
from inconcert._claims.reaper import Reaper
from inconcert._claims.watchdog import Watchdog
from inconcert._claims.worker_lease import WorkerLease
from inconcert._core.cancellation import cancel_all
from inconcert._core.session import Session
from inconcert._core.shield import run_shielded
from inconcert._redis.inbox import InboxReceiver
from inconcert.errors import InconcertError, NotConnected

__all__ = ["AFTER_A_FAILURE", "ClaimConsumer", "Guarantee", "settle"]

C = TypeVar("C", bound=ClaimState)

Guarantee = Literal["at_least_once", "at_most_once"]
"""How often what is put in is handed out: at least once, until it is acknowledged, or at most once."""

_SHORTEST_SLEEP, _LONGEST_SLEEP = 2.0, 5.0  # seconds; apart, so that consumers do not all look at once
AFTER_A_FAILURE = 0.5  # seconds


class ClaimConsumer(InboxReceiver, ABC, Generic[C]):
    """Claims from some queues, by one worker after the other: a new one when the last was taken for dead.

    While it is open it also moves what is due in these queues, and gives back what other workers held that died.

    Args:
        session: The open session.
        keys: Of all that is claimed under one tag.
        queues: Where to claim from.
        promoter: Moves what is due in them.
    """

    def __init__(
        self, session: Session, keys: ClaimKeys, queues: Sequence[QueueKeys], *, promoter: Promoter | None = None
    ) -> None:
        self._session = session
        self._address = session.new_address()
        self._sleeper = session.bells.sleeper(tuple(queue.bell for queue in queues))
        self._promoter = promoter or Promoter(session, keys, queues)
        self._watchdog = Watchdog(session.pool)
        self._reaper = Reaper(session, keys, self.on_news)
        self._worker: WorkerLease[C] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def open(self) -> None:
        """Begin; the worker begins with the first claim."""
        self._session.inbox.register(self._address, self)
        self._tasks = [asyncio.create_task(work) for work in self._background()]

    async def close(self) -> None:
        """Give back what is claimed and not done, and end."""
        self._session.inbox.unregister(self._address)
        self.closed(NotConnected("the consumer was closed while this call waited"))
        if self._worker is not None and not self._session.channel.is_closed:
            self._worker.retire()
        await run_shielded(self._end())

    async def try_claim(self, count: int) -> tuple[list[C], float | None]:
        """Claim what may be claimed now, up to `count`; and in how many seconds something is due, 0 for now.

        May be cancelled: the next one is answered with the same.  One at a time.

        Raises:
            NotConnected: It was closed.
            Unavailable: The server cannot be reached.
            OutcomeUnknown: It did not answer.
        """
        worker = await self._living_worker()
        claimed, due_in = await worker.claim(count)
        if worker.is_lost:  # taken for dead: everything is there for a new worker, now and not after a sleep
            claimed, due_in = await (await self._living_worker()).claim(count)
        if due_in is not None:
            self._promoter.recheck_in(due_in)
        return claimed, due_in

    async def sleep(self) -> None:
        """Until a bell rings or somebody interrupts, and at most 2 to 5 s."""
        rung = await self._sleeper.rung(random.uniform(_SHORTEST_SLEEP, _LONGEST_SLEEP))
        if rung and not self._wants_more:
            self._session.bells.pass_on(rung)

    def interrupt(self) -> None:
        """Let whoever sleeps look again."""
        self._sleeper.interrupt()

    # As a waiter.

    def recheck(self) -> None:
        """What was missed is at most a bell."""
        self.interrupt()

    def closed(self, error: InconcertError) -> None:
        """Claim no more, with this error."""
        super().closed(error)
        self.interrupt()

    # What its worker tells.

    def on_dead_workers(self, workers: list[str]) -> None:
        """Give back what these other workers hold."""
        self._reaper.found(workers)

    def on_news(self) -> None:
        """Something has ended that others wait for: nobody waits for it, unless a subclass says so."""

    def on_room(self) -> None:
        """There is something to claim that its worker could not take before."""
        self.interrupt()

    # Below.

    @property
    @abstractmethod
    def _wants_more(self) -> bool:
        """Whether anybody here is there for what may be claimed next."""

    @abstractmethod
    def _new_worker(self) -> WorkerLease[C]:
        """A worker that has not begun."""

    def _background(self) -> list[Coroutine[Any, Any, None]]:
        """What runs while it is open."""
        return [self._promoter.run(), self._reaper.run()]

    async def _end(self) -> None:
        await cancel_all(self._tasks)
        await self._watchdog.close()

    async def _living_worker(self) -> WorkerLease[C]:
        if self._worker is not None and not self._worker.is_lost:
            return self._worker
        self.raise_if_closed()
        worker = self._worker = await self._new_worker().begin()
        try:
            self.raise_if_closed()
        except InconcertError:  # closed while it began, and then nobody else ends it
            if not self._session.channel.is_closed:
                worker.retire()
            raise
        self._watchdog.watch(worker)
        return worker


async def settle(claimed: Sequence[ClaimState]) -> None:
    """Let all these count as done before they are handed out."""
    await asyncio.gather(*(one.settle() for one in claimed))  # in one turn, so by one script
