"""Limits that tasks of several queues share, while workers are killed and replies are lost: none is exceeded."""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, Task, current_job
from inconcert._claims.keys import keys_of
from inconcert.tasks.records.store import LET_IN
from inconcert.testing import Process, World, simulate
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.forked import Forked
from tests.support.histories import Life, Violation, starved, too_many_holders
from tests.support.jobs import LEASE
from tests.support.limits import A_MOMENT, begun_at, excess, places
from tests.support.limits_history import Told, runs
from tests.support.processes import tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease

MOST, WITHIN = 4, 30.0
QUEUES = ("texts", "pictures")
WAITING = 24  # jobs at any time
OVERTAKEN = 20 * WAITING
COMMANDS = 60  # that a worker sends, about, in a story


def register(concert: Coordinator, tell: Callable[..., None] = tell) -> list[Task[[int], Any]]:
    """A task in each queue, all with one limit and one rate."""
    limit, rate = concert.limit("api", MOST), concert.rate("api", 100, per=1.0, burst=5)

    async def call(number: int) -> None:
        claimed: Any = current_job()._state
        at = time.monotonic()
        tell("began", job=number, key=0, at=at, claimed_at=begun_at(), lapses_at=claimed._claimer.deadline)
        try:
            await asyncio.sleep(random.random() * 0.05)
        finally:
            tell("ended", job=number, at=time.monotonic(), is_done=True)

    return [concert.task(name=queue, queue=queue, limit=limit, rate=rate, max_crashes=99)(call) for queue in QUEUES]


async def work(url: str, namespace: str, *queues: str) -> None:
    """In a process of its own, until it is killed."""
    async with Coordinator(url, namespace=namespace) as concert:
        register(with_lease(concert, LEASE))
        await concert.run_worker(*queues, concurrency=4)


@asynccontextmanager
async def fed(concert: Coordinator) -> AsyncGenerator[dict[int, float]]:
    """So many jobs wait all the time, in both queues; gives when each was enqueued. Returns when all have ended."""
    tasks, numbers, enqueued_at = register(concert), itertools.count(), dict[int, float]()
    stop = anyio.Event()

    async def feed(task: Task[[int], Any]) -> None:
        while not stop.is_set():
            number = next(numbers)
            enqueued_at[number] = time.monotonic()
            job = await task.enqueue(number)
            await job.result(timeout=WITHIN)

    async with anyio.create_task_group() as group:
        for feeder in range(WAITING):
            group.start_soon(feed, tasks[feeder % 2])
        yield enqueued_at
        stop.set()


def violations(children: list[Any], enqueued_at: dict[int, float]) -> list[Violation]:
    """Where the limit or the rate was exceeded, or a job starved."""
    found = runs(children)
    wrong = too_many_holders([run.attempt for run in found], limit=MOST)
    [rate] = {task.limits.rate for task in register(Coordinator())}
    assert rate is not None
    over = excess(sorted(run.claimed_at for run in found), rate)
    if over >= A_MOMENT:
        wrong.append(Violation("rate exceeded", f"by {over:.1f} jobs"))
    done_at = {run.job: run.attempt.stopped_at for run in found if run.is_done}
    lives = {job: Life(at, done_at[job]) for job, at in enqueued_at.items()}
    return wrong + starved(lives, [run.attempt.answered_at for run in found], most=OVERTAKEN)


@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.torture)])
async def test_shared_limit_holds_though_workers_are_killed(
    server: RealServer, concert: Coordinator, namespace: str, kills: int
) -> None:
    """Some serve one queue and some both; one after the other is killed."""
    serving = itertools.cycle([QUEUES[:1], QUEUES[1:], QUEUES])
    children: list[Forked] = []

    async def begin() -> None:
        children.append(await asyncio.to_thread(Forked, work, server.url, namespace, *next(serving)))

    try:
        async with fed(concert) as enqueued_at:
            for _ in range(3):
                await begin()
            for number in range(kills):
                await begin()
                child, count = children[-1], random.randrange(1, 10)
                await eventually(lambda: len(child.messages) > count, timeout=WITHIN)  # noqa: B023 - waited for here
                await asyncio.to_thread(children[number].kill)
    finally:
        for child in children:
            child.kill()
    assert violations(children, enqueued_at) == []
    assert await places(concert) == 1  # where the rate stands


