"""What is new in the chats of a user, as it comes: first what was said before, then each message when it is sent.

A message on a channel is only a hint to look, so it does no harm if it is late, comes twice, or is lost with the
connection, which looks at everything when it is back.  The listener remembers how far it has come in each chat; so it
gets nothing twice, wherever the read position is.

Source: docs/explanation/chat.md
"""

import asyncio
import logging
from functools import partial
from typing import Self

from inconcert._core.retry import retry_until_answered
from inconcert._core.session import Session
from inconcert.chat.asking import together
from inconcert.chat.lists import read_all
from inconcert.chat.places import Places
from inconcert.chat.reading import PAGE, Batch, Reading
from inconcert.errors import InconcertError

__all__ = ["Listener"]

_log = logging.getLogger("inconcert.chat")


class Listener:
    """Hears of all chats of one user, from `async with` on; also of those that they get into meanwhile.

    Args:
        session: The open session.
        places: Where chats lie.
        user: Who listens.
    """

    def __init__(self, session: Session, places: Places, user: str) -> None:
        self._session = session
        self._places = places
        self._user = user
        self._own_channel = places.news_of_user(user)
        self._channels: dict[str, str] = {}  # of chats that are heard -> which chat
        self._at: dict[str, int] = {}  # chat -> the last message that was read, or handed out here
        self._stale: dict[str, None] = {}  # chats to look at, in their order
        self._must_list = True
        self._has_listed = False
        self._news = asyncio.Event()
        self._end: InconcertError | None = None

    async def __aenter__(self) -> Self:
        await self._session.broadcasts.listen(self._own_channel, self)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for channel in (self._own_channel, *self._channels):
            self._session.broadcasts.forget(channel, self)

    async def next(self) -> Batch:
        """Wait for what is new in one of the chats.

        Raises:
            NotConnected: The coordinator was closed.
            Unavailable: The server refused us when the connection came back.
        """
        what = f"listening for user {self._user!r}"
        while True:
            self._news.clear()
            if self._end is not None:
                raise self._end.with_traceback(None)  # many raise this one
            if self._must_list:
                await retry_until_answered(_log, what, self._list)
            while self._stale:
                batch = await retry_until_answered(_log, what, partial(self._catch_up, next(iter(self._stale))))
                if batch is not None:
                    return batch
            await self._news.wait()

    # What the connection tells us.

    def on_message(self, channel: str, text: bytes) -> None:
        """Something was said on a channel; which one says it all."""
        del text
        if channel == self._own_channel:
            self._must_list = True
        else:
            self._stale[self._channels[channel]] = None
        self._news.set()

    def missed(self) -> None:
        """The connection was away."""
        self._must_list = True
        self._news.set()

    def closed(self, error: InconcertError) -> None:
        """Nothing will be said any more."""
        self._end = error
        self._news.set()

    # Below.

    async def _list(self) -> None:
        """Hear the chats on the user's list, and no others, and find those in which there may be something new."""
        self._must_list = False  # for what is said from now on comes in addition
        listed, news = await read_all(self._session, self._places, self._user)
        # Those that come later begin where the user got in, which the chat knows: another may have read on since.
        new = {chat_id: 0 if self._has_listed else read for chat_id, read in listed if chat_id not in self._at}
        if new:
            await self._begin(list(new))
            self._at.update(new)
            listed, news = await read_all(self._session, self._places, self._user)  # until now they were not heard
        for chat_id in self._at.keys() - {chat.chat_id for chat in listed}:
            self._forget(chat_id)
        self._stale.update((chat.chat_id, None) for chat in news)
        # What this listener has not got may have been read elsewhere, or a server may have lost what it has got.
        self._stale.update((chat.chat_id, None) for chat in listed if chat.read != self._at.get(chat.chat_id))
        self._has_listed = True

    async def _begin(self, chats: list[str]) -> None:
        channels = {self._places.news_of_chat(chat_id): chat_id for chat_id in chats}
        self._channels.update(channels)
        begun = [self._session.broadcasts.listen(channel, self) for channel in channels]
        for outcome in await asyncio.gather(*begun, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def _forget(self, chat_id: str) -> None:
        del self._at[chat_id]
        self._stale.pop(chat_id, None)
        channel = self._places.news_of_chat(chat_id)
        del self._channels[channel]
        self._session.broadcasts.forget(channel, self)

    async def _catch_up(self, chat_id: str) -> Batch | None:
        """What is new in a chat, a page of it at most; None if nothing is."""
        self._stale.pop(chat_id, None)  # for what is said from now on comes in addition
        if chat_id not in self._at:  # it left the list while we began to hear it
            return None
        reading = Reading(chat_id, self._places.of_chat(chat_id), PAGE, self._at[chat_id])
        [reply] = await together(self._session, [reading.ask(self._user)])
        reading.take(reply)
        self._at[chat_id] = reading.at
        if reading.at < reading.end:
            self._stale[chat_id] = None
        return reading.batch() if reading.is_news else None
