"""What processes answer when they are asked what they hold and what they wait for."""

from collections import Counter
from dataclasses import dataclass, fields
from typing import Literal

__all__ = ["HeldEntry", "HeldLock", "Inspection", "ProcessReport", "WaitEntry", "Waiter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """What was asked for, and from where.

    Attributes:
        kind: What it is, such as `lock`.
        name: Which one, or what the process shows in place of its name.
        is_redacted: Whether the process shows something else in place of the name.
        mode: Which side of an rwlock; None for everything else.
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
    mode: Literal["read", "write"] | None = None
    holder: str
    since: float
    label: str | None = None
    task: str | None = None
    task_id: int | None = None
    line: str | None = None
    job_id: str | None = None
    trace_id: str | None = None


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
        ticket: Its place in line as the server numbers it, rising; None where there is no line.
        place: Its place in line among those that have answered, from 1; None where there is no line.
    """

    ticket: int | None = None
    place: int | None = None


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
class ProcessReport:
    """One open coordinator.

    Attributes:
        id: Unique to this opening; its holders begin with it.
        label: The coordinator's.
        host: The name of its machine.
        pid: Its process.
        opened_at: Since when it is open, in seconds since 1970 by the process's clock.
        holds: What it holds, the oldest first.
        waits: What it waits for, the oldest first.
        more: How many entries it has left out: of 1,000 processes each sends 20, of 20 or fewer each 1,000.
    """

    id: str
    label: str | None = None
    host: str
    pid: int
    opened_at: float
    holds: tuple[HeldEntry, ...] = ()
    waits: tuple[WaitEntry, ...] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class Inspection:
    """What the processes of a namespace hold and wait for.

    Attributes:
        processes: Those that answered, the oldest first.
        silent: The ids of those that did not: their event loop stands still, or they do not report.
    """

    processes: tuple[ProcessReport, ...]
    silent: tuple[str, ...]

    def locks(self) -> list[HeldLock]:
        """What is held, the oldest first."""
        waiters = Counter((wait.kind, wait.name) for process in self.processes for wait in process.waits)
        found = [
            HeldLock(
                **{field.name: getattr(entry, field.name) for field in fields(HeldEntry)},
                process=process.id,
                host=process.host,
                pid=process.pid,
                waiters=waiters[entry.kind, entry.name],
            )
            for process in self.processes
            for entry in process.holds
        ]
        return sorted(found, key=lambda lock: lock.since)

    def waiters(self) -> list[Waiter]:
        """What is waited for, the longest wait first."""
        found = [
            Waiter(
                **{field.name: getattr(entry, field.name) for field in fields(WaitEntry)},
                process=process.id,
                host=process.host,
                pid=process.pid,
            )
            for process in self.processes
            for entry in process.waits
        ]
        return sorted(found, key=lambda waiter: waiter.since)
