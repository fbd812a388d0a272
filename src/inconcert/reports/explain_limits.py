"""Says which limit, rate, turn or order of its task a job waits for, and which jobs hold it."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from inconcert._core.session import Session
from inconcert._rules.durations import in_words
from inconcert.reports.explanation import Reason
from inconcert.tasks.records.limits import limit_of
from inconcert.tasks.records.status import JobStatus, Snapshot
from inconcert.tasks.records.store import HELD_BACK, JobKeys

_AT_ONCE = 500  # jobs that one script looks at
_MOST = 10  # jobs that are named


class _Line(NamedTuple):
    """The place of a job that is held back; see `tasks/held_back`; `most` is the interval of a rate, in us."""

    limits: bytes
    line: bytes
    ahead: int
    in_use: int
    most: int
    turn: bytes


async def explain_limits(
    session: Session, keys: JobKeys, job_id: str, *, task: str, queue: str, due: str | None, running: Sequence[str]
) -> Reason | None:
    """The limit that holds this delayed job back; None if nothing does.

    Of all jobs the running ones are given: those of other tasks may have a place in a limit that is shared.
    """
    found: _Line | None = None
    holders: list[str] = []
    for start in range(0, len(running) or 1, _AT_ONCE):
        some = running[start : start + _AT_ONCE]
        reply = await session.run(HELD_BACK(keys, keys.queue(queue), id=job_id, running=some))
        if not reply:
            return None
        found = _Line(*reply[: len(_Line._fields)])
        holders += [holder.decode() for holder in reply[len(_Line._fields) :]]
    assert found is not None  # noqa: S101 - it was looked for at least once
    limits, line = found.limits.decode(), found.line.decode()
    behind = f"; before it in line: {found.ahead:,}" if found.ahead else ""
    if let_in := re.search(rf"/w(\S+):{line}", limits):
        return _let_in(let_in[1], found, f"{_by(holders)}{behind}", task)
    if re.search(rf"/r\d+,\d+k?:{line}", limits):
        due = f"; it is the next, and due {due}" if due else ""
        each = f"one job begins each {_interval(found.most / 1e6)}"
        whose = f"its key, in task {task!r}," if re.search(rf"k:{line}", limits) else f"its task {task!r},"
        return Reason("rate", f"it waits for the rate of {whose} of which {each}{due}{behind}")
    is_limit = re.search(rf"/\d+:{line}", limits) is not None
    places = f"{found.in_use:,} of {found.most:,} places are taken{_by(holders)}" if is_limit else ""
    if re.search(rf"/[og]:{line}", limits):
        return Reason("order", f"{await _behind(session, keys, found.turn.decode(), task)}{behind}")
    if f"/s:{line}" in limits:
        turn = f", of which job {found.turn.decode()} has the turn" if found.turn else ""
        places = f"; {places}" if places else ""
        text = f"it waits for its turn behind jobs of its key, in task {task!r}{turn}{places}{behind}"
        return Reason("turn", text)
    whose = "" if line == limit_of(task, queue) else "its key in "
    return Reason("limit", f"it waits for a place in the limit of {whose}its task {task!r}: {places}{behind}")


def _let_in(text: str, line: _Line, others: str, task: str) -> Reason:
    """The limit or the rate for which a job waits that several tasks share, or of which it takes its own part."""
    limit = re.match(r"(\d+)\.x([0-9a-f]+)", text)
    rate = re.search(r",(\d+)\.\d+\.(\d+)\.([yz])([0-9a-f]+)", text)
    if limit and (rate is None or line.in_use >= line.most > 0):
        places = f"{line.in_use:,} of {line.most or int(limit[1]):,} places are taken"
        return Reason(
            "limit", f"it waits for a place in the limit {_named(limit[2])}, which tasks share: {places}{others}"
        )
    assert rate is not None  # noqa: S101 - it waits for one of them
    whose = f"the rate {_named(rate[4])}, which tasks share," if rate[3] == "y" else f"the rate of its task {task!r},"
    cost = f"each {_interval(int(rate[1]) / 1e6)} gives 1, and it takes {int(rate[2]):,}"
    return Reason("rate", f"it waits for {whose} of which {cost}{others}")


def _named(text: str) -> str:
    return repr(bytes.fromhex(text).decode())


async def _behind(session: Session, keys: JobKeys, turn: str, task: str) -> str:
    """The job of its key before it that has not ended, and the remedy if that is dead."""
    waits = f"it waits until job {turn} of its key has ended, as the jobs of a key of task {task!r} run in strict order"
    status, *_ = Snapshot.read(await session.run(Snapshot.take(keys, turn, "")))
    return f"{waits}; that one is dead: replay it, or purge it" if status is JobStatus.FAILED else waits


def _by(holders: Sequence[str]) -> str:
    more = ", ..." if len(holders) > _MOST else ""
    return f", by {', '.join(holders[:_MOST])}{more}" if holders else ""


def _interval(seconds: float) -> str:
    return in_words(seconds) if seconds >= 0.1 else f"{seconds * 1000:g} ms"
