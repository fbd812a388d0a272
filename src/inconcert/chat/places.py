"""Where chats lie: in four groups, each with its chats and, for every user, the list of those that they are in.

A group lies in one slot.  So one script changes a chat and its members' lists, and they never disagree; and one script
for each group finds all chats of a user that have news, however many there are.

Source: docs/explanation/chat.md
"""

import zlib

from inconcert._redis.keys import Keyspace
from inconcert._rules.names import check_name

__all__ = ["Places"]

# A fetch asks each of them; on Redis Cluster, chats can spread over as many nodes. Where a chat lies follows from this
# number, so it stays as it is.
_GROUPS = 4


class Places:
    """The keys and channels of chats.

    Args:
        keys: The keys of the namespace.
    """

    __slots__ = ("_keys",)

    def __init__(self, keys: Keyspace) -> None:
        self._keys = keys

    def of_chat(self, chat_id: str) -> tuple[str, ...]:
        """Its members, state and messages."""
        return self._of(chat_id, "members", "state", "messages")

    def of_member(self, chat_id: str, user: str) -> tuple[str, ...]:
        """Those of the chat, the latest ids of its group, and the list of this user."""
        group = _group(chat_id)
        chats = self._keys.grouped(group, "user", user, "chats")
        return (*self.of_chat(chat_id), *self._keys.shared(group, "heads"), *chats)

    def of_new_chat(self, chat_id: str, *users: str) -> tuple[str, ...]:
        """Those of the chat, the latest ids of its group, what requests were answered, and the lists of these users."""
        group = _group(chat_id)
        lists = [key for user in users for key in self._keys.grouped(group, "user", user, "chats")]
        requests = self._of(chat_id, "recent", "older")
        return (*self.of_chat(chat_id), *self._keys.shared(group, "heads"), *requests, *lists)

    def of_request(self, chat_id: str, user: str) -> tuple[str, ...]:
        """Those of a member, and what requests were answered."""
        return (*self.of_member(chat_id, user), *self._of(chat_id, "recent", "older"))

    def of_lists(self, user: str) -> list[tuple[str, ...]]:
        """The user's list and the latest ids, of each group."""
        groups = [f"chats:{number}" for number in range(_GROUPS)]
        return [
            (*self._keys.grouped(group, "user", user, "chats"), *self._keys.shared(group, "heads")) for group in groups
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

    def _of(self, chat_id: str, *parts: str) -> tuple[str, ...]:
        return self._keys.grouped(_group(chat_id), "chat", chat_id, *parts)


def _group(chat_id: str) -> str:
    return f"chats:{zlib.crc32(check_name('chat', chat_id).encode()) % _GROUPS}"
