"""The server's clock is set forward or back: who lives is not buried, no schedule falls silent, and no number falls."""

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, HealthReport, Job, JobStatus, WorkerHealth, durable
from inconcert._rules.defaults import HEARTBEAT_LEASE
from inconcert.tasks.running.health import judge_ready
from inconcert.testing import Process, World, simulate
from tests.support.eventually import eventually
from tests.support.jobs import facts

HOUR, DAY = 3600.0, 86_400.0
REST = 120.0  # seconds for which jobs sleep and wait


def steps(*always: float, tortured: list[float]) -> pytest.MarkDecorator:
    """By how many seconds the clock is set, with those that only `make torture` tries."""
    further = [pytest.param(step, marks=pytest.mark.torture) for step in tortured]
    return pytest.mark.parametrize("step", [*always, *further], ids=str)


STEPS = steps(-15.0, 90 * DAY, tortured=[15.0, HOUR, -HOUR, -90 * DAY])


@STEPS
def test_worker_that_lives_keeps_its_job(step: float) -> None:
    """At each step it runs on, and no crash is counted."""
    starts: list[float] = []

    async def story(world: World) -> None:
        worker, other = await world.process("worker"), await world.process("other")

        @worker.concert.task(name="long")
        async def long() -> str:
            starts.append(world.now())
            await anyio.sleep(6 * HEARTBEAT_LEASE)
            return "done"

        job = await worker.concert.enqueue("long")
        worker.start(worker.concert.run_worker("default"))
        await eventually(lambda: starts)
        other.start(other.concert.run_worker("default"))
        for _ in range(5):
            await anyio.sleep(0.7 * HEARTBEAT_LEASE)
            world.step_clock(step)
        assert await job.result(timeout=6 * HEARTBEAT_LEASE) == "done"
        assert await facts(worker.concert) == {}

    simulate(story, seeds=1)
    assert len(starts) == 1


@STEPS
def test_worker_is_ready_at_each_step_and_consumes(step: float) -> None:
    """No instant of the server's clock is compared with one before."""

    async def story(world: World) -> None:
        worker, health = await world.process("worker"), WorkerHealth()

        @worker.concert.task(name="echo")
        async def echo(number: int) -> int:
            return number

        worker.start(worker.concert.run_worker("default", health=health))

        def answer() -> HealthReport:
            assert health._watched.signs is not None
            signs, now = health._watched.signs(), time.monotonic()
            assert signs.consumer is not None
            turning = signs.consumer._replace(turned_at=now)  # no thread asks a loop whose time is virtual
            return judge_ready(replace(signs, consumer=turning), now)

        await eventually(lambda: health._watched.signs is not None and answer().is_ok)
        for number in range(3):
            world.step_clock(step)
            for _ in range(15):
                await anyio.sleep(1)
                assert answer().is_ok, answer()
            assert await (await echo.enqueue(number)).result(timeout=1.5 * HEARTBEAT_LEASE) == number

    simulate(story, seeds=1)


@STEPS
def test_consumer_that_lives_keeps_its_item(step: float) -> None:
    """At the pace of its queue's ttl."""

    async def story(world: World) -> None:
        consumer, other = await world.process("consumer"), await world.process("other")
        await consumer.concert.queue("q", ttl=60.0).put("item")

        async def consume() -> None:
            delivery = await consumer.concert.queue("q", ttl=60.0).get()
            async with delivery:
                for _ in range(5):
                    await anyio.sleep(45)
                    world.step_clock(step)

        async def look() -> None:
            await anyio.sleep(1)
            with suppress(TimeoutError):
                await other.concert.queue("q", ttl=60.0).get(timeout=300)
                raise AssertionError("it came twice")

        done = consumer.start(consume())
        await other.start(look())
        await done

    simulate(story, seeds=1)


