"""Ids that callers choose: one job of an id while its result is kept, whatever became of the one before."""

from typing import Any

import pytest

from inconcert import Coordinator, InvalidName, JobStatus, Limit, SyncProducer
from inconcert.tasks.running.claimed_job import ClaimedJob
from inconcert.tasks.running.consumer import Consumer
from tests.support.eventually import eventually
from tests.support.jobs import keys_of
from tests.support.ledger import all_done, ledger_of
from tests.support.raw import raw
from tests.support.servers import RealServer


async def run_one(jobs: Consumer) -> ClaimedJob:
    """Claim a job and finish it."""
    job = await anext(jobs)
    async with job:
        pass
    return job


async def forget(concert: Coordinator, job_id: str) -> None:
    """Let its result be kept no longer, and requests be remembered no more."""
    keys = concert._jobs.of_id(job_id)
    await raw(concert).delete(keys.result(job_id), keys.recent, keys.older)


async def test_job_of_an_id_is_enqueued_once(any_concert: Coordinator) -> None:
    """While it waits, runs, and while its result is kept: the same job comes back, and nothing is changed."""
    first = await any_concert.enqueue("show", ["first"], id="import:17")
    again = await any_concert.enqueue("show", ["again"], id="import:17", delay=5, priority=0)
    assert (first.id, first.created) == ("import:17", True)
    assert (again.id, again.created) == ("import:17", False)
    async with any_concert.consume("default") as jobs:
        job = await anext(jobs)
        async with job:
            assert list(job.args) == ["first"]
            assert not (await any_concert.enqueue("show", ["again"], id="import:17")).created
    assert not (await any_concert.enqueue("show", ["again"], id="import:17")).created
    assert await any_concert.tasks.job("import:17").status() is JobStatus.SUCCEEDED
    assert not (await ledger_of(any_concert)).bodies


async def test_id_is_free_when_the_result_is_gone(any_concert: Coordinator) -> None:
    """Also at once, without a result: a request is not taken for the one before."""
    for number in range(3):
        job = await any_concert.enqueue("show", [number], id="one", result_ttl=0)
        assert job.created
        async with any_concert.consume("default") as jobs:
            assert (await run_one(jobs)).args[0] == number
        await all_done(any_concert)


async def test_dead_job_keeps_its_id(any_concert: Coordinator) -> None:
    """Until it is purged, or replayed and done."""
    await any_concert.enqueue("show", id="one", max_attempts=1)
    async with any_concert.consume("default") as jobs:
        await (await anext(jobs)).nack()
    again = await any_concert.enqueue("show", id="one")
    assert (again.created, await again.status()) == (False, JobStatus.FAILED)
    await any_concert.tasks.purge("one")
    await forget(any_concert, "one")
    assert (await any_concert.enqueue("show", id="one")).created


@pytest.mark.parametrize("priority", [0, 5])
@pytest.mark.parametrize("delay", [0, 3600])
@pytest.mark.parametrize("queue", ["default", "other"])
async def test_cancelled_job_leaves_nothing_of_its_id(
    any_concert: Coordinator, priority: int, delay: int, queue: str
) -> None:
    """In whatever queue it was, so the next one of its id is claimed once."""
    options: Any = {"queue": queue, "priority": priority, "delay": delay}
    await any_concert.enqueue("show", ["first"], id="one", **options)
    await any_concert.enqueue("show", ["between"], queue=queue)
    job = any_concert.tasks.job("one")
    assert await job.cancel()
    assert await job.status() is JobStatus.CANCELLED
    assert not (await any_concert.enqueue("show", ["again"], id="one")).created
    client, its = raw(any_concert), keys_of(any_concert).queue(queue)
    assert await client.lrange(its.queue, 0, -1) == [each.encode() for each in (await ledger_of(any_concert)).bodies]
    assert await client.zcard(its.delayed) == 0
    await forget(any_concert, "one")
    assert (await any_concert.enqueue("show", ["third"], id="one", queue="default")).created
    async with any_concert.consume("default", "other") as jobs:
        assert sorted([str((await run_one(jobs)).args[0]) for _ in range(2)]) == ["between", "third"]
    await all_done(any_concert)


async def test_cancelled_job_with_a_limit_keeps_its_id_until_a_claim(any_concert: Coordinator) -> None:
    """It may have been about to run, so its place in the queue stays, and no other job comes to it."""

    @any_concert.task(name="show", limit=Limit(1))
    async def show(text: str) -> None: ...

    await show.enqueue("runs")
    await show.enqueue("held back")
    async with any_concert.consume("default", prefetch=2) as jobs:
        running = await anext(jobs)
        await show.options(id="one").enqueue("first")
        assert await any_concert.tasks.job("one").cancel()
        await forget(any_concert, "one")
        assert not (await show.options(id="one").enqueue("second")).created
        await running.ack()
        assert (await run_one(jobs)).args[0] == "held back"

        async def is_free() -> bool:
            await forget(any_concert, "one")
            return (await show.options(id="one").enqueue("third")).created

        await eventually(is_free)
        assert (await run_one(jobs)).args[0] == "third"
    await all_done(any_concert)


