"""User code that is never run: it only has to pass the type checkers, with the types that users rely on."""

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Literal, assert_type
from uuid import UUID

import msgspec
import redis.asyncio

from inconcert import (
    AcquireTimeout,
    Barrier,
    BarrierBroken,
    Batch,
    Changed,
    Chats,
    ClaimedJob,
    Coordinator,
    CoordinatorOptions,
    DeadItem,
    DeadJob,
    Delivery,
    Draft,
    Election,
    ElectionRecord,
    EndedJob,
    EnqueuedJob,
    Event,
    Gap,
    HealthReport,
    HealthServer,
    HealthState,
    Hit,
    InconcertError,
    Index,
    InvalidName,
    Job,
    JobInfo,
    JobOptions,
    JobStatus,
    Joined,
    Latch,
    Lease,
    LeaseLost,
    Leases,
    Left,
    Lock,
    Locks,
    Lost,
    Mailbox,
    MailboxMessage,
    Member,
    Members,
    Message,
    NotClaimed,
    NotConnected,
    NotHeld,
    OutcomeUnknown,
    PreparedJob,
    Progress,
    Queue,
    QueueCounts,
    QuorumLease,
    QuorumLock,
    QuorumNotReached,
    RateDecision,
    RateLimited,
    RateLimiter,
    RateStatus,
    ReadLock,
    Restarted,
    Retry,
    Retrying,
    RWLock,
    Semaphore,
    Signal,
    Signalled,
    StreamItem,
    SyncCoordinator,
    SyncLease,
    SyncProducer,
    TaskStats,
    Term,
    Unavailable,
    WorkerHealth,
    WorkerStatus,
    WriteLease,
    WriteLock,
    WrongState,
    current_job,
    durable,
    tokenize,
    wait_all,
    wait_any,
)
from inconcert._rules.payloads import JSON

concert = Coordinator("redis://localhost:6379/0", namespace="shop", timeout=timedelta(seconds=5))
lock = concert.lock("item:42", ttl=30.0, timeout=timedelta(minutes=1))
semaphore = concert.semaphore("payment", limit=5, ttl=timedelta(seconds=10), timeout=None)
assert_type(concert, Coordinator)
assert_type(lock, Lock)
assert_type(semaphore, Semaphore)
limiter = concert.rate_limiter("api:17", 100, period=timedelta(minutes=1), burst=20)
assert_type(limiter, RateLimiter)
doc = concert.rwlock("doc:42", ttl=30.0, timeout=timedelta(minutes=1))
both = concert.locks("account:1", "account:2", ttl=timedelta(seconds=10), timeout=5)
assert_type(doc, RWLock)
assert_type(doc.read(), ReadLock)
assert_type(doc.write(), WriteLock)
assert_type(both, Locks)


