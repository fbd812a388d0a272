"""Why something waits: what `Coordinator.explain` answers."""

from dataclasses import dataclass

from inconcert.reports.report import Deadlock, HeldLock, Waiter, ago, whereabouts


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason why something waits.

    Attributes:
        code: Which, for programs, such as `held`, `paused` or `no_consumer`; docs/reference/reports.md lists them.
        text: The same for people: who, since when, and where.
    """

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The holders and waiters of a thing, or the reason why a job does not run; `str()` of it is for people.

    Attributes:
        kind: Such as `lock`.
        name: Which one.
        state: `held` or `free`; of a job its state, such as `delayed`; of a queue `served`, `paused`, `unserved` or
            `unknown`; of items one of these, or `shut`; of members `present` or `absent`; of a schedule `followed`,
            `unfollowed`, `paused`, `over` or `unreadable`. Queues and items are `unknown` also if not all processes
            could be asked.
        reasons: Why, what decides first.
        holders: Those that hold it, as far as they answered, the oldest first.
        waiters: Those that wait for it and answered, as they stand in line, or for a job's result.
        silent: The ids of the processes that did not answer.
        deadlocks: Those of which it is a part, or in which its holder or the job is.
    """

    kind: str
    name: str
    state: str
    reasons: tuple[Reason, ...] = ()
    holders: tuple[HeldLock, ...] = ()
    waiters: tuple[Waiter, ...] = ()
    silent: tuple[str, ...] = ()
    deadlocks: tuple[Deadlock, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.kind} {self.name!r} {'are' if self.kind in {'items', 'members'} else 'is'} {self.state}"]
        lines += [f"- {reason.text}" for reason in self.reasons]
        for waiter in self.waiters:
            position = "" if waiter.position is None else f"position {waiter.position}: "
            lines.append(f"- {position}{whereabouts(waiter)} has waited for {ago(waiter.since)}")
        for deadlock in self.deadlocks:
            title, *tasks = str(deadlock).splitlines()
            lines += [title, *tasks]
        if self.silent:
            lines.append(f"- did not answer: {', '.join(self.silent)}")
        return "\n".join(lines)


def cause(waiter: Waiter, holders: list[HeldLock]) -> Reason:
    """A thing for which a task waits while others wait for that task, and the holder of the thing."""
    text = f"{whereabouts(waiter)} waits itself for {waiter.kind} {waiter.name!r}, for {ago(waiter.since)}"
    has = [whereabouts(held) for held in holders if (held.kind, held.name) == (waiter.kind, waiter.name)]
    return Reason("waits", f"{text}; held by {'; '.join(has)}" if has else text)
