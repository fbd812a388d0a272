"""How a job, or an item, ends when its body raises what is no `Exception`.

Only what comes from outside is no attempt: a cancellation, and the end of a generator.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from inconcert import ClaimedJob, Coordinator, JobStatus
from inconcert.tasks.running.consumer import Consumer
from tests.support.jobs import make_due
from tests.support.ledger import crashes_of, failures_of
from tests.support.raw import raw
from tests.support.servers import RealServer


@dataclass(frozen=True, slots=True)
class Counts:
    """What is known of the one that was put.

    Attributes:
        ready: Whether it may be claimed now.
        failures: How many of its attempts have failed.
        crashes: How many workers have died with it.
        reason: Why it was set aside; None if it was not.
    """

    ready: bool
    failures: int
    crashes: int
    reason: str | None = None


class Jobs:
    """A job with three attempts."""

    def __init__(self, concert: Coordinator) -> None:
        self.concert = concert
        self.keys: Any = concert._jobs.partitions[0]

    async def put(self) -> None:
        """Put it."""
        await self.concert.enqueue("t", max_attempts=3)

    @asynccontextmanager
    async def claimed(self) -> AsyncGenerator[Any]:
        """Claim it."""
        async with self.concert.consume("default") as consumer:
            yield await anext(consumer)

    async def counts(self) -> Counts:
        """Look."""
        reasons = [dead.error for dead in await self.concert.tasks.dead()]
        ready = (await self.concert.tasks.stats("default")).queues["default"].ready
        return Counts(bool(ready), *await self.numbers(), *reasons)

    async def numbers(self) -> tuple[int, int]:
        """Failures, and crashes."""
        redis = raw(self.concert)
        facts = await redis.hgetall(self.keys.facts)
        return sum(failures_of(facts).values()), sum(crashes_of(facts).values())


class Items(Jobs):
    """An item with three attempts."""

    def __init__(self, concert: Coordinator) -> None:
        super().__init__(concert)
        self.queue = concert.queue("q", max_attempts=3)
        self.keys = self.queue._keys

    async def put(self) -> None:
        """Put it."""
        await self.queue.put("item")

    @asynccontextmanager
    async def claimed(self) -> AsyncGenerator[Any]:
        """Claim it."""
        yield await self.queue.get(timeout=5)

    async def counts(self) -> Counts:
        """Look."""
        reasons = [dead.reason for dead in await self.queue.dead()]
        ready = (await self.queue.counts()).ready
        return Counts(bool(ready), *await self.numbers(), *reasons)


@pytest.fixture(params=[Jobs, Items])
async def work(request: pytest.FixtureRequest, any_concert: Coordinator) -> Jobs:
    """One of each kind, to be claimed."""
    found: Jobs = request.param(any_concert)
    await found.put()
    return found


async def exit_a_generator() -> None:
    """In a coroutine of its own."""
    raise GeneratorExit


async def await_a_cancelled_future() -> None:
    """As it happens to those who wait for a future that another has cancelled."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def exit_the_program() -> None:
    """As a user's code does."""
    raise SystemExit(3)


async def interrupt() -> None:
    """As a library does, or Ctrl-C without `asyncio.run`."""
    raise KeyboardInterrupt


