"""News in the chats of a user, as they come: first the unread messages, then each message when it is sent.

A message on a channel is only a hint to look, so it may be late, come twice, or be lost with the connection: once that
is back, the listener looks at every chat.  It remembers how far it has come in each chat, so it gets nothing twice,
wherever the read position is.

Source: docs/explanation/chat.md
"""

import asyncio
import logging
from functools import partial
from typing import Any, Self

from inconcert._core.own_loop import check_loop
from inconcert._core.retry import retry_until_answered
from inconcert._core.session import Session
from inconcert._rules.codec import Codec
from inconcert.chat.keys import ChatKeyspace
from inconcert.chat.messages import Batch
from inconcert.chat.reader import PAGE, Cursor, list_chats
from inconcert.errors import InconcertError

_log = logging.getLogger("inconcert.chat")


class Listener:
    """Follows all chats of one user from `async with` on, including those that the user enters meanwhile."""

    def __init__(self, session: Session, keys: ChatKeyspace, codec: Codec[Any], user: str) -> None:
        self._session = session
        self._keys = keys
        self._codec = codec
        self._user = user
        self._own_channels = keys.user_channels(user)
        self._channels: dict[str, str] = {}  # subscribed channel -> which chat
        self._at: dict[str, int] = {}  # chat -> the last message that was read, or handed out here
        self._stale: dict[str, None] = {}  # chats to look at, in the order of the hints
        self._must_list = True
        self._has_listed = False
        self._news = asyncio.Event()
        self._end: InconcertError | None = None

    async def __aenter__(self) -> Self:
        for channel in self._own_channels:
            await self._session.broadcasts.listen(channel, self)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for channel in (*self._own_channels, *self._channels):
            self._session.broadcasts.forget(channel, self)

    async def next(self) -> Batch[Any]:
        """Wait for news in one of the chats.

        Raises:
            Unavailable: The server refused us when the connection came back.
        """
        what = f"listening for user {self._user!r}"
        check_loop(self._session.loop, what)
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

    # Called by the connection.

    def on_message(self, channel: str, text: bytes) -> None:
        """A chat has a new message, or the user's list has changed: the channel says which."""
        del text
        if channel in self._own_channels:
            self._must_list = True
        else:
            self._stale[self._channels[channel]] = None
        self._news.set()

    def missed(self) -> None:
        """The connection was away."""
        self._must_list = True
        self._news.set()

    def closed(self, error: InconcertError) -> None:
        """The coordinator closes, or the server refuses us: nothing more will come."""
        self._end = error
        self._news.set()

    # Private.

    async def _list(self) -> None:
        """Follow the chats on the user's list, and no others, and find those in which there may be something new."""
        self._must_list = False  # before it asks: a hint from now on sets it again
        listed, unread = await list_chats(self._session, self._keys, self._user)
        # Chats that come later begin where the user joined, which the chat knows: another may have read on since.
        new = {chat_id: 0 if self._has_listed else read for chat_id, read in listed if chat_id not in self._at}
        if new:
            await self._begin(list(new))
            self._at.update(new)
            listed, unread = await list_chats(self._session, self._keys, self._user)  # hints began only now
        for chat_id in self._at.keys() - {chat.chat_id for chat in listed}:
            self._forget(chat_id)
        self._stale.update((chat.chat_id, None) for chat in unread)
        # Another may have read what this listener did not get, or the server may have lost what it did get.
        self._stale.update((chat.chat_id, None) for chat in listed if chat.read != self._at.get(chat.chat_id))
        self._has_listed = True

    async def _begin(self, chats: list[str]) -> None:
        channels = {self._keys.chat_channel(chat_id): chat_id for chat_id in chats}
        self._channels.update(channels)
        begun = [self._session.broadcasts.listen(channel, self) for channel in channels]
        for outcome in await asyncio.gather(*begun, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def _forget(self, chat_id: str) -> None:
        del self._at[chat_id]
        self._stale.pop(chat_id, None)
        channel = self._keys.chat_channel(chat_id)
        del self._channels[channel]
        self._session.broadcasts.forget(channel, self)

    async def _catch_up(self, chat_id: str) -> Batch[Any] | None:
        """A page of the new messages in a chat; None if there are none."""
        self._stale.pop(chat_id, None)  # before it asks: a hint from now on adds it again
        if chat_id not in self._at:  # it left the list while the subscription began
            return None
        cursor = Cursor(chat_id, self._keys.chat(chat_id), self._codec, PAGE, self._at[chat_id])
        [reply] = await self._session.gather([cursor.fetch(self._user)])
        cursor.advance(reply)
        self._at[chat_id] = cursor.at
        if cursor.at < cursor.end:
            self._stale[chat_id] = None
        return cursor.batch() if cursor.has_news else None
