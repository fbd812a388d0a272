"""A producer for code without an event loop: it enqueues jobs, puts items in, sends messages, and waits for results.

It runs the same scripts on the same keys as a `Coordinator`, and stores the same bytes; only how they are sent differs.
"""

import math
import os
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from inconcert._cluster.blocking_cluster import BlockingCluster
from inconcert._core.layout import CHAT_GROUPS, PARTITIONS, Layout
from inconcert._core.observer import Enqueueing, Observers
from inconcert._core.origin import Origin
from inconcert._redis.blocking.blocking_channel import BlockingChannel
from inconcert._redis.blocking.blocking_pools import pool_for
from inconcert._redis.blocking.blocking_server import BlockingServer
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command
from inconcert._rules import durations
from inconcert._rules.backoff import backoff
from inconcert._rules.defaults import MAX_MESSAGES
from inconcert._rules.durations import Seconds
from inconcert._rules.names import check_job_id
from inconcert._rules.payloads import JSON
from inconcert._rules.signing import KeyRing, SigningKeys
from inconcert._rules.urls import parse_url
from inconcert.errors import InconcertError, NotConnected, Unavailable
from inconcert.mailboxes.post import Post
from inconcert.queues.put import NewItems, check_putting, item_codec
from inconcert.queues.store import ItemKeys
from inconcert.queues.worker_lease import QueueOrder
from inconcert.tasks.following.messages import JobMessage
from inconcert.tasks.following.watch import RECHECK_AFTER
from inconcert.tasks.records.status import JobStatus, Snapshot, not_in_time, read_outcome
from inconcert.tasks.records.store import UNWATCH, JobKeys, JobKeyspace
from inconcert.tasks.sending.debounced import replacing_job
from inconcert.tasks.sending.draft import NewJob, enqueue, enqueue_own
from inconcert.tasks.sending.options import JobOptions
from inconcert.tasks.sending.task import Task, draft_of

if TYPE_CHECKING:  # few jobs are asked for theirs
    from inconcert.tasks.records.attempts import FailedAttempt

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EnqueuedJob:
    """A job that `SyncProducer.enqueue` has enqueued.

    Attributes:
        id: Which job; `SyncProducer.result` takes it, and `Coordinator.tasks.job`.
        created: False if a live job already had the unique name: then this is that job, with `debounce` or `newest` as
            it is now.
    """

    id: str
    created: bool


class PreparedJob:
    """A job that has an id and is not enqueued yet. Made by `SyncProducer.prepare`.

    Attributes:
        id: Which job it will be.
    """

    __slots__ = ("_job", "_producer", "_tracing", "id")

    def __init__(self, producer: "SyncProducer", job: NewJob, tracing: Enqueueing | None) -> None:
        self.id = job.id
        self._job = job
        self._producer = producer
        self._tracing = tracing

    def __repr__(self) -> str:
        return f"<PreparedJob {self.id}>"

    def enqueue(self) -> EnqueuedJob:
        """Enqueue it: once, however often this is called within a minute."""
        return self._producer._enqueue(self._job, self._tracing)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


