"""Queues of items: put in, got by one, acknowledged, given back, set aside."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Sized
from functools import partial
from typing import Any

import anyio
import pytest

from inconcert import (
    Coordinator,
    InvalidName,
    InvalidPayload,
    ItemNotFound,
    NotClaimed,
    NotConnected,
    Queue,
    QueueCounts,
    QueueFull,
    QueueShutDown,
    WrongState,
)
from inconcert._claims.promoter import Promoter
from inconcert.queues.get import OpenGetters
from inconcert.queues.store import ItemKeys
from tests.support.eventually import eventually
from tests.support.lines import in_line_at
from tests.support.queues import items_of
from tests.support.raw import client_of, raw


async def take(queue: Queue[Any], count: int) -> list[Any]:
    """Get and acknowledge so many, one after the other."""
    items: list[Any] = []
    for _ in range(count):
        async with await queue.get(timeout=5) as item:
            items.append(item)
    return items


def has_length(what: Sized, length: int) -> bool:
    """Whether it has so many elements."""
    return len(what) == length


async def are_waiting(count: int) -> None:
    """Until so many getters of this test wait."""
    await eventually(
        lambda: sum("Queue.get" in repr(task.get_coro()) and not task.done() for task in asyncio.all_tasks()) >= count
    )
    for _ in range(3):
        await asyncio.sleep(0)


# What comes out is what was put in.


@pytest.mark.parametrize(
    "item",
    [
        None, True, 0, 2**53 + 1, -1.5, "", "a\u0000b\n", "\U0001f600 \u00e9 \u2028", [], {}, [[], {}, None],
        {"": {"a b": [1, {"c": None}]}, "{x}*": "{y}"},
    ],
)  # fmt: skip
async def test_item_comes_out_as_it_was_put_in(any_concert: Coordinator, item: Any) -> None:
    """Any JSON value, exactly."""
    queue = any_concert.queue("q")
    await queue.put(item)
    assert await queue.peek() == [item]
    delivery = await queue.get()
    assert (delivery.item, delivery.attempt, delivery.queue) == (item, 1, "q")
    await delivery.ack()
    assert await queue.counts() == QueueCounts(0, 0, 0, 0)


@pytest.mark.parametrize("item", [float("nan"), {1}, b"x", {1: 2}, "\ud800", "x" * 2**20])
async def test_item_that_is_no_json_or_too_large_is_refused(any_concert: Coordinator, item: Any) -> None:
    """Before anything is sent; nor is what is put along with it."""
    queue = any_concert.queue("q")
    with pytest.raises(InvalidPayload, match="queue 'q'"):
        await queue.put_many([1, item])
    assert await queue.size() == 0


@pytest.mark.parametrize("name", ["{a}", "a}b", "*", "a\nb", "\x00", "é" * 100, "a b:c"])
async def test_any_name_is_a_queue_of_its_own(any_concert: Coordinator, name: str) -> None:
    """Whatever is in it."""
    queue, other = any_concert.queue(name), any_concert.queue(name + "}")
    await queue.put(1)
    assert await other.size() == 0
    assert await take(queue, 1) == [1]


async def test_first_in_is_first_out(any_concert: Coordinator) -> None:
    """One by one, and many at once."""
    queue = any_concert.queue("q")
    await queue.put(1)
    await queue.put_many([2, 3])
    await queue.put(4)
    assert await take(queue, 4) == [1, 2, 3, 4]


async def test_last_in_is_first_out(any_concert: Coordinator) -> None:
    """In a queue with that order, also of many at once."""
    queue = any_concert.queue("q", order="lifo")
    await queue.put(1)
    await queue.put_many([2, 3])
    assert await take(queue, 3) == [3, 2, 1]


async def test_order_is_of_the_put(any_concert: Coordinator) -> None:
    """Whoever gets takes from the front; both kinds may meet in one queue."""
    await any_concert.queue("q").put_many([1, 2])
    await any_concert.queue("q", order="lifo").put(0)
    assert await take(any_concert.queue("q"), 3) == [0, 1, 2]


@pytest.mark.parametrize(("order", "expected"), [("fifo", [1, 2]), ("lifo", [2, 1])])
async def test_delayed_item_joins_the_queue_when_it_is_due(
    any_concert: Coordinator, order: Any, expected: list[int]
) -> None:
    """At the end at which an item joins that is put in then."""
    queue = any_concert.queue("q", order=order)
    await queue.put(2, delay=3600)
    await queue.put(1)
    assert (await queue.counts()).delayed == 1
    keys = ItemKeys(any_concert._ref.keys, "q")
    [due] = await raw(any_concert).zrange(keys.only.delayed, 0, -1)
    await raw(any_concert).zadd(keys.only.delayed, {due: 1})
    await Promoter(any_concert._ref.session, keys, [keys.only], to_the_front=order == "lifo").promote()
    assert await take(queue, 2) == expected


@pytest.mark.parametrize(("order", "step"), [("fifo", 1), ("lifo", -1)])
async def test_items_due_at_one_instant_come_in_their_order(any_concert: Coordinator, order: Any, step: int) -> None:
    """However many digits their ids have; and so do those that are set aside at one instant, the latest first."""
    queue, keys = any_concert.queue("q", order=order, max_attempts=1), ItemKeys(any_concert._ref.keys, "q")
    await queue.put_many(list(range(120)), delay=3600)
    await make_all_due(any_concert, keys.only.delayed)
    promoter = Promoter(any_concert._ref.session, keys, [keys.only], to_the_front=order == "lifo")
    await promoter.promote()
    deliveries = [await queue.get() for _ in range(120)]
    assert [delivery.item for delivery in deliveries] == list(range(120))[::step]
    for delivery in deliveries:
        await delivery.nack()
    await make_all_due(any_concert, keys.dead)
    assert [dead.item for dead in await queue.dead(limit=120)] == list(range(120))[::-1]


async def make_all_due(concert: Coordinator, key: str) -> None:
    """Give all in this sorted set the same instant, which is over."""
    await raw(concert).zadd(key, dict.fromkeys(await raw(concert).zrange(key, 0, -1), 1))


async def test_item_is_not_handed_out_early(any_concert: Coordinator) -> None:
    """And when it is due, it comes at once, whoever waits."""
    queue = any_concert.queue("q")
    getting = asyncio.create_task(queue.get())
    await are_waiting(1)
    put_at = asyncio.get_running_loop().time()
    await queue.put(1, delay=0.2)
    delivery = await getting
    late = asyncio.get_running_loop().time() - put_at - 0.2
    assert -0.001 <= late < 1.0  # and not at the end of a sleep
    await delivery.ack()


# Waiting until all is done.


@pytest.mark.parametrize("end", ["ack", "dead", "purge", "at_most_once"])
async def test_join_returns_when_the_last_item_is_done(any_concert: Coordinator, end: str) -> None:
    """However it ends: acknowledged, dead-lettered, dropped; at once, as the shortest wait is 2 s."""
    queue = any_concert.queue(
        "q", max_attempts=1, delivery="at_most_once" if end == "at_most_once" else "at_least_once"
    )
    await queue.join(timeout=0)
    await queue.put_many([1, 2, 3])
    await (await any_concert.queue("q").get()).ack()
    joins = [asyncio.create_task(queue.join()) for _ in range(2)]
    await joined(any_concert, 2)
    last = [await any_concert.queue("q", max_attempts=1).get()]
    if end in ("ack", "dead"):
        last.append(await any_concert.queue("q", max_attempts=1).get())
    await last[0].ack()
    assert not any(join.done() for join in joins)
    with anyio.fail_after(1.5):
        if end == "purge":
            await queue.purge()
        elif end == "at_most_once":
            await queue.get()
        else:
            await (last[1].ack() if end == "ack" else last[1].nack())
        await asyncio.gather(*joins)
    assert await raw(any_concert).zcard(ItemKeys(any_concert._ref.keys, "q").joiners) == 0


async def joined(concert: Coordinator, count: int) -> None:
    """Until so many wait for all to be done."""
    await in_line_at(concert, ItemKeys(concert._ref.keys, "q").joiners, count)


async def test_join_waits_for_what_is_delayed_and_what_failed_once(any_concert: Coordinator) -> None:
    """They are not done; it says how many are left."""
    queue = any_concert.queue("q")
    await queue.put(1)
    await (await queue.get()).nack()
    await queue.put(2, delay=60)
    with pytest.raises(TimeoutError, match="2 items of queue 'q' were not done within 0 s"):
        await queue.join(timeout=0)
    with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
        await queue.join(timeout=0.01)
    with pytest.raises(ValueError, match="timeout"):
        await queue.join(timeout=-1)
    assert await queue.purge() == 2
    await queue.join(timeout=0)


async def test_cancelled_join_leaves_others_waiting(any_concert: Coordinator) -> None:
    """And is forgotten."""
    queue = any_concert.queue("q")
    await queue.put(1)
    gone, stays = asyncio.create_task(queue.join()), asyncio.create_task(queue.join())
    await joined(any_concert, 2)
    gone.cancel()
    await asyncio.wait([gone])
    await queue.purge()
    await stays


async def test_closing_ends_a_join(any_concert: Coordinator, namespace: str) -> None:
    """With the error of everything that waits."""
    async with Coordinator.from_client(client_of(any_concert), namespace=namespace) as other:
        await other.queue("q").put(1)
        join = asyncio.create_task(other.queue("q").join())
        await joined(any_concert, 1)
    with pytest.raises(NotConnected):
        await join


# Putting in once.


async def test_item_with_an_id_is_put_in_once(any_concert: Coordinator) -> None:
    """While it is ready, delayed, claimed or dead; an item of another queue is another."""
    queue = any_concert.queue("q", max_attempts=1)
    assert await queue.put("first", id="order-17")
    assert not await queue.put("second", id="order-17")
    assert await queue.put("first", id="order-18", delay=60)
    assert not await queue.put("second", id="order-18")
    assert await any_concert.queue("other").put("first", id="order-17")
    delivery = await queue.get()
    assert (delivery.id, delivery.item) == ("order-17", "first")
    for end in (delivery.nack, partial(queue.replay, "order-17"), queue.purge):
        await forget_puts(any_concert)
        assert not await queue.put("second", id="order-17")
        await end()
    await forget_puts(any_concert)
    assert await queue.put("second", id="order-17")
    assert await take(queue, 1) == ["second"]


async def forget_puts(concert: Coordinator) -> None:
    """As if two minutes had passed."""
    keys = ItemKeys(concert._ref.keys, "q")
    await raw(concert).delete(keys.recent, keys.older)


async def test_item_with_an_id_that_is_done_is_not_put_in_again(any_concert: Coordinator) -> None:
    """For a minute; then it is forgotten."""
    queue = any_concert.queue("q")
    assert await queue.put(1, id="mine")
    assert await take(queue, 1) == [1]
    assert not await queue.put(2, id="mine")
    assert await queue.size() == 0
    await forget_puts(any_concert)
    assert await queue.put(2, id="mine")


async def test_item_with_an_id_that_is_there_needs_no_room(any_concert: Coordinator) -> None:
    """Nor does it wait for any; one that waits finds that another put it in, and leaves the line."""
    queue = any_concert.queue("q", maxsize=1)
    assert await queue.put(1, id="mine")
    assert not await queue.put(2, id="mine")
    assert not await queue.put(2, id="mine", timeout=None)
    with pytest.raises(QueueFull):
        await queue.put(3, id="other")
    waiting = [asyncio.create_task(queue.put(4, id="other", timeout=None)) for _ in range(2)]
    await in_line(any_concert, 2)
    last = asyncio.create_task(queue.put(5, timeout=None))
    await in_line(any_concert, 3)
    assert await take(queue, 3) == [1, 4, 5]
    assert sorted([await waiting[0], await waiting[1]]) == [False, True]
    assert await last


@pytest.mark.parametrize("item_id", ["", "a b", "a\nb", "\u00e9", "#", "x" * 513, 17, b"x"])
async def test_bad_id_of_an_item_is_refused(any_concert: Coordinator, item_id: Any) -> None:
    """Before anything is sent."""
    with pytest.raises(InvalidName, match=r"of an item of queue 'q'; give 1 to 512 printable"):
        await any_concert.queue("q").put(1, id=item_id)
    assert await any_concert.queue("q").size() == 0


async def test_put_many_of_nothing_does_nothing(any_concert: Coordinator) -> None:
    """Without a round trip."""
    await any_concert.queue("q").put_many([])
    assert await any_concert.queue("q").size() == 0


# Getting.


async def test_waiting_getter_is_woken_by_a_put(any_concert: Coordinator) -> None:
    """At once: the shortest sleep is 2 s."""
    queue = any_concert.queue("q")
    getting = asyncio.create_task(queue.get())
    await are_waiting(1)
    with anyio.fail_after(1.5):
        await queue.put(1)
        await (await getting).ack()


async def test_each_item_goes_to_one_getter(any_concert: Coordinator) -> None:
    """Whoever has waited longest is first."""
    queue = any_concert.queue("q")
    getters = [asyncio.create_task(queue.get()) for _ in range(5)]
    await are_waiting(5)
    await queue.put_many([1, 2, 3, 4, 5])
    deliveries = await asyncio.gather(*getters)
    assert [delivery.item for delivery in deliveries] == [1, 2, 3, 4, 5]
    assert (await queue.counts()).claimed == 5
    await asyncio.gather(*(delivery.ack() for delivery in deliveries))
    assert await queue.counts() == QueueCounts(0, 0, 0, 0)


async def test_callers_are_served_in_their_order(any_concert: Coordinator) -> None:
    """Also the first one, which claims while nobody waits, and finds nothing; and one that has come meanwhile."""
    queue = any_concert.queue("q")
    await queue.put("before")
    assert await take(queue, 1) == ["before"]
    callers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await eventually(lambda: _getters(any_concert).waiting == 3)
    await queue.put_many([1, 2, 3])
    assert [delivery.item for delivery in await asyncio.gather(*callers)] == [1, 2, 3]


def _getters(concert: Coordinator) -> OpenGetters:
    [getters] = concert._getters._open.values()
    return getters


@pytest.mark.parametrize("timeout", [0, 0.05])
async def test_get_gives_up_in_time(any_concert: Coordinator, timeout: float) -> None:
    """An empty queue raises; 0 looks once."""
    queue = any_concert.queue("q")
    with pytest.raises(TimeoutError, match="queue 'q'"), anyio.fail_after(1.5):
        await queue.get(timeout=timeout)
    await queue.put(1)
    assert (await queue.get(timeout=0)).item == 1


async def test_get_many_takes_what_is_there(any_concert: Coordinator) -> None:
    """In their order, up to its limit; each is acknowledged by itself."""
    queue = any_concert.queue("q")
    await queue.put_many(list(range(5)))
    deliveries = await queue.get_many(3)
    assert [delivery.item for delivery in deliveries] == [0, 1, 2]
    for delivery in deliveries[1:]:
        await delivery.ack()
    await deliveries[0].give_back()
    assert [delivery.item for delivery in await queue.get_many(10, timeout=0)] == [0, 3, 4]
    with pytest.raises(TimeoutError):
        await queue.get_many(10, timeout=0)
    with pytest.raises(TimeoutError):
        await queue.get_many(10, timeout=0.02)


async def test_get_many_waits_for_the_first_and_then_for_more(any_concert: Coordinator) -> None:
    """Until it has its limit, or the time is over; whoever waits behind it gets the rest."""
    queue = any_concert.queue("q")
    many = asyncio.create_task(queue.get_many(3, within=30, timeout=5))
    one = asyncio.create_task(queue.get(timeout=5))
    await are_waiting(2)
    getters = any_concert._getters._open[queue._terms]._getters
    for left in (3, 2):
        await queue.put(3 - left)
        await eventually(partial(has_length, getters, left))
        assert not many.done()
    await queue.put_many([2, 3])
    assert [delivery.item for delivery in await many] == [0, 1, 2]
    assert (await one).item == 3
    few = asyncio.create_task(queue.get_many(3, within=0.1))
    await are_waiting(1)
    await queue.put("only")
    assert [delivery.item for delivery in await few] == ["only"]
    await queue.put("next")
    assert (await queue.get(timeout=5)).item == "next"


async def test_get_many_waits_for_more_though_not_for_the_first(any_concert: Coordinator) -> None:
    """If there is one now, and for nothing otherwise."""
    queue = any_concert.queue("q")
    with anyio.fail_after(20), pytest.raises(TimeoutError):
        await queue.get_many(3, within=60, timeout=0)
    await queue.put(0)
    many = asyncio.create_task(queue.get_many(3, within=60, timeout=0))
    await eventually(partial(has_length, any_concert._getters._open[queue._terms]._getters, 2))
    await queue.put_many([1, 2, 3])
    with anyio.fail_after(20):
        assert [delivery.item for delivery in await many] == [0, 1, 2]
    assert (await queue.counts()).claimed == 3


async def test_get_many_claims_no_more_than_it_returns(any_concert: Coordinator) -> None:
    """Though more is there than one reply has."""
    queue = any_concert.queue("q")
    await queue.put_many(["x" * 700_000] * 5)
    deliveries = await queue.get_many(4)
    assert (await queue.counts()).claimed == len(deliveries) == 2
    assert not any_concert._getters._open[queue._terms]._getters
    assert len(await queue.get_many(4, within=0.5)) == 3


async def test_get_many_that_finds_nothing_raises_one_error(any_concert: Coordinator, complaints: list[Any]) -> None:
    """Not one for each item that it wanted: the event loop would log the others."""
    queue = any_concert.queue("q")
    with pytest.raises(TimeoutError):
        await queue.get_many(5, timeout=0)
    await queue.shutdown()
    with pytest.raises(QueueShutDown):
        await queue.get_many(5)
    gc.collect()
    assert not complaints


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
async def test_cancelled_get_many_leaves_all_its_items(any_concert: Coordinator, delivery: Any) -> None:
    """In their order, to the next."""
    queue = any_concert.queue("q", delivery=delivery)
    many = asyncio.create_task(queue.get_many(5, within=60))
    await are_waiting(1)
    await queue.put_many([1, 2, 3])
    await eventually(lambda: len(any_concert._getters._open[queue._terms]._getters) == 2)
    many.cancel()
    with pytest.raises(asyncio.CancelledError):
        await many
    assert [found.item for found in await queue.get_many(5, timeout=5)] == [1, 2, 3]
    assert not any_concert._getters._open[queue._terms]._getters


async def test_closing_ends_get_many_and_gives_its_items_back(any_concert: Coordinator, namespace: str) -> None:
    """Those that it has taken, and those that it waits for."""
    async with Coordinator.from_client(client_of(any_concert), namespace=namespace) as other:
        queue = other.queue("q")
        many = asyncio.create_task(queue.get_many(5, within=60))
        await are_waiting(1)
        await queue.put_many([1, 2])
        await eventually(lambda: len(other._getters._open[queue._terms]._getters) == 3)
    assert [delivery.is_over for delivery in await many] == [True, True]
    assert (await items_of(any_concert)).ready == [1, 2]


@pytest.mark.parametrize("limit", [0, -1, 501, 1.5, True])
async def test_get_many_refuses_a_bad_limit(any_concert: Coordinator, limit: Any) -> None:
    """Before anything is sent."""
    with pytest.raises((ValueError, TypeError), match="limit"):
        await any_concert.queue("q").get_many(limit)
    with pytest.raises(ValueError, match="within"):
        await any_concert.queue("q").get_many(1, within=-1)


async def test_get_at_once_does_not_wait_for_those_who_sleep(any_concert: Coordinator) -> None:
    """Another waits in the same process."""
    queue = any_concert.queue("q")
    waiting = asyncio.create_task(queue.get())
    await are_waiting(1)
    with pytest.raises(TimeoutError), anyio.fail_after(1.5):
        await queue.get(timeout=0)
    await queue.put(1)
    await (await waiting).ack()


async def test_get_at_once_takes_what_is_due(any_concert: Coordinator) -> None:
    """Also if nobody has moved it yet."""
    queue = any_concert.queue("q")
    await queue.put(1, delay=3600)
    keys = ItemKeys(any_concert._ref.keys, "q")
    [due] = await raw(any_concert).zrange(keys.only.delayed, 0, -1)
    await raw(any_concert).zadd(keys.only.delayed, {due: 1})
    assert (await queue.get(timeout=0)).item == 1


async def test_cancelled_getter_leaves_its_item_to_the_next(any_concert: Coordinator) -> None:
    """Or to the queue, at its front."""
    queue = any_concert.queue("q")
    await queue.put_many([1, 2])
    gone, next_one = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    gone.add_done_callback(lambda _: None)
    await are_waiting(2)
    gone.cancel()
    await asyncio.wait([gone])
    assert (await next_one).item in (1, 2)
    await eventually(lambda: _is(queue, ready=1, claimed=1))


async def test_getter_that_is_cancelled_while_it_claims_takes_nothing(any_concert: Coordinator) -> None:
    """Its item is at the front again, and that was no attempt."""
    queue = any_concert.queue("q")
    await queue.put_many([1, 2, 3])
    assert await take(queue, 1) == [1]
    getting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)  # its claim is under way
    getting.cancel()
    await asyncio.wait([getting])
    assert getting.cancelled()
    await eventually(lambda: _is(queue, ready=2, claimed=0))
    delivery = await queue.get()
    assert (delivery.item, delivery.attempt) == (2, 1)


async def test_get_after_a_call_that_was_closed_while_it_claimed_takes_one(any_concert: Coordinator) -> None:
    """Its claim is answered with all that the other had claimed: these are back, in their order."""
    queue = any_concert.queue("q")
    await queue.put("before")
    assert await take(queue, 1) == ["before"]
    await queue.put_many([1, 2, 3])
    closed = queue.get_many(3)
    closed.send(None)
    await asyncio.sleep(0)  # its claim is under way
    closed.close()
    assert (await queue.get()).item == 1
    await eventually(lambda: _is(queue, ready=2, claimed=1))
    assert await take(queue, 2) == [2, 3]


async def _is(queue: Queue[Any], **expected: int) -> bool:
    counts = await queue.counts()
    return all(getattr(counts, part) == count for part, count in expected.items())


async def test_queues_made_alike_share_one_life(any_concert: Coordinator) -> None:
    """A process is one worker for each queue, however many objects and tasks there are."""
    getters = [asyncio.create_task(any_concert.queue("q").get()) for _ in range(3)]
    await are_waiting(3)
    await any_concert.queue("q").put_many([1, 2, 3])
    for delivery in await asyncio.gather(*getters):
        await delivery.ack()
    assert len((await items_of(any_concert)).workers) == 1


async def test_iteration_goes_on_after_a_failure(any_concert: Coordinator) -> None:
    """The body's exception counts, and is not passed on."""
    queue = any_concert.queue("q")
    await queue.put_many([1, 2])
    seen: list[tuple[Any, int]] = []
    async for delivery in queue:
        async with delivery as item:
            seen.append((item, delivery.attempt))
            if seen == [(1, 1)]:
                raise ValueError("once")
        if item == 2:
            break
    assert seen == [(1, 1), (1, 2), (2, 1)]


