"""Schedules that operators can change while workers run."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any, NamedTuple

from inconcert._core.session import Session, SessionRef
from inconcert._redis.wire.call import Call
from inconcert._rules.durations import Seconds
from inconcert._rules.names import check_name
from inconcert._rules.payloads import JSON
from inconcert._rules.signing import KeyRing
from inconcert.errors import InvalidName, UnknownSchedule
from inconcert.tasks.following.job import Job
from inconcert.tasks.records.envelope import open_envelope
from inconcert.tasks.records.store import (
    COUNT_SCHEDULES,
    DELETE_SCHEDULE,
    FIND_SCHEDULE,
    LIST_SCHEDULES,
    PAUSE_SCHEDULE,
    PUT_SCHEDULE,
    JobKeys,
    JobKeyspace,
    id_prefix_in_code,
)
from inconcert.tasks.schedules.schedule import LATE_MS, Missed, Overlap, check_missed, check_overlap
from inconcert.tasks.schedules.stored_schedule import Progress, StoredSchedule, check_schedule_id, id_prefix, is_in_code
from inconcert.tasks.schedules.timetable import instant_text, timetable
from inconcert.tasks.sending.draft import Draft, refuse_id
from inconcert.tasks.sending.enqueue import EnqueueBatcher


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """A schedule, as `Schedules.list` found it.

    Attributes:
        id: Which schedule.
        rule: When it runs, such as `0 3 * * * Europe/Berlin`, `every 300 s` or `at 2026-12-24T17:00:00Z`; empty if it
            cannot be read.
        task: The name of the task that it runs; empty if it cannot be read.
        args: The positional arguments.
        kwargs: The keyword arguments.
        queue: Where its jobs go; empty if it cannot be read.
        missed: What happens to instants at which no worker was running; None if it cannot be read.
        overlap: What happens to instants at which the job of the last one has not ended; None if it cannot be read.
        is_in_code: Whether it is part of the code, `Coordinator.cron`: it can be paused, resumed and triggered, and
            not be put or deleted.
        is_paused: Whether it is paused.
        last_at: The last instant for which a job was enqueued, in seconds since 1970 by the server's clock; None if
            there was none yet, or it cannot be read.
        next_at: The next instant; in the past while no worker follows it. None if it is paused, or over.
        problem: Why it cannot be read here, and thus not followed by a worker like this process; None if it can.
    """

    id: str
    rule: str
    task: str
    args: Sequence[JSON]
    kwargs: "dict[str, JSON]"
    queue: str
    missed: Missed | None
    overlap: Overlap | None
    is_in_code: bool
    is_paused: bool
    last_at: float | None
    next_at: float | None
    problem: str | None


class Schedules:
    """Schedules that are kept on the server, where operators change them while workers run.

    All workers of the namespace follow them, whichever queues they serve. Each instant gets one job, whatever dies, and
    through restarts and changes. A change is in force at once: workers are told.

    ```python
    @concert.task()
    async def report(which: str) -> None: ...


    await concert.schedules.put("nightly", report.call("all"), cron="0 3 * * *", tz="Europe/Berlin")
    await concert.schedules.pause("nightly")
    ```

    They are `concert.schedules`. Schedules that are part of the code, `Coordinator.cron`, are listed, too, once a
    worker has followed them. Their ids are such as `every 300 s of task 'report'`, and they can be paused, resumed and
    triggered.
    """

    def __init__(self, ref: SessionRef, keyspace: JobKeyspace, enqueuing: EnqueueBatcher) -> None:
        self._ref = ref
        self._keyspace = keyspace
        self._enqueuing = enqueuing

    async def put(
        self,
        id_: str,
        call: Draft[Any],
        /,
        *,
        cron: str | None = None,
        every: Seconds | None = None,
        at: datetime | None = None,
        tz: str = "UTC",
        missed: Missed = "once",
        overlap: Overlap = "allow",
        starts_at: datetime | None = None,
        ends_at: datetime | None = None,
        jitter: Seconds = 0.0,
    ) -> None:
        """Add a schedule, or change the one of this id.

        A new rule begins with its next instant. While the rule stays the same, no instant is missed or comes twice,
        however often it is put: so a service may put its schedules whenever it starts. A paused one stays paused.

        Args:
            id_: Which schedule: 1 to 512 bytes without spaces.
            call: What runs, made by `Task.call`.
            cron: Minute, hour, day of month, month and day of week, or six fields with seconds first. Needs the extra
                `inconcert[cron]`, here and in the workers.
            every: A period in seconds instead, 0.1 or more, counted from 1970.
            at: One instant instead, with its time zone; one that is past is missed. The schedule stays in the list.
            tz: The time zone of `cron`.
            missed: What happens to instants at which no worker was running: `once` runs the last of them, `skip` only
                if it is less than 60 s ago, `all` runs each of the last 100.
            overlap: What happens to an instant while the job that the schedule enqueued last has not ended: `allow`
                enqueues its job, `skip` none, and `wait` lets its job run after that one; one waits at most, and
                further instants have no job. Not with `missed="all"`.
            starts_at: The moment, with its time zone, before which there is no instant; None for no such moment. It is
                not where `every` is counted from.
            ends_at: The moment after which there is none, with its time zone; then the schedule stays in the list.
            jitter: By how many seconds each instant may be later, drawn again for each, the same in all workers; always
                less than the time to the next. The id of the job and `current_job().scheduled_at` have the instant of
                the rule.

        Raises:
            TypeError: `call` is not a call of a task.
            ValueError: Not exactly one rule is given, it cannot be read, or it never matches a date from `starts_at` to
                `ends_at`; or the call has `after`, `unique` or `delay`.
            InvalidName: The id is empty, too long, or has spaces.
            InvalidPayload: All together is larger than 1 MiB.
            ImportError: `cron` is given, and the extra is not installed.

        Cost: 1 round trip, and 1 message to each worker.
        """
        check_schedule_id(id_)
        if not isinstance(call, Draft):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
            raise TypeError(f"{call!r} is not a call of a task; give what task.call(...) returns")
        if (cron is None) + (every is None) + (at is None) != 2:
            raise ValueError(f"schedule {id_!r} needs one rule; give one of cron=, every= and at=")
        refuse_id(call, "a job of a schedule")
        options = call.options
        if options.after or options.unique is not None or options.delay or options.at is not None:
            raise ValueError(
                f"schedule {id_!r}: its jobs run at its instants; give the call no after, unique, delay or at"
            )
        if call.limits and len(self._keyspace.partitions) > 1:
            spread = len(self._keyspace.partitions)
            raise ValueError(
                f"schedule {id_!r}: {call!r} has limits, which count in one partition; where jobs are spread over "
                f"{spread}, use @concert.cron, or schedule a task without limits that enqueues it"
            )
        when = timetable(
            cron, every=every, at=at, zone=tz, starts_at=starts_at, ends_at=ends_at, jitter=jitter, name=id_
        )
        check_overlap(overlap, check_missed(missed))
        schedule = StoredSchedule(id_, when, missed, options.queue, open_envelope(call.text), overlap)
        session, [keys] = self._ref.session, _partitions(self._keyspace, id_)
        await session.run(
            PUT_SCHEDULE(
                keys,
                result=keys.results([schedule.only_job])[0],
                id=id_,
                rule=schedule.rule,
                since_ms="" if schedule.begins_ms is None else schedule.begins_ms,
                definition=schedule.stored(session.key_ring),
                request=session.new_address(),
                changes=keys.schedule_changes,
            )
        )

    async def pause(self, id_: str, /) -> bool:
        """Let a schedule enqueue nothing until it is resumed; instants until then do not count as missed.

        Jobs that it has enqueued stay.

        Returns:
            Whether it was not paused before.

        Raises:
            UnknownSchedule: There is none of this id.

        Cost: 1 round trip, and 1 message to each worker.
        """
        return await self._pause(id_, is_paused=1)

    async def resume(self, id_: str, /) -> bool:
        """Let a paused schedule go on with its next instant.

        Returns:
            Whether it was paused.

        Raises:
            UnknownSchedule: There is none of this id.

        Cost: 1 round trip, and 1 message to each worker.
        """
        return await self._pause(id_, is_paused=0)

    async def trigger(self, id_: str, /) -> Job[JSON]:
        """Enqueue its job now, once, even if it is paused; its instants stay as they are.

        In the body, `current_job().scheduled_at` is None.

        Raises:
            UnknownSchedule: There is none of this id.
            UnreadablePayload: It was not signed with one of our keys, or cannot be read here.

        Cost: 2 round trips.
        """
        session = self._ref.session
        row = await _find(session, self._keyspace, id_)
        schedule = StoredSchedule.read(session.key_ring, id_, row.definition)
        return await self._enqueuing.add_one(schedule.draft_now())

    async def delete(self, id_: str, /) -> None:
        """Remove a schedule. Jobs that it has enqueued stay.

        Raises:
            UnknownSchedule: There is none of this id.
            InvalidName: The id is one of a schedule in code, or no schedule can have it.
        """
        if " of task " in check_name("schedule", id_):
            raise InvalidName(f"schedule {id_!r} is part of the code; remove it there, or pause it")
        session = self._ref.session
        [keys] = _partitions(self._keyspace, check_schedule_id(id_))
        if not await session.run(DELETE_SCHEDULE(keys, id=id_, request=session.new_address())):
            raise UnknownSchedule(id_)

    async def list(self) -> Sequence[ScheduleStatus]:
        """All schedules, sorted by id.

        One that is put or deleted meanwhile may be there or not.

        Cost: 1 round trip for each 100 schedules, and for each whose definition is behind 1 MiB of others.
        """
        session = self._ref.session
        found: dict[str, ScheduleStatus] = {}
        for keys in self._keyspace.partitions:
            cursor: bytes | int = 0
            while True:
                cursor, page = await session.run(LIST_SCHEDULES(keys, cursor=cursor))
                for id_, state, definition, *flags in page:
                    listed = _Row(id_, state, definition, *flags)
                    row = await _look_up(session, keys, id_) if definition is None else listed
                    if row is not None:  # otherwise it was deleted meanwhile
                        status = _status(session.key_ring, row._replace(now_ms=0))  # which a page does not say
                        found[status.id] = status
                if int(cursor) == 0:
                    break
        return [found[id_] for id_ in sorted(found)]

    async def _pause(self, id_: str, *, is_paused: int) -> bool:
        check_name("schedule", id_)
        session, request = self._ref.session, self._ref.session.new_address()
        answers = [
            await session.run(
                PAUSE_SCHEDULE(keys, id=id_, is_paused=is_paused, request=request, changes=keys.schedule_changes)
            )
            for keys in _partitions(self._keyspace, id_)
        ]
        if max(answers) < 0:
            raise UnknownSchedule(id_)
        return 1 in answers


class FoundSchedule(NamedTuple):
    """A schedule, and how it is followed. Instants are in seconds since 1970 by the server's clock."""

    now: float  # when it was found
    # when a worker has followed it last, give or take 60 s; of one that is not in code, when a worker has looked
    # at such schedules last. None if that was never, or is a month ago
    followed_at: float | None
    status: ScheduleStatus  # what `Schedules.list` says of it

    @property
    def last_job(self) -> str | None:
        """The id of the job of its last instant; None if there was none yet."""
        status = self.status
        if status.last_at is None:
            return None
        prefix = id_prefix_in_code(status.task) if status.is_in_code else id_prefix(status.id)
        return f"{prefix}{instant_text(round(status.last_at * 1000))}"