async def test_each_of_many_lines_takes_no_longer_than_one_of_few(concert: Coordinator) -> None:
    """So tasks of hundreds of queues may share a limit: ten times as many lines take about ten times as long."""
    few, many = [await _let_in_seconds(concert, lines) for lines in (100, 1_000)]
    assert many < 35 * few


async def _let_in_seconds(concert: Coordinator, lines: int) -> float:
    """How long it takes, at best, to find that no job of so many lines of a full limit may begin."""
    [keys] = concert._jobs.partitions
    client = raw(concert)
    names = [f"queue {number}" for number in range(lines)]
    waits = " ".join(f"{n:020x} x61 - 0 0 0" for n in range(lines))
    await client.hset(keys.places, mapping={"x61": "1 1 0", "+": waits})
    await client.hset(keys.bodies, mapping={f"job{n}": f"{n} 3/w1.x61:{n:020x} {{}}" for n in range(lines)})
    await client.hset(keys.states, mapping={f"job{n}": f"delayed {name}" for n, name in enumerate(names)})
    await client.zadd(keys.held_back, {f"{n:020x} {n:014} job{n}": 0 for n in range(lines)})
    command = LET_IN(keys, queues=keys_of(map(keys.queue, names)), names=names)
    took = list[float]()
    for _ in range(7):
        since = time.perf_counter()
        next_ms, *found = await concert._ref.session.run(command)
        took.append(time.perf_counter() - since)
        assert (next_ms, len(found)) == (-1, lines)
    await client.delete(keys.places, keys.bodies, keys.states, keys.held_back)
    return min(took)


async def test_lost_replies_lose_no_place(server: RealServer, concert: Coordinator, namespace: str) -> None:
    """Of claims, of acknowledgements, and of letting in."""
    told = Told(1, [])

    def keep(event: str, **facts: object) -> None:
        told.messages.append({"event": event, **facts})

    async with Proxy(server.port) as proxy, Coordinator(proxy.url, namespace=namespace) as worker:
        register(worker, keep)
        async with in_background(worker.run_worker(*QUEUES, concurrency=4)), fed(concert) as enqueued_at:
            for count in range(4):
                await eventually(lambda: len(told.messages) > 20 * count, timeout=WITHIN)  # noqa: B023 - waited for here
                proxy.cut_after_replies(count, lose_next=True)
    assert violations([told], enqueued_at) == []
    assert await places(concert) == 1


async def _serve(process: Process, told: Told, queues: tuple[str, ...]) -> None:
    def keep(event: str, **facts: object) -> None:
        if World.now() < process.died_at:
            told.messages.append({"event": event, **facts})

    register(with_lease(process.concert, LEASE), keep)
    await process.concert.run_worker(*queues, concurrency=4)


async def _tell(world: World, first_dies_after: int) -> None:
    boss = await world.process("boss")
    workers = [await world.process(f"worker {number}") for number in range(3)]
    history = [Told(number, []) for number in range(3)]
    tasks = register(boss.concert)
    enqueued_at = dict.fromkeys(range(24), World.now())
    calls = [tasks[number % 2].call(number) for number in enqueued_at]
    jobs = await boss.start(boss.concert.enqueue_many(calls))

    async def hold_up() -> None:
        for _ in range(2):
            workers[1].cut(after=world.random.randrange(1, COMMANDS))
            await anyio.sleep(world.random.uniform(0.2, 2 * LEASE))
            workers[1].heal()
            workers[2].lose_reply()

    workers[0].kill(after=first_dies_after)
    for worker, told, queues in zip(workers, history, [QUEUES, QUEUES[:1], QUEUES], strict=True):
        worker.start(_serve(worker, told, queues))
    boss.start(hold_up())
    for job in jobs:
        await boss.start(job.result(timeout=600))
    assert violations(history, enqueued_at) == []
    [keys] = boss.concert._jobs.partitions
    assert await world.client.zcard(keys.held_back) == 0


@pytest.mark.parametrize(
    "seeds", [range(2), *(pytest.param(range(at, at + 50), marks=pytest.mark.torture) for at in range(2, 202, 50))]
)
def test_shared_limits_hold_whatever_dies(seeds: range) -> None:
    """A worker is killed at each of its commands in turn; another is held up for longer than its lease."""
    for seed in seeds:

        async def story(world: World) -> None:
            await _tell(world, 1 + seed * 31 % COMMANDS)  # noqa: B023 - told at once

        simulate(story, seeds=[seed])
