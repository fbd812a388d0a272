"""What is new in the chats of a user, for one connection to its client."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from dataclasses import asdict

from inconcert._core.cancellation import cancel_all
from inconcert._core.shield import run_shielded
from inconcert.chat.chats import Chats
from inconcert.chat.messages import Batch
from inconcert.errors import InconcertError

__all__ = ["batch_fields", "chat_batches"]

_log = logging.getLogger("inconcert.integrations")


async def chat_batches(
    chat: Chats, user: str, *, closing: asyncio.Event | None = None, silence: float | None = None
) -> AsyncGenerator[Batch | None]:
    """The batches of `Chats.listen`, without marking anything as read, until the service or the coordinator closes.

    Args:
        chat: The chats.
        user: Whose chats.
        closing: Ends it when it is set; None for one that only the coordinator ends.
        silence: After how many seconds without a batch None is given; None means never.
    """
    batches = chat.listen(user, ack=False)
    closed = asyncio.create_task((closing or asyncio.Event()).wait())
    coming: asyncio.Task[Batch] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(batches))
            await asyncio.wait([coming, closed], timeout=silence, return_when=asyncio.FIRST_COMPLETED)
            if closed.done():
                return
            if not coming.done():
                yield None
                continue
            batch, coming = coming.result(), None
            yield batch
    except InconcertError as error:  # a connection that ends makes its client come back
        _log.info("the stream of the chats of user %r ends, and its client comes back: %s", user, error)
    finally:
        await run_shielded(_end(batches, [closed] if coming is None else [closed, coming]))


def batch_fields(batch: Batch) -> dict[str, object]:
    """What a client gets of a batch: `chat_id`, `messages`, `missed` and `last_id`."""
    fields = asdict(batch)
    del fields["unfit"]  # these chats have no type
    return fields


async def _end(batches: AsyncGenerator[Batch], tasks: "list[asyncio.Task[Batch] | asyncio.Task[bool]]") -> None:
    await cancel_all(tasks)
    await batches.aclose()
