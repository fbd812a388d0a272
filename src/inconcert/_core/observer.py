"""The observer of metrics and traces: it learns of each event in this process when it happens.

`Observers` are made with each coordinator and producer, and are empty unless somebody measures.  What has something to
tell calls a method of theirs, or tests them first, so it costs one test when nobody listens.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from inconcert._redis.wire.background import attempt

StepOutcome = Literal["ran", "kept", "failed"]
"""What became of a step: it ran and was kept; it was kept before; it failed, or could not be kept."""


class ObservedJob(Protocol):
    """A claimed job, as an observer sees it. Instants are in seconds since 1970 by the server's clock."""

    id: str
    queue: str
    attempt: int
    enqueued_at: float
    claimed_at: float
    started_at: float
    """By the local monotonic clock; 0 if it has not started."""

    @property
    def outcome(self) -> str:
        """The end of this attempt, in the words of `ClaimedJob.outcome`."""
        ...

    @property
    def task(self) -> str:
        """The name of its task."""
        ...

    @property
    def due_at(self) -> float | None:
        """The instant for which it was enqueued; None if it was to run at once, or after others."""
        ...

    @property
    def is_dependent(self) -> bool:
        """True if it runs after others."""
        ...

    @property
    def was_begun(self) -> bool:
        """True if steps of it were kept before this run; known once its body has asked for one."""
        ...

    @property
    def begins_anew(self) -> bool:
        """True if it was given back, and nothing of this run is kept: the next one is as if this had not been."""
        ...

    @property
    def trace(self) -> str:
        """The trace context in which it was enqueued, as a W3C `traceparent`; empty for none."""
        ...


class ObservedLease(Protocol):
    """A lease, as an observer sees it."""

    kind: str
    name: str
    metrics_name: str
    """The name that it has in metrics; empty for none."""


class Enqueueing(Protocol):
    """Jobs on their way to the server, as a tracer sees them."""

    trace: str
    """The trace context that travels with the jobs, as a W3C `traceparent`; empty for none."""

    def end(self, ids: Sequence[str], error: BaseException | None) -> None:
        """The jobs with these ids were enqueued, or were not because of this error."""


class Observer:
    """Is told what happens, on the event loop or the thread where it happens.

    This one does nothing: override the methods of interest.
    """

    def enqueue_begins(self, task: str, queue: str, count: int) -> Enqueueing | None:
        """So many jobs are about to be enqueued, the first of this task to this queue; returns what traces them."""
        del task, queue, count
        return None

    def job_enqueued(self, task: str, queue: str) -> None:
        """The server has a new job."""

    def job_started(self, job: ObservedJob) -> None:
        """The body of a job begins, in this context."""

    def job_ended(self, job: ObservedJob) -> None:
        """A job has its outcome; it may never have started."""

    def job_left(self, job: ObservedJob, error: BaseException | None) -> None:
        """The body of a job has ended, with this error."""

    def step_started(self, job: ObservedJob, name: str, function: str) -> None:
        """A step of a job that was not kept begins, in this context; what durable itself keeps is of `durable...`."""

    def step_left(self, job: ObservedJob, name: str, error: BaseException | None) -> None:
        """It has ended, with this error."""

    def step_ended(self, job: ObservedJob, outcome: StepOutcome) -> None:
        """The body of a job has called a durable step."""

    def step_suspends(self, job: ObservedJob, name: str, seconds: float) -> None:
        """The body of a job leaves at this sleep or wait, to be back in so many seconds at the latest."""

    def items_added(self, job: ObservedJob, count: int) -> None:
        """The server has so many new items of the stream of a job."""

    def jobs_recovered(self, queue: str, requeued: int, dead: int) -> None:
        """So many jobs of a dead worker were requeued, and so many dead-lettered."""

    def schedules_unread(self, count: int) -> None:
        """So many schedules that were due could not be read here; others may follow them."""

    def worker_started(self, places: int) -> None:
        """A worker begins that runs up to so many jobs at once."""

    def worker_ended(self, places: int) -> None:
        """It has ended."""

    def lease_acquired(self, lease: ObservedLease, waited: float) -> None:
        """A lease was acquired after so many seconds."""

    def lease_ended(self, lease: ObservedLease, held: float, *, is_lost: bool) -> None:
        """A lease was released, or lost, after so many seconds."""

    def reconnected(self) -> None:
        """A connection for commands is back after a loss."""


class Observers(list[Observer], Observer):
    """All observers as one, false if there is none: it passes every call to each of them, in their order.

    What one of them raises is logged, and disturbs neither the others nor the work.  A method returns the first answer
    that is not None.  Ask `if observers:` before what is told needs work, as where a job or a lease ends.
    """


def _tell_each(method: str) -> Callable[..., object]:
    what = f"telling an observer of {method}"

    def tell(self: Observers, *args: object, **kwargs: object) -> object:
        answers: list[object] = []

        def tell_one(observer: Observer) -> None:
            answers.append(getattr(observer, method)(*args, **kwargs))

        for observer in list(self):
            attempt(what, tell_one, observer)
        return next((answer for answer in answers if answer is not None), None)

    return tell


for _method in [name for name in vars(Observer) if not name.startswith("_")]:
    setattr(Observers, _method, _tell_each(_method))
