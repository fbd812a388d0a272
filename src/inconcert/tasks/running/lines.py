"""Lets jobs in that wait in line for a limit or a rate which several tasks share, or of which each takes its own part.

These jobs may lie in several queues, and no script that ends a job knows the keys of all of them.  So a place that is
free is given away by a script of its own: the process that has freed it, or has met a job that must wait, runs it.  If
that process dies before, each other one with such tasks looks again within seconds.

Source: docs/explanation/limits.md
"""

import logging
import math
import time
from collections.abc import Iterable

import anyio

from inconcert._claims.ends import Ended
from inconcert._claims.keys import keys_of
from inconcert._core.session import Session
from inconcert.errors import InconcertError
from inconcert.tasks.records.store import LET_IN, JobKeys, JobKeyspace
from inconcert.tasks.running.job_state import JobState
from inconcert.tasks.running.registry import Registry

_log = logging.getLogger("inconcert.tasks")

_PERIOD = 5.0  # seconds between looks while there are lines, or tasks whose jobs may wait in some
_AFTER_A_FAILURE = 1.0  # seconds


class Lines:
    """Looks when it starts, when it is asked to, and when the server said; any number may work at once."""

    def __init__(self, session: Session, keyspace: JobKeyspace, registry: Registry) -> None:
        self._session = session
        self._registry = registry
        self._look_at = dict.fromkeys(keyspace.partitions, 0.0)  # each partition -> when, by the local clock
        self._queues: dict[JobKeys, tuple[str, ...]] = {}  # each partition -> the queues of its lines, as last seen
        self._sooner = anyio.Event()

    def look_nowait(self, keys: JobKeys) -> None:
        """Look at this partition, after all that was sent to it before."""
        self._look_at[keys] = 0.0
        self._sooner.set()

    def look_everywhere(self) -> None:
        """Look at all partitions."""
        for keys in self._look_at:
            self.look_nowait(keys)

    def ended(self, batch: Iterable[Ended], keys: JobKeys) -> None:
        """Look at this partition if one of these has had what others wait for."""
        if any(isinstance(ended.claimed, JobState) and ended.claimed.is_let_in for ended in batch):
            self.look_nowait(keys)

    async def let_in_all(self) -> None:
        """Let in at once who may begin, if this process has such tasks, or knows of such jobs.

        Raises:
            Unavailable: The server cannot be reached.
            OutcomeUnknown: It did not answer.
        """
        for keys in self._look_at:
            if self._queues.get(keys) or self._registry.some_wait_to_be_let_in:
                await self._let_in(keys)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self._sooner = anyio.Event()
            for keys, at in self._look_at.items():
                if at <= time.monotonic():
                    await self._look(keys)
            left = min(self._look_at.values()) - time.monotonic()
            with anyio.move_on_after(left if left < math.inf else None):
                await self._sooner.wait()

    async def _look(self, keys: JobKeys) -> None:
        self._look_at[keys] = math.inf
        try:
            left = await self._let_in(keys)
        except InconcertError as error:
            _log.warning("jobs that wait for others cannot be let in yet: %s", error)
            left = _AFTER_A_FAILURE
        self._look_at[keys] = min(self._look_at[keys], time.monotonic() + left)

    async def _let_in(self, keys: JobKeys) -> float:
        """Returns in how many seconds to look again."""
        queues, next_ms = self._queues.get(keys, ()), 0
        while next_ms == 0:
            command = LET_IN(keys, queues=keys_of(map(keys.queue, queues)), names=queues)
            next_ms, *names = await self._session.run(command)
            queues = self._queues[keys] = tuple(name.decode() for name in names)
        most = _PERIOD if queues or self._registry.some_wait_to_be_let_in else math.inf
        return min(most, next_ms / 1000) if next_ms > 0 else most
