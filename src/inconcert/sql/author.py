"""The contents of a row: a job, an item or a message with its id, sealed and signed by the process that writes it.

The relay signs nothing: otherwise anybody who can write to the table could forge jobs.
"""

import os
from typing import Any, NamedTuple, TypeVar

import msgspec

from inconcert._core.observer import Observers
from inconcert._core.origin import Origin
from inconcert._redis.protocol.keys import Keyspace
from inconcert._rules.durations import milliseconds
from inconcert._rules.signing import KeyRing
from inconcert.mailboxes.mailbox import Mailbox, post_of
from inconcert.queues.queue import Queue, put_terms_of
from inconcert.queues.store import item_of
from inconcert.sql.rows import Keep, Terms, Written
from inconcert.tasks.records.store import JobKeyspace
from inconcert.tasks.sending.draft import Draft, NewJob, refuse_id, with_options
from inconcert.tasks.sending.traced import Traced

HEADER = "inconcert.outbox"
"""The header of a job that has a row, or had one: with `keep`."""

T = TypeVar("T")

_LEAST_RESULT_TTL = 3600.0  # seconds; a relay looks every 10 min, and must not run a job again that it finds gone


class _Opening(NamedTuple):
    process: int
    origin: Origin


class Author:
    """Makes rows in this process, whether the coordinator is open or not."""

    def __init__(
        self, keys: Keyspace, key_ring: KeyRing, observers: Observers, keyspace: JobKeyspace, keep: Keep
    ) -> None:
        self._keys = keys
        self._key_ring = key_ring
        self._observers = observers
        self._keyspace = keyspace
        self._keep: Keep = keep
        self._opening: _Opening | None = None

    @property
    def _origin(self) -> Origin:
        """The source of ids: another one in a process that was forked since."""
        opening = self._opening
        if opening is None or opening.process != os.getpid():
            origin = Origin(self._keys, self._key_ring, self._observers)
            opening = self._opening = _Opening(os.getpid(), origin)
        return opening.origin

    def item(self, queue: Queue[T], item: T, delay: float) -> Written:
        """The row of an item.

        Raises:
            InvalidPayload: See `Queue.put`.
        """
        how = put_terms_of(queue)
        text = how.codec.encode(item)
        id_ = self._origin.new_address()
        body = self._key_ring.sign(item_of(queue.name), id_, text)
        terms = Terms(keep="until_sent", order=how.order, max=-1 if how.maxsize is None else how.maxsize)
        return Written(id_, self._keys.namespace, "item", queue.name, _json(terms), body, milliseconds(delay))

    def message(self, mailbox: Mailbox[T], message: T) -> Written:
        """The row of a message.

        Raises:
            InvalidPayload: See `Mailbox.send`.
        """
        post = post_of(mailbox)
        [body] = post.encode([message])
        terms = Terms(keep="until_sent", max=post.max_messages, max_age_ms=post.max_age_ms)
        return Written(self._origin.new_address(), self._keys.namespace, "message", post.name, _json(terms), body, 0)

    def job(self, draft: Draft[Any]) -> Written:
        """The row of a job.

        Raises:
            TypeError: It is not a draft.
            ValueError: It has an option that a row cannot keep.
        """
        _check(draft)
        options = draft.options
        ours = options.changed(
            headers={**options.headers, HEADER: self._keep}, result_ttl=max(options.result_ttl, _LEAST_RESULT_TTL)
        )
        own = with_options(draft, ours)
        with Traced(self._observers, [own]) as traced:
            job = NewJob.of(own, self._origin, self._keyspace, trace=traced.trace)
            traced.jobs = [job]
        terms = Terms(
            keep=self._keep,
            task=draft.name,
            unique=options.unique or "",
            window_ms=milliseconds(options.unique_for),
        )
        return Written(job.id, self._keys.namespace, "job", options.queue, _json(terms), job.text, options.delay_ms())


def _json(terms: Terms) -> str:
    return msgspec.json.encode(terms).decode()


def _check(draft: object) -> None:
    if not isinstance(draft, Draft):
        raise TypeError(f"an outbox was given {draft!r}; give a call of a task, such as send_email.call(17)")
    refuse_id(draft, "a row of an outbox")
    options = draft.options
    if options.after:
        raise ValueError(
            f"{draft!r} has after=, and what it runs after may be gone when it is handed over again; let the job "
            "before it enqueue it"
        )
    if options.debounce is not None:
        raise ValueError(f"{draft!r} has debounce=, and a row is not replaced by a later one; give it a delay=")
    if options.newest is not None:
        raise ValueError(
            f"{draft!r} has newest=, and an older row may be handed over again after a newer one; let a job enqueue it"
        )
