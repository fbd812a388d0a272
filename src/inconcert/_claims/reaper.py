"""Requeueing what a worker holds that died, or that retires."""

import logging
from collections.abc import Callable

import anyio

from inconcert._claims.keys import CLAIMED_QUEUES, ClaimKeys, QueueKeys, keys_of
from inconcert._core.session import Session
from inconcert._redis.wire.call import Call
from inconcert.errors import InconcertError, WrongState

_log = logging.getLogger("inconcert.claims")


class Reaper:
    """The background task that requeues what dead workers hold, at the front.

    Any number of reapers may find the same worker: a script decides about its claims.  Entries with which too many
    workers died are dead-lettered: they may be what kills them.
    """

    def __init__(
        self,
        session: Session,
        keys: ClaimKeys,
        max_crashes: int,
        on_news: Callable[[], None],
        on_recovered: Callable[[str, int, int], None],
    ) -> None:
        self._session = session
        self._keys = keys
        self._max_crashes = max_crashes  # unless what was claimed says otherwise
        self._on_news = on_news  # something that has dependents was dead-lettered
        self._on_recovered = on_recovered  # given a queue, how many were requeued, and how many dead-lettered
        self._dead: set[str] = set()
        self._found = anyio.Event()

    def found(self, workers: list[str]) -> None:
        """Recover what these dead workers hold."""
        if workers:
            self._dead.update(workers)
            self._found.set()

    async def run(self) -> None:
        """Reap until cancelled."""
        while True:
            if not self._dead:
                await self._found.wait()
            self._found = anyio.Event()
            while self._dead:
                worker = self._dead.pop()
                try:
                    await self._recover(worker)
                except InconcertError as error:  # the next heartbeat finds it again
                    _log.warning("what dead worker %s holds cannot be recovered yet: %s", worker, error)

    async def _recover(self, worker: str) -> None:
        keys = self._keys
        names = await self._session.run(CLAIMED_QUEUES(claimed=keys.claimed(worker)))
        # Each queue by itself: one with a foreign key does not hold up the others.
        for queues in [[keys.queue(name.decode())] for name in names] or [[]]:
            call = _recover(self._session, keys, worker, queues, max_crashes=self._max_crashes)
            self._session.channel.submit(call)
            try:
                back, dead, others_are_to_be_told = await call
            except WrongState as error:
                _log.warning("what dead worker %s holds cannot be recovered yet: %s", worker, error)
                continue
            if others_are_to_be_told:
                self._on_news()
            if back > 0 or dead > 0:
                self._on_recovered(queues[0].name, back, dead)
                _log.warning("worker %s is dead; requeued: %d, dead-lettered: %d", worker, back, dead)


def put_all_back(session: Session, keys: ClaimKeys, worker: str, queues: list[QueueKeys]) -> None:
    """Requeue what a retiring worker holds, at the front, without waiting for the reply."""
    session.channel.submit(_recover(session, keys, worker, queues, max_crashes=0))


def _recover(session: Session, keys: ClaimKeys, worker: str, queues: list[QueueKeys], *, max_crashes: int) -> Call:
    command = keys.scripts.recover(
        keys,
        claimed=keys.claimed(worker),
        queues=keys_of(queues),
        worker=worker,
        max_crashes=max_crashes,
        inboxes=session.inboxes(keys.bodies),
        names=[queue.name for queue in queues],
    )
    return Call(command, must_run=True)
