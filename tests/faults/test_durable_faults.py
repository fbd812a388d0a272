"""Durable steps while workers are killed and frozen, replies lost, bodies cancelled: what was kept never runs again."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from inconcert import (
    Coordinator,
    JobFailed,
    JobStatus,
    NotClaimed,
    OutcomeUnknown,
    Retry,
    Retrying,
    current_job,
    durable,
)
from inconcert.tasks.running.step_store import JobStepStore
from tests.support.background import in_background
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.durable import forge_step, kept, kept_step, latest_step
from tests.support.eventually import eventually
from tests.support.jobs import lapse_all, status
from tests.support.killed import LOG, kill_after
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease

HERE = "tests.faults.test_durable_faults"
LEASE = 1.0  # seconds of a heartbeat, here
WITHIN = 20.0  # seconds
STEPS = 5  # of each job that is killed


@pytest.fixture
async def short(server: RealServer, namespace: str) -> AsyncIterator[Coordinator]:
    """A coordinator whose workers count as dead soon."""
    async with with_lease(Coordinator(server.url, namespace=namespace), LEASE) as opened:
        yield opened


# Workers that die or stand still.


async def work(url: str, namespace: str) -> None:
    """In a child: run jobs of some steps until it is killed, and note on the server what was done."""
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:
        log = raw(concert)

        @concert.task(name="steps")
        async def steps(number: int) -> list[int]:  # pyright: ignore[reportUnusedFunction]
            async def one(step: int) -> int:
                await log.rpush(LOG, f"ran {number} {step}")
                return step

            found: list[int] = []
            for step in range(STEPS):
                found.append(await durable.step(f"step {step}", one, step))
                await log.rpush(LOG, f"kept {number} {step}")
                await anyio.sleep(0.01)
            return found

        await concert.run_worker("default", concurrency=4)


@pytest.mark.parametrize("rounds", [1, pytest.param(8, marks=pytest.mark.torture)])
async def test_kept_step_never_runs_again_though_workers_are_killed(namespace: str, rounds: int) -> None:
    """Kill -9 at any moment: only a step that had run and was not kept runs again."""
    with RealServer() as own:
        for number in range(rounds):
            await _kill_two_workers(own.url, f"{namespace}-{number}")


async def _kill_two_workers(url: str, namespace: str) -> None:
    """A third would be one too many for some job."""
    count = 25
    async with Coordinator(url, namespace=namespace) as concert:
        client: Any = raw(concert)
        await client.delete(LOG)
        jobs = [await concert.enqueue("steps", [number]) for number in range(count)]
        for _ in range(2):
            await kill_after(10, 60, client, f"{HERE}:work", url, namespace)
        async with spawn(f"{HERE}:work", url, namespace):
            for job in jobs:
                assert await job.result(timeout=WITHIN) == list(range(STEPS))
        whole = set[str]()
        ran = Counter[str]()
        for entry in await client.lrange(LOG, 0, -1):
            what, _, step = entry.decode().partition(" ")
            if what == "kept":
                whole.add(step)
            else:
                ran[step] += 1
                assert step not in whole, f"step {step} ran after it was kept"
        assert len(ran) == len(whole) == count * STEPS
        assert ran.total() - len(ran) <= 2 * 4
        assert await kept(concert) == {}


async def try_and_hang(url: str, namespace: str) -> None:
    """In a child: fail once in a step, and wait for its next try."""
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:

        async def charge() -> None:
            tell("tried")
            raise ConnectionError("away")

        @concert.task(name="tries")
        async def tries() -> None:  # pyright: ignore[reportUnusedFunction]
            await durable.step("charge", charge, retry=Retrying(2, backoff=lambda _: 3600))

        await concert.run_worker("default")


async def test_tries_begin_anew_where_a_worker_was_killed_between_two(
    short: Coordinator, server: RealServer, namespace: str
) -> None:
    """They are counted in its memory; the next worker has all of them, and no failure of the job is counted."""
    ran: list[int] = []

    async def charge() -> str:
        ran.append(current_job().attempt)
        if len(ran) < 2:
            raise ConnectionError("away")
        return "charged"

    @short.task(name="tries", max_attempts=2)
    async def tries() -> str:
        return await durable.step("charge", charge, retry=Retrying(2, backoff=lambda _: 0))

    async with spawn(f"{HERE}:try_and_hang", server.url, namespace) as child:
        job = await tries.enqueue()
        await child.wait_for("tried")
        child.kill()
    async with in_background(short.run_worker("default")):
        assert await job.result(timeout=WITHIN) == "charged"
    assert len(ran) == 2


async def step_and_hang(url: str, namespace: str) -> None:
    """In a child: keep one step, and run another that takes its time."""
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:

        async def first() -> str:
            return "the child's"

        async def second() -> str:
            tell("runs the second")
            await anyio.sleep(LEASE / 2)
            return "the child's"

        @concert.task(name="two")
        async def two() -> None:  # pyright: ignore[reportUnusedFunction]
            await durable.step("first", first)
            try:
                await durable.step("second", second)
            except BaseException as error:
                tell("ended", error=type(error).__name__)
                raise
            tell("ended", error=None)

        await concert.run_worker("default")


@pytest.mark.parametrize("is_killed", [True, False])
async def test_next_worker_goes_on_after_the_step_that_was_kept(
    server: RealServer, short: Coordinator, namespace: str, is_killed: bool
) -> None:
    """Its worker is killed between two steps; or frozen, and then it keeps nothing when it goes on."""

    async def second() -> str:
        return "ours"

    async def first() -> str:
        raise AssertionError("it was kept")

    first.__qualname__, second.__qualname__ = "step_and_hang.<locals>.first", "step_and_hang.<locals>.second"
    may_end = asyncio.Event()

    @short.task(name="two")
    async def two() -> list[str]:
        found = [await durable.step("first", first), await durable.step("second", second)]
        await may_end.wait()
        return found

    job = await two.enqueue()
    async with spawn(f"{HERE}:step_and_hang", server.url, namespace) as child:
        await child.wait_for("runs the second")
        if is_killed:
            child.kill()
        else:
            child.pause()
        async with in_background(short.run_worker("default")):

            async def both_are_kept() -> bool:
                return await latest_step(short, job.id) == 2

            await eventually(both_are_kept)
            if not is_killed:
                child.resume()
                assert (await child.wait_for("ended"))["error"] in {"CancelledError", "NotClaimed"}
                assert len(await kept(short)) == 2
            may_end.set()
            assert await job.result(timeout=WITHIN) == ["the child's", "ours"]


async def sleep_and_tell(url: str, namespace: str) -> None:
    """In a child: begin a sleep that is waited for in memory."""
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:

        @concert.task(name="nap")
        async def nap() -> None:  # pyright: ignore[reportUnusedFunction]
            await durable.sleep("nap", 3600, in_memory_below=7200)

        tell("works")
        await concert.run_worker("default")


async def test_next_worker_sleeps_for_the_rest_when_the_first_is_killed(
    server: RealServer, short: Coordinator, namespace: str
) -> None:
    """The end of the sleep is as it was; this one leaves its place."""

    @short.task(name="nap")
    async def nap() -> None:
        await durable.sleep("nap", 1, in_memory_below=0)

    job = await nap.enqueue()
    [keys] = short._jobs.partitions
    client: Any = raw(short)
    async with spawn(f"{HERE}:sleep_and_tell", server.url, namespace) as child:
        await child.wait_for("works")
        sleep = await eventually(lambda: kept(short))
        child.kill()
    async with in_background(short.run_worker("default")):
        await status(short, job, JobStatus.DELAYED)
        assert await kept(short) == sleep
        due_ms: float = await client.zscore(keys.queue("default").delayed, job.id)
        now_s, _ = await client.time()
        assert 3500 < due_ms / 1000 - now_s <= 3600
    await job.cancel()


async def test_late_twin_keeps_nothing_and_its_step_raises(concert: Coordinator, elsewhere: Coordinator) -> None:
    """Its worker counts as dead, and does not know it yet."""
    runs = iter(("late", "of the next", "more"))

    async def run() -> str:
        return next(runs)

    await concert.enqueue("t")
    async with concert.consume("default") as stopped, elsewhere.consume("default") as jobs:
        late = await anext(stopped)
        await lapse_all(concert)
        again = await anext(jobs)
        assert again.id == late.id
        async with late:
            with pytest.raises(NotClaimed):
                await durable.step("one", run)
        assert await kept(concert) == {}
        async with again:
            assert await durable.step("one", run) == "of the next"


# Replies that are lost.


async def test_reply_lost_at_each_command_keeps_each_step_once(
    proxy: Proxy, namespace: str, concert: Coordinator
) -> None:
    """Each command of the worker is sent again, and acts once."""
    async for lost in proxy.losing_each(4, least=7, most=60):  # of those before, others tell
        ran: list[str] = []

        async def note(text: str) -> str:
            ran.append(text)  # noqa: B023 - called at once
            return text

        job = await concert.enqueue("t", queue=f"q{lost}")
        async with Coordinator(proxy.url, namespace=namespace) as bad:
            proxy.cut_after_replies(lost, lose_next=True)
            async with bad.consume(f"q{lost}") as jobs:
                async with await anext(jobs):
                    await durable.step("one", note, "one")
                    await durable.step("two", note, "two")
                    await current_job().nack(delay=0)
                async with await anext(jobs) as again:
                    assert again.attempt == 2
                    assert [await durable.step(name, note, name) for name in ("one", "two")] == ["one", "two"]
                    assert await latest_step(concert, job.id) == 2
        assert ran == ["one", "two"]
        assert await kept(concert) == {}


async def test_step_whose_commit_was_not_answered_may_be_tried_again(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same attempt, too: what that attempt went on with is what later ones get."""
    commit, runs = JobStepStore.commit_step, iter(range(9))

    async def unanswered(state: JobStepStore, number: int, text: bytes) -> None:
        await commit(state, number, text)
        if number == 1:
            raise OutcomeUnknown

    async def run() -> int:
        return next(runs)

    monkeypatch.setattr(JobStepStore, "commit_step", unanswered)

    @concert.task(name="t")
    async def task() -> int:
        if current_job().attempt == 1:
            with pytest.raises(OutcomeUnknown):
                await durable.step("one", run)
            assert await durable.step("one", run) == 1
            raise Retry(after=0)
        return await durable.step("one", run)

    async with in_background(concert.run_worker("default")):
        assert await (await task.enqueue()).result(timeout=WITHIN) == 1


