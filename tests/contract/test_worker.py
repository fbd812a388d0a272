"""A worker as its operator meets it: how it ends, when it stops a job, and what runs around each attempt."""

import asyncio
import gc
import logging
import math
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import anyio
import pytest

import inconcert
from inconcert import ClaimedJob, Coordinator, JobStatus, NotConnected, current_job
from inconcert._redis.wire.wire import _TransportWire  # pyright: ignore[reportPrivateUsage]
from inconcert.tasks.records.store import JobKeys
from inconcert.tasks.running import served_queues as served_module
from inconcert.tasks.running.job_state import JobState
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.jobs import asleep, make_due
from tests.support.ledger import all_done, ledger_of, until
from tests.support.raw import client_of, raw
from tests.support.scripts import sent_in

SOON = 1.5  # seconds; the shortest sleep of an idle consumer is 2 s


# Claiming.


def watch_writes(monkeypatch: pytest.MonkeyPatch, note: Callable[[bytes], None]) -> None:
    """Note whatever is written to a server from now on."""
    write = _TransportWire.write

    def noted(wire: _TransportWire, data: bytes) -> None:
        note(data)
        write(wire, data)

    monkeypatch.setattr(_TransportWire, "write", noted)


@pytest.mark.parametrize(
    ("jobs", "order"),
    [
        pytest.param(4, ["claim", "claim", "begins", "begins", "claim", "begins", "begins"], id="backlog"),
        pytest.param(1, ["claim", "begins", "claim"], id="no backlog"),
    ],
)
async def test_next_claim_is_sent_before_jobs_begin_if_there_may_be_more(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch, jobs: int, order: list[str]
) -> None:
    """It asks for the other half of the places, and the server works on it while they run; else it delays no job."""
    events: list[str] = []

    @concert.task(name="t")
    async def task() -> None:
        events.append("begins")

    await concert.enqueue_many([task.call() for _ in range(jobs)])
    watch_writes(monkeypatch, lambda data: events.extend(["claim"] * sent_in(data, "claims/claim")))
    await concert.run_worker("default", concurrency=4, burst=True)
    assert events[: len(order)] == order


