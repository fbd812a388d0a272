"""Which tasks wait for each other in a circle, from what processes report; and what only seems so."""

import sys
from collections.abc import Sequence
from typing import Literal

import pytest

from inconcert.reports.report import HeldEntry, ProcessReport, WaitEntry
from inconcert.reports.wait_graph import deadlocks

Mode = Literal["read", "write"] | None


def held(task: int | None, thing: str, *, mode: Mode = None, hidden: bool = False) -> HeldEntry:
    """A task has it, such as "lock:a"."""
    kind, _, name = thing.partition(":")
    holder = f"p.{thing}{task}"
    return HeldEntry(
        kind=kind,
        name=name,
        holder=holder,
        since=1,
        task_id=task,
        fencing_token=1,
        remaining=9,
        mode=mode,
        is_redacted=hidden,
    )


def waits(
    task: int, thing: str, *, ticket: int | None = 1, mode: Mode = None, job: str | None = None, hidden: bool = False
) -> WaitEntry:
    """A task waits for it; the task of a job is named as workers name it."""
    kind, _, name = thing.partition(":")
    return WaitEntry(
        kind=kind,
        name=name,
        holder=f"p.w{task}",
        since=10 + task,
        task_id=task,
        task=f"job {job} attempt 1 (task 't')" if job else "Task-1",
        job_id=job,
        ticket=ticket,
        mode=mode,
        is_redacted=hidden,
    )


def circles(
    holds: Sequence[HeldEntry], waiting: Sequence[WaitEntry], *, is_complete: bool = True, more: int = 0
) -> list[list[int | None]]:
    """The tasks of each deadlock."""
    report = ProcessReport(id="p", host="h", pid=1, opened_at=0, holds=tuple(holds), waits=tuple(waiting), more=more)
    found = deadlocks((report,), is_complete=is_complete)
    return [[task.waiter.task_id for task in deadlock.tasks] for deadlock in found]


def test_tasks_that_wait_for_each_other() -> None:
    """Two and three of them, the one that has waited longest first; one that waits for a circle is not in it."""
    two = [held(1, "lock:a"), held(2, "lock:b")], [waits(1, "lock:b"), waits(2, "lock:a"), waits(0, "lock:a")]
    assert circles(*two) == [[1, 2]]
    three = [held(n, f"lock:{n}") for n in (1, 2, 3)], [waits(3, "lock:1"), waits(1, "lock:2"), waits(2, "lock:3")]
    assert circles(*three) == [[1, 2, 3]]
    four = [*two[0], held(3, "lock:c"), held(4, "lock:d")], [*two[1], waits(3, "lock:d"), waits(4, "lock:c")]
    assert circles(*four) == [[1, 2], [3, 4]]


def test_what_each_holds_is_what_the_one_before_waits_for() -> None:
    """Also if it holds other things."""
    holds = [held(1, "lock:x"), held(1, "lock:a"), held(2, "lock:b"), held(2, "lock:y")]
    report = ProcessReport(
        id="p", host="h", pid=1, opened_at=0, holds=tuple(holds), waits=(waits(1, "lock:b"), waits(2, "lock:a"))
    )
    [deadlock] = deadlocks((report,), is_complete=True)
    assert [task.holds and task.holds.name for task in deadlock.tasks] == ["a", "b"]
    assert deadlock.things == {("lock", "a"), ("lock", "b")}
    assert "deadlock of 2 tasks\n- process 1 on h, task 'Task-1': holds lock 'a'" in str(deadlock)


def test_task_that_waits_for_itself() -> None:
    """A lock is not reentrant."""
    assert circles([held(1, "lock:a")], [waits(1, "lock:a")]) == [[1]]


