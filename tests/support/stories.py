"""Stories of jobs, one for each feature: each comes to rest once, and ends after something has let it go on.

The tests of `contract/test_what_happens.py` let things happen to each of them.
"""

import json
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import anyio
import pytest

from inconcert import (
    Coordinator,
    DeadJob,
    Draft,
    Group,
    Job,
    JobCancelled,
    JobStatus,
    Limit,
    Retry,
    Task,
    current_job,
    durable,
)
from inconcert.tasks.durable.kept_step import STEP
from tests.support.durable import awaits, kept
from tests.support.ledger import ledger_of
from tests.support.raw import raw
from tests.support.schedules import next_look
from tests.support.streams import followed

__all__ = [
    "HOUR",
    "LIMIT",
    "STORIES",
    "WITHIN",
    "DeadlineStory",
    "DebounceStory",
    "FollowUpStory",
    "GroupStory",
    "HistoryStory",
    "LimitsStory",
    "NewestStory",
    "OnDeadStory",
    "OrderStory",
    "OverlapStory",
    "OwnIdStory",
    "PriorityStory",
    "SharedLimitsStory",
    "SleepStory",
    "Story",
    "UndoStory",
]

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
        after_death: What is done when it has died.
    """

    feature: ClassVar[str]
    done: ClassVar[list[str]]
    after_death: ClassVar[list[str]] = []
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
            if self.hangs():
                await anyio.sleep_forever()
            raise Retry(after=HOUR)

    def hangs(self) -> bool:
        """Of a body: whether this attempt is to reach its limit."""
        return current_job().time_limit is not None


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
    after_death: ClassVar = ["callback"]  # which waits for the end only
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
        self.job = job = await self.task.options(**options).enqueue()
        await self.enqueue_other()
        await self.run()
        while not await self.is_at_rest():
            await self.job.reschedule(delay=0)
            await self.run()
        assert self.did == ["ran"]
        return job

    async def enqueue_other(self) -> None:
        """It waits for its turn."""
        other = await self.task.enqueue()
        assert await other.status() is JobStatus.DELAYED

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


class NewestStory(Story):
    """One that has begun, one that replaces it and waits, and the last, which takes the place of that."""

    feature = "newest"
    done: ClassVar = ["last"]

    def body(self) -> Any:
        """The function of the task."""

        async def story(call: str = "") -> None:
            if call == "old":
                raise Retry(after=HOUR)
            if current_job().time_limit is not None:
                await self.rest()
            await self.note(call)

        return story

    async def call(self, call: str, **options: Any) -> Job[Any]:
        """Enqueue the newest."""
        task: Any = self.task  # its function takes one more argument
        chosen: Any = {"unique": "name", "newest": "replaces"} | options
        job: Job[Any] = await task.options(**chosen).enqueue(call)
        return job

    async def begin(self, **options: Any) -> Job[Any]:
        """Make all calls."""
        old = await self.call("old", **options | {"time_limit": None})
        await self.run()
        first = await self.call("first", **{"delay": HOUR / 2} | options)
        self.job = await self.call("last", **{"delay": HOUR / 2} | options)
        assert (self.job.id, self.job.created, first.created) == (first.id, False, True)
        assert [await old.status(), await self.job.status()] == [JobStatus.CANCELLED, JobStatus.DELAYED]
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


class PriorityStory(Story):
    """A job of a small number, which comes before a plain one that was there before."""

    feature = "priority"
    done: ClassVar = ["ran", "plain"]
    of_task: ClassVar = {"priority": 1}

    def body(self) -> Any:
        """The function of the task."""

        async def story() -> None:
            await self.rest()
            await self.note("ran")

        return story

    async def begin(self, **options: Any) -> Job[Any]:
        """Enqueue it, and run it until it rests; one that is to expire has nothing to come before."""
        if "expires" in options:
            self.done = ["ran"]  # type: ignore[misc]  # its own
        return await super().begin(**options)

    async def go_on(self) -> None:
        """It is due, behind the plain one."""
        if "plain" in self.done:
            await self.note_task.enqueue("plain")
        await super().go_on()

    async def check(self) -> None:
        """It has ended as it was to end; the order holds within each partition."""
        if len(self.concert._jobs.partitions) > 1:
            self.did.sort(key=self.done.index)
        await super().check()


class OwnIdStory(Story):
    """A job whose id its caller chose: there is one of it until its result is gone."""

    feature = "own ids"
    done: ClassVar = ["ran"]

    def body(self) -> Any:
        """The function of the task."""

        async def story() -> None:
            await self.rest()
            await self.note("ran")

        return story

    async def begin(self, **options: Any) -> Job[Any]:
        """Enqueue it, and run it until it rests."""
        job = await super().begin(id="story:1", **options)
        assert job.id == "story:1"
        return job

    async def go_on(self) -> None:
        """Another call gets this job, and changes nothing."""
        await self.ask_again()
        await super().go_on()

    async def check(self) -> None:
        """It has run once, and its id is taken while its result is kept."""
        await super().check()
        await self.ask_again()
        await self.run()
        assert self.did == self.done

    async def ask_again(self) -> None:
        """Enqueue another one of its id."""
        again = await self.task.options(id=self.job.id).enqueue()
        assert (again.id, again.created) == (self.job.id, False)


class DeadlineStory(Story):
    """A job with a deadline, which limits each of its attempts."""

    feature = "deadline"
    done: ClassVar = ["ran"]
    of_task: ClassVar = {"deadline": 2 * HOUR}

    def body(self) -> Any:
        """The function of the task."""

        async def story() -> None:
            assert current_job().time_limit in {LIMIT, 2 * HOUR}
            await self.rest()
            await self.note("ran")

        return story

    def hangs(self) -> bool:
        """Of a body: whether this attempt is to reach its limit."""
        return current_job().time_limit == LIMIT

    async def begin(self, **options: Any) -> Job[Any]:
        """Enqueue it, and run it until it rests; if it is to expire, that is its deadline."""
        options.pop("expires", None)
        return await super().begin(**options)


class SharedLimitsStory(LimitsStory):
    """Two jobs of tasks in two queues that share a place and a rate: the other runs while the first rests."""

    feature = "shared limits"

    def __init__(self, concert: Coordinator) -> None:
        shared: dict[str, Any] = {"limit": concert.limit("api", 1), "rate": concert.rate("tokens", 1000, per=1.0)}
        self.of_task = shared | {"cost": 2}  # type: ignore[misc]  # its own
        super().__init__(concert)

        @concert.task(name="other", queue="others", **shared)
        async def other() -> None:
            await self.note("ran")

        self.other: Task[[], Any] = other

    async def enqueue_other(self) -> None:
        """In its queue."""
        await self.other.enqueue()

    async def run(self) -> None:
        """Run all that can run, in both queues."""
        await self.concert.run_worker("default", "others", burst=True)


class OverlapStory(Story):
    """A schedule whose jobs do not overlap: that of the second instant waits while that of the first rests."""

    feature = "overlap"
    done: ClassVar = ["ran", "ran"]
    after_death: ClassVar = ["ran"]
    kept: Job[Any]

    def body(self) -> Any:
        """The function of the task."""

        async def story() -> None:
            await self.rest()
            await self.note("ran")

        return story

    async def begin(self, **options: Any) -> Job[Any]:
        """Let two instants come, and run the job of the first until it rests."""
        await self.let_instants_come(**options)
        await self.run()
        while not await self.is_at_rest():
            await self.job.reschedule(delay=0)
            await self.run()
        assert [await job.status() for job in (self.job, self.kept)] == [JobStatus.DELAYED, JobStatus.WAITING]
        return self.job

    async def let_instants_come(self, **options: Any) -> None:
        """Two, and no more."""
        call = self.task.options(**options).call()
        await self.concert.schedules.put("s", call, every=0.1, overlap="wait")
        first, second = [await next_look(self.concert, "s") for _ in range(2)]
        assert first is not None
        assert second is not None
        await self.concert.schedules.pause("s")
        self.job, self.kept = self.concert.tasks.job(first), self.concert.tasks.job(second)

    async def check(self) -> None:
        """Both have ended."""
        await super().check()
        assert await self.kept.status() is JobStatus.SUCCEEDED
        await self.concert.schedules.delete("s")

    @property
    def last(self) -> Job[Any]:
        """That of the second instant."""
        return self.kept


class AttemptsStory(Story):
    """A job of which an attempt has failed."""

    feature = "attempts"
    done: ClassVar = ["ran"]
    expires = False

    def body(self) -> Any:
        """The function of the task."""

        async def story() -> None:
            await self.rest()
            await self.note("ran")

        return story

    async def begin(self, **options: Any) -> Job[Any]:
        """Enqueue it, and run it until it rests; that attempt has failed."""
        self.expires = "expires" in options
        job = await super().begin(**options)
        assert len(await job.attempts()) == (await ledger_of(self.concert)).failures[job.id]
        return job

    async def check(self) -> None:
        """Each attempt that failed is there once, and no other."""
        await super().check()
        found = await self.job.attempts()
        assert [attempt.number for attempt in found] == [*range(1, len(found) + 1)]
        assert len(found) > self.expires
        assert ("JobExpired: " in found[-1].error) == self.expires


STORIES = {
    story.feature: story
    for story in (
        *(StepsStory, SleepStory, MessageStory, UndoStory, StreamStory, GroupStory, FollowUpStory, LimitsStory),
        *(OrderStory, DebounceStory, NewestStory, HistoryStory, OnDeadStory),
        *(PriorityStory, OwnIdStory, DeadlineStory, SharedLimitsStory, OverlapStory, AttemptsStory),
    )
}
