"""Asks all processes what they hold and what they wait for."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import anyio
import anyio.to_thread
import msgspec

from inconcert._core.session import Session
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.scripts import load
from inconcert._redis.wire.inbox import InboxReceiver
from inconcert._redis.wire.turns import IN_A_TURN
from inconcert.errors import InconcertError
from inconcert.reports.report import Inspection, ProcessReport, WaitEntry
from inconcert.reports.reporter import ReportKeys, report_keys
from inconcert.reports.wait_graph import deadlocks

_ASK = load("reports/ask").bind(ReportKeys)


async def inspect(session: Session, keys: Keyspace, *, timeout: float, quiet: float = 0.0) -> Inspection | None:
    """The leases and waits of all processes; asked a second time to be certain if some seem to wait for each other.

    What a task waits for at both times it has waited for in between, so there was an instant at which all waited.

    Args:
        session: The open session.
        keys: The keys of the namespace.
        timeout: How long to wait for answers, in seconds; twice that if it asks twice.
        quiet: Ask only if nobody has done so with this argument within this time, in seconds; 0 to ask in any case.

    Returns:
        None if somebody else has asked.
    """
    first = await _ask(session, keys, timeout, quiet)
    if first is None or not first.deadlocks:
        return first
    second = await _ask(session, keys, timeout, 0.0)
    assert second is not None  # noqa: S101 - it asks in any case
    seen_before = {deadlock.id for deadlock in first.deadlocks}
    return replace(second, deadlocks=tuple(each for each in second.deadlocks if each.id in seen_before))


async def _ask(session: Session, keys: Keyspace, timeout: float, quiet: float) -> Inspection | None:
    """Ask once."""
    asked = report_keys(keys)
    address = session.new_address()
    answers = _Answers()
    await session.inbox.listen(asked.asked)
    session.inbox.register(address, answers)
    session.inbox.follow(asked.asked, address)
    try:
        sessions = await session.run(
            _ASK(
                asked,
                inboxes=keys.inboxes(asked.asked),
                pattern=keys.all_inboxes(asked.asked),
                address=address,
                quiet_ms=int(quiet * 1000),
            )
        )
        if sessions == 0:
            return None
        expected = {name.decode() for name in sessions}
        with anyio.move_on_after(timeout):
            await answers.came_from(expected)
        answers.raise_if_closed()
    finally:
        session.inbox.unregister(address)
    found = sorted(answers.reports.values(), key=lambda report: (report.opened_at, report.id))
    silent = tuple(sorted(expected - answers.reports.keys()))
    if sum(len(report.holds) + len(report.waits) for report in found) <= IN_A_TURN:
        return _inspection(found, silent)
    return await anyio.to_thread.run_sync(_inspection, found, silent)  # the event loop goes on meanwhile


def _inspection(found: Sequence[ProcessReport], silent: tuple[str, ...]) -> Inspection:
    processes = tuple(_with_positions(found))
    return Inspection(processes, silent, deadlocks(processes, is_complete=not silent))


class _Answers(InboxReceiver):
    """The replies so far."""

    def __init__(self) -> None:
        self.reports: dict[str, ProcessReport] = {}
        self._changed = anyio.Event()

    async def came_from(self, sessions: set[str]) -> None:
        """Return when all of these have answered, or the coordinator closes."""
        while self._closed_by is None and not sessions <= self.reports.keys():
            await self._changed.wait()

    def on_message(self, rest: str) -> None:
        report = msgspec.json.decode(rest, type=ProcessReport)
        self.reports[report.id] = report
        self._wake()

    def closed(self, error: InconcertError) -> None:
        super().closed(error)
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


def _with_positions(reports: Iterable[ProcessReport]) -> Iterable[ProcessReport]:
    """The same, with the positions in line of those that wait."""
    reports = list(reports)
    tickets: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for report in reports:
        for wait in report.waits:
            if wait.ticket is not None and not wait.is_redacted:
                tickets[wait.kind, wait.name].append(wait.ticket)
    positions = {key: {ticket: at for at, ticket in enumerate(sorted(line), 1)} for key, line in tickets.items()}

    def with_position(wait: WaitEntry) -> WaitEntry:
        if wait.ticket is None or wait.is_redacted:
            return wait
        return replace(wait, position=positions[wait.kind, wait.name][wait.ticket])

    for report in reports:
        yield replace(report, waits=tuple(map(with_position, report.waits)))
