"""How a consumer chooses between queues, and what delivery at most once means."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection
from typing import Any, cast

import pytest

from inconcert import Coordinator, QueueCounts
from inconcert._claims.claimed import ClaimState
from inconcert._claims.consumer import settle
from inconcert.queues import get as get_module
from inconcert.tasks.running import consumer as consumer_module
from inconcert.tasks.running.consumer import Consumer
from tests.support.eventually import eventually
from tests.support.ledger import ledger_of
from tests.support.raw import client_of


@pytest.fixture
async def any_concert(any_concert: Coordinator) -> AsyncIterator[Coordinator]:
    """As everywhere; and what fakeredis leaves waiting of a BLPOP whose connection was closed is ended."""
    yield any_concert
    for task in asyncio.all_tasks():
        if "AsyncFakeSocket._async_blocking" in repr(task.get_coro()):
            task.cancel()
            await asyncio.wait([task])


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


@pytest.fixture
def settling(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when something is acknowledged to be handed out."""
    has_begun = asyncio.Event()

    async def note(claimed: Collection[ClaimState]) -> None:
        has_begun.set()
        await settle([*claimed])

    for module in (consumer_module, get_module):
        monkeypatch.setattr(module, "settle", note)
    return has_begun


async def cancel_amid(settling: asyncio.Event, waiting: "asyncio.Future[Any]") -> None:
    """Cancel a caller whose job or item is just acknowledged."""
    await settling.wait()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()


async def test_job_whose_caller_was_cancelled_is_requeued_when_its_consumer_is_closed(
    any_concert: Coordinator, settling: asyncio.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """It counts as done by then, and no body has begun: another consumer gets it, in its turn."""
    first, second = [await any_concert.enqueue("t", queue="q", unique=unique) for unique in ("one", None)]
    async with any_concert.consume("q", prefetch=2, delivery="at_most_once") as jobs:
        await cancel_amid(settling, asyncio.ensure_future(anext(jobs)))
        assert [await job.status() for job in (first, second)] == ["succeeded", "running"]
    assert f"requeued: {first.id}; lost: none" in caplog.text
    assert [await job.status() for job in (first, second)] == ["queued", "queued"]
    assert (await any_concert.enqueue("t", queue="q", unique="one")).id == first.id
    async with any_concert.consume("q", delivery="at_most_once") as jobs:
        assert [(await anext(jobs)).id for _ in range(2)] == [first.id, second.id]
    assert (await any_concert.tasks.stats("q")).queues["q"].finished == 2


async def test_job_that_others_ran_after_is_not_requeued(
    any_concert: Coordinator, settling: asyncio.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """They are told of its end, which cannot be taken back: it is lost, and that is said."""
    job = await any_concert.enqueue("t", queue="q")
    await any_concert.enqueue("t", queue="other", after=[job])
    async with any_concert.consume("q", delivery="at_most_once") as jobs:
        await cancel_amid(settling, asyncio.ensure_future(anext(jobs)))
    assert f"requeued: none; lost: {job.id}" in caplog.text
    assert await job.status() == "succeeded"


@pytest.mark.parametrize("priority", [0, 9])
async def test_requeued_job_is_the_next_of_its_priority(
    any_concert: Coordinator, settling: asyncio.Event, priority: int
) -> None:
    """It was acknowledged, so nothing is known of it but what it was."""
    put = [(await any_concert.enqueue("t", queue="q", priority=priority)).id for _ in range(2)]
    async with any_concert.consume("q", delivery="at_most_once") as jobs:
        await cancel_amid(settling, asyncio.ensure_future(anext(jobs)))
    ledger = await ledger_of(any_concert)
    assert (ledger.ready, ledger.delayed) == ({}, {"q": put})
    assert ledger.flagged == dict.fromkeys(put, str(priority))


@pytest.mark.parametrize("is_closing", [False, True])
async def test_item_whose_caller_was_cancelled_is_put_back_when_its_process_closes(
    any_concert: Coordinator, settling: asyncio.Event, caplog: pytest.LogCaptureFixture, is_closing: bool
) -> None:
    """It counts as done by then, and nobody has it."""
    queue = any_concert.queue("q")
    await queue.put_many([1, 2])
    namespace = any_concert._ref.keys.namespace
    async with Coordinator.from_client(client_of(any_concert), namespace=namespace) as closing:
        getting = asyncio.ensure_future(closing.queue("q", delivery="at_most_once").get())
        if is_closing:
            await settling.wait()
        else:
            await cancel_amid(settling, getting)
            await eventually(lambda: not any(each._serving for each in closing._getters._open.values()))
            assert await queue.counts() == QueueCounts(1, 0, 0, 0)
    await asyncio.gather(getting, return_exceptions=True)
    assert "were not handed out before their consumer was closed; requeued: " in caplog.text
    assert await queue.peek() == [1, 2]


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
