"""The keys of the jobs of a namespace: those of everything that is claimed, and those of jobs only.

A namespace has one or more partitions, each with keys in one slot.  A job lies in the partition that its id names.  An
id without a body belongs to a job that was cancelled in its queue; scripts skip it.

Source: docs/contributing/job-keys.md
"""

import re
import zlib
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import NamedTuple
from urllib.parse import quote

from inconcert._claims.keys import ClaimKeys, QueueKeys
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.scripts import load
from inconcert._rules.names import check_name

_PARTITION = re.compile(r"\.(\d{1,4})")  # at the end of an id


class JobKeys(ClaimKeys, plugs="jobs"):
    """The keys of one partition of the tasks of a namespace; they share one slot.

    Args:
        number: Which partition, from 0.
        count: How many there are.

    Attributes:
        end_of_ids: The end of the ids that are drawn for its jobs.
        schedule_changes: The channel on which workers hear of changes of schedules.
        suffix: What the ids of its jobs end with; empty if there is no other partition.
    """

    pending: str  # hash: id -> ids of the parents that it still waits for; of a callback its group
    unfollowed: str  # hash: id -> ids of its parents in other partitions that do not know of it yet
    passing: str  # hash: id -> 'passer until_ms': who passes on to other partitions what concerns it
    followers: str  # zset: 'id child': a child to notify when the job of this id has ended
    seen_even: str  # hash: session -> the number of its last request to tasks/enqueue_plain; 'SESSION gaps' -> the
    # numbers below it that have not come, 'FROM-TO ..'; of even spans of ten minutes, each kept until the end of the
    # next one
    seen_odd: str  # hash: the same, of odd ones; a session is in one of them
    asked: str  # string: 'NEXT_MS PENDING CHILDREN': when jobs that wait ask again for parents in other partitions
    waiting: str  # hash: queue name -> its jobs that wait for others
    unknown: str  # zset: id -> when a worker first could not run that job, server ms; the grace and 1 day
    outbox: str  # string: name for the life of these data: an outbox sees by it that the server has lost them
    served: str  # zset: queue name -> when a consumer last reported that it serves it; 1 day

    # Of schedules.
    schedules: str  # hash: id -> 'SINCE LAST[,BEFORE] RULE': the last instant that is done with, or when it was put or
    # resumed; the last one for which a job was enqueued, or 0; that of the job for which this one was to wait; its rule
    # without spaces
    definitions: str  # hash: id -> its call and rule, signed JSON
    looks: str  # zset: id -> when a worker looks at it next, server ms; not of those paused, over, or in code
    looks_in_code: str  # zset: the same, of those in code that are not paused
    declared: str  # zset: id -> when a worker that has it in its code looked last, server ms; 30 days
    paused_schedules: str  # set: ids
    looked: str  # string: when a worker looked last, server ms: the clock may have been set back since; 30 days

    # Of counts; see counts.py.
    counted: str  # zset: name of a task -> the last day since 1970 on which something of it was counted
    lately: str  # list: the jobs that ended last, at most 200, JSON each; 1 day
    counts_seen: str  # hash: requests that have been counted; 2 minutes
    counts_seen_before: str  # hash: the same, of the minutes before

    def __init__(self, keys: Keyspace, number: int = 0, count: int = 1) -> None:
        super().__init__(partial(keys.shared, f"tasks:{number}"))
        self._streams = keys.channels_beside(self.bodies, "stream")
        self.number = number
        self.end_of_ids = f".{number}"
        self.suffix = self.end_of_ids if count > 1 else ""
        self.schedule_changes = keys.channel(self.schedules, "schedules", str(number))

    def id_at(self, address: str) -> str:
        """The id of a new job of this partition, with this address."""
        return address + self.end_of_ids

    def result(self, job_id: str) -> str:
        """The key of this job's result: 'succeeded JSON' or 'cancelled ', for its `result_ttl`."""
        return self._parts(f"result:{job_id}")[0]

    def results(self, ids: Iterable[str]) -> tuple[str, ...]:
        """The keys of these jobs' results."""
        start = self.result("")
        return tuple([start + job_id for job_id in ids])

    def kept_attempts(self, ids: Iterable[str]) -> tuple[str, ...]:
        """The keys of the attempts of these jobs that failed, once these have ended: as long as its result."""
        start = self._parts("kept_attempts:")[0]
        return tuple(start + job_id for job_id in ids)

    def stream(self, job_id: str) -> str:
        """The key of the facts about this job's stream."""
        return self._parts(f"stream:{job_id}")[0]

    def items(self, job_id: str) -> str:
        """The key of the items of this job's stream."""
        return self._parts(f"items:{job_id}")[0]

    def stream_channel(self, job_id: str) -> str:
        """The channel that announces new items of this job's stream."""
        return self._streams + job_id

    def counts(self, part: str) -> str:
        """The hash of the counts of a task, by the digest of its name, on a day, for 15 days; see counts.py."""
        return self._parts(f"counts:{part}")[0]

    def queue(self, name: str) -> QueueKeys:
        """The keys of one queue.

        Raises:
            InvalidName: `name` is empty, too long or not a valid string.
        """
        return _queue_keys(self._parts, name if type(name) is str else check_name("queue", name))

    def lists(self, names: Iterable[str]) -> list[str]:
        """For each of these queues the key of jobs that may run now, and of delayed jobs."""
        return [key for queue in map(self.queue, names) for key in (queue.queue, queue.delayed)]


