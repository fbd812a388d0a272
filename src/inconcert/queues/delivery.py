"""An item that this process has claimed, and is to handle."""

from inconcert._claims.claimed import Claimed, Claimer, ClaimState, Row
from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert._rules.payloads import JSON

__all__ = ["Delivery", "ItemState"]


class ItemState(ClaimState):
    """What the engine has of an item.

    Args:
        claimer: The worker that holds it.
        row: What the server says of it.
        item: What was put in.
        queue: The name of the queue.
        max_attempts: How many attempts may fail before it is set aside.
        put_at: When it was put in, in seconds since 1970 by the server's clock.
    """

    __slots__ = ("item", "put_at")

    def __init__(
        self,
        claimer: Claimer,
        row: Row,
        item: JSON,
        *,
        queue: str,
        max_attempts: int,
        put_at: float,
    ) -> None:
        super().__init__("item", claimer, row, queue=queue, max_attempts=max_attempts)
        self.item = item
        self.put_at = put_at

    def __str__(self) -> str:
        return f"item {self.id} attempt {self.attempt} (queue {self.queue!r})"

    async def ack(self) -> None:
        """Say that the item is done; see `Delivery.ack`."""
        await self._done(b"", 0.0)

    async def nack(self, delay: float) -> None:
        """Count a failed attempt; see `Delivery.nack`."""
        await self._fail_with(None, "retry" if delay else "again", delay=delay)

    def fields(self) -> dict[str, object]:
        """What a record of the log has of it, beside the text that `str` makes of it."""
        return {"item_id": self.id, "attempt": self.attempt, "queue": self.queue}

    # Below.

    async def _succeed(self) -> None:
        await self.ack()

    async def _fail(self, error: BaseException | None) -> None:
        await self._fail_with(error, "again", delay=0.0)


class Delivery(Claimed[ItemState]):
    """An item that this process has taken from a queue, and that comes back unless it is acknowledged.

    As a context manager it gives its item, and ends: leaving the body acknowledges it.  An exception in the body is
    logged, counted as a failed attempt, and *not* passed on, so that a loop goes on with the next item; the item is
    back at the front of its queue at once, and after its last attempt it is set aside with the reason.  A cancelled
    body gives the item back at once, and that does not count as an attempt.  What is not an `Exception` is
    counted likewise unless it came from outside, and passed on; `KeyboardInterrupt` and `SystemExit` count as a death
    of the process.

    If this process is taken for dead, because it did not reach the server for the queue's `ttl`, the body is cancelled,
    for another may have the item then.

    ```python
    async for delivery in concert.queue("thumbnails"):
        async with delivery as item:
            await handle(item)
    ```
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Delivery {self.id} of queue {self.queue!r} attempt {self.attempt}>"

    async def __aenter__(self) -> JSON:
        self._state.enter()
        return self._state.item

    async def ack(self) -> None:
        """Say that the item is done: it is gone then. Once this has started, cancelling it changes nothing.

        Raises:
            NotClaimed: It has ended before, or this process was presumed dead.
            OutcomeUnknown: The server did not answer; the item may come again.

        Cost: 1 round trip, shared by all that end in the same turn of the event loop.
        """
        await self._state.ack()

    async def nack(self, *, delay: Seconds = 0.0) -> None:
        """Count a failed attempt: the item is back at once, at the front, or later; after its last attempt it is dead.

        Args:
            delay: After how many seconds it joins its queue as if it were put in then; 0 for its old place at once.

        Raises:
            ValueError: `delay` is negative, or no number.
            NotClaimed: It has ended before, or this process was presumed dead.
            OutcomeUnknown: The server did not answer; the item may come again.

        Cost: 1 round trip.
        """
        await self._state.nack(durations.delay(delay))

    @property
    def item(self) -> JSON:
        """What was put in."""
        return self._state.item

    @property
    def put_at(self) -> float:
        """When it was put in, in seconds since 1970 by the server's clock."""
        return self._state.put_at
