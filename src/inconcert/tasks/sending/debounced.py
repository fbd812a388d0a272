"""A job that runs after a silence: each call with its unique name replaces the one before, as long as that waits.

Without signing keys one command does it.  With them the envelope is signed for the id of its job, so a second one
brings it for the job that waits.

Source: docs/explanation/tasks.md
"""

import itertools
from typing import Protocol

from inconcert._core.origin import Origin
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command
from inconcert._rules.durations import milliseconds
from inconcert._rules.signing import KeyRing
from inconcert.tasks.records.store import DEBOUNCE
from inconcert.tasks.sending.draft import NewJob, stored_as

_ADDED, _COME_AGAIN, _BEGIN_AGAIN = 1, 4, 5  # what the script answers


class ReplacingJob(Protocol):
    """A job on its way in, which may replace another of its unique name."""

    job: NewJob  # the job, as a new one

    def enqueue(self) -> Command:
        """The command that adds it, or replaces the other one."""
        ...

    def added(self, reply: Reply) -> str | None:
        """By the reply, the id of the live job that has its name, '' if it was added; None to send another command."""
        ...


def replacing_job(job: NewJob, origin: Origin) -> ReplacingJob | None:
    """The job as one that may replace another; None if its options do not say so."""
    if job.draft.options.debounce is not None:
        return DebouncedJob(job, origin.key_ring)
    if job.draft.options.newest is not None:
        from inconcert.tasks.sending.newest import NewestJob  # noqa: PLC0415 - few jobs need it

        return NewestJob(job, origin)
    return None


class DebouncedJob:
    """A job on its way in, which may replace one that waits."""

    __slots__ = ("_key_ring", "_numbers", "_queue", "_waits", "job")

    def __init__(self, job: NewJob, key_ring: KeyRing) -> None:
        self.job = job
        self._key_ring = key_ring
        self._numbers = itertools.count(1)
        self._queue = job.draft.options.queue
        self._waits = ""  # the id of the job that is to be replaced; empty for a new one

    def enqueue(self) -> Command:
        """The command that adds it, or replaces the one that waits."""
        job, options = self.job, self.job.draft.options
        id_ = self._waits or job.id
        text = stored_as(job.draft, id_, self._key_ring, job.trace) if self._waits else job.text
        queue = job.keys.queue(self._queue)
        return DEBOUNCE(
            job.keys,
            queue,
            result=job.keys.result(id_),
            request=f"{job.id}/{next(self._numbers)}",  # the same if all begins anew, as that of a job without debounce
            id=id_,
            is_new=int(not self._waits),
            envelope=text,
            is_signed=int(self._key_ring.signs),
            silence_ms=milliseconds(options.debounce or 0.0),
            longest_ms="" if options.max_wait is None else milliseconds(options.max_wait),
            unique_name=options.unique or "",
            name=queue.name,
        )

    def added(self, reply: Reply) -> str | None:
        """By the reply, the id of the live job that has its name, '' if it was added; None to send another command."""
        answer, id_, queue = reply
        if answer == _COME_AGAIN:
            self._waits, self._queue = id_.decode(), queue.decode()
            return None
        if answer == _BEGIN_AGAIN:
            self._waits, self._queue = "", self.job.draft.options.queue
            return None
        return "" if answer == _ADDED else str(id_, "ascii")
