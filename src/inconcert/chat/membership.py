"""Who is in a chat: made with its first members, joined and left by themselves or by the hand of a member."""

import secrets
from collections.abc import Iterable

from inconcert._redis.scripts import Binder, load
from inconcert._rules.durations import Seconds
from inconcert._rules.limits import age_ms, whole
from inconcert._rules.names import check_name
from inconcert._rules.payloads import JSON, encode
from inconcert.chat.asking import Asking, check
from inconcert.chat.places import ChatKeys
from inconcert.errors import ChatNotFound

__all__ = ["Membership"]

_CREATE = load("chat/create").bind(ChatKeys)
_JOIN = load("chat/join").bind(ChatKeys)
_LEAVE = load("chat/leave").bind(ChatKeys)
_MEMBERS = load("chat/members").bind(ChatKeys)

_MOST_MESSAGES = 1_000_000  # in a chat; dropping them all at once takes the server some milliseconds
_MOST_RECIPIENTS = 10_000  # of a new chat, in one script


class Membership(Asking):
    """The verbs by which chats and their members come and go."""

    async def create(
        self,
        sender: str,
        recipients: Iterable[str],
        message: JSON,
        *,
        max_messages: int = 10_000,
        max_age: Seconds | None = None,
        history: int = 0,
    ) -> str:
        """Make a chat of the sender and the recipients, with a first message: wholly, or not at all.

        Args:
            sender: Its first member, who fetches the message like the others.
            recipients: The other members, at most 10,000; more can join.
            message: A JSON value of at most 1 MiB.
            max_messages: How many messages are kept for those who do not read, 1 to 1,000,000; the oldest are dropped.
            max_age: How long they are kept, in seconds; None for any time.
            history: How many messages are kept for `history()` when all have read them, up to `max_messages`.

        Returns:
            The id of the chat, which nobody can guess.

        Raises:
            ValueError: `recipients` is a string or too many, or a number is out of range.
            InvalidPayload: The message is not JSON, or too large.
            Unavailable: It was not made.
            OutcomeUnknown: The server did not answer; if it was made, its members' fetches bring it.

        Cost: 1 round trip, O(N log N), N members.
        """
        users = _members(sender, recipients)
        whole("max_messages", max_messages, most=_MOST_MESSAGES)
        max_age_ms = age_ms(max_age)
        whole("history", history, least=0, most=max_messages)
        body = encode("the first message of a chat", message)
        chat_id = secrets.token_hex(12)
        command = _CREATE(
            self._places.of_chat(chat_id),
            chats=[self._places.list_of(user, chat_id) for user in users],
            chat=chat_id,
            max_messages=max_messages,
            max_age_ms=max_age_ms,
            history=history,
            body=body,
            listeners=self._places.news_of_users,
            users=users,
        )
        await self._ref.session.run(command)
        return chat_id

    async def join(self, chat_id: str, user: str) -> None:
        """Become a member, who gets what is sent from now on. Changes nothing for one who is.

        Raises:
            ChatNotFound: There is no such chat.
            OutcomeUnknown: The server did not answer; join again.

        Cost: 1 round trip.
        """
        await self._change(_JOIN, chat_id, user)

    async def leave(self, chat_id: str, user: str) -> None:
        """Be a member no more. With the last one the chat goes, and its messages.

        Raises:
            NotAMember: The user is not in the chat.
            ChatNotFound: There is no such chat.
            OutcomeUnknown: The server did not answer; leave again, and take these two for done.

        Cost: 1 round trip.
        """
        await self._change(_LEAVE, chat_id, user)

    async def add(self, chat_id: str, by: str, user: str) -> None:
        """Make another user a member, who gets what is sent from now on. Changes nothing for one who is.

        Args:
            chat_id: Which chat.
            by: The member who does it.
            user: The new member.

        Raises:
            NotAMember: `by` is not in the chat.
            ChatNotFound: There is no such chat.
            OutcomeUnknown: The server did not answer; add again.

        Cost: 1 round trip.
        """
        await self._change(_JOIN, chat_id, user, check_name("user", by))

    async def remove(self, chat_id: str, by: str, user: str) -> None:
        """Make another user a member no more. Any member may; who may among them is for your application to decide.

        Args:
            chat_id: Which chat.
            by: The member who does it.
            user: The member who goes.

        Raises:
            NotAMember: One of the two is not in the chat.
            ChatNotFound: There is no such chat.
            OutcomeUnknown: The server did not answer; remove again, and take `NotAMember` of the user for done.

        Cost: 1 round trip.
        """
        await self._change(_LEAVE, chat_id, user, check_name("user", by))

    async def members(self, chat_id: str) -> dict[str, int]:
        """Each member, with the id of the last message they have read, or 0: read receipts.

        Raises:
            ChatNotFound: There is no such chat.

        Cost: 1 round trip for each 1,000 members or so; between two of them members may join and leave.
        """
        keys = self._places.of_chat(chat_id)
        session = self._ref.session
        found: dict[str, int] = {}
        cursor = None
        while cursor != b"0":
            cursor, flat = await session.run(_MEMBERS(keys, cursor=cursor or 0))
            found.update((user.decode(), int(read)) for user, read in zip(flat[::2], flat[1::2], strict=True))
        if not found:
            raise ChatNotFound(chat_id)
        return found

    async def _change(self, script: Binder, chat_id: str, user: str, by: str = "") -> None:
        keys, chats = self._places.of_chat(chat_id), self._places.list_of(user, chat_id)
        session = self._ref.session
        command = script(
            keys,
            chats=chats,
            chat=chat_id,
            user=user,
            request=session.new_address(),
            by=by,
            channel=self._places.news_of_user(user),
        )
        check(await session.run(command), chat_id)


def _members(sender: str, recipients: Iterable[str]) -> list[str]:
    """The sender, and each recipient, once."""
    if isinstance(recipients, str):
        raise ValueError(f"recipients is the string {recipients!r}; give a list of users")  # noqa: TRY004 - documented
    users = list(dict.fromkeys(check_name("user", name) for name in (sender, *recipients)))
    if len(users) > _MOST_RECIPIENTS + 1:
        raise ValueError(
            f"there are {len(users) - 1} recipients; name at most {_MOST_RECIPIENTS}, and let the rest join"
        )
    return users