async def test_acknowledgement_goes_out_along_with_the_next_claim(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one write, so that the server answers both at once."""
    acknowledged: list[bytes] = []

    @concert.task(name="t")
    async def task() -> None: ...

    await concert.enqueue_many([task.call() for _ in range(4)])
    watch_writes(monkeypatch, lambda data: acknowledged.extend([data] * sent_in(data, "claims/ack")))
    await concert.run_worker("default", concurrency=1, burst=True)
    assert len(acknowledged) == 4
    assert all(sent_in(data, "claims/claim") for data in acknowledged)


# Draining.


async def test_stopped_worker_lets_running_jobs_end_and_claims_no_more(any_concert: Coordinator) -> None:
    """What runs is acknowledged, the rest stays in its queue, and the call returns."""
    stop, may_end, ran = asyncio.Event(), asyncio.Event(), list[int]()

    @any_concert.task(name="t")
    async def task(number: int) -> None:
        ran.append(number)
        await may_end.wait()

    put = [(await task.enqueue(number)).id for number in range(4)]
    async with in_background(any_concert.run_worker("default", concurrency=2, stop=stop)) as worker:
        await eventually(lambda: len(ran) == 2)
        stop.set()
        await asyncio.sleep(0)
        assert not worker.done()
        may_end.set()
        with anyio.fail_after(SOON):
            await worker
    ledger = await until(any_concert, lambda ledger: not ledger.workers)
    ledger.check(put=4, done=2)
    assert ran == [0, 1]
    assert ledger.ready == {"default": put[2:]}


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_plain_function_that_ends_while_the_worker_ends_is_done(any_concert: Coordinator, how: str) -> None:
    """Its thread is waited for anyway, so what it did counts, and its result is kept."""
    stop, started, may_end = asyncio.Event(), threading.Event(), threading.Event()

    @any_concert.task(name="t")
    def task() -> str:
        started.set()
        may_end.wait(SOON)
        return "done"

    job = await task.enqueue()
    worker = asyncio.create_task(any_concert.run_worker("default", stop=stop, grace=0))
    await eventually(started.is_set)
    if how == "stop":
        stop.set()
    else:
        worker.cancel()
    asyncio.get_running_loop().call_later(0.1, may_end.set)
    await asyncio.wait([worker])
    assert await job.result(timeout=0) == "done"
    (await ledger_of(any_concert)).check(put=1, done=1)


async def test_what_outlasts_the_grace_goes_back_uncounted(any_concert: Coordinator) -> None:
    """It is cancelled, and the call returns as after any other end."""
    stop, stopped = asyncio.Event(), list[int]()

    @any_concert.task(name="t")
    async def task(number: int) -> None:
        try:
            await anyio.sleep(0 if number == 1 else math.inf)
        finally:
            stopped.append(number)

    put = [(await task.enqueue(number)).id for number in range(3)]
    async with in_background(any_concert.run_worker("default", stop=stop, grace=0.05)) as worker:
        await until(any_concert, lambda ledger: len(ledger.bodies) == 2)
        started_at = time.monotonic()
        stop.set()
        with anyio.fail_after(SOON):
            await worker
        assert time.monotonic() - started_at >= 0.05
    assert sorted(stopped) == [0, 1, 2]
    ledger = await until(any_concert, lambda ledger: not ledger.workers)
    assert sorted(ledger.ready["default"]) == [put[0], put[2]]
    assert (ledger.claimed, ledger.failures, ledger.crashes) == ({}, {}, {})


async def test_body_that_is_cancelled_may_tidy_up(any_concert: Coordinator) -> None:
    """It has a second for it, in which what it awaits in its `finally` is not cut short."""
    stop, started, tidied = asyncio.Event(), asyncio.Event(), list[int]()

    @any_concert.task(name="t")
    async def task() -> None:
        try:
            started.set()
            await anyio.sleep_forever()
        finally:
            for step in range(3):
                await asyncio.sleep(0.01)
                tidied.append(step)

    job = await task.enqueue()
    async with in_background(any_concert.run_worker("default", stop=stop, grace=0)) as worker:
        await started.wait()
        stop.set()
        with anyio.fail_after(SOON):
            await worker
    assert tidied == [0, 1, 2]
    ledger = await until(any_concert, lambda ledger: not ledger.workers)
    assert ledger.ready["default"] == [job.id]


async def test_body_that_swallows_its_cancellation_is_told_again(
    any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is to stop does not wait for it for ever."""
    monkeypatch.setattr("inconcert._core.cancellation.CANCEL_AGAIN", 0.05)
    stop, started, swallowed = asyncio.Event(), asyncio.Event(), list[int]()

    @any_concert.task(name="t")
    async def task() -> None:
        started.set()
        for step in range(2):
            try:
                await anyio.sleep_forever()
            except asyncio.CancelledError:
                swallowed.append(step)
        await anyio.sleep_forever()

    await task.enqueue()
    async with in_background(any_concert.run_worker("default", stop=stop, grace=0)) as worker:
        await started.wait()
        stop.set()
        with anyio.fail_after(SOON):
            await worker
    assert swallowed == [0, 1]


async def test_job_whose_task_is_cancelled_before_it_begins_goes_back(concert: Coordinator) -> None:
    """And the worker, which is not told of it by the job, ends when it is to."""
    loop, stop, cancelled = asyncio.get_running_loop(), asyncio.Event(), list[asyncio.Task[Any]]()

    def make(loop: asyncio.AbstractEventLoop, body: Any, **more: Any) -> "asyncio.Task[Any]":
        task = asyncio.Task(body, loop=loop, **more)
        if not cancelled and body.__qualname__ == "Worker._run":
            task.cancel()
            cancelled.append(task)
        return task

    @concert.task(name="t")
    async def task() -> None: ...

    put = [(await task.enqueue()).id for _ in range(2)]
    loop.set_task_factory(make)
    try:
        async with in_background(concert.run_worker("default", stop=stop)) as worker:
            await eventually(lambda: bool(cancelled))
            stop.set()
            with anyio.fail_after(SOON):
                await worker
    finally:
        loop.set_task_factory(None)
    ledger = await until(concert, lambda ledger: not ledger.workers)
    ledger.check(put=2, done=1)
    assert ledger.ready == {"default": put[:1]}


@pytest.mark.parametrize("burst", [False, True])
async def test_job_whose_task_is_cancelled_before_it_begins_runs_again_while_the_worker_goes_on(
    concert: Coordinator, burst: bool
) -> None:
    """Its place is free again, also if it is the only one; and a burst is not over."""
    loop, stop, cancelled, ran = asyncio.get_running_loop(), asyncio.Event(), list[str](), list[str]()

    def make(loop: asyncio.AbstractEventLoop, body: Any, **more: Any) -> "asyncio.Task[Any]":
        task = asyncio.Task(body, loop=loop, **more)
        if not cancelled and body.__qualname__ == "Worker._run":
            task.cancel()
            cancelled.append(task.get_name())
        return task

    @concert.task(name="t")
    async def task() -> None:
        ran.append(current_job().id)
        if len(ran) == 2:
            stop.set()

    put = [(await task.enqueue()).id for _ in range(2)]
    loop.set_task_factory(make)
    try:
        with anyio.fail_after(SOON):
            await concert.run_worker("default", concurrency=1, stop=stop, burst=burst)
    finally:
        loop.set_task_factory(None)
    assert (len(cancelled), ran) == (1, put)
    (await until(concert, lambda ledger: not ledger.workers)).check(put=2, done=2)


class _Ended(asyncio.Future[Any]):
    """Stands for a task that has ended."""

    def set_name(self, name: str) -> None:
        """A task has one."""


async def test_jobs_that_an_eager_task_factory_runs_at_once_free_their_places_once(concert: Coordinator) -> None:
    """As that of Python 3.12 does: the task of such a job has ended before the worker has noted it."""
    loop, stop, running, most = asyncio.get_running_loop(), asyncio.Event(), set[int](), list[int]()

    def make(loop: asyncio.AbstractEventLoop, body: Any, **more: Any) -> Any:
        if body.__qualname__ != "Worker._run" or may_wait.is_set():
            return asyncio.Task(body, loop=loop, **more)
        with pytest.raises(StopIteration):
            body.send(None)
        ended = _Ended(loop=loop)
        ended.set_result(None)
        return ended

    @concert.task(name="t")
    async def task(number: int) -> None:
        running.add(number)
        most.append(len(running))
        if number == 9:
            may_wait.set()
        if number > 9:
            await asyncio.sleep(0)
        if number == 19:
            stop.set()
        running.remove(number)

    may_wait = asyncio.Event()
    put = await concert.enqueue_many(task.call(number) for number in range(20))
    loop.set_task_factory(make)
    try:
        with anyio.fail_after(SOON):
            await concert.run_worker("default", concurrency=2, stop=stop)
    finally:
        loop.set_task_factory(None)
    assert len(most) == len(put)
    assert max(most) <= 2
    (await until(concert, lambda ledger: not ledger.workers)).check(put=20, done=20)


@dataclass(eq=False)
class Something:
    """An argument, or a result, that notes itself where it is made."""

    number: int

    def __post_init__(self) -> None:
        _made.append(weakref.ref(self))


_made: list[weakref.ref[Something]] = []


async def _returns(given: Something) -> Something:
    return Something(given.number)


async def _raises(given: Something) -> None:
    raise ValueError(given.number)


def _returns_in_thread(given: Something) -> Something:
    return Something(given.number)


def _raises_in_thread(given: Something) -> None:
    raise ValueError(given.number)


@pytest.mark.parametrize("body", [_returns, _raises, _returns_in_thread, _raises_in_thread])
async def test_a_worker_that_waits_keeps_nothing_of_jobs_that_have_ended(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch, body: Callable[[Something], Any]
) -> None:
    """Neither arguments nor results: they are freed at once, without the garbage collector."""
    monkeypatch.setattr(logging.getLogger("inconcert.claims"), "disabled", True)  # what is captured keeps tracebacks
    task: Any = concert.task(name="t", max_attempts=1)(body)
    _made.clear()
    gc.disable()
    try:
        async with in_background(concert.run_worker("default", concurrency=2)):
            jobs = [await task.enqueue(Something(number)) for number in range(3)]
            await eventually(lambda: len(_made) >= 2 * len(jobs))
            await eventually(lambda: not any(made() for made in _made), timeout=SOON)
    finally:
        gc.enable()


@pytest.mark.parametrize("is_burst", [False, True])
async def test_job_whose_success_cannot_be_sent_is_dead_lettered(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch, *, is_burst: bool
) -> None:
    """It is not run again, and those that end with it are acknowledged."""

    @concert.task(name="t")
    async def task(number: int) -> None:
        del number

    put = [(await task.enqueue(number)).id for number in range(3)]
    results = JobKeys.results

    def fail_for_the_second(keys: JobKeys, ids: list[str]) -> object:
        if put[1] in ids:
            raise ValueError("no key")
        return results(keys, ids)

    monkeypatch.setattr(JobKeys, "results", fail_for_the_second)
    if is_burst:
        await concert.run_worker("default", burst=True)
    async with in_background(concert.run_worker("default")):
        ledger = await until(concert, lambda ledger: ledger.bodies == [put[1]] and ledger.dead == [put[1]])
    ledger.check(put=3, done=2)


async def test_idle_worker_stops_at_once(any_concert: Coordinator) -> None:
    """It does not sleep on."""
    stop = asyncio.Event()
    async with in_background(any_concert.run_worker("default", stop=stop)) as worker:
        await asleep(any_concert)
        stop.set()
        with anyio.fail_after(SOON):
            await worker


async def test_worker_that_is_told_to_stop_before_it_starts_runs_nothing(any_concert: Coordinator) -> None:
    """An order that came while the process started holds."""
    stop = asyncio.Event()
    stop.set()
    put = await any_concert.enqueue("t")
    with anyio.fail_after(SOON):
        await any_concert.run_worker("default", stop=stop)
    assert (await ledger_of(any_concert)).ready == {"default": [put.id]}


async def test_closing_the_coordinator_ends_a_worker_that_drains(any_concert: Coordinator, namespace: str) -> None:
    """What ran goes back, and is not counted."""
    stop = asyncio.Event()
    async with Coordinator.from_client(client_of(any_concert), namespace=namespace) as closing:

        @closing.task(name="t")
        async def task() -> None:
            await anyio.sleep_forever()

        put = await task.enqueue()
        worker = asyncio.create_task(closing.run_worker("default", stop=stop))
        await until(any_concert, lambda ledger: ledger.claimed)
        stop.set()
        await asyncio.sleep(0)
    await asyncio.wait([worker], timeout=5)
    assert isinstance(worker.exception(), NotConnected | None)
    ledger = await ledger_of(any_concert)
    assert (ledger.ready, ledger.failures) == ({"default": [put.id]}, {})


async def test_stopped_consumer_ends_its_loop(any_concert: Coordinator) -> None:
    """The job in hand may end, what was claimed ahead goes back, and nobody waits for more."""
    put = [(await any_concert.enqueue("t", [number])).id for number in range(4)]
    seen: list[str] = []
    async with any_concert.consume("default", prefetch=3) as jobs:
        async for job in jobs:
            async with job:
                seen.append(job.id)
                jobs.stop()
        assert await jobs.claim(1) == []
    ledger = await until(any_concert, lambda ledger: not ledger.claimed)
    assert (seen, ledger.ready) == (put[:1], {"default": put[1:]})


# Bursts.


async def test_burst_ends_when_nothing_is_left(any_concert: Coordinator) -> None:
    """All queues are empty, those that jobs filled meanwhile, too; what is not due does not count."""
    ran: list[int] = []

    @any_concert.task(name="t")
    async def task(number: int) -> None:
        ran.append(number)
        if number < 3:
            await task.options(queue="low").enqueue(number + 3)

    for number in range(3):
        await task.enqueue(number)
    later = await task.options(delay=3600).enqueue(7)
    with anyio.fail_after(SOON):
        await any_concert.run_worker("default", "low", concurrency=2, burst=True)
        await any_concert.run_worker("default", "low", burst=True)  # with nothing to do at all
    assert sorted(ran) == list(range(6))
    ledger = await until(any_concert, lambda ledger: not ledger.workers)
    assert (ledger.bodies, ledger.delayed) == ([later.id], {"default": [later.id]})


async def test_worker_returns_after_as_many_jobs_as_it_may_run(any_concert: Coordinator) -> None:
    """When these have ended; each attempt counts, and what it does not run stays where it is."""
    ran: list[int] = []
    both_run, may_end = asyncio.Event(), asyncio.Event()

    @any_concert.task(name="t")
    async def task(number: int) -> None:
        ran.append(number)
        if number == 0:
            raise ValueError("once more")
        if len(ran) == 3:
            both_run.set()
        await may_end.wait()

    put = [await task.options(max_attempts=1).enqueue(number) for number in range(5)]
    with anyio.fail_after(30):
        await any_concert.run_worker("default", concurrency=10, max_jobs=1)
        assert ran == [0]
        async with anyio.create_task_group() as group:
            group.start_soon(partial(any_concert.run_worker, "default", concurrency=10, max_jobs=2))
            await both_run.wait()
            may_end.set()
    assert ran == [0, 1, 2]
    ledger = await until(any_concert, lambda ledger: not ledger.workers)
    assert ledger.ready == {"default": [job.id for job in put[3:]]}
    with pytest.raises(ValueError, match="max_jobs"):
        await any_concert.run_worker("default", max_jobs=0)


async def test_burst_runs_delayed_jobs_that_are_due(any_concert: Coordinator) -> None:
    """More than the promoter moves at once: bursts may be all that ever runs, started from time to time."""
    ran: list[int] = []

    @any_concert.task(name="t")
    async def task(number: int) -> None:
        ran.append(number)

    for number in range(120):
        await task.options(delay=3600).enqueue(number)
    await make_due(any_concert, "default")
    with anyio.fail_after(5):
        await any_concert.run_worker("default", burst=True)
    assert sorted(ran) == list(range(120))


async def test_burst_runs_what_a_running_job_waits_for(any_concert: Coordinator) -> None:
    """It goes on claiming as long as anything runs, and ends with the last of them, not after a sleep."""
    inner_ran = asyncio.Event()

    @any_concert.task(name="inner")
    async def inner() -> None:
        inner_ran.set()

    @any_concert.task(name="outer")
    async def outer() -> None:
        await inner.enqueue()
        await inner_ran.wait()

    await outer.enqueue()
    with anyio.fail_after(SOON):
        await any_concert.run_worker("default", burst=True)
    assert (await ledger_of(any_concert)).bodies == []


# Time limits.


async def test_job_is_stopped_at_its_limit(any_concert: Coordinator) -> None:
    """That is a failed attempt, with the limit in the reason; whoever enqueues it may set another."""
    cancelled: list[float] = []

    @any_concert.task(name="t", max_attempts=1, time_limit=60)
    async def task(seconds: float) -> None:
        try:
            await anyio.sleep(seconds)
        except asyncio.CancelledError:
            cancelled.append(seconds)
            raise

    slow = await task.options(time_limit=0.05).enqueue(30)
    await task.options(time_limit=None).enqueue(0)
    await task.enqueue(0)
    async with in_background(any_concert.run_worker("default")):
        ledger = await until(any_concert, lambda ledger: ledger.bodies == ledger.dead == [slow.id])
    assert cancelled == [30]
    assert ledger.reasons[slow.id]["reason"] == "TimeoutError: task 't' ran longer than 0.05 s"


async def test_limit_leaves_other_errors_alone(any_concert: Coordinator) -> None:
    """Also a TimeoutError of the job's own, and one that it raises because it is stopped."""

    @any_concert.task(name="own", max_attempts=1, time_limit=60)
    async def own() -> None:
        raise TimeoutError("mine")

    @any_concert.task(name="late", max_attempts=1, time_limit=0.02)
    async def late() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("in vain")

    puts = [await own.enqueue(), await late.enqueue()]
    async with in_background(any_concert.run_worker("default")):
        ledger = await until(any_concert, lambda ledger: len(ledger.dead) == 2)
    reasons = [ledger.reasons[put.id]["reason"] for put in puts]
    assert reasons == ["TimeoutError: mine", "ValueError: in vain"]


async def test_plain_function_runs_beyond_its_limit_and_counts(any_concert: Coordinator) -> None:
    """A thread cannot be stopped: it ends, once, its work is done, and a warning says how long it took."""
    ran: list[int] = []

    @any_concert.task(name="t", time_limit=0.02)
    def task() -> None:
        time.sleep(0.1)  # the limit passes
        ran.append(threading.get_ident())

    await task.enqueue()
    async with in_background(any_concert.run_worker("default")):
        await all_done(any_concert)
    assert len(ran) == 1


async def test_job_that_is_cancelled_while_a_limit_holds_goes_back(any_concert: Coordinator) -> None:
    """A shutdown is no timeout."""
    started = asyncio.Event()

    @any_concert.task(name="t", time_limit=60)
    async def task() -> None:
        started.set()
        await anyio.sleep_forever()

    put = await task.enqueue()
    async with in_background(any_concert.run_worker("default")):
        await started.wait()
    ledger = await until(any_concert, lambda ledger: not ledger.claimed)
    assert (ledger.ready, ledger.failures) == ({"default": [put.id]}, {})


# Jobs that would end their worker.


def exit_at_once() -> None:
    """In a thread."""
    sys.exit(3)


async def exit_in_a_coroutine() -> None:
    """On the event loop."""
    sys.exit("enough")


async def cancel_itself() -> None:
    """As it happens to those who wait for a future that another has cancelled."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def exit_a_generator() -> None:
    """As a generator's own code may, by mistake."""
    raise GeneratorExit


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (exit_at_once, "sys.exit(3)"),
        (exit_in_a_coroutine, "sys.exit('enough')"),
        (cancel_itself, "CancelledError"),
        (exit_a_generator, "GeneratorExit"),
    ],
)
async def test_job_that_would_end_its_worker_has_failed(
    any_concert: Coordinator, function: Callable[[], Any], reason: str
) -> None:
    """It is counted, so that it does not come back for ever, and the worker goes on."""
    ran = asyncio.Event()

    @any_concert.task(name="next")
    async def following() -> None:
        ran.set()

    bad = await any_concert.task(name="bad", max_attempts=1)(function).enqueue()
    await following.enqueue()
    async with in_background(any_concert.run_worker("default", concurrency=1)):
        await ran.wait()
        ledger = await until(any_concert, lambda ledger: ledger.bodies == [bad.id])
    assert ledger.dead == [bad.id]
    assert reason in ledger.reasons[bad.id]["reason"]


