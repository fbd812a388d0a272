"""A last resort: one unexpected error, wherever it is raised, leaves no job without an end and no loop dead."""

import ast
import asyncio
import itertools
import logging
import re
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from redis.asyncio.sentinel import Sentinel

import inconcert
from inconcert import Coordinator, Delivery, Queue, WorkerHealth, current_job, durable
from inconcert._claims.ends import Ack
from inconcert._claims.watchdog import Watchdog
from inconcert._claims.worker_lease import WorkerLease
from inconcert._cluster.cluster import Cluster
from inconcert._core.observer import Observer
from inconcert._redis.find.master_watch import MasterWatch
from inconcert._redis.find.replicas import Replicas
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command
from inconcert._redis.wire import background
from inconcert._redis.wire import channel as channel_module
from inconcert._redis.wire.call import Call
from inconcert.coordinator import session_ref_of
from inconcert.tasks.running.sweeper import Asker
from inconcert.tasks.running.worker import Worker
from inconcert.tasks.sending import enqueue
from tests.support.channels import ECHO, FAIL, KEY, echo
from tests.support.eventually import eventually
from tests.support.inner import channel_of
from tests.support.raising import Injected, Unexpected, in_files, raising
from tests.support.servers import RealServer

PACKAGE = Path(inconcert.__file__).parent
PLACES = 3  # of the worker

# What ends a job, its last resort left out: that is short, and an error in it is a second one.
END = in_files(
    "_claims",
    "tasks",
    "_core/observer.py",
    "_core/body.py",
    without=frozenset({"end_anyhow", "_run", "_not_run", "_forget", "_free_a_place", "_run_body", "<lambda>"}),
)


class Listening(Observer):
    """Hears everything, and does nothing."""


@asynccontextmanager
async def working(concert: Coordinator, *, health: WorkerHealth | None = None) -> AsyncGenerator[None]:
    """Have a worker with three places run while the body does."""
    stop = asyncio.Event()
    work = concert.run_worker("default", concurrency=PLACES, stop=stop, grace=1.0, health=health)
    worker = asyncio.create_task(work)
    try:
        yield
    finally:
        stop.set()
        await worker


async def nothing_runs(concert: Coordinator) -> bool:
    """Whether the server says that no worker holds a job."""
    stats = await concert.tasks.stats()
    return not any(queue.running for queue in stats.queues.values())


Ending = Callable[[Injected], Awaitable[object]]


async def succeed(injected: Injected) -> object:
    """Return a result."""
    injected.arm()
    return "a result"


async def fail(injected: Injected) -> object:
    """Fail."""
    injected.arm()
    raise ValueError("as bodies do")


async def sleep(injected: Injected) -> object:
    """Leave, to come back later."""
    injected.arm()
    await durable.sleep("long", 3600, in_memory_below=0)
    return None


async def fail_with_undo(injected: Injected) -> object:
    """Fail, when there is something to undo."""
    async with durable.undo() as undo:
        undo.later("nothing", nothing)
        await durable.step("first", nothing)
        injected.arm()
        raise ValueError("as bodies do")


async def be_followed(injected: Injected) -> object:
    """Succeed, and be followed by a job."""
    current_job().enqueue_on_success(follower.call())
    injected.arm()
    return None


async def end_by_hand(injected: Injected) -> object:
    """Be acknowledged in the body."""
    injected.arm()
    await current_job().ack()
    return None


async def nothing() -> None:
    """Nothing to do."""


class Follower:
    """A task that is made with the coordinator of each test."""

    call: Callable[[], Any]


