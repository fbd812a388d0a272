"""The deadline of a whole job: no attempt begins after it, and one that runs then is cancelled."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from inconcert import Coordinator, JobCancelled, JobFailed, durable
from inconcert.tasks.records.envelope import open_envelope
from inconcert.tasks.records.store import JobKeys
from inconcert.tasks.sending.options import Options
from tests.support.background import in_background
from tests.support.jobs import let_expire
from tests.support.ledger import ledger_of
from tests.support.raw import raw
from tests.support.servers import RealServer

SOON = 1.0  # seconds; within which a worker that is ready begins a job, also on a busy machine


@asynccontextmanager
async def ready_worker(concert: Coordinator) -> AsyncGenerator[None, None]:
    """A worker of queue `q` that has run a job already."""

    @concert.task(name="first", queue="q")
    async def first() -> None: ...

    async with in_background(concert.run_worker("q")):
        await (await first.enqueue()).result(timeout=20)
        yield


async def reason_of(job: Any) -> str:
    """Why it was dead-lettered."""
    with pytest.raises(JobFailed) as failed:
        await job.result(timeout=20)
    return failed.value.reason


@pytest.mark.parametrize("given", ["task", "call", "name"])
async def test_attempt_that_runs_at_the_deadline_is_cancelled_and_the_last(
    any_concert: Coordinator, given: str
) -> None:
    """Whoever gives it, with attempts left, and before a time limit that is longer."""
    ends: list[str] = []

    @any_concert.task(name="t", queue="q", time_limit=60, deadline=SOON if given == "task" else None)
    async def hang() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ends.append("cancelled")

    job: Any
    async with ready_worker(any_concert):
        if given == "name":
            job = await any_concert.enqueue("t", queue="q", deadline=SOON)
        else:
            job = await (hang if given == "task" else hang.options(deadline=SOON)).enqueue()
        assert await reason_of(job) == (
            f"inconcert.errors.JobExpired: job {job.id} was not done within {SOON:g} s; replay it if it is still wanted"
        )
    assert ends == ["cancelled"]
    assert (await ledger_of(any_concert)).dead == [job.id]


async def test_deadline_counts_all_attempts(any_concert: Coordinator) -> None:
    """An attempt that would begin after it does not, and the job is dead then, not after the pause before its retry."""
    attempts: list[int] = []

    @any_concert.task(name="t", queue="q", backoff=lambda _: 3600.0)
    async def fail() -> None:
        attempts.append(1)
        raise RuntimeError("no")

    async with ready_worker(any_concert):
        job = await fail.options(deadline=SOON).enqueue()
        assert "was not done within" in await reason_of(job)
    assert attempts == [1]


async def test_job_that_sleeps_at_its_deadline_is_not_done(any_concert: Coordinator) -> None:
    """It has left its worker, and none has started it again."""
    slept: list[int] = []

    @any_concert.task(name="t", queue="q")
    async def sleep() -> None:
        await durable.sleep("nap", 3600)
        slept.append(1)

    async with ready_worker(any_concert):
        assert "was not done within" in await reason_of(await sleep.options(deadline=SOON).enqueue())
    assert slept == []


async def test_later_attempt_has_the_rest_of_the_time(any_concert: Coordinator) -> None:
    """It is counted from when the job was enqueued, by the server's clock, also after a worker that died with it."""

    @any_concert.task(name="t", queue="q")
    async def hang() -> None:
        await asyncio.sleep(3600)

    job = await hang.options(deadline=3600).enqueue()
    keys, client = JobKeys(any_concert._ref.keys), raw(any_concert)
    enqueued, _, rest = (await client.hget(keys.bodies, job.id)).partition(b" ")
    await client.hset(keys.bodies, job.id, b"%d %s" % (int(enqueued) - 3_598_000, rest))
    async with in_background(any_concert.run_worker("q")):
        assert "was not done within 3600 s" in await reason_of(job)


async def test_shorter_time_limit_comes_first_and_is_retried(any_concert: Coordinator) -> None:
    """It is a failure as any other; the deadline still holds for the attempts after it."""
    attempts: list[int] = []

    @any_concert.task(name="t", queue="q", time_limit=0.05, backoff=lambda _: 0.0)
    async def hang_once() -> int:
        attempts.append(1)
        if len(attempts) == 1:
            await asyncio.sleep(3600)
        return len(attempts)

    job = await hang_once.options(deadline=60).enqueue()
    async with in_background(any_concert.run_worker("q")):
        assert await job.result(timeout=20) == 2


async def test_job_that_is_done_in_time_succeeds_and_the_latest_option_holds(any_concert: Coordinator) -> None:
    """A call may take the deadline of its task away, or replace it by a time until which it may start."""
    begun = threading.Event()

    @any_concert.task(name="t", queue="q", deadline=SOON)
    async def take_longer() -> str:
        begun.set()
        await asyncio.sleep(1.2 * SOON)
        return "done"

    @any_concert.task(name="quick", queue="q", deadline=60)
    async def quick() -> str:
        return "done"

    async with in_background(any_concert.run_worker("q")):
        for job in (
            await take_longer.options(deadline=None).enqueue(),
            await take_longer.options(expires=60).enqueue(),
            await quick.enqueue(),
        ):
            assert await job.result(timeout=20) == "done"


