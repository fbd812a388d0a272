"""What a job has begun is undone, the latest first, when it ends without success."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any

import anyio
import pytest

from inconcert import (
    Coordinator,
    InvalidName,
    Job,
    JobCancelled,
    JobFailed,
    JobStatus,
    Retry,
    Unavailable,
    current_job,
    durable,
)
from inconcert.tasks.durable import journal, steps
from inconcert.tasks.running.job_state import JobState
from inconcert.tasks.running.step_store import JobStepStore
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.jobs import let_expire, status
from tests.support.ledger import ledger_of
from tests.support.undo import Shop, is_clean

WITHIN = 10.0  # seconds


@pytest.fixture
def shop() -> Shop:
    """A new one."""
    return Shop()


async def buy_two(shop: Shop, then: Callable[[], Any]) -> str:
    """The body of a job that charges twice, and then does something else."""
    async with durable.undo() as undo:
        for what in ("tea", "cup"):
            payment = await durable.step(f"charge {what}", shop.charge, what)
            undo.later(f"refund {what}", shop.refund, payment)
        await then()
    return "done"


BOTH = ["charge tea", "charge cup", "refund p-cup", "refund p-tea"]


async def failing() -> None:
    """What ends all attempts."""
    raise ValueError("sold out")


async def test_failed_job_is_undone_before_it_is_dead_lettered(any_concert: Coordinator, shop: Shop) -> None:
    """Once, after its last attempt, the latest first; it fails with its own error. A replay begins anew."""
    bodies: list[int] = []

    @any_concert.task(max_attempts=2, backoff=lambda _: 0.0)
    async def buy() -> str:
        bodies.append(current_job().attempt)
        return await buy_two(shop, failing)

    async with in_background(any_concert.run_worker("default")):
        job = await buy.enqueue()
        with pytest.raises(JobFailed, match="sold out") as failed:
            await job.result(timeout=WITHIN)
        assert failed.value.attempts == 2
        assert bodies == [1, 2, 1]  # the last to undo
        assert shop.did == BOTH
        assert await is_clean(any_concert)
        assert await any_concert.tasks.replay(job.id) == []
        await eventually(lambda: shop.did == BOTH * 2, timeout=WITHIN)
        await status(any_concert, job, JobStatus.FAILED)


async def test_job_that_succeeds_is_not_undone(any_concert: Coordinator, shop: Shop) -> None:
    """Nor is a block that was left, whatever comes after it."""

    @any_concert.task(max_attempts=1)
    async def buy(*, fails: bool) -> str:
        done = await buy_two(shop, anyio.lowlevel.checkpoint)
        if fails:
            await failing()
        return done

    async with in_background(any_concert.run_worker("default")):
        assert await (await buy.enqueue(fails=False)).result(timeout=WITHIN) == "done"
        with pytest.raises(JobFailed, match="sold out"):
            await (await buy.enqueue(fails=True)).result(timeout=WITHIN)
    assert shop.did == ["charge tea", "charge cup"] * 2
    assert await is_clean(any_concert)


@pytest.mark.parametrize(
    "waiting",
    [
        lambda: durable.wait_for("packed", str, timeout=3600),
        lambda: durable.sleep("cool-down", 3600),
    ],
    ids=["waits for a message", "sleeps"],
)
async def test_job_that_is_cancelled_while_it_has_left_its_worker_is_undone(
    any_concert: Coordinator, shop: Shop, waiting: Callable[[], Any]
) -> None:
    """It is claimed once more for that; cancelling it waits until it is done, and is not done twice."""

    @any_concert.task()
    async def buy() -> str:
        return await buy_two(shop, waiting)

    async with in_background(any_concert.run_worker("default")):
        job = await buy.enqueue()
        await status(any_concert, job, JobStatus.DELAYED)
        assert await job.cancel(timeout=WITHIN)
        with pytest.raises(JobCancelled):
            await job.result(timeout=WITHIN)
    assert shop.did == BOTH
    assert await is_clean(any_concert)


async def test_job_that_is_cancelled_while_it_runs_is_undone(any_concert: Coordinator, shop: Shop) -> None:
    """Its body is stopped, and runs once more, to undo; a cancellation does not end that."""

    @any_concert.task()
    async def buy() -> str:
        return await buy_two(shop, anyio.sleep_forever)

    async with in_background(any_concert.run_worker("default")):
        job = await buy.enqueue()
        await eventually(lambda: len(shop.did) == 2)
        assert await job.cancel(timeout=WITHIN)
        with pytest.raises(JobCancelled):
            await job.result(timeout=WITHIN)
        assert await job.cancel(timeout=WITHIN)
    assert shop.did == BOTH
    assert await is_clean(any_concert)


async def test_job_in_its_queue_is_undone_if_it_is_cancelled(any_concert: Coordinator, shop: Shop) -> None:
    """One that was requeued, and one that had never begun, which ends at once."""

    @any_concert.task()
    async def buy() -> str:
        return await buy_two(shop, anyio.sleep_forever)

    async with in_background(any_concert.run_worker("default", grace=0)):
        job = await buy.enqueue()
        await eventually(lambda: len(shop.did) == 2)
    await status(any_concert, job, JobStatus.QUEUED)
    new = await buy.enqueue()
    assert [await job.cancel(timeout=0), await new.cancel(timeout=0)] == [False, True]
    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobCancelled):
            await job.result(timeout=WITHIN)
    assert shop.did == BOTH
    assert await is_clean(any_concert)


async def test_what_cannot_be_undone_is_tried_again_and_then_kept(any_concert: Coordinator, shop: Shop) -> None:
    """What is undone is not undone twice, and a replay goes on where it failed."""

    @any_concert.task(max_attempts=2, backoff=lambda _: 0.0)
    async def buy() -> str:
        return await buy_two(shop, failing)

    shop.broken = 1
    async with in_background(any_concert.run_worker("default")):
        job = await buy.enqueue()
        with pytest.raises(JobFailed, match="sold out"):
            await job.result(timeout=WITHIN)
        assert shop.did == BOTH
        shop.did.clear()
        shop.broken = 2
        job = await buy.enqueue()
        with pytest.raises(JobFailed, match="the bank does not answer"):
            await job.result(timeout=WITHIN)
        assert shop.did == BOTH[:2]
        assert await any_concert.tasks.replay(job.id) == []
        await eventually(lambda: shop.did == BOTH, timeout=WITHIN)
        with pytest.raises(JobFailed, match="sold out"):
            await job.result(timeout=WITHIN)
    assert await is_clean(any_concert)


async def test_undoing_goes_on_elsewhere_when_its_worker_stops(any_concert: Coordinator, shop: Shop) -> None:
    """Each is undone once; the job ends as it was to end."""
    stops = asyncio.Event()

    async def last() -> None:
        if not stops.is_set():
            stops.set()
            await anyio.sleep_forever()
        shop.did.append("last")

    @any_concert.task(max_attempts=1)
    async def buy() -> str:
        async with durable.undo() as outer:
            outer.later("last", last)
            return await buy_two_inside(shop)

    async def buy_two_inside(shop: Shop) -> str:
        async with durable.undo("inner") as undo:
            payment = await durable.step("charge", shop.charge, "tea")
            undo.later("refund", shop.refund, payment)
            raise ValueError("sold out")

    async with in_background(any_concert.run_worker("default", grace=0)):
        job = await buy.enqueue()
        await stops.wait()
    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="sold out"):
            await job.result(timeout=WITHIN)
    assert shop.did == ["charge tea", "refund p-tea", "last"]
    assert await is_clean(any_concert)


async def test_job_that_its_workers_die_of_is_undone(any_concert: Coordinator, shop: Shop) -> None:
    """After as many crashes as it may have."""
    crashed: list[bool] = []

    @any_concert.task(max_crashes=1)
    async def buy() -> str:
        return await buy_two(shop, crash)

    async def crash() -> None:
        if len(shop.did) == 2 and not crashed:
            crashed.append(True)
            raise SystemExit

    job = await buy.enqueue()
    async with any_concert.consume("default") as jobs:
        claimed = await anext(jobs)
        with pytest.raises(SystemExit):
            async with claimed:
                await buy_two(shop, crash)
    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="SystemExit"):
            await job.result(timeout=WITHIN)
    assert shop.did == BOTH
    assert await is_clean(any_concert)


async def test_job_that_expires_before_it_goes_on_is_undone(any_concert: Coordinator, shop: Shop) -> None:
    """It does not go on, and what it has begun does not stay."""

    @any_concert.task(expires=3600)
    async def buy() -> str:
        return await buy_two(shop, lambda: durable.sleep("nap", 3600))

    async with in_background(any_concert.run_worker("default")):
        job = await buy.enqueue()
        await status(any_concert, job, JobStatus.DELAYED)
        await let_expire(any_concert, job)
        await job.reschedule(delay=0)
        with pytest.raises(JobFailed, match="was not started within"):
            await job.result(timeout=WITHIN)
    assert shop.did == BOTH
    assert await is_clean(any_concert)


async def test_body_that_does_not_come_as_far_again_is_not_taken_for_undone(
    any_concert: Coordinator, shop: Shop
) -> None:
    """It fails with what it has missed, and keeps everything for a replay."""
    fails_early = False

    @any_concert.task(max_attempts=1)
    async def buy() -> str:
        nonlocal fails_early
        if fails_early:
            raise OSError("no route to the shop")
        try:
            return await buy_two(shop, failing)
        finally:
            fails_early = True

    async with in_background(any_concert.run_worker("default")):
        job = await buy.enqueue()
        with pytest.raises(JobFailed, match="did not come to its step 'undo' again"):
            await job.result(timeout=WITHIN)
        fails_early = False
        assert await any_concert.tasks.replay(job.id) == []
        await eventually(lambda: shop.did == BOTH, timeout=WITHIN)
        with pytest.raises(JobFailed, match="sold out"):
            await job.result(timeout=WITHIN)
    assert await is_clean(any_concert)


async def test_nothing_is_undone_before_all_is_registered_again(any_concert: Coordinator, shop: Shop) -> None:
    """A body that fails sooner to undo than it had failed at first leaves the order to the next attempt."""
    lookups = 0

    async def look_up() -> None:
        nonlocal lookups
        lookups += 1
        if lookups == 2:
            raise ConnectionError("no answer")

    @any_concert.task(max_attempts=2, backoff=lambda _: 0.0)
    async def buy() -> None:
        async with durable.undo() as undo:
            undo.later("tea", shop.refund, await durable.step("charge tea", shop.charge, "tea"))
            if current_job().attempt == 1:
                await look_up()
            undo.later("cup", shop.refund, await durable.step("charge cup", shop.charge, "cup"))
            await current_job().bury(ValueError("sold out"))

    async with in_background(any_concert.run_worker("default")):
        job = await buy.enqueue()
        with pytest.raises(JobFailed, match="sold out"):
            await job.result(timeout=WITHIN)
    assert lookups == 2
    assert shop.did == BOTH


async def test_job_whose_end_is_not_known_once_all_is_undone_is_asked_for_again(
    any_concert: Coordinator, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes back to its queue, instead of staying with a worker that lives on; nothing is undone twice."""
    ask, refusals = JobState.ends_undone, 0

    async def refuse_once(job: JobState) -> bytes:
        nonlocal refusals
        if job.is_undoing and not refusals:
            refusals += 1
            raise Unavailable("no answer")
        noted: bytes = await ask(job)
        return noted

    monkeypatch.setattr(JobState, "ends_undone", refuse_once)

    @any_concert.task(max_attempts=1)
    async def buy() -> str:
        return await buy_two(shop, failing)

    async with in_background(any_concert.run_worker("default")):
        job = await buy.enqueue()
        with pytest.raises(JobFailed, match="sold out"):
            await job.result(timeout=WITHIN)
    assert refusals == 1
    assert shop.did == BOTH


