"""Changes that a dashboard makes: one permission each."""

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urlencode

from starlette.exceptions import HTTPException

from inconcert._rules.names import check_name
from inconcert._rules.payloads import JSON, decode
from inconcert.coordinator import Coordinator
from inconcert.dashboard.held_view import Releasable, releasable
from inconcert.dashboard.live import reference
from inconcert.dashboard.other_view import OTHERS
from inconcert.dashboard.permissions import Permission
from inconcert.dashboard.poll import Poll
from inconcert.dashboard.redaction import Redact
from inconcert.dashboard.rows import AT_ONCE
from inconcert.dashboard.schedule_view import find_schedule
from inconcert.errors import InvalidName

_MANY = 1_000  # jobs that one click changes; purging and draining go to the end

Form: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Site:
    """The subject of a dashboard: a coordinator, the facts about its namespace, and the rule for what is hidden."""

    concert: Coordinator
    poll: Poll
    redact: Redact


Act: TypeAlias = Callable[[Site, Form], Awaitable[tuple[str, str]]]
"""Does it; returns what it was done to, for the log, and the page that shows it."""


async def _pause(site: Site, form: Form) -> tuple[str, str]:
    queue = await _queue(site.poll, form)
    await site.concert.tasks.pause(queue)
    return f"queue {queue!r}", "queues"


async def _resume(site: Site, form: Form) -> tuple[str, str]:
    queue = await _queue(site.poll, form)
    await site.concert.tasks.resume(queue)
    return f"queue {queue!r}", "queues"


async def _drain(site: Site, form: Form) -> tuple[str, str]:
    queue = await _queue(site.poll, form)
    return f"queue {queue!r}, {await site.concert.tasks.drain(queue)} jobs", "queues"


async def _cancel(site: Site, form: Form) -> tuple[str, str]:
    job = site.concert.tasks.job(_job_id(form))
    await job.cancel(timeout=0)
    return f"job {job.id}", f"jobs/{job.id}"


async def _reschedule(site: Site, form: Form) -> tuple[str, str]:
    job = site.concert.tasks.job(_job_id(form))
    try:
        rescheduled = await job.reschedule(delay=float(form.get("delay", "")))
    except ValueError:
        raise HTTPException(400, "The delay is not a number of seconds from 0 to 10 years.") from None
    if not rescheduled:
        raise HTTPException(409, f"Job {job.id} is too late to be rescheduled: it is in its queue, runs or has ended.")
    return f"job {job.id}", f"jobs/{job.id}"


async def _cancel_all(site: Site, form: Form) -> tuple[str, str]:
    queue, task = await _filter(site, form)
    with refused_as_bad():
        number = await site.concert.tasks.cancel_all(state=form.get("state"), queue=queue, task=task, limit=_MANY)
    return f"{number} jobs{_told(form.get('state'), queue, task)}", _jobs_page(form)


async def _promote_all(site: Site, form: Form) -> tuple[str, str]:
    queue, task = await _filter(site, form)
    number = await site.concert.tasks.promote_all(queue=queue, task=task, limit=_MANY)
    return f"{number} delayed jobs{_told(None, queue, task)}", _jobs_page(form)


async def _replay_all(site: Site, form: Form) -> tuple[str, str]:
    queue, task = await _filter(site, form)
    reason = await _reason(site.concert, form)
    number = await site.concert.tasks.replay_all(queue=queue, task=task, reason=reason, limit=_MANY)
    return f"{number} dead letters{_told(None, queue, task, reason)}", "dead"


async def _replay(site: Site, form: Form) -> tuple[str, str]:
    await site.concert.tasks.replay(_job_id(form))
    return f"job {_job_id(form)}", "dead"


async def _edit(site: Site, form: Form) -> tuple[str, str]:
    job_id = _job_id(form)
    args, kwargs = _value(form, "args"), _value(form, "kwargs")
    if not isinstance(args, list):
        raise WrongField("args", 'This is not a list, such as [42, "ann"].')
    if not isinstance(kwargs, dict):
        raise WrongField("kwargs", 'This is not an object, such as {"to": "ann"}.')
    await site.concert.tasks.replay(job_id, args=args, kwargs=kwargs)
    return f"job {job_id}, with other arguments", f"jobs/{job_id}"


async def _pause_schedule(site: Site, form: Form) -> tuple[str, str]:
    schedule = await _schedule(site.concert, form)
    await site.concert.schedules.pause(schedule)
    return f"schedule {schedule!r}", "schedules"


async def _resume_schedule(site: Site, form: Form) -> tuple[str, str]:
    schedule = await _schedule(site.concert, form)
    await site.concert.schedules.resume(schedule)
    return f"schedule {schedule!r}", "schedules"


async def _trigger_schedule(site: Site, form: Form) -> tuple[str, str]:
    schedule = await _schedule(site.concert, form)
    job = await site.concert.schedules.trigger(schedule)
    return f"schedule {schedule!r}, job {job.id}", f"jobs/{job.id}"


async def _purge(site: Site, form: Form) -> tuple[str, str]:
    await site.concert.tasks.purge(_job_id(form))
    return f"job {_job_id(form)}", "dead"