@steps(0.0, -15.0, DAY, tortured=[15.0, -DAY])
def test_worker_that_died_is_recovered_in_time(step: float) -> None:
    """A step of the clock makes that earlier, or later, by less than half a lease."""
    lost_after: list[float] = []

    async def story(world: World) -> None:
        worker, other = await world.process("worker"), await world.process("other")
        await worker.concert.enqueue("t")

        async def take() -> None:
            async with worker.concert.consume("default") as jobs:
                await anext(aiter(jobs))
                worker.kill()
                await anyio.sleep_forever()

        async def take_again() -> None:
            async with other.concert.consume("default") as jobs:
                await jobs.claim(1)
                lost_after.append(world.now() - worker.died_at)

        worker.start(take())
        await eventually(lambda: worker.died_at < world.now())
        again = other.start(take_again())
        await anyio.sleep(1)
        world.step_clock(step)
        await again

    simulate(story, seeds=1)
    [seconds] = lost_after
    most = 1.05 if step == 0 else 1.4
    least = 0.5 if step > 0 else 0.95
    assert least * HEARTBEAT_LEASE < seconds < most * HEARTBEAT_LEASE


class Waits:
    """Jobs that sleep for a while, and wait for as long; what came of them, and after how many seconds."""

    def __init__(self) -> None:
        self.ended: dict[str, list[float]] = {"sleep": [], "wait": [], "message": [], "nap": []}

    async def begin(self, worker: Process, world: World) -> None:
        """Run a worker that has one of each, until they have left it."""
        concert = worker.concert

        @concert.task(name="t")
        async def task(kind: str) -> None:
            if kind == "sleep":
                await durable.sleep("s", REST)
            elif kind == "nap":
                await durable.sleep("s", REST, in_memory_below=2 * REST)
            else:
                with suppress(TimeoutError):
                    assert await durable.wait_for("m", str, timeout=REST) == kind == "message"
            self.ended[kind].append(world.now() - began_at)

        worker.start(concert.run_worker("default"))
        began_at = world.now()
        jobs = {kind: await concert.enqueue("t", [kind]) for kind in self.ended}
        self.message = jobs["message"]
        for kind in ("sleep", "wait", "message"):
            await eventually(partial(self._is_delayed, jobs[kind]))

    async def _is_delayed(self, job: Job[Any]) -> bool:
        return await job.status() is JobStatus.DELAYED


@pytest.mark.parametrize(
    ("whose", "ahead"),
    [
        ("server", DAY),
        ("worker", -DAY),
        pytest.param("server", -DAY, marks=pytest.mark.torture),
        pytest.param("worker", DAY, marks=pytest.mark.torture),
    ],
)
def test_job_sleeps_and_waits_as_long_whosever_clock_is_wrong(ahead: float, whose: str) -> None:
    """A clock that is ahead or behind, and stays so."""
    waits = Waits()

    async def story(world: World) -> None:
        if whose == "server":
            world.step_clock(ahead)
        sender = await world.process("sender")
        await waits.begin(await world.process("worker", clock_ahead=ahead if whose == "worker" else 0.0), world)
        await anyio.sleep(REST / 2)
        assert await sender.concert.tasks.job(waits.message.id).send("m", "message")
        await anyio.sleep(REST)

    simulate(story, seeds=1)
    ended = {kind: [round(seconds / 10) * 10 for seconds in ends] for kind, ends in waits.ended.items()}
    assert ended == {"sleep": [REST], "nap": [REST], "wait": [REST], "message": [REST / 2]}