async def test_job_whose_message_cannot_be_read_is_not_taken_for_undone(
    any_concert: Coordinator, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is behind the wait is not registered then; the next attempt registers and undoes it."""
    ask = JobStepStore.receive
    bodies: list[str] = []

    async def refuse_once(*args: Any, **kwargs: Any) -> Any:
        if len(bodies) == 3:  # the first that undoes
            raise Unavailable("no answer")
        return await ask(*args, **kwargs)

    monkeypatch.setattr(JobStepStore, "receive", refuse_once)

    @any_concert.task(max_attempts=2, backoff=lambda _: 0.0)
    async def buy() -> None:
        bodies.append("buy")
        async with durable.undo() as undo:
            undo.later("first", shop.refund, "first")
            undo.later("unpack", shop.refund, await durable.wait_for("packed", str, timeout=3600))
            await failing()

    async with in_background(any_concert.run_worker("default")):
        job = await buy.enqueue()
        assert await job.send("packed", "box")
        with pytest.raises(JobFailed, match="sold out"):
            await job.result(timeout=WITHIN)
    assert len(bodies) == 4
    assert shop.did == ["refund box", "refund first"]


async def test_what_is_behind_a_wait_is_undone_though_another_task_comes_as_far_first(
    any_concert: Coordinator, shop: Shop
) -> None:
    """The body is not stopped before the message is there."""

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        async with durable.undo() as undo:

            async def unpack() -> None:
                undo.later("unpack", shop.refund, await durable.wait_for("packed", str, timeout=3600))

            async def charge() -> None:
                await durable.step("charge", shop.charge, "tea")

            async with anyio.create_task_group() as group:
                group.start_soon(unpack)
                group.start_soon(charge)
            await failing()

    async with in_background(any_concert.run_worker("default")):
        job = await buy.enqueue()
        assert await job.send("packed", "box")
        with pytest.raises(JobFailed, match="sold out"):
            await job.result(timeout=WITHIN)
    assert shop.did == ["charge tea", "refund box"]


async def test_steps_of_other_tasks_of_the_body_are_undone_too(any_concert: Coordinator, shop: Shop) -> None:
    """Also if the task whose step has failed comes to it first."""

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        charged = asyncio.Event()

        async def fail() -> None:
            await charged.wait()
            await failing()

        async with durable.undo() as undo:

            async def charge() -> None:
                await anyio.sleep(0.05)
                undo.later("tea", shop.refund, await durable.step("charge tea", shop.charge, "tea"))
                charged.set()

            async with anyio.create_task_group() as group:
                group.start_soon(durable.step, "fail", fail)
                group.start_soon(charge)

    async with in_background(any_concert.run_worker("default")):
        job = await buy.enqueue()
        with pytest.raises(JobFailed, match="ExceptionGroup"):
            await job.result(timeout=WITHIN)
    assert shop.did == ["charge tea", "refund p-tea"]
    assert await is_clean(any_concert)


async def test_time_limit_does_not_pass_for_undone(any_concert: Coordinator, shop: Shop) -> None:
    """It ends the attempt to undo, and another one goes on."""
    is_slow = True

    async def refund() -> None:
        nonlocal is_slow
        if is_slow:
            is_slow = False
            await anyio.sleep_forever()
        shop.did.append("refund")

    @any_concert.task(max_attempts=2, backoff=lambda _: 0.0, time_limit=0.3)
    async def buy() -> None:
        async with durable.undo() as undo:
            undo.later("refund", refund)
            await failing()

    async with in_background(any_concert.run_worker("default")):
        job = await buy.enqueue()
        with pytest.raises(JobFailed, match="sold out"):
            await job.result(timeout=WITHIN)
    assert shop.did == ["refund"]


async def test_loop_and_stream_of_a_job_that_is_undone_do_not_go_on(any_concert: Coordinator, shop: Shop) -> None:
    """No item is begun anew, and followers of its stream see none twice."""
    seen: list[int] = []

    @any_concert.task(max_attempts=1)
    async def count() -> Any:
        async with durable.undo() as undo:
            undo.later("refund", shop.refund, "all")
            async for number in durable.each("numbers", range(10), key=lambda number: number):
                seen.append(number)
                yield number
                if number == 2:
                    await failing()

    async with in_background(any_concert.run_worker("default")):
        job: Job[Any] = await count.enqueue()
        with pytest.raises(JobFailed, match="sold out"):
            await job.result(timeout=WITHIN)
        assert [item.value for item in await job.items()] == [0, 1, 2]
    assert (seen, shop.did) == ([0, 1, 2], ["refund all"])


async def test_job_whose_step_fails_is_undone_up_to_there(any_concert: Coordinator, shop: Shop) -> None:
    """By a plain function, too; what was not registered is not undone."""

    def refund(payment: str) -> None:
        shop.did.append(f"refund {payment}")

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        async with durable.undo() as undo:
            undo.later("refund tea", refund, await durable.step("charge tea", shop.charge, "tea"))
            await durable.step("charge cup", failing)
            undo.later("refund cup", refund, "p-cup")

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="sold out"):
            await (await buy.enqueue()).result(timeout=WITHIN)
    assert shop.did == ["charge tea", "refund p-tea"]


async def test_job_that_is_undone_cannot_be_cancelled(any_concert: Coordinator, shop: Shop) -> None:
    """It ends as it was to end; waiting for the cancellation waits for that."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def refund() -> None:
        begun.set()
        await go_on.wait()
        await shop.refund("all")

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        async with durable.undo() as undo:
            undo.later("refund", refund)
            await failing()

    async with in_background(any_concert.run_worker("default")):
        job = await buy.enqueue()
        await begun.wait()
        assert not await job.cancel(timeout=0)
        go_on.set()
        assert await job.cancel(timeout=WITHIN)
        with pytest.raises(JobFailed, match="sold out"):
            await job.result(timeout=WITHIN)
    assert shop.did == ["refund all"]


@pytest.mark.parametrize("priority", [0, 5])
@pytest.mark.parametrize("delay", [0.0, 3600.0])
async def test_job_that_is_to_be_undone_stays_where_it_is_if_it_is_cancelled(
    any_concert: Coordinator, shop: Shop, priority: int, delay: float
) -> None:
    """Given back by its worker, or delayed until it is tried again: it is undone then, and not lost."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def refund() -> None:
        if not begun.is_set():
            begun.set()
            if delay:
                raise ValueError("try again")
            await go_on.wait()
        await shop.refund("all")

    @any_concert.task(max_attempts=2, backoff=lambda _: delay if begun.is_set() else 0.0, priority=priority)
    async def buy() -> None:
        async with durable.undo() as undo:
            undo.later("refund", refund)
            await failing()

    async with in_background(any_concert.run_worker("default", grace=0)):
        job = await buy.enqueue()
        await begun.wait()
        if delay:
            await status(any_concert, job, JobStatus.DELAYED)
    before = await ledger_of(any_concert)
    assert not await job.cancel(timeout=0)
    after = await ledger_of(any_concert)
    assert (after.ready, after.delayed, after.states) == (before.ready, before.delayed, before.states)
    go_on.set()
    await job.reschedule(delay=0)
    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="sold out"):
            await job.result(timeout=WITHIN)
    assert shop.did == ["refund all"]


async def test_cancelled_job_that_cannot_be_undone_is_cancelled_once_its_replay_has(
    any_concert: Coordinator, shop: Shop
) -> None:
    """Until then it is dead, with the error of what could not be undone."""
    shop.broken = 1

    @any_concert.task(max_attempts=1)
    async def buy() -> str:
        return await buy_two(shop, lambda: durable.sleep("nap", 3600))

    async with in_background(any_concert.run_worker("default")):
        job = await buy.enqueue()
        await status(any_concert, job, JobStatus.DELAYED)
        await job.cancel(timeout=WITHIN)
        with pytest.raises(JobFailed, match="the bank does not answer"):
            await job.result(timeout=WITHIN)
        assert await any_concert.tasks.replay(job.id) == []
        await status(any_concert, job, JobStatus.CANCELLED)
    assert shop.did == BOTH
    assert await is_clean(any_concert)


async def test_block_that_was_left_stays_though_the_next_one_is_undone(any_concert: Coordinator, shop: Shop) -> None:
    """One after the other, and one in the other."""

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        async with durable.undo("first") as undo:
            undo.later("tea", shop.refund, await durable.step("charge tea", shop.charge, "tea"))
        async with durable.undo("second") as undo:
            undo.later("cup", shop.refund, await durable.step("charge cup", shop.charge, "cup"))
            async with durable.undo("inner") as inner:
                inner.later("pot", shop.refund, await durable.step("charge pot", shop.charge, "pot"))
            await failing()

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="sold out"):
            await (await buy.enqueue()).result(timeout=WITHIN)
    assert shop.did == ["charge tea", "charge cup", "charge pot", "refund p-cup"]


async def test_body_comes_again_through_all_that_it_had_done(any_concert: Coordinator, shop: Shop) -> None:
    """Messages, timeouts, sleeps, values, loops and task groups; and not beyond."""

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        async with durable.undo() as undo:
            packed = await durable.wait_for("packed", str, timeout=3600)
            ticket = await durable.uuid()
            undo.later("unpack", shop.refund, f"{packed} {ticket}")
            with pytest.raises(TimeoutError):
                await durable.wait_for("late", str, timeout=0)
            await durable.sleep("moment", 0)
            async for line in durable.each("lines", [1, 2], key=lambda line: line):
                shop.did.append(f"line {line}")
            shop.did.append(str(ticket))
            async with asyncio.TaskGroup() as group:
                for name in "ab":
                    group.create_task(durable.step(name, shop.charge, name))
            async for line in durable.each("more lines", [1, 2], key=lambda line: line):
                raise ValueError(f"sold out at {line}")

    async with in_background(any_concert.run_worker("default")):
        job = await buy.enqueue()
        assert await job.send("packed", "box")
        with pytest.raises(JobFailed, match="sold out at 1"):
            await job.result(timeout=WITHIN)
    ticket = shop.did[2]
    assert shop.did[:2] == ["line 1", "line 2"]
    assert sorted(shop.did[3:5]) == ["charge a", "charge b"]
    assert shop.did[5:] == [ticket, f"refund box {ticket}"]
    assert await is_clean(any_concert)


async def test_no_other_task_begins_or_ends_anything_while_something_is_undone(
    any_concert: Coordinator, shop: Shop
) -> None:
    """One that comes to a step that was not kept waits, and does not end the group before."""
    is_undone = False
    begun = asyncio.Event()

    async def refund() -> None:
        begun.set()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        await shop.refund("all")

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        async def other() -> None:
            await (begun.wait() if is_undone else anyio.sleep_forever())
            await durable.step("other", shop.charge, "other")

        async with asyncio.TaskGroup() as group:
            group.create_task(other())
            async with durable.undo() as undo:
                undo.later("refund", refund)
                nonlocal is_undone
                is_undone = True
                await failing()

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="ExceptionGroup"):
            await (await buy.enqueue()).result(timeout=WITHIN)
    assert shop.did == ["refund all"]


async def test_blocks_in_tasks_that_run_at_once_are_all_undone(any_concert: Coordinator, shop: Shop) -> None:
    """Though each of them ends its group when it is."""

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        both = asyncio.Barrier(3)

        async def one(what: str) -> None:
            async with durable.undo(what) as undo:
                undo.later("refund", shop.refund, await durable.step(f"charge {what}", shop.charge, what))
                await both.wait()
                await anyio.sleep_forever()

        async with asyncio.TaskGroup() as group:
            group.create_task(one("tea"))
            group.create_task(one("cup"))
            await both.wait()
            await failing()

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="ExceptionGroup"):
            await (await buy.enqueue()).result(timeout=WITHIN)
    assert sorted(shop.did) == ["charge cup", "charge tea", "refund p-cup", "refund p-tea"]
    assert await is_clean(any_concert)


def unlike_json() -> list[int] | tuple[int]:
    """A function whose result cannot be kept."""
    raise AssertionError


@pytest.mark.parametrize(
    ("function", "args", "says"),
    [
        (failing, [1], "too many positional arguments"),
        (partial(buy_two, Shop()), [], "missing a required argument: 'then'"),
        (unlike_json, [], "cannot be converted to JSON"),
    ],
)
async def test_what_could_not_undo_is_refused_before_there_is_anything_to_undo(
    any_concert: Coordinator, shop: Shop, function: Any, args: list[Any], says: str
) -> None:
    """Not when it is needed."""

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        async with durable.undo() as undo:
            with pytest.raises(TypeError, match=says):
                undo.later("refund", function, *args)
            undo.later("refund", shop.refund, "all")
            await failing()

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="sold out"):
            await (await buy.enqueue()).result(timeout=WITHIN)
    assert shop.did == ["refund all"]


async def test_block_waits_until_the_one_in_it_is_undone(any_concert: Coordinator, shop: Shop) -> None:
    """Also if that takes another attempt."""
    shop.broken = 1

    @any_concert.task(max_attempts=2, backoff=lambda _: 0.0)
    async def buy() -> None:
        async with durable.undo("outer") as outer:
            outer.later("refund", shop.refund, "outer")
            async with asyncio.TaskGroup() as group:
                group.create_task(inner())

    async def inner() -> None:
        async with durable.undo("inner") as inner:
            inner.later("refund", shop.refund, "inner")
            await current_job().bury(ValueError("sold out"))

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="sold out"):
            await (await buy.enqueue()).result(timeout=WITHIN)
    assert shop.did == ["refund inner", "refund outer"]


async def failing_in_a_generator(shop: Shop) -> None:
    """Charge in blocks, the inner of which is in a generator, and fail while it is at its `yield`."""
    async with charged(shop, "outer"), aclosing(charging(shop, "inner")) as items:
        async for _ in items:
            await failing()


async def breaking_off_a_generator(shop: Shop) -> None:
    """The same, and leave it before: the event loop closes it, in a task of its own."""
    async with charged(shop, "outer"):
        async for _ in charging(shop, "inner"):
            break
        await failing()


async def leaving_the_outer_block_first(shop: Shop) -> None:
    """With calls of its own instead of `async with`."""
    blocks = [charged(shop, name) for name in ("outer", "inner")]
    for block in blocks:
        await block.__aenter__()
    try:
        await failing()
    except BaseException as error:
        for block in blocks:
            with suppress(BaseException):
                await block.__aexit__(type(error), error, error.__traceback__)
        raise


async def leaving_the_inner_block_never(shop: Shop) -> None:
    """Likewise."""
    async with charged(shop, "outer"):
        await charged(shop, "inner").__aenter__()
        await failing()


@asynccontextmanager
async def charged(shop: Shop, what: str) -> AsyncGenerator[None]:
    """In a block."""
    async with durable.undo(what) as undo:
        undo.later("refund", shop.refund, await durable.step(f"charge {what}", shop.charge, what))
        yield


async def charging(shop: Shop, what: str) -> AsyncGenerator[int]:
    """Likewise, with some items."""
    async with charged(shop, what):
        for number in range(3):
            yield number


@pytest.mark.parametrize(
    "body",
    [
        failing_in_a_generator,
        breaking_off_a_generator,
        leaving_the_outer_block_first,
        leaving_the_inner_block_never,
    ],
)
async def test_nothing_is_undone_before_what_is_in_it(
    any_concert: Coordinator, shop: Shop, body: Callable[[Shop], Coroutine[Any, Any, None]]
) -> None:
    """The job is dead-lettered, with what is wrong; once its code leaves the blocks in order, a replay undoes it."""
    bodies = [body]

    @any_concert.task(max_attempts=2, backoff=lambda _: 0.0)
    async def buy() -> None:
        await bodies[-1](shop)

    async def mended(shop: Shop) -> None:
        async with charged(shop, "outer"), charged(shop, "inner"):
            await failing()

    async with in_background(any_concert.run_worker("default")):
        job = await buy.enqueue()
        with pytest.raises(JobFailed, match=r"to the end of block '\w+'; leave each in its task"):
            await job.result(timeout=WITHIN)
        gc.collect()
        assert shop.did[:2] == ["charge outer", "charge inner"]
        assert "refund p-outer" not in shop.did
        bodies.append(mended)
        await any_concert.tasks.replay(job.id)
        await eventually(lambda: shop.did[2:] == ["refund p-inner", "refund p-outer"])
        await status(any_concert, job, JobStatus.FAILED)
    assert await is_clean(any_concert)


async def test_what_undoes_may_take_steps_and_sleep(any_concert: Coordinator, shop: Shop) -> None:
    """They are kept as well: what fails behind them goes on there, and nothing runs twice."""
    shop.broken = 1

    async def refund() -> None:
        await durable.step("ask", shop.charge, "a fee")
        await durable.sleep("wait", 0.01, in_memory_below=0)
        async for part in durable.each("parts", ["one", "two"], key=str):
            await durable.step(f"refund {part}", shop.refund, part)

    @any_concert.task(max_attempts=2, backoff=lambda _: 0.0)
    async def buy() -> None:
        async with durable.undo() as undo:
            undo.later("last", shop.refund, "all")
            undo.later("refund", refund)
            await durable.wait_for("packed", str, timeout=3600)

    async with in_background(any_concert.run_worker("default")):
        job = await buy.enqueue()
        await status(any_concert, job, JobStatus.DELAYED)
        await job.cancel(timeout=WITHIN)
        with pytest.raises(JobCancelled):
            await job.result(timeout=WITHIN)
    assert shop.did == ["charge a fee", "refund one", "refund two", "refund all"]
    assert await is_clean(any_concert)


async def test_steps_in_what_was_undone_are_not_missed(any_concert: Coordinator, shop: Shop) -> None:
    """It is not undone again, and so they are not asked for again, when another attempt goes on."""

    async def refund() -> None:
        await durable.step("ask", shop.charge, "a fee")

    async def fail_once(payment: str) -> None:
        if "broken" not in shop.did:
            shop.did.append("broken")
            raise ConnectionError
        await shop.refund(payment)

    @any_concert.task(max_attempts=2, backoff=lambda _: 0.0)
    async def buy() -> None:
        async with durable.undo() as undo:
            undo.later("last", fail_once, "all")
            undo.later("first", refund)
            await failing()

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="sold out"):
            await (await buy.enqueue()).result(timeout=WITHIN)
    assert shop.did == ["charge a fee", "broken", "refund all"]
    assert await is_clean(any_concert)


async def test_steps_in_steps_and_in_items_are_not_missed(any_concert: Coordinator, shop: Shop) -> None:
    """The body does not come to them again: it gets the step that they are in, or passes over the item."""

    async def charge_both() -> None:
        for what in ("tea", "cup"):
            await durable.step(f"charge {what}", shop.charge, what)
        async with durable.undo("in a step"):
            pass

    async def charge_and_wait() -> None:
        await durable.step("charge pot", shop.charge, "pot")
        await durable.wait_for("packed", str, timeout=3600)

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        async with durable.undo() as undo:
            undo.later("refund", shop.refund, "all")
            await durable.step("both", charge_both)
            async for line in durable.each("lines", range(3), key=lambda line: line):
                await durable.step(f"line {line}", shop.charge, f"line {line}")
                if line == 1:
                    await durable.step("pot", charge_and_wait)

    async with in_background(any_concert.run_worker("default")):
        job = await buy.enqueue()
        await status(any_concert, job, JobStatus.DELAYED)
        assert await job.cancel(timeout=WITHIN)
        assert await job.status() is JobStatus.CANCELLED
    charges = [f"charge {what}" for what in ("tea", "cup", "line 0", "line 1", "pot")]
    assert shop.did == [*charges, "refund all"]
    assert await is_clean(any_concert)


async def test_block_in_an_item_that_is_not_undone_is_missed(
    any_concert: Coordinator, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The body does not come to it again: what it has begun is not taken for undone."""
    monkeypatch.setattr(steps, "_LONGEST_WAIT", 0.1)

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        async for line in durable.each("lines", range(3), key=lambda line: line):
            async with durable.undo(f"line {line}") as undo:
                undo.later("refund", shop.refund, await durable.step(f"charge {line}", shop.charge, f"{line}"))
                if line == 1:
                    await failing()

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="did not come to its step 'line 1' again"):
            await (await buy.enqueue()).result(timeout=WITHIN)
    assert shop.did == ["charge 0", "charge 1"]


