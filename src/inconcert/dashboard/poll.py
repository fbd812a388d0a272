"""The state that all viewers of a dashboard see: read once for all of them, and only while somebody looks."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from inconcert._redis.driver.clients import ServerClient
from inconcert._redis.operate.server_facts import ServerFacts, server_facts
from inconcert._rules.defaults import DEFAULT_QUEUE
from inconcert.coordinator import Coordinator
from inconcert.errors import JobNotFound, OutcomeUnknown
from inconcert.reports.explain_job import JobQuestion
from inconcert.reports.explanation import Reason
from inconcert.reports.report import Inspection
from inconcert.tasks.front.task_coordinator import parts_of
from inconcert.tasks.operating.queue_stats import TaskStats
from inconcert.tasks.running.workers import WorkerStatus

_INTERVAL = 2.0  # seconds
_SHARE = 20  # asking takes at most one part in so many of the time
_POINTS = 90  # of a chart: three minutes
_PATIENCE = 1.0  # seconds until a process that does not answer counts as silent
_GAP = 10.0  # seconds without a look, after which a chart begins anew


@dataclass(frozen=True, slots=True)
class Point:
    """One instant of the charts; `at` is by the monotonic clock."""

    at: float
    backlog: int
    finished: int


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of the namespace at one instant."""

    stats: TaskStats  # how much work there is
    workers: Sequence[WorkerStatus]  # who runs it
    server: ServerFacts | None  # what the server says of itself; None if it may not be asked
    history: Sequence[Point]  # the latest instants, the oldest first, up to this one
    fresh_until: float  # when it is time to ask again, by the monotonic clock

    @property
    def rate(self) -> float | None:
        """Jobs that end in a second, over the time of the charts; None at first."""
        first, last = self.history[0], self.history[-1]
        return (last.finished - first.finished) / (last.at - first.at) if last.at > first.at else None

    @property
    def rates(self) -> Sequence[float]:
        """Jobs that ended in a second, between each two instants."""
        return [
            max(later.finished - earlier.finished, 0) / (later.at - earlier.at)
            for earlier, later in pairwise(self.history)
            if later.at > earlier.at
        ]


class Poll:
    """Asks the server at most every 2 s, however many look.

    Args:
        queues: Queues to show although there never was a job in them.
    """

    def __init__(self, concert: Coordinator, queues: Sequence[str]) -> None:
        self._concert = concert
        self._queues = queues
        self._asking = asyncio.Lock()
        self._history: deque[Point] = deque(maxlen=_POINTS)
        self._seen: Seen | None = None
        self._inspecting = asyncio.Lock()
        self._inspection: tuple[float, Inspection] | None = None  # until when it is fresh

    async def latest(self) -> Seen:
        """The state of less than 2 s ago, or of now.

        Cost: that of `Tasks.workers`, `Tasks.queues` and `Tasks.stats` together.
        """
        async with self._asking:
            if self._seen is None or time.monotonic() >= self._seen.fresh_until:
                self._seen = await self._look()
            return self._seen

    async def inspection(self) -> Inspection:
        """The reports of all processes, less than 2 s old.

        Cost: that of `Coordinator.inspect`; processes that do not answer are waited for 1 s.
        """
        async with self._inspecting:
            if self._inspection is None or time.monotonic() >= self._inspection[0]:
                found = await self._concert.inspect(timeout=_PATIENCE)
                self._inspection = time.monotonic() + _INTERVAL, found
            return self._inspection[1]

    async def reasons(self, job_id: str) -> Sequence[Reason]:
        """Why a job does not run, or where it does; nothing if there is no such job.

        Cost: that of `Coordinator.explain`; processes are asked as in `inspection`.
        """
        parts = parts_of(self._concert)
        try:
            seen: Inspection | Reason = await self.inspection()
        except OutcomeUnknown as error:  # also if the user may not ask
            seen = Reason("unasked", f"the processes could not be asked: {error}")
        try:
            found = await JobQuestion(parts.ref, parts.keyspace, self._concert.tasks, job_id).explanation(seen)
        except JobNotFound:  # it went on meanwhile
            return ()
        return found.reasons

    def forget(self) -> None:
        """Ask again at the next look: something was changed."""
        self._seen = None
        self._inspection = None

    async def _look(self) -> Seen:
        began_at = time.monotonic()
        workers = await self._concert.tasks.workers()
        names = {*self._queues, *await self._concert.tasks.queues(), DEFAULT_QUEUE}
        for worker in workers:
            names |= {*worker.queues, *(job.queue for job in worker.running)}
        stats = await self._concert.tasks.stats(*sorted(names))
        client = self._client()
        server = None if client is None else await server_facts(client)
        now = time.monotonic()
        if self._history and now - self._history[-1].at > _GAP:
            self._history.clear()
        queues = stats.queues.values()
        backlog = sum(queue.ready + queue.delayed + queue.waiting for queue in queues)
        self._history.append(Point(now, backlog, sum(queue.finished for queue in queues)))
        pause = max(_INTERVAL, (now - began_at) * _SHARE)
        return Seen(stats, workers, server, tuple(self._history), now + pause)

    def _client(self) -> ServerClient | None:
        """The client of the server; None on a cluster, where each master has its own memory."""
        try:
            return self._concert.redis
        except TypeError:
            return None
