"""Why something waits: who holds it and where, and why a job does not run."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from inconcert import (
    ClaimedJob,
    Coordinator,
    Explanation,
    InvalidName,
    Job,
    JobNotFound,
    JobStatus,
    Limit,
    Rate,
    Retry,
    UnknownSchedule,
    durable,
)
from inconcert.members.group import Group
from inconcert.queues.store import ItemKeys
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.jobs import facts, status
from tests.support.raw import client_of, raw
from tests.support.reports import may_ask, waits_of
from tests.support.schedules import keys_of, look_at_all, now_ms, set_since

__all__ = ["may_ask"]  # the fixture

HOUR = 3600


def codes(found: Explanation) -> list[str]:
    """What its reasons are."""
    return [reason.code for reason in found.reasons]


async def of_job(concert: Coordinator, job: Job[Any]) -> Explanation:
    """Why it does not run."""
    return await concert.explain(f"job:{job.id}")


async def test_permits_of_a_semaphore_are_told(any_concert: Coordinator) -> None:
    """How many each has, and how many those in line want."""
    semaphore = any_concert.semaphore("gpu", limit=24)
    async with any_concert.semaphore("gpu", limit=24, permits=16), semaphore:
        waiting = asyncio.create_task(semaphore.acquire(permits=12))
        await eventually(lambda: waits_of(any_concert, 1))
        found = await any_concert.explain("semaphore:gpu")
        assert {held.permits for held in found.holders} == {1, 16}
        assert [waiter.permits for waiter in found.waiters] == [12]
        assert (str(found).count(" permits"), ", 16 permits, " in str(found)) == (2, True)
        waiting.cancel()


@pytest.mark.parametrize("kind", ["lock", "semaphore", "rwlock", "election"])
async def test_holder_and_waiters_are_named(any_concert: Coordinator, elsewhere: Coordinator, kind: str) -> None:
    """In whatever process they are, with the line of code, the label, and how long they have waited."""

    def thing(concert: Coordinator) -> Any:
        if kind == "semaphore":
            return concert.semaphore("x", limit=1, label="order 7")
        if kind == "rwlock":
            return concert.rwlock("x", label="order 7").write()
        return concert.lock("x", label="order 7") if kind == "lock" else concert.election("x")

    async def wait(concert: Coordinator) -> None:
        async with thing(concert):
            pass

    lease = await thing(elsewhere).acquire()
    async with in_background(wait(any_concert)):
        await waits_of(any_concert, 1)
        found = await any_concert.explain(f"{kind}:x")
        assert (found.kind, found.name, found.state, codes(found)) == (kind, "x", "held", ["held"])
        [holder], [waiter] = found.holders, found.waiters
        assert (holder.holder, holder.process, waiter.process) == (
            lease.holder,
            elsewhere._ref.session.id,
            any_concert._ref.session.id,
        )
        text = str(found)
        assert text.startswith(f"{kind} 'x' is held\n- held for ")
        assert f"at {__file__}:" in text
        assert ("label 'order 7'" in text) == (kind != "election")
        assert "position 1: process" in text
        await lease.release()
    free = await any_concert.explain(f"{kind}:x")
    assert (free.state, codes(free), free.holders, free.waiters) == ("free", ["free"], (), ())


async def test_holder_that_waits_itself_is_explained(any_concert: Coordinator) -> None:
    """By what it waits for, and who has that."""

    async def hold_one_and_wait() -> None:
        async with any_concert.lock("first"), any_concert.lock("second"):
            pass

    async with any_concert.lock("second", label="the root"), in_background(hold_one_and_wait()):
        await waits_of(any_concert, 1)
        found = await any_concert.explain("lock:first")
        assert codes(found) == ["held", "waits"]
        assert "waits itself for lock 'second'" in found.reasons[1].text
        assert "label 'the root'" in found.reasons[1].text


async def test_deadlock_is_shown(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Of two processes, by inspect() and wherever one of its locks is explained; not where another one is."""
    has_one, has_both = asyncio.Event(), asyncio.Event()

    async def hold(concert: Coordinator, mine: str, theirs: str, first: asyncio.Event, both: asyncio.Event) -> None:
        async with concert.lock(mine):
            first.set()
            await both.wait()
            async with concert.lock(theirs):
                pass

    async with (
        in_background(hold(any_concert, "a", "b", has_one, has_both)),
        in_background(hold(elsewhere, "b", "a", has_both, has_one)),
        any_concert.lock("c"),
    ):
        await waits_of(any_concert, 2)
        [deadlock] = (await elsewhere.inspect()).deadlocks
        assert deadlock.things == {("lock", "a"), ("lock", "b")}
        assert {task.waiter.process for task in deadlock.tasks} == {
            any_concert._ref.session.id,
            elsewhere._ref.session.id,
        }
        for name in ("a", "b"):
            found = await any_concert.explain(f"lock:{name}")
            assert [each.id for each in found.deadlocks] == [deadlock.id]
            assert "deadlock of 2 tasks" in str(found)
        assert (await any_concert.explain("lock:c")).deadlocks == ()


