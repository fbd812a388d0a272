"""What `inconcert.testing` says of jobs and leases, and does with them: on a real server and on fakeredis."""

import asyncio
from datetime import timedelta
from typing import Literal

import anyio
import pytest

from inconcert import (
    Coordinator,
    JobFailed,
    JobStatus,
    LeaseLost,
    Limit,
    NotConnected,
    NotHeld,
    Rate,
    Retry,
    UnknownTask,
    durable,
)
from inconcert.testing import assert_enqueued, assert_nothing_held, drain, lapse, refute_enqueued
from tests.support.eventually import eventually
from tests.support.servers import RealServer
from tests.support.world import world

pytestmark = pytest.mark.skipif(world().least_rights, reason="tests of users look at all keys")


async def test_enqueued_job_is_found_by_its_arguments(any_concert: Coordinator) -> None:
    """Positional or named, with defaults or without; and by its task alone, or the name of that."""

    @any_concert.task(name="send")
    async def send(to: str, *, urgent: bool = False) -> None: ...

    job = await send.enqueue("ann")

    assert (await assert_enqueued(any_concert, send)).id == job.id
    await assert_enqueued(any_concert, "send")
    await assert_enqueued(any_concert, send, "ann")
    await assert_enqueued(any_concert, send, to="ann", urgent=False)
    await assert_enqueued(any_concert, "send", "ann")
    await refute_enqueued(any_concert, send, "ann", urgent=True)
    await refute_enqueued(any_concert, "sand")


async def test_failure_says_what_is_enqueued(any_concert: Coordinator) -> None:
    """Where, and in which state."""
    first = await any_concert.enqueue("a", [1], {"x": "y"}, queue="high")
    await any_concert.enqueue("b", [2], delay=60)
    await any_concert.enqueue("c", after=[first])

    with pytest.raises(AssertionError) as failed:
        await assert_enqueued(any_concert, "a", 2)
    said = str(failed.value).splitlines()
    assert said[0] == "no job a(2) is enqueued; enqueued are:"
    assert sorted(said[1:]) == [
        "  a(1, x='y')  in queue 'high'",
        "  b(2)  in queue 'default', delayed",
        "  c()  in queue 'default', waiting",
    ]
    with pytest.raises(AssertionError, match=r"a job of task 'b' is enqueued; enqueued are:\n"):
        await refute_enqueued(any_concert, "b")


async def test_failure_says_that_nothing_is_enqueued(any_concert: Coordinator) -> None:
    """A job that runs, and one that has failed, are not."""
    await any_concert.enqueue("a")
    async with any_concert.consume("default") as jobs, await anext(aiter(jobs)) as job:
        with pytest.raises(AssertionError, match="no job of task 'a' is enqueued; nothing is"):
            await assert_enqueued(any_concert, "a")
        await job.bury(ValueError())
    await refute_enqueued(any_concert, "a")


async def test_arguments_that_do_not_fit_are_refused(any_concert: Coordinator) -> None:
    """Instead of not being found."""

    @any_concert.task
    async def send(to: str) -> None: ...

    with pytest.raises(TypeError, match="to"):
        await refute_enqueued(any_concert, send, "ann", "bob")


async def test_drain_runs_what_jobs_enqueue(any_concert: Coordinator) -> None:
    """In other queues, too, and what waits for others; coroutine functions and plain ones."""
    ran: list[str] = []

    @any_concert.task(queue="one")
    async def first() -> None:
        ran.append("first")
        job = await second.enqueue()
        await third.options(after=[job]).enqueue()

    @any_concert.task(queue="two")
    def second() -> None:
        ran.append("second")

    @any_concert.task(queue="three")
    async def third() -> None:
        ran.append("third")

    await drain(any_concert)
    await first.enqueue()
    await drain(any_concert)

    assert ran == ["first", "second", "third"]


async def test_jobs_that_have_a_priority_are_found_and_run(any_concert: Coordinator) -> None:
    """Though none of them is in the list of its queue."""
    seen: list[int] = []

    @any_concert.task(name="show")
    async def show(priority: int) -> None:
        seen.append(priority)

    for priority in (9, 0, 4):
        await show.options(priority=priority, queue=f"only {priority // 5}").enqueue(priority)
    await assert_enqueued(any_concert, show, 9)
    with pytest.raises(AssertionError, match=r"(?m)^  show\(4\)  in queue 'only 0'$"):
        await refute_enqueued(any_concert, show)
    await drain(any_concert)
    assert sorted(seen) == [0, 4, 9]
    await refute_enqueued(any_concert, show)


