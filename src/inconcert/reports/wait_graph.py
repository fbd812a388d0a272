"""The wait-for graph of what processes report: which tasks wait for each other in a circle.

A task is blocked if what it waits for is held by tasks that are blocked.  At first all that wait count as blocked;
those that others will let go on are taken out, until none is left that can go on.  What remains is a deadlock, or waits
for one.  What is not known for certain, such as the task of a holder, counts as not blocked.
"""

from collections import defaultdict
from collections.abc import Iterator

from inconcert.reports.report import Blocked, Deadlock, HeldLock, ProcessReport, Waiter, held_locks, waiters

__all__ = ["deadlocks"]

_EXCLUSIVE = {"lock", "election"}


def deadlocks(processes: tuple[ProcessReport, ...], *, is_complete: bool) -> tuple[Deadlock, ...]:
    """The deadlocks among these processes, each task in at most one.

    Args:
        processes: What they report.
        is_complete: Whether all processes have reported: otherwise somebody else may release a semaphore.
    """
    if not any(process.waits for process in processes):
        return ()
    graph = _Graph(processes, is_complete=is_complete and not any(process.more for process in processes))
    return tuple(graph.circles())


class _Graph:
    """Who waits for whom."""

    def __init__(self, processes: tuple[ProcessReport, ...], *, is_complete: bool) -> None:
        self._is_complete = is_complete
        self._holders: defaultdict[tuple[str, str], list[HeldLock]] = defaultdict(list)
        for held in held_locks(processes):
            if not held.is_redacted:
                self._holders[held.kind, held.name].append(held)
        self._blocked: dict[str, Waiter] = {
            waiter.holder: waiter
            for waiter in waiters(processes)
            if not waiter.is_redacted and waiter.task_id is not None
        }
        self._of_task = {_task(waiter): waiter for waiter in self._blocked.values()}
        self._of_job = {
            waiter.job_id: waiter
            for waiter in self._blocked.values()
            if waiter.job_id is not None and (waiter.task or "").startswith(f"job {waiter.job_id} ")
        }
        self._before: defaultdict[str, list[Waiter]] = defaultdict(list)  # of each rwlock who waits
        for waiter in self._blocked.values():
            if waiter.kind == "rwlock":
                self._before[waiter.name].append(waiter)

    def circles(self) -> Iterator[Deadlock]:
        """Each circle, beginning with the task that has waited longest."""
        self._take_out_those_that_can_go_on()
        seen: set[str] = set()
        for first in list(self._blocked.values()):
            path: dict[str, Blocked] = {}
            waiter, held = first, None
            while waiter.holder not in seen:
                seen.add(waiter.holder)
                path[waiter.holder] = Blocked(waiter, held)
                waiter, held = next(self._blockers(waiter))
            if waiter.holder in path:
                circle = list(path.values())[list(path).index(waiter.holder) :]
                circle[0] = Blocked(waiter, held)  # what the last of them waits for
                start = min(range(len(circle)), key=lambda place: circle[place].waiter.since)
                yield Deadlock((*circle[start:], *circle[:start]))

    def _take_out_those_that_can_go_on(self) -> None:
        going_on = [""]
        while going_on:
            going_on = [each for each, waiter in self._blocked.items() if not self._is_blocked(waiter)]
            for each in going_on:
                del self._blocked[each]

    def _is_blocked(self, waiter: Waiter) -> bool:
        blockers = sum(1 for _ in self._blockers(waiter))
        if waiter.kind == "semaphore":
            return self._is_complete and blockers > 0 and blockers == len(self._holders[waiter.kind, waiter.name])
        return blockers > 0

    def _blockers(self, waiter: Waiter) -> Iterator[tuple[Waiter, HeldLock | None]]:
        """Blocked tasks that this one waits for, each with what it has; None if it is the job, or before it in line."""
        if waiter.kind == "job":
            job = self._of_job.get(waiter.name)
            if job is not None and job.holder in self._blocked:
                yield job, None
            return
        if waiter.kind not in _EXCLUSIVE | {"semaphore", "rwlock"}:
            return
        for held in self._holders[waiter.kind, waiter.name]:
            task = self._of_task.get(_task(held))
            if task is not None and task.holder in self._blocked and "write" in (held.mode, waiter.mode or "write"):
                yield task, held
        if waiter.kind == "rwlock":
            for other in self._before[waiter.name]:
                is_before = other.ticket is not None and waiter.ticket is not None and other.ticket < waiter.ticket
                if is_before and other.holder in self._blocked and "write" in (other.mode, waiter.mode):
                    yield other, None


def _task(entry: HeldLock | Waiter) -> tuple[str, int | None]:
    return entry.process, entry.task_id