@pytest.mark.parametrize(
    ("holds", "waiting"),
    [
        ([held(1, "lock:a"), held(2, "lock:b")], [waits(1, "lock:b")]),  # the other goes on
        ([held(1, "lock:a"), held(None, "lock:b")], [waits(1, "lock:b"), waits(2, "lock:a")]),  # nobody knows whose
        ([held(1, "lock:a"), held(2, "lock:b")], [waits(1, "mailbox:b"), waits(2, "lock:a")]),
        ([held(1, "lock:a", hidden=True), held(2, "lock:b")], [waits(1, "lock:b"), waits(2, "lock:a")]),
        ([held(1, "lock:a"), held(2, "lock:b")], [waits(1, "lock:b", hidden=True), waits(2, "lock:a")]),
        ([held(1, "lock:a"), held(2, "semaphore:a")], [waits(1, "semaphore:a"), waits(2, "semaphore:b")]),
        ([held(1, "rwlock:a", mode="read"), held(2, "rwlock:b", mode="read")],
         [waits(1, "rwlock:b", mode="read"), waits(2, "rwlock:a", mode="read")]),
    ],
)  # fmt: skip
def test_what_is_not_certain_is_no_deadlock(holds: Sequence[HeldEntry], waiting: Sequence[WaitEntry]) -> None:
    """Other kinds, hidden names, and holders that can go on."""
    assert circles(holds, waiting) == []


def test_semaphore_needs_all_of_its_holders() -> None:
    """Any of them may let others go on; so may one that has not answered, or was left out."""
    holds = [held(1, "semaphore:s"), held(2, "semaphore:s"), held(3, "lock:a")]
    waiting = [waits(3, "semaphore:s"), waits(1, "lock:a")]
    assert circles(holds, waiting) == []
    waiting = [*waiting, waits(2, "lock:a")]
    assert circles(holds, waiting) in ([[1, 3]], [[2, 3]])
    assert circles(holds, waiting, is_complete=False) == []
    assert circles(holds, waiting, more=1) == []


def test_reader_behind_a_writer() -> None:
    """It holds what the writer waits for, and waits behind it."""
    holds = [held(1, "rwlock:a", mode="read")]
    waiting = [waits(2, "rwlock:a", ticket=1, mode="write"), waits(1, "rwlock:a", ticket=2, mode="read")]
    assert circles(holds, waiting) == [[1, 2]]
    waiting = [waits(2, "rwlock:a", ticket=2, mode="write"), waits(1, "rwlock:a", ticket=1, mode="read")]
    assert circles(holds, waiting) == []
    assert circles([held(1, "rwlock:a", mode="read")], [waits(1, "rwlock:a", mode="write")]) == [[1]]


def test_job_whose_result_is_waited_for() -> None:
    """It waits for what that task holds; but only if its own task does, and not one that it has started."""
    holds = [held(1, "lock:a")]
    assert circles(holds, [waits(1, "job:j.1", ticket=None), waits(2, "lock:a", job="j.1")]) == [[1, 2]]
    assert circles(holds, [waits(1, "job:j.1", ticket=None), waits(2, "lock:a", job="j.11")]) == []


@pytest.mark.parametrize("shape", ["writers", "readers", "semaphore", "chain"])
def test_work_grows_with_what_is_reported(shape: str) -> None:
    """Ten times as many make ten times the calls: of those that wait for one thing, and of those that wait in a row."""

    def calls(count: int) -> int:
        holds = [held(1000 + task, f"{shape}:one") for task in range(count if shape == "semaphore" else 1)]
        waiting = [waits(task, f"{shape}:one", ticket=task) for task in range(count)]
        if shape in ("writers", "readers"):
            mode: Mode = "write" if shape == "writers" else "read"
            holds = [held(10_000, "rwlock:one", mode="write")]
            waiting = [waits(task, "rwlock:one", ticket=task, mode=mode) for task in range(count)]
        elif shape == "chain":
            holds = [held(task, f"lock:{task}") for task in range(count + 1)]
            waiting = [waits(task, f"lock:{task + 1}", ticket=task) for task in range(count)]
        made = 0

        def count_call(frame: object, event: str, argument: object) -> None:
            nonlocal made
            del frame, argument
            made += event in ("call", "c_call")

        sys.setprofile(count_call)
        try:
            assert circles(holds, waiting) == []
        finally:
            sys.setprofile(None)
        return made

    assert calls(1000) < 15 * calls(100)