async def test_nothing_is_registered_where_it_would_not_be_registered_again(
    any_concert: Coordinator, shop: Shop
) -> None:
    """In a step, or in an item of a loop; behind them it is."""

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        async with durable.undo() as undo:

            async def charge() -> None:
                with pytest.raises(RuntimeError, match=r"'tea' is registered in a step, or in an item"):
                    undo.later("tea", shop.refund, "tea")

            await durable.step("charge", charge)
            undo.later("tea", shop.refund, "tea")
            async for _ in durable.each("lines", range(3), key=lambda line: line):
                with pytest.raises(RuntimeError, match=r"'cup' is registered in a step, or in an item"):
                    undo.later("cup", shop.refund, "cup")
            undo.later("cup", shop.refund, "cup")
            await failing()

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="sold out"):
            await (await buy.enqueue()).result(timeout=WITHIN)
    assert shop.did == ["refund cup", "refund tea"]


async def test_body_that_left_a_loop_before_its_end_is_undone_behind_it(any_concert: Coordinator, shop: Shop) -> None:
    """Up to where it had come, whether that was a step or not; and the loop gives out no item again."""
    begun: list[int] = []

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        async with durable.undo() as undo:
            async for line in durable.each("lines", range(5), key=lambda line: line):
                begun.append(line)
                if line == 2:
                    break
            undo.later("lines", shop.refund, "lines")
            payment = await durable.step("charge", shop.charge, "tea")
            undo.later("tea", shop.refund, payment)
            async for _ in durable.each("none", range(5), key=lambda line: line):
                break
            undo.later("none", shop.refund, "none")
            await failing()

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="sold out"):
            await (await buy.enqueue()).result(timeout=WITHIN)
    assert shop.did == ["charge tea", "refund none", "refund p-tea", "refund lines"]
    assert begun == [0, 1, 2]
    assert await is_clean(any_concert)


