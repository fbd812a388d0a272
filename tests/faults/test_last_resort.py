"""A last resort: one unexpected error, wherever it is raised, leaves no job without an end and no loop dead."""

import ast
import asyncio
import itertools
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

import inconcert
from inconcert import Coordinator, WorkerHealth, current_job, durable
from inconcert._core.observer import Observer
from inconcert._redis import background
from inconcert.coordinator import session_ref_of
from inconcert.reports import detector
from inconcert.tasks.worker import Worker
from tests.support.eventually import eventually
from tests.support.raising import Injected, Unexpected, in_files, raising

PACKAGE = Path(inconcert.__file__).parent
PLACES = 3  # of the worker

# What ends a job, its last resort left out: that is two short methods, and an error in them is a second one.
END = in_files(
    "_claims",
    "tasks",
    "_core/observer.py",
    "_core/body.py",
    without=frozenset({"end_anyhow", "_ended", "_free_a_place", "_run_body", "<lambda>"}),
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

    async def stepwise(*args: Any) -> None:
        await (run(*args) if now is None else now.at_awaits_of(run(*args)))

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
    "_redis/background.py": {"create_task(go_on())", "call_later(called)"},  # these two themselves
    "_redis/bells.py": {"call_later(self._give_up)"},
    "_redis/sentinels.py": {"create_task(self._discover())"},
    "_redis/wire.py": {"create_task(self._guarded(part))"},
    "durable.py": {
        "create_task(has_returned.wait())",
        "create_task(steps.take(name, call, in_thread, may_change=may_change))",
    },
    "queues/get.py": {"create_task(self._serve_all())"},
    "quorum/rounds.py": {"create_task(work)"},
    "rate_limiter.py": {"call_later(self.recheck)", "call_later(self._use_at)"},
    "tasks/stream_writer.py": {"create_task(self._run())"},
    "tasks/worker.py": {"create_task(self._run(job, state))"},
}
# Timers that call a function marked as recurring.
RECURRING = {
    "_core/line.py": {"call_later(self._look_for_long_waits)", "call_later(self._wake)"},
    "_core/renewal.py": {"call_later(self._tick)"},
    "_redis/channel.py": {"call_at(self._tick)"},
    "_redis/pubsub.py": {"call_later(self._ping)"},
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
    """What the loop of this task waits for; None while it goes on, or is in the pause after an error."""
    within, waiter = cast("Any", task.get_coro()).cr_await, cast("Any", task)._fut_waiter
    if within is None or within.__name__ == "sleep" or waiter is None or waiter.done():
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
    await eventually(lambda: told(caplog, what))


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

    monkeypatch.setattr(detector, "inspect", look)
    for number in 1, 2:
        cast("Any", session_ref_of(concert).session.lines).on_long_wait()
        await told_of(caplog, "looking for deadlocks")
        await eventually(lambda: "looking for deadlocks" not in loops())
        assert looks == number

    assert len(told(caplog, "looking for deadlocks")) == 1


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
