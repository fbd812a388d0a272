"""Priorities: which job of a queue is the next, wherever it comes from, and that none is lost between two of them."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from inconcert import Coordinator, JobStatus, Limit, Rate
from inconcert._claims.keys import CLAIM, PROMOTE
from inconcert.tasks.running.claimed_job import ClaimedJob
from inconcert.tasks.running.consumer import Consumer
from tests.support.background import in_background
from tests.support.jobs import keys_of, lapse, watch
from tests.support.ledger import all_done, facts_text, ledger_of, until
from tests.support.raw import raw
from tests.support.servers import RealServer

MANY = 3_000  # jobs by day


async def taken(jobs: Consumer, count: int) -> list[ClaimedJob]:
    """Claim and finish so many jobs."""
    found: list[ClaimedJob] = []
    async for job in jobs:
        async with job:
            found.append(job)
        if len(found) == count:
            break
    return found


async def drained(concert: Coordinator, count: int, *queues: str) -> list[Any]:
    """The first arguments of so many jobs, in the order in which one consumer gets them."""
    async with concert.consume(*queues or ("default",)) as jobs:
        return [job.args[0] for job in await taken(jobs, count)]


async def put(concert: Coordinator, *priorities: int, **options: Any) -> list[str]:
    """Enqueue a job of each priority, one after the other, whose argument is that; return their ids."""
    return [(await concert.enqueue("show", [each], priority=each, **options)).id for each in priorities]


async def let_all_be_due(concert: Coordinator) -> None:
    """Let what is delayed be due, and come to its queue, in the order in which it was to."""
    keys, client = keys_of(concert), raw(concert)
    queue = keys.queue("default")
    for number, member in enumerate(await client.zrangebyscore(queue.delayed, 0, "+inf")):
        await client.zadd(queue.delayed, {member: number + 1})
    await concert._ref.session.run(PROMOTE(keys, queue, front=0))


async def test_smaller_numbers_are_first(any_concert: Coordinator) -> None:
    """Those of 0 come before all, those of 9 when nothing else waits, and 5 is what a job has by itself."""
    await any_concert.enqueue("show", ["usual"])
    await put(any_concert, 9, 4, 6, 0, 5, 1)
    await any_concert.enqueue("show", ["usual too"])
    assert await drained(any_concert, 8) == [0, 1, 4, "usual", 5, "usual too", 6, 9]
    await all_done(any_concert)
    assert await raw(any_concert).exists(keys_of(any_concert).facts) == 0


@pytest.mark.parametrize("priority", [0, 4, 5, 6, 9])
async def test_jobs_of_one_priority_come_in_order(any_concert: Coordinator, priority: int) -> None:
    """Enqueued alone or together, in one millisecond or not: the first one is first."""
    for number in range(3):
        await any_concert.enqueue("show", [number], priority=priority)

    @any_concert.task(name="show", priority=priority)
    async def show(number: int) -> None: ...

    await any_concert.enqueue_many(show.call(number) for number in range(3, 30))
    assert await drained(any_concert, 30) == list(range(30))


async def test_task_sets_the_priority_of_its_jobs(any_concert: Coordinator) -> None:
    """A call may change it, also back to the usual one."""

    @any_concert.task(name="show", priority=1)
    async def show(text: str) -> None: ...

    await any_concert.enqueue("show", ["by name"])
    await show.options(priority=5).enqueue("usual")
    job = await show.enqueue("urgent")
    described = await any_concert.tasks.describe(job.id)
    assert described[job.id].priority == 1
    assert await drained(any_concert, 3) == ["urgent", "by name", "usual"]


@pytest.mark.parametrize("priority", [-1, 10, 2.0, True, "high", None])
async def test_other_numbers_are_refused(any_concert: Coordinator, priority: Any) -> None:
    """Before anything is sent, where they are given."""

    @any_concert.task
    async def show() -> None: ...

    for give in (show.options, any_concert.task):
        with pytest.raises(ValueError, match=r"priority is .*; give a whole number from 0 to 9"):
            give(priority=priority)
    with pytest.raises(ValueError, match="priority"):
        await any_concert.enqueue("show", priority=priority)
    assert not (await ledger_of(any_concert)).bodies


async def test_plain_jobs_wait_where_they_always_do(any_concert: Coordinator) -> None:
    """One of the usual priority is in the list of its queue, and has nothing beside its body."""
    await put(any_concert, 5)
    ledger = await ledger_of(any_concert)
    assert [len(ids) for ids in ledger.ready.values()] == [1]
    assert (ledger.delayed, ledger.flagged) == ({}, {})
    assert await raw(any_concert).exists(keys_of(any_concert).queue("default").delayed) == 0


# Where a job comes from.


async def test_delayed_job_comes_to_its_priority_when_it_is_due(any_concert: Coordinator) -> None:
    """It is behind those of its priority that wait already."""
    await any_concert.enqueue("show", ["usual"])
    await any_concert.enqueue("show", ["late, first"], priority=0, delay=3600)
    await any_concert.enqueue("show", ["late, last"], priority=9, delay=3600)
    await any_concert.enqueue("show", ["first"], priority=0)
    status = await any_concert.tasks.stats("default")
    assert (status.queues["default"].ready, status.queues["default"].delayed) == (2, 2)
    await let_all_be_due(any_concert)
    assert await drained(any_concert, 4) == ["first", "late, first", "usual", "late, last"]


async def test_job_that_is_tried_again_keeps_its_priority(any_concert: Coordinator) -> None:
    """It is behind those of its number that wait when it is due, and before greater ones."""
    await put(any_concert, 1, 1, 0)
    async with any_concert.consume("default") as jobs:
        await (await anext(jobs)).nack(delay=3600)
    await put(any_concert, 0)
    await let_all_be_due(any_concert)
    async with any_concert.consume("default") as jobs:
        found = [(job.args[0], job.attempt) for job in await taken(jobs, 4)]
    assert found == [(0, 1), (0, 2), (1, 1), (1, 1)]


@pytest.mark.parametrize("priority", [0, 9])
async def test_recovered_job_is_the_next_of_its_priority(
    any_concert: Coordinator, elsewhere: Coordinator, priority: int
) -> None:
    """What a dead worker held comes back to the front of its number, and not of the queue."""
    ids = await put(any_concert, *[priority] * 3)
    async with elsewhere.consume("default", prefetch=2) as dying:
        first = await anext(dying)
        ledger = await until(any_concert, lambda ledger: sum(map(len, ledger.claimed.values())) >= 1)
        [worker] = ledger.claimed
        held = list(ledger.claimed[worker])
        await lapse(any_concert, worker)
        async with in_background(watch(any_concert)):
            await until(any_concert, lambda ledger: not ledger.claimed)
        assert first.id in held
    await put(any_concert, 5, 1)
    async with any_concert.consume("default") as jobs:
        found = [job.id for job in await taken(jobs, 5) if job.id in ids]
    assert found == ids


async def test_replayed_job_keeps_its_priority(any_concert: Coordinator) -> None:
    """It is behind those that wait at its number."""
    [dead] = await put(any_concert, 2, max_attempts=1)
    async with any_concert.consume("default") as jobs:
        job = await anext(jobs)
        await job.nack()
    await put(any_concert, 2, 5, 9)
    await any_concert.tasks.replay(dead)
    async with any_concert.consume("default") as jobs:
        found = await taken(jobs, 4)
    assert [job.args[0] for job in found] == [2, 2, 5, 9]
    assert found[1].id == dead


async def test_job_after_others_comes_to_its_priority(any_concert: Coordinator) -> None:
    """When the last of them has succeeded."""
    first = await any_concert.enqueue("show", ["first"])
    await any_concert.enqueue("show", ["usual"])
    await any_concert.enqueue("show", ["follows"], priority=0, after=[first])
    async with any_concert.consume("default") as jobs:
        await taken(jobs, 1)
        await until(any_concert, lambda ledger: not ledger.waiting)
    assert await drained(any_concert, 2) == ["follows", "usual"]


async def test_members_of_a_group_and_its_callback_have_priorities(any_concert: Coordinator) -> None:
    """Each its own."""

    @any_concert.task(name="show")
    async def show(text: str) -> None: ...

    await show.enqueue("usual")
    await show.enqueue("usual too")
    then = show.options(priority=0).call("then")
    await any_concert.group([show.options(priority=1).call("one"), show.options(priority=6).call("low")], then=then)
    assert await drained(any_concert, 5) == ["one", "usual", "usual too", "low", "then"]


async def test_follow_up_has_its_priority(any_concert: Coordinator) -> None:
    """The job that is enqueued with the end of another comes before others that wait."""

    @any_concert.task(name="show")
    async def show(text: str) -> None: ...

    await show.enqueue("first")
    await show.enqueue("second")
    seen: list[str] = []
    async with any_concert.consume("default") as jobs:
        async for job in jobs:
            async with job:
                seen.append(str(job.args[0]))
                if len(seen) == 1:
                    job.enqueue_on_success(show.options(priority=0).call("urgent"))
            if len(seen) == 3:
                break
    assert seen == ["first", "urgent", "second"]


async def test_debounced_job_has_the_priority_of_its_last_call(any_concert: Coordinator) -> None:
    """It comes to it when it is due."""

    @any_concert.task(name="show")
    async def show(text: str) -> None: ...

    await show.options(unique="one", debounce=3600.0, priority=9).enqueue("first call")
    await show.options(unique="one", debounce=3600.0, priority=0).enqueue("last call")
    await show.enqueue("usual")
    await let_all_be_due(any_concert)
    assert await drained(any_concert, 2) == ["last call", "usual"]


# What is done with a job that waits.


@pytest.mark.parametrize("priority", [0, 9])
async def test_waiting_job_is_cancelled(any_concert: Coordinator, priority: int) -> None:
    """Nothing of it stays."""
    job = await any_concert.enqueue("show", ["never"], priority=priority)
    await put(any_concert, priority)
    await job.cancel()
    assert await job.status() is JobStatus.CANCELLED
    assert await drained(any_concert, 1) == [priority]
    await all_done(any_concert)
    assert await raw(any_concert).exists(keys_of(any_concert).facts, keys_of(any_concert).queue("default").delayed) == 0


async def test_rescheduling_leaves_a_ready_job_where_it_is(any_concert: Coordinator) -> None:
    """It is in its queue already, and is not lost."""
    job = await any_concert.enqueue("show", ["urgent"], priority=0)
    assert not await job.reschedule(delay=3600)
    assert await job.reschedule(delay=0)
    later = await any_concert.enqueue("show", ["later"], priority=1, delay=3600)
    assert await later.reschedule(delay=0)
    assert await drained(any_concert, 2) == ["urgent", "later"]


async def test_unique_name_holds_at_each_priority(any_concert: Coordinator) -> None:
    """The live job keeps its own."""
    first = await any_concert.enqueue("show", ["first"], priority=7, unique="one")
    again = await any_concert.enqueue("show", ["again"], priority=0, unique="one")
    assert (again.id, again.created) == (first.id, False)
    assert (await any_concert.tasks.describe(first.id))[first.id].priority == 7
    assert await drained(any_concert, 1) == ["first"]


async def test_paused_queue_gives_out_none(any_concert: Coordinator) -> None:
    """And its workers sleep until it is resumed."""
    await any_concert.tasks.pause("default")
    await put(any_concert, 0, 9)
    async with any_concert.consume("default", "other") as jobs:
        await any_concert.enqueue("show", ["other"], queue="other")
        assert [job.args[0] for job in await taken(jobs, 1)] == ["other"]
        await any_concert.tasks.resume("default")
        assert [job.args[0] for job in await taken(jobs, 2)] == [0, 9]


async def test_limit_holds_back_whatever_the_priority(any_concert: Coordinator) -> None:
    """Jobs of smaller numbers take the places first; one that has waited for a place is before those of 5."""

    @any_concert.task(name="show", limit=Limit(1))
    async def show(text: str) -> None: ...

    await show.options(priority=9).enqueue("low")
    await show.options(priority=0).enqueue("urgent")
    await show.options(priority=1).enqueue("next")
    seen: list[str] = []
    async with any_concert.consume("default", prefetch=3) as jobs:
        async for job in jobs:
            async with job:
                seen.append(str(job.args[0]))
            if len(seen) == 3:
                break
    assert seen[0] == "urgent"
    assert sorted(seen) == ["low", "next", "urgent"]
    await all_done(any_concert)


async def test_cancelled_job_with_the_turn_lets_the_next_come(any_concert: Coordinator) -> None:
    """Of a key whose job was cancelled where it lay among its priority."""

    def one_key(text: str) -> str:
        return text[:0] + "one"

    @any_concert.task(name="show", key=one_key, share=True)
    async def show(text: str) -> None: ...

    first = await show.options(priority=0).enqueue("first")
    await show.options(priority=0).enqueue("second")
    await first.cancel()
    assert await drained(any_concert, 1) == ["second"]
    await all_done(any_concert)


# What is seen of it.


async def test_stats_count_them_as_ready(any_concert: Coordinator) -> None:
    """And the oldest of any number is what the age is of."""
    await put(any_concert, 9)
    client, keys = raw(any_concert), keys_of(any_concert)
    [(job_id, body)] = (await client.hgetall(keys.bodies)).items()
    head, _, rest = body.partition(b" ")
    await client.hset(keys.bodies, job_id, b"%d " % (int(head) - 60_000) + rest)
    await put(any_concert, 0, 5)
    stats = (await any_concert.tasks.stats("default")).queues["default"]
    assert (stats.ready, stats.delayed) == (3, 0)
    assert stats.oldest_age is not None
    assert stats.oldest_age >= 60


async def test_oldest_age_is_that_of_a_job_behind_a_cancelled_one(any_concert: Coordinator) -> None:
    """Whose id stays until a claim, if the one who cancelled it did not know in which queue it was."""
    await put(any_concert, *[0] * 3, queue="other")
    for info in (await any_concert.tasks.jobs(queue="other")).jobs[:2]:
        await any_concert.tasks.job(info.id).cancel()
    stats = (await any_concert.tasks.stats()).queues["other"]
    assert stats.oldest_age is not None


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_jobs_are_listed_in_the_order_in_which_they_run(any_concert: Coordinator, limit: int) -> None:
    """In pages of any size, each once."""
    priorities = [9, 5, 0, 6, 4, 5, 0, 9]
    await put(any_concert, *priorities)
    found: list[int] = []
    after = None
    while True:
        page = await any_concert.tasks.jobs(state="queued", limit=limit, after=after)
        found += [job.priority for job in page.jobs]
        after = page.after
        if after is None:
            break
    assert found == sorted(priorities)
    assert not (await any_concert.tasks.jobs(state="delayed")).jobs


async def test_explanation_counts_those_before(any_concert: Coordinator) -> None:
    """Of all smaller numbers, and of its own."""
    ids = await put(any_concert, 0, 5, 9, 9)
    found = [(await any_concert.explain(f"job:{each}")).reasons for each in ids]
    assert [[each.text for each in reasons if each.code == "behind"] for reasons in found] == [
        [],
        ["it is behind others in queue 'default': 1"],
        ["it is behind others in queue 'default', at priority 9: 2"],
        ["it is behind others in queue 'default', at priority 9: 3"],
    ]


async def test_order_holds_whatever_consumers_do(any_concert: Coordinator) -> None:
    """They finish some, and give the others back in any order: each comes to the front of its number."""
    chance, waiting, number = random.Random(7), dict[int, list[str]]({0: [], 5: [], 9: []}), 0
    async with any_concert.consume("default") as jobs:
        for _ in range(40):
            for priority in chance.choices([0, 5, 9], k=chance.randrange(5)):
                number += 1
                waiting[priority] += [
                    (await any_concert.enqueue("show", [priority], priority=priority, id=f"job{number}")).id
                ]
            count = chance.randrange(1, 6)
            expected = [id_ for ids in waiting.values() for id_ in ids][:count]
            found = await jobs.claim(count) if expected else []
            assert [job.id for job in found] == expected
            for job in chance.sample(found, len(found)):
                [ids] = [ids for ids in waiting.values() if job.id in ids]
                ids.remove(job.id)
                if chance.random() < 0.5:
                    await job.ack()
                else:
                    await job._state._end("back")
                    ids.insert(0, job.id)
    await ledger_of(any_concert)


@pytest.mark.parametrize("priority", [0, 9])
async def test_job_that_a_claim_leaves_keeps_its_place(any_concert: Coordinator, priority: int) -> None:
    """Such as the third of three, if two have 1 MiB together: it does not come to the plain ones."""
    large = "x" * 600_000
    put = [(await any_concert.enqueue("show", [large], priority=priority)).id for _ in range(3)]
    async with any_concert.consume("default") as jobs:
        assert [job.id for job in await jobs.claim(5)] == put[:2]
        plain = (await any_concert.enqueue("show", ["plain"])).id
        rest = [put[2], plain] if priority == 0 else [plain, put[2]]
        assert [job.id for job in await jobs.claim(5)] == rest


@pytest.mark.parametrize("count", [MANY, pytest.param(100_000, marks=pytest.mark.torture)])
async def test_many_jobs_come_in_order(concert: Coordinator, count: int) -> None:
    """Each once, by its number, and those of one number as they were enqueued."""
    chosen = random.Random(count).choices(range(10), k=count)
    seen: list[int] = []

    @concert.task(name="show", result_ttl=0)
    async def show(number: int) -> None:
        seen.append(number)

    by_priority = [show.options(priority=each) for each in range(10)]
    await concert.enqueue_many([by_priority[each].call(number) for number, each in enumerate(chosen)])
    await concert.run_worker("default", burst=True)
    assert seen == _sorted(chosen)
    await all_done(concert)


def _sorted(priorities: Sequence[int]) -> list[int]:
    return sorted(range(len(priorities)), key=lambda number: (priorities[number], number))


# What is ready lies beside what is due.


async def test_promoter_leaves_ready_jobs_alone(any_concert: Coordinator) -> None:
    """None of them is due, now or next: it sleeps, and the first stays the first."""
    await put(any_concert, 0, 0, 9)
    keys, client = keys_of(any_concert), raw(any_concert)
    queue = keys.queue("default")
    before = await client.zrange(queue.delayed, 0, -1, withscores=True)
    assert await any_concert._ref.session.run(PROMOTE(keys, queue, front=0)) == [0, -1]
    assert await client.zrange(queue.delayed, 0, -1, withscores=True) == before
    await any_concert.enqueue("show", ["later"], delay=3600)
    _, next_ms = await any_concert._ref.session.run(PROMOTE(keys, queue, front=0))
    assert 3_500_000 < next_ms <= 3_600_000


async def test_delayed_job_that_is_due_first_wakes_a_consumer(any_concert: Coordinator) -> None:
    """To learn when that is, whatever is ready."""
    await put(any_concert, 0)
    client, queue = raw(any_concert), keys_of(any_concert).queue("default")
    await client.delete(queue.bell)
    await any_concert.enqueue("show", ["later"], delay=3600)
    assert await client.llen(queue.bell) == 1
    await client.delete(queue.bell)
    await any_concert.enqueue("show", ["much later"], delay=7200)
    assert await client.llen(queue.bell) == 0


@pytest.mark.parametrize("paused", [True, False])
async def test_claim_says_when_the_next_is_due(any_concert: Coordinator, paused: bool) -> None:
    """Also of a queue in which jobs with a priority wait until it is resumed."""
    await put(any_concert, 0, 9)
    await any_concert.enqueue("show", ["later"], delay=3600)
    if paused:
        await any_concert.tasks.pause("default")
    keys = keys_of(any_concert)
    queue = keys.queue("default")
    await raw(any_concert).zadd(keys.workers, {"worker": 1e12})
    command = CLAIM(
        keys,
        claimed=keys.claimed("worker"),
        queues=[queue.queue, queue.bell, queue.delayed],
        worker="worker",
        number=1,
        count=5,
        suspects=1,
        names=["default"],
    )
    _, next_ms, _, taken, *_ = await any_concert._ref.session.run(command)
    assert taken == (0 if paused else 2)
    assert 3_500_000 < next_ms <= 3_600_000
    await raw(any_concert).delete(keys.workers, keys.claimed("worker"))


async def test_next_of_a_raised_rate_comes_to_its_priority(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Not to the plain ones, and so behind them here."""

    async def at_a_rate(number: int) -> None: ...

    old = any_concert.task(name="at a rate", rate=Rate(1, per=3600.0), priority=9)(at_a_rate)
    new = elsewhere.task(name="at a rate", rate=Rate(100, per=1.0), priority=9)(at_a_rate)
    keys = keys_of(any_concert)
    async with any_concert.consume("default") as jobs:
        await old.enqueue(0)
        held = (await old.enqueue(1)).id
        [began] = await jobs.claim(5)
        await began.ack()
        assert await raw(any_concert).hget(keys.states, held) == b"delayed default"
        await new.options(priority=0).enqueue(2)
        [raised] = await jobs.claim(1)
        await raised.ack()
        assert await raw(any_concert).hexists(keys.states, held) == 0
        assert await raw(any_concert).lrange(keys.queue("default").queue, 0, -1) == []
        [last] = await jobs.claim(5)
        assert last.id == held
        await last.ack()