async def test_drain_runs_delayed_jobs_if_it_is_to(any_concert: Coordinator) -> None:
    """And further attempts; otherwise they stay where they are."""
    attempts = 0

    @any_concert.task(max_attempts=3)
    async def again() -> str:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise Retry
        return "done"

    job = await again.options(delay=3600).enqueue()
    await drain(any_concert)
    assert (attempts, await job.status()) == (0, JobStatus.DELAYED)
    await drain(any_concert, delayed=True)
    assert (attempts, await job.result(timeout=0)) == (3, "done")


async def test_drain_raises_what_a_job_has_raised(any_concert: Coordinator) -> None:
    """When the others are done, with a note that names the job; unless it may fail."""
    done: list[int] = []

    @any_concert.task
    async def work(n: int) -> None:
        if n == 1:
            raise ValueError(n)
        done.append(n)

    jobs = [await work.enqueue(n) for n in range(3)]
    with pytest.raises(ValueError, match="1") as failed:
        await drain(any_concert)
    assert jobs[1].id in failed.value.__notes__[0]
    assert sorted(done) == [0, 2]
    assert await jobs[1].status() == JobStatus.DELAYED
    await drain(any_concert, delayed=True, may_fail=True)
    assert await jobs[1].status() == JobStatus.FAILED


async def test_drain_raises_for_a_job_that_cannot_be_run(any_concert: Coordinator) -> None:
    """Once: in the next drain it is one of the dead letters from before."""
    await any_concert.enqueue("unknown")
    with pytest.raises(JobFailed, match=UnknownTask.__name__):
        await drain(any_concert)
    await drain(any_concert)


async def test_drain_leaves_what_cannot_run(any_concert: Coordinator) -> None:
    """Jobs of a paused queue, and those that wait for them."""
    await any_concert.tasks.pause("default")
    job = await any_concert.enqueue("a")
    await any_concert.enqueue("b", after=[job], queue="other")
    with anyio.fail_after(30):
        await drain(any_concert, delayed=True)
    await assert_enqueued(any_concert, "a")
    await assert_enqueued(any_concert, "b")


