"""A producer without an event loop: what it sends is what a coordinator sends."""

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from inconcert import (
    Coordinator,
    InvalidName,
    InvalidPayload,
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobStatus,
    MessageRefused,
    NotConnected,
    QueueFull,
    SyncProducer,
    Unavailable,
    WrongLayout,
    durable,
)
from inconcert._redis.protocol.slots import slot_of
from inconcert._rules.payloads import JSON
from inconcert.tasks.following.messages import packed_name
from tests.support.background import in_background
from tests.support.clusters import RealCluster
from tests.support.eventually import eventually
from tests.support.raw import raw
from tests.support.servers import RealServer
from tests.support.world import world

Options = dict[str, Any]
KEYS = {"now": "signing key of the-test"}


@pytest.fixture
def producer(server: RealServer | RealCluster, namespace: str) -> Iterator[SyncProducer]:
    """A producer in the namespace of `concert`."""
    with SyncProducer(server.url, namespace=namespace) as opened:
        yield opened


@pytest.fixture
def same_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every opening from now on has one id, so that what two of them store can be compared."""
    monkeypatch.setattr("inconcert._core.origin.secrets.token_hex", "{:016x}".format)


async def is_delayed(concert: Coordinator, job_id: str) -> bool:
    """Whether a job has left its worker."""
    return await concert.tasks.job(job_id).status() is JobStatus.DELAYED


_OF_REQUESTS = (":recent", ":older", ":seen_even", ":seen_odd")  # which ran before: two ways to remember that


async def stored(concert: Coordinator) -> dict[str, Any]:
    """All keys of the namespace with their values, without instants; and they are deleted."""
    found: dict[str, Any] = {}
    client = raw(concert)
    async for key in client.scan_iter(match=f"{{{concert._ref.keys.namespace}:*", count=1000):
        name = key.decode()
        if ":namespace}" in name or ":session:" in name:
            continue
        match (await client.type(key)).decode():
            case "hash":
                value: Any = await client.hgetall(key)
            case "list":
                value = await client.lrange(key, 0, -1)
            case "zset":
                value = await client.zrange(key, 0, -1)
            case _:
                value = await client.get(key)
        found[name] = value
        await client.delete(key)
    for name, value in found.items():
        if name.endswith(":bodies"):
            found[name] = {id_: body.partition(b" ")[2] for id_, body in value.items()}
        if name.endswith(":unique"):
            found[name] = {unique: has.partition(b" ")[0] for unique, has in value.items()}
    return {name: value for name, value in found.items() if not name.endswith(_OF_REQUESTS)}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"queue": "high", "max_attempts": 2, "result_ttl": 7.5, "expires": 60, "time_limit": 3},
        {"delay": 30.0},
        {"unique": "once", "unique_until": "started"},
        {"unique": "window", "unique_for": 60.0},
        {"after": ["no.such.0"]},
    ],
)
@pytest.mark.one_server("reads every key with one client")
@pytest.mark.parametrize("keys", [None, KEYS], ids=["unsigned", "signed"])
async def test_job_is_stored_as_a_coordinator_stores_it(
    server: RealServer, namespace: str, same_ids: None, options: Options, keys: dict[str, str] | None
) -> None:
    """Byte by byte, under the same keys: the body, its signature, and where it waits."""
    args: list[JSON] = [1, "ä", None]
    kwargs: dict[str, JSON] = {"deep": {"list": [1.5, True]}}
    partitions = 1 if "after" in options else 3  # what concerns other partitions is left to workers
    async with Coordinator(server.url, namespace=namespace, partitions=partitions, signing_keys=keys) as concert:
        job = await concert.enqueue("shop.receipt", args, kwargs, **options)
        theirs = await stored(concert)
        with SyncProducer(server.url, namespace=namespace, partitions=partitions, signing_keys=keys) as producer:
            ours = await asyncio.to_thread(producer.enqueue, "shop.receipt", args, kwargs, **options)
        assert (ours.id, ours.created) == (job.id, job.created)
        assert await stored(concert) == theirs
        assert theirs


@pytest.mark.one_server("reads every key with one client")
@pytest.mark.parametrize("item_id", [None, "mine"])
async def test_item_is_stored_as_a_coordinator_stores_it(
    server: RealServer, namespace: str, same_ids: None, item_id: str | None
) -> None:
    """Byte by byte, under the same keys."""
    async with Coordinator(server.url, namespace=namespace, signing_keys=KEYS) as concert:
        await concert.queue("q", order="lifo", maxsize=3).put({"n": 1}, id=item_id, delay=30.0)
        theirs = await stored(concert)
        with SyncProducer(server.url, namespace=namespace, signing_keys=KEYS) as producer:
            await asyncio.to_thread(producer.put, "q", {"n": 1}, id=item_id, delay=30.0, order="lifo", maxsize=3)
        assert await stored(concert) == theirs
        assert theirs


async def test_message_is_sent_with_the_caps_of_the_sender(concert: Coordinator, producer: SyncProducer) -> None:
    """And wakes a fetch that waits."""
    fetching = asyncio.create_task(concert.mailbox("jill").fetch(timeout=10.0))
    await eventually(lambda: raw(concert).zcard(concert.mailbox("jill")._keys.waiters))
    await asyncio.to_thread(producer.send, "jill", "hello")
    assert [message.body for message in await fetching] == ["hello"]
    await concert.mailbox("jack").send("first")
    await asyncio.to_thread(producer.send, "jack", {"text": "second"}, max_messages=1)
    [message] = await concert.mailbox("jack").fetch()
    assert (message.body, message.missed) == ({"text": "second"}, 1)


async def test_message_brings_a_waiting_job_back(server: RealServer, namespace: str) -> None:
    """The first of its name counts, signed or not, and not once the job has ended."""
    async with Coordinator(server.url, namespace=namespace, signing_keys=KEYS) as concert:

        @concert.task(name="fulfil")
        async def fulfil() -> str:
            return await durable.wait_for("packed", str, timeout=3600)

        with SyncProducer(server.url, namespace=namespace, signing_keys=KEYS) as producer:
            async with in_background(concert.run_worker("default")):
                job = await asyncio.to_thread(producer.enqueue, "fulfil")
                await eventually(lambda: is_delayed(concert, job.id))
                assert await asyncio.to_thread(producer.send_to_job, job.id, "packed", "TR-1")
                assert await asyncio.to_thread(producer.result, job.id, timeout=10.0) == "TR-1"
            assert not await asyncio.to_thread(producer.send_to_job, job.id, "packed", "TR-2")


async def test_message_is_kept_for_a_job_that_has_not_begun(concert: Coordinator, producer: SyncProducer) -> None:
    """The second of its name is not; nor is one to a job that there never was, or one too many."""
    job = await asyncio.to_thread(producer.enqueue, "nobody")

    def send() -> list[bool]:
        return [producer.send_to_job(id_, "packed", number) for id_, number in ((job.id, 1), (job.id, 2), ("a.1.0", 1))]

    assert await asyncio.to_thread(send) == [True, False, False]
    await raw(concert).hset(concert._jobs.of_id(job.id).received, job.id, f"1000 1 {packed_name('packed')}")
    with pytest.raises(MessageRefused, match="'paid'"):
        await asyncio.to_thread(producer.send_to_job, job.id, "paid", 1)


async def test_worker_runs_what_was_enqueued_and_result_comes_back(
    concert: Coordinator, producer: SyncProducer
) -> None:
    """With its type if one is asked for; a result that is there already costs one round trip."""

    @concert.task(name="double")
    async def double(number: int) -> int:
        return 2 * number

    def work() -> tuple[object, int]:
        job = producer.enqueue("double", [21])
        return producer.result(job.id, timeout=10.0), producer.result(job.id, int, timeout=0)

    async with in_background(concert.run_worker("default")):
        assert await asyncio.to_thread(work) == (42, 42)


async def test_large_result_comes_back(concert: Coordinator, producer: SyncProducer) -> None:
    """By a second call, because it has more than 16 KiB; also where the server knows neither form of the script."""

    @concert.task(name="large")
    async def large() -> str:
        return "x" * 100_000

    job = await large.enqueue()
    await concert.run_worker("default", burst=True)
    await raw(concert).script_flush()
    assert await asyncio.to_thread(producer.result, job.id, timeout=10.0) == "x" * 100_000


async def test_result_is_told_when_the_job_ends(concert: Coordinator, producer: SyncProducer) -> None:
    """Without asking again and again: there is one message, and nothing is left when it has come."""
    may_end = asyncio.Event()

    @concert.task(name="held")
    async def held() -> str:
        await may_end.wait()
        return "done"

    job = await asyncio.to_thread(producer.enqueue, "held")
    watchers = concert._jobs.of_id(job.id).watchers
    async with in_background(concert.run_worker("default")):
        waiting = asyncio.create_task(asyncio.to_thread(producer.result, job.id, timeout=30.0))
        await eventually(lambda: raw(concert).zcard(watchers))
        await asyncio.sleep(0.3)  # it must not be polling: what it was told last is not asked again
        began = time.monotonic()
        may_end.set()
        assert await waiting == "done"
        assert time.monotonic() - began < 1.0
    assert not await raw(concert).zcard(watchers)


async def test_result_that_is_not_there_in_time(concert: Coordinator, producer: SyncProducer) -> None:
    """The wait ends in time, the job goes on, and the server forgets the wait."""
    job = await asyncio.to_thread(producer.enqueue, "nobody")
    with pytest.raises(TimeoutError, match="has not ended: it is queued"):
        await asyncio.to_thread(producer.result, job.id, timeout=0)
    with pytest.raises(TimeoutError, match=r"has not ended within 0\.1 s; it goes on"):
        await asyncio.to_thread(producer.result, job.id, timeout=0.1)
    assert not await raw(concert).zcard(concert._jobs.of_id(job.id).watchers)
    assert await concert.tasks.job(job.id).status() is JobStatus.QUEUED


async def test_result_of_a_job_that_did_not_succeed(concert: Coordinator, producer: SyncProducer) -> None:
    """As `Job.result` says it."""

    @concert.task(name="fails", max_attempts=1)
    async def fails() -> None:
        raise ValueError("on purpose")

    failing = await asyncio.to_thread(producer.enqueue, "fails", max_attempts=1)
    async with in_background(concert.run_worker("default")):
        with pytest.raises(JobFailed, match="on purpose"):
            await asyncio.to_thread(producer.result, failing.id, timeout=10.0)
    cancelled = await asyncio.to_thread(producer.enqueue, "fails", delay=60.0)
    await concert.tasks.job(cancelled.id).cancel()
    with pytest.raises(JobCancelled):
        await asyncio.to_thread(producer.result, cancelled.id)
    with pytest.raises(JobNotFound):
        await asyncio.to_thread(producer.result, "no.such.0")


async def test_status_is_what_a_coordinator_says(concert: Coordinator, producer: SyncProducer) -> None:
    """From before a job is enqueued until its result is no longer kept."""
    may_end = asyncio.Event()

    @concert.task(name="held")
    async def held() -> None:
        await may_end.wait()

    async def is_now(job_id: str, status: JobStatus) -> bool:
        assert await asyncio.to_thread(producer.status, job_id) is status
        return await concert.tasks.job(job_id).status() is status

    prepared = producer.prepare("held", result_ttl=60.0)
    assert await is_now(prepared.id, JobStatus.UNKNOWN)
    await asyncio.to_thread(prepared.enqueue)
    assert await is_now(prepared.id, JobStatus.QUEUED)
    delayed = await asyncio.to_thread(producer.enqueue, "held", delay=60.0)
    assert await is_now(delayed.id, JobStatus.DELAYED)
    await concert.tasks.job(delayed.id).cancel()
    assert await is_now(delayed.id, JobStatus.CANCELLED)
    async with in_background(concert.run_worker("default")):
        job = concert.tasks.job(prepared.id)
        await eventually(lambda: _is(job.status(), JobStatus.RUNNING))
        assert await is_now(job.id, JobStatus.RUNNING)
        may_end.set()
        await job.result(timeout=10.0)
        assert await is_now(job.id, JobStatus.SUCCEEDED)


async def _is(coroutine: Awaitable[object], expected: object) -> bool:
    return await coroutine is expected


async def test_unique_name_finds_the_live_job(concert: Coordinator, producer: SyncProducer) -> None:
    """Whichever side has enqueued it."""
    job = await concert.enqueue("t", unique="once")
    found = await asyncio.to_thread(producer.enqueue, "t", unique="once")
    assert (found.id, found.created) == (job.id, False)


async def test_prepared_job_is_enqueued_once(concert: Coordinator, producer: SyncProducer) -> None:
    """Its id is known before anything is sent, and it may be enqueued again by somebody who does not know."""
    prepared = producer.prepare("t", [1], queue="q")
    assert repr(prepared) == f"<PreparedJob {prepared.id}>"
    assert await concert.tasks.job(prepared.id).status() is JobStatus.UNKNOWN
    first = await asyncio.to_thread(prepared.enqueue)
    again = await asyncio.to_thread(prepared.enqueue)
    assert first.id == again.id == prepared.id
    assert (await concert.tasks.stats("q")).queues["q"].ready == 1


async def test_full_queue_refuses(producer: SyncProducer, concert: Coordinator) -> None:
    """At once, and nothing was put in."""
    await asyncio.to_thread(producer.put, "q", 1, maxsize=1)
    with pytest.raises(QueueFull):
        await asyncio.to_thread(producer.put, "q", 2, maxsize=1)
    assert await concert.queue("q").size() == 1


async def test_threads_share_one_connection(concert: Coordinator, producer: SyncProducer) -> None:
    """Each gets its own answer, and all jobs are there once."""
    ids: set[str] = set()

    def work(first: int) -> None:
        for number in range(first, first + 25):
            ids.add(producer.enqueue("t", [number], unique=str(number)).id)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 200, 25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert len(ids) == 200
    assert (await concert.tasks.stats("default")).queues["default"].ready == 200


BAD: list[tuple[Callable[[SyncProducer], object], type[Exception], str]] = [
    (lambda p: p.enqueue(""), InvalidName, "task"),
    (lambda p: p.enqueue("t", [{1}]), InvalidPayload, "job of task 't'"),  # type: ignore[list-item]
    (lambda p: p.enqueue("t", "text"), InvalidPayload, "args as a list"),
    (lambda p: p.enqueue("t", queue=""), InvalidName, "queue"),
    (lambda p: p.enqueue("t", delay=-1), ValueError, "delay"),
    (lambda p: p.enqueue("t", lasts=1), TypeError, "no option 'lasts'"),  # type: ignore[call-arg]
    (lambda p: p.enqueue("t", after="x"), TypeError, "after"),
    (lambda p: p.put("", 1), InvalidName, "queue"),
    (lambda p: p.put("q", float("nan")), InvalidPayload, "nan"),
    (lambda p: p.put("q", "x" * 2**20), InvalidPayload, "1048578 bytes"),
    (lambda p: p.put("q", 1, order="up"), ValueError, "order"),  # type: ignore[arg-type]
    (lambda p: p.put("q", 1, maxsize=0), ValueError, "maxsize"),
    (lambda p: p.put("q", 1, delay=-1), ValueError, "delay"),
    (lambda p: p.put("q", 1, id="a b"), InvalidName, "id 'a b'"),
    (lambda p: p.send("", 1), InvalidName, "mailbox"),
    (lambda p: p.send("m", object()), InvalidPayload, "message to mailbox 'm'"),  # type: ignore[arg-type]
    (lambda p: p.send("m", 1, max_messages=0), ValueError, "max_messages"),
    (lambda p: p.send("m", 1, max_age=0), ValueError, "max_age"),
    (lambda p: p.send_to_job("ä", "packed", 1), InvalidName, "job id"),
    (lambda p: p.send_to_job("a.1.0", "", 1), InvalidName, "message"),
    (lambda p: p.send_to_job("a.1.0", "x" * 513, 1), InvalidName, "message"),
    (lambda p: p.send_to_job("a.1.0", "packed", object()), InvalidPayload, "message 'packed' to job a.1.0"),
    (lambda p: p.send_to_job("a.1.0", "packed", "x" * 2**20), InvalidPayload, "1048578 bytes"),
    (lambda p: p.status("ä"), InvalidName, "job id"),
    (lambda p: p.result("ä"), InvalidName, "job id"),
    (lambda p: p.result("a.1.0", timeout=-1), ValueError, "timeout"),
]


@pytest.mark.parametrize(("call", "error", "text"), BAD, ids=map(str, range(len(BAD))))
def test_bad_input_is_refused_before_any_io(call: Callable[[SyncProducer], object], error: Any, text: str) -> None:
    """Nothing listens where this producer leads."""
    with SyncProducer("redis://127.0.0.1:1/0") as producer, pytest.raises(error, match=text):
        call(producer)


def test_bad_setting_is_refused() -> None:
    """By name, without the URL's secrets."""
    with pytest.raises(ValueError, match="redis://"):
        SyncProducer("http://host")
    with pytest.raises(ValueError, match="timeout of a producer is 0"):
        SyncProducer(timeout=0)
    with pytest.raises(ValueError, match="partitions"):
        SyncProducer(partitions=0)
    with pytest.raises(ValueError, match="the option 'no_such'"):
        SyncProducer("redis://:secret@host/0?no_such=1")
    with pytest.raises(InvalidName):
        SyncProducer(namespace="a:b")
    assert "secret" not in repr(SyncProducer("redis://user:secret@host:1/0"))


