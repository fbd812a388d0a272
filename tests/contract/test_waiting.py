"""Jobs that wait for messages: they leave their place, and the first message of a name brings them back."""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import anyio
import anyio.from_thread
import pytest

from inconcert import (
    Coordinator,
    InvalidName,
    InvalidPayload,
    JobFailed,
    JobStatus,
    MessageRefused,
    NotClaimed,
    Retry,
    StepRecord,
    Unavailable,
    current_job,
    durable,
)
from inconcert.tasks.running.step_store import JobStepStore
from tests.support.background import in_background
from tests.support.durable import kept, messages, wake
from tests.support.eventually import eventually
from tests.support.jobs import status
from tests.support.raw import raw

NOW = Retry(after=0)  # another attempt, at once
WITHIN = 5.0  # seconds


@dataclass(frozen=True)
class Packed:
    """A message with a type of its own."""

    tracking: str


async def test_message_brings_a_waiting_job_back(any_concert: Coordinator) -> None:
    """As the same attempt, before others in its queue; until then it holds no place. Everything goes with the job."""
    left: list[int] = []

    @any_concert.task(max_attempts=1)
    async def fulfil() -> str:
        try:
            packed = await durable.wait_for("packed", Packed, timeout=3600)
        finally:
            left.append(current_job().attempt)
        return packed.tracking

    @any_concert.task()
    async def other() -> None:
        """Run meanwhile, in the only place."""

    async with in_background(any_concert.run_worker("default", concurrency=1)):
        job = await fulfil.enqueue()
        await status(any_concert, job, JobStatus.DELAYED)
        await (await other.enqueue()).result(timeout=WITHIN)
        assert left == [1]
        assert await any_concert.tasks.job(job.id).send("packed", Packed("TR-1"))
        assert await job.result(timeout=WITHIN) == "TR-1"
    assert left == [1, 1]
    assert not await job.send("packed", Packed("TR-2"))  # it has ended
    assert await messages(any_concert) == await kept(any_concert) == {}


async def test_job_that_is_woken_is_next_in_its_queue(any_concert: Coordinator) -> None:
    """Before those that were enqueued earlier."""

    @any_concert.task()
    async def fulfil() -> None:
        await durable.wait_for("packed", str, timeout=3600)

    job = await fulfil.enqueue()
    async with in_background(any_concert.run_worker("default")):
        await status(any_concert, job, JobStatus.DELAYED)
    for _ in range(5):
        await any_concert.enqueue("t")
    assert await job.send("packed", "woken")
    client: Any = raw(any_concert)
    assert await client.lindex(any_concert._jobs.of_id(job.id).queue("default").queue, 0) == job.id.encode()


async def test_message_before_the_wait_is_found_at_once(any_concert: Coordinator) -> None:
    """The first of a name wins, and each attempt gets it."""
    seen: list[object] = []

    @any_concert.task(max_attempts=2)
    async def fulfil() -> None:
        seen.append(await durable.wait_for("packed", object, timeout=0))
        seen.append(await durable.wait_for("päckchen 1", int, timeout=3600))
        if current_job().attempt == 1:
            raise NOW

    job = await fulfil.enqueue()
    assert await job.send("packed", {"tracking": "TR-1"})
    assert not await job.send("packed", {"tracking": "TR-2"})
    assert await job.send("päckchen 1", 7)
    async with in_background(any_concert.run_worker("default")):
        await job.result(timeout=WITHIN)
    assert seen == [{"tracking": "TR-1"}, 7] * 2
    assert await messages(any_concert) == {}


async def test_other_messages_leave_a_waiting_job_where_it_is(any_concert: Coordinator) -> None:
    """They are there when it asks for them."""
    begun: list[int] = []

    @any_concert.task()
    async def fulfil() -> list[str]:
        begun.append(1)
        return [await durable.wait_for(name, str, timeout=3600) for name in ("packed", "paid")]

    async with in_background(any_concert.run_worker("default")):
        job = await fulfil.enqueue()
        await status(any_concert, job, JobStatus.DELAYED)
        assert await job.send("paid", "paid")
        assert await job.status() is JobStatus.DELAYED
        assert len(begun) == 1
        assert await job.send("packed", "packed")
        assert await job.result(timeout=WITHIN) == ["packed", "paid"]
    assert len(begun) == 2