@lru_cache(maxsize=256)  # a program has few queues, and each job names one
def _queue_keys(parts: Callable[..., tuple[str, ...]], name: str) -> QueueKeys:
    name = check_name("queue", name)
    return QueueKeys(name, *parts(f"queue:{name}", f"bell:{name}", f"delayed:{name}"))


def id_prefix_in_code(task: str) -> str:
    """The prefix of the ids of jobs of schedules in code of this task. An id has no space, but a name may."""
    return f"{quote(task)}@"


class JobKeyspace:
    """The partitions of the tasks of a namespace.

    The partition of a job is drawn from its unique name, if it has one, otherwise from its id, to which it is appended:
    `SESSION.NUMBER.PARTITION`.  An id that a caller has chosen has no `.` and no `@`; its partition is drawn from it,
    and it stays as it is.  The jobs of schedules, `TASK@INSTANT`, lie in the partition of their task, as do all jobs of
    a task with limits, and those enqueued by its name, because it may have limits.

    Args:
        count: How many partitions there are, the same in all processes.

    Attributes:
        partitions: The keys of each.
    """

    __slots__ = ("_only", "partitions")

    def __init__(self, keys: Keyspace, count: int) -> None:
        self.partitions = tuple(JobKeys(keys, number, count) for number in range(count))
        self._only = self.partitions[0] if count == 1 else None

    def draw(self, address: str, unique: str | None, among: str = "") -> tuple[str, JobKeys]:
        """The id of a new job with this address, unique name, and task whose jobs lie together; and its partition."""
        keys = self.of_task(among) if among else self._only or self._of_text(unique or address)
        return address + keys.end_of_ids, keys

    def of_task(self, name: str) -> JobKeys:
        """The partition of all jobs of a task with limits, as of those of its schedules."""
        return self.of_id(id_prefix_in_code(name))

    def of_id(self, job_id: str) -> JobKeys:
        """The partition of the job of this id; some partition if no job can have it."""
        if self._only is not None:
            return self._only
        found = _PARTITION.fullmatch(job_id, job_id.rfind("."))
        if found is not None and int(found[1]) < len(self.partitions):
            return self.partitions[int(found[1])]
        return self._of_text(job_id.partition("@")[0])

    def _of_text(self, text: str) -> JobKeys:
        return self.partitions[zlib.crc32(text.encode()) % len(self.partitions)]


CANCELLED_TTL = 3600.0  # seconds for which a cancellation is recorded


class ClaimedCount(NamedTuple):
    """The number of jobs of one queue that some workers hold."""

    queue: bytes
    jobs: int


class StatsRow(NamedTuple):
    """The work in one queue, as the script returns it; `oldest_ms` is -1 if no job is ready."""

    ready: int
    delayed: int
    held_back: int
    waiting: int
    oldest_ms: int
    is_paused: int
    finished: int


