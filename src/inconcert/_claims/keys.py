"""The keys of everything that is claimed: the jobs of tasks, and the items of a queue.

    bodies       hash    id -> 'put_ms [max_crashes[/LIMITS] [#MOST:TASK][!PRIORITY][~FIRST_MS]] text', until it ended;
                         'put_ms dead LENGTH REASON BODY' of a job that tells of the death of the one with that body
    queue        list    ids that may be claimed, the next one first
    bell         list    at most one token, for which idle consumers wait
    delayed      zset    id -> due time, server ms; below 0: a job that is ready, and has a priority, see rank.lua
    states       hash    id -> where it is, if not in its queue: 'delayed QUEUE', 'running WORKER', 'cancelling WORKER';
                         'cancelling ' of one that was requeued, and is to be ended instead of claimed; of an item only
                         the first
    alive        zset    worker -> when it is presumed dead, ms by the lease clock; 1 h
    workers      zset    the same of those that hold something, which remains until they are recovered
    clock        string  'AT SEEN': the lease clock, and the server's when it was last read
    described    hash    worker -> 'heard_ms ABOUT': when it was last heard, and its description; 1 h
    claimed:ID   hash    id -> 'place attempt since_ms queue-name', of one worker; places rise as they are claimed
    facts        hash    id -> 'FLAGS FAILURES CRASHES WHY': what it has beside its body, see flag.lua; how many
                         attempts failed, how many workers died with it, and why the latest failed
    dead         zset    id -> when it was dead-lettered
    reasons      hash    id -> why, JSON, and the name of its queue
    line         zset    address -> ticket: the waiters for room to put something in
    joiners      zset    address -> when it asked, server ms: waiters until no item is left; 60 s
    recent       hash    request -> its reply, so that a second run of it changes nothing; see remember.lua
    older        hash    the same, from before

There may be several queues under one tag, as tasks have them, or one, which needs no name. The script that ends a job
also notifies its waiters and dependents; these keys, and those of names, progress and steps, exist for jobs only:

    failed_attempts hash    id -> its attempts that failed, a line of JSON each; at most 32 KiB
    progress     hash    id -> its progress, JSON, after the number of reports by its worker
    steps        hash    'NUMBER ID' -> a step of that job, signed JSON, until it has ended
    stepped      hash    id -> the number of its latest step
    messages     hash    'LENGTH NAME ID' -> a message to that job, signed JSON, until it has ended
    received     hash    id -> 'COUNT BYTES NAMES': of the messages to it
    awaited      hash    id -> 'LENGTH NAME' of each message for which it has left its worker
    undo         hash    id -> '-' of a job that has something to undo; 'failed JSON' or 'cancelled ': how it ends once
                         that is undone
    watchers     zset    'id address': processes that wait for its end
    parents      hash    id -> ids of the jobs it runs after
    children     zset    'id child': a job that runs after this one and has not ended
    outcomes     hash    id -> its outcome, while it has children
    news         list    ids of jobs that have ended or may run now, not processed yet
    unique       hash    unique name -> id of the job that has it, end of its window or 0, and the job that it replaces
    checks       zset    unique name -> when to check whether it is still taken, server ms
    finished     hash    queue name -> jobs that have succeeded or were cancelled
    paused       set     names of queues from which nothing is claimed
    places       hash    limit -> 'COUNT MOST AT_MS', see read_limit.lua; id -> their limits; rate -> how far
                         it is used up; '@KEY' -> id of the job of this key whose turn it is; of a key in
                         strict order also '=ID' -> KEY
    held_back    zset    'LIMIT ORDER ID': a job in the line of this limit or key; it is delayed without end
    groups       hash    group -> 'STATE WHEN GIVEN TOTAL SUCCEEDED FAILED CANCELLED[ RESULTS]': how far a group of
                         jobs is; member -> 'succeeded JSON' or 'cancelled ', while the group keeps results
    settled      zset    group -> when to forget it, or from when on to drop its results; of those whose members have
                         ended, and none of them is dead, and of those whose results were let go
    history      zset    'TASK NUMBER OUTCOME ...': how the last jobs of a task ended, if it has a history, and
                         with which envelope if it keeps arguments; 90 days

Everything that has a body is in exactly one place: a queue, a delayed set, a worker's claims, or the dead letters; or
it is a job that waits for others.

Source: docs/contributing/job-keys.md
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, NamedTuple

from inconcert._redis.protocol.scripts import Binder, load


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

    __slots__ = (
        "_parts",
        "alive",
        "awaited",
        "bodies",
        "checks",
        "children",
        "clock",
        "dead",
        "described",
        "facts",
        "failed_attempts",
        "finished",
        "groups",
        "held_back",
        "history",
        "joiners",
        "line",
        "messages",
        "news",
        "older",
        "outcomes",
        "parents",
        "paused",
        "places",
        "progress",
        "reasons",
        "received",
        "recent",
        "settled",
        "states",
        "stepped",
        "steps",
        "undo",
        "unique",
        "watchers",
        "workers",
    )

    def __init_subclass__(cls, *, plugs: str) -> None:
        cls.scripts = Scripts(
            nack=load(f"claims/nack+{plugs}").bind(cls, QueueKeys),
            recover=load(f"claims/recover+{plugs}").bind(cls),
            replay=load(f"claims/replay+{plugs}").bind(cls, QueueKeys),
            purge=load(f"claims/purge+{plugs}").bind(cls),
        )

    def __init__(self, parts: Callable[..., tuple[str, ...]]) -> None:
        self._parts = parts
        self.bodies, self.states, self.workers, self.facts = parts("bodies", "states", "workers", "facts")
        self.dead, self.reasons, self.line, self.clock, self.alive = parts("dead", "reasons", "line", "clock", "alive")
        self.joiners, self.history, self.failed_attempts = parts("joiners", "history", "failed_attempts")
        self.parents, self.children, self.outcomes, self.news = parts("parents", "children", "outcomes", "news")
        self.progress, self.watchers, self.unique, self.checks = parts("progress", "watchers", "unique", "checks")
        self.finished, self.paused, self.described = parts("finished", "paused", "described")
        self.recent, self.older, self.steps, self.stepped = parts("recent", "older", "steps", "stepped")
        self.groups, self.settled, self.places, self.held_back = parts("groups", "settled", "places", "held_back")
        self.messages, self.received, self.awaited, self.undo = parts("messages", "received", "awaited", "undo")

    def claimed(self, worker: str) -> str:
        """The key of what this worker has claimed."""
        return self._parts(f"claimed:{worker}")[0]

    @abstractmethod
    def queue(self, name: str) -> "QueueKeys":
        """The keys of one queue."""

    @abstractmethod
    def results(self, ids: Iterable[str]) -> tuple[str, ...]:
        """The keys of the results of these; empty if results are never kept."""


class QueueKeys(NamedTuple):
    """The keys of one queue.

    Attributes:
        name: The name of the queue; empty if there is only one.
        queue: Its list of ids.
        delayed: Its set of entries that are due later.
    """

    name: str
    queue: str
    bell: str
    delayed: str


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


def split_body(body: bytes) -> tuple[int, bytes]:
    """The time at which a job was enqueued, in server ms, and its text; 0 if the time cannot be read."""
    put_ms, _, text = body.partition(b" ")
    if text[:1].isdigit():  # for how many crashes it is good, and its limits
        _, _, text = text.partition(b" ")
        if text[:1] == b"#":  # in which history its end is to be
            _, _, text = text.partition(b" ")
    return (int(put_ms), text) if put_ms.isdigit() else (0, body)
