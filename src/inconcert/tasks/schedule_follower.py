"""The background work that follows the schedules that operators can change.

The server knows when each is to be looked at.  A worker that asks gets those that are due, and for a few seconds no
other does; it computes their instants, and one script enqueues the jobs and moves the schedule to the next instant.  If
the worker dies before that, another gets them a few seconds later.

Source: docs/explanation/schedules.md
"""

import asyncio
import logging
import time
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

import anyio

from inconcert._core.cancellation import cancel_all
from inconcert._core.channel_subscription import ChannelSubscription
from inconcert._core.session import Session, SessionRef
from inconcert._core.shield import run_shielded
from inconcert._redis.background import in_background
from inconcert._redis.call import Call
from inconcert.errors import InconcertError, NotConnected
from inconcert.tasks.due_jobs import DueJobs
from inconcert.tasks.store import ADVANCE, DUE, JobKeys, JobKeyspace
from inconcert.tasks.stored_schedule import Progress, StoredSchedule

__all__ = ["ScheduleFollower", "look"]

_log = logging.getLogger("inconcert.tasks")

_HOLD_MS = 5_000  # for which no other worker looks at a schedule: longer than one may stand still between two commands
_REMEMBERED_MS = 30 * 24 * 3600 * 1000  # for which it is known when a worker looked last
_RECHECK_AFTER = 60.0  # seconds, in case a change was not heard of; and to which the local clock's rate is trusted
_AFTER_A_FAILURE = 1.0  # seconds
_MOST_BYTES = 2**20  # of jobs in one script, so that none holds up the server for long


class ScheduleFollower:
    """Enqueues the jobs of stored schedules when they are due. Any number of workers may do so at once.

    As an async context manager it works while its body runs.

    Args:
        ref: Refers to the open session.
        jobs: The keys of all jobs.
    """

    def __init__(self, ref: SessionRef, jobs: JobKeyspace) -> None:
        self._ref = ref
        self._jobs = jobs
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        session = self._ref.session
        self._tasks = [
            in_background("following stored schedules", partial(_follow, session, keys))
            for keys in self._jobs.partitions
        ]
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await run_shielded(cancel_all(self._tasks))


class _Times(NamedTuple):
    """When a worker looked, when to look again, or -1, and until when it holds what it has taken; in server ms."""

    now_ms: int
    next_ms: int
    held_ms: bytes  # with fractions, so that no two looks have the same


class _Found(NamedTuple):
    """A schedule, as it is stored."""

    id: bytes
    progress: bytes
    text: bytes


async def _follow(session: Session, keys: JobKeys) -> None:
    """Follow the schedules of one partition until cancelled."""
    while True:
        try:
            async with ChannelSubscription(session, keys.schedule_changes, buffer=1) as changes:
                while True:
                    asked_at = time.monotonic()
                    seconds = await look(session, keys)
                    with anyio.move_on_after(asked_at + seconds - time.monotonic()):
                        await changes.next()
        except NotConnected:
            return
        except InconcertError as error:
            _log.warning("schedules cannot be followed now: %s", error)
            await anyio.sleep(_AFTER_A_FAILURE)


async def look(session: Session, keys: JobKeys) -> float:
    """Do what is due, and return after how many seconds to look again."""
    *times, taken = await session.run(DUE(keys, hold_ms=_HOLD_MS, ttl_ms=_REMEMBERED_MS))
    times = _Times(*times)
    steps: list[_Step] = []
    problems: list[Exception] = []
    for found in taken:
        try:
            steps.append(_Step(session, keys, times, _Found(*found)))
        except Exception as error:  # noqa: BLE001 - also of what is not ours: it must not stop the others
            problems.append(error)
    if problems:
        _log.warning("schedules that this worker cannot follow: %d; the first: %s", len(problems), problems[0])
        for observer in session.observers:
            observer.schedules_unread(len(problems))
    for step, added in zip(steps, await session.gather([step.call for step in steps]), strict=True):
        step.ended(added)
    following = [step.due.next_ms for step in steps if step.due.next_ms is not None]
    if times.next_ms >= 0:
        following.append(times.next_ms)
    return min([_RECHECK_AFTER, *((at_ms - times.now_ms) / 1000 for at_ms in following)])


class _Step:
    """What brings one schedule from its last instant to the next."""

    def __init__(self, session: Session, keys: JobKeys, times: _Times, found: _Found) -> None:
        progress = Progress.read(found.progress)
        self._schedule = schedule = StoredSchedule.read(session.key_ring, found.id.decode(), found.text)
        self.due = due = schedule.due(progress, times.now_ms, most=max(1, _MOST_BYTES // len(found.text)))
        self._jobs = DueJobs(session, schedule.job.name, schedule.queue, due.instants, schedule.draft)
        place = keys.queue(schedule.queue)
        self.call = Call(
            ADVANCE(
                keys,
                place,
                results=keys.results(self._jobs.ids),
                name=place.name,
                schedule=schedule.id,
                held_ms=times.held_ms,
                since_ms=progress.since_ms,
                until_ms=due.until_ms,
                next_ms="" if due.next_ms is None else due.next_ms,
                instants=self._jobs.arguments,
            )
        )

    def ended(self, added: int) -> None:
        """The script has answered."""
        if added > 0:  # otherwise nothing was due, or another worker has come first
            self._jobs.were_added(added)
            _log.info("schedule %s: jobs that are due: %d", self._schedule, added)
