"""Metrics for Prometheus: of jobs, queues, schedules, workers, leases. Few labels. Needs `inconcert[prometheus]`."""

import asyncio
import logging
import time
from asyncio import run_coroutine_threadsafe
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

from inconcert._rules.extras import needs_extra

with needs_extra("prometheus"):
    from prometheus_client import REGISTRY, CollectorRegistry, MetricsHandler, make_asgi_app  # pyright: ignore[reportUnknownVariableType]
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

from inconcert._redis.wire.traffic import traffic
from inconcert.coordinator import Coordinator
from inconcert.errors import InconcertError
from inconcert.integrations._tallies import Distribution, Labels, Tallies
from inconcert.members.group import Group, count_members
from inconcert.queues.queue import Queue, QueueCounts
from inconcert.tasks.front.task_coordinator import parts_of
from inconcert.tasks.operating.queue_stats import TaskStats
from inconcert.tasks.operating.stopped_keys import StoppedKey
from inconcert.tasks.running.threaded_server import ThreadedServer
from inconcert.tasks.schedules.schedules import ScheduleCounts, count_schedules

__all__ = ["Metrics", "serve"]

_log = logging.getLogger("inconcert.integrations")

_LONGEST_QUESTION = 2.0  # seconds that the server may take to say how much work there is; a scrape gives up after 10
_LONGEST_REQUEST = 5.0  # seconds that a client of `serve` may take for its request
_JOB_LABELS = ("task", "queue")
_LEASE_LABELS = ("kind", "name")
_WHAT_HAPPENED = {
    "enqueued": "Jobs that this process has added.",
    "started": "Attempts that have begun.",
    "succeeded": "Jobs that are done.",
    "failed": "Attempts that have failed.",
    "retried": "Failed attempts after which the job is tried again.",
    "dead": "Jobs that were dead-lettered.",
    "cancelled": "Jobs that were cancelled while this process had them.",
    "suspended": "Attempts that have left their worker to sleep or to wait for a message.",
}

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class Metrics(Collector):
    """A collector of `prometheus_client` for a coordinator; make it at module level, next to the coordinator.

    Mount `metrics.asgi` at `/metrics`, or expose the registry in any other way.

    The labels `task` and `queue` have the names of the coordinator's tasks and of their queues; a name that comes up
    only at run time counts as `other`.  The label `name` of leases is their `metrics_name`, or empty; of
    memberships it is that of the group, if it is among `members`.  How much work queues have, and what there is of
    schedules and members, is asked of the server when the metrics are scraped, and not otherwise.

    Args:
        concert: The coordinator. One `Metrics` for each.
        queues: Names of queues beyond those of the tasks that are registered here.
        tasks: Names of tasks that are not registered here, such as those that this process enqueues by name.
        items: Names of queues of items, which `concert.queue` makes.
        members: Names of groups of members, which `concert.members` makes.
        registry: Where it is registered; None for nowhere.

    Raises:
        ValueError: The registry has metrics of these names, of another coordinator: give each a registry of its own.
        InvalidName: A name in `items` or `members` is empty or longer than 512 bytes.
    """

    def __init__(
        self,
        concert: Coordinator,
        *,
        queues: Collection[str] = (),
        tasks: Collection[str] = (),
        items: Collection[str] = (),
        members: Collection[str] = (),
        registry: CollectorRegistry | None = REGISTRY,
    ) -> None:
        parts = parts_of(concert)
        self._concert = concert
        self._ref = parts.ref
        self._registered = parts.registry
        self._queues = _Declared(lambda: parts.registry.queues, queues)
        self._keyspace = parts.keyspace
        self._items = [concert.queue(name) for name in sorted(set(items))]
        self._groups = {name: Group.of(parts.ref, name) for name in sorted(set(members))}
        names = _Declared(lambda: parts.registry.names, tasks)
        self._tallies = Tallies(names, self._queues, self._groups, now=time.monotonic)
        self._registry = registry
        self._seen: _Seen | None = None
        if registry is not None:
            registry.register(self)
        self._exposed: Application | None = None
        if registry is not None:
            self._exposed = cast("Application", make_asgi_app(registry))
        self._ref.observers.append(self._tallies)

    def close(self) -> None:
        """Count no more, and leave the registry."""
        self._ref.observers.remove(self._tallies)
        if self._registry is not None:
            self._registry.unregister(self)

    def describe(self) -> Iterable[Metric]:
        """The metrics without their values, so that a registry finds names that it has already."""
        return self._local()

    def collect(self) -> Iterator[Metric]:
        """All metrics as they are now.

        On the coordinator's event loop, which cannot wait here, queues are as `refresh` saw them last.

        Cost: Elsewhere 1 round trip, of 2 s at most.
        """
        yield from self._local()
        seen = self._ask()
        if seen is not None:
            if seen.stats is not None:
                yield from _of_queues(seen.stats)
                yield from _of_limits(seen.stats)
            what = "Keys in strict order that wait for the replay or purge of a dead job."
            yield GaugeMetricFamily("inconcert_stopped_keys", what, len(seen.stopped))
            yield from _of_schedules(seen.schedules)
            yield from _of_items(seen.items)
            members = GaugeMetricFamily("inconcert_members", "Members of a group.", labels=("name",))
            for name, count in seen.members.items():
                members.add_metric((name,), count)
            yield members

    async def refresh(self) -> None:
        """Ask the server what `collect` tells of it. If it does not answer in 2 s, that is left out."""
        self._seen = await self._look()

    async def asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application that answers with all metrics of the registry: mount it at `/metrics`."""
        if self._exposed is None:
            raise RuntimeError("these metrics have no registry; expose them from the one that you collect them in")
        await self.refresh()
        await self._exposed(scope, receive, send)

    # Private.

    def _ask(self) -> "_Seen | None":
        """The server's figures; None if they are not known now."""
        session = self._ref.opened
        if session is None or session.loop is _current_loop():
            return self._seen
        asking = run_coroutine_threadsafe(self._look(), session.loop)
        try:
            return asking.result(_LONGEST_QUESTION + 1)
        except TimeoutError:  # the loop stands still, or was closed
            asking.cancel()
            return None

    async def _look(self) -> "_Seen | None":
        """The server's figures, for this scrape alone: another one may fail meanwhile."""
        names = sorted(self._queues)
        session = self._ref.opened
        if session is None:
            return None
        try:
            async with asyncio.timeout(_LONGEST_QUESTION):
                stats, stopped, schedules, items, counts = await asyncio.gather(
                    self._concert.tasks.stats(*names) if names else _nothing(),
                    self._concert.tasks.stopped_keys() if self._registered.some_keys_are_in_order else _none(),
                    count_schedules(session, self._keyspace),
                    asyncio.gather(*map(_look_at, self._items)),
                    asyncio.gather(*(count_members(session, group) for group in self._groups.values())),
                )
            return _Seen(stats, stopped, schedules, items, dict(zip(self._groups, counts, strict=True)))
        except (InconcertError, TimeoutError) as error:
            _log.warning(
                "the metrics of queues, schedules and members are left out: %s", error or "the server does not answer"
            )
            return None

    def _local(self) -> Iterator[Metric]:
        """The counts of this process."""
        tallies = self._tallies
        tallies.count_from_zero(self._registered.queues_of_tasks, self._queues)
        for fact, help_ in _WHAT_HAPPENED.items():
            yield _counter(f"inconcert_jobs_{fact}", help_, _JOB_LABELS, tallies.jobs[fact])
        yield _counter("inconcert_steps", "Durable steps that were called.", ("task", "outcome"), tallies.steps)
        items = {(task,): count for task, count in list(tallies.items.items())}
        yield _counter("inconcert_stream_items", "Items that were added to streams.", ("task",), items)
        recovered = {(queue,): count for queue, count in list(tallies.recovered.items())}
        yield _counter("inconcert_jobs_recovered", "Jobs of dead workers that were requeued.", ("queue",), recovered)
        what = "Schedules that could not be read here, at each look."
        yield CounterMetricFamily("inconcert_schedules_unread", what, tallies.unread)
        yield _histogram("inconcert_job_run_seconds", "How long attempts ran.", _JOB_LABELS, tallies.run)
        what = "How long jobs that were to run at once have waited to be claimed."
        yield _histogram("inconcert_job_wait_seconds", what, _JOB_LABELS, tallies.wait)
        what = "How long after they were due the others were claimed: delayed and scheduled jobs."
        yield _histogram("inconcert_job_lateness_seconds", what, _JOB_LABELS, tallies.lateness)
        yield GaugeMetricFamily("inconcert_worker_up", "Workers that run in this process.", tallies.workers)
        yield GaugeMetricFamily("inconcert_worker_busy", "Jobs that run in this process.", tallies.busy)
        yield GaugeMetricFamily("inconcert_worker_capacity", "Jobs that may run here at once.", tallies.capacity)
        what = "How long callers have waited for a lease."
        yield _histogram("inconcert_lease_wait_seconds", what, _LEASE_LABELS, tallies.lease_wait)
        yield _histogram(
            "inconcert_lease_hold_seconds", "How long leases were held.", _LEASE_LABELS, tallies.lease_hold
        )
        yield _counter("inconcert_leases_lost", "Leases that ended without a release.", _LEASE_LABELS, tallies.lost)
        what = "Connections for commands that came back after a loss."
        yield CounterMetricFamily("inconcert_reconnects", what, tallies.reconnects)
        what = "Commands that all coordinators of this process have sent."
        yield CounterMetricFamily("inconcert_commands", what, traffic.commands)


