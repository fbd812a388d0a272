"""What is wrong in a recorded history: pure functions, which know nothing of how it came about.

Only what is certain counts.  A permit is *certainly* held from when its holder was told so until it stops acting on it,
and *possibly* held from when it was asked for until its release was answered.  So no violation that is found here can
be explained by a message that was late.  All take O(n log n) of n events, or O(n) for each attempt of a job.
"""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

__all__ = [
    "Attempt",
    "Begun",
    "Kind",
    "Life",
    "StepResult",
    "StepRun",
    "Verdict",
    "Violation",
    "Write",
    "differing_results",
    "fallen_tokens",
    "false_verdicts",
    "late_commits",
    "misdeliveries",
    "repeated_steps",
    "stale_writes",
    "starved",
    "strandings",
    "too_many_holders",
    "wrong_refusals",
]

Item = TypeVar("Item", bound=Hashable)

Kind = Literal[
    "too many hold",  # L1, S1
    "wrong refusal",  # S2
    "stranded",  # L5, S4: nobody holds, and someone waits
    "token fell",  # L2
    "stale write",  # L3: accepted from a holder of before
    "revived",  # L6: a lease that had lapsed was renewed
    "lost in vain",  # G3: a lease that had not lapsed was said to be lost
    "never handled",  # Q1
    "too early",  # Q2
    "handled twice",  # Q6
    "never read",  # C1
    "position fell",  # C2
    "left over",  # C3
    "unbounded",  # C4
    "gap in ids",  # C1
    "stranger",  # of a chat, who was let in
    "step ran again",  # though it was known to be kept
    "late commit",  # by an attempt whose job was taken over
    "another result",  # of a step, in another attempt
    "rate exceeded",
    "starved",  # while others came and went
]


class Violation(NamedTuple):
    """One thing that must not happen, and did."""

    kind: Kind
    what: str


@dataclass(slots=True)
class Attempt:
    """One attempt to get a permit, as its process saw it.  Times are seconds of one clock, inf for not yet.

    Attributes:
        who: Which process.
        asked_at: When it asked.
        answered_at: When it knew.
        is_granted: What it was told.
        token: The fencing token that it was given.
        stopped_at: From when on it did not act on it any more: it began to release, was told of the loss, or died.
        gone_at: When its release was answered.
    """

    who: str
    asked_at: float
    answered_at: float = math.inf
    is_granted: bool = False
    token: int | None = None
    stopped_at: float = math.inf
    gone_at: float = math.inf


class Write(NamedTuple):
    """A write to what the permit protects.

    Attributes:
        attempt: Under which permit.
        at: When.
        is_accepted: Whether it was stored.
    """

    attempt: Attempt
    at: float
    is_accepted: bool


class Verdict(NamedTuple):
    """What a holder was told when it renewed or released.

    Attributes:
        who: Which process.
        asked_at: When it asked.
        answered_at: When it was answered.
        lapses_at: When its lease ended by the server's clock.
        was_held: What it was told.
    """

    who: str
    asked_at: float
    answered_at: float
    lapses_at: float
    was_held: bool


class Begun(NamedTuple):
    """The body of a job was begun, by a worker that held the job then.

    Attributes:
        job: Which job.
        attempt: Which run of the body, of all there are.
        at: When.
    """

    job: Hashable
    attempt: int
    at: float


class StepRun(NamedTuple):
    """What a step calls was called.

    Attributes:
        job: Of which job.
        step: Which step.
        at: When it was called.
    """

    job: Hashable
    step: str
    at: float


class StepResult(NamedTuple):
    """What a body got of a step, and went on with.

    Attributes:
        job: Of which job.
        step: Which step.
        attempt: In which run of the body.
        ran_at: When the step was through, and was about to be kept; None if this attempt did not run it.
        answered_at: When the body got it.
        value: What it got.
    """

    job: Hashable
    step: str
    attempt: int
    ran_at: float | None
    answered_at: float
    value: Hashable


class Life(NamedTuple):
    """Of a job.

    Attributes:
        begin: When it was enqueued.
        end: When it ended.
    """

    begin: float
    end: float


