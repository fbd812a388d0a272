"""Limits of tasks, while workers are killed and replies are lost: none is exceeded, no job starves, no place is lost.

The bodies of jobs say when they begin and end, by the clock that all processes of a machine share.  A job *certainly*
has its place from when its body begins until that ends; if its worker is killed amid it, until the lease of the worker
lapses: that of the last heartbeat of which the body knew.
"""

import asyncio
import itertools
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
import pytest

from inconcert import Coordinator, Limit, Rate, Retry, Task, current_job
from tests.contract.test_limits import places
from tests.contract.test_rates import A_MOMENT, begun_at, excess
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.forked import Forked
from tests.support.histories import Attempt, Life, Violation, starved, too_many_holders
from tests.support.processes import Child, spawn, tell
from tests.support.proxy import Proxy
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease

log = logging.getLogger(__name__)

LEASE = 1.0  # seconds of a heartbeat, here
KEYS, MOST, MOST_OF_A_KEY = 4, 6, 2
RATE = Rate(100, per=1.0, burst=5)
LONGEST = 0.08  # seconds of a job
WAITING = 40  # jobs at any time, while they are fed
OVERTAKEN = 10 * WAITING  # jobs that may begin between the moment when one is enqueued and its end
WITHIN = 30.0


def first(key: int, _: int) -> int:
    """The key of a job."""
    return key


def register(concert: Coordinator, tell: Callable[..., None] = tell, *, share: bool = False) -> Task[[int, int], Any]:
    """A task whose jobs tell when they begin and end; every tenth is tried again. Those that share are enqueued so."""
    limit, rate = Limit(MOST), RATE

    @concert.task(
        name="limited", limit=limit, key=first, key_limit=MOST_OF_A_KEY, rate=rate, share=share, max_crashes=99
    )
    async def limited(key: int, number: int) -> None:
        claimed: Any = current_job()._state
        at = time.monotonic()
        tell("began", job=number, key=key, at=at, claimed_at=begun_at(), lapses_at=claimed._claimer.deadline)
        is_done = False
        try:
            await asyncio.sleep(random.random() * LONGEST)
            is_done = number % 10 > 0 or current_job().attempt > 1
            if not is_done:
                raise Retry(after=0)
        finally:
            tell("ended", job=number, at=time.monotonic(), is_done=is_done)

    return limited


async def run_limited(concert: Coordinator) -> None:
    """In a process of its own: run these jobs until it is killed."""
    register(with_lease(concert, LEASE))
    await concert.run_worker("default", concurrency=4)


async def work(url: str, namespace: str) -> None:
    """The same, and nothing else."""
    async with Coordinator(url, namespace=namespace) as concert:
        await run_limited(concert)


@asynccontextmanager
async def fed(concert: Coordinator, *, share: bool) -> AsyncGenerator[dict[int, float]]:
    """So many jobs wait all the time; gives when each was enqueued. Returns when all have ended."""
    limited, numbers, enqueued_at = register(concert, share=share), itertools.count(), dict[int, float]()
    stop = anyio.Event()

    async def feed(key: int) -> None:
        while not stop.is_set():
            number = next(numbers)
            enqueued_at[number] = time.monotonic()
            job = await limited.enqueue(key, number)
            await job.result(timeout=WITHIN)

    async with anyio.create_task_group() as group:
        for feeder in range(WAITING):
            group.start_soon(feed, feeder % KEYS)
        yield enqueued_at
        stop.set()


class Run(NamedTuple):
    """One run of a body: while `attempt` has its place."""

    job: int
    key: int
    claimed_at: float
    attempt: Attempt
    is_done: bool


class Told(NamedTuple):
    """What a process has told that is no process of its own."""

    pid: int
    messages: list[dict[str, Any]]


def runs(children: Iterable[Child | Forked | Told]) -> list[Run]:
    """All of them, as the bodies told."""
    found: list[Run] = []
    for child in children:
        begun: dict[int, Run] = {}
        for told in child.messages:
            if told["event"] == "began":
                attempt = Attempt(f"{told['job']} in {child.pid}", told["at"], told["at"], True)
                attempt.stopped_at = told["lapses_at"]
                begun[told["job"]] = Run(told["job"], told["key"], told["claimed_at"], attempt, False)
            elif told["event"] == "ended":
                run = begun.pop(told["job"])
                run.attempt.stopped_at = min(told["at"], run.attempt.stopped_at)
                found.append(run._replace(is_done=told["is_done"]))
        found += begun.values()
    return found