# Middlewares.


async def test_middlewares_run_around_each_attempt(any_concert: Coordinator) -> None:
    """The first added is the outermost; each learns how the attempt ended, as tracing needs it."""
    spans: list[str] = []

    def tracing(name: str) -> "Callable[[ClaimedJob], Any]":
        @asynccontextmanager
        async def trace(job: ClaimedJob) -> AsyncGenerator[None]:
            spans.append(f"{name} starts {job.name} {job.attempt}")
            try:
                yield
            except Exception as error:
                spans.append(f"{name} saw {error!r}")
                raise
            spans.append(f"{name} ends")

        return trace

    any_concert.add_middleware(tracing("outer"))
    any_concert.add_middleware(tracing("inner"))

    @any_concert.task(name="t", max_attempts=1)
    async def task(*, fail: bool) -> None:
        spans.append("body")
        if fail:
            raise ValueError("no")

    await task.enqueue(fail=False)
    await task.enqueue(fail=True)
    await any_concert.enqueue("unknown")  # no attempt
    await any_concert.run_worker("default", concurrency=1, burst=True)
    start = ["outer starts t 1", "inner starts t 1", "body"]
    assert spans == [
        *start,
        "inner ends",
        "outer ends",
        *start,
        "inner saw ValueError('no')",
        "outer saw ValueError('no')",
    ]