async def test_loop_that_went_on_in_a_later_attempt_is_passed_all_the_same(
    any_concert: Coordinator, shop: Shop
) -> None:
    """What the first attempt had begun behind it is undone."""

    @any_concert.task(max_attempts=2)
    async def buy() -> None:
        async with durable.undo() as undo:
            async for line in durable.each("lines", range(5), key=lambda line: line):
                if line == 2 and current_job().attempt == 1:
                    break
                if line == 4:
                    await failing()
            undo.later("tea", shop.refund, await durable.step("charge", shop.charge, "tea"))
            raise Retry(after=0)

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="sold out"):
            await (await buy.enqueue()).result(timeout=WITHIN)
    assert shop.did == ["charge tea", "refund p-tea"]


async def test_loop_that_has_begun_again_is_passed_as_often_as_it_was_left(
    any_concert: Coordinator, shop: Shop
) -> None:
    """And no more often: what comes behind the last time had not begun."""

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        async with durable.undo() as undo:
            for part in range(3):
                async for line in durable.each("lines", range(9), key=lambda line: line):
                    if line == part:
                        break
                    if line == 1:
                        await failing()
                undo.later(f"{part}", shop.refund, f"{part}")

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="sold out"):
            await (await buy.enqueue()).result(timeout=WITHIN)
    assert shop.did == ["refund 1", "refund 0"]


