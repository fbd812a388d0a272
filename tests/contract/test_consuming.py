"""How a consumer chooses between queues, and what delivery at most once means."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from inconcert import Coordinator
from inconcert.tasks.consumer import Consumer
from tests.support.eventually import eventually
from tests.support.ledger import Ledger, read_ledger
from tests.support.raw import raw


@pytest.fixture
async def any_concert(any_concert: Coordinator) -> AsyncIterator[Coordinator]:
    """As everywhere; and what fakeredis leaves waiting of a BLPOP whose connection was closed is ended."""
    yield any_concert
    for task in asyncio.all_tasks():
        if "AsyncFakeSocket._async_blocking" in repr(task.get_coro()):
            task.cancel()
            await asyncio.wait([task])


async def ledger_of(concert: Coordinator) -> Ledger:
    """Where the jobs are."""
    return await read_ledger(raw(concert), concert._ref.keys.namespace)


async def put(concert: Coordinator, count: int, *queues: str) -> None:
    """Enqueue so many jobs in each queue."""
    await asyncio.gather(*(concert.enqueue("t", [number], queue=queue) for queue in queues for number in range(count)))


async def take(jobs: Consumer, count: int) -> list[str]:
    """Claim and finish so many jobs, and return their queues."""
    taken: list[str] = []
    async for job in jobs:
        async with job:
            taken.append(job.queue)
        if len(taken) == count:
            break
    return taken


# Weights.


@pytest.mark.parametrize("prefetch", [1, 20])
async def test_weights_share_the_claims(any_concert: Coordinator, prefetch: int) -> None:
    """In each window of seven, six and one."""
    await put(any_concert, 50, "high", "low")
    async with any_concert.consume("high", "low", prefetch=prefetch, weights={"low": 1, "high": 6}) as jobs:
        taken = await take(jobs, 42)
    assert taken.count("low") == 6
    assert all(taken[start : start + 14].count("low") >= 1 for start in range(29))


async def test_weights_leave_nobody_idle(any_concert: Coordinator) -> None:
    """One queue alone gets all."""
    await put(any_concert, 30, "low")
    async with any_concert.consume("high", "low", prefetch=10, weights={"high": 6, "low": 1}) as jobs:
        assert await take(jobs, 30) == ["low"] * 30


async def test_worker_shares_by_weight(any_concert: Coordinator) -> None:
    """Also with many places, for one claim takes no more than the weight."""
    order: list[str] = []

    @any_concert.task(name="note")
    async def note(queue: str) -> None:
        order.append(queue)

    for queue in ("high", "low"):
        await asyncio.gather(*(note.options(queue=queue).enqueue(queue) for _ in range(40)))
    await any_concert.run_worker("high", "low", concurrency=100, burst=True, weights={"high": 3, "low": 1})
    assert Counter(order) == {"high": 40, "low": 40}
    assert 8 <= order[:40].count("low") <= 12


# At most once.


async def test_job_delivered_at_most_once_is_done_when_it_is_handed_out(any_concert: Coordinator) -> None:
    """Before its body begins; what was claimed ahead is not, and goes back."""
    await put(any_concert, 3, "q")
    async with any_concert.consume("q", prefetch=3, delivery="at_most_once") as jobs:
        job = await anext(jobs)
        ledger = await ledger_of(any_concert)
        assert job.id not in ledger.bodies
        assert sum(map(len, ledger.claimed.values())) == 2

    async def went_back() -> bool:
        return len((await ledger_of(any_concert)).ready.get("q", [])) == 2

    await eventually(went_back)


@pytest.mark.parametrize("end", ["success", "failure", "cancelled", "ack", "nack", "bury", "never"])
async def test_job_delivered_at_most_once_never_comes_back(any_concert: Coordinator, end: str) -> None:
    """However its body ends."""
    job_put = await any_concert.enqueue("t", queue="q")
    async with any_concert.consume("q", delivery="at_most_once") as jobs:
        job = await anext(jobs)
        assert (job.id, job.attempt) == (job_put.id, 1)

        async def use() -> None:
            async with job:
                if end == "failure":
                    raise ValueError
                if end == "cancelled":
                    cast("Any", asyncio.current_task()).cancel()
                    await asyncio.sleep(1)
                if end == "bury":
                    await job.bury(ValueError())
                elif end in {"ack", "nack"}:
                    await getattr(job, end)()

        if end != "never":
            await asyncio.wait([asyncio.create_task(use())])
        ledger = await ledger_of(any_concert)
        ledger.check(put=1, done=1)
        assert (ledger.dead, ledger.failures) == ([], {})
    assert await job_put.status() == "succeeded"
    assert await job_put.result(timeout=5) is None


async def test_many_are_claimed_at_most_once(any_concert: Coordinator) -> None:
    """All that one claim gets are done at once."""
    await put(any_concert, 5, "q")
    async with any_concert.consume("q", delivery="at_most_once") as jobs:
        assert [job.args for job in await jobs.claim(4)] == [[0], [1], [2], [3]]
        assert len((await ledger_of(any_concert)).bodies) == 1
        assert [job.args for job in await jobs.claim(4)] == [[4]]


def test_unknown_delivery_is_refused(any_concert: Coordinator) -> None:
    """Before anything is asked."""
    with pytest.raises(ValueError, match="delivery is 'exactly_once'; give 'at_least_once' or 'at_most_once'"):
        any_concert.consume("q", delivery=cast("Any", "exactly_once"))
