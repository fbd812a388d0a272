"""A handle of an enqueued job: its status, result and cancellation."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

import anyio
import msgspec

from inconcert._core.session import SessionRef
from inconcert._rules import durations
from inconcert._rules.conversion import Converter
from inconcert._rules.durations import Seconds, milliseconds
from inconcert._rules.limits import whole
from inconcert._rules.payloads import JSON, decode
from inconcert.tasks.durable.step_records import StepRecord, list_steps
from inconcert.tasks.following.blocked_worker import BodyWait
from inconcert.tasks.following.cancellation import STILL_RUNS, cancel
from inconcert.tasks.following.feed import read_items
from inconcert.tasks.following.messages import JobMessage
from inconcert.tasks.following.stream import Position, Stream, StreamItem, follow, position_of
from inconcert.tasks.following.watch import RECHECK_AFTER, Watches
from inconcert.tasks.records.status import JobStatus, Snapshot, not_in_time, read_outcome
from inconcert.tasks.records.store import CHILDREN, RESCHEDULE, JobKeys, JobKeyspace

if TYPE_CHECKING:  # few jobs are asked for theirs
    from inconcert.tasks.records.attempts import FailedAttempt

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


_OUT_OF_QUEUE = frozenset({JobStatus.DELAYED, JobStatus.WAITING})  # whose reply has the name of the queue


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress that a job has reported.

    Attributes:
        fraction: From 0 to 1.
        text: Its present work.
    """

    fraction: float
    text: str = ""


class JobLink:
    """The way from handles to their jobs: one for all handles of a coordinator.

    Args:
        watches: The waits for jobs in this process.
    """

    __known_as__ = "Job"  # which JSON cannot hold because of this

    __slots__ = ("keyspace", "ref", "watches")

    def __init__(self, ref: SessionRef, keyspace: JobKeyspace, watches: Watches) -> None:
        self.ref = ref
        self.keyspace = keyspace
        self.watches = watches


class JobKind(NamedTuple):
    """The facts that a handle has of its job besides the id."""

    queue: str
    returns: type[Any] | None = None  # the type that its result is read as; None for JSON values
    yields: type[object] | None = None  # the type that the items of its stream are read as; None for JSON values


