"""Membership of a chat: creating one, joining and leaving it, and the list of its members."""

import secrets
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from inconcert._core.session import Session, SessionRef
from inconcert._redis.protocol.replies import rows
from inconcert._redis.protocol.scripts import Binder, load
from inconcert._rules.names import check_name
from inconcert.chat.answers import check_answer
from inconcert.chat.keys import ChatKeys, ChatKeyspace
from inconcert.errors import ChatNotFound

_CREATE = load("chat/create").bind(ChatKeys)
_JOIN = load("chat/join").bind(ChatKeys)
_LEAVE = load("chat/leave").bind(ChatKeys)
_MEMBERS = load("chat/members").bind(ChatKeys)

_MOST_RECIPIENTS = 10_000  # of a new chat, in one script


class Caps(NamedTuple):
    """The caps of a chat; see `Chats.create`."""

    max_messages: int
    max_age_ms: int
    history: int


class _MemberRow(NamedTuple):
    user: bytes
    read: bytes  # the id of the last message read


def members_of(sender: str, recipients: Iterable[str]) -> list[str]:
    """The sender, and each recipient, once."""
    if isinstance(recipients, str):
        raise ValueError(f"recipients is the string {recipients!r}; give a list of users")  # noqa: TRY004 - documented
    users = list(dict.fromkeys(check_name("user", name) for name in (sender, *recipients)))
    if len(users) > _MOST_RECIPIENTS + 1:
        raise ValueError(
            f"there are {len(users) - 1} recipients; name at most {_MOST_RECIPIENTS}, and let the rest join"
        )
    return users


async def create_chat(session: Session, keys: ChatKeyspace, users: Sequence[str], caps: Caps, body: bytes) -> str:
    """Create a chat of these users, of whom the first sends its first message, and return its id."""
    chat_id = secrets.token_hex(12)
    command = _CREATE(
        keys.chat(chat_id),
        chats=[keys.user_list(user, chat_id) for user in users],
        chat=chat_id,
        max_messages=caps.max_messages,
        max_age_ms=caps.max_age_ms,
        history=caps.history,
        body=body,
        listeners=keys.users_channels(chat_id),
        users=users,
    )
    await session.run(command)
    return chat_id


async def join_chat(ref: SessionRef, keys: ChatKeyspace, chat_id: str, user: str, by: str = "") -> None:
    """Make a user a member, by themselves or by another member; see `Chats.join` and `Chats.add`."""
    await _change(ref, keys, _JOIN, chat_id, user, by=by)


async def leave_chat(ref: SessionRef, keys: ChatKeyspace, chat_id: str, user: str, by: str = "") -> None:
    """End a membership, by the user or by another member; see `Chats.leave` and `Chats.remove`."""
    await _change(ref, keys, _LEAVE, chat_id, user, by=by)


async def _change(ref: SessionRef, keys: ChatKeyspace, script: Binder, chat_id: str, user: str, *, by: str) -> None:
    chat, chats = keys.chat(chat_id), keys.user_list(user, chat_id)  # first: they check the names
    session = ref.session
    command = script(
        chat,
        chats=chats,
        chat=chat_id,
        user=user,
        request=session.new_address(),
        by=by,
        channel=keys.user_channel(user, chat_id),
    )
    check_answer(await session.run(command), chat_id)


async def list_members(session: Session, keys: ChatKeys, chat_id: str) -> dict[str, int]:
    """Each member of a chat, with the id of the last message they have read; see `Chats.members`."""
    found: dict[str, int] = {}
    cursor = None
    while cursor != b"0":
        cursor, flat = await session.run(_MEMBERS(keys, cursor=cursor or 0))
        found.update((row.user.decode(), int(row.read)) for row in rows(flat, _MemberRow))
    if not found:
        raise ChatNotFound(chat_id)
    return found
