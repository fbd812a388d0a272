"""All that this process holds and waits for, looked up on the stacks of its tasks.

`reporter.py` imports it with the first question, because it knows the classes of all primitives.
"""

import asyncio
import logging
import os
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import Context
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar

from inconcert._core.caller import Noted, line_of
from inconcert._core.lease import HeldLease
from inconcert._core.permit_state import PermitState
from inconcert._core.place import Place
from inconcert._core.session import Listening, Session
from inconcert._core.stacks import OnStack, Task, context_of, on_stack
from inconcert._redis.protocol.keys import subject
from inconcert._redis.wire.inbox import InboxReceiver
from inconcert._redis.wire.turns import in_turns
from inconcert.members.member_state import MemberState
from inconcert.queues.delivery import Delivery
from inconcert.queues.get import OpenGetters
from inconcert.queues.waiter import QueueWaiter
from inconcert.reports.report import HeldEntry, HeldItem, ItemConsumer, ProcessReport, SignalListener, WaitEntry
from inconcert.tasks.following.watch import Watch
from inconcert.tasks.running.claimed_job import job_in

_log = logging.getLogger("inconcert.reports")

E = TypeVar("E")

_ITEMS = 20  # that are told of each consumer


class OwnReport:
    """Looks at one process, while its coordinator is open."""

    def __init__(
        self, session: Session, label: str | None, redact: Callable[[str, str], str] | None, opened_at: float
    ) -> None:
        self._session = session
        self._label = label
        self._redact = redact
        self._opened_at = opened_at
        self._zero = time.time() - time.monotonic()  # of the monotonic clock, in seconds since 1970

    async def look(self, entries: int, told: tuple[str, ...]) -> ProcessReport:
        """Look in as many turns of the event loop as it takes; see `Reporter.report`."""
        found = await _found()
        receivers = self._session.inbox.receivers()
        holds, more_holds = await _first(entries, self._all_held(found))
        waits, more_waits = await _first(entries, self._all_waits(receivers, found))
        consumers, more_consumers = await _first(entries, self._all_consumers(receivers, found))
        all_listeners = (partial(self._listening, each) for each in [*self._session.listeners.values()])
        listeners, more_listeners = await _first(entries, all_listeners)
        holds.sort(key=attrgetter("since"))
        waits.sort(key=attrgetter("since"))
        return ProcessReport(
            id=self._session.id,
            label=self._label,
            host=socket.gethostname(),
            pid=os.getpid(),
            opened_at=self._opened_at,
            holds=tuple(holds),
            waits=tuple(waits),
            consumers=tuple(consumers),
            listeners=tuple(listeners),
            more=more_holds + more_waits + more_consumers + more_listeners,
            told=told,
        )

    # Private.

    def _all_held(self, found: "_Found") -> "Iterator[Callable[[], HeldEntry] | None]":
        """The maker of each lease's entry; None for a lease that is not reported."""
        for lease in self._session.renewal.leases():
            if isinstance(lease, _REPORTED) and not lease.is_over:
                yield partial(self._held, lease, found)
            else:
                yield None

    def _all_waits(
        self, receivers: Sequence[InboxReceiver], found: "_Found"
    ) -> "Iterator[Callable[[], WaitEntry] | None]":
        for receiver in receivers:
            if isinstance(receiver, Place) and receiver.noted and receiver.ticket > 0 and not receiver.done():
                yield partial(self._in_line, receiver, receiver.noted, found)
            elif isinstance(receiver, Watch):
                yield from (partial(self._watching, receiver, stack) for stack in found[receiver.address])
            elif isinstance(receiver, QueueWaiter):
                yield from (partial(self._at_queue, receiver, stack) for stack in found[receiver.address])
            else:
                yield None

    def _all_consumers(
        self, receivers: Sequence[InboxReceiver], found: "_Found"
    ) -> "Iterator[Callable[[], ItemConsumer] | None]":
        for receiver in receivers:
            if isinstance(receiver, OpenGetters) and (receiver.waiting or any(receiver.held)):
                yield partial(self._consuming, receiver, found)
            else:
                yield None

    def _held(self, lease: PermitState | MemberState, found: "_Found") -> HeldEntry:
        name = self._shown(lease.kind, lease.name)
        stack = next(iter(found[lease.holder]), None)
        task = lease.body_task or (stack and stack.task)
        return HeldEntry(
            kind=lease.kind,
            name=name,
            is_redacted=name != lease.name,
            mode=_mode(lease.kind, lease.holder),
            holder=lease.holder,
            fencing_token=lease.fencing_token if isinstance(lease, PermitState) else None,
            remaining=lease.remaining,
            label=lease.noted[0],
            line=line_of(lease.noted),
            **self._origin(task, lease.since),
        )

    def _in_line(self, place: Place, noted: Noted, found: "_Found") -> WaitEntry:
        kind, name = subject([place.key])
        shown = self._shown(kind, name or "")
        stack = next(iter(found[place.address]), None)
        return WaitEntry(
            kind=kind,
            name=shown,
            is_redacted=shown != (name or ""),
            mode=_mode(kind, place.address),
            holder=place.address,
            ticket=place.ticket,
            label=noted[0],
            line=line_of(noted),
            **self._origin(stack and stack.task, place.since),
        )

    def _watching(self, watch: Watch, stack: OnStack) -> WaitEntry:
        return WaitEntry(
            kind="job",
            name=watch.job_id,
            holder=watch.address,
            line=stack.line,
            **self._origin(stack.task, watch.since),
        )

    def _at_queue(self, waiter: QueueWaiter, stack: OnStack) -> WaitEntry:
        name = self._shown("items", waiter.queue)
        return WaitEntry(
            kind="items",
            name=name,
            is_redacted=name != waiter.queue,
            mode=waiter.verb,
            holder=waiter.address,
            line=stack.line,
            **self._origin(stack.task, waiter.since),
        )

    def _consuming(self, consumer: OpenGetters, found: "_Found") -> ItemConsumer:
        name = self._shown("items", consumer.queue)
        is_redacted = name != consumer.queue
        stack = next((each for each in found[consumer.address] if each.line is not None), None)
        return ItemConsumer(
            name=name,
            is_redacted=is_redacted,
            waiting=consumer.waiting,
            task=stack and stack.task.get_name(),
            line=stack and stack.line,
            holds=() if is_redacted else tuple(_held_item(item.id, found) for item in islice(consumer.held, _ITEMS)),
        )

    def _listening(self, listening: Listening) -> SignalListener:
        name = self._shown("signal", listening.name)
        return SignalListener(
            name=name,
            is_redacted=name != listening.name,
            is_pattern=listening.is_pattern,
            since=self._zero + listening.since,
            line=line_of(listening.noted),
        )

    def _origin(self, task: Task | None, since: float) -> "_Origin":
        context = None if task is None else context_of(task)
        return {
            "since": self._zero + since,
            "task": None if task is None else task.get_name(),
            "task_id": None if task is None else id(task),
            "job_id": None if context is None else job_in(context),
            "trace_id": None if context is None else _trace_in(context),
        }

    def _shown(self, kind: str, name: str) -> str:
        if self._redact is None:
            return name
        try:
            return str(self._redact(kind, name))
        except Exception:  # noqa: BLE001 - of the user's function; what may be secret is not shown
            _log.warning("a name was left out of a report, because report= of the coordinator failed", exc_info=True)
            return "?"


