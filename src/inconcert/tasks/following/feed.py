"""The stream of a job as this process follows it: all that do share one subscription, and what was read.

A message on the channel is only a hint to read. Of several readers at the same position, the first reads for all.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

import anyio

from inconcert._core.own_loop import check_loop
from inconcert._core.session import Session
from inconcert._redis.protocol.replies import Reply, head
from inconcert.errors import InconcertError
from inconcert.tasks.records.status import Snapshot
from inconcert.tasks.records.store import READ_ITEMS, JobKeys

ITEM = "item"  # the kind as which an item is signed

_RECHECK_AFTER = 60.0  # seconds; as the wait for the end of a job: the server forgets the address after 180


def signed_id(attempt: int, number: int, job_id: str) -> str:
    """The id as which an item is signed."""
    return f"{attempt} {number} {job_id}"


class _Head(NamedTuple):
    """Answer of `tasks/read_items`; the items follow."""

    run: bytes
    attempt: int
    first: int
    last: int


class Items(NamedTuple):
    """Items of a stream that follow one another."""

    run: str  # which run of the generator wrote them; empty if none has begun
    attempt: int  # which attempt of the job that is
    first: int  # the number of the first item
    last: int  # the number of the latest item that there is
    texts: Sequence[bytes]  # as they are stored, without their signatures


async def read_items(session: Session, keys: JobKeys, job_id: str, run: str, after: int) -> Items:
    """The items behind this one of a run, or behind none; or as many of the latest, if the number is below 0.

    Raises:
        UnreadablePayload: An item has no valid signature.
    """
    read = READ_ITEMS(stream=keys.stream(job_id), items=keys.items(job_id), run=run, after=after)
    reply: Reply = await session.run(read)
    found, signed = head(reply, _Head)
    verify, attempt = session.key_ring.verify, found.attempt
    texts = [verify(ITEM, signed_id(attempt, found.first + index, job_id), text) for index, text in enumerate(signed)]
    return Items(found.run.decode(), attempt, found.first, found.last, texts)


class Page(NamedTuple):
    """The items behind one position of a stream."""

    asked: tuple[str, int]  # behind which item: the run, and the number
    changed: asyncio.Event  # set once there may be more
    seen: Snapshot  # the state of the job before it was read
    items: Items

    @property
    def is_stale(self) -> bool:
        """True if it says nothing, and there may be something by now."""
        return not self.items.texts and self.changed.is_set()


class Feed:
    """The stream of one job."""

    def __init__(self, session: Session, keys: JobKeys, job_id: str, address: str) -> None:
        self._session = session
        self._keys = keys
        self._job_id = job_id
        self._address = address
        self._channel = keys.stream_channel(job_id)
        self._turn = anyio.Lock()
        self._is_open = False
        self._changed = asyncio.Event()
        self._seen: Snapshot | None = None  # until the state must be checked again
        self._checked_at = 0.0
        self._page: Page | None = None
        self._end: InconcertError | None = None

    async def open(self) -> None:
        """Subscribe, unless another has: every later item is hinted at; and check the state of the job next time.

        Raises:
            Unavailable: The server did not confirm in time, or refused.
        """
        async with self._turn:
            if not self._is_open:
                await self._session.broadcasts.listen(self._channel, self)
                self._is_open = True
        self.recheck()

    def close(self) -> None:
        """End the subscription."""
        self._session.broadcasts.forget(self._channel, self)

    async def read(self, run: str, number: int) -> Page:
        """The items behind an item: those that another reader has just read, or the server's.

        Raises:
            Unavailable: The server could not be asked, or refused us when the connection came back.
            UnreadablePayload: An item has no valid signature.
        """
        check_loop(self._session.loop, f"stream of job {self._job_id}")
        async with self._turn:
            if self._end is not None:
                raise self._end.with_traceback(None)  # many raise this one
            page = self._page
            if self._seen is None or page is None or page.asked != (run, number) or page.is_stale:
                page = self._page = await self._read(run, number)
            return page

    async def woken(self, changed: asyncio.Event) -> None:
        """Return when there may be more to read than what a page had."""
        check_loop(self._session.loop, f"stream of job {self._job_id}")
        with anyio.move_on_after(_RECHECK_AFTER):
            await changed.wait()
        if time.monotonic() - self._checked_at >= _RECHECK_AFTER:  # however many items have come meanwhile
            self.recheck()

    def recheck(self) -> None:
        """Something may have been missed, or the job has ended: check its state, too."""
        self._seen = None
        self.missed()

    # Called by the connection.

    def on_message(self, channel: str, text: bytes) -> None:
        """There are new items."""
        del channel, text
        self.missed()

    def missed(self) -> None:
        """The connection was away: there may be new items."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def closed(self, error: InconcertError) -> None:
        """The coordinator closes, or the server refuses us: nothing more will come."""
        self._end = error
        self.missed()

    # Private.

    async def _read(self, run: str, number: int) -> Page:
        changed, seen = self._changed, self._seen  # a hint from now on is for the next page
        if seen is None:
            self._checked_at = time.monotonic()
            seen = Snapshot.read(await self._session.run(Snapshot.take(self._keys, self._job_id, self._address)))
            if not changed.is_set():
                self._seen = seen
        items = await read_items(self._session, self._keys, self._job_id, run, number)
        return Page((run, number), changed, seen, items)