# How a delivery ends.


async def test_acknowledged_item_is_gone(any_concert: Coordinator) -> None:
    """And cannot end again."""
    queue = any_concert.queue("q")
    await queue.put(1)
    delivery = await queue.get()
    await delivery.ack()
    for end in (delivery.ack, delivery.nack, delivery.give_back):
        with pytest.raises(NotClaimed, match=r"item .* is no longer claimed"):
            await end()
    (await items_of(any_concert)).check(put=1, done=1)


async def test_nacked_item_is_back_in_its_place(any_concert: Coordinator) -> None:
    """Before those behind it, and one attempt is counted."""
    queue = any_concert.queue("q")
    await queue.put_many([1, 2])
    await (await queue.get()).nack()
    assert await queue.peek() == [1, 2]
    assert (await queue.get()).attempt == 2


async def test_nacked_item_comes_later(any_concert: Coordinator) -> None:
    """After its delay."""
    queue = any_concert.queue("q")
    await queue.put(1)
    await (await queue.get()).nack(delay=3600)
    assert await queue.counts() == QueueCounts(0, 1, 0, 0)


async def test_given_back_item_has_had_no_attempt(any_concert: Coordinator) -> None:
    """Nor has one whose body was cancelled."""
    queue = any_concert.queue("q", max_attempts=1)
    await queue.put(1)
    await (await queue.get()).give_back()
    delivery = await queue.get()
    with anyio.CancelScope() as scope:
        async with delivery:
            scope.cancel()
            await anyio.sleep_forever()
    assert (await queue.get()).attempt == 1


