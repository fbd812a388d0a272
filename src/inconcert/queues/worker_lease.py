"""The worker lease of one queue's items."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from inconcert._claims.claimed import NOBODY, Ending, Row
from inconcert._claims.consumer import Guarantee
from inconcert._claims.ends import Ack, Ended
from inconcert._claims.partition import ClaimPartition
from inconcert._claims.policy import Strict
from inconcert._claims.worker_lease import WorkerLease
from inconcert._core.session import Session
from inconcert._redis.protocol.scripts import Command
from inconcert._rules.codec import Codec, T
from inconcert._rules.signing import KeyRing
from inconcert.errors import UnreadablePayload
from inconcert.queues.delivery import ItemState
from inconcert.queues.store import ACK, GET, ItemKeys, item_of, split_item

QueueOrder = Literal["fifo", "lifo"]
"""Where items are put in: behind all that is there, or before; they are always taken from the front."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of claiming items of a queue; waiters on the same terms share a worker.

    Attributes:
        name: Which queue.
        order: Where a delayed item goes when it is due.
        ttl: How long the worker may be silent, in seconds.
        max_attempts: How many attempts may fail before an item is dead-lettered.
        max_crashes: How many workers may die with an item before it is dead-lettered.
        delivery: Whether items may be delivered again.
        codec: How its items are read.
    """

    name: str
    order: QueueOrder
    ttl: float
    max_attempts: int
    max_crashes: int
    delivery: Guarantee
    codec: Codec[Any] = field(hash=False)  # a type need not have a hash


class ItemWorkerLease(WorkerLease[ItemState[Any]]):
    """A worker that claims items.

    Args:
        terms: How it claims them.
        owner: See `WorkerLease`.
    """

    _acks_at_once = True
    _keys: ItemKeys

    def __init__(
        self,
        session: Session,
        keys: ItemKeys,
        terms: Terms,
        owner: ClaimPartition[ItemState[Any]],
    ) -> None:
        only = Strict([keys.only.name])
        super().__init__(session, keys, [keys.only], only, owner, lease=terms.ttl)
        self._terms = terms

    def _claim(self, order: Sequence[str], count: int, *, suspects: int) -> Command:
        del order  # there is only one queue
        return GET(
            self._keys,
            self._keys.only,
            claimed=self.claimed_key,
            worker=self.holder,
            number=self._number,
            count=count,
            suspects=suspects,
        )

    def _ack(self, batch: list[Ended]) -> Ack:
        command = ACK(
            self._keys,
            claimed=self.claimed_key,
            inboxes=self._session.inboxes(self._keys.bodies),
            worker=self.holder,
            items=[part for ended in batch for part in (ended.claimed.id, ended.claimed.position)],
        )
        return _Ack(self, command, batch)

    def _read(self, row: Row, now_ms: int) -> tuple[ItemState[Any], Ending | None]:
        del now_ms
        id_ = row.id.decode()
        item: object = None
        obstacle: Exception | None = None
        put_ms, text = split_item(row.body)
        try:
            item = read_item(self._session.key_ring, self._terms.name, self._terms.codec, id_, text)
        except Exception as unreadable:  # noqa: BLE001 - also of the type's own code; it would keep us from all others
            obstacle = unreadable
        state = ItemState(
            self,
            id_,
            self._terms.name,
            row.queue.decode(),
            row.position,
            row.attempt,
            row.failures,
            self._terms.max_attempts,
            self._terms.max_crashes,
            NOBODY,
            item,
            put_ms / 1000,
        )
        if self._terms.delivery == "at_most_once":
            state.stored = row.body
        return state, None if obstacle is None else partial(state.bury, obstacle)


class _Ack(Ack):
    """Of items; it is sent by itself, since a consumer takes the next item only when this one is done."""

    __slots__ = ()

    goes_at_once = True


def read_item(key_ring: KeyRing, queue: str, codec: Codec[T], item_id: str, text: bytes) -> T:
    """The item that was stored in this queue with this text.

    Raises:
        UnreadablePayload: It is not signed as the keys demand, cannot be read, or does not fit the type of the items.
    """
    verified = key_ring.verify(item_of(queue), item_id, text)
    try:
        return codec.decode(verified)
    except ValueError as error:
        raise UnreadablePayload(f"item {item_id} cannot be read: {error}") from error
