"""Getting items from a queue: one worker serves all waiters of a process."""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import Any

import anyio

from inconcert._claims.consumer import AFTER_A_FAILURE, ClaimConsumer, settle
from inconcert._claims.ends import WorkerOwner
from inconcert._claims.unsettled import unsettle
from inconcert._core.session import Session, SessionRef
from inconcert._core.shield import run_shielded
from inconcert.errors import InconcertError, OutcomeUnknown, QueueShutDown, Unavailable
from inconcert.queues.delivery import Delivery, ItemState
from inconcert.queues.shutdown import Standby
from inconcert.queues.store import ItemKeys
from inconcert.queues.worker_lease import ItemWorkerLease, Terms

__all__ = ["Getters", "OpenGetters"]

_log = logging.getLogger("inconcert.queues")


class Getters:
    """All calls of `get` while a coordinator is open.

    Args:
        ref: Refers to the open session.
    """

    def __init__(self, ref: SessionRef) -> None:
        self._ref = ref
        self._open: dict[Terms, OpenGetters] = {}

    async def get(
        self, keys: ItemKeys, terms: Terms, timeout: float | None, *, limit: int = 1, within: float = 0.0
    ) -> list[Delivery[Any]]:
        """Wait for items of this queue and claim them; see `Queue.get_many`."""
        session = self._ref.session
        getting = self._open.get(terms)
        if getting is None:
            getting = self._open[terms] = OpenGetters(session, keys, terms)
            getting.open()
        return [Delivery(item) for item in await getting.get(timeout, limit, within)]

    async def close(self) -> None:
        """Requeue everything, and stop."""
        while self._open:
            _, getting = self._open.popitem()
            await getting.close()

    def forget(self) -> object:
        """Leave everything to the process that this one was forked from, and return it."""
        left, self._open = self._open, {}
        return left


