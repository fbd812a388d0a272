"""Keys of a task that take turns: one with many jobs does not delay another with few."""

import asyncio
from typing import Any

import pytest

from inconcert import Coordinator, JobStatus, Limit, Rate, Task, current_job
from tests.support.background import in_background
from tests.support.jobs import status
from tests.support.limits import WITHIN, Running, first, places


@pytest.mark.slow
async def test_few_jobs_of_a_key_do_not_wait_for_many_of_another(any_concert: Coordinator) -> None:
    """They run in turns, those of each key in their order."""
    ran: list[tuple[str, int]] = []

    @any_concert.task(name="import", key=first, share=True)
    async def import_(tenant: str, number: int) -> None:
        ran.append((tenant, number))

    jobs = await any_concert.enqueue_many(
        [import_.call("a", number) for number in range(700)] + [import_.call("b", number) for number in range(3)]
    )
    jobs += [await import_.enqueue("c", number) for number in range(2)]
    await any_concert.run_worker("default", concurrency=1, burst=True)
    assert [job for job in ran[:9] if job[0] != "a"] == [("b", 0), ("c", 0), ("b", 1), ("c", 1), ("b", 2)]
    for tenant, count in (("a", 700), ("b", 3), ("c", 2)):
        assert [number for each, number in ran if each == tenant] == list(range(count))
    assert await places(any_concert) == 0


async def test_jobs_of_other_tasks_keep_their_place_in_the_queue(any_concert: Coordinator) -> None:
    """A key has one job in the queue at a time, and each other job is one as well."""
    ran: list[str] = []

    @any_concert.task(name="import", key=first, share=True)
    async def import_(tenant: str) -> None:
        ran.append(tenant)

    @any_concert.task(name="other")
    async def other() -> None:
        ran.append("other")

    await any_concert.enqueue_many([*[import_.call("a")] * 20, other.call(), other.call()])
    await any_concert.run_worker("default", concurrency=1, burst=True)
    assert ran[:3] == ["a", "other", "other"]
    assert ran[3:] == ["a"] * 19


async def test_whoever_waits_for_a_turn_is_ready(concert: Coordinator) -> None:
    """More workers would run it; one that waits for a place as well is delayed."""

    @concert.task(name="free", queue="free", key=first, share=True)
    async def free(tenant: str) -> None: ...

    @concert.task(name="bound", queue="bound", key=first, key_limit=1, share=True)
    async def bound(tenant: str) -> None: ...

    jobs = await concert.enqueue_many([free.call("a"), free.call("a"), bound.call("a"), bound.call("a")])
    stats = await concert.tasks.stats()
    assert (stats.queues["free"].ready, stats.queues["free"].delayed) == (2, 0)
    assert (stats.queues["bound"].ready, stats.queues["bound"].delayed) == (1, 1)
    assert [await job.status() for job in jobs] == [JobStatus.QUEUED, JobStatus.DELAYED] * 2
    for queue, job in (("free", jobs[1]), ("bound", jobs[3])):
        page = await concert.tasks.jobs(state=JobStatus.DELAYED, queue=queue)
        assert [(each.id, each.due_at) for each in page.jobs] == [(job.id, None)]


@pytest.mark.parametrize("limits", [{"limit": Limit(1)}, {"rate": Rate(1, per=0.01)}], ids=["limit", "rate"])
async def test_turns_hold_where_the_task_has_limits(concert: Coordinator, limits: dict[str, Any]) -> None:
    """Also if all of them wait for one place."""
    ran: list[tuple[str, int]] = []

    @concert.task(name="import", key=first, share=True, **limits)
    async def import_(tenant: str, number: int) -> None:
        ran.append((tenant, number))

    jobs = await concert.enqueue_many(
        [import_.call("a", number) for number in range(20)] + [import_.call("b", number) for number in range(3)]
    )
    async with in_background(concert.run_worker("default", concurrency=5)):
        for job in jobs:
            await job.result(timeout=WITHIN)
    assert ran[:6] == [(tenant, number) for number in range(3) for tenant in ("a", "b")]
    assert sorted(number for tenant, number in ran if tenant == "a") == list(range(20))


async def test_key_that_has_all_its_places_gives_its_turn_away(concert: Coordinator) -> None:
    """And gets one as soon as a place is free."""
    running = Running()

    @concert.task(name="import", key=first, key_limit=2, share=True)
    async def import_(tenant: str, number: int) -> None:
        await running.run(tenant, number)

    jobs = await concert.enqueue_many(
        [import_.call("a", number) for number in range(6)] + [import_.call("b", 6), import_.call("c", 7)]
    )
    async with in_background(concert.run_worker("default", concurrency=10)):
        await running.until(4)
        assert sorted(running.began) == [0, 1, 6, 7]
        running.free.set()
        for job in jobs:
            await job.result(timeout=WITHIN)
    assert running.most == {"a": 2, "b": 1, "c": 1}
    assert await places(concert) == 0


