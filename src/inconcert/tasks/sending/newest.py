"""A job that replaces the live one of its unique name: that makes way if it waits, and is cancelled if it runs.

One command does it, unless the job that waits must be named: to be cancelled where it is, or to be signed for.  Then a
second one does, with its id.

Source: docs/explanation/tasks.md
"""

import itertools

from inconcert._claims.keys import QueueKeys
from inconcert._core.origin import Origin
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command, load
from inconcert._rules.durations import milliseconds
from inconcert.tasks.records.store import CANCELLED_TTL, JobKeys
from inconcert.tasks.sending.draft import NewJob, stored_as

_REPLACE = load("tasks/replace+jobs").bind(JobKeys, QueueKeys)

_ADDED, _COME_AGAIN = 1, 3  # what the script answers


class NewestJob:
    """A job on its way in, which replaces the one that has its unique name."""

    __slots__ = ("_known", "_numbers", "_origin", "_queue", "job")

    def __init__(self, job: NewJob, origin: Origin) -> None:
        self.job = job  # as given
        self._origin = origin
        self._numbers = itertools.count(1)
        self._known = ""  # the id of the job that is to be replaced, once the server has named it
        self._queue = job.draft.options.queue

    def enqueue(self) -> Command:
        """The command that adds it, or puts it in the place of the one that waits."""
        job, known, key_ring = self.job, self._known, self._origin.key_ring
        options, keys = job.draft.options, job.keys
        its, other = keys.queue(self._queue), known or job.id
        is_signed_for_it = key_ring.signs and known
        return _REPLACE(
            keys,
            keys.queue(options.queue),
            its=(its.queue, its.bell, its.delayed, *keys.results([other]), *keys.kept_attempts([other])),
            result=keys.result(job.id),
            request=f"{job.id}/{next(self._numbers)}",
            id=job.id,
            known=known,
            envelope=job.text,
            its_envelope=stored_as(job.draft, known, key_ring, job.trace) if is_signed_for_it else b"",
            is_signed=int(key_ring.signs),
            delay_ms=options.delay_ms(),
            unique_name=options.unique or "",
            name=options.queue,
            its_name=self._queue,
            inboxes=self._origin.inboxes(keys.bodies),
            ttl_ms=milliseconds(CANCELLED_TTL),
        )

    def added(self, reply: Reply) -> str | None:
        """By the reply, the id of the job whose place it took, '' if it was added; None to send another command."""
        answer, id_, queue = reply
        if answer == _COME_AGAIN:
            self._known, self._queue = id_.decode(), queue.decode()
            return None
        return "" if answer == _ADDED else str(id_, "ascii")
