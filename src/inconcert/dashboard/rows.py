"""The rows of a page, of which there may be many more: which come first, and which are on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from inconcert.dashboard.poll import Seen
from inconcert.tasks.operating.queue_stats import QueueStats
from inconcert.tasks.running.workers import WorkerStatus

AT_ONCE = 50  # on a page

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rows(Generic[T]):
    """A page of a list."""

    shown: Sequence[T]
    total: int  # how many there are on all pages
    number: int  # the number of the page, from 1
    pages: int  # how many pages there are


def queue_rows(seen: Seen, names: Sequence[str], number: int) -> Rows[tuple[str, QueueStats]]:
    """Some of these queues: first those that nobody serves, then by how long their jobs wait, then the paused ones."""
    unserved = set(seen.stats.unserved)

    def urgency(row: tuple[str, QueueStats]) -> tuple[bool, float, bool, str]:
        name, queue = row
        return name not in unserved, -(queue.oldest_age or 0.0), not queue.is_paused, name

    return page_of(sorted(((name, seen.stats.queues[name]) for name in names), key=urgency), number)


def limited_tasks(seen: Seen, queue: str | None) -> Sequence[str]:
    """The first tasks of this queue that have a limit, those of which the most places are taken."""
    limits = {task: limit for task, limit in seen.stats.limits.items() if limit.queue == queue}
    return sorted(limits, key=lambda task: (-limits[task].in_use / limits[task].places, task))[:AT_ONCE]


def worker_rows(seen: Seen, number: int) -> Rows[WorkerStatus]:
    """Some of the workers, the dead ones first."""
    return page_of(sorted(seen.workers, key=lambda worker: worker.is_alive), number)


def page_of(rows: Sequence[T], number: int) -> Rows[T]:
    """The page of this number, or the nearest that there is."""
    pages = max(-(-len(rows) // AT_ONCE), 1)
    number = min(max(number, 1), pages)
    return Rows(rows[(number - 1) * AT_ONCE : number * AT_ONCE], len(rows), number, pages)
