"""The background task that moves jobs to their queue when they are due."""

import logging
import time

import anyio

from inconcert._core.session import Session
from inconcert.errors import InconcertError
from inconcert.tasks.store import PROMOTE, JobKeys, QueueKeys

__all__ = ["Promoter"]

_log = logging.getLogger("inconcert.tasks")

_AFTER_A_FAILURE = 1.0  # seconds


class Promoter:
    """Sleeps until the next job is due and moves it. Any number of promoters may work at once, without a lock.

    It asks the server only when something is due: whoever enqueues a job that is due before all others wakes a
    consumer, whose claim tells when, and the consumer tells its promoter.

    Args:
        session: The open session.
        keys: The keys of all tasks.
        queues: Whose delayed jobs to move.
    """

    def __init__(self, session: Session, keys: JobKeys, queues: list[QueueKeys]) -> None:
        self._session = session
        self._keys = keys
        self._queues = queues
        self._due_at: float | None = None  # by the local clock; the server's own decides
        self._sooner = anyio.Event()

    def look_in(self, seconds: float) -> None:
        """Something is due in this time."""
        due_at = time.monotonic() + seconds
        if self._due_at is None or due_at < self._due_at:
            self._due_at = due_at
            self._sooner.set()

    async def run(self) -> None:
        """Promote until cancelled."""
        while True:
            while self._due_at is None or time.monotonic() < self._due_at:
                self._sooner = anyio.Event()
                left = None if self._due_at is None else self._due_at - time.monotonic()
                with anyio.move_on_after(left):
                    await self._sooner.wait()
            self._due_at = None
            try:
                await self.promote()
            except InconcertError as error:
                _log.warning("delayed jobs cannot be moved yet: %s", error)
                self.look_in(_AFTER_A_FAILURE)

    async def promote(self) -> None:
        """Move what is due now."""
        for queue in self._queues:
            await self._promote(queue)

    async def _promote(self, queue: QueueKeys) -> None:
        next_ms = 0
        while next_ms == 0:
            moved, next_ms = await self._session.run(
                PROMOTE, (queue.delayed, queue.queue, queue.bell, self._keys.states)
            )
            if moved:
                _log.debug("%d jobs of queue %r are due", moved, queue.name)
        if next_ms > 0:
            self.look_in(next_ms / 1000)
