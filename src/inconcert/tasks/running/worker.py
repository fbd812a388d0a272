"""A worker: a consumer that runs the registered function of each job, many at a time."""

import asyncio
import inspect
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial

import anyio
import anyio.to_thread

from inconcert._core.cancellation import cancel_all
from inconcert._core.session import Session, SessionRef
from inconcert._core.shield import run_shielded
from inconcert._redis.wire.background import attempt, in_background, log_error
from inconcert._rules import durations
from inconcert._rules.defaults import DEFAULT_GRACE
from inconcert._rules.durations import Seconds
from inconcert._rules.limits import whole
from inconcert._version import __version__
from inconcert.errors import InvalidPayload, JobExpired, UnknownTask
from inconcert.tasks.following.blocked_worker import workers
from inconcert.tasks.running.claimed_job import ClaimedJob, current_job
from inconcert.tasks.running.consumer import Consumer, claimed_by, confirmed, holds_nothing, signs_of
from inconcert.tasks.running.health import WorkerSigns
from inconcert.tasks.running.job_state import JobState
from inconcert.tasks.running.registry import Registry
from inconcert.tasks.running.stream_writer import run_unwritten, write_stream

_log = logging.getLogger("inconcert.tasks")

_MOST_NAMES = 20  # of tasks in one line of the log
_LOOK_AGAIN = 1.0  # seconds after which it looks for tasks that were cancelled before they began

Middleware = Callable[[ClaimedJob], AbstractAsyncContextManager[object]]


