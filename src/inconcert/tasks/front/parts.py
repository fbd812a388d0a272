"""The parts of a coordinator for tasks: made and imported with the first task, job or worker."""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING

from inconcert._core.session import SessionRef
from inconcert.tasks.following.watch import Watches
from inconcert.tasks.operating.admin import Tasks
from inconcert.tasks.records.history import Histories
from inconcert.tasks.records.store import JobKeyspace
from inconcert.tasks.running.registry import Registry
from inconcert.tasks.schedules.schedules import Schedules
from inconcert.tasks.sending.enqueue import EnqueueBatcher

if TYPE_CHECKING:  # a worker is imported when it runs
    from inconcert.tasks.running.lifespan import Lifespan
    from inconcert.tasks.running.worker import Middleware


class TaskParts:
    """The parts of one coordinator."""

    def __init__(self, ref: SessionRef, partitions: int) -> None:
        self.ref = ref
        self.keyspace = keyspace = JobKeyspace(ref.keys, partitions)  # the keys of all jobs
        self.watches = Watches(keyspace)  # the waits for jobs in this process
        self.enqueuing = EnqueueBatcher(ref, keyspace, self.watches)  # sends new jobs
        self.registry = Registry(self.enqueuing, Histories(ref, keyspace))  # the functions
        self.tasks = Tasks(ref, keyspace, self.watches, self.registry)  # for operators
        self.schedules = Schedules(ref, keyspace, self.enqueuing)  # those that the server keeps
        self.middlewares: list[Middleware] = []  # what runs around each attempt, the outermost first
        self.lifespan: Lifespan | None = None  # what runs around all workers of this process; None for nothing

    def lifespan_around(self, stop: asyncio.Event | None = None) -> AbstractAsyncContextManager[None]:
        """The lifespan around one worker, which ends when `stop` is set; nothing if there is none."""
        return nullcontext() if self.lifespan is None else self.lifespan.around(stop)