@steps(-15.0, REST / 2, tortured=[15.0, -REST / 2, 90 * DAY])
def test_job_that_sleeps_or_waits_comes_back_once_at_each_step(step: float) -> None:
    """Later by as much as the clock is set back; earlier by as much as it is set forward, or not; a message at once."""
    waits = Waits()

    async def story(world: World) -> None:
        sender = await world.process("sender")
        await waits.begin(await world.process("worker"), world)
        await anyio.sleep(REST / 4)
        world.step_clock(step)
        await anyio.sleep(1)
        assert await sender.concert.tasks.job(waits.message.id).send("m", "message")
        await anyio.sleep(2 * REST)

    simulate(story, seeds=1)
    [message], [nap], [sleep], [wait] = (waits.ended[kind] for kind in ("message", "nap", "sleep", "wait"))
    assert REST / 4 < message < REST / 4 + 10
    assert REST - 1 < nap < REST + 10
    for seconds in (sleep, wait):
        assert min(REST, max(REST / 4, REST - step)) - 1 < seconds < max(REST, REST - step) + 10


@pytest.mark.parametrize("missed", ["once", "skip"])
def test_schedule_goes_on_when_the_clock_was_ahead_for_a_moment(missed: str) -> None:
    """However far it was ahead, and though an instant came meanwhile."""
    ran: list[float] = []

    async def story(world: World) -> None:
        worker = await world.process("worker")
        concert = worker.concert

        @concert.cron(every=60, missed="once" if missed == "once" else "skip")
        @concert.task(name="t")
        async def task() -> None:
            ran.append(world.now())

        worker.start(concert.run_worker("default"))
        await anyio.sleep(100)
        world.step_clock(DAY)
        await anyio.sleep(100)
        world.step_clock(-DAY)
        await anyio.sleep(400)

    simulate(story, seeds=1)
    assert all(after - before < 125 for before, after in pairwise([*ran, 600.0]))


def test_instant_that_has_run_does_not_run_again_when_the_clock_is_set_back_a_little() -> None:
    """There is none before it that nobody ran."""
    ran: list[float] = []

    async def story(world: World) -> None:
        worker = await world.process("worker")
        concert = worker.concert

        @concert.cron(every=60)
        @concert.task(name="t", result_ttl=0)
        async def task() -> None:
            ran.append(world.now())

        worker.start(concert.run_worker("default"))
        await eventually(lambda: ran, timeout=70)
        world.step_clock(-45)
        await anyio.sleep(130)

    simulate(story, seeds=1)
    assert len(ran) == 2


def test_periodic_function_goes_on_when_the_clock_was_ahead_for_a_moment() -> None:
    """It is late by a period at most."""
    ran: list[float] = []

    async def story(world: World) -> None:
        process = await world.process("one")

        @process.concert.every(60, name="f")
        async def function() -> None:
            ran.append(world.now())

        await anyio.sleep(100)
        world.step_clock(DAY)
        await anyio.sleep(100)
        world.step_clock(-DAY)
        await anyio.sleep(400)

    simulate(story, seeds=1)
    assert all(after - before < 125 for before, after in pairwise([*ran, 600.0]))


async def ids_of(concert: Coordinator) -> list[int]:
    """Send a message, and fetch it."""
    await concert.mailbox("m").send("x")
    return [message.id for message in await concert.mailbox("m").fetch()]


async def token_of(concert: Coordinator) -> list[int]:
    """Take a lock, and give it back."""
    async with concert.lock("l") as lease:
        return [lease.fencing_token]


@pytest.mark.parametrize("next_numbers", [ids_of, token_of])
def test_numbers_rise_when_the_clock_was_ahead_for_a_moment(
    next_numbers: Callable[[Coordinator], Awaitable[list[int]]],
) -> None:
    """Also after an hour in which nothing was drawn."""
    drawn: list[int] = []

    async def story(world: World) -> None:
        concert = (await world.process("one")).concert
        for step in (0, DAY, -DAY):
            world.step_clock(step)
            drawn.extend(await next_numbers(concert))
        for _ in range(3):
            await anyio.sleep(1.1 * HOUR / 2)
            drawn.extend(await next_numbers(concert))
            world.step_clock(1.1 * HOUR)

    simulate(story, seeds=1)
    assert all(before < after for before, after in pairwise(drawn))
