"""Giving the jobs of a worker back: of one that died, or that retires."""

import logging
from collections.abc import Callable

import anyio

from inconcert._core.session import Session
from inconcert._redis.channel import Call
from inconcert.errors import InconcertError
from inconcert.tasks.reason import Reason
from inconcert.tasks.store import HOLDING, RECOVER, JobKeys, QueueKeys

__all__ = ["Reaper", "put_back"]

_log = logging.getLogger("inconcert.tasks")

_MAX_CRASHES = 3  # workers that may die with a job before it is taken for the reason


class Reaper:
    """The background task that gives the jobs of dead workers back to the front of their queues.

    Any number of reapers may find the same worker: a script decides which jobs it still holds.  A job with which too
    many workers died is set aside, for it may be what kills them.

    Args:
        session: The open session.
        keys: The keys of all tasks.
        on_news: Called when a job was set aside that others wait for.
    """

    def __init__(self, session: Session, keys: JobKeys, on_news: Callable[[], None]) -> None:
        self._session = session
        self._keys = keys
        self._on_news = on_news
        self._dead: set[str] = set()
        self._found = anyio.Event()

    def found(self, workers: list[str]) -> None:
        """These workers are dead."""
        if workers:
            self._dead.update(workers)
            self._found.set()

    async def run(self) -> None:
        """Reap until cancelled."""
        while True:
            await self._found.wait()
            self._found = anyio.Event()
            while self._dead:
                worker = self._dead.pop()
                try:
                    await self._recover(worker)
                except InconcertError as error:  # the next heartbeat finds it again
                    _log.warning("the jobs of dead worker %s cannot be recovered yet: %s", worker, error)

    async def _recover(self, worker: str) -> None:
        keys = self._keys
        names = await self._session.run(HOLDING, (keys.claimed(worker),))
        queues = [keys.queue(name.decode()) for name in names]
        call = _recover(self._session.inboxes, keys, worker, queues, max_crashes=_MAX_CRASHES)
        self._session.channel.submit(call)
        back, dead, others_are_to_be_told = await call
        if others_are_to_be_told:
            self._on_news()
        if back > 0 or dead > 0:
            _log.warning("worker %s is dead: %d of its jobs go back, %d are set aside", worker, back, dead)


def put_back(session: Session, keys: JobKeys, worker: str, queues: list[QueueKeys]) -> None:
    """Give the jobs of a worker that retires back to the front of their queues, without waiting for it."""
    session.channel.submit(_recover(session.inboxes, keys, worker, queues, max_crashes=0))


def _recover(inboxes: str, keys: JobKeys, worker: str, queues: list[QueueKeys], *, max_crashes: int) -> Call:
    places = tuple(key for queue in queues for key in (queue.queue, queue.bell))
    reason = Reason(f"{max_crashes} workers died with it", attempts=max_crashes).stored()
    return Call(
        RECOVER,
        (
            keys.workers,
            keys.claimed(worker),
            keys.crashes,
            keys.dead,
            keys.reasons,
            keys.states,
            keys.progress,
            keys.watchers,
            *keys.kin,
            *places,
        ),
        (worker, max_crashes, reason, inboxes, *(queue.name for queue in queues)),
        must_run=True,
    )
