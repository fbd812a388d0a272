"""One queue of items, as it lies in Redis: what all that is claimed has, under a tag of its own.

    told  hash  session -> when it was told that there is room for what it waits to put in, if it has not come since

The others are in _claims/keys.py.

Source: docs/explanation/queues.md
"""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from inconcert._claims.keys import ClaimKeys, QueueKeys
from inconcert._redis.keys import Keyspace
from inconcert._redis.scripts import load

__all__ = ["INSPECT", "LEAVE", "PURGE_READY", "PUT", "ItemKeys", "ItemRow", "QueueState", "item_of"]


def item_of(queue: str) -> str:
    """As what an item of this queue is signed: it means something only there."""
    return f"item of queue '{queue}'"


class LineKeys(NamedTuple):
    """Where those wait who have something to put into a full queue."""

    line: str
    told: str
    recent: str
    older: str


class ItemKeys(ClaimKeys):
    """The keys of one queue of items; they share one slot.

    Args:
        keys: The keys of the namespace.
        name: Which queue.

    Raises:
        InvalidName: `name` is empty, too long or no valid string.
    """

    __slots__ = ("only", "told")

    def __init__(self, keys: Keyspace, name: str) -> None:
        super().__init__(partial(keys.parts, "queue", name))
        [self.told] = self._parts("told")
        self.only = QueueKeys("", *self._parts("queue", "bell", "delayed"))

    def queue(self, name: str) -> QueueKeys:
        """There is only one."""
        del name
        return self.only

    def results(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Nobody asks what became of an item."""
        del ids
        return ()


class QueueState(NamedTuple):
    """How a queue is, as the script that inspects it answers.

    Attributes:
        ready: Items that may be taken now.
        delayed: Items that may be taken later.
        claimed: Items that somebody has.
        dead: Items that were set aside.
        oldest_ms: For how long the oldest that is ready has been there; -1 if none is.
    """

    ready: int
    delayed: int
    claimed: int
    dead: int
    oldest_ms: int


class ItemRow(NamedTuple):
    """An item that is ready; what it was put in as is in its body."""

    id: bytes
    body: bytes


PUT = load("queues/put").bind(ItemKeys, QueueKeys)
LEAVE = load("queues/leave").bind(LineKeys)
INSPECT = load("queues/inspect").bind(ItemKeys, QueueKeys)
PURGE_READY = load("queues/purge").bind(ItemKeys, QueueKeys)
