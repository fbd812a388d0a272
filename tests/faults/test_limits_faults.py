"""Limits of tasks, while workers are killed and replies are lost: none is exceeded, no job starves, no place is lost.

The bodies of jobs say when they begin and end, by the clock that all processes of a machine share.  A job *certainly*
has its place from when its body begins until that ends; if its worker is killed amid it, until the lease of the worker
lapses: that of the last heartbeat of which the body knew.
"""

import asyncio
import itertools
import logging
import random
from typing import Any

import pytest

from inconcert import Coordinator, Limit, Task
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.forked import Forked
from tests.support.limits import places
from tests.support.limits_history import KEYS, MOST, WITHIN, Told, fed, run_limited, runs, violations
from tests.support.processes import spawn
from tests.support.proxy import Proxy
from tests.support.servers import RealServer

log = logging.getLogger(__name__)


async def work(url: str, namespace: str) -> None:
    """The same, and nothing else."""
    async with Coordinator(url, namespace=namespace) as concert:
        await run_limited(concert)


@pytest.mark.parametrize("share", [False, pytest.param(True, marks=pytest.mark.torture)], ids=["", "keys take turns"])
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
