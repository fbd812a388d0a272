"""The keys of everything that is claimed: the jobs of tasks, and the items of a queue.

Everything that has a body is in exactly one of these: a queue, a delayed set, a worker's claims, or the dead letters;
or it is a job that waits for others.

Source: docs/contributing/job-keys.md
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, NamedTuple

from inconcert._redis.protocol.scripts import Binder, key_names, load


class Scripts(NamedTuple):
    """The scripts that end claims, and move the dead, in their form with the plugs of jobs, or of items."""

    nack: Binder
    recover: Binder
    replay: Binder
    purge: Binder


class ClaimKeys(ABC):
    """The keys of everything claimed under one tag; they share one slot.

    A subclass says of which plugs its scripts know: `jobs`, or `items`.

    Args:
        parts: Makes the keys of these parts under that tag.
    """

    scripts: ClassVar[Scripts]

    bodies: str  # hash: id -> 'put_ms [max_crashes[/LIMITS] [#MOST:TASK][!PRIORITY][~FIRST_MS]] text', until it ended;
    # 'put_ms dead LENGTH REASON BODY' of a job that tells of the death of the one with that body
    states: str  # hash: id -> where it is, if not in its queue: 'delayed QUEUE', 'running WORKER', 'cancelling WORKER';
    # 'cancelling ' of one that was requeued, and is to be ended instead of claimed; 'waiting DELAY_MS[:EVEN_IF] QUEUE'
    # of a job that runs after others, which have not all ended; EVEN_IF 'replaces' of one that replaces the other, and
    # runs however that has ended; of an item only the first
    alive: str  # zset: worker -> when it is presumed dead, ms by the lease clock; 1 h
    workers: str  # zset: the same of those that hold something, which remains until they are recovered
    clock: str  # string: 'AT SEEN': the lease clock, and the server's when it was last read
    described: str  # hash: worker -> 'heard_ms ABOUT': when it was last heard, and its description; 1 h
    facts: str  # hash: id -> 'FLAGS FAILURES CRASHES WHY': what it has beside its body, see flag.lua; how many attempts
    # failed, how many workers died with it, and why the latest failed
    dead: str  # zset: id -> when it was dead-lettered
    reasons: str  # hash: id -> why, JSON, and the name of its queue
    line: str  # zset: address -> ticket: the waiters for room to put something in
    joiners: str  # zset: address -> when it asked, server ms: waiters until no item is left; 60 s
    recent: str  # hash: request -> its reply, so that a second run of it changes nothing; see remember.lua
    older: str  # hash: the same, from before

    # Of jobs only: the script that ends one also notifies its waiters and dependents, and drops what it had.
    failed_attempts: str  # hash: id -> its attempts that failed, a line of JSON each; at most 32 KiB
    progress: str  # hash: id -> its progress, JSON, after the number of reports by its worker
    steps: str  # hash: 'NUMBER ID' -> a step of that job, signed JSON, until it has ended
    stepped: str  # hash: id -> the number of its latest step
    messages: str  # hash: 'LENGTH NAME ID' -> a message to that job, signed JSON, until it has ended
    received: str  # hash: id -> 'COUNT BYTES NAMES': of the messages to it
    awaited: str  # hash: id -> 'LENGTH NAME' of each message for which it has left its worker
    undo: str  # hash: id -> '-' of a job that has something to undo; 'failed JSON' or 'cancelled ': how it ends once
    # that is undone
    watchers: str  # zset: 'id address': processes that wait for its end
    parents: str  # hash: id -> ids of the jobs it runs after
    children: str  # zset: 'id child': a job that runs after this one and has not ended
    outcomes: str  # hash: id -> its outcome, while it has children
    news: str  # list: ids of jobs that have ended or may run now, not processed yet
    unique: str  # hash: unique name -> id of the job that has it, end of its window or 0, and the job that it replaces
    checks: str  # zset: unique name -> when to check whether it is still taken, server ms
    finished: str  # hash: queue name -> jobs that have succeeded or were cancelled
    paused: str  # set: names of queues from which nothing is claimed
    places: str  # hash: limit -> 'COUNT MOST AT_MS', see read_limit.lua; id -> their limits; rate -> how far it is used
    # up; '@KEY' -> id of the job of this key whose turn it is; of a key in strict order also '=ID' -> KEY
    held_back: str  # zset: 'LIMIT ORDER ID': a job in the line of this limit or key; it is delayed without end
    groups: str  # hash: group -> 'STATE WHEN GIVEN TOTAL SUCCEEDED FAILED CANCELLED[ RESULTS]': how far a group of jobs
    # is; member -> 'succeeded JSON' or 'cancelled ', while the group keeps results
    settled: str  # zset: group -> when to forget it, or from when on to drop its results; of those whose members have
    # ended, and none of them is dead, and of those whose results were let go
    history: str  # zset: 'TASK NUMBER OUTCOME ...': how the last jobs of a task ended, if it has a history, and with
    # which envelope if it keeps arguments; 90 days

    def __init_subclass__(cls, *, plugs: str) -> None:
        cls.scripts = Scripts(
            nack=load(f"claims/nack+{plugs}").bind(cls, QueueKeys),
            recover=load(f"claims/recover+{plugs}").bind(cls),
            replay=load(f"claims/replay+{plugs}").bind(cls, QueueKeys),
            purge=load(f"claims/purge+{plugs}").bind(cls),
        )

    def __init__(self, parts: Callable[..., tuple[str, ...]]) -> None:
        self._parts = parts
        vars(self).update(zip(names := key_names(type(self)), parts(*names), strict=True))

    def claimed(self, worker: str) -> str:
        """The hash of what this worker has claimed: id -> 'position attempt since_ms queue-name'; they rise."""
        return self._parts(f"claimed:{worker}")[0]

    @abstractmethod
    def queue(self, name: str) -> "QueueKeys":
        """The keys of one queue."""

    @abstractmethod
    def results(self, ids: Iterable[str]) -> tuple[str, ...]:
        """The keys of the results of these; empty if results are never kept."""


class QueueKeys(NamedTuple):
    """The keys of one queue. There may be several under one tag, as tasks have them, or one, which needs no name."""

    name: str
    queue: str  # list: ids that may be claimed, the next one first
    bell: str  # list: at most one token, for which idle consumers wait
    delayed: str  # zset: id -> due time, server ms; below 0: a job that is ready, and has a priority, see rank.lua


def keys_of(queues: Iterable[QueueKeys]) -> list[str]:
    """The keys of several queues, as scripts take them: the three of each, one after the other."""
    return [key for _, *keys in queues for key in keys]


HEARTBEAT = load("claims/heartbeat").bind(ClaimKeys)
HOLD_CLOCK = load("claims/hold_clock").bind(ClaimKeys)
CLAIM = load("claims/claim").bind(ClaimKeys)
ACK = load("claims/ack").bind(ClaimKeys)
PROMOTE = load("claims/promote").bind(ClaimKeys, QueueKeys)
CLAIMED_QUEUES = load("claims/claimed_queues").bind()
COMPARE = load("claims/compare").bind(ClaimKeys)
DEAD = load("claims/dead").bind(ClaimKeys)
UNSETTLE = load("claims/unsettle").bind(ClaimKeys, QueueKeys)
WORKERS = load("claims/workers").bind(ClaimKeys)
HELD = load("claims/held").bind(ClaimKeys)


BRACE = 123  # with which JSON begins


def split_body(body: bytes) -> tuple[int, bytes]:
    """The time at which a job was enqueued, in server ms, and its text; 0 if the time cannot be read."""
    put_ms, _, text = body.partition(b" ")
    if text and text[0] != BRACE and text[:1].isdigit():  # for how many crashes it is good, and its limits
        _, _, text = text.partition(b" ")
        if text[:1] == b"#":  # in which history its end is to be
            _, _, text = text.partition(b" ")
    return (int(put_ms), text) if put_ms.isdigit() else (0, body)
