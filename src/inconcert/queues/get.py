"""Getting items from a queue: one worker serves all waiters of a process."""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import anyio

from inconcert._claims.consumer import AFTER_A_FAILURE, ClaimConsumer, settle
from inconcert._claims.partition import ClaimPartition
from inconcert._claims.unsettled import unsettle
from inconcert._core.session import Session, SessionRef
from inconcert._core.shield import run_shielded
from inconcert._redis.wire.turns import each_in_turns
from inconcert.errors import InconcertError, OutcomeUnknown, QueueShutDown, Unavailable
from inconcert.queues.delivery import Delivery, ItemState
from inconcert.queues.shutdown import Standby
from inconcert.queues.store import ItemKeys
from inconcert.queues.worker_lease import ItemWorkerLease, Terms

_Pause = Callable[[], Awaitable[None]]
_Found = tuple[list[ItemState[Any]], float | None] | InconcertError  # what comes of a claim

_log = logging.getLogger("inconcert.queues")


class Getters:
    """All calls of `get` while a coordinator is open."""

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
        terms: How its items are claimed.
    """

    def __init__(self, session: Session, keys: ItemKeys, terms: Terms) -> None:
        super().__init__(
            session, [(keys, [keys.only])], to_the_front=terms.order == "lifo", max_crashes=terms.max_crashes
        )
        self.queue = terms.name  # the name of the queue
        self.address = self._address  # unique to these, among all processes
        self._keys = keys
        self._terms = terms
        self._standby = Standby(session, keys, self.interrupt)
        self._getters: OrderedDict[_Getter, None] = OrderedDict()  # the first has waited longest
        self._impatient: set[_Getter] = set()  # those of these that do not wait for something to be put in
        self._late: list[_Getter] = []  # those that are to leave: their calls take only what came with the first item
        self._left_over: deque[ItemState[Any]] = deque()  # settled for a waiter that has gone
        self._is_unsure = False  # the reply of a claim may have been lost
        self._is_served = False  # whether something claims for them: a task of ours, or at first that of a waiter
        self._serving: asyncio.Task[None] | None = None

    async def get(self, timeout: float | None, limit: int, within: float) -> list[ItemState[Any]]:
        """Wait for items and claim them; see `Queue.get_many`."""
        self.raise_if_closed()
        found: _Found | None = None
        if not (self._is_served or timeout or within or self._left_over or self._terms.delivery == "at_most_once"):
            items, found = await self._claim_alone(limit)
            if items:
                return items
            self.raise_if_closed()  # meanwhile: then nobody serves the waiters
        return await self._get_in_line(timeout, limit, within, found)

    def closed(self, error: InconcertError) -> None:
        """Fail all that wait, with this error."""
        super().closed(error)
        self._fail(self._getters, error)

    @property
    def waiting(self) -> int:
        """The number of calls of `get` that wait; one of `get_many` counts as so many as it wants items."""
        return len(self._getters)

    @property
    def held(self) -> Iterator[ItemState[Any]]:
        """The items that are claimed here and have not ended, in the order in which they were claimed."""
        workers = [partition.worker for partition in self._partitions if partition.worker is not None]
        return chain.from_iterable(worker.held for worker in workers)

    # Private.

    async def _get_in_line(
        self, timeout: float | None, limit: int, within: float, found: _Found | None
    ) -> list[ItemState[Any]]:
        """The same behind all that wait; or before those that came while a claim of this call found nothing."""
        getters = [_Getter(self._forget, lingers=within > 0) for _ in range(limit)]
        first, *first.followers = getters
        self._stand_in_line(getters, is_first=found is not None)
        if timeout == 0:
            self._impatient.update(getters)
        try:
            if self._is_served or timeout or self._terms.delivery == "at_most_once":
                self._serve(is_urgent=timeout == 0)
            else:
                await self._serve_here(getters, found)
            if timeout:
                await asyncio.wait([first], timeout=timeout)
            else:
                await first
            if within and first.has_one:
                await asyncio.wait(getters, timeout=within)
        except asyncio.CancelledError:
            self._leave(getters)
            for getter in reversed(getters):  # the last first, so that the first ends up at the front
                if getter.has_one:
                    self._take_back(getter.result())
            raise
        finally:
            self._leave(getters)
        if first.cancelled():
            raise TimeoutError(f"queue {self._terms.name!r} had no item for {timeout:g} s; wait longer with timeout=")
        return [first.result(), *(getter.result() for getter in first.followers if getter.has_one)]

    def _stand_in_line(self, getters: "list[_Getter]", *, is_first: bool) -> None:
        self._getters.update(dict.fromkeys(getters))
        for getter in reversed(getters) if is_first else ():
            self._getters.move_to_end(getter, last=False)

    def _leave(self, getters: "list[_Getter]") -> None:
        """Those that have nothing wait no longer."""
        for getter in getters:
            getter.cancel()

    def _forget(self, getter: "_Getter") -> None:
        del self._getters[getter]
        self._impatient.discard(getter)
        if not self._getters:
            self.interrupt()  # no waiter is left to sleep for

    async def _claim_alone(self, limit: int) -> "tuple[list[ItemState[Any]], _Found]":
        """Claim for a caller while nobody waits, in its task: it goes on in the turn of the loop that brings it.

        Returns:
            Its items, and the claim; without items it is to serve those that have come meanwhile, too.
        """
        self._is_served = True
        try:
            found = await self.try_claim(limit, everywhere=True)
        except (Unavailable, OutcomeUnknown) as error:
            self._is_served = False
            return [], error
        except BaseException as error:
            self._is_unsure = self._is_unsure or isinstance(error, asyncio.CancelledError)  # the next returns the same
            self._is_served = False
            if self._getters or self._may_hold_unseen:
                self._serve_on(None)
            raise
        self._is_served = False
        items = [item for item in found[0] if not item.is_over]  # otherwise it was lost meanwhile
        if items[limit:]:  # a call that has gone had claimed more
            self._hand_out(items[limit:])
            del items[limit:]
        if self._getters and items:
            self._serve_on(None)
        return items, found

    async def _serve_here(self, getters: "list[_Getter]", found: _Found | None) -> None:
        """Serve the first waiter once in its task, which may have claimed already, and found nothing."""
        self._is_served = True
        pause: _Pause | None = None
        try:
            pause = await self._serve_once(self._impatient.intersection(getters), found)
        except Exception as error:  # noqa: BLE001 - the waiters raise it
            self._fail(self._getters, error)
        finally:
            self._is_served = False
            if self._getters or self._may_hold_unseen:
                self._serve_on(pause)

    def _serve(self, *, is_urgent: bool) -> None:
        if not self._is_served:
            self._serve_on(None)
        elif is_urgent:
            self.interrupt()

    def _serve_on(self, pause: "_Pause | None") -> None:
        self._is_served = True
        self._serving = self._session.loop.create_task(self._serve_all(pause))

    async def _serve_all(self, pause: "_Pause | None") -> None:
        """Claim for all waiters, until there are none, after this pause. Cancelling a waiter does not cancel this."""
        try:
            while True:
                if pause is not None:
                    await pause()
                if not self._getters and not self._may_hold_unseen:
                    return
                pause = await self._serve_once(set(self._impatient))
        except Exception as error:  # noqa: BLE001 - the waiters raise it
            self._fail(self._getters, error)
        finally:
            self._is_served, self._serving = False, None

    async def _serve_once(self, asked: "set[_Getter]", found: _Found | None = None) -> "_Pause | None":
        """Claim for all waiters once, of which these do not wait; returns what to wait for before the next time."""
        try:
            return self.sleep if await self._serve_some(asked, found) else None
        except (Unavailable, OutcomeUnknown) as error:
            _log.warning("items of queue %r cannot be claimed yet: %s", self._terms.name, error)
            self._is_unsure = self._is_unsure or isinstance(error, OutcomeUnknown)
            self._fail(asked & self._impatient, error)
            return partial(anyio.sleep, AFTER_A_FAILURE)

    async def _serve_some(self, asked: "set[_Getter]", found: _Found | None) -> bool:
        """Claim for all once, of which these do not wait; returns whether to sleep then, because nothing is left."""
        while self._left_over and self._getters:
            self._take_back(self._left_over.popleft())
        wanted = len(self._getters) or int(self._may_hold_unseen)
        if found is None:
            found = await self._try_claim(wanted) if wanted else ([], None)
        if isinstance(found, InconcertError):
            raise found
        items, due_in = found
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
        late, self._late = self._late, []
        self._leave(late)
        if items and due_in == 0:  # the rest was too large for one reply, or more is due: the next claim gets it
            return False
        if not items and wanted and self._getters and await self._standby.is_over():
            self._fail(self._getters, QueueShutDown(self._terms.name))
            return False
        if asked & self._impatient:
            none = TimeoutError(f"queue {self._terms.name!r} has no item now; wait for one with timeout=")
            self._fail(asked & self._impatient, none)
        return bool(self._getters) and not self._impatient and len(items) < wanted

    async def _try_claim(self, wanted: int) -> _Found:
        try:
            return await self.try_claim(wanted, everywhere=True)
        except asyncio.CancelledError:  # the waiter whose task this is has gone: the next claim returns the same
            self._is_unsure = True
            raise

    def _hand_out(self, items: Iterable[ItemState[Any]]) -> None:
        """Give the first to the longest waiter, and so on; requeue what nobody wants any more."""
        left = deque(item for item in items if not item.is_over)  # otherwise it was lost meanwhile
        while left and self._getters:
            self._give_to_first(left.popleft())
        while left:
            self._take_back(left.pop())  # the last first, so that the first ends up at the front

    def _take_back(self, item: ItemState[Any]) -> None:
        """Give an item that was not handed out to the next waiter here, or requeue it."""
        if item.is_over:
            return
        if self._getters:
            self._give_to_first(item)
        elif item.is_settled:
            self._left_over.appendleft(item)
        else:
            item.give_back_nowait()

    def _give_to_first(self, item: ItemState[Any]) -> None:
        """Give an item to the one that has waited longest; the others of its call then wait in another way."""
        getter, _ = self._getters.popitem(last=False)
        self._impatient.discard(getter)
        getter.set_result(item)
        if getter.lingers:
            self._impatient.difference_update(getter.followers)
        else:
            self._late += getter.followers

    def _fail(self, getters: "Iterable[_Getter]", error: Exception) -> None:
        def fail(getter: _Getter) -> None:
            if not getter.done():
                self._forget(getter)
                getter.set_exception(error)
                getter.exception()  # of several of one call, the first is raised

        each_in_turns("ending a wait", [*getters], fail)

    @property
    def _may_hold_unseen(self) -> bool:
        """True if the server may have given us items that we do not know of: the next claim returns them."""
        return self._is_unsure and self._has_worker

    @property
    def _wants_more(self) -> bool:
        return bool(self._getters)

    def _new_worker(self, number: int, owner: ClaimPartition[ItemState[Any]]) -> ItemWorkerLease:
        del number  # there is only one partition
        return ItemWorkerLease(self._session, self._keys, self._terms, owner)

    async def _end(self) -> None:
        if self._serving is not None:
            self._tasks.append(self._serving)
        self._standby.close()
        await super()._end()
        await unsettle(self._session, lambda _: self._keys, (item for item in self._left_over if not item.is_over))


class _Getter(asyncio.Future[ItemState[Any]]):
    """A waiter for an item, which is its result.

    Args:
        forget: Called when it waits no longer.
        lingers: Whether it waits on for more when the first of its call has an item.
    """

    __slots__ = ("_forget", "followers", "lingers")

    def __init__(self, forget: "Callable[[_Getter], None]", *, lingers: bool) -> None:
        super().__init__()
        self._forget = forget
        self.lingers = lingers
        self.followers: Sequence[_Getter] = ()  # the others of its call, if it is the first

    def cancel(self, msg: Any = None) -> bool:  # noqa: ANN401 - as in asyncio
        """Wait no longer; from now on nothing is given to it."""
        if not self.done():
            self._forget(self)
        return super().cancel(msg)

    @property
    def has_one(self) -> bool:
        """True if it was given an item."""
        return self.done() and not self.cancelled() and self.exception() is None
