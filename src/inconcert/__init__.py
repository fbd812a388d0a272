"""Coordination for asyncio services on Redis and Valkey.

Open a `Coordinator`, and take locks, permits and turns, hand out work, and talk, among all processes of a service.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from inconcert._version import __version__

if TYPE_CHECKING:  # for type checkers, editors and the reference
    from inconcert import durable
    from inconcert._claims.consumer import Guarantee
    from inconcert._core.channel_subscription import Gap
    from inconcert._core.lease import Lease
    from inconcert.barrier import Barrier
    from inconcert.chat.chats import Chats
    from inconcert.chat.messages import Batch, Message
    from inconcert.coordinator import Coordinator, CoordinatorOptions
    from inconcert.elections.election import Election
    from inconcert.elections.record import ElectionRecord
    from inconcert.elections.term import Term
    from inconcert.errors import (
        AcquireTimeout,
        BarrierBroken,
        ChatNotFound,
        GroupClosed,
        GroupNotFound,
        InconcertError,
        InvalidName,
        InvalidPayload,
        ItemNotFound,
        JobCancelled,
        JobExpired,
        JobFailed,
        JobNotFound,
        LeaseLost,
        MessageRefused,
        NobodyHolds,
        NotAMember,
        NotClaimed,
        NotConnected,
        NotHeld,
        OutcomeUnknown,
        QueueFull,
        QueueShutDown,
        QuorumNotReached,
        StepChanged,
        StepRefused,
        Unavailable,
        UnknownSchedule,
        UnknownTask,
        UnreadablePayload,
        WrongLayout,
        WrongState,
    )
    from inconcert.event import Event
    from inconcert.index.index import Hit, Index
    from inconcert.index.words import tokenize
    from inconcert.latch import Latch
    from inconcert.lock import Lock
    from inconcert.locks import Leases, Locks
    from inconcert.mailboxes.fetch import MailboxMessage
    from inconcert.mailboxes.mailbox import Mailbox
    from inconcert.members.changes import Changed, Joined, Left, Lost, MemberChange
    from inconcert.members.member import Member
    from inconcert.members.members import Members
    from inconcert.queues.delivery import Delivery
    from inconcert.queues.queue import DeadItem, Queue, QueueCounts
    from inconcert.queues.worker_lease import QueueOrder
    from inconcert.quorum.lock import QuorumLease, QuorumLock
    from inconcert.rate_limiter import RateDecision, RateLimiter, RateStatus
    from inconcert.reports.explanation import Explanation, Reason
    from inconcert.reports.report import (
        Blocked,
        Deadlock,
        HeldEntry,
        HeldItem,
        HeldLock,
        Inspection,
        ItemConsumer,
        ProcessReport,
        SignalListener,
        WaitEntry,
        Waiter,
    )
    from inconcert.rwlock import ReadLock, RWLock, WriteLease, WriteLock
    from inconcert.semaphore import Semaphore
    from inconcert.signals.patterns import Signalled, Signals
    from inconcert.signals.signal import Signal, wait_all, wait_any
    from inconcert.signals.subscription import Subscription
    from inconcert.sync_producer import EnqueuedJob, PreparedJob, SyncProducer
    from inconcert.tasks.admin import Tasks
    from inconcert.tasks.claimed_job import ClaimedJob, current_job
    from inconcert.tasks.consumer import Consumer
    from inconcert.tasks.dead_jobs import DeadJob
    from inconcert.tasks.draft import Draft
    from inconcert.tasks.group import Group, GroupProgress, GroupWhen
    from inconcert.tasks.health import HealthReport, HealthState, WorkerHealth
    from inconcert.tasks.health_server import HealthServer
    from inconcert.tasks.history import EndedJob
    from inconcert.tasks.job import Job, Progress
    from inconcert.tasks.job_description import JobDescription
    from inconcert.tasks.job_pages import JobPage, JobRecord
    from inconcert.tasks.limits import JobKey, Limit, Rate
    from inconcert.tasks.options import EvenIf, JobOptions, UniqueUntil
    from inconcert.tasks.queue_stats import LimitStats, QueueStats, TaskStats
    from inconcert.tasks.retry import Retry
    from inconcert.tasks.schedule import Missed
    from inconcert.tasks.schedules import Schedules, ScheduleStatus
    from inconcert.tasks.snooze import Snooze
    from inconcert.tasks.status import JobStatus
    from inconcert.tasks.step_records import StepRecord
    from inconcert.tasks.stream import Restarted, StreamItem
    from inconcert.tasks.task import Task
    from inconcert.tasks.undo import Undo
    from inconcert.tasks.workers import RunningJob, WorkerStatus

__all__ = [
    "AcquireTimeout",
    "Barrier",
    "BarrierBroken",
    "Batch",
    "Blocked",
    "Changed",
    "ChatNotFound",
    "Chats",
    "ClaimedJob",
    "Consumer",
    "Coordinator",
    "CoordinatorOptions",
    "DeadItem",
    "DeadJob",
    "Deadlock",
    "Delivery",
    "Draft",
    "Election",
    "ElectionRecord",
    "EndedJob",
    "EnqueuedJob",
    "EvenIf",
    "Event",
    "Explanation",
    "Gap",
    "Group",
    "GroupClosed",
    "GroupNotFound",
    "GroupProgress",
    "GroupWhen",
    "Guarantee",
    "HealthReport",
    "HealthServer",
    "HealthState",
    "HeldEntry",
    "HeldItem",
    "HeldLock",
    "Hit",
    "InconcertError",
    "Index",
    "Inspection",
    "InvalidName",
    "InvalidPayload",
    "ItemConsumer",
    "ItemNotFound",
    "Job",
    "JobCancelled",
    "JobDescription",
    "JobExpired",
    "JobFailed",
    "JobKey",
    "JobNotFound",
    "JobOptions",
    "JobPage",
    "JobRecord",
    "JobStatus",
    "Joined",
    "Latch",
    "Lease",
    "LeaseLost",
    "Leases",
    "Left",
    "Limit",
    "LimitStats",
    "Lock",
    "Locks",
    "Lost",
    "Mailbox",
    "MailboxMessage",
    "Member",
    "MemberChange",
    "Members",
    "Message",
    "MessageRefused",
    "Missed",
    "NobodyHolds",
    "NotAMember",
    "NotClaimed",
    "NotConnected",
    "NotHeld",
    "OutcomeUnknown",
    "PreparedJob",
    "ProcessReport",
    "Progress",
    "Queue",
    "QueueCounts",
    "QueueFull",
    "QueueOrder",
    "QueueShutDown",
    "QueueStats",
    "QuorumLease",
    "QuorumLock",
    "QuorumNotReached",
    "RWLock",
    "Rate",
    "RateDecision",
    "RateLimiter",
    "RateStatus",
    "ReadLock",
    "Reason",
    "Restarted",
    "Retry",
    "RunningJob",
    "ScheduleStatus",
    "Schedules",
    "Semaphore",
    "Signal",
    "SignalListener",
    "Signalled",
    "Signals",
    "Snooze",
    "StepChanged",
    "StepRecord",
    "StepRefused",
    "StreamItem",
    "Subscription",
    "SyncProducer",
    "Task",
    "TaskStats",
    "Tasks",
    "Term",
    "Unavailable",
    "Undo",
    "UniqueUntil",
    "UnknownSchedule",
    "UnknownTask",
    "UnreadablePayload",
    "WaitEntry",
    "Waiter",
    "WorkerHealth",
    "WorkerStatus",
    "WriteLease",
    "WriteLock",
    "WrongLayout",
    "WrongState",
    "__version__",
    "current_job",
    "durable",
    "tokenize",
    "wait_all",
    "wait_any",
]

# The module of each name, imported when the name is used first: a process pays for what it uses.
_HOMES = {
    "AcquireTimeout": "errors",
    "Barrier": "barrier",
    "BarrierBroken": "errors",
    "Batch": "chat.messages",
    "Blocked": "reports.report",
    "Changed": "members.changes",
    "ChatNotFound": "errors",
    "Chats": "chat.chats",
    "ClaimedJob": "tasks.claimed_job",
    "Consumer": "tasks.consumer",
    "Coordinator": "coordinator",
    "CoordinatorOptions": "coordinator",
    "DeadItem": "queues.queue",
    "DeadJob": "tasks.dead_jobs",
    "Deadlock": "reports.report",
    "Delivery": "queues.delivery",
    "Draft": "tasks.draft",
    "Election": "elections.election",
    "ElectionRecord": "elections.record",
    "EndedJob": "tasks.history",
    "EnqueuedJob": "sync_producer",
    "EvenIf": "tasks.options",
    "Event": "event",
    "Explanation": "reports.explanation",
    "Gap": "_core.channel_subscription",
    "Group": "tasks.group",
    "GroupClosed": "errors",
    "GroupNotFound": "errors",
    "GroupProgress": "tasks.group",
    "GroupWhen": "tasks.group",
    "Guarantee": "_claims.consumer",
    "HealthReport": "tasks.health",
    "HealthServer": "tasks.health_server",
    "HealthState": "tasks.health",
    "HeldEntry": "reports.report",
    "HeldItem": "reports.report",
    "HeldLock": "reports.report",
    "Hit": "index.index",
    "InconcertError": "errors",
    "Index": "index.index",
    "Inspection": "reports.report",
    "InvalidName": "errors",
    "InvalidPayload": "errors",
    "ItemConsumer": "reports.report",
    "ItemNotFound": "errors",
    "Job": "tasks.job",
    "JobCancelled": "errors",
    "JobDescription": "tasks.job_description",
    "JobExpired": "errors",
    "JobFailed": "errors",
    "JobKey": "tasks.limits",
    "JobNotFound": "errors",
    "JobOptions": "tasks.options",
    "JobPage": "tasks.job_pages",
    "JobRecord": "tasks.job_pages",
    "JobStatus": "tasks.status",
    "Joined": "members.changes",
    "Latch": "latch",
    "Lease": "_core.lease",
    "LeaseLost": "errors",
    "Leases": "locks",
    "Left": "members.changes",
    "Limit": "tasks.limits",
    "LimitStats": "tasks.queue_stats",
    "Lock": "lock",
    "Locks": "locks",
    "Lost": "members.changes",
    "Mailbox": "mailboxes.mailbox",
    "MailboxMessage": "mailboxes.fetch",
    "Member": "members.member",
    "MemberChange": "members.changes",
    "Members": "members.members",
    "Message": "chat.messages",
    "MessageRefused": "errors",
    "Missed": "tasks.schedule",
    "NobodyHolds": "errors",
    "NotAMember": "errors",
    "NotClaimed": "errors",
    "NotConnected": "errors",
    "NotHeld": "errors",
    "OutcomeUnknown": "errors",
    "PreparedJob": "sync_producer",
    "ProcessReport": "reports.report",
    "Progress": "tasks.job",
    "Queue": "queues.queue",
    "QueueCounts": "queues.queue",
    "QueueFull": "errors",
    "QueueOrder": "queues.worker_lease",
    "QueueShutDown": "errors",
    "QueueStats": "tasks.queue_stats",
    "QuorumLease": "quorum.lock",
    "QuorumLock": "quorum.lock",
    "QuorumNotReached": "errors",
    "RWLock": "rwlock",
    "Rate": "tasks.limits",
    "RateDecision": "rate_limiter",
    "RateLimiter": "rate_limiter",
    "RateStatus": "rate_limiter",
    "ReadLock": "rwlock",
    "Reason": "reports.explanation",
    "Restarted": "tasks.stream",
    "Retry": "tasks.retry",
    "RunningJob": "tasks.workers",
    "ScheduleStatus": "tasks.schedules",
    "Schedules": "tasks.schedules",
    "Semaphore": "semaphore",
    "Signal": "signals.signal",
    "SignalListener": "reports.report",
    "Signalled": "signals.patterns",
    "Signals": "signals.patterns",
    "Snooze": "tasks.snooze",
    "StepChanged": "errors",
    "StepRecord": "tasks.step_records",
    "StepRefused": "errors",
    "StreamItem": "tasks.stream",
    "Subscription": "signals.subscription",
    "SyncProducer": "sync_producer",
    "Task": "tasks.task",
    "TaskStats": "tasks.queue_stats",
    "Tasks": "tasks.admin",
    "Term": "elections.term",
    "Unavailable": "errors",
    "Undo": "tasks.undo",
    "UniqueUntil": "tasks.options",
    "UnknownSchedule": "errors",
    "UnknownTask": "errors",
    "UnreadablePayload": "errors",
    "WaitEntry": "reports.report",
    "Waiter": "reports.report",
    "WorkerHealth": "tasks.health",
    "WorkerStatus": "tasks.workers",
    "WriteLease": "rwlock",
    "WriteLock": "rwlock",
    "WrongLayout": "errors",
    "WrongState": "errors",
    "current_job": "tasks.claimed_job",
    "tokenize": "index.words",
    "wait_all": "signals.signal",
    "wait_any": "signals.signal",
}
_MODULES = {"durable", "errors"}

if not TYPE_CHECKING:  # a checker would find any name here

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return import_module(f"inconcert.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'inconcert' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"inconcert.{_HOMES[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_MODULES})
