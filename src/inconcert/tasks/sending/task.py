"""A task: a function that can be called later, in another process."""

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload

from inconcert._rules.functions import name_of
from inconcert._rules.names import check_name
from inconcert._rules.payloads import JSON
from inconcert.tasks.following.job import Job
from inconcert.tasks.records.arguments import Arguments
from inconcert.tasks.records.history import EndedJob, Histories
from inconcert.tasks.records.limits import TaskLimits
from inconcert.tasks.records.retry import RetryPolicy
from inconcert.tasks.sending.draft import Draft, Pattern, with_options
from inconcert.tasks.sending.enqueue import EnqueueBatcher
from inconcert.tasks.sending.options import JobOptions, Options, own_terms

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

_PLAIN = Options()


class Task(Generic[P, R_co]):
    """A function registered under a name, by which workers find it.

    Calling it runs the function here and now; `enqueue` has a worker run it. Arguments arrive with their annotated
    types, equal to what was passed; without an annotation they are JSON values.

    Made by `Coordinator.task`:

    ```python
    @concert.task(queue="high")
    async def send_sold_email(seller_id: int, item_id: str) -> None: ...

    job = await send_sold_email.enqueue(17, "sword")
    ```

    Attributes:
        name: By default the function's module and qualified name. Renaming it strands the jobs of the old name. Of a
            script that is run, the module is what others import it as, not `__main__`.
        function: The decorated function; plain functions run in a thread.
        arguments: How its arguments are converted to JSON and back.
        defaults: The options of its jobs.
        limits: How many of its jobs run at once.
        own: Its options that differ from the defaults, by their names in an envelope.
        is_plain: Whether it has neither these nor limits.
        retrying: Which failures are retried, and when.
        is_async: Whether the function is a coroutine function.
        streams: Whether it is an async generator: its items are followed with `Job.stream`.
    """

    def __init__(
        self,
        enqueuing: EnqueueBatcher,
        histories: Histories,
        function: Callable[P, R_co],
        *,
        name: str | None,
        defaults: Options,
        limits: TaskLimits,
        retrying: RetryPolicy,
    ) -> None:
        _check(function)
        self.name = name_of(function) if name is None else name  # also of a task that is refused, where it is shown
        self.name = check_name("task", self.name)
        self.function = function
        self.defaults = defaults
        self.retrying = retrying
        self.limits = limits
        self.is_async = inspect.iscoroutinefunction(function)
        self.streams = inspect.isasyncgenfunction(function)
        self.own = own_terms(defaults)
        self.is_plain = not self.own and not limits
        self.__doc__ = function.__doc__
        self.arguments = Arguments(self.name, function)
        self._enqueuing = enqueuing
        self._histories = histories
        self._bound: Bound[P, Any] = Bound(self, enqueuing, defaults)

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the function here and now."""
        return self.function(*args, **kwargs)

    @overload
    async def enqueue(self: "Task[P, Coroutine[Any, Any, T]]", /, *args: P.args, **kwargs: P.kwargs) -> Job[T]: ...

    @overload
    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]: ...

    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[Any]:
        """Have a worker call the function with these arguments, at least once.

        Raises:
            TypeError: The arguments do not fit the function.
            InvalidPayload: An argument would arrive changed, or all together exceed 1 MiB.

        Cost: 1 round trip. The first of a turn of the event loop is sent at once if nothing is under way; all others
            of the turn share one for each queue.
        """
        return await self._enqueuing.add_one(self._bound.draft(args, kwargs))

    @overload
    def call(self: "Task[P, Coroutine[Any, Any, T]]", /, *args: P.args, **kwargs: P.kwargs) -> Draft[T]: ...

    @overload
    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Draft[R_co]: ...

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Draft[Any]:
        """A job with these arguments that is not enqueued yet, for `Coordinator.enqueue_many`.

        Raises:
            TypeError: The arguments do not fit the function.
            InvalidPayload: An argument would arrive changed, or all together exceed 1 MiB.
        """
        return self._bound.draft(args, kwargs)

    @overload
    def options(self: "Task[P, Coroutine[Any, Any, T]]", **options: Unpack[JobOptions]) -> "Bound[P, T]": ...

    @overload
    def options(self, **options: Unpack[JobOptions]) -> "Bound[P, R_co]": ...

    def options(self, **options: Unpack[JobOptions]) -> "Bound[P, Any]":
        """The same task, with other options for the jobs that are enqueued through the returned one.

        Args:
            **options: Those that differ from the task's own; see `JobOptions`.

        Raises:
            TypeError: There is no option of this name, or `after` is not a list.
            ValueError: A number is out of its range, `after` has more than 100 jobs, or `queue` is not that of
                a task that has limits.
            InvalidName: The queue or the unique name is empty or longer than 512 bytes, or an entry of `after` is not a
                job id.
        """
        changed = self.defaults.changed(**options)
        if self.limits and changed.queue != self.defaults.queue:
            raise ValueError(
                f"task {self.name!r} has limits, which count in its queue {self.defaults.queue!r}; leave queue= out"
            )
        return Bound(self, self._enqueuing, changed)

    async def history(self, *, limit: int = 100) -> list[EndedJob]:
        """List how its last jobs have ended, in whatever way, the latest first.

        The server keeps as many as `history=` of `Coordinator.task` says, in each partition; those that ended more than
        90 days ago may be gone.

        Args:
            limit: How many at most, 1 to 10,000.

        Raises:
            ValueError: `limit` is out of its range, or the task has no `history=`.

        Cost: 1 round trip for each 250, or 1 MiB, in each partition; 2 if their reply has more than 16 KiB.
        """
        if not self.defaults.history:
            raise ValueError(f"task {self.name!r} keeps no history; give @concert.task a history=, such as history=100")
        return await self._histories.latest(self.name, limit)


class Bound(Generic[P, T]):
    """A task with options for its next jobs, whose results are of type `T`."""

    def __init__(self, task: "Task[P, Any]", enqueuing: EnqueueBatcher, options: Options) -> None:
        self._task = task
        self._arguments = task.arguments
        self._enqueuing = enqueuing
        self._options = options
        self._limits = task.limits or None
        # Of jobs that differ in nothing but their arguments.
        is_plain = self._limits is None and options.at is None
        self._pattern = self._pattern_with(options) if is_plain else None

    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[T]:
        """As `Task.enqueue`, with these options."""
        return await self._enqueuing.add_one(self.draft(args, kwargs))

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Draft[T]:
        """As `Task.call`, with these options."""
        return self.draft(args, kwargs)

    def draft(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Draft[T]:
        """As `call`, with all arguments."""
        pattern = self._pattern
        if pattern is not None and (sealed := self._arguments.seal(args, kwargs)) is not None:
            if self._enqueuing.middlewares:
                pattern = self._pattern_with(self._enqueuing.with_headers(self._task.name, self._options))
            return Draft(pattern, sealed + pattern.terms)
        values, named = self._arguments.to_json(args, kwargs)
        options = self._enqueuing.with_headers(self._task.name, self._options)
        limits = ""
        if self._limits is not None:
            limits = self._limits.of(self._task.name, options.queue, args, kwargs, expires=options.expires)
        return self._pattern_with(options, limits).draft(values, named)

    def _pattern_with(self, options: Options, limits: str = "") -> Pattern[T]:
        types = self._arguments
        return Pattern(self._task.name, options, limits=limits, returns=types.returns, yields=types.yields)


def name_of_task(task: Task[..., Any] | str) -> str:
    """The name of a task that is given itself, or by its name.

    Raises:
        InvalidName: It is neither, or the name is empty or longer than 512 bytes.
    """
    return task.name if isinstance(task, Task) else check_name("task", task)


def draft_of(
    task: Task[..., Any] | str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    options: JobOptions,
    *,
    enqueuing: EnqueueBatcher | None = None,  # adds headers to a job by name; a task has its own
) -> Draft[JSON]:
    """A job of a task that is given itself, or by its name: then its arguments are JSON values, as its result is."""
    if isinstance(task, Task):
        draft: Draft[Any] = task.options(**options).call(*args, **(kwargs or {}))
        return with_options(draft, draft.options)
    name, chosen = check_name("task", task), _PLAIN.changed(**options)
    if enqueuing is not None:
        chosen = enqueuing.with_headers(name, chosen)
    return Pattern[JSON](name, chosen, is_by_name=True).draft(args, kwargs or {})


def _check(function: object) -> None:
    """Raise TypeError if this cannot be a task."""
    if isinstance(function, Task):
        raise TypeError(f"{function!r} is a task already; put one @concert.task on a function")
    if inspect.isclass(function) or not callable(function):
        raise TypeError(f"{function!r} is not a function; put @concert.task on a function, and options into task(...)")
    if _is_method(function):
        raise TypeError(
            f"{function!r} is a method, and a job has no object to call it on; put @concert.task on a function, which "
            "makes or finds the object"
        )
    if inspect.isgeneratorfunction(function):
        raise TypeError(f"{function!r} is a generator function; write it with async def, or let it return a list")


def _is_method(function: Callable[..., object]) -> bool:
    """True if it was defined in a class, and takes the object or the class; a bound method has it already."""
    if not inspect.isfunction(function) or "." not in function.__qualname__:
        return False
    parameters = list(inspect.signature(function).parameters)
    is_in_class = not function.__qualname__.rpartition(".")[0].endswith("<locals>")
    return is_in_class and parameters[:1] in (["self"], ["cls"])
