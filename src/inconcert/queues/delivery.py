"""An item that this process has claimed, and is to handle."""

from inconcert._claims.claimed import Claimed, Claimer
from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert._rules.payloads import JSON

__all__ = ["Delivery"]


class Delivery(Claimed):
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

    Attributes:
        item: What was put in.
        id: Which item; the same at each attempt.
        attempt: Which try this is, from 1; tries that ended with their process count, too.
        queue: The name of the queue.
        put_at: When it was put in, in seconds since 1970 by the server's clock.
    """

    __slots__ = ("item", "put_at", "queue")

    def __init__(
        self,
        claimer: Claimer,
        item_id: str,
        item: JSON,
        *,
        queue: str,
        place: int,
        attempt: int,
        failures: int,
        max_attempts: int,
        put_at: float,
    ) -> None:
        super().__init__(
            "item",
            claimer,
            item_id,
            source="",
            place=place,
            attempt=attempt,
            failures=failures,
            max_attempts=max_attempts,
        )
        self.item = item
        self.queue = queue
        self.put_at = put_at

    def __repr__(self) -> str:
        return f"<Delivery {self.id} of queue {self.queue!r} attempt {self.attempt}>"

    async def __aenter__(self) -> JSON:
        self._enter()
        return self.item

    async def ack(self) -> None:
        """Say that the item is done: it is gone then. Once this has started, cancelling it changes nothing.

        Raises:
            NotHeld: It has ended before, or this process was taken for dead.
            OutcomeUnknown: The server did not answer; the item may come again.

        Cost: 1 round trip, shared by all that end in the same turn of the event loop.
        """
        await self._done(b"", 0.0)

    async def nack(self, *, delay: Seconds = 0.0) -> None:
        """Count a failed attempt: the item is back at once, at the front, or later; after its last attempt it is dead.

        Args:
            delay: After how many seconds it joins its queue as if it were put in then; 0 for its old place at once.

        Raises:
            ValueError: `delay` is negative, or no number.
            NotHeld: It has ended before, or this process was taken for dead.
            OutcomeUnknown: The server did not answer; the item may come again.

        Cost: 1 round trip.
        """
        seconds = durations.delay(delay)
        await self._fail_with(None, "retry" if seconds else "again", delay=seconds)

    def __str__(self) -> str:
        return f"item {self.id} attempt {self.attempt} (queue {self.queue!r})"

    # Below.

    def _fields(self) -> dict[str, object]:
        return {"item_id": self.id, "attempt": self.attempt, "queue": self.queue}

    async def _succeed(self) -> None:
        await self.ack()

    async def _fail(self, error: BaseException | None) -> None:
        await self._fail_with(error, "again", delay=0.0)