async def test_whatever_comes_first_brings_a_job_back_that_waits_for_several(any_concert: Coordinator) -> None:
    """In a task group; and in a thread."""

    async def either() -> str:
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(durable.wait_for(name, str, timeout=3600)) for name in ("one", "two")]
        return " ".join([wait.result() for wait in waits])

    def plainly() -> str:
        message: str = anyio.from_thread.run(partial(durable.wait_for, timeout=3600), "one", str)
        return message

    async with in_background(any_concert.run_worker("default")):
        for function, names in ((either, ("two", "one")), (plainly, ("one",))):
            job = await any_concert.task(name=function.__name__)(function).enqueue()
            for name in names:
                await status(any_concert, job, JobStatus.DELAYED)
                assert await job.send(name, name)
            assert await job.result(timeout=WITHIN) == " ".join(sorted(names))


async def test_each_of_several_waits_and_sleeps_brings_a_job_back(any_concert: Coordinator) -> None:
    """However they meet; and the shortest, also if it is short enough to be waited for in the body."""

    async def late(name: str) -> None:
        await anyio.lowlevel.checkpoint()
        await durable.wait_for(name, str, timeout=3600)

    bodies: list[int] = []

    @any_concert.task(max_attempts=1)
    async def several(short: float) -> None:
        bodies.append(1)
        async with asyncio.TaskGroup() as group:
            group.create_task(durable.wait_for("one", str, timeout=3600))
            group.create_task(durable.sleep("short", short))
            for name in ("two", "three"):
                group.create_task(late(name))

    async with in_background(any_concert.run_worker("default")):
        job = await several.enqueue(50)
        await status(any_concert, job, JobStatus.DELAYED)
        assert {step.name for step in await job.steps() if step.is_awaited} == {"one", "two", "three"}
        keys = any_concert._jobs.of_id(job.id)
        client: Any = raw(any_concert)
        [(_, due_ms)] = await client.zrange(keys.queue("default").delayed, 0, -1, withscores=True)
        assert due_ms / 1000 - (await client.time())[0] < 55
        await wake(any_concert, job, "short")
        for count, name in enumerate(("three", "two", "one"), start=2):
            assert await job.send(name, name)
            await eventually(lambda: len(bodies) == count)  # noqa: B023 - it is waited for at once
            await status(any_concert, job, JobStatus.DELAYED if count < 4 else JobStatus.SUCCEEDED)


async def test_message_beside_a_wait_is_acted_upon(any_concert: Coordinator) -> None:
    """What a task of the body does with it comes before the job leaves again."""

    @any_concert.task(max_attempts=1)
    async def fulfil() -> None:
        async def watch() -> None:
            raise ValueError(await durable.wait_for("cancelled", str, timeout=3600))

        async with asyncio.TaskGroup() as group:
            group.create_task(durable.wait_for("packed", str, timeout=3600))
            group.create_task(watch())

    @any_concert.task(max_attempts=1)
    async def first() -> str:
        found: list[str] = []

        async def wait(name: str) -> None:
            found.append(await durable.wait_for(name, str, timeout=3600))
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for name in ("packed", "cancelled"):
                group.start_soon(wait, name)
        return " ".join(found)

    async with in_background(any_concert.run_worker("default")):
        jobs = [await fulfil.enqueue(), await first.enqueue()]
        for job in jobs:
            await status(any_concert, job, JobStatus.DELAYED)
            assert await job.send("cancelled", "by its buyer")
        with pytest.raises(JobFailed, match=r"ExceptionGroup: .* \(1 sub-exception\)") as failed:
            await jobs[0].result(timeout=WITHIN)
        assert "ValueError: by its buyer" in (failed.value.traceback or "")
        assert await jobs[1].result(timeout=WITHIN) == "by its buyer"


async def test_timeout_is_kept(any_concert: Coordinator) -> None:
    """Later attempts time out again, and messages that come afterwards are not accepted."""
    timeouts: list[int] = []

    @any_concert.task(max_attempts=2)
    async def fulfil() -> str:
        try:
            return await durable.wait_for("packed", str, timeout=3600)
        except TimeoutError:
            timeouts.append(current_job().attempt)
        if current_job().attempt == 1:
            raise NOW
        await durable.wait_for("asked again", str, timeout=3600)
        return "in the end"

    async with in_background(any_concert.run_worker("default")):
        job = await fulfil.enqueue()
        await status(any_concert, job, JobStatus.DELAYED)
        await wake(any_concert, job, "packed")
        await job.reschedule(delay=0)
        await eventually(lambda: timeouts[:2] == [1, 2])
        await status(any_concert, job, JobStatus.DELAYED)
        assert not await job.send("packed", "late")
        assert await job.send("asked again", "again")
        assert await job.result(timeout=WITHIN) == "in the end"
    assert timeouts == [1, 2, 2]
    assert await messages(any_concert) == {}


