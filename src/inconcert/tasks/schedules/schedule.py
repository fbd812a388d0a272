"""The rule of a schedule that is part of the code, and the fate of missed instants of any schedule."""

from collections import deque
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal, get_args

from inconcert.tasks.schedules.timetable import Timetable
from inconcert.tasks.sending.draft import Draft, Pattern
from inconcert.tasks.sending.task import Task

__all__ = ["LATE_MS", "Missed", "Schedule", "check_missed", "due_instants"]

Missed = Literal["skip", "once", "all"]
"""What becomes of instants of a schedule at which no worker was there; see `Coordinator.cron`."""

LATE_MS = 60_000  # an instant that no worker processed for this long is missed: longer than a worker takes to restart
_MOST_MISSED = 100  # missed instants that are made up for


@dataclass(frozen=True, slots=True)
class Schedule:
    """A task and its timetable.

    Attributes:
        task: What runs.
        timetable: When.
        missed: What happens to instants at which no worker was running.
    """

    task: Task[Any, Any]
    timetable: Timetable
    missed: Missed

    def __str__(self) -> str:
        return f"{self.timetable} of task {self.task.name!r}"

    def draft_now(self) -> Draft[object]:
        """Its job, for no instant."""
        options = self.task.defaults
        limits = self.task.limits.of(self.task.name, options.queue, (), {}, expires=options.expires)
        return Pattern[object](self.task.name, options, limits=limits).draft((), {})


def check_missed(missed: Missed) -> Missed:
    """Return `missed`.

    Raises:
        ValueError: It is something else.
    """
    if missed not in get_args(Missed):
        raise ValueError(f"missed is {missed!r}; give 'skip', 'once' or 'all'")
    return missed


def due_instants(timetable: Timetable, missed: Missed, since_ms: int, now_ms: int) -> list[int]:
    """The instants after `since_ms` and up to `now_ms` for which a job is to be enqueued, in order."""
    if missed == "all":
        return _latest(timetable, _MOST_MISSED, since_ms, now_ms)
    latest = _latest(timetable, 1, since_ms, now_ms)
    if latest and missed == "skip" and now_ms - latest[0] > LATE_MS:
        return []
    return latest


def _latest(timetable: Timetable, most: int, since_ms: int, now_ms: int) -> list[int]:
    """The last instants, at most this many; searched further and further back."""
    span_ms = 60_000
    while True:
        start_ms = max(since_ms, now_ms - span_ms)
        found = deque(takewhile(lambda ms: ms <= now_ms, timetable.after(start_ms)), maxlen=most)
        if len(found) == most or start_ms == since_ms:
            return list(found)
        span_ms *= 60
