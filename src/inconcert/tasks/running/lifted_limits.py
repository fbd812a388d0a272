"""Lets jobs go that wait for a limit or a rate which their task has no longer.

A limit is stored with each job, and the job that was enqueued last says how many places there are.  A release that
removes it enqueues none that says so; hence its workers do.

Source: docs/explanation/limits.md
"""

import logging
from collections import defaultdict
from collections.abc import Collection

from inconcert._core.session import Session
from inconcert._rules.durations import milliseconds
from inconcert.errors import InconcertError
from inconcert.tasks.records.store import LIFT_LIMITS, JobKeys, JobKeyspace
from inconcert.tasks.running.registry import Registry

_log = logging.getLogger("inconcert.tasks")

_QUIET = 120.0  # seconds in which no job of an older release has brought a limit back; a worker looks once a minute
_AT_ONCE = 50  # limits that a script looks at


class LiftedLimits:
    """Lifts what the server knew of when the worker started, and its tasks do not have: what comes later is newer."""

    def __init__(self, session: Session, keyspace: JobKeyspace, queues: Collection[str], registry: Registry) -> None:
        self._session = session
        self._keyspace = keyspace
        self._queues = queues
        self._registry = registry
        self._found: dict[tuple[JobKeys, str], list[str]] | None = None

    async def lift(self) -> None:
        """Lift them, except those that a job had which was enqueued in the last two minutes."""
        try:
            found = await self._lift(self._absent() if self._found is None else self._found)
        except InconcertError as error:
            _log.warning("limits that tasks have no longer cannot be lifted yet: %s", error)
        else:
            self._found = found if self._found is None else self._found

    def _absent(self) -> dict[tuple[JobKeys, str], list[str]]:
        """The limits that tasks of the served queues do not have, by the partition and the queue of their jobs."""
        absent: dict[tuple[JobKeys, str], list[str]] = defaultdict(list)
        for name, queue in self._registry.queues_of_tasks:
            if queue in self._queues:
                absent[self._keyspace.of_task(name), queue] += self._registry.tasks[name].limits.lifted(name, queue)
        return absent

    async def _lift(self, limits: dict[tuple[JobKeys, str], list[str]]) -> dict[tuple[JobKeys, str], list[str]]:
        """Returns those of which the server knows."""
        found: dict[tuple[JobKeys, str], list[str]] = defaultdict(list)
        for (keys, queue), texts in limits.items():
            for at in range(0, len(texts), _AT_ONCE):
                some = texts[at : at + _AT_ONCE]
                command = LIFT_LIMITS(keys, keys.queue(queue), name=queue, quiet_ms=milliseconds(_QUIET), lifted=some)
                found[keys, queue] += [text.decode() for text in await self._session.run(command)]
        return found
