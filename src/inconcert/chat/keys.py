"""The keys of chats: some groups, each with its chats and, for every user, the list of those that they are in.

A group is one slot.  So one script changes a chat and its members' lists, and they never disagree; and one script per
group finds all chats of a user that have news, however many there are.

Source: docs/explanation/chat.md
"""

import zlib
from typing import NamedTuple

from inconcert._redis.protocol.keys import Keyspace
from inconcert._rules.names import check_name


class _Chat(NamedTuple):
    members: str
    state: str
    messages: str
    recent: str
    older: str


class _User(NamedTuple):
    chats: str


class _Group(NamedTuple):
    name: str
    heads: str


class ChatKeys(NamedTuple):
    """The keys of a chat, and the key of the latest ids of all chats of its group."""

    members: str  # zset: user -> id of the last message read; permanent
    # `last`: id and `at`: time of the latest message; max_messages, max_age_ms, history: its caps; of a user ^USER: id
    # of the latest message when they joined, and @USER: id of the last message that they sent; permanent
    state: str  # hash: as above
    messages: str  # list: 'AT_MS\nBODY\nSENDER', the latest has the id `last`; permanent, or max_age_ms
    recent: str
    older: str
    heads: str  # set: 'CHAT ID' of the latest message of each chat; permanent


class ListKeys(NamedTuple):
    """The key of the list of a user's chats in one group, and that of the latest ids of all chats of the group."""

    chats: str  # set: 'CHAT ID' of the last message read in each chat; permanent
    heads: str  # set: 'CHAT ID' of the latest message of each chat


class ChatKeyspace:
    """The keys and channels of the chats of a namespace."""

    __slots__ = ("_groups", "_keys")

    def __init__(self, keys: Keyspace, groups: int) -> None:
        self._keys = keys
        self._groups = [_Group(name, *keys.shared(name, "heads")) for name in map("chats:{}".format, range(groups))]

    def chat(self, chat_id: str) -> ChatKeys:
        """The keys of a chat."""
        group = self._group(chat_id)
        return ChatKeys(*self._keys.grouped(_Chat, group.name, "chat", chat_id), group.heads)

    def user_list(self, user: str, chat_id: str) -> str:
        """The key of the list of this user's chats that has this chat, or would have it."""
        return self._keys.grouped(_User, self._group(chat_id).name, "user", user).chats

    def user_lists(self, user: str) -> list[ListKeys]:
        """The keys of the lists of this user's chats, one for each group."""
        return [ListKeys(*self._keys.grouped(_User, group.name, "user", user), group.heads) for group in self._groups]

    def chat_channel(self, chat_id: str) -> str:
        """The channel that announces new messages of a chat."""
        return self._keys.channel(self._group(chat_id).heads, "chat", chat_id)

    def user_channel(self, user: str, chat_id: str) -> str:
        """The channel that announces that the user's list of chats that has this chat has changed."""
        return self.users_channels(chat_id) + user

    def user_channels(self, user: str) -> set[str]:
        """The channels that announce changes of all lists of the user's chats: on one server it is one channel."""
        return {self._keys.channel(keys.heads, "user", user) for keys in self.user_lists(user)}

    def users_channels(self, chat_id: str) -> str:
        """The prefix of the channels that announce changes of users' lists that have this chat; the user follows."""
        return self._keys.channels_beside(self._group(chat_id).heads, "user")

    def _group(self, chat_id: str) -> _Group:
        return self._groups[zlib.crc32(check_name("chat", chat_id).encode()) % len(self._groups)]
