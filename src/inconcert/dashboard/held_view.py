"""Leases and waits as the pages show them: by whom and from where."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeAlias, cast, get_args

from inconcert.dashboard.live import reference
from inconcert.dashboard.redaction import Redact
from inconcert.dashboard.rows import Rows, page_of
from inconcert.reports.force import Forcible
from inconcert.reports.report import (
    HeldEntry,
    HeldItem,
    Inspection,
    ItemConsumer,
    ProcessReport,
    SignalListener,
    WaitEntry,
)

_MOST_ENTRIES = 20  # of one lock


@dataclass(frozen=True, slots=True)
class EntryView:
    """One that holds or waits, redacted; the key stands for a holder that can be released by force."""

    host: str
    pid: int
    label: str
    line: str
    since: float | None = None
    mode: str | None = None
    job_id: str | None = None
    fencing_token: int | None = None
    remaining: float | None = None
    position: int | None = None
    permits: int = 1
    key: str | None = None


@dataclass(frozen=True, slots=True)
class HeldView:
    """Something that is held or waited for."""

    kind: str
    name: str  # which one, as it is shown
    is_named: bool  # whether that is its name
    holders: Sequence[EntryView]  # the first of its holders
    held: int  # how many there are
    waiters: Sequence[EntryView]  # the first of those in line
    waited: int  # how many there are


@dataclass(frozen=True, slots=True)
class Releasable:
    """Something that can be released by force: its name is shown as it is."""

    kind: Forcible
    name: str
    holder: str  # who has it
    key: str  # stands for this holder of it in a page
    view: EntryView  # the holder as it is shown


def releasable(inspection: Inspection, redact: Redact) -> Iterator[Releasable]:
    """The leases that can be released by force, once for each holder."""
    for process in inspection.processes:
        for entry in process.holds:
            key = _key(redact, entry)
            if key is not None:
                view = _of_line(redact, process, entry)
                yield Releasable(cast("Forcible", entry.kind), entry.name, entry.holder, key, view)


def held_rows(
    inspection: Inspection, redact: Redact, sought: str, number: int, *, is_shown: Callable[[str], bool]
) -> Rows[HeldView]:
    """Some of those of a kind that is shown, which have this in their name, as it is shown.

    First come those that most wait for, though somebody has them.
    """
    things = [thing for thing in _gathered(inspection, redact).values() if is_shown(thing.kind)]
    things = [thing for thing in things if sought.lower() in thing.name.lower()]
    found = page_of(sorted(things, key=_urgency), number)
    return Rows([thing.view(redact) for thing in found.shown], found.total, found.number, found.pages)


def held_view(inspection: Inspection, redact: Redact, kind: str, name: str) -> HeldView | None:
    """One of them; None if no process holds it or waits for it."""
    thing = _gathered(inspection, redact).get((kind, name))
    return None if thing is None else thing.view(redact)


_Waits: TypeAlias = WaitEntry | ItemConsumer | SignalListener


@dataclass(slots=True)
class _Thing:
    """Something that is held or waited for; of thousands, only some are shown with their holders."""

    kind: str
    name: str
    is_named: bool
    holders: list[tuple[ProcessReport, HeldEntry | HeldItem]] = field(default_factory=list)
    waiters: list[tuple[ProcessReport, _Waits]] = field(default_factory=list)

    def view(self, redact: Redact) -> HeldView:
        """The part of it that is shown."""
        in_line = sorted(self.waiters, key=_position)
        return HeldView(
            self.kind,
            self.name,
            self.is_named,
            [_entry(redact, *of) for of in self.holders[:_MOST_ENTRIES]],
            len(self.holders),
            [_entry(redact, *of) for of in in_line[:_MOST_ENTRIES]],
            len(self.waiters),
        )


def _urgency(thing: _Thing) -> tuple[bool, int, str, str]:
    return not thing.holders, -len(thing.waiters), thing.kind, thing.name


def _position(waiter: tuple[ProcessReport, _Waits]) -> float:
    """Those in line come first."""
    _, entry = waiter
    return entry.position or 0 if isinstance(entry, WaitEntry) else inf


def _gathered(inspection: Inspection, redact: Redact) -> dict[tuple[str, str], _Thing]:
    """All of them, by kind and name."""
    found: dict[tuple[str, str], _Thing] = {}

    def thing(kind: str, entry: HeldEntry | _Waits) -> _Thing:
        known = found.get((kind, entry.name))
        if known is None:
            name = redact("lock", entry.name)
            is_named = not entry.is_redacted and name == entry.name
            known = found[kind, entry.name] = _Thing(kind, name, is_named)
        return known

    for process in inspection.processes:
        for held in process.holds:
            thing(held.kind, held).holders.append((process, held))
        for wait in process.waits:
            thing(wait.kind, wait).waiters.append((process, wait))
        for consumer in process.consumers:
            items = thing("items", consumer)
            items.holders += ((process, item) for item in consumer.holds)
            if consumer.waiting:
                items.waiters.append((process, consumer))
        for listener in process.listeners:
            thing("signal", listener).waiters.append((process, listener))
    return found


def _entry(redact: Redact, process: ProcessReport, entry: HeldEntry | HeldItem | _Waits) -> EntryView:
    if isinstance(entry, HeldItem):
        return _of_items(redact, process, entry, redact("lock", entry.id))
    if isinstance(entry, ItemConsumer):
        return _of_items(redact, process, entry, "" if entry.waiting == 1 else f"{entry.waiting:,} calls")
    if isinstance(entry, SignalListener):
        mode = "subscribed by pattern" if entry.is_pattern else "subscribed"
        return replace(_of_items(redact, process, entry, ""), since=entry.since, mode=mode)
    return _of_line(redact, process, entry)


def _of_items(
    redact: Redact, process: ProcessReport, of: HeldItem | ItemConsumer | SignalListener, text: str
) -> EntryView:
    label = redact("label", process.label) if process.label else ""
    return EntryView(
        host=redact("host", process.host),
        pid=process.pid,
        label=", ".join(filter(None, (text, label))),
        line=redact("line", of.line) if of.line else "",
    )


def _of_line(redact: Redact, process: ProcessReport, entry: HeldEntry | WaitEntry) -> EntryView:
    label = entry.label or process.label
    return EntryView(
        host=redact("host", process.host),
        pid=process.pid,
        label=redact("label", label) if label else "",
        line=redact("line", entry.line) if entry.line else "",
        since=entry.since,
        mode=entry.mode,
        permits=entry.permits,
        job_id=entry.job_id,
        fencing_token=entry.fencing_token if isinstance(entry, HeldEntry) else None,
        remaining=entry.remaining if isinstance(entry, HeldEntry) else None,
        position=entry.position if isinstance(entry, WaitEntry) else None,
        key=_key(redact, entry) if isinstance(entry, HeldEntry) else None,
    )


def _key(redact: Redact, entry: HeldEntry) -> str | None:
    """The reference to this holder; None if it cannot be released by force, or its name is not shown."""
    can_be_released = entry.kind in get_args(Forcible) and not entry.is_redacted
    if not can_be_released or redact("lock", entry.name) != entry.name:
        return None
    return reference("h", f"{entry.kind}:{entry.holder}:{entry.name}")
