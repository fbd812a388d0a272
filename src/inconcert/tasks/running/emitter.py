"""The items that the body of a job emits: a stream of a job whose function is not an async generator.

An item is in the stream when `emit` returns, so nothing is left to be sent when the body ends.  Items that several
tasks of the body emit at once go by one script.  One whose caller was cancelled while it was sent may be in the stream;
it keeps its number, and goes again with the next one, which changes nothing if it is there.

Source: docs/explanation/streams.md
"""

import logging
from functools import partial

import anyio

from inconcert._core.retry import retry_until_answered
from inconcert.tasks.records.arguments import encode_result
from inconcert.tasks.running.job_state import AddItem, JobState
from inconcert.tasks.running.stream_writer import append_items

_log = logging.getLogger("inconcert.tasks")

_MOST = 500  # items in one script
_MOST_BYTES = 2**20  # likewise; one item more may go with them
_TTL = 86_400.0  # seconds for which items are kept after the last one: when the body ends is not known then


def begin_stream(job: JobState) -> AddItem:
    """The sender of the items that the body of this job emits."""
    return _Emitter(job).add


class _Emitter:
    """Adds the items of one attempt to the stream of its job, in the order of the calls."""

    def __init__(self, job: JobState) -> None:
        self._job = job
        self._sent = 0  # the number of the last item that is in the stream
        self._waiting: list[bytes] = []  # those behind it
        self._turn = anyio.Lock(fast_acquire=True)

    async def add(self, item: object) -> None:
        """Return when the item is in the stream; see `ClaimedJob.emit`."""
        number = self._sent + len(self._waiting) + 1
        self._waiting.append(encode_result(f"item {number} of the stream of job {self._job.id}", item))
        while self._sent < number:
            async with self._turn:
                if self._sent < number:
                    await self._send()

    async def _send(self) -> None:
        batch: list[bytes] = []
        size = 0
        while len(batch) < min(_MOST, len(self._waiting)) and size < _MOST_BYTES:
            batch.append(self._waiting[len(batch)])
            size += len(batch[-1])
        ttl = max(self._job.envelope.result_ttl, _TTL)
        append = partial(append_items, self._job, self._sent + 1, batch, ttl)
        await retry_until_answered(_log, f"the stream of job {self._job.id}", append)
        del self._waiting[: len(batch)]
        self._sent += len(batch)
