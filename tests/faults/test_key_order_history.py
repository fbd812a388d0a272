"""Keys in strict order while workers are killed: no job begins before the one before it of its key has ended.

Bodies note when they begin and end in a list of the server, so all of them are in one order.
"""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from inconcert import Coordinator, Retry, Task, current_job
from tests.support.eventually import eventually
from tests.support.forked import Forked
from tests.support.jobs import LEASE
from tests.support.limits import places
from tests.support.raw import raw
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease

WORKERS, AT_ONCE = 3, 500
WITHIN = 300.0  # seconds for a part of a million jobs, on a busy machine


def own(key: int, _: int) -> int:
    """The key of a job."""
    return key


def register(concert: Coordinator, seen: str) -> Task[[int, int], Any]:
    """A task whose jobs note when they begin and end; every twentieth attempt fails."""

    @concert.task(name="ordered", key=own, key_order="strict", max_attempts=50, max_crashes=50)
    async def ordered(key: int, number: int) -> None:
        attempt = current_job().attempt
        await raw(concert).rpush(seen, f"{key} {number} {attempt} begins")
        if random.random() < 0.05:
            raise Retry(after=random.random() / 20)
        await raw(concert).rpush(seen, f"{key} {number} {attempt} ends")

    return ordered


async def work(url: str, namespace: str, seen: str) -> None:
    """In a process of its own: run these jobs until it is killed."""
    async with Coordinator(url, namespace=namespace) as concert:
        register(with_lease(concert, LEASE), seen)
        await concert.run_worker("default", concurrency=20)


def inversions(events: list[str], keys: int, each: int) -> list[str]:
    """What was not in order: each job of a key begins after the one before it has ended, and all of them end.

    A worker that was presumed dead, as one may be on a busy machine, runs on for a moment beside the next one that has
    its job. What it does once that has begun is of no claim, and does not count.
    """
    ended: Counter[str] = Counter()  # key -> the next that may begin
    latest: Counter[tuple[str, str]] = Counter()  # job -> its latest attempt
    wrong: list[str] = []
    for event in events:
        key, number, attempt, what = event.split()
        if int(attempt) < latest[key, number]:
            continue
        latest[key, number] = int(attempt)
        if int(number) not in (ended[key], ended[key] - 1):  # one whose worker was killed may begin again at its end
            wrong.append(event)
        if what == "ends":
            ended[key] = max(ended[key], int(number) + 1)
    return wrong + [key for key in map(str, range(keys)) if ended[key] != each]


@pytest.mark.parametrize(
    ("keys", "each", "kills"),
    [
        (20, 20, 3),
        pytest.param(10_000, 100, 50, marks=[pytest.mark.torture, pytest.mark.timeout(7200)]),
    ],
)
async def test_no_job_overtakes_another_of_its_key(
    server: RealServer, concert: Coordinator, namespace: str, *, keys: int, each: int, kills: int
) -> None:
    """Through failed attempts and killed workers."""
    seen = f"{namespace} seen"
    ordered = register(concert, seen)
    calls = [ordered.call(key, number) for number in range(each) for key in random.sample(range(keys), keys)]
    children = [await asyncio.to_thread(Forked, work, server.url, namespace, seen) for _ in range(WORKERS)]
    try:
        for start in range(0, len(calls), AT_ONCE):
            await concert.enqueue_many(calls[start : start + AT_ONCE])
        for kill in range(1, kills + 1):

            async def has_come_far(kill: int = kill) -> bool:
                return int(await raw(concert).llen(seen)) > 2 * len(calls) * kill / (kills + 1)

            await eventually(has_come_far, timeout=WITHIN)
            await asyncio.to_thread(children[-WORKERS].kill)
            children.append(await asyncio.to_thread(Forked, work, server.url, namespace, seen))

        async def all_have_ended() -> bool:
            return await places(concert) == 0

        await eventually(all_have_ended, timeout=2 * WITHIN)
    finally:
        for child in children:
            child.kill()
        events = [event.decode() for event in await raw(concert).lrange(seen, 0, -1)]
        await raw(concert).delete(seen)
    assert inversions(events, keys, each) == []
