"""Which chats a user is in, and in which there is something new."""

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from inconcert._core.session import Session
from inconcert._redis.call import Call
from inconcert._redis.scripts import load
from inconcert.chat.asking import together
from inconcert.chat.places import ListKeys, Places

__all__ = ["Listed", "read_all", "read_news"]

_LIST = load("chat/list").bind(ListKeys)
_NEWS = load("chat/news").bind(ListKeys)


class Listed(NamedTuple):
    """A chat on a user's list."""

    chat_id: str
    read: int  # the id of the last message that the user has read


async def read_all(session: Session, places: Places, user: str) -> tuple[list[Listed], list[Listed]]:
    """The chats of a user, and those of them in which not all is read: for each chat both as of one moment.

    Cost: 1 round trip with 4 scripts; O(N) for N chats.
    """
    replies = await together(session, [Call(_LIST(keys)) for keys in places.of_lists(user)])
    listed, news = zip(*replies, strict=True)
    return _listed(listed), _listed(news)


async def read_news(session: Session, places: Places, user: str) -> list[Listed]:
    """The chats of a user in which not all is read.

    Cost: 1 round trip with 4 scripts; O(N) for N chats.
    """
    return _listed(await together(session, [Call(_NEWS(keys)) for keys in places.of_lists(user)]))


def _listed(groups: Iterable[list[bytes]]) -> list[Listed]:
    found = (entry.decode().split(" ") for entry in chain.from_iterable(groups))
    return [Listed(chat_id, int(read)) for chat_id, read in found]