async def test_item_is_set_aside_after_its_last_attempt(any_concert: Coordinator) -> None:
    """With the reason, and may be replayed as if it were new."""
    queue = any_concert.queue("q", max_attempts=2)
    await queue.put({"a": 1})
    for _ in range(2):
        async with await queue.get():
            raise ValueError("it cannot be done")
    [dead] = await queue.dead()
    assert (dead.item, dead.attempts, dead.reason) == ({"a": 1}, 2, "ValueError: it cannot be done")
    assert "Traceback" in dead.traceback
    assert await queue.counts() == QueueCounts(0, 0, 0, 1)
    await queue.replay(dead.id)
    delivery = await queue.get()
    assert (delivery.id, delivery.attempt, delivery.item) == (dead.id, 1, {"a": 1})
    await delivery.ack()
    with pytest.raises(ItemNotFound, match="queue 'q'"):
        await queue.replay(dead.id)


async def test_bury_sets_aside_at_once(any_concert: Coordinator) -> None:
    """Whatever attempts are left."""
    queue = any_concert.queue("q")
    await queue.put(1)
    await (await queue.get()).bury(ValueError("no"))
    [dead] = await queue.dead()
    assert (dead.reason, dead.attempts) == ("ValueError: no", 1)


async def test_line_of_a_failure_names_the_item(any_concert: Coordinator, caplog: pytest.LogCaptureFixture) -> None:
    """And its attempt and queue; also as attributes of the record."""
    queue = any_concert.queue("q")
    await queue.put("x")
    delivery = await queue.get()
    async with delivery:
        raise ValueError("no")
    [record] = [record for record in caplog.records if record.name == "inconcert.claims"]
    assert record.getMessage() == f"item {delivery.id} attempt 1 (queue 'q') failed"
    assert vars(record).items() >= {"item_id": delivery.id, "attempt": 1, "queue": "q"}.items()


