"""Group chats whose members read at their own pace, on any machine.

The server keeps everything: the messages of a chat under ids without gaps, its members with how far each has read, and
for each user the list of their chats.  A message stays until all members have read it, or a cap drops it.

    members   zset  user -> id of the last message read
    state     hash  the latest id, the caps, and what is known of single members
    messages  list  time, body and sender of each, a line each; the latest has the latest id

Source: docs/explanation/chat.md
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial

from inconcert._core.retry import retry_until_answered
from inconcert._rules.names import check_name
from inconcert.chat.listener import Listener
from inconcert.chat.membership import Membership
from inconcert.chat.messages import Messages
from inconcert.chat.reading import Batch
from inconcert.errors import ChatNotFound, NotAMember

__all__ = ["Chats"]

_log = logging.getLogger("inconcert.chat")


class Chats(Membership, Messages):
    """The chats of a namespace: users create, join and leave them, send, and read what is new in all of theirs.

    A user is a name of your choice; who may speak under it is for your application to decide.  Use a mailbox for what
    only one reader is to get, and a signal for what need not be kept.

    Made by `Coordinator.chat`:

    ```python
    chat_id = await concert.chat.create("ann", ["bob", "cy"], "hello")
    await concert.chat.send(chat_id, "ann", {"text": "lunch?"})
    for batch in await concert.chat.fetch("bob"):
        print(batch.chat_id, [message.body for message in batch.messages])
    async for batch in concert.chat.listen("bob"):
        print(batch.chat_id, [message.body for message in batch.messages])
    ```

    Args:
        ref: The way to the open session.
    """

    async def listen(self, user: str, *, ack: bool = True) -> AsyncGenerator[Batch, None]:
        """What is new to a user, and then what comes, in all of their chats: an `async for` of batches, without end.

        A chat that the user gets into is heard from then on, one that they leave no more.  The loop waits without
        asking; while the server cannot be reached it goes on trying, and then gets what was said meanwhile, without
        loss or repetition.  Several may listen for one user: each gets everything, unless it was dropped because the
        user has read it with another.

        Args:
            user: Whose chats.
            ack: Whether a batch counts as read once the loop comes back for the next one; else `ack` what was handled.

        Raises:
            NotConnected: The coordinator is not open, or was closed meanwhile.
            Unavailable: The server could not be asked at the beginning, or refused us later.

        Cost: 4 round trips to begin with, and 16 scripts. 0 while waiting. For each batch 1 message to the process, and
        1 round trip with 1 script; 2 with `ack`.
        """
        check_name("user", user)
        session = self._ref.session
        async with Listener(session, self._places, user) as listener:
            while True:
                batch = await listener.next()
                yield batch
                if ack:
                    acknowledge = partial(self.ack, user, batch.chat_id, batch.last_id)
                    with suppress(NotAMember, ChatNotFound):  # who has left meanwhile has no position
                        await retry_until_answered(_log, f"acknowledging for user {user!r}", acknowledge)