def too_many_holders(attempts: Iterable[Attempt], *, limit: int = 1) -> list[Violation]:
    """Each grant that made more than `limit` certain holders."""
    changes: list[tuple[float, bool, str]] = []
    for attempt in attempts:
        if attempt.is_granted and attempt.answered_at < attempt.stopped_at:
            changes += [(attempt.answered_at, True, attempt.who), (attempt.stopped_at, False, attempt.who)]
    found: list[Violation] = []
    holders: list[str] = []
    for at, begins, who in sorted(changes):
        if not begins:
            holders.remove(who)
            continue
        holders.append(who)
        if len(holders) > limit:
            found.append(Violation("too many hold", f"at {at:.4f}: {', '.join(holders)}, and the limit is {limit}"))
    return found


def wrong_refusals(attempts: Sequence[Attempt], *, limit: int = 1) -> list[Violation]:
    """Each refusal in whose whole time fewer than `limit` others possibly held."""
    refused = [attempt for attempt in attempts if attempt.answered_at < math.inf and not attempt.is_granted]
    events: list[tuple[float, int, Attempt | None]] = []
    for attempt in attempts:
        if attempt.answered_at == math.inf or attempt.is_granted:
            events += [(attempt.asked_at, 1, None), (attempt.gone_at, -1, None)]
    for one in refused:
        events += [(one.asked_at, 0, one), (one.answered_at, 0, one)]
    found: list[Violation] = []
    count = 0
    at_first: dict[int, int] = {}  # a refused attempt -> how many possibly held when it was made
    times: list[float] = []  # changes after which no greater count has come: so the counts fall
    counts: list[int] = []
    for at, change, tried in sorted(events, key=lambda event: event[0]):
        if tried is None:
            count += change
            while counts and counts[-1] <= count:
                times.pop()
                counts.pop()
            times.append(at)
            counts.append(count)
        elif id(tried) not in at_first:
            at_first[id(tried)] = count
        else:
            later = bisect_left(times, tried.asked_at)
            most = max(at_first[id(tried)], counts[later] if later < len(counts) else 0)
            if most < limit:
                text = f"{tried.who} at {at:.4f}: at most {most} held since it asked, and the limit is {limit}"
                found.append(Violation("wrong refusal", text))
    return found


def strandings(attempts: Iterable[Attempt], *, within: float, until: float, limit: int = 1) -> list[Violation]:
    """Each time longer than `within` seconds in which someone waits while there are fewer than `limit` live holders.

    Args:
        attempts: All of them; those without answer have waited to the end, or until their process died.
        within: Life of a dead holder's lease, and a little.
        until: When the history ends.
        limit: How many may hold.
    """
    changes: list[tuple[float, int, int]] = []
    for attempt in attempts:
        waited_until = min(attempt.answered_at, attempt.stopped_at, until)
        changes += [(attempt.asked_at, 1, 0), (waited_until, -1, 0)]
        if attempt.is_granted:
            changes += [(attempt.answered_at, 0, 1), (min(attempt.stopped_at, until), 0, -1)]
    found: list[Violation] = []
    waiting = held = 0
    since = math.inf
    for at, waits, holds in sorted(changes):
        waiting, held = waiting + waits, held + holds
        if waiting == 0 or held >= limit:
            if at - since > within:
                found.append(Violation("stranded", f"from {since:.3f} to {at:.3f}: nobody got what was free"))
            since = math.inf
        else:
            since = min(since, at)
    return found


def fallen_tokens(attempts: Sequence[Attempt]) -> list[Violation]:
    """Each grant whose token is not above those of all grants that were known before it was asked for."""
    granted = [attempt for attempt in attempts if attempt.token is not None]
    earlier = sorted(granted, key=lambda attempt: attempt.answered_at)
    found: list[Violation] = []
    highest = number = 0
    for attempt in sorted(granted, key=lambda attempt: attempt.asked_at):
        while number < len(earlier) and earlier[number].answered_at < attempt.asked_at:
            highest = max(highest, earlier[number].token or 0)
            number += 1
        if attempt.token is not None and attempt.token <= highest:
            found.append(Violation("token fell", f"{attempt.who} got {attempt.token} after {highest}"))
    return found


