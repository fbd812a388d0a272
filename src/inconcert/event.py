"""An event: a flag that processes wait for, on one server."""

import time
from typing import Literal, NamedTuple

import anyio

from inconcert._core.channel_subscription import ChannelMessage, ChannelSubscription
from inconcert._core.session import SessionRef
from inconcert._redis.protocol.scripts import load
from inconcert._rules import durations
from inconcert._rules.defaults import EVENT_TTL
from inconcert._rules.durations import Seconds, milliseconds

_LATEST = 1.0  # seconds that the server's clock may gain on ours during a wait; a later time is not the server's


class _Keys(NamedTuple):
    flag: str  # string: '1' while set; ttl_ms
    recent: str
    older: str


class _State(NamedTuple):
    is_set: int
    at_us: int  # the server's time


_SET = load("events/set").bind(_Keys)
_CLEAR = load("events/clear").bind(_Keys)
_INSPECT = load("events/inspect").bind(_Keys)


class Event:
    """A flag that releases every waiter while it is set, including those that start waiting later.

    It works as `asyncio.Event` does.  Waiting sends nothing: one message to each process wakes its waiters.  The server
    keeps the flag for `ttl`, so it outlives the process that set it.  `wait` raises `TimeoutError` when its time is up.

    Use it for a state that others depend on, such as "the import is ready".  To notify only those waiting at that
    moment, use a signal; to wait until several parts are done, `Coordinator.latch`.

    Made by `Coordinator.event`:

    ```python
    await concert.event("catalogue-ready").wait(timeout=30.0)
    ```

    Args:
        name: Which event. The same name in the same namespace is the same event, on any machine.
        ttl: How long it stays set unless it is set again, in seconds; by default 86,400, a day.

    Raises:
        ValueError: `ttl` is not above 0.
    """

    def __init__(self, ref: SessionRef, name: str, *, ttl: Seconds = EVENT_TTL) -> None:
        self._ref = ref
        self._name = name
        self._keys = ref.keys.of(_Keys, "event", name)
        self._changes = ref.keys.channel(self._keys.flag, "event", name)
        self._ttl_ms = milliseconds(durations.ttl(ttl))

    def __repr__(self) -> str:
        return f"<Event {self._name!r}>"

    async def set(self) -> None:
        """Set the flag for `ttl`, or until it is cleared: it releases all current and later waiters.

        Cost: 1 round trip, and 1 message to each process in which someone waits.
        """
        session = self._ref.session
        command = _SET(self._keys, request=session.new_address(), ttl_ms=self._ttl_ms, changes=self._changes)
        await session.run(command)

    async def clear(self) -> None:
        """Clear the flag: calls to `wait` from now on block."""
        session = self._ref.session
        await session.run(_CLEAR(self._keys, request=session.new_address()))

    async def is_set(self) -> bool:
        """True if the flag is set now."""
        state = await self._inspect()
        return bool(state.is_set)

    async def wait(self, *, timeout: Seconds | None = None) -> Literal[True]:
        """Wait until the flag is set; return at once if it is.

        Args:
            timeout: Longest wait in seconds; None waits forever, 0 checks once.

        Returns:
            True, as `asyncio.Event.wait` does.

        Raises:
            TimeoutError: The flag was not set in time.

        Cost: 1 round trip if it is set. Otherwise 3, or 2 if another task of this process waits too; 0 while waiting.
        """
        seconds = durations.timeout(timeout)
        with anyio.move_on_after(seconds or None):  # None also for 0, which checks once and so needs no limit
            if await self.is_set() or (seconds != 0 and await self._becomes_set()):
                return True
        raise TimeoutError(f"event {self._name!r} was not set within {seconds:g} s; wait longer with timeout=")

    # Private.

    async def _becomes_set(self) -> Literal[True]:
        async with ChannelSubscription(self._ref.session, self._changes) as subscription:
            asked_at = time.monotonic()
            state = await self._inspect()
            while not state.is_set:
                message = await subscription.next()
                set_at = message.number if isinstance(message, ChannelMessage) else None
                latest = state.at_us + (time.monotonic() - asked_at + _LATEST) * 1_000_000
                if set_at is not None and state.at_us < set_at < latest:
                    return True
                # A message was missed, or this one is older than the last inspection, or did not come from the server.
                asked_at = time.monotonic()
                state = await self._inspect()
        return True

    async def _inspect(self) -> _State:
        return _State._make(await self._ref.session.run(_INSPECT(self._keys)))
