"""Tasks of a namespace with several partitions: each operation is about all of them."""

import asyncio
import time
from collections import Counter
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, Job, JobFailed, JobStatus, Limit, NotConnected, WrongLayout, current_job
from inconcert._claims import consumer
from inconcert._claims import partition as partition_module
from inconcert._claims.partition import ClaimPartition
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.jobs import asleep, let_crash
from tests.support.ledger import ledger_of
from tests.support.partitions import COUNT, in_partition, nothing_is_kept, one_in_each
from tests.support.raw import raw
from tests.support.servers import RealServer

SOON = 1.5  # seconds; the shortest sleep of an idle consumer is 2 s


def numbers(jobs: list[Job[Any]]) -> list[int]:
    """In which partitions these jobs are."""
    return [int(job.id.rpartition(".")[2]) for job in jobs]


async def test_jobs_are_spread_and_found_by_their_ids(spread: Coordinator, server: RealServer, namespace: str) -> None:
    """In any process, by one round trip; the keys of each partition have a tag of their own."""

    @spread.task(name="t", queue="q")
    async def t() -> None: ...

    jobs = [await t.enqueue() for _ in range(60)]
    assert min(Counter(numbers(jobs)).values()) >= 5
    tags = {key.decode().partition("}")[0] async for key in raw(spread).scan_iter(f"{{{namespace}:tasks:*:bodies")}
    assert tags == {f"{{{namespace}:tasks:{number}" for number in range(COUNT)}
    async with Coordinator(server.url, namespace=namespace, partitions=COUNT) as other:
        assert [await other.tasks.job(job.id).status() for job in jobs] == [JobStatus.QUEUED] * 60
        assert await other.tasks.job("no.such.job.7").status() is JobStatus.UNKNOWN
        assert await other.tasks.job(jobs[0].id).cancel()
    assert await jobs[0].status() is JobStatus.CANCELLED
    stats = await spread.tasks.stats("q")
    assert (stats.queues["q"].ready, stats.workers) == (60, 0)


@pytest.mark.parametrize("given", [1, 4])
async def test_another_number_is_refused(spread: Coordinator, server: RealServer, namespace: str, given: int) -> None:
    """With both numbers."""
    other = Coordinator(server.url, namespace=namespace, partitions=given)
    with pytest.raises(WrongLayout, match=f"has partitions=3, and was opened with partitions={given}; give"):
        await other.__aenter__()