concert.lock("item:42", tll=30.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
concert.semaphore("payment")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
concert.locks("account:1", 2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
assert_type(Coordinator.event(concert, "catalogue-ready"), Event)


class Shop(Coordinator):
    """What a subclass makes is its own kind."""


assert_type(Coordinator.from_client(redis.asyncio.Redis(), namespace="shop"), Coordinator)
assert_type(Coordinator.from_env(), Coordinator)
assert_type(Coordinator.embedded(), Coordinator)
assert_type(Coordinator.embedded(Path("data")), Coordinator)
assert_type(Coordinator.embedded(os.fspath("data"), timeout=1), Coordinator)
assert_type(Coordinator.embedded(cluster=3, namespace="shop"), Coordinator)
assert_type(Shop.embedded(), Shop)
assert_type(concert.url, str | None)
settings: CoordinatorOptions = {"namespace": "shop", "timeout": 2}
assert_type(Shop.from_client(redis.asyncio.Redis(), **settings), Shop)
Coordinator.embedded(nmespace="shop")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def open_and_close() -> None:
    """A coordinator is itself in `async with`."""
    async with concert as opened:
        assert_type(opened, Coordinator)
    async with Shop() as shop:
        assert_type(shop, Shop)


async def use_the_client() -> None:
    """The shared client is redis-py's."""
    assert_type(concert.redis, redis.asyncio.Redis)


async def search_documents() -> None:
    """Scores and weights are numbers; a tokenizer is any function from a text to its words."""
    index = concert.index("articles", tokenizer=str.split, stop_words={"the"})
    assert_type(index, Index)
    await index.add("doc:1", "Redis locks", scores={"votes": 12, "updated": 1.5})
    assert_type(await index.search("redis -java", weights={"votes": 100}, relevance=1, offset=10, limit=10), list[Hit])
    assert_type(await index.suggest("re", limit=5), list[str])
    assert_type(await index.remove("doc:1"), bool)
    assert_type(await index.size(), int)
    assert_type(tokenize("C++"), list[str])
    await index.add("doc:1", "text", scores={"votes": "12"})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
    concert.index("articles", tokenizer=str.upper)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def limit_rates() -> None:
    """A decision is true or false, and says when to come back; waiting returns nothing."""
    decision = await limiter.try_acquire(cost=2)
    assert_type(decision, RateDecision)
    assert_type(await limiter.inspect(), RateStatus)
    assert_type(decision.is_allowed, bool)
    assert_type(decision.remaining, int)
    assert_type(decision.retry_after, float)
    try:
        assert_type(await limiter.acquire(timeout=timedelta(seconds=5), cost=2), None)
    except RateLimited as error:
        assert_type(error.retry_after, float)


async def enter_bodies() -> None:
    """What `async with` gives is a lease, with its facts."""
    async with lock as lease, semaphore as permit:
        assert_type(lease, Lease)
        assert_type(permit, Lease)
        assert_type(lease.fencing_token, int)
        assert_type(lease.remaining, float)
        assert_type(lease.is_lost, bool)
        assert_type(lease.name, str)
        assert_type(lease.kind, str)
        assert_type(lease.holder, str)


async def body_that_returns() -> int:
    """`async with` lets nothing fall through: the checkers see that this always returns or raises."""
    async with lock:
        return 1


async def acquire_by_hand() -> None:
    """The verbs."""
    lease = await lock.acquire()
    assert_type(lease, Lease)
    assert_type(await lock.acquire(timeout=2.0), Lease)
    assert_type(await lock.acquire(timeout=0), Lease)
    assert_type(await semaphore.acquire(timeout=None), Lease)
    assert_type(await semaphore.acquire(timeout=timedelta(seconds=1)), Lease)
    maybe = await lock.try_acquire()
    assert_type(maybe, Lease | None)
    if maybe is not None:
        await maybe.renew()
        await maybe.release()
    await lease.lost()


async def read_and_write() -> None:
    """Only a writer can go on as a reader."""
    async with doc.read() as reader, doc.write() as writer:
        assert_type(reader, Lease)
        assert_type(writer, WriteLease)
        await writer.downgrade()
    assert_type(await doc.read().try_acquire(), Lease | None)
    assert_type(await doc.write().acquire(timeout=2.0), WriteLease)
    assert_type(await doc.read().holders(), list[str])


async def lock_several() -> None:
    """What `async with` gives is a mapping of leases."""
    async with both as leases:
        assert_type(leases, Leases)
        assert_type(leases["account:1"], Lease)
        assert_type(leases.fencing_tokens, dict[str, int])
        assert_type(leases.remaining, float)
        assert_type(leases.is_lost, bool)
        for name, lease in leases.items():
            assert_type(name, str)
            assert_type(lease, Lease)
        await leases.renew()
    maybe = await both.try_acquire()
    assert_type(maybe, Leases | None)


async def inspect() -> None:
    """What can be asked."""
    assert_type(await lock.locked(), bool)
    assert_type(await lock.holders(), list[str])
    assert_type(await semaphore.waiters(), int)


async def wait_for_each_other() -> None:
    """Events, latches and barriers, after asyncio's."""
    event = concert.event("ready", ttl=timedelta(days=1))
    assert_type(event, Event)
    await event.set()
    await event.clear()
    assert_type(await event.is_set(), bool)
    assert_type(await event.wait(timeout=timedelta(seconds=1)), Literal[True])
    latch = concert.latch("import", count=12)
    assert_type(latch, Latch)
    assert_type(await latch.count_down(), int)
    assert_type(await latch.count_down(3), int)
    assert_type(await latch.remaining(), int)
    await latch.wait(timeout=None)
    barrier = concert.barrier("epoch", parties=4, ttl=5, timeout=60)
    assert_type(barrier, Barrier)
    assert_type(barrier.parties, int)
    assert_type(await barrier.n_waiting(), int)
    try:
        assert_type(await barrier.wait(timeout=0), int)
        async with barrier as position:
            assert_type(position, int)
    except BarrierBroken as error:
        assert_type(error.holder, str | None)
        as_asyncio: asyncio.BrokenBarrierError = error
        raise as_asyncio from None
    await barrier.abort()
    await barrier.reset()


async def take_part() -> None:
    """Members of a group."""
    group = concert.members("crawlers", value={"host": "a"}, ttl=5)
    assert_type(group, Members)
    assert_type(await group.list(), dict[str, JSON])
    async with group as me:
        assert_type(me, Member)
        assert_type(me.owns("k"), bool)
        await me.update(None)
        async for keys in me.shares(["k"]):
            assert_type(keys, dict[str, int])
        async for change in me.watch():
            assert_type(change, Joined | Changed | Left | Lost | Gap)
    assert_type(await group.join(), Member)


async def lead() -> None:
    """Elections: bodies end quietly when their term is resigned, so code after them is reached."""
    election = concert.election("scheduler", ttl=timedelta(seconds=5), timeout=None, candidate="web-1")
    assert_type(election, Election)
    async with election as term:
        assert_type(term, Term)
        assert_type(term.number, int)
        assert_type(term.candidate, str)
    async for term in election.terms():
        assert_type(term, Term)
        async with term as entered:
            assert_type(entered, Term)
    assert_type(await election.acquire(timeout=1), Term)
    assert_type(await election.try_acquire(), Term | None)
    assert_type(await election.leader(), str | None)
    assert_type(await election.record(), ElectionRecord | None)
    async for record in election.watch():
        assert_type(record, ElectionRecord | None)
    assert_type(await election.resign(), bool)
    assert_type(await election.run(add, 1, right=2), int)


async def add(left: int, *, right: int) -> int:
    """Something to run."""
    return left + right


@concert.every(timedelta(minutes=5), name="tidy")
async def tidy() -> int:
    """Something to run now and then; decorated, it is what it was."""
    assert_type(await tidy(), int)
    return 1


async def use_signals() -> None:
    """Payloads are JSON; what a subscription gives may be a gap."""
    signal = concert.signal("deploy")
    assert_type(signal, Signal)
    assert_type(await signal.wait(timeout=5.0), JSON)
    assert_type(await signal.broadcast({"version": 7}), int)
    assert_type(await signal.notify(), bool)
    assert_type(await wait_any(signal, concert.signal("stop"), timeout=timedelta(seconds=5)), tuple[Signal, JSON])
    assert_type(await wait_all(signal), list[JSON])
    async with signal.subscribe(buffer=10) as subscription:
        assert_type(await subscription.next(timeout=1.0), JSON | Gap)
    async with concert.signals("deploy.*").subscribe() as every:
        async for item in every:
            if isinstance(item, Gap):
                assert_type(item.missed, int | None)
            else:
                assert_type(item, Signalled)
                assert_type(item.name, str)
                assert_type(item.payload, JSON)


async def catch() -> None:
    """Errors carry facts, and the general kinds catch them."""
    try:
        await body_that_returns()
    except AcquireTimeout as error:
        assert_type(error.timeout, float)
        assert_type(error.kind, str)
        as_timeout: TimeoutError = error
        raise as_timeout from None
    except LeaseLost as error:
        assert_type(error.fencing_token, int | None)
        assert_type(error.name, str)
    except NotClaimed as error:
        assert_type(error.name, str)
    except NotHeld as error:
        assert_type(error.kind, str)
    except InvalidName as error:
        as_value_error: ValueError = error
        raise as_value_error from None
    except (Unavailable, OutcomeUnknown, WrongState) as error:
        assert_type(error.operation, str | None)
        assert_type(error.kind, str | None)
        assert_type(error.name, str | None)
    except NotConnected as error:
        as_ours: InconcertError = error
        raise as_ours from None


async def agree_by_majority() -> None:
    """A quorum lock is made of clients, without a coordinator."""
    clients = [redis.asyncio.Redis(host=host) for host in "abc"]
    quorum = QuorumLock(
        clients, "item:42", ttl=timedelta(seconds=10), timeout=None, namespace="shop", server_timeout=0.2
    )
    try:
        async with quorum as lease:
            assert_type(lease, QuorumLease)
            assert_type(lease.remaining, float)
            await lease.renew()
        assert_type(await quorum.acquire(timeout=2.0), QuorumLease)
        assert_type(await quorum.try_acquire(), QuorumLease | None)
        assert_type(await quorum.locked(), bool)
        assert_type(await quorum.holders(), list[str])
    except QuorumNotReached as error:
        assert_type(error.reasons, dict[str, str])
        assert_type(error.servers, int)


@concert.task(queue="high")
async def book(item: UUID, price: Decimal, *, at: datetime | None = None) -> None:
    """A task with typed arguments."""


@concert.task
async def book_plainly(item: UUID) -> int:
    """A task without options."""
    return item.int


async def enqueue_typed() -> None:
    """Arguments are what the function takes; keys are given by id, as text or bytes."""
    await book.enqueue(UUID(int=7), Decimal("9.50"), at=datetime.now(UTC))
    await book_plainly.enqueue(UUID(int=7))
    assert_type(await book_plainly(UUID(int=7)), int)
    await book_plainly.enqueue("7")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    concert.task("high")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await book.enqueue("7", Decimal("9.50"))  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await book.enqueue(UUID(int=7), price="9.50")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    keys = {"2026-11": "a secret of 16 bytes or more"}
    assert_type(Coordinator(signing_keys=keys), Coordinator)
    assert_type(Coordinator(failover_guard=timedelta(seconds=30), replicas=1), Coordinator)
    assert_type(Coordinator(signing_keys={"2026-11": os.urandom(32)}, accept_unsigned=True), Coordinator)
    assert_type(Coordinator.from_client(redis.asyncio.Redis(), signing_keys=keys), Coordinator)
    assert_type(Coordinator.embedded(signing_keys=keys), Coordinator)
    assert_type(Coordinator.from_env(accept_unsigned=True), Coordinator)
    Coordinator(signing_keys="a secret")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def follow_jobs() -> None:
    """A job says how it is, and its result is of its task's type; drafts keep the types of their tasks."""
    job = await book.options(unique="7", unique_until="started", expires=60, result_ttl=0).enqueue(
        UUID(int=7), Decimal(1)
    )
    assert_type(job.id, str)
    assert_type(job.created, bool)
    assert_type(await job.status(), JobStatus)
    assert_type(await job.progress(), Progress | None)
    assert_type(job, Job[None])
    assert_type(await job.result(int, timeout=None), int)
    counted = await book_plainly.enqueue(UUID(int=7))
    assert_type(counted, Job[int])
    assert_type(await counted.result(timeout=timedelta(seconds=5)), int)
    assert_type(await book_plainly.options(delay=1).enqueue(UUID(int=7)), Job[int])
    assert_type(await (await concert.enqueue("count")).result(), JSON)
    assert_type(await job.cancel(timeout=0), bool)
    assert_type(await job.reschedule(delay=timedelta(minutes=5)), bool)
    await job.reschedule(60)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(book.call(UUID(int=7), Decimal(1)), Draft[None])
    assert_type(await concert.enqueue_many([book.call(UUID(int=7), Decimal(1))]), list[Job[None]])
    assert_type(concert.tasks.job(job.id), Job[JSON])
    assert_type(await book.history(limit=10), list[EndedJob])
    assert_type(await concert.tasks.history("book", limit=10), list[EndedJob])
    assert_type((await book.history())[0].args, Sequence[JSON] | None)
    assert_type((await book.history())[0].kwargs, Mapping[str, JSON] | None)
    await book.history(10)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    book.call("7", Decimal(1))  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    book.options(unique_until="ended")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    after = await book.options(after=[job, "id"], delay=60).enqueue(UUID(int=7), Decimal(1))
    assert_type(await concert.enqueue("count", after=[job, after]), Job[JSON])
    book.options(after=job)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await book.options(at=datetime(2026, 12, 24, tzinfo=UTC)).enqueue(UUID(int=7), Decimal(1))
    await book.options(unique="a", debounce=5, max_wait=timedelta(minutes=1)).enqueue(UUID(int=7), Decimal(1))
    await book.options(unique="a", newest="replaces").enqueue(UUID(int=7), Decimal(1))
    book.options(unique="a", newest="wins")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    book.options(unique="a", debounce="5")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    book.options(at=60)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    book.options(delay=None)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    urgent: JobOptions = {"queue": "high", "expires": timedelta(minutes=1), "time_limit": None}
    await book.options(**urgent).enqueue(UUID(int=7), Decimal(1))
    await concert.enqueue("count", [3], {"to": 5}, **urgent)
    book.options(dealy=5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    await concert.enqueue("count", dealy=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await concert.enqueue("count", max_attempts="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def probe_a_worker() -> None:
    """From a server of one's own, or by one that comes with it."""
    health = WorkerHealth()
    with health.serve("127.0.0.1", 8081) as server:
        await concert.run_worker("high", health=health)
        assert_type(server, HealthServer)
        assert_type(server.url, str)
    assert_type(health.live(), HealthReport)
    assert_type(health.ready().state, HealthState)
    assert_type(health.ready().oldest_seconds, float | None)


async def operate_jobs() -> None:
    """What operators look at."""
    assert_type(await concert.tasks.dead(limit=10), list[JobInfo])
    await concert.tasks.replay("id", args=[1], kwargs={"a": None}, queue="low")
    await concert.tasks.purge("id")
    assert_type(await concert.tasks.purge_all(older_than=timedelta(days=30), keep=10_000), int)
    assert_type(await concert.tasks.purge_all(reason="declined", task="t", queue="q"), int)
    assert_type(await concert.tasks.replay_all(reason="declined", task="t", queue="q", limit=100), int)
    assert_type(await concert.tasks.promote_all(task="t", queue="q", limit=100), int)
    assert_type(await concert.tasks.cancel_all(state=JobStatus.QUEUED, task="t", queue="q", limit=100), int)
    assert_type(await concert.tasks.drain("q"), int)
    stats = await concert.tasks.stats("high")
    assert_type(stats, TaskStats)
    assert_type(stats.queues["high"].oldest_age, float | None)
    assert_type(stats.queues["high"].waiting, int)
    assert_type(stats.queues["high"].consumers, int)
    assert_type(stats.unserved, Sequence[str])
    workers = await concert.tasks.workers()
    assert_type(workers, Sequence[WorkerStatus])
    assert_type(workers[0].running[0].claimed_at, float)
    await concert.tasks.pause("high")
    await concert.tasks.resume("high")


@concert.task(queue="alerts")
async def told(job: DeadJob) -> None:
    """A death."""
    assert_type(job.reason, str)


@concert.task(on_dead=told)
async def may_die(number: int) -> int:
    """It may die."""
    return number


concert.task(on_dead=may_die)(print)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@concert.task(retry_on=(ConnectionError, TimeoutError), backoff=lambda failures: 2.0 * failures)
async def fetch(url: str) -> None:
    """A task that says itself when it is to be tried again."""
    await current_job().progress(0.5, url)
    raise Retry(after=timedelta(seconds=5))


def total(prices: list[int]) -> int:
    """A plain function."""
    return sum(prices)


@concert.task()
async def steps(url: str) -> None:
    """A step has the type of its function."""
    assert_type(await durable.step("fetch", fetch, url), None)
    assert_type(await durable.step("total", total, [1, 2]), int)
    assert_type(await durable.step("total again", total, [1], on_change="keep"), int)
    assert_type(await durable.step("fetch again", fetch, url, retry=Retrying(3), timeout=10), None)
    assert_type(await durable.step("fetch in time", fetch, url, timeout=timedelta(seconds=10)), None)
    assert_type(await durable.step("total thrice", total, [1], retry=Retrying(3, retry_on=(OSError,))), int)
    assert_type(await durable.now(), float)
    assert_type(await durable.uuid("ticket"), UUID)
    assert_type(await durable.random(), float)
    assert_type(durable.key("fetch"), str)
    assert_type(await durable.wait_for("limit", int, timeout=60), int)
    async for page in durable.each("pages", [url], key=str):
        assert_type(page, str)
    assert_type(await durable.wait_for("limit", int, timeout=60), int)
    async for url_of_page in durable.each("pages", [url], key=str):
        assert_type(url_of_page, str)
    await durable.step("total", total, 7)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


@concert.lifespan
@asynccontextmanager
async def opened_pool() -> AsyncGenerator[int]:
    """A lifespan keeps its type."""
    yield 7


async def open_by_hand() -> None:
    """Its function can still be called."""
    async with opened_pool() as number:
        assert_type(number, int)


@asynccontextmanager
async def measure(job: ClaimedJob) -> AsyncGenerator[None]:
    """A middleware."""
    assert_type(job.attempt, int)
    yield


@concert.cron("0 3 * * *", tz="Europe/Berlin", missed="skip")
@concert.cron(every=timedelta(minutes=5))
@concert.task()
async def clean_up(limit: int = 100) -> int:
    """A task with two schedules is a task still."""
    assert_type(current_job().scheduled_at, float | None)
    assert_type(await current_job().parent_results(int), list[int])
    return limit


async def schedule_and_share() -> None:
    """A scheduled task can be called and enqueued; weights are whole numbers."""
    assert_type(await clean_up(5), int)
    assert_type(await clean_up.enqueue(limit=5), Job[int])
    await concert.run_worker("high", "low", weights={"high": 6, "low": 1})
    async with concert.consume("sms", delivery="at_most_once") as jobs:
        assert_type(await anext(jobs), ClaimedJob)
    concert.cron(every=60)(clean_up.function)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    concert.cron("0 3 * * *", missed="later")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    concert.consume("sms", delivery="once")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    concert.consume("sms", weights=["sms"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def operate_workers() -> None:
    """Any event loop's signal handler may stop a worker; a middleware takes the job."""
    stop = asyncio.Event()
    concert.add_middleware(measure)
    concert.lifespan(measure)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    await concert.run_worker("high", "low", stop=stop, grace=timedelta(seconds=30))
    await concert.run_worker("high", burst=True)
    await book.options(time_limit=30.0).enqueue(UUID(int=7), Decimal(1))
    async with concert.consume("high") as jobs:
        assert_type(await jobs.try_claim(5), list[ClaimedJob])
        jobs.stop()
    concert.add_middleware(print)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await concert.run_worker("high", stop=True)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def keep_messages() -> None:
    """A mailbox takes JSON from anyone, and gives it to its reader."""
    mailbox = concert.mailbox("jack451", ttl=timedelta(minutes=5), max_messages=1000, max_age=timedelta(days=30))
    assert_type(mailbox, Mailbox)
    await mailbox.send({"text": "hello", "to": ["ann", None]})
    await mailbox.send_many(range(3))
    messages = await mailbox.fetch(limit=5, timeout=None, ack=False)
    assert_type(messages, list[MailboxMessage])
    assert_type(messages[0].body, JSON)
    assert_type(messages[0].missed, int)
    await mailbox.ack(messages[:1])
    assert_type(await mailbox.unread(), int)
    assert_type(await mailbox.purge(), int)
    await mailbox.send({1, 2})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await mailbox.fetch(5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await mailbox.ack([messages[0].id])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


async def queueing() -> None:
    """Items to whoever gets."""
    queue = concert.queue("thumbnails", order="lifo", ttl=timedelta(minutes=1), maxsize=10, delivery="at_least_once")
    await queue.put({"image": [1, 2.5, None]}, delay=1, timeout=None)
    await queue.put_many([1, "two"])
    delivery = await queue.get(timeout=1)
    assert_type(delivery, Delivery)
    assert_type(delivery.attempt, int)
    async with delivery as item:
        assert_type(item, JSON)
    async for other in queue:
        assert_type(other, Delivery)
        await other.nack(delay=1.5)
    assert_type(await queue.size(), int)
    assert_type(await queue.oldest_age(), float | None)
    assert_type(await queue.counts(), QueueCounts)
    assert_type(await queue.peek(limit=2), list[JSON])
    assert_type(await queue.dead(), list[DeadItem])
    concert.queue("thumbnails", order="random")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await queue.put({1, 2})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await queue.get(1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


class Deploy(msgspec.Struct):
    """What someone sends."""

    version: int


@dataclass
class Stop:
    """Something else."""

    at: datetime


async def queue_typed() -> None:
    """A queue of one type takes it and gives it."""
    queue = concert.queue("deploys", Deploy, maxsize=10)
    assert_type(queue, Queue[Deploy])
    await queue.put(Deploy(7), timeout=None)
    await queue.put_many([Deploy(8)])
    async for delivery in queue:
        assert_type(delivery, Delivery[Deploy])
        assert_type(delivery.item, Deploy)
        async with delivery as deploy:
            assert_type(deploy, Deploy)
    assert_type(await queue.peek(), list[Deploy | None])
    assert_type((await queue.dead())[0], DeadItem[Deploy])
    assert_type(concert.queue("numbers", list[int]), Queue[list[int]])
    either: Queue[Deploy | Stop] = concert.queue("deploys", Deploy | Stop)
    async with await either.get() as one:
        assert_type(one, Deploy | Stop)
    await queue.put({"version": 7})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await either.put(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def mail_typed() -> None:
    """A mailbox of one type takes it and gives it."""
    mailbox = concert.mailbox("jack451", Deploy, ttl=5)
    assert_type(mailbox, Mailbox[Deploy])
    await mailbox.send(Deploy(7))
    await mailbox.send_many([Deploy(8)])
    messages = await mailbox.fetch(ack=False)
    assert_type(messages, list[MailboxMessage[Deploy]])
    assert_type(messages[0].body, Deploy)
    await mailbox.ack(messages)
    await mailbox.send({"version": 7})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def signal_typed() -> None:
    """A signal of one type takes it and gives it; several keep the types of each."""
    signal = concert.signal("deploy", Deploy)
    assert_type(signal, Signal[Deploy])
    assert_type(await signal.wait(), Deploy)
    await signal.broadcast(Deploy(7))
    await signal.notify(Deploy(7))
    async with signal.subscribe() as subscription:
        assert_type(await subscription.next(), Deploy | Gap)
    async with concert.signals("deploy.*", Deploy).subscribe() as every:
        assert_type(await every.next(), Signalled[Deploy] | Gap)
    stop = concert.signal("stop", Stop)
    assert_type(await wait_any(signal, signal), tuple[Signal[Deploy], Deploy])
    assert_type(await wait_all(signal), list[Deploy])
    assert_type(await wait_any(signal, stop), tuple[Signal[Deploy], Deploy] | tuple[Signal[Stop], Stop])
    assert_type(await wait_all(signal, stop), list[Deploy | Stop])
    await signal.broadcast({"version": 7})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@concert.task()
async def answer(question: str) -> AsyncGenerator[Deploy]:
    """A task that streams."""
    yield Deploy(len(question))


async def follow_streams() -> None:
    """An item has the type that the generator yields; between the items there may be other things."""
    job = await answer.enqueue("why")
    async for item in job.stream(after="1-1"):
        assert_type(item, StreamItem[Deploy] | Restarted | Gap)
        if isinstance(item, StreamItem):
            assert_type(item.value, Deploy)
            assert_type((item.id, item.attempt), tuple[str, int])
    async for plain in concert.tasks.job("a.1.0").stream():
        assert_type(plain, StreamItem[JSON] | Restarted | Gap)
    async for typed in concert.tasks.job("a.1.0").stream(Deploy):
        assert_type(typed, StreamItem[Deploy] | Restarted | Gap)


def produce() -> None:
    """Without an event loop: a result has the type that is asked for."""
    with SyncProducer("redis://localhost:6379/0", namespace="shop", timeout=timedelta(seconds=5)) as producer:
        assert_type(producer, SyncProducer)
        job = producer.enqueue("shop.receipt", [17], {"copies": 2}, queue="mail", delay=timedelta(minutes=1))
        assert_type(job, EnqueuedJob)
        assert_type((job.id, job.created), tuple[str, bool])
        prepared = assert_type(producer.prepare("shop.receipt", [17], unique="receipt:17"), PreparedJob)
        assert_type(prepared.id, str)
        assert_type(prepared.enqueue(), EnqueuedJob)
        producer.put("thumbnails", {"image": 17}, delay=1.0, order="lifo", maxsize=10)
        producer.send("jack451", "hello", max_messages=10, max_age=timedelta(days=7))
        assert_type(producer.send_to_job(job.id, "packed", {"tracking": "TR-1"}), bool)
        assert_type(producer.status(job.id), JobStatus)
        assert_type(producer.result(job.id), JSON)
        assert_type(producer.result(job.id, Deploy, timeout=0.5), Deploy)
        producer.enqueue("shop.receipt", lasts=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        producer.put("thumbnails", {1})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        producer.result(job.id, 5.0)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def mistakes() -> None:
    """What the checkers must refuse: were it accepted, the remark that ignores it would be an error of its own."""
    concert.semaphore("payment")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    concert.lock("item:42", 30.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    concert.locks("a", 30.0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await (await doc.read().acquire()).downgrade()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    concert.lock(42)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    concert.lock("item:42", ttl="30")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    concert.election("scheduler", 10.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    concert.every(300)(add)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    await concert.election("scheduler").run(add, "1")  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    concert.latch("import")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    concert.barrier("epoch", "4")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await concert.event("ready").wait(5.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await lock.acquire(2.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await lock.try_acquire(timeout=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    (await lock.try_acquire()).release()  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess, reportUnusedCoroutine]


async def talk(concert: Coordinator) -> None:
    """Chats and their messages have their types."""
    chat = concert.chat
    chat_id = assert_type(await chat.create("ann", {"bob"}, "hello", max_age=timedelta(days=7), history=100), str)
    assert_type(await chat.send(chat_id, "ann", {"text": "lunch?"}), Message)
    assert_type(await chat.fetch("bob", limit=10), list[Batch])
    assert_type(await chat.history(chat_id, "bob", before=17), list[Message])
    assert_type(await chat.unread("bob"), dict[str, int])
    assert_type(await chat.members(chat_id), dict[str, int])
    await chat.add(chat_id, "ann", "cy")
    await chat.remove(chat_id, "ann", "cy")
    async for batch in chat.listen("bob", ack=False):
        assert_type(batch, Batch)
        await chat.ack("bob", chat_id, batch.last_id)
    posts = assert_type(concert.chat.of(Deploy), Chats[Deploy])
    assert_type(await posts.send(chat_id, "ann", Deploy(17)), Message[Deploy])
    assert_type(await posts.history(chat_id, "bob"), list[Message[Deploy]])
    async for typed in posts.listen("bob"):
        assert_type(typed, Batch[Deploy])
        assert_type(typed.unfit, list[Message])
    await posts.send(chat_id, "ann", "hello")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def total_of(number: int) -> Decimal:
    """What is computed once."""
    return Decimal(number)


async def compute_once() -> None:
    """It has the type that its function returns."""
    assert_type(await concert.once("v", partial(total_of, 7), ttl=60), Decimal)
    assert_type(await concert.once("v", os.getpid, ttl=timedelta(minutes=1), stale=600), int)
    await concert.once("v", total_of, ttl=60)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]


def lock_in_a_thread() -> None:
    """Without an event loop; a view keeps its type."""
    sync = SyncCoordinator("redis://localhost:6379/0", namespace="shop")
    with sync.lock("item:42", timeout=2) as lease:
        assert_type(lease, SyncLease)
    assert_type(sync.semaphore("s", limit=2).try_acquire(), SyncLease | None)

    @sync.held("item:{number}", timeout=timedelta(seconds=2))
    def view(number: int) -> str:
        return str(number)

    assert_type(view(7), str)
    view("7")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
