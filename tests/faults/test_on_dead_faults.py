"""Deaths are told once each, while workers are killed and replies are lost."""

from collections import Counter
from typing import Any

from inconcert import Coordinator, DeadJob, Task
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.ledger import ledger_of
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease

HERE = "tests.faults.test_on_dead_faults"
LEASE = 1.0  # seconds of a heartbeat, here
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


async def work(url: str, namespace: str) -> None:
    """In a child: run jobs until it is killed."""
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:
        register(concert)
        tell("works")
        await concert.run_worker("default", concurrency=4)


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
            for killed in range(1, 4):
                async with spawn(f"{HERE}:work", own.url, namespace) as child:
                    await child.wait_for("works")

                    async def some_are_dead(count: int = killed * JOBS // 8) -> bool:
                        return len((await ledger_of(concert)).dead) >= count

                    await eventually(some_are_dead, timeout=WITHIN)
                    child.kill()
            dead = {job.id for number, job in enumerate(jobs) if number % 2 == 0}
            async with with_lease(Coordinator(own.url, namespace=namespace), LEASE) as last:
                register(last)
                async with in_background(last.run_worker("default")):

                    async def all_have_ended() -> bool:
                        ledger = await ledger_of(concert)
                        return set(ledger.bodies) == set(ledger.dead) == dead

                    await eventually(all_have_ended, timeout=WITHIN)
            assert await telling(concert) == Counter({job.rpartition(".")[0]: 1 for job in dead})


async def test_reply_lost_at_each_step_tells_no_death_twice(proxy: Proxy, namespace: str, concert: Coordinator) -> None:
    """A death that was not answered is sent again."""
    ends = register(concert)
    for steps in range(12):
        await concert.enqueue_many([ends.call(number) for number in range(2)])
        async with Coordinator(proxy.url, namespace=namespace) as bad:
            register(bad)
            proxy.cut_after_replies(steps, lose_next=True)
            await bad.run_worker("default", burst=True)
        await proxy.heal()

        async def all_have_ended(count: int = steps + 1) -> bool:
            ledger = await ledger_of(concert)
            return sorted(ledger.bodies) == sorted(ledger.dead) and len(ledger.dead) == count

        async with in_background(concert.run_worker("default")):
            await eventually(all_have_ended, timeout=WITHIN)
    told = await telling(concert)
    assert (len(told), set(told.values())) == (12, {1})
