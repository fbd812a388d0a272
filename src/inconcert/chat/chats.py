"""Group chats whose members read at their own pace, on any machine.

The server keeps everything: the messages of a chat under ids without gaps, its members with how far each has read, and
for each user the list of their chats.  A message stays until all members have read it, or a cap drops it.

    members   zset  user -> id of the last message read
    state     hash  the latest id, the caps, and facts about single members
    messages  list  time, body and sender of each, one line each; the latest message has the latest id

Source: docs/explanation/chat.md
"""

import logging
import secrets
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, overload

from inconcert._core.retry import retry_until_answered
from inconcert._core.session import SessionRef
from inconcert._redis.protocol.replies import rows
from inconcert._redis.protocol.scripts import Binder, load
from inconcert._redis.wire.call import Call
from inconcert._rules.codec import T, codec_of
from inconcert._rules.durations import Seconds
from inconcert._rules.limits import age_ms, whole
from inconcert._rules.names import check_name
from inconcert.chat.keys import ChatKeys, ChatKeyspace
from inconcert.chat.listener import Listener
from inconcert.chat.messages import Batch, Message
from inconcert.chat.reader import PAGE, check_answer, count_unread, fetch_new, read_history
from inconcert.errors import ChatNotFound, NotAMember

_MessageT = TypeVar("_MessageT")  # of the chats that `of` makes

_log = logging.getLogger("inconcert.chat")

_CREATE = load("chat/create").bind(ChatKeys)
_JOIN = load("chat/join").bind(ChatKeys)
_LEAVE = load("chat/leave").bind(ChatKeys)
_MEMBERS = load("chat/members").bind(ChatKeys)
_SEND = load("chat/send").bind(ChatKeys)
_ACK = load("chat/ack").bind(ChatKeys)

_MOST_RECIPIENTS = 10_000  # of a new chat, in one script
_MOST_MESSAGES = 1_000_000  # in a chat; dropping them all at once takes the server some milliseconds


class _MemberRow(NamedTuple):
    user: bytes
    read: bytes  # the id of the last message read