@pytest.mark.parametrize("how", ["cancel", "later", "now", "retry"])
async def test_turn_is_passed_on_however_a_job_leaves(concert: Coordinator, how: str) -> None:
    """The next of its key runs; what was in front is not lost."""
    ran: list[int] = []

    @concert.task(name="import", key=first, share=True)
    async def import_(tenant: str, number: int) -> None:
        if how == "retry" and number == 0 and current_job().attempt == 1:
            raise ValueError(number)
        ran.append(number)

    options = import_.options(delay=3600.0) if how in {"later", "now"} else import_
    jobs = [await options.enqueue("a", 0), await import_.enqueue("a", 1), await import_.enqueue("a", 2)]
    if how == "cancel":
        assert await jobs[0].cancel()
    elif how == "now":
        assert await jobs[0].reschedule(delay=0.0)
    await concert.run_worker("default", burst=True)
    left = {"cancel": [], "later": [], "now": [0], "retry": []}[how]
    assert sorted(ran) == [*left, 1, 2]
    if how != "cancel":
        await jobs[0].reschedule(delay=0.0)
    await concert.run_worker("default", burst=True)
    assert sorted(ran) == ([1, 2] if how == "cancel" else [0, 1, 2])
    assert await places(concert) == 0


@pytest.mark.parametrize("how", ["cancel", "later"])
async def test_turn_is_passed_on_by_a_job_that_waits_for_a_place(concert: Coordinator, how: str) -> None:
    """One job of each key is in the line of its task; when it leaves, the next of its key comes."""
    running = Running()

    @concert.task(name="import", limit=Limit(1), key=first, share=True)
    async def import_(tenant: str, number: int) -> None:
        await running.run(tenant, number)

    async with in_background(concert.run_worker("default", concurrency=5)):
        jobs = [await import_.enqueue("a", 0)]
        await running.until(1)
        jobs += [await import_.enqueue("b", number) for number in (1, 2)]
        await status(concert, jobs[1], JobStatus.DELAYED)
        if how == "cancel":
            assert await jobs[1].cancel()
        else:
            assert await jobs[1].reschedule(delay=3600.0)
        running.free.set()
        await jobs[2].result(timeout=WITHIN)
        if how == "later":
            assert await jobs[1].reschedule(delay=0.0)
            await jobs[1].result(timeout=WITHIN)
    assert running.began == ([0, 2] if how == "cancel" else [0, 2, 1])
    assert await places(concert) == 0


@pytest.mark.parametrize("count", [1, 3], ids=["alone", "before others"])
async def test_key_goes_on_after_all_its_jobs_were_cancelled(concert: Coordinator, count: int) -> None:
    """Whoever had the turn."""

    @concert.task(name="import", key=first, share=True)
    async def import_(tenant: str) -> str:
        return tenant

    for job in await concert.enqueue_many([import_.call("a")] * count):
        assert await job.cancel()
    last = await import_.enqueue("a")
    await concert.run_worker("default", burst=True)
    assert await last.result(timeout=WITHIN) == "a"
    assert await places(concert) == 0


async def test_many_that_come_at_once_take_turns_as_well(concert: Coordinator) -> None:
    """Such as those of a group, which were put into the queue without a look at it."""
    ran: list[str] = []

    @concert.task(name="import", key=first, share=True)
    async def import_(tenant: str) -> None:
        ran.append(tenant)

    await concert.group([import_.call("a") for _ in range(30)])
    await concert.group([import_.call("b") for _ in range(3)])
    await concert.run_worker("default", concurrency=1, burst=True)
    assert ran[:6].count("b") == 3
    assert sorted(ran) == ["a"] * 30 + ["b"] * 3
    assert await places(concert) == 0


@pytest.mark.parametrize("before", [False, True], ids=["turned on", "turned off"])
async def test_jobs_from_before_turns_were_changed_run_as_well(
    concert: Coordinator, elsewhere: Coordinator, *, before: bool
) -> None:
    """They have places and lines of their own."""

    def register(each: Coordinator, *, share: bool) -> Task[[str], Any]:
        @each.task(name="import", limit=Limit(3), key=first, key_limit=1, share=share)
        async def import_(tenant: str) -> None: ...

        return import_

    jobs = await elsewhere.enqueue_many([register(elsewhere, share=before).call("a")] * 3)
    import_ = register(concert, share=not before)
    jobs += await concert.enqueue_many([import_.call("a")] * 3)
    async with in_background(concert.run_worker("default")):
        await asyncio.gather(*(job.result(timeout=WITHIN) for job in jobs))
        await (await import_.enqueue("a")).result(timeout=WITHIN)
    assert await places(concert) == 0


async def test_bad_share_is_refused(concert: Coordinator) -> None:
    """Before anything is sent."""
    with pytest.raises(ValueError, match="give key= as well"):
        concert.task(share=True)
    with pytest.raises(ValueError, match="key= alone limits nothing"):
        concert.task(key=first)
    wrong: Any = "yes"
    with pytest.raises(TypeError, match="share is 'yes'"):
        concert.task(key=first, share=wrong)
