"""What happens to steps, sleeps, messages, undoing, streams and all else that jobs have, by what happens to jobs.

The cells of docs/explanation/what-happens.md for which no other test stands; `tests/unit/test_cells.py` has all.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from inconcert import (
    ClaimedJob,
    Coordinator,
    JobExpired,
    JobFailed,
    JobStatus,
    NotClaimed,
    Retry,
    durable,
)
from inconcert.tasks.durable.body_exits import Asleep
from tests.conftest import nothing_is_left
from tests.support.clusters import RealCluster
from tests.support.durable import kept
from tests.support.jobs import lapse_all, let_expire
from tests.support.ledger import ledger_of
from tests.support.servers import RealServer
from tests.support.stories import (
    HOUR,
    LIMIT,
    STORIES,
    WITHIN,
    AttemptsStory,
    DeadlineStory,
    DebounceStory,
    FollowUpStory,
    GroupStory,
    HistoryStory,
    NewestStory,
    OnDeadStory,
    OrderStory,
    OverlapStory,
    OwnIdStory,
    PriorityStory,
    SleepStory,
    Story,
    UndoStory,
)
from tests.support.world import world


def stories(*without: str) -> pytest.MarkDecorator:
    """Run a test for each feature but these."""
    return pytest.mark.parametrize("feature", [feature for feature in STORIES if feature not in without])


# Where it runs.


async def tell(story: Story) -> None:
    """From its beginning to its end."""
    await story.begin()
    await story.go_on()
    await story.run()
    await story.check()


@stories()
async def test_all_works_under_signing(server: RealServer | RealCluster, namespace: str, feature: str) -> None:
    """Steps, messages, items, members and jobs that follow are signed, and read again."""
    keys = {"now": "a secret of the service"}
    async with Coordinator(server.url, namespace=namespace, signing_keys=keys) as signing:
        await tell(STORIES[feature](signing))
    await nothing_is_left(server, namespace)


@stories()
async def test_all_works_in_partitions(server: RealServer | RealCluster, namespace: str, feature: str) -> None:
    """What belongs to a job lies in its partition."""
    async with Coordinator(server.url, namespace=namespace, partitions=3) as spread:
        await tell(STORIES[feature](spread))
    await nothing_is_left(server, namespace)


@pytest.mark.skipif(world().server == "redis6", reason="a cluster needs Redis 7.0 or newer")
@stories()
async def test_all_works_on_a_cluster(cluster: RealCluster, namespace: str, feature: str) -> None:
    """With the partitions that it has there."""
    async with Coordinator(cluster.url, namespace=namespace) as opened:
        await tell(STORIES[feature](opened))
    await nothing_is_left(cluster, namespace)


# What happens to its queue, its name, and to others.


@stories()
async def test_paused_queue_keeps_it_until_it_is_resumed(any_concert: Coordinator, feature: str) -> None:
    """What lets it go on may happen meanwhile."""
    story = STORIES[feature](any_concert)
    await story.begin()
    did = list(story.did)
    await any_concert.tasks.pause("default")
    await story.go_on()
    await story.run()
    assert (story.did, await story.job.status()) == (did, JobStatus.QUEUED)
    await any_concert.tasks.resume("default")
    await story.run()
    await story.check()


@stories("own ids", "overlap")  # whose jobs cannot have one
async def test_unique_name_is_taken_until_it_has_ended(any_concert: Coordinator, feature: str) -> None:
    """Also while it is away from its worker, and while it is undone; then another one begins anew."""
    if feature == "groups" and len(any_concert._jobs.partitions) > 1:
        pytest.skip("names lie in other partitions")
    story = STORIES[feature](any_concert)
    await story.begin(unique="one")
    again = story.task.options(unique="one", delay=HOUR)
    for let in (anyio.lowlevel.checkpoint, story.go_on):
        await let()
        same = await again.enqueue()
        assert (same.id, same.created) == (story.job.id, False)
    await story.run()
    await story.check()
    another = await again.enqueue()
    assert (another.id != story.job.id, another.created) == (True, True)
    assert await another.cancel()


@stories()
async def test_job_after_it_runs_once_it_has_ended(any_concert: Coordinator, feature: str) -> None:
    """Not while it is away from its worker, and not before it is undone."""
    story = STORIES[feature](any_concert)
    await story.begin()
    after = await story.note_task.options(after=[story.job], even_if="ended").enqueue("after")
    await story.run()
    assert await after.status() is JobStatus.WAITING
    await story.go_on()
    assert await after.status() is JobStatus.WAITING
    await story.run()
    assert await after.status() is JobStatus.SUCCEEDED
    assert story.did.index("after") > story.did.index(story.done[-1 if feature == "undo" else 0])
    story.did.remove("after")
    await story.check()


# Time.


@stories("undo")
async def test_job_that_expires_at_rest_is_dead_until_it_is_replayed(any_concert: Coordinator, feature: str) -> None:
    """What was kept, sent or given to it is there for the replay."""
    story = STORIES[feature](any_concert)
    job = await story.begin(expires=HOUR)
    did = list(story.did)
    await let_expire(any_concert, job)
    await story.go_on()
    await story.run()
    with pytest.raises(JobFailed, match="JobExpired"):
        await job.result(timeout=WITHIN)
    assert story.did == did + story.after_death
    await any_concert.tasks.replay(job.id)
    await story.run()
    if feature == "groups":
        assert sorted(story.did) == ["callback", "member", "other"]
    else:
        await story.check()


async def finish(story: Story) -> None:
    """Run it to its end, however slow the machine is."""
    await story.go_on()
    await story.run()
    while await story.job.reschedule(delay=0):
        await story.run()


@stories("undo")
async def test_attempt_that_takes_too_long_fails(any_concert: Coordinator, feature: str) -> None:
    """The next one goes on with what was kept; time away from the worker does not count."""
    story = STORIES[feature](any_concert)
    await story.begin(time_limit=LIMIT)
    await anyio.sleep(LIMIT)
    await finish(story)
    await story.check()


async def test_sleep_in_memory_counts_against_the_time_limit(any_concert: Coordinator) -> None:
    """The next attempt sleeps for the rest."""
    story = SleepStory(any_concert)
    story.in_memory_below = 2 * HOUR
    job = await story.begin(time_limit=LIMIT)
    assert (await ledger_of(any_concert)).failures[job.id] >= 1
    await finish(story)
    await story.check()


# Its worker is presumed dead, and does not know it yet.


@asynccontextmanager
async def twins(concert: Coordinator, elsewhere: Coordinator) -> AsyncGenerator[tuple[ClaimedJob, ClaimedJob]]:
    """The only job, as the late worker has it, and as the next one has."""
    async with concert.consume("default") as stopped, elsewhere.consume("default") as jobs:
        late = await anext(stopped)
        await lapse_all(concert)
        again = await anext(jobs)
        assert again.id == late.id
        yield late, again


async def test_late_twin_does_not_send_the_job_to_sleep(concert: Coordinator, elsewhere: Coordinator) -> None:
    """Neither by a sleep that it begins, nor by one that it goes on with."""
    job = await concert.enqueue("t")
    async with twins(concert, elsewhere) as (late, again):
        async with late:
            with pytest.raises(NotClaimed):
                await durable.sleep("nap", HOUR)
            raise Asleep(HOUR)
        assert await kept(concert) == {}
        assert await job.status() is JobStatus.RUNNING
        async with again:
            await durable.sleep("nap", 0)
    assert await job.status() is JobStatus.SUCCEEDED


async def test_late_twin_undoes_nothing(concert: Coordinator, elsewhere: Coordinator) -> None:
    """Its failure does not count: the next one goes on behind the same step."""
    job = await concert.enqueue("t", max_attempts=1)
    story = UndoStory(concert)
    async with twins(concert, elsewhere) as (late, again):
        async with late:
            with pytest.raises(NotClaimed):
                async with durable.undo():
                    raise AssertionError("it was entered")
            raise ValueError("sold out")
        assert await job.status() is JobStatus.RUNNING
        async with again, durable.undo() as undo:
            await durable.step("pay", story.note, "paid")
            undo.later("refund", story.note, "refunded")
    assert (story.did, await job.status()) == (["paid"], JobStatus.SUCCEEDED)


async def test_late_twin_of_a_member_does_not_count(concert: Coordinator, elsewhere: Coordinator) -> None:
    """The callback is started once."""
    story = GroupStory(concert)
    group = await concert.group([story.task.call()], then=story.note_task.call("callback"))
    async with twins(concert, elsewhere) as (late, again):
        async with late:
            pass
        assert (await group.progress()).succeeded == 0
        assert await group.callback.status() is JobStatus.WAITING
        async with again:
            pass
        assert (await group.progress()).succeeded == 1
    await story.run()
    assert story.did == ["callback"]


async def test_late_twin_adds_no_job_that_follows(concert: Coordinator, elsewhere: Coordinator) -> None:
    """The next one adds its own."""
    story = FollowUpStory(concert)
    await concert.enqueue("t")
    async with twins(concert, elsewhere) as (late, again):
        for job in (late, again):
            async with job:
                job.enqueue_on_success(story.note_task.call("late" if job is late else "again"))
    await story.run()
    assert story.did == ["again"]


@pytest.mark.parametrize("feature", ["limits", "shared limits"])
async def test_late_twin_frees_no_place(concert: Coordinator, elsewhere: Coordinator, feature: str) -> None:
    """The place belongs to the next claim, until that ends."""
    story = STORIES[feature](concert)
    story.has_rested = True
    await story.task.enqueue()
    async with twins(concert, elsewhere) as (late, again):
        second = await story.task.enqueue()
        async with late:
            pass
        await concert.run_worker("default", burst=True)
        assert await second.status() is JobStatus.DELAYED
        async with again:
            pass
    await story.run()
    assert (story.did, await second.status()) == (["ran"], JobStatus.SUCCEEDED)


async def test_late_twin_passes_no_turn_on(concert: Coordinator, elsewhere: Coordinator) -> None:
    """It belongs to the next claim, until that ends."""
    story = OrderStory(concert)
    story.has_rested = True
    await story.task.enqueue()
    async with twins(concert, elsewhere) as (late, again):
        second = await story.task.enqueue()
        async with late:
            pass
        await concert.run_worker("default", burst=True)
        assert await second.status() is JobStatus.DELAYED
        async with again:
            pass
    await story.run()
    assert (story.did, await second.status()) == (["ran"], JobStatus.SUCCEEDED)


async def test_late_twin_has_nothing_to_do_with_later_calls(concert: Coordinator, elsewhere: Coordinator) -> None:
    """Its end does not count, and they are in another job."""
    story = DebounceStory(concert)
    first = await story.call("first", debounce=0.001)
    async with twins(concert, elsewhere) as (late, again):
        last = await story.call("last")
        async with late:
            pass
        assert (await first.status(), await last.status()) == (JobStatus.RUNNING, JobStatus.DELAYED)
        async with again:
            pass
    assert (await first.status(), await last.status()) == (JobStatus.SUCCEEDED, JobStatus.DELAYED)
    assert (again.args, last.created) == (["first"], True)
    await last.reschedule(delay=0)
    await story.run()
    assert story.did == ["last"]


async def test_late_twin_does_not_start_the_newest(concert: Coordinator, elsewhere: Coordinator) -> None:
    """It waits for the worker that has the old one now, and that is told to stop."""
    story = NewestStory(concert)
    first = await story.call("first")
    async with twins(concert, elsewhere) as (late, again):
        last = await story.call("last")
        async with late:
            pass
        assert (await first.status(), await last.status()) == (JobStatus.RUNNING, JobStatus.WAITING)
        async with again:
            await anyio.sleep_forever()
        assert again.is_cancelled
    assert await first.status() is JobStatus.CANCELLED
    await story.run()
    assert story.did == ["last"]


async def test_late_twin_adds_no_entry(concert: Coordinator, elsewhere: Coordinator) -> None:
    """The end of the next one does."""
    story = HistoryStory(concert)
    job = await story.task.enqueue()
    async with twins(concert, elsewhere) as (late, again):
        async with late:
            pass
        assert await story.task.history() == []
        async with again:
            pass
    [ended] = await story.task.history()
    assert (ended.job_id, ended.outcome) == (job.id, "succeeded")


async def test_late_twin_does_not_die(concert: Coordinator, elsewhere: Coordinator) -> None:
    """Its failure is not told; that of the next one is."""
    story = OnDeadStory(concert)
    job = await story.task.options(max_attempts=1).enqueue()
    async with twins(concert, elsewhere) as (late, again):
        async with late:
            raise ValueError("late")
        await story.run()
        assert story.told == []
        async with again:
            raise ValueError("again")
    await story.run()
    assert [(each.id, each.reason) for each in story.told] == [(job.id, "ValueError: again")]


async def test_late_twin_puts_no_job_back(concert: Coordinator, elsewhere: Coordinator) -> None:
    """Its failure does not count: there is one of the job."""
    story = PriorityStory(concert)
    job = await story.task.enqueue()
    async with twins(concert, elsewhere) as (late, again):
        async with late:
            raise Retry(after=0)
        assert await job.status() is JobStatus.RUNNING
        async with again:
            pass
    await story.run()
    assert (story.did, await job.status()) == ([], JobStatus.SUCCEEDED)


async def test_late_twin_frees_no_id(concert: Coordinator, elsewhere: Coordinator) -> None:
    """It is taken until the next one has ended, here at once, as no result is kept."""
    story = OwnIdStory(concert)
    options = story.task.options(id="one", result_ttl=0)
    await options.enqueue()
    async with twins(concert, elsewhere) as (late, again):
        async with late:
            pass
        assert not (await options.enqueue()).created
        async with again:
            pass
    job = await options.enqueue()
    assert (job.id, job.created) == ("one", True)
    assert await job.cancel()


async def test_late_twin_does_not_end_at_its_deadline(concert: Coordinator, elsewhere: Coordinator) -> None:
    """That it came to it does not count."""
    story = DeadlineStory(concert)
    job = await story.task.enqueue()
    async with twins(concert, elsewhere) as (late, again):
        async with late:
            late._state.final = error = JobExpired(late.id, 2 * HOUR, is_deadline=True)
            raise error
        assert await job.status() is JobStatus.RUNNING
        async with again:
            assert again.time_limit == 2 * HOUR
    assert await job.status() is JobStatus.SUCCEEDED


async def test_late_twin_lets_no_instant_run(concert: Coordinator, elsewhere: Coordinator) -> None:
    """The job that waits for it waits for the next claim."""
    story = OverlapStory(concert)
    story.has_rested = True
    await story.let_instants_come()
    async with twins(concert, elsewhere) as (late, again):
        assert late.id == story.job.id
        async with late:
            pass
        await story.run()
        assert (await story.job.status(), await story.kept.status()) == (JobStatus.RUNNING, JobStatus.WAITING)
        async with again:
            pass
    await story.run()
    assert (story.did, await story.kept.status()) == (["ran"], JobStatus.SUCCEEDED)
    await concert.schedules.delete("s")


async def test_late_twin_has_no_attempt(concert: Coordinator, elsewhere: Coordinator) -> None:
    """Its failure is not noted; that its worker was lost is, once."""
    story = AttemptsStory(concert)
    job = await story.task.enqueue()
    async with twins(concert, elsewhere) as (late, again):
        async with late:
            raise ValueError("late")
        assert [attempt.failure for attempt in await job.attempts()] == ["worker_died"]
        async with again:
            raise ValueError("again")
    found = await job.attempts()
    assert [(attempt.number, attempt.error) for attempt in found] == [(1, ""), (2, "ValueError: again")]