def violations(found: list[Run], enqueued_at: dict[int, float]) -> list[Violation]:
    """Where a limit or the rate was exceeded, or a job starved."""
    wrong = too_many_holders([run.attempt for run in found], limit=MOST)
    for key in range(KEYS):
        wrong += too_many_holders([run.attempt for run in found if run.key == key], limit=MOST_OF_A_KEY)
    over = excess(sorted(run.claimed_at for run in found), RATE)
    if over >= A_MOMENT:
        wrong.append(Violation("rate exceeded", f"by {over:.1f} jobs"))
    done_at = {run.job: run.attempt.stopped_at for run in found if run.is_done}
    lives = {job: Life(at, done_at[job]) for job, at in enqueued_at.items()}
    return wrong + starved(lives, [run.attempt.answered_at for run in found], most=OVERTAKEN)


@pytest.mark.parametrize("share", [False, True], ids=["", "keys take turns"])
async def test_limits_hold_though_workers_are_killed(
    server: RealServer, concert: Coordinator, namespace: str, *, share: bool
) -> None:
    """Each once it has begun some jobs; the others run its jobs when its lease has lapsed."""
    children: list[Forked] = []
    try:
        async with fed(concert, share=share) as enqueued_at:
            for _ in range(4):
                child = await asyncio.to_thread(Forked, work, server.url, namespace)
                children.append(child)
                count = random.randrange(1, 10)

                def has_told(child: Forked = child, count: int = count) -> bool:
                    return len(child.messages) > count

                await eventually(has_told, timeout=WITHIN)
                if len(children) > 2:
                    await asyncio.to_thread(children[-2].kill)
    finally:
        for child in children:
            child.kill()
    assert violations(runs(children), enqueued_at) == []
    assert await places(concert) == 1  # where the rate stands


async def test_worker_that_stood_still_frees_no_place_twice(
    server: RealServer, concert: Coordinator, namespace: str
) -> None:
    """Others run its jobs meanwhile, and free their places. When it goes on, it ends them, too."""

    def unended() -> set[int]:
        return {run.job for run in runs([still]) if not run.is_done} - {run.job for run in runs([still]) if run.is_done}

    async with (
        spawn(f"{__name__}:work", server.url, namespace) as still,
        spawn(f"{__name__}:work", server.url, namespace) as other,
        fed(concert, share=False) as enqueued_at,
    ):
        await eventually(unended, timeout=WITHIN)
        still.pause()
        while not unended():  # all have ended just before
            still.resume()
            await eventually(unended, timeout=WITHIN)
            still.pause()
        await eventually(lambda: unended() <= {run.job for run in runs([other])}, timeout=WITHIN)
        still.resume()
        told = len(still.messages)
        await eventually(lambda: len(still.messages) > told + 2 * MOST, timeout=WITHIN)
    assert violations(runs([still, other]), enqueued_at) == []
    assert await places(concert) == 1  # where the rate stands


def test_place_of_a_killed_worker_counts_until_its_lease_lapses() -> None:
    """Nobody else has it before."""

    def told(event: str, job: int, key: int, at: float) -> dict[str, Any]:
        return {"event": event, "job": job, "key": key, "at": at, "claimed_at": at, "lapses_at": 5.0, "is_done": True}

    def kinds(*histories: list[dict[str, Any]]) -> list[str]:
        found = runs(itertools.starmap(Told, enumerate(histories)))
        return [violation.kind for violation in violations(found, {})]

    killed = [told("began", 1, 0, 1.0), told("began", 2, 0, 2.0), told("ended", 2, 0, 3.0)]
    assert kinds(killed, [told("began", 3, 0, 3.0), told("began", 4, 0, 5.0), told("ended", 3, 0, 5.0)]) == []
    assert kinds(killed, [told("began", 3, 0, 3.0), told("began", 4, 0, 4.9)]) == ["too many hold"]
    others = [told("began", number, number % (KEYS - 1) + 1, number / 2) for number in range(3, 3 + MOST)]
    assert kinds(killed, others) == ["too many hold"]


async def test_reply_lost_at_each_step_leaks_no_place(proxy: Proxy, namespace: str, concert: Coordinator) -> None:
    """A claim or an end that was not answered is sent again, and counts once."""
    ran: list[int] = []

    def register_in(each: Coordinator) -> Task[[int], Any]:
        @each.task(name="limited", limit=Limit(1))
        async def limited(number: int) -> None:
            ran.append(number)

        return limited

    limited = register_in(concert)
    for steps in range(12):
        ran.clear()
        jobs = await concert.enqueue_many([limited.call(number) for number in range(3)])
        async with Coordinator(proxy.url, namespace=namespace) as bad:
            register_in(bad)
            proxy.cut_after_replies(steps, lose_next=True)
            await bad.run_worker("default", burst=True)
        await proxy.heal()
        async with in_background(concert.run_worker("default")):
            for job in jobs:
                await job.result(timeout=WITHIN)
        assert sorted(set(ran)) == [0, 1, 2]
        assert await places(concert) == 0
