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

_SHORTEST_SLEEP, _LONGEST_SLEEP = 2.0, 5.0  # seconds; random, so that consumers do not all check at once
AFTER_A_FAILURE = 0.5  # seconds


class ClaimConsumer(InboxReceiver, ABC, Generic[C]):
    """Claims from some queues, through one worker lease after another: a new one when the last was presumed dead.

    While it is open it also moves what is due in these queues, and requeues the claims of workers that died.

    Args:
        session: The open session.
        keys: The keys of everything claimed under one tag.
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
        self._watchdog = Watchdog(lambda: session.pool_of(keys.bodies))
        self._reaper = Reaper(session, keys, self.on_news)
        self._worker: WorkerLease[C] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def open(self) -> None:
        """Start; the worker starts with the first claim."""
        self._session.inbox.register(self._address, self)
        self._tasks = [asyncio.create_task(work) for work in self._background()]

    async def close(self) -> None:
        """Requeue unfinished claims, and stop."""
        self._session.inbox.unregister(self._address)
        self.closed(NotConnected("the consumer was closed while this call waited"))
        if self._worker is not None and not self._session.channel.is_closed:
            self._worker.retire()
        await run_shielded(self._end())

    async def try_claim(self, count: int) -> tuple[list[C], float | None]:
        """Claim up to `count` that are ready; also returns in how many seconds something is due, 0 for now.

        May be cancelled: the next claim then returns the same.  One at a time.

        Raises:
            NotConnected: It was closed.
            Unavailable: The server cannot be reached.
            OutcomeUnknown: It did not answer.
        """
        worker = await self._living_worker()
        claimed, due_in = await worker.claim(count)
        if worker.is_lost:  # presumed dead: everything is ready for a new worker now, without a sleep
            claimed, due_in = await (await self._living_worker()).claim(count)
        if due_in is not None:
            self._promoter.recheck_in(due_in)
        return claimed, due_in

    async def sleep(self) -> None:
        """Sleep until a bell rings or `interrupt` is called, for at most 2 to 5 s."""
        rung = await self._sleeper.rung(random.uniform(_SHORTEST_SLEEP, _LONGEST_SLEEP))
        if rung and not self._wants_more:
            self._session.bells.pass_on(rung)

    def interrupt(self) -> None:
        """End the current sleep, so that the queues are checked again."""
        self._sleeper.interrupt()

    # Called by the inbox.

    def recheck(self) -> None:
        """Only a bell can have been missed."""
        self.interrupt()

    def closed(self, error: InconcertError) -> None:
        """Claim no more, with this error."""
        super().closed(error)
        self.interrupt()

    # Called by its worker.

    def on_dead_workers(self, workers: list[str]) -> None:
        """Requeue what these dead workers hold."""
        self._reaper.found(workers)

    def on_news(self) -> None:
        """Something that has dependents has ended; does nothing unless a subclass overrides it."""

    def on_room(self) -> None:
        """There is something to claim that its worker could not claim before."""
        self.interrupt()

    # Below.

    @property
    @abstractmethod
    def _wants_more(self) -> bool:
        """Whether anything here still wants what is claimed next."""

    @abstractmethod
    def _new_worker(self) -> WorkerLease[C]:
        """A worker that has not started."""

    def _background(self) -> list[Coroutine[Any, Any, None]]:
        """The background tasks while it is open."""
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
        except InconcertError:  # closed while it started: nothing else would end it
            if not self._session.channel.is_closed:
                worker.retire()
            raise
        self._watchdog.watch(worker)
        return worker


async def settle(claimed: Sequence[ClaimState]) -> None:
    """Count all these as done before they are handed out."""
    await asyncio.gather(*(one.settle() for one in claimed))  # in one turn of the event loop, so by one script
