"""Limits and rates by name, which tasks of several queues and processes share; and jobs that cost more of a rate."""

import asyncio
import re
from contextlib import AsyncExitStack
from typing import Any

import pytest

from inconcert import Coordinator, JobFailed, JobStatus, Limit, LimitStats, Rate, Retry, Task, current_job, durable
from inconcert.tasks.records.limits import TaskLimits
from tests.support.background import in_background
from tests.support.clusters import RealCluster
from tests.support.eventually import eventually
from tests.support.limits import WITHIN, Running, first, in_line, places
from tests.support.raw import raw
from tests.support.servers import RealServer


def limited(concert: Coordinator, running: Running, *queues: str, **options: Any) -> list[Task[[int], Any]]:
    """A task in each of these queues with the same options."""

    async def run(number: int) -> None:
        await running.run("all", number)

    return [concert.task(name=f"in {queue}", queue=queue, **options)(run) for queue in queues]


def sharing_tokens(
    concert: Coordinator, running: Running, *, per: float, cost: Any = 4
) -> tuple[Task[[int], Any], Task[[int], Any]]:
    """A task of queue `a`, whose jobs cost 1 of a rate of 4, and one of queue `b`, whose jobs cost more."""
    rate = concert.rate("tokens", 4, per=per)
    [plain] = limited(concert, running, "a", rate=rate)
    [costly] = limited(concert, running, "b", rate=rate, cost=cost)
    running.free.set()
    return plain, costly


