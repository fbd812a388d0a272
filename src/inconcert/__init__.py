"""Coordination for asyncio services on Redis and Valkey.

Open a `Coordinator`, and take locks, permits and turns, hand out work, and talk, among all processes of a service.
"""

from inconcert._core.lease import Lease
from inconcert.chat.chats import Chats
from inconcert.chat.reading import Batch, Message
from inconcert.coordinator import Coordinator
from inconcert.errors import (
    AcquireTimeout,
    ChatNotFound,
    InconcertError,
    InvalidName,
    InvalidPayload,
    LeaseLost,
    NotAMember,
    NotConnected,
    NotHeld,
    OutcomeUnknown,
    Unavailable,
    UnknownTask,
    WrongState,
)
from inconcert.lock import Lock
from inconcert.semaphore import Semaphore
from inconcert.tasks.consumer import Consumer
from inconcert.tasks.job import ClaimedJob, Job
from inconcert.tasks.task import Task

__all__ = [
    "AcquireTimeout",
    "Batch",
    "ChatNotFound",
    "Chats",
    "ClaimedJob",
    "Consumer",
    "Coordinator",
    "InconcertError",
    "InvalidName",
    "InvalidPayload",
    "Job",
    "Lease",
    "LeaseLost",
    "Lock",
    "Message",
    "NotAMember",
    "NotConnected",
    "NotHeld",
    "OutcomeUnknown",
    "Semaphore",
    "Task",
    "Unavailable",
    "UnknownTask",
    "WrongState",
]
