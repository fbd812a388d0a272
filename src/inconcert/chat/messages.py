"""Messages and batches as users get them."""

import logging
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple

from inconcert._rules.codec import Codec, T
from inconcert._rules.payloads import JSON, decode
from inconcert.errors import InvalidPayload

_log = logging.getLogger("inconcert.chat")


@dataclass(frozen=True, slots=True)
class Message(Generic[T]):
    """One message of a chat.

    Attributes:
        id: 1 for the first message of the chat, then 2, 3, and so on.
        time: When the server received it, in seconds since 1970; never earlier than the previous message's.
        sender: The user who sent it.
        body: What was sent.
    """

    id: int
    time: float
    sender: str
    body: T


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """The new messages for a user in one chat.

    Attributes:
        chat_id: Which chat.
        messages: The messages, oldest first; empty only if all that was new has been dropped, or does not fit the
            type.
        missed: How many messages were dropped before this user read them, or cannot be read.
        last_id: The id to pass to `ack` when this batch has been handled.
        unfit: The messages that do not fit the type of `Chats.of`, with their JSON values, oldest first.
    """

    chat_id: str
    messages: list[Message[T]]
    missed: int
    last_id: int
    unfit: list[Message[JSON]] = field(default_factory=list[Message[JSON]])


class ReadMessages(NamedTuple):
    """The messages of one reply that can be read: those that fit the type, and the others with their JSON values."""

    fit: list[Message[Any]]
    unfit: list[Message[JSON]]


def read_messages(chat_id: str, codec: Codec[Any], first: int, texts: list[bytes]) -> ReadMessages:
    """The messages of these texts, the first of which has the id `first`, without those that cannot be read.

    `Chats.send` never sent such a message.  It is skipped, so that nobody can keep members from reading the rest.
    """
    fit: list[Message[Any]] = []
    unfit: list[Message[JSON]] = []
    for number, text in enumerate(texts, first):
        try:
            at_ms, body, name = text.split(
                b"\n", 2
            )  # JSON has no raw newline; a sender may have one, and so comes last
            time, sender = int(at_ms) / 1000, name.decode()
            try:
                fit.append(Message(number, time, sender, codec.decode(body)))
            except InvalidPayload as error:
                unfit.append(Message(number, time, sender, decode(body)))
                _log.error("message %d of chat %r is not of the type that is read: %s", number, chat_id, error)
        except ValueError as error:
            _log.error("message %d of chat %r is passed over, because it cannot be read: %s", number, chat_id, error)
    return ReadMessages(fit, unfit)
