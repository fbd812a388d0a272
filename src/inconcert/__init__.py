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
        GroupResultsGone,
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
        RateLimited,
        StaleToken,
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
    from inconcert.rate_limiters import RateLimiters
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
    from inconcert.reservation import Reservation
    from inconcert.rwlock import ReadLock, RWLock, WriteLease, WriteLock
    from inconcert.semaphore import Semaphore
    from inconcert.signals.patterns import Signalled, Signals
    from inconcert.signals.signal import Signal, wait_all, wait_any
    from inconcert.signals.subscription import Subscription
    from inconcert.sync_coordinator import SyncCoordinator, SyncLease, SyncPermits, SyncRateLimiter
    from inconcert.sync_producer import EnqueuedJob, PreparedJob, SyncProducer
    from inconcert.tasks.durable.retrying import Retrying
    from inconcert.tasks.durable.snooze import Snooze
    from inconcert.tasks.durable.step_records import StepRecord
    from inconcert.tasks.durable.undo import Undo
    from inconcert.tasks.following.group_results import MemberResult
    from inconcert.tasks.following.job import Job, Progress
    from inconcert.tasks.following.stream import Restarted, StreamItem
    from inconcert.tasks.operating.admin import Tasks
    from inconcert.tasks.operating.job_info import JobInfo
    from inconcert.tasks.operating.job_pages import JobPage
    from inconcert.tasks.operating.queue_stats import LimitStats, QueueStats, TaskStats
    from inconcert.tasks.operating.stopped_keys import StoppedKey
    from inconcert.tasks.records.counts import DurationSpread, EndCounts, TaskCounts
    from inconcert.tasks.records.deaths import DeadJob
    from inconcert.tasks.records.history import EndedJob
    from inconcert.tasks.records.limits import JobCost, JobKey, KeyOnDead, KeyOrder, Limit, Rate
    from inconcert.tasks.records.retry import Retry
    from inconcert.tasks.records.status import JobStatus
    from inconcert.tasks.running.claimed_job import ClaimedJob, current_job
    from inconcert.tasks.running.consumer import Consumer
    from inconcert.tasks.running.health import HealthReport, HealthState, WorkerHealth
    from inconcert.tasks.running.health_server import HealthServer
    from inconcert.tasks.running.workers import RunningJob, WorkerStatus
    from inconcert.tasks.schedules.schedule import Missed, Overlap
    from inconcert.tasks.schedules.schedules import Schedules, ScheduleStatus
    from inconcert.tasks.sending.draft import Draft
    from inconcert.tasks.sending.group import Group, GroupProgress, GroupWhen
    from inconcert.tasks.sending.options import EvenIf, JobOptions, UniqueUntil
    from inconcert.tasks.sending.task import Task

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
    "DurationSpread",
    "Election",
    "ElectionRecord",
    "EndCounts",
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
    "GroupResultsGone",
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
    "JobCost",
    "JobExpired",
    "JobFailed",
    "JobInfo",
    "JobKey",
    "JobNotFound",
    "JobOptions",
    "JobPage",
    "JobStatus",
    "Joined",
    "KeyOnDead",
    "KeyOrder",
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
    "MemberResult",
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
    "Overlap",
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
    "RateLimited",
    "RateLimiter",
    "RateLimiters",
    "RateStatus",
    "ReadLock",
    "Reason",
    "Reservation",
    "Restarted",
    "Retry",
    "Retrying",
    "RunningJob",
    "ScheduleStatus",
    "Schedules",
    "Semaphore",
    "Signal",
    "SignalListener",
    "Signalled",
    "Signals",
    "Snooze",
    "StaleToken",
    "StepChanged",
    "StepRecord",
    "StepRefused",
    "StoppedKey",
    "StreamItem",
    "Subscription",
    "SyncCoordinator",
    "SyncLease",
    "SyncPermits",
    "SyncProducer",
    "SyncRateLimiter",
    "Task",
    "TaskCounts",
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
    "ClaimedJob": "tasks.running.claimed_job",
    "Consumer": "tasks.running.consumer",
    "Coordinator": "coordinator",
    "CoordinatorOptions": "coordinator",
    "DeadItem": "queues.queue",
    "DeadJob": "tasks.records.deaths",
    "Deadlock": "reports.report",
    "Delivery": "queues.delivery",
    "Draft": "tasks.sending.draft",
    "DurationSpread": "tasks.records.counts",
    "Election": "elections.election",
    "ElectionRecord": "elections.record",
    "EndCounts": "tasks.records.counts",
    "EndedJob": "tasks.records.history",
    "EnqueuedJob": "sync_producer",
    "EvenIf": "tasks.sending.options",
    "Event": "event",
    "Explanation": "reports.explanation",
    "Gap": "_core.channel_subscription",
    "Group": "tasks.sending.group",
    "GroupClosed": "errors",
    "GroupNotFound": "errors",
    "GroupProgress": "tasks.sending.group",
    "GroupResultsGone": "errors",
    "GroupWhen": "tasks.sending.group",
    "Guarantee": "_claims.consumer",
    "HealthReport": "tasks.running.health",
    "HealthServer": "tasks.running.health_server",
    "HealthState": "tasks.running.health",
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
    "Job": "tasks.following.job",
    "JobCancelled": "errors",
    "JobCost": "tasks.records.limits",
    "JobExpired": "errors",
    "JobFailed": "errors",
    "JobKey": "tasks.records.limits",
    "KeyOnDead": "tasks.records.limits",
    "KeyOrder": "tasks.records.limits",
    "JobNotFound": "errors",
    "JobOptions": "tasks.sending.options",
    "JobPage": "tasks.operating.job_pages",
    "JobInfo": "tasks.operating.job_info",
    "JobStatus": "tasks.records.status",
    "Joined": "members.changes",
    "Latch": "latch",
    "Lease": "_core.lease",
    "LeaseLost": "errors",
    "Leases": "locks",
    "Left": "members.changes",
    "Limit": "tasks.records.limits",
    "LimitStats": "tasks.operating.queue_stats",
    "Lock": "lock",
    "Locks": "locks",
    "Lost": "members.changes",
    "Mailbox": "mailboxes.mailbox",
    "MailboxMessage": "mailboxes.fetch",
    "Member": "members.member",
    "MemberChange": "members.changes",
    "MemberResult": "tasks.following.group_results",
    "Members": "members.members",
    "Message": "chat.messages",
    "MessageRefused": "errors",
    "Missed": "tasks.schedules.schedule",
    "NobodyHolds": "errors",
    "NotAMember": "errors",
    "NotClaimed": "errors",
    "NotConnected": "errors",
    "NotHeld": "errors",
    "OutcomeUnknown": "errors",
    "Overlap": "tasks.schedules.schedule",
    "PreparedJob": "sync_producer",
    "ProcessReport": "reports.report",
    "Progress": "tasks.following.job",
    "Queue": "queues.queue",
    "QueueCounts": "queues.queue",
    "QueueFull": "errors",
    "QueueOrder": "queues.worker_lease",
    "QueueShutDown": "errors",
    "QueueStats": "tasks.operating.queue_stats",
    "QuorumLease": "quorum.lock",
    "QuorumLock": "quorum.lock",
    "QuorumNotReached": "errors",
    "RWLock": "rwlock",
    "Rate": "tasks.records.limits",
    "RateDecision": "rate_limiter",
    "RateLimited": "errors",
    "RateLimiter": "rate_limiter",
    "RateLimiters": "rate_limiters",
    "RateStatus": "rate_limiter",
    "ReadLock": "rwlock",
    "Reason": "reports.explanation",
    "Reservation": "reservation",
    "Restarted": "tasks.following.stream",
    "Retry": "tasks.records.retry",
    "Retrying": "tasks.durable.retrying",
    "RunningJob": "tasks.running.workers",
    "ScheduleStatus": "tasks.schedules.schedules",
    "Schedules": "tasks.schedules.schedules",
    "Semaphore": "semaphore",
    "Signal": "signals.signal",
    "SignalListener": "reports.report",
    "Signalled": "signals.patterns",
    "Signals": "signals.patterns",
    "Snooze": "tasks.durable.snooze",
    "StaleToken": "errors",
    "StepChanged": "errors",
    "StepRecord": "tasks.durable.step_records",
    "StepRefused": "errors",
    "StoppedKey": "tasks.operating.stopped_keys",
    "StreamItem": "tasks.following.stream",
    "Subscription": "signals.subscription",
    "SyncCoordinator": "sync_coordinator",
    "SyncLease": "sync_coordinator",
    "SyncPermits": "sync_coordinator",
    "SyncProducer": "sync_producer",
    "SyncRateLimiter": "sync_coordinator",
    "Task": "tasks.sending.task",
    "TaskCounts": "tasks.records.counts",
    "TaskStats": "tasks.operating.queue_stats",
    "Tasks": "tasks.operating.admin",
    "Term": "elections.term",
    "Unavailable": "errors",
    "Undo": "tasks.durable.undo",
    "UniqueUntil": "tasks.sending.options",
    "UnknownSchedule": "errors",
    "UnknownTask": "errors",
    "UnreadablePayload": "errors",
    "WaitEntry": "reports.report",
    "Waiter": "reports.report",
    "WorkerHealth": "tasks.running.health",
    "WorkerStatus": "tasks.running.workers",
    "WriteLease": "rwlock",
    "WriteLock": "rwlock",
    "WrongLayout": "errors",
    "WrongState": "errors",
    "current_job": "tasks.running.claimed_job",
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