async def test_job_with_something_to_undo_is_undone_past_its_deadline(any_concert: Coordinator) -> None:
    """And is dead then, with the deadline as its reason."""
    undone: list[int] = []

    async def book() -> int:
        return 1

    async def free(booking: int) -> None:
        await asyncio.sleep(1.2 * SOON)
        undone.append(booking)

    @any_concert.task(name="t", queue="q")
    async def hang() -> None:
        async with durable.undo() as undo:
            undo.later("free", free, await durable.step("book", book))
            await asyncio.sleep(3600)

    async with ready_worker(any_concert):
        job = await hang.options(deadline=SOON).enqueue()
        assert "was not done within" in await reason_of(job)
    assert undone == [1]


async def test_cancelled_job_does_not_die_at_its_deadline(any_concert: Coordinator) -> None:
    """While it runs, and while it waits."""
    began = asyncio.Event()

    @any_concert.task(name="t", queue="q", deadline=3600)
    async def hang() -> None:
        began.set()
        await asyncio.sleep(3600)

    runs, waits = await hang.enqueue(), await hang.options(queue="other").enqueue()
    async with in_background(any_concert.run_worker("q")):
        await asyncio.wait_for(began.wait(), 20)
        for job in (runs, waits):
            await let_expire(any_concert, job)
            assert await job.cancel()
            with pytest.raises(JobCancelled):
                await job.result(timeout=20)
    ledger = await ledger_of(any_concert)
    assert (ledger.bodies, ledger.dead) == ([], [])


async def test_replayed_job_has_its_time_anew(any_concert: Coordinator) -> None:
    """It was dead because its first was over."""

    @any_concert.task(name="t", queue="q", deadline=3600)
    async def run() -> str:
        return "done"

    job = await run.enqueue()
    await let_expire(any_concert, job)
    async with in_background(any_concert.run_worker("q")):
        assert "was not done within" in await reason_of(job)
        await any_concert.tasks.replay(job.id)
        assert await job.result(timeout=20) == "done"


async def test_job_after_one_that_missed_it_is_dead(any_concert: Coordinator) -> None:
    """Unless it is to run however the other ends."""

    @any_concert.task(name="t", queue="q")
    async def run() -> str:
        return "done"

    job = await run.options(deadline=3600).enqueue()
    after, anyway = [await run.options(after=[job], even_if=how).enqueue() for how in (None, "ended")]
    await let_expire(any_concert, job)
    async with in_background(any_concert.run_worker("q")):
        assert await anyway.result(timeout=20) == "done"
        assert "its parent" in await reason_of(after)


async def test_signature_covers_it_and_not_since_when_it_counts(server: RealServer, namespace: str) -> None:
    """A writer of the server may end a job sooner, as by deleting it, or later."""
    async with Coordinator(server.url, namespace=namespace, signing_keys={"now": "a secret of the service"}) as concert:

        @concert.task(name="t", queue="q", deadline=3600)
        async def run() -> None: ...

        late, changed = await run.enqueue(), await run.enqueue()
        await let_expire(concert, late)
        keys, client = JobKeys(concert._ref.keys), raw(concert)
        body = await client.hget(keys.bodies, changed.id)
        assert body.count(b"3600") == 1
        await client.hset(keys.bodies, changed.id, body.replace(b"3600", b"7200"))
        await concert.run_worker("q", burst=True)
        assert "JobExpired" in await reason_of(late)
        assert "was not signed with key" in await reason_of(changed)


async def test_plain_function_runs_to_its_end_and_counts(any_concert: Coordinator) -> None:
    """It cannot be cancelled in its thread."""
    wait = threading.Event()

    @any_concert.task(name="t", queue="q")
    def block() -> str:
        wait.wait(1.2 * SOON)
        return "done"

    async with ready_worker(any_concert):
        job = await block.options(deadline=SOON).enqueue()
        assert await job.result(timeout=20) == "done"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deadline": 0}, "deadline is 0; give a number of seconds above 0"),
        ({"deadline": -1}, "deadline is -1"),
        ({"deadline": "5"}, "deadline is '5'"),
        ({"deadline": 5, "expires": 4}, "a job has deadline=5 and expires=4"),
    ],
)
def test_deadline_that_cannot_be_is_refused_before_anything_is_sent(options: Any, message: str) -> None:
    """By the task and by a call."""
    concert = Coordinator("redis://127.0.0.1:1")
    with pytest.raises(ValueError, match=message):
        concert.task(name="u", **options)
    with pytest.raises(ValueError, match=message):
        concert.task(name="t")(lambda: None).options(**options)


def test_job_without_a_deadline_has_nothing_of_it() -> None:
    """Its stored form is as long as before."""
    concert = Coordinator()
    assert Options().terms == b"}"
    assert b"stops" not in concert.task(name="t")(lambda: None).call().text
    stored = open_envelope(concert.task(name="u", deadline=5)(lambda: None).call().text)
    assert (stored.expires, stored.stops, stored.time_limit) == (5.0, True, None)
