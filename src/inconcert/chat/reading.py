"""What a user gets of a chat, and how far one fetch, or one look at its history, has come."""

import logging
from dataclasses import dataclass, field

from inconcert._redis.call import Call
from inconcert._redis.replies import Reply
from inconcert._redis.scripts import load
from inconcert._rules.payloads import JSON, decode
from inconcert.chat.places import ChatKeys

__all__ = ["PAGE", "Batch", "Message", "Reading", "read_messages"]

_log = logging.getLogger("inconcert.chat")

_FETCH = load("chat/fetch").bind(ChatKeys)

PAGE = 1_000  # messages in one reply: a millisecond of the server's time


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat.

    Attributes:
        id: 1 for the first message of the chat, and one more for each.
        time: When the server took it, in seconds since 1970; never before the message in front of it.
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
        last_id: What to acknowledge when this batch has been handled.
    """

    chat_id: str
    messages: list[Message]
    missed: int
    last_id: int


@dataclass(slots=True)
class Reading:
    """How far one fetch has come in one chat.

    Attributes:
        chat_id: Which chat.
        keys: Where it is kept.
        most: How many messages to fetch.
        at: The last message that was fetched, or dropped before; -1 for the read position, which the server knows.
        end: Where to stop; what is sent from then on is for the next fetch.
        missed: How many messages were dropped.
        messages: The messages.
    """

    chat_id: str
    keys: ChatKeys
    most: int
    at: int = -1
    end: int = -1
    missed: int = 0
    messages: list[Message] = field(default_factory=list[Message])

    @property
    def is_news(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.messages or self.missed)

    @property
    def has_more(self) -> bool:
        """Whether to ask again."""
        return self.at < self.end and len(self.messages) < self.most

    def ask(self, user: str) -> Call:
        """The call for the next messages."""
        count = min(PAGE, self.most - len(self.messages))
        return Call(_FETCH(self.keys, user=user, after=self.at, count=count))

    def take(self, reply: Reply) -> None:
        """Take what the call was answered."""
        if reply[0] != 1:  # the user has left meanwhile
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


def read_messages(chat_id: str, first: int, texts: list[bytes]) -> list[Message]:
    """The messages of these texts, the first of which has this id, but for those that cannot be read.

    Nobody has sent these by `Chats.send`, and no member can keep another from reading the rest.
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