async def test_several_are_enqueued_together(any_concert: Coordinator) -> None:
    """Some of which are there, in the order in which they are given; not two of one id."""

    @any_concert.task(name="show")
    async def show(text: str) -> None: ...

    await show.options(id="b").enqueue("before")
    calls = [show.options(id=each).call(each) for each in ("a", "b")]
    jobs = await any_concert.enqueue_many([*calls, show.call("plain")])
    assert [job.created for job in jobs] == [True, False, True]
    assert [job.id for job in jobs[:2]] == ["a", "b"]
    with pytest.raises(ValueError, match="two of these jobs have id='a'"):
        await any_concert.enqueue_many([calls[0], calls[0]])


@pytest.mark.parametrize("bad", ["", " ", "a b", "a.b", "1.2.0", "task@7", "a~b", "a/b", "ä", "x" * 513, 7, b"one"])
async def test_bad_id_is_refused(any_concert: Coordinator, bad: Any) -> None:
    """One that could be a generated one is among them: each of these has a '.' or an '@'."""
    with pytest.raises(InvalidName, match="invalid id"):
        await any_concert.enqueue("show", id=bad)
    assert not (await ledger_of(any_concert)).bodies


@pytest.mark.parametrize("beside", [{"unique": "name"}, {"after": ["other"]}, {"unique": "name", "debounce": 5}])
async def test_id_does_not_go_with_other_names(any_concert: Coordinator, beside: Any) -> None:
    """There is one job of an id; a unique name may lie in another partition."""
    with pytest.raises(ValueError, match="id='one' beside unique= or after="):
        await any_concert.enqueue("show", id="one", **beside)


async def test_where_an_id_cannot_be_chosen_it_is_refused(any_concert: Coordinator) -> None:
    """Before anything is sent."""

    @any_concert.task(name="show")
    async def show(text: str) -> None: ...

    call = show.options(id="one").call("x")
    with pytest.raises(ValueError, match="a member of a group cannot have"):
        await any_concert.group([call])
    with pytest.raises(ValueError, match="the callback of a group cannot have"):
        await any_concert.group([show.call("x")], then=call)
    with pytest.raises(ValueError, match="a job of a schedule cannot have"):
        await any_concert.schedules.put("nightly", call, every=60)
    await show.enqueue("x")
    async with any_concert.consume("default") as jobs, await anext(jobs) as job:
        with pytest.raises(ValueError, match="a job that follows another cannot have"):
            job.enqueue_on_success(call)


async def test_id_names_its_job_for_those_who_look(any_concert: Coordinator) -> None:
    """Lists, descriptions, explanations, and jobs that run after it."""
    await any_concert.enqueue("show", ["first"], id="import:17")
    assert (await any_concert.tasks.describe("import:17"))["import:17"].args == ["first"]
    assert [job.id for job in (await any_concert.tasks.jobs(state="queued")).jobs] == ["import:17"]
    assert (await any_concert.explain("job:import:17")).state == "queued"
    await any_concert.enqueue("show", ["second"], after=["import:17"])
    async with any_concert.consume("default") as jobs:
        assert [(await run_one(jobs)).args[0] for _ in range(2)] == ["first", "second"]
    await all_done(any_concert)


async def test_producer_without_a_loop_chooses_ids(server: RealServer, namespace: str) -> None:
    """As a coordinator does; a prepared job has it before it is sent."""
    with SyncProducer(server.url, namespace=namespace) as producer:
        prepared = producer.prepare("show", id="one")
        assert prepared.id == "one"
        assert [prepared.enqueue().created, producer.enqueue("show", id="one").created] == [True, False]
        assert producer.status("one") is JobStatus.QUEUED


async def test_id_is_found_in_its_partition(server: RealServer, namespace: str) -> None:
    """Wherever the jobs are that run after it; a task with limits has its own partition, so its jobs choose none."""
    async with Coordinator(server.url, namespace=namespace, partitions=8) as concert:

        @concert.task(name="show")
        async def show(text: str) -> None: ...

        @concert.task(name="limited", limit=Limit(1))
        async def limited() -> None: ...

        for number in range(20):
            job = await show.options(id=f"one:{number}").enqueue("x")
            assert (job.created, (await show.options(id=job.id).enqueue("x")).created) == (True, False)
            await show.options(after=[job]).enqueue("y")
        await concert.run_worker("default", burst=True)
        assert not (await ledger_of(concert)).dead
        await all_done(concert)
        assert await concert.tasks.job("one:7").status() is JobStatus.SUCCEEDED
        for enqueue in (limited.options(id="two").enqueue(), concert.enqueue("show", id="two")):
            with pytest.raises(ValueError, match="has id=, and its task has limits, or may have some"):
                await enqueue


async def test_stream_of_the_job_before_is_gone(any_concert: Coordinator) -> None:
    """Those who follow the new one do not see its items."""
    await any_concert.enqueue("show", id="one", result_ttl=0)
    async with any_concert.consume("default") as jobs:
        async with await anext(jobs) as job:
            await job.emit("old")
        await all_done(any_concert)
    again = await any_concert.enqueue("show", id="one")
    assert again.created
    assert await again.items() == []
