"""Jobs that run after others: when they run, what they are given, and what becomes of them if those do not succeed."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.from_thread
import pytest

from inconcert import (
    Coordinator,
    InvalidName,
    InvalidPayload,
    Job,
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobStatus,
    current_job,
)
from inconcert._redis.wire.call import Call
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.jobs import make_due
from tests.support.ledger import ledger_of
from tests.support.raw import raw

SOON = 1.5  # seconds; the shortest sleep of an idle consumer is 2 s
HOUR = 3600.0  # seconds

# What may stay when all jobs have ended.
KEPT = (
    "finished",
    "bell:",
    "result:",
    "kept_attempts:",
    "unique",
    "checks",
    "recent",
    "older",
    "seen_",
    "clock",
    "served",
    "looked",
    "count",
    "lately",
)


@pytest.fixture(autouse=True)
async def nothing_is_kept(any_concert: Coordinator) -> AsyncIterator[None]:
    """When the jobs of a test have ended, nothing is kept of who ran after whom."""
    yield
    await any_concert.tasks.purge_all()
    await any_concert.run_worker("q", "other", "third", burst=True)
    prefix = f"{{{any_concert._ref.keys.namespace}:tasks:0}}:"
    client: Any = raw(any_concert)
    kept: list[str] = [key.decode().removeprefix(prefix) for key in await client.keys(prefix + "*")]
    assert [key for key in kept if not key.startswith(KEPT)] == []


@asynccontextmanager
async def worker(concert: Coordinator, *queues: str) -> AsyncGenerator[None]:
    """Jobs of these queues are run: `one` returns its argument, `total` adds up its parents' results, `fail` fails."""

    @concert.task(name="one", queue="q")
    async def one(number: int) -> int:
        return number

    @concert.task(name="total", queue="q")
    async def total() -> int:
        return sum(await current_job().parent_results(int))

    @concert.task(name="fail", queue="q", max_attempts=1)
    async def fail() -> None:
        raise ValueError("no luck")

    del one, total, fail
    async with in_background(concert.run_worker(*queues)):
        yield


async def one(concert: Coordinator, number: int, **options: Any) -> Job[Any]:
    """Enqueue a job that returns a number."""
    options.setdefault("queue", "q")
    return await concert.enqueue("one", [number], **options)


async def total(concert: Coordinator, *after: Job[Any] | str, **options: Any) -> Job[Any]:
    """Enqueue a job that adds up the results of others."""
    options.setdefault("queue", "q")
    return await concert.enqueue("total", after=after, **options)


async def reason(job: Job[Any]) -> str:
    """Why it was set aside."""
    with pytest.raises(JobFailed) as failed:
        await job.result(timeout=SOON)
    return failed.value.reason


# They run after all of them, and are given their results.


async def test_chain_runs_in_its_order(any_concert: Coordinator) -> None:
    """Each when the one before it has succeeded."""
    jobs = [await one(any_concert, 7)]
    for _ in range(3):
        jobs.append(await total(any_concert, jobs[-1]))
    assert [await job.status() for job in jobs] == [JobStatus.QUEUED, *[JobStatus.WAITING] * 3]
    assert len((await ledger_of(any_concert)).waiting) == 3
    async with worker(any_concert, "q"):
        assert [await job.result(timeout=SOON) for job in jobs] == [7] * 4


async def test_job_waits_for_all_of_three(any_concert: Coordinator) -> None:
    """And is given their results in the order of `after`, one of them twice."""
    parents = [await one(any_concert, number) for number in range(3)]
    child = await any_concert.enqueue("gather", queue="q", after=[parents[2], parents[0].id, parents[1], parents[2]])
    async with any_concert.consume("q") as jobs:
        for number in (0, 1, 2):
            assert await child.status() is JobStatus.WAITING
            async with await anext(jobs) as job:
                job.result = [number]
        async with await anext(jobs) as job:
            assert (job.id, list(job.after)) == (child.id, [parents[i].id for i in (2, 0, 1, 2)])
            assert await job.parent_results() == [[2], [0], [1], [2]]
            assert await job.parent_results(list[int]) == [[2], [0], [1], [2]]
            with pytest.raises(InvalidPayload):
                await job.parent_results(str)