async def test_item_that_cannot_be_read_is_set_aside(any_concert: Coordinator) -> None:
    """And those behind it are handed out."""
    queue = any_concert.queue("q")
    await queue.put_many([1, 2])
    keys = ItemKeys(any_concert._ref.keys, "q")
    [first, _] = await raw(any_concert).lrange(keys.only.queue, 0, -1)
    await raw(any_concert).hset(keys.bodies, first, "12 {")
    assert await queue.peek() == [None, 2]
    assert (await queue.get()).item == 2
    [dead] = await queue.dead()
    assert (dead.item, "cannot be read" in dead.reason) == (None, True)


async def test_items_that_cannot_be_read_hide_no_other(any_concert: Coordinator) -> None:
    """Not even from one who does not wait."""
    queue = any_concert.queue("q")
    await queue.put_many([1, 2, 3])
    keys = ItemKeys(any_concert._ref.keys, "q")
    for id_ in (await raw(any_concert).lrange(keys.only.queue, 0, -1))[:2]:
        await raw(any_concert).hset(keys.bodies, id_, "12 {")
    assert (await queue.get(timeout=0)).item == 3


async def test_item_that_is_not_signed_is_set_aside(any_concert: Coordinator) -> None:
    """If there are keys; what is signed with one of them comes out as it was put in."""
    namespace = any_concert._ref.keys.namespace
    keys = {"now": "a secret of 16 bytes"}
    async with Coordinator.from_client(client_of(any_concert), namespace=namespace, signing_keys=keys) as signing:
        await any_concert.queue("q").put("unsigned")
        await signing.queue("q").put("signed")
        assert await take(signing.queue("q"), 1) == ["signed"]
        [dead] = await signing.queue("q").dead()
        assert dead.item is None
        assert dead.reason.endswith("the item of queue 'q' is not signed, as signing_keys demand; it was not read")
        assert await signing.queue("q").peek() == []