async def find_schedule(session: Session, keyspace: JobKeyspace, id_: str) -> FoundSchedule:
    """The schedule of this id; raises `UnknownSchedule` if there is none."""
    row = await _find(session, keyspace, id_)
    return FoundSchedule(row.now_ms / 1000, row.followed_ms / 1000 or None, _status(session.key_ring, row))


class ScheduleCounts(NamedTuple):
    """Counts of schedules, and whether workers follow them."""

    all: int  # all of them, those in code, too
    paused: int  # those that are paused
    # for how many seconds no worker has looked at those that are not in code: 60 at most while one runs; 0 if
    # there is nothing to look at, infinite if none has in 30 days
    unfollowed: float


async def count_schedules(session: Session, keyspace: JobKeyspace) -> ScheduleCounts:
    """Count the schedules."""
    replies = await session.gather([Call(COUNT_SCHEDULES(keys)) for keys in keyspace.partitions])
    counts, paused, unfollowed_ms = zip(*replies, strict=True)
    longest = inf if min(unfollowed_ms) < 0 else max(unfollowed_ms) / 1000
    return ScheduleCounts(sum(counts), sum(paused), longest)


class _Row(NamedTuple):
    """A schedule, as the scripts return it; `schedules/list` leaves out the last two."""

    id: bytes
    progress: bytes
    definition: bytes
    is_in_code: int
    is_paused: int
    now_ms: int = 0
    followed_ms: int = 0


