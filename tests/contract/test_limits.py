"""Limits of tasks: how many of their jobs run at once, over all workers."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, JobStatus, Limit, LimitStats, Task, current_job, durable
from inconcert.tasks.following.cancellation import HAD_ENDED, cancel
from tests.support.background import in_background
from tests.support.clusters import RealCluster
from tests.support.eventually import eventually
from tests.support.jobs import make_due, status
from tests.support.limits import WITHIN, Running, first, in_line, places
from tests.support.raw import raw
from tests.support.servers import RealServer


async def test_at_most_so_many_jobs_run_at_once_over_all_workers(any_concert: Coordinator) -> None:
    """And those behind them in the queue run meanwhile."""
    running = Running()

    @any_concert.task(name="limited", limit=Limit(2))
    async def limited(number: int) -> None:
        await running.run("limited", number)

    @any_concert.task(name="free")
    async def free() -> str:
        return "ran"

    jobs = await any_concert.enqueue_many([limited.call(number) for number in range(7)])
    last = await free.enqueue()
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(in_background(any_concert.run_worker("default", concurrency=10)))
        assert await last.result(timeout=WITHIN) == "ran"
        await running.until(2)
        assert running.began == [0, 1]
        assert await jobs[6].status() is JobStatus.DELAYED
        running.free.set()
        for job in jobs:
            await job.result(timeout=WITHIN)
    assert running.most["limited"] == 2
    assert sorted(running.began) == list(range(7))
    assert await places(any_concert) == 0


async def test_stats_say_how_far_limits_are_used(any_concert: Coordinator) -> None:
    """Of the tasks that are registered here, and of the queues that were asked for."""
    running = Running()

    @any_concert.task(name="limited", limit=Limit(2))
    async def limited() -> None:
        await running.run("limited")

    @any_concert.task(name="keyed", key=first, key_limit=1)
    async def keyed(key: str) -> None:
        await running.run("keyed")

    @any_concert.task(name="idle", queue="other", limit=Limit(7))
    async def idle() -> None: ...

    jobs = await any_concert.enqueue_many([*(limited.call() for _ in range(5)), *(keyed.call("a") for _ in range(3))])
    await limited.options(delay=3600).enqueue()
    async with in_background(any_concert.run_worker("default", concurrency=10)):
        await running.until(3)
        stats = await any_concert.tasks.stats("default")
        assert stats.limits == {"limited": LimitStats(queue="default", places=2, in_use=2)}
        queue = stats.queues["default"]
        assert (queue.ready, queue.running, queue.delayed, queue.held_back) == (0, 3, 6, 5)
        running.free.set()
        for job in jobs:
            await job.result(timeout=WITHIN)
    stats = await any_concert.tasks.stats("default", "other")
    assert {task: limit.in_use for task, limit in stats.limits.items()} == {"limited": 0, "idle": 0}
    assert stats.queues["default"].held_back == 0


@pytest.mark.parametrize("of_key", [False, True], ids=["limit", "key_limit"])
async def test_raised_limit_holds_for_those_in_line(
    any_concert: Coordinator, elsewhere: Coordinator, *, of_key: bool
) -> None:
    """From when a worker finds the first job that was enqueued with it; none starves behind those that come later."""
    running = Running()

    def register(each: Coordinator, most: int) -> Task[[str], Any]:
        options: dict[str, Any] = {"key": first, "key_limit": most} if of_key else {"limit": Limit(most)}
        return each.task(name="limited", **options)(running.run)

    jobs = await any_concert.enqueue_many([register(any_concert, 1).call("a")] * 5)
    async with in_background(any_concert.run_worker("default", concurrency=10)):
        await running.until(1)
        jobs.append(await register(elsewhere, 3).enqueue("a"))
        await running.until(3)
        assert running.now == {"a": 3}
        running.free.set()
        await asyncio.gather(*(job.result(timeout=WITHIN) for job in jobs))
    assert running.most == {"a": 3}
    assert await places(any_concert) == 0


async def test_lowered_limit_holds_for_those_in_line(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """What runs goes on, and so many begin no more."""
    free, began, ended = asyncio.Semaphore(0), list[int](), list[int]()

    async def run(number: int) -> None:
        began.append(number)
        await free.acquire()
        ended.append(number)

    async def until(numbers: list[int], count: int) -> None:
        await eventually(lambda: len(numbers) == count)

    old = any_concert.task(name="limited", limit=Limit(3))(run)
    new = elsewhere.task(name="limited", limit=Limit(1))(run)
    jobs = await any_concert.enqueue_many([old.call(number) for number in range(5)])
    async with in_background(any_concert.run_worker("default", concurrency=10)):
        await until(began, 3)
        jobs.append(await new.enqueue(5))
        await eventually(lambda: in_line(any_concert, 3))
        for count in range(1, 7):
            free.release()
            await until(ended, count)
            await jobs[ended[-1]].result(timeout=WITHIN)
            await until(began, min(6, max(3, count + 1)))
    assert began[3:] == [3, 4, 5]
    assert await places(any_concert) == 0


async def test_each_key_has_its_own_limit(any_concert: Coordinator) -> None:
    """Within that of the task."""
    running = Running()

    @any_concert.task(name="import", limit=Limit(3), key=first, key_limit=2)
    async def import_(tenant: str, number: int) -> None:
        running.now["all"] += 1
        running.most["all"] = max(running.most["all"], running.now["all"])
        await running.run(tenant, number)
        running.now["all"] -= 1

    jobs = await any_concert.enqueue_many(
        [import_.call("a", number) for number in range(6)] + [import_.call("b", number) for number in range(6, 9)]
    )
    async with in_background(any_concert.run_worker("default", concurrency=10)):
        await running.until(3)
        assert sorted(running.began) == [0, 1, 6]
        running.free.set()
        for job in jobs:
            await job.result(timeout=WITHIN)
    assert running.most == {"a": 2, "b": running.most["b"], "all": 3}
    assert await places(any_concert) == 0


@pytest.mark.parametrize("share", [False, True])
async def test_next_job_of_a_key_passes_one_that_is_tried_again(concert: Coordinator, *, share: bool) -> None:
    """One at a time is not an order: what waits for its next attempt has no place meanwhile."""
    began: list[int] = []

    @concert.task(name="t", key=first, key_limit=1, share=share, backoff=lambda _: 3600.0)
    async def work(tenant: str, number: int) -> None:
        del tenant
        began.append(number)
        if len(began) == 1:
            raise ValueError("once")

    for number in range(3):
        await work.enqueue("a", number)
    await concert.run_worker("default", burst=True)
    assert sorted(began) == [0, 1, 2]
    await make_due(concert, "default")
    await concert.run_worker("default", burst=True)
    assert began[3:] == began[:1]


@pytest.mark.parametrize("how", ["fail", "cancel", "retry", "sleep", "wait", "undo", "follow"])
async def test_place_is_free_however_a_job_ends(concert: Coordinator, how: str) -> None:
    """The next begins at once."""
    running = Running()

    @concert.task(name="free")
    async def free() -> None: ...

    @concert.task(name="limited", limit=Limit(1), max_attempts=2 if how == "retry" else 1, backoff=lambda _: 3600.0)
    async def limited(number: int) -> None:
        if number == 1:
            await running.run("second")
        elif how == "sleep":
            await durable.sleep("for an hour", 3600)
        elif how == "wait":
            await durable.wait_for("word", str, timeout=3600)
        elif how == "undo":
            async with durable.undo() as undo:
                undo.later("nothing", int)
                raise ValueError
        elif how == "cancel":
            await running.run("first")
        elif how == "follow":
            current_job().enqueue_on_success(free.call())
        else:
            raise ValueError

    first, second = await concert.enqueue_many([limited.call(0), limited.call(1)])
    async with in_background(concert.run_worker("default", concurrency=10)):
        if how == "cancel":
            await running.until(1)
            await first.cancel()
            await running.until(2)
        else:
            await running.until(1)
        running.free.set()
        await second.result(timeout=WITHIN)
    await first.cancel()
    assert await places(concert) == 0


async def test_job_that_is_cancelled_while_it_waits_leaves_the_line(concert: Coordinator) -> None:
    """Also the one that is about to take the place."""
    running = Running()

    @concert.task(name="limited", limit=Limit(1))
    async def limited(number: int) -> None:
        await running.run("limited", number)

    jobs = await concert.enqueue_many([limited.call(number) for number in range(4)])
    async with in_background(concert.run_worker("default")):
        await running.until(1)
        await status(concert, jobs[3], JobStatus.DELAYED)
        assert await jobs[1].cancel()
        await concert.tasks.pause("default")
        running.free.set()
        await jobs[0].result(timeout=WITHIN)
        assert await jobs[2].status() is JobStatus.QUEUED
        assert await jobs[2].cancel()
        await concert.tasks.resume("default")
        await jobs[3].result(timeout=WITHIN)
    assert running.began == [0, 3]
    assert await places(concert) == 0


@pytest.mark.parametrize("share", [False, True], ids=["", "keys take turns"])
async def test_job_that_came_into_line_since_somebody_looked_is_cancelled(concert: Coordinator, *, share: bool) -> None:
    """Who cancels it believes that it is still in its queue, and leaves nothing of it in the line."""
    running = Running()

    @concert.task(name="limited", limit=Limit(1), key=first, key_limit=1, share=share)
    async def limited(key: str, number: int) -> None:
        await running.run(key, number)

    async with in_background(concert.run_worker("default", concurrency=10)):
        jobs = [await limited.enqueue("a", number) for number in range(3)]
        await running.until(1)
        await status(concert, jobs[1], JobStatus.DELAYED)
        keys = concert._jobs.of_id(jobs[1].id)
        answers = await cancel(concert._ref.session, concert._jobs, keys, keys.queue("none"), [jobs[1].id, "unknown"])
        assert answers == [1, HAD_ENDED]
        running.free.set()
        await jobs[2].result(timeout=WITHIN)
    assert running.began == [0, 2]
    assert await places(concert) == 0
    assert (await concert.tasks.stats("default")).queues["default"].delayed == 0


async def test_job_that_has_waited_for_a_message_stays_in_line_when_that_comes(any_concert: Coordinator) -> None:
    """It waits for a place then. It moves up in its turn, so that nothing of it stays in the line before the others."""
    running = Running()

    @any_concert.task(name="limited", limit=Limit(1))
    async def limited(number: int) -> None:
        if number == 0:
            await durable.wait_for("packed", str, timeout=3600)
        await running.run("limited", number)

    async with in_background(any_concert.run_worker("default", concurrency=10)):
        jobs = [await limited.enqueue(0)]
        await status(any_concert, jobs[0], JobStatus.DELAYED)
        jobs.append(await limited.enqueue(1))
        await running.until(1)
        await jobs[0].reschedule(delay=0)
        jobs.append(await limited.enqueue(2))

        async def two_are_in_line() -> bool:
            return (await any_concert.tasks.stats("default")).queues["default"].held_back == 2

        await eventually(two_are_in_line)
        await any_concert.tasks.pause("default")
        assert await jobs[0].send("packed", "parcel")
        assert await jobs[0].status() is JobStatus.DELAYED
        running.free.set()
        await jobs[1].result(timeout=WITHIN)
        await any_concert.tasks.resume("default")
        for job in jobs:
            await job.result(timeout=WITHIN)
    assert running.began == [1, 0, 2]
    assert await places(any_concert) == 0


async def test_job_is_undone_though_its_limit_is_full(concert: Coordinator) -> None:
    """It needs no place for that, and takes none from others."""
    running, undone = Running(), asyncio.Event()

    @concert.task(name="limited", limit=Limit(1))
    async def limited(number: int) -> None:
        if number == 0:
            async with durable.undo() as undo:
                undo.later("say so", undone.set)
                await durable.sleep("for an hour", 3600)
        await running.run("limited", number)

    jobs = await concert.enqueue_many([limited.call(number) for number in range(3)])
    async with in_background(concert.run_worker("default", concurrency=3)):
        await running.until(1)
        assert await jobs[0].cancel()
        with anyio.fail_after(WITHIN):
            await undone.wait()
        assert running.began == [1]
        running.free.set()
        for job in jobs[1:]:
            await job.result(timeout=WITHIN)
    assert running.most["limited"] == 1
    assert await places(concert) == 0


async def test_members_of_a_group_have_limits(concert: Coordinator) -> None:
    """At most one of them runs at once, and the callback runs after all."""
    running, ended = Running(), asyncio.Event()

    @concert.task(name="limited", limit=Limit(1))
    async def limited(number: int) -> None:
        await running.run("limited", number)

    @concert.task(name="then")
    async def then() -> None:
        ended.set()

    running.free.set()
    await concert.group([limited.call(number) for number in range(5)], then=then.call())
    async with in_background(concert.run_worker("default", concurrency=5)):
        with anyio.fail_after(WITHIN):
            await ended.wait()
    assert len(running.began) == 5
    assert running.most["limited"] == 1
    assert await places(concert) == 0


async def test_retiring_worker_frees_its_places(concert: Coordinator) -> None:
    """Its jobs and those that waited run elsewhere."""
    running = Running()

    @concert.task(name="limited", limit=Limit(1))
    async def limited(number: int) -> None:
        await running.run("limited", number)

    jobs = await concert.enqueue_many([limited.call(number) for number in range(3)])
    async with in_background(concert.run_worker("default", concurrency=3, grace=0)):
        await running.until(1)
    running.free.set()
    async with in_background(concert.run_worker("default", concurrency=3)):
        for job in jobs:
            await job.result(timeout=WITHIN)
    assert running.most["limited"] == 1
    assert await places(concert) == 0


async def test_list_of_jobs_has_those_that_wait_for_a_place(concert: Coordinator) -> None:
    """They are delayed, and due at no time."""
    running = Running()

    @concert.task(name="limited", limit=Limit(1))
    async def limited(number: int) -> None:
        await running.run("limited", number)

    jobs = await concert.enqueue_many([limited.call(number) for number in range(2)])
    async with in_background(concert.run_worker("default", concurrency=3)):
        await running.until(1)
        await status(concert, jobs[1], JobStatus.DELAYED)
        page = await concert.tasks.jobs(state=JobStatus.DELAYED)
        assert [(job.id, job.due_at) for job in page.jobs] == [(jobs[1].id, None)]
        running.free.set()
        await jobs[1].result(timeout=WITHIN)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"limit": 5}, TypeError),
        ({"key": "tenant", "key_limit": 2}, TypeError),
        ({"key": first}, ValueError),
        ({"key_limit": 2}, ValueError),
        ({"key": first, "key_limit": 0}, ValueError),
        ({"key": first, "key_limit": True}, ValueError),
    ],
)
def test_bad_limits_are_refused(options: Any, error: type[Exception]) -> None:
    """Before anything is sent."""
    with pytest.raises(error):
        Coordinator("redis://nowhere").task(**options)


@pytest.mark.parametrize("jobs", [0, -1, 1.5, True, "5"])
def test_limit_is_a_whole_number_of_jobs(jobs: Any) -> None:
    """At least 1."""
    with pytest.raises(ValueError, match="the limit is"):
        Limit(jobs)


async def test_jobs_that_would_not_count_are_refused() -> None:
    """Before anything is sent: in another queue, without a key."""
    concert = Coordinator("redis://nowhere")

    @concert.task(name="limited", key=first, key_limit=1)
    async def limited(key: object) -> None: ...

    with pytest.raises(ValueError, match="its queue 'default'"):
        limited.options(queue="other")
    with pytest.raises(ValueError, match="its queue 'default'"):
        await concert.enqueue(limited, ["a"], queue="other")
    with pytest.raises(TypeError, match="the key of a job is None"):
        limited.call(None)


def test_error_of_a_key_says_whose_it_is() -> None:
    """Such as that of one that does not take all arguments of the task."""

    def tenant_of(tenant: str) -> str:
        return tenant

    @Coordinator("redis://nowhere").task(name="of two", key=tenant_of, key_limit=1)
    async def of_two(tenant: str, path: str) -> None: ...

    with pytest.raises(TypeError, match="1 positional argument but 2 were given") as refused:
        of_two.call("acme", "a.csv")
    [note] = refused.value.__notes__
    assert note == "raised by key= of task 'of two', which is called with the arguments of each job"


async def test_where_jobs_are_spread_a_limit_counts_in_one(server: RealServer | RealCluster, namespace: str) -> None:
    """So jobs that must lie elsewhere are refused."""
    running = Running()
    async with Coordinator(server.url, namespace=namespace, partitions=3) as concert:

        @concert.task(name="limited", limit=Limit(1))
        async def limited() -> None:
            if current_job().attempt == 1:
                with pytest.raises(ValueError, match="limits, which count in one partition"):
                    current_job().enqueue_on_success(limited.call())
            await running.run("limited")

        with pytest.raises(ValueError, match="limits, which count in one partition"):
            await concert.group([limited.call()])
        with pytest.raises(ValueError, match="limits, which count in one partition"):
            await concert.group([], then=limited.call())
        for keys in concert._jobs.partitions:
            assert not await raw(concert).exists(keys.groups)  # no group was begun
        with pytest.raises(ValueError, match="limits, which count in one partition"):
            await concert.schedules.put("often", limited.call(), every=60)
        jobs = await concert.enqueue_many([limited.call() for _ in range(6)])
        assert len({concert._jobs.of_id(job.id) for job in jobs}) == 1
        async with in_background(concert.run_worker("default", concurrency=10)):
            await running.until(1)
            assert (await concert.tasks.stats()).limits["limited"].in_use == 1
            running.free.set()
            for job in jobs:
                await job.result(timeout=WITHIN)
        assert running.most["limited"] == 1
        assert await places(concert) == 0


async def test_job_that_is_cancelled_in_line_lets_nobody_pass_the_next(any_concert: Coordinator) -> None:
    """That one has left the line already, and has the place once its queue is resumed."""
    free, began = anyio.Semaphore(0), list[int]()

    @any_concert.task(name="limited", limit=Limit(1))
    async def limited(number: int) -> None:
        began.append(number)
        await free.acquire()

    async with in_background(any_concert.run_worker("default", concurrency=10)):
        jobs = await any_concert.enqueue_many([limited.call(number) for number in range(5)])
        await eventually(lambda: in_line(any_concert, 4))
        await any_concert.tasks.pause("default")
        free.release()
        await jobs[0].result(timeout=WITHIN)
        assert await jobs[4].cancel()
        assert await in_line(any_concert, 2)
        await any_concert.tasks.resume("default")
        for _ in range(3):
            free.release()
        for job in jobs[1:4]:
            await job.result(timeout=WITHIN)
    assert began == [0, 1, 2, 3]