async def attempt(work: Jobs, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Claim it, and leave its body by what it raises, which is passed on."""
    passed_on: list[BaseException] = []

    async def use() -> None:
        async with work.claimed() as claimed:
            try:
                async with claimed:
                    await body()
            except BaseException as error:  # noqa: BLE001 - it would end the test
                passed_on.append(error)

    await asyncio.create_task(use())
    assert len(passed_on) == 1


async def due(work: Jobs) -> None:
    """Let what waits for its next attempt be tried now."""
    if type(work) is Jobs:
        await make_due(work.concert, "default")


@pytest.mark.parametrize("body", [exit_a_generator, await_a_cancelled_future])
async def test_error_that_looks_like_an_end_from_outside_is_a_failed_attempt(
    work: Jobs, body: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """It is set aside after its last attempt."""
    for failures in (1, 2):
        await attempt(work, body)
        counts = await work.counts()
        assert (counts.failures, counts.crashes, counts.reason) == (failures, 0, None)
        await due(work)
    await attempt(work, body)
    counts = await work.counts()
    assert (counts.ready, counts.crashes) == (False, 0)
    assert "although nothing had ended it" in (counts.reason or "")


@pytest.mark.parametrize("body", [exit_the_program, interrupt])
async def test_error_that_ends_the_program_counts_as_a_death_of_the_worker(
    work: Jobs, body: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """It is back at once, and set aside after the third."""
    for crashes in (1, 2):
        await attempt(work, body)
        assert await work.counts() == Counts(ready=True, failures=0, crashes=crashes)
    await attempt(work, body)
    counts = await work.counts()
    assert not counts.ready
    assert (counts.reason or "").startswith(("SystemExit: 3", "KeyboardInterrupt"))


async def cancel_the_task() -> None:
    """Before it waits, so that it is cancelled where it waits first."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(60)


async def test_cancelled_body_gives_back(work: Jobs) -> None:
    """That is no attempt."""
    await attempt(work, cancel_the_task)
    assert await work.counts() == Counts(ready=True, failures=0, crashes=0)


async def cancelled_before(work: Jobs) -> None:
    """Enter when the cancellation is under way already."""
    async with work.claimed() as claimed:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        async with claimed:
            await asyncio.sleep(60)


async def with_asyncio(work: Jobs) -> None:
    """A timeout around it."""
    with suppress(TimeoutError):
        async with work.claimed() as claimed, asyncio.timeout(0.01), claimed:
            await asyncio.sleep(60)


async def with_anyio(work: Jobs) -> None:
    """A scope around it."""
    async with work.claimed() as claimed:
        with anyio.CancelScope() as scope:
            async with claimed:
                scope.cancel()
                await anyio.sleep_forever()


async def with_a_group(work: Jobs) -> None:
    """A sibling that fails."""

    async def fail() -> None:
        raise ValueError

    with suppress(ExceptionGroup):
        async with work.claimed() as claimed, asyncio.TaskGroup() as group, claimed:
            group.create_task(fail())
            await asyncio.sleep(60)


@pytest.mark.parametrize("cancel", [cancelled_before, with_asyncio, with_anyio, with_a_group])
async def test_whatever_cancels_the_task_comes_from_outside(
    work: Jobs, cancel: Callable[[Jobs], Coroutine[Any, Any, None]]
) -> None:
    """It gives back, and that is no attempt."""
    await asyncio.wait([asyncio.create_task(cancel(work))])
    assert await work.counts() == Counts(ready=True, failures=0, crashes=0)


async def plainly(claimed: Any) -> AsyncGenerator[None]:
    """Yield from the body."""
    async with claimed:
        yield


async def through_a_wrapper(claimed: Any) -> AsyncGenerator[None]:
    """Yield from inside of a context manager that is a generator, too."""
    async with asynccontextmanager(plainly)(claimed):
        yield


@pytest.mark.parametrize("stay", [plainly, through_a_wrapper])
async def test_generator_that_is_closed_gives_back(work: Jobs, stay: Callable[[Any], AsyncGenerator[None]]) -> None:
    """That is no attempt, wherever it is closed."""
    async with work.claimed() as claimed:
        generator = stay(claimed)
        await anext(generator)
        await asyncio.create_task(_close(generator))
        assert await work.counts() == Counts(ready=True, failures=0, crashes=0)


async def _close(generator: AsyncGenerator[None]) -> None:
    await generator.aclose()


async def test_generator_exit_of_a_body_inside_a_wrapper_is_a_failed_attempt(work: Jobs) -> None:
    """Though it passes a generator on its way."""
    async with work.claimed() as claimed:
        with pytest.raises(GeneratorExit):
            async with asynccontextmanager(plainly)(claimed):
                await exit_a_generator()
        assert (await work.counts()).failures == 1


def test_job_that_interrupts_its_worker_is_set_aside(
    server: RealServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends three workers, each of which claims nothing more, and the job behind it runs."""
    concert = Coordinator(server.url, namespace=namespace)
    ran: list[str] = []

    @concert.task(name="bad")
    def bad() -> None:
        ran.append("bad")
        raise KeyboardInterrupt

    @concert.task(name="good")
    async def good() -> None:
        ran.append("good")

    async def put() -> None:
        async with concert:
            await bad.enqueue()
            await good.enqueue()

    async def run() -> JobStatus:
        async with concert:
            await concert.run_worker("default", concurrency=1, burst=True)
            [dead] = await concert.tasks.dead()
            return await concert.tasks.job(dead.id).status()

    asyncio.run(put())
    claims = 0
    claim = Consumer.claim

    async def counted(consumer: Consumer, count: int) -> list[ClaimedJob]:
        nonlocal claims
        claims += 1
        return await claim(consumer, count)

    monkeypatch.setattr(Consumer, "claim", counted)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(run())
    assert claims == 0  # the first of a burst does not wait, and is no such claim
    assert asyncio.run(run()) is JobStatus.FAILED
    assert ran == ["bad", "bad", "bad", "good"]
