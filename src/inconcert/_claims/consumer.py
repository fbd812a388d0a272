"""The parts of an open consumer: its partitions, a way to sleep, and background tasks."""

import asyncio
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any, Generic, Literal, TypeVar

import anyio

from inconcert._claims.claimed import ClaimState
from inconcert._claims.keys import ClaimKeys, QueueKeys
from inconcert._claims.partition import ClaimPartition
from inconcert._claims.signs import ConsumerSigns
from inconcert._claims.watchdog import Watchdog
from inconcert._claims.worker_lease import WorkerLease
from inconcert._core.cancellation import cancel_all
from inconcert._core.session import Session
from inconcert._core.shield import run_shielded
from inconcert._redis.wire.background import last_failure
from inconcert._redis.wire.inbox import InboxReceiver
from inconcert._rules.defaults import MAX_CRASHES
from inconcert.errors import InconcertError, NotConnected

_log = logging.getLogger("inconcert.claims")

C = TypeVar("C", bound=ClaimState)

Guarantee = Literal["at_least_once", "at_most_once"]
"""How often what is put in is handed out: at least once, until it is acknowledged, or at most once."""

_SHORTEST_SLEEP, _LONGEST_SLEEP = 2.0, 5.0  # seconds; random, so that consumers do not all check at once
AFTER_A_FAILURE = 0.5  # seconds

# Of several partitions.  A token that got lost on its way to a consumer that was killed costs three sleeps at most.
_SLEEPS_UNTIL_ALL = 3  # after so many sleeps without a bell each partition was looked at
_LOOK_AGAIN = 0.5  # seconds after which a consumer that is never idle looks at those that had nothing
_PATIENCE = 1.0  # seconds that a partition may take while others wait for it