@pytest.mark.parametrize("any_concert", ["real"], indirect=True)  # for so many fakeredis takes too long
async def test_thousand_run_after_one(any_concert: Coordinator) -> None:
    """However many there are, they are told in portions, and run in the order in which they were enqueued."""
    parent = await one(any_concert, 1)
    task = any_concert.task(name="child", queue="q", result_ttl=0)(len)
    children = await any_concert.enqueue_many([task.options(after=[parent]).call([]) for _ in range(1000)])
    assert len((await ledger_of(any_concert)).waiting) == 1000
    async with any_concert.consume("q", prefetch=500) as jobs:
        ran = [await end(await anext(jobs), result=None) for _ in range(1001)]
    assert ran[0] == parent.id
    assert ran[1:] == [job.id for job in children]


async def end(job: Any, result: object) -> str:
    """Acknowledge a claimed job."""
    async with job:
        job.result = result
    return str(job.id)


async def test_diamond(any_concert: Coordinator) -> None:
    """Two run after one, and one after both."""
    top = await one(any_concert, 5)
    left, right = await total(any_concert, top), await total(any_concert, top, top)
    bottom = await total(any_concert, left, right, top)
    async with worker(any_concert, "q"):
        assert await bottom.result(timeout=SOON) == 5 + 10 + 5


async def test_job_runs_at_once_after_those_that_have_succeeded(any_concert: Coordinator) -> None:
    """As long as their results are kept."""
    async with worker(any_concert, "q"):
        done = [await one(any_concert, number) for number in (1, 2)]
        assert [await job.result(timeout=SOON) for job in done] == [1, 2]
        assert await (await total(any_concert, *done)).result(timeout=SOON) == 3


async def test_results_of_parents_outlast_their_ttl(any_concert: Coordinator) -> None:
    """They are kept for the child, whether they were to be kept or not, until it has ended."""
    parents = [await one(any_concert, number, result_ttl=ttl) for number, ttl in ((1, 0), (2, 0.01))]
    child = await total(any_concert, *parents)
    async with any_concert.consume("q") as jobs:
        for number in (1, 2):
            await end(await anext(jobs), result=number)

        async def is_gone() -> bool:
            return [await parent.status() for parent in parents] == [JobStatus.UNKNOWN] * 2

        await eventually(is_gone)
        async with await anext(jobs) as job:
            assert await job.parent_results() == [1, 2]
        with pytest.raises(JobNotFound):
            await job.parent_results()
    assert await child.status() is JobStatus.SUCCEEDED


async def test_parent_whose_result_is_no_json_and_not_kept_has_none(any_concert: Coordinator) -> None:
    """It has succeeded all the same."""
    parent = await one(any_concert, 1, result_ttl=0)
    await total(any_concert, parent)
    async with any_concert.consume("q") as jobs:
        await end(await anext(jobs), result=object())
        async with await anext(jobs) as job:
            assert await job.parent_results() == [None]


async def test_delay_counts_from_when_the_parents_have_succeeded(any_concert: Coordinator) -> None:
    """Until then the job waits for them, and then until it is due."""
    parent = await one(any_concert, 1)
    child = await total(any_concert, parent, delay=HOUR)
    assert await child.status() is JobStatus.WAITING
    async with worker(any_concert, "q"):

        async def is_delayed() -> bool:
            return await child.status() is JobStatus.DELAYED

        await eventually(is_delayed)
        assert (await ledger_of(any_concert)).delayed == {"q": [child.id]}
        await make_due(any_concert, "q")
        assert await child.result(timeout=3) == 1


