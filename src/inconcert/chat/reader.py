"""Reading in chats: the cursor of a fetch, a page of history, counts, and which chats of a user have new messages."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from inconcert._core.session import Session
from inconcert._redis.protocol.replies import Reply, head
from inconcert._redis.protocol.scripts import load
from inconcert._redis.wire.call import Call
from inconcert._rules.codec import Codec
from inconcert.chat.keys import ChatKeys, ChatKeyspace, ListKeys
from inconcert.chat.messages import Batch, Message, read_messages
from inconcert.errors import ChatNotFound, NotAMember

_FETCH = load("chat/fetch").bind(ChatKeys)
_HISTORY = load("chat/history").bind(ChatKeys)
_UNREAD = load("chat/unread").bind(ChatKeys)
_LIST = load("chat/list").bind(ListKeys)
_NEWS = load("chat/news").bind(ListKeys)

_DONE, _NOT_A_MEMBER = 1, 0  # the first element of a reply; below 0 if the chat does not exist; then comes the user

PAGE = 1_000  # messages in one reply: a millisecond of the server's time


class _FetchedPage(NamedTuple):
    """Answer of `chat/fetch`; the messages follow."""

    outcome: int
    missed: int  # messages dropped before the user read them
    first: int  # the id of the first message here
    last: int  # the id of the latest message


class _HistoryPage(NamedTuple):
    """Answer of `chat/history`; the messages follow."""

    outcome: int
    end: int  # the id before which this page ends
    first: int  # the id of its first message


class _UnreadCount(NamedTuple):
    """Answer of `chat/unread`."""

    outcome: int
    counted: int
    after: int  # the id after which to count the rest; -1 if that was all


@dataclass(slots=True)
class Cursor:
    """The progress of one fetch in one chat."""

    chat_id: str
    keys: ChatKeys  # the chat's keys
    codec: Codec[Any]  # how its messages are read
    most: int  # how many messages to fetch
    at: int = -1  # the id of the last message fetched or dropped; -1 for the read position, which the server knows
    end: int = -1  # where to stop: the latest message when the fetch began; -1 before the first reply
    missed: int = 0  # how many messages were dropped
    messages: list[Message[Any]] = field(default_factory=list[Message[Any]])  # the messages fetched so far
    unfit: list[Message] = field(default_factory=list[Message])  # those that do not fit the type

    @property
    def has_news(self) -> bool:
        """True if anything was fetched, or missed."""
        return bool(self.messages or self.unfit or self.missed)

    @property
    def has_more(self) -> bool:
        """True if to fetch again."""
        return self.at < self.end and self._wanted > 0

    def fetch(self, user: str) -> Call:
        """The call for the next messages."""
        return Call(_FETCH(self.keys, user=user, after=self.at, count=min(PAGE, self._wanted)))

    def advance(self, reply: Reply) -> None:
        """Add the messages of a reply to `fetch`."""
        if is_refused(reply):  # the user has left meanwhile
            self.end = self.at
            return
        page, texts = head(reply, _FetchedPage)
        if self.end < 0:
            self.end = page.last
        self.at = page.first + len(texts) - 1
        fit, unfit = read_messages(self.chat_id, self.codec, page.first, texts)
        self.missed += page.missed + len(texts) - len(fit) - len(unfit)
        self.messages += fit
        self.unfit += unfit

    def batch(self) -> Batch[Any]:
        """The batch for the user."""
        return Batch(self.chat_id, self.messages, self.missed, self.at, self.unfit)

    @property
    def _wanted(self) -> int:
        return self.most - len(self.messages) - len(self.unfit)


class Listed(NamedTuple):
    """A chat on a user's list."""

    chat_id: str
    read: int  # the id of the last message that the user has read


async def list_chats(session: Session, keys: ChatKeyspace, user: str) -> tuple[list[Listed], list[Listed]]:
    """The chats of a user, and those of them with unread messages: for each chat both as of one moment.

    Cost: 1 round trip with 4 scripts; O(N) for N chats.
    """
    replies = await session.gather([Call(_LIST(each)) for each in keys.user_lists(user)])
    listed, unread = zip(*replies, strict=True)
    return _listed(listed), _listed(unread)


async def list_unread(session: Session, keys: ChatKeyspace, user: str) -> list[Listed]:
    """The chats of a user with unread messages.

    Cost: 1 round trip with 4 scripts; O(N) for N chats.
    """
    return _listed(await session.gather([Call(_NEWS(each)) for each in keys.user_lists(user)]))


def _listed(groups: Iterable[list[bytes]]) -> list[Listed]:
    found = (entry.decode().split(" ") for entry in chain.from_iterable(groups))
    return [Listed(chat_id, int(read)) for chat_id, read in found]


async def fetch_new(session: Session, keys: ChatKeyspace, codec: Codec[Any], user: str, most: int) -> list[Batch[Any]]:
    """News for a user, at most so many messages of each chat; see `Chats.fetch`."""
    unread = await list_unread(session, keys, user)
    cursors = [Cursor(chat.chat_id, keys.chat(chat.chat_id), codec, most) for chat in unread]
    unfinished = cursors
    while unfinished:
        replies = await session.gather([cursor.fetch(user) for cursor in unfinished])
        for cursor, reply in zip(unfinished, replies, strict=True):
            cursor.advance(reply)
        unfinished = [cursor for cursor in unfinished if cursor.has_more]
    return [cursor.batch() for cursor in cursors if cursor.has_news]


async def read_history(
    session: Session, keys: ChatKeys, codec: Codec[Any], chat_id: str, user: str, *, before: int, limit: int
) -> list[Message[Any]]:
    """The latest messages of a chat before the one with this id, 0 for none; see `Chats.history`."""
    found: list[Message[Any]] = []
    while limit:
        reply = await session.run(_HISTORY(keys, user=user, before=before, count=limit))
        check_answer(reply, chat_id)
        page, texts = head(reply, _HistoryPage)
        found += read_messages(chat_id, codec, page.first, texts).fit
        before = page.end
        limit = page.end - page.first - len(texts) if texts else 0
    return found


async def count_unread(session: Session, keys: ChatKeyspace, user: str) -> dict[str, int]:
    """The number of messages of others that a user has not read, for each chat that has any; see `Chats.unread`."""
    counts: dict[str, int] = {}
    uncounted = {chat.chat_id: -1 for chat in await list_unread(session, keys, user)}
    while uncounted:
        calls = [Call(_UNREAD(keys.chat(chat_id), user=user, after=after)) for chat_id, after in uncounted.items()]
        replies = dict(zip(uncounted, await session.gather(calls), strict=True))
        uncounted = {}
        for chat_id, reply in replies.items():
            if is_refused(reply):  # the user has left meanwhile
                continue
            unread = _UnreadCount._make(reply)
            counts[chat_id] = counts.get(chat_id, 0) + unread.counted
            if unread.after >= 0:
                uncounted[chat_id] = unread.after
    return {chat_id: count for chat_id, count in counts.items() if count}


def is_refused(reply: Reply) -> bool:
    """True if the user is not a member, or the chat does not exist."""
    outcome, *_ = reply
    return bool(outcome != _DONE)


def check_answer(reply: Reply, chat_id: str) -> None:
    """Raise the error that a refusal stands for.

    Raises:
        NotAMember: The user is not in the chat.
        ChatNotFound: The chat does not exist.
    """
    if is_refused(reply):
        outcome, user = reply
        raise NotAMember(chat_id, user.decode()) if outcome == _NOT_A_MEMBER else ChatNotFound(chat_id)