def test_closed_producer_refuses(producer: SyncProducer) -> None:
    """And `with` opens it again."""
    producer.enqueue("t")
    producer.close()
    producer.close()
    with pytest.raises(NotConnected, match="is closed"):
        producer.enqueue("t")
    with producer:
        assert producer.enqueue("t").created


async def test_other_layout_is_refused(concert: Coordinator, server: RealServer, namespace: str) -> None:
    """As a coordinator refuses it: before anything goes where no worker looks."""
    with SyncProducer(server.url, namespace=namespace, partitions=7) as producer:
        for _ in range(2):
            with pytest.raises(WrongLayout):
                await asyncio.to_thread(producer.enqueue, "t")


async def test_partition_is_drawn_as_a_coordinator_draws_it(server: RealServer, namespace: str) -> None:
    """From the unique name, so both find the same live job, wherever it is."""
    async with Coordinator(server.url, namespace=namespace, partitions=5) as concert:
        with SyncProducer(server.url, namespace=namespace, partitions=5) as producer:
            for number in range(20):
                job = await concert.enqueue("t", unique=f"u{number}")
                found = await asyncio.to_thread(producer.enqueue, "t", unique=f"u{number}")
                assert (found.id, found.created) == (job.id, False)
            for number in range(20):  # from the name of the task, which may have limits
                job = await concert.enqueue(f"t{number}")
                found = await asyncio.to_thread(producer.enqueue, f"t{number}")
                assert found.id.rpartition(".")[2] == job.id.rpartition(".")[2]