class Job(msgspec.Struct, Generic[R_co], frozen=True, eq=False):
    """An enqueued job, whose function returns an `R`.

    A job that was enqueued or looked up by name or id is a `Job[JSON]`.

    Attributes:
        id: Which job; unique, and so a good idempotency key for what the job does.
        created: False if a live job already had the unique name: then this is that job, with `debounce` or `newest` as
            it is now.
    """

    _link: JobLink
    id: str
    _kind: JobKind = JobKind("none")
    created: bool = True

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    async def status(self) -> JobStatus:
        """Its state now."""
        return (await self._inspect()).status

    async def progress(self) -> Progress | None:
        """The progress that it last reported; None if it has not reported any, or has ended.

        It is kept while the job sleeps or waits for another attempt, until that attempt reports its own. It is dropped
        where a worker gives the job back because it closes, or has died.
        """
        how_far = (await self._inspect()).progress
        return Progress(*msgspec.json.decode(how_far, type=tuple[float, str])) if how_far else None

    @overload
    async def result(self, *, timeout: Seconds | None = None) -> R_co: ...

    @overload
    async def result(self, as_type: type[T], *, timeout: Seconds | None = None) -> T: ...

    async def result(self, as_type: type[T] | None = None, *, timeout: Seconds | None = None) -> object:
        """Wait until it has ended, and return what its function returned; None for an async generator.

        Args:
            as_type: The type to read it as; None for the function's annotated return type. It is the JSON value if
                there is no annotation, if JSON cannot represent its type, and for a job by name or id.
            timeout: Longest wait in seconds; None waits forever, 0 checks once.

        Raises:
            TimeoutError: It has not ended in time; it goes on.
            JobFailed: It was dead-lettered; has the reason and the traceback.
            JobCancelled: It was cancelled.
            JobNotFound: There is no such job, or its result is no longer kept.
            UnreadablePayload: The result is not of this type.
            TypeError: JSON cannot represent this type.

        Cost: 1 round trip if it has ended. Otherwise 1 to register the wait, 0 while waiting, 1 when it has ended.
        """
        ended = await self._ended(durations.timeout(timeout))
        return read_outcome(self.id, ended.status, ended.about, self._kind.returns if as_type is None else as_type)

    @overload
    def stream(self: "Job[AsyncIterator[T]]", *, after: str | None = None) -> Stream[T]: ...

    @overload
    def stream(self: "Job[JSON]", *, after: str | None = None) -> Stream[JSON]: ...

    @overload
    def stream(self, as_type: type[T], *, after: str | None = None) -> Stream[T]: ...

    def stream(self, as_type: type[Any] | None = None, *, after: str | None = None) -> Stream[Any]:
        """Follow the items that an async generator yields, or a body emits: an `async for` that ends with the job.

        It begins with the first item that is kept, or behind one. A `Gap` stands in the place of items that were
        dropped, and a `Restarted` where another attempt begins again: what came before it no longer counts. While the
        server cannot be reached it keeps trying, and goes on without loss or repetition. Several may follow one job:
        each gets everything. Leave it early inside `contextlib.aclosing`.

        Args:
            as_type: The type to read each item as; None for the one that the function's annotation says it yields. It
                is the JSON value if there is no annotation, and for a job by name or id.
            after: The id of an item; None for the beginning.

        Raises:
            ValueError: `after` is not the id of an item.
            JobFailed: The job was dead-lettered; raised behind its last item, as the others are that `result` raises.
            JobCancelled: It was cancelled.
            JobNotFound: There is no such job, or its result is no longer kept.
            UnreadablePayload: An item is not of this type, or has no valid signature.
            TypeError: JSON cannot represent this type.
            Unavailable: The server could not be asked at the beginning, or refused us later.

        Cost: 3 round trips to begin with. 0 while waiting. For each batch of items 1 message to the process and 1 round
        trip, shared by all that follow the job in this process; 2 when it has ended.
        """
        position = position_of(after)
        item_type = self._kind.yields if as_type is None else as_type
        converter = Converter(f"an item of the stream of job {self.id}", Any if item_type is None else item_type)
        return follow(self._link.ref, self._link.watches, self.id, position, converter)

    async def cancel(self, *, timeout: Seconds | None = None) -> bool:
        """Cancel the job, and wait until it is certain that it will not run, or has stopped.

        A job that is queued, delayed or waiting will not run. The body of a running one is cancelled, and it is not
        retried; a plain function in a thread cannot be stopped, and runs to its end, or until it looks at
        `ClaimedJob.is_cancelled`. A job with something to undo, see
        `durable.undo`, is undone first, and counts as running until then. Jobs that run after it are dead-lettered.

        Args:
            timeout: Longest wait for a running job to stop, in seconds; None waits forever, 0 does not wait.

        Returns:
            True once it can no longer run or has stopped, whatever its outcome; False if it still runs.

        Cost: 2 round trips. If it runs, 2 more to wait for its end, 0 while waiting, 1 when it has ended. If others run
            after it, 1 and 1 more for each 100 of them.
        """
        seconds = durations.timeout(timeout)
        if await self._cancel(await self._inspect()):
            return True
        if seconds == 0:
            return False
        with anyio.move_on_after(seconds):
            await self._watch(is_cancelling=True)
            return True
        return False

    async def reschedule(self, *, delay: Seconds) -> bool:
        """Change when a job is due that is delayed, or waits for its next attempt or for others.

        The server's clock decides.  `expires` still counts from when the job was enqueued; a job that is delayed is due
        then at the latest.

        Args:
            delay: Seconds until it is due, from now, or for a job that waits for others from when they have succeeded;
                0 for at once.

        Returns:
            True if it was rescheduled; False if it is too late: it is already in its queue, runs, has ended, or does
            not exist.

        Raises:
            ValueError: `delay` is not from 0 to 10 years.

        Cost: 2 round trips; 1 if it is too late.
        """
        delay_ms = milliseconds(durations.delay(delay))
        status, name, _ = await self._inspect()
        if status not in _OUT_OF_QUEUE:
            return status is JobStatus.QUEUED and delay_ms == 0
        keys = self._keys
        queue = keys.queue(name.decode())
        session = self._link.ref.session
        request = session.new_address()
        command = RESCHEDULE(keys, queue, delay_ms=delay_ms, name=queue.name, request=request, ids=[self.id])
        rescheduled: int = await session.run(command)
        return bool(rescheduled)

    async def send(self, name: str, value: object) -> bool:
        """Send the job a message, for which it waits, or will wait, with `durable.wait_for`.

        The first message of a name is kept until the job ends. A job that waits for it is the next in its queue; its
        queue's limits and a pause hold for it, too.

        Args:
            name: What the message is about, of at most 512 bytes.
            value: JSON, or a value that msgspec can encode as JSON, of at most 1 MiB.

        Returns:
            True if it is kept; False if there was one of this name, if the job has waited for it too long or has ended,
            and if there is no such job.

        Raises:
            InvalidPayload: JSON cannot hold the value, or it is larger than 1 MiB.
            MessageRefused: The job has 1,000 messages, or they would exceed 16 MiB.

        Cost: 1 round trip; 2 if the job has left its worker to wait for it.
        """
        session = self._link.ref.session
        message = JobMessage(session, self._keys, self.id, name, value)
        while (kept := message.was_kept(await session.run(message.send()))) is None:
            pass  # it waits in a queue that is known now
        return kept

    async def steps(self) -> list[StepRecord]:
        """The durable steps of the job that are kept, in the order in which they were.

        Empty if it has none, has succeeded or was cancelled.

        Raises:
            UnreadablePayload: One has no valid signature.

        Cost: 1 round trip for each 1 MiB of them.
        """
        return await list_steps(self._link.ref.session, self._keys, self.id)

    async def attempts(self) -> "list[FailedAttempt]":
        """The attempts of the job that failed, the earliest first: each with its error, its times and its worker.

        The latest 20 are kept, and fewer if they have more than 32 KiB: as long as the job, and then as long as its
        result. Empty if none has failed, or they are no longer kept.
        """
        from inconcert.tasks.records.attempts import attempts_of, read_attempts  # noqa: PLC0415 - few jobs are asked

        return read_attempts(await self._link.ref.session.run(attempts_of(self._keys, self.id)))

    async def items(self, *, limit: int = 50) -> list[StreamItem[JSON]]:
        """The latest items of its stream that are kept, the oldest first, whatever the state of the job.

        Empty if it has yielded and emitted nothing, or its stream is no longer kept.

        Args:
            limit: How many at most, 1 to 1,000. There are fewer if they have more than 1 MiB; then the oldest of these.

        Raises:
            UnreadablePayload: An item has no valid signature.
        """
        found = await read_items(self._link.ref.session, self._keys, self.id, "", -whole("limit", limit, most=1_000))
        return [
            StreamItem(Position(found.run, number).id, found.attempt, decode(text))
            for number, text in enumerate(found.texts, found.first)
        ]

    async def dependants(self, *, limit: int = 100) -> list[str]:
        """The ids of the jobs that run after this one, and have not ended or were dead-lettered.

        Args:
            limit: How many at most, 1 to 1,000.
        """
        most = whole("limit", limit, most=1_000)
        pairs = await self._link.ref.session.run(CHILDREN(self._keys, after="", limit=most, is_deep=0, ids=[self.id]))
        return [child.decode() for child in pairs[1::2]]

    # Private.

    @property
    def _keys(self) -> JobKeys:
        """The keys of its partition."""
        return self._link.keyspace.of_id(self.id)

    async def _inspect(self, address: str = "") -> Snapshot:
        return Snapshot.read(await self._link.ref.session.run(Snapshot.take(self._keys, self.id, address)))

    async def _ended(self, timeout: float | None) -> Snapshot:
        """Wait until it has ended."""
        if timeout == 0:
            seen = await self._inspect()
            if not seen.has_ended:
                raise not_in_time(self.id, 0, seen.status)
            return seen
        with anyio.move_on_after(timeout):
            return await self._watch()
        raise not_in_time(self.id, timeout)

    async def _cancel(self, seen: Snapshot) -> bool:
        """Have the server cancel it; returns whether it is certain that it no longer runs."""
        queue = self._keys.queue(seen.about.decode() if seen.status in _OUT_OF_QUEUE else self._kind.queue)
        [answer] = await cancel(self._link.ref.session, self._link.keyspace, self._keys, queue, [self.id])
        return answer != STILL_RUNS

    async def _watch(self, *, is_cancelling: bool = False) -> Snapshot:
        watch = self._link.watches.join(self._link.ref.session, self.id)
        body = BodyWait.begin(self.id, self._kind.queue, self._inspect)
        try:
            while True:
                changed, watch.is_noted = watch.changed, True
                seen = await self._inspect(watch.address)
                # A running one is notified again; one that was requeued, because its worker died, ends here.
                if seen.has_ended or (is_cancelling and await self._cancel(seen)):
                    watch.is_noted = False
                    return seen
                await watch.woken(changed, RECHECK_AFTER if body is None else await body.look())
        finally:
            if body is not None:
                body.end()
            self._link.watches.leave(watch)