async def test_exception_of_a_middleware_is_a_failure_of_the_job(any_concert: Coordinator) -> None:
    """Before the body, which then does not run, and after it."""

    @asynccontextmanager
    async def break_down(job: ClaimedJob) -> AsyncGenerator[None]:
        if job.args == [0]:
            raise ValueError("before")
        yield
        raise ValueError("after")

    any_concert.add_middleware(break_down)
    ran: list[int] = []

    @any_concert.task(name="t", max_attempts=1)
    async def task(number: int) -> None:
        ran.append(number)

    puts = [await task.enqueue(0), await task.enqueue(1)]
    await any_concert.run_worker("default", burst=True)
    ledger = await ledger_of(any_concert)
    assert [ledger.reasons[put.id]["reason"] for put in puts] == ["ValueError: before", "ValueError: after"]
    assert ran == [1]


async def test_middleware_may_swallow_an_error(any_concert: Coordinator) -> None:
    """Then the job is done; it also sees a time limit as one."""
    seen: list[str] = []

    @asynccontextmanager
    async def forgive(job: ClaimedJob) -> AsyncGenerator[None]:
        try:
            yield
        except TimeoutError as error:
            seen.append(str(error))

    any_concert.add_middleware(forgive)

    @any_concert.task(name="t", time_limit=0.02)
    async def task() -> None:
        await anyio.sleep_forever()

    await task.enqueue()
    await any_concert.run_worker("default", burst=True)
    assert (await ledger_of(any_concert)).bodies == []
    assert seen == ["task 't' ran longer than 0.02 s"]


