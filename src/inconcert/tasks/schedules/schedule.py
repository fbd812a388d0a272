"""The rule of a schedule that is part of the code, and the fate of missed instants of any schedule."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from inconcert.tasks.schedules.timetable import Timetable, latest
from inconcert.tasks.sending.draft import Draft, Pattern
from inconcert.tasks.sending.task import Task

Missed = Literal["skip", "once", "all"]
"""What becomes of instants of a schedule at which no worker was there; see `Coordinator.cron`."""

Overlap = Literal["allow", "skip", "wait"]
"""What becomes of an instant whose schedule has a job that has not ended; see `Coordinator.cron`."""

LATE_MS = 60_000  # an instant that no worker processed for this long is missed: longer than a worker takes to restart
_MOST_MISSED = 100  # missed instants that are made up for


@dataclass(frozen=True, slots=True)
class Schedule:
    """A task and its timetable."""

    task: Task[Any, Any]  # what runs
    timetable: Timetable  # when
    missed: Missed  # what happens to instants at which no worker was running
    overlap: Overlap = "allow"  # what happens to instants at which the job of the last one has not ended

    def __str__(self) -> str:
        return f"{self.timetable} of task {self.task.name!r}"

    def draft_now(self) -> Draft[object]:
        """Its job, for no instant."""
        options = self.task.defaults
        limits = self.task.limits.of(self.task.name, options.queue, (), {}, expires=options.expires)
        return Pattern[object](self.task.name, options, limits=limits).draft((), {})


def check_missed(missed: Missed) -> Missed:
    """Return `missed`; raises `ValueError` if it is something else."""
    if missed not in get_args(Missed):
        raise ValueError(f"missed is {missed!r}; give 'skip', 'once' or 'all'")
    return missed


def check_overlap(overlap: Overlap, missed: Missed) -> Overlap:
    """Return `overlap`; raises `ValueError` if it is something else, or does not go with `missed`."""
    if overlap not in get_args(Overlap):
        raise ValueError(f"overlap is {overlap!r}; give 'allow', 'skip' or 'wait'")
    if overlap != "allow" and missed == "all":
        raise ValueError(
            f"missed='all' enqueues the jobs of several instants at once, and overlap={overlap!r} keeps them apart; "
            "give missed='once' or 'skip', or overlap='allow'"
        )
    return overlap


def due_instants(timetable: Timetable, missed: Missed, since_ms: int, now_ms: int) -> list[int]:
    """The instants after `since_ms` and up to `now_ms` for which a job is to be enqueued, in order."""
    if missed == "all":
        return latest(timetable, _MOST_MISSED, since_ms, now_ms)
    last = latest(timetable, 1, since_ms, now_ms)
    if last and missed == "skip" and now_ms - last[0] > LATE_MS:
        return []
    return last
