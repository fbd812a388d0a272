"""Deaths are told once each, while workers are killed and replies are lost."""

from collections import Counter
from typing import Any

from inconcert import Coordinator, DeadJob, Task
from tests.support.background import in_background
from tests.support.ends import kill_three_workers, losing_a_reply
from tests.support.eventually import eventually
from tests.support.ledger import ledger_of
from tests.support.proxy import Proxy
from tests.support.servers import RealServer

JOBS = 40
WITHIN = 30.0


def register(concert: Coordinator) -> Task[[int], Any]:
    """A task of which half of the jobs die."""

    @concert.task(name="notify", max_crashes=100)
    async def notify(job: DeadJob) -> None: ...

    @concert.task(name="ends", on_dead=notify, max_attempts=2, backoff=lambda _: 0.0, max_crashes=100)
    async def ends(number: int) -> None:
        if number % 2 == 0:
            raise ValueError(number)

    return ends


async def telling(concert: Coordinator) -> Counter[str]:
    """How many jobs there were that told of each dead one: each kept its result."""
    ledger = await ledger_of(concert)
    assert ledger.waiting == []
    return Counter(id_.partition("~dead")[0] for id_ in ledger.results if "~dead" in id_)


async def test_each_death_is_told_once_though_workers_are_killed(namespace: str) -> None:
    """Kill -9 at any moment: one job tells of each, however often that runs."""
    with RealServer() as own:
        async with Coordinator(own.url, namespace=namespace) as concert:
            ends = register(concert)
            jobs = await concert.enqueue_many([ends.call(number) for number in range(JOBS)])
            dead = {job.id for number, job in enumerate(jobs) if number % 2 == 0}

            async def died() -> int:
                return len((await ledger_of(concert)).dead)

            async def are_over() -> bool:
                ledger = await ledger_of(concert)
                return set(ledger.bodies) == set(ledger.dead) == dead

            await kill_three_workers(own.url, namespace, register, ended=died, of=len(dead), are_over=are_over)
            assert await telling(concert) == Counter({job.rpartition(".")[0]: 1 for job in dead})


async def test_reply_lost_at_each_step_tells_no_death_twice(proxy: Proxy, namespace: str, concert: Coordinator) -> None:
    """A death that was not answered is sent again."""
    ends = register(concert)
    for steps in range(12):
        await concert.enqueue_many([ends.call(number) for number in range(2)])
        async with losing_a_reply(proxy, namespace, register, steps):
            pass

        async def all_have_ended(count: int = steps + 1) -> bool:
            ledger = await ledger_of(concert)
            return sorted(ledger.bodies) == sorted(ledger.dead) and len(ledger.dead) == count

        async with in_background(concert.run_worker("default")):
            await eventually(all_have_ended, timeout=WITHIN)
    told = await telling(concert)
    assert (len(told), set(told.values())) == (12, {1})
