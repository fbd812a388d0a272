"""What happens to steps, sleeps, messages, undoing, streams and all else that jobs have, by what happens to jobs.

The cells of docs/explanation/what-happens.md for which no other test stands; `tests/unit/test_cells.py` has all.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import anyio
import pytest

from inconcert import (
    ClaimedJob,
    Coordinator,
    DeadJob,
    Draft,
    Group,
    Job,
    JobCancelled,
    JobFailed,
    JobStatus,
    Limit,
    NotClaimed,
    Retry,
    Task,
    current_job,
    durable,
)
from inconcert.tasks.durable.body_exits import Asleep
from inconcert.tasks.durable.kept_step import STEP
from tests.conftest import nothing_is_left
from tests.support.clusters import RealCluster
from tests.support.durable import awaits, kept
from tests.support.jobs import lapse_all, let_expire
from tests.support.ledger import ledger_of
from tests.support.raw import raw
from tests.support.servers import RealServer
from tests.support.streams import followed
from tests.support.world import world

HOUR = 3600.0
LIMIT = 0.1  # seconds, of an attempt that hangs
WITHIN = 10.0  # seconds
NEVER = 1000  # attempts, where time limits may end some on a busy machine


class Story:
    """A job that comes to rest once, and ends after something has let it go on.

    Attributes:
        feature: As the page names it.
        done: What it has done outside in the end, in order.
        did: What it has done so far.
        of_task: The options of its task.
    """

    feature: ClassVar[str]
    done: ClassVar[list[str]]
    of_task: ClassVar[dict[str, Any]] = {}

    def __init__(self, concert: Coordinator) -> None:
        self.concert = concert
        self.did: list[str] = []
        self.has_rested = False
        self.job: Job[Any]
        self.task: Task[[], Any] = concert.task(
            name="story", max_attempts=NEVER, backoff=lambda _: HOUR, **self.of_task
        )(self.body())

        @concert.task(name="note")
        async def note(text: str) -> None:
            await self.note(text)

        self.note_task: Task[[str], Any] = note

    def body(self) -> Any:
        """The function of the task."""
        raise NotImplementedError

    async def begin(self, **options: Any) -> Job[Any]:
        """Enqueue it, and run it until it rests."""
        self.job = await self.task.options(**options).enqueue()
        await self.run()
        while not await self.is_at_rest():  # its time limit came sooner
            await self.job.reschedule(delay=0)
            await self.run()
        assert await self.job.status() is JobStatus.DELAYED
        return self.job

    async def is_at_rest(self) -> bool:
        """Whether it has come so far."""
        return self.has_rested

    async def go_on(self) -> None:
        """Let happen what it waits for."""
        assert await self.job.reschedule(delay=0)

    async def run(self) -> None:
        """Run all that can run."""
        await self.concert.run_worker("default", burst=True)

    async def check(self) -> None:
        """It has ended as it was to end."""
        assert await self.job.status() is JobStatus.SUCCEEDED
        assert self.did == self.done

    @property
    def last(self) -> Job[Any]:
        """The job that ends last."""
        return self.job

    async def note(self, text: str) -> None:
        """Do something outside."""
        self.did.append(text)

    async def rest(self) -> None:
        """Of a body: the first attempt ends here; one with a time limit hangs until then."""
        if not self.has_rested:
            self.has_rested = True
            if current_job().time_limit is not None:
                await anyio.sleep_forever()
            raise Retry(after=HOUR)


class StepsStory(Story):
    """Two steps, with a loop and a failure between them."""

    feature = "steps"
    done: ClassVar = ["paid", "one", "two", "shipped"]

    def body(self) -> Any:
        """The function of the task."""

        async def story() -> None:
            await durable.step("pay", self.note, "paid")
            async for line in durable.each("lines", ["one", "two"], key=str):
                await self.note(line)
            await self.rest()
            await durable.step("ship", self.note, "shipped")

        return story


class SleepStory(Story):
    """A long sleep; in memory, if there is a time limit that is to end it."""

    feature = "sleep"
    done: ClassVar = ["slept"]
    in_memory_below = 0.0

    def body(self) -> Any:
        """The function of the task."""

        async def story() -> None:
            await durable.sleep("nap", HOUR, in_memory_below=self.in_memory_below)
            await self.note("slept")

        return story

    async def is_at_rest(self) -> bool:
        """Whether it is known when the sleep ends."""
        return bool(await kept(self.concert))

    async def go_on(self) -> None:
        """The sleep has ended."""
        keys, session = self.concert._jobs.of_id(self.job.id), self.concert._ref.session
        client: Any = raw(self.concert)
        [(field, text)] = (await kept(self.concert)).items()
        name, function, arguments, _ = json.loads(session.key_ring.verify(STEP, field.decode(), text))
        ended = json.dumps([name, function, arguments, 1.0]).encode()
        await client.hset(keys.steps, field, session.key_ring.sign(STEP, field.decode(), ended))
        await super().go_on()


class MessageStory(Story):
    """A wait for a message."""

    feature = "messages"
    done: ClassVar = ["packed"]

    def body(self) -> Any:
        """The function of the task."""

        async def story() -> None:
            await self.note(await durable.wait_for("word", str, timeout=HOUR))

        return story

    async def is_at_rest(self) -> bool:
        """Whether it has left to wait."""
        return await awaits(self.concert, self.job.id)

    async def go_on(self) -> None:
        """It is sent."""
        assert await self.job.send("word", "packed")


class UndoStory(Story):
    """Something that is undone, because the job is cancelled."""

    feature = "undo"
    done: ClassVar = ["paid", "refunded"]

    def body(self) -> Any:
        """The function of the task."""

        async def story() -> None:
            async with durable.undo() as undo:
                await durable.step("pay", self.note, "paid")
                undo.later("refund", self.note, "refunded")
                await self.rest()

        return story

    async def go_on(self) -> None:
        """It is cancelled."""
        assert not await self.job.cancel(timeout=0)

    async def check(self) -> None:
        """It has ended as it was to end."""
        with pytest.raises(JobCancelled):
            await self.job.result(timeout=WITHIN)
        assert self.did == self.done


class StreamStory(Story):
    """Two items, with a failure between them."""

    feature = "streams"
    done: ClassVar = ["ended"]

    def body(self) -> Any:
        """The function of the task."""

        async def story() -> AsyncIterator[str]:
            yield "one"
            await self.rest()
            yield "two"
            await self.note("ended")

        return story

    async def check(self) -> None:
        """It has ended as it was to end."""
        await super().check()
        assert await followed(self.job) == ["one", "two"]


class GroupStory(Story):
    """A member that fails once, another one, and the callback."""

    feature = "groups"
    done: ClassVar = ["member", "other", "callback"]
    group: Group

    def body(self) -> Any:
        """The function of the task."""

        async def story() -> None:
            await self.rest()
            await self.note("member")

        return story

    async def begin(self, **options: Any) -> Job[Any]:
        """Open the group, and run it until its member rests."""
        calls: list[Draft[Any]] = [self.task.options(**options).call(), self.note_task.call("other")]
        self.group = await self.concert.group(calls, then=self.note_task.call("callback"), when="ended")
        self.job = self.group.member(0)
        await self.run()
        assert [await job.status() for job in (self.job, self.last)] == [JobStatus.DELAYED, JobStatus.WAITING]
        return self.job

    async def check(self) -> None:
        """It has ended as it was to end."""
        assert await self.last.status() is JobStatus.SUCCEEDED
        assert (sorted(self.did), self.did[-1]) == (["callback", "member", "other"], "callback")
        seen = await self.group.progress()
        assert (seen.total, seen.succeeded) == (2, 2)

    @property
    def last(self) -> Job[Any]:
        """The callback."""
        return self.group.callback


class FollowUpStory(Story):
    """A job that is added when this one succeeds."""

    feature = "follow-ups"
    done: ClassVar = ["ended", "followed"]
    follower: str

    def body(self) -> Any:
        """The function of the task."""

        async def story() -> None:
            [self.follower] = current_job().enqueue_on_success(self.note_task.call("followed"))
            await self.rest()
            await self.note("ended")

        return story

    async def check(self) -> None:
        """It has ended as it was to end."""
        await super().check()
        assert await self.last.status() is JobStatus.SUCCEEDED
        assert self.concert._jobs.of_id(self.follower) is self.concert._jobs.of_id(self.job.id)

    @property
    def last(self) -> Job[Any]:
        """The one that follows."""
        return self.concert.tasks.job(self.follower)


class LimitsStory(Story):
    """Two jobs of a key that has one place, and a turn: the other runs while the first rests."""

    feature = "limits"
    done: ClassVar = ["ran", "ran"]
    of_task: ClassVar = {"limit": Limit(1), "key": lambda: "acme", "key_limit": 1, "share": True}

    def body(self) -> Any:
        """The function of the task."""

        async def story() -> None:
            await self.rest()
            await self.note("ran")

        return story

    async def begin(self, **options: Any) -> Job[Any]:
        """Enqueue both, and run the other while the first rests."""
        job = await self.task.options(**options).enqueue()
        other = await self.task.enqueue()
        assert await other.status() is JobStatus.DELAYED  # it waits for its turn
        self.job = job
        await self.run()
        while not await self.is_at_rest():
            await self.job.reschedule(delay=0)
            await self.run()
        assert self.did == ["ran"]
        return job

    async def is_at_rest(self) -> bool:
        """Whether the other has run."""
        return self.did == ["ran"]


class OrderStory(Story):
    """Two jobs of a key in strict order: the other waits while the first rests."""

    feature = "order"
    done: ClassVar = ["ran", "ran"]
    of_task: ClassVar = {"key": lambda: "acme", "key_order": "strict"}
    other: Job[Any]

    def body(self) -> Any:
        """The function of the task."""

        async def story() -> None:
            await self.rest()
            await self.note("ran")

        return story

    async def begin(self, **options: Any) -> Job[Any]:
        """Enqueue both, and run the first until it rests."""
        job = await self.task.options(**options).enqueue()
        self.other = await self.task.enqueue()
        self.job = job
        await self.run()
        while not await self.is_at_rest():
            await self.job.reschedule(delay=0)
            await self.run()
        assert await job.status() is await self.other.status() is JobStatus.DELAYED
        return job

    @property
    def last(self) -> Job[Any]:
        """The job that ends last."""
        return self.other


class DebounceStory(Story):
    """Two calls, and a silence that ends."""

    feature = "debouncing"
    done: ClassVar = ["last"]

    def body(self) -> Any:
        """The function of the task."""

        async def story(call: str = "") -> None:
            if current_job().time_limit is not None:
                await self.rest()
            await self.note(call)

        return story

    async def call(self, call: str, **options: Any) -> Job[Any]:
        """Enqueue it after a silence."""
        task: Any = self.task  # its function takes one more argument
        chosen: Any = {"unique": "name", "debounce": HOUR / 2} | options
        job: Job[Any] = await task.options(**chosen).enqueue(call)
        return job

    async def begin(self, **options: Any) -> Job[Any]:
        """Make both calls."""
        first = await self.call("first", **options)
        self.job = await self.call("last", **options)
        assert (self.job.id, self.job.created) == (first.id, False)
        assert await self.job.status() is JobStatus.DELAYED
        return self.job


class HistoryStory(Story):
    """A task that keeps how its jobs have ended."""

    feature = "history"
    done: ClassVar = ["ran"]
    of_task: ClassVar = {"history": 10}
    expires = False

    def body(self) -> Any:
        """The function of the task."""

        async def story() -> None:
            await self.rest()
            await self.note("ran")

        return story

    async def begin(self, **options: Any) -> Job[Any]:
        """Enqueue it, and run it until it rests; nothing has ended."""
        self.expires = "expires" in options
        job = await super().begin(**options)
        assert await self.task.history() == []
        return job

    async def check(self) -> None:
        """Each end is there once, the latest first."""
        await super().check()
        found = await self.task.history()
        assert [ended.outcome for ended in found] == ["succeeded", "failed"][: 1 + self.expires]
        assert {ended.job_id for ended in found} == {self.job.id}


class OnDeadStory(Story):
    """A task of whose dead jobs another one is told."""

    feature = "on_dead"
    done: ClassVar = ["ran"]
    expires = False

    def __init__(self, concert: Coordinator) -> None:
        self.told: list[DeadJob] = []

        @concert.task(name="notify")
        async def notify(job: DeadJob) -> None:
            self.told.append(job)

        self.of_task = {"on_dead": notify}  # type: ignore[misc]  # its own
        super().__init__(concert)

    def body(self) -> Any:
        """The function of the task."""

        async def story() -> None:
            await self.rest()
            await self.note("ran")

        return story

    async def begin(self, **options: Any) -> Job[Any]:
        """Enqueue it, and run it until it rests; it has not died."""
        self.expires = "expires" in options
        job = await super().begin(**options)
        assert self.told == []
        return job

    async def check(self) -> None:
        """Each death was told once."""
        await super().check()
        assert [job.id for job in self.told] == [self.job.id] * self.expires


STORIES = {
    story.feature: story
    for story in (
        *(StepsStory, SleepStory, MessageStory, UndoStory, StreamStory, GroupStory, FollowUpStory, LimitsStory),
        *(OrderStory, DebounceStory, HistoryStory, OnDeadStory),
    )
}


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


@stories()
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
    if feature == "groups":
        did.append("callback")  # it waits for the end only
    assert story.did == did
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


async def test_late_twin_frees_no_place(concert: Coordinator, elsewhere: Coordinator) -> None:
    """The place belongs to the next claim, until that ends."""
    story = LimitsStory(concert)
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