class SyncProducer:
    """Enqueues jobs, puts items into queues and sends messages to mailboxes and jobs, without an event loop.

    For Django, Flask, scripts and notebooks, in any thread.  Its jobs, items and messages are run, taken and read by
    processes with a `Coordinator`; where an event loop runs, use that instead.

    It connects with the first call, has one connection for all threads, and in a process that was forked since makes
    one of its own.  A call whose reply was lost is sent again, and counts once.

    ```python
    with SyncProducer("redis://localhost:6379/0", namespace="shop") as producer:
        job = producer.enqueue("shop.tasks.send_receipt", [17], queue="mail")
    ```

    Args:
        url: See `Coordinator`.
        namespace: See `Coordinator`.
        timeout: How long a call may take, reconnecting included, in seconds. Waiting for a result does not count.
        partitions: See `Coordinator`: the number with which the namespace was first opened.
        chat_groups: The number of these with which the namespace was first opened.
        signing_keys: Key id -> secret, 16 bytes or more. The first signs jobs and items. None: nothing is signed.

    Raises:
        ValueError: `url` is not a valid server URL, a number is out of range, or a signing key is invalid.
    """

    def __init__(
        self,
        url: str = "redis://localhost:6379/0",
        *,
        namespace: str = "inconcert",
        timeout: Seconds = 10.0,
        partitions: int = PARTITIONS,
        chat_groups: int = CHAT_GROUPS,
        signing_keys: SigningKeys | None = None,
    ) -> None:
        self._parts = parse_url(url)
        self._timeout = durations.call_timeout("a producer", timeout)
        self._layout = Layout(partitions, chat_groups).checked()
        self._key_ring = KeyRing(namespace, signing_keys)
        self._observers = Observers()
        database = self._new_server().database  # this checks the options of the URL, too
        self._keys = Keyspace(namespace, database, is_sharded=self._parts.topology == "cluster")
        self._keyspace = JobKeyspace(self._keys, self._layout.partitions)
        self._opening: _Opening | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        if not hasattr(self, "_keys"):  # its arguments were refused
            return f"<{type(self).__name__}, not set up>"
        return f"<{type(self).__name__} {self._parts.shown} namespace={self._keys.namespace!r}>"

    def __enter__(self) -> Self:
        self._is_closed = False
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, after a call that is under way; `with` does so."""
        self._is_closed = True
        opening, self._opening = self._opening, None
        if opening is not None and opening.process == os.getpid():
            opening.channel.close()

    def enqueue(
        self,
        name: Task[..., Any] | str,
        args: Sequence[JSON] = (),
        kwargs: Mapping[str, JSON] | None = None,
        **options: Unpack[JobOptions],
    ) -> EnqueuedJob:
        """Enqueue a job by the name of its task, as `Coordinator.enqueue` does.

        Any option that is not given is as the task has it in the worker that runs the job: its limits, attempts, times
        and the like. Only its queue is not known here.

        Args:
            name: Which task, by its name; or the task itself, with its queue and its arguments as `Task.enqueue` takes
                them.
            args: Its positional arguments: JSON values, which the worker converts to what the function annotates.
            kwargs: Its keyword arguments: JSON values, too.
            **options: How it is to be run; see `JobOptions`.

        Raises:
            TypeError: There is no option of this name, or `after` is not a list; or the arguments do not fit the task
                that is given itself.
            ValueError: A number is out of its range, or `after` has more than 100 jobs.
            InvalidName: A name is empty or longer than 512 bytes, or an entry of `after` is not a job id.
            InvalidPayload: An argument is not JSON, or all together are larger than 1 MiB.
        """
        return self.prepare(name, args, kwargs, **options).enqueue()

    def prepare(
        self,
        name: Task[..., Any] | str,
        args: Sequence[JSON] = (),
        kwargs: Mapping[str, JSON] | None = None,
        **options: Unpack[JobOptions],
    ) -> PreparedJob:
        """A job that is enqueued later: its id is known now, to be stored in a transaction and sent when it commits.

        It takes what `enqueue` takes, and raises the same errors. A `delay` counts from when the job is enqueued.

        Cost: Nothing is sent.
        """
        draft = draft_of(name, args, kwargs, options)
        origin = self._opened().origin
        tracing = self._observers.enqueue_begins(draft.name, draft.options.queue, 1)
        trace = "" if tracing is None else tracing.trace
        return PreparedJob(self, NewJob.named(draft, origin, self._keyspace, trace=trace), tracing)

    def put(
        self,
        queue: str,
        item: JSON,
        *,
        id: str | None = None,  # noqa: A002 - as for `Queue.put`
        delay: Seconds = 0.0,
        order: QueueOrder = "fifo",
        maxsize: int | None = None,
    ) -> bool:
        """Put an item into a queue, as `Queue.put` does without waiting for room.

        Args:
            queue: Which queue.
            item: A JSON value of at most 1 MiB.
            id: What the item is known by, so that it is put in once; see `Queue.put`.
            delay: After how many seconds it may be taken.
            order: See `Coordinator.queue`.
            maxsize: See `Coordinator.queue`.

        Returns:
            Whether it was put in; False only if one with this `id` was.

        Raises:
            QueueFull: There is no room, or others are waiting for it; the item was not put in.
            QueueShutDown: The queue was shut down; the item was not put in.
            InvalidPayload: JSON cannot hold the item, or it is larger than 1 MiB.
            ValueError: `delay` is negative or not a number, or another argument is out of its range.
        """
        check_putting(order, maxsize)
        keys, seconds, opened = ItemKeys(self._keys, queue), durations.delay(delay), self._opened()
        items = NewItems(
            opened.origin,
            keys,
            queue,
            [item],
            item_codec(queue, None),
            order=order,
            delay=seconds,
            maxsize=maxsize,
            item_id=id,
        )
        return items.added(opened.run(items.put()))

    def send(
        self, mailbox: str, message: JSON, *, max_messages: int = MAX_MESSAGES, max_age: Seconds | None = None
    ) -> None:
        """Add a message to a mailbox, as `Mailbox.send` does.

        Args:
            mailbox: Whose mailbox.
            message: A JSON value of at most 1 MiB.
            max_messages: See `Coordinator.mailbox`.
            max_age: See `Coordinator.mailbox`.

        Raises:
            InvalidPayload: The message is not JSON, or too large.
            ValueError: `max_age` is not above 0, or `max_messages` is out of range.
            Unavailable: The server could not be asked, or has no memory; nothing was added.
        """
        post: Post[JSON] = Post(self._keys, mailbox, max_messages=max_messages, max_age=max_age)
        opened, bodies = self._opened(), post.encode([message])
        command = post.send(opened.origin, bodies)
        while opened.run(command):
            pass  # the first thousand in line were dead

    def send_to_job(self, job_id: str, name: str, value: object) -> bool:
        """Send a job a message, for which it waits, or will wait, with `durable.wait_for`, as `Job.send` does.

        Args:
            job_id: Which job, whichever process enqueued it.
            name: What the message is about, of at most 512 bytes.
            value: JSON, or a value that msgspec can encode as JSON, of at most 1 MiB.

        Returns:
            True if it is kept; False if there was one of this name, if the job has waited for it too long or has ended,
            and if there is no such job.

        Raises:
            InvalidName: `name` is empty or longer than 512 bytes, or this cannot be a job id.
            InvalidPayload: JSON cannot hold the value, or it is larger than 1 MiB.
            MessageRefused: The job has 1,000 messages, or they would exceed 16 MiB.

        Cost: 1 round trip; 2 if the job has left its worker to wait for it.
        """
        keys, opened = self._keyspace.of_id(check_job_id(job_id)), self._opened()
        message = JobMessage(opened.origin, keys, job_id, name, value)
        while (kept := message.was_kept(opened.run(message.send()))) is None:
            pass  # it waits in a queue that is known now
        return kept

    def status(self, job_id: str) -> JobStatus:
        """The state of a job now."""
        check_job_id(job_id)
        look = Snapshot.take(self._keyspace.of_id(job_id), job_id, "")
        return Snapshot.read(self._opened().run(look)).status

    def attempts(self, job_id: str) -> "list[FailedAttempt]":
        """The attempts of a job that failed, the earliest first; see `Job.attempts`."""
        from inconcert.tasks.records.attempts import attempts_of, read_attempts  # noqa: PLC0415 - few jobs are asked

        keys = self._keyspace.of_id(check_job_id(job_id))
        return read_attempts(self._opened().run(attempts_of(keys, job_id)))

    @overload
    def result(self, job_id: str, *, timeout: Seconds | None = None) -> JSON: ...

    @overload
    def result(self, job_id: str, as_type: type[T], *, timeout: Seconds | None = None) -> T: ...

    def result(self, job_id: str, as_type: type[T] | None = None, *, timeout: Seconds | None = None) -> JSON | T:
        """Wait until a job has ended, and return what its function returned.

        Args:
            job_id: Which job, whichever process enqueued it.
            as_type: The type to read the result as; None for the JSON value.
            timeout: Longest wait in seconds; None waits forever, 0 checks once.

        Raises:
            TimeoutError: It has not ended in time; it goes on.
            JobFailed: It was dead-lettered; has the reason and the traceback.
            JobCancelled: It was cancelled.
            JobNotFound: There is no such job, or its result is no longer kept.
            UnreadablePayload: The result is not of this type.
            TypeError: JSON cannot represent this type.

        Cost: 1 round trip if it has ended. Otherwise a connection of its own while it waits, 1 round trip to register
            and 1 when it has ended; 2 and another connection every 60 s between.
        """
        check_job_id(job_id)
        seconds, opened = durations.timeout(timeout), self._opened()
        keys = self._keyspace.of_id(job_id)
        seen = _Wait(opened, Origin(self._keys, self._key_ring, self._observers), keys, job_id, seconds).ended()
        return read_outcome(job_id, seen.status, seen.about, as_type)

    # Private.

    def _enqueue(self, job: NewJob, tracing: Enqueueing | None) -> EnqueuedJob:
        queue = job.draft.options.queue
        try:
            other = self._add(job)
        except BaseException as error:
            if tracing is not None:
                tracing.end((), error)
            raise
        enqueued = EnqueuedJob(other or job.id, not other)
        if tracing is not None:
            tracing.end([enqueued.id], None)
        if enqueued.created:
            self._observers.job_enqueued(job.draft.name, queue)
        return enqueued

    def _add(self, job: NewJob) -> str:
        """Enqueue it; returns the id of the live job that has its unique name, empty if it was added."""
        opened, options = self._opened(), job.draft.options
        if options.id is not None:
            [other] = opened.run(enqueue_own(job.keys, options.queue, job, opened.origin.new_address()))
            return str(other, "ascii")
        replacing = replacing_job(job, opened.origin)
        if replacing is None:
            [other] = opened.run(enqueue(job.keys, options.queue, [job]))
            return str(other, "ascii")
        while (known := replacing.added(opened.run(replacing.enqueue()))) is None:
            pass  # one waits, for which it is to be signed
        return known

    def _opened(self) -> "_Opening":
        """The open parts in this process, which may be a fork of the one that used it last."""
        if self._is_closed:
            raise NotConnected(f"{self!r} is closed; use it inside `with producer:`, or make another")
        opening = self._opening
        if opening is None or opening.process != os.getpid():
            channel = BlockingChannel(self._new_server(), timeout=self._timeout)
            opening = self._opening = _Opening(
                channel, Origin(self._keys, self._key_ring, self._observers), self._layout
            )
        return opening

    def _new_server(self) -> BlockingServer:
        timeout = self._timeout / 2
        pool = pool_for(self._parts, timeout=timeout)
        if self._parts.topology == "cluster":
            return BlockingCluster(self._parts.nodes, pool, timeout=timeout)
        return BlockingServer(pool, timeout=timeout)


class _Opening:
    """The parts of a producer in one process."""

    def __init__(self, channel: BlockingChannel, origin: Origin, layout: Layout) -> None:
        self.process = os.getpid()
        self.channel = channel
        self.origin = origin
        self._layout = layout
        self._is_checked = False

    def run(self, command: Command) -> Reply:
        """Run a script and wait for its reply; the first one checks that the namespace may be used."""
        if not self._is_checked:
            for question, check in self.origin.questions(self._layout):
                check(self.channel.run(question))
            self._is_checked = True
        return self.channel.run(command)


class _Wait:
    """One wait for a job, with an inbox and a connection of its own.

    It goes in rounds, each with a new connection: one that has silently died costs a round.
    """

    def __init__(self, opened: _Opening, origin: Origin, keys: JobKeys, job_id: str, timeout: float | None) -> None:
        self._opened = opened
        self._keys = keys
        self._job_id = job_id
        self._timeout = timeout
        self._give_up_at = math.inf if timeout is None else time.monotonic() + timeout
        self._address = origin.new_address()
        self._inbox = origin.inboxes(keys.watchers) + origin.id
        self._is_noted = False  # whether the server may have noted the address

    def ended(self) -> Snapshot:
        """Wait until it has ended; raises `TimeoutError` if it has not ended in time."""
        failures = 0
        try:
            while not (seen := self._look()).has_ended:
                if time.monotonic() >= self._give_up_at:
                    raise not_in_time(self._job_id, self._timeout, seen.status)
                failures = 0 if self._wait() else failures + 1
                if failures:
                    left = max(0.0, self._give_up_at - time.monotonic())
                    time.sleep(min(left, backoff(failures, random.random())))
            self._is_noted = False
            return seen
        finally:
            if self._is_noted:
                with suppress(InconcertError):  # the server forgets it by itself
                    self._opened.run(UNWATCH(watchers=self._keys.watchers, id=self._job_id, address=self._address))

    def _wait(self) -> bool:
        """Return when it may have ended; False if the connection was lost, or could not be made."""
        try:
            wire = self._opened.channel.subscribe(self._keys.watchers, self._inbox)
        except (OSError, Unavailable):
            return False
        with closing(wire):
            self._is_noted = True
            if not self._look(self._address).has_ended:
                try:
                    wire.wait(min(self._give_up_at, time.monotonic() + RECHECK_AFTER))
                except OSError:
                    return False
        return True

    def _look(self, address: str = "") -> Snapshot:
        return Snapshot.read(self._opened.run(Snapshot.take(self._keys, self._job_id, address)))


def observers_of(producer: SyncProducer) -> Observers:
    """The observers of this producer."""
    return producer._observers  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
