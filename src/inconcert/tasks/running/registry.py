"""The tasks of a coordinator, by name."""

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from inconcert._rules.names import check_name
from inconcert.tasks.records.history import Histories
from inconcert.tasks.records.limits import Limit, Rate, TaskLimits
from inconcert.tasks.records.retry import RetryPolicy
from inconcert.tasks.schedules.schedule import Schedule
from inconcert.tasks.sending.enqueue import EnqueueBatcher
from inconcert.tasks.sending.options import Options
from inconcert.tasks.sending.task import Task

P = ParamSpec("P")
R = TypeVar("R")
N = TypeVar("N", Limit, Rate)


class Registry:
    """Knows the functions that jobs run."""

    def __init__(self, enqueuing: EnqueueBatcher, histories: Histories) -> None:
        self._enqueuing = enqueuing
        self._histories = histories
        self.link = enqueuing.link  # how handles of jobs and groups reach these
        self.tasks: dict[str, Task[Any, Any]] = {}  # each by its name
        self.schedules: list[Schedule] = []  # when tasks run on a schedule
        self._named: dict[tuple[type, str | None], Limit | Rate] = {}
        # asked for the task of a job whose name none of these has; it may register one
        self.look_up: Callable[[str], Task[Any, Any] | None] = _nothing

    def register(
        self,
        function: Callable[P, R],
        *,
        name: str | None,
        defaults: Options,
        limits: TaskLimits,
        retrying: RetryPolicy,
    ) -> Task[P, R]:
        """Make a task of a function; raises `ValueError` if a task of this name is registered."""
        task = Task(
            self._enqueuing,
            self._histories,
            function,
            name=name,
            defaults=defaults,
            limits=limits,
            retrying=retrying,
        )
        if check_name("task", task.name) in self.tasks:
            raise ValueError(f"a task {task.name!r} is registered already; give one of them another name=")
        self.tasks[task.name] = task
        return task

    def name_limit(self, limit: N) -> N:
        """Record a limit or a rate that several tasks share.

        Raises:
            ValueError: Another was given for its name.
        """
        known = self._named.setdefault((type(limit), limit.name), limit)
        if known != limit:
            raise ValueError(f"{limit.name!r} is {known} already; give it once, and use what that returns: {limit}")
        return limit

    def schedule(self, schedule: Schedule, *, are_spread: bool = False) -> None:
        """Run a task on a schedule.

        Raises:
            TypeError: It is not a task, or it or its key cannot be called without arguments.
            ValueError: It has what tasks share, which counts in one partition, and its jobs lie in another.
        """
        task = schedule.task
        if not isinstance(task, Task):  # pyright: ignore[reportUnnecessaryIsInstance] - the decorator below was forgotten
            raise TypeError(f"{task!r} is not a task; put @concert.cron(...) on top of @concert.task(...)")
        if are_spread and task.limits.are_shared:
            raise ValueError(
                f"{task!r} has a limit or a rate that tasks share, which counts in one partition, and its scheduled "
                "jobs may lie in another; schedule a task without limits that enqueues it"
            )
        task.arguments.to_json((), {})  # as it will be called
        task.limits.of(task.name, task.defaults.queue, (), {})
        self.schedules.append(schedule)

    @property
    def names(self) -> list[str]:
        """The names of all these, sorted."""
        return sorted(self.tasks)

    @property
    def queues(self) -> set[str]:
        """The default queues of all these."""
        return {task.defaults.queue for task in self.tasks.values()}

    @property
    def queues_of_tasks(self) -> list[tuple[str, str]]:
        """The name of each, with its default queue."""
        return [(name, task.defaults.queue) for name, task in self.tasks.items()]

    @property
    def limits(self) -> Mapping[str, tuple[str, Limit]]:
        """Of each that limits how many of its jobs run at once: its queue, and its limit."""
        return {
            name: (task.defaults.queue, task.limits.limit)
            for name, task in self.tasks.items()
            if task.limits.limit is not None
        }

    @property
    def some_wait_to_be_let_in(self) -> bool:
        """True if jobs of one of these wait in lines from which `tasks/let_in` takes them."""
        return any(task.limits.wait_to_be_let_in for task in self.tasks.values())

    @property
    def some_keys_are_in_order(self) -> bool:
        """True if one of these has keys in strict order."""
        return any(task.limits.key_order for task in self.tasks.values())


def _nothing(_name: str) -> None: ...
