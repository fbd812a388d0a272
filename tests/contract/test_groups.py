"""Groups of jobs: the callback runs once, after all members; whatever becomes of these."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from inconcert import (
    Coordinator,
    Draft,
    Group,
    GroupClosed,
    GroupNotFound,
    GroupProgress,
    InvalidName,
    JobCancelled,
    JobFailed,
    JobStatus,
    QueueStats,
    current_job,
)
from inconcert._core.observer import Observer
from inconcert.tasks.records.group_ids import callback_id, group_of, is_callback, member_id
from inconcert.tasks.records.store import SWEEP_GROUPS
from inconcert.tasks.sending import group as group_module
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.groups import Tasks, nothing_is_kept
from tests.support.raw import raw

WITHIN = 5.0  # seconds
HOUR = 3600.0


@pytest.fixture
def tasks(any_concert: Coordinator) -> Tasks:
    """Of a coordinator on each server."""
    return Tasks(any_concert)


@pytest.fixture
async def any_concert(any_concert: Coordinator) -> AsyncIterator[Coordinator]:
    """As everywhere; and of a group that has ended nothing stays."""
    yield any_concert
    await nothing_is_kept(any_concert)


@pytest.fixture
async def spread(spread: Coordinator) -> AsyncIterator[Coordinator]:
    """Likewise."""
    yield spread
    await nothing_is_kept(spread)


async def progress(group: Group) -> tuple[int, int, int, int]:
    """Its numbers: total, succeeded, failed, cancelled."""
    seen = await group.progress()
    return seen.total, seen.succeeded, seen.failed, seen.cancelled


async def test_callback_runs_once_after_all_members(any_concert: Coordinator, tasks: Tasks) -> None:
    """In the list form, which closes the group."""
    group = await any_concert.group([tasks.send.call(number) for number in range(5)], then=tasks.report.call())
    seen = await group.progress()
    assert seen == GroupProgress(5, 0, 0, 0, is_closed=True)
    assert (seen.left, seen.is_done) == (5, False)
    assert await group.callback.status() is JobStatus.WAITING
    await any_concert.run_worker("r", burst=True)
    assert tasks.reports == 0
    await tasks.drain()
    assert (tasks.reports, sorted(tasks.sent)) == (1, list(range(5)))
    assert await group.callback.result(timeout=WITHIN) == [5, 0, 0]
    assert (await group.progress()).is_done
    assert await group.member(3).result(timeout=WITHIN) == 3


async def test_callback_waits_until_the_group_is_closed(any_concert: Coordinator, tasks: Tasks) -> None:
    """Members run before."""
    group = await any_concert.group(then=tasks.report.call())
    assert await group.add([tasks.send.call(0)]) == 1
    await tasks.drain()
    assert await group.add([tasks.send.call(1)]) == 1
    await tasks.drain()
    assert (tasks.sent, tasks.reports) == ([0, 1], 0)
    assert not (await group.progress()).is_done
    await group.close()
    await group.close()
    await tasks.drain()
    assert tasks.reports == 1
    with pytest.raises(GroupClosed, match=group.id):
        await group.add([tasks.send.call(2)])


@pytest.mark.parametrize("when", ["succeeded", "ended"])
async def test_callback_of_an_empty_group_runs_at_once(any_concert: Coordinator, tasks: Tasks, when: Any) -> None:
    """All of its members have ended, and none has failed."""
    group = await any_concert.group([], then=tasks.report.call(), when=when)
    await tasks.drain()
    assert await group.callback.result(timeout=WITHIN) == [0, 0, 0]


async def test_group_without_a_callback_has_progress(any_concert: Coordinator, tasks: Tasks) -> None:
    """And nothing waits for it."""
    group = await any_concert.group([tasks.send.call(1)])
    assert await group.callback.status() is JobStatus.UNKNOWN
    await tasks.drain()
    assert await progress(group) == (1, 1, 0, 0)


async def test_dead_member_holds_the_callback_until_it_was_replayed(any_concert: Coordinator, tasks: Tasks) -> None:
    """With `succeeded`; it runs once, also if the member is replayed twice."""
    group = await any_concert.group([tasks.send.call(1), tasks.fail.call()], then=tasks.report.call())
    await tasks.drain()
    assert (await progress(group), tasks.reports) == ((2, 1, 1, 0), 0)
    await any_concert.tasks.replay(group.member(1).id)
    assert (await group.progress()).left == 1
    await tasks.drain()
    assert (await progress(group), tasks.reports) == ((2, 1, 1, 0), 0)
    tasks.failing = False
    await any_concert.tasks.replay_all()
    await tasks.drain()
    assert (await progress(group), tasks.reports) == ((2, 2, 0, 0), 1)


async def test_callback_after_the_end_runs_once_though_members_are_replayed(
    any_concert: Coordinator, tasks: Tasks
) -> None:
    """With `ended`; the numbers still change."""
    group = await any_concert.group([tasks.fail.call()], then=tasks.report.call(), when="ended")
    await tasks.drain()
    assert await group.callback.result(timeout=WITHIN) == [0, 1, 0]
    tasks.failing = False
    await any_concert.tasks.replay_all()
    await tasks.drain()
    assert (await progress(group), tasks.reports) == ((1, 1, 0, 0), 1)


@pytest.mark.parametrize("when", ["succeeded", "ended"])
async def test_cancelled_member_has_ended_but_not_succeeded(any_concert: Coordinator, tasks: Tasks, when: Any) -> None:
    """With `succeeded` the callback is dead-lettered once the others have ended; replayed, it runs without that one."""
    group = await any_concert.group([tasks.send.call(1), tasks.send.call(2)], then=tasks.report.call(), when=when)
    assert await group.member(0).cancel()
    assert await group.callback.status() is JobStatus.WAITING
    await tasks.drain()
    if when == "succeeded":
        with pytest.raises(JobFailed, match="members that cannot succeed"):
            await group.callback.result(timeout=WITHIN)
        await any_concert.tasks.replay(group.callback.id)
        await tasks.drain()
    assert await group.callback.result(timeout=WITHIN) == [1, 0, 1]
    assert tasks.reports == 1


@pytest.mark.parametrize("when", ["succeeded", "ended"])
async def test_purged_member_counts_as_cancelled(any_concert: Coordinator, tasks: Tasks, when: Any) -> None:
    """It can no longer succeed, so nothing waits for it."""
    group = await any_concert.group([tasks.fail.call(), tasks.send.call(1)], then=tasks.report.call(), when=when)
    await tasks.drain()
    await any_concert.tasks.purge(group.member(0).id)
    assert await progress(group) == (2, 1, 0, 1)
    await tasks.drain()
    expected = JobStatus.FAILED if when == "succeeded" else JobStatus.SUCCEEDED
    assert (await group.callback.status(), tasks.reports) == (expected, int(when == "ended"))


async def test_member_cancelled_while_it_runs_is_counted_when_it_stops(any_concert: Coordinator, tasks: Tasks) -> None:
    """Once, and not before."""
    running = asyncio.Event()

    @any_concert.task(name="hang", queue="q")
    async def hang() -> None:
        running.set()
        await asyncio.Event().wait()

    group = await any_concert.group([hang.call(), tasks.send.call(1)], then=tasks.report.call(), when="ended")
    async with in_background(any_concert.run_worker("q", "r")):
        await running.wait()
        assert await group.member(0).cancel(timeout=WITHIN)
        assert await group.callback.result(timeout=WITHIN) == [1, 0, 1]


async def test_cancelled_group_runs_nothing_more(
    any_concert: Coordinator, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queued, delayed, waiting and running members, in portions; and the callback."""
    monkeypatch.setattr(group_module, "_MOST_CANCELLED", 3)
    running = asyncio.Event()

    @any_concert.task(name="hang", queue="other")
    async def hang() -> None:
        running.set()
        await asyncio.Event().wait()

    first = await tasks.send.options(delay=HOUR).enqueue(0)
    calls: list[Draft[Any]] = [hang.call(), *(tasks.send.call(number) for number in range(5))]
    calls += [tasks.send.options(delay=HOUR).call(5), tasks.send.options(after=[first]).call(6)]
    group = await any_concert.group(calls, then=tasks.report.options(delay=1).call())
    async with in_background(any_concert.run_worker("other")):
        await running.wait()
        assert await group.cancel() == 9
        await eventually(lambda: _is_done(group))
    assert await progress(group) == (8, 0, 0, 8)
    assert await group.callback.status() is JobStatus.CANCELLED
    assert await group.cancel() == 0
    with pytest.raises(GroupClosed):
        await group.add([tasks.send.call(9)])
    await first.cancel()
    await tasks.drain()
    assert (tasks.sent, tasks.reports) == ([], 0)
    stats = (await any_concert.tasks.stats()).queues
    assert _counts(stats["q"]) == _counts(stats["r"]) == (0, 0, 0, 0)


