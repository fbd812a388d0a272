"""A schedule as it is stored, data only, and the jobs that it makes."""

import re
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple, Self
from urllib.parse import quote

import msgspec

from inconcert._rules.names import check_name
from inconcert._rules.payloads import JSON, encode
from inconcert._rules.signing import KeyRing
from inconcert.errors import InvalidName, UnreadablePayload
from inconcert.tasks.records.envelope import Envelope, open_envelope, seal
from inconcert.tasks.records.store import id_prefix_in_code
from inconcert.tasks.schedules.schedule import Missed, Overlap, Schedule, due_instants
from inconcert.tasks.schedules.timetable import END_MS, Cron, Every, Once, Timetable, instant_text, timetable
from inconcert.tasks.sending.draft import Draft, Pattern
from inconcert.tasks.sending.options import Options

_SCHEDULE = "schedule"  # the kind as which a definition is signed
_VERSION = 1


_Instant = Annotated[int, msgspec.Meta(ge=0, lt=END_MS)]


class _Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored form, as JSON: the job, one of the three rules, and what is beside it."""

    queue: str
    job: msgspec.Raw  # the envelope of the job
    cron: str | None = None
    zone: str = "UTC"
    every_ms: int | None = None
    at_ms: _Instant | None = None
    starts_ms: _Instant = 0
    ends_ms: _Instant | None = None
    jitter_ms: _Instant = 0
    missed: Missed = "once"
    overlap: Overlap = "allow"
    version: int = _VERSION


_PROGRESS = re.compile(rb"(\d{1,15}) (\d{1,15})(?:,(\d{1,15}))? \S+")

_decode = msgspec.json.Decoder(_Definition).decode


class Progress(NamedTuple):
    """The position of a schedule.

    Attributes:
        since_ms: The last instant that is done with, or when it was put or resumed; in server ms.
        last_ms: The last instant for which a job was enqueued; 0 for none.
        before_ms: The instant of the job for which that one was to wait; 0 for none.
    """

    since_ms: int
    last_ms: int
    before_ms: int = 0

    @classmethod
    def read(cls, text: bytes) -> Self:
        """Parse 'SINCE LAST[,BEFORE] RULE'.

        Raises:
            UnreadablePayload: It did not come from a script of ours.
        """
        found = _PROGRESS.fullmatch(text)
        if found is None:
            raise UnreadablePayload(f"how far a schedule is cannot be read: {text[:40]!r}")
        return cls(int(found[1]), int(found[2]), int(found[3] or 0))


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A call with its timetable."""

    id: str
    timetable: Timetable  # when
    missed: Missed  # what happens to instants at which no worker was running
    queue: str  # where its jobs go
    job: Envelope  # what each of them is
    overlap: Overlap = "allow"  # what happens to instants at which the job of the last one has not ended

    @classmethod
    def read(cls, key_ring: KeyRing, id_: str, text: bytes) -> Self:
        """Read the stored form.

        Raises:
            UnreadablePayload: It was not signed with one of the keys, is not a schedule, or is of a later release; or
                its rule cannot be read here, because its time zone, or the extra `cron`, is missing.
        """
        try:
            found = _decode(key_ring.verify(_SCHEDULE, id_, text))
            if found.version > _VERSION:
                raise UnreadablePayload(f"it has version {found.version}, and this release reads up to {_VERSION}")
            job = open_envelope(bytes(found.job))
            when = _timetable(found, job.name if is_in_code(id_) else id_)
            return cls(id_, when, found.missed, found.queue, job, found.overlap)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, ImportError) as error:
            raise UnreadablePayload(f"schedule {id_!r} cannot be read: {error}") from error

    @classmethod
    def of(cls, schedule: Schedule) -> Self:
        """A schedule in code, as it is stored, with the limits that its task has now."""
        job = open_envelope(schedule.draft_now().text)
        when = replace(schedule.timetable, name=job.name)
        queue = schedule.task.defaults.queue
        return cls(str(schedule), when, schedule.missed, queue, job, schedule.overlap)

    @property
    def rule(self) -> str:
        """The rule without spaces, as it is compared before a change."""
        return quote(str(self.timetable))

    @property
    def begins_ms(self) -> int | None:
        """Since when a new rule counts, in server ms; None for now."""
        return 0 if isinstance(self.timetable.rule, Once) else None

    def __str__(self) -> str:
        return self.id if is_in_code(self.id) else f"{self.id!r}, {self.timetable} of task {self.job.name!r}"

    @property
    def job_prefix(self) -> str:
        """The prefix of the ids of its jobs; the instant follows."""
        return id_prefix_in_code(self.job.name) if is_in_code(self.id) else id_prefix(self.id)

    @property
    def only_job(self) -> str:
        """The id of the job of its one instant; if it has more, what their ids begin with."""
        only = self.timetable.rule
        return self.job_prefix + (instant_text(only.at_ms) if isinstance(only, Once) else "")

    def stored(self, key_ring: KeyRing) -> bytes:
        """The stored form, signed; raises `InvalidPayload` if it is larger than 1 MiB."""
        when = self.timetable
        rule = when.rule
        found = _Definition(
            self.queue,
            msgspec.Raw(seal(self.job)),
            cron=rule.expression if isinstance(rule, Cron) else None,
            zone=str(rule.zone) if isinstance(rule, Cron) else "UTC",
            every_ms=rule.period_ms if isinstance(rule, Every) else None,
            at_ms=rule.at_ms if isinstance(rule, Once) else None,
            starts_ms=when.starts_ms,
            ends_ms=when.ends_ms,
            jitter_ms=when.jitter_ms,
            missed=self.missed,
            overlap=self.overlap,
        )
        return key_ring.sign(_SCHEDULE, self.id, encode(f"schedule {self.id!r}", None, inside=found))

    def due(self, progress: Progress, now_ms: int, most: int) -> "Due":
        """The work that is due: the instants after the last one that is done with, and up to now; at most so many."""
        since_ms = progress.since_ms
        following = next(self.timetable.after(now_ms), None)
        if following is not None and following < since_ms:  # the clock was set back, and none until then may be missed
            return Due([], now_ms, following)
        latest = due_instants(self.timetable, "once", since_ms, now_ms)
        due = due_instants(self.timetable, self.missed, since_ms, now_ms)
        until_ms = latest[-1] if latest else since_ms
        if len(due) > most:
            due, until_ms, following = due[:most], due[most - 1], due[most]
        return Due([self.timetable.by_rule(ms) for ms in due], until_ms, following)

    def job_id(self, instant_ms: int) -> str:
        """The id of the job of an instant of the rule: the same in every process."""
        return f"{self.job_prefix}{instant_text(instant_ms)}"

    def draft(self, instant_ms: int) -> tuple[str, Draft[JSON]]:
        """The job of an instant of the rule, and its id."""
        return self.job_id(instant_ms), self.draft_now(scheduled_at=instant_ms / 1000)

    def draft_now(self, *, scheduled_at: float | None = None) -> Draft[JSON]:
        """Its job, for no instant or for this one, in seconds since 1970."""
        job = self.job
        options = Options(
            queue=self.queue,
            priority=job.priority,
            max_attempts=job.max_attempts,
            max_crashes=job.max_crashes,
            result_ttl=job.result_ttl,
            expires=job.expires,
            stops=job.stops,
            time_limit=job.time_limit,
            headers=job.headers,
            history=job.history,
            history_arguments=job.history_arguments,
            on_dead=job.on_dead,
        )
        name = check_name("task", job.name)
        pattern = Pattern[JSON](name, options, limits=job.limits)
        return pattern.draft(job.args, job.kwargs, scheduled_at=scheduled_at)


