"""The jobs of a namespace, as they lie in Redis.

    bodies       hash    id -> 'enqueued_ms envelope', until the job has ended
    queue:NAME   list    ids that may run now, the next one first
    bell:NAME    list    at most one token, for which idle consumers wait
    delayed:NAME zset    id -> due time, server ms
    states       hash    id -> where it is, if not in its queue: 'delayed QUEUE', 'running WORKER', 'cancelling WORKER';
                         'cancelling ' of one that came back to its queue, and is to be ended instead of run;
                         'waiting COUNT DELAY_MS QUEUE' of one that runs after so many others
    workers      zset    worker -> when it is taken for dead, server ms
    claimed:ID   hash    id -> 'place attempt queue-name', of one worker; places rise as they are claimed
    failures     hash    id -> attempts that failed
    crashes      hash    id -> workers that died with it
    progress     hash    id -> how far it is, JSON
    dead         zset    id -> when it was set aside
    reasons      hash    id -> why, JSON, and the name of its queue
    result:ID    string  'succeeded JSON' | 'cancelled ', for its result_ttl
    watchers     hash    id -> addresses of those who wait for its end
    parents      hash    id -> ids of the jobs that it runs after
    children     hash    id -> how many jobs that run after it have not ended
    followers    zset    'id child': who is to be told when the job of this id has ended
    outcomes     hash    id -> what became of it, as in result:ID or 'failed REASON', while it has children
    news         list    ids of jobs that have ended, or may run now, which nobody has seen to yet
    unique       hash    unique name -> id of the job that has it, and when its window ends, or 0
    checks       zset    unique name -> when to look whether it is still taken, server ms
    finished     hash    queue name -> jobs that have succeeded or were cancelled
    paused       set     names of queues from which nothing is claimed
    schedule:... string  last instant of a schedule, server ms; forgotten when nobody looked for 30 days

Every job with a body is in exactly one place: a queue, a delayed set, a worker's claims, or among the dead; or it waits
for others.  An id without a body is of a job that was cancelled where it was; whoever comes to it passes over it.

Source: docs/explanation/tasks.md
"""

from inconcert._redis.keys import Keyspace
from inconcert._redis.scripts import load
from inconcert._rules.names import check_name

__all__ = [
    "ACK",
    "CANCEL",
    "CANCELLING",
    "CLAIM",
    "DEAD",
    "ENQUEUE",
    "FOLLOW",
    "FREE",
    "HEARTBEAT",
    "HOLDING",
    "NACK",
    "OUTCOMES",
    "PASS_ON",
    "PAUSE",
    "PROGRESS",
    "PROMOTE",
    "PURGE",
    "RECOVER",
    "REPLAY",
    "STATS",
    "TICK",
    "UNWATCH",
    "WATCH",
    "WORKERS",
    "JobKeys",
    "QueueKeys",
]

ENQUEUE = load("tasks/enqueue")
FOLLOW = load("tasks/follow")
PASS_ON = load("tasks/pass_on")
OUTCOMES = load("tasks/outcomes")
HEARTBEAT = load("tasks/heartbeat")
CLAIM = load("tasks/claim")
FREE = load("tasks/free")
PROGRESS = load("tasks/progress")
ACK = load("tasks/ack")
NACK = load("tasks/nack")
PROMOTE = load("tasks/promote")
HOLDING = load("tasks/holding")
RECOVER = load("tasks/recover")
TICK = load("tasks/tick")
WATCH = load("tasks/watch")
UNWATCH = load("tasks/unwatch")
CANCEL = load("tasks/cancel")
DEAD = load("tasks/dead")
REPLAY = load("tasks/replay")
PURGE = load("tasks/purge")
PAUSE = load("tasks/pause")
WORKERS = load("tasks/workers")
STATS = load("tasks/stats")
CANCELLING = load("tasks/cancelling")

_SHARED = (
    "bodies",
    "checks",
    "children",
    "crashes",
    "dead",
    "failures",
    "finished",
    "followers",
    "news",
    "outcomes",
    "parents",
    "paused",
    "progress",
    "reasons",
    "states",
    "unique",
    "watchers",
    "workers",
)


class JobKeys:
    """The keys of all tasks of a namespace; they share one slot."""

    __slots__ = ("_keys", *_SHARED)

    def __init__(self, keys: Keyspace) -> None:
        self._keys = keys
        (
            self.bodies,
            self.checks,
            self.children,
            self.crashes,
            self.dead,
            self.failures,
            self.finished,
            self.followers,
            self.news,
            self.outcomes,
            self.parents,
            self.paused,
            self.progress,
            self.reasons,
            self.states,
            self.unique,
            self.watchers,
            self.workers,
        ) = keys.shared("tasks", *_SHARED)

    @property
    def kin(self) -> tuple[str, str, str, str]:
        """What a script that ends jobs needs to note that others wait for them."""
        return self.parents, self.children, self.outcomes, self.news

    def result(self, job_id: str) -> str:
        """What became of this job."""
        return self._keys.shared("tasks", f"result:{job_id}")[0]

    def claimed(self, worker: str) -> str:
        """What this worker has claimed."""
        return self._keys.shared("tasks", f"claimed:{worker}")[0]

    def schedule(self, name: str) -> str:
        """The last instant of this schedule."""
        return self._keys.shared("tasks", f"schedule:{name}")[0]

    def queue(self, name: str) -> "QueueKeys":
        """The keys of one queue.

        Raises:
            InvalidName: `name` is empty, too long or no valid string.
        """
        return QueueKeys(name, *self._keys.shared("tasks", *(f"{part}:{check_name('queue', name)}" for part in _PARTS)))


_PARTS = ("queue", "bell", "delayed")


class QueueKeys:
    """The keys of one queue."""

    __slots__ = ("bell", "delayed", "name", "queue")

    def __init__(self, name: str, queue: str, bell: str, delayed: str) -> None:
        self.name = name
        self.queue = queue
        self.bell = bell
        self.delayed = delayed
