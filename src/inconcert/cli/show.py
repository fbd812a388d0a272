"""`inconcert show JOB`: all that is kept of one job. Of a queue of items, `items:NAME`, see `show_items.py`."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from inconcert._rules.payloads import JSON
from inconcert.cli.ends import fail
from inconcert.cli.output import say
from inconcert.cli.server import Json, Namespace, Url, ask
from inconcert.cli.show_items import print_items, read_items
from inconcert.cli.tables import ago, call, print_json, print_table, seconds
from inconcert.coordinator import Coordinator
from inconcert.errors import JobFailed
from inconcert.tasks.durable.step_records import StepRecord
from inconcert.tasks.following.job import Job, Progress
from inconcert.tasks.operating.job_info import JobInfo
from inconcert.tasks.records.attempts import FailedAttempt
from inconcert.tasks.records.group_ids import group_of
from inconcert.tasks.records.status import JobStatus

_ITEMS = 10
_ITEMS_OF = "items:"  # and the name of a queue


@dataclass(frozen=True, slots=True)
class Shown:
    """A job as it is kept; parts that it does not have are None or empty."""

    id: str
    status: JobStatus
    described: JobInfo | None  # its call, until it has succeeded or was cancelled
    group: str | None  # the id of the group of which it is a member or the callback
    attempts: Sequence[FailedAttempt]  # those that failed, the latest 20
    dependants: Sequence[str]  # the ids of jobs that run after it, at most 100
    progress: Progress | None  # its report, while it is running
    steps: Sequence[StepRecord]
    items: Sequence[JSON]  # the latest items of its stream, at most 10
    result: JSON = None  # what its function returned
    error: str | None = None  # why it was dead-lettered
    traceback: str | None = None  # where its last error was raised


def show(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The id of the job, or items:NAME of a queue of items.")],
    *,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """All that is kept of a job: its call, its state, its steps, and how it ended; or the items of a queue."""
    if job.startswith(_ITEMS_OF):
        items = ask(url, namespace, lambda concert: read_items(concert, job.removeprefix(_ITEMS_OF)))
        print_items(items, as_json=as_json)
        return
    shown = ask(url, namespace, lambda concert: _shown(concert, job))
    if shown.status is JobStatus.UNKNOWN:
        fail(f"there is no job {job!r} in this namespace, or its result is no longer kept")
    if as_json:
        print_json(shown)
        return
    print_table(("job", shown.id), ((what, value) for what, value in _lines(shown) if value), empty="")
    if shown.traceback:
        say(f"\n{shown.traceback.rstrip()}")


async def _shown(concert: Coordinator, job_id: str) -> Shown:
    job = concert.tasks.job(job_id)
    result, error = await _outcome(job)
    attempts = await job.attempts()
    status, described, progress, steps, items, dependants = await asyncio.gather(
        job.status(),
        concert.tasks.describe(job_id),
        job.progress(),
        job.steps(),
        job.items(limit=_ITEMS),
        job.dependants(),
    )
    return Shown(
        id=job.id,
        status=status,
        described=described.get(job.id),
        group=group_of(job.id),
        attempts=attempts,
        dependants=dependants,
        progress=progress,
        steps=steps,
        items=[item.value for item in items],
        result=result,
        error=None if error is None else error.reason,
        traceback=None if error is None else error.traceback,
    )


async def _outcome(job: Job[JSON]) -> tuple[JSON, JobFailed | None]:
    """Its result, or the reason of its failure; None for the one that it does not have."""
    if await job.status() not in (JobStatus.SUCCEEDED, JobStatus.FAILED):
        return None, None
    try:
        return await job.result(timeout=0), None
    except JobFailed as error:
        return None, error


def _lines(shown: Shown) -> list[tuple[str, object]]:
    """A line for each thing that is known."""
    known: list[tuple[str, object]] = [("state", shown.status)]
    if shown.described is not None:
        job = shown.described
        known += [
            ("task", job.task),
            ("call", call(job.args, job.kwargs)),
            ("enqueued", f"{ago(job.enqueued_at)} ago"),
            ("attempts", job.attempts),
            ("last error", None if shown.error else job.error),
            ("runs after", " ".join(job.after)),
        ]
    if shown.progress is not None:
        known.append(("progress", f"{shown.progress.fraction:.0%} {shown.progress.text}"))
    known += [(f"attempt {attempt.number}", _of_attempt(attempt)) for attempt in shown.attempts]
    known += [("of group", shown.group), ("before", " ".join(shown.dependants))]
    known += [(f"step {step.name}", _of_step(step)) for step in shown.steps]
    known += [("item", _as_json(item)) for item in shown.items]
    if shown.status is JobStatus.SUCCEEDED:
        known.append(("result", _as_json(shown.result)))
    return [*known, ("error", shown.error)]


def _of_attempt(attempt: FailedAttempt) -> str:
    """Its error, when it ended, how long it ran, and where."""
    ran = seconds(attempt.ended_at - attempt.began_at)
    where = attempt.worker if attempt.host is None else f"{attempt.host}:{attempt.pid}"
    return f"{attempt.error or 'its worker died'}; {ago(attempt.ended_at)} ago, after {ran}, on {where}"


def _of_step(step: StepRecord) -> str:
    """Its result; of a sleep and a wait when they end, and of a loop how far it is."""
    match step.function, step.value:
        case "durable.sleep" | "durable.wait_for", int() | float() as ends_at:
            until = f"until {datetime.fromtimestamp(ends_at, UTC):%Y-%m-%d %H:%M:%S} UTC"
            return f"is waited for, {until} at the latest" if step.is_awaited else until
        case "durable.each", [int(done), str(last), bool(is_at_end), int(left)]:
            items = f"{done - left - is_at_end} done"
            if is_at_end:
                return f"{items}, all of them"
            return f"{items}, the last is {last}" + ("; it was left before its end" if left else "")
        case _:
            return _as_json(step.value)


def _as_json(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False)