def stale_writes(writes: Iterable[Write]) -> list[Violation]:
    """Each write that was accepted after one under a later grant."""
    found: list[Violation] = []
    latest = -math.inf
    for write in sorted(writes, key=lambda write: write.at):
        if write.is_accepted and write.attempt.answered_at < latest:
            found.append(Violation("stale write", f"{write.attempt.who} wrote at {write.at:.3f} over a later holder"))
        elif write.is_accepted:
            latest = write.attempt.answered_at
    return found


def false_verdicts(verdicts: Iterable[Verdict]) -> list[Violation]:
    """Each that says that a lease was held after it had lapsed, or lost before."""
    found: list[Violation] = []
    for who, asked_at, answered_at, lapses_at, was_held in verdicts:
        if was_held and asked_at > lapses_at:
            found.append(Violation("revived", f"{who} asked at {asked_at:.3f}, and its lease ended {lapses_at:.3f}"))
        if not was_held and answered_at < lapses_at:
            found.append(Violation("lost in vain", f"{who} heard at {answered_at:.3f}; its lease ends {lapses_at:.3f}"))
    return found


def misdeliveries(due: Mapping[Item, float], handled: Iterable[tuple[Item, float]]) -> list[Violation]:
    """Each item that was not handled, or more than once, or before it was due.

    Args:
        due: Item -> when it may be handled at the earliest, of all whose adding was answered.
        handled: Item and time of each handling that was not broken off.
    """
    times: defaultdict[Item, list[float]] = defaultdict(list)
    for item, at in handled:
        times[item].append(at)
    found: list[Violation] = []
    for item, due_at in due.items():
        if not times[item]:
            found.append(Violation("never handled", f"{item!r}"))
        elif len(times[item]) > 1:
            found.append(Violation("handled twice", f"{item!r}, {len(times[item])} times"))
        if times[item] and min(times[item]) < due_at:
            found.append(Violation("too early", f"{item!r} by {due_at - min(times[item]):.3f} s"))
    return found


def repeated_steps(runs: Iterable[StepRun], results: Iterable[StepResult]) -> list[Violation]:
    """Each run of a step that began when a body had its result already: it was kept."""
    kept_at: dict[tuple[Hashable, str], float] = {}
    for result in results:
        step = result.job, result.step
        kept_at[step] = min(result.answered_at, kept_at.get(step, math.inf))
    return [
        Violation("step ran again", f"{run.step!r} of job {run.job} at {run.at:.3f}")
        for run in runs
        if run.at > kept_at.get((run.job, run.step), math.inf)
    ]


def late_commits(begun: Iterable[Begun], results: Iterable[StepResult]) -> list[Violation]:
    """Each step that an attempt ran and kept, although a later attempt of its job had begun before it was through."""
    latest: defaultdict[Hashable, list[Begun]] = defaultdict(list)
    own: dict[tuple[Hashable, int], float] = {}
    for each in begun:
        latest[each.job].append(each)
        own[each.job, each.attempt] = each.at
    found: list[Violation] = []
    for result in results:
        ran_at = result.ran_at
        if ran_at is None:
            continue
        since = own[result.job, result.attempt]
        if any(since < other.at < ran_at for other in latest[result.job]):
            found.append(Violation("late commit", f"{result.step!r} of job {result.job} at {ran_at:.3f}"))
    return found


def differing_results(results: Iterable[StepResult]) -> list[Violation]:
    """Each step of which two bodies of a job got different results."""
    values: defaultdict[tuple[Hashable, str], set[Hashable]] = defaultdict(set)
    for result in results:
        values[result.job, result.step].add(result.value)
    return [
        Violation("another result", f"{step!r} of job {job}: {found}")
        for (job, step), found in values.items()
        if len(found) > 1
    ]


def starved(lives: Mapping[Item, Life], begun: Iterable[float], *, most: int) -> list[Violation]:
    """Each job that had not ended when more than `most` others had begun since it was enqueued.

    Args:
        lives: Of all jobs.
        begun: When a body of one of them began, each time.
        most: How many may, itself included.
    """
    begins = sorted(begun)
    found: list[Violation] = []
    for job, life in lives.items():
        count = bisect_left(begins, life.end) - bisect_left(begins, life.begin)
        if count > most:
            found.append(Violation("starved", f"{job}: {count} began while it waited and ran"))
    return found