@pytest.mark.parametrize("how", ["ack", "error"])
async def test_at_most_once_never_comes_back(any_concert: Coordinator, how: str) -> None:
    """It is done when it is handed out, whatever becomes of it."""
    queue = any_concert.queue("q", delivery="at_most_once")
    await queue.put(1)
    delivery = await queue.get()
    assert await queue.counts() == QueueCounts(0, 0, 0, 0)
    async with delivery:
        if how == "error":
            raise ValueError("too late")
    assert await queue.counts() == QueueCounts(0, 0, 0, 0)


# Room.


async def test_full_queue_refuses(any_concert: Coordinator) -> None:
    """What is ready, delayed or claimed takes room; what is dead does not."""
    queue = any_concert.queue("q", maxsize=3, max_attempts=1)
    await queue.put(1)
    await queue.put(2, delay=3600)
    claimed = await queue.get()
    with pytest.raises(QueueFull, match="is full \\(maxsize=3\\)"):
        await queue.put_many([3, 4])
    assert await queue.size() == 0  # all or none
    await queue.put(3)
    with pytest.raises(QueueFull):
        await queue.put(4)
    await claimed.nack()
    assert (await queue.counts()).dead == 1
    await queue.put(4)


@pytest.mark.parametrize("end", ["ack", "dead", "purge"])
async def test_waiting_put_is_let_in_when_there_is_room(any_concert: Coordinator, end: str) -> None:
    """It is woken, at once: it would look by itself after 2 s."""
    queue = any_concert.queue("q", maxsize=1, max_attempts=1)
    await queue.put(1)
    ends: dict[str, Callable[[], Awaitable[object]]] = {"purge": queue.purge}
    if end != "purge":
        delivery = await queue.get()
        ends |= {"ack": delivery.ack, "dead": delivery.nack}
    putting = asyncio.create_task(queue.put(2, timeout=None))
    await in_line(any_concert, 1)
    with anyio.fail_after(1.5):
        await ends[end]()
        await putting
    assert await queue.peek() == [2]


