"""The history of jobs with limits in processes that are killed: no limit is exceeded, and no job starves."""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio

from inconcert import Coordinator, Limit, Rate, Retry, Task, current_job
from tests.support.forked import Forked
from tests.support.histories import Attempt, Life, Violation, starved, too_many_holders
from tests.support.jobs import LEASE
from tests.support.limits import A_MOMENT, begun_at, excess
from tests.support.processes import Child, tell
from tests.support.short_lease import with_lease

__all__ = [
    "KEYS",
    "MOST",
    "MOST_OF_A_KEY",
    "WITHIN",
    "Told",
    "fed",
    "register",
    "run_limited",
    "runs",
    "violations",
]

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