async def _is_done(group: Group) -> bool:
    return (await group.progress()).is_done


def _counts(queue: QueueStats) -> tuple[int, int, int, int]:
    return queue.ready, queue.delayed, queue.waiting, queue.running


async def test_open_group_can_be_cancelled_from_elsewhere(any_concert: Coordinator, tasks: Tasks) -> None:
    """As after the process died that was to close it: its id is in the ids of its jobs."""
    group = await any_concert.group(then=tasks.report.call())
    await group.add([tasks.send.call(1)])
    await tasks.drain()
    [waiting] = (await any_concert.tasks.jobs(state="waiting")).jobs
    assert (waiting.id, waiting.task, waiting.queue) == (group.callback.id, "report", "r")
    found = any_concert.tasks.group(group_of(waiting.id) or "")
    assert await found.cancel() == 1
    assert (await found.progress()).is_done
    assert await group.callback.status() is JobStatus.CANCELLED


async def test_cancelled_callback_does_not_run(any_concert: Coordinator, tasks: Tasks) -> None:
    """The members do."""
    group = await any_concert.group([tasks.send.call(1)], then=tasks.report.call())
    assert await group.callback.cancel()
    await tasks.drain()
    assert (tasks.sent, tasks.reports) == ([1], 0)
    assert (await group.progress()).is_done


