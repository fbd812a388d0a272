"""`inconcert top`: what goes on now: queues, who waits for what, and deadlocks."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import anyio
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live

from inconcert.cli.output import console, styled
from inconcert.cli.server import Json, Namespace, Url, ask
from inconcert.cli.tables import ago, print_json, seconds, table_of
from inconcert.coordinator import Coordinator
from inconcert.errors import OutcomeUnknown
from inconcert.reports.report import Deadlock, HeldLock, Inspection, Waiter
from inconcert.tasks.operating.queue_stats import TaskStats

_SHORTEST = 0.5  # seconds between two looks
_MOST = 15  # rows of each table


@dataclass(frozen=True, slots=True)
class _Seen:
    """One moment of a namespace."""

    tasks: TaskStats  # how much work there is
    held: list[HeldLock]  # the leases, the oldest first
    waiters: list[Waiter]  # the waits, the longest first
    deadlocks: tuple[Deadlock, ...]  # tasks that wait for each other
    silent: tuple[str, ...]  # the processes that did not answer
    unasked: str  # why the processes could not be asked; empty if they were


def top(
    *,
    every: Annotated[float, typer.Option(help="Seconds between two looks.", min=_SHORTEST)] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, as when the output is not a terminal.")] = False,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Queues, the longest waits and leases, and deadlocks, live; Ctrl-C ends it."""
    output = console()
    if not (once or as_json) and output.is_terminal:
        ask(url, namespace, lambda concert: _watch(concert, output, every))
        return
    seen = ask(url, namespace, _look)
    if as_json:
        print_json(seen)
    else:
        output.print(_shown(seen, {}))


async def _watch(concert: Coordinator, output: Console, every: float) -> None:
    """Look again and again, until Ctrl-C."""
    before: _Seen | None = None
    looked_at = time.monotonic()
    with Live(console=output, auto_refresh=False, screen=True) as live:
        while True:
            seen, now = await _look(concert), time.monotonic()
            rates = {} if before is None else _rates(before.tasks, seen.tasks, now - looked_at)
            live.update(_shown(seen, rates), refresh=True)
            before, looked_at = seen, now
            await anyio.sleep(every)


async def _look(concert: Coordinator) -> _Seen:
    unasked = ""
    try:
        found = await concert.inspect()
    except OutcomeUnknown as error:  # also if the user may not ask
        found, unasked = Inspection((), ()), str(error)
    stats = await concert.tasks.stats()
    return _Seen(stats, found.locks(), found.waiters(), found.deadlocks, found.silent, unasked)


def _rates(before: TaskStats, now: TaskStats, elapsed: float) -> dict[str, float]:
    """The number of jobs of each queue that end in a second."""
    return {
        name: (queue.finished - before.queues[name].finished) / elapsed
        for name, queue in now.queues.items()
        if name in before.queues
    }


def _shown(seen: _Seen, rates: Mapping[str, float]) -> RenderableType:
    stats = seen.tasks
    work = f"{stats.workers:,} workers, {stats.dead:,} dead letters"
    locks = f"{len(seen.held):,} held, {len(seen.waiters):,} waited for"
    parts: list[RenderableType] = [styled(f"{work}; {locks}", "bold")]
    queues = sorted(stats.queues.items(), key=lambda item: (-item[1].ready, item[0]))[:_MOST]
    if queues:
        columns = ("queue", "ready", "delayed", "waiting", "running", "per s", "oldest", "paused", "consumers")
        rows = [
            (
                name,
                queue.ready,
                queue.delayed,
                queue.waiting,
                queue.running,
                f"{rates[name]:,.1f}" if name in rates else None,
                seconds(queue.oldest_age),
                queue.is_paused,
                queue.consumers,
            )
            for name, queue in queues
        ]
        parts += [styled(""), table_of(columns, rows)]
    if seen.waiters:
        waits = [(each.kind, each.name, ago(each.since), each.position, *_where(each)) for each in seen.waiters[:_MOST]]
        parts += [styled(""), table_of(("waited for", "name", "since", "position", "process", "task", "line"), waits)]
    if seen.held:
        wanted = sorted(seen.held, key=lambda each: -each.waiters)[:_MOST]
        held = [(each.kind, each.name, ago(each.since), each.waiters, *_where(each)) for each in wanted]
        parts += [styled(""), table_of(("held", "name", "since", "waiters", "process", "task", "line"), held)]
    parts += [styled(f"\n{deadlock}", "bold red") for deadlock in seen.deadlocks]
    if stats.unserved:
        parts.append(styled(f"\njobs wait, and nobody serves: {', '.join(stats.unserved)}", "bold red"))
    if seen.silent:
        parts.append(styled(f"\ndid not answer: {', '.join(seen.silent)}"))
    if seen.unasked:
        parts.append(styled(f"\nthe processes could not be asked: {seen.unasked}"))
    return Group(*parts)


def _where(entry: HeldLock | Waiter) -> tuple[str, str | None, str | None]:
    return f"{entry.host}:{entry.pid}", entry.task, entry.line
