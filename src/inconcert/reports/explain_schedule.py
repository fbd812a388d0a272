"""Says when a schedule runs next, or why it does not, and what became of the job of its last instant."""

from collections.abc import Iterator

from inconcert._core.session import SessionRef
from inconcert._rules.durations import in_words
from inconcert.errors import JobNotFound
from inconcert.reports.explain_job import JobQuestion, paused_or_unserved
from inconcert.reports.explanation import Explanation, Reason
from inconcert.reports.report import Inspection, ago
from inconcert.tasks.operating.admin import Tasks
from inconcert.tasks.records.status import JobStatus
from inconcert.tasks.records.store import JobKeyspace
from inconcert.tasks.schedules.schedules import FoundSchedule, find_schedule
from inconcert.tasks.schedules.timetable import instant_text

_UNFOLLOWED_AFTER = 150.0  # seconds: workers look once in 60 s at least, and note it once in 60 s
_LIVE = {JobStatus.QUEUED, JobStatus.WAITING, JobStatus.DELAYED, JobStatus.RUNNING}
_HELD_UP = {"skip": "instants have no job", "wait": "the job of an instant waits for it, one at most"}
_LATE_AFTER = 15.0  # seconds: that after which another worker looks, if one has died on it, and some more


async def explain_schedule(ref: SessionRef, keyspace: JobKeyspace, tasks: Tasks, id_: str) -> Explanation:
    """The next run of a schedule, or the reason why there is none.

    Raises:
        UnknownSchedule: There is none of this id.
    """
    found = await find_schedule(ref.session, keyspace, id_)
    status, queue = found.status, found.status.queue
    workers = await tasks.workers()
    is_followed = (
        any(worker.is_alive for worker in workers)
        and found.followed_at is not None
        and found.now - found.followed_at < _UNFOLLOWED_AFTER
    )
    reasons = list(_whether_it_runs(found, is_followed=is_followed))
    state = "followed" if is_followed else "unfollowed"
    if status.problem is not None:
        state = "unreadable"
    elif status.is_paused:
        state = "paused"
    elif status.next_at is None:
        state = "over"
    if state not in {"unreadable", "over"}:
        is_paused = (await tasks.stats(queue)).queues[queue].is_paused
        reasons += paused_or_unserved(queue, workers, is_paused=is_paused)
    if status.problem is None:
        reasons += await _last(ref, keyspace, tasks, found)
    return Explanation(kind="schedule", name=id_, state=state, reasons=tuple(reasons))


def _whether_it_runs(found: FoundSchedule, *, is_followed: bool) -> Iterator[Reason]:
    now, status = found.now, found.status
    if status.problem is not None:
        yield Reason("unreadable", f"it cannot be read here: {status.problem}")
    if status.is_paused:
        until = f"until schedules.resume({status.id!r})"
        yield Reason("paused", f"it is paused, {until}; instants of the pause are not made up for")
    elif status.next_at is None:
        if status.problem is None:
            yield Reason("over", f"it has no instant left; its rule is {status.rule!r}")
            return
    elif status.next_at > now:
        yield Reason("not_due", f"it runs next in {ago(status.next_at, now)}, {_instant(status.next_at)}")
    elif not is_followed or now - status.next_at > _LATE_AFTER:
        why = ", although workers look at schedules: the log of one says why" if is_followed else ""
        yield Reason("late", f"it was due {ago(status.next_at, now)} ago, {_instant(status.next_at)}{why}")
    else:
        yield Reason("next", "it is due now: a worker is about to enqueue its job")
    if not is_followed:
        since = "" if found.followed_at is None else f", the last one has {ago(found.followed_at, now)} ago"
        which = "with this task in its code" if status.is_in_code else "of this namespace"
        yield Reason("unfollowed", f"no worker follows it{since}: start one {which}")


async def _last(ref: SessionRef, keyspace: JobKeyspace, tasks: Tasks, found: FoundSchedule) -> list[Reason]:
    """The fate of the job of its last instant, and whether that holds up the next one."""
    job_id, last_at, overlap = found.last_job, found.status.last_at, found.status.overlap
    if job_id is None or last_at is None:
        return [Reason("never", "no instant of it has had a job yet")]
    which = f"its last instant was {in_words(max(0.0, found.now - last_at))} ago: job {job_id}"
    try:
        job = await JobQuestion(ref, keyspace, tasks, job_id).explanation(Inspection((), ()))
    except JobNotFound:
        return [Reason("last", f"{which} has ended")]
    reasons = [Reason("last", f"{which} is {job.state}: {job.reasons[0].text}")]
    if overlap in _HELD_UP and job.state in _LIVE:
        reasons.append(Reason("overlap", f"until that has ended, {_HELD_UP[overlap]}: overlap={overlap!r}"))
    return reasons


def _instant(moment: float) -> str:
    return f"at {instant_text(round(moment * 1000))}"
