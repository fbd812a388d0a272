"""Defaults that a factory of `Coordinator` shares with its products: the factory imports it when it is used first."""

from typing import Final

LOCK_TTL: Final = 30.0  # seconds; outlasts a long garbage collection or a slow deploy step
ELECTION_TTL: Final = 10.0  # seconds; longest time without a leader after one has died
MEMBER_TTL: Final = 10.0  # seconds; how long the keys of a dead member lie idle, so shorter than that of a lock
BARRIER_TTL: Final = 10.0  # seconds; how long the others wait for a dead participant, so shorter than that of a lock
EVENT_TTL: Final = 86_400.0  # seconds; a day
LATCH_TTL: Final = 86_400.0  # seconds; a day

MAX_CRASHES: Final = 3  # workers that may die with something before it is presumed to be the cause

QUEUE_TTL: Final = 60.0  # seconds; outlasts a handler that holds up its event loop for a while
ITEM_ATTEMPTS: Final = 5

MAILBOX_TTL: Final = 60.0  # seconds; outlasts the handling of a handful of messages
MAX_MESSAGES: Final = 10_000

DEFAULT_QUEUE: Final = "default"
PRIORITY: Final = 5  # of 0 to 9: as many come before it as behind it
MAX_ATTEMPTS: Final = 5
RESULT_TTL: Final = 3600.0  # seconds
HEARTBEAT_LEASE: Final = 10.0  # seconds after which a silent worker is presumed dead, and its jobs run elsewhere
DEFAULT_GRACE: Final = 30.0  # seconds; what Kubernetes gives a pod by default
UNKNOWN_TASK_GRACE: Final = 600.0  # seconds; in which most rollouts bring workers that know the new task
