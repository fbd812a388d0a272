"""The messages of a channel, in order, for one listener that may be slow or disconnected, and then learns of it."""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple, Self

from inconcert._core.own_loop import check_loop
from inconcert._core.session import Session
from inconcert.errors import InconcertError

_DIGITS = 17  # of a number that a script publishes; a longer one is foreign


@dataclass(frozen=True, slots=True)
class Gap:
    """Something was missed at this place of a stream: read the source of truth again, if there is one.

    Attributes:
        missed: How many messages or items were dropped because there was no room for them; None if the connection was
            lost, so that the number is unknown.
    """

    missed: int | None


class ChannelMessage(NamedTuple):
    """One message."""

    channel: str
    text: bytes

    @property
    def number(self) -> int | None:
        """Its text as a whole number; None if it is not one, because anyone may publish on a channel."""
        return int(self.text) if self.text.isdigit() and len(self.text) <= _DIGITS else None


class ChannelSubscription:
    """The messages on one channel, or on all that match a pattern, from `async with` on."""

    def __init__(self, session: Session, channel: str, *, is_pattern: bool = False, buffer: int = 1000) -> None:
        self.loop = session.loop
        self._pubsub = session.broadcasts
        self._channel = channel
        self._is_pattern = is_pattern
        self._most = buffer  # messages that may wait for `next`; one more drops the oldest
        self._dropped: Gap | None = None  # what was missed before the first of the items
        self._items: deque[ChannelMessage | Gap] = deque()
        self._news = asyncio.Event()
        self._end: InconcertError | None = None

    def __repr__(self) -> str:
        return f"<subscription to {self._channel!r}>"

    async def __aenter__(self) -> Self:
        """Subscribe: when this returns, everything published from now on is received.

        Raises:
            Unavailable: The server did not confirm in time, or refused.
        """
        await self._pubsub.listen(self._channel, self, is_pattern=self._is_pattern)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._pubsub.forget(self._channel, self, is_pattern=self._is_pattern)

    async def next(self) -> ChannelMessage | Gap:
        """Wait for the next message. Cancelling it loses nothing.

        Raises:
            NotConnected: The coordinator was closed; what was received before is returned first.
            Unavailable: The server refused us when the connection came back.
        """
        check_loop(self.loop, self)
        while self._dropped is None and not self._items:
            if self._end is not None:
                raise self._end.with_traceback(None)  # many waiters raise the same error
            self._news.clear()
            await self._news.wait()
        if self._dropped is not None:
            gap, self._dropped = self._dropped, None
            return gap
        return self._items.popleft()

    # Called by the connection.

    def on_message(self, channel: str, text: bytes) -> None:
        self._append(ChannelMessage(channel, text))

    def missed(self) -> None:
        last = self._items[-1] if self._items else self._dropped
        if last != Gap(None):
            self._append(Gap(None))

    def closed(self, error: InconcertError) -> None:
        self._end = error
        self._news.set()

    def _append(self, item: ChannelMessage | Gap) -> None:
        if self._end is not None:
            return
        if len(self._items) == self._most:
            self._drop(self._items.popleft())
        self._items.append(item)
        self._news.set()

    def _drop(self, oldest: ChannelMessage | Gap) -> None:
        before = 0 if self._dropped is None else self._dropped.missed
        self._dropped = Gap(None if before is None or isinstance(oldest, Gap) else before + 1)
