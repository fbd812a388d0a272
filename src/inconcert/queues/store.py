"""The keys of one queue of items: those of everything that is claimed, under a tag of its own.

Source: docs/explanation/queues.md
"""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from inconcert._claims.keys import ClaimKeys, QueueKeys
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.replies import Reply, rows
from inconcert._redis.protocol.scripts import load


def item_of(queue: str) -> str:
    """The kind as which an item of this queue is signed: it is valid only there."""
    return f"item of queue '{queue}'"


def split_item(body: bytes) -> tuple[int, bytes]:
    """The time at which it was put in, in server ms, and its text; 0 if the time cannot be read."""
    put_ms, _, text = body.partition(b" ")
    return (int(put_ms), text) if put_ms.isdigit() else (0, body)


class LineKeys(NamedTuple):
    """The keys of the line for room in a full queue."""

    line: str  # zset: address -> ticket: puts that wait for room
    told: str
    recent: str
    older: str


class ItemKeys(ClaimKeys, plugs="items"):
    """The keys of one queue of items; they share one slot.

    Args:
        name: Which queue.

    Raises:
        InvalidName: `name` is empty, too long or not a valid string.
    """

    told: str  # hash: session -> when it was notified that there is room for its items, if it has not put any in since
    shut: str  # string: 1 it is shut down | 2 at once: consumers end, whatever others hold; until it is opened again
    standby: str  # zset: address -> when it asked, server ms: consumers that have nothing to do; 60 s

    def __init__(self, keys: Keyspace, name: str) -> None:
        super().__init__(partial(keys.parts, "queue", name))
        self.only = QueueKeys("", *self._parts("queue", "bell", "delayed"))

    def queue(self, name: str) -> QueueKeys:
        """There is only one."""
        del name
        return self.only

    def results(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Items have no results."""
        del ids
        return ()


class QueueState(NamedTuple):
    """The counts of a queue, and whether it takes more, as the script returns them."""

    ready: int  # items that may be taken now
    delayed: int  # items that may be taken later
    claimed: int  # items that are claimed
    dead: int  # items that were dead-lettered
    oldest_ms: int  # how long the oldest ready item has been there; -1 if there is none
    due_in_ms: int  # how long until the first delayed item is due; -1 if there is none
    now_ms: int  # the server's time
    shut: int  # 1 if it is shut down, 2 at once; 0 if it is open
    in_line: int  # calls of `put` that wait for room


class ItemRow(NamedTuple):
    """A ready item, with its stored body."""

    id: bytes
    body: bytes


def read_state(reply: Reply) -> tuple[QueueState, list[ItemRow]]:
    """The state of a queue, and its next items."""
    count = len(QueueState._fields)
    return QueueState(*reply[:count]), rows(reply[count:], ItemRow)


PUT_PLAIN = load("queues/put_plain").bind(ItemKeys, QueueKeys)
PUT = load("queues/put").bind(ItemKeys, QueueKeys)
GET = load("queues/get").bind(ItemKeys, QueueKeys)
ACK = load("queues/ack+items").bind(ItemKeys)
LEAVE = load("queues/leave").bind(LineKeys)
JOIN = load("queues/join").bind(ItemKeys)
SHUT = load("queues/shut").bind(ItemKeys)
STANDBY = load("queues/standby").bind(ItemKeys)
INSPECT = load("queues/inspect").bind(ItemKeys, QueueKeys)
PURGE_READY = load("queues/purge").bind(ItemKeys, QueueKeys)
