"""The tasks of a coordinator, by name, and the way in for their jobs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from inconcert._core.session import Access
from inconcert._rules import durations
from inconcert._rules.durations import Seconds, milliseconds
from inconcert._rules.names import check_name
from inconcert._rules.payloads import JSON
from inconcert.errors import UnknownTask
from inconcert.tasks.envelope import Envelope, seal
from inconcert.tasks.job import Job
from inconcert.tasks.store import ENQUEUE, JobKeys
from inconcert.tasks.task import Task

__all__ = ["Registry"]

P = ParamSpec("P")
R = TypeVar("R")


class Registry:
    """Registers tasks and enqueues jobs.

    Args:
        access: The way to the open session.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._keys = JobKeys(access.keys)
        self._tasks: dict[str, Task[Any, Any]] = {}

    def register(self, function: Callable[P, R], *, name: str | None, queue: str, max_attempts: int) -> Task[P, R]:
        """Make a task of a function.

        Raises:
            ValueError: A task of this name is registered, or `max_attempts` is below 1.
            InvalidName: The name or the queue is empty or longer than 512 bytes.
        """
        _check_max_attempts(max_attempts)
        self._keys.queue(queue)
        task = Task(self.enqueue, function, name=name, queue=queue, max_attempts=max_attempts)
        if check_name("task", task.name) in self._tasks:
            raise ValueError(f"a task {task.name!r} is registered already; give one of them another name=")
        self._tasks[task.name] = task
        return task

    def find(self, name: str) -> Task[Any, Any]:
        """The task of this name.

        Raises:
            UnknownTask: There is none.
        """
        task = self._tasks.get(name)
        if task is None:
            raise UnknownTask(name)
        return task

    async def enqueue(
        self,
        name: str,
        args: Sequence[JSON] = (),
        kwargs: Mapping[str, JSON] | None = None,
        *,
        queue: str,
        delay: Seconds,
        max_attempts: int,
    ) -> Job:
        """Add a job; see `Coordinator.enqueue`."""
        place = self._keys.queue(queue)
        delay_ms = milliseconds(durations.delay(delay))
        _check_max_attempts(max_attempts)
        text = seal(Envelope(check_name("task", name), args, kwargs or {}, max_attempts))
        session = self._access.session
        job_id = session.new_address()
        await session.run(ENQUEUE, (self._keys.bodies, place.queue, place.bell, place.delayed), job_id, text, delay_ms)
        return Job(job_id)


def _check_max_attempts(max_attempts: int) -> None:
    if type(max_attempts) is not int or max_attempts < 1:
        raise ValueError(f"max_attempts is {max_attempts!r}; give a whole number from 1")
