"""The reply of a process about its leases and waits."""

import hashlib
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Literal

from inconcert._core.permit_state import permits_of
from inconcert._rules.durations import in_words


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A request of a task, and its line of code.

    Attributes:
        kind: Its kind, such as `lock`.
        name: Which one, or what the process shows in place of its name.
        is_redacted: Whether the process shows something else in place of the name.
        mode: Which side of an rwlock; of items `put` for a call that waits for room, `join` for one that waits until
            all are done; None for everything else.
        holder: This acquisition's identity, unique every time.
        since: Since when, in seconds since 1970 by the process's clock.
        label: What its user calls this acquisition, if anything.
        task: The name of the asyncio task that asked for it; None if that has ended.
        task_id: The same, as a number that no other task of the process has now.
        line: `file:line` of the code that asked for it; None if the event loop did so directly.
        job_id: The job in which that was; None outside of one.
        trace_id: Its trace, if OpenTelemetry is there and the span is recorded.
    """

    kind: str
    name: str
    is_redacted: bool = False
    mode: Literal["read", "write", "put", "join"] | None = None
    holder: str
    since: float
    label: str | None = None
    task: str | None = None
    task_id: int | None = None
    line: str | None = None
    job_id: str | None = None
    trace_id: str | None = None

    @property
    def permits(self) -> int:
        """The number of permits it has or wants, if it is of a semaphore; otherwise 1."""
        return permits_of(self.holder) if self.kind == "semaphore" else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldEntry(_Entry):
    """Something that a process holds.

    Attributes:
        fencing_token: The number of its grant; None of what has none.
        remaining: Seconds until it is lost unless renewed.
    """

    fencing_token: int | None = None
    remaining: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLock(HeldEntry):
    """A lock, semaphore, rwlock or term that a process holds, and where.

    Attributes:
        process: The id of its coordinator.
        host: The name of its machine.
        pid: Its process.
        waiters: How many wait for it, in the processes that have answered.
    """

    process: str
    host: str
    pid: int
    waiters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitEntry(_Entry):
    """Something that a process waits for.

    Attributes:
        ticket: Its position in line as the server numbers it, rising; None where there is no line.
        position: Its position in line among those that have answered, from 1; None where there is no line.
    """

    ticket: int | None = None
    position: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter(WaitEntry):
    """Something that a process waits for, and where.

    Attributes:
        process: The id of its coordinator.
        host: The name of its machine.
        pid: Its process.
    """

    process: str
    host: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldItem:
    """An item of a queue that a process has claimed.

    Attributes:
        id: Which item.
        task: The name of the asyncio task that has its delivery in a variable; None if none does.
        line: `file:line` at which that task is now.
    """

    id: str
    task: str | None = None
    line: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemConsumer:
    """A queue of items from which a process takes.

    Attributes:
        name: Which queue, or what the process shows in place of its name.
        is_redacted: Whether the process shows something else in place of the name; then `holds` is empty.
        waiting: How many calls of `Queue.get` wait for an item; one of `get_many` counts as its `limit`.
        task: The name of an asyncio task that waits; None if none does.
        line: `file:line` of the code that waits there.
        holds: The items that it has claimed and not ended, the oldest 20.
    """

    name: str
    is_redacted: bool = False
    waiting: int
    task: str | None = None
    line: str | None = None
    holds: tuple[HeldItem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalListener:
    """A subscription to the broadcasts of a signal.

    Attributes:
        name: Which signal, or the pattern of their names; or what the process shows in its place.
        is_redacted: Whether the process shows something else in place of the name.
        is_pattern: Whether it is to all signals whose names match.
        since: Since when, in seconds since 1970 by the process's clock.
        line: `file:line` of the code that subscribed; None if the event loop did so directly.
    """

    name: str
    is_redacted: bool = False
    is_pattern: bool = False
    since: float
    line: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReport:
    """One open coordinator.

    Attributes:
        id: Unique to this opening; its holders begin with it.
        label: The coordinator's.
        host: The name of its machine.
        pid: Its process.
        opened_at: Since when it is open, in seconds since 1970 by the process's clock.
        holds: Its leases, the oldest first.
        waits: Its waits, the oldest first.
        consumers: The queues of items for which it waits, or of which it holds items.
        listeners: Its subscriptions to broadcasts of signals, the oldest first.
        more: How many entries it has left out: of 1,000 processes each sends 20, of 20 or fewer each 1,000.
        told: The ids of the deadlocks that it has logged, while they last.
    """

    id: str
    label: str | None = None
    host: str
    pid: int
    opened_at: float
    holds: tuple[HeldEntry, ...] = ()
    waits: tuple[WaitEntry, ...] = ()
    consumers: tuple[ItemConsumer, ...] = ()
    listeners: tuple[SignalListener, ...] = ()
    more: int = 0
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Blocked:
    """A task of a deadlock.

    Attributes:
        waiter: Its wait, and the line of code.
        holds: The thing that it has, for which the one before it waits; None if that one waits for its job, or is
            behind it in the line of an rwlock.
    """

    waiter: Waiter
    holds: HeldLock | None


@dataclass(frozen=True, slots=True)
class Deadlock:
    """Tasks that wait for each other in a circle: each for the next, and the last for the first.

    Attributes:
        tasks: These, the one that has waited longest first.
    """

    tasks: tuple[Blocked, ...]

    @property
    def things(self) -> set[tuple[str, str]]:
        """Kind and name of what its tasks hold and wait for."""
        entries = [entry for task in self.tasks for entry in (task.waiter, task.holds) if entry is not None]
        return {(entry.kind, entry.name) for entry in entries}

    @property
    def id(self) -> str:
        """The same as long as the same tasks hold and wait for the same, by their fencing tokens."""
        parts = sorted(
            f"{task.waiter.holder} {task.holds.holder} {task.holds.fencing_token}" if task.holds else task.waiter.holder
            for task in self.tasks
        )
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        lines = [f"deadlock of {len(self.tasks)} tasks" if len(self.tasks) > 1 else "deadlock of a task with itself"]
        for task in self.tasks:
            waiter, held = task.waiter, task.holds
            has = f" holds {held.kind} {held.name!r}, acquired at {held.line or 'an unknown line'}, and" if held else ""
            waits = f"has waited for {waiter.kind} {waiter.name!r} for {ago(waiter.since)}"
            lines.append(f"- {whereabouts(waiter)}:{has} {waits}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Inspection:
    """The report of a namespace's processes: what they hold and wait for.

    Attributes:
        processes: Those that answered, the oldest first.
        silent: The ids of those that did not: their event loop stands still, or they do not report.
        deadlocks: Tasks that wait for each other in a circle, seen twice.
    """

    processes: tuple[ProcessReport, ...]
    silent: tuple[str, ...]
    deadlocks: tuple[Deadlock, ...] = ()

    def locks(self) -> list[HeldLock]:
        """Held entries, the oldest first."""
        return held_locks(self.processes)

    def waiters(self) -> list[Waiter]:
        """Waits, the longest first."""
        return waiters(self.processes)


_OF_HELD, _OF_WAITS = ([field.name for field in fields(of)] for of in (HeldEntry, WaitEntry))


def held_locks(processes: Iterable[ProcessReport]) -> list[HeldLock]:
    """The entries that these hold, the oldest first."""
    processes = tuple(processes)
    waiting = Counter((wait.kind, wait.name) for process in processes for wait in process.waits)
    found = [
        HeldLock(
            **{name: getattr(entry, name) for name in _OF_HELD},
            process=process.id,
            host=process.host,
            pid=process.pid,
            waiters=waiting[entry.kind, entry.name],
        )
        for process in processes
        for entry in process.holds
    ]
    return sorted(found, key=lambda lock: lock.since)


def waiters(processes: Iterable[ProcessReport]) -> list[Waiter]:
    """The entries that these wait for, the longest wait first."""
    found = [
        Waiter(
            **{name: getattr(entry, name) for name in _OF_WAITS},
            process=process.id,
            host=process.host,
            pid=process.pid,
        )
        for process in processes
        for entry in process.waits
    ]
    return sorted(found, key=lambda waiter: waiter.since)


def ago(moment: float, now: float | None = None) -> str:
    """Seconds since that instant, or until it, by this machine's clock unless another's is given."""
    return in_words(abs((time.time() if now is None else now) - moment))


def whereabouts(entry: HeldLock | Waiter) -> str:
    """The holder or waiter: process, task, line of code, job and label."""
    parts = [f"process {entry.pid} on {entry.host}"]
    if entry.permits > 1:
        parts.append(f"{entry.permits:,} permits")
    if entry.task is not None:
        parts.append(f"task {entry.task!r}")
    if entry.job_id is not None:
        parts.append(f"job {entry.job_id}")
    if entry.label is not None:
        parts.append(f"label {entry.label!r}")
    if entry.line is not None:
        parts.append(f"at {entry.line}")
    return ", ".join(parts)
