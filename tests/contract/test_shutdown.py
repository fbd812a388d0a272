"""A queue that is shut down takes nothing more, and its consumers end when all is done, in whichever processes."""

import asyncio
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, Queue, QueueCounts, QueueShutDown
from inconcert.queues import shutdown as shutdown_module
from inconcert.queues.store import ItemKeys
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.raw import raw

SOON = 10.0  # seconds; a consumer that is not told asks again after 30


@pytest.fixture
def queue(any_concert: Coordinator) -> Queue[Any]:
    """An empty queue."""
    return any_concert.queue("q")


@pytest.fixture
def queue_elsewhere(elsewhere: Coordinator) -> Queue[Any]:
    """The same, as another process sees it."""
    return elsewhere.queue("q")


async def waits(concert: Coordinator, count: int) -> None:
    """Wait until so many consumers with nothing to do are known to the server."""
    keys = ItemKeys(concert._ref.keys, "q")

    async def are_there() -> bool:
        standing_by = await raw(concert).zcard(keys.standby)
        return bool(standing_by + await raw(concert).zcard(keys.joiners) == count)

    await eventually(are_there)


async def test_put_is_refused_in_all_processes(queue: Queue[Any], queue_elsewhere: Queue[Any]) -> None:
    """One item, many, delayed ones and ones with an id; nothing is put in."""
    await queue.shutdown()
    for each in queue, queue_elsewhere:
        with pytest.raises(QueueShutDown, match=r"queue 'q' is shut down; reopen\(\) lets it take items again"):
            await each.put(1)
        with pytest.raises(QueueShutDown):
            await each.put_many([1, 2], delay=60)
        with pytest.raises(QueueShutDown):
            await each.put(1, id="mine")
    assert await queue_elsewhere.counts() == QueueCounts(0, 0, 0, 0, is_shut_down=True)
    await queue.reopen()
    assert await queue_elsewhere.counts() == QueueCounts(0, 0, 0, 0)


async def test_put_that_waits_for_room_is_refused(
    any_concert: Coordinator, elsewhere: Coordinator, queue: Queue[Any]
) -> None:
    """All that wait, one after the other, at once."""
    await queue.put("first")
    puts = [
        asyncio.create_task(concert.queue("q", maxsize=1).put(number, timeout=None))
        for number, concert in enumerate([any_concert, elsewhere, elsewhere])
    ]
    line = ItemKeys(any_concert._ref.keys, "q").line

    async def in_line() -> bool:
        return bool(await raw(any_concert).zcard(line) == 3)

    await eventually(in_line)
    await queue.shutdown()
    with anyio.fail_after(SOON * 2):
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [QueueShutDown] * 3
    assert (await queue.counts()).ready == 1


async def test_get_goes_on_until_nothing_is_left(queue: Queue[Any], queue_elsewhere: Queue[Any]) -> None:
    """Then it raises, with any timeout; and `async for` ends."""
    await queue.put_many([1, 2, 3])
    await queue.shutdown()
    got: list[Any] = []
    async for delivery in queue_elsewhere:
        async with delivery as item:
            got.append(item)
    assert got == [1, 2, 3]
    for timeout in None, 0.0, 60.0:
        with pytest.raises(QueueShutDown):
            await queue.get(timeout=timeout)
    with pytest.raises(QueueShutDown):
        await queue_elsewhere.get_many(10)


