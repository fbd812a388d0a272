"""An item that this process has claimed and handles."""

from collections.abc import Coroutine
from typing import Any, Generic

from inconcert._claims.claimed import Claimed, ClaimState, Ending
from inconcert._rules import durations
from inconcert._rules.codec import T
from inconcert._rules.durations import Seconds


class ItemState(ClaimState, Generic[T], eq=False):
    """The engine's state of a claimed item.

    Attributes:
        item: What was put in.
        put_at: When it was put in, in seconds since 1970 by the server's clock.
    """

    _kind = "item"

    item: T
    put_at: float

    def __str__(self) -> str:
        return f"item {self.id} attempt {self.attempt} (queue {self.queue!r})"

    def ack(self) -> Coroutine[Any, Any, None]:
        """Acknowledge the item; see `Delivery.ack`."""
        return self._done(b"", 0.0)

    async def nack(self, delay: float) -> None:
        """Count a failed attempt; see `Delivery.nack`."""
        await self._fail_with(None, "retry" if delay else "again", delay=delay)

    def fields(self) -> dict[str, object]:
        """The extra fields of its log records."""
        return {"item_id": self.id, "attempt": self.attempt, "queue": self.queue}

    # Private.

    def _succeed(self) -> Ending:
        return self.ack

    async def _fail(self, error: BaseException | None) -> None:
        await self._fail_with(error, "again", delay=0.0)


class Delivery(Claimed[ItemState[T]], Generic[T]):
    """An item that this process has claimed from a queue, and that is requeued unless it is acknowledged.

    As a context manager it returns its item, and leaving the body acknowledges it. An exception in the body is logged,
    counted as a failed attempt, and *not* propagated, so that a loop continues with the next item; the item is requeued
    at the front at once, and dead-lettered with the reason after its last attempt. A cancelled body requeues the item
    at once, and that does not count as an attempt. A `BaseException` that is not an `Exception` counts as one, too,
    unless it came from outside, and propagated; `KeyboardInterrupt` and `SystemExit` count as a crash of the process.

    If this process is presumed dead, because it did not reach the server for the queue's `ttl`, the body is cancelled,
    because another process may have the item then.

    ```python
    async for delivery in concert.queue("thumbnails"):
        async with delivery as item:
            await handle(item)
    ```
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Delivery {self.id} of queue {self.queue!r} attempt {self.attempt}>"

    def __del__(self) -> None:
        self._state.dropped()

    async def __aenter__(self) -> T:
        self._check_loop()
        self._state.enter()
        return self._state.item

    async def ack(self) -> None:
        """Acknowledge the item, which deletes it. Once started, cancelling this call does not stop it.

        Raises:
            NotClaimed: It has already ended, or this process was presumed dead.
            Unavailable: The server refuses it for now. It is sent again with each heartbeat; call this again to know.
            OutcomeUnknown: The server did not answer. It is sent again with each heartbeat, as after `Unavailable`.

        Cost: 1 round trip. The first of a turn of the event loop is sent at once if nothing is under way; all others of
            the turn share one.
        """
        self._check_loop()
        await self._state.ack()

    async def nack(self, *, delay: Seconds = 0.0) -> None:
        """Count a failed attempt and requeue the item, now or later; dead-letter it after its last attempt.

        Args:
            delay: After how many seconds it joins its queue as if it were put in then; 0 for the front, at once.

        Raises:
            ValueError: `delay` is negative, or not a number.
            NotClaimed: It has already ended, or this process was presumed dead.
            Unavailable: The server refuses it for now. It is sent again with each heartbeat; call this again to know.
            OutcomeUnknown: The server did not answer. It is sent again with each heartbeat, as after `Unavailable`.
        """
        self._check_loop()
        await self._state.nack(durations.delay(delay))

    @property
    def item(self) -> T:
        """The item that was put in."""
        return self._state.item

    @property
    def put_at(self) -> float:
        """The time at which it was put in, in seconds since 1970 by the server's clock."""
        return self._state.put_at
