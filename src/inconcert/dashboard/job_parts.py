"""Parts of a job: its steps, the items of its stream, its group, and the jobs before and after it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from inconcert.coordinator import Coordinator
from inconcert.dashboard.formats import as_json, shortened, when
from inconcert.dashboard.redaction import Redact
from inconcert.errors import GroupNotFound, InvalidPayload
from inconcert.tasks.durable.step_records import StepRecord
from inconcert.tasks.following.job import Job
from inconcert.tasks.operating.job_info import JobInfo
from inconcert.tasks.records.attempts import FailedAttempt
from inconcert.tasks.records.group_ids import group_of
from inconcert.tasks.records.status import JobStatus
from inconcert.tasks.sending.group import GroupProgress

_MOST = 50  # steps, and items
_MOST_RELATED = 20  # jobs before it, and after it
_LONGEST = 300  # characters of one value

_TIMED = frozenset({"durable.sleep", "durable.wait_for"})  # whose value is an instant


@dataclass(frozen=True, slots=True)
class AttemptView:
    """An attempt that failed, redacted; it took so many seconds, and ended with its worker if that died."""

    number: int
    error: str
    traceback: str
    where: str
    took: float
    ended_at: float
    worker_died: bool


@dataclass(frozen=True, slots=True)
class StepView:
    """A step, redacted."""

    name: str
    function: str
    value: str
    is_awaited: bool


@dataclass(frozen=True, slots=True)
class ItemView:
    """An item of the stream, redacted."""

    id: str
    attempt: int
    value: str


@dataclass(frozen=True, slots=True)
class RelatedView:
    """A job before or after it, redacted; the task of one that has ended is not known."""

    id: str
    task: str | None
    status: JobStatus


@dataclass(frozen=True, slots=True)
class GroupView:
    """The group that a job is a member or the callback of."""

    id: str
    progress: GroupProgress  # how far it is
    callback: str | None  # the id of its callback; None if it has none, or if this is its page


@dataclass(frozen=True, slots=True)
class JobParts:
    """The parts of a job; of long lists a part."""

    attempts: Sequence[AttemptView]  # those that failed, in order
    steps: Sequence[StepView]  # the latest of its steps, in order
    all_steps: int  # how many it has
    unread_steps: str | None  # why its steps cannot be shown, if they cannot
    items: Sequence[ItemView]  # the latest items of its stream, in order
    unread_items: str | None  # why these cannot be shown, if they cannot
    parents: Sequence[RelatedView]  # the jobs that it runs after
    all_parents: int  # how many they are
    children: Sequence[RelatedView]  # jobs that run after it, and have not ended or were dead-lettered
    has_more_children: bool  # whether there may be more of them
    group: GroupView | None  # its group, if it is of one that is still known


async def job_parts(concert: Coordinator, redact: Redact, job: Job[object], described: JobInfo | None) -> JobParts:
    """The parts of a job, from its stored state, if it is still there."""
    after = [] if described is None else list(dict.fromkeys(described.after))
    attempts, (steps, unread_steps), (items, unread_items), dependants, group = await asyncio.gather(
        job.attempts(),
        _steps(job),
        _items(redact, job),
        job.dependants(limit=_MOST_RELATED + 1),
        _group(concert, job.id),
    )
    before, behind = after[:_MOST_RELATED], dependants[:_MOST_RELATED]
    known = await concert.tasks.describe(*before, *behind)
    # Only its own envelope says what a job runs after: the list of dependants is not signed.
    children = [known[id_] for id_ in behind if id_ in known and job.id in known[id_].after]
    return JobParts(
        attempts=[_attempt(redact, attempt) for attempt in attempts],
        steps=[_step(redact, step) for step in steps[-_MOST:]],
        all_steps=len(steps),
        unread_steps=unread_steps,
        items=items,
        unread_items=unread_items,
        parents=await asyncio.gather(*(_parent(concert, redact, id_, known.get(id_)) for id_ in before)),
        all_parents=len(after),
        children=[RelatedView(child.id, redact("task", child.task), child.status) for child in children],
        has_more_children=len(dependants) > _MOST_RELATED,
        group=group,
    )


def _attempt(redact: Redact, attempt: FailedAttempt) -> AttemptView:
    where = attempt.worker if attempt.host is None else f"{attempt.host}:{attempt.pid}"
    error = redact("error", attempt.error) if attempt.error else ""
    has_traceback = attempt.traceback and error == attempt.error  # a secret error is also in its last line
    return AttemptView(
        number=attempt.number,
        error=error,
        traceback=redact("traceback", attempt.traceback) if has_traceback else "",
        where=redact("host", where),
        took=attempt.ended_at - attempt.began_at,
        ended_at=attempt.ended_at,
        worker_died=attempt.failure == "worker_died",
    )


async def _steps(job: Job[object]) -> tuple[Sequence[StepRecord], str | None]:
    """Its steps, or why they cannot be read."""
    try:
        return await job.steps(), None
    except InvalidPayload as error:
        return [], str(error)


async def _items(redact: Redact, job: Job[object]) -> tuple[Sequence[ItemView], str | None]:
    """The latest items of its stream, or why they cannot be read."""
    try:
        found = await job.items(limit=_MOST)
    except InvalidPayload as error:
        return [], str(error)
    return [
        ItemView(one.id, one.attempt, shortened(redact("item", as_json(one.value)), _LONGEST)) for one in found
    ], None


def _step(redact: Redact, step: StepRecord) -> StepView:
    value = step.value
    is_instant = step.function in _TIMED and isinstance(value, int | float)
    text = f"until {when(value)}" if is_instant and isinstance(value, int | float) else as_json(value)
    name, function = redact("step", step.name), redact("step", step.function)
    return StepView(name, function, shortened(redact("result", text), _LONGEST), step.is_awaited)


async def _group(concert: Coordinator, job_id: str) -> GroupView | None:
    """The group of a job; None if it is of none, or of one that ended long ago."""
    group_id = group_of(job_id)
    if group_id is None:
        return None
    group = concert.tasks.group(group_id)
    try:
        progress = await group.progress()
    except GroupNotFound:
        return None
    callback = group.callback
    is_linked = callback.id != job_id and await callback.status() is not JobStatus.UNKNOWN
    return GroupView(group_id, progress, callback.id if is_linked else None)


async def _parent(concert: Coordinator, redact: Redact, job_id: str, known: JobInfo | None) -> RelatedView:
    if known is not None:
        return RelatedView(job_id, redact("task", known.task), known.status)
    return RelatedView(job_id, None, await concert.tasks.job(job_id).status())
