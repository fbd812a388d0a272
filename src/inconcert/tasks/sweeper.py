"""The background task that drops what nobody needs any more: unique names without a live job, and groups that ended."""

import logging
import random

import anyio

from inconcert._core.session import Session
from inconcert.errors import InconcertError
from inconcert.tasks.store import SWEEP_GROUPS, SWEEP_NAMES, JobKeyspace

__all__ = ["Sweeper"]

_log = logging.getLogger("inconcert.tasks")

_SHORTEST_PAUSE, _LONGEST_PAUSE = 200.0, 300.0  # seconds; what stays too long only takes memory
_MOST = 500  # names, or groups, that a script checks


class Sweeper:
    """Sweeps when it begins, and every few minutes. Any number of sweepers may work at once, without a lock.

    Args:
        session: The open session.
        jobs: The keys of all jobs.
    """

    def __init__(self, session: Session, jobs: JobKeyspace) -> None:
        self._session = session
        self._jobs = jobs

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            try:
                await self.sweep()
            except InconcertError as error:
                _log.warning("unique names that are free, and groups that ended, cannot be dropped yet: %s", error)
            await anyio.sleep(random.uniform(_SHORTEST_PAUSE, _LONGEST_PAUSE))

    async def sweep(self) -> None:
        """Drop all names and groups that are due."""
        for keys in self._jobs.partitions:
            for sweep in SWEEP_NAMES, SWEEP_GROUPS:
                while await self._session.run(sweep(keys)) == _MOST:
                    pass