async def test_holder_of_a_dead_process_is_told_of(any_concert: Coordinator) -> None:
    """The server knows it although no process does."""
    lease = await any_concert.lock("x").acquire()
    any_concert._ref.session.renewal.remove(lease._state)  # as if this process had died
    any_concert._ref.session.inbox.on_unclaimed("ask", lambda _to, _rest: None)
    found = await any_concert.explain("lock:x", timeout=0.1)
    assert (found.state, codes(found)) == ("held", ["silent_holder"])
    assert found.silent == (any_concert._ref.session.id,)


async def test_members_are_named_those_that_do_not_answer_too(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """With the process and the line of each that does."""
    found = await any_concert.explain("members:crawlers")
    assert (found.state, codes(found)) == ("absent", ["empty"])
    async with any_concert.members("crawlers") as here, elsewhere.members("crawlers") as there:
        found = await any_concert.explain("members:crawlers")
        assert (found.state, codes(found)) == ("present", ["member", "member"])
        assert {held.holder for held in found.holders} == {here.id, there.id}
        assert f"member {here.id} for" in str(found)
        assert "test_explain.py:" in found.reasons[0].text

        elsewhere._ref.session.inbox.on_unclaimed("ask", lambda _to, _rest: None)
        found = await any_concert.explain("members:crawlers", timeout=0.1)
        assert codes(found) == ["member", "silent_member"]
        assert f"member {there.id}: its process did not answer" in str(found)

        client: Any = raw(any_concert)
        keys = Group.of(any_concert._ref, "crawlers").keys
        await client.zadd(keys.members, {"gone.1": 9e15})
        await client.hset(keys.values, "gone.1", "null")
        found = await any_concert.explain("members:crawlers", timeout=0.1)
        assert codes(found) == ["member", "silent_member", "dead_member"]
        await client.zrem(keys.members, "gone.1")
        await client.hdel(keys.values, "gone.1")


async def test_queued_job_waits_for_a_worker(any_concert: Coordinator) -> None:
    """Nobody serves its queue; it is paused; others are before it; all places are taken; its queue is less urgent."""
    gate = asyncio.Event()

    @any_concert.task(name="t", queue="q")
    async def task() -> None:
        await gate.wait()

    first, second, third = [await task.enqueue() for _ in range(3)]
    assert codes(await of_job(any_concert, first)) == ["no_consumer"]
    await any_concert.tasks.pause("q")
    found = await of_job(any_concert, third)
    assert (found.state, codes(found)) == ("queued", ["paused", "no_consumer", "behind"])
    assert "it is behind others in queue 'q': 2" in str(found)
    await any_concert.tasks.resume("q")
    await any_concert.enqueue("u", queue="high")
    await any_concert.tasks.pause("high")
    async with in_background(any_concert.run_worker("high", "q", concurrency=1)):
        await status(any_concert, first, JobStatus.RUNNING)
        found = await of_job(any_concert, second)
        assert codes(found) == ["busy"]
        assert f"job {first.id} of task 't' has run longest" in str(found)
        runs = await of_job(any_concert, first)
        assert (runs.state, codes(runs)) == ("running", ["runs"])
        assert "attempt 1 of task 't' has run for" in str(runs)
        gate.set()


async def test_more_urgent_queues_come_first(any_concert: Coordinator) -> None:
    """They are named, with what is ready in them."""
    await any_concert.enqueue("t", queue="high")
    async with any_concert.consume("high", "low") as jobs, await anext(jobs):
        low = await any_concert.enqueue("t", queue="low")
        await any_concert.enqueue("t", queue="high")
        found = await of_job(any_concert, low)
        assert codes(found) == ["urgent"]
        assert "1 in 'high'" in str(found)


async def test_job_that_is_next_is_about_to_be_claimed(any_concert: Coordinator) -> None:
    """Nothing is in its way."""
    await any_concert.enqueue("t", queue="q")
    async with any_concert.consume("q") as jobs, await anext(jobs):
        job = await any_concert.enqueue("t", queue="q")
        assert codes(await of_job(any_concert, job)) == ["next"]


async def test_delayed_job_says_when_it_is_due(any_concert: Coordinator) -> None:
    """At first, and before another attempt."""

    @any_concert.task(name="t", queue="q", max_attempts=2)
    async def task() -> None:
        raise Retry(after=HOUR)

    later = await task.options(delay=2 * HOUR).enqueue()
    async with in_background(any_concert.run_worker("q")):
        job = await task.enqueue()
        await status(any_concert, job, JobStatus.DELAYED)
        found = await of_job(any_concert, job)
        assert (found.state, codes(found)) == ("delayed", ["retry", "last_error"])
        assert "1 attempt failed; attempt 2 is due in" in str(found)
        found = await of_job(any_concert, later)
        assert codes(found) == ["not_due"]
        assert "it is due in" in str(found)
    await any_concert.tasks.pause("q")
    assert "paused" in codes(await of_job(any_concert, later))


@pytest.mark.parametrize("state", ["delayed", "queued", "running"])
async def test_job_that_is_tried_again_says_why_it_failed(any_concert: Coordinator, state: str) -> None:
    """Until it has ended: while it waits for another attempt, and in this."""

    @any_concert.task(name="t", queue="q", backoff=lambda failures: failures * HOUR)
    async def task() -> None:
        raise ConnectionError("no route to the bank")

    async with in_background(any_concert.run_worker("q")):
        job = await task.enqueue()
        await status(any_concert, job, JobStatus.DELAYED)
    if state != "delayed":
        assert await job.reschedule(delay=0)
    async with any_concert.consume("q" if state == "running" else "other") as jobs:
        claimed = [await anext(jobs)] if state == "running" else []
        found = await of_job(any_concert, job)
        assert (found.state, codes(found)[-1]) == (state, "last_error")
        assert found.reasons[-1].text == "its last failure: ConnectionError: no route to the bank"
        [listed] = (await any_concert.tasks.jobs()).jobs
        assert (listed.error, listed.traceback) == ("ConnectionError: no route to the bank", "")
        described = (await any_concert.tasks.describe(job.id))[job.id]
        assert (described.error, described.attempts) == (listed.error, 1 + (state == "running"))
        for one in claimed:
            await one.ack()
    if state == "running":
        assert await facts(any_concert) == {}


async def test_job_that_is_held_back_names_those_that_run(any_concert: Coordinator) -> None:
    """They have the places of its limit; at a rate, none may run."""
    free = asyncio.Event()

    @any_concert.task(name="limited", queue="q", limit=Limit(1))
    async def limited() -> None:
        await free.wait()

    @any_concert.task(name="rated", queue="q", rate=Rate(1, per=HOUR))
    async def rated() -> None: ...

    async with in_background(any_concert.run_worker("q")):
        first, second, third = await any_concert.enqueue_many([limited.call() for _ in range(3)])
        await status(any_concert, third, JobStatus.DELAYED)
        found = await of_job(any_concert, second)
        assert (found.state, codes(found)) == ("delayed", ["limit"])
        text = f"the limit of its task 'limited': 1 of 1 places are taken, by {first.id}"
        lines = {str(await of_job(any_concert, job)).partition(text)[2] for job in (second, third)}
        assert lines == {"", "; before it in line: 1"}
        queue = str(await any_concert.explain("queue:q"))
        assert "0 ready, 0 due later, 2 held back by limits, 0 after others, 1 running" in queue
        jobs = await any_concert.enqueue_many([rated.call() for _ in range(4)])
        await status(any_concert, jobs[3], JobStatus.DELAYED)
        for job in jobs[1:]:
            assert codes(await of_job(any_concert, job)) == ["rate"]
        told = [str(await of_job(any_concert, job)) for job in jobs[1:]]
        ahead = [each.partition("before it in line: ")[2].partition("\n")[0] for each in told]
        assert ahead == ["", "1", "2"]  # the first of them, which is the next, is not in the line any more
        texts = " ".join(told)
        assert texts.count("the rate of its task 'rated', of which one job begins each 60 min") == 3
        assert texts.count("; it is the next, and due in 60 min") == 1
        free.set()
        await second.result(timeout=10)


async def test_job_that_is_held_back_tells_of_the_limit_that_holds(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """Of a release that was deployed since, with another number of places."""
    free = asyncio.Event()

    @any_concert.task(name="limited", queue="q", limit=Limit(2))
    async def limited() -> None:
        await free.wait()

    lowered = elsewhere.task(name="limited", queue="q", limit=Limit(1))(anyio.lowlevel.checkpoint)
    async with in_background(any_concert.run_worker("q")):
        jobs = await any_concert.enqueue_many([limited.call() for _ in range(3)])
        await status(any_concert, jobs[2], JobStatus.DELAYED)
        await status(any_concert, await lowered.enqueue(), JobStatus.DELAYED)
        assert "'limited': 2 of 1 places are taken, by " in str(await of_job(any_concert, jobs[2]))
        free.set()
        await jobs[2].result(timeout=10)


async def test_job_that_waits_for_the_limit_of_its_key_names_jobs_of_that(any_concert: Coordinator) -> None:
    """And none of another key; once it is free, the limit of all may hold it back."""
    free = {"acme": asyncio.Event(), "other": asyncio.Event()}

    def tenant_of(tenant: str) -> str:
        return tenant

    @any_concert.task(name="import", queue="q", limit=Limit(2), key=tenant_of, key_limit=1)
    async def import_(tenant: str) -> None:
        await free[tenant].wait()

    async with in_background(any_concert.run_worker("q")):
        jobs = await any_concert.enqueue_many([import_.call(tenant) for tenant in ("acme", "other")])
        for job in jobs:
            await status(any_concert, job, JobStatus.RUNNING)
        third = await import_.enqueue("acme")
        await status(any_concert, third, JobStatus.DELAYED)
        text = str(await of_job(any_concert, third))
        assert f"limit of its key in its task 'import': 1 of 1 places are taken, by {jobs[0].id}" in text
        assert jobs[1].id not in text
        for event in free.values():
            event.set()
        await third.result(timeout=10)


async def test_job_that_waits_for_its_turn_says_so(any_concert: Coordinator) -> None:
    """Behind others of its key; the first of them is in the queue."""

    def tenant_of(tenant: str) -> str:
        return tenant

    @any_concert.task(name="import", key=tenant_of, share=True)
    async def import_(tenant: str) -> None: ...

    first, second = await any_concert.enqueue_many([import_.call("acme"), import_.call("acme")])
    assert codes(await of_job(any_concert, first)) == ["no_consumer"]
    found = await of_job(any_concert, second)
    assert codes(found) == ["turn", "no_consumer"]
    assert f"behind jobs of its key, in task 'import', of which job {first.id} has the turn" in found.reasons[0].text


async def test_job_that_is_undone_says_so(any_concert: Coordinator) -> None:
    """And how it ends then."""
    began, free = asyncio.Event(), asyncio.Event()

    async def undo_it() -> None:
        began.set()
        await free.wait()

    @any_concert.task(name="t", queue="q", max_attempts=1)
    async def task() -> None:
        async with durable.undo() as undo:
            undo.later("undo", undo_it)
            raise ValueError

    async with in_background(any_concert.run_worker("q")):
        job = await task.enqueue()
        await asyncio.wait_for(began.wait(), 10)
        found = await of_job(any_concert, job)
        assert (found.state, codes(found)) == ("running", ["runs"])
        assert "it undoes what it had begun, and ends as failed" in str(found)
        free.set()
        await status(any_concert, job, JobStatus.FAILED)


async def test_job_that_left_its_worker_says_for_what(any_concert: Coordinator) -> None:
    """For a message, or to sleep."""

    @any_concert.task(name="waits", queue="q")
    async def waits() -> None:
        await durable.wait_for("packed", str, timeout=HOUR)

    @any_concert.task(name="sleeps", queue="q")
    async def sleeps() -> None:
        await durable.sleep("a while", HOUR)

    async with in_background(any_concert.run_worker("q")):
        for task, code, text in ((waits, "message", "'packed'"), (sleeps, "sleeps", "'a while'")):
            job = await task.enqueue()
            await status(any_concert, job, JobStatus.DELAYED)
            found = await of_job(any_concert, job)
            assert codes(found) == [code]
            assert text in str(found)


async def test_job_that_has_slept_and_failed_is_tried_again(any_concert: Coordinator) -> None:
    """It does not sleep any more, though that was its last step."""

    @any_concert.task(name="slept", queue="q")
    async def slept() -> None:
        await durable.sleep("a moment", 0.01)
        raise Retry(after=HOUR)

    async with in_background(any_concert.run_worker("q")):
        job = await slept.enqueue()
        await status(any_concert, job, JobStatus.DELAYED)
    assert codes(await of_job(any_concert, job))[0] == "retry"


async def test_job_that_waits_for_a_silence_says_so(any_concert: Coordinator) -> None:
    """And when it runs, if no call comes before."""

    @any_concert.task(name="reindex", queue="q")
    async def reindex() -> None: ...

    job = await reindex.options(unique="shop", debounce=HOUR).enqueue()
    found = await of_job(any_concert, job)
    assert codes(found) == ["debounce", "no_consumer"]
    assert "60 min after the last call with its unique name, and is due in " in str(found)


async def test_job_that_runs_after_others_names_them(any_concert: Coordinator) -> None:
    """Those that have not ended, with their states; a callback says how many members of its group are left."""
    done = await any_concert.enqueue("t", queue="q")
    open_ = await any_concert.enqueue("t", queue="q")
    child = await any_concert.enqueue("t", queue="q", after=[done, open_])
    async with any_concert.consume("q") as jobs:
        async with await anext(jobs):
            assert (await of_job(any_concert, child)).reasons[0].text.endswith("which is running")
        found: Explanation = await eventually(lambda: _with_parents(any_concert, child, 1))
        assert found.state == "waiting"
        assert f"it runs after job {open_.id} of task 't', which is queued" in str(found)


async def _with_parents(concert: Coordinator, job: Job[Any], count: int) -> Explanation | None:
    found = await of_job(concert, job)
    return found if codes(found) == ["after"] * count else None


async def test_callback_says_how_many_members_are_left(any_concert: Coordinator) -> None:
    """That its group is open, how many have not ended, and how many of them keep it waiting for their replay."""
    broken = [True]

    @any_concert.task(name="t", queue="q", max_attempts=1)
    async def task(fails: bool) -> None:
        if fails and broken:
            raise ValueError("no luck")

    group = await any_concert.group(then=task.options(queue="other").call(False))
    await group.add([task.call(False), task.call(True)])
    found = await of_job(any_concert, group.callback)
    assert codes(found) == ["group", "no_consumer"]
    assert "not closed yet, so members may come: 2 are in, and 2 of them have not ended; close() or cancel() it" in str(
        found
    )
    await group.close()
    found = await of_job(any_concert, group.callback)
    assert codes(found) == ["group", "no_consumer"]
    assert "of which 2 are left" in str(found)
    await any_concert.run_worker("q", burst=True)
    found = await of_job(any_concert, group.callback)
    assert codes(found) == ["group", "no_consumer"]
    assert "; dead-lettered of these: 1; with when='succeeded' it waits until they are replayed" in str(found)
    broken.clear()
    await any_concert.tasks.replay_all()
    assert "of which 1 are left" in str(await of_job(any_concert, group.callback))
    await any_concert.run_worker("q", "other", burst=True)
    assert codes(await of_job(any_concert, group.callback)) == ["ended"]


async def test_dead_job_names_the_one_before_it_that_is_dead(any_concert: Coordinator) -> None:
    """To be replayed with its dependants; one that has succeeded is not named."""

    @any_concert.task(name="t", queue="q", max_attempts=1)
    async def task(fails: bool) -> None:
        if fails:
            raise ValueError("no luck")

    parents = [await task.enqueue(fails) for fails in (False, True)]
    child = await task.options(after=parents).enqueue(False)
    await any_concert.run_worker("q", burst=True)
    found = await of_job(any_concert, child)
    assert (found.state, codes(found)) == ("failed", ["dead", "after"])
    assert f"it runs after job {parents[1].id}, which was dead-lettered, too: replay that one with its" in str(found)


async def test_job_that_waits_inside_names_the_lock(any_concert: Coordinator) -> None:
    """What a running job waits for, who has that, what it holds, and who waits for its result."""

    @any_concert.task(name="t")
    async def task() -> None:
        async with any_concert.lock("mine"), any_concert.lock("theirs"):
            pass

    async def result(job: Job[None]) -> None:
        await job.result()

    async with any_concert.lock("theirs", label="root"), in_background(any_concert.run_worker("default")):
        job = await task.enqueue()
        async with in_background(result(job)):
            await waits_of(any_concert, 2)
            found = await of_job(any_concert, job)
            assert codes(found) == ["runs", "waits", "holds"]
            assert "waits itself for lock 'theirs'" in found.reasons[1].text
            assert "label 'root'" in found.reasons[1].text
            assert "lock 'mine'" in found.reasons[2].text
            assert [waiter.name for waiter in found.waiters] == [job.id]


async def test_job_that_has_ended_says_how(any_concert: Coordinator) -> None:
    """Done, cancelled, or dead-lettered, with the error."""

    @any_concert.task(name="t", queue="q", max_attempts=1)
    async def task(fails: bool) -> None:
        if fails:
            raise ValueError("card declined")

    cancelled, done, dead = [await task.enqueue(fails) for fails in (False, False, True)]
    assert await cancelled.cancel()
    await any_concert.run_worker("q", burst=True)
    assert codes(await of_job(any_concert, cancelled)) == ["ended"]
    assert "succeeded" in str(await of_job(any_concert, done))
    found = await of_job(any_concert, dead)
    assert (found.state, codes(found)) == ("failed", ["dead"])
    assert "after 1 attempt: ValueError: card declined" in str(found)


async def test_queue_says_who_serves_it(any_concert: Coordinator) -> None:
    """Or that nobody does, that it is paused, or that it was never used."""
    assert codes(await any_concert.explain("queue:q")) == ["unknown"]
    await any_concert.enqueue("t", queue="q")
    found = await any_concert.explain("queue:q")
    assert (found.state, codes(found)) == ("unserved", ["no_consumer", "backlog"])
    assert "1 ready" in str(found)
    async with any_concert.consume("q") as jobs, await anext(jobs):
        found = await any_concert.explain("queue:q")
        assert (found.state, codes(found)) == ("served", ["served", "backlog"])
        await any_concert.tasks.pause("q")
        assert (await any_concert.explain("queue:q")).state == "paused"


async def test_items_that_nobody_takes_say_so(any_concert: Coordinator) -> None:
    """With how many there are, and where; and a queue that was never used is told apart."""
    queue = any_concert.queue("q", maxsize=2)
    assert codes(await any_concert.explain("items:q")) == ["unknown"]
    await queue.put("a")
    await queue.put("b", delay=HOUR)
    found = await any_concert.explain("items:q")
    assert (found.kind, found.state, codes(found)) == ("items", "unserved", ["no_consumer", "backlog"])
    assert str(found).startswith("items 'q' are unserved\n")
    assert "its items: 1 ready (the oldest for" in str(found)
    async with in_background(queue.put("c", timeout=HOUR)):
        await eventually(lambda: _has(any_concert, "line"))
    async with await queue.get():
        found = await any_concert.explain("items:q")
    assert codes(found) == ["not_due", "claimed", "backlog"]
    assert re.search(r"the first delayed one is due in (59|60)\S* min", str(found))
    await queue.shutdown()
    found = await any_concert.explain("items:q")
    assert (found.state, codes(found)) == ("shut", ["shut", "no_consumer", "not_due", "backlog"])


async def _has(concert: Coordinator, code: str) -> bool:
    return code in codes(await concert.explain("items:q"))


async def test_items_say_who_holds_them_and_who_waits(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """In which process and task, at which line, since when; and why the latest was dead-lettered."""

    async def handle(concert: Coordinator) -> None:
        name_task("one")
        async with await concert.queue("q").get():
            await asyncio.Event().wait()

    async def handle_several() -> None:
        name_task("several")
        queue = any_concert.queue("q", max_attempts=1)
        async with await queue.get():
            raise LookupError("no such image")
        for delivery in await queue.get_many(2):
            async with delivery:
                await asyncio.Event().wait()

    async def wait() -> None:
        name_task("waiter")
        await any_concert.queue("q").get()

    await any_concert.queue("q").put_many(["bad", "a", "b", "c", "d"])
    async with in_background(handle_several()):
        await eventually(lambda: _says(any_concert, "holds 2 items"))
        async with in_background(handle(elsewhere)):
            await eventually(lambda: _says(any_concert, "holds an item"))
            found = await any_concert.explain("items:q")
            assert (found.state, codes(found)) == ("served", ["busy", "claimed", "claimed", "dead", "backlog"])
            text = str(found)
            for task, line in ("one", handle), ("several", handle_several):
                start = line.__code__.co_firstlineno
                [at] = re.findall(rf"attempt 1, task '{task}', at {re.escape(__file__)}:(\d+)\n", text)
                assert start < int(at) < start + 8
            assert re.search("dead-lettered: 1, the latest .* ago: LookupError: no such image", text)
            await any_concert.queue("q").purge()
            async with in_background(wait()):
                await eventually(lambda: _has(any_concert, "served"))
                assert "task 'waiter'" in str(await any_concert.explain("items:q"))


async def test_items_say_who_waits_for_room_and_until_all_are_done(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """In put() and in join(), with the task and the line; a deadlock is made of neither."""

    async def put() -> None:
        name_task("putter")
        await elsewhere.queue("q", maxsize=1).put("b", timeout=HOUR)

    async def join() -> None:
        name_task("joiner")
        async with elsewhere.lock("x"):
            await elsewhere.queue("q").join()

    await any_concert.queue("q").put("a")
    async with in_background(put()), in_background(join()):
        await waits_of(any_concert, 2)
        found = await any_concert.explain("items:q")
        assert (found.state, codes(found)) == ("unserved", ["no_consumer", "line", "waits", "waits", "backlog"])
        for task, function, what in (("putter", put, "for room, in put"), ("joiner", join, "until all .*, in join")):
            [line] = re.findall(rf"task '{task}', at {re.escape(__file__)}:(\d+) waits {what}\(\), for", str(found))
            assert 0 < int(line) - function.__code__.co_firstlineno < 4
        waits = (await any_concert.inspect()).waiters()
        assert {(wait.kind, wait.name, wait.mode) for wait in waits} == {("items", "q", "put"), ("items", "q", "join")}
        held = await any_concert.explain("lock:x")
        assert (codes(held), held.deadlocks) == (["held", "waits"], ())
        assert "task 'joiner', at" in held.reasons[1].text
        assert "waits itself for items 'q'" in held.reasons[1].text
    assert await eventually(lambda: _says(any_concert, "its items: 1 ready"))
    assert "waits" not in codes(await any_concert.explain("items:q"))


def name_task(name: str) -> None:
    """Name the current task."""
    task = asyncio.current_task()
    assert task is not None
    task.set_name(name)


async def _says(concert: Coordinator, text: str) -> bool:
    return text in str(await concert.explain("items:q"))


async def test_items_of_a_process_that_is_silent_or_dead_are_told_of(any_concert: Coordinator) -> None:
    """The server knows them although no process tells of them; then nobody can say that none takes."""
    queue = any_concert.queue("q")
    await queue.put("a")
    delivery = await queue.get()
    client: Any = raw(any_concert)
    keys = ItemKeys(any_concert._ref.keys, "q")
    [worker] = await client.zrange(keys.workers, 0, -1)
    await client.zadd(keys.workers, {"gone.1": 1})
    await client.hset(keys.claimed("gone.1"), "gone", "1001 2 1000 ")
    found = await any_concert.explain("items:q")
    assert (found.state, codes(found)) == ("served", ["dead_holder", "claimed", "backlog"])
    assert "worker gone.1 holds an item, 'gone' for" in str(found)
    await client.zrem(keys.workers, "gone.1")
    await client.delete(keys.claimed("gone.1"))

    any_concert._ref.session.inbox.on_unclaimed("ask", lambda _to, _rest: None)
    found = await any_concert.explain("items:q", timeout=0.1)
    assert (found.state, codes(found)) == ("served", ["silent_holder", "backlog"])
    assert worker.decode() in str(found)
    await delivery.ack()
    found = await any_concert.explain("items:q", timeout=0.1)
    assert (found.state, codes(found)) == ("unknown", ["backlog"])


async def test_items_that_a_process_hides_are_told_of_without_a_line(any_concert: Coordinator, namespace: str) -> None:
    """And what it waits for is not known to others."""
    client = client_of(any_concert)
    async with Coordinator.from_client(client, namespace=namespace, report=lambda kind, _: kind) as shy:
        await shy.queue("q").put("a")
        delivery = await shy.queue("q").get()
        found = await any_concert.explain("items:q")
        await delivery.ack()
        assert (found.state, codes(found)) == ("served", ["claimed", "backlog"])
        assert __file__ not in str(found)
        async with in_background(shy.queue("q").get()):
            await eventually(lambda: _is_waited_for(any_concert))
            assert (await any_concert.explain("items:q")).state == "unknown"


async def _is_waited_for(concert: Coordinator) -> bool:
    consumers = [each for process in (await concert.inspect()).processes for each in process.consumers]
    return any(each.waiting and each.is_redacted and each.name == "items" for each in consumers)


async def of_schedule(concert: Coordinator, id_: str = "s") -> Explanation:
    """When it runs, or why it does not."""
    return await concert.explain(f"schedule:{id_}")


async def test_schedule_says_when_it_runs_next(any_concert: Coordinator) -> None:
    """Which needs a worker; then what became of the job of its last instant."""
    await any_concert.schedules.put(
        "s", any_concert.task(name="t", queue="q")(anyio.lowlevel.checkpoint).call(), every=3600
    )
    found = await of_schedule(any_concert)
    assert (found.kind, found.state) == ("schedule", "unfollowed")
    assert codes(found) == ["not_due", "unfollowed", "no_consumer", "never"]
    assert re.search(r"^schedule 's' is unfollowed\n- it runs next in .*, at 20\d\d-.*Z\n", str(found))
    async with in_background(any_concert.run_worker("q")):
        await eventually(lambda: _is_schedule(any_concert, "followed"))
        assert codes(await of_schedule(any_concert)) == ["not_due", "never"]
        await set_since(any_concert, "s", await now_ms(any_concert) - 2 * HOUR * 1000)
        await any_concert.schedules.resume("s")  # it was not paused: workers are told all the same
        await look_at_all(any_concert)
        await eventually(lambda: _has_run(any_concert))
        found = await of_schedule(any_concert)
    assert (found.state, codes(found)) == ("followed", ["not_due", "last"])
    assert re.search(r"its last instant was .* ago: job schedule:s@20\S+Z is succeeded: it has succeeded", str(found))


async def _is_schedule(concert: Coordinator, state: str) -> bool:
    return (await of_schedule(concert)).state == state


async def _has_run(concert: Coordinator) -> bool:
    return "succeeded" in str(await of_schedule(concert))


async def test_schedule_that_does_not_run_says_why(any_concert: Coordinator) -> None:
    """It is paused, and so is its queue; it is late; its job is dead; it is over; it cannot be read here."""
    task = any_concert.task(name="t", queue="q", max_attempts=1)(anyio.lowlevel.checkpoint)
    await any_concert.schedules.put("s", task.call(), every=3600)
    await any_concert.schedules.pause("s")
    await any_concert.tasks.pause("q")
    found = await of_schedule(any_concert)
    assert (found.state, codes(found)) == ("paused", ["paused", "unfollowed", "paused", "no_consumer", "never"])
    assert "until schedules.resume('s')" in found.reasons[0].text
    await any_concert.schedules.resume("s")
    await any_concert.tasks.resume("q")

    await set_since(any_concert, "s", await now_ms(any_concert) - 2 * HOUR * 1000)
    found = await of_schedule(any_concert)
    assert (found.state, codes(found)) == ("unfollowed", ["late", "unfollowed", "no_consumer", "never"])
    assert re.search(
        r"it was due .* ago, at 20\d\d-\S+Z\n- no worker follows it: start one of this namespace", str(found)
    )
    async with any_concert.consume("q") as jobs:  # which follows no schedule itself
        await look_at_all(any_concert)
        await _fail(await anext(jobs))
        await set_since(any_concert, "s", await now_ms(any_concert) - 2 * HOUR * 1000)
        found = await of_schedule(any_concert)
    assert (found.state, codes(found)) == ("followed", ["late", "last"])
    assert "although workers look at schedules" in found.reasons[0].text
    assert re.search(r"is failed: it was dead-lettered after 1 attempt: .*no report", found.reasons[1].text)

    await any_concert.schedules.put("s", task.call(), at=datetime.now(UTC) - timedelta(days=1), missed="skip")
    await look_at_all(any_concert)
    found = await of_schedule(any_concert)
    assert (found.state, codes(found)) == ("over", ["over", "last"])

    await raw(any_concert).hset(keys_of(any_concert, "s").definitions, "s", "{")
    found = await of_schedule(any_concert)
    assert (found.state, codes(found)[0]) == ("unreadable", "unreadable")
    assert "it cannot be read here: schedule 's' cannot be read: " in str(found)


async def test_schedule_that_skips_what_was_missed_says_when_it_runs_next(any_concert: Coordinator) -> None:
    """Also while no worker has noted that an instant was missed, five minutes ago."""
    task, now = any_concert.task(name="t", queue="q")(anyio.lowlevel.checkpoint), await now_ms(any_concert)
    await any_concert.schedules.put("s", task.call(), every=(now / 1000 - 300) / 60, missed="skip")
    await set_since(any_concert, "s", 1)
    assert codes(await of_schedule(any_concert)) == ["not_due", "unfollowed", "no_consumer", "never"]


async def _fail(job: ClaimedJob) -> None:
    async with job:
        raise LookupError("no report")


async def test_schedule_in_code_is_explained(any_concert: Coordinator) -> None:
    """By the id under which it is listed, once a worker has followed it."""

    @any_concert.cron(every=0.2)
    @any_concert.task(name="t", queue="q")
    async def tick() -> None: ...

    id_ = "every 0.2 s of task 't'"
    async with in_background(any_concert.run_worker("q")):
        await eventually(lambda: _was_last(any_concert, id_))
        found = await of_schedule(any_concert, id_)
    assert (found.name, found.state) == (id_, "followed")
    assert re.search(r"job t@20\S+Z (is|has ended)", found.reasons[-1].text)
    client, keys = raw(any_concert), any_concert._jobs.of_task("t")
    await client.zadd(keys.declared, {id_: await now_ms(any_concert) - HOUR * 1000})
    found = await of_schedule(any_concert, id_)
    assert found.state == "unfollowed"
    assert re.search(r"no worker follows it, the last one has .* ago: start one with this task in its code", str(found))


async def _was_last(concert: Coordinator, id_: str) -> bool:
    listed = {status.id: status for status in await concert.schedules.list()}
    return id_ in listed and "last" in codes(await of_schedule(concert, id_))


@pytest.mark.parametrize("thing", ["item", "mailbox:x", ":x", ""])
async def test_other_kinds_are_refused(any_concert: Coordinator, thing: str) -> None:
    """With the kinds that there are."""
    with pytest.raises(ValueError, match="lock, semaphore, rwlock, election, members, job, queue, items, schedule"):
        await any_concert.explain(thing)


async def test_what_is_not_there_is_named(any_concert: Coordinator) -> None:
    """A job and a schedule that do not exist, and names that nothing can have."""
    job = await any_concert.enqueue("t")
    with pytest.raises(JobNotFound):
        await any_concert.explain(f"job:{job.id[:-1]}9")
    for unknown in ("nightly", "every 3 s of task 't'"):
        with pytest.raises(UnknownSchedule):
            await any_concert.explain(f"schedule:{unknown}")
    for thing in ("lock:", "job:", "job:not an id", "queue:", "items:", "schedule:"):
        with pytest.raises(InvalidName):
            await any_concert.explain(thing)


async def test_explanation_can_be_cancelled(any_concert: Coordinator) -> None:
    """Nothing is left of the question."""
    any_concert._ref.session.inbox.on_unclaimed("ask", lambda _to, _rest: None)
    before = len(list(any_concert._ref.session.inbox.receivers()))
    with anyio.move_on_after(0.05) as scope:
        await any_concert.explain("lock:x", timeout=60)
    assert scope.cancelled_caught
    assert len(list(any_concert._ref.session.inbox.receivers())) == before
