"""A subscriber: receives every broadcast from the moment of subscribing, or a `Gap` where some were missed."""

from collections.abc import Callable
from typing import Generic, Self, TypeVar

import anyio

from inconcert._core.channel_subscription import ChannelSubscription, Gap
from inconcert._core.session import SessionRef
from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert._rules.limits import whole
from inconcert._rules.payloads import JSON
from inconcert.signals.broadcast import read

__all__ = ["Subscription"]

T_co = TypeVar("T_co", covariant=True)


class Subscription(Generic[T_co]):
    """An `async for` over all broadcasts from `async with` on. It gets no notifications.

    A `Gap` stands in the place of missed broadcasts: the subscriber fell behind by more than its buffer, or the
    connection was lost for a time.  A slow subscriber does not slow others down.

    Made by `Signal.subscribe` and `Signals.subscribe`:

    ```python
    async with concert.signal("deploy").subscribe() as subscription:
        await load_everything()
        async for item in subscription:
            if isinstance(item, Gap):
                await load_everything()
            else:
                await load(item)
    ```
    """

    def __init__(
        self,
        ref: SessionRef,
        title: str,
        channel: str,
        item: Callable[[str, JSON], T_co],
        *,
        is_pattern: bool,
        buffer: int,
    ) -> None:
        self._title = title
        self._ref = ref
        self._channel = channel
        self._item = item
        self._is_pattern = is_pattern
        self._buffer = whole("buffer of a subscription", buffer)
        self._subscription: ChannelSubscription | None = None

    def __repr__(self) -> str:
        return f"<Subscription to {self._title}>"

    async def __aenter__(self) -> Self:
        """Subscribe: when this returns, every later broadcast is received.

        Raises:
            NotConnected: The coordinator is not open.
            Unavailable: The server did not confirm in time, or refused.

        Cost: 1 round trip; 0 if this process already listens.
        """
        if self._subscription is not None:
            raise RuntimeError(f"{self!r} is entered already; make another with subscribe()")
        subscription = ChannelSubscription(
            self._ref.session, self._channel, is_pattern=self._is_pattern, buffer=self._buffer
        )
        self._subscription = subscription  # before it waits: nobody else may enter meanwhile
        try:
            await subscription.__aenter__()
        except BaseException:
            self._subscription = None
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.__aexit__(*exc_info)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T_co | Gap:
        return await self.next()

    async def next(self, *, timeout: Seconds | None = None) -> T_co | Gap:
        """Wait for the next broadcast. Cancelling it loses nothing.

        Args:
            timeout: Longest wait in seconds; None waits forever, 0 returns only what has come already.

        Raises:
            TimeoutError: Nothing came in time.
            NotConnected: The coordinator was closed; what had come before is returned first.
            Unavailable: The server refused us when the connection came back.

        Cost: 0 round trips.
        """
        seconds = durations.timeout(timeout)
        if self._subscription is None:
            raise RuntimeError(f"{self!r} is not entered; use it inside `async with`")
        with anyio.move_on_after(seconds):
            while True:
                message = await self._subscription.next()
                if isinstance(message, Gap):
                    return message
                broadcast = read(message.text)
                if broadcast is not None:
                    return self._item(message.channel, broadcast.value)
        raise TimeoutError(f"{self._title} was not broadcast within {seconds:g} s; wait longer with timeout=")