@contextmanager
def serve(host: str, port: int, *, registry: CollectorRegistry = REGISTRY) -> Generator[int]:
    """Answer with all metrics of a registry over HTTP, from a thread, while the body of `with` runs; gives it the port.

    Args:
        host: The address to listen on.
        port: The port; 0 for any that is free.
        registry: Whose metrics.

    Raises:
        OSError: It cannot listen there.
    """
    handler = type("_Handler", (MetricsHandler,), {"registry": registry, "timeout": _LONGEST_REQUEST})
    server = ThreadedServer(host, port, handler, name="inconcert metrics")
    try:
        yield server.server_port
    finally:
        server.close()


class _Declared(Collection[str]):
    """Names that are declared in code, now or later."""

    def __init__(self, registered: Callable[[], Iterable[str]], further: Collection[str]) -> None:
        self._registered = registered
        self._further = frozenset(further)
        self._known = self._further

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._look()

    def __iter__(self) -> Iterator[str]:
        return iter(self._look())

    def __len__(self) -> int:
        return len(self._look())

    def _look(self) -> frozenset[str]:
        self._known = self._further.union(self._registered())
        return self._known


class _Items(NamedTuple):
    """The counts of a queue of items; `oldest_age` is None if none is ready."""

    name: str
    counts: QueueCounts
    oldest_age: float | None