async def test_middleware_may_replace_the_result(any_concert: Coordinator) -> None:
    """What it leaves in `job.result` is what others get."""

    @asynccontextmanager
    async def wrap(job: ClaimedJob) -> AsyncGenerator[None]:
        yield
        job.result = {"wrapped": job.result}

    @any_concert.task(name="count")
    async def count() -> int:
        return 7

    any_concert.add_middleware(wrap)
    job = await count.enqueue()
    await any_concert.run_worker("default", burst=True)
    assert await job.result(object, timeout=5) == {"wrapped": 7}


@pytest.mark.parametrize(
    ("how", "attempts", "ends"),
    [("bury", [1], "failed"), ("nack", [1, 2], "succeeded"), ("give_back", [1, 1], "succeeded")],
)
async def test_body_may_end_its_own_attempt(
    any_concert: Coordinator, how: str, attempts: list[int], ends: JobStatus
) -> None:
    """It is set aside, has failed, or goes back uncounted; what the body returns after that is dropped."""
    seen: list[int] = []

    @any_concert.task(name="charge")
    async def charge() -> str:
        job = current_job()
        seen.append(job.attempt)
        if len(seen) == 1 and how == "bury":
            await job.bury(ValueError("no such order"))
        elif len(seen) == 1 and how == "nack":
            await job.nack(delay=0)
        elif len(seen) == 1:
            await job.give_back()
        return f"run {len(seen)}"

    job = await charge.enqueue()
    await any_concert.run_worker("default", burst=True)
    assert (seen, await job.status()) == (attempts, ends)
    if ends == "succeeded":
        assert await job.result(timeout=5) == "run 2"