class Due(NamedTuple):
    """The work that is due for a schedule."""

    instants: list[int]  # those of the rule for which a job is enqueued, in server ms, in order
    until_ms: int  # the last instant that is done with then
    next_ms: int | None  # the next one; None if there will be none


def is_in_code(id_: str) -> bool:
    """True if a schedule with this id is one in code: only their ids have spaces."""
    return " " in id_


def id_prefix(id_: str) -> str:
    """The prefix of the ids of this schedule's jobs. The jobs of the code have no `:` in theirs."""
    return f"schedule:{quote(id_)}@"


def check_schedule_id(id_: str) -> str:
    """Return `id_` if a schedule can be stored under it.

    Raises:
        InvalidName: It is empty, longer than 512 bytes, or has spaces.
    """
    check_name("schedule", id_)
    if any(character.isspace() for character in id_):
        raise InvalidName(f"the id {id_!r} of a schedule has spaces; use '-' instead")
    return id_


def _timetable(found: _Definition, name: str) -> Timetable:
    bounds = (found.starts_ms, found.ends_ms, found.jitter_ms, name)
    if found.cron is not None:
        return Timetable(timetable(found.cron, zone=found.zone).rule, *bounds)
    if found.every_ms is not None:
        return Timetable(timetable(every=found.every_ms / 1000).rule, *bounds)
    if found.at_ms is None:
        raise ValueError("it has no rule")
    return Timetable(Once(found.at_ms), *bounds)