@pytest.fixture
async def in_a_cluster(cluster: RealCluster, namespace: str) -> AsyncIterator[Coordinator]:
    """An open coordinator of a namespace that is spread over a cluster."""
    if world().server == "redis6":
        pytest.skip("a cluster needs Redis 7.0 or newer")
    async with Coordinator(cluster.url, namespace=namespace, partitions=5) as opened:
        yield opened


async def test_cluster_gets_each_command_where_its_keys_are(
    in_a_cluster: Coordinator, cluster: RealCluster, namespace: str
) -> None:
    """Jobs, items and messages; and a wait listens at the node of its job."""

    @in_a_cluster.task(name="echo")
    async def echo(number: int) -> int:
        return number

    def work() -> list[object]:
        with SyncProducer(cluster.url, namespace=namespace, partitions=5) as producer:
            jobs = [producer.enqueue("echo", [number]) for number in range(30)]
            for number in range(5):
                producer.put(f"q{number}", number)
                producer.send(f"m{number}", number)
            return [producer.result(job.id, timeout=20.0) for job in jobs]

    async with in_background(in_a_cluster.run_worker("default")):
        assert await asyncio.to_thread(work) == list(range(30))
    assert [await in_a_cluster.queue(f"q{number}").size() for number in range(5)] == [1] * 5
    assert [await in_a_cluster.mailbox(f"m{number}").unread() for number in range(5)] == [1] * 5


