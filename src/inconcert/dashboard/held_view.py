"""What the pages show of what is held and waited for: by whom and from where."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast, get_args

from inconcert.dashboard.live import reference
from inconcert.dashboard.redaction import Redact
from inconcert.dashboard.rows import Rows, page_of
from inconcert.reports.force import Forcible
from inconcert.reports.report import HeldEntry, HeldItem, Inspection, ItemConsumer, ProcessReport, WaitEntry

__all__ = ["EntryView", "HeldView", "Releasable", "held_rows", "held_views", "releasable"]

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
    place: int | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class HeldView:
    """Something that is held or waited for; `holders` and `waiters` have the first of them.

    Attributes:
        is_named: Whether the name is shown as it is.
    """

    kind: str
    name: str
    is_named: bool = True
    holders: list[EntryView] = field(default_factory=list)
    waiters: list[EntryView] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: {"held": 0, "waited": 0})

    def add_holder(self, entry: EntryView) -> None:
        """One more holds it."""
        _add("held", self.counts, self.holders, entry)

    def add_waiter(self, entry: EntryView) -> None:
        """One more waits for it."""
        _add("waited", self.counts, self.waiters, entry)


@dataclass(frozen=True, slots=True)
class Releasable:
    """Something that can be released by force: its name is shown as it is.

    Attributes:
        kind: What it is.
        name: Which one.
        holder: Who has it.
        key: Stands for this holder of it in a page.
        view: What is shown of the holder.
    """

    kind: Forcible
    name: str
    holder: str
    key: str
    view: EntryView


def releasable(inspection: Inspection, redact: Redact) -> Iterator[Releasable]:
    """What can be released by force, once for each holder."""
    for process in inspection.processes:
        for entry in process.holds:
            key = _key(redact, entry)
            if key is not None:
                view = _entry(redact, process, entry)
                yield Releasable(cast("Forcible", entry.kind), entry.name, entry.holder, key, view)


def held_rows(
    inspection: Inspection, redact: Redact, sought: str, number: int, *, is_shown: Callable[[str], bool]
) -> Rows[HeldView]:
    """Some of those of a kind that is shown, which have this in their name, as it is shown.

    First come those that most wait for, though somebody has them.
    """

    def urgency(view: HeldView) -> tuple[bool, int, str, str]:
        return not view.holders, -view.counts["waited"], view.kind, view.name

    views = [view for view in held_views(inspection, redact).values() if is_shown(view.kind)]
    return page_of(sorted((view for view in views if sought.lower() in view.name.lower()), key=urgency), number)


def held_views(inspection: Inspection, redact: Redact) -> dict[tuple[str, str], HeldView]:
    """What is held or waited for, by its kind and its name."""
    found: dict[tuple[str, str], HeldView] = {}
    for process in inspection.processes:
        entries: Sequence[HeldEntry | WaitEntry] = (*process.holds, *process.waits)
        for entry in entries:
            view = _view_in(found, redact, entry.kind, entry)
            if isinstance(entry, HeldEntry):
                view.add_holder(_entry(redact, process, entry))
            else:
                view.add_waiter(_entry(redact, process, entry))
        for consumer in process.consumers:
            view = _view_in(found, redact, "items", consumer)
            for item in consumer.holds:
                view.add_holder(_of_items(redact, process, item, redact("lock", item.id)))
            if consumer.waiting:
                calls = "" if consumer.waiting == 1 else f"{consumer.waiting:,} calls"
                view.add_waiter(_of_items(redact, process, consumer, calls))
    for view in found.values():
        view.waiters.sort(key=lambda waiter: waiter.place or 0)
    return found


def _view_in(
    found: dict[tuple[str, str], HeldView], redact: Redact, kind: str, entry: HeldEntry | WaitEntry | ItemConsumer
) -> HeldView:
    """What this is about, which is added if it was not found before."""
    view = found.get((kind, entry.name))
    if view is None:
        name = redact("lock", entry.name)
        is_named = not entry.is_redacted and name == entry.name
        view = found[kind, entry.name] = HeldView(kind, name, is_named=is_named)
    return view


def _of_items(redact: Redact, process: ProcessReport, of: HeldItem | ItemConsumer, text: str) -> EntryView:
    label = redact("label", process.label) if process.label else ""
    return EntryView(
        host=redact("host", process.host),
        pid=process.pid,
        label=", ".join(filter(None, (text, label))),
        line=redact("line", of.line) if of.line else "",
    )


def _add(what: str, counts: dict[str, int], some: list[EntryView], entry: EntryView) -> None:
    counts[what] += 1
    if len(some) < _MOST_ENTRIES:
        some.append(entry)


def _entry(redact: Redact, process: ProcessReport, entry: HeldEntry | WaitEntry) -> EntryView:
    label = entry.label or process.label
    return EntryView(
        host=redact("host", process.host),
        pid=process.pid,
        label=redact("label", label) if label else "",
        line=redact("line", entry.line) if entry.line else "",
        since=entry.since,
        mode=entry.mode,
        job_id=entry.job_id,
        fencing_token=entry.fencing_token if isinstance(entry, HeldEntry) else None,
        remaining=entry.remaining if isinstance(entry, HeldEntry) else None,
        place=entry.place if isinstance(entry, WaitEntry) else None,
        key=_key(redact, entry) if isinstance(entry, HeldEntry) else None,
    )


def _key(redact: Redact, entry: HeldEntry) -> str | None:
    """What stands for this holder; None if it cannot be released by force, or its name is not shown."""
    can_be_released = entry.kind in get_args(Forcible) and not entry.is_redacted
    if not can_be_released or redact("lock", entry.name) != entry.name:
        return None
    return reference("h", f"{entry.kind}:{entry.holder}:{entry.name}")