def _partitions(keyspace: JobKeyspace, id_: str) -> Sequence[JobKeys]:
    """The partitions where it may be: one in code lies with its task."""
    return keyspace.partitions if is_in_code(id_) else [keyspace.of_id(id_prefix(id_))]


async def _find(session: Session, keyspace: JobKeyspace, id_: str) -> _Row:
    for keys in _partitions(keyspace, check_name("schedule", id_)):
        row = await _look_up(session, keys, id_)
        if row is not None:
            return row
    raise UnknownSchedule(id_)


async def _look_up(session: Session, keys: JobKeys, id_: str | bytes) -> _Row | None:
    reply = await session.run(FIND_SCHEDULE(keys, id=id_))
    return None if reply is None else _Row(*reply)


def _status(key_ring: KeyRing, row: _Row) -> ScheduleStatus:
    name = row.id.decode(errors="replace")
    is_in_code, is_paused = bool(row.is_in_code), bool(row.is_paused)
    try:
        progress = Progress.read(row.progress)
        schedule = StoredSchedule.read(key_ring, name, row.definition)
        since_ms = progress.since_ms
        if schedule.missed == "skip":  # what is missed by now never runs, also where no worker has noted that yet
            since_ms = max(since_ms, row.now_ms - LATE_MS - 1)
        next_ms = None if is_paused else next(schedule.timetable.after(since_ms), None)
    except (ValueError, OverflowError) as error:  # also of what is not ours: it must not hide the others
        return ScheduleStatus(name, "", "", (), {}, "", None, None, is_in_code, is_paused, None, None, str(error))
    last_at = progress.last_ms / 1000 if progress.last_ms else None
    return ScheduleStatus(
        name,
        str(schedule.timetable),
        schedule.job.name,
        schedule.job.args,
        dict(schedule.job.kwargs),
        schedule.queue,
        schedule.missed,
        schedule.overlap,
        is_in_code,
        is_paused,
        last_at,
        None if next_ms is None else next_ms / 1000,
        None,
    )