async def test_callback_that_fails_is_retried_and_dead_lettered(any_concert: Coordinator, tasks: Tasks) -> None:
    """As any other job; its own end does not count."""
    group = await any_concert.group([tasks.send.call(1)], then=tasks.fail.call())
    await tasks.drain()
    assert await group.callback.status() is JobStatus.FAILED
    assert await progress(group) == (1, 1, 0, 0)
    tasks.failing = False
    await any_concert.tasks.replay(group.callback.id)
    await tasks.drain()
    assert await group.callback.status() is JobStatus.SUCCEEDED


async def test_delay_of_the_callback_counts_from_the_end(any_concert: Coordinator, tasks: Tasks) -> None:
    """It is delayed then, and can be promoted."""
    group = await any_concert.group([tasks.send.call(1)], then=tasks.report.options(delay=HOUR).call())
    assert await group.callback.status() is JobStatus.WAITING
    await tasks.drain()
    assert await group.callback.status() is JobStatus.DELAYED
    assert await any_concert.tasks.promote_all() == 1
    await tasks.drain()
    assert tasks.reports == 1


async def test_unique_member_that_another_job_stands_for_is_not_counted(any_concert: Coordinator, tasks: Tasks) -> None:
    """Its name is taken; the group does not wait for the other."""
    if len(any_concert._jobs.partitions) > 1:
        pytest.skip("names lie in other partitions")
    other = await tasks.send.options(unique="one", delay=HOUR).enqueue(0)
    group = await any_concert.group(then=tasks.report.call())
    calls = [tasks.send.options(unique=name).call(number) for number, name in enumerate(["one", "two", "two"])]
    assert await group.add(calls) == 1
    await group.close()
    await tasks.drain()
    assert await progress(group) == (1, 1, 0, 0)
    assert (tasks.sent, tasks.reports) == ([1], 1)
    assert await other.cancel()


