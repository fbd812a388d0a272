"""A job on its way in: its stored form, and the commands that enqueue it."""

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Generic, Self, TypeVar

import msgspec

from inconcert._core.origin import Origin
from inconcert._redis.protocol.commands import Argument
from inconcert._redis.protocol.scripts import Command
from inconcert._rules.durations import milliseconds
from inconcert._rules.payloads import JSON
from inconcert._rules.signing import KeyRing
from inconcert.tasks.following.job import JobKind
from inconcert.tasks.records.envelope import JOB, Call, seal, with_trace
from inconcert.tasks.records.limits import home_of
from inconcert.tasks.records.store import (
    ENQUEUE,
    ENQUEUE_AFTER,
    ENQUEUE_OWN,
    ENQUEUE_PLAIN,
    JobKeys,
    JobKeyspace,
)
from inconcert.tasks.sending.options import Options

R_co = TypeVar("R_co", covariant=True)

_ID_AND_TEXT = attrgetter("id", "text")


class Pattern(Generic[R_co]):
    """The common part of jobs that differ in nothing but their arguments: made once for many.

    Args:
        name: The name of their task.
        options: Their options.
        limits: Their limits, as an envelope has them.
        is_by_name: Whether they are enqueued by the name of their task.
        returns: The type that their results are read as; None for JSON values.
        yields: The type that the items of their streams are read as; None for JSON values.

    Attributes:
        is_plain: Whether one may run at once, and is known by its id alone.
        kind: The facts that their handles have.
        alike: Equal for jobs that may go in one script: their options, and whether they are plain.
        among: The task in whose partition they lie; empty for any.
        terms: How the options stand in an envelope.
        marks: What scripts read of them, before the envelope.
    """

    __known_as__ = "Draft"  # which JSON cannot hold because of this

    __slots__ = ("alike", "among", "is_plain", "kind", "limits", "marks", "name", "options", "terms")

    def __init__(
        self,
        name: str,
        options: Options,
        *,
        limits: str = "",
        is_by_name: bool = False,
        returns: type[R_co] | None = None,
        yields: type[object] | None = None,
    ) -> None:
        self.name = name
        self.options = options
        self.limits = limits
        self.is_plain = options.are_plain and not limits
        self.kind = JobKind(options.queue, returns, yields)
        self.alike = (options, self.is_plain)
        # By name, it may have limits.
        self.among = home_of(name, limits) if limits or (is_by_name and options.unique is None) else ""
        self.terms = options.terms
        self.marks = options.marks(name, limits) if limits or options.are_marked else b""

    def draft(
        self, args: Sequence[JSON], kwargs: Mapping[str, JSON], *, scheduled_at: float | None = None
    ) -> "Draft[R_co]":
        """A job with these arguments.

        Raises:
            InvalidPayload: An argument is not JSON, or all together exceed 1 MiB.
        """
        at = self.options.at if scheduled_at is None else scheduled_at
        return Draft(self, seal(Call(self.name, args, kwargs, self.limits, at), self.terms))


class Draft(msgspec.Struct, Generic[R_co], frozen=True, eq=False):
    """A job that is not enqueued yet: a task, its arguments, and its options.

    Made by `Task.call`, for `Coordinator.enqueue_many`.
    """

    pattern: Pattern[R_co]
    text: bytes

    def __repr__(self) -> str:
        return f"<Draft of {self.name!r}>"

    @property
    def name(self) -> str:
        """The name of its task."""
        return self.pattern.name

    @property
    def options(self) -> Options:
        """Its options."""
        return self.pattern.options

    @property
    def limits(self) -> str:
        """Its limits, as its envelope has them."""
        return self.pattern.limits


def with_options(draft: Draft[R_co], options: Options) -> Draft[R_co]:
    """The same call with other options, in the same partition; its result is a JSON value."""
    pattern = Pattern[R_co](draft.name, options, limits=draft.limits)
    pattern.among = draft.pattern.among
    return Draft(pattern, draft.text.removesuffix(draft.pattern.terms) + pattern.terms)


def check_partition(draft: Draft[Any], keys: JobKeys) -> None:
    """Raise ValueError if the task has limits, and they may count in another partition than this one."""
    if draft.limits and keys.suffix:
        raise ValueError(
            f"{draft!r} has limits, which count in one partition; where jobs are spread over several, it cannot be "
            "in a group or follow a job: let a task without limits enqueue it"
        )


def stored_as(draft: Draft[Any], job_id: str, key_ring: KeyRing, trace: str) -> bytes:
    """The stored form of a draft as the job of this id, enqueued in this trace context."""
    text = draft.text
    if trace:
        text = with_trace(text, trace)
    if key_ring.signs:
        text = key_ring.sign(JOB, job_id, text)
    return draft.pattern.marks + text


class NewJob(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A draft that has an id, and by that a partition."""

    id: str
    keys: JobKeys  # of its partition
    draft: Draft[Any]
    text: bytes  # signed, if there are keys
    trace: str = ""

    @property
    def follows_elsewhere(self) -> bool:
        """True if it runs after jobs of other partitions."""
        return not all(parent.endswith(self.keys.suffix) for parent in self.draft.options.after)

    @classmethod
    def of(cls, draft: Draft[Any], origin: Origin, jobs: JobKeyspace, *, trace: str = "") -> Self:
        """The job of this draft, enqueued in this trace context: each call makes another one."""
        pattern = draft.pattern
        id_, keys = jobs.draw(origin.new_address(), pattern.options.unique, pattern.among)
        return cls(id_, keys, draft, stored_as(draft, id_, origin.key_ring, trace), trace)

    @classmethod
    def named(cls, draft: Draft[Any], origin: Origin, jobs: JobKeyspace, *, trace: str = "") -> Self:
        """As `of`; one whose caller has chosen its id has that, and lies in the partition that follows from it.

        Raises:
            ValueError: Its task has limits, or may have some, which count in another partition.
        """
        id_ = draft.options.id
        if id_ is None:
            return cls.of(draft, origin, jobs, trace=trace)
        keys = jobs.of_id(id_)
        if draft.pattern.among and keys.suffix:
            raise ValueError(
                f"{draft!r} has id=, and its task has limits, or may have some, as it is given by name; where jobs are "
                "spread over several partitions leave id= out, or give a task without limits"
            )
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


def enqueue_own(keys: JobKeys, queue: str, job: NewJob, request: str) -> Command:
    """The command that enqueues a job whose caller has chosen its id; it answers as that of `enqueue` does.

    Args:
        keys: The keys of the partition.
        queue: The name of the queue.
        job: The job.
        request: A token of this call: the id may come again with another.
    """
    return ENQUEUE_OWN(
        keys,
        keys.queue(queue),
        result=keys.result(job.id),
        stream=keys.stream(job.id),
        items=keys.items(job.id),
        queue_name=queue,
        request=request,
        id=job.id,
        envelope=job.text,
        delay_ms=job.draft.options.delay_ms(),
    )


def refuse_id(draft: Draft[Any], what: str) -> None:
    """Raise ValueError if the caller has chosen the id of this, which such a job cannot have."""
    if draft.options.id is not None:
        raise ValueError(f"{draft!r} has id=, which {what} cannot have; give it a header, or enqueue it by itself")


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