@pytest.mark.parametrize("is_plain", [False, True])
async def test_body_that_an_error_has_left_in_a_loop_is_undone_up_to_there(
    any_concert: Coordinator, shop: Shop, monkeypatch: pytest.MonkeyPatch, is_plain: bool
) -> None:
    """What comes behind the loop has not begun, even if a step was taken on the way out."""
    monkeypatch.setattr(steps, "_LONGEST_WAIT", 0.1)

    def charge(what: str) -> None:
        shop.did.append(f"charge {what}")

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        async with durable.undo() as undo:
            undo.later("all", shop.refund, "all")
            try:
                async for line in durable.each("lines", range(5), key=lambda line: line):
                    if line == 2:
                        await failing()
            finally:
                if is_plain:
                    await durable.step("charge", charge, "fee")
                else:
                    await durable.step("charge", shop.charge, "fee")
            undo.later("behind", shop.refund, "behind")

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="sold out"):
            await (await buy.enqueue()).result(timeout=WITHIN)
    assert shop.did == ["charge fee", "refund all"]


async def test_what_undoes_is_not_undone_itself(any_concert: Coordinator, shop: Shop) -> None:
    """A block in it is refused."""

    async def refund() -> None:
        async with durable.undo("again"):
            shop.did.append("entered")

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        async with durable.undo() as undo:
            undo.later("refund", refund)
            await failing()

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match=r"durable.undo\('again'\) is in what is undone"):
            await (await buy.enqueue()).result(timeout=WITHIN)
    assert shop.did == []