class ClaimConsumer(InboxReceiver, ABC, Generic[C]):
    """Claims from some queues, in each partition by a worker of its own.

    While it is open it also moves due entries to these queues, and requeues the claims of workers that died.

    With several partitions a claim begins with another one each time.  One that had nothing is left out until its bell
    rings, so an idle consumer costs heartbeats; and one that does not answer is left out for a while.
    """

    def __init__(
        self,
        session: Session,
        partitions: Sequence[tuple[ClaimKeys, Sequence[QueueKeys]]],
        *,
        to_the_front: bool = False,
        max_crashes: int = MAX_CRASHES,
    ) -> None:
        self._session = session
        self._address = session.new_address()
        self._partitions = [
            ClaimPartition(
                session,
                number,
                keys,
                queues,
                owner=self,
                new_worker=partial(self._new_worker, number),
                to_the_front=to_the_front,
                max_crashes=max_crashes,
            )
            for number, (keys, queues) in enumerate(partitions)
        ]
        self._of_bell = {bell: partition for partition in self._partitions for bell in partition.bells}
        self._sleeper = session.bells.sleeper(tuple(self._of_bell))
        self._watchdog = Watchdog(session)
        self._tasks: list[asyncio.Task[None]] = []
        self._first = 0  # the partition with which the next claim begins
        self._found: list[C] = []  # claimed for a call that was cancelled
        self._found_some = False  # whether anything was claimed since the last look at all partitions
        self._looked_at = 0.0

    def open(self) -> None:
        """Start; the worker starts with the first claim."""
        self._session.inbox.register(self._address, self)
        self._tasks = self._start()

    async def close(self) -> None:
        """Requeue unfinished claims, and stop."""
        self._session.inbox.unregister(self._address)
        self.closed(NotConnected("the consumer was closed while this call waited"))
        if not self._session.channel.is_closed:
            for partition in self._partitions:
                partition.retire()
        await run_shielded(self._end())

    async def try_claim(self, count: int, *, everywhere: bool = False) -> tuple[list[C], float | None]:
        """Claim what may be claimed now, up to `count`; and in how many seconds something is due, 0 for now.

        May be cancelled: the next claim then returns the same.  One at a time.

        Args:
            count: How many at most, except for what a call that was cancelled has claimed.
            everywhere: Whether to look also into partitions that have given no sign of work.

        Raises:
            NotConnected: It was closed.
            Unavailable: The server cannot be reached.
            OutcomeUnknown: It did not answer.
        """
        if len(self._partitions) == 1:
            [partition] = self._partitions
            return await partition.claim(count) if everywhere or not partition.is_dry else ([], None)
        now = time.monotonic()
        if everywhere or (self._found_some and now - self._looked_at > _LOOK_AGAIN):
            self._look_everywhere()
        due = await self._claim_in_turn(count, patience=None if everywhere else _PATIENCE)
        claimed, self._found = self._found, []
        self._found_some = self._found_some or bool(claimed)
        return claimed, due

    async def confirmed(self) -> None:
        """Wait until the server has answered all acknowledgements, or will not."""
        for partition in self._partitions:
            if partition.worker is not None:
                await partition.worker.confirmed()

    async def promote(self) -> None:
        """Move the entries that are due now."""
        for partition in self._partitions:
            await partition.promoter.promote()

    async def sleep(self) -> None:
        """Sleep until a bell rings or `interrupt` is called, for at most 2 to 5 s; may end early."""
        rung = await self._sleeper.rung(random.uniform(_SHORTEST_SLEEP, _LONGEST_SLEEP))
        if rung is None:
            return
        if not rung:
            for _ in range(-(-len(self._partitions) // _SLEEPS_UNTIL_ALL)):
                self._partitions[self._first].look_again()
                self._first = (self._first + 1) % len(self._partitions)
        elif self._wants_more:
            self._of_bell[rung].look_again()
        else:
            self._session.bells.pass_on(rung)

    async def claim_asleep(self, count: int) -> list[C]:
        """Sleep, and return up to `count` that the server has claimed as a bell rang, without a message between.

        Like `sleep`, and returns nothing, while something is held: its body may block the event loop, and what is
        claimed meanwhile would wait for it, although others are idle.  So it is in several partitions, of which the one
        that will have something is not known, and where others of this process sleep.
        """
        [partition, *others] = self._partitions
        if others or not self._sleeper.is_alone or partition.worker is None or partition.worker.held:
            await self.sleep()
            return []
        claimed, _ = await partition.claim(count, self._sleeper.run_when_rung)
        return claimed

    def holds_nothing(self) -> None:
        """Let a sleep that has begun go on as `claim_asleep` does."""
        self._sleeper.leave_call()

    def interrupt(self) -> None:
        """End the current sleep, so that the queues are checked again."""
        self._look_everywhere()
        self._sleeper.interrupt()

    @property
    def signs(self) -> ConsumerSigns:
        """Its latest acts; may be asked from any thread."""
        claimed = [partition.claimed_at for partition in self._partitions if partition.claimed_at is not None]
        workers = [partition.worker for partition in self._partitions if partition.worker is not None]
        now = time.monotonic()
        return ConsumerSigns(
            turned_at=self._watchdog.turned_at,
            is_watched=self._watchdog.is_alive,
            claimed_at=max(claimed, default=None),
            waits_since=self._session.bells.waits_since,
            is_held=any(not worker.is_lost and now < worker.deadline for worker in workers),
            failure=last_failure(),
        )

    # Called by the inbox.

    def recheck(self) -> None:
        """Only a bell can have been missed."""
        self.interrupt()

    def closed(self, error: InconcertError) -> None:
        """Claim no more, with this error."""
        super().closed(error)
        self.interrupt()

    # What its partitions tell.

    def watch(self, worker: WorkerLease[Any]) -> None:
        """Keep this worker alive while the event loop stands still."""
        self._watchdog.watch(worker)

    def on_news(self, number: int) -> None:
        """Something has ended that others wait for: nobody waits for it, unless a subclass says so."""

    def on_room(self) -> None:
        """There is something to claim that its worker could not claim before."""
        self.interrupt()

    def on_recovered(self, queue: str, requeued: int, dead: int) -> None:
        """Claims of a dead worker were recovered: nobody counts them, unless a subclass says so."""

    # Private.

    @property
    @abstractmethod
    def _wants_more(self) -> bool:
        """True if anything here still wants the next claim."""

    @property
    def _has_worker(self) -> bool:
        """True if there is a worker that was not presumed dead."""
        return any(partition.worker is not None and not partition.worker.is_lost for partition in self._partitions)

    @abstractmethod
    def _new_worker(self, number: int, owner: ClaimPartition[C]) -> WorkerLease[C]:
        """A worker for this partition that has not begun."""

    def _start(self) -> list[asyncio.Task[None]]:
        """Start what runs while it is open."""
        return list(chain.from_iterable(partition.start() for partition in self._partitions))

    async def _end(self) -> None:
        await cancel_all(self._tasks)
        for partition in self._partitions:
            await partition.close()
        await self._watchdog.close()

    def _look_everywhere(self) -> None:
        self._found_some = False
        self._looked_at = time.monotonic()
        for partition in self._partitions:
            partition.look_again()

    async def _claim_in_turn(self, count: int, *, patience: float | None) -> float | None:
        """Claim from one partition; the others share the number that it does not have."""
        turn = self._partitions[self._first :] + self._partitions[: self._first]
        self._first = (self._first + 1) % len(self._partitions)
        order = [partition for partition in turn if patience is None or partition.may_have_more]
        due: list[float] = []
        errors: list[InconcertError] = []

        async def claim(partition: ClaimPartition[C], share: int) -> None:
            try:
                answer = await partition.claim_within(patience, share)
            except InconcertError as error:
                partition.leave_out()
                errors.append(error)
                return
            if answer is not None:
                claimed, due_in = answer
                self._found += claimed  # at once: the call may be cancelled while others are under way
                due.extend([] if due_in is None else [due_in])

        share_of = 1  # in how many partitions at once
        while order and len(self._found) < count:
            self.raise_if_closed()
            left = count - len(self._found)
            asked, order = order[: min(share_of, left)], order[min(share_of, left) :]
            if len(asked) == 1:
                await claim(asked[0], left)
            else:
                async with anyio.create_task_group() as group:
                    for number, partition in enumerate(asked):
                        group.start_soon(claim, partition, (left + number) // len(asked))
            order += [partition for partition in asked if partition.may_have_more]
            share_of = len(order)
        if errors and not self._found:
            raise errors[0]
        self.raise_if_closed()
        return min(due, default=None)


async def settle(claimed: Sequence[ClaimState]) -> None:
    """Count all these as done before they are handed out."""
    await asyncio.gather(*(one.settle() for one in claimed))  # in one turn of the event loop, so by one script
