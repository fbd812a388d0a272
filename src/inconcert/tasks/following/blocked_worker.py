"""Tells of a worker that stands still: each of its places has a job that waits for a job in one of its own queues.

Only waits in this process are known, so other workers are not looked at.  One that serves the same queues would have
claimed what still stands there after 10 s, unless it is as busy.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakSet

from inconcert._claims.claimed import Claimed, ClaimState
from inconcert._core.scope import innermost
from inconcert.errors import InconcertError
from inconcert.tasks.following.watch import RECHECK_AFTER
from inconcert.tasks.records.status import JobStatus, Snapshot

_log = logging.getLogger("inconcert.tasks")

_PATIENCE = 10.0  # seconds that a body waits for a job before its worker is looked at
_MOST_NAMES = 10  # jobs in the line of the log


class _Worker(Protocol):
    """A worker, as far as it matters here."""

    @property
    def queues(self) -> tuple[str, ...]:
        """Those that it serves."""
        ...

    def bodies(self) -> frozenset[str]:
        """The ids of the jobs that run, if all its places are taken."""
        ...


workers: WeakSet[_Worker] = WeakSet()  # that were started in this process

_waits: dict[str, set["BodyWait"]] = {}  # by the id of the job that waits


@dataclass(eq=False, slots=True)
class BodyWait:
    """A wait for a job in the body of another job."""

    body: str  # the id of the job that waits
    job_id: str
    queue: str  # the queue of that job
    inspect: Callable[[], Awaitable[Snapshot]]  # asks for the state of that job
    has_begun: bool = False  # whether it was looked at before
    is_told: bool = False  # whether it was logged

    @classmethod
    def begin(cls, job_id: str, queue: str, inspect: Callable[[], Awaitable[Snapshot]]) -> "BodyWait | None":
        """Note a wait that begins here; None if no job runs here."""
        scope = innermost()
        work: Any = None if scope is None else scope.work
        if not isinstance(work, Claimed | ClaimState):
            return None
        wait = cls(work.id, job_id, queue, inspect)
        _waits.setdefault(wait.body, set()).add(wait)
        return wait

    def end(self) -> None:
        """Forget it."""
        waits = _waits[self.body]
        waits.remove(self)
        if not waits:
            del _waits[self.body]

    async def look(self) -> float:
        """Tell of the worker if it stands still, but not at first; returns the seconds until the next look."""
        if not self.has_begun:
            self.has_begun = True
            return _PATIENCE
        for worker in list(workers):
            if self.body in worker.bodies():
                with suppress(InconcertError):  # it is looked at again
                    await _tell_if_blocked(worker)
        return RECHECK_AFTER


async def _tell_if_blocked(worker: _Worker) -> None:
    bodies = worker.bodies()
    waits = [wait for body in bodies for wait in _waits.get(body, ())]
    if not all(body in _waits for body in bodies) or any(wait.is_told for wait in waits):
        return
    for wait in waits:
        if wait.queue not in worker.queues or (await wait.inspect()).status is not JobStatus.QUEUED:
            return
    if worker.bodies() != bodies or any(wait.is_told or wait not in _waits.get(wait.body, ()) for wait in waits):
        return  # one has gone on meanwhile, or another has told of it
    for wait in waits:
        wait.is_told = True
    shown = [f"{wait.body} waits for {wait.job_id} in queue {wait.queue!r}" for wait in waits[:_MOST_NAMES]]
    _log.warning(
        "this worker stands still: each of its %d places has a job that waits for a job which only a free place could "
        "run: %s%s; have other workers serve these queues, give this one more places, or let jobs follow each other "
        "with after= or enqueue_on_success() instead of waiting",
        len(bodies),
        ", ".join(shown),
        f" and {len(waits) - len(shown)} more" if len(waits) > len(shown) else "",
        extra={"waiting_jobs": sorted(bodies)},
    )
