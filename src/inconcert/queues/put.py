"""Putting items into a queue, and waiting in line while there is no room."""

import random
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Generic, NamedTuple, get_args

from inconcert._core.origin import Origin
from inconcert._core.session import Session, on_unclaimed
from inconcert._redis.protocol.commands import Argument
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command
from inconcert._redis.wire.call import Call
from inconcert._rules.codec import Codec, T, codec_of
from inconcert._rules.durations import milliseconds
from inconcert._rules.limits import whole
from inconcert._rules.names import check_item_id
from inconcert.errors import (
    InconcertError,
    InvalidPayload,
    NotConnected,
    OutcomeUnknown,
    QueueFull,
    QueueShutDown,
    Unavailable,
)
from inconcert.queues.store import LEAVE, PUT, PUT_PLAIN, ItemKeys, LineKeys, item_of
from inconcert.queues.waiter import LONGEST_WAIT, SHORTEST_WAIT, QueueWaiter
from inconcert.queues.worker_lease import QueueOrder

_MOST = 500  # items in one script
_MOST_BYTES = 8 * 2**20  # in one script, so that none holds up the server for long
_IN, _THERE, _SHUT, _BEHIND_OTHERS = 1, 2, 3, -1  # what the script returns
_ROOM = "room"  # what a script sends to the first in line


def check_putting(order: QueueOrder, maxsize: int | None) -> None:
    """Check how items are put in.

    Raises:
        ValueError: `order` is neither `fifo` nor `lifo`, or `maxsize` is not a whole number from 1.
    """
    if order not in get_args(QueueOrder):
        raise ValueError(f"order is {order!r}; give 'fifo' or 'lifo'")
    if maxsize is not None:
        whole("maxsize", maxsize)


def item_codec(name: str, item_type: Any) -> Codec[Any]:  # noqa: ANN401 - also unions and the like
    """The format of a queue's items: of this type, or any JSON if it is None.

    Raises:
        TypeError: JSON cannot represent this type.
    """
    return codec_of(f"item for queue {name!r}", item_type)


class PutTerms(NamedTuple, Generic[T]):
    """The sender of items into one queue."""

    codec: Codec[T]
    order: QueueOrder
    maxsize: int | None


def put_once(
    origin: Origin, keys: ItemKeys, item_id: str, body: bytes, *, order: str, delay_ms: int, maxsize: int | None
) -> Command:
    """The command that puts in an item that is signed already, unless one with its id is there or was a minute ago."""
    return PUT(
        keys,
        keys.only,
        front=int(order == "lifo"),
        delay_ms=delay_ms,
        maxsize=-1 if maxsize is None else maxsize,
        inboxes=origin.inboxes(keys.only.queue),
        request=origin.new_address(),
        is_given=1,
        waits=0,
        items=[item_id, body],
    )


def was_put_in(answer: Reply) -> bool:
    """True if the item is there, as that command answered; False if there was no room, or the queue is shut down."""
    return answer in (_IN, _THERE)


