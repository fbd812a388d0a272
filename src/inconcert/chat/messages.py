"""Messages and batches as users get them."""

import logging
from dataclasses import dataclass

from inconcert._rules.payloads import JSON, decode

__all__ = ["Batch", "Message", "read_messages"]

_log = logging.getLogger("inconcert.chat")


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
