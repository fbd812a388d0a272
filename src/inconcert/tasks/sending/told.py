"""The choice of the task that is told of the deaths of jobs: one that takes a `DeadJob`."""

from typing import Any

from inconcert.errors import InvalidPayload
from inconcert.tasks.records.deaths import DeadJob
from inconcert.tasks.records.store import JobKeyspace
from inconcert.tasks.sending.task import Task

_SOME = DeadJob(id="1.1.0", task="task", args=[1], kwargs={"name": 1}, reason="ValueError", attempts=1)


def told_of_deaths(on_dead: Task[..., Any], jobs: JobKeyspace) -> tuple[str, str]:
    """The name and the queue of a task that is given as `on_dead=`, as they stand in envelopes.

    Raises:
        TypeError: It is not a task, or does not take a `DeadJob`.
        ValueError: It has limits, and jobs are spread over several partitions.
    """
    if not isinstance(on_dead, Task):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
        raise TypeError(f"on_dead is {on_dead!r}; give a task, such as one that notifies somebody")
    try:
        on_dead.arguments.to_json((_SOME,), {})
    except (TypeError, InvalidPayload) as error:
        raise TypeError(f"on_dead is {on_dead!r}, which does not take one argument, a DeadJob: {error}") from error
    if on_dead.limits and len(jobs.partitions) > 1:
        raise ValueError(
            f"on_dead is {on_dead!r}, which has limits, and these count in one partition; where jobs are spread over "
            "several, let it enqueue a task that has limits"
        )
    return on_dead.name, on_dead.defaults.queue
