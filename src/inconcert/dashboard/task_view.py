"""Tasks as the pages show them: how many of their jobs ended, how, and how long they took."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isinf

from starlette.exceptions import HTTPException

from inconcert.coordinator import Coordinator
from inconcert.dashboard import charts
from inconcert.dashboard.formats import DASH
from inconcert.dashboard.live import reference
from inconcert.dashboard.redaction import Redact
from inconcert.dashboard.rows import Rows, page_of
from inconcert.tasks.records.counts import BOUNDS, DurationSpread, EndCounts, TaskCounts

_DAY, _TWO_WEEKS = 24, 14 * 24  # hours


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task, redacted."""

    key: str  # stands for it in links
    name: str
    total: EndCounts  # how many of its attempts ended
    failed: str  # what share of them failed, as text
    run: tuple[str, str]  # how long half of its attempts took, and how long 95 of 100, as text
    wait: tuple[str, str]  # how long half of its jobs waited, and how long 95 of 100, as text
    succeeded_line: str  # the hours of a chart
    failed_line: str  # the hours of a chart, to the same scale
    # of each day its beginning, in seconds since 1970, and what ended on it, the latest first
    days: Sequence[tuple[float, EndCounts]]


async def task_rows(concert: Coordinator, redact: Redact, sought: str, number: int) -> Rows[TaskView]:
    """Tasks of which jobs ended in two weeks, with what ended in 24 hours; those that fail come first."""
    views = [_view(redact, counts) for counts in await concert.tasks.counts(hours=_DAY)]
    found = [view for view in views if sought.lower() in view.name.lower()]
    return page_of(sorted(found, key=lambda task: (-task.total.failed, -task.total.succeeded, task.name)), number)


async def task_view(concert: Coordinator, redact: Redact, key: str) -> tuple[str, TaskView]:
    """The name of the task that this refers to, and what ended in two weeks.

    Raises:
        HTTPException: 404: there is none.
    """
    for counts in await concert.tasks.counts(hours=1):
        if reference("t", counts.task) == key:
            [found] = await concert.tasks.counts(counts.task, hours=_TWO_WEEKS)
            return counts.task, _view(redact, found)
    raise HTTPException(404, "No job of such a task has ended in two weeks.")


def _view(redact: Redact, counts: TaskCounts) -> TaskView:
    share = counts.total.failure_rate
    top = max(max(hour.succeeded, hour.failed) for hour in counts.hours)
    return TaskView(
        key=reference("t", counts.task),
        name=redact("task", counts.task),
        total=counts.total,
        failed=DASH if share is None else f"{share:.1%}",
        run=_texts(counts.run),
        wait=_texts(counts.wait),
        succeeded_line=charts.points([hour.succeeded for hour in counts.hours], top),
        failed_line=charts.points([hour.failed for hour in counts.hours], top),
        days=_days(counts),
    )


def _days(counts: TaskCounts) -> list[tuple[float, EndCounts]]:
    """Of each 24 hours up to now, the latest first."""
    days: list[tuple[float, EndCounts]] = []
    for end in range(len(counts.hours), 0, -_DAY):
        begin = max(end - _DAY, 0)
        days.append((counts.since + begin * 3600, sum(counts.hours[begin:end], EndCounts())))
    return days


def _texts(spread: DurationSpread) -> tuple[str, str]:
    return _at_most(spread.p50), _at_most(spread.p95)


def _at_most(seconds: float | None) -> str:
    """`≤ 20 ms`: the bound below which it was."""
    if seconds is None:
        return DASH
    if isinf(seconds):
        return f"> {BOUNDS[-1]:,.0f} s"
    return f"≤ {seconds * 1000:,.0f} ms" if seconds < 1 else f"≤ {seconds:,.0f} s"