async def test_partitions_of_the_environment(
    server: RealServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers of `from_env`; one that is not a number is refused."""
    monkeypatch.setenv("INCONCERT_URL", server.url)
    monkeypatch.setenv("INCONCERT_NAMESPACE", namespace)
    monkeypatch.setenv("INCONCERT_PARTITIONS", "2")
    monkeypatch.setenv("INCONCERT_CHAT_GROUPS", "3")
    async with Coordinator.from_env() as concert:
        layout = await raw(concert).hgetall(f"{{{namespace}:namespace}}:layout")
    assert (layout[b"partitions"], layout[b"chat_groups"]) == (b"2", b"3")
    monkeypatch.setenv("INCONCERT_PARTITIONS", "two")
    with pytest.raises(ValueError, match="INCONCERT_PARTITIONS is 'two'"):
        Coordinator.from_env()


async def test_unique_name_is_unique_in_all_partitions(spread: Coordinator) -> None:
    """It draws the partition, so all who enqueue under it meet there."""
    jobs = [await spread.enqueue("t", queue="q", unique="name") for _ in range(10)]
    assert [job.created for job in jobs] == [True] + [False] * 9
    assert len({job.id for job in jobs}) == 1
    drawn = [await spread.enqueue("t", queue="q", unique=f"name {number}") for number in range(30)]
    assert set(numbers(drawn)) == set(range(COUNT))


async def test_one_claim_fills_all_places_from_all_partitions(spread: Coordinator) -> None:
    """However the jobs are spread; and nothing is claimed beyond the count."""
    await one_in_each(spread)
    await in_partition(spread, 1)
    async with spread.consume("q") as jobs:
        claimed = await jobs.claim(10)
        assert sorted(job.id.rpartition(".")[2] for job in claimed) == ["0", "1", "1", "2"]
    async with spread.consume("q") as jobs:
        assert len(await jobs.claim(2)) == 2
        assert len(await jobs.claim(2)) == 2


@pytest.mark.parametrize("number", range(COUNT))
async def test_idle_consumer_is_woken_by_any_partition(spread: Coordinator, number: int) -> None:
    """By its bell, long before it would look."""
    async with spread.consume("q") as jobs:
        waiting = asyncio.create_task(anext(jobs))
        await asleep(spread, count=COUNT)
        with anyio.fail_after(SOON):
            job = await in_partition(spread, number)
            assert (await waiting).id == job.id


async def test_idle_consumer_sends_no_claims_but_its_timed_looks(
    spread: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for three partitions: each is looked at with every third sleep."""
    monkeypatch.setattr(consumer, "_SHORTEST_SLEEP", 0.2)
    monkeypatch.setattr(consumer, "_LONGEST_SLEEP", 0.2)
    client: Any = raw(spread)
    async with spread.consume("q") as jobs, in_background(sleep_through(jobs)):
        await asleep(spread, count=COUNT)
        workers = [partition.worker for partition in jobs._opened._partitions]  # type: ignore[union-attr]
        assert all(worker is not None for worker in workers)
        numbers_before = [worker._number for worker in workers if worker is not None]
        await anyio.sleep(6 * 0.2)
        looks = [worker._number - before for worker, before in zip(workers, numbers_before, strict=True) if worker]
        assert 2 <= sum(looks) <= 6
        assert (await spread.tasks.stats("q")).workers == 1
    assert not await client.exists(*(keys.workers for keys in spread._jobs.partitions))


async def sleep_through(jobs: Any) -> None:
    """Wait for a job that does not come."""
    await anext(jobs)


async def test_busy_consumer_does_not_forget_a_quiet_partition(spread: Coordinator) -> None:
    """It always gets all that it asks for from one, and looks at the others after a second."""

    @spread.task(name="again", queue="q", result_ttl=0)
    async def again() -> None:
        await asyncio.gather(*(in_partition(spread, 0, "again") for _ in range(2)))

    del again
    for _ in range(4):
        await in_partition(spread, 0, "again")
    async with in_background(spread.run_worker("q", concurrency=2, unknown_task_grace=0)):
        await anyio.sleep(0.2)
        quiet = await in_partition(spread, 2, "no.such.task")
        with pytest.raises(JobFailed):
            await quiet.result(timeout=3)


async def test_partition_that_does_not_answer_does_not_stop_the_others(
    spread: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left out until the claim that is under way is answered, however long that takes."""
    jobs = await one_in_each(spread)
    partition_type: Any = ClaimPartition
    claim = partition_type.claim
    answers = asyncio.Event()

    async def claim_or_hang(partition: Any, count: int) -> Any:
        if partition.number == 1:
            await answers.wait()
            await anyio.sleep(0.3)  # each time: the link is slow
        return await claim(partition, count)

    monkeypatch.setattr(ClaimPartition, "claim", claim_or_hang)
    monkeypatch.setattr(consumer, "_PATIENCE", 0.2)

    @spread.task(name="t", queue="q")
    async def t() -> int:
        return 7

    del t
    async with in_background(spread.run_worker("q")):
        assert [await jobs[number].result(timeout=3) for number in (0, 2)] == [7, 7]
        more = await in_partition(spread, 0)
        assert await more.result(timeout=SOON) == 7
        answers.set()
        assert await jobs[1].result(timeout=20) == 7


async def test_claim_ends_when_its_consumer_is_closed_before_a_partition_answers(
    spread: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the error of one that is closed: nobody has cancelled its caller."""
    asked = asyncio.Event()

    async def hang(partition: Any, count: int) -> Any:
        del partition, count
        asked.set()
        await anyio.sleep_forever()

    monkeypatch.setattr(ClaimPartition, "claim", hang)
    async with spread.consume("q") as jobs:
        claiming = asyncio.create_task(jobs.claim(1))
        await asked.wait()
    with pytest.raises(NotConnected):
        await claiming


async def test_partition_that_was_left_out_is_claimed_from_as_soon_as_a_heartbeat_is_answered(
    spread: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as by the master that took the place of one that died: not only when the pause is over."""
    monkeypatch.setattr(partition_module, "_SHORTEST_PAUSE", 60.0)
    monkeypatch.setattr(partition_module, "_LONGEST_PAUSE", 60.0)
    async with spread.consume("q") as jobs:
        await jobs.try_claim(1)
        assert jobs._opened is not None
        partition = jobs._opened._partitions[1]
        partition.leave_out()
        partition.is_dry = False
        assert not partition.may_have_more
        assert partition.worker is not None
        partition.worker.start_renewal()
        await eventually(lambda: partition.may_have_more)


async def test_one_suspect_at_a_time_whatever_its_partition(spread: Coordinator) -> None:
    """What has killed two workers may kill the next, and would take others along."""
    await let_crash(spread, *await one_in_each(spread), count=2)
    async with spread.consume("q") as jobs:
        for left in (2, 1, 0):
            [suspect] = await jobs.claim(10)
            assert (await spread.tasks.stats("q")).queues["q"].ready == left
            await suspect.ack()


# Jobs that run after others.


async def test_job_waits_for_parents_in_all_partitions_and_has_their_results(spread: Coordinator) -> None:
    """Those that are kept, and those that are kept for it; wherever it is itself."""
    parents = await one_in_each(spread, result_ttl=0)
    children = [await in_partition(spread, number, after=[*parents, parents[0]]) for number in range(COUNT)]
    last = await spread.enqueue("t", queue="q", after=children)
    async with spread.consume("q") as jobs:
        for parent in parents:
            assert [await child.status() for child in children] == [JobStatus.WAITING] * 3
            [job] = await claim_of(jobs, parent.id)
            async with job:
                job.result = parent.id
        for _ in children:
            async with await anext(jobs) as job:
                assert await job.parent_results() == [parent.id for parent in (*parents, parents[0])]
                job.result = 1
        async with await anext(jobs) as job:
            assert (job.id, await job.parent_results()) == (last.id, [1, 1, 1])
    await nothing_is_kept(spread)


async def claim_of(jobs: Any, job_id: str) -> list[Any]:
    """Claim until this job is there, and give the others back."""
    claimed: dict[str, Any] = {}
    while job_id not in claimed:
        claimed |= {job.id: job for job in await jobs.claim(10)}
    found = claimed.pop(job_id)
    for job in claimed.values():
        await job.give_back()
    return [found]


async def test_job_fails_with_a_parent_in_another_partition(spread: Coordinator) -> None:
    """That is not known, was cancelled, or was set aside: before or after the child was enqueued."""
    gone = await in_partition(spread, 1)
    assert await gone.cancel()
    child = await in_partition(spread, 0, after=[gone])
    with pytest.raises(JobFailed, match="was cancelled"):
        await child.result(timeout=0)
    child = await in_partition(spread, 0, after=["no.such.job.1"])
    with pytest.raises(JobFailed, match="is not known"):
        await child.result(timeout=0)
    parent = await in_partition(spread, 2, max_attempts=1)
    child = await in_partition(spread, 0, after=[parent])
    grandchild = await in_partition(spread, 1, after=[child])
    async with spread.consume("q") as jobs:
        async with await anext(jobs):
            raise ValueError("no luck")
        for job, why in ((child, f"its parent {parent.id} failed"), (grandchild, f"because {parent.id} failed")):
            with pytest.raises(JobFailed, match=why):
                await job.result(timeout=SOON)
    assert await spread.tasks.purge_all() == 5
    await nothing_is_kept(spread)


async def test_dependants_in_other_partitions_are_replayed(spread: Coordinator) -> None:
    """Each waits for its parents again, wherever these are."""
    parent = await in_partition(spread, 0, max_attempts=1)
    child = await in_partition(spread, 1, after=[parent])
    grandchild = await in_partition(spread, 2, after=[parent, child])
    async with spread.consume("q") as jobs:
        async with await anext(jobs):
            raise ValueError("no luck")
        for job in (child, grandchild):
            with pytest.raises(JobFailed, match=r"its parent .* failed"):
                await job.result(timeout=SOON)
        assert set(await spread.tasks.replay(parent.id, dependants=True)) == {child.id, grandchild.id}
        assert [await job.status() for job in (child, grandchild)] == [JobStatus.WAITING] * 2
        for expected in (parent, child, grandchild):
            async with await anext(jobs) as claimed:
                assert claimed.id == expected.id
    await nothing_is_kept(spread)


async def test_job_may_run_after_one_in_another_partition_that_failed(spread: Coordinator) -> None:
    """Or was cancelled: before or after it was enqueued."""
    gone, failed = await in_partition(spread, 1), await in_partition(spread, 2, max_attempts=1)
    children = [await in_partition(spread, 0, after=[gone, failed], even_if="ended")]
    assert await gone.cancel()
    async with spread.consume("q") as jobs:
        async with await anext(jobs):
            raise ValueError("no luck")
        children.append(await in_partition(spread, 0, after=[gone, failed], even_if="ended"))
        children.append(await in_partition(spread, 1, after=[children[0]], even_if="failed"))
        for child in children:
            async with await anext(jobs) as job:
                assert job.id == child.id
    assert await spread.tasks.purge_all() == 1
    await nothing_is_kept(spread)


async def test_graph_over_partitions_runs_in_a_burst(spread: Coordinator) -> None:
    """Each after all of its parents, and the worker ends when all is done."""

    @spread.task(name="add", queue="q")
    async def add() -> int:
        return 1 + sum(await current_job().parent_results(int))

    layer, expected = [await add.enqueue()], 1
    for size in (5, 5, 1):
        expected = 1 + expected * len(layer)
        layer = await spread.enqueue_many([add.options(after=layer).call() for _ in range(size)])
    await spread.run_worker("q", burst=True)
    assert await layer[0].result(timeout=0) == expected
    await nothing_is_kept(spread)


# What operators do.


async def test_schedule_fires_once_in_all_partitions(spread: Coordinator) -> None:
    """For each instant one job, which lies where its task's name says."""
    ran = Counter[float]()

    @spread.cron(every=0.2)
    @spread.task(name="tick", queue="q")
    async def tick() -> None:
        assert (await spread.tasks.job(current_job().id).status()) is JobStatus.RUNNING
        ran[current_job().scheduled_at or 0] += 1  # a worker that ends before has not run it

    del tick
    async with in_background(spread.run_worker("q")), in_background(spread.run_worker("q")):
        await eventually(lambda: len(ran) >= 4)
    assert set(ran.values()) == {1}


@pytest.mark.parametrize("name", ["mails:send", "make.<locals>.send", "send at night"])
async def test_limit_counts_the_jobs_of_schedules(spread: Coordinator, name: str) -> None:
    """They lie where all others of their task do, also if their ids cannot have its name as it is."""
    ids: list[str] = []

    @spread.cron(every=0.1)
    @spread.task(name=name, queue="q", limit=Limit(1))
    async def tick() -> None:
        ids.append(current_job().id)

    await tick.enqueue()
    async with in_background(spread.run_worker("q")):
        await eventually(lambda: len(ids) >= 3)
    assert len({spread._jobs.of_id(job_id).number for job_id in ids}) == 1


async def test_pause_and_stats_are_about_all_partitions(spread: Coordinator) -> None:
    """Nothing is claimed from any; and each is counted."""
    parent, *_ = await one_in_each(spread)
    await spread.enqueue("t", queue="q", delay=60)
    await spread.enqueue("t", queue="q", after=[parent])
    await spread.tasks.pause("q")
    async with spread.consume("q") as jobs:
        assert await jobs.try_claim(10) == []
        stats = (await spread.tasks.stats("q")).queues["q"]
        assert (stats.ready, stats.delayed, stats.waiting, stats.running, stats.is_paused) == (3, 1, 1, 0, True)
        await spread.tasks.resume("q")
        for _ in range(3):
            await (await anext(jobs)).ack()
        stats = (await spread.tasks.stats("q")).queues["q"]
        assert (stats.finished, stats.is_paused) == (3, False)


async def test_dead_letters_of_all_partitions_are_one_list(spread: Coordinator) -> None:
    """The latest first; one is replayed and purged by its id, and the oldest are purged whatever their partition."""
    dead = [await in_partition(spread, number % COUNT, max_attempts=1) for number in range(7)]
    for age, job in enumerate(dead):
        async with spread.consume("q") as jobs:
            [claimed] = await claim_of(jobs, job.id)
            await claimed.nack()
        keys = spread._jobs.of_id(job.id)
        await raw(spread).zadd(keys.dead, {job.id: time.time() * 1000 - age * 10_000})
    ids = [job.id for job in dead]
    assert [letter.id for letter in await spread.tasks.dead()] == ids
    assert [letter.id for letter in await spread.tasks.dead(limit=2)] == ids[:2]
    await spread.tasks.purge(ids[1])
    await spread.tasks.replay(ids[0])
    assert await dead[0].status() is JobStatus.QUEUED
    assert await spread.tasks.purge_all(keep=3) == 2
    assert [letter.id for letter in await spread.tasks.dead()] == ids[2:5]
    assert await spread.tasks.purge_all(older_than=35) == 1
    assert await spread.tasks.purge_all() == 2


async def test_delayed_jobs_of_all_partitions_run_when_they_are_due(spread: Coordinator) -> None:
    """Also one that is rescheduled."""
    jobs = [await in_partition(spread, number, delay=0.3 if number else 60) for number in range(COUNT)]
    async with spread.consume("q") as consumer:
        assert await jobs[0].reschedule(delay=0.3)
        with anyio.fail_after(SOON):
            found = {(await anext(consumer)).id for _ in jobs}
    assert found == {job.id for job in jobs}


async def test_jobs_of_a_worker_that_retires_are_there_for_others(spread: Coordinator) -> None:
    """All that it holds, in all partitions."""
    jobs = await one_in_each(spread)
    async with spread.consume("q") as consumer:
        assert len(await consumer.claim(10)) == COUNT
        assert (await spread.tasks.stats("q")).queues["q"].running == COUNT
    ledger = await ledger_of(spread)
    assert sorted(ledger.ready["q"]) == sorted(job.id for job in jobs)
    assert not ledger.claimed