follower = Follower()


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.torture)])
@pytest.mark.parametrize(
    ("ending", "attempts"),
    [(succeed, 1), (fail, 1), (fail, 3), (sleep, 1), (fail_with_undo, 1), (be_followed, 1), (end_by_hand, 1)],
)
async def test_unexpected_error_anywhere_in_the_end_of_a_job_leaves_it_with_an_end(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch, ending: Ending, attempts: int, every: int
) -> None:
    """In each call, each await and each callback, or in each seventh; and the worker keeps all its places."""
    session_ref_of(concert).observers.append(Listening())
    now: Injected | None = None

    run = cast("Any", Worker)._run

    async def stepwise(*args: Any, **more: Any) -> None:
        await (run(*args, **more) if now is None else now.at_awaits_of(run(*args, **more)))

    monkeypatch.setattr(Worker, "_run", stepwise)

    @concert.task(name="end", max_attempts=attempts)
    async def end() -> object:
        if now is not None and not now.is_armed:
            return await ending(now)
        return None

    @concert.task(name="follower")
    async def follow() -> None:
        """Nothing to do."""

    follower.call = follow.call
    met = 0

    @concert.task(name="meet", max_attempts=1)
    async def meet() -> None:
        nonlocal met
        met += 1
        while met < PLACES:
            await anyio.sleep(0.001)

    where: list[str] = []
    async with working(concert):
        for number in itertools.count(1, every):
            with raising(number, END, task="job ") as now:
                await end.enqueue()
                await eventually(lambda: now is not None and now.is_armed)
                await eventually(lambda: nothing_runs(concert), timeout=8.0)
            if now.where is None:
                break
            where.append(now.where)
        now = None
        jobs = [await meet.enqueue() for _ in range(PLACES)]
        for job in jobs:
            await job.result(timeout=5.0)

    assert len(where) > 40 / every


async def acknowledged(delivery: Delivery[str], injected: Injected) -> None:
    """Leave the body."""
    async with delivery:
        injected.arm()


async def failed(delivery: Delivery[str], injected: Injected) -> None:
    """Fail in the body."""
    async with delivery:
        injected.arm()
        raise ValueError("as bodies do")


async def acknowledged_by_hand(delivery: Delivery[str], injected: Injected) -> None:
    """Acknowledge it in the body."""
    async with delivery:
        injected.arm()
        await delivery.ack()


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.torture)])
@pytest.mark.parametrize("end", [acknowledged, failed, acknowledged_by_hand])
@pytest.mark.parametrize("attempts", [1, 3])
async def test_unexpected_error_anywhere_in_the_end_of_an_item_leaves_it_with_an_end(
    concert: Coordinator, every: int, attempts: int, end: Callable[[Delivery[str], Injected], Coroutine[Any, Any, None]]
) -> None:
    """It is gone, is in its queue again or is a dead letter; this process does not keep it."""
    queue: Queue[str] = concert.queue("items", str, max_attempts=attempts, ttl=1.0)
    counted = in_files("_claims", "queues", without=frozenset({"end_anyhow", "__aexit__", "exit", "_exit", "<lambda>"}))
    where: list[str] = []
    for number in itertools.count(1, every):
        await queue.put("an item")
        delivery = await queue.get()
        with raising(number, counted, task="item") as injected:
            work = injected.at_awaits_of(end(delivery, injected))
            task = asyncio.create_task(awaited(work), name="item")
            await asyncio.gather(task, return_exceptions=True)
            await eventually(lambda: has_none_claimed(queue), timeout=8.0)
        await queue.purge()
        if injected.where is None:
            break
        where.append(injected.where)

    assert len(where) > 10 / every


async def awaited(work: Awaitable[object]) -> None:
    """Await it, as a task must be a coroutine."""
    await work


async def has_none_claimed(queue: Queue[str]) -> bool:
    """Whether no process holds an item of this queue."""
    return not (await queue.counts()).claimed


# Calls.


def raise_unexpected(*args: object) -> Any:
    """Fail as nothing expects."""
    raise Unexpected


class Bad(Call):
    """A call that cannot take what comes of it."""

    __slots__ = ()

    def answered(self, reply: Reply) -> None:
        raise Unexpected(reply)

    def failed(self, error: inconcert.InconcertError) -> None:
        raise Unexpected from error


@pytest.mark.parametrize("command", [ECHO(key=KEY, text="well"), FAIL(key=KEY, text="x")], ids=["reply", "error"])
async def test_call_that_can_take_neither_reply_nor_error_fails_and_the_connection_goes_on(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, command: Command
) -> None:
    """Its caller does not wait forever, others get their replies on the same connection, and it is logged once."""
    monkeypatch.setattr(background, "_failures", {})
    session = session_ref_of(concert).session
    await echo(session, "well")
    await concert.redis.set(KEY, "text")
    wire = channel_of(session)._wire
    calls = [Bad(command) for _ in range(3)]
    for call in calls:
        session.channel.submit(call)
    await echo(session, "well again")
    await asyncio.wait(calls, timeout=3.0)

    for call in calls:
        assert isinstance(call.exception(), inconcert.OutcomeUnknown | inconcert.WrongState)
    assert channel_of(session)._wire is wire
    assert len(told(caplog, f"ending a call (server: {command.operation.verb})")) == 1


