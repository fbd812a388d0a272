"""Schedules while workers die, clocks differ, replies are lost and servers restart: one job for each instant."""

import asyncio
import time
from collections import Counter
from datetime import datetime
from typing import Any, cast

import pytest
import redis

from inconcert import Coordinator
from inconcert.tasks.records.store import JobKeys
from inconcert.tasks.running.claimed_job import current_job
from inconcert.tasks.schedules import schedule_follower
from inconcert.tasks.schedules.schedule_follower import PartitionFollower
from tests.support.background import in_background
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.ledger import read_ledger, read_ledger_now
from tests.support.processes import spawn
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.schedules import followers, following
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease

HERE = "tests.faults.test_schedules_faults"
LEASE = 1.0  # seconds of a heartbeat, here


def add_schedule(concert: Coordinator) -> None:
    """Ten jobs a second, in a queue that nobody reads."""

    @concert.cron(every=0.1, missed="all")
    @concert.task(name="t", queue="q")
    async def run() -> None: ...


async def ready(concert: Coordinator) -> list[str]:
    """The ids of the jobs in the queue, in its order."""
    return (await read_ledger(raw(concert), concert._ref.keys.namespace)).ready.get("q", [])


async def until_ready(concert: Coordinator, count: int) -> list[str]:
    """Wait until there are so many jobs."""

    async def are_there() -> bool:
        return len(await ready(concert)) >= count

    await eventually(are_there)
    return await ready(concert)


def are_all(ids: list[str]) -> bool:
    """Whether these are jobs of one instant after the other, each once and in order."""
    tenths = [tenth_of(id_) for id_ in ids]
    return tenths == list(range(tenths[0], tenths[0] + len(tenths)))


def tenth_of(job_id: str) -> int:
    """The number of the instant."""
    return round(datetime.fromisoformat(job_id.partition("@")[2]).timestamp() * 10)


async def work(url: str, namespace: str, skew: float) -> None:
    """In a child, with a clock of its own: run what is scheduled and write down each run."""
    right = time.time
    time.time = lambda: right() + skew
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:

        @concert.cron(every=0.1, missed="all")
        @concert.task(name="t", queue="q")
        async def run() -> None:
            job = current_job()
            client: Any = raw(concert)
            await client.rpush(f"{{{namespace}}}:runs", f"{job.id} {job.attempt}")
            await client.pexpire(f"{{{namespace}}}:runs", 60_000)

        await concert.run_worker("q")


async def test_each_instant_runs_once_among_workers_whose_clocks_differ_and_which_die(
    server: RealServer, concert: Coordinator, namespace: str
) -> None:
    """None is left out and none comes twice, whoever is killed or paused when."""
    client: Any = raw(concert)

    async def runs() -> list[str]:
        return [run.decode() for run in await client.lrange(f"{{{namespace}}}:runs", 0, -1)]

    async def until_runs(more: int) -> None:
        goal = len(await runs()) + more

        async def there_are() -> bool:
            return len(await runs()) >= goal

        await eventually(there_are)

    async with (
        spawn(f"{HERE}:work", server.url, namespace, 0.0) as one,
        spawn(f"{HERE}:work", server.url, namespace, -86_400.0) as two,
        spawn(f"{HERE}:work", server.url, namespace, 3_600.0),
    ):
        await until_runs(8)
        one.kill()
        await until_runs(5)
        two.pause()
        await until_runs(5)
        two.resume()
        await until_runs(5)
        two.kill()
        await until_runs(12)  # meanwhile what they held has come back
        found = Counter(await runs())
    assert set(found.values()) == {1}
    ids = sorted({run.partition(" ")[0] for run in found}, key=tenth_of)
    assert are_all(ids[:-3])  # the last ones may run at the same time


async def hold(url: str, namespace: str) -> None:
    """In a child: enqueue what is scheduled, claim it, and never end it."""
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:
        client: Any = raw(concert)

        @concert.cron(every=0.1, missed="all")
        @concert.task(name="t", queue="q")
        async def run() -> None:
            await client.set(f"{{{namespace}}}:begun", current_job().id, px=60_000, nx=True)
            await asyncio.sleep(60)

        await concert.run_worker("q")


async def test_scheduled_job_of_a_killed_worker_runs_elsewhere(
    server: RealServer, concert: Coordinator, namespace: str, short_lease: None
) -> None:
    """The same job of the same instant: it was enqueued once."""
    seen: list[tuple[str, float | None, int]] = []

    @concert.task(name="t", queue="q")
    async def run() -> None:
        job = current_job()
        seen.append((job.id, job.scheduled_at, job.attempt))

    async with spawn(f"{HERE}:hold", server.url, namespace) as child:
        begun = await eventually(lambda: raw(concert).get(f"{{{namespace}}}:begun"))
        child.kill()
    async with in_background(concert.run_worker("q")):
        await eventually(lambda: begun.decode() in {id_ for id_, _, _ in seen})
    job_id, scheduled_at, attempt = next(facts for facts in seen if facts[0] == begun.decode())
    assert (round((scheduled_at or 0) * 10), attempt) == (tenth_of(job_id), 2)


async def test_reply_of_a_worker_lost_again_and_again_doubles_none(
    concert: Coordinator, proxy: Proxy, namespace: str
) -> None:
    """Each was executed, and is sent again."""
    async with Coordinator(proxy.url, namespace=namespace) as bad:
        add_schedule(bad)
        async with following(bad):
            for round_ in range(4):
                await until_ready(concert, 2 * round_ + 2)
                proxy.cut_after_replies(0, lose_next=True)
            found = await until_ready(concert, 15)
    assert are_all(found)


