"""The coordinator's side of tasks: register, schedule, enqueue, run, operate."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from inconcert._core.made_once import MadeOnce
from inconcert._core.session import SessionRef
from inconcert._rules.defaults import (
    DEFAULT_GRACE,
    DEFAULT_QUEUE,
    HEARTBEAT_LEASE,
    MAX_ATTEMPTS,
    MAX_CRASHES,
    PRIORITY,
    RESULT_TTL,
    UNKNOWN_TASK_GRACE,
)
from inconcert._rules.durations import Seconds
from inconcert._rules.payloads import JSON

if TYPE_CHECKING:  # imported with the first task
    from datetime import datetime

    from inconcert._claims.consumer import Guarantee
    from inconcert.tasks.following.job import Job
    from inconcert.tasks.front.parts import TaskParts
    from inconcert.tasks.operating.admin import Tasks
    from inconcert.tasks.records.deaths import DeadJob
    from inconcert.tasks.records.limits import JobCost, JobKey, KeyOnDead, KeyOrder, Limit, Rate
    from inconcert.tasks.records.retry import Backoff
    from inconcert.tasks.records.store import JobKeyspace
    from inconcert.tasks.running.claimed_job import ClaimedJob
    from inconcert.tasks.running.consumer import Consumer
    from inconcert.tasks.running.health import WorkerHealth
    from inconcert.tasks.running.registry import Registry
    from inconcert.tasks.running.unknown_tasks import UnknownTasks
    from inconcert.tasks.schedules.schedule import Missed, Overlap
    from inconcert.tasks.schedules.schedules import Schedules
    from inconcert.tasks.sending.draft import Draft
    from inconcert.tasks.sending.enqueue import EnqueueMiddleware
    from inconcert.tasks.sending.group import Group, GroupWhen
    from inconcert.tasks.sending.group_calls import Calls
    from inconcert.tasks.sending.options import JobOptions
    from inconcert.tasks.sending.task import Task

P = ParamSpec("P")
R = TypeVar("R")
L = TypeVar("L", bound=Callable[[], AbstractAsyncContextManager[object]])


class TaskCoordinator:
    """The part of a coordinator that is about tasks."""

    def __init__(
        self, ref: SessionRef, partitions: int, *, heartbeat_lease: float = HEARTBEAT_LEASE, count_jobs: bool = True
    ) -> None:
        self._ref = ref
        self._partitions = partitions
        self._heartbeat_lease = heartbeat_lease
        self._counts_jobs = count_jobs

    @MadeOnce
    def _parts(self) -> "TaskParts":
        from inconcert.tasks.front.parts import TaskParts

        return TaskParts(self._ref, self._partitions)

    @property
    def _jobs(self) -> "JobKeyspace":
        return self._parts.keyspace

    @property
    def _registry(self) -> "Registry":
        return self._parts.registry

    @property
    def tasks(self) -> "Tasks":
        """Operators' calls: inspect, replay, purge, pause. See `Tasks`."""
        return self._parts.tasks

    @property
    def schedules(self) -> "Schedules":
        """Schedules that operators change while workers run. See `Schedules`."""
        return self._parts.schedules

    def limit(self, name: str, jobs: int) -> "Limit":
        """Limit how many jobs of several tasks run at once, in any queues and over all workers.

        ```python
        openai = concert.limit("openai", 20)


        @concert.task(limit=openai)
        async def summarize(text: str) -> str: ...


        @concert.task(queue="chat", limit=openai)
        async def answer(question: str) -> str: ...
        ```

        Processes that give the same name share it. If they give other numbers, that of the job which was enqueued last
        counts for all.

        Args:
            name: Its name; it may be given again, with the same number.
            jobs: How many, 1 or more.

        Returns:
            What `limit=` of `task` takes.

        Raises:
            ValueError: `jobs` is out of its range, or another number was given for this name.
        """
        from inconcert.tasks.records.limits import Limit

        return self._registry.name_limit(Limit(jobs, name=name))

    def rate(self, name: str, jobs: int, *, per: Seconds, burst: int | None = None) -> "Rate":
        """Limit how many jobs of several tasks begin in a period, in any queues and over all workers.

        Args:
            name: As for `limit`.
            jobs: How many in a period, as for `Rate`; with `cost=` of `task`, how much they may take.
            per: The period, in seconds.
            burst: How many may begin at once after a quiet time; None for as many as `jobs`.

        Returns:
            What `rate=` of `task` takes.

        Raises:
            ValueError: A number is out of its range, or others were given for this name.
        """
        from inconcert.tasks.records.limits import Rate

        return self._registry.name_limit(Rate(jobs, per, burst, name=name))

    @overload
    def task(self, function: Callable[P, R], /) -> "Task[P, R]": ...

    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        queue: str = DEFAULT_QUEUE,
        name: str | None = None,
        priority: int = PRIORITY,
        max_attempts: int = MAX_ATTEMPTS,
        max_crashes: int = MAX_CRASHES,
        result_ttl: Seconds = RESULT_TTL,
        expires: Seconds | None = None,
        deadline: Seconds | None = None,
        time_limit: Seconds | None = None,
        retry_on: tuple[type[Exception], ...] = (Exception,),
        backoff: "Backoff | None" = None,
        limit: "Limit | None" = None,
        rate: "Rate | None" = None,
        key: "JobKey | None" = None,
        key_limit: int | None = None,
        share: bool = False,
        key_order: "KeyOrder | None" = None,
        key_on_dead: "KeyOnDead | None" = None,
        cost: "JobCost | None" = None,
        history: int = 0,
        history_arguments: bool = False,
        on_dead: "Task[[DeadJob], Any] | None" = None,
    ) -> "Callable[[Callable[P, R]], Task[P, R]]": ...

    def task(
        self,
        function: Callable[..., object] | None = None,
        /,
        *,
        queue: str = DEFAULT_QUEUE,
        name: str | None = None,
        priority: int = PRIORITY,
        max_attempts: int = MAX_ATTEMPTS,
        max_crashes: int = MAX_CRASHES,
        result_ttl: Seconds = RESULT_TTL,
        expires: Seconds | None = None,
        deadline: Seconds | None = None,
        time_limit: Seconds | None = None,
        retry_on: tuple[type[Exception], ...] = (Exception,),
        backoff: "Backoff | None" = None,
        limit: "Limit | None" = None,
        rate: "Rate | None" = None,
        key: "JobKey | None" = None,
        key_limit: int | None = None,
        share: bool = False,
        key_order: "KeyOrder | None" = None,
        key_on_dead: "KeyOnDead | None" = None,
        cost: "JobCost | None" = None,
        history: int = 0,
        history_arguments: bool = False,
        on_dead: "Task[[DeadJob], Any] | None" = None,
    ) -> object:
        """Register a function for workers to run: `@concert.task` or `@concert.task(queue="high")`. See `Task`.

        Args:
            function: A coroutine function, or a plain one, which runs in a thread.
            queue: The default queue of its jobs.
            name: The name by which workers find it; by default its module and qualified name. For a script that is run,
                the module is the one that others import.
            priority: Before which jobs of their queue its jobs come: 0, before all others, to 9. Not of a job that is
                enqueued by name.
            max_attempts: How many attempts may fail before a job is dead-lettered.
            max_crashes: How many workers may die while they run a job before it is dead-lettered as the cause.
            result_ttl: How long the result of a job is kept, in seconds; 0 keeps none.
            expires: Seconds after which a job is dead-lettered instead of started; None for never.
            deadline: Seconds from when a job was enqueued for all its attempts together: as `expires`, and an attempt
                that runs then is cancelled, and dead-letters the job. Not together with `expires`; None for no end.
            time_limit: Seconds after which an attempt is cancelled, and fails with TimeoutError; None for never. A
                plain function cannot be cancelled: it runs to its end, and its result counts.
            retry_on: Failures of these classes are retried; others dead-letter the job at once.
            backoff: Number of failed attempts, 1 or more -> seconds before the next. By default 1 s, 2 s, 4 s ... up to
                5 min, each within 25 % of that.
            limit: How many of its jobs run at once, over all workers: `Limit(5)`, or one that several tasks share, as
                `Coordinator.limit` returns it. The others wait, and hold up no jobs behind them. None for no limit.
            rate: How many of its jobs begin in a period, over all workers: `Rate(100, per=60.0)`; with `key=True` of
                each key; or one that several tasks share, as `Coordinator.rate` returns it. None for no limit.
            key: Given the arguments of a job, returns its key, a string or a whole number, such as its tenant.
            key_limit: How many jobs of each key run at once; needs `key`.
            share: Whether keys take turns, so that one with a million jobs does not delay one with ten; needs `key`.
            key_order: `strict` if a job of a key begins only when the one before it has ended, through retries, sleeps
                and the deaths of workers; needs `key`. None for no such order.
            key_on_dead: If a job of a key in strict order is dead-lettered, `stop` has the next ones wait until it is
                replayed or purged, and `go_on` lets them run. None for `stop`.
            cost: What a job takes of the rate: a whole number from 0 to its burst, or a function that is given the
                arguments of a job and returns one; needs `rate`. None for 1.
            history: Of how many of its last jobs the server keeps how they ended, for `Task.history`: up to 10,000; 0
                for none.
            history_arguments: Whether the server keeps their arguments, too, of jobs of at most 4 KiB: see
                `EndedJob`. They may be secret, and stay as long as the history; needs `history`.
            on_dead: A task of which a job is enqueued if one of its jobs is dead-lettered, by the script that does
                that. It takes one argument, a `DeadJob`. None for none.

        Raises:
            TypeError: It is a generator function, a class, or not callable; an annotation cannot be resolved, or JSON
                cannot represent it; the limit is not a `Limit`, the rate not a `Rate`, the key not
                a function, or share or `history_arguments` not a bool; `on_dead` is not a task that takes a `DeadJob`.
            ValueError: A task of this name is registered already, a number is out of its range, `key` is given without
                `key_limit`, `share`, `key_order` and a rate of keys, or one of these without it; `key_order` is given
                with `key_limit` or `share`, or `key_on_dead` without it; one of these has another value; `cost` is
                given without `rate`, or `history_arguments` without `history`; or `on_dead` has limits, and jobs are
                spread over several partitions.
            InvalidName: The name or the queue is empty or longer than 512 bytes.
        """
        from inconcert.tasks.records.history import checked_history
        from inconcert.tasks.records.limits import TaskLimits
        from inconcert.tasks.records.retry import RetryPolicy
        from inconcert.tasks.sending.options import Options
        from inconcert.tasks.sending.told import told_of_deaths

        defaults = Options().changed(
            queue=queue,
            priority=priority,
            max_attempts=max_attempts,
            max_crashes=max_crashes,
            result_ttl=result_ttl,
            expires=expires,
            deadline=deadline,
            time_limit=time_limit,
        )
        kept, has_arguments = checked_history(history, history_arguments)
        defaults = replace(
            defaults,
            history=kept,
            history_arguments=has_arguments,
            on_dead=() if on_dead is None else told_of_deaths(on_dead, self._jobs),
            given=(),
        )
        retrying = RetryPolicy(retry_on, backoff)
        limits = TaskLimits(limit, key, key_limit, rate, share, key_order, key_on_dead, cost)

        def register(function: Callable[..., object]) -> "Task[..., object]":
            return self._registry.register(function, name=name, defaults=defaults, limits=limits, retrying=retrying)

        return register if function is None else register(function)

    def cron(
        self,
        expression: str | None = None,
        *,
        every: Seconds | None = None,
        tz: str = "UTC",
        missed: "Missed" = "once",
        overlap: "Overlap" = "allow",
        starts_at: "datetime | None" = None,
        ends_at: "datetime | None" = None,
        jitter: Seconds = 0.0,
    ) -> "Callable[[Task[P, R]], Task[P, R]]":
        """Enqueue a job of a task at each instant of a timetable, once among all workers.

        It goes on top of `task`, and may be given more than once:

        ```python
        @concert.cron("*/5 * * * *", tz="Europe/Berlin")
        @concert.task(queue="low")
        async def report() -> None: ...
        ```

        Instants are by the server's clock. In the body, `current_job().scheduled_at` is the one that it runs for.

        Args:
            expression: Minute, hour, day of month, month and day of week, or six fields with seconds first. Needs the
                extra `inconcert[cron]`.
            every: A period in seconds instead, 0.1 or more, counted from 1970: 300 is at 00:00, 00:05 ... UTC.
            tz: The time zone of the expression.
            missed: What happens to instants at which no worker was running: `once` runs the last of them, `skip` only
                if it is less than 60 s ago, `all` runs each of the last 100.
            overlap: What happens to an instant while the job that the schedule enqueued last has not ended: `allow`
                enqueues its job, `skip` none, and `wait` lets its job run after that one; one waits at most, and
                further instants have no job. Not with `missed="all"`.
            starts_at: The moment, with its time zone, before which there is no instant; None for no such moment. It is
                not where `every` is counted from.
            ends_at: The moment after which there is none, with its time zone; None for no such moment.
            jitter: By how many seconds each instant may be later, drawn anew for each, the same in all workers; always
                less than the time to the next. `current_job().scheduled_at` is the instant of the rule.

        Raises:
            ValueError: Not exactly one of `expression` and `every` is given, it cannot be read, or it never matches a
                date from `starts_at` to `ends_at`; or another argument is out of its range.
            ImportError: An expression is given, and the extra is not installed.
            TypeError: It is not applied to a task, or the task cannot be called without arguments.

        A task with a limit or a rate that others share cannot be on a timetable if jobs are spread over several
        partitions: that is a ValueError where it is applied.
        """
        from inconcert.tasks.schedules.schedule import Schedule, check_missed, check_overlap
        from inconcert.tasks.schedules.timetable import timetable

        if (expression is None) == (every is None):
            raise ValueError(
                'give either a cron expression, such as cron("*/5 * * * *"), or a period, such as cron(every=300)'
            )
        when = timetable(expression, every=every, zone=tz, starts_at=starts_at, ends_at=ends_at, jitter=jitter)
        check_overlap(overlap, check_missed(missed))

        def schedule(task: "Task[P, R]") -> "Task[P, R]":
            self._registry.schedule(Schedule(task, when, missed, overlap), are_spread=self._partitions > 1)
            return task

        return schedule

    async def enqueue(
        self,
        name: "Task[..., Any] | str",
        args: Sequence[JSON] = (),
        kwargs: Mapping[str, JSON] | None = None,
        **options: "Unpack[JobOptions]",
    ) -> "Job[JSON]":
        """Enqueue a job by the name of its task, which need not be registered in this process.

        Any option that is not given is as the task has it in the worker that runs the job: its limits, attempts, times
        and the like. Only its queue is not known here.

        Args:
            name: Which task, by its name; or the task itself, with its queue and its arguments as `Task.enqueue` takes
                them.
            args: Its positional arguments: JSON values, which the worker converts to what the function annotates.
            kwargs: Its keyword arguments: JSON values, too.
            **options: How it is to be run; see `JobOptions`.

        Raises:
            TypeError: There is no option of this name, or `after` is not a list; or the arguments do not fit the task
                that is given itself.
            ValueError: A number is out of its range, or `after` has more than 100 jobs.
            InvalidName: A name is empty or longer than 512 bytes, or an entry of `after` is not a job id.
            InvalidPayload: An argument is not JSON, or all together are larger than 1 MiB.

        Cost: 1 round trip. The first of a turn of the event loop is sent at once if nothing is under way; all others
            of the turn share one for each queue.
        """
        from inconcert.tasks.sending.task import draft_of

        enqueuing = self._parts.enqueuing
        return await enqueuing.add_one(draft_of(name, args, kwargs, options, enqueuing=enqueuing))

    async def enqueue_many(self, drafts: "Iterable[Draft[R]]") -> "list[Job[R]]":
        """Enqueue many jobs: `await concert.enqueue_many([send.call(1), send.call(2)])`.

        They are sent in parts of at most 5,000, one after the other, so there may be any number of them.

        Args:
            drafts: Made by `Task.call`.

        Returns:
            The jobs, in the same order.

        Raises:
            ValueError: Two jobs of a part have the same `id`; nothing of this part was added.
            Unavailable: The server could not be asked; some may have been added before.
            OutcomeUnknown: The server did not answer; some may have been added.

        Cost: 1 round trip for 5,000 jobs, or 8 MiB of them; 1 script for 500 jobs of a queue, and for each `id`.
        """
        return await self._parts.enqueuing.add(list(drafts))

    async def group(
        self,
        calls: "Calls | None" = None,
        *,
        then: "Draft[Any] | None" = None,
        when: "GroupWhen" = "succeeded",
        keep_results: bool = False,
    ) -> "Group":
        """Enqueue jobs as a group, and run another one once all of them have ended. See `Group`.

        ```python
        @concert.task()
        async def resize(picture: int) -> None: ...


        @concert.task()
        async def publish() -> None: ...


        group = await concert.group([resize.call(1), resize.call(2)], then=publish.call())
        ```

        The callback runs once, whatever dies. With `when="succeeded"` it waits for members that were dead-lettered
        until they are replayed and succeed; if all others have succeeded and one was cancelled or purged, it is
        dead-lettered instead, because its group can no longer succeed.

        Args:
            calls: The members, made by `Task.call`: any number, also from an iterator or an async iterator. They may
                run at once. None leaves the group open, for `Group.add` and `Group.close`.
            then: The callback, made by `Task.call`; None for none.
            when: Whether the callback runs once all have `succeeded`, or once all have `ended`, no matter how.
            keep_results: Whether the results of the members are kept until the callback has ended, whatever their
                `result_ttl`, for `current_job().group.results()` in its body; without a callback for a day.

        Raises:
            TypeError: One of them is not a call of a task, or they are not a list of these.
            ValueError: `when` is something else; the callback has `unique`, `after` or `at`; or jobs are spread over
                several partitions, and a member has `unique`, or a member or the callback has limits.
            Unavailable: The server could not be asked. If that was after some members were added, the group stays open:
                a note of the error has its id.
            OutcomeUnknown: The server did not answer. After some members, too, the group stays open.

        Cost: 3 round trips, and 1 more for each further 5,000 members, or 8 MiB of them; 1 script for 500.
        """
        from inconcert.tasks.sending.group import open_group
        from inconcert.tasks.sending.group_calls import check_calls, check_member

        if calls is not None:
            check_calls(calls)
        if isinstance(calls, Sequence):
            for call in calls:
                check_member(call, self._jobs)
        group = await open_group(self._parts.enqueuing.link, then, when, keep_results=keep_results)
        if calls is None:
            return group
        try:
            await group.add(calls, start=0)
            await group.close()
        except BaseException as error:
            error.add_note(
                f"group {group.id} stays open; go on with concert.tasks.group({group.id!r}): add() with start=0 and "
                "the same calls adds those that are missing, cancel() cancels it"
            )
            raise
        return group

    def consume(
        self,
        *queues: str,
        prefetch: int = 1,
        weights: Mapping[str, int] | None = None,
        delivery: "Guarantee" = "at_least_once",
    ) -> "Consumer":
        """An `async for` over the jobs of these queues, the most urgent first, or by weight. See `Consumer`."""
        return self._consumer(queues, prefetch=prefetch, weights=weights, delivery=delivery)

    async def run_worker(
        self,
        *queues: str,
        concurrency: int = 100,
        stop: asyncio.Event | None = None,
        grace: Seconds = DEFAULT_GRACE,
        burst: bool = False,
        max_jobs: int | None = None,
        weights: Mapping[str, int] | None = None,
        health: "WorkerHealth | None" = None,
        unknown_task_grace: Seconds = UNKNOWN_TASK_GRACE,
    ) -> None:
        """Run the registered function of each job of these queues, the most urgent first.

        Coroutine functions run on this event loop, plain functions in threads.

        A job of a task that is not registered here, or whose arguments do not fit, is given back for other workers,
        because one of a newer or older release may run it. That does not count as an attempt. After
        `unknown_task_grace` it is dead-lettered with the reason.

        It shuts down gracefully when `stop` is set: it stops claiming, running jobs have `grace` to end, and the rest
        are cancelled and requeued at once. When it is cancelled, that happens without the grace period. A job that is
        requeued goes to the front of its queue, and that does not count as an attempt.

        The coordinator's `lifespan` surrounds it. What that raises, this raises.

        Args:
            queues: Names of queues, the most urgent first.
            concurrency: How many jobs may run at once.
            stop: Ends the worker, for example as `loop.add_signal_handler(signal.SIGTERM, stop.set)`.
            grace: How long running jobs have to end after `stop`, in seconds; 0 for not at all.
            burst: Whether to return when the queues are empty and nothing runs. Jobs that are not due yet do not count.
            max_jobs: How many jobs to run, each attempt counted, before it returns when these have ended: for code
                that leaks memory. None for no end.
            weights: Queue -> its weight, so that each gets its share; None for strict order. See `Consumer`.
            health: Answers probes for this worker from now on.
            unknown_task_grace: For how long jobs that this worker cannot run are given back, in seconds since a worker
                first claimed the job in vain; 0 dead-letters them at once.

        Raises:
            RuntimeError: `health` answers for another worker, which still runs.
            ValueError: `concurrency`, `max_jobs`, `grace` or `unknown_task_grace` is out of range.

        Cost: As docs/explanation/tasks.md counts it, for jobs and for idle workers.
        """
        from inconcert.tasks.running.health import watched
        from inconcert.tasks.running.unknown_tasks import UnknownTasks
        from inconcert.tasks.running.worker import Worker
        from inconcert.tasks.schedules.schedule_follower import following

        worker = Worker(
            self._ref,
            self._consumer(
                queues, weights=weights, capacity=concurrency, unknown_tasks=UnknownTasks(unknown_task_grace)
            ),
            self._registry,
            concurrency=concurrency,
            stop=stop,
            grace=grace,
            burst=burst,
            max_jobs=max_jobs,
            middlewares=self._parts.middlewares,
        )
        with watched(health, worker.signs):
            async with self._parts.lifespan_around(stop), following(self._ref, self._jobs, self._registry.schedules):
                await worker.run()

    def lifespan(self, function: L) -> L:
        """Surround the workers of each process with an async context manager: for clients and pools that jobs use.

        ```python
        import httpx


        @concert.lifespan
        @asynccontextmanager
        async def web() -> AsyncGenerator[httpx.AsyncClient]:
            async with httpx.AsyncClient() as client:
                yield client
        ```

        It begins before the first job is claimed, and ends after the last one has ended, once in each process, however
        many workers run in it. Jobs get the value it yields as `current_job().state`. `run_worker`, `inconcert worker`
        and `inconcert.testing.drain` enter it; `consume` does not, as its caller decides what runs there.

        An exception before its `yield` is raised by `run_worker`, which has claimed nothing. If it ends by itself, as
        when its task group fails, the running jobs are cancelled and requeued, and its exception is raised.

        Args:
            function: Returns the context manager; called without arguments.

        Returns:
            The same function.

        Raises:
            TypeError: It needs arguments, or lacks `@asynccontextmanager`.
            RuntimeError: This coordinator has a lifespan already.

        Cost: Nothing is sent, and a job costs nothing more.
        """
        from inconcert.tasks.running.lifespan import Lifespan

        if self._parts.lifespan is not None:
            raise RuntimeError(f"{self!r} has a lifespan already; enter both in one, with contextlib.AsyncExitStack")
        self._parts.lifespan = Lifespan(function)
        return function

    def add_middleware(self, middleware: "Callable[[ClaimedJob], AbstractAsyncContextManager[object]]") -> None:
        """Run each attempt of `run_worker` inside a context manager: for tracing, metrics, database sessions.

        ```python
        @asynccontextmanager
        async def measure(job: ClaimedJob) -> AsyncGenerator[None]:
            with duration.labels(job.name).time():
                yield


        concert.add_middleware(measure)
        ```

        An exception in the job is raised from the `yield`, and one that is raised here counts as the job's. If it is
        not raised again, the job is done.

        Args:
            middleware: Called with the job before each attempt. The one that was added first is the outermost.
        """
        self._parts.middlewares.append(middleware)

    def add_enqueue_middleware(self, middleware: "EnqueueMiddleware") -> None:
        """Give headers to each job that is enqueued through this coordinator: a tenant, a request id, the host.

        ```python
        def with_origin(task: str, queue: str) -> dict[str, str]:
            return {"host": "web-1"}


        concert.add_enqueue_middleware(with_origin)
        ```

        Headers that the job has anyway come first. The jobs of schedules have those of their task only.

        Args:
            middleware: Called with the name of the task and of the queue, when the job is made: by `Task.enqueue`,
                `Task.call` or `Coordinator.enqueue`. Its exceptions come out of these.
        """
        self._parts.enqueuing.middlewares.append(middleware)

    def _consumer(
        self,
        queues: tuple[str, ...],
        *,
        prefetch: int = 1,
        weights: Mapping[str, int] | None = None,
        delivery: "Guarantee" = "at_least_once",
        capacity: int | None = None,
        unknown_tasks: "UnknownTasks | None" = None,
    ) -> "Consumer":
        from inconcert.tasks.running.consumer import Consumer

        return Consumer(
            self._ref,
            self._jobs,
            self._registry,
            queues,
            prefetch=prefetch,
            weights=weights,
            delivery=delivery,
            capacity=capacity,
            lease=self._heartbeat_lease,
            unknown_tasks=unknown_tasks,
            counts_jobs=self._counts_jobs,
        )


def parts_of(concert: TaskCoordinator) -> "TaskParts":
    """The parts of a coordinator for tasks."""
    return concert._parts  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