async def test_call_whose_error_cannot_be_made_fails_and_the_connection_goes_on(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same where the channel itself fails at an error of the server."""
    session = session_ref_of(concert).session
    await concert.redis.set(KEY, "text")
    await echo(session, "well")
    wire = channel_of(session)._wire
    monkeypatch.setattr(channel_module, "error_for", raise_unexpected)
    with pytest.raises(inconcert.OutcomeUnknown, match="could not be handled"):
        await asyncio.wait_for(session.run(FAIL(key=KEY, text="x")), 3.0)
    await echo(session, "well again")

    assert channel_of(session)._wire is wire


async def test_call_that_cannot_give_up_ends_at_close_with_those_behind_it(
    server: RealServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing fails all that was not answered, each of them."""
    monkeypatch.setattr(channel_module, "_CLOSE_TIMEOUT", 0.0)
    async with Coordinator(server.url, namespace=namespace) as concert:
        session = session_ref_of(concert).session
        calls = Bad(ECHO(key=KEY, text="x")), Call(ECHO(key=KEY, text="x"))
        channel_of(session)._unsent.extend(calls)

    for call in calls:
        assert isinstance(call.exception(), inconcert.Unavailable | inconcert.OutcomeUnknown)


async def test_ends_that_were_refused_are_told_of_it_though_their_worker_cannot_note_it(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call ends several, and each of its callers gets the error."""
    queue: Queue[str] = concert.queue("items", str)
    await queue.put("an item")
    delivery = await queue.get()
    channel = session_ref_of(concert).session.channel
    submit = channel.submit

    def refuse(call: Call) -> None:
        if isinstance(call, Ack):
            call.fail(call.operation.error(inconcert.Unavailable, "was refused"))
        else:
            submit(call)

    with monkeypatch.context() as patched:
        patched.setattr(channel, "submit", refuse)
        patched.setattr(WorkerLease, "unconfirmed", raise_unexpected)
        with pytest.raises(inconcert.Unavailable, match="was refused"):
            await asyncio.wait_for(delivery.ack(), 3.0)


async def test_jobs_that_cannot_be_sent_are_not_waited_for_and_the_next_are_enqueued(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that were enqueued in one turn get the error; the next turn is another."""

    @concert.task(name="plain")
    async def plain() -> None:
        """Nothing to do."""

    with monkeypatch.context() as patched:
        patched.setattr(enqueue, "enqueue_plain", raise_unexpected)
        turn = asyncio.gather(plain.enqueue(), plain.enqueue(), return_exceptions=True)
        assert [type(error) for error in await asyncio.wait_for(turn, 3.0)] == [Unexpected] * 2
    await plain.enqueue()


# Loops.

# What is started once, and ends; an error of it is raised to somebody, or is logged by what waits for it.
STARTED_ONCE = {
    "_cluster/pubsub.py": {"call_later(self._find_homes)", "ensure_future(pubsub.close())"},
    "_cluster/router.py": {"call_later(self._end_pause)", "ensure_future(channel.close())"},
    "_core/deadlines.py": {"create_task(look())"},
    "_core/body.py": {"call_later(self.stop)"},
    "_core/safeguards.py": {"ensure_future(self._replicas.pop(pool).close())"},
    "_core/shield.py": {"create_task(work)"},
    "_claims/partition.py": {"create_task(self.claim(count))"},
    "_redis/wire/background.py": {"create_task(go_on())", "call_later(called)"},  # these two themselves
    "_redis/wire/bells.py": {"call_later(self._wait_on)", "call_later(self._give_up)", "call_later(self.interrupt)"},
    "_redis/find/sentinels.py": {"create_task(self._discover())"},
    "_redis/wire/wire.py": {"create_task(self._guarded(part))"},
    "durable.py": {
        "create_task(has_returned.wait())",
        "create_task(steps.take(name, call, in_thread, may_change=may_change))",
    },
    "once.py": {"create_task(_refresh(wanted, _Turn(session)))"},  # which logs each error
    "queues/get.py": {"create_task(self._serve_all(pause))"},
    "quorum/rounds.py": {"create_task(work)"},
    "sql/database.py": {"create_task(work)"},
    "rate_limiter.py": {"call_later(self.recheck)", "call_later(self._use_at)"},
    "tasks/running/lifespan.py": {"create_task(self._run(make, before))", "create_task(stop.wait())"},
    "tasks/running/stream_writer.py": {"create_task(self._run())"},
    "tasks/running/worker.py": {"create_task(run(job))"},
}
# Timers that call a function marked as recurring.
RECURRING = {
    "_core/line.py": {"call_later(self._look_for_long_waits)", "call_later(self._wake)"},
    "_core/renewal.py": {"call_later(self._tick)"},
    "_redis/wire/channel.py": {"call_at(self._tick)"},
    "_redis/wire/pubsub.py": {"call_later(self._ping)"},
}
# Started in the same way, on a cluster, with Sentinels or with `replicas=`.
ELSEWHERE = {
    "asking the cluster for its slots",
    "listening to a Sentinel",
    "asking Sentinels for the master",
    "waiting for replicas",
    "asking for parents",  # of several partitions
    "looking for deadlocks",  # which has an end: see below
    "answering what is held here",  # likewise
    "relaying the outbox",  # tests/sql/test_outbox.py
    "listening for the outbox",  # which looks at its pace as long as it does not
}
ELSEWHERE_PATTERNS = {re.escape(what) for what in ELSEWHERE}
OWN = {"cli", "integrations", "testing", "dashboard"}  # have their own ways


def calls(path: Path, *names: str) -> Iterator[ast.Call]:
    """The calls of functions or methods with these names."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in names:
            yield node


def modules() -> Iterator[tuple[str, Path]]:
    """The modules of the package that may have something in the background."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name.partition("/")[0] not in OWN:
            yield name, path


def pattern(what: ast.expr) -> str:
    """What matches the name of a loop."""
    if isinstance(what, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else None for part in what.values]
        return "".join(".+" if part is None else re.escape(str(part)) for part in parts)
    return re.escape(str(ast.literal_eval(what)))


def in_code(function: str) -> set[str]:
    """What matches the names of the loops that are started with this function."""
    return {pattern(call.args[0]) for _, path in modules() for call in calls(path, function)}


def test_all_that_runs_in_the_background_is_known() -> None:
    """A new loop is started with `in_background`, or its timer calls what is `recurring`; or it is listed here."""
    found: dict[str, set[str]] = {}
    for name, path in modules():
        for call in calls(path, "create_task", "ensure_future", "call_later", "call_at"):
            act = call.args[0] if ast.unparse(call.func).endswith(("task", "future")) else call.args[1]
            started = f"{ast.unparse(call.func).rpartition('.')[2]}({ast.unparse(act)})"
            found.setdefault(name, set()).add(started)

    assert found == {**STARTED_ONCE, **RECURRING}


def loops() -> dict[str, asyncio.Task[Any]]:
    """The loops that run, by what they do."""
    named = {task.get_name(): task for task in asyncio.all_tasks()}
    return {name.removeprefix("inconcert: "): task for name, task in named.items() if name.startswith("inconcert: ")}


def waiter_of(task: asyncio.Task[Any]) -> "asyncio.Future[Any] | None":
    """What the loop of this task waits for; None while it goes on, is in the pause after an error, or connects."""
    within, waiter = cast("Any", task.get_coro()).cr_await, cast("Any", task)._fut_waiter
    if within is None or within.__name__ == "sleep" or waiter is None or waiter.done():
        return None
    if getattr(getattr(within, "cr_await", None), "__name__", "") == "_reconnect":  # any error there is an expected one
        return None
    return cast("asyncio.Future[Any]", waiter)


async def fails(what: str, task: asyncio.Task[Any]) -> None:
    """Raise an unexpected error where this task waits."""
    await eventually(lambda: waiter_of(task) is not None)
    waiter = waiter_of(task)
    assert waiter is not None
    waiter.set_exception(Unexpected(what))


def told(caplog: pytest.LogCaptureFixture, what: str) -> list[logging.LogRecord]:
    """What was logged at ERROR of this, with a traceback."""
    start = f"{what} failed"
    return [record for record in caplog.records if record.exc_info and record.getMessage().startswith(start)]


async def told_of(caplog: pytest.LogCaptureFixture, what: str) -> None:
    """Wait until it was logged."""
    try:
        await eventually(lambda: told(caplog, what))
    except AssertionError as error:
        error.add_note(f"{what!r} said nothing, but: {[record.getMessage() for record in caplog.records][-5:]}")
        raise


async def to_go_on(task: asyncio.Task[Any]) -> None:
    """Wait until the loop of this task runs again."""
    await eventually(lambda: waiter_of(task) is not None)


async def to_be_called(timed: Any, timer: asyncio.TimerHandle) -> None:
    """Wait until this timer of something was replaced by the next."""
    await eventually(lambda: timed.timer is not timer)


async def test_no_loop_ends_with_an_unexpected_error(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each says so once, goes on after a pause, and the health of the worker tells of it."""
    monkeypatch.setattr(background, "_PAUSE", 0.01)
    monkeypatch.setattr(background, "_failures", {})
    health, expected = WorkerHealth(), in_code("in_background") - ELSEWHERE_PATTERNS
    ticks = 0

    @concert.every(0.05, name="ticking")
    async def tick() -> None:
        nonlocal ticks
        ticks += 1

    @concert.cron(every=3600)
    @concert.task(name="delayed")
    async def delayed() -> int:
        return 7

    async with working(concert, health=health), concert.signal("s").subscribe():
        await eventually(lambda: all(any(re.fullmatch(each, what) for what in loops()) for each in expected))
        for what, task in loops().items():
            await fails(what, task)
            await told_of(caplog, what)
        assert not health.ready().is_ok
        assert "is tried again" in health.ready().reason
        running = loops()
        assert all(any(re.fullmatch(each, what) for what in running) for each in expected)
        for what, task in running.items():
            await to_go_on(task)
            assert len(told(caplog, what)) == 1, what
        before = ticks
        job = await delayed.options(delay=0.05).enqueue()
        assert await job.result(timeout=10) == 7
        await eventually(lambda: ticks > before)


async def test_look_for_deadlocks_that_fails_is_told_of_and_the_next_one_looks(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not repeated before somebody waits for long again."""
    monkeypatch.setattr(background, "_failures", {})
    looks = 0

    async def look(*args: object, **kwargs: object) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise Unexpected

    monkeypatch.setattr("inconcert.reports.inspect.inspect", look)
    for number in 1, 2:
        cast("Any", session_ref_of(concert).session.lines).on_long_wait()
        await told_of(caplog, "looking for deadlocks")
        await eventually(lambda: "looking for deadlocks" not in loops())
        assert looks == number

    assert len(told(caplog, "looking for deadlocks")) == 1


class Ready:
    """A loop that failed once, and has gone on."""

    def __init__(self) -> None:
        self.calls = 0
        self.goes_on = asyncio.Event()

    def __call__(self) -> None:
        """Raise the first time."""
        self.calls += 1
        if self.calls == 1:
            raise Unexpected
        self.goes_on.set()


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> Ready:
    """Raises once; the pause after that is short."""
    monkeypatch.setattr(background, "_PAUSE", 0.01)
    monkeypatch.setattr(background, "_failures", {})
    return Ready()


async def test_asking_for_parents_goes_on_after_an_unexpected_error(
    server: RealServer, namespace: str, once: Ready, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It runs where there are several partitions."""

    async def ask(_: object) -> float:
        once()
        return 60.0

    monkeypatch.setattr(Asker, "ask", ask)
    async with Coordinator(server.url, namespace=namespace, partitions=2) as concert, working(concert):
        await asyncio.wait_for(once.goes_on.wait(), 5.0)

    assert len(told(caplog, "asking for parents")) == 1


async def test_wait_for_replicas_goes_on_after_an_unexpected_error(
    once: Ready, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller that waited then gets the answer of the next round."""

    async def round_of(*_: object) -> int:
        once()
        return 2

    monkeypatch.setattr(Replicas, "_round", round_of)
    replicas = Replicas(cast("Any", None), 1, timeout=1.0)
    replicas._is_open = True
    assert await asyncio.wait_for(replicas.acknowledged(list), 5.0) == 2
    replicas._is_open = False
    await replicas.close()

    assert len(told(caplog, "waiting for replicas")) == 1


async def test_watch_over_a_master_goes_on_after_unexpected_errors(
    once: Ready, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A Sentinel is listened to, and the master is asked for, all the same."""
    moved: list[Any] = []
    asking = Ready()

    class Events:
        async def listen(self, *_: object) -> None:
            once()

        async def close(self) -> None:
            """Nothing is open."""

    async def master(_: MasterWatch) -> tuple[str, int]:
        asking()
        return "here", 1

    monkeypatch.setattr(MasterWatch, "_master", master)
    pool = cast("Any", Sentinel)([]).master_for("mine").connection_pool
    watch = MasterWatch(pool, moved.append)
    watch._events = cast("Any", [Events()])
    watch.start()
    watch.missed()
    await asyncio.wait_for(once.goes_on.wait(), 5.0)
    await eventually(lambda: moved)
    await watch.close()

    assert moved == [("here", 1)]
    for what in "listening to a Sentinel", "asking Sentinels for the master":
        assert len(told(caplog, what)) == 1


async def test_slot_map_is_kept_after_an_unexpected_error(
    once: Ready, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is asked for again when it is out of date."""

    class Pools:
        seeds = (("here", 1),)

        def listen_for_tokens(self) -> None:
            """There are none."""

        async def close(self) -> None:
            """Nothing is open."""

    cluster = Cluster(cast("Any", Pools()))
    refreshed = 0

    async def refresh(_: object) -> list[inconcert.InconcertError]:
        nonlocal refreshed
        refreshed += 1
        if refreshed > 1:  # the first is that of `open`
            once()
        return []

    monkeypatch.setattr(cluster, "_refresh", refresh)
    await cluster.open()
    cluster.refresh()
    await eventually(lambda: told(caplog, "asking the cluster for its slots"))
    cluster.refresh()
    await asyncio.wait_for(once.goes_on.wait(), 5.0)
    await cluster.close()

    assert len(told(caplog, "asking the cluster for its slots")) == 1


async def test_thread_that_watches_the_loop_goes_on_after_an_unexpected_error(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker has a stand-in for when its loop stands still, after as before."""
    monkeypatch.setattr(background, "_failures", {})
    looks, goes_on = itertools.count(1), threading.Event()

    def look(*_: object) -> None:
        if next(looks) == 1:
            raise Unexpected
        goes_on.set()

    monkeypatch.setattr(Watchdog, "_look", look)
    watchdog = Watchdog(session_ref_of(concert).session)
    watchdog.start(lease=0.1)
    await eventually(goes_on.is_set)
    assert watchdog.is_alive
    await watchdog.close()

    assert len(told(caplog, "watching the event loop")) == 1


async def test_no_timer_ends_with_an_unexpected_error(
    concert: Coordinator, elsewhere: Coordinator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each says so, and is set again."""
    monkeypatch.setattr(background, "_PAUSE", 0.01)
    monkeypatch.setattr(background, "_failures", {})
    expected = in_code("recurring")
    async with elsewhere.lock("held"), concert.lock("mine"):
        waiting = asyncio.create_task(concert.lock("held").acquire())
        await eventually(lambda: concert.lock("held").waiters())
        loop = cast("Any", asyncio.get_running_loop())
        found: dict[str, Any] = {}
        for handle in loop._scheduled:
            tick = getattr(handle._callback, "__wrapped__", None)
            if tick is not None and tick.__module__.startswith("inconcert.") and not handle.cancelled():
                found.setdefault(tick.__qualname__, handle)
        for name, handle in found.items():
            timed, code = handle._callback.__self__, handle._callback.__wrapped__.__code__
            with raising(1, code.__eq__) as injected:
                injected.arm()
                handle._callback()
            assert injected.where == name
            again = timed.timer
            assert not again.cancelled()
            assert again.when() < loop.time() + 1
            await to_be_called(timed, again)
        waiting.cancel()
        await asyncio.wait([waiting])

    assert {each for each in expected if told(caplog, each.replace("\\", ""))} == expected