async def test_member_runs_after_others(any_concert: Coordinator, tasks: Tasks) -> None:
    """Which may be members, too; one whose parent fails is dead-lettered, and counted."""
    group = await any_concert.group(then=tasks.report.call(), when="ended")
    await group.add([tasks.send.call(0), tasks.fail.call()])
    after_0, after_1 = ([group.member(number).id] for number in range(2))
    calls = [tasks.send.options(after=after_0, queue="other").call(2), tasks.send.options(after=after_1).call(3)]
    await group.add([*calls, tasks.send.options(after=["unknown.0"]).call(4)])
    await group.add([tasks.send.options(after=after_1, even_if="failed").call(5)])
    await group.close()
    assert await group.member(2).status() is JobStatus.WAITING
    assert await group.member(4).status() is JobStatus.FAILED
    await tasks.drain()
    assert (await progress(group), tasks.sent) == ((6, 2, 3, 0), [0, 5])
    await any_concert.run_worker("other", burst=True)
    await tasks.drain()
    assert (tasks.sent, tasks.reports) == ([0, 5, 2], 1)
    assert await group.callback.result(timeout=WITHIN) == [3, 3, 0]


async def test_member_that_is_replayed_with_its_parent_counts_again(any_concert: Coordinator, tasks: Tasks) -> None:
    """And the callback waits for it; one that dies of another parent at once has failed, as before."""
    parent, other = await tasks.fail.enqueue(), await tasks.fail.enqueue()
    calls = [tasks.send.options(after=[parent]).call(1), tasks.send.options(after=[parent, other]).call(2)]
    group = await any_concert.group(calls, then=tasks.report.call())
    await tasks.drain()
    assert (await group.progress()).failed == 2
    tasks.failing = False
    assert await any_concert.tasks.replay(parent.id, dependants=True) == [group.member(0).id]
    assert (await group.progress()).failed == 1
    await tasks.drain()
    assert (tasks.sent, (await group.progress()).succeeded) == ([1], 1)
    assert await any_concert.tasks.replay(other.id, dependants=True) == [group.member(1).id]
    await tasks.drain()
    assert (tasks.sent, tasks.reports) == ([1, 2], 1)


async def test_job_runs_after_a_callback(any_concert: Coordinator, tasks: Tasks) -> None:
    """Which is a job as any other."""
    group = await any_concert.group([tasks.send.call(0)], then=tasks.report.call())
    await tasks.send.options(after=[group.callback.id]).enqueue(1)
    await tasks.drain()
    assert tasks.sent == [0, 1]


async def test_paused_queue_delays_its_members_and_the_callback(any_concert: Coordinator, tasks: Tasks) -> None:
    """Nothing is lost meanwhile."""
    await any_concert.tasks.pause("q")
    group = await any_concert.group([tasks.send.call(0)], then=tasks.report.call())
    await tasks.drain()
    assert await progress(group) == (1, 0, 0, 0)
    await any_concert.tasks.pause("r")
    await any_concert.tasks.resume("q")
    await tasks.drain()
    assert (tasks.sent, await group.callback.status()) == ([0], JobStatus.QUEUED)
    await any_concert.tasks.resume("r")
    await tasks.drain()
    assert tasks.reports == 1


async def test_member_that_expires_has_failed(any_concert: Coordinator, tasks: Tasks) -> None:
    """It is dead-lettered instead of started."""
    calls = [tasks.send.options(expires=0).call(0), tasks.send.call(1)]
    group = await any_concert.group(calls, then=tasks.report.call(), when="ended")
    await tasks.drain()
    assert await group.callback.result(timeout=WITHIN) == [1, 1, 0]


async def test_member_that_is_retried_counts_once(any_concert: Coordinator, tasks: Tasks) -> None:
    """When its last attempt has ended."""

    @any_concert.task(name="flaky", queue="q", max_attempts=3, backoff=lambda _: 0)
    async def flaky() -> None:
        if current_job().attempt < 3:
            raise ValueError("not yet")

    group = await any_concert.group([flaky.call()], then=tasks.report.call())
    await tasks.drain()
    assert await group.callback.result(timeout=WITHIN) == [1, 0, 0]


