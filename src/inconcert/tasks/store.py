"""The jobs of a namespace, as they lie in Redis.

    bodies       hash  id -> envelope, until the job is done
    queue:NAME   list  ids that may run now, the next one first
    bell:NAME    list  at most one token, for which idle consumers wait
    delayed:NAME zset  id -> due time, server ms
    workers      zset  worker -> when it is taken for dead, server ms
    claimed:ID   hash  id -> 'attempt place queue-name', of one worker; places rise as they are claimed
    failures     hash  id -> attempts that failed
    crashes      hash  id -> workers that died with it
    dead         zset  id -> when it was set aside
    reasons      hash  id -> why, JSON

Every job with a body is in exactly one place: a queue, a delayed set, a worker's claims, or among the dead.

Source: docs/explanation/tasks.md
"""

from inconcert._redis.keys import Keyspace
from inconcert._redis.scripts import load
from inconcert._rules.names import check_name

__all__ = ["ACK", "CLAIM", "ENQUEUE", "HEARTBEAT", "HOLDING", "NACK", "PROMOTE", "RECOVER", "JobKeys", "QueueKeys"]

ENQUEUE = load("tasks/enqueue")
HEARTBEAT = load("tasks/heartbeat")
CLAIM = load("tasks/claim")
ACK = load("tasks/ack")
NACK = load("tasks/nack")
PROMOTE = load("tasks/promote")
HOLDING = load("tasks/holding")
RECOVER = load("tasks/recover")


class JobKeys:
    """The keys of all tasks of a namespace; they share one slot."""

    __slots__ = ("_keys", "bodies", "crashes", "dead", "failures", "reasons", "workers")

    def __init__(self, keys: Keyspace) -> None:
        self._keys = keys
        self.bodies, self.workers, self.failures, self.crashes, self.dead, self.reasons = keys.shared(
            "tasks", "bodies", "workers", "failures", "crashes", "dead", "reasons"
        )

    def claimed(self, worker: str) -> str:
        """What this worker has claimed."""
        return self._keys.shared("tasks", f"claimed:{worker}")[0]

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
