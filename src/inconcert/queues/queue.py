"""A queue that processes share: each item put in goes to one consumer, which holds it until it acknowledges it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, get_args

from inconcert._claims.consumer import Guarantee
from inconcert._claims.dead_letters import DeadLetter, DeadLetters, Replayed
from inconcert._core.session import SessionRef
from inconcert._rules import durations
from inconcert._rules.codec import Codec, T
from inconcert._rules.defaults import ITEM_ATTEMPTS, MAX_CRASHES, QUEUE_TTL
from inconcert._rules.durations import Seconds
from inconcert._rules.limits import whole
from inconcert.errors import InvalidPayload, ItemNotFound, QueueShutDown
from inconcert.queues.delivery import Delivery
from inconcert.queues.get import Getters
from inconcert.queues.join import Join
from inconcert.queues.put import NewItems, Put, PutTerms, check_putting, item_codec
from inconcert.queues.shutdown import OPEN, SHUT_AT_ONCE, SHUT_DOWN, set_state
from inconcert.queues.store import INSPECT, PURGE_READY, ItemKeys, ItemRow, QueueState, read_state, split_item
from inconcert.queues.worker_lease import QueueOrder, Terms, read_item

_MOST_AT_ONCE = 500  # items of one get_many()

_MOST = 500  # items in one script that drops them


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """The contents of a queue, in numbers.

    Attributes:
        ready: Items that may be taken now.
        delayed: Items that may be taken later.
        claimed: Items that were claimed and not yet acknowledged.
        dead: Items that were dead-lettered.
        is_shut_down: Whether it takes no more; see `Queue.shutdown`.
    """

    ready: int
    delayed: int
    claimed: int
    dead: int
    is_shut_down: bool = False


@dataclass(frozen=True, slots=True)
class DeadItem(Generic[T]):
    """A dead-lettered item.

    Attributes:
        id: Which item.
        item: What was put in; also None if it cannot be read, or is not of the queue's type.
        reason: Why it was dead-lettered, in one line.
        attempts: How many attempts there were.
        died_at: When it was dead-lettered, in seconds since 1970 by the server's clock.
        traceback: Where its last error was raised, as text; empty if none was.
    """

    id: str
    item: T | None
    reason: str
    attempts: int
    died_at: float
    traceback: str


class Queue(Generic[T]):
    """A queue of items between processes: each item goes to one consumer, and is requeued unless acknowledged.

    An item leaves Redis only when it is acknowledged.  If the process that holds it dies, it is back at the front of
    the queue within `ttl`, and the crash is counted; a handler may take as long as it likes.  An item that fails too
    often is dead-lettered, never dropped.  To call functions, with priorities, results and schedules, use tasks.

    Made by `Coordinator.queue`; it keeps nothing itself, and many tasks may share one:

    ```python
    queue = concert.queue("thumbnails")
    await queue.put({"image": 17})

    async for delivery in queue:
        async with delivery as item:
            await make_thumbnail(item)
    ```

    Args:
        name: Which queue.
        item_type: What its items are: a `msgspec.Struct`, a dataclass, a `TypedDict`, a pydantic model, or any other
            type that msgspec reads. None for any JSON value.
        order: `fifo`: new items join the back. `lifo`: the front. Items are always taken from the front.
        ttl: After how many seconds of silence a process is presumed dead and its items are requeued.
        max_attempts: How many attempts may fail before an item is dead-lettered.
        max_crashes: How many processes may die with an item before it is dead-lettered as the cause.
        maxsize: Limit on unacknowledged items: ready, delayed or claimed; None for no limit.
        delivery: `at_least_once`, or `at_most_once`: an item counts as done when it is handed out.

    Raises:
        ValueError: An argument is out of its range.
        TypeError: JSON cannot represent `item_type`.
    """

    def __init__(
        self,
        ref: SessionRef,
        getters: Getters,
        name: str,
        item_type: Any = None,  # noqa: ANN401 - also unions and the like
        *,
        order: QueueOrder = "fifo",
        ttl: Seconds = QUEUE_TTL,
        max_attempts: int = ITEM_ATTEMPTS,
        max_crashes: int = MAX_CRASHES,
        maxsize: int | None = None,
        delivery: Guarantee = "at_least_once",
    ) -> None:
        self.name = name
        check_putting(order, maxsize)
        if delivery not in get_args(Guarantee):
            raise ValueError(f"delivery is {delivery!r}; give 'at_least_once' or 'at_most_once'")
        whole("max_attempts", max_attempts)
        whole("max_crashes", max_crashes)
        self._ref = ref
        self._getters = getters
        self._keys = ItemKeys(ref.keys, name)
        self._dead_letters = DeadLetters(ref, self._keys)
        self._codec: Codec[T] = item_codec(name, item_type)
        self._terms = Terms(name, order, durations.ttl(ttl), max_attempts, max_crashes, delivery, self._codec)
        self._maxsize = maxsize

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    async def put(
        self,
        item: T,
        *,
        id: str | None = None,  # noqa: A002 - as in `Delivery.id`
        delay: Seconds = 0.0,
        timeout: Seconds | None = 0.0,
    ) -> bool:
        """Put an item in.

        If the reply is lost, the call is sent again, and the item is added once.  A caller that may itself put the same
        item twice, because it was killed after it or is called again, gives an `id`.

        Args:
            item: A value of the queue's type; without one None, booleans, numbers, strings, and lists and dictionaries
                of these. At most 1 MiB as JSON.
            id: What the item is known by, up to 512 printable ASCII characters without space and `#`, such as
                `order-17`. Nothing is put in while an item with this id is in the queue, delayed, claimed or
                dead-lettered, and for a minute after one was put in, unless 10,000 others came since. None draws one.
            delay: After how many seconds it may be taken.
            timeout: Longest wait in line for room, in seconds; None waits forever, 0 does not wait.

        Returns:
            Whether it was put in; False only if one with this `id` was.

        Raises:
            QueueFull: There is no room, or others are waiting for it; the item was not put in.
            QueueShutDown: The queue was shut down; the item was not put in.
            InvalidPayload: JSON cannot hold the item, it is not of the queue's type, or it is larger than 1 MiB.
            InvalidName: No item can have this `id`.
            ValueError: `delay` or `timeout` is negative, or not a number.

        Cost: 1 round trip. Waiting for room: 1 more to be in line, 1 when woken, and 1 every 2 to 5 s.
        """
        return await self._put([item], delay, timeout, item_id=id)

    async def put_many(self, items: Sequence[T], *, delay: Seconds = 0.0, timeout: Seconds | None = 0.0) -> None:
        """Put items in, all of them or none, one after the other; in a `lifo` queue the last is taken first.

        Args:
            items: At most 500, and no more than `maxsize`; 8 MiB together.
            delay: See `put`.
            timeout: See `put`.

        Raises:
            QueueFull: There is no room for all, or others are waiting for it; none was put in.
            QueueShutDown: See `put`.
            InvalidPayload: JSON cannot hold one of them, one is not of the queue's type, or they are too large.
            ValueError: There are too many; or see `put`.
            NotConnected: See `put`.
            OutcomeUnknown: See `put`.

        Cost: That of `put`.
        """
        await self._put(items, delay, timeout)

    async def get(self, *, timeout: Seconds | None = None) -> Delivery[T]:
        """Wait for an item and claim it: this process holds it until the delivery ends.

        If cancelled, an item claimed by then goes to the next waiter in this process, or back to the front.  Waits for
        a server that cannot be reached, unless `timeout` is 0.

        Args:
            timeout: Longest wait, in seconds; None waits forever, 0 does not wait.

        Raises:
            TimeoutError: No item came in time.
            QueueShutDown: The queue was shut down, and all items are done.
            ValueError: `timeout` is negative, or not a number.
            Unavailable: `timeout` is 0, and the server cannot be reached.
            OutcomeUnknown: `timeout` is 0, and the server did not answer; the next `get` receives what was claimed.

        Cost: 1 round trip when there is an item, shared by all waiters in this process. While there is none, 1 command
            every 2 to 5 s, and one more each 30 s, however many wait, and 1 every 5 s for all queues together. The
            first call also starts the heartbeat: 1 command every third of `ttl`.
        """
        [delivery] = await self._getters.get(self._keys, self._terms, durations.timeout(timeout))
        return delivery

    async def get_many(self, limit: int, *, within: Seconds = 0.0, timeout: Seconds | None = None) -> list[Delivery[T]]:
        """Wait for items and claim them together, to handle them in one go: up to `limit`, in their order.

        Waits for the first one, and then takes the items there, or those that come in `within` seconds, until it has
        `limit`. Each delivery ends by itself. Until it returns it stands in line as `limit` calls of `get` would.

        Args:
            limit: How many at most, 1 to 500.
            within: How long to wait for more after the first, in seconds; 0, the default, takes the items there, up to
                1 MiB.
            timeout: Longest wait for the first, in seconds; None waits forever, 0 does not wait.

        Returns:
            At least one.

        Raises:
            ValueError: `limit` is not from 1 to 500; `within` or `timeout` is negative, or not a number.
            TimeoutError: See `get`. It also raises every other error of `get`.
            QueueShutDown: See `get`.
            NotConnected: See `get`.
            Unavailable: See `get`.
            OutcomeUnknown: See `get`.

        Cost: 1 round trip for each MiB; otherwise that of `get`.
        """
        whole("limit", limit, most=_MOST_AT_ONCE)
        patience, more = durations.timeout(timeout), durations.in_seconds("within", within)
        return await self._getters.get(self._keys, self._terms, patience, limit=limit, within=more)

    async def join(self, *, timeout: Seconds | None = None) -> None:
        """Wait until all items are done: each that was put in is acknowledged, dead-lettered or purged.

        With several producers it returns at the first moment at which nothing is left, and others may put in more
        then; call it when all have put in theirs.

        Args:
            timeout: Longest wait, in seconds; None waits forever, 0 checks once.

        Raises:
            TimeoutError: Some are left: ready, delayed or claimed.
            ValueError: `timeout` is negative, or not a number.

        Cost: 1 round trip; while it waits, 1 command every 2 to 5 s, and 1 message at the end.
        """
        await Join(self._ref.session, self._keys, self.name).within(durations.timeout(timeout))

    async def shutdown(self, *, immediate: bool = False) -> None:
        """Take no more items, in any process, and let consumers end when all are done; stays so until `reopen`.

        `put` raises `QueueShutDown` from now on, also where it waits for room. `get` continues until no item is left,
        ready, delayed or claimed by anybody, and raises then: an item that fails, or whose process dies, is still
        handled. `async for` ends without an error. Consumers that wait are told at once.

        Args:
            immediate: Whether to drop all that is not claimed, as `purge` does, and to let consumers end even if others
                hold items. Such an item, if it comes back, stays in the queue.

        Raises:
            OutcomeUnknown: The server did not answer; call it again.

        Cost: 1 round trip, 1 more for each 100 consumers that wait, and 1 message for each of them. `immediate` adds
            those of `purge`.
        """
        await set_state(self._ref.session, self._keys, SHUT_AT_ONCE if immediate else SHUT_DOWN)
        if immediate:
            await self.purge()

    async def reopen(self) -> None:
        """Take items again after `shutdown`. Calls that have ended meanwhile stay so; does nothing to an open queue.

        Raises:
            OutcomeUnknown: The server did not answer; call it again.
        """
        await set_state(self._ref.session, self._keys, OPEN)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery[T]:
        try:
            return await self.get()
        except QueueShutDown:
            raise StopAsyncIteration from None

    async def size(self) -> int:
        """The number of items that may be taken now."""
        return (await self.counts()).ready

    async def counts(self) -> QueueCounts:
        """Counts of the items by where they are, and whether more may come."""
        state, _ = await self._inspect()
        return QueueCounts(state.ready, state.delayed, state.claimed, state.dead, is_shut_down=bool(state.shut))

    async def oldest_age(self) -> float | None:
        """Age of the oldest ready item, in seconds since it was put in; None if the queue is empty.

        Only the two ends of the queue are checked, where the oldest item is unless `fifo` and `lifo` were mixed.
        """
        state, _ = await self._inspect()
        return state.oldest_ms / 1000 if state.oldest_ms >= 0 else None

    async def peek(self, *, limit: int = 10) -> list[T | None]:
        """The next items, without taking them; None also stands for an item that cannot be read as the queue's type.

        Args:
            limit: How many at most, 1 to 1,000.

        Cost: 1 round trip, and 1 for each further MiB.
        """
        whole("limit", limit, most=1_000)
        shown: list[ItemRow] = []
        has_more = True
        while has_more:
            state, portion = await self._inspect(len(shown), limit - len(shown))
            shown += portion
            has_more = bool(portion) and len(shown) < min(limit, state.ready)
        return [self._read(row.id.decode(), row.body) for row in shown]

    async def purge(self) -> int:
        """Drop all unclaimed items, delayed ones too; returns how many.

        Cost: 1 round trip for 500 items.
        """
        keys, session = self._keys, self._ref.session
        total = 0
        while True:
            command = PURGE_READY(keys, keys.only, inboxes=session.inboxes(keys.bodies), request=session.new_address())
            dropped: int = await session.run(command)
            total += dropped
            if dropped < _MOST:
                return total

    async def dead(self, *, limit: int = 100) -> list[DeadItem[T]]:
        """Dead-lettered items, the latest first.

        Args:
            limit: How many at most, 1 to 1,000.

        Cost: 1 round trip, and 1 for each further MiB.
        """
        return [self._dead_item(letter) for letter in await self._dead_letters.latest(limit=limit)]

    async def replay(self, item_id: str) -> None:
        """Put a dead-lettered item at the back of the queue, as if it were new, under its old id.

        It counts towards `maxsize`, but does not wait for room.

        Raises:
            ItemNotFound: The item is not in the dead-letter list.
            OutcomeUnknown: The server did not answer; it may be in the queue.
        """
        if not await self._dead_letters.replay([Replayed(item_id)], self._keys.only):
            raise ItemNotFound(self.name, item_id)

    async def purge_dead(self, *, older_than: Seconds = 0.0, keep: int = 0) -> int:
        """Drop dead-lettered items, the oldest first.

        Args:
            older_than: Only items that were dead-lettered longer ago than this, in seconds.
            keep: How many of the latest stay whatever their age; 0 for none.

        Returns:
            How many were dropped.

        Raises:
            ValueError: A number is out of its range.

        Cost: 1 round trip for 500 items.
        """
        return await self._dead_letters.purge_all(older_than=older_than, keep=keep)

    # Private.

    async def _put(
        self, items: Sequence[T], delay: Seconds, timeout: Seconds | None, *, item_id: str | None = None
    ) -> bool:
        in_seconds, patience = durations.delay(delay), durations.timeout(timeout)
        session = self._ref.session
        if not items:
            return True
        new = NewItems(
            session,
            self._keys,
            self.name,
            items,
            self._codec,
            order=self._terms.order,
            delay=in_seconds,
            maxsize=self._maxsize,
            item_id=item_id,
        )
        if self._maxsize is None or patience == 0:
            return new.added(await session.run(new.put()))
        return await Put(session, self._keys, new).within(patience)

    async def _inspect(self, passed_over: int = 0, limit: int = 0) -> tuple[QueueState, list[ItemRow]]:
        command = INSPECT(self._keys, self._keys.only, skip=passed_over, limit=limit)
        return read_state(await self._ref.session.run(command))

    def _read(self, item_id: str, body: bytes) -> T | None:
        try:
            return read_item(self._ref.session.key_ring, self.name, self._codec, item_id, split_item(body)[1])
        except InvalidPayload:
            return None

    def _dead_item(self, letter: DeadLetter) -> DeadItem[T]:
        why, item = letter.reason, self._read(letter.id, letter.body)
        return DeadItem(letter.id, item, why.reason, why.attempts, letter.died_at, why.traceback)


def put_terms_of(queue: Queue[T]) -> PutTerms[T]:
    """The sender of items into a queue, also while its coordinator is not open."""
    return PutTerms(queue._codec, queue._terms.order, queue._maxsize)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
