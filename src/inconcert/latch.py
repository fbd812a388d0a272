"""A latch: processes wait until a number of things are done, on one server."""

from typing import NamedTuple

import anyio

from inconcert._core.channel_subscription import ChannelMessage, ChannelSubscription
from inconcert._core.session import SessionRef
from inconcert._redis.protocol.scripts import load
from inconcert._redis.wire.call import Call
from inconcert._rules import durations
from inconcert._rules.defaults import LATCH_TTL
from inconcert._rules.durations import Seconds, milliseconds
from inconcert._rules.limits import whole

_MOST = 1_000_000_000  # more would take years to count down


class _Keys(NamedTuple):
    counted: str  # string: how many were counted; ttl_ms after the last one
    recent: str
    older: str


_COUNT_DOWN = load("latches/count_down").bind(_Keys)
_INSPECT = load("latches/inspect").bind(_Keys)


class Latch:
    """Opens once `count` things are done, and stays open for waiters that come later.

    It counts in one direction only and is used once: use another name the next time.  The server keeps how many were
    counted, and each caller compares that with its own `count`.  A process that dies before counting down leaves the
    latch closed, so pass a timeout to `wait`, which raises `TimeoutError` when the time is up.

    Use it to wait until a known number of jobs are done.  To wait for one thing, use `Coordinator.event`; for parties
    that wait for each other, `Coordinator.barrier`.

    Made by `Coordinator.latch`:

    ```python
    latch = concert.latch("import:2024-06", count=12)
    await latch.count_down()  # in each of the 12 jobs
    await latch.wait(timeout=600.0)  # where all of them are needed
    ```

    Args:
        name: Which latch. The same name in the same namespace is the same latch, on any machine.
        count: How many must be counted, 0 to 1,000,000,000; with 0 it is open from the start.
        ttl: How long the server remembers it after the last count, in seconds; by default 86,400, a day.

    Raises:
        ValueError: `count` is out of range, or `ttl` is not above 0.
    """

    def __init__(self, ref: SessionRef, name: str, count: int, *, ttl: Seconds = LATCH_TTL) -> None:
        self._ref = ref
        self._name = name
        self._keys = ref.keys.of(_Keys, "latch", name)
        self._changes = ref.keys.channel(self._keys.counted, "latch", name)
        self._count = whole(f"count of latch {name!r}", count, least=0, most=_MOST)
        self._ttl_ms = milliseconds(durations.ttl(ttl))

    def __repr__(self) -> str:
        return f"<Latch {self._name!r}>"

    async def count_down(self, n: int = 1) -> int:
        """Count `n` things as done. Once this is sent, cancelling it does not undo the count.

        It waits before sending only while this process has too many calls under way.

        Returns:
            How many are left; 0 once the latch is open.

        Raises:
            ValueError: `n` is not from 1 to 1,000,000,000.
            OutcomeUnknown: The server did not answer; it may have been counted, once.

        Cost: 1 round trip, and 1 message to each process in which someone waits.
        """
        whole("n", n, most=_MOST)
        session = self._ref.session
        await session.channel.has_room(self._keys.counted)
        request = session.new_address()
        command = _COUNT_DOWN(self._keys, request=request, n=n, ttl_ms=self._ttl_ms, changes=self._changes)
        call = Call(command, must_run=True)
        session.channel.submit(call)
        return self._left(await call)

    async def remaining(self) -> int:
        """The count that is left; 0 once the latch is open."""
        return self._left(await self._ref.session.run(_INSPECT(self._keys)))

    async def wait(self, *, timeout: Seconds | None = None) -> None:
        """Wait until the latch is open; return at once if it is.

        Args:
            timeout: Longest wait in seconds; None waits forever, 0 checks once.

        Raises:
            TimeoutError: The latch was not open in time.

        Cost: 1 round trip if it is open. Otherwise 4, or 3 if another task of this process waits too; 0 while waiting.
        """
        seconds = durations.timeout(timeout)
        with anyio.move_on_after(seconds or None):  # None also for 0, which checks once and so needs no limit
            if await self.remaining() == 0 or (seconds != 0 and await self._opens()):
                return
        raise TimeoutError(
            f"latch {self._name!r} was not open within {seconds:g} s; wait longer with timeout=, or look at remaining()"
        )

    # Private.

    async def _opens(self) -> bool:
        async with ChannelSubscription(self._ref.session, self._changes) as subscription:
            left = await self.remaining()
            while left:
                message = await subscription.next()
                counted = message.number if isinstance(message, ChannelMessage) else None
                if counted is None or not self._left(counted):  # anyone may publish on the channel, so ask the server
                    left = await self.remaining()
        return True

    def _left(self, counted: int) -> int:
        return max(0, self._count - counted)