class Worker:
    """Runs jobs until it is stopped, or cancelled.

    A job is claimed only when one of the `concurrency` places is free, so a worker never hoards.  When it is cancelled,
    the running jobs are cancelled too, and requeued at the front at once.

    Args:
        consumer: Where jobs come from; opened and closed by the worker.
        registry: The functions.
        concurrency: How many jobs may run at once, 1 or more.
        stop: When set, no more jobs are claimed, and running ones have `grace` to end.
        grace: Seconds from `stop` until running jobs are cancelled.
        burst: Whether to return when nothing is left to run.
        max_jobs: How many attempts to run, and then to return; None for no end.
        middlewares: Context managers around each attempt, the outermost first.
    """

    def __init__(
        self,
        ref: SessionRef,
        consumer: Consumer,
        registry: Registry,
        *,
        concurrency: int,
        stop: asyncio.Event | None = None,
        grace: Seconds = DEFAULT_GRACE,
        burst: bool = False,
        max_jobs: int | None = None,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        whole("concurrency", concurrency)
        self._left = math.inf if max_jobs is None else whole("max_jobs", max_jobs)  # to claim
        self._ref = ref
        self._consumer = consumer
        self._registry = registry
        self._stop = stop or asyncio.Event()
        self._grace = durations.in_seconds("grace", grace)
        self._burst = burst
        self._middlewares = middlewares
        self._free = self._places = concurrency
        self._attempts = 0
        self._portion = (concurrency + 1) // 2  # so that the server claims one half while the other starts to run
        self._freed = asyncio.Event()
        self._running: dict[JobState, tuple[asyncio.Task[None], float]] = {}  # and since when; the oldest first
        self._claims_since = time.monotonic()
        self._wait = anyio.CancelScope()
        self._confirming = anyio.CancelScope()
        self._threads = anyio.CapacityLimiter(concurrency)  # anyio's own has room for 40, shared with the whole service

    async def run(self) -> None:
        """Claim and run."""
        session, started_at = self._ref.session, time.monotonic()
        workers.add(self)
        self._say_what_it_serves(session)
        session.observers.worker_started(self._places)
        try:
            async with self._consumer:
                draining = in_background("ending the worker", partial(self._drain, session.id))
                try:
                    await self._claim_and_start()
                    while self._running:
                        await asyncio.wait(self._tasks())
                        self._drop_ended()
                    with self._confirming:
                        await confirmed(self._consumer)
                finally:
                    draining.cancel()
                    await run_shielded(self._stop_running())
        finally:
            session.observers.worker_ended(self._places)
            seconds = time.monotonic() - started_at
            _log.info("worker %s has ended after %.1f s; attempts: %d", session.id, seconds, self._attempts)

    @property
    def queues(self) -> tuple[str, ...]:
        """Those that it serves."""
        return self._consumer.queues

    def bodies(self) -> frozenset[str]:
        """The ids of the jobs that run, if all its places are taken; otherwise empty."""
        return frozenset() if self._free else frozenset(state.id for state in self._running)

    def signs(self) -> WorkerSigns:
        """Its latest acts; may be asked from any thread."""
        running = list(self._running.items())  # one step, which no other thread interrupts
        return WorkerSigns(
            consumer=signs_of(self._consumer),
            claims_since=self._claims_since,
            is_draining=self._stop.is_set() or not self._left,
            running=self._places - self._free,
            capacity=self._places,
            jobs=[(str(state), since, state.envelope.time_limit) for state, (_, since) in running if not state.is_over],
        )

    async def _drain(self, name: str) -> None:
        """Wait for `stop`, then stop claiming, and cancel what still runs after the grace period."""
        while not self._stop.is_set():
            with anyio.move_on_after(_LOOK_AGAIN):
                await self._stop.wait()
            self._drop_ended()
        self._consumer.stop()
        running = self._places - self._free
        _log.info("worker %s stops; jobs that still run: %d, with %g s to end", name, running, self._grace)
        self._claim_no_more()
        await anyio.sleep(self._grace)
        await self._stop_running()

    async def _stop_running(self) -> None:
        self._confirming.cancel()
        for state, (_, since) in self._running.items():
            state.stop_at(since)
        while self._running:
            await cancel_all(self._tasks())
            self._drop_ended()

    async def _claim_and_start(self) -> None:
        while not self._stop.is_set() and self._left:
            while not self._free:
                self._freed.clear()
                await self._freed.wait()
                self._claims_since = time.monotonic()
            may_be_over = self._burst and not self._running
            count = int(min(self._free, self._portion, self._left))
            jobs = await self._claim(count, wait=not may_be_over)
            if may_be_over and not jobs:
                break
            self._free -= len(jobs)
            self._attempts += len(jobs)
            self._left -= len(jobs)
            self._start(jobs)
            jobs.clear()  # while it waits for others, these are freed as soon as they have ended
        self._consumer.stop()

    def _start(self, jobs: list[JobState]) -> None:
        loop = asyncio.get_running_loop()
        started_at, run = time.monotonic(), self._run_logged if _log.isEnabledFor(logging.INFO) else self._run
        # Observers are told when it is acknowledged; and a burst may be over when nothing runs.
        is_awaited = self._burst or bool(self._ref.session.observers)
        for job in jobs:
            if is_awaited:
                job.is_awaited = True
            task = loop.create_task(run(job), name=job.title())  # the name is for logs
            self._running[job] = task, started_at
        if loop.get_task_factory() is not None:  # one that is eager: some have ended before they were noted here
            for job in jobs:
                if self._running[job][0].done():
                    del self._running[job]

    async def _claim(self, count: int, *, wait: bool) -> list[JobState]:
        with anyio.CancelScope() as self._wait:  # the next claim returns what a cancelled one claimed
            return await claimed_by(self._consumer, count, wait=wait)
        return []

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for task, _ in self._running.values()]

    def _drop_ended(self) -> None:
        """Forget jobs whose tasks were cancelled before they began; the others have forgotten themselves."""
        for state, (task, _) in list(self._running.items()):
            if task.done():
                self._forget(state)
                self._free_a_place()
                state.end_anyhow(None)

    def _forget(self, state: JobState) -> None:
        """It runs no longer: the last act of its task, because a callback would be another turn for each job."""
        try:
            del self._running[state]
        except KeyError:  # it was begun by an eager task factory, and has ended before it was noted
            return
        if not self._running:
            self._claim_no_more()
            attempt("letting a claim wait on the server", holds_nothing, self._consumer)

    def _claim_no_more(self) -> None:
        """Cancel the claim that is under way, once nothing runs: the jobs it claims are requeued at the end."""
        if (self._burst or self._stop.is_set()) and not self._running:
            self._wait.cancel()

    def _say_what_it_serves(self, session: Session) -> None:
        served, known = set(self._consumer.queues), self._registry.queues
        _log.info(
            "worker %s starts; pid: %d; inconcert: %s; server: %s; namespace: %s; "
            "queues: %s; tasks: %s; jobs at once: %d",
            session.id,
            os.getpid(),
            __version__,
            session.server,
            self._ref.keys.namespace,
            ", ".join(self._consumer.queues),
            _some(self._registry.names),
            self._places,
        )
        if served - known and known - served:
            _log.warning(
                "no task has queue %s, and this worker does not serve queue %s; is a name misspelt?",
                ", ".join(sorted(served - known)),
                ", ".join(sorted(known - served)),
            )

    async def _run_logged(self, state: JobState) -> None:
        started_at, fields = time.monotonic(), state.fields()
        with suppress(Exception):  # of a filter of the user's: the job is run nevertheless
            _log.info("%s starts", state, extra=fields)
        try:
            await self._run(state)
        finally:
            seconds = time.monotonic() - started_at
            with suppress(Exception):
                _log.info("%s: %s, it took %.3f s", state, state.outcome, seconds, extra=fields)

    async def _run(self, state: JobState) -> None:
        try:
            if state.is_over:  # lost before it began
                self._free_a_place()
            else:
                noted = self._running.get(state)  # not yet, if an eager task factory has begun it
                state.begin(state, None if noted is None else noted[0])
                try:
                    result = await self._run_body(state)
                    if result is not None or state.result is not None:
                        state.result = result
                except BaseException as error:
                    if not await self._failed(state, error):
                        raise
                else:
                    self._free_a_place()  # so that the next claim is sent along with the acknowledgement
                    exiting = state.exit(None)
                    if exiting is not None:
                        await exiting
        except BaseException as error:
            self._not_run(state, error)
            if not isinstance(error, Exception):
                raise
        else:
            self._forget(state)

    async def _failed(self, state: JobState, error: BaseException) -> bool:
        """Its body has raised this error; returns whether to suppress it."""
        failure = _failure_of(error)
        if not isinstance(error, KeyboardInterrupt):  # then the program ends, and claims no more
            self._free_a_place()
        exiting = state.exit(failure)
        return exiting is not None and await exiting

    def _not_run(self, state: JobState, error: BaseException) -> None:
        """Running it was cancelled, or has failed."""
        if not state.is_over:  # its body has not begun
            self._free_a_place()
        if isinstance(error, GeneratorExit):  # the loop is gone
            return
        if isinstance(error, asyncio.CancelledError):
            state.end_anyhow(None)
        else:
            log_error(lambda shown: _log.error("%s was not run to its end", state, exc_info=shown), error)
            state.end_anyhow(error)
        self._forget(state)

    def _run_body(self, state: JobState) -> Awaitable[object]:
        if state.is_cancelled:  # before it began
            return anyio.sleep_forever()  # it is stopped there
        task, envelope = state.known, state.envelope
        try:
            if task is None:
                raise UnknownTask(envelope.name)
            args, kwargs = task.arguments.from_json(envelope.args, envelope.kwargs)
        except (UnknownTask, TypeError, InvalidPayload) as error:  # as in each attempt of this process
            return state.leave_to_others(error)
        if task.is_async and envelope.time_limit is None and not self._middlewares:  # most jobs
            runs: Callable[..., Awaitable[object]] = task.function
            return runs(*args, **kwargs)
        call = partial(task.function, *args, **kwargs)
        if task.streams:
            call = partial(run_unwritten if state.is_undoing else write_stream, state, call)
        elif not task.is_async:
            call = partial(self._call_in_thread, state, call)
        if envelope.time_limit is not None:
            call = partial(_in_time, state, call, envelope.time_limit)
        return self._in_middlewares(state, call) if self._middlewares else call()

    def _free_a_place(self) -> None:
        self._free += 1
        if self._free == 1:  # otherwise nothing waits for it
            self._freed.set()

    async def _in_middlewares(self, state: JobState, call: Callable[[], Awaitable[object]]) -> object:
        job = current_job()
        async with AsyncExitStack() as stack:
            for middleware in self._middlewares:
                await stack.enter_async_context(middleware(job))
            state.result = await call()
        return state.result  # one of them may have replaced it

    async def _call_in_thread(self, state: JobState, call: Callable[[], object]) -> object:
        ended: list[tuple[object, BaseException | None]] = []

        async def run() -> None:
            ended.append(await anyio.to_thread.run_sync(_outcome, call, limiter=self._threads))

        try:
            await run_shielded(run())  # a thread cannot be stopped: while it runs, so does the job
        except asyncio.CancelledError:
            if state.is_cancelled or state.is_over:
                raise
            # The worker ends, and has waited for it: its result counts.
        result, error = ended.pop()
        if error is not None:
            try:
                raise error
            finally:
                error = None  # its traceback refers to this frame, which would keep the arguments until `gc` runs
        # A plain wrapper around a coroutine function returns an awaitable.
        return await result if inspect.isawaitable(result) else result