async def test_many_suspects_hide_no_others_whatever_their_priority(any_concert: Coordinator) -> None:
    """When a claim has looked at as many as it may, and can take none, these come to the back of the plain ones."""

    @any_concert.task(name="show", priority=0)
    async def show(number: int) -> None: ...

    suspects = await any_concert.enqueue_many([show.call(number) for number in range(1_600)])
    facts = {job.id: facts_text(crashes=2, flags="0") for job in suspects}
    await raw(any_concert).hset(keys_of(any_concert).facts, mapping=facts)
    plain = await any_concert.enqueue("show", ["plain"])
    async with any_concert.consume("default") as jobs:
        [suspect] = await jobs.claim(1)
        assert suspect.id == suspects[0].id
        found: list[ClaimedJob] = []
        for _ in range(5):
            found += await jobs.try_claim(5)
        assert [job.id for job in found] == [plain.id]
        for job in (suspect, *found):
            await job.ack()
        [following] = await jobs.claim(1)
        assert following.id in {job.id for job in suspects}
        await following.ack()
    assert len((await ledger_of(any_concert)).bodies) == len(suspects) - 2


async def test_number_is_outside_of_the_signature(server: RealServer, namespace: str) -> None:
    """A writer of the server may change the order, and nothing else."""
    async with Coordinator(server.url, namespace=namespace, signing_keys={"now": "a secret of the service"}) as concert:
        await put(concert, 0, 9)
        client, queue = raw(concert), keys_of(concert).queue("default")
        (first, low), (last, high) = await client.zrange(queue.delayed, 0, -1, withscores=True)
        await client.zadd(queue.delayed, {first: high, last: low})
        assert await drained(concert, 2) == [9, 0]
        await all_done(concert)