class _Seen(NamedTuple):
    """The server's figures; no stats if there are no queues of jobs; no stopped keys if no task has any in order."""

    stats: TaskStats | None
    stopped: Sequence[StoppedKey]
    schedules: ScheduleCounts
    items: Sequence[_Items]
    members: Mapping[str, int]


async def _nothing() -> None:
    """There are no queues of jobs."""


async def _none() -> Sequence[StoppedKey]:
    """No task has keys in strict order."""
    return ()


async def _look_at(queue: Queue[Any]) -> _Items:
    return _Items(queue.name, *await asyncio.gather(queue.counts(), queue.oldest_age()))


def _of_queues(stats: TaskStats) -> Iterator[Metric]:
    depth = GaugeMetricFamily("inconcert_queue_depth", "Jobs by what they wait for.", labels=("queue", "state"))
    oldest = GaugeMetricFamily("inconcert_queue_oldest_seconds", "Age of the first ready job.", labels=("queue",))
    consumers = GaugeMetricFamily("inconcert_queue_consumers", "Consumers that serve it.", labels=("queue",))
    for name, queue in stats.queues.items():
        for state, count in (("ready", queue.ready), ("delayed", queue.delayed), ("waiting", queue.waiting)):
            depth.add_metric((name, state), count)
        oldest.add_metric((name,), queue.oldest_age or 0.0)
        consumers.add_metric((name,), queue.consumers)
    yield from (depth, oldest, consumers)


def _of_limits(stats: TaskStats) -> Iterator[Metric]:
    labels = (*_JOB_LABELS, "limit")
    places = GaugeMetricFamily("inconcert_limit_places", "Jobs that may run at once.", labels=labels)
    in_use = GaugeMetricFamily("inconcert_limit_places_in_use", "Those that are claimed.", labels=labels)
    waiting = GaugeMetricFamily("inconcert_limit_jobs_waiting", "Jobs that a limit holds back.", labels=("queue",))
    for task, limit in stats.limits.items():
        places.add_metric((task, limit.queue, limit.name or ""), limit.places)
        in_use.add_metric((task, limit.queue, limit.name or ""), limit.in_use)
    for name, queue in stats.queues.items():
        waiting.add_metric((name,), queue.held_back)
    yield from (places, in_use, waiting)


def _of_schedules(counts: ScheduleCounts) -> Iterator[Metric]:
    schedules = GaugeMetricFamily("inconcert_schedules", "Schedules, those in code, too.", labels=("state",))
    schedules.add_metric(("active",), counts.all - counts.paused)
    schedules.add_metric(("paused",), counts.paused)
    yield schedules
    what = "For how long no worker has looked at schedules that are not in code."
    yield GaugeMetricFamily("inconcert_schedules_unfollowed_seconds", what, counts.unfollowed)


def _of_items(queues: Sequence[_Items]) -> Iterator[Metric]:
    depth = GaugeMetricFamily("inconcert_items", "Items by where they are.", labels=("queue", "state"))
    oldest = GaugeMetricFamily("inconcert_items_oldest_seconds", "Age of the oldest ready item.", labels=("queue",))
    shut = GaugeMetricFamily("inconcert_items_shut_down", "1 if the queue was shut down.", labels=("queue",))
    for name, counts, oldest_age in queues:
        for state in ("ready", "delayed", "claimed", "dead"):
            depth.add_metric((name, state), getattr(counts, state))
        oldest.add_metric((name,), oldest_age or 0.0)
        shut.add_metric((name,), counts.is_shut_down)
    yield from (depth, oldest, shut)


def _counter(name: str, what: str, labels: tuple[str, ...], counts: dict[Any, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, what, labels=labels)
    for values, count in list(counts.items()):  # a copy: the event loop goes on counting
        family.add_metric(values, count)
    return family


def _histogram(
    name: str, what: str, labels: tuple[str, ...], measured: dict[Labels, Distribution]
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, what, labels=labels)
    for values, distribution in list(measured.items()):
        buckets: list[tuple[str, float]] = []
        so_far = 0
        for bound, count in zip((*map(str, Distribution.bounds), "+Inf"), list(distribution.counts), strict=True):
            so_far += count
            buckets.append((bound, so_far))
        family.add_metric(values, buckets, distribution.total)
    return family


def _current_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