async def test_parent_and_child_in_queues_of_different_workers(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """The child's worker is woken, though it does not read the queue of the parent."""
    parent = await one(any_concert, 3)
    child = await total(any_concert, parent, queue="other")
    async with worker(elsewhere, "other"), worker(any_concert, "q"):
        assert await child.result(timeout=SOON) == 3


async def test_burst_runs_what_its_jobs_let_run(any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is over when nothing is left, of chains either, however late its relay is."""
    monkeypatch.setattr("inconcert.tasks.records.dependents.Relay.found", lambda *_: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    jobs = [await one(any_concert, 1)]
    for number in range(20):
        jobs.append(await total(any_concert, jobs[-1], queue=("q", "other", "third")[number % 3]))
    async with worker(any_concert, "none"):
        await any_concert.run_worker("q", "other", "third", burst=True)
    assert await jobs[-1].result(timeout=0) == 1


async def test_results_of_parents_are_there_at_most_once_too(any_concert: Coordinator) -> None:
    """The job counts as done before its body asks."""
    await total(any_concert, await one(any_concert, 1))
    async with any_concert.consume("q", delivery="at_most_once") as jobs:
        async with await anext(jobs) as job:
            assert job.name == "one"
        async with await anext(jobs) as job:
            assert await job.parent_results() == [None]  # it counted as done before it had a result


async def test_no_parents_are_no_parents(any_concert: Coordinator) -> None:
    """`after=[]` is a job like any other."""
    job = await any_concert.enqueue("t", queue="q", after=[])
    assert await job.status() is JobStatus.QUEUED
    async with any_concert.consume("q") as jobs, await anext(jobs) as claimed:
        assert await claimed.parent_results() == []


async def test_unique_name_of_a_waiting_job_is_taken(any_concert: Coordinator) -> None:
    """And free when it was set aside."""
    parent = await one(any_concert, 1)
    first = await total(any_concert, parent, unique="name")
    again = await total(any_concert, parent, unique="name")
    assert (again.id, again.created) == (first.id, False)
    await parent.cancel()
    assert (await one(any_concert, 1, unique="name")).created
    assert await first.status() is JobStatus.FAILED
    async with worker(any_concert, "q"):
        await any_concert.run_worker("q", burst=True)


# What becomes of them if those do not succeed.


async def test_failed_parent_sets_its_children_aside_and_theirs(any_concert: Coordinator) -> None:
    """None of them ever runs; whoever waits for them is told."""
    parent = await any_concert.enqueue("fail", queue="q", max_attempts=1)
    other = await one(any_concert, 1, delay=HOUR)
    child = await total(any_concert, other, parent)
    grandchild = await total(any_concert, child)
    last = await total(any_concert, grandchild)
    first = f"because {parent.id} failed"  # whoever looks at any of them finds the cause
    async with worker(any_concert, "q"):
        assert await reason(child) == f"its parent {parent.id} failed"
        assert await reason(grandchild) == f"its parent {child.id} failed, {first}"
        assert await reason(last) == f"its parent {grandchild.id} failed, {first}"
    late = await total(any_concert, last)
    assert await reason(late) == f"its parent {last.id} failed, {first}"
    assert {dead.queue for dead in await any_concert.tasks.dead()} == {"q"}
    assert await other.cancel()


async def test_cancelled_parent_sets_its_children_aside(any_concert: Coordinator) -> None:
    """Before `cancel` returns, if it had not begun; also those that come later."""
    parent = await one(any_concert, 1)
    child = await total(any_concert, parent)
    grandchild = await total(any_concert, child)
    assert await parent.cancel()
    assert [await job.status() for job in (child, grandchild)] == [JobStatus.FAILED] * 2
    assert await reason(child) == f"its parent {parent.id} was cancelled"
    assert await reason(await total(any_concert, parent)) == f"its parent {parent.id} was cancelled"


async def test_parent_that_is_cancelled_while_it_runs_sets_its_children_aside(any_concert: Coordinator) -> None:
    """When it has stopped."""
    parent = await one(any_concert, 1)
    child = await total(any_concert, parent)
    async with any_concert.consume("q") as jobs:
        async with await anext(jobs), in_background(parent.cancel()):
            await anyio.sleep_forever()
        assert await reason(child) == f"its parent {parent.id} was cancelled"


@pytest.mark.parametrize("id_", ["nobody", 'a"\\b'])
async def test_unknown_parent_sets_its_child_aside(any_concert: Coordinator, id_: str) -> None:
    """It may have been dropped with its result."""
    child = await total(any_concert, id_)
    assert await reason(child) == f"its parent {id_} is not known"


async def test_cancelled_child_leaves_the_others(any_concert: Coordinator) -> None:
    """It ends at once, and its brother runs."""
    parent = await one(any_concert, 4)
    child, brother = await total(any_concert, parent), await total(any_concert, parent)
    assert await child.cancel()
    assert await child.status() is JobStatus.CANCELLED
    assert (await ledger_of(any_concert)).waiting == [brother.id]
    async with worker(any_concert, "q"):
        assert await brother.result(timeout=SOON) == 4
    with pytest.raises(JobCancelled):
        await child.result(timeout=0)


async def test_child_can_be_replayed_when_its_parent_was(any_concert: Coordinator) -> None:
    """By hand, and then it has the result; before, it runs without."""
    luck: list[int] = []

    @any_concert.task(name="luck", queue="q", max_attempts=1, result_ttl=0)
    async def try_it() -> int:
        return luck[0]

    parent = await try_it.enqueue()
    child = await total(any_concert, parent, max_attempts=1)
    async with worker(any_concert, "q"):
        assert await reason(child) == f"its parent {parent.id} failed"
        await any_concert.tasks.replay(child.id)
        assert (await reason(child)).startswith(f"inconcert.errors.JobFailed: job {parent.id} was dead-lettered")
        luck.append(6)
        await any_concert.tasks.replay(parent.id)
        later = await total(any_concert, parent)
        assert await later.result(timeout=SOON) == 6
        assert await child.status() is JobStatus.FAILED
        await any_concert.tasks.replay(child.id)
        assert await child.result(timeout=SOON) == 6


async def test_dependants_are_replayed_with_their_parent(any_concert: Coordinator) -> None:
    """They wait for it again, and theirs for them; those that died of something else stay dead."""
    luck: list[int] = []

    @any_concert.task(name="luck", queue="q", max_attempts=1)
    async def try_it() -> int:
        return luck[0]

    parent = await try_it.enqueue()
    other = await any_concert.enqueue("fail", queue="q", max_attempts=1)
    child = await total(any_concert, parent, unique="mine")
    grandchild = await total(any_concert, child, parent, delay=0.01)
    both = await total(any_concert, parent, other)
    async with worker(any_concert, "q"):
        for job in (child, grandchild, both):
            assert (await reason(job)).startswith("its parent ")
        luck.append(3)
        replayed = await any_concert.tasks.replay(parent.id, dependants=True)
        assert await grandchild.result(timeout=SOON) == 6
        assert await child.result(timeout=SOON) == 3
        assert await reason(both) == f"its parent {other.id} failed"
        assert set(replayed) - {both.id} == {child.id, grandchild.id}
    with pytest.raises(JobNotFound):
        await any_concert.tasks.replay(parent.id, dependants=True)


async def test_long_chain_is_replayed_in_few_round_trips(
    any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred jobs in three, however they depend on each other."""
    parent = await any_concert.enqueue("luck", queue="q", max_attempts=1)
    chain = [parent]
    for _ in range(120):  # each after the two before it
        chain.append(await total(any_concert, *chain[-2:]))
    async with any_concert.consume("q") as jobs:
        await (await anext(jobs)).bury(ValueError("no luck"))
        with pytest.raises(JobFailed):
            await chain[-1].result(timeout=20)
        channel = any_concert._ref.session.channel
        submit, calls, trips = channel.submit, list[Call](), 0

        def counted(call: Call) -> None:
            nonlocal trips
            trips += all(each.done() for each in calls)
            calls.append(call)
            submit(call)

        with monkeypatch.context() as patched:
            patched.setattr(channel, "submit", counted)
            replayed = await any_concert.tasks.replay(parent.id, dependants=True)
        assert replayed == [job.id for job in chain[1:]]
        assert trips < 20
        assert len(calls) < 3 * len(chain)
        assert (await any_concert.tasks.stats()).queues["q"].waiting == len(replayed)
        assert await parent.cancel()
        with pytest.raises(JobFailed):
            await chain[-1].result(timeout=20)


async def test_dependants_of_a_job_that_succeeds_meanwhile_run_at_once(any_concert: Coordinator) -> None:
    """As often as they are replayed; and a parent without dependants has none."""
    parent = await any_concert.enqueue("luck", queue="q", max_attempts=1)
    children = [await total(any_concert, parent) for _ in range(150)]
    async with any_concert.consume("q") as jobs:
        await (await anext(jobs)).bury(ValueError("no luck"))
        await reason(children[-1])
        assert len(await any_concert.tasks.replay(parent.id, dependants=True)) == 150
        assert (await any_concert.tasks.stats()).queues["q"].waiting == 150
        async with await anext(jobs) as job:
            job.result = 4
        async with worker(any_concert, "q"):
            assert await children[0].result(timeout=20) == 4
            assert await children[-1].result(timeout=20) == 4
    lonely = await any_concert.enqueue("luck", queue="q")
    async with any_concert.consume("q") as jobs:
        await (await anext(jobs)).bury(ValueError("no luck"))
    assert await any_concert.tasks.replay(lonely.id, dependants=True) == []
    assert await lonely.cancel()


# Jobs that run even if others do not succeed.


async def how(concert: Coordinator, *after: Job[Any], **options: Any) -> Job[Any]:
    """Enqueue a job that says how each of its parents ended."""
    return await concert.enqueue("how", queue="other", after=after, **options)


@asynccontextmanager
async def curious(concert: Coordinator) -> AsyncGenerator[None]:
    """Jobs of `other` are run, which ask for their parents' results."""

    @concert.task(name="how", max_attempts=1)
    async def how() -> str:
        try:
            return f"they have {await current_job().parent_results()}"
        except (JobFailed, JobCancelled) as error:
            return type(error).__name__

    del how
    async with in_background(concert.run_worker("other")):
        yield


async def test_job_may_run_after_one_that_failed(any_concert: Coordinator) -> None:
    """Before or after it was added; one that was cancelled still stops it."""
    failed = await any_concert.enqueue("fail", queue="q", max_attempts=1)
    done = await one(any_concert, 1)
    early = await how(any_concert, failed, done, even_if="failed")
    strict = await how(any_concert, failed, done)
    async with worker(any_concert, "q"), curious(any_concert):
        assert await early.result(timeout=SOON) == "JobFailed"
        late = await how(any_concert, failed, even_if="failed")
        assert await late.result(timeout=SOON) == "JobFailed"
        assert await reason(strict) == f"its parent {failed.id} failed"
        good = await how(any_concert, done, even_if="failed")
        assert await good.result(timeout=SOON) == "they have [1]"
        late = await how(any_concert, strict, even_if="ended")
        assert await late.result(timeout=SOON) == "JobFailed"
    later = await one(any_concert, 1, delay=HOUR)
    child = await how(any_concert, later, even_if="failed")
    assert await later.cancel()
    assert await reason(child) == f"its parent {later.id} was cancelled"


async def test_job_may_run_after_one_that_was_cancelled(any_concert: Coordinator) -> None:
    """Before or after it was added; one that is not known still stops it, because its id may be a mistake."""
    parent, other = await one(any_concert, 1, delay=HOUR), await one(any_concert, 2)
    early = await how(any_concert, parent, other, even_if="ended")
    delayed = await how(any_concert, parent, even_if="ended", delay=HOUR)
    assert await delayed.reschedule(delay=0)  # while it waits
    async with worker(any_concert, "q"), curious(any_concert):
        assert await early.status() is JobStatus.WAITING
        assert await parent.cancel()
        assert await early.result(timeout=SOON) == "JobCancelled"
        assert await delayed.result(timeout=SOON) == "JobCancelled"
        late = await how(any_concert, parent, even_if="ended")
        assert await late.result(timeout=SOON) == "JobCancelled"
        unknown = await any_concert.enqueue("how", queue="other", after=["nobody"], even_if="ended")
        assert await reason(unknown) == "its parent nobody is not known"


async def test_cancelled_or_dead_child_that_runs_anyway_is_counted_once(any_concert: Coordinator) -> None:
    """While it waits it counts as waiting, in its queue; and it can be cancelled."""
    parent = await one(any_concert, 1, delay=HOUR)
    children = [await how(any_concert, parent, even_if="ended") for _ in range(2)]
    assert (await any_concert.tasks.stats()).queues["other"].waiting == 2
    assert [job.queue for job in (await any_concert.tasks.jobs(state="waiting")).jobs] == ["other"] * 2
    assert await children[0].cancel()
    assert (await any_concert.tasks.stats()).queues["other"].waiting == 1
    assert await parent.cancel()
    async with curious(any_concert):
        assert await children[1].result(timeout=SOON) == "JobCancelled"


async def test_bad_even_if_is_refused(any_concert: Coordinator) -> None:
    """Before anything is sent."""
    with pytest.raises(ValueError, match="even_if is 'cancelled'; give 'failed', 'ended' or None"):
        await how(any_concert, even_if="cancelled")


# What is refused.


async def test_bad_parents_are_refused_before_anything_is_sent(any_concert: Coordinator) -> None:
    """No list, too many, or what no job has as its id."""
    job = await one(any_concert, 1)
    for after in ("id", job, 7, None):
        with pytest.raises(TypeError, match="after"):
            await any_concert.enqueue("t", after=after)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="101 jobs"):
        await any_concert.enqueue("t", after=["id"] * 101)
    for id_ in ("", "a b", "a\nb", "ключ", 7, None):
        with pytest.raises(InvalidName):
            await any_concert.enqueue("t", after=[id_])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    assert await job.cancel()
    assert (await ledger_of(any_concert)).bodies == []


@dataclass(frozen=True, slots=True)
class Page:
    """What a typed task returns."""

    words: int


async def test_results_of_parents_have_their_types(any_concert: Coordinator) -> None:
    """As `Job.result` reads them."""

    @any_concert.task(queue="q")
    async def read(words: int) -> Page:
        return Page(words)

    @any_concert.task(queue="q")
    def count() -> int:
        return sum(page.words for page in anyio.from_thread.run(current_job().parent_results, Page))

    pages = await any_concert.enqueue_many([read.call(number) for number in range(100)])
    counted = await count.options(after=pages).enqueue()
    async with in_background(any_concert.run_worker("q")):
        assert await counted.result(int, timeout=SOON) == sum(range(100))
