"""Schedules, as the dashboard shows them."""

from dataclasses import dataclass
from typing import Self

from inconcert.coordinator import Coordinator
from inconcert.dashboard.formats import as_json
from inconcert.dashboard.live import reference
from inconcert.dashboard.redaction import Redact
from inconcert.dashboard.rows import Rows, page_of
from inconcert.tasks.schedules.schedules import ScheduleStatus

_LONGEST = 200  # characters of the arguments


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """A row."""

    key: str  # stands for it in forms
    name: str  # its id, as it is shown
    task: str  # the task, as it is shown
    queue: str  # the queue of its jobs, as it is shown
    arguments: str  # as a JSON array, the named ones as an object at its end, as it is shown; empty if there are none
    problem: str | None  # why it cannot be read, as it is shown; None if it can
    status: ScheduleStatus  # its state, which is shown as it is

    @classmethod
    def of(cls, status: ScheduleStatus, redact: Redact) -> Self:
        """The part of it that may be seen."""
        values = [*status.args, *([status.kwargs] if status.kwargs else [])]
        arguments = as_json(values, longest=_LONGEST, in_one_line=True) if values else ""
        return cls(
            reference("s", status.id),
            redact("schedule", status.id),
            redact("task", status.task),
            redact("queue", status.queue),
            redact("arguments", arguments) if arguments else "",
            None if status.problem is None else redact("error", status.problem),
            status,
        )


async def schedule_rows(concert: Coordinator, redact: Redact, number: int) -> Rows[ScheduleView]:
    """Some of the schedules: first what cannot be read, then by their ids."""
    found = sorted(await concert.schedules.list(), key=lambda status: (status.problem is None, status.id))
    return page_of([ScheduleView.of(status, redact) for status in found], number)


async def find_schedule(concert: Coordinator, key: str | None) -> str | None:
    """The id of the schedule that this refers to; None if there is none."""
    return next((status.id for status in await concert.schedules.list() if reference("s", status.id) == key), None)
