"""The background work that enqueues the jobs of schedules when they are due."""

import asyncio
import logging
import time
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Self

import anyio

from inconcert._core.cancellation import cancel_all
from inconcert._core.session import Session, SessionRef
from inconcert._core.shield import run_shielded
from inconcert._redis.background import in_background
from inconcert.errors import InconcertError
from inconcert.tasks.due_jobs import DueJobs
from inconcert.tasks.schedule import Schedule
from inconcert.tasks.store import ENQUEUE_DUE, JobKeyspace
from inconcert.tasks.stored_schedule import StoredSchedule

__all__ = ["Scheduler"]

_log = logging.getLogger("inconcert.tasks")

_REMEMBERED_MS = 30 * 24 * 3600 * 1000  # for which a schedule is remembered that no worker checks
_RECHECK_AFTER_MS = 60_000  # how far the next instant is trusted to the local clock's rate; also keeps it remembered
_AFTER_A_FAILURE = 1.0  # seconds


class Scheduler:
    """Enqueues scheduled jobs when they are due. Any number of schedulers may do so at once, without a lock.

    Each computes the instants from the server's clock, as the script returned it, and sleeps until the next. Then each
    asks the script to enqueue the job of that instant, and the script does it for the first.  As an async context
    manager it works while its body runs.

    Args:
        ref: Refers to the open session.
        jobs: The keys of all jobs.
        schedules: The schedules to follow.
    """

    def __init__(self, ref: SessionRef, jobs: JobKeyspace, schedules: Sequence[Schedule]) -> None:
        self._ref = ref
        self._jobs = jobs
        self._schedules = schedules
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        session = self._ref.session
        self._tasks = [
            in_background(f"following schedule {schedule}", partial(self._follow, session, schedule))
            for schedule in self._schedules
        ]
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await run_shielded(cancel_all(self._tasks))

    async def _follow(self, session: Session, schedule: Schedule) -> None:
        while True:
            try:
                await self._keep(session, schedule)
            except InconcertError as error:
                _log.warning("schedule %s cannot be followed now: %s", schedule, error)
            await anyio.sleep(_AFTER_A_FAILURE)

    async def _keep(self, session: Session, schedule: Schedule) -> None:
        due: list[int] = []
        while True:
            now_ms, last_ms = await self._tick(session, schedule, due)
            answered_at = time.monotonic()
            due = schedule.due(last_ms, now_ms)
            if not due:
                wake_ms = min(schedule.next(now_ms), now_ms + _RECHECK_AFTER_MS)
                await anyio.sleep(answered_at + (wake_ms - now_ms) / 1000 - time.monotonic())
                due = schedule.due(last_ms, wake_ms)

    async def _tick(self, session: Session, schedule: Schedule, due: list[int]) -> tuple[int, int]:
        keys = self._jobs.of_task(schedule.task.name)
        place = keys.queue(schedule.task.defaults.queue)
        stored = StoredSchedule.of(schedule)
        tick = partial(
            ENQUEUE_DUE,
            keys,
            place,
            name=place.name,
            schedule=stored.id,
            rule=stored.rule,
            definition=stored.stored(session.key_ring),
            ttl_ms=_REMEMBERED_MS,
        )
        jobs = DueJobs(session, schedule.task.name, schedule.task.defaults.queue, due, schedule.draft)
        now_ms, last_ms, added = await session.run(
            tick(void_ms="", results=keys.results(jobs.ids), instants=jobs.arguments)
        )
        if added:  # otherwise another worker has enqueued them
            jobs.were_added(added)
            _log.info("schedule %s: jobs that are due: %d", schedule, added)
        if schedule.next(now_ms) < last_ms:  # the clock was set back, and no instant until then may be missed
            now_ms, last_ms, _ = await session.run(tick(void_ms=last_ms, results=[], instants=[]))
        return now_ms, last_ms