class NewItems:
    """Items on their way in, all of them or none: they have ids, and are signed.

    Raises:
        ValueError: There are more than 500, or than `maxsize`.
        InvalidPayload: One cannot be sent, or they are larger than 8 MiB together.
    """

    def __init__(
        self,
        origin: Origin,
        keys: ItemKeys,
        name: str,
        items: Sequence[T],
        codec: Codec[T],
        *,
        order: QueueOrder,
        delay: float,
        maxsize: int | None,
        item_id: str | None = None,  # of the one item, which is put in unless there is one with this id
    ) -> None:
        most = min(_MOST, maxsize or _MOST)
        if len(items) > most:
            raise ValueError(f"{len(items)} items are too many for queue {name!r} at once; put at most {most}")
        self.request = origin.new_address()
        given = None if item_id is None else check_item_id(name, item_id)
        kind, size = item_of(name), 0
        self._items: list[Argument] = []
        for item in items:
            text = codec.encode(item)
            size += len(text)
            id_ = origin.new_address() if self._items else given or self.request
            self._items += (id_, origin.key_ring.sign(kind, id_, text))
        if size > _MOST_BYTES:
            raise InvalidPayload(f"items for queue {name!r} have more than {_MOST_BYTES} bytes together; put fewer")
        self.queue = name
        self._origin = origin
        self._keys = keys
        self._front = int(order == "lifo")
        self._delay_ms = milliseconds(delay)
        self._maxsize = maxsize
        self._is_given = item_id is not None

    def put(self, *, waits: bool = False) -> Command:
        """The command that puts them in, or has them wait in line for room."""
        keys = self._keys
        if self._maxsize is None and not self._delay_ms and not self._is_given:
            return PUT_PLAIN(keys, keys.only, front=self._front, items=self._items)
        return PUT(
            keys,
            keys.only,
            front=self._front,
            delay_ms=self._delay_ms,
            maxsize=-1 if self._maxsize is None else self._maxsize,
            inboxes=self._origin.inboxes(keys.only.queue),
            request=self.request,
            is_given=int(self._is_given),
            waits=int(waits),
            items=self._items,
        )

    def added(self, answer: Reply) -> bool:
        """True if they were put in, as that command answered to items that do not wait.

        Raises:
            QueueFull: There is no room, or others wait for it.
            QueueShutDown: It takes nothing more.
        """
        if answer == _IN:
            return True
        if answer == _SHUT:
            raise QueueShutDown(self.queue)
        if answer != _THERE:
            raise self.full()
        return False

    def full(self, timeout: float | None = None) -> QueueFull:
        """The error that there is no room, and how long it was waited for, in seconds."""
        return QueueFull(self.queue, self._maxsize or 0, timeout)


class Put(QueueWaiter):
    """A call that waits for room, in line, and puts in some items, all of them or none."""

    verb = "put"

    def __init__(self, session: Session, keys: ItemKeys, items: NewItems) -> None:
        super().__init__(session, items.queue, keys.line, items.request)
        self._keys = keys
        self._items = items

    async def within(self, timeout: float | None) -> bool:
        """Put them in when there is room; None waits forever.

        Returns:
            False if one with the given id is there.

        Raises:
            QueueFull: There was none in time.
            QueueShutDown: It takes nothing more.
        """
        give_up_at = None if timeout is None else time.monotonic() + timeout
        await self._register(timeout)
        answer = None
        try:
            while (answer := await self._put()) not in {_IN, _THERE, _SHUT}:  # if notified, it puts again at once
                left = LONGEST_WAIT if give_up_at is None else give_up_at - time.monotonic()
                if left <= 0:
                    raise self._items.full(timeout)
                longest_wait = SHORTEST_WAIT if answer == _BEHIND_OTHERS else LONGEST_WAIT
                await self._told_within(min(left, random.uniform(SHORTEST_WAIT, longest_wait)))
            return self._items.added(answer)
        finally:
            self._unregister()
            if answer != _IN:
                _leave(self._session, self._keys.line, self.address)

    # Private.

    async def _put(self) -> int:
        answer: int = await self._session.run(self._items.put(waits=True))
        return answer


def _leave_as_told(session: Session, address: str, line: str) -> None:
    """A script has notified a waiter that has gone."""
    _leave(session, line, address)


on_unclaimed(_ROOM, _leave_as_told)


def _leave(session: Session, line: str, address: str) -> None:
    with suppress(NotConnected):  # this process has left all lines
        session.channel.submit(_Leave(session, line, address))


class _Leave(Call):
    """Leaves the line for a waiter that has gone.

    It is repeated until it is answered: while this process lives, nobody overtakes the waiter.
    """

    __slots__ = ("_address", "_session")

    def __init__(self, session: Session, line: str, address: str) -> None:
        command = LEAVE(Keyspace.beside(LineKeys, line), address=address, inboxes=session.inboxes(line))
        super().__init__(command, must_run=True)
        self._session = session
        self._address = address

    def failed(self, error: InconcertError) -> None:
        super().failed(error)
        if isinstance(error, Unavailable | OutcomeUnknown) and not self._session.channel.is_closed:
            _leave(self._session, self.key, self._address)