async def in_line(concert: Coordinator, count: int) -> None:
    """Until so many wait for room."""
    await in_line_at(concert, ItemKeys(concert._ref.keys, "q").line, count)


async def test_waiting_puts_are_let_in_in_their_order(any_concert: Coordinator) -> None:
    """And nobody passes those in line, not even who would not wait."""
    queue = any_concert.queue("q", maxsize=2)
    await queue.put_many([0, 0])
    putting: list[asyncio.Task[bool]] = []
    for number in (1, 2, 3):
        putting.append(asyncio.create_task(queue.put(number, timeout=None)))
        await in_line(any_concert, number)
    assert await take(queue, 2) == [0, 0]
    with anyio.fail_after(1.5):
        assert await take(queue, 3) == [1, 2, 3]
        await asyncio.gather(*putting)


async def test_put_gives_up_in_time_and_leaves_the_line(any_concert: Coordinator) -> None:
    """The next in line is not held up."""
    queue = any_concert.queue("q", maxsize=1)
    await queue.put(0)
    with pytest.raises(QueueFull, match=r"within 0\.05 s"):
        await queue.put(1, timeout=0.05)
    waiting = asyncio.create_task(queue.put(2, timeout=None))
    await in_line(any_concert, 1)
    waiting.cancel()
    await asyncio.wait([waiting])
    await in_line(any_concert, 0)
    assert await take(queue, 1) == [0]
    await queue.put(3)
    assert await queue.peek() == [3]


