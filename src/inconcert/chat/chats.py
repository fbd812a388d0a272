"""Group chats whose members read at their own pace, on any machine.

The server keeps everything: the messages of a chat under ids without gaps, its members with how far each has read, and
for each user the list of their chats.  A message stays until all members have read it, or a cap drops it.

    members   zset  user -> id of the last message read
    state     hash  the last id, the number of joins, the caps
    messages  list  time, body and sender of each, a line each; the latest has the last id

Source: docs/explanation/chat.md
"""

import math
import secrets
from collections.abc import Iterable, Sequence

from inconcert._core.session import Access, Session
from inconcert._redis.channel import Call
from inconcert._redis.replies import Reply
from inconcert._redis.scripts import Script, load
from inconcert._rules.durations import Seconds, milliseconds, ttl
from inconcert._rules.names import check_name
from inconcert._rules.payloads import JSON, decode, encode
from inconcert.chat.memberships import ChatList, MemberChange
from inconcert.chat.reading import Batch, Message, Reading
from inconcert.errors import ChatNotFound, InconcertError, NotAMember, OutcomeUnknown, Unavailable

__all__ = ["Chats"]

_CREATE, _KEEP = load("chat/create"), load("chat/keep")
_SEND, _ACK = load("chat/send"), load("chat/ack")
_JOIN, _LEAVE, _MEMBERS = load("chat/join"), load("chat/leave"), load("chat/members")

_MOST_MESSAGES = 1_000_000  # in a chat; dropping them all at once takes the server some milliseconds
_MOST_RECIPIENTS = 10_000  # of a new chat, in one script
_DONE, _NO_MEMBER = 1, 0  # what scripts answer first; less than these: there is no such chat


