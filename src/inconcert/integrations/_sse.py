"""The chats of a user as server-sent events, which a browser continues by itself where they broke off.

The id of an event says how far the stream has come in each chat: `CHAT:MESSAGE`, separated by spaces.  A client that
comes back sends the last id it got as `Last-Event-ID`.  The message that it names counts as read, and the stream goes
on behind it. Nothing else moves a read position: what was written to a connection may not have arrived.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress

import msgspec

from inconcert.chat.chats import Chats
from inconcert.errors import ChatNotFound, InconcertError, NotAMember
from inconcert.integrations._chat import batch_fields, chat_batches

_log = logging.getLogger("inconcert.integrations")

HEADERS = (
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-store"),
    ("x-accel-buffering", "no"),  # nginx would keep events back
)
KEEP_ALIVE = 15.0  # seconds; proxies give up a connection that is silent for 30 or 60
COME_BACK = b"retry: 1000\n\n"  # milliseconds
SILENCE = b":\n\n"
_POSITION = re.compile(r"(?P<chat>[^\s:]{1,64}):(?P<message>[1-9]\d{0,14})")
_MOST_POSITIONS = 100  # an id must fit into a header; of chats that it does not name, some messages come again


def encode_event(data: object, *, id_: str | None = None, event: str | None = None) -> bytes:
    """One event, of this kind, whose data is this value as JSON."""
    lines = [b"data: " + msgspec.json.encode(data)]  # which has no newlines
    if event is not None:
        lines.insert(0, b"event: " + event.encode())
    if id_ is not None:
        lines.insert(0, b"id: " + id_.encode())
    return b"\n".join(lines) + b"\n\n"


async def chat_events(
    chat: Chats, user: str, *, last_event_id: str = "", closing: asyncio.Event | None = None
) -> AsyncGenerator[bytes]:
    """News for a user, as `Chats.listen` gives them, one event for each batch, until the service closes."""
    yield COME_BACK
    positions = _positions(last_event_id)
    try:
        for chat_id, message_id in positions.items():
            with suppress(NotAMember, ChatNotFound):  # the user has left it, or never was in it
                await chat.ack(user, chat_id, message_id)
    except InconcertError as error:  # the status was sent; a client comes back to a stream that ends
        _log.info("the stream of the chats of user %r ends, and its client comes back: %s", user, error)
        return
    positions.clear()
    async with aclosing(chat_batches(chat, user, closing=closing, silence=KEEP_ALIVE)) as batches:
        async for batch in batches:
            if batch is None:
                yield SILENCE
                continue
            positions.pop(batch.chat_id, None)  # to the end: the oldest is dropped first
            positions[batch.chat_id] = batch.last_id
            if len(positions) > _MOST_POSITIONS:
                del positions[next(iter(positions))]
            yield encode_event(batch_fields(batch), id_=_last_event_id(positions.items()))


def _positions(last_event_id: str) -> dict[str, int]:
    """Chat -> message; nothing of any other form, because anybody may send it."""
    parts = last_event_id.split(" ", _MOST_POSITIONS)[:_MOST_POSITIONS]
    found = [_POSITION.fullmatch(part) for part in parts]
    return {position["chat"]: int(position["message"]) for position in found if position}


def _last_event_id(positions: Iterable[tuple[str, int]]) -> str:
    return " ".join(f"{chat_id}:{message_id}" for chat_id, message_id in positions)