# What is said, and what is refused.


async def test_each_attempt_has_a_line_at_its_start_and_at_its_end(
    any_concert: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    """With id, attempt, task, queue, and what became of it; also as attributes of the record."""

    @any_concert.task(name="mail.sold", queue="high")
    async def task(*, fail: bool) -> None:
        if fail:
            raise ValueError("no")

    puts = [await task.enqueue(fail=False), await task.enqueue(fail=True)]
    with caplog.at_level(logging.INFO, "inconcert.tasks"):
        await any_concert.run_worker("high", burst=True)
    for put, outcome in zip(puts, ("done", "retry"), strict=True):
        text = f"job {put.id} attempt 1 (task 'mail.sold', queue 'high')"
        records = [record for record in caplog.records if vars(record).get("job_id") == put.id]
        start, *failed, end = [record.getMessage() for record in records]
        assert start == f"{text} starts"
        assert failed == [f"{text} failed"] * (outcome == "retry")
        assert end.startswith(f"{text}: {outcome}, it took 0.")
        for record in records:
            assert vars(record).items() >= {"attempt": 1, "task": "mail.sold", "queue": "high"}.items()


async def test_attempt_makes_no_fields_for_lines_that_are_not_logged(
    any_concert: Coordinator, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the level WARNING an attempt that ends well costs nothing for the log."""

    @any_concert.task(name="mail.sold")
    async def task() -> None: ...

    put = await task.enqueue()
    monkeypatch.setattr(JobState, "fields", None)
    with caplog.at_level(logging.WARNING, "inconcert.tasks"):
        await any_concert.run_worker("default", burst=True)
    assert await put.status() is JobStatus.SUCCEEDED


async def test_job_runs_in_a_task_of_its_name(any_concert: Coordinator) -> None:
    """So that lines of its own can name it."""
    names: list[str] = []

    @any_concert.task(name="mail.sold")
    async def task() -> None:
        current = asyncio.current_task()
        names.append(current.get_name() if current else "")

    put = await task.enqueue()
    await any_concert.run_worker("default", burst=True)
    assert names == [f"job {put.id} attempt 1 (task 'mail.sold', queue 'default')"]


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_job_that_goes_back_has_a_line_at_its_end(
    any_concert: Coordinator, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """Of a worker that was told to stop, or cancelled."""
    started, stop = asyncio.Event(), asyncio.Event()

    @any_concert.task(name="t")
    async def task() -> None:
        started.set()
        await anyio.sleep_forever()

    await task.enqueue()
    with caplog.at_level(logging.INFO, "inconcert.tasks"):
        async with in_background(any_concert.run_worker("default", stop=stop, grace=0)) as worker:
            await started.wait()
            if how == "stop":
                stop.set()
                await worker
    assert [text for text in caplog.messages if " attempt 1 (task 't', queue 'default'): back, it took 0." in text]


@pytest.mark.parametrize(
    ("queues", "is_odd"),
    [(("high", "low"), False), (("high",), False), (("high", "low", "bulk"), False), (("hihg", "low"), True)],
    ids=str,
)
async def test_worker_says_what_it_serves(
    any_concert: Coordinator, caplog: pytest.LogCaptureFixture, queues: tuple[str, ...], is_odd: bool
) -> None:
    """And warns of a queue that no task has, if tasks have one that it does not serve."""
    for queue in ("high", "low"):
        any_concert.task(name=queue, queue=queue)(print)
    with caplog.at_level(logging.INFO, "inconcert.tasks"):
        await any_concert.run_worker(*queues, burst=True)
    name, namespace = any_concert._ref.session.id, any_concert._ref.keys.namespace
    assert (
        f"worker {name} starts; pid: {os.getpid()}; inconcert: {inconcert.__version__}; "
        f"server: {any_concert.url or 'of a client of its own'}; namespace: {namespace}; "
        f"queues: {', '.join(queues)}; tasks: high, low; jobs at once: 100"
    ) == caplog.messages[0]
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    expected = "no task has queue hihg, and this worker does not serve queue high; is a name misspelt?"
    assert warnings == [expected] * is_odd


# Queues that no one serves.


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers report the queues that they serve, and check the others, a hundred times a second."""
    monkeypatch.setattr(served_module, "_SHORTEST_PAUSE", 0.01)
    monkeypatch.setattr(served_module, "_LONGEST_PAUSE", 0.01)


async def reported(concert: Coordinator, queue: str) -> float:
    """Wait until a consumer reports once more that it serves this queue; the time by the server's clock, in ms."""
    client, served = raw(concert), JobKeys(concert._ref.keys).served
    await client.zadd(served, {queue: 0})

    async def is_there() -> bool:
        return bool(await client.zscore(served, queue))

    await eventually(is_there)
    return float(await client.zscore(served, queue))


def unserved(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of unserved queues."""
    return [text for text in caplog.messages if text.startswith("no worker has served")]


async def test_worker_warns_once_of_a_queue_that_no_one_serves(
    any_concert: Coordinator, often: None, caplog: pytest.LogCaptureFixture
) -> None:
    """When it holds jobs: ready, delayed, or waiting for others."""
    task = any_concert.task(name="t", queue="low")(print)
    any_concert.task(name="u", queue="empty")(print)
    async with in_background(any_concert.run_worker("default")):
        await reported(any_concert, "default")
        assert unserved(caplog) == []
        first = await task.enqueue()
        await eventually(lambda: unserved(caplog))
        await task.options(delay=60).enqueue()
        await task.options(after=[first]).enqueue()
        for _ in range(3):
            await reported(any_concert, "default")
        assert unserved(caplog) == ["no worker has served queue 'low' in the last 120 s, and it holds jobs: 1"]
    async with in_background(any_concert.run_worker("other")):
        await eventually(lambda: len(unserved(caplog)) == 2)
    assert unserved(caplog)[1].endswith("it holds jobs: 3")


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("ago_s", [0, 110, 130])
async def test_queue_that_was_served_lately_is_not_warned_of(
    any_concert: Coordinator, often: None, caplog: pytest.LogCaptureFixture, ago_s: int, is_known: bool
) -> None:
    """By any consumer in the last two minutes; after that, a worker without its tasks warns, too."""
    if is_known:
        any_concert.task(name="t", queue="old")(print)
    await any_concert.enqueue("t", queue="old")
    async with any_concert.consume("old"):
        now_ms = await reported(any_concert, "old")
    await raw(any_concert).zadd(JobKeys(any_concert._ref.keys).served, {"old": now_ms - ago_s * 1000})
    async with in_background(any_concert.run_worker("default")):
        for _ in range(3):
            await reported(any_concert, "default")
    assert bool(unserved(caplog)) == (ago_s == 130)


async def test_queue_that_no_one_has_served_for_a_day_is_forgotten(any_concert: Coordinator, often: None) -> None:
    """So the set does not grow without bound."""
    client, served = raw(any_concert), JobKeys(any_concert._ref.keys).served
    async with any_concert.consume("q"):
        now_ms = await reported(any_concert, "q")
        await client.zadd(served, {"yesterday": now_ms - 86_500_000, "today": now_ms - 86_300_000})
        await reported(any_concert, "q")
    assert await client.zrange(served, 0, -1) == [b"today", b"q"]
    assert 86_000_000 < await client.pttl(served) <= 86_400_000


@pytest.mark.parametrize(("count", "shown"), [(0, "none"), (20, "t19"), (22, "t19 and 2 more")])
async def test_worker_names_so_many_tasks(
    any_concert: Coordinator, caplog: pytest.LogCaptureFixture, count: int, shown: str
) -> None:
    """The first twenty, for there may be hundreds."""
    for number in range(count):
        any_concert.task(name=f"t{number:02}")(print)
    with caplog.at_level(logging.INFO, "inconcert.tasks"):
        await any_concert.run_worker("default", burst=True)
    [tasks] = re.findall("; tasks: (.*);", caplog.messages[0])
    assert tasks.split(", ")[-1] == shown
    assert len(tasks.split(", ")) == min(max(count, 1), 20)


@pytest.mark.parametrize("how", ["burst", "stop", "cancel"])
async def test_worker_says_that_it_has_ended(
    any_concert: Coordinator, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """And how many attempts it has begun, however it ends."""
    stop, started = asyncio.Event(), asyncio.Event()

    @any_concert.task(name="t")
    async def task() -> None:
        started.set()

    await task.enqueue()
    with caplog.at_level(logging.INFO, "inconcert.tasks"):
        worker = any_concert.run_worker("default", stop=stop, burst=how == "burst")
        async with in_background(worker) as running:
            await started.wait()
            if how != "cancel":
                stop.set()
                await running
    name = any_concert._ref.session.id
    assert re.fullmatch(rf"worker {name} has ended after 0\.\d s; attempts: 1", caplog.messages[-1])


async def test_bad_numbers_of_a_worker_are_refused() -> None:
    """Before anything is sent."""
    concert = Coordinator()
    for grace in (-1, math.nan, math.inf, "1", None, True):
        with pytest.raises(ValueError, match="grace"):
            await concert.run_worker("q", grace=cast("Any", grace))
    for limit in (0, -1, math.nan, math.inf, "1", True):
        with pytest.raises(ValueError, match="time_limit"):
            concert.task(time_limit=cast("Any", limit))(print)
        with pytest.raises(ValueError, match="time_limit"):
            await concert.enqueue("t", time_limit=cast("Any", limit))
