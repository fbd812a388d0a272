"""The wait-for graph of what processes report: which tasks wait for each other in a circle.

A task is blocked if the thing it waits for is held by tasks that are blocked.  At first all that wait count as blocked;
those that others will let go on are taken out, until none is left that can go on.  What remains is a deadlock, or waits
for one.  A fact that is not certain, such as the task of a holder, counts as not blocked.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from typing import TypeAlias

from inconcert.reports.report import Blocked, Deadlock, HeldLock, ProcessReport, Waiter, held_locks, waiters

_Thing: TypeAlias = tuple[str, str]  # kind and name
_Node: TypeAlias = str | tuple[object, ...]
_Holding: TypeAlias = dict[tuple[_Thing, bool], tuple[Waiter, HeldLock]]  # of a thing, whether for its readers
_InFront: TypeAlias = dict[tuple[str, bool], Waiter]  # of the line of an rwlock, whether for its readers

# Which holders a waiter of a kind and a mode waits for; what is not here ends without them.
_WHICH: dict[tuple[str, str | None], str] = {
    ("lock", None): "any",
    ("election", None): "any",
    ("semaphore", None): "all",
    ("rwlock", "write"): "any",
    ("rwlock", "read"): "write",
}


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
    """The waits of tasks for each other.  Each step takes time in proportion to the reports, however many wait for one.

    Its nodes are those that wait, and what many of them wait for in common: that no holder of a thing is blocked any
    more, or none that writes; that one of all its holders is not; that nobody in the front part of a line is.  Each
    counts on how many nodes it still rests, and goes on when it rests on none.
    """

    def __init__(self, processes: tuple[ProcessReport, ...], *, is_complete: bool) -> None:
        self._is_complete = is_complete
        self._holders: defaultdict[_Thing, list[HeldLock]] = defaultdict(list)
        for held in held_locks(processes):
            if not held.is_redacted:
                self._holders[held.kind, held.name].append(held)
        self._blocked: dict[_Node, Waiter] = {
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
        in_line = [waiter for waiter in self._blocked.values() if waiter.kind == "rwlock" and waiter.ticket is not None]
        self._lines: defaultdict[str, list[Waiter]] = defaultdict(list)
        for waiter in sorted(in_line, key=_ticket):
            self._lines[waiter.name].append(waiter)
        self._rests_on: dict[_Node, int] = {}  # how many must go on before it does
        self._resting: defaultdict[_Node, list[_Node]] = defaultdict(list)  # which nodes rest on it

    def circles(self) -> Iterator[Deadlock]:
        """Each circle, beginning with the task that has waited longest."""
        self._take_out_those_that_can_go_on()
        holding, in_front = self._first_blockers()
        seen: set[str] = set()
        for first in list(self._blocked.values()):
            path: dict[str, Blocked] = {}
            waiter, held = first, None
            while waiter.holder not in seen:
                seen.add(waiter.holder)
                path[waiter.holder] = Blocked(waiter, held)
                thing, is_reader = (waiter.kind, waiter.name), waiter.mode == "read"
                if waiter.kind == "job":
                    waiter, held = self._of_job[waiter.name], None
                elif (thing, is_reader) in holding:
                    waiter, held = holding[thing, is_reader]
                else:
                    waiter, held = in_front[waiter.name, is_reader], None
            if waiter.holder in path:
                circle = list(path.values())[list(path).index(waiter.holder) :]
                circle[0] = Blocked(waiter, held)  # what the last of them waits for
                start = min(range(len(circle)), key=lambda index: circle[index].waiter.since)
                yield Deadlock((*circle[start:], *circle[:start]))

    def _take_out_those_that_can_go_on(self) -> None:
        for thing, holders in self._holders.items():
            tasks = [(held, task.holder) for held in holders if (task := self._of_task.get(_task(held))) is not None]
            self._rest((thing, "any"), [task for _, task in tasks])
            self._rest((thing, "write"), [task for held, task in tasks if held.mode == "write"])
            are_all_known = self._is_complete and len(tasks) == len(holders)
            self._rest((thing, "all"), [task for _, task in tasks] if are_all_known else [], until=1)
        in_front = self._rest_on_lines()
        for waiter in self._blocked.values():
            self._rest(waiter.holder, [*self._on_what(waiter), *in_front.get(waiter.holder, [])])
        going_on = [node for node, count in self._rests_on.items() if not count]
        for node in going_on:  # which grows
            self._blocked.pop(node, None)
            for resting in self._resting[node]:
                self._rests_on[resting] -= 1
                if not self._rests_on[resting]:
                    going_on.append(resting)

    def _rest(self, node: "_Node", on: "list[_Node]", *, until: int | None = None) -> None:
        """Let a node go on when all of these do, or when so many do."""
        self._rests_on[node] = len(on) if until is None else min(until, len(on))
        for other in on:
            self._resting[other].append(node)

    def _on_what(self, waiter: Waiter) -> "list[_Node]":
        """The nodes on which this one rests, but for those in line before it."""
        if waiter.kind == "job":
            job = self._of_job.get(waiter.name)
            return [] if job is None else [job.holder]
        thing = waiter.kind, waiter.name
        which = _WHICH.get((waiter.kind, waiter.mode))
        return [] if which is None or thing not in self._holders else [(thing, which)]

    def _rest_on_lines(self) -> "dict[str, list[_Node]]":
        """The nodes of the lines: for each part of a line from its front; returns that before each waiter."""
        before: dict[str, list[_Node]] = {}
        for name, line in self._lines.items():
            front: dict[str, list[_Node]] = {"any": [], "write": []}
            for ticket, of_ticket in groupby(line, _ticket):
                group = list(of_ticket)
                before.update((each.holder, front["write" if each.mode == "read" else "any"]) for each in group)
                for which, nodes in front.items():
                    node = name, ticket, which
                    self._rest(node, [*nodes, *(each.holder for each in group if which in ("any", each.mode))])
                    front[which] = [node]
        return before

    def _first_blockers(self) -> "tuple[_Holding, _InFront]":
        """The first blocked holder of each thing, and the first of each line; also those that readers wait for."""
        holding: _Holding = {}
        for thing, holders in self._holders.items():
            for held in holders:
                task = self._of_task.get(_task(held))
                if task is not None and task.holder in self._blocked:
                    holding.setdefault((thing, False), (task, held))
                    if held.mode == "write":
                        holding.setdefault((thing, True), (task, held))
        in_front: _InFront = {}
        for name, line in self._lines.items():
            for waiter in line:
                if waiter.holder in self._blocked:
                    in_front.setdefault((name, False), waiter)
                    if waiter.mode == "write":
                        in_front.setdefault((name, True), waiter)
        return holding, in_front


def _task(entry: HeldLock | Waiter) -> tuple[str, int | None]:
    return entry.process, entry.task_id


def _ticket(waiter: Waiter) -> int:
    return waiter.ticket or 0