async def test_timeout_that_ends_an_attempt_is_final(any_concert: Coordinator) -> None:
    """Another attempt would end likewise, and so does a replay."""

    @any_concert.task(max_attempts=5)
    async def fulfil() -> None:
        await durable.wait_for("packed", str, timeout=0)

    async with in_background(any_concert.run_worker("default")):
        job = await fulfil.enqueue()
        for _ in range(2):
            with pytest.raises(JobFailed, match=r"message 'packed' was not sent to job .* within 0 s") as failed:
                await job.result(timeout=WITHIN)
            assert failed.value.attempts == 1
            assert not await job.send("packed", "late")
            await any_concert.tasks.replay(job.id)
    await any_concert.tasks.purge_all(older_than=0)
    await job.cancel()
    assert await messages(any_concert) == {}


async def test_message_of_another_type_sets_the_job_aside(any_concert: Coordinator) -> None:
    """The error names the message and the type; a replay of a release with another type gets it."""
    wanted: type[Any] = Packed

    @any_concert.task(max_attempts=5)
    async def fulfil() -> object:
        return await durable.wait_for("packed", wanted, timeout=3600)

    async with in_background(any_concert.run_worker("default")):
        job = await fulfil.enqueue()
        assert await job.send("packed", ["TR-1"])
        with pytest.raises(JobFailed, match=r"message 'packed' of job .* does not fit Packed") as failed:
            await job.result(timeout=WITHIN)
        assert failed.value.attempts == 1
        wanted = list[str]
        await any_concert.tasks.replay(job.id)
        assert await job.result(timeout=WITHIN) == ["TR-1"]


async def test_waiting_job_may_be_cancelled_and_its_messages_are_dropped(any_concert: Coordinator) -> None:
    """Also those for which it does not wait, and those of a job that never ran."""

    @any_concert.task()
    async def fulfil() -> None:
        await durable.wait_for("packed", str, timeout=3600)

    job, queued = await fulfil.enqueue(), await any_concert.enqueue("fulfil", queue="other")
    assert await job.send("other", 1)
    assert await queued.send("packed", 1)
    async with in_background(any_concert.run_worker("default")):
        await status(any_concert, job, JobStatus.DELAYED)
        assert await messages(any_concert)
        for one in (job, queued):
            assert await one.cancel()
            assert not await one.send("packed", 1)
    assert await messages(any_concert) == await kept(any_concert) == {}


async def test_retry_of_a_job_that_has_waited_is_not_hastened(any_concert: Coordinator) -> None:
    """A message wakes only a job that waits for it now."""

    @any_concert.task(max_attempts=2)
    async def fails() -> None:
        if not failing:
            await durable.wait_for("packed", str, timeout=3600)
        raise Retry(after=3600)

    failing: list[int] = []
    async with in_background(any_concert.run_worker("default")):
        job = await fails.enqueue()
        await status(any_concert, job, JobStatus.DELAYED)
        failing.append(1)
        await job.reschedule(delay=0)

        async def waits_for_nothing() -> bool:
            return not [key for key in await messages(any_concert) if key == job.id.encode()]

        await eventually(waits_for_nothing)
        await status(any_concert, job, JobStatus.DELAYED)
        assert await job.send("packed", "packed")
        assert await job.status() is JobStatus.DELAYED


