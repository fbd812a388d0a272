"""Queues while processes die, replies are lost, calls are cancelled, servers are full or restarted: no item is lost."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, Delivery, NotConnected, NotHeld, OutcomeUnknown, QueueCounts, QueueFull, Unavailable
from inconcert._redis.wire.call import Call
from inconcert.queues.store import ItemKeys
from inconcert.tasks.records.store import JobKeys
from tests.support.background import in_background
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.inner import bells_of, channel_of
from tests.support.processes import Child, spawn, tell
from tests.support.proxy import Proxy
from tests.support.queues import items_of
from tests.support.raw import raw
from tests.support.servers import RealServer

HERE = "tests.faults.test_queues_faults"
TTL = 1.0  # seconds, where a process is to be found dead


async def until(concert: Coordinator, counts: QueueCounts) -> None:
    """Wait until a queue has just this."""

    async def found() -> bool:
        return await concert.queue("q").counts() == counts

    await eventually(found)


async def until_in_line(concert: Coordinator, number: int) -> None:
    """Wait until so many wait for room in the queue."""
    line = ItemKeys(concert._ref.keys, "q").line

    async def so_many() -> bool:
        count: int = await raw(concert).zcard(line)
        return count == number

    await eventually(so_many)


async def lapse(concert: Coordinator) -> None:
    """Let all who have items of the queue be taken for dead now; nobody tells them."""
    keys = ItemKeys(concert._ref.keys, "q")
    for key in (keys.workers, keys.alive):
        for worker in await raw(concert).zrange(key, 0, -1):
            await raw(concert).zadd(key, {worker: 1}, xx=True)


async def forget_all(concert: Coordinator) -> None:
    """Delete every key of the queue."""
    client: Any = raw(concert)
    if keys := [key async for key in client.scan_iter(f"*{concert._ref.keys.namespace}:queue:*")]:
        await client.delete(*keys)


# Processes that die or stand still.


async def hold_for_ever(url: str, namespace: str) -> None:
    """In a child: get two items, and never finish."""
    async with Coordinator(url, namespace=namespace) as concert:
        queue = concert.queue("q", ttl=TTL)
        async with await queue.get() as one, await queue.get() as two:
            tell("claimed", items=[one, two])
            await anyio.sleep_forever()


async def test_items_of_a_killed_process_come_back(server: RealServer, concert: Coordinator, namespace: str) -> None:
    """Within one ttl they are at the front, in the old order, for whoever waits; the crash counts as a try."""
    queue = concert.queue("q", ttl=TTL)
    await queue.put_many(["a", "b"])
    async with spawn(f"{HERE}:hold_for_ever", server.url, namespace) as child:
        assert (await child.wait_for("claimed"))["items"] == ["a", "b"]
        async with in_background(queue.get()) as getting:
            await queue.put("c")
            first: Delivery = await getting
            assert first.item == "c"
            child.kill()
            killed_at = time.monotonic()
            again = [await queue.get(timeout=5), await queue.get(timeout=5)]
            assert time.monotonic() - killed_at < TTL + 0.5
    assert [(delivery.item, delivery.attempt) for delivery in again] == [("a", 2), ("b", 2)]
    await asyncio.gather(first.ack(), *(delivery.ack() for delivery in again))
    (await items_of(concert)).check(put=3, done=3)


async def be_paused(url: str, namespace: str) -> None:
    """In a child: handle one item and hold another, and tell how they end."""
    async with Coordinator(url, namespace=namespace) as concert:
        queue = concert.queue("q", ttl=TTL)
        running, held = await queue.get(), await queue.get()
        tell("claimed")
        async with running:
            try:
                await anyio.sleep_forever()
            finally:
                tell("cancelled", is_over=held.is_over)
        try:
            await held.ack()
        except NotHeld:
            tell("refused")
        async with await queue.get() as item:  # it goes on, as a new worker
            tell("got", item=item)
        await anyio.sleep_forever()


async def test_process_that_stood_still_stops_its_handlers(
    server: RealServer, concert: Coordinator, namespace: str
) -> None:
    """Its bodies are cancelled and its late acknowledgements refused; another has its items, and it gets new ones."""
    queue = concert.queue("q", ttl=TTL)
    await queue.put_many(["a", "b"])
    async with spawn(f"{HERE}:be_paused", server.url, namespace) as child:
        await child.wait_for("claimed")
        child.pause()
        again = [await queue.get(timeout=5), await queue.get(timeout=5)]
        assert [(delivery.item, delivery.attempt) for delivery in again] == [("a", 2), ("b", 2)]
        child.resume()
        assert (await child.wait_for("cancelled"))["is_over"]
        await child.wait_for("refused")
        await queue.put("c")
        assert (await child.wait_for("got"))["item"] == "c"
        await asyncio.gather(*(delivery.ack() for delivery in again))


async def test_long_handler_keeps_its_item(concert: Coordinator, elsewhere: Coordinator) -> None:
    """As long as its process lives: the heartbeat goes on, several times the ttl."""
    queue = concert.queue("q", ttl=0.3)
    await queue.put(1)
    async with await queue.get():
        with pytest.raises(TimeoutError):
            await elsewhere.queue("q", ttl=0.3).get(timeout=1.0)
    await until(concert, QueueCounts(0, 0, 0, 0))


async def test_body_is_cancelled_when_its_item_is_lost(concert: Coordinator, elsewhere: Coordinator) -> None:
    """And nothing is raised after it: the loop goes on."""
    queue = concert.queue("q", ttl=0.6)
    await queue.put(1)
    delivery = await queue.get()
    await lapse(concert)
    with anyio.fail_after(3):
        async with delivery:
            await anyio.sleep_forever()
    assert delivery.outcome == "lost"
    again = await elsewhere.queue("q").get(timeout=5)
    assert (again.item, again.attempt) == (1, 2)


async def test_third_crash_sets_an_item_aside(concert: Coordinator, elsewhere: Coordinator) -> None:
    """It may be what kills, whatever `max_attempts` is."""
    await concert.queue("q").put(1)
    queues = [concert.queue("q"), elsewhere.queue("q")]
    for crash in range(3):
        delivery = await queues[crash % 2].get(timeout=5)
        assert delivery.attempt == crash + 1
        await lapse(concert)
    with pytest.raises(TimeoutError):
        await queues[1].get(timeout=0.2)
    [dead] = await concert.queue("q").dead()
    assert dead.reason == "3 workers died with it"


@pytest.mark.parametrize("most", [1, 4])
async def test_queue_says_how_many_crashes_an_item_is_good_for(
    concert: Coordinator, elsewhere: Coordinator, most: int
) -> None:
    """Also an item that is a number, as which a job has it in its body."""
    queues = [each.queue("q", max_crashes=most) for each in (concert, elsewhere)]
    await queues[0].put(7)
    for crash in range(most):
        assert (await queues[crash % 2].get(timeout=5)).item == 7
        await lapse(concert)
    with pytest.raises(TimeoutError):
        await queues[most % 2].get(timeout=0.2)
    [dead] = await queues[0].dead()
    assert dead.reason == ("1 worker died with it" if most == 1 else f"{most} workers died with it")


async def consume(url: str, namespace: str, number: int) -> None:
    """In a child: handle items, noting each in a set when it is done."""
    async with Coordinator(url, namespace=namespace) as concert:
        queue = concert.queue("q", ttl=TTL)

        async def work() -> None:
            async for delivery in queue:
                async with delivery as item:
                    await asyncio.sleep(0.002)
                    await raw(concert).hincrby("{done}", str(item), 1)

        tell("begins", number=number)
        await asyncio.gather(*(work() for _ in range(5)))


async def test_every_item_is_handled_while_consumers_are_killed(
    server: RealServer, concert: Coordinator, namespace: str
) -> None:
    """At each moment each item that is not done is in one place; in the end each was handled, few of them twice."""
    queue, client = concert.queue("q"), raw(concert)
    await client.delete("{done}")
    await queue.put_many(list(range(400)))
    async with AsyncExitStack() as stack:

        async def start(number: int) -> Child:
            child = await stack.enter_async_context(spawn(f"{HERE}:consume", server.url, namespace, number))
            await child.wait_for("begins")
            return child

        async def some_are_done() -> bool:
            await items_of(concert)
            return bool(await client.hlen("{done}") >= 100)

        killed, _ = await start(0), await start(1)
        await eventually(some_are_done, timeout=20)
        killed.kill()
        await items_of(concert)
        await until(concert, QueueCounts(0, 0, 0, 0))
    done = {int(item): int(count) for item, count in (await client.hgetall("{done}")).items()}
    await client.delete("{done}")
    assert sorted(done) == list(range(400))
    assert Counter(done.values())[1] >= 400 - 5  # but those that were under way when it was killed


# Replies that are lost.


async def test_reply_lost_at_each_step_changes_nothing(proxy: Proxy, namespace: str, concert: Coordinator) -> None:
    """Put, wait for room, get, nack, ack, set aside, replay, purge: each is sent again, and acts once."""
    async for steps in proxy.losing_each(least=20, most=60):
        async with Coordinator(proxy.url, namespace=namespace) as bad:
            queue = bad.queue("q", maxsize=3, max_attempts=2)
            proxy.cut_after_replies(steps, lose_next=True)
            await queue.put_many([1, 2])
            await queue.put(3)
            async with in_background(queue.put(4, timeout=None)) as putting:
                first = await queue.get()
                await first.nack()
                first = await queue.get()
                assert (first.item, first.attempt) == (1, 2)
                await first.ack()
                await putting
            second = await queue.get()
            assert second.item == 2
            await second.bury(ValueError("no"))
            [dead] = await queue.dead()
            assert await queue.size() == 2
            await queue.replay(dead.id)
            items: list[Any] = []
            for _ in range(3):
                async with await queue.get() as item:
                    items.append(item)
            assert items == [3, 4, 2]
            await queue.put(5)
            assert await queue.purge() <= 1
            async with in_background(queue.get()) as getting:  # which sleeps, or is about to
                await queue.put(6)
                await (await getting).ack()
        (await items_of(concert)).check(put=6, done=6)
        await forget_all(concert)


async def test_put_is_not_lost_with_its_connection(namespace: str) -> None:
    """Again and again, under load: each item is handed out once."""
    got: Counter[int] = Counter()
    with RealServer() as own:
        async with (
            Coordinator(own.url, namespace=namespace) as producer,
            Coordinator(own.url, namespace=namespace) as other,
        ):
            queue = other.queue("q", maxsize=50)

            async def work() -> None:
                async for delivery in queue:
                    async with delivery as item:
                        assert isinstance(item, int)
                        got[item] += 1
                        await asyncio.sleep(0.001)

            async def produce(first: int) -> None:
                for number in range(first, 400, 4):
                    await producer.queue("q", maxsize=50).put(number, timeout=None)

            async with AsyncExitStack() as stack:
                for _ in range(5):
                    await stack.enter_async_context(in_background(work()))
                producing = [await stack.enter_async_context(in_background(produce(first))) for first in range(4)]
                for progress in range(25, 300, 50):
                    await eventually(lambda: len(got) >= progress, timeout=20)  # noqa: B023 - asked at once
                    await eventually(lambda: own.command("CLIENT", "KILL", "TYPE", "normal"))
                    own.command("CLIENT", "KILL", "TYPE", "pubsub")
                await asyncio.gather(*producing)
                await until(producer, QueueCounts(0, 0, 0, 0))  # while they work: who is cancelled gives back
    assert set(got.values()) == {1}


# Cancellation.


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_at_any_await_an_item_is_put_got_and_done_or_not(concert: Coordinator, moment: Moment) -> None:
    """Whatever is cancelled, the queue stays open: each item is ready or done, and nobody is left in line."""
    queue = concert.queue("q", maxsize=2)
    line = ItemKeys(concert._ref.keys, "q").line

    async def use() -> None:
        await queue.put("b", timeout=None)
        async with await queue.get() as item:
            assert item == "a"
            await asyncio.sleep(0)
        delivery = await queue.get()
        await delivery.nack()
        await queue.put_many(["c"], timeout=5)

    number = 1
    was_under_way = True
    while was_under_way:
        await queue.put("a")
        was_under_way = await cancel_at(number, moment, use())
        left = await until_given_back(concert)
        assert left in (["a"], ["a", "b"], ["b"], ["b", "c"])
        assert not await raw(concert).exists(line)
        assert not (await items_of(concert)).dead
        await queue.purge()
        number += 1
    assert number > 6


async def test_closing_while_a_worker_begins_leaves_none(
    concert: Coordinator, elsewhere: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat that begins its life is under way, and its end follows."""
    calls: list[Call] = []
    channel = elsewhere._ref.session.channel
    submit = channel.submit

    def keep(call: Call) -> None:
        submit(call)
        calls.append(call)

    monkeypatch.setattr(channel, "submit", keep)
    getting = asyncio.create_task(elsewhere.queue("q").get())
    while not calls:
        await asyncio.sleep(0)
    channel.flush()
    await elsewhere._getters.close()
    with pytest.raises(NotConnected):
        await getting
    await eventually(calls[-1].done)
    assert [call.command.script.name for call in calls] == ["claims/heartbeat", "claims/recover+items"]
    keys = ItemKeys(concert._ref.keys, "q")
    assert await raw(concert).exists(keys.workers, keys.alive) == 0