async def test_schedules_go_on_after_a_server_restart(namespace: str) -> None:
    """With its data, and also without: then an instant may be missing, and none comes twice."""
    with RealServer(appendonly="yes", appendfsync="always") as own:

        async def until_there_are(count: int) -> list[str]:
            def found() -> list[str] | None:
                with cast("Any", redis.Redis).from_url(own.url) as client:  # a new one: the server may be another
                    ids = read_ledger_now(client, namespace).ready.get("q", [])
                return ids if len(ids) >= count else None

            ids: list[str] = await eventually(found)
            return ids

        async with Coordinator(own.url, namespace=namespace) as concert:
            add_schedule(concert)
            async with following(concert):
                await until_there_are(3)
                own.restart(empty=False)
                before = await until_there_are(12)
                own.restart(empty=True)
                after = await until_there_are(5)
    assert are_all(before)
    assert are_all(after)
    assert tenth_of(after[0]) > tenth_of(before[-1])


async def test_look_keeps_a_schedule_in_step_with_the_server(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is asked again on the way to an instant that is far off."""
    monkeypatch.setattr(schedule_follower, "_RECHECK_AFTER", 0.02)
    looks: list[float] = []
    look = PartitionFollower.look

    async def counted(self: PartitionFollower) -> float:
        looks.append(await look(self))
        return looks[-1]

    monkeypatch.setattr(PartitionFollower, "look", counted)
    concert.cron(every=86_400)(concert.task(name="t")(lambda: None))
    async with following(concert):
        await eventually(lambda: len(looks) > 4)
    assert max(looks) <= 0.02
    assert await ready(concert) == []


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_at_any_await_a_worker_leaves_no_half_of_a_job(
    concert: Coordinator, moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is enqueued is whole, and the next one goes on where it ended."""
    monkeypatch.setattr(schedule_follower, "_HOLD_MS", 1)
    add_schedule(concert)
    for number in range(1, 11):
        [follower] = followers(concert)
        assert await cancel_at(number, moment, follower.follow())
    ledger = await read_ledger(raw(concert), concert._ref.keys.namespace)
    ledger.check(put=len(ledger.bodies), done=0)
    assert are_all(ledger.ready["q"])


# Delivery at most once.


async def take_one(url: str, namespace: str) -> None:
    """In a child: claim three jobs at most once, begin the first, and never end it."""
    async with (
        with_lease(Coordinator(url, namespace=namespace), LEASE) as concert,
        concert.consume("q", prefetch=3, delivery="at_most_once") as jobs,
        await anext(jobs) as job,
    ):
        await raw(concert).set(f"{{{namespace}}}:begun", job.id, px=60_000)
        await asyncio.sleep(60)


async def test_job_that_had_begun_is_lost_with_its_worker_and_those_ahead_are_not(
    server: RealServer, concert: Coordinator, namespace: str, short_lease: None
) -> None:
    """That is what at most once costs, and no more."""
    put = [(await concert.enqueue("t", queue="q")).id for _ in range(3)]
    async with spawn(f"{HERE}:take_one", server.url, namespace) as child:
        begun = await eventually(lambda: raw(concert).get(f"{{{namespace}}}:begun"))
        child.kill()
    assert begun.decode() == put[0]
    async with concert.consume("q", delivery="at_most_once") as jobs:
        assert [(await anext(jobs)).id for _ in range(2)] == put[1:]
    assert (await read_ledger(raw(concert), namespace)).bodies == []


async def test_reply_lost_at_any_step_delivers_none_twice(concert: Coordinator, proxy: Proxy, namespace: str) -> None:
    """Nor loses one: claims and acknowledgements are sent again."""
    for steps in range(12):
        queue = f"q{steps}"
        put = [(await concert.enqueue("t", queue=queue)).id for _ in range(3)]
        async with (
            Coordinator(proxy.url, namespace=namespace) as bad,
            bad.consume(queue, prefetch=2, delivery="at_most_once") as jobs,
        ):
            proxy.cut_after_replies(steps, lose_next=True)
            assert [(await anext(jobs)).id for _ in range(3)] == put
            await proxy.heal()


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_wait_for_a_job_loses_none_and_doubles_none(concert: Coordinator, moment: Moment) -> None:
    """Also if it is cancelled while the job is acknowledged: the next wait gets it."""
    number = 1
    was_under_way = True
    while was_under_way:
        put = [(await concert.enqueue("t", queue="q")).id for _ in range(3)]
        got: list[str] = []
        async with concert.consume("q", prefetch=2, delivery="at_most_once") as jobs:

            async def use(jobs: Any = jobs, got: list[str] = got) -> None:
                got.append((await anext(jobs)).id)

            was_under_way = await cancel_at(number, moment, use())
            while len(got) < 3:
                await use()
        assert got == put
        number += 1
    assert number > 4


async def test_job_that_was_lost_before_it_was_handed_out_is_not_delivered(concert: Coordinator) -> None:
    """Its worker was taken for dead, so another may have it."""
    for _ in range(2):
        await concert.enqueue("t", queue="q")
    async with concert.consume("q", prefetch=2, delivery="at_most_once") as jobs:
        first = await anext(jobs)
        keys = JobKeys(concert._ref.keys)
        [worker] = (await read_ledger(raw(concert), concert._ref.keys.namespace)).claimed
        held = keys.claimed(worker)
        client: Any = raw(concert)
        async with client.pipeline(transaction=True) as step:  # as recover.lua does it
            [ahead] = [key for key in await client.hkeys(held) if key != b"#"]
            step.hdel(held, ahead)
            step.lpush(keys.queue("q").queue, ahead)
            await step.execute()
        again = await anext(jobs)
        assert again.id == ahead.decode() != first.id
    assert (await read_ledger(raw(concert), concert._ref.keys.namespace)).bodies == []
