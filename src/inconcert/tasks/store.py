"""The keys of the jobs of a namespace: those of everything that is claimed, and those of jobs only.

    queue:NAME   list    ids that may run now, and likewise bell:NAME and delayed:NAME for each queue
    states       also    'waiting COUNT DELAY_MS QUEUE' of a job that runs after this many others
    result:ID    string  'succeeded JSON' | 'cancelled ', for its result_ttl
    followers    zset    'id child': a child to notify when the job of this id has ended
    waiting      hash queue name -> its jobs that wait for others
    served       zset    queue name -> when a consumer last reported that it serves it; 1 day
    schedule:... string  last instant of a schedule, server ms; forgotten when no worker checked it for 30 days

The others are in _claims/keys.py.  An id without a body belongs to a job that was cancelled in its place; scripts skip
it.

Source: docs/explanation/tasks.md
"""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from inconcert._claims.keys import ClaimKeys, QueueKeys
from inconcert._redis.keys import Keyspace
from inconcert._redis.scripts import load
from inconcert._rules.names import check_name

__all__ = [
    "CANCEL",
    "CANCELLED_TTL",
    "CANCELLING",
    "COUNT_CLAIMED",
    "ENQUEUE",
    "ENQUEUE_AFTER",
    "ENQUEUE_DUE",
    "FREE_NAMES",
    "OUTCOMES",
    "PAUSE",
    "PROGRESS",
    "REPORT_SERVED",
    "RESCHEDULE",
    "RESOLVE_DEPENDENTS",
    "STATS",
    "SWEEP_NAMES",
    "UNWATCH",
    "WATCH",
    "WORKERS",
    "ClaimedCount",
    "JobKeys",
    "StatsRow",
]


class JobKeys(ClaimKeys):
    """The keys of all tasks of a namespace; they share one slot."""

    __slots__ = ("followers", "served", "waiting")

    def __init__(self, keys: Keyspace) -> None:
        super().__init__(partial(keys.shared, "tasks"))
        self.followers, self.served, self.waiting = self._parts("followers", "served", "waiting")

    def result(self, job_id: str) -> str:
        """The key of this job's result."""
        return self._parts(f"result:{job_id}")[0]

    def results(self, ids: Iterable[str]) -> tuple[str, ...]:
        """The keys of these jobs' results."""
        start = self.result("")
        return tuple(start + job_id for job_id in ids)

    def schedule(self, name: str) -> str:
        """The key of this schedule's last instant."""
        return self._parts(f"schedule:{name}")[0]

    def queue(self, name: str) -> QueueKeys:
        """The keys of one queue.

        Raises:
            InvalidName: `name` is empty, too long or not a valid string.
        """
        check_name("queue", name)
        return QueueKeys(name, *self._parts(f"queue:{name}", f"bell:{name}", f"delayed:{name}"))


CANCELLED_TTL = 3600.0  # seconds for which a cancellation is recorded


class ClaimedCount(NamedTuple):
    """How many jobs of one queue some workers hold."""

    queue: bytes
    jobs: int


class StatsRow(NamedTuple):
    """How much work one queue has, as the script returns it; `oldest_ms` is -1 if no job is ready."""

    ready: int
    delayed: int
    waiting: int
    oldest_ms: int
    is_paused: int
    finished: int


ENQUEUE = load("tasks/enqueue").bind(JobKeys, QueueKeys)
ENQUEUE_AFTER = load("tasks/enqueue_after").bind(JobKeys, QueueKeys)
RESOLVE_DEPENDENTS = load("tasks/resolve_dependents").bind(JobKeys)
OUTCOMES = load("tasks/outcomes").bind(JobKeys)
FREE_NAMES = load("tasks/free_names").bind(JobKeys)
PROGRESS = load("tasks/progress").bind(JobKeys)
ENQUEUE_DUE = load("tasks/enqueue_due").bind(JobKeys, QueueKeys)
WATCH = load("tasks/watch").bind(JobKeys)
UNWATCH = load("tasks/unwatch").bind()
CANCEL = load("tasks/cancel").bind(JobKeys, QueueKeys)
RESCHEDULE = load("tasks/reschedule").bind(JobKeys, QueueKeys)
REPORT_SERVED = load("tasks/report_served").bind(JobKeys)
COUNT_CLAIMED = load("tasks/count_claimed").bind()
PAUSE = load("tasks/pause").bind(JobKeys, QueueKeys)
WORKERS = load("tasks/workers").bind(JobKeys)
STATS = load("tasks/stats").bind(JobKeys)
SWEEP_NAMES = load("tasks/sweep_names").bind(JobKeys)
CANCELLING = load("tasks/cancelling").bind(JobKeys)
