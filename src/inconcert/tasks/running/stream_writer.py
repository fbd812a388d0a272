"""Runs a task that is an async generator: its items become the items of the job's stream.

Items that are yielded in one turn of the event loop go by one script, and while it is under way the next ones gather.
A generator that is faster than that waits.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial

import anyio

from inconcert._core.cancellation import cancel_all
from inconcert._core.retry import retry_until_answered
from inconcert._core.shield import run_shielded
from inconcert._rules.durations import milliseconds
from inconcert.errors import InvalidPayload, NotClaimed
from inconcert.tasks.following.feed import ITEM, signed_id
from inconcert.tasks.records.arguments import encode_result
from inconcert.tasks.records.store import APPEND_ITEMS
from inconcert.tasks.running.job_state import JobState

_log = logging.getLogger("inconcert.tasks")

_MOST = 500  # items in one script, and that wait to be sent
_MOST_BYTES = 2**20  # likewise; one item more may go with them
_LONGEST_TURN = 0.005  # seconds after which a generator that does not await lets the event loop run
_TTL = 86_400.0  # seconds for which items are kept after the last one, while the job may run
_LONGEST_CLOSE = 10.0  # seconds in which the server is to accept some of what is left, once the generator was stopped
_SHORTEST_TTL = 60.0  # seconds, of the items of a job that has ended, so that its followers get to the end


async def append_items(job: JobState, first: int, texts: Sequence[bytes], ttl: float) -> None:
    """Add items to the stream of a job, the first with this number.

    Raises:
        NotClaimed: The job has ended, or its worker was presumed dead.
    """
    session, keys, worker, claimed, _ = job.link
    sign = session.key_ring.sign
    command = APPEND_ITEMS(
        claimed=claimed,
        stream=keys.stream(job.id),
        items=keys.items(job.id),
        id=job.id,
        worker=worker,
        position=job.position,
        attempt=job.attempt,
        first=first,
        ttl_ms=milliseconds(ttl),
        channel=keys.stream_channel(job.id),
        added=[sign(ITEM, signed_id(job.attempt, first + n, job.id), text) for n, text in enumerate(texts)],
    )
    if job.is_over or not await session.run(command):
        raise NotClaimed("job", job.id)
    if texts:
        job.observers.items_added(job, len(texts))


async def write_stream(job: JobState, call: Callable[[], AsyncGenerator[object, None]]) -> None:
    """Run a generator to its end, and add its items to the job's stream.

    However it ends, its `finally` has run, and all its items are in the stream; unless it was stopped or has
    failed, and the server accepts nothing for 10 s.

    Raises:
        InvalidPayload: An item is not JSON, or larger than 1 MiB; another attempt would yield it again.
        NotClaimed: The job has ended, or its worker was presumed dead.
    """
    writer = _Writer(job)
    await writer.begin()
    job.before_its_end(writer.finish)
    try:
        async with aclosing(call()) as values:
            async for value in values:
                await writer.add(value)
        await writer.finish()
    finally:
        await run_shielded(writer.close())


async def run_unwritten(job: JobState, call: Callable[[], AsyncGenerator[object, None]]) -> None:
    """Run a generator to its end, of a job that is undone: each item was in the stream before, or never is."""
    del job
    async with aclosing(call()) as values:
        async for _ in values:
            pass


class _Writer:
    """Sends the items of one attempt, in order: one script at a time, with all that came meanwhile."""

    def __init__(self, job: JobState) -> None:
        self._job = job
        self._ttl = max(job.envelope.result_ttl, _TTL)
        self._last = 0  # the number of the last item that was added
        self._waiting: deque[bytes] = deque()
        self._bytes = 0  # of those
        self._changed = asyncio.Event()  # for the sender: there are items, or there will be no more
        self._room = asyncio.Event()
        self._is_closing = False
        self._failure: Exception | None = None
        self._sender: asyncio.Task[None] | None = None
        self._turn_began_at = 0.0

    async def begin(self) -> None:
        """Begin the stream again: its followers learn of the attempt at once."""
        await self._send([])
        self._turn_began_at = time.monotonic()
        self._sender = asyncio.create_task(self._run(), name=f"the stream of job {self._job.id}")

    async def add(self, value: object) -> None:
        """Add an item; waits while too many are not sent yet."""
        if self._is_closing:
            raise NotClaimed("job", self._job.id)
        if self._job.doomed is not None:
            raise self._job.doomed.again()
        try:
            text = encode_result(f"item {self._last + 1} of the stream of job {self._job.id}", value)
        except InvalidPayload as error:
            self._job.doom(error)
            raise
        self._last += 1
        self._waiting.append(text)
        self._bytes += len(text)
        self._changed.set()
        while self._is_full:
            self.raise_failure()
            self._room.clear()
            await self._room.wait()
            self._turn_began_at = time.monotonic()
        if time.monotonic() - self._turn_began_at > _LONGEST_TURN:
            await anyio.lowlevel.checkpoint()
            self._turn_began_at = time.monotonic()
        self.raise_failure()

    async def finish(self) -> None:
        """Return when everything was sent, or raise the error with which sending has ended."""
        await asyncio.wait([self._end()])
        self.raise_failure()

    async def close(self) -> None:
        """Return when everything was sent; what the server does not accept in time is dropped."""
        sender, left = self._end(), -1
        while not sender.done() and len(self._waiting) != left:  # the server accepts some
            left = len(self._waiting)
            await asyncio.wait([sender], timeout=_LONGEST_CLOSE)
        if not sender.done():
            _log.warning("the stream of job %s lacks its last items: the server does not accept them", self._job.id)
            await cancel_all([sender])

    def raise_failure(self) -> None:
        """Raise the error with which sending has ended."""
        if self._failure is not None:
            raise self._failure

    # Private.

    @property
    def _is_full(self) -> bool:
        return self._failure is None and (len(self._waiting) >= _MOST or self._bytes >= _MOST_BYTES)

    def _end(self) -> asyncio.Task[None]:
        """Take no more; returns the task that sends the rest."""
        assert self._sender is not None  # noqa: S101 - it has begun
        self._is_closing = True
        self._changed.set()
        return self._sender

    async def _run(self) -> None:
        try:
            while not self._is_closing or self._waiting:
                self._changed.clear()
                if self._waiting:
                    await self._send(self._next())
                elif not self._is_closing:
                    await self._changed.wait()
            self._ttl = max(self._job.envelope.result_ttl, _SHORTEST_TTL)
            await self._send([])
        except Exception as error:  # noqa: BLE001 - it is raised where the generator yields
            self._failure = error
        finally:
            self._room.set()

    def _next(self) -> list[bytes]:
        batch: list[bytes] = []
        size = 0
        while self._waiting and len(batch) < _MOST and size < _MOST_BYTES:
            batch.append(self._waiting.popleft())
            size += len(batch[-1])
        self._bytes -= size
        self._room.set()
        return batch

    async def _send(self, batch: list[bytes]) -> None:
        first = self._last - len(self._waiting) - len(batch) + 1
        append = partial(append_items, self._job, first, batch, self._ttl)
        await retry_until_answered(_log, f"the stream of job {self._job.id}", append)