async def test_consumers_that_wait_end_at_once(
    any_concert: Coordinator, queue: Queue[Any], queue_elsewhere: Queue[Any]
) -> None:
    """In all processes, and all of one."""
    consumers = [asyncio.create_task(each.get()) for each in (queue, queue, queue_elsewhere, queue_elsewhere)]
    await waits(any_concert, 2)
    await queue.shutdown()
    with anyio.fail_after(SOON):
        outcomes = await asyncio.gather(*consumers, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [QueueShutDown] * 4


async def test_consumer_waits_for_what_others_hold(
    any_concert: Coordinator, queue: Queue[Any], queue_elsewhere: Queue[Any]
) -> None:
    """Also if it comes back: it is handled, and then all end."""
    await queue.put("x")
    held = await queue_elsewhere.get()
    consumer = asyncio.create_task(queue.get())
    await waits(any_concert, 1)
    await queue.shutdown()
    await waits(any_concert, 1)
    assert not consumer.done()
    await held.nack()
    with anyio.fail_after(SOON):
        delivery = await consumer
    last = asyncio.create_task(queue_elsewhere.get())
    await waits(any_concert, 2)
    await delivery.ack()
    with anyio.fail_after(SOON), pytest.raises(QueueShutDown):
        await last


async def test_immediate_shutdown_drops_what_nobody_holds(
    any_concert: Coordinator, queue: Queue[Any], queue_elsewhere: Queue[Any]
) -> None:
    """Consumers end, although another holds an item; that one ends as always, or stays in the queue."""
    await queue.put_many(["held", "dropped"])
    await queue.put("later", delay=60)
    held = await queue_elsewhere.get()
    await queue.shutdown(immediate=True)
    with pytest.raises(QueueShutDown):
        await queue.get()
    counts = await queue.counts()
    assert (counts.ready, counts.delayed, counts.claimed) == (0, 0, 1)
    await held.nack()
    await queue.reopen()
    delivery = await queue.get(timeout=SOON)
    assert delivery.item == "held"
    await delivery.ack()


async def test_immediate_shutdown_ends_what_a_gentle_one_lets_wait(
    any_concert: Coordinator, queue: Queue[Any], queue_elsewhere: Queue[Any]
) -> None:
    """And a gentle one after it changes nothing."""
    await queue.put("held")
    held = await queue_elsewhere.get()
    await queue.shutdown()
    consumer = asyncio.create_task(queue.get())
    await waits(any_concert, 1)
    await queue.shutdown(immediate=True)
    await queue.shutdown()
    with anyio.fail_after(SOON), pytest.raises(QueueShutDown):
        await consumer
    with pytest.raises(QueueShutDown):
        await queue.get()
    await held.ack()


async def test_reopened_queue_takes_items_again(
    any_concert: Coordinator, queue: Queue[Any], queue_elsewhere: Queue[Any]
) -> None:
    """For those that were refused, and for those that waited all the time; opening an open one does nothing."""
    await queue.reopen()
    await queue.put("held")
    held = await queue_elsewhere.get()
    consumer = asyncio.create_task(queue.get())
    await waits(any_concert, 1)
    await queue.shutdown()
    await queue.reopen()
    await queue.put("new")
    with anyio.fail_after(SOON):
        delivery = await consumer
    assert delivery.item == "new"
    await delivery.ack()
    await held.ack()
    await queue.shutdown()
    with pytest.raises(QueueShutDown):
        await queue.get()


async def test_consumer_that_was_not_told_asks(
    any_concert: Coordinator, queue: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message may be lost: after a while the consumer asks by itself."""
    monkeypatch.setattr(shutdown_module, "_ASK_AGAIN", 0.0)
    consumer = asyncio.create_task(queue.get())
    await waits(any_concert, 1)
    await raw(any_concert).delete(ItemKeys(any_concert._ref.keys, "q").standby)
    await queue.shutdown()
    with anyio.fail_after(SOON), pytest.raises(QueueShutDown):
        await consumer


async def test_join_returns_for_a_queue_that_is_shut_down(queue: Queue[Any]) -> None:
    """As for any other."""
    await queue.put("x")
    await queue.shutdown()
    joining = asyncio.create_task(queue.join())
    await (await queue.get()).ack()
    with anyio.fail_after(SOON):
        await joining


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_get_loses_nothing(any_concert: Coordinator, queue: Queue[Any], moment: Moment) -> None:
    """Wherever it is in the end of the queue: the next one ends."""
    await queue.put("x")
    held = await queue.get()
    await queue.shutdown()
    await held.nack()
    number = 1
    while await cancel_at(number, moment, _drain(queue)):
        number += 1
        await queue.reopen()
        await queue.put("x", timeout=0)
        await queue.shutdown()
    await _drain(queue)
    assert (await queue.counts()).claimed == 0


async def _drain(queue: Queue[Any]) -> None:
    async for delivery in queue:
        await delivery.ack()
