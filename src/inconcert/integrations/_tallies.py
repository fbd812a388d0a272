"""Counts and durations of a process for its metrics: plain numbers, which only a scrape turns into something else."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

from inconcert._core.observer import ObservedJob, ObservedLease, Observer, StepOutcome

_MOST_NAMES = 100  # that leases may have in metrics, of all kinds together; the rest counts as one
_OTHER = "other"
_STEP_OUTCOMES: tuple[StepOutcome, ...] = ("ran", "kept", "failed")
_KINDS = ("lock", "rwlock", "semaphore", "election", "members")  # of leases

_COUNTED_AS = {
    "done": ("succeeded",),
    "cancelled": ("cancelled",),
    "retry": ("failed", "retried"),
    "dead": ("dead",),
    "undone": ("dead",),
    "crash": ("failed",),
    "asleep": ("suspended",),
}

Labels = tuple[str, str]


class Distribution:
    """The number of durations up to each bound, in seconds."""

    __slots__ = ("counts", "total")

    bounds = (0.005, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 60.0, 300.0, 1800.0)

    def __init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count one of this length."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds


class Tallies(Observer):
    """Counts events, under names that are declared in code: others count as `other`."""

    def __init__(
        self, tasks: Collection[str], queues: Collection[str], groups: Collection[str], *, now: Callable[[], float]
    ) -> None:
        self._tasks = tasks
        self._queues = queues
        self._groups = groups
        self._now = now
        self._names: set[str] = set()
        self.jobs: dict[str, dict[Labels, int]] = {  # what happened to jobs -> task and queue -> how often
            fact: defaultdict(int)
            for fact in ("enqueued", "started", "succeeded", "failed", "retried", "dead", "cancelled", "suspended")
        }
        self.steps: dict[tuple[str, StepOutcome], int] = defaultdict(int)  # task and outcome -> how many steps
        self.items: dict[str, int] = defaultdict(int)  # task -> how many items of streams
        self.recovered: dict[str, int] = defaultdict(int)  # queue -> how many jobs of dead workers were requeued
        self.run: dict[Labels, Distribution] = defaultdict(Distribution)  # task and queue -> how long attempts ran
        # task and queue -> how long jobs that were to run at once waited for their first claim; how late others had it
        self.wait: dict[Labels, Distribution] = defaultdict(Distribution)
        self.lateness: dict[Labels, Distribution] = defaultdict(Distribution)
        self.lease_wait: dict[Labels, Distribution] = defaultdict(
            Distribution
        )  # kind and name -> how long callers waited
        self.lease_hold: dict[Labels, Distribution] = defaultdict(
            Distribution
        )  # kind and name -> how long they were held
        self.lost: dict[Labels, int] = defaultdict(int)  # kind and name in metrics -> how many leases were lost
        self.workers = self.busy = self.capacity = 0  # workers and jobs that run, and how many jobs they run at most
        self.unread = 0  # schedules that could not be read, at each look
        self.reconnects = 0  # of connections for commands

    def count_from_zero(self, tasks: Iterable[Labels], queues: Iterable[str]) -> None:
        """Have a count of all that may happen to these: otherwise the first time would not be an increase."""
        for task, queue in [*tasks, *(labels for counts in self.jobs.values() for labels in list(counts))]:
            for counts in self.jobs.values():
                if task:
                    counts.setdefault((task, queue), 0)  # in one step: the event loop may count meanwhile
            if task:
                self.items.setdefault(task, 0)
                for outcome in _STEP_OUTCOMES:
                    self.steps.setdefault((task, outcome), 0)
        for queue in queues:
            self.recovered.setdefault(queue, 0)
            self.jobs["dead"].setdefault(("", queue), 0)
        named = (("members", name) for name in self._groups)
        for labels in [*((kind, "") for kind in _KINDS), *named, *list(self.lease_wait)]:
            self.lost.setdefault(labels, 0)

    def job_enqueued(self, task: str, queue: str) -> None:
        self.jobs["enqueued"][self._labels(task, queue)] += 1

    def job_started(self, job: ObservedJob) -> None:
        labels = self._labels(job.task, job.queue)
        self.busy += 1
        self.jobs["started"][labels] += 1

    def job_ended(self, job: ObservedJob) -> None:
        labels = self._labels(job.task, job.queue)
        for fact in _COUNTED_AS.get(job.outcome, ()):
            self.jobs[fact][labels] += 1
        if job.outcome == "dead" and job.started_at:
            self.jobs["failed"][labels] += 1
        if job.started_at:
            self.run[labels].add(self._now() - job.started_at)

    def job_left(self, job: ObservedJob, error: BaseException | None) -> None:
        del error
        self.busy -= 1
        is_first = job.attempt == 1 and not job.was_begun and not job.begins_anew  # known after the first step
        if is_first and not job.is_dependent:
            labels, due_at = self._labels(job.task, job.queue), job.due_at
            if due_at is None:
                self.wait[labels].add(max(0.0, job.claimed_at - job.enqueued_at))
            else:
                self.lateness[labels].add(max(0.0, job.claimed_at - due_at))

    def step_ended(self, job: ObservedJob, outcome: StepOutcome) -> None:
        self.steps[self._task(job.task), outcome] += 1

    def items_added(self, job: ObservedJob, count: int) -> None:
        self.items[self._task(job.task)] += count

    def jobs_recovered(self, queue: str, requeued: int, dead: int) -> None:
        _, queue = self._labels("", queue)
        self.recovered[queue] += requeued
        if dead:
            self.jobs["dead"]["", queue] += dead

    def schedules_unread(self, count: int) -> None:
        self.unread += count

    def worker_started(self, places: int) -> None:
        self.workers += 1
        self.capacity += places

    def worker_ended(self, places: int) -> None:
        self.workers -= 1
        self.capacity -= places

    def lease_acquired(self, lease: ObservedLease, waited: float) -> None:
        self.lease_wait[self._of(lease)].add(waited)

    def lease_ended(self, lease: ObservedLease, held: float, *, is_lost: bool) -> None:
        labels = self._of(lease)
        self.lease_hold[labels].add(held)
        if is_lost:
            self.lost[labels] += 1

    def reconnected(self) -> None:
        self.reconnects += 1

    # Private.

    def _labels(self, task: str, queue: str) -> Labels:
        return self._task(task), queue if queue in self._queues else _OTHER

    def _task(self, name: str) -> str:
        return name if name in self._tasks else _OTHER

    def _of(self, lease: ObservedLease) -> Labels:
        if lease.kind == "members":
            return lease.kind, lease.name if lease.name in self._groups else ""
        name = lease.metrics_name
        if name and name not in self._names:
            if len(self._names) >= _MOST_NAMES:
                return lease.kind, _OTHER
            self._names.add(name)
        return lease.kind, name