def _failure_of(error: BaseException) -> BaseException:
    """The failure in place of an error that would end the worker, or look like it; otherwise the same error."""
    failure: RuntimeError | None = None
    if isinstance(error, SystemExit):
        failure = RuntimeError(f"it called sys.exit({error.code!r}), which a job cannot")
    elif isinstance(error, GeneratorExit):
        failure = RuntimeError("it raised GeneratorExit, although nothing had closed it")
    elif isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is not None and not task.cancelling():
            failure = RuntimeError("it raised CancelledError, although nothing had cancelled it")
    if failure is None:
        return error
    failure.__cause__ = error
    return failure


def _past_deadline(state: JobState) -> JobExpired:
    """The error of a job that is not done by its deadline, which ends it for good."""
    state.final = error = JobExpired(state.id, state.envelope.expires or 0.0, is_deadline=True)
    return error


async def _in_time(state: JobState, call: Callable[[], Awaitable[object]], time_limit: float) -> object:
    started_at, result = time.monotonic(), None
    left = state.expires_at - started_at if state.envelope.stops and not state.is_undoing else math.inf
    if left <= 0:  # it was claimed before, and waited to be run
        raise _past_deadline(state)
    seconds = min(time_limit, left)
    state.stop_at(started_at + seconds)
    with anyio.move_on_after(seconds) as limit:
        result = await call()
    if limit.cancelled_caught:
        if left <= time_limit:
            raise _past_deadline(state)
        raise TimeoutError(f"task {state.envelope.name!r} ran longer than {time_limit:g} s")
    if limit.cancel_called:
        seconds = time.monotonic() - started_at
        _log.warning(
            "%s could not be stopped at its limit, and was done after %.3f s",
            state,
            seconds,
            extra=state.fields(),
        )
    return result


def _some(names: list[str]) -> str:
    """The first of these names, and how many more there are."""
    shown, more = names[:_MOST_NAMES], len(names) - _MOST_NAMES
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "") or "none"


def _outcome(call: Callable[[], object]) -> tuple[object, BaseException | None]:
    try:
        return call(), None
    except BaseException as error:  # noqa: BLE001 - it is raised where the job runs; a future could not carry all of them
        return None, error