def _held_item(item_id: str, found: "_Found") -> HeldItem:
    stack = next(iter(found[_of_item(item_id)]), None)
    return HeldItem(id=item_id, task=stack and stack.task.get_name(), line=stack and stack.line)


def _mode(kind: str, holder: str) -> Literal["read", "write"] | None:
    if kind != "rwlock":
        return None
    return "write" if holder.endswith("w") else "read"


_REPORTED = (PermitState, MemberState)
_Wanted: TypeAlias = Place | Watch | QueueWaiter | OpenGetters | HeldLease[PermitState | MemberState] | Delivery[Any]
_WANTED: tuple[type[_Wanted], ...] = (Place, Watch, QueueWaiter, OpenGetters, HeldLease, Delivery)
_Found: TypeAlias = Mapping[str, list[OnStack]]


async def _found() -> _Found:
    """On which stacks each lease, item or place is, by its holder or address."""
    found: defaultdict[str, list[OnStack]] = defaultdict(list)
    async for task in in_turns(asyncio.all_tasks()):
        for thing, stack in on_stack(task, _WANTED):
            stacks = found[_address(thing)]
            if not stacks or stacks[-1].task is not stack.task:  # several frames of a task may refer to it
                stacks.append(stack)
    return found


async def _first(entries: int, builds: Iterable[Callable[[], E] | None]) -> tuple[list[E], int]:
    """The first so many, built; and how many more there are."""
    built: list[E] = []
    more = 0
    async for build in in_turns(builds):
        if build is not None and len(built) < entries:
            built.append(build())
        elif build is not None:
            more += 1
    return built, more


def _address(thing: _Wanted) -> str:
    if isinstance(thing, HeldLease):
        return thing.holder
    return _of_item(thing.id) if isinstance(thing, Delivery) else thing.address


def _of_item(item_id: str) -> str:
    """Not an address, whatever id its user gave it: these have no space."""
    return f"item {item_id}"


class _Origin(TypedDict):
    """The task and the line that asked for something."""

    since: float
    task: str | None
    task_id: int | None
    job_id: str | None
    trace_id: str | None


def _trace_in(context: Context) -> str | None:
    """The trace of a context; None if OpenTelemetry is not in use."""
    telemetry = sys.modules.get("opentelemetry.trace")
    if telemetry is None:
        return None
    span = context.copy().run(telemetry.get_current_span).get_span_context()
    return telemetry.format_trace_id(span.trace_id) if span.is_valid else None
