"""`inconcert ls`: leases and waits, by whom, and from which line of code."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import typer

from inconcert.cli.ends import refuse
from inconcert.cli.output import say
from inconcert.cli.server import Json, Namespace, Url, ask
from inconcert.cli.tables import ago, print_json, print_table
from inconcert.reports.report import (
    HeldEntry,
    HeldItem,
    Inspection,
    ItemConsumer,
    ProcessReport,
    SignalListener,
    WaitEntry,
)


def ls(
    things: Annotated[
        list[str] | None, typer.Argument(metavar="[KIND:NAME]...", help="Only these, such as lock:item:42.")
    ] = None,
    *,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """List what all processes hold and wait for, as they answer it themselves."""
    for thing in things or ():
        if ":" not in thing:
            refuse(f"{thing!r} is not KIND:NAME; write such as lock:{thing}")

    seen = ask(url, namespace, lambda concert: concert.inspect())
    if things:
        seen = _only(seen, things)
    if as_json:
        print_json(seen)
        return
    rows = sorted(_entries(seen), key=lambda row: _order(row[1]))
    consumers = sorted(
        ((process, each) for process in seen.processes for each in process.consumers), key=lambda row: row[1].name
    )
    print_table(
        ("kind", "name", "state", "since", "process", "label", "task", "job", "line"),
        [
            *(
                (
                    entry.kind,
                    entry.name,
                    _standing(entry),
                    ago(entry.since),
                    _of(process),
                    entry.label,
                    entry.task,
                    entry.job_id,
                    entry.line,
                )
                for process, entry in rows
            ),
            *(row for process, consumer in consumers for row in _of_items(process, consumer)),
            *(_of_signal(process, each) for process in seen.processes for each in process.listeners),
        ],
        empty="nothing is held or waited for",
    )
    more = sum(process.more for process in seen.processes)
    if more:
        say(f"{more:,} more were left out")
    for deadlock in seen.deadlocks:
        say(str(deadlock))
    if seen.silent:
        say(f"did not answer: {', '.join(seen.silent)}")


def _only(seen: Inspection, things: Collection[str]) -> Inspection:
    """The same, reduced to these."""

    def about(process: ProcessReport) -> ProcessReport:
        return replace(
            process,
            holds=tuple(entry for entry in process.holds if f"{entry.kind}:{entry.name}" in things),
            waits=tuple(entry for entry in process.waits if f"{entry.kind}:{entry.name}" in things),
            consumers=tuple(each for each in process.consumers if f"items:{each.name}" in things),
            listeners=tuple(each for each in process.listeners if f"signal:{each.name}" in things),
        )

    deadlocks = tuple(
        deadlock for deadlock in seen.deadlocks if any(f"{kind}:{name}" in things for kind, name in deadlock.things)
    )
    return Inspection(tuple(map(about, seen.processes)), seen.silent, deadlocks)


def _of_items(process: ProcessReport, consumer: ItemConsumer) -> Iterator[Sequence[str | None]]:
    """A row for each item that is held, and one for the calls that wait for others."""

    def row(state: str, of: HeldItem | ItemConsumer) -> Sequence[str | None]:
        return "items", consumer.name, state, None, _of(process), None, of.task, None, of.line

    for item in consumer.holds:
        yield row(f"{item.id} held", item)
    if consumer.waiting:
        yield row(f"waited for, {consumer.waiting:,} calls", consumer)


def _of_signal(process: ProcessReport, listener: SignalListener) -> Sequence[str | None]:
    """A row for a subscription."""
    state = "heard by pattern" if listener.is_pattern else "heard"
    return "signal", listener.name, state, ago(listener.since), _of(process), None, None, None, listener.line


def _entries(seen: Inspection) -> Iterator[tuple[ProcessReport, HeldEntry | WaitEntry]]:
    for process in seen.processes:
        entries: tuple[HeldEntry | WaitEntry, ...] = (*process.holds, *process.waits)
        for entry in entries:
            yield process, entry


def _order(entry: HeldEntry | WaitEntry) -> tuple[str, str, int, float]:
    """By name; of each its holders, then its waiters as they stand in line."""
    position = 0 if isinstance(entry, HeldEntry) else entry.position or 1
    return entry.kind, entry.name, position, entry.since


def _standing(entry: HeldEntry | WaitEntry) -> str:
    if isinstance(entry, HeldEntry):
        standing = "held"
    else:
        standing = "waited for" if entry.position is None else f"position {entry.position} in line"
    return standing if entry.mode is None else f"{standing}, {entry.mode}"


def _of(process: ProcessReport) -> str:
    where = f"{process.host}:{process.pid}"
    return where if process.label is None else f"{process.label}, {where}"
