"""The background work that follows schedules: those that operators can change, and those in the code of this process.

The server knows when each is to be looked at.  A worker that asks gets those that are due, and for a few seconds no
other does; it computes their instants, and one script enqueues the jobs and moves the schedule to the next instant.  If
the worker dies before that, another gets them a few seconds later.

Of the schedules in code a worker gets only those that are in its own, and it makes their jobs by that.  It declares
them when it begins, and again if the server has lost them.

Source: docs/explanation/schedules.md
"""

import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import anyio

from inconcert._core.cancellation import cancel_all
from inconcert._core.channel_subscription import ChannelSubscription
from inconcert._core.session import Session, SessionRef
from inconcert._core.shield import run_shielded
from inconcert._redis.protocol.commands import Argument
from inconcert._redis.wire.background import attempt, in_background, note_failure
from inconcert._redis.wire.call import Call
from inconcert.errors import InconcertError, NotConnected
from inconcert.tasks.records.store import ADVANCE, ADVANCE_ALONE, DECLARE, DUE, JobKeys, JobKeyspace
from inconcert.tasks.schedules.schedule import Schedule
from inconcert.tasks.schedules.stored_schedule import Progress, StoredSchedule
from inconcert.tasks.sending.due_jobs import DueJobs

_log = logging.getLogger("inconcert.tasks")

_HOLD_MS = 5_000  # for which no other worker looks at a schedule: longer than one may stand still between two commands
_REMEMBERED_MS = 30 * 24 * 3600 * 1000  # for which it is known when a worker looked last
_RECHECK_AFTER = 60.0  # seconds, in case a change was not heard of; and to which the local clock's rate is trusted
_AFTER_A_FAILURE = 1.0  # seconds
_MOST_BYTES = 2**20  # of jobs in one script, so that none holds up the server for long
_MOST_DECLARED = 100  # schedules in one script, likewise
_MOST_ASKED = 1_000  # schedules in code in one script, likewise


@asynccontextmanager
async def following(ref: SessionRef, keyspace: JobKeyspace, in_code: Sequence[Schedule]) -> AsyncGenerator[None]:
    """Enqueue the jobs of schedules when they are due, during the body; any number of workers may do so at once."""
    tasks = [in_background("following schedules", each.follow) for each in followers(ref, keyspace, in_code)]
    try:
        yield
    finally:
        await run_shielded(cancel_all(tasks))


def followers(ref: SessionRef, keyspace: JobKeyspace, in_code: Sequence[Schedule]) -> "list[PartitionFollower]":
    """One for each partition: a schedule in the code of this process lies with its task."""
    placed = [(keyspace.of_task(schedule.task.name), schedule) for schedule in in_code]
    return [
        PartitionFollower(ref.session, keys, [schedule for place, schedule in placed if place is keys])
        for keys in keyspace.partitions
    ]


class _Times(NamedTuple):
    """The times of a worker's look, of the next one, or -1, and of the end of its hold; in server ms."""

    now_ms: int
    next_ms: int
    held_ms: bytes  # with fractions, so that no two looks have the same


class _Found(NamedTuple):
    """A schedule, as it is stored."""

    id: bytes
    progress: bytes
    text: bytes