async def test_member_delivered_at_most_once_counts_when_it_is_handed_out(
    any_concert: Coordinator, tasks: Tasks
) -> None:
    """It counts as done then."""
    group = await any_concert.group([tasks.send.call(0)], then=tasks.report.call())
    async with any_concert.consume("q", delivery="at_most_once") as jobs:
        job = await anext(jobs)
        assert job.group is not None
        assert job.group.id == group.id
        assert await progress(group) == (1, 1, 0, 0)
    await tasks.drain()
    assert tasks.reports == 1


async def test_member_that_enqueues_on_success_counts_once(any_concert: Coordinator, tasks: Tasks) -> None:
    """What follows it is not a member."""

    @any_concert.task(name="lead", queue="q")
    async def lead() -> None:
        current_job().enqueue_on_success(tasks.send.call(7))

    group = await any_concert.group([lead.call()], then=tasks.report.call())
    await tasks.drain()
    assert (await progress(group), tasks.sent, tasks.reports) == ((1, 1, 0, 0), [7], 1)


async def test_members_come_from_iterators(any_concert: Coordinator, tasks: Tasks) -> None:
    """Plain and async; in several portions, scripts and queues, numbered in their order."""

    def plain() -> Iterator[Draft[Any]]:
        for number in range(700):
            yield tasks.send.options(queue="q" if number % 3 else "other", delay=HOUR * (number % 7 == 0)).call(number)

    async def slow() -> AsyncGenerator[Draft[Any]]:
        for number in range(700, 1_300):
            await asyncio.sleep(0)
            yield tasks.send.call(number)

    group = await any_concert.group(then=tasks.report.call())
    assert await group.add(plain()) == 700
    assert await group.add(slow()) == 600
    await group.close()
    await any_concert.tasks.promote_all()
    await any_concert.run_worker("q", "other", "r", burst=True)
    assert (sorted(tasks.sent), tasks.reports) == (list(range(1_300)), 1)
    assert [await group.member(number).result() for number in (0, 499, 500, 1_299)] == [0, 499, 500, 1_299]


