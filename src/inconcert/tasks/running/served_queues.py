"""The background task that reports which queues a consumer serves, and looks after those that nobody claims from."""

import logging
import random
from collections import Counter
from collections.abc import Sequence

import anyio

from inconcert._core.session import Session
from inconcert._redis.protocol.replies import rows
from inconcert._rules.durations import milliseconds
from inconcert.errors import InconcertError
from inconcert.tasks.records.store import REPORT_SERVED, STATS, JobKeyspace, StatsRow
from inconcert.tasks.running.expiry import Expiry
from inconcert.tasks.running.lifted_limits import LiftedLimits
from inconcert.tasks.running.registry import Registry

_log = logging.getLogger("inconcert.tasks")

_SHORTEST_PAUSE, _LONGEST_PAUSE = 50.0, 60.0  # seconds
_SILENT = 120.0  # seconds; a queue that is served is reported twice in this time


class ServedQueues:
    """Reports when it starts, and every minute. It warns once of each queue with jobs that no one serves.

    In the same turn it lifts the limits that tasks have no longer, and ends jobs that have expired unclaimed.

    It checks the queues of the tasks of this process, and those that any consumer has served in the last day.
    """

    def __init__(
        self, session: Session, keyspace: JobKeyspace, queues: Sequence[str], registry: Registry, expiry: Expiry
    ) -> None:
        self._session = session
        self._keyspace = keyspace
        self._queues = queues
        self._registry = registry
        self._lifted = LiftedLimits(session, keyspace, queues, registry)
        self._expiry = expiry
        self._warned: set[str] = set()

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            unserved: set[str] = set()
            try:
                unserved = await self._report()
                await self._warn(sorted(unserved - self._warned))
            except InconcertError as error:
                _log.warning("unserved queues cannot be checked yet: %s", error)
            await self._lifted.lift()
            await self._expiry.end(self._queues, unserved)
            await anyio.sleep(random.uniform(_SHORTEST_PAUSE, _LONGEST_PAUSE))

    async def _report(self) -> set[str]:
        """Report the served queues; returns those that no one serves."""
        names = (*self._queues, *sorted(self._registry.queues - set(self._queues)))
        report = REPORT_SERVED(
            self._keyspace.partitions[0], silent_ms=milliseconds(_SILENT), count=len(self._queues), names=names
        )
        found = await self._session.run(report)
        return {name.decode() for name in found}

    async def _warn(self, names: list[str]) -> None:
        if not names:
            return
        counts = Counter[str]()
        for keys in self._keyspace.partitions:
            _, _, *flat = await self._session.run(STATS(keys, queues=keys.lists(names), names=names))
            for name, row in zip(names, rows(flat, StatsRow), strict=True):
                counts[name] += row.ready + row.delayed + row.waiting
        for name in names:
            if count := counts[name]:
                _log.warning(
                    "no worker has served queue %r in the last %g s, and it holds jobs: %d", name, _SILENT, count
                )
                self._warned.add(name)
