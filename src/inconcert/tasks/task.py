"""A task: a function that can be called later, in another process."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

from inconcert._rules.durations import Seconds
from inconcert._rules.payloads import JSON
from inconcert.tasks.job import Job

__all__ = ["Bound", "Enqueue", "Task"]

P = ParamSpec("P")
R = TypeVar("R")


class Enqueue(Protocol):
    """What a task enqueues its jobs with."""

    async def __call__(
        self,
        name: str,
        args: Sequence[JSON],
        kwargs: Mapping[str, JSON] | None,
        *,
        queue: str,
        delay: Seconds,
        max_attempts: int,
    ) -> Job:
        """Add a job."""
        ...


class Task(Generic[P, R]):
    """A function registered under a name, which workers know it by.

    Calling it runs the function here and now; `enqueue` lets a worker run it.

    Made by `Coordinator.task`:

    ```python
    @concert.task(queue="high")
    async def send_sold_email(seller_id: int, item_id: str) -> None: ...

    job = await send_sold_email.enqueue(17, "sword")
    ```

    Attributes:
        name: By default the function's module and qualified name. Renaming it strands the jobs of the old name.
        function: What was decorated; plain functions run in a thread.
        queue: Where its jobs go.
        max_attempts: How many attempts may fail before a job is set aside.
    """

    def __init__(
        self, enqueue: Enqueue, function: Callable[P, R], *, name: str | None, queue: str, max_attempts: int
    ) -> None:
        self.name = name or f"{function.__module__}.{function.__qualname__}"
        self.function = function
        self.queue = queue
        self.max_attempts = max_attempts
        self.__doc__ = function.__doc__
        self._signature = inspect.signature(function)
        self._enqueue = enqueue

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here and now."""
        return self.function(*args, **kwargs)

    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Let a worker call the function with these arguments, at least once.

        Raises:
            TypeError: The arguments do not fit the function.
            InvalidPayload: An argument is not JSON, or all together are larger than 1 MiB.
            Unavailable: The server could not be asked; nothing was added.
            OutcomeUnknown: The server did not answer; the job may have been added.

        Cost: 1 round trip.
        """
        return await self.options().enqueue(*args, **kwargs)

    def options(self, *, delay: Seconds = 0.0, queue: str | None = None) -> "Bound[P]":
        """The same task, with other options for the jobs that are enqueued through what is returned.

        Args:
            delay: How long the job waits before it may run, in seconds, by the server's clock.
            queue: Where the job goes, instead of the task's own queue.
        """
        return Bound(self, self._enqueue, delay=delay, queue=queue or self.queue)

    def check(self, /, *args: object, **kwargs: object) -> None:
        """Raise TypeError if the arguments do not fit the function."""
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"the arguments do not fit task {self.name!r}{self._signature}: {error}") from None


class Bound(Generic[P]):
    """A task with options for its next jobs."""

    def __init__(self, task: "Task[P, Any]", enqueue: Enqueue, *, delay: Seconds, queue: str) -> None:
        self._task = task
        self._enqueue = enqueue
        self._delay = delay
        self._queue = queue

    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """As `Task.enqueue`, with the options given."""
        task = self._task
        task.check(*args, **kwargs)
        return await self._enqueue(
            task.name,
            cast("Sequence[JSON]", args),  # checked when they are sealed: a signature cannot say "JSON only"
            cast("Mapping[str, JSON]", kwargs),
            queue=self._queue,
            delay=self._delay,
            max_attempts=task.max_attempts,
        )