async def test_closing_ends_a_get_whose_claim_has_no_answer(proxy: Proxy, namespace: str) -> None:
    """At once, and nothing goes on for it."""
    async with Coordinator(proxy.url, namespace=namespace, timeout=0.4) as concert:
        queue = concert.queue("q")
        await queue.put(1)
        await (await queue.get()).ack()
        [getters] = concert._getters._open.values()
        proxy.mute()
        getting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)  # its claim is under way
    assert getting.done()
    assert not getters._is_served
    with pytest.raises(NotConnected):
        getting.result()


async def test_get_at_once_does_not_wait_for_the_claim_of_another(
    proxy: Proxy, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which has come while its own was under way, that had no answer."""
    async with Coordinator(proxy.url, namespace=namespace, timeout=0.4) as concert:
        queue, channel, claims = concert.queue("q"), channel_of(concert._ref.session), list[Call]()
        submit = channel.submit

        def keep(call: Call) -> None:
            submit(call)
            if call.command.script.name == "queues/get":
                claims.append(call)

        await queue.put(1)
        await (await queue.get()).ack()
        monkeypatch.setattr(channel, "submit", keep)
        proxy.mute()
        at_once, other = asyncio.create_task(queue.get(timeout=0)), asyncio.create_task(queue.get())
        with pytest.raises(OutcomeUnknown):
            await at_once
        assert len(claims) == 1
        await proxy.heal()
        await queue.put(2)
        assert (await other).item == 2


async def until_given_back(concert: Coordinator) -> list[Any]:
    """Wait until nobody holds anything of the queue, for a while, and return what is ready."""

    async def nobody_holds_any() -> bool:
        return not (await items_of(concert)).claimed

    await raw(concert).ping()
    await eventually(nobody_holds_any)
    return (await items_of(concert)).ready


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_put_leaves_the_line(concert: Coordinator, moment: Moment) -> None:
    """And who comes after it is let in at once."""
    queue = concert.queue("q", maxsize=1)
    line = ItemKeys(concert._ref.keys, "q").line
    await queue.put("first")

    async def use() -> None:
        with suppress(QueueFull):
            await queue.put("cancelled", timeout=0.02)

    async def is_empty() -> bool:
        return not await raw(concert).exists(line)

    number = 1
    while await cancel_at(number, moment, use()):
        await eventually(is_empty)
        number += 1
    assert number > 2
    async with in_background(queue.put("second", timeout=None)) as putting:
        with anyio.fail_after(1.5):
            await (await queue.get()).ack()
            await putting
    assert await queue.peek() == ["second"]


# Servers that fail.


async def test_full_server_lets_items_end(namespace: str) -> None:
    """Get, ack, nack and purge work, so that a queue can be emptied; nothing new comes in."""
    with RealServer() as own:
        async with Coordinator(own.url, namespace=namespace) as concert:
            queue = concert.queue("q", maxsize=10)
            await queue.put_many([1, 2, 3, 4, 5])
            own.command("CONFIG", "SET", "maxmemory", 1)
            for timeout in (0, 1):
                with pytest.raises(Unavailable, match="OOM"):
                    await queue.put(6, timeout=timeout)
            done, back, later, dead = [await queue.get() for _ in range(4)]
            await done.ack()
            await back.nack()
            await later.nack(delay=3600)
            await dead.bury(ValueError("no"))
            assert await queue.counts() == QueueCounts(2, 1, 0, 1)
            (await items_of(concert)).check(put=5, done=1)
            assert (await queue.purge(), await queue.purge_dead()) == (3, 1)


async def test_waiting_calls_outlive_a_server_that_was_killed(namespace: str) -> None:
    """Whoever waits for an item or for room is served when it is back; its data were in the append-only file."""
    with RealServer(appendonly="yes", appendfsync="always") as own:
        async with (
            Coordinator(own.tcp_url, namespace=namespace) as concert,
            Coordinator(own.tcp_url, namespace=namespace) as other,
        ):
            full = concert.queue("full", maxsize=1)
            await full.put(0)
            async with (
                in_background(concert.queue("q").get()) as getting,
                in_background(full.put(1, timeout=None)) as putting,
            ):
                await eventually(lambda: _is_asleep(concert))
                own.kill()
                own.start()
                await other.queue("q").put(7)
                delivery: Delivery = await getting
                async with await other.queue("full").get(timeout=5) as item:
                    assert item == 0
                await putting
                await delivery.ack()
                assert (delivery.item, await full.peek()) == (7, [1])


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
async def test_item_claimed_for_who_has_given_up_goes_back(namespace: str, delivery: Any) -> None:
    """The server stood still for longer than a call may take, then claimed, and nobody here gets again."""
    with RealServer() as own:
        async with (
            Coordinator(own.url, namespace=namespace, timeout=0.4) as concert,
            Coordinator(own.url, namespace=namespace) as other,
        ):
            queue = concert.queue("q", delivery=delivery)
            await queue.put(0)
            async with await queue.get():
                pass
            await queue.put(1)
            own.pause()
            with pytest.raises(TimeoutError):
                await queue.get(timeout=0.1)
            [getting] = concert._getters._open.values()
            await eventually(lambda: getting._is_unsure)  # its claim is with the server, and will have no answer
            own.resume()
            await until(other, QueueCounts(1, 0, 0, 0))
            again = await other.queue("q").get(timeout=5)
            assert (again.item, again.attempt) == (1, 1)
            await again.ack()


def _is_asleep(concert: Coordinator) -> bool:
    return bool(bells_of(concert._ref.session)._covered)


# One connection to sleep on.


async def blocked(concert: Coordinator) -> list[str]:
    """Which connections wait in BLPOP, on the whole server."""
    listed: list[dict[str, str]] = await raw(concert).client_list()
    return [client["id"] for client in listed if client["cmd"] == "blpop" and "b" in client["flags"]]


async def test_many_queues_of_a_process_sleep_on_one_connection(namespace: str) -> None:
    """And each is woken at once by what is put into it, in whatever order they come and go."""
    with RealServer() as own:
        async with (
            Coordinator(own.url, namespace=namespace) as concert,
            Coordinator(own.url, namespace=namespace) as other,
        ):
            queues = [concert.queue(f"q{number}") for number in range(20)]
            getting = [asyncio.create_task(queue.get()) for queue in queues]
            await eventually(lambda: len(bells_of(concert._ref.session)._covered) == 20)
            async with concert.consume("high", "low") as jobs, in_background(jobs.claim(1)):  # consumers, too
                await eventually(lambda: len(bells_of(concert._ref.session)._covered) == 22)
                assert len(await blocked(other)) == 1
            for number in (7, 0, 19, 3):
                started = time.monotonic()
                await other.queue(f"q{number}").put(number)
                delivery = await getting[number]
                assert time.monotonic() - started < 1.5  # the shortest sleep is 2 s
                assert delivery.item == number
                getting[number] = asyncio.create_task(queues[number].get())
            late = asyncio.create_task(concert.queue("late").get())  # the BLPOP under way does not cover it
            await eventually(lambda: len(bells_of(concert._ref.session)._sleepers) == 21)
            with anyio.fail_after(1.5):
                await other.queue("late").put(1)
                await late
            assert len(await blocked(other)) == 1
            for task in getting:
                task.cancel()
            await asyncio.wait(getting)


async def test_token_for_nobody_goes_back(concert: Coordinator, elsewhere: Coordinator) -> None:
    """A process whose getter has gone popped it; the other, which sleeps, is woken all the same."""
    async with in_background(concert.queue("q").get()):
        await eventually(lambda: _is_asleep(concert))  # for up to 5 s, also without him, and before the other
    async with in_background(elsewhere.queue("q").get()) as getting:
        await eventually(lambda: _is_asleep(elsewhere))
        with anyio.fail_after(1.5):
            await concert.queue("q").put(1)
            await (await getting).ack()


@pytest.mark.parametrize("who", ["getter", "consumer", "caller"])
@pytest.mark.parametrize("turns", range(8))
async def test_bell_that_rings_while_its_last_sleeper_leaves_is_rung_again(
    concert: Coordinator, who: str, turns: int
) -> None:
    """In whichever turn of the loop its token comes: nobody here looks, and another process may sleep."""
    session = concert._ref.session
    leaving: asyncio.Task[Any]
    leave: Callable[[], object]
    async with AsyncExitStack() as stack:
        if who == "getter":
            bell = ItemKeys(concert._ref.keys, "q").only.bell
            leaving = asyncio.create_task(concert.queue("q").get())
            leave = leaving.cancel
        else:
            bell = JobKeys(concert._ref.keys).queue("q").bell
            jobs = await stack.enter_async_context(concert.consume("q"))
            leaving = asyncio.create_task(jobs.claim(1))
            leave = jobs.stop if who == "consumer" else leaving.cancel
        await eventually(lambda: bells_of(session)._sleepers)
        leave()
        for _ in range(turns):
            await asyncio.sleep(0)
        session.bells.pass_on(bell)

        async def is_rung() -> bool:
            return bool(await raw(concert).llen(bell))

        await eventually(is_rung, timeout=1.5)
        await asyncio.wait([leaving])


async def test_closing_process_wakes_another_with_what_it_gives_back(
    server: RealServer, concert: Coordinator, namespace: str
) -> None:
    """At once, though its own BLPOP, which has waited longest, may take the token."""
    queue = concert.queue("q")
    for number in range(6):
        async with AsyncExitStack() as stack:
            closing = await stack.enter_async_context(Coordinator(server.url, namespace=namespace))
            await queue.put(number)
            await closing.queue("q").get()
            sleeping = asyncio.create_task(closing.queue("q").get())
            await eventually(lambda: _is_asleep(closing))  # noqa: B023 - asked at once
            getting = asyncio.create_task(queue.get())
            await eventually(lambda: _is_asleep(concert))
            await stack.aclose()
            with anyio.fail_after(1.5):
                delivery: Delivery = await getting
            assert (delivery.item, delivery.attempt) == (number, 1)
            await delivery.ack()
            with pytest.raises(NotConnected):
                await sleeping


async def test_place_in_line_of_a_put_that_waits_no_more_holds_up_nobody(concert: Coordinator) -> None:
    """The server has it back from an older copy of its data; the process lives, and takes it out."""
    queue, keys = concert.queue("q", maxsize=1), ItemKeys(concert._ref.keys, "q")
    await raw(concert).zadd(keys.line, {concert._ref.session.new_address(): 1})
    with anyio.fail_after(1.5):
        await queue.put(1, timeout=None)
    assert await queue.peek() == [1]


async def test_put_passes_a_process_that_stands_still(concert: Coordinator) -> None:
    """All of its places at once: it listens, and does not come when it is told that there is room."""
    queue, keys = concert.queue("q", maxsize=1), ItemKeys(concert._ref.keys, "q")
    pubsub = raw(concert).pubsub()
    await pubsub.subscribe(f"{concert._ref.session.inboxes('')}still")
    await raw(concert).zadd(keys.line, {f"still.{number}": number for number in range(150)})
    with anyio.fail_after(5):
        await queue.put(1, timeout=None)  # in 2 s
    assert (await queue.peek(), await raw(concert).zcard(keys.line)) == ([1], 50)
    await (await queue.get()).ack()
    await queue.put(2)  # it is still known to stand still
    assert await raw(concert).zcard(keys.line) == 0
    await pubsub.aclose()


async def test_puts_pass_all_whom_a_server_with_older_data_has_in_line(own_server: RealServer) -> None:
    """They had left since; each is taken out by its process when there is room, and the next is told."""
    async with Coordinator(own_server.url) as concert, Coordinator(own_server.url) as other:
        queues = [each.queue("q", maxsize=1) for each in (concert, other)]
        await queues[0].put(0)
        async with AsyncExitStack() as gone:
            for number in range(4):
                await gone.enter_async_context(in_background(queues[number % 2].put(1, timeout=None)))
                await until_in_line(concert, number + 1)
            own_server.command("SAVE")
        for queue in queues:
            await queue.peek()  # whoever has this reply has those to all leaving, too
        own_server.kill()
        own_server.start()
        await eventually(lambda: len(own_server.command("PUBSUB", "CHANNELS", "*:inbox:*")) == 2)
        async with in_background(queues[1].put(2, timeout=None)) as putting:
            await eventually(lambda: other._ref.session.inbox._receivers)
            await queues[1].peek()  # by its reply the other is in line
            async with await queues[0].get() as item:
                assert item == 0
            with anyio.fail_after(1.5):
                await putting
        assert await queues[0].peek() == [2]


async def test_put_whose_leaving_was_lost_holds_up_nobody(concert: Coordinator, proxy: Proxy, namespace: str) -> None:
    """Its process was cut off for longer than its timeout, and is there again."""
    queue = concert.queue("q", maxsize=1)
    await queue.put(0)
    async with Coordinator(proxy.url, namespace=namespace, timeout=0.3) as cut_off:
        async with in_background(cut_off.queue("q", maxsize=1).put(1, timeout=None)):
            await until_in_line(concert, 1)
            proxy.refuse()
            proxy.cut()
            channel = channel_of(cut_off._ref.session)
            await eventually(lambda: channel._wire is None)
        [leaving] = channel._unsent
        await eventually(leaving.done)  # it was not said in time
        await proxy.heal()
        await eventually(lambda: proxy.open == 2)
        async with in_background(queue.put(2, timeout=None)) as putting:
            async with await queue.get() as item:
                assert item == 0
            with anyio.fail_after(1.5):
                await putting
        assert await queue.peek() == [2]


async def test_woken_and_cancelled_getter_wakes_the_next(concert: Coordinator, elsewhere: Coordinator) -> None:
    """The item that it was woken for is for another, at once."""
    gone = asyncio.create_task(concert.queue("q").get())
    await eventually(lambda: _is_asleep(concert))
    async with in_background(elsewhere.queue("q").get()) as getting:
        await eventually(lambda: _is_asleep(elsewhere))
        put = asyncio.create_task(concert.queue("q").put(1))
        gone.cancel()
        with anyio.fail_after(1.5):
            await put
            await (await getting).ack()
