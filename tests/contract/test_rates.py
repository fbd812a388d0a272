"""Rates of tasks: how many of their jobs begin in a period, over all workers."""

from functools import partial
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, Job, JobFailed, JobStatus, Limit, Rate
from inconcert.tasks.records.limits import TaskLimits
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.limits import A_MOMENT, Running, begun_at, excess, first, in_line
from tests.support.raw import raw

WITHIN = 10.0  # seconds


async def until(job: Job[Any], status: JobStatus) -> None:
    """Wait until the job is there."""
    with anyio.fail_after(WITHIN):
        while await job.status() is not status:
            await anyio.sleep(0.005)


async def test_no_more_jobs_begin_than_the_rate_says(any_concert: Coordinator) -> None:
    """In any time span; in the order in which they were enqueued, and others pass them."""
    rate = Rate(50, per=1.0, burst=3)
    began: list[tuple[int, float]] = []

    @any_concert.task(name="at a rate", rate=rate)
    async def at_a_rate(number: int) -> None:
        began.append((number, begun_at()))

    @any_concert.task(name="other")
    async def other() -> int:
        return len(began)

    jobs = await any_concert.enqueue_many([at_a_rate.call(number) for number in range(20)])
    last = await other.enqueue()
    async with in_background(any_concert.run_worker("default", concurrency=10)):
        assert await last.result(timeout=WITHIN) < 20
        for job in jobs:
            await job.result(timeout=WITHIN)
    assert sorted(number for number, _ in began) == list(range(20))
    assert [number for number, _ in began[3:]] == list(range(3, 20))
    assert excess(sorted(at for _, at in began), rate) < A_MOMENT
    assert await in_line(any_concert, 0)


@pytest.mark.parametrize(
    "limits",
    [
        {"rate": Rate(2, per=3600.0)},
        {"rate": Rate(2, per=3600.0), "key": first, "share": True, "key_limit": 1, "limit": Limit(1)},
    ],
)
async def test_jobs_that_have_expired_leave_the_rate_to_others(any_concert: Coordinator, limits: Any) -> None:
    """Otherwise, with more jobs than begin, all that begin have expired."""
    began: list[str] = []

    @any_concert.task(name="at a rate", max_attempts=1, **limits)
    async def at_a_rate(which: str) -> None:
        began.append(which)

    await any_concert.tasks.pause("default")
    late = [await at_a_rate.options(expires=0.001).enqueue("late") for _ in range(5)]
    jobs = [await at_a_rate.options(expires=3600).enqueue("in time") for _ in range(2)]
    await anyio.sleep(0.05)  # until they have expired
    await any_concert.tasks.resume("default")
    async with in_background(any_concert.run_worker("default", concurrency=10)):
        for job in jobs:
            await job.result(timeout=WITHIN)
        for job in late:
            with pytest.raises(JobFailed, match="not started within"):
                await job.result(timeout=WITHIN)
    assert began == ["in time", "in time"]


@pytest.mark.parametrize(
    "limits", [{"rate": Rate(1, per=3600.0)}, {"limit": Limit(1)}, {"limit": Limit(1), "rate": Rate(100, per=1.0)}]
)
async def test_jobs_expire_while_they_are_held_back(any_concert: Coordinator, limits: Any) -> None:
    """In time, also the one that was to come next; and the others keep their places in line."""
    began: list[int] = []
    go_on = anyio.Event()

    @any_concert.task(name="held back", **limits)
    async def held_back(number: int) -> None:
        began.append(number)
        await go_on.wait()

    first_one = await held_back.enqueue(0)
    async with in_background(any_concert.run_worker("default", concurrency=10)):
        await eventually(lambda: began == [0])
        late = [await held_back.options(expires=0.2).enqueue(number) for number in (1, 2)]
        patient = await held_back.options(expires=3600).enqueue(3)
        for job in late:
            with pytest.raises(JobFailed, match="not started within"):
                await job.result(timeout=WITHIN)
        assert (began, await patient.status()) == ([0], JobStatus.DELAYED)
        go_on.set()
        await first_one.result(timeout=WITHIN)
        if "limit" in limits:
            await patient.result(timeout=WITHIN)
        else:
            assert await patient.cancel()