async def test_at_most_so_many_jobs_of_all_tasks_run_in_all_processes(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """In order of their enqueueing, though each worker serves one queue; and all of them run."""
    running = Running()
    here, there = limited(any_concert, running, "a", "b", limit=any_concert.limit("api", 2))
    limited(elsewhere, running, "a", "b", limit=elsewhere.limit("api", 2))
    jobs = [await (here, there)[number % 2].enqueue(number) for number in range(8)]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(in_background(any_concert.run_worker("a", concurrency=10)))
        await stack.enter_async_context(in_background(elsewhere.run_worker("b", concurrency=10)))
        await running.until(2)
        await eventually(lambda: in_line(any_concert, 6))
        stats = await any_concert.tasks.stats()
        assert stats.limits["in a"] == LimitStats(queue="a", places=2, in_use=2, name="api")
        assert stats.limits["in b"].in_use == 2
        assert await jobs[7].status() is JobStatus.DELAYED
        running.free.set()
        for job in jobs:
            await job.result(timeout=WITHIN)
    assert running.most["all"] == 2
    assert sorted(running.began) == list(range(8))
    assert await places(any_concert) == 0


async def test_jobs_of_a_queue_that_nobody_serves_hold_up_no_others(any_concert: Coordinator) -> None:
    """They are the first in line; their place is kept for a second, once."""
    running = Running()
    unserved, served = limited(any_concert, running, "a", "b", limit=any_concert.limit("api", 1))
    async with in_background(any_concert.run_worker("b")):
        first_of_all = await served.enqueue(0)
        await running.until(1)
        waiting = [await unserved.enqueue(number) for number in range(1, 4)]
        async with any_concert.consume("a") as jobs:
            assert await jobs.try_claim(10) == []
        others = [await served.enqueue(number) for number in range(4, 8)]
        running.free.set()
        for job in [first_of_all, *others]:
            await job.result(timeout=WITHIN)
        async with in_background(any_concert.run_worker("a")):
            for job in waiting:
                await job.result(timeout=WITHIN)
    assert running.most["all"] == 1
    assert await places(any_concert) == 0


async def test_cancelled_job_in_line_lets_the_next_one_in(any_concert: Coordinator) -> None:
    """In the line, and while it runs."""
    running = Running()
    here, there = limited(any_concert, running, "a", "b", limit=any_concert.limit("api", 1))
    async with in_background(any_concert.run_worker("a", "b", concurrency=10)):
        runs = await here.enqueue(0)
        await running.until(1)
        waits, last = await there.enqueue(1), await here.enqueue(2)
        await eventually(lambda: in_line(any_concert, 2))
        assert await waits.cancel()
        assert await runs.cancel()
        running.free.set()
        await last.result(timeout=WITHIN)
    assert running.began == [0, 2]
    assert await places(any_concert) == 0


async def test_rate_of_several_tasks_is_used_by_what_their_jobs_cost(any_concert: Coordinator) -> None:
    """Of 4 at once a job of 3 and one of 1 begin, but not one more."""
    running = Running()
    plain, costly = sharing_tokens(any_concert, running, per=3600.0, cost=int)
    async with in_background(any_concert.run_worker("a", "b", concurrency=10)):
        await (await costly.enqueue(3)).result(timeout=WITHIN)
        await (await plain.enqueue(1)).result(timeout=WITHIN)
        late = await plain.enqueue(2)
        await eventually(lambda: in_line(any_concert, 1))
        found = await any_concert.explain(f"job:{late.id}")
        assert "waits for the rate 'tokens', which tasks share" in str(found)
        assert await late.cancel()
        free = await costly.enqueue(0)  # behind nobody
        await free.result(timeout=WITHIN)
    assert running.began == [3, 1, 0]


async def test_costly_job_begins_before_cheap_ones_of_another_queue_that_came_later(any_concert: Coordinator) -> None:
    """The room gathers for it, however many of the others wait."""
    running = Running()
    plain, costly = sharing_tokens(any_concert, running, per=1.0)
    await any_concert.enqueue_many([plain.call(number) for number in range(4)])
    async with in_background(any_concert.run_worker("a", "b", concurrency=10)):
        await running.until(4)
        last = await costly.enqueue(100)
        await eventually(lambda: in_line(any_concert, 1))
        await any_concert.enqueue_many([plain.call(number) for number in range(4, 7)])
        await last.result(timeout=WITHIN)
        assert running.began[4] == 100
        await running.until(8)


async def test_job_that_could_begin_waits_behind_those_in_line(any_concert: Coordinator) -> None:
    """There is room for it, and not yet for the one of another queue that came before."""
    running = Running()
    plain, costly = sharing_tokens(any_concert, running, per=3600.0)
    async with in_background(any_concert.run_worker("a", "b", concurrency=10)):
        await (await plain.enqueue(0)).result(timeout=WITHIN)
        waiting = [await costly.enqueue(1)]
        await eventually(lambda: in_line(any_concert, 1))
        waiting.append(await plain.enqueue(2))
        await eventually(lambda: in_line(any_concert, 2))
        for job in reversed(waiting):  # the last first: it may begin once none is in line before it
            assert await job.cancel()
    assert running.began == [0]


async def test_no_room_gathers_for_a_costly_job_of_a_queue_that_nobody_serves(any_concert: Coordinator) -> None:
    """Once one of its line was let in and not claimed."""
    running = Running()
    plain, costly = sharing_tokens(any_concert, running, per=0.8)
    async with any_concert.consume("b", prefetch=5) as jobs:
        await any_concert.enqueue_many([costly.call(100 + number) for number in range(3)])
        [claimed] = await jobs.try_claim(5)
        await claimed.ack()
    sent = await any_concert.enqueue_many([plain.call(number) for number in range(10)])
    async with in_background(any_concert.run_worker("a", concurrency=10)):
        await running.until(4)
        await _end_the_pause_of_lines(any_concert)
        for job in sent:
            await job.result(timeout=WITHIN)
        assert await in_line(any_concert, 1)


async def _end_the_pause_of_lines(concert: Coordinator) -> None:
    """As if those that were let in had been so for long."""
    [keys] = concert._jobs.partitions
    text = "string.gsub(redis.call('HGET', KEYS[1], '+'), '(%S+ %S+ %S+ [1-9]%d* %d+) %d+', '%1 1')"
    await raw(concert).eval(f"redis.call('HSET', KEYS[1], '+', ({text}))", 1, keys.places)


async def test_cost_holds_for_a_rate_of_one_task(any_concert: Coordinator) -> None:
    """The next job begins when there is room for what it costs."""
    running = Running()
    [task] = limited(any_concert, running, "a", rate=Rate(4, per=1.0), cost=2)
    running.free.set()
    async with in_background(any_concert.run_worker("a", concurrency=10)):
        jobs = [await task.enqueue(number) for number in range(6)]
        for job in jobs:
            await job.result(timeout=WITHIN)
    assert sorted(running.began) == list(range(6))
    assert await places(any_concert) == 1  # where the rate stands


async def test_each_attempt_costs_its_part_of_a_rate(any_concert: Coordinator) -> None:
    """One that failed has spent it."""
    attempts: list[int] = []

    @any_concert.task(name="t", rate=any_concert.rate("tokens", 5, per=3600.0), cost=2)
    async def fail_twice() -> None:
        attempts.append(current_job().attempt)
        if len(attempts) < 3:
            raise Retry(after=0)

    job = await fail_twice.enqueue()
    async with in_background(any_concert.run_worker("default")):
        await eventually(lambda: in_line(any_concert, 1))
        assert attempts == [1, 2]
        assert await job.cancel()


async def test_explain_says_which_limit_a_job_waits_for_and_who_has_its_places(any_concert: Coordinator) -> None:
    """Also a job of another task."""
    running = Running()
    here, there = limited(any_concert, running, "a", "b", limit=any_concert.limit("open ai", 1))
    async with in_background(any_concert.run_worker("a", "b", concurrency=10)):
        runs = await here.enqueue(0)
        await running.until(1)
        before, waits = await here.enqueue(1), await there.enqueue(2)
        await eventually(lambda: in_line(any_concert, 2))
        found = str(await any_concert.explain(f"job:{waits.id}"))
        taken = f"the limit 'open ai', which tasks share: 1 of 1 places are taken, by {runs.id}; before it in line: 1"
        assert taken in found
        running.free.set()
        for job in (before, waits):
            await job.result(timeout=WITHIN)


async def test_explain_names_no_job_of_a_limit_whose_name_begins_alike(any_concert: Coordinator) -> None:
    """The places are those of the job's own limit."""
    running = Running()
    [short] = limited(any_concert, running, "a", limit=any_concert.limit("api", 1))
    [long] = limited(any_concert, running, "b", limit=any_concert.limit("api 2", 1))
    async with in_background(any_concert.run_worker("a", "b", concurrency=10)):
        await long.enqueue(0)
        runs = await short.enqueue(1)
        await running.until(2)
        waits = await short.enqueue(2)
        await eventually(lambda: in_line(any_concert, 1))
        found = str(await any_concert.explain(f"job:{waits.id}"))
        assert re.search(rf"1 of 1 places are taken, by {re.escape(runs.id)}$", found, re.MULTILINE), found
        running.free.set()
        await waits.result(timeout=WITHIN)


async def test_job_by_name_counts_and_costs_as_its_task_says(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """A worker finds out; one that costs too much is dead-lettered with the reason."""
    running = Running()
    [task] = limited(any_concert, running, "default", limit=any_concert.limit("api", 1))
    [costly] = limited(any_concert, running, "b", rate=Rate(4, per=1.0), cost=int)
    async with in_background(any_concert.run_worker("default", "b", concurrency=10)):
        jobs = [await elsewhere.enqueue(task.name, [number]) for number in range(3)]
        await running.until(1)
        await eventually(lambda: in_line(any_concert, 2))
        too_much = await elsewhere.enqueue(costly.name, [5], queue="b")
        with pytest.raises(JobFailed, match="give a whole number from 0 to 4"):
            await too_much.result(timeout=WITHIN)
        running.free.set()
        for job in jobs:
            await job.result(timeout=WITHIN)
    assert running.most["all"] == 1


async def test_sleeping_job_has_no_place(any_concert: Coordinator) -> None:
    """Its place is given to one of another queue."""
    limit = any_concert.limit("api", 1)
    woken = asyncio.Event()

    @any_concert.task(name="sleeper", queue="a", limit=limit)
    async def sleeper() -> None:
        await durable.sleep("nap", 3600)

    @any_concert.task(name="other", queue="b", limit=limit)
    async def other() -> None:
        woken.set()

    async with in_background(any_concert.run_worker("a", "b", concurrency=10)):
        nap = await sleeper.enqueue()
        await (await other.enqueue()).result(timeout=WITHIN)
        assert await nap.cancel()


async def test_keys_have_their_own_limit_beside_a_shared_one(any_concert: Coordinator) -> None:
    """A key with many jobs does not take all places."""
    running = Running()
    limit = any_concert.limit("api", 3)

    @any_concert.task(name="keyed", queue="a", limit=limit, key=first, key_limit=1)
    async def keyed(key: str, number: int) -> None:
        await running.run(key, number)

    async with in_background(any_concert.run_worker("a", concurrency=10)):
        jobs = await any_concert.enqueue_many([keyed.call("a", number) for number in range(6)])
        jobs += await any_concert.enqueue_many([keyed.call("b", number) for number in range(6)])
        await running.until(2)
        running.free.set()
        for job in jobs:
            await job.result(timeout=WITHIN)
    assert running.most == {"a": 1, "b": 1}
    assert await places(any_concert) == 0


async def test_number_of_a_limit_that_is_raised_holds_for_all(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """As that of the job says which was enqueued last."""
    running = Running()
    [old] = limited(any_concert, running, "a", limit=any_concert.limit("api", 1))
    [new] = limited(elsewhere, running, "b", limit=elsewhere.limit("api", 3))
    async with in_background(any_concert.run_worker("a")), in_background(elsewhere.run_worker("b", concurrency=9)):
        jobs = [await old.enqueue(0)]
        await running.until(1)
        jobs += [await new.enqueue(number) for number in range(1, 4)]
        await running.until(3)
        running.free.set()
        for job in jobs:
            await job.result(timeout=WITHIN)
    assert running.most["all"] == 3


async def test_where_jobs_are_spread_all_that_share_lie_in_one_partition(
    server: RealServer | RealCluster, namespace: str
) -> None:
    """Whatever their tasks and queues are; what must lie elsewhere is refused."""
    running = Running()
    async with Coordinator(server.url, namespace=namespace, partitions=4) as concert:
        limit, rate = concert.limit("api", 1), concert.rate("api", 1000, per=1.0)
        tasks = limited(concert, running, "a", "b", "c", limit=limit)
        tasks += limited(concert, running, "d", rate=rate)
        with pytest.raises(ValueError, match="limits, which count in one partition"):
            await concert.group([tasks[0].call(1)])
        with pytest.raises(ValueError, match="counts in one partition"):
            concert.cron(every=60)(concert.task(name="often", limit=limit)(_nothing))
        jobs = [await task.enqueue(number) for number, task in enumerate(tasks)]
        assert len({concert._jobs.of_id(job.id) for job in jobs}) == 1
        async with in_background(concert.run_worker("a", "b", "c", "d", concurrency=10)):
            await running.until(2)
            assert (await concert.tasks.stats()).limits["in c"].in_use == 1
            running.free.set()
            for job in jobs:
                await job.result(timeout=WITHIN)
    assert running.most["all"] <= 2  # one of them has only the rate


async def _nothing() -> None: ...


async def test_worker_lets_jobs_in_whose_limit_its_code_lacks(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """They wait as they were enqueued; nothing of the limit is left when they have run."""
    running = Running()
    [old] = limited(any_concert, running, "a", limit=any_concert.limit("api", 1))
    async with any_concert.consume("a", prefetch=5) as jobs:
        sent = [await old.enqueue(number) for number in range(3)]
        [claimed] = await jobs.try_claim(5)
        await claimed.ack()
    limited(elsewhere, running, "a")
    running.free.set()
    async with in_background(elsewhere.run_worker("a", concurrency=5)):
        for job in sent[1:]:
            await job.result(timeout=WITHIN)
    assert running.most["all"] == 1
    assert await places(any_concert) == 0


async def test_worker_that_ends_when_its_queues_are_empty_runs_them_all(any_concert: Coordinator) -> None:
    """As tests of users drain theirs."""
    running = Running()
    tasks = limited(any_concert, running, "a", "b", limit=any_concert.limit("api", 2))
    await any_concert.enqueue_many([task.call(number) for number in range(5) for task in tasks])
    running.free.set()
    await any_concert.run_worker("a", "b", burst=True)
    assert len(running.began) == 10
    assert await places(any_concert) == 0


async def test_job_without_such_a_limit_names_no_more_and_notes_nothing(any_concert: Coordinator) -> None:
    """Nothing of lines is written for one with a limit of its own."""
    running = Running()
    [task] = limited(any_concert, running, "a", limit=Limit(1))
    async with in_background(any_concert.run_worker("a", concurrency=5)):
        jobs = [await task.enqueue(number) for number in range(3)]
        await running.until(1)
        await eventually(lambda: in_line(any_concert, 2))
        [keys] = any_concert._jobs.partitions
        assert not await raw(any_concert).hexists(keys.places, "+")
        running.free.set()
        for job in jobs:
            await job.result(timeout=WITHIN)


async def test_bad_input_is_refused_before_anything_is_sent(any_concert: Coordinator) -> None:
    """With what is so, and what to do."""
    limit = any_concert.limit("api", 2)
    assert any_concert.limit("api", 2) == limit
    with pytest.raises(ValueError, match="'api' is Limit"):
        any_concert.limit("api", 3)
    any_concert.rate("api", 3, per=1.0)  # a name of its own
    with pytest.raises(ValueError, match="already"):
        any_concert.rate("api", 3, per=2.0)
    for name in ("", "x" * 513):
        with pytest.raises(ValueError, match="name"):
            any_concert.limit(name, 2)
    with pytest.raises(ValueError, match="whole number"):
        any_concert.limit("none", 0)
    with pytest.raises(ValueError, match="give rate= as well"):
        TaskLimits(cost=2)
    with pytest.raises(ValueError, match="cost is 5; give a whole number from 0 to 4"):
        TaskLimits(rate=Rate(4, per=1.0), cost=5)
    [task] = limited(any_concert, Running(), "a", rate=Rate(4, per=1.0), cost=int)
    for wrong in (5, -1):
        with pytest.raises(ValueError, match="task 'in a': the cost of a job is"):
            await task.enqueue(wrong)
    assert await places(any_concert) == 0