class OpenGetters(ClaimConsumer[ItemState[Any]]):
    """The waiters for items of one queue, on the same terms.

    Args:
        session: The open session.
        keys: The keys of the queue.
        terms: How its items are claimed.

    Attributes:
        queue: The name of the queue.
        address: Unique to these, among all processes.
    """

    def __init__(self, session: Session, keys: ItemKeys, terms: Terms) -> None:
        super().__init__(
            session, [(keys, [keys.only])], to_the_front=terms.order == "lifo", max_crashes=terms.max_crashes
        )
        self.queue = terms.name
        self.address = self._address
        self._keys = keys
        self._terms = terms
        self._standby = Standby(session, keys, self.interrupt)
        self._getters: deque[_Getter] = deque()  # the first has waited longest
        self._left_over: deque[ItemState[Any]] = deque()  # settled for a waiter that has gone
        self._is_unsure = False  # the reply of a claim may have been lost
        self._serving: asyncio.Task[None] | None = None

    async def get(self, timeout: float | None, limit: int, within: float) -> list[ItemState[Any]]:
        """Wait for items and claim them; see `Queue.get_many`."""
        self.raise_if_closed()
        loop, waits = self._session.loop, timeout != 0
        getters = [_Getter(loop.create_future(), waits=waits)]
        getters += (
            _Getter(loop.create_future(), waits=waits, first=getters[0], lingers=within > 0) for _ in range(1, limit)
        )
        first = getters[0].delivery
        self._getters += getters
        self._serve()
        try:
            await asyncio.wait([first], timeout=timeout or None)
            if within and getters[0].has_one:
                await asyncio.wait([getter.delivery for getter in getters], timeout=within)
        except asyncio.CancelledError:
            self._leave(getters)
            for getter in reversed(getters):  # the last first, so that the first ends up at the front
                if getter.has_one:
                    self._take_back(getter.delivery.result())
            raise
        finally:
            self._leave(getters)
        if first.cancelled():
            raise TimeoutError(f"queue {self._terms.name!r} had no item for {timeout:g} s; wait longer with timeout=")
        return [first.result(), *(getter.delivery.result() for getter in getters[1:] if getter.has_one)]

    def closed(self, error: InconcertError) -> None:
        """Fail all that wait, with this error."""
        super().closed(error)
        self._fail(self._getters, error)

    @property
    def waiting(self) -> int:
        """How many calls of `get` wait; one of `get_many` counts as so many as it wants items."""
        return len(self._getters)

    @property
    def held(self) -> list[ItemState[Any]]:
        """The items that are claimed here and have not ended, in the order in which they were claimed."""
        workers = [partition.worker for partition in self._partitions if partition.worker is not None]
        return [item for worker in workers for item in worker.held]

    # Private.

    def _leave(self, getters: "list[_Getter]") -> None:
        """Those that have nothing wait no longer."""
        for getter in getters:
            if not getter.delivery.done():
                self._forget(getter)
                getter.delivery.cancel()

    def _forget(self, getter: "_Getter") -> None:
        self._getters.remove(getter)
        if not self._getters:
            self.interrupt()  # no waiter is left to sleep for

    def _serve(self) -> None:
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve_all())
        elif not self._getters[-1].waits:
            self.interrupt()

    async def _serve_all(self) -> None:
        """Claim for all waiters, until there are none. Cancelling a waiter does not cancel this."""
        try:
            while self._getters or self._may_hold_unseen:
                asked = list(self._getters)
                try:
                    if await self._serve_some(asked):
                        await self.sleep()
                except (Unavailable, OutcomeUnknown) as error:
                    _log.warning("items of queue %r cannot be claimed yet: %s", self._terms.name, error)
                    self._is_unsure = self._is_unsure or isinstance(error, OutcomeUnknown)
                    self._fail([getter for getter in asked if not getter.waits], error)
                    await anyio.sleep(AFTER_A_FAILURE)
        except Exception as error:  # noqa: BLE001 - the waiters raise it
            self._fail(self._getters, error)
        finally:
            self._serving = None

    async def _serve_some(self, asked: "list[_Getter]") -> bool:
        """Claim for these once; returns whether to sleep then, because nothing is left."""
        while self._left_over and self._getters:
            self._take_back(self._left_over.popleft())
        wanted = len(self._getters) or int(self._may_hold_unseen)
        items, due_in = await self.try_claim(wanted) if wanted else ([], None)
        self._is_unsure = self._is_unsure and not wanted
        if not items and due_in == 0:
            await self.promote()
            return False
        if self._terms.delivery == "at_most_once" and self._getters:
            try:
                await run_shielded(settle(items))
            except asyncio.CancelledError:  # closing
                self._left_over.extend(item for item in items if not item.is_over)
                raise
        self._hand_out(items)
        self._leave([getter for getter in self._getters if getter.is_late])
        if items and due_in == 0:  # the rest was too large for one reply, or more is due: the next claim gets it
            return False
        if not items and asked and await self._standby.is_over():
            self._fail(asked, QueueShutDown(self._terms.name))
            return False
        none = TimeoutError(f"queue {self._terms.name!r} has no item now; wait for one with timeout=")
        self._fail([getter for getter in asked if not getter.waits], none)
        return 0 < len(self._getters) == sum(getter.waits for getter in self._getters) and len(items) < wanted

    def _hand_out(self, items: Iterable[ItemState[Any]]) -> None:
        """Give the first to the longest waiter, and so on; requeue what nobody wants any more."""
        left = deque(item for item in items if not item.is_over)  # otherwise it was lost meanwhile
        while left and self._getters:
            self._getters.popleft().delivery.set_result(left.popleft())
        while left:
            self._take_back(left.pop())  # the last first, so that the first ends up at the front

    def _take_back(self, item: ItemState[Any]) -> None:
        """Give an item that was not handed out to the next waiter here, or requeue it."""
        if item.is_over:
            return
        if self._getters:
            self._getters.popleft().delivery.set_result(item)
        elif item.is_settled:
            self._left_over.appendleft(item)
        else:
            item.give_back_nowait()

    def _fail(self, getters: "Iterable[_Getter]", error: Exception) -> None:
        for getter in list(getters):
            if not getter.delivery.done():
                self._forget(getter)
                getter.delivery.set_exception(error)
                getter.delivery.exception()  # of several of one call, the first is raised

    @property
    def _may_hold_unseen(self) -> bool:
        """Whether the server may have given us items that we do not know of: the next claim returns them."""
        return self._is_unsure and self._has_worker

    @property
    def _wants_more(self) -> bool:
        return bool(self._getters)

    def _new_worker(self, number: int, owner: WorkerOwner) -> ItemWorkerLease:
        del number  # there is only one partition
        return ItemWorkerLease(self._session, self._keys, self._terms, owner)

    async def _end(self) -> None:
        if self._serving is not None:
            self._tasks.append(self._serving)
        self._standby.close()
        await super()._end()
        await unsettle(self._session, lambda _: self._keys, (item for item in self._left_over if not item.is_over))


class _Getter:
    """A waiter for an item.

    Args:
        delivery: The item that it gets.
        waits: Whether it waits for something to be put in.
        first: The first of its call; None if it is that.
        lingers: Whether it waits when the first has an item.

    Attributes:
        delivery: As given.
    """

    __slots__ = ("_first", "_lingers", "_waits", "delivery")

    def __init__(
        self,
        delivery: asyncio.Future[ItemState[Any]],
        *,
        waits: bool,
        first: "_Getter | None" = None,
        lingers: bool = False,
    ) -> None:
        self.delivery = delivery
        self._waits = waits
        self._first = first
        self._lingers = lingers

    @property
    def has_one(self) -> bool:
        """Whether it was given an item."""
        delivery = self.delivery
        return delivery.done() and not delivery.cancelled() and delivery.exception() is None

    @property
    def waits(self) -> bool:
        """Whether it waits for something to be put in."""
        return self._lingers if self._follows else self._waits

    @property
    def is_late(self) -> bool:
        """Whether its call takes only what was claimed along with its first item."""
        return self._follows and not self._lingers

    @property
    def _follows(self) -> bool:
        return self._first is not None and self._first.has_one
