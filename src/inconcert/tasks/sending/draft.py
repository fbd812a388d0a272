"""A job on its way in: what is stored of it, and the commands that enqueue it."""

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Generic, NamedTuple, Self, TypeVar

from inconcert._core.origin import Origin
from inconcert._redis.protocol.commands import Argument
from inconcert._redis.protocol.scripts import Command
from inconcert._rules.durations import milliseconds
from inconcert._rules.payloads import JSON
from inconcert._rules.signing import KeyRing
from inconcert.tasks.records.envelope import JOB, Call, seal, with_trace
from inconcert.tasks.records.store import ENQUEUE, ENQUEUE_AFTER, ENQUEUE_PLAIN, JobKeys, JobKeyspace
from inconcert.tasks.sending.options import Options

__all__ = ["Draft", "NewJob", "check_partition", "enqueue", "enqueue_plain", "stored_as"]

R_co = TypeVar("R_co", covariant=True)

_ID_AND_TEXT = attrgetter("id", "text")


class Draft(Generic[R_co]):
    """A job that is not enqueued yet: a task, its arguments, and its options.

    Made by `Task.call`, for `Coordinator.enqueue_many`.

    Raises:
        InvalidPayload: An argument is not JSON, or all together exceed 1 MiB.
    """

    __slots__ = ("_among", "_is_plain", "limits", "name", "options", "returns", "text", "yields")

    def __init__(
        self,
        name: str,
        args: Sequence[JSON],
        kwargs: Mapping[str, JSON],
        options: Options,
        *,
        scheduled_at: float | None = None,
        limits: str = "",
        is_by_name: bool = False,
        sealed: bytes = b"",
        returns: type[R_co] | None = None,
        yields: type[object] | None = None,
    ) -> None:
        self.name = name
        self.options = options
        self.limits = limits
        self._is_plain = options.are_plain and not limits
        # The task in whose partition it lies; empty for any. A job by name may be one of a task with limits.
        self._among = name if limits or (is_by_name and options.unique is None) else ""
        self.returns = returns
        self.yields = yields
        if sealed:  # its call, as `Arguments.seal` returns it
            self.text = sealed + options.terms
        else:
            at = options.at if scheduled_at is None else scheduled_at
            self.text = seal(Call(name, args, kwargs, limits, at), options.terms)

    def __repr__(self) -> str:
        return f"<Draft of {self.name!r}>"


def check_partition(draft: Draft[Any], keys: JobKeys) -> None:
    """Raise ValueError if the task has limits, and they may count in another partition than this one."""
    if draft.limits and keys.suffix:
        raise ValueError(
            f"{draft!r} has limits, which count in one partition; where jobs are spread over several, it cannot be "
            "in a group or follow a job: let a task without limits enqueue it"
        )


def stored_as(draft: Draft[Any], job_id: str, key_ring: KeyRing, trace: str) -> bytes:
    """What is stored of a draft as the job of this id, enqueued in this trace context."""
    text = draft.text
    if trace:
        text = with_trace(text, trace)
    if key_ring.signs:
        text = key_ring.sign(JOB, job_id, text)
    if draft.limits or draft.options.are_marked:
        return draft.options.marks(draft.name, draft.limits) + text
    return text


class NewJob(NamedTuple):
    """A draft that has an id, and by that a partition."""

    id: str
    keys: JobKeys  # of its partition
    draft: Draft[Any]
    text: bytes  # signed, if there are keys
    trace: str = ""

    @property
    def follows_elsewhere(self) -> bool:
        """Whether it runs after jobs of other partitions."""
        return not all(parent.endswith(self.keys.suffix) for parent in self.draft.options.after)

    @classmethod
    def of(cls, draft: Draft[Any], origin: Origin, jobs: JobKeyspace, *, trace: str = "") -> Self:
        """The job of this draft, enqueued in this trace context: each call makes another one."""
        id_, keys = jobs.draw(origin.new_address(), draft.options.unique, among=draft._among)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        return cls(id_, keys, draft, stored_as(draft, id_, origin.key_ring, trace), trace)

    @classmethod
    def beside(cls, draft: Draft[Any], origin: Origin, keys: JobKeys, *, trace: str = "") -> Self:
        """As `of`, in this partition."""
        return cls.under(keys.id_at(origin.new_address()), draft, origin, keys, trace=trace)

    @classmethod
    def under(cls, id_: str, draft: Draft[Any], origin: Origin, keys: JobKeys, *, trace: str = "") -> Self:
        """As `beside`, with this id.

        Raises:
            ValueError: Its task has limits, which count in another partition.
        """
        check_partition(draft, keys)
        return cls(id_, keys, draft, stored_as(draft, id_, origin.key_ring, trace))


def enqueue(keys: JobKeys, queue: str, batch: Sequence[NewJob]) -> Command:
    """The command that enqueues these jobs to a queue in this partition.

    It answers for each job with nothing, or with the id of the live job that has its unique name.

    Args:
        keys: The keys of the partition.
        queue: The name of the queue.
        batch: One job, or several that do not run after others.
    """
    if batch[0].draft.options.after:
        return _enqueue_after(keys, queue, batch[0])
    jobs: list[Argument] = []
    for job in batch:
        options = job.draft.options
        jobs += (job.id, job.text, options.delay_ms(), options.unique or "", milliseconds(options.unique_for))
    results = keys.results(job.id for job in batch)
    return ENQUEUE(keys, keys.queue(queue), results=results, queue_name=queue, jobs=jobs)


def enqueue_plain(keys: JobKeys, queue: str, batch: Sequence[NewJob], session: Origin) -> Command:
    """As `enqueue`, of plain jobs, whose ids this session has drawn: all of them are added."""
    jobs = chain.from_iterable(map(_ID_AND_TEXT, batch))
    number = session.next_request(keys.bodies)
    return ENQUEUE_PLAIN(keys, keys.queue(queue), queue_name=queue, session=session.id, number=number, jobs=jobs)


def _enqueue_after(keys: JobKeys, queue: str, job: NewJob) -> Command:
    options = job.draft.options
    parents = tuple(dict.fromkeys(options.after))
    return ENQUEUE_AFTER(
        keys,
        keys.queue(queue),
        result=keys.result(job.id),
        results=keys.results(parent for parent in parents if parent.endswith(keys.suffix)),
        queue_name=queue,
        id=job.id,
        envelope=job.text,
        delay_ms=options.delay_ms(),
        name=options.unique or "",
        window_ms=milliseconds(options.unique_for),
        suffix=keys.suffix,
        even_if=options.even_if or "",
        after=parents,
    )