async def test_job_with_too_many_steps_is_undone(
    any_concert: Coordinator, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What undoes has room of its own."""
    monkeypatch.setattr(journal, "_MOST", 4)

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        async with durable.undo() as undo:
            undo.later("refund", shop.refund, "all")
            for number in range(4):
                await durable.step(f"{number}", anyio.lowlevel.checkpoint)

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="has 4 steps already"):
            await (await buy.enqueue()).result(timeout=WITHIN)
    assert shop.did == ["refund all"]
    assert await is_clean(any_concert)


async def test_job_that_uses_a_name_twice_is_undone(any_concert: Coordinator, shop: Shop) -> None:
    """It comes as far again, and ends with that error."""

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        async with durable.undo() as undo:
            for what in ("tea", "cup"):
                undo.later(what, shop.refund, await durable.step("charge", shop.charge, what))

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="used before in this attempt"):
            await (await buy.enqueue()).result(timeout=WITHIN)
    assert shop.did == ["charge tea", "refund p-tea"]


@pytest.mark.parametrize("name", ["left", "before", "inner", "inner last"])
async def test_name_of_another_step_is_refused_before_there_is_anything_to_undo(
    any_concert: Coordinator, shop: Shop, name: str
) -> None:
    """Otherwise undoing it would fail, which nobody would see before it is needed."""

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        await durable.step("outer before", shop.charge, "tea")
        async with durable.undo("outer") as outer, durable.undo("outer inner") as inner:
            inner.later("last", shop.refund, "inner")
            with pytest.raises(ValueError, match=f"outer {name}' "):
                outer.later(name, shop.refund, "outer")

    async with in_background(any_concert.run_worker("default")):
        await (await buy.enqueue()).result(timeout=WITHIN)
    assert await is_clean(any_concert)


async def test_task_that_catches_its_cancellation_does_not_hold_up_undoing(
    any_concert: Coordinator, shop: Shop
) -> None:
    """It is ended at the next step: the block waits for it, and it does not wait for the block."""
    failed: list[bool] = []

    async def stubborn() -> None:
        await durable.step("a", shop.charge, "cup")
        if not failed:
            failed.append(True)
            await failing()
        with suppress(asyncio.CancelledError):
            await anyio.sleep_forever()
        await durable.step("b", shop.charge, "too late")

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        async with durable.undo() as undo:
            undo.later("refund", shop.refund, await durable.step("charge", shop.charge, "tea"))
            async with asyncio.TaskGroup() as group:
                group.create_task(stubborn())

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="TaskGroup"):
            await (await buy.enqueue()).result(timeout=WITHIN)
    assert shop.did == ["charge tea", "charge cup", "refund p-tea"]
    assert await is_clean(any_concert)


async def test_nothing_is_registered_outside_of_its_block(any_concert: Coordinator, shop: Shop) -> None:
    """It would never be undone: not before, not behind, and not by what undoes."""
    undo_of: list[Any] = []

    async def refund() -> None:
        shop.did.append("refund")
        with pytest.raises(RuntimeError, match="is not open"):
            undo_of[-1].later("more", shop.refund, "more")

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        undo = durable.undo()
        undo_of.append(undo)
        with pytest.raises(RuntimeError, match="is not open"):
            undo.later("early", shop.refund, "early")
        async with undo:
            pass
        with pytest.raises(RuntimeError, match="is not open"):
            undo.later("late", shop.refund, "late")
        async with durable.undo("again") as again:
            undo_of.append(again)
            again.later("refund", refund)
            await failing()

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match="ValueError"):
            await (await buy.enqueue()).result(timeout=WITHIN)
    assert shop.did == ["refund"]
    assert await is_clean(any_concert)


async def test_no_step_takes_the_name_of_what_is_to_be_undone(any_concert: Coordinator, shop: Shop) -> None:
    """It is refused, and what was registered is undone."""

    @any_concert.task(max_attempts=1)
    async def buy() -> None:
        async with durable.undo() as undo:
            undo.later("refund", shop.refund, await durable.step("charge", shop.charge, "tea"))
            await durable.step("undo refund", shop.charge, "cup")

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match=r"step 'undo refund' of job .* was refused"):
            await (await buy.enqueue()).result(timeout=WITHIN)
    assert shop.did == ["charge tea", "refund p-tea"]
    assert await is_clean(any_concert)


@pytest.mark.parametrize("name", ["", "x" * 512, 7], ids=["empty", "too long", "no text"])
async def test_bad_names_are_refused(any_concert: Coordinator, name: Any) -> None:
    """Of a block, and of what is undone, before anything is noted."""

    @any_concert.task(max_attempts=1)
    async def task() -> None:
        with pytest.raises((InvalidName, TypeError)):
            durable.undo(name)
        async with durable.undo() as undo:
            with pytest.raises((InvalidName, TypeError)):
                undo.later(name, print)
            undo.later("twice", print)
            with pytest.raises(ValueError, match="'twice' is registered in 'undo' already"):
                undo.later("twice", print)
        assert current_job().attempt == 1

    async with in_background(any_concert.run_worker("default")):
        await (await task.enqueue()).result(timeout=WITHIN)


def test_undoing_is_for_jobs() -> None:
    """As all durable verbs are."""
    with pytest.raises(RuntimeError, match="no job"):
        durable.undo()
