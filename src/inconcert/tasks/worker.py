"""A worker: a consumer that runs the registered function of each job, many at a time."""

import inspect
import logging
import time

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from inconcert.errors import InconcertError, UnknownTask
from inconcert.tasks.consumer import Consumer
from inconcert.tasks.job import ClaimedJob
from inconcert.tasks.registry import Registry

__all__ = ["Worker"]

_log = logging.getLogger("inconcert.tasks")


class Worker:
    """Runs jobs until it is cancelled.

    A job is claimed only when one of the `concurrency` places is free, so a worker never hoards.  When it is cancelled
    the running jobs are cancelled, too, and go back to the front of their queues at once.

    Args:
        consumer: Where jobs come from; opened and closed by the worker.
        registry: The functions.
        concurrency: How many jobs may run at once, 1 or more.
    """

    def __init__(self, consumer: Consumer, registry: Registry, *, concurrency: int) -> None:
        if type(concurrency) is not int or concurrency < 1:
            raise ValueError(f"concurrency is {concurrency!r}; give a whole number from 1")
        self._consumer = consumer
        self._registry = registry
        self._free = concurrency
        self._freed = anyio.Event()
        self._threads = anyio.CapacityLimiter(concurrency)  # anyio's own has room for 40, shared with the whole service

    async def run(self) -> None:
        """Claim and run, until cancelled.

        Raises:
            NotConnected: The coordinator is not open, or was closed meanwhile.
        """
        async with self._consumer:
            closed: InconcertError | None = None
            async with anyio.create_task_group() as running:
                closed = await self._claim_and_start(running)
            if closed is not None:
                raise closed  # not from within the group, from where it would come in an ExceptionGroup

    async def _claim_and_start(self, running: TaskGroup) -> InconcertError:
        while True:
            while not self._free:
                self._freed = anyio.Event()
                await self._freed.wait()
            try:
                jobs = await self._consumer.claim(self._free)
            except InconcertError as error:
                return error
            self._free -= len(jobs)
            for job in jobs:
                running.start_soon(self._run, job)

    async def _run(self, job: ClaimedJob) -> None:
        started_at = time.monotonic()
        _log.info("%r starts", job)
        try:
            if not job.is_over:  # lost before it began
                async with job:
                    if await self._can_run(job):
                        await self._call(job)
        finally:
            self._free += 1
            self._freed.set()
        _log.info("%r ended after %.3f s", job, time.monotonic() - started_at)

    async def _can_run(self, job: ClaimedJob) -> bool:
        """Set a job aside for which another attempt cannot go better."""
        try:
            self._registry.find(job.name).check(*job.args, **job.kwargs)
        except (UnknownTask, TypeError) as error:
            await job.bury(error)
            return False
        return True

    async def _call(self, job: ClaimedJob) -> None:
        function = self._registry.find(job.name).function
        if inspect.iscoroutinefunction(function):
            await function(*job.args, **job.kwargs)
        else:
            result = await anyio.to_thread.run_sync(lambda: function(*job.args, **job.kwargs), limiter=self._threads)
            if inspect.isawaitable(result):  # a plain wrapper around a coroutine function
                await result
