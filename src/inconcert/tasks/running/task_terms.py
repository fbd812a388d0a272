"""The terms of a task for its jobs: the options and limits of jobs whose enqueuer did not know their task.

Such are jobs by name, and those of a release in which the task had other options.  The worker that claims the job
knows the task.  Most options it reads before it runs the job.  What scripts judge, the limits, the crashes, the history
and who is told of its death, they must find in the stored job: if the job lacks it, the worker stores the job again, as
its task would have enqueued it, and puts it back; its next claim is judged by that.

Source: docs/explanation/limits.md
"""

from typing import Any

from msgspec.structs import replace

from inconcert._rules.defaults import DEFAULT_QUEUE
from inconcert.tasks.records.envelope import Envelope, marks_of
from inconcert.tasks.records.history import history_note
from inconcert.tasks.sending.options import Options
from inconcert.tasks.sending.task import Task

_PLAIN = Options()


def completed(envelope: Envelope, task: Task[Any, Any]) -> Envelope:
    """The envelope with all that it does not say as its task has it, but for limits."""
    missing = {
        name: value
        for name, value in task.own.items()
        if getattr(envelope, name) == getattr(_PLAIN, name) and name not in envelope.given
    }
    return replace(envelope, **missing) if missing else envelope


def within_deadline(envelope: Envelope, deadline: float) -> Envelope:
    """The envelope whose attempts take no longer than the whole job may, in seconds."""
    limit = envelope.time_limit
    return replace(envelope, time_limit=deadline if limit is None else min(limit, deadline))


def queue_of(envelope: Envelope, queue: str, task: Task[Any, Any]) -> str:
    """The queue in which a job that is stored again belongs: its task's, if it lies in the default one unasked."""
    return task.defaults.queue if queue == DEFAULT_QUEUE and "queue" not in envelope.given else queue


def lacking(said: Envelope, queue: str, task: Task[Any, Any]) -> tuple[bytes, Envelope] | None:
    """The part of a job for scripts, and its envelope, if its stored form lacks terms; None if it has all.

    Raises:
        Exception: The arguments do not fit the function, or what its `key=` raises.
    """
    limits, complete = said.limits, completed(said, task)
    if task.limits and not limits:
        args, kwargs = task.arguments.from_json(said.args, said.kwargs)
        limits = task.limits.of(task.name, queue, args, kwargs, expires=complete.expires)
    if limits == said.limits and (complete is said or _judged(complete) == _judged(said)):
        return None
    note = history_note(task.name, complete.history, has_arguments=complete.history_arguments)
    rank = complete.priority
    marks = marks_of(complete.max_crashes, limits, history=note, priority=rank, debounced=complete.debounced)
    return marks, replace(complete, limits=limits)


def _judged(envelope: Envelope) -> tuple[object, ...]:
    """Its terms that scripts judge, beside its limits."""
    return envelope.max_crashes, envelope.history, envelope.history_arguments, envelope.on_dead
