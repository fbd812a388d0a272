"""A subscriber: receives every broadcast from the moment of subscribing, or a `Gap` where some were missed."""

import logging
import time
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

import anyio

from inconcert._core.caller import note
from inconcert._core.channel_subscription import ChannelSubscription, Gap
from inconcert._core.own_loop import check_loop
from inconcert._core.session import Listening, SessionRef
from inconcert._rules import durations
from inconcert._rules.codec import Codec
from inconcert._rules.durations import Seconds
from inconcert._rules.limits import whole
from inconcert.errors import InvalidPayload
from inconcert.signals.broadcast import read

_log = logging.getLogger("inconcert.signals")

T_co = TypeVar("T_co", covariant=True)


class Subscription(Generic[T_co]):
    """An `async for` over all broadcasts from `async with` on. It gets no notifications.

    A `Gap` stands in the place of missed broadcasts: the subscriber fell behind by more than its buffer, the connection
    was lost for a time, or a payload is not of the signal's type, as an error in the log says.  A slow subscriber does
    not slow others down.

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
        name: str,
        channel: str,
        codec: Codec[Any],
        item: Callable[[str, Any], T_co],
        *,
        is_pattern: bool,
        buffer: int,
    ) -> None:
        self._name = name
        self._title = f"a signal like {name!r}" if is_pattern else f"signal {name!r}"
        self._ref = ref
        self._channel = channel
        self._codec = codec
        self._item = item
        self._is_pattern = is_pattern
        self._buffer = whole("buffer of a subscription", buffer)
        self._subscription: ChannelSubscription | None = None
        self._listeners: dict[object, Listening] = {}  # of the session in which it is entered

    def __repr__(self) -> str:
        return f"<Subscription to {self._title}>"

    async def __aenter__(self) -> Self:
        """Subscribe: when this returns, every later broadcast is received.

        Raises:
            Unavailable: The server did not confirm in time, or refused.

        Cost: 1 round trip; 0 if this process already listens.
        """
        if self._subscription is not None:
            raise RuntimeError(f"{self!r} is entered already; make another with subscribe()")
        session, listening = self._ref.session, Listening(self._name, self._is_pattern, time.monotonic(), note())
        subscription = ChannelSubscription(session, self._channel, is_pattern=self._is_pattern, buffer=self._buffer)
        self._subscription = subscription  # before it waits: nobody else may enter meanwhile
        try:
            await subscription.__aenter__()
        except BaseException:
            self._subscription = None
            raise
        session.listeners[subscription] = listening
        self._listeners = session.listeners
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            self._listeners.pop(subscription, None)
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
        check_loop(self._subscription.loop, self)
        with anyio.move_on_after(seconds):
            while True:
                message = await self._subscription.next()
                if isinstance(message, Gap):
                    return message
                try:
                    broadcast = read(message.text, self._codec.decode)
                except InvalidPayload as error:
                    _log.error("a broadcast on %r is returned as a gap: %s", message.channel, error)
                    return Gap(1)
                if broadcast is not None:
                    return self._item(message.channel, broadcast.value)
        raise TimeoutError(f"{self._title} was not broadcast within {seconds:g} s; wait longer with timeout=")