async def test_raised_rate_holds_for_those_in_line(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Also for the one that was to come next, and for those that wait for a place."""
    began: list[int] = []

    async def at_a_rate(number: int) -> None:
        began.append(number)

    async def are_held_back() -> bool:
        return await in_line(any_concert, 3)

    old = any_concert.task(name="at a rate", rate=Rate(1, per=3600.0), limit=Limit(1))(at_a_rate)
    new = elsewhere.task(name="at a rate", rate=Rate(100, per=1.0), limit=Limit(1))(at_a_rate)
    jobs = await any_concert.enqueue_many([old.call(number) for number in range(5)])
    async with in_background(any_concert.run_worker("default", concurrency=10)):
        await jobs[0].result(timeout=WITHIN)
        await eventually(are_held_back)
        for job in [*jobs, await new.enqueue(5)]:
            await job.result(timeout=WITHIN)
    assert sorted(began) == list(range(6))


async def test_lowered_rate_holds_for_those_in_line(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Once the next one comes, which the old one let come; as much of the period is over as was of the old one."""
    began: list[int] = []

    async def at_a_rate(number: int) -> None:
        began.append(number)

    async def is_the_next_far_away() -> bool:
        page = await any_concert.tasks.jobs(state=JobStatus.DELAYED)
        return any(job.due_at is not None and job.due_at - job.enqueued_at > 100 for job in page.jobs)

    old = any_concert.task(name="at a rate", rate=Rate(1, per=1.0))(at_a_rate)
    new = elsewhere.task(name="at a rate", rate=Rate(1, per=1_000_000.0))(at_a_rate)
    async with in_background(any_concert.run_worker("default", concurrency=10)):
        await any_concert.enqueue_many([old.call(number) for number in range(5)])
        await new.enqueue(5)
        await eventually(is_the_next_far_away)
    assert 1 <= len(began) < 5


@pytest.mark.parametrize(("before", "after"), [(3, 10), (10, 3)])
async def test_jobs_that_began_before_a_change_count_under_the_new_rate(
    any_concert: Coordinator, elsewhere: Coordinator, before: int, after: int
) -> None:
    """One for one: three that began leave room for as many as the new rate has more, and for none if it has three."""
    began: list[int] = []

    async def at_a_rate(number: int) -> None:
        began.append(number)

    async def does_the_next_wait() -> bool:
        page = await any_concert.tasks.jobs(state=JobStatus.DELAYED)
        return any(job.due_at is not None and job.due_at - job.enqueued_at > 300 for job in page.jobs)

    old = any_concert.task(name="at a rate", rate=Rate(before, per=3600.0))(at_a_rate)
    new = elsewhere.task(name="at a rate", rate=Rate(after, per=3600.0))(at_a_rate)
    async with in_background(any_concert.run_worker("default", concurrency=20)):
        for job in await any_concert.enqueue_many([old.call(number) for number in range(3)]):
            await job.result(timeout=WITHIN)
        await elsewhere.enqueue_many([new.call(number) for number in range(3, 14)])
        await eventually(does_the_next_wait)
        await eventually(lambda: len(began) >= after)
    assert len(began) == after


async def test_job_in_line_for_a_place_does_not_wait_for_an_old_rate(
    concert: Coordinator, elsewhere: Coordinator
) -> None:
    """Those before it in that line were enqueued with a rate that is used up."""
    free, began = anyio.Semaphore(0), list[int]()

    async def both(number: int) -> None:
        began.append(number)
        await free.acquire()

    old = concert.task(name="both", rate=Rate(2, per=3600.0), limit=Limit(1))(both)
    new = elsewhere.task(name="both", rate=Rate(100, per=1.0), limit=Limit(1))(both)
    async with in_background(concert.run_worker("default", concurrency=5)):
        await concert.enqueue_many([old.call(number) for number in range(3)])
        await eventually(lambda: in_line(concert, 2))
        await new.enqueue(3)
        await eventually(lambda: in_line(concert, 3))
        for _ in range(4):
            free.release()
        await eventually(lambda: len(began) == 4)
    assert began == [0, 1, 2, 3]


async def test_rate_holds_over_all_workers(concert: Coordinator, elsewhere: Coordinator) -> None:
    """However many claim."""
    rate = Rate(100, per=1.0, burst=1)
    began: list[float] = []

    async def at_a_rate() -> None:
        began.append(begun_at())

    concert.task(name="at a rate", rate=rate)(at_a_rate)
    task = elsewhere.task(name="at a rate", rate=rate)(at_a_rate)
    jobs = await elsewhere.enqueue_many([task.call() for _ in range(30)])
    async with (
        in_background(concert.run_worker("default", concurrency=5)),
        in_background(elsewhere.run_worker("default", concurrency=5)),
    ):
        for job in jobs:
            await job.result(timeout=WITHIN)
    assert excess(sorted(began), rate) < A_MOMENT


@pytest.mark.parametrize("how", ["cancel", "cancel all", "reschedule", "promote"])
async def test_another_comes_next_instead_of_one_that_does_not(concert: Coordinator, how: str) -> None:
    """Nobody waits for a job that is cancelled, or comes at another time."""
    began: list[int] = []

    @concert.task(name="at a rate", rate=Rate(4, per=1.0, burst=1))
    async def at_a_rate(number: int) -> None:
        began.append(number)

    jobs = await concert.enqueue_many([at_a_rate.call(number) for number in range(3)])
    async with in_background(concert.run_worker("default")):
        await jobs[0].result(timeout=WITHIN)
        await until(jobs[1], JobStatus.DELAYED)
        if how == "cancel":
            assert await jobs[1].cancel()
        elif how == "cancel all":
            await concert.tasks.cancel_all(state="delayed")
            jobs[2] = await at_a_rate.enqueue(2)
        elif how == "reschedule":
            assert await jobs[1].reschedule(delay=3600)
        else:
            assert await jobs[1].reschedule(delay=0)
            await jobs[1].result(timeout=WITHIN)
        await jobs[2].result(timeout=WITHIN)
    assert sorted(began) == ([0, 1, 2] if how == "promote" else [0, 2])


async def test_job_that_is_cancelled_in_its_queue_lets_the_next_begin(concert: Coordinator) -> None:
    """It was about to begin, and its queue was paused."""
    began: list[int] = []

    @concert.task(name="at a rate", rate=Rate(10, per=1.0, burst=1))
    async def at_a_rate(number: int) -> None:
        began.append(number)

    jobs = await concert.enqueue_many([at_a_rate.call(number) for number in range(3)])
    async with in_background(concert.run_worker("default")):
        await jobs[0].result(timeout=WITHIN)
        await concert.tasks.pause("default")
        await until(jobs[1], JobStatus.QUEUED)
        assert await jobs[1].cancel()
        await concert.tasks.resume("default")
        await jobs[2].result(timeout=WITHIN)
    assert began == [0, 2]


@pytest.mark.parametrize("how", ["cancel", "reschedule"])
async def test_another_takes_the_place_of_one_that_waited_for_the_rate(concert: Coordinator, how: str) -> None:
    """That one had left the line of a limit first, and then was not to begin yet."""
    free = anyio.Semaphore(0)

    @concert.task(name="both", rate=Rate(3, per=3600.0), limit=Limit(1))
    async def both() -> None:
        await free.acquire()

    async def due() -> set[str]:
        page = await concert.tasks.jobs(state=JobStatus.DELAYED)
        return {job.id for job in page.jobs if job.due_at is not None}

    await concert.enqueue_many([both.call() for _ in range(5)])
    async with in_background(concert.run_worker("default", concurrency=5)):
        for left in (4, 3, 2):  # the rate lets three begin
            await eventually(partial(in_line, concert, left))
            free.release()
        comes = await eventually(due)
        [job] = map(concert.tasks.job, comes)
        assert await (job.cancel() if how == "cancel" else job.reschedule(delay=7200))

        async def another() -> bool:
            return bool(await due() - comes)

        await eventually(another)


async def test_rate_and_limits_hold_together(concert: Coordinator) -> None:
    """At most so many begin in a time, and run at once."""
    rate, running, began = Rate(100, per=1.0, burst=4), Running(), list[float]()

    @concert.task(name="both", rate=rate, limit=Limit(3), key=first, key_limit=2)
    async def both(key: str) -> None:
        began.append(begun_at())
        await running.run(key)

    jobs = await concert.enqueue_many([both.call(key) for key in "aaaabbbbcccc"])
    async with in_background(concert.run_worker("default", concurrency=20)):
        await running.until(3)
        assert sum(running.now.values()) == 3
        running.free.set()
        for job in jobs:
            await job.result(timeout=WITHIN)
    assert max(running.most.values()) == 2
    assert excess(sorted(began), rate) < A_MOMENT
    assert await in_line(concert, 0)


async def test_jobs_in_line_send_nothing(concert: Coordinator) -> None:
    """Until the next may begin, a worker sends what it sends without them."""

    @concert.task(name="at a rate", rate=Rate(1, per=3600.0))
    async def at_a_rate() -> None: ...

    jobs = await concert.enqueue_many([at_a_rate.call() for _ in range(50)])
    async with in_background(concert.run_worker("default")):
        await jobs[0].result(timeout=WITHIN)
        await eventually(lambda: in_line(concert, 48))
        page = await concert.tasks.jobs(state=JobStatus.DELAYED)
        [due_at] = [job.due_at for job in page.jobs if job.due_at is not None]
        [began_at] = [job.enqueued_at for job in page.jobs if job.due_at == due_at]
        assert due_at - began_at > 3590


@pytest.mark.parametrize(
    ("jobs", "options"),
    [(0, {"per": 1.0}), (1, {"per": 0}), (1, {"per": -1.0}), (1, {"per": 1.0, "burst": 0}), (200_001, {"per": 2.0})],
)
def test_bad_rates_are_refused(jobs: int, options: Any) -> None:
    """Before anything is sent."""
    with pytest.raises(ValueError, match=r"is 0|is -1|200001"):
        Rate(jobs, **options)


def test_what_is_not_a_rate_is_refused() -> None:
    """With what to give instead."""
    nowhere: Any = Coordinator("redis://nowhere")
    with pytest.raises(TypeError, match="give Rate"):
        nowhere.task(rate=5)


async def test_each_key_has_a_rate_of_its_own(any_concert: Coordinator) -> None:
    """One that has used up its own holds up no other; and waits in order."""
    began: list[tuple[str, int]] = []

    @any_concert.task(name="keyed", key=first, rate=Rate(2, per=3600.0, key=True))
    async def keyed(key: str, number: int) -> None:
        began.append((key, number))

    jobs = {(key, number): await keyed.enqueue(key, number) for key in ("a", "b") for number in range(4)}
    async with in_background(any_concert.run_worker("default", concurrency=10)):
        await eventually(lambda: len(began) == 4)
        assert sorted(began) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
        found = str(await any_concert.explain(f"job:{jobs['b', 3].id}"))
        assert "it waits for the rate of its key, in task 'keyed', of which one job begins each" in found
        for each, job in jobs.items():
            if each not in began:
                assert await job.cancel()


async def test_nothing_is_left_of_a_key_whose_rate_is_unused(any_concert: Coordinator) -> None:
    """The next jobs drop it, of whatever key they are."""

    @any_concert.task(name="keyed", key=str, rate=Rate(100, per=1.0, burst=1, key=True))
    async def keyed(key: int) -> None: ...

    [keys] = any_concert._jobs.partitions

    async def is_dropped() -> bool:
        job = await keyed.enqueue(0)
        await job.result(timeout=WITHIN)
        return bool(await raw(any_concert).hlen(keys.places) <= 2)

    async with in_background(any_concert.run_worker("default", concurrency=10)):
        for job in await any_concert.enqueue_many([keyed.call(key) for key in range(1, 30)]):
            await job.result(timeout=WITHIN)
        await eventually(is_dropped)
        assert await raw(any_concert).zcard(keys.held_back) <= 2


async def test_keys_that_come_many_at_once_are_dropped_as_fast(any_concert: Coordinator) -> None:
    """So that what is kept does not grow with the keys there ever were."""

    @any_concert.task(name="keyed", key=str, rate=Rate(100_000, per=1.0, burst=1, key=True))
    async def keyed(key: int) -> None: ...

    [keys] = any_concert._jobs.partitions
    async with any_concert.consume("default", prefetch=100) as jobs:
        for claim in range(10):
            await any_concert.enqueue_many([keyed.call(100 * claim + number) for number in range(100)])
            for each in await jobs.try_claim(100):
                await each.ack()
    assert await raw(any_concert).hlen(keys.places) <= 300


def test_rate_of_a_key_needs_a_key() -> None:
    """And goes with neither a name nor a cost."""
    with pytest.raises(ValueError, match="give key= as well"):
        TaskLimits(rate=Rate(1, per=1.0, key=True))
    with pytest.raises(ValueError, match="leave one out"):
        TaskLimits(key=str, rate=Rate(1, per=1.0, key=True), cost=1)
    with pytest.raises(ValueError, match="leave one out"):
        TaskLimits(Limit(1, name="api"), str, rate=Rate(1, per=1.0, key=True))
    with pytest.raises(ValueError, match="leave key=True or the name out"):
        Rate(1, per=1.0, name="api", key=True)