async def test_put_that_leaves_lets_the_next_in(any_concert: Coordinator) -> None:
    """There was room for the next all the while, and not for the one before it."""
    queue = any_concert.queue("q", maxsize=2)
    await queue.put(0)
    first = asyncio.create_task(queue.put_many([1, 2], timeout=None))
    await in_line(any_concert, 1)
    second = asyncio.create_task(queue.put(3, timeout=None))
    await in_line(any_concert, 2)
    first.cancel()
    with anyio.fail_after(1.5):
        await second
    assert await queue.peek() == [0, 3]


async def test_newcomer_does_not_pass_the_line(any_concert: Coordinator) -> None:
    """There would be room for it, and not for the first in line."""
    queue = any_concert.queue("q", maxsize=2)
    await queue.put(0)
    first = asyncio.create_task(queue.put_many([1, 2], timeout=None))
    await in_line(any_concert, 1)
    with pytest.raises(QueueFull):
        await queue.put(3)
    assert await take(queue, 1) == [0]
    await first
    assert await queue.peek() == [1, 2]


# Looking.


async def test_counts_say_where_items_are(any_concert: Coordinator) -> None:
    """Each in one place."""
    queue = any_concert.queue("q")
    await queue.put_many([1, 2, 3])
    await queue.put(4, delay=3600)
    await (await queue.get()).bury(ValueError())
    await queue.get()
    assert await queue.counts() == QueueCounts(ready=1, delayed=1, claimed=1, dead=1)
    assert await queue.size() == 1
    (await items_of(any_concert)).check(put=4, done=0)


@pytest.mark.parametrize("order", ["fifo", "lifo"])
async def test_oldest_age_is_that_of_the_oldest(any_concert: Coordinator, order: Any) -> None:
    """At whichever end it is."""
    queue = any_concert.queue("q", order=order)
    assert await queue.oldest_age() is None
    await queue.put("old")
    await queue.put("new")
    keys = ItemKeys(any_concert._ref.keys, "q")
    ids = await raw(any_concert).lrange(keys.only.queue, 0, -1)
    await raw(any_concert).hset(keys.bodies, ids[0 if order == "fifo" else -1], '1000 "old"')
    age = await queue.oldest_age()
    assert age is not None
    assert age > 1e9


async def test_peek_shows_what_comes_next(any_concert: Coordinator) -> None:
    """And takes nothing."""
    queue = any_concert.queue("q")
    await queue.put_many(list(range(20)))
    assert await queue.peek() == list(range(10))
    assert await queue.peek(limit=2) == [0, 1]
    assert await queue.size() == 20


async def test_purge_drops_what_nobody_has(any_concert: Coordinator) -> None:
    """Ready and delayed, in portions; what is claimed or dead stays."""
    queue = any_concert.queue("q")
    await queue.put_many([1, 2])
    await (await queue.get()).bury(ValueError())
    held = await queue.get()
    for _ in range(3):
        await queue.put_many(list(range(250)))
    await queue.put_many(list(range(10)), delay=3600)
    assert await queue.purge() == 760
    assert await queue.counts() == QueueCounts(0, 0, 1, 1)
    await held.ack()
    assert await queue.purge_dead(older_than=3600) == 0
    assert await queue.purge_dead(keep=1) == 0
    assert await queue.purge_dead() == 1
    assert await queue.counts() == QueueCounts(0, 0, 0, 0)


async def test_nothing_is_left_of_an_empty_queue(any_concert: Coordinator, namespace: str) -> None:
    """But for keys that end by themselves, also while the worker lives."""
    queue = any_concert.queue("q", max_attempts=2)
    await queue.put_many([1, 2, 3])
    for _ in range(2):
        async with await queue.get():
            raise ValueError
    await queue.purge_dead()
    await take(queue, 2)
    kept = {
        key.decode().partition("}:")[2]
        async for key in raw(any_concert).scan_iter(match=f"*{namespace}:queue:*")
        if await raw(any_concert).pttl(key) == -1
    }
    assert len((await items_of(any_concert)).workers) == 1
    assert kept == set()


# Arguments, and being closed.


@pytest.mark.parametrize(
    "options",
    [
        {"order": "random"}, {"delivery": "exactly_once"}, {"ttl": 0}, {"ttl": "1"}, {"max_attempts": 0},
        {"max_attempts": 1.5}, {"maxsize": 0}, {"maxsize": True}, {"maxsize": "10"},
    ],
)  # fmt: skip
def test_bad_option_is_refused_at_once(options: dict[str, Any]) -> None:
    """Before anything is opened."""
    with pytest.raises(ValueError, match=next(iter(options))):
        Coordinator().queue("q", **options)


@pytest.mark.parametrize("name", ["", "x" * 513, 7])
def test_bad_name_is_refused_at_once(name: Any) -> None:
    """As for everything that has a name."""
    with pytest.raises(InvalidName):
        Coordinator().queue(name)


