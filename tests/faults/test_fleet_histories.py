"""A fleet whose processes are killed one after the other: nothing is lost or doubled, shared, exceeded or starved.

Each process looks at all schedules, has a share of the keys of one group of members, and runs jobs that have limits.
"""

import asyncio
import logging
import random
from itertools import pairwise
from typing import Any

import anyio
import pytest

from inconcert import Coordinator
from inconcert.tasks.schedules import schedule_follower
from inconcert.tasks.sending.draft import Draft, Pattern
from inconcert.tasks.sending.options import Options
from tests.support.eventually import eventually
from tests.support.forked import Forked
from tests.support.ledger import read_ledger
from tests.support.limits import places
from tests.support.limits_history import fed, run_limited, runs, violations
from tests.support.members import all_keys_are_had, history, share
from tests.support.raw import raw
from tests.support.schedules import tenth_of
from tests.support.servers import RealServer

log = logging.getLogger(__name__)

CALL: Draft[Any] = Pattern[Any]("t", Options(queue="q")).draft((), {})
SCHEDULES = [f"s{number}" for number in range(3)]
EVERY = 0.1  # seconds
FLEET = 4  # processes at a time
KILLS = 100  # in each run


async def take_part(url: str, namespace: str) -> None:
    """In a process of its own: look at schedules, share keys, and run jobs, until it is killed."""
    schedule_follower._HOLD_MS = 300  # pyright: ignore[reportPrivateUsage]
    async with Coordinator(url, namespace=namespace) as concert, anyio.create_task_group() as group:
        group.start_soon(share, url, namespace)
        group.start_soon(run_limited, concert)


@pytest.mark.torture
@pytest.mark.parametrize("run", range(5))
async def test_fleet_of_which_one_after_the_other_is_killed_loses_and_doubles_nothing(
    server: RealServer, concert: Coordinator, namespace: str, run: int, request: pytest.FixtureRequest
) -> None:
    """Kill -9 at random moments, while others take over what the one before had."""
    draw = random.Random(f"{request.config.option.seed} {run}")
    queue = concert._jobs.partitions[0].queue("q").queue
    for name in SCHEDULES:
        await concert.schedules.put(name, CALL, every=EVERY, missed="all")
    living = [Forked(take_part, server.url, namespace) for _ in range(FLEET)]
    dead: list[Forked] = []
    try:
        await all_keys_are_had(*living)
        async with fed(concert, share=bool(run % 2)) as enqueued_at:
            for _ in range(KILLS):
                await asyncio.sleep(draw.random() * 0.5)
                victim = living.pop(draw.randrange(FLEET))
                await asyncio.to_thread(victim.kill)
                dead.append(victim)
                living.append(await asyncio.to_thread(Forked, take_part, server.url, namespace))
        await all_keys_are_had(*living)
        length = await raw(concert).llen(queue)

        async def goes_on() -> bool:
            return bool(await raw(concert).llen(queue) >= length + 10 * len(SCHEDULES))

        await eventually(goes_on, timeout=30)
        held = history({each: each.stopped_at for each in (*living, *dead)})
    finally:
        for each in living:
            each.kill()
    shared = [key for key, each in held.items() for one, next_ in pairwise(each) if one.end > next_.begin]
    fallen = [key for key, each in held.items() for one, next_ in pairwise(each) if one.token >= next_.token]
    ids = (await read_ledger(raw(concert), namespace)).ready["q"]
    lost = doubled = 0
    for name in SCHEDULES:
        tenths = [tenth_of(id_) for id_ in ids if id_.startswith(f"schedule:{name}@")]
        doubled += len(tenths) - len(set(tenths))
        lost += max(tenths) - min(tenths) + 1 - len(set(tenths))
    had, ran = sum(map(len, held.values())), runs((*living, *dead))
    log.warning("%d kills, %d instants, %d times that a key was had, %d jobs", KILLS, len(ids), had, len(enqueued_at))
    assert (lost, doubled, shared, fallen) == (0, 0, [], [])
    assert violations(ran, enqueued_at) == []
    assert await places(concert) == 1  # where the rate stands
