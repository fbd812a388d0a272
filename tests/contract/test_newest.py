"""The newest job of a unique name wins: it replaces the one that waits, and the one that runs is cancelled."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from inconcert import (
    Coordinator,
    Job,
    JobCancelled,
    JobStatus,
    Limit,
    Rate,
    Snooze,
    SyncProducer,
    Task,
    current_job,
    durable,
)
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.jobs import LEASE, lapse_all, let_expire, status
from tests.support.limits import in_line
from tests.support.raw import raw
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease

WITHIN = 10.0  # seconds
HOUR = 3600.0
SECRET = {"one": "0123456789abcdef"}


class Building:
    """A task that notes which versions begin and end, and runs until it is free, or cancelled.

    Attributes:
        stubborn: The versions that ignore that they are cancelled.
        ignored: Set when one has.
        most: How many have run at once.
    """

    def __init__(self, concert: Coordinator, **of_task: Any) -> None:
        self.concert = concert
        self.began: list[int] = []
        self.ended: list[int] = []
        self.stubborn: set[int] = set()
        self.free, self.ignored = asyncio.Event(), asyncio.Event()
        self.running = self.most = 0

        @concert.task(name="build", **of_task)
        async def build(version: int) -> int:
            self.began.append(version)
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                while not self.free.is_set():
                    try:
                        await self.free.wait()
                    except asyncio.CancelledError:
                        if version not in self.stubborn:
                            raise
                        self.ignored.set()
                self.ended.append(version)
            finally:
                self.running -= 1
            return version

        self.task: Task[[int], Any] = build

    async def call(self, version: int, **options: Any) -> Job[int]:
        """Enqueue the newest."""
        chosen: Any = {"unique": "site 17", "newest": "replaces"} | options
        job: Job[int] = await self.task.options(**chosen).enqueue(version)
        return job

    @asynccontextmanager
    async def runs(self, version: int, **options: Any) -> AsyncGenerator[Job[int]]:
        """This version runs, in a worker that runs several at once."""
        job = await self.call(version, **options)
        async with in_background(self.concert.run_worker("default", "low", concurrency=5)):
            try:
                await eventually(lambda: version in self.began)
                yield job
            finally:
                self.free.set()  # otherwise a test that has failed would wait for those that ignore their cancellation

    async def args(self, job: Job[Any]) -> Any:
        """The arguments of a job as it is stored."""
        return (await self.concert.tasks.describe(job.id))[job.id].args


def one_site(version: int) -> str:
    """The key of all of them."""
    del version
    return "site"


@pytest.fixture(params=["unsigned", "signed"])
async def signed(request: pytest.FixtureRequest, server: RealServer, namespace: str) -> AsyncIterator[Coordinator]:
    """With and without signing keys."""
    keys: Mapping[str, str] | None = SECRET if request.param == "signed" else None
    async with Coordinator(server.url, namespace=namespace, signing_keys=keys) as concert:
        yield concert


@pytest.fixture
def building(any_concert: Coordinator) -> Building:
    """The task, on a real server and on fakeredis."""
    return Building(any_concert)


# What waits.


async def test_job_that_waits_is_replaced_in_its_place(signed: Coordinator) -> None:
    """One job, whose id all calls have; the first says that it is new, and it comes before those that came after it."""
    building = Building(signed)
    building.free.set()
    first = await building.call(0)
    behind = await signed.enqueue("build", [7])
    jobs = [first, *[await building.call(version) for version in (1, 2, 3)]]
    assert [job.created for job in jobs] == [True, False, False, False]
    assert {job.id for job in jobs} == {first.id}
    await signed.run_worker("default", burst=True, concurrency=1)
    assert [await job.result(timeout=WITHIN) for job in (*jobs, behind)] == [3, 3, 3, 3, 7]
    assert building.began == [3, 7]


async def test_calls_of_one_turn_are_one_job_with_the_last_arguments(signed: Coordinator) -> None:
    """Also of different names, and in one call of `enqueue_many`."""
    building = Building(signed)
    building.free.set()
    named = [building.task.options(unique=f"site {number % 3}", newest="replaces") for number in range(30)]
    jobs = await signed.enqueue_many([each.call(number) for number, each in enumerate(named)])
    assert [job.created for job in jobs] == [True] * 3 + [False] * 27
    await signed.run_worker("default", burst=True)
    assert sorted(building.began) == [27, 28, 29]


async def test_delayed_job_is_due_by_the_delay_of_the_last_call(signed: Coordinator) -> None:
    """And goes to its queue, with its other options."""
    building = Building(signed)
    building.free.set()
    first = await building.call(1, delay=HOUR, headers={"by": "first"})
    second = await building.call(2, delay=2 * HOUR, queue="low", priority=2, headers={"by": "second"})
    assert (second.created, second.id) == (False, first.id)
    [found] = (await signed.tasks.jobs(state="delayed")).jobs
    assert (found.queue, found.args, found.priority, found.headers) == ("low", [2], 2, {"by": "second"})
    assert found.due_at is not None
    assert 7199 < found.due_at - found.enqueued_at <= 7201
    assert (await building.call(3, queue="low")).id == first.id
    assert await first.status() is JobStatus.QUEUED
    await signed.run_worker("low", burst=True)
    assert building.began == [3]


async def test_job_that_cannot_keep_its_place_is_cancelled_in_it(signed: Coordinator) -> None:
    """It is ready, and the newest has a delay, another priority, or is of another task: that is another job."""
    building = Building(signed)
    building.free.set()
    jobs: list[Job[Any]] = [await building.call(1)]
    jobs.append(await building.call(2, priority=3))
    jobs.append(await building.call(3, delay=HOUR))
    jobs.append(await signed.enqueue("other", [4], unique="site 17", newest="replaces"))
    jobs.append(await building.call(5))
    assert all(job.created for job in jobs)
    assert len({job.id for job in jobs}) == 5
    assert [await job.status() for job in jobs] == [JobStatus.CANCELLED] * 4 + [JobStatus.QUEUED]
    await signed.run_worker("default", burst=True)
    assert building.began == [5]


async def test_job_in_a_paused_queue_is_replaced_where_it_is(signed: Coordinator) -> None:
    """It runs once the queue is resumed."""
    building = Building(signed)
    building.free.set()
    await signed.tasks.pause("default")
    first = await building.call(1)
    assert not (await building.call(2)).created
    await signed.run_worker("default", burst=True)
    assert await first.status() is JobStatus.QUEUED
    await signed.tasks.resume("default")
    await signed.run_worker("default", burst=True)
    assert building.began == [2]


async def test_job_that_a_limit_holds_back_is_replaced_in_its_line(any_concert: Coordinator) -> None:
    """It keeps its turn; with another key it is another job, in another line."""

    def key(version: int) -> str:
        return str(version % 10)

    building = Building(any_concert, key=key, key_limit=1)
    async with building.runs(10, unique="other"):
        waits = await building.call(20)
        await eventually(lambda: in_line(any_concert, 1))
        assert (await building.call(30)).id == waits.id
        elsewhere = await building.call(41)
        assert elsewhere.created
        await eventually(lambda: 41 in building.began)
        assert await waits.status() is JobStatus.CANCELLED
        building.free.set()
        assert await elsewhere.result(timeout=WITHIN) == 41
    assert building.began == [10, 41]
    assert not await in_line(any_concert, 1)


@pytest.mark.parametrize("limits", [{"limit": Limit(1)}, {"rate": Rate(10_000, per=1.0)}], ids=["limit", "rate"])
async def test_newest_of_a_task_with_limits_runs_after_the_old_one(any_concert: Coordinator, limits: Any) -> None:
    """It does not wait for a place that the old one has for nothing."""
    building = Building(any_concert, **limits)
    async with building.runs(1) as old:
        new = await building.call(2)
        building.free.set()
        assert await new.result(timeout=WITHIN) == 2
    assert (await old.status(), building.ended, building.most) == (JobStatus.CANCELLED, [2], 1)


async def test_newest_of_a_key_in_strict_order_runs_after_the_old_one(any_concert: Coordinator) -> None:
    """The turn of the key goes on to it."""
    building = Building(any_concert, key=one_site, key_order="strict")
    async with building.runs(1):
        other = await building.call(5, unique="other")
        new = await building.call(2)
        assert not (await building.call(3)).created
        building.free.set()
        assert await other.result(timeout=WITHIN) == 5
        assert await new.result(timeout=WITHIN) == 3
    assert building.ended == [5, 3]


async def test_last_call_counts_for_expiry(building: Building) -> None:
    """One that expired frees the name."""
    first = await building.call(1, expires=HOUR)
    await let_expire(building.concert, first)
    assert (await building.call(2, expires=HOUR)).id == first.id
    building.free.set()
    await building.concert.run_worker("default", burst=True)
    assert await first.result(timeout=WITHIN) == 2
    second = await building.call(3, deadline=HOUR)
    await let_expire(building.concert, second)
    await building.concert.run_worker("default", burst=True)
    assert await second.status() is JobStatus.FAILED
    assert (await building.call(4)).created


async def test_jobs_after_one_that_is_replaced_run_after_the_newest(building: Building) -> None:
    """It is the same job; after one that is cancelled they are dead-lettered, or run if they may."""
    building.free.set()
    first = await building.call(1)
    after = await building.task.options(after=[first]).enqueue(10)
    await building.call(2)
    await building.concert.run_worker("default", burst=True)
    assert (building.began, await after.status()) == ([2, 10], JobStatus.SUCCEEDED)
    third = await building.call(3)
    strict = await building.task.options(after=[third]).enqueue(11)
    lenient = await building.task.options(after=[third], even_if="ended").enqueue(12)
    assert (await building.call(4, delay=HOUR)).created
    await building.concert.run_worker("default", burst=True)
    await status(building.concert, strict, JobStatus.FAILED)
    await status(building.concert, lenient, JobStatus.SUCCEEDED)


async def test_job_that_waits_for_others_is_cancelled(building: Building) -> None:
    """The newest does not wait for them."""
    parent = await building.task.options(delay=HOUR).enqueue(0)
    first = await building.task.options(unique="site 17", after=[parent]).enqueue(1)
    second = await building.call(2)
    assert (second.created, await first.status()) == (True, JobStatus.CANCELLED)
    building.free.set()
    await building.concert.run_worker("default", burst=True)
    assert building.began == [2]
    await parent.cancel()


# What runs.


async def test_job_that_runs_is_cancelled_and_the_newest_runs_after_it(signed: Coordinator) -> None:
    """One waits behind it at most: a third call replaces the second."""
    building = Building(signed)
    async with building.runs(1) as first:
        second = await building.call(2)
        third = await building.call(3)
        assert (second.created, third.created, third.id) == (True, False, second.id)
        with pytest.raises(JobCancelled):
            await first.result(timeout=WITHIN)
        building.free.set()
        assert await third.result(timeout=WITHIN) == 3
    assert (building.began, building.ended, building.most) == ([1, 3], [3], 1)


async def test_job_that_ignores_its_cancellation_is_waited_for(signed: Coordinator) -> None:
    """It has succeeded in the end, and its result is there."""
    building = Building(signed)
    building.stubborn.add(1)
    async with building.runs(1) as first:
        second = await building.call(2)
        await building.ignored.wait()
        for version in range(3, 20):
            assert (await building.call(version)).id == second.id
        assert [await job.status() for job in (first, second)] == [JobStatus.RUNNING, JobStatus.WAITING]
        building.free.set()
        assert (await first.result(timeout=WITHIN), await second.result(timeout=WITHIN)) == (1, 19)
    assert (building.began, building.ended, building.most) == ([1, 19], [1, 19], 1)


@pytest.mark.parametrize("how", ["cancelled", "expired"])
@pytest.mark.parametrize("newest", ["replaces", None])
async def test_name_is_the_running_ones_again_if_the_one_behind_it_ends_first(
    concert: Coordinator, how: str, newest: Any
) -> None:
    """A further call runs after it, too; and one that does not replace gets the running one."""
    building = Building(concert)
    building.stubborn.add(1)
    async with building.runs(1) as first:
        second = await building.call(2, expires=HOUR)
        if how == "cancelled":
            assert await second.cancel()
        else:
            await let_expire(concert, second)
            async with in_background(concert.run_worker("default")):  # which looks for such jobs when it starts
                await status(concert, second, JobStatus.FAILED)
        third = await building.call(3, newest=newest)
        assert (third.created, third.id == first.id) == (newest is not None, newest is None)
        if newest:
            assert await third.status() is JobStatus.WAITING
        building.free.set()
        assert await third.result(timeout=WITHIN) == (3 if newest else 1)
    assert building.most == 1
    assert (await building.call(4)).created


async def test_one_of_another_task_that_waits_behind_is_cancelled(signed: Coordinator) -> None:
    """Its callers do not get the result of another task; the newest waits for the same one."""
    building = Building(signed)
    building.stubborn.add(1)
    async with building.runs(1):
        second = await building.call(2)
        third = await signed.enqueue("other", [3], unique="site 17", newest="replaces")
        assert (third.created, await third.status()) == (True, JobStatus.WAITING)
        with pytest.raises(JobCancelled):
            await second.result(timeout=WITHIN)
        last = await building.call(4)
        assert (last.created, await third.status()) == (True, JobStatus.CANCELLED)
        building.free.set()
        assert await last.result(timeout=WITHIN) == 4
    assert (building.began, building.ended, building.most) == ([1, 4], [1, 4], 1)


async def test_newest_of_another_task_runs_at_once_if_the_old_one_has_ended(building: Building) -> None:
    """The one that waits behind it has not been told yet, and is cancelled; the newest would never be told."""
    first = await building.call(1)
    async with building.concert.consume("default") as jobs:
        claimed = await anext(jobs)
        second = await building.call(2)
        keys, client = building.concert._jobs.of_id(first.id), raw(building.concert)
        assert await client.hdel(keys.bodies, first.id) == 1  # it has ended elsewhere
        third = await building.concert.enqueue("other", [3], unique="site 17", newest="replaces")
        assert await third.status() is JobStatus.QUEUED
        assert await second.status() is JobStatus.CANCELLED
        async with claimed:
            await anyio.sleep_forever()
        with anyio.fail_after(WITHIN):
            async with await anext(jobs) as job:
                assert (job.id, job.args) == (third.id, [3])


async def test_delay_counts_from_the_end_of_the_one_that_ran(building: Building) -> None:
    """That of the last call."""
    building.stubborn.add(1)
    async with building.runs(1):
        second = await building.call(2)
        assert not (await building.call(3, delay=HOUR, queue="low")).created
        building.free.set()
        await status(building.concert, second, JobStatus.DELAYED)
        [found] = (await building.concert.tasks.jobs(state="delayed")).jobs
        assert (found.queue, found.args) == ("low", [3])
        assert (await building.call(4, queue="low")).id == second.id
        assert await second.result(timeout=WITHIN) == 4
    assert await building.concert.tasks.stats("default", "low")
    assert building.began == [1, 4]


async def test_one_that_was_told_of_the_end_and_has_not_started_is_replaced(any_concert: Coordinator) -> None:
    """Its start is under way: what it waited for is struck out, and nobody tells it again."""
    building = Building(any_concert)
    building.free.set()
    await building.call(1)
    async with any_concert.consume("default") as jobs:
        claimed = await anext(jobs)
        second = await building.call(2)
        keys, client = any_concert._jobs.of_id(second.id), raw(any_concert)
        assert await client.hdel(keys.pending, second.id) == 1
        assert (await building.call(3)).id == second.id
        async with claimed:
            await anyio.sleep_forever()
        await client.rpush(keys.news, second.id)
        with anyio.fail_after(WITHIN):
            async with await anext(jobs) as job:
                assert (job.id, job.args) == (second.id, [3])


async def test_job_that_was_claimed_ahead_ends_at_once(any_concert: Coordinator) -> None:
    """It never begins; its consumer, which does not run it yet, drops it."""
    building = Building(any_concert)
    building.free.set()
    await any_concert.enqueue("build", [0])
    first = await building.call(1)
    async with any_concert.consume("default", prefetch=5) as jobs:
        job = await anext(jobs)
        new = await building.call(2)
        async with job:
            assert job.args == [0]
        async with await anext(jobs) as job:
            assert (job.id, job.args) == (new.id, [2])
    assert await first.status() is JobStatus.CANCELLED


async def test_newest_runs_when_the_worker_of_the_old_one_has_died(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """The old one ends as cancelled where it is recovered."""
    building = Building(any_concert)
    building.free.set()
    first = await building.call(1)
    async with any_concert.consume("default") as jobs:
        assert (await anext(jobs)).id == first.id
        second = await building.call(2)
        assert await second.status() is JobStatus.WAITING
        await lapse_all(any_concert)
        async with elsewhere.consume("default") as others:
            with anyio.fail_after(WITHIN):
                job = await anext(others)
            assert (job.id, job.args) == (second.id, [2])
            assert await first.status() is JobStatus.CANCELLED
            async with job:
                pass


# What has begun, and does not run.


async def begin(building: Building, story: str) -> Job[Any]:
    """A job that has begun, and waits to go on."""

    @building.concert.task(name="story", backoff=lambda _: HOUR)
    async def body(how: str) -> None:
        match how:
            case "failed":
                raise ValueError("no")
            case "sleeps":
                await durable.sleep("nap", HOUR)
            case "waits":
                await durable.wait_for("word", str, timeout=HOUR)
            case "snoozes":
                raise Snooze(HOUR)
            case "kept":
                await durable.step("one", asyncio.sleep, 0)
                raise Snooze(HOUR)
            case _:
                await current_job().progress(0.5)
                raise Snooze(HOUR)

    job = await body.options(unique="site 17", queue="slow").enqueue(story)
    await building.concert.run_worker("slow", burst=True)
    assert await job.status() is JobStatus.DELAYED
    return job


@pytest.mark.parametrize("story", ["failed", "sleeps", "waits", "snoozes", "kept", "reports"])
async def test_job_that_has_begun_is_cancelled_where_it_waits(signed: Coordinator, story: str) -> None:
    """In another queue, of another task, and nothing stays of it."""
    building = Building(signed)
    building.free.set()
    old = await begin(building, story)
    new = await building.call(2)
    assert (new.created, await old.status()) == (True, JobStatus.CANCELLED)
    await signed.run_worker("default", "slow", burst=True)
    assert building.began == [2]


@pytest.mark.parametrize("how", ["retry", "stopped"])
async def test_job_of_the_same_task_that_waits_for_its_next_attempt(any_concert: Coordinator, how: str) -> None:
    """One that has failed is cancelled; one that a worker gave back has done nothing yet."""
    building = Building(any_concert)
    building.free.set()
    first = await building.call(1)
    async with any_concert.consume("default") as jobs, await anext(jobs) as job:
        await job.nack(delay=HOUR) if how == "retry" else await job.give_back()
    second = await building.call(2)
    assert (second.created, second.id == first.id) == ((True, False) if how == "retry" else (False, True))
    await any_concert.run_worker("default", burst=True)
    assert building.began == [2]
    assert await second.status() is JobStatus.SUCCEEDED


async def test_job_that_was_sent_a_message_is_cancelled_with_it(building: Building) -> None:
    """It was for the call that it had then."""
    first = await building.call(1)
    assert await first.send("word", "go")
    second = await building.call(2)
    assert (second.created, await first.status()) == (True, JobStatus.CANCELLED)
    building.free.set()
    await building.concert.run_worker("default", burst=True)
    assert building.began == [2]


async def test_one_behind_that_was_sent_a_message_is_cancelled_with_it(building: Building) -> None:
    """And the newest runs after the same one."""
    building.stubborn.add(1)
    async with building.runs(1):
        second = await building.call(2)
        assert await second.send("word", "go")
        third = await building.call(3)
        assert (third.created, await second.status()) == (True, JobStatus.CANCELLED)
        assert await third.status() is JobStatus.WAITING
        building.free.set()
        assert await third.result(timeout=WITHIN) == 3
    assert (building.began, building.most) == ([1, 3], 1)


async def test_job_with_something_to_undo_is_undone_before_the_newest_runs(signed: Coordinator) -> None:
    """And so it is while others replace the newest."""
    building = Building(signed)
    building.free.set()
    did: list[str] = []

    async def note(what: str) -> None:
        did.append(what)

    @signed.task(name="buy")
    async def buy() -> None:
        async with durable.undo() as undo:
            await durable.step("pay", note, "paid")
            undo.later("refund", note, "refunded")
            await durable.wait_for("word", str, timeout=HOUR)

    old = await buy.options(unique="site 17").enqueue()
    await signed.run_worker("default", burst=True)
    new = await building.call(2)
    assert await new.status() is JobStatus.WAITING
    assert (await building.call(3)).id == new.id
    await signed.run_worker("default", burst=True)
    assert await new.result(timeout=WITHIN) == 3
    assert (did, await old.status(), building.began) == (["paid", "refunded"], JobStatus.CANCELLED, [3])


async def test_dead_job_is_not_replaced(building: Building) -> None:
    """It has its name no more; nor has one that is replayed while another has it."""
    first = await building.call(1, max_attempts=1)
    async with building.concert.consume("default") as jobs, await anext(jobs) as job:
        await job.bury(ValueError("no"))
    second = await building.call(2)
    assert second.created
    await building.concert.tasks.replay(first.id)
    assert (await building.call(3)).id == second.id
    assert await building.args(first) == [1]
    building.free.set()
    await building.concert.run_worker("default", burst=True)
    assert sorted(building.began) == [1, 3]


async def test_job_that_is_replayed_has_begun(building: Building) -> None:
    """The newest has another id, and so none of the attempts that failed with other arguments."""
    first = await building.call(1, max_attempts=1)
    async with building.concert.consume("default") as jobs, await anext(jobs) as job:
        await job.bury(ValueError("no"))
    await building.concert.tasks.replay(first.id)
    second = await building.call(2)
    assert (second.created, await first.status()) == (True, JobStatus.CANCELLED)
    assert await second.attempts() == []
    assert len(await first.attempts()) == 1
    building.free.set()
    await building.concert.run_worker("default", burst=True)
    assert building.began == [2]


async def test_dead_job_whose_window_goes_on_is_not_replaced(building: Building) -> None:
    """It has the name until its window ends, and would never run what it was given."""
    parent = await building.task.options(delay=HOUR).enqueue(0)
    dead = await building.call(1, newest=None, unique_for=HOUR, after=[parent])
    await parent.cancel()
    building.free.set()
    await building.concert.run_worker("default", burst=True)
    await status(building.concert, dead, JobStatus.FAILED)
    assert (await building.call(2)).created
    await building.concert.run_worker("default", burst=True)
    assert (building.began, await building.args(dead)) == ([2], [1])


# Names.


async def test_call_decides_whether_it_replaces(building: Building) -> None:
    """One without `newest` gets the live job, and replaces nothing; one with it replaces any, also with a window."""
    plain: Any = {"newest": None}
    first = await building.call(1, **plain)
    assert (await building.call(2)).id == first.id
    assert await building.args(first) == [2]
    assert (await building.call(3, **plain)).id == first.id
    assert await building.args(first) == [2]
    await first.cancel()
    window = await building.call(4, unique_for=HOUR, **plain)
    assert (await building.call(5)).id == window.id
    building.free.set()
    await building.concert.run_worker("default", burst=True)
    another = await building.call(6)
    assert another.created
    await another.cancel()
    silence = await building.call(7, newest=None, debounce=HOUR)
    assert (await building.call(8)).id == silence.id
    await building.concert.run_worker("default", burst=True)
    assert building.began == [5, 8]


async def test_nothing_stays_of_a_name(concert: Coordinator) -> None:
    """When the last of its jobs has ended."""
    building = Building(concert)
    async with building.runs(1):
        last = await building.call(2)
        building.free.set()
        await last.result(timeout=WITHIN)
        keys, client = concert._jobs.of_id(last.id), raw(concert)

        async def is_clean() -> bool:
            left = [keys.unique, keys.checks, keys.parents, keys.children, keys.outcomes, keys.pending, keys.waiting]
            return not await client.exists(*left)

        await eventually(is_clean)


async def test_producers_without_a_loop_replace_the_same_job(server: RealServer, namespace: str) -> None:
    """With signing keys; a prepared job counts once, however often it is sent."""
    async with Coordinator(server.url, namespace=namespace, signing_keys=SECRET) as concert:
        building = Building(concert)
        building.free.set()
        first = await building.call(1)

        def produce() -> None:
            with SyncProducer(server.url, namespace=namespace, signing_keys=SECRET) as producer:
                options: Any = {"unique": "site 17", "newest": "replaces"}
                second = producer.enqueue("build", [2], **options)
                assert (second.created, second.id) == (False, first.id)
                prepared = producer.prepare("build", [3], **options)
                for _ in range(2):
                    assert prepared.enqueue().id == first.id

        await anyio.to_thread.run_sync(produce)
        await concert.run_worker("default", burst=True)
        assert (building.began, await first.result(timeout=WITHIN)) == ([3], 3)


async def test_explanation_names_the_job_that_it_replaces(concert: Coordinator) -> None:
    """Until that has ended."""
    building = Building(with_lease(concert, LEASE))
    building.stubborn.add(1)
    async with building.runs(1) as first:
        second = await building.call(2)
        [reason] = (await concert.explain(f"job:{second.id}")).reasons
        assert (reason.code, first.id in reason.text, "'site 17'" in reason.text) == ("replaces", True, True)
        assert "is running" in reason.text
        building.free.set()
        await second.result(timeout=WITHIN)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unique": None}, "newest= without unique="),
        ({"newest": "wins"}, "newest is 'wins'; give 'replaces' or None"),
        ({"debounce": 5}, "newest= and debounce="),
        ({"max_wait": 5}, "newest= and debounce="),
        ({"unique_until": "started"}, "newest= beside unique_until='started'"),
        ({"unique_for": 60}, "newest= beside unique_until='started' or unique_for="),
        ({"after": ["a.1"]}, "newest= and after="),
        ({"at": datetime(2100, 1, 1, tzinfo=UTC)}, "newest= and at="),
        ({"unique": None, "id": "one"}, "newest= without unique="),
    ],
)
async def test_bad_options_are_refused_before_anything_is_sent(building: Building, options: Any, message: str) -> None:
    """The error says what to do."""
    with pytest.raises(ValueError, match=message):
        await building.call(1, **options)
    namespace = building.concert._ref.keys.namespace
    assert not [key async for key in raw(building.concert).scan_iter(f"*{namespace}:tasks*")]


async def test_members_schedules_and_jobs_that_follow_do_not_replace(building: Building) -> None:
    """Each says so."""
    newest = building.task.options(unique="site 17", newest="replaces")
    concert = building.concert
    with pytest.raises(ValueError, match="newest=, which a member of a group cannot have"):
        await concert.group([newest.call(1)])
    with pytest.raises(ValueError, match="unique"):
        await concert.group([building.task.call(1)], then=newest.call(1))
    with pytest.raises(ValueError, match="unique"):
        await concert.schedules.put("nightly", newest.call(1), every=60)
    await concert.enqueue("build", [1])
    async with concert.consume("default") as jobs, await anext(jobs) as job:
        with pytest.raises(ValueError, match="unique"):
            job.enqueue_on_success(newest.call(2))


async def test_member_of_a_group_is_replaced_as_any_job(concert: Coordinator) -> None:
    """It stays a member while it waits; one that runs counts as cancelled."""
    building = Building(concert)
    building.free.set()
    options: Any = {"unique": "site 17"}
    group = await concert.group([building.task.options(**options).call(1)])
    assert not (await building.call(2)).created
    await concert.run_worker("default", burst=True)
    assert ((await group.progress()).succeeded, building.began) == (1, [2])
