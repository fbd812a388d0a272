"""Enqueueing as a block, of which tracers are told when it begins and how it ends."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from inconcert._core.observer import Observers
from inconcert.tasks.following.job import Job
from inconcert.tasks.sending.draft import Draft, NewJob


class Traced:
    """Jobs are enqueued in this block."""

    __slots__ = ("_tracing", "jobs", "trace")

    def __init__(self, observers: Observers, drafts: Sequence[Draft[Any]]) -> None:
        first = drafts[0]
        self._tracing = observers.enqueue_begins(first.name, first.options.queue, len(drafts)) if observers else None
        # the trace context for the jobs to carry; empty for none
        self.trace = "" if self._tracing is None else self._tracing.trace
        self.jobs: Sequence[NewJob | Job[Any]] = ()  # those that were added: the block notes them

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        del kind, traceback
        if self._tracing is not None:
            self._tracing.end([job.id for job in self.jobs], error)