class Chats(Generic[T]):
    """The chats of a namespace: users create, join and leave them, send, and read the news in all of theirs.

    A user is a name of your choice; your application decides who may act under it.  Use a mailbox for messages to a
    single reader, and a signal for news that need not be kept.

    Made by `Coordinator.chat`:

    ```python
    chat_id = await concert.chat.create("ann", ["bob", "cy"], "hello")
    await concert.chat.send(chat_id, "ann", {"text": "lunch?"})
    for batch in await concert.chat.fetch("bob"):
        print(batch.chat_id, [message.body for message in batch.messages])
    async for batch in concert.chat.listen("bob"):
        print(batch.chat_id, [message.body for message in batch.messages])
    ```
    """

    def __init__(self, ref: SessionRef, groups: int, message_type: Any = None) -> None:  # noqa: ANN401 - also unions
        self._ref = ref
        self._groups = groups
        self._keys = ChatKeyspace(ref.keys, groups)
        self._codec = codec_of("message of a chat", message_type)

    @overload
    def of(self, message_type: type[_MessageT]) -> "Chats[_MessageT]": ...
    @overload
    def of(self, message_type: object) -> "Chats[Any]": ...
    def of(self, message_type: object) -> "Chats[Any]":
        """The same chats, whose messages are of a type, checked when they are sent and when they are read.

        A message that does not fit is in `Batch.unfit`, and `history()` leaves it out; both log an error.

        Args:
            message_type: A `msgspec.Struct`, a dataclass, a `TypedDict`, a pydantic model, or any other type that
                msgspec reads.

        Raises:
            TypeError: JSON cannot represent the type.
        """
        return Chats(self._ref, self._groups, message_type)

    async def create(
        self,
        sender: str,
        recipients: Iterable[str],
        message: T,
        *,
        max_messages: int = 10_000,
        max_age: Seconds | None = None,
        history: int = 0,
    ) -> str:
        """Create a chat of the sender and the recipients, with a first message: completely, or not at all.

        Args:
            sender: Its first member, who fetches the message like the others.
            recipients: The other members, at most 10,000; more can join.
            message: A value of the type of `of()`; without one any JSON value. At most 1 MiB as JSON.
            max_messages: How many messages are kept for members that do not read, 1 to 1,000,000; the oldest are
                dropped.
            max_age: How long they are kept, in seconds; None sets no limit.
            history: How many messages are kept for `history()` after all have read them, up to `max_messages`.

        Returns:
            The id of the chat, which cannot be guessed.

        Raises:
            ValueError: `recipients` is a string or too many, or a number is out of range.
            InvalidPayload: The message is not JSON, not of the type, or too large.
            Unavailable: The chat was not created.
            OutcomeUnknown: The server did not answer; if the chat was created, its members' fetches return it.

        Cost: 1 round trip, O(N log N), N members.
        """
        users = _members_of(sender, recipients)
        whole("max_messages", max_messages, most=_MOST_MESSAGES)
        max_age_ms = age_ms(max_age)
        whole("history", history, least=0, most=max_messages)
        body = self._codec.encode(message)
        chat_id = secrets.token_hex(12)
        command = _CREATE(
            self._keys.chat(chat_id),
            chats=[self._keys.user_list(user, chat_id) for user in users],
            chat=chat_id,
            max_messages=max_messages,
            max_age_ms=max_age_ms,
            history=history,
            body=body,
            listeners=self._keys.users_channels(chat_id),
            users=users,
        )
        await self._ref.session.run(command)
        return chat_id

    async def join(self, chat_id: str, user: str) -> None:
        """Become a member, who gets all messages from now on. Does nothing if the user is a member already.

        Raises:
            ChatNotFound: The chat does not exist.
            OutcomeUnknown: The server did not answer; join again.
        """
        await self._change(_JOIN, chat_id, user)

    async def leave(self, chat_id: str, user: str) -> None:
        """Stop being a member. When the last member leaves, the chat and its messages are deleted.

        Raises:
            NotAMember: The user is not in the chat.
            ChatNotFound: The chat does not exist.
            OutcomeUnknown: The server did not answer; leave again, and treat the two errors above as success.
        """
        await self._change(_LEAVE, chat_id, user)

    async def add(self, chat_id: str, by: str, user: str) -> None:
        """Make another user a member, who gets all messages from now on. Does nothing if the user is a member already.

        Args:
            chat_id: Which chat.
            by: The member who adds the user.
            user: The new member.

        Raises:
            NotAMember: `by` is not in the chat.
            ChatNotFound: The chat does not exist.
            OutcomeUnknown: The server did not answer; add again.
        """
        await self._change(_JOIN, chat_id, user, by=check_name("user", by))

    async def remove(self, chat_id: str, by: str, user: str) -> None:
        """End another user's membership. Any member can; your application decides which of them may.

        Args:
            chat_id: Which chat.
            by: The member who removes the user.
            user: The member who is removed.

        Raises:
            NotAMember: One of the two is not in the chat.
            ChatNotFound: The chat does not exist.
            OutcomeUnknown: The server did not answer; remove again, and treat `NotAMember` for the user as success.
        """
        await self._change(_LEAVE, chat_id, user, by=check_name("user", by))

    async def members(self, chat_id: str) -> dict[str, int]:
        """Each member, with the id of the last message they have read, or 0: read receipts.

        Raises:
            ChatNotFound: The chat does not exist.

        Cost: 1 round trip for each 1,000 members or so; between two of them members may join and leave.
        """
        keys, session = self._keys.chat(chat_id), self._ref.session
        found: dict[str, int] = {}
        cursor = None
        while cursor != b"0":
            cursor, flat = await session.run(_MEMBERS(keys, cursor=cursor or 0))
            found.update((row.user.decode(), int(row.read)) for row in rows(flat, _MemberRow))
        if not found:
            raise ChatNotFound(chat_id)
        return found

    async def send(self, chat_id: str, sender: str, body: T) -> Message[T]:
        """Add a message to a chat, for all who are members now.

        Raises:
            NotAMember: The sender is not in the chat.
            ChatNotFound: The chat does not exist.
            InvalidPayload: The body is not JSON, not of the type, or larger than 1 MiB.
            OutcomeUnknown: The server did not answer; the message may be in the chat, once.

        Cost: 1 round trip, O(1) whatever the number of members, and 1 message to each process with a listener.
        """
        text = self._codec.encode(body)
        check_name("user", sender)
        keys = self._keys.chat(chat_id)
        session = self._ref.session
        command = _SEND(
            keys,
            chat=chat_id,
            sender=sender,
            request=session.new_address(),
            body=text,
            channel=self._keys.chat_channel(chat_id),
        )
        reply = await session.run(command)
        check_answer(reply, chat_id)
        _, sent = reply
        id_, at_ms = sent.split()
        return Message(int(id_), int(at_ms) / 1000, sender, self._codec.decode(text))

    async def fetch(self, user: str, *, limit: int | None = None, ack: bool = True) -> list[Batch[T]]:
        """Fetch the news for a user, their own messages too: one batch for each chat with news, in any order.

        With `ack=True` the read positions move at the moment in which this returns, never before: a fetch that fails or
        is cancelled moves none.  Its result is not fetched again, even if the process then dies; where that
        matters use `ack=False`, and `ack` what was handled.  Two fetches for one user at the same time may both return
        a message, and a message comes again if the server did not hear that the position moved.

        Args:
            user: Whose chats.
            limit: The most messages of each chat, oldest first, also of those that do not fit the type; None for all
                that there are when this begins.
            ack: Whether the messages count as read.

        Raises:
            ValueError: `limit` is below 1.

        Cost: 2 round trips, and 1 for each further 1,000 messages, or MiB, of a chat; 1 if nothing is new. 4 scripts,
        however many chats there are, and 2 for each chat with news.
        """
        most = sys.maxsize if limit is None else whole("limit", limit)
        check_name("user", user)
        session = self._ref.session
        batches = await fetch_new(session, self._keys, self._codec, user, most)
        if ack:  # without an await, so that no cancellation can come between the positions and the caller
            for batch in batches:
                session.channel.submit(self._ack(user, batch.chat_id, batch.last_id))
        return batches

    async def listen(self, user: str, *, ack: bool = True) -> AsyncGenerator[Batch[T], None]:
        """Follow all chats of a user, unread messages first, then each as it comes: an endless `async for` of batches.

        The loop follows the user's membership: a chat that the user enters is included from then on, one that they
        leave is not.  It waits without asking; while the server cannot be reached it keeps trying, and then gets what
        was sent meanwhile, without loss or repetition.  Several may listen for one user: each gets everything, unless
        it was dropped because the user has read it with another.

        Args:
            user: Whose chats.
            ack: Whether a batch counts as read once the loop comes back for the next one; otherwise `ack` what was
                handled.

        Raises:
            Unavailable: The server could not be asked at the beginning, or refused us later.

        Cost: 4 round trips to begin with, and 16 scripts. 0 while waiting. For each batch 1 message to the process, and
        1 round trip with 1 script; 2 with `ack`.
        """
        check_name("user", user)
        session = self._ref.session
        async with Listener(session, self._keys, self._codec, user) as listener:
            while True:
                batch = await listener.next()
                yield batch
                if ack:
                    acknowledge = partial(self.ack, user, batch.chat_id, batch.last_id)
                    with suppress(NotAMember, ChatNotFound):  # a user who has left meanwhile has no position
                        await retry_until_answered(_log, f"acknowledging for user {user!r}", acknowledge)

    async def ack(self, user: str, chat_id: str, message_id: int) -> None:
        """Mark a chat as read by a user up to this message, which may be dropped when all members have read it.

        A position never goes back: an earlier message changes nothing. One beyond the latest means the latest.

        Raises:
            ValueError: `message_id` is below 1.
            NotAMember: The user is not in the chat.
            ChatNotFound: The chat does not exist.
        """
        call = self._ack(user, chat_id, whole("message_id", message_id))
        [reply] = await self._ref.session.gather([call])
        check_answer(reply, chat_id)

    async def history(self, chat_id: str, user: str, *, before: int | None = None, limit: int = 50) -> list[Message[T]]:
        """The latest messages that the chat still has, or those before one, read or not. No read position moves.

        Members see what was sent before they joined, too.  Of the messages that all members have read, the chat keeps
        the number given to `create` as `history`.

        Args:
            chat_id: Which chat.
            user: The member who asks.
            before: The id of the oldest message that is known already; None for the latest ones.
            limit: How many messages at most, 1 to 1,000.

        Returns:
            The messages, oldest first; empty if there are none before that one.

        Raises:
            ValueError: `before` is below 1, or `limit` out of range.
            NotAMember: The user is not in the chat.
            ChatNotFound: The chat does not exist.

        Cost: 1 round trip, and 1 for each further MiB.
        """
        end = 0 if before is None else whole("before", before)
        wanted = whole("limit", limit, most=PAGE)
        check_name("user", user)
        keys = self._keys.chat(chat_id)
        return await read_history(self._ref.session, keys, self._codec, chat_id, user, before=end, limit=wanted)

    async def unread(self, user: str) -> dict[str, int]:
        """Count the messages of others that a user has not read, for each chat that has any. No position moves.

        Messages that were dropped before they were read count too.

        Cost: 2 round trips; 1 if nothing is new. 4 scripts, however many chats there are, and 1 for each chat with
        news; where the user sent some of the messages, O(M) for M of them.
        """
        check_name("user", user)
        return await count_unread(self._ref.session, self._keys, user)

    # Private.

    async def _change(self, script: Binder, chat_id: str, user: str, *, by: str = "") -> None:
        """Begin or end a membership, by the user or by another member."""
        chat, chats = self._keys.chat(chat_id), self._keys.user_list(user, chat_id)  # first: they check the names
        session = self._ref.session
        command = script(
            chat,
            chats=chats,
            chat=chat_id,
            user=user,
            request=session.new_address(),
            by=by,
            channel=self._keys.user_channel(user, chat_id),
        )
        check_answer(await session.run(command), chat_id)

    def _ack(self, user: str, chat_id: str, message_id: int) -> Call:
        """The call that moves a read position."""
        keys, chats = self._keys.chat(chat_id), self._keys.user_list(user, chat_id)
        return Call(_ACK(keys, chats=chats, chat=chat_id, user=user, id=message_id))


def _members_of(sender: str, recipients: Iterable[str]) -> list[str]:
    """The sender, and each recipient, once."""
    if isinstance(recipients, str):
        raise ValueError(f"recipients is the string {recipients!r}; give a list of users")  # noqa: TRY004 - documented
    users = list(dict.fromkeys(check_name("user", name) for name in (sender, *recipients)))
    if len(users) > _MOST_RECIPIENTS + 1:
        raise ValueError(
            f"there are {len(users) - 1} recipients; name at most {_MOST_RECIPIENTS}, and let the rest join"
        )
    return users