async def _purge_all(site: Site, form: Form) -> tuple[str, str]:
    queue, task = await _filter(site, form)
    reason = await _reason(site.concert, form)
    number = await site.concert.tasks.purge_all(queue=queue, task=task, reason=reason)
    return f"{number} dead letters{_told(None, queue, task, reason)}", "dead"


async def _release(site: Site, form: Form) -> tuple[str, str]:
    held = await find_held(site, form.get("held"))
    if form.get("sure") != "yes":
        raise HTTPException(400, "The form does not say that you are sure.")
    await site.concert.release_by_force(held.kind, held.name, holder=held.holder)
    return f"{held.kind} {held.name!r} from {held.holder}", "locks"


async def _purge_items(site: Site, form: Form) -> tuple[str, str]:
    _, name = find_other(site, {**form, "kind": "items"})
    return f"queue of items {name!r}, {await site.concert.queue(name).purge()} items", _other_page("items", name)


async def _purge_mailbox(site: Site, form: Form) -> tuple[str, str]:
    _, name = find_other(site, {**form, "kind": "mailbox"})
    return f"mailbox {name!r}, {await site.concert.mailbox(name).purge()} messages", _other_page("mailbox", name)


ACTIONS: Mapping[Permission, Act] = {
    Permission.PAUSE: _pause,
    Permission.RESUME: _resume,
    Permission.DRAIN: _drain,
    Permission.CANCEL: _cancel,
    Permission.CANCEL_ALL: _cancel_all,
    Permission.RESCHEDULE: _reschedule,
    Permission.PROMOTE_ALL: _promote_all,
    Permission.REPLAY: _replay,
    Permission.EDIT: _edit,
    Permission.REPLAY_ALL: _replay_all,
    Permission.PAUSE_SCHEDULE: _pause_schedule,
    Permission.RESUME_SCHEDULE: _resume_schedule,
    Permission.TRIGGER_SCHEDULE: _trigger_schedule,
    Permission.PURGE: _purge,
    Permission.PURGE_ALL: _purge_all,
    Permission.RELEASE: _release,
    Permission.PURGE_ITEMS: _purge_items,
    Permission.PURGE_MAILBOX: _purge_mailbox,
}


async def find_queue(poll: Poll, key: str | None) -> str:
    """The name of the queue that this refers to.

    Raises:
        HTTPException: 404: there is none.
    """
    for name in (await poll.latest()).stats.queues:
        if reference("q", name) == key:
            return name
    raise HTTPException(404, "There is no such queue any more.")


async def find_held(site: Site, key: str | None) -> Releasable:
    """The lease that this refers to, if it is still held.

    Raises:
        HTTPException: 404: nobody holds it any more, or its name is not shown.
    """
    for held in releasable(await site.poll.inspection(), site.redact):
        if held.key == key:
            return held
    raise HTTPException(404, "Nobody holds this any more.")


def find_other(site: Site, asked: Form) -> tuple[str, str]:
    """The kind and the name that this asks for.

    Raises:
        HTTPException: 404: there is no such kind, or names are not shown here, and so not looked up.
    """
    kind, name = asked.get("kind", ""), check_name("thing", asked.get("name", ""))
    if kind not in OTHERS:
        raise HTTPException(404, "There is no such page.")
    if site.redact("lock", name) != name:
        raise HTTPException(404, "This name is not shown here.")
    return kind, name


@contextmanager
def refused_as_bad() -> Generator[None]:
    """Jobs that cannot be listed are the fault of the request."""
    try:
        yield
    except ValueError as error:
        raise HTTPException(400, str(error)) from None


class WrongField(Exception):
    """The text of a field does not fit."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def _value(form: Form, field: str) -> JSON:
    try:
        return decode(form.get(field, ""))
    except ValueError as error:
        raise WrongField(field, f"{error}"[:1].upper() + f"{error}."[1:]) from None


async def _queue(poll: Poll, form: Form) -> str:
    return await find_queue(poll, form.get("queue"))


async def _schedule(concert: Coordinator, form: Form) -> str:
    schedule = await find_schedule(concert, form.get("schedule"))
    if schedule is None:
        raise HTTPException(404, "There is no such schedule any more.")
    return schedule


async def _filter(site: Site, form: Form) -> tuple[str | None, str | None]:
    """The queue and the task that the form names, if any."""
    return await _queue(site.poll, form) if "queue" in form else None, form.get("task")


async def _reason(concert: Coordinator, form: Form) -> str | None:
    """The reason that the form refers to, if any; it is that of one of the latest."""
    if "reason" not in form:
        return None
    for job in await concert.tasks.dead(limit=AT_ONCE):
        if reference("r", job.error) == form["reason"]:
            return job.error
    raise HTTPException(404, "None of the latest dead letters has this reason any more.")


def _told(state: str | None, queue: str | None, task: str | None, reason: str | None = None) -> str:
    """The choice of jobs, for the log."""
    parts = (("state", state), ("queue", queue), ("task", task), ("reason", reason))
    return "".join(f", {name} {value!r}" for name, value in parts if value is not None)


def _jobs_page(form: Form) -> str:
    return "jobs?" + urlencode({name: form[name] for name in ("state", "queue", "task") if name in form})


def _other_page(kind: str, name: str) -> str:
    return "other?" + urlencode({"kind": kind, "name": name})


def _job_id(form: Form) -> str:
    if "job" not in form:
        raise InvalidName("the form names no job")
    return form["job"]
