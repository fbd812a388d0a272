"""Work that was claimed and then forgotten is told of at once."""

import gc
from collections.abc import AsyncGenerator

import anyio
import pytest

from inconcert import Coordinator, JobFailed
from tests.support.background import in_background


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of what was dropped, once the garbage is collected."""
    gc.collect()
    return [record.getMessage() for record in caplog.records if "was dropped without an end" in record.getMessage()]


async def test_forgotten_delivery_is_told_of_when_it_is_collected(
    any_concert: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of a loop that has no `async with`; not those that were ended, in whatever way."""
    queue = any_concert.queue("thumbnails")
    await queue.put_many(range(5))
    delivery = await queue.get()
    async with delivery:
        pass
    await (await queue.get()).ack()
    await (await queue.get()).bury(ValueError("no such picture"))
    assert told(caplog) == []
    ids = [(await queue.get()).id for _ in range(2)]
    assert [ids[0] in told(caplog)[0], ids[1] in told(caplog)[1]] == [True, True]
    assert len(told(caplog)) == 2


async def test_delivery_that_is_held_is_not_told_of(any_concert: Coordinator, caplog: pytest.LogCaptureFixture) -> None:
    """Also in a body, and when the coordinator closes with it."""
    queue = any_concert.queue("thumbnails")
    await queue.put_many(range(2))
    held = await queue.get()
    async with await queue.get() as item:
        assert item == 1
        assert told(caplog) == []
    await held.nack()
    async with await queue.get():
        pass
    await queue.put(3)
    delivered = [await queue.get()]
    await any_concert.__aexit__(None, None, None)
    delivered.clear()
    assert told(caplog) == []
    await any_concert.__aenter__()
    await queue.purge()


@pytest.mark.parametrize("way", ["loop", "claim"])
async def test_forgotten_job_is_told_of_when_it_is_collected(
    any_concert: Coordinator, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    """Of a consumer; what it has claimed ahead is not forgotten."""
    jobs = [await any_concert.enqueue("t") for _ in range(3)]
    async with any_concert.consume("default", prefetch=3) as consumer:
        first = await anext(consumer) if way == "loop" else (await consumer.claim(1))[0]
        assert told(caplog) == []
        del first
        [line] = told(caplog)
        assert line.startswith(f"job {jobs[0].id} attempt 1")
        for _ in range(2):
            async with await anext(consumer):
                pass
    assert len(told(caplog)) == 1
    assert await jobs[0].cancel()


async def test_body_that_is_never_left_is_told_of(any_concert: Coordinator, caplog: pytest.LogCaptureFixture) -> None:
    """The frame of a generator that nobody closes."""

    async def items() -> AsyncGenerator[object]:
        async with await any_concert.queue("thumbnails").get() as item:
            yield item

    await any_concert.queue("thumbnails").put(1)
    found = items()
    assert await anext(found) == 1
    assert told(caplog) == []
    del found
    gc.collect()
    await anyio.sleep(0)  # the loop closes it, so that it is given back
    assert told(caplog) == []


async def test_jobs_of_a_worker_and_those_that_are_done_already_are_not_told_of(
    any_concert: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    """Delivered at most once, a job has no end that could be forgotten."""

    @any_concert.task(max_attempts=1)
    async def work(fails: bool) -> None:
        if fails:
            raise ValueError("no")

    async with in_background(any_concert.run_worker("default")):
        await (await work.enqueue(fails=False)).result(timeout=10)
        with pytest.raises(JobFailed):
            await (await work.enqueue(fails=True)).result(timeout=10)
    await any_concert.enqueue("t", queue="once")
    async with any_concert.consume("once", delivery="at_most_once") as consumer:
        await anext(consumer)
    assert told(caplog) == []