ACK_WITH_PLUGS = load("claims/ack+jobs").bind(JobKeys)
CLAIM_WITH_PLUGS = load("claims/claim+jobs").bind(JobKeys)
ACK_AND_ENQUEUE = load("tasks/ack_and_enqueue+jobs").bind(JobKeys, QueueKeys)
ADD_COUNTS = load("tasks/add_counts").bind(JobKeys)
COUNTED = load("tasks/counted").bind(JobKeys)
READ_COUNTS = load("tasks/read_counts").bind()
ADD_MEMBERS = load("tasks/add_members").bind(JobKeys)
END_EXPIRED = load("tasks/end_expired+jobs").bind(JobKeys, QueueKeys)
ENQUEUE = load("tasks/enqueue").bind(JobKeys, QueueKeys)
ENQUEUE_AFTER = load("tasks/enqueue_after+jobs").bind(JobKeys, QueueKeys)
ENQUEUE_OWN = load("tasks/enqueue_own").bind(JobKeys, QueueKeys)
ENQUEUE_PLAIN = load("tasks/enqueue_plain").bind(JobKeys, QueueKeys)
RESOLVE_DEPENDENTS = load("tasks/resolve_dependents+jobs").bind(JobKeys)
OPEN_GROUP = load("tasks/open_group").bind(JobKeys)
CLOSE_GROUP = load("tasks/close_group").bind(JobKeys)
LOCATE = load("tasks/locate").bind(JobKeys)
LOOK = load("outbox/look").bind(JobKeys)
INSPECT_GROUP = load("tasks/inspect_group").bind(JobKeys)
GROUP_RESULTS = load("tasks/group_results").bind(JobKeys)
OUTCOMES = load("tasks/outcomes").bind(JobKeys)
FOLLOW = load("tasks/follow").bind(JobKeys)
CHILDREN = load("tasks/children").bind(JobKeys)
WAIT_AGAIN = load("tasks/wait_again+jobs").bind(JobKeys, QueueKeys)
TELL = load("tasks/tell+jobs").bind(JobKeys)
FORGET = load("tasks/forget").bind(JobKeys)
ASK_AGAIN = load("tasks/ask_again").bind(JobKeys)
ATTEMPTS = load("tasks/attempts").bind(JobKeys)
PASSED_ON = load("tasks/passed_on").bind(JobKeys)
FREE_NAMES = load("tasks/free_names").bind(JobKeys)
PROGRESS = load("tasks/progress").bind(JobKeys)
NOTE_UNDO = load("tasks/note_undo").bind(JobKeys)
NOTE_UNKNOWN = load("tasks/note_unknown").bind(JobKeys)
COMMIT_STEP = load("tasks/commit_step").bind(JobKeys)
READ_STEPS = load("tasks/read_steps").bind(JobKeys)
RECEIVE = load("tasks/receive").bind(JobKeys)
SAVE_CURSOR = load("tasks/save_cursor").bind(JobKeys)
SEND = load("tasks/send").bind(JobKeys, QueueKeys)
APPEND_ITEMS = load("tasks/append_items").bind()
READ_ITEMS = load("tasks/read_items").bind()
ADVANCE = load("schedules/advance").bind(JobKeys, QueueKeys)
ADVANCE_ALONE = load("schedules/advance_alone").bind(JobKeys, QueueKeys)
DECLARE = load("schedules/declare").bind(JobKeys)
DUE = load("schedules/due").bind(JobKeys)
COUNT_SCHEDULES = load("schedules/count").bind(JobKeys)
DELETE_SCHEDULE = load("schedules/delete").bind(JobKeys)
FIND_SCHEDULE = load("schedules/find").bind(JobKeys)
LIST_SCHEDULES = load("schedules/list").bind(JobKeys)
PAUSE_SCHEDULE = load("schedules/pause").bind(JobKeys)
PUT_SCHEDULE = load("schedules/put").bind(JobKeys)
GO_ON = load("tasks/go_on").bind(JobKeys, QueueKeys)
STOPPED_KEYS = load("tasks/stopped_keys").bind(JobKeys)
WATCH = load("tasks/watch").bind(JobKeys)
UNWATCH = load("tasks/unwatch").bind()
CANCEL = load("tasks/cancel+jobs").bind(JobKeys, QueueKeys)
RESCHEDULE = load("tasks/reschedule").bind(JobKeys, QueueKeys)
REPORT_SERVED = load("tasks/report_served").bind(JobKeys)
COUNT_CLAIMED = load("tasks/count_claimed").bind()
DEAD_TIMES = load("tasks/dead_times").bind(JobKeys)
DEBOUNCE = load("tasks/debounce").bind(JobKeys, QueueKeys)
DESCRIBED = load("tasks/described").bind(JobKeys)
HELD_BACK = load("tasks/held_back").bind(JobKeys, QueueKeys)
HISTORY = load("tasks/history").bind(JobKeys)
LET_IN = load("tasks/let_in").bind(JobKeys)
LIFT_LIMITS = load("tasks/lift_limits").bind(JobKeys, QueueKeys)
PAUSE = load("tasks/pause").bind(JobKeys, QueueKeys)
PLACES_IN_USE = load("tasks/places_in_use").bind(JobKeys)
STATS = load("tasks/stats").bind(JobKeys)
STATES = load("tasks/states").bind(JobKeys)
STORE_ANEW = load("tasks/store_anew").bind(JobKeys, QueueKeys)
SWEEP_GROUPS = load("tasks/sweep_groups").bind(JobKeys)
SWEEP_NAMES = load("tasks/sweep_names").bind(JobKeys)
CANCELLING = load("tasks/cancelling").bind(JobKeys)
QUEUE_NAMES = load("tasks/queue_names").bind(JobKeys)
QUEUED_IDS = load("tasks/queued_ids").bind(QueueKeys)
DELAYED_IDS = load("tasks/delayed_ids").bind(QueueKeys)
DEAD_IDS = load("tasks/dead_ids").bind(JobKeys)
CLAIMED_IDS = load("tasks/claimed_ids").bind()
WAITING_IDS = load("tasks/waiting_ids").bind(JobKeys)
DESCRIBE_JOBS = load("tasks/describe_jobs").bind(JobKeys)