async def test_moved_slot_is_followed(in_a_cluster: Coordinator, cluster: RealCluster, namespace: str) -> None:
    """By what the old node answers: while it moves, and after that."""
    key = in_a_cluster._jobs.partitions[0].bodies
    slot = slot_of(key)
    before = await asyncio.to_thread(cluster.owner_of, slot)
    other = next(node for node in cluster.masters if node is not before)
    with SyncProducer(cluster.url, namespace=namespace, partitions=5) as producer:
        numbers = itertools.count()

        def in_first_partition() -> str:
            return next(
                job.id
                for number in numbers
                if (job := producer.prepare("t", unique=f"{namespace}{number}")).id.endswith(".0") and job.enqueue()
            )

        await asyncio.to_thread(in_first_partition)
        await asyncio.to_thread(cluster.move_slot, slot, other)
        try:
            id_ = await asyncio.to_thread(in_first_partition)
            assert await in_a_cluster.tasks.job(id_).status() is JobStatus.QUEUED
        finally:
            await asyncio.to_thread(cluster.move_slot, slot, before)


def test_node_of_a_cluster_is_refused_by_name(cluster: RealCluster) -> None:
    """With the URL to write instead."""
    with SyncProducer(cluster.masters[0].url_of(0)) as producer, pytest.raises(Unavailable, match="redis\\+cluster://"):
        producer.enqueue("t")
