"""The background task that moves due entries to their queue."""

import logging
import time
from collections.abc import Sequence

import anyio

from inconcert._claims.keys import PROMOTE, ClaimKeys, QueueKeys
from inconcert._core.session import Session
from inconcert.errors import InconcertError

_log = logging.getLogger("inconcert.claims")

_AFTER_A_FAILURE = 1.0  # seconds


class Promoter:
    """Sleeps until something is due and moves it. Any number of promoters may work at once, without a lock.

    It asks the server only when something is due: adding something that is due before all else wakes a consumer, whose
    claim returns when, and the consumer passes that to its promoter.

    Args:
        keys: The keys of everything claimed under one tag.
        queues: The queues whose delayed items to move.
        to_the_front: Whether due entries go to the front of its queue.
    """

    def __init__(
        self, session: Session, keys: ClaimKeys, queues: Sequence[QueueKeys], *, to_the_front: bool = False
    ) -> None:
        self._session = session
        self._keys = keys
        self._queues = queues
        self._front = int(to_the_front)
        self._due_at: float | None = None  # by the local clock; the server's clock decides
        self._sooner = anyio.Event()

    def recheck_in(self, seconds: float) -> None:
        """Something is due in this many seconds."""
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
            except Exception as error:
                self.recheck_in(_AFTER_A_FAILURE)
                if not isinstance(error, InconcertError):
                    raise
                _log.warning("what is due cannot be moved yet: %s", error)

    async def promote(self) -> None:
        """Move the entries that are due now."""
        for queue in self._queues:
            await self._promote(queue)

    async def _promote(self, queue: QueueKeys) -> None:
        next_ms = 0
        while next_ms == 0:
            moved, next_ms = await self._session.run(PROMOTE(self._keys, queue, front=self._front))
            if moved:
                _log.debug("%d are due in queue %r", moved, queue.name)
        if next_ms > 0:
            self.recheck_in(next_ms / 1000)