async def test_wait_that_could_not_ask_may_be_asked_for_again(
    any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same attempt, by a body that catches the error: its name is not used up."""
    ask = JobStepStore.receive
    refused: list[str] = []

    async def refuse_once(*args: Any, **kwargs: Any) -> Any:
        if not refused:
            refused.append("receive")
            raise Unavailable("no answer")
        return await ask(*args, **kwargs)

    monkeypatch.setattr(JobStepStore, "receive", refuse_once)

    @any_concert.task(max_attempts=1)
    async def fulfil() -> str:
        with pytest.raises(Unavailable):
            await durable.wait_for("packed", str, timeout=3600)
        return await durable.wait_for("packed", str, timeout=3600)

    job = await fulfil.enqueue()
    await job.send("packed", "parcel")
    async with in_background(any_concert.run_worker("default")):
        assert await job.result(timeout=WITHIN) == "parcel"


async def test_steps_are_listed(any_concert: Coordinator) -> None:
    """With what the job waits for, until it has ended."""

    async def weigh() -> dict[str, int]:
        return {"grams": 7}

    @any_concert.task()
    async def fulfil() -> None:
        await durable.step("weigh", weigh)
        await durable.wait_for("päckchen", str, timeout=3600)

    async with in_background(any_concert.run_worker("default")):
        job = await fulfil.enqueue()
        await status(any_concert, job, JobStatus.DELAYED)
        weighed, waits = await job.steps()
        assert weighed == StepRecord("weigh", weighed.function, {"grams": 7}, is_awaited=False)
        assert weighed.function.endswith("weigh")
        assert waits == StepRecord("päckchen", "durable.wait_for", waits.value, is_awaited=True)
        now_s, _ = await raw(any_concert).time()
        assert 3595 < cast("float", waits.value) - now_s <= 3601
        await job.send("päckchen", "packed")
        await job.result(timeout=WITHIN)
    assert await job.steps() == []


@pytest.mark.parametrize("name", ["", "x" * 513, "\ud800", 7])
async def test_bad_name_is_refused(any_concert: Coordinator, name: Any) -> None:
    """Before anything is asked."""
    job = await any_concert.enqueue("t")
    with pytest.raises(InvalidName):
        await job.send(name, 1)
    async with any_concert.consume("default") as jobs, await anext(jobs):
        with pytest.raises(InvalidName):
            await durable.wait_for(name, str, timeout=1)
        assert await job.send("x" * 512, 1)
        assert await durable.wait_for("x" * 512, int, timeout=1) == 1


@pytest.mark.parametrize("value", [object(), float("nan"), b"\xff" * 2**20, {(1, 2): 3}])
async def test_message_that_is_not_json_is_refused(any_concert: Coordinator, value: object) -> None:
    """The error names the message and the job, and nothing is kept."""
    job = await any_concert.enqueue("t")
    with pytest.raises(InvalidPayload, match=f"message 'packed' to job {job.id}"):
        await job.send("packed", value)
    assert await messages(any_concert) == {}


async def test_bad_wait_is_refused(any_concert: Coordinator) -> None:
    """Outside of a job, after its end, and with a time or a type that cannot be."""
    with pytest.raises(RuntimeError, match="no job runs here"):
        await durable.wait_for("packed", str, timeout=1)
    await any_concert.enqueue("t")
    async with any_concert.consume("default") as jobs, await anext(jobs) as job:
        with pytest.raises(ValueError, match="timeout is -1"):
            await durable.wait_for("packed", str, timeout=-1)
        with pytest.raises(TypeError, match=r"message 'packed' of job .* cannot be converted"):
            await durable.wait_for("packed", set[dict[str, Any]], timeout=1)
        await job.ack()
        with pytest.raises(NotClaimed):
            await durable.wait_for("packed", str, timeout=1)


async def test_job_has_a_thousand_messages_at_most(any_concert: Coordinator) -> None:
    """And 16 MiB of them; the next is refused, what is there stays, and all go with the job."""
    many, large = await any_concert.enqueue("t"), await any_concert.enqueue("t")
    for number in range(0, 1000, 100):
        sent = await asyncio.gather(*(many.send(f"{each}", each) for each in range(number, number + 100)))
        assert all(sent)
    with pytest.raises(MessageRefused, match=r"message 'one more' was not sent to job .* 1,000 messages") as refused:
        await many.send("one more", 1)
    assert (refused.value.job_id, refused.value.name) == (many.id, "one more")
    assert not await many.send("7", 1)
    for number in range(16):
        assert await large.send(f"{number}", "x" * 1_048_000)
    with pytest.raises(MessageRefused):
        await large.send("more", "x" * 1_000_000)
    async with any_concert.consume("default") as jobs:
        for _ in range(2):
            async with await anext(jobs):
                assert await durable.wait_for("7", object, timeout=1) in (7, "x" * 1_048_000)
    assert await messages(any_concert) == {}