async def test_drain_ends_though_jobs_enqueue_more_and_more(
    any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what there is."""
    monkeypatch.setattr("inconcert.testing.jobs._MOST_ATTEMPTS", 10)

    @any_concert.task(name="more")
    async def more() -> None:
        await more.enqueue()

    await more.enqueue()
    with pytest.raises(AssertionError, match=r"10 attempts were run, and there is no end; enqueued are:\n  more\(\)"):
        await drain(any_concert)


async def test_drain_says_that_delayed_jobs_do_not_end(
    any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that enqueues itself with a delay would run for hours; a chain that ends runs to its end."""
    monkeypatch.setattr("inconcert.testing.jobs._MOST_TURNS", 5)

    @any_concert.task(name="repeat")
    async def repeat(left: int) -> None:
        if left:
            await repeat.options(delay=60).enqueue(left - 1)

    await repeat.enqueue(3)
    await drain(any_concert, delayed=True)
    await repeat.enqueue(1_000)
    with pytest.raises(AssertionError, match=r"5 times in turn, delayed jobs have enqueued others(.|\n)*repeat\("):
        await drain(any_concert, delayed=True)


async def test_drain_runs_what_a_rate_holds_back(any_concert: Coordinator) -> None:
    """If delayed jobs are to run; the limit of another task still counts."""
    ran: list[int] = []

    @any_concert.task(rate=Rate(1, per=3600.0), queue="r")
    async def rated(number: int) -> None:
        ran.append(number)

    @any_concert.task(limit=Limit(1), queue="l")
    async def limited(number: int) -> None:
        ran.append(number)

    for number in range(3):
        await rated.enqueue(number)
        await limited.enqueue(10 + number)
    await drain(any_concert)
    assert sorted(ran) == [0, 10, 11, 12]
    await drain(any_concert, delayed=True)
    assert sorted(ran) == [0, 1, 2, 10, 11, 12]


async def test_cancelled_drain_gives_jobs_back(any_concert: Coordinator) -> None:
    """As a worker that is cancelled does."""
    started = asyncio.Event()

    @any_concert.task(name="long")
    async def long() -> None:
        started.set()
        await anyio.sleep_forever()

    await long.enqueue()
    draining = asyncio.create_task(drain(any_concert))
    await started.wait()
    draining.cancel()
    await asyncio.wait([draining])
    await assert_enqueued(any_concert, long)


async def test_nothing_of_it_works_while_closed(server: RealServer) -> None:
    """It says so."""
    closed = Coordinator(server.url)
    for call in (
        drain(closed),
        assert_enqueued(closed, "a"),
        refute_enqueued(closed, "a"),
        assert_nothing_held(closed),
    ):
        with pytest.raises(NotConnected):
            await call


async def test_what_is_held_is_named(any_concert: Coordinator) -> None:
    """By whom; what was released, or waits, is not."""
    await assert_nothing_held(any_concert)
    async with any_concert.lock("a:b"), any_concert.rwlock("w").read(), any_concert.election("e"):
        waiting = asyncio.create_task(any_concert.lock("a:b").acquire())
        await eventually(any_concert.lock("a:b").waiters)
        with pytest.raises(AssertionError) as failed:
            await assert_nothing_held(any_concert)
        said = str(failed.value).splitlines()
        assert said[0] == "nothing was to be held, and these are:"
        assert [line.partition(", by holder '")[0] for line in said[1:]] == [
            "  election 'e'",
            "  lock 'a:b'",
            "  rwlock 'w'",
        ]
        assert all(line.endswith("' of this process") for line in said[1:])
        waiting.cancel()
        await asyncio.wait([waiting])
    await assert_nothing_held(any_concert)


async def test_lease_that_was_dropped_is_named(any_concert: Coordinator) -> None:
    """And that nobody has it any more."""
    await any_concert.semaphore("s", limit=2).acquire()
    any_concert._ref.session.renewal._tick()  # as it comes by itself after a third of the ttl

    with pytest.raises(AssertionError, match=r"of this process, which has dropped its lease without a release$"):
        await assert_nothing_held(any_concert)


async def test_lease_of_another_process_is_named(concert: Coordinator, server: RealServer, namespace: str) -> None:
    """As such."""
    async with Coordinator(server.url, namespace=namespace) as other, other.lock("l"):
        with pytest.raises(AssertionError, match=r"lock 'l', by holder '.*' of another process"):
            await assert_nothing_held(concert)


@pytest.mark.parametrize("kind", ["lock", "semaphore", "read", "write", "election"])
async def test_lease_lapses_at_once(
    any_concert: Coordinator, kind: Literal["lock", "semaphore", "read", "write", "election"]
) -> None:
    """Its holder notices, and the next in line gets it with a higher token; nobody waits for a ttl."""
    things = {
        "lock": any_concert.lock("n"),
        "semaphore": any_concert.semaphore("n", limit=1),
        "read": any_concert.rwlock("n").read(),
        "write": any_concert.rwlock("n").write(),
        "election": any_concert.election("n"),
    }
    lease = await things[kind].acquire()
    following = any_concert.rwlock("n").write() if kind == "read" else things[kind]
    waiting = asyncio.create_task(following.acquire())
    await eventually(following.waiters)
    with anyio.fail_after(5):
        await lapse(lease)
        assert lease.is_lost
        following_lease = await waiting
    assert following_lease.fencing_token > lease.fencing_token
    with pytest.raises(LeaseLost):
        await lease.release()
    await following_lease.release()


async def test_body_is_cancelled_when_its_lease_lapses(any_concert: Coordinator) -> None:
    """As after a long pause of its process."""

    async def hold() -> None:
        async with any_concert.lock("l") as lease:
            await lapse(lease)
            await anyio.sleep_forever()

    with pytest.raises(LeaseLost), anyio.fail_after(5):
        await hold()


async def test_lease_that_is_over_does_not_lapse(any_concert: Coordinator) -> None:
    """It says why."""
    lease = await any_concert.lock("l").acquire()
    await lease.release()
    with pytest.raises(NotHeld):
        await lapse(lease)
    lease = await any_concert.lock("l").acquire()
    await lapse(lease)
    with pytest.raises(LeaseLost):
        await lapse(lease)


async def test_drain_ends_sleeps(any_concert: Coordinator) -> None:
    """With `delayed=True`; otherwise the job goes on sleeping."""

    @any_concert.task(name="sleeps")
    async def sleeps() -> str:
        await durable.sleep("a week", timedelta(days=7))
        await durable.sleep("a moment", 50)
        return "woke"

    job = await sleeps.enqueue()
    await drain(any_concert)
    assert await job.status() is JobStatus.DELAYED
    await drain(any_concert, delayed=True)
    assert await job.result(timeout=0) == "woke"


async def test_drain_lets_waits_time_out(any_concert: Coordinator) -> None:
    """With `delayed=True`, as if the time had passed; otherwise the job is left waiting."""

    @any_concert.task()
    async def fulfil() -> str:
        try:
            return await durable.wait_for("packed", str, timeout=3600)
        except TimeoutError:
            return "late"

    job, sent = await fulfil.enqueue(), await fulfil.enqueue()
    await sent.send("packed", "packed")
    await drain(any_concert)
    assert await job.status() is JobStatus.DELAYED
    await drain(any_concert, delayed=True)
    assert [await job.result(timeout=0), await sent.result(timeout=0)] == ["late", "packed"]
