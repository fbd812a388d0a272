"""Where chats lie: in four groups, each with its chats and, for every user, the list of those that they are in.

A group lies in one slot.  So one script changes a chat and its members' lists, and they never disagree; and one script
for each group finds all chats of a user that have news, however many there are.

Source: docs/explanation/chat.md
"""

import zlib
from typing import NamedTuple

from inconcert._redis.keys import Keyspace
from inconcert._rules.names import check_name

__all__ = ["ChatKeys", "ListKeys", "Places"]

# A fetch asks each of them; on Redis Cluster, chats can spread over as many nodes. Where a chat lies follows from this
# number, so it stays as it is.
_GROUPS = 4


class _Chat(NamedTuple):
    members: str
    state: str
    messages: str
    recent: str
    older: str


class _User(NamedTuple):
    chats: str


class ChatKeys(NamedTuple):
    """Where a chat is kept, and the latest ids of all chats of its group."""

    members: str
    state: str
    messages: str
    recent: str
    older: str
    heads: str


class ListKeys(NamedTuple):
    """Where the list of a user's chats in one group is kept, and the latest ids of all chats of the group."""

    chats: str
    heads: str


class Places:
    """The keys and channels of chats.

    Args:
        keys: The keys of the namespace.
    """

    __slots__ = ("_keys",)

    def __init__(self, keys: Keyspace) -> None:
        self._keys = keys

    def of_chat(self, chat_id: str) -> ChatKeys:
        """Where a chat is kept."""
        group = _group(chat_id)
        [heads] = self._keys.shared(group, "heads")
        return ChatKeys(*self._keys.grouped(_Chat, group, "chat", chat_id), heads)

    def list_of(self, user: str, chat_id: str) -> str:
        """The list of this user's chats in which this chat is, or would be."""
        return self._keys.grouped(_User, _group(chat_id), "user", user).chats

    def of_lists(self, user: str) -> list[ListKeys]:
        """The lists of this user's chats, each with the latest ids of its group."""
        groups = [f"chats:{number}" for number in range(_GROUPS)]
        return [
            ListKeys(self._keys.grouped(_User, group, "user", user).chats, *self._keys.shared(group, "heads"))
            for group in groups
        ]

    def news_of_chat(self, chat_id: str) -> str:
        """The channel on which it is said that a chat has a new message."""
        return self._keys.channel("chat", chat_id)

    def news_of_user(self, user: str) -> str:
        """The channel on which it is said that a user's list has changed."""
        return self._keys.channel("user", user)

    @property
    def news_of_users(self) -> str:
        """What these begin with; the user follows."""
        return self._keys.channels_begin("user")


def _group(chat_id: str) -> str:
    return f"chats:{zlib.crc32(check_name('chat', chat_id).encode()) % _GROUPS}"