# Cancellation.


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("is_plain", [False, True])
async def test_cancelled_at_any_await_a_step_that_has_run_is_kept(
    concert: Coordinator, moment: Moment, is_plain: bool
) -> None:
    """Also one in a thread, which cannot be stopped. Otherwise it runs again."""
    ended: list[int] = []

    async def run() -> int:
        await asyncio.sleep(0)
        ended.append(1)
        return len(ended)

    def run_plainly() -> int:
        time.sleep(0.001)
        ended.append(1)
        return len(ended)

    number, was_under_way = 1, True
    await concert.enqueue("t")
    async with concert.consume("default") as jobs:
        while was_under_way:
            ended.clear()
            async with await anext(jobs) as job:

                async def use() -> None:
                    await durable.step("one", run_plainly if is_plain else run)

                was_under_way = await cancel_at(number, moment, use())

                async def is_kept() -> bool:
                    return bool(await kept(concert)) == bool(ended)

                await eventually(is_kept)
                await job.ack()
                assert await kept(concert) == {}
            await concert.enqueue("t")
            number += 1
    assert number > 2


# Strangers.


async def test_step_of_a_stranger_is_not_read(server: RealServer, namespace: str) -> None:
    """It was not signed, or for another job or number; the job is dead-lettered, and nothing runs again."""
    keys_of_signer = {"k": "0123456789abcdef0123456789abcdef"}
    ran: list[str] = []

    async def note(text: str) -> str:
        ran.append(text)
        return text

    async with Coordinator(server.url, namespace=namespace, signing_keys=keys_of_signer) as signing:

        @signing.task(name="t")
        async def task(forgery: str) -> None:
            one = await durable.step("one", note, "one")
            two = await durable.step("two", note, "two")
            if current_job().attempt > 1:
                assert [one, two] == ["one", "two"]
                return
            first, second = [await kept_step(signing, current_job().id, number) or b"" for number in (1, 2)]
            forged = {
                "unsigned": b'["one","note","","forged"]',
                "swapped": second,
                "changed": first.replace(b'"one"]', b'"two"]'),
            }
            await forge_step(signing, current_job().id, 1, forged.get(forgery, first))
            raise Retry(after=0)

        async with in_background(signing.run_worker("default")):
            await (await task.enqueue("none")).result(timeout=WITHIN)
            for forgery in ("unsigned", "swapped", "changed"):
                ran.clear()
                job = await task.enqueue(forgery)
                with pytest.raises(JobFailed, match="UnreadablePayload: the step") as failed:
                    await job.result(timeout=WITHIN)
                assert failed.value.attempts == 2
                assert ran == ["one", "two"]
