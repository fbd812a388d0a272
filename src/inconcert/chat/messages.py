"""What is said in chats: sent, fetched and acknowledged, looked up and counted."""

import sys

from inconcert._redis.call import Call
from inconcert._redis.scripts import load
from inconcert._rules.limits import whole
from inconcert._rules.names import check_name
from inconcert._rules.payloads import JSON, decode, encode
from inconcert.chat.asking import DONE, Asking, check, together
from inconcert.chat.lists import read_news
from inconcert.chat.places import ChatKeys
from inconcert.chat.reading import PAGE, Batch, Message, Reading, read_messages

__all__ = ["Messages"]

_SEND = load("chat/send").bind(ChatKeys)
_ACK = load("chat/ack").bind(ChatKeys)
_HISTORY = load("chat/history").bind(ChatKeys)
_UNREAD = load("chat/unread").bind(ChatKeys)


class Messages(Asking):
    """The verbs by which members write and read."""

    async def send(self, chat_id: str, sender: str, body: JSON) -> Message:
        """Add a message to a chat, for all who are members now.

        Raises:
            NotAMember: The sender is not in the chat.
            ChatNotFound: There is no such chat.
            InvalidPayload: The body is not JSON, or larger than 1 MiB.
            OutcomeUnknown: The server did not answer; the message may be in the chat, once.

        Cost: 1 round trip, O(1) whatever the number of members, and 1 message to each process in which one listens.
        """
        text = encode(f"a message to chat {chat_id!r}", body)
        check_name("user", sender)
        keys = self._places.of_chat(chat_id)
        session = self._ref.session
        command = _SEND(
            keys,
            chat=chat_id,
            sender=sender,
            request=session.new_address(),
            body=text,
            channel=self._places.news_of_chat(chat_id),
        )
        reply = await session.run(command)
        check(reply, chat_id)
        id_, at_ms = reply[1].split()
        return Message(int(id_), int(at_ms) / 1000, sender, decode(text))

    async def fetch(self, user: str, *, limit: int | None = None, ack: bool = True) -> list[Batch]:
        """What is new to a user, their own messages too: one batch for each of their chats with news, in any order.

        With `ack=True` the read positions move at the moment in which this returns, never before: a fetch that fails or
        is cancelled moves none.  What it returned is not fetched again, even if the process then dies; where that
        matters use `ack=False`, and `ack` what was handled.  Two who fetch for one user at a time may both get a
        message, and it comes again if the server did not hear that the position moved.

        Args:
            user: Whose chats.
            limit: The most messages of each chat, oldest first; None for all that there are when this begins.
            ack: Whether the messages count as read.

        Raises:
            ValueError: `limit` is below 1.

        Cost: 2 round trips, and 1 for each further 1,000 messages, or MiB, of a chat; 1 if nothing is new. 4 scripts,
        however many chats there are, and 2 for each chat with news.
        """
        most = sys.maxsize if limit is None else whole("limit", limit)
        check_name("user", user)
        session = self._ref.session
        listed = await read_news(session, self._places, user)
        readings = [Reading(chat.chat_id, self._places.of_chat(chat.chat_id), most) for chat in listed]
        unfinished = readings
        while unfinished:
            replies = await together(session, [reading.ask(user) for reading in unfinished])
            for reading, reply in zip(unfinished, replies, strict=True):
                reading.take(reply)
            unfinished = [reading for reading in unfinished if reading.has_more]
        batches = [reading.batch() for reading in readings if reading.is_news]
        if ack:  # without an await, so that no cancellation can come between the positions and the caller
            for batch in batches:
                session.channel.submit(self._ack(user, batch.chat_id, batch.last_id))
        return batches

    async def ack(self, user: str, chat_id: str, message_id: int) -> None:
        """Say that a user has read a chat up to this message, which may be dropped when all members have.

        A position never goes back: an earlier message changes nothing. One beyond the latest means the latest.

        Raises:
            ValueError: `message_id` is below 1.
            NotAMember: The user is not in the chat.
            ChatNotFound: There is no such chat.

        Cost: 1 round trip.
        """
        call = self._ack(user, chat_id, whole("message_id", message_id))
        [reply] = await together(self._ref.session, [call])
        check(reply, chat_id)

    async def history(self, chat_id: str, user: str, *, before: int | None = None, limit: int = 50) -> list[Message]:
        """The latest messages that the chat still has, or those before one: read or not, and moving nothing.

        Members see what was said before they joined, too.  What all members have read is kept only as far as `create`
        was told by its `history`.

        Args:
            chat_id: Which chat.
            user: The member who asks.
            before: The id of the oldest message that is known already; None for the latest ones.
            limit: How many messages at most, 1 to 1,000.

        Returns:
            The messages, oldest first; none if there are none before that one.

        Raises:
            ValueError: `before` is below 1, or `limit` out of range.
            NotAMember: The user is not in the chat.
            ChatNotFound: There is no such chat.

        Cost: 1 round trip, and 1 for each further MiB.
        """
        end = 0 if before is None else whole("before", before)
        wanted = whole("limit", limit, most=PAGE)
        check_name("user", user)
        keys = self._places.of_chat(chat_id)
        session = self._ref.session
        found: list[Message] = []
        while wanted:
            reply = await session.run(_HISTORY(keys, user=user, before=end, count=wanted))
            check(reply, chat_id)
            _, end, first, *texts = reply
            found += read_messages(chat_id, first, texts)
            wanted = end - first - len(texts) if texts else 0
        return found

    async def unread(self, user: str) -> dict[str, int]:
        """How many messages of others a user has not read, for each chat in which there are any; nothing is moved.

        Messages that were dropped before they were read count too.

        Cost: 2 round trips; 1 if nothing is new. 4 scripts, however many chats there are, and 1 for each chat with
        news; where the user sent some of the messages, O(M) for M of them.
        """
        check_name("user", user)
        session = self._ref.session
        counts: dict[str, int] = {}
        uncounted = {chat.chat_id: -1 for chat in await read_news(session, self._places, user)}
        while uncounted:
            calls = [
                Call(_UNREAD(self._places.of_chat(chat_id), user=user, after=after))
                for chat_id, after in uncounted.items()
            ]
            replies = dict(zip(uncounted, await together(session, calls), strict=True))
            uncounted = {}
            for chat_id, reply in replies.items():
                if reply[0] != DONE:  # the user has left meanwhile
                    continue
                _, count, after = reply
                counts[chat_id] = counts.get(chat_id, 0) + count
                if after >= 0:
                    uncounted[chat_id] = after
        return {chat_id: count for chat_id, count in counts.items() if count}

    def _ack(self, user: str, chat_id: str, message_id: int) -> Call:
        """The call that moves a read position."""
        keys, chats = self._places.of_chat(chat_id), self._places.list_of(user, chat_id)
        return Call(_ACK(keys, chats=chats, chat=chat_id, user=user, id=message_id))
