"""Notifying the dependents of jobs that have ended."""

import logging

import anyio

from inconcert._core.session import Session
from inconcert.errors import InconcertError
from inconcert.tasks.store import RESOLVE_DEPENDENTS, JobKeys

__all__ = ["Relay", "pass_on"]

_log = logging.getLogger("inconcert.tasks")


async def pass_on(session: Session, keys: JobKeys) -> None:
    """Notify the dependents of all jobs that have ended, in portions.

    Any number may do so at once. A script can only use keys that it is given, so it returns the queues whose keys it
    needs, and is called again. A queue with a foreign key delays its own jobs only.

    Raises:
        Unavailable: Something is left; the next heartbeat of any worker finds it.
        OutcomeUnknown: As for Unavailable.

    Cost: 1 round trip, and 1 more for each 100 that are notified.
    """
    names: list[str] = []
    left, stuck, found = 1, 0, list[bytes]()
    while found or left > stuck:
        queues = [keys.queue(name) for name in names]
        parts = [key for queue in queues for key in (queue.queue, queue.bell, queue.delayed)]
        command = RESOLVE_DEPENDENTS(keys, queues=parts, inboxes=session.inboxes(keys.news), names=names)
        left, more_stuck, *found = await session.run(command)
        stuck += more_stuck
        names += [name.decode() for name in found]
    if stuck:
        _log.warning("%d jobs cannot run yet, because a key of their queue holds a foreign value; delete it", left)


class Relay:
    """The background task that notifies the dependents of jobs that a worker ended, also for workers that died.

    Args:
        session: The open session.
        keys: The keys of all tasks.
    """

    def __init__(self, session: Session, keys: JobKeys) -> None:
        self._session = session
        self._keys = keys
        self._found = anyio.Event()

    def found(self) -> None:
        """Wake up: jobs with dependents have ended."""
        self._found.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._found.wait()
            self._found = anyio.Event()
            try:
                await pass_on(self._session, self._keys)
            except InconcertError as error:  # the next heartbeat finds it again
                _log.warning("jobs that wait for others cannot be notified yet: %s", error)