class Chats:
    """The chats of a namespace: users create, join and leave them, send, and fetch what is new in all of theirs.

    A user is a name of your choice; who may speak under it is for your application to decide.  Use a mailbox for what
    only one reader is to get, and a signal for what need not be kept.

    Made by `Coordinator.chat`:

    ```python
    chat_id = await concert.chat.create("ann", ["bob", "cy"], "hello")
    await concert.chat.send(chat_id, "ann", {"text": "lunch?"})
    for batch in await concert.chat.fetch("bob"):
        print(batch.chat_id, [message.body for message in batch.messages])
    ```

    Args:
        access: The way to the open session.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def create(
        self,
        sender: str,
        recipients: Iterable[str],
        message: JSON,
        *,
        max_messages: int = 10_000,
        max_age: Seconds | None = None,
    ) -> str:
        """Make a chat of the sender and the recipients, with a first message: wholly, or not at all.

        Args:
            sender: Its first member, who fetches the message like the others.
            recipients: The other members, at most 10,000; more can join.
            message: A JSON value of at most 1 MiB.
            max_messages: How many messages are kept for those who do not read, 1 to 1,000,000; the oldest are dropped.
            max_age: How long they are kept, in seconds; None for any time.

        Returns:
            The id of the chat, which nobody can guess.

        Raises:
            ValueError: `recipients` is a string or too many, or a cap is out of range.
            InvalidPayload: The message is not JSON, or too large.
            Unavailable: It was not made; what there is of it lapses within a minute.
            OutcomeUnknown: The server did not answer; if it was made, its members' fetches bring it.

        Cost: 3 round trips and N + 2 scripts, N members.
        """
        others = _others(sender, recipients)
        caps = (_whole("max_messages", max_messages, _MOST_MESSAGES), _age_ms(max_age))
        body = encode("the first message of a chat", message)
        chat_id = secrets.token_hex(12)
        keys = self._keys(chat_id)[:3]
        session = self._access.session
        await session.run(_CREATE, keys, *caps, body, sender, *others)
        await _all(session, [ChatList(self._access, user).addition(chat_id, 1) for user in (*others, sender)])
        if not await session.run(_KEEP, keys):
            raise Unavailable(f"chat {chat_id!r} was not made: it took more than a minute, and lapsed; create another")
        return chat_id

    async def send(self, chat_id: str, sender: str, body: JSON) -> Message:
        """Add a message to a chat, for all who are members now.

        Raises:
            NotAMember: The sender is not in the chat.
            ChatNotFound: There is no such chat.
            InvalidPayload: The body is not JSON, or larger than 1 MiB.
            OutcomeUnknown: The server did not answer; the message may be in the chat, once.

        Cost: 1 round trip, O(1) whatever the number of members.
        """
        keys = self._keys(chat_id)
        text = encode(f"a message to chat {chat_id!r}", body)
        check_name("user", sender)
        session = self._access.session
        reply = await session.run(_SEND, keys, sender, text, session.new_address())
        _check(reply, chat_id, sender)
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

        Cost: 2 round trips, and one for each further 1,000 messages, or MiB, of a chat. One script for each chat.
        """
        most = _MOST_MESSAGES if limit is None else _whole("limit", limit)
        chats = ChatList(self._access, user)
        session = self._access.session
        readings = [Reading(chat_id, self._keys(chat_id)[:3], most) for chat_id in await chats.read()]
        unfinished = readings
        while unfinished:
            replies = await _all(session, [reading.ask(user) for reading in unfinished])
            for reading, reply in zip(unfinished, replies, strict=True):
                reading.take(reply)
                if reply[0] != _DONE:  # a step that came late, or never, left the chat on the list
                    session.channel.submit(chats.removal(reading.chat_id, reply[1]))
            unfinished = [reading for reading in unfinished if reading.has_more]
        news = [reading for reading in readings if reading.is_news]
        if ack:  # without an await, so that no cancellation can come between the positions and the caller
            for reading in news:
                session.channel.submit(Call(_ACK, reading.keys, (user, reading.at)))
        return [reading.batch() for reading in news]

    async def ack(self, user: str, chat_id: str, message_id: int) -> None:
        """Say that a user has read a chat up to this message, which is dropped when all members have.

        A position never goes back: an earlier message changes nothing. One beyond the latest means the latest.

        Raises:
            ValueError: `message_id` is below 1.
            NotAMember: The user is not in the chat.
            ChatNotFound: There is no such chat.

        Cost: 1 round trip.
        """
        keys = self._keys(chat_id)[:3]
        args = (check_name("user", user), _whole("message_id", message_id))
        _check(await self._access.session.run(_ACK, keys, *args), chat_id, user)

    async def join(self, chat_id: str, user: str) -> None:
        """Become a member, who gets what is sent from now on. Changes nothing for one who is.

        Raises:
            ChatNotFound: There is no such chat.
            OutcomeUnknown: The server did not answer; join again.

        Cost: 2 round trips.
        """
        await self._change(_JOIN, chat_id, user)

    async def leave(self, chat_id: str, user: str) -> None:
        """Be a member no more. With the last one the chat goes, and its messages.

        Raises:
            NotAMember: The user is not in the chat.
            ChatNotFound: There is no such chat.
            OutcomeUnknown: The server did not answer; leave again, and take these two for done.

        Cost: 2 round trips.
        """
        await self._change(_LEAVE, chat_id, user)

    async def members(self, chat_id: str) -> dict[str, int]:
        """Each member, with the id of the last message they have read, or 0: read receipts.

        Raises:
            ChatNotFound: There is no such chat.

        Cost: 1 round trip for each 1,000 members or so; between two of them members may join and leave.
        """
        keys = self._keys(chat_id)[:1]
        session = self._access.session
        found: dict[str, int] = {}
        cursor = None
        while cursor != b"0":
            cursor, flat = await session.run(_MEMBERS, keys, cursor or 0)
            found.update((user.decode(), int(read)) for user, read in zip(flat[::2], flat[1::2], strict=True))
        if not found:
            raise ChatNotFound(chat_id)
        return found

    # Below.

    def _keys(self, chat_id: str) -> tuple[str, ...]:
        return self._access.keys.of("chat", chat_id, "members", "state", "messages", "recent", "older")

    async def _change(self, script: Script, chat_id: str, user: str) -> None:
        keys = self._keys(chat_id)
        chats, is_join = ChatList(self._access, user), script is _JOIN
        session = self._access.session
        call = MemberChange(session, script, keys, user, chat_id=chat_id, chats=chats, is_join=is_join)
        [reply] = await _all(session, [call])
        if is_join or call.sends == 1 or reply[0] == _NO_MEMBER:
            _check(reply, chat_id, user)  # else it is a leave that was sent again: the chat went with it the first time
        try:
            await call.listed
        except InconcertError as error:
            what = f"{call.title}: done, but the list of user {user!r} could not be changed"
            raise OutcomeUnknown(f"{what} ({error}); do it again") from error


async def _all(session: Session, calls: Sequence[Call]) -> list[Reply]:
    """Send these together, and wait for all replies."""
    for call in calls:
        await session.channel.has_room()
        session.channel.submit(call)
    return [await call for call in calls]


def _check(reply: Reply, chat_id: str, user: str) -> None:
    """Raise the error that a script's first word stands for."""
    if reply[0] == _NO_MEMBER:
        raise NotAMember(chat_id, user)
    if reply[0] != _DONE:
        raise ChatNotFound(chat_id)


def _others(sender: str, recipients: Iterable[str]) -> list[str]:
    """Each recipient once, without the sender."""
    if isinstance(recipients, str):
        raise ValueError(f"recipients is the string {recipients!r}; give a list of users")  # noqa: TRY004 - documented
    names = [check_name("user", name) for name in (sender, *recipients)]
    others = list(dict.fromkeys(name for name in names if name != sender))
    if len(others) > _MOST_RECIPIENTS:
        raise ValueError(f"there are {len(others)} recipients; name at most {_MOST_RECIPIENTS}, and let the rest join")
    return others


def _whole(parameter: str, value: int, most: float = math.inf) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"{parameter} is {value!r}; give a whole number from 1 to {most:,.0f}")
    return value


def _age_ms(max_age: Seconds | None) -> int:
    """How long messages are kept; 0 for any time."""
    try:
        return 0 if max_age is None else milliseconds(ttl(max_age))
    except ValueError as error:
        raise ValueError(
            f"max_age is {max_age!r}; give seconds above 0, or None to keep messages of any age"
        ) from error
