"""Passing it on that a job has ended: to those that were to run after it."""

import logging

import anyio

from inconcert._core.session import Session
from inconcert.errors import InconcertError
from inconcert.tasks.store import RESOLVE_DEPENDENTS, JobKeys

__all__ = ["Relay", "pass_on"]

_log = logging.getLogger("inconcert.tasks")


async def pass_on(session: Session, keys: JobKeys) -> None:
    """Tell all who wait for jobs that have ended, in portions.

    Any number may do so at once.  A script can only use keys that it is given, so it answers of which queues it needs
    them, and is called again.  A queue of which a key holds something that is not ours holds up its own jobs only.

    Raises:
        Unavailable: Something is left; the next heartbeat of any worker finds it.
        OutcomeUnknown: As for Unavailable.

    Cost: 1 round trip if there is nothing to tell, else 1 and 1 more for each 100 who are told.
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
        _log.warning("%d jobs cannot run yet, for a key of their queue holds something else; delete it", left)


class Relay:
    """The background task that passes on what a worker has ended, or what one that died had not passed on.

    Args:
        session: The open session.
        keys: The keys of all tasks.
    """

    def __init__(self, session: Session, keys: JobKeys) -> None:
        self._session = session
        self._keys = keys
        self._found = anyio.Event()

    def found(self) -> None:
        """There are news."""
        self._found.set()

    async def run(self) -> None:
        """Pass on until cancelled."""
        while True:
            await self._found.wait()
            self._found = anyio.Event()
            try:
                await pass_on(self._session, self._keys)
            except InconcertError as error:  # the next heartbeat finds it again
                _log.warning("jobs that wait for others cannot be told yet: %s", error)