async def test_bad_argument_is_refused_before_anything_is_sent(any_concert: Coordinator) -> None:
    """Of each call."""
    queue = any_concert.queue("q", maxsize=5)
    calls: list[Awaitable[object]] = [
        queue.put(1, delay=-1), queue.put(1, timeout=-1), queue.put_many([1], delay=float("nan")),
        queue.get(timeout=-1), queue.peek(limit=0), queue.dead(limit=1001), queue.purge_dead(keep=-1),
        queue.purge_dead(older_than=-1),
        queue.put_many([0] * 6),
        any_concert.queue("q").put_many([0] * 501),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ValueError, match=r"delay|timeout|limit|older_than|keep|put at most"):
            await call
    with pytest.raises(InvalidPayload, match="together"):
        await any_concert.queue("q").put_many(["x" * (2**20 - 10)] * 9)
    assert await queue.counts() == QueueCounts(0, 0, 0, 0)


async def test_closed_coordinator_refuses(namespace: str) -> None:
    """Before it was opened."""
    queue = Coordinator(namespace=namespace).queue("q")
    for call in (queue.put(1), queue.get(), queue.size(), queue.purge()):
        with pytest.raises(NotConnected):
            await call


async def test_closing_gives_everything_back_and_sends_waiters_away(any_concert: Coordinator) -> None:
    """What was got is back at the front, in order and without an attempt; its body is cancelled."""
    elsewhere = Coordinator.from_client(client_of(any_concert), namespace=any_concert._ref.keys.namespace)
    async with elsewhere:
        queue = elsewhere.queue("q")
        await queue.put_many([1, 2, 3])
        held = [await queue.get(), await queue.get()]
        entered = asyncio.Event()

        async def handle() -> None:
            async with held[1]:
                entered.set()
                await anyio.sleep_forever()

        handling = asyncio.create_task(handle())
        await entered.wait()
        await take(queue, 1)
        full = elsewhere.queue("full", maxsize=1)
        await full.put(0)
        waiting = [
            asyncio.create_task(call) for call in (queue.get(), queue.get(timeout=60), full.put(1, timeout=None))
        ]
        await are_waiting(2)
    for task in waiting:
        with pytest.raises(NotConnected):
            await task
    await handling
    assert [delivery.is_over for delivery in held] == [True, True]
    assert (await items_of(any_concert)).ready == [1, 2]
    assert [(await any_concert.queue("q").get()).attempt for _ in range(2)] == [1, 1]


async def test_coordinator_may_be_opened_again(any_concert: Coordinator) -> None:
    """A queue made before it was open works in each opening."""
    elsewhere = Coordinator.from_client(client_of(any_concert), namespace=any_concert._ref.keys.namespace)
    queue = elsewhere.queue("q")
    for number in range(2):
        async with elsewhere:
            await queue.put(number)
            assert await take(queue, 1) == [number]


@pytest.mark.parametrize("part", ["queue", "delayed"])
async def test_foreign_key_is_an_error_and_takes_nothing(any_concert: Coordinator, part: str) -> None:
    """A put adds nothing, and those who wait hear of it."""
    queue, keys = any_concert.queue("q"), ItemKeys(any_concert._ref.keys, "q")
    await raw(any_concert).set(getattr(keys.only, part), "foreign", px=60_000)
    for call in (queue.put(1), queue.put(1, delay=1), queue.get(timeout=5), queue.size()):
        with pytest.raises(WrongState):
            await call
    assert await raw(any_concert).exists(keys.bodies, keys.recent) == 0


async def test_get_beside_a_foreign_key_takes_nothing(any_concert: Coordinator) -> None:
    """Failures are read of the ids that it has taken: one that is not claimed then is in no place any more."""
    queue, keys = any_concert.queue("q"), ItemKeys(any_concert._ref.keys, "q")
    await queue.put_many([1, 2])
    await raw(any_concert).set(keys.facts, "foreign", px=60_000)
    with pytest.raises(WrongState):
        await queue.get(timeout=5)
    await raw(any_concert).delete(keys.facts)
    assert await queue.counts() == QueueCounts(2, 0, 0, 0)
    assert await take(queue, 2) == [1, 2]


@pytest.mark.parametrize("part", ["delayed", "line"])
async def test_purge_beside_a_foreign_key_drops_nothing(any_concert: Coordinator, part: str) -> None:
    """What is ready stays so: a body without a place would count as claimed for ever."""
    queue, keys = any_concert.queue("q"), ItemKeys(any_concert._ref.keys, "q")
    await queue.put_many([1, 2])
    key = keys.line if part == "line" else keys.only.delayed
    await raw(any_concert).set(key, "foreign", px=60_000)
    with pytest.raises(WrongState):
        await queue.purge()
    await raw(any_concert).delete(key)
    assert await queue.counts() == QueueCounts(2, 0, 0, 0)


async def test_foreign_bell_keeps_an_item_from_being_put_in(any_concert: Coordinator) -> None:
    """Else it would be there, though its put has failed."""
    queue, keys = any_concert.queue("q"), ItemKeys(any_concert._ref.keys, "q")
    await raw(any_concert).set(keys.only.bell, "foreign", px=60_000)
    for delay in (0, 1):
        with pytest.raises(WrongState):
            await queue.put(1, delay=delay)
    assert await raw(any_concert).exists(keys.bodies, keys.recent) == 0
