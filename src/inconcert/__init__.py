"""Coordination for asyncio services on Redis and Valkey.

Open a `Coordinator`, and take locks, permits and turns, hand out work, and talk, among all processes of a service.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from inconcert._version import __version__ as __version__

if TYPE_CHECKING:  # for type checkers, editors and the reference
    from inconcert import durable as durable
    from inconcert._claims.consumer import Guarantee as Guarantee
    from inconcert._core.channel_subscription import Gap as Gap
    from inconcert._core.lease import Lease as Lease
    from inconcert.barrier import Barrier as Barrier
    from inconcert.chat.chats import Chats as Chats
    from inconcert.chat.messages import Batch as Batch, Message as Message
    from inconcert.coordinator import Coordinator as Coordinator, CoordinatorOptions as CoordinatorOptions
    from inconcert.elections.election import Election as Election
    from inconcert.elections.record import ElectionRecord as ElectionRecord
    from inconcert.elections.term import Term as Term
    from inconcert.errors import (
        AcquireTimeout as AcquireTimeout,
        BarrierBroken as BarrierBroken,
        ChatNotFound as ChatNotFound,
        GroupClosed as GroupClosed,
        GroupNotFound as GroupNotFound,
        GroupResultsGone as GroupResultsGone,
        InconcertError as InconcertError,
        InvalidName as InvalidName,
        InvalidPayload as InvalidPayload,
        ItemNotFound as ItemNotFound,
        JobCancelled as JobCancelled,
        JobExpired as JobExpired,
        JobFailed as JobFailed,
        JobNotFound as JobNotFound,
        LeaseLost as LeaseLost,
        MessageRefused as MessageRefused,
        NobodyHolds as NobodyHolds,
        NotAMember as NotAMember,
        NotClaimed as NotClaimed,
        NotConnected as NotConnected,
        NotHeld as NotHeld,
        OutcomeUnknown as OutcomeUnknown,
        QueueFull as QueueFull,
        QueueShutDown as QueueShutDown,
        QuorumNotReached as QuorumNotReached,
        RateLimited as RateLimited,
        StaleToken as StaleToken,
        StepChanged as StepChanged,
        StepRefused as StepRefused,
        Unavailable as Unavailable,
        UnknownSchedule as UnknownSchedule,
        UnknownTask as UnknownTask,
        UnreadablePayload as UnreadablePayload,
        WrongLayout as WrongLayout,
        WrongState as WrongState,
    )
    from inconcert.event import Event as Event
    from inconcert.index.index import Hit as Hit, Index as Index
    from inconcert.index.words import tokenize as tokenize
    from inconcert.latch import Latch as Latch
    from inconcert.lock import Lock as Lock
    from inconcert.locks import Leases as Leases, Locks as Locks
    from inconcert.mailboxes.fetch import MailboxMessage as MailboxMessage
    from inconcert.mailboxes.mailbox import Mailbox as Mailbox
    from inconcert.members.changes import (
        Changed as Changed,
        Joined as Joined,
        Left as Left,
        Lost as Lost,
        MemberChange as MemberChange,
    )
    from inconcert.members.member import Member as Member
    from inconcert.members.members import Members as Members
    from inconcert.queues.delivery import Delivery as Delivery
    from inconcert.queues.queue import DeadItem as DeadItem, Queue as Queue, QueueCounts as QueueCounts
    from inconcert.queues.worker_lease import QueueOrder as QueueOrder
    from inconcert.quorum.lock import QuorumLease as QuorumLease, QuorumLock as QuorumLock
    from inconcert.rate_limiter import (
        RateDecision as RateDecision,
        RateLimiter as RateLimiter,
        RateStatus as RateStatus,
    )
    from inconcert.rate_limiters import RateLimiters as RateLimiters
    from inconcert.reports.explanation import Explanation as Explanation, Reason as Reason
    from inconcert.reports.report import (
        Blocked as Blocked,
        Deadlock as Deadlock,
        HeldEntry as HeldEntry,
        HeldItem as HeldItem,
        HeldLock as HeldLock,
        Inspection as Inspection,
        ItemConsumer as ItemConsumer,
        ProcessReport as ProcessReport,
        SignalListener as SignalListener,
        WaitEntry as WaitEntry,
        Waiter as Waiter,
    )
    from inconcert.reservation import Reservation as Reservation
    from inconcert.rwlock import (
        ReadLock as ReadLock,
        RWLock as RWLock,
        WriteLease as WriteLease,
        WriteLock as WriteLock,
    )
    from inconcert.semaphore import Semaphore as Semaphore
    from inconcert.signals.patterns import Signalled as Signalled, Signals as Signals
    from inconcert.signals.signal import Signal as Signal, wait_all as wait_all, wait_any as wait_any
    from inconcert.signals.subscription import Subscription as Subscription
    from inconcert.sync_coordinator import (
        SyncCoordinator as SyncCoordinator,
        SyncLease as SyncLease,
        SyncPermits as SyncPermits,
        SyncRateLimiter as SyncRateLimiter,
    )
    from inconcert.sync_producer import (
        EnqueuedJob as EnqueuedJob,
        PreparedJob as PreparedJob,
        SyncProducer as SyncProducer,
    )
    from inconcert.tasks.durable.retrying import Retrying as Retrying
    from inconcert.tasks.durable.snooze import Snooze as Snooze
    from inconcert.tasks.durable.step_records import StepRecord as StepRecord
    from inconcert.tasks.durable.undo import Undo as Undo
    from inconcert.tasks.following.group_results import MemberResult as MemberResult
    from inconcert.tasks.following.job import Job as Job, Progress as Progress
    from inconcert.tasks.following.stream import Restarted as Restarted, StreamItem as StreamItem
    from inconcert.tasks.operating.admin import Tasks as Tasks
    from inconcert.tasks.operating.job_info import JobInfo as JobInfo
    from inconcert.tasks.operating.job_pages import JobPage as JobPage
    from inconcert.tasks.operating.queue_stats import (
        LimitStats as LimitStats,
        QueueStats as QueueStats,
        TaskStats as TaskStats,
    )
    from inconcert.tasks.operating.stopped_keys import StoppedKey as StoppedKey
    from inconcert.tasks.records.attempts import FailedAttempt as FailedAttempt
    from inconcert.tasks.records.counts import (
        DurationSpread as DurationSpread,
        EndCounts as EndCounts,
        TaskCounts as TaskCounts,
    )
    from inconcert.tasks.records.deaths import DeadJob as DeadJob
    from inconcert.tasks.records.history import EndedJob as EndedJob
    from inconcert.tasks.records.limits import (
        JobCost as JobCost,
        JobKey as JobKey,
        KeyOnDead as KeyOnDead,
        KeyOrder as KeyOrder,
        Limit as Limit,
        Rate as Rate,
    )
    from inconcert.tasks.records.retry import Retry as Retry
    from inconcert.tasks.records.status import JobStatus as JobStatus
    from inconcert.tasks.running.claimed_job import ClaimedJob as ClaimedJob, current_job as current_job
    from inconcert.tasks.running.consumer import Consumer as Consumer
    from inconcert.tasks.running.health import (
        HealthReport as HealthReport,
        HealthState as HealthState,
        WorkerHealth as WorkerHealth,
    )
    from inconcert.tasks.running.health_server import HealthServer as HealthServer
    from inconcert.tasks.running.workers import RunningJob as RunningJob, WorkerStatus as WorkerStatus
    from inconcert.tasks.schedules.schedule import Missed as Missed, Overlap as Overlap
    from inconcert.tasks.schedules.schedules import Schedules as Schedules, ScheduleStatus as ScheduleStatus
    from inconcert.tasks.sending.draft import Draft as Draft
    from inconcert.tasks.sending.group import Group as Group, GroupProgress as GroupProgress, GroupWhen as GroupWhen
    from inconcert.tasks.sending.options import EvenIf as EvenIf, JobOptions as JobOptions, UniqueUntil as UniqueUntil
    from inconcert.tasks.sending.task import Task as Task

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
    "FailedAttempt": "tasks.records.attempts",
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

if not TYPE_CHECKING:  # a checker reads the imports, and would find any name here
    __all__ = ["__version__", "durable", *_HOMES]  # noqa: PLE0604 - all of them are strings

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return import_module(f"inconcert.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'inconcert' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"inconcert.{_HOMES[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_MODULES})
