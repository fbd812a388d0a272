"""Messages and batches as users get them, the cursor that fetches them, and which chats of a user have new ones."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from inconcert._core.session import Session
from inconcert._redis.call import Call
from inconcert._redis.replies import Reply
from inconcert._redis.scripts import load
from inconcert._rules.payloads import JSON, decode
from inconcert.chat.keys import ChatKeys, ChatKeyspace, ListKeys

__all__ = ["DONE", "PAGE", "Batch", "Cursor", "Listed", "Message", "list_chats", "list_unread", "read_messages"]

_log = logging.getLogger("inconcert.chat")

_FETCH = load("chat/fetch").bind(ChatKeys)
_LIST = load("chat/list").bind(ListKeys)
_NEWS = load("chat/news").bind(ListKeys)

DONE = 1  # the first element of a script's reply, unless the user is not a member or the chat does not exist

PAGE = 1_000  # messages in one reply: a millisecond of the server's time


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat.

    Attributes:
        id: 1 for the first message of the chat, then 2, 3, and so on.
        time: When the server received it, in seconds since 1970; never earlier than the previous message's.
        sender: The user who sent it.
        body: The JSON value that was sent.
    """

    id: int
    time: float
    sender: str
    body: JSON


@dataclass(frozen=True, slots=True)
class Batch:
    """What is new for a user in one chat.

    Attributes:
        chat_id: Which chat.
        messages: The messages, oldest first; empty only if all that was new has been dropped.
        missed: How many messages were dropped before this user read them, or cannot be read.
        last_id: The id to pass to `ack` when this batch has been handled.
    """

    chat_id: str
    messages: list[Message]
    missed: int
    last_id: int


@dataclass(slots=True)
class Cursor:
    """How far one fetch has come in one chat.

    Attributes:
        chat_id: Which chat.
        keys: The chat's keys.
        most: How many messages to fetch.
        at: The id of the last message fetched or dropped; -1 for the read position, which the server knows.
        end: Where to stop: the latest message when the fetch began; -1 before the first reply.
        missed: How many messages were dropped.
        messages: The messages fetched so far.
    """

    chat_id: str
    keys: ChatKeys
    most: int
    at: int = -1
    end: int = -1
    missed: int = 0
    messages: list[Message] = field(default_factory=list[Message])

    @property
    def has_news(self) -> bool:
        """Whether anything was fetched, or missed."""
        return bool(self.messages or self.missed)

    @property
    def has_more(self) -> bool:
        """Whether to fetch again."""
        return self.at < self.end and len(self.messages) < self.most

    def fetch(self, user: str) -> Call:
        """The call for the next messages."""
        count = min(PAGE, self.most - len(self.messages))
        return Call(_FETCH(self.keys, user=user, after=self.at, count=count))

    def advance(self, reply: Reply) -> None:
        """Add the messages of a reply to `fetch`."""
        if reply[0] != DONE:  # the user has left meanwhile
            self.end = self.at
            return
        _, missed, first, last, *texts = reply
        if self.end < 0:
            self.end = last
        self.at = first + len(texts) - 1
        readable = read_messages(self.chat_id, first, texts)
        self.missed += missed + len(texts) - len(readable)
        self.messages += readable

    def batch(self) -> Batch:
        """What the user gets."""
        return Batch(self.chat_id, self.messages, self.missed, self.at)


class Listed(NamedTuple):
    """A chat on a user's list."""

    chat_id: str
    read: int  # the id of the last message that the user has read


async def list_chats(session: Session, keys: ChatKeyspace, user: str) -> tuple[list[Listed], list[Listed]]:
    """The chats of a user, and those of them with unread messages: for each chat both as of one moment.

    Cost: 1 round trip with 4 scripts; O(N) for N chats.
    """
    replies = await session.gather([Call(_LIST(each)) for each in keys.user_lists(user)])
    listed, unread = zip(*replies, strict=True)
    return _listed(listed), _listed(unread)


async def list_unread(session: Session, keys: ChatKeyspace, user: str) -> list[Listed]:
    """The chats of a user with unread messages.

    Cost: 1 round trip with 4 scripts; O(N) for N chats.
    """
    return _listed(await session.gather([Call(_NEWS(each)) for each in keys.user_lists(user)]))


def _listed(groups: Iterable[list[bytes]]) -> list[Listed]:
    found = (entry.decode().split(" ") for entry in chain.from_iterable(groups))
    return [Listed(chat_id, int(read)) for chat_id, read in found]


def read_messages(chat_id: str, first: int, texts: list[bytes]) -> list[Message]:
    """The messages of these texts, the first of which has the id `first`, without those that cannot be read.

    `Chats.send` never sent such a message.  It is skipped, so that nobody can keep members from reading the rest.
    """
    found: list[Message] = []
    for number, text in enumerate(texts, first):
        try:
            found.append(_message(number, text))
        except ValueError as error:
            _log.error("message %d of chat %r is passed over, because it cannot be read: %s", number, chat_id, error)
    return found


def _message(number: int, text: bytes) -> Message:
    at_ms, body, sender = text.split(b"\n", 2)  # JSON has no raw newline; a sender may have one, and so comes last
    return Message(number, int(at_ms) / 1000, sender.decode(), decode(body))
