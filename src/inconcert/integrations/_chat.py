"""News in the chats of a user, for one connection to its client."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict

from inconcert.chat.chats import Chats
from inconcert.chat.messages import Batch
from inconcert.errors import InconcertError
from inconcert.integrations._until_closed import until_closed

_log = logging.getLogger("inconcert.integrations")


async def chat_batches(
    chat: Chats, user: str, *, closing: asyncio.Event | None = None, silence: float | None = None
) -> AsyncGenerator[Batch | None]:
    """The batches of `Chats.listen`, none marked as read, until something closes; None for a silence."""
    batches = until_closed(chat.listen(user, ack=False), closing=closing, silence=silence)
    try:
        async with aclosing(batches):
            async for batch in batches:
                yield batch
    except InconcertError as error:  # a connection that ends makes its client come back
        _log.info("the stream of the chats of user %r ends, and its client comes back: %s", user, error)


def batch_fields(batch: Batch) -> dict[str, object]:
    """The part of a batch that a client gets: `chat_id`, `messages`, `missed` and `last_id`."""
    fields = asdict(batch)
    del fields["unfit"]  # these chats have no type
    return fields