async def test_large_calls_go_in_several_scripts(
    any_concert: Coordinator, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their bytes as by their number."""
    monkeypatch.setattr(group_module, "_MOST_BYTES", 1_000)
    monkeypatch.setattr(group_module, "_MOST_BYTES_AT_ONCE", 3_000)
    many = any_concert.task(name="many", queue="q")(_takes)
    calls = (many.call("x" * 400) for _ in range(20))
    group = await any_concert.group(calls, then=tasks.report.call())
    await tasks.drain()
    assert (await progress(group), tasks.reports) == ((20, 20, 0, 0), 1)


async def _takes(text: str) -> None:
    del text


async def test_several_add_at_the_same_time(
    any_concert: Coordinator, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job is added once, though they contend for numbers."""
    monkeypatch.setattr(group_module, "_MOST", 4)
    group = await any_concert.group(then=tasks.report.call())
    other = any_concert.tasks.group(group.id)
    portions = [[tasks.send.call(10 * n + i) for i in range(10)] for n in range(6)]
    added = await asyncio.gather(*((group, other)[n % 2].add(calls) for n, calls in enumerate(portions)))
    assert added == [10] * 6
    await group.close()
    await tasks.drain()
    assert (sorted(tasks.sent), tasks.reports) == (list(range(60)), 1)


async def test_adding_goes_on_where_it_stopped(
    any_concert: Coordinator, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all calls again, and `start=0`: those that are there are passed over."""
    monkeypatch.setattr(group_module, "_MOST", 2)
    monkeypatch.setattr(group_module, "_MOST_AT_ONCE", 4)
    calls = [tasks.send.call(number) for number in range(10)]

    def broken() -> Iterator[Draft[Any]]:
        yield from calls[:5]
        raise OSError("the file is gone")

    with pytest.raises(OSError, match="the file is gone") as raised:
        await any_concert.group(broken(), then=tasks.report.call())
    [note] = raised.value.__notes__
    group = any_concert.tasks.group(note.split()[1])
    assert (await progress(group))[0] == 4
    await tasks.drain()
    assert (sorted(tasks.sent), tasks.reports) == ([0, 1, 2, 3], 0)
    assert await group.add(calls, start=0) == 6
    assert await group.add(calls, start=0) == 0
    assert await group.add(calls[3:], start=3) == 0
    with pytest.raises(ValueError, match="has given 10 numbers"):
        await group.add(calls, start=11)
    await group.close()
    assert await group.add(calls, start=0) == 0
    await tasks.drain()
    assert (sorted(tasks.sent), tasks.reports) == (list(range(10)), 1)


async def test_bad_input_is_refused_before_anything_is_sent(any_concert: Coordinator, tasks: Tasks) -> None:
    """With what is so, and what to do."""
    group_of_any: Any = any_concert.group
    with pytest.raises(TypeError, match=r"give task.call"):
        await group_of_any([tasks.send.call(1), tasks.send])
    with pytest.raises(TypeError, match=r"then is .*give task.call"):
        await group_of_any([], then=tasks.report)
    with pytest.raises(ValueError, match="when is 'done'"):
        await group_of_any([], then=tasks.report.call(), when="done")
    refused = tasks.report.options
    at = datetime.now(UTC) + timedelta(hours=1)  # how long that is would count from the end of the group
    for unlike in (refused(unique="u"), refused(after=["a.0"]), refused(at=at)):
        with pytest.raises(ValueError, match="the callback of a group cannot have"):
            await any_concert.group([], then=unlike.call())
    assert await any_concert.tasks.queues() == []
    group = await any_concert.group()
    with pytest.raises(ValueError, match="after the callback of its own group"):
        await group.add([tasks.send.call(1), tasks.send.options(after=[group.callback]).call(2)])
    assert await progress(group) == (0, 0, 0, 0)
    for start in (-1, 1.5, True):
        with pytest.raises(ValueError, match="start"):
            await group.add([], start=start)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="number"):
        group.member(-1)
    for name in ("", "a b", group.member(0).id, group.callback.id, "nonsense"):
        with pytest.raises(InvalidName):
            any_concert.tasks.group(name)
    await group.cancel()


async def test_unknown_group_is_not_found(any_concert: Coordinator, tasks: Tasks) -> None:
    """By any of its verbs."""
    group = any_concert.tasks.group("nobody.15.0")
    for verb in (group.progress, group.close, group.cancel):
        with pytest.raises(GroupNotFound, match=r"nobody\.15\.0"):
            await verb()
    for start in (None, 0):
        with pytest.raises(GroupNotFound):
            await group.add([tasks.send.call(1)], start=start)


async def test_job_says_of_which_group_it_is(any_concert: Coordinator, tasks: Tasks) -> None:
    """Members and the callback; other jobs say None."""
    group = await any_concert.group([tasks.send.call(1)], then=tasks.report.call())
    await tasks.send.enqueue(2)
    seen: dict[str, str | None] = {}
    async with any_concert.consume("q", "r") as jobs:
        async for job in jobs:
            async with job:
                seen[f"{job.name} {list(job.args)}"] = None if job.group is None else job.group.id
            if len(seen) == 3:
                break
    assert list(seen.values()).count(group.id) == 2
    assert seen["send [2]"] is None


async def test_group_is_kept_while_its_callback_has_not_been_passed_on(any_concert: Coordinator, tasks: Tasks) -> None:
    """If no worker ran for a day: the sweeper comes before the relay."""
    group = await any_concert.group([tasks.send.call(1)], then=tasks.report.call())
    keys = any_concert._jobs.of_id(group.id)
    client: Any = raw(any_concert)
    async with any_concert.consume("q") as jobs:
        await anext(jobs)  # its end is not passed on: nobody runs
        [claim] = [one async for one in client.scan_iter(match=f"*{any_concert._ref.keys.namespace}*claimed:*")]
        job = group.member(0).id
        place = (await client.hget(claim, job)).split()[0]
        await _end(any_concert, claim.rpartition(b"claimed:")[2].decode(), job, int(place))
        await client.zadd(keys.settled, {group.id: 1})
        assert await any_concert._ref.session.run(SWEEP_GROUPS(keys)) == 1
        assert (await group.progress()).is_done
    await tasks.drain()
    assert tasks.reports == 1


async def _end(concert: Coordinator, worker: str, job: str, position: int) -> None:
    """As its worker does, which dies right after it."""
    from inconcert.tasks.records.store import ACK_WITH_PLUGS

    keys = concert._jobs.of_id(job)
    end = (job, position, "succeeded 1", 0, "")
    inboxes = concert._ref.session.inboxes(keys.bodies)
    command = ACK_WITH_PLUGS(
        keys,
        claimed=keys.claimed(worker),
        results=keys.results([job]),
        inboxes=inboxes,
        worker=worker,
        histories="",
        failed="",
        jobs=end,
    )
    assert await concert._ref.session.run(command) == [2]


async def test_observers_are_told_of_members_and_callbacks(any_concert: Coordinator, tasks: Tasks) -> None:
    """As of any other job."""
    told: list[tuple[str, str]] = []

    class Telling(Observer):
        def job_enqueued(self, task: str, queue: str) -> None:
            told.append((task, queue))

    any_concert._ref.session.observers.append(Telling())
    await any_concert.group([tasks.send.call(1), tasks.fail.call()], then=tasks.report.call(), when="ended")
    assert sorted(told) == [("fail", "q"), ("report", "r"), ("send", "q")]
    await tasks.drain()


async def test_group_lies_in_one_partition(spread: Coordinator) -> None:
    """Its members, its callback and its numbers; groups are spread."""
    tasks = Tasks(spread)
    partitions: set[int] = set()
    for _ in range(12):
        parents = [await tasks.send.enqueue(0) for _ in range(3)]
        calls = [tasks.send.call(1), tasks.send.options(after=parents).call(2)]
        group = await spread.group(calls, then=tasks.report.call())
        ids = [group.id, group.callback.id, group.member(0).id, group.member(1).id]
        [keys] = {spread._jobs.of_id(id_) for id_ in ids}
        partitions.add(keys.number)
    await tasks.drain()
    assert len(partitions) > 1
    assert (tasks.reports, len(tasks.sent)) == (12, 60)
    with pytest.raises(ValueError, match="3 partitions"):
        await spread.group([tasks.send.options(unique="u").call(1)])


async def test_callback_of_another_partition_runs_after_jobs_of_many(spread: Coordinator) -> None:
    """A failed parent elsewhere fails a member, and so the callback of `succeeded` waits."""
    tasks = Tasks(spread)
    parents = [await tasks.fail.enqueue() for _ in range(6)]
    group = await spread.group(
        [tasks.send.options(after=[parent]).call(1) for parent in parents], then=tasks.report.call(), when="ended"
    )
    await tasks.drain()
    assert await group.callback.result(timeout=WITHIN) == [0, 6, 0]


def test_ids_of_a_group_sort_by_number_and_say_their_group() -> None:
    """And no other id is taken for one."""
    numbers = [0, 9, 10, 99, 100, 1_000_000]
    ids = [member_id("abc.15.0", number) for number in numbers]
    assert ids == sorted(ids)
    assert ids[0] == "abc.15~10.0"
    assert {group_of(id_) for id_ in ids} == {"abc.15.0"}
    assert group_of(callback_id("abc.15.0")) == "abc.15.0"
    assert is_callback(callback_id("abc.15.0"))
    assert not any(is_callback(id_) for id_ in ids)
    for other in ("abc.15.0", "a~b.c@1700000000000", "x~10.0@1700000000000", "~10.0", "a~10", "a~.0", "a~then"):
        assert group_of(other) is None


async def test_cancelling_a_member_that_has_ended_counts_nothing(any_concert: Coordinator, tasks: Tasks) -> None:
    """Nor does cancelling it twice."""
    group = await any_concert.group([tasks.send.call(1), tasks.send.call(2)], then=tasks.report.call(), when="ended")
    assert await group.member(0).cancel()
    await group.member(0).cancel()
    assert await progress(group) == (2, 0, 0, 1)
    await tasks.drain()
    await group.member(1).cancel()
    assert await progress(group) == (2, 1, 0, 1)
    with pytest.raises(JobCancelled):
        await group.member(0).result(timeout=WITHIN)