class PartitionFollower:
    """Follows the schedules of one partition.

    Args:
        in_code: The schedules in the code of this process that lie there.
    """

    def __init__(self, session: Session, keys: JobKeys, in_code: Sequence[Schedule] = ()) -> None:
        self._session = session
        self._keys = keys
        self._in_code = {str(schedule): schedule for schedule in in_code}
        self._undeclared = dict.fromkeys(self._in_code)  # in order

    async def follow(self) -> None:
        """Do due work in its time, until cancelled."""
        while True:
            try:
                async with ChannelSubscription(self._session, self._keys.schedule_changes, buffer=1) as changes:
                    while True:
                        asked_at = time.monotonic()
                        seconds = await self.look()
                        with anyio.move_on_after(asked_at + seconds - time.monotonic()):
                            await changes.next()
            except NotConnected:
                return
            except InconcertError as error:
                _log.warning("schedules cannot be followed now: %s", error)
                await anyio.sleep(_AFTER_A_FAILURE)

    async def look(self) -> float:
        """Do due work now, and return after how many seconds to look again."""
        await self._declare()
        ids = [id_ for id_ in self._in_code if id_ not in self._undeclared]
        portions = [ids[start : start + _MOST_ASKED] for start in range(0, len(ids) or 1, _MOST_ASKED)]
        longest = _AFTER_A_FAILURE if self._undeclared else _RECHECK_AFTER
        return min([longest, *[await self._look_at(portion) for portion in portions]])

    async def _declare(self) -> None:
        """Tell the server the news about schedules in code."""
        ids = list(self._undeclared)
        for start in range(0, len(ids), _MOST_DECLARED):
            entries: list[Argument] = []
            made = [
                id_
                for id_ in ids[start : start + _MOST_DECLARED]
                if attempt(_following(id_), self._add_entry, entries, self._in_code[id_])
            ]
            if made:
                await self._session.run(DECLARE(self._keys, ttl_ms=_REMEMBERED_MS, entries=entries))
            for id_ in made:
                del self._undeclared[id_]

    def _add_entry(self, entries: list[Argument], schedule: Schedule) -> None:
        stored = StoredSchedule.of(schedule)
        entries += (stored.id, stored.rule, stored.stored(self._session.key_ring))

    async def _look_at(self, ids: Sequence[str]) -> float:
        """Do the due work of these schedules in code, and of those that operators can change."""
        reply = await self._session.run(DUE(self._keys, hold_ms=_HOLD_MS, ttl_ms=_REMEMBERED_MS, ids=ids))
        *times, taken, lost = reply
        times = _Times(*times)
        steps: list[_Step] = []
        problems: list[Exception] = []
        again_ms = [] if times.next_ms < 0 else [times.next_ms]
        for found in map(_Found._make, taken):
            in_code = self._in_code.get(found.id.decode(errors="replace"))
            try:
                steps.append(_Step(self._session, self._keys, times, found, in_code))
            except Exception as error:  # noqa: BLE001 - also of what is not ours: it must not stop the others
                if in_code is None:
                    problems.append(error)
                else:
                    note_failure(_following(str(in_code)), error)
                    again_ms.append(times.now_ms + _HOLD_MS)
        if problems:
            _log.warning("schedules that this worker cannot follow: %d; the first: %s", len(problems), problems[0])
            self._session.observers.schedules_unread(len(problems))
        for step, added in zip(steps, await self._session.gather([step.call for step in steps]), strict=True):
            step.ended(added)
            if added < 0:  # it was changed, declared anew or taken meanwhile
                again_ms.append(times.now_ms)
            elif step.due.next_ms is not None:
                again_ms.append(step.due.next_ms)
        if lost:
            self._undeclared |= dict.fromkeys(id_.decode() for id_ in lost)
            again_ms.append(times.now_ms)
        return min([_RECHECK_AFTER, *((at_ms - times.now_ms) / 1000 for at_ms in again_ms)])


class _Step:
    """The step of one schedule from its last instant to the next."""

    def __init__(self, session: Session, keys: JobKeys, times: _Times, found: _Found, in_code: Schedule | None) -> None:
        progress = Progress.read(found.progress)
        if in_code is None:
            schedule = StoredSchedule.read(session.key_ring, found.id.decode(), found.text)
        else:
            schedule = StoredSchedule.of(in_code)
        self._schedule = schedule
        self.due = due = schedule.due(progress, times.now_ms, most=max(1, _MOST_BYTES // len(found.text)))
        self._jobs = DueJobs(session, schedule.job.name, schedule.queue, due.instants, schedule.draft)
        queue = keys.queue(schedule.queue)
        results = keys.results(self._jobs.ids)
        step: dict[str, Argument] = {
            "name": queue.name,
            "schedule": schedule.id,
            "is_in_code": int(in_code is not None),
            "held_ms": times.held_ms,
            "since_ms": progress.since_ms,
            "until_ms": due.until_ms,
            "next_ms": "" if due.next_ms is None else due.next_ms,
        }
        if schedule.overlap != "allow" and due.instants and progress.last_ms:
            [result], [instant_ms, id_, envelope] = results, self._jobs.arguments
            step |= {
                "former": schedule.job_id(progress.last_ms),
                "before": schedule.job_id(progress.before_ms) if progress.before_ms else "",
                "waits": int(schedule.overlap == "wait"),
                "instant_ms": instant_ms,
                "id": id_,
                "envelope": envelope,
            }
            self.call = Call(ADVANCE_ALONE(keys, queue, result=result, **step))
        else:
            self.call = Call(ADVANCE(keys, queue, results=results, instants=self._jobs.arguments, **step))

    def ended(self, added: int) -> None:
        """The script has answered."""
        if added > 0:  # otherwise nothing was due, or another worker has come first
            self._jobs.were_added(added)
            _log.info("schedule %s: jobs that are due: %d", self._schedule, added)
        elif added == 0 and self.due.instants and self._schedule.overlap != "allow":
            _log.info("schedule %s: an instant has no job, because another one has not ended", self._schedule)


def _following(schedule: str) -> str:
    return f"following schedule {schedule}"
