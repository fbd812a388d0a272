"""Jobs that run after a silence: each call of their name replaces the one before, as long as that waits."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, Job, JobStatus, Limit, Rate, SyncProducer, Task, current_job
from inconcert._core.observer import Observer
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.jobs import lapse_all
from tests.support.limits import in_line
from tests.support.raw import raw
from tests.support.servers import RealServer

WITHIN = 10.0  # seconds
HOUR = 3600.0
SECRET = {"one": "0123456789abcdef"}


class Indexing:
    """A task that notes what it was called with."""

    def __init__(self, concert: Coordinator) -> None:
        self.concert = concert
        self.ran: list[int] = []
        self.free = asyncio.Event()
        self.free.set()

        @concert.task(name="reindex")
        async def reindex(version: int) -> int:
            self.ran.append(version)
            await self.free.wait()
            return version

        self.task: Task[[int], Any] = reindex

    async def call(self, version: int, **options: Any) -> Job[int]:
        """Enqueue it after a silence, of an hour if nothing else is said."""
        chosen: Any = {"unique": "shop 17", "debounce": HOUR} | options
        job: Job[int] = await self.task.options(**chosen).enqueue(version)
        return job

    async def due_in(self, job: Job[Any]) -> float:
        """In how many seconds a job is due."""
        [found] = (await self.concert.tasks.jobs(state="delayed")).jobs
        assert found.id == job.id
        assert found.due_at is not None
        [now] = [(await self.concert.tasks.describe(job.id))[job.id].enqueued_at]
        return found.due_at - now


@pytest.fixture(params=["unsigned", "signed"])
async def signed(request: pytest.FixtureRequest, server: RealServer, namespace: str) -> AsyncIterator[Coordinator]:
    """With and without signing keys."""
    keys: Mapping[str, str] | None = SECRET if request.param == "signed" else None
    async with Coordinator(server.url, namespace=namespace, signing_keys=keys) as concert:
        yield concert


async def test_last_call_wins_and_is_due_after_a_silence(signed: Coordinator) -> None:
    """One job, whose id all calls have; the first says that it is new."""
    indexing = Indexing(signed)
    jobs = [await indexing.call(version) for version in range(4)]
    assert [job.created for job in jobs] == [True, False, False, False]
    assert len({job.id for job in jobs}) == 1
    assert await jobs[0].status() is JobStatus.DELAYED
    assert 3599 < await indexing.due_in(jobs[0]) <= 3601
    assert await indexing.call(4, debounce=0.05)
    async with in_background(signed.run_worker("default")):
        assert [await job.result(timeout=WITHIN) for job in jobs] == [4] * 4
    assert indexing.ran == [4]


async def test_calls_of_one_turn_are_one_job_with_the_last_arguments(signed: Coordinator) -> None:
    """Also of different names, and in one call of `enqueue_many`."""
    indexing = Indexing(signed)
    calls = [indexing.task.options(unique=f"shop {number % 3}", debounce=0.05).call(number) for number in range(30)]
    jobs = await signed.enqueue_many(calls)
    assert [job.created for job in jobs] == [True] * 3 + [False] * 27
    assert len({job.id for job in jobs}) == 3
    async with in_background(signed.run_worker("default")):
        assert sorted({await job.result(timeout=WITHIN) for job in jobs}) == [27, 28, 29]
    assert sorted(indexing.ran) == [27, 28, 29]


async def test_max_wait_caps_the_delay_from_the_first_call(any_concert: Coordinator) -> None:
    """However many calls follow; the last one before it wins."""
    indexing = Indexing(any_concert)
    first = await indexing.call(0, debounce=HOUR, max_wait=HOUR)
    assert 3599 < await indexing.due_in(first) <= 3601
    await indexing.call(1, debounce=HOUR, max_wait=1.5 * HOUR)
    assert 3599 < await indexing.due_in(first) <= 3601
    client: Any = raw(any_concert)
    keys = any_concert._jobs.of_id(first.id)
    body = await client.hget(keys.bodies, first.id)
    assert body.count(b"~") == 1
    earlier = re.sub(rb"~(\d+)", lambda found: b"~%d" % (int(found[1]) - 5_000_000), body)  # 5,000 s before
    await client.hset(keys.bodies, first.id, earlier)
    await indexing.call(2, debounce=HOUR, max_wait=1.5 * HOUR)
    assert 399 < await indexing.due_in(first) <= 401
    await indexing.call(3, debounce=HOUR, max_wait=HOUR)
    assert await first.status() is JobStatus.QUEUED
    await indexing.call(4)
    assert await first.status() is JobStatus.QUEUED
    await any_concert.run_worker("default", burst=True)
    assert indexing.ran == [4]


async def test_call_while_the_job_runs_begins_another(signed: Coordinator) -> None:
    """So its arguments are not lost, and nor are those of the next attempt."""
    indexing = Indexing(signed)
    indexing.free.clear()
    first = await indexing.call(1, debounce=0.001)
    async with in_background(signed.run_worker("default")):

        async def runs() -> bool:
            return await first.status() is JobStatus.RUNNING

        await eventually(runs)
        second = await indexing.call(2)
        third = await indexing.call(3, debounce=0.05)
        assert (second.created, third.created, second.id == third.id) == (True, False, True)
        indexing.free.set()
        assert (await first.result(timeout=WITHIN), await third.result(timeout=WITHIN)) == (1, 3)
    assert indexing.ran == [1, 3]


async def test_job_that_has_begun_keeps_its_arguments_through_its_attempts(any_concert: Coordinator) -> None:
    """Also while it waits for the next one, and if its name was not freed."""
    indexing = Indexing(any_concert)
    first = await indexing.call(1, debounce=0.001)
    keys, client = any_concert._jobs.of_id(first.id), raw(any_concert)
    name = await client.hget(keys.unique, "shop 17")
    async with any_concert.consume("default") as jobs, await anext(jobs) as job:
        await job.nack(delay=60)
    await client.hset(keys.unique, "shop 17", name)  # as if its worker had died before
    second = await indexing.call(2)
    assert second.created
    assert (await any_concert.tasks.describe(first.id))[first.id].args == [1]


async def test_job_whose_worker_died_keeps_its_arguments(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Also while it waits in its queue again: a call begins another one."""
    indexing = Indexing(any_concert)
    client: Any = raw(any_concert)
    first = await indexing.call(1, debounce=0.001)
    keys = any_concert._jobs.of_id(first.id)
    name = await client.hget(keys.unique, "shop 17")
    async with any_concert.consume("default") as jobs, elsewhere.consume("other") as others:
        await anext(jobs)
        await client.hset(keys.unique, "shop 17", name)  # as if its worker had died before it was free
        await any_concert.tasks.pause("default")
        await lapse_all(any_concert)
        async with in_background(anext(others)):

            async def is_recovered() -> bool:
                return await first.status() is JobStatus.QUEUED

            await eventually(is_recovered)
        assert (await indexing.call(2)).created
        await any_concert.tasks.resume("default")
    await any_concert.run_worker("default", burst=True)
    assert indexing.ran == [1]


async def test_last_call_runs_last_however_calls_and_starts_meet(signed: Coordinator) -> None:
    """A job begins while the next call is on its way: that call is in another job."""
    indexing = Indexing(signed)
    async with in_background(signed.run_worker("default", concurrency=3)):
        jobs = [await indexing.call(version, debounce=0.001) for version in range(200)]
        await jobs[-1].result(timeout=WITHIN)
    assert indexing.ran[-1] == 199
    assert sorted(set(indexing.ran)) == sorted(indexing.ran)


async def test_cancelled_job_is_not_replaced(signed: Coordinator) -> None:
    """The next call begins anew; so it does after a dead letter."""
    indexing = Indexing(signed)
    first = await indexing.call(1)
    assert await first.cancel()
    second = await indexing.call(2, debounce=0.001, max_attempts=1)
    assert (second.created, second.id == first.id) == (True, False)
    async with signed.consume("default") as jobs, await anext(jobs) as job:
        await job.bury(ValueError("no"))
    third = await indexing.call(3)
    assert third.created
    await signed.tasks.replay(second.id)
    assert (await indexing.call(4)).id == third.id


@pytest.mark.parametrize("args", [None, [7]])
async def test_replayed_job_is_replaced_while_it_waits(signed: Coordinator, args: list[Any] | None) -> None:
    """Also one that was replayed with other arguments."""
    indexing = Indexing(signed)
    first = await indexing.call(1, debounce=0.001)
    async with signed.consume("default") as jobs, await anext(jobs) as job:
        await job.bury(ValueError("no"))
    await signed.tasks.replay(first.id, args=args)
    assert not (await indexing.call(2)).created
    await signed.run_worker("default", burst=True)
    assert indexing.ran == [2]
    assert await first.status() is JobStatus.SUCCEEDED


async def test_job_in_a_paused_queue_is_replaced_where_it_is(signed: Coordinator) -> None:
    """It is due, and keeps its place."""
    indexing = Indexing(signed)
    await signed.tasks.pause("default")
    first = await indexing.call(1)
    await first.reschedule(delay=0)
    last = await signed.enqueue("reindex", [7])
    assert await first.status() is JobStatus.QUEUED
    assert not (await indexing.call(2)).created
    assert await first.status() is JobStatus.QUEUED
    await signed.tasks.resume("default")
    await signed.run_worker("default", burst=True)
    assert await last.status() is JobStatus.SUCCEEDED
    assert indexing.ran == [2, 7]


async def test_job_that_waits_elsewhere_stays_in_its_queue(signed: Coordinator) -> None:
    """If a later call names another one."""
    indexing = Indexing(signed)
    first = await indexing.call(1, queue="low")
    second = await indexing.call(2, queue="high")
    assert (second.created, second.id == first.id) == (False, True)
    [found] = (await signed.tasks.jobs()).jobs
    assert (found.queue, found.args) == ("low", [2])
    await first.cancel()


async def test_plain_unique_job_is_returned_and_not_replaced(any_concert: Coordinator) -> None:
    """As without debounce; a plain call gets the one that waits for a silence, and so does a call of another task."""
    indexing = Indexing(any_concert)
    plain = await indexing.task.options(unique="shop 17", delay=60).enqueue(1)
    second = await indexing.call(2)
    assert (second.created, second.id) == (False, plain.id)
    assert (await any_concert.tasks.describe(plain.id))[plain.id].args == [1]
    await plain.cancel()
    third = await indexing.call(3)
    for fourth in (
        await indexing.task.options(unique="shop 17").enqueue(4),
        await any_concert.enqueue("other", [4], unique="shop 17", debounce=HOUR),
    ):
        assert (fourth.created, fourth.id) == (False, third.id)
    assert (await any_concert.tasks.describe(third.id))[third.id].args == [3]


async def test_last_call_counts_for_expiry_and_options(any_concert: Coordinator) -> None:
    """All of it is replaced."""
    indexing = Indexing(any_concert)
    first = await indexing.call(1, expires=2 * HOUR, headers={"by": "first"})
    enqueued_at = (await any_concert.tasks.describe(first.id))[first.id].enqueued_at
    await anyio.sleep(0.01)
    await indexing.call(2, headers={"by": "second"})
    assert (await any_concert.tasks.describe(first.id))[first.id].enqueued_at > enqueued_at
    await first.reschedule(delay=0)
    async with any_concert.consume("default") as jobs, await anext(jobs) as job:
        assert (job.args, job.headers) == ([2], {"by": "second"})


@pytest.mark.parametrize("more", [{"rate": Rate(100, per=1.0)}, {"share": True}, {}], ids=["rate", "share", "key"])
async def test_job_that_is_not_due_changes_its_limits_with_its_arguments(any_concert: Coordinator, more: Any) -> None:
    """Nothing stays of those that it had."""
    ran: list[str] = []

    def key(shop: str) -> str:
        return shop

    @any_concert.task(name="limited", key=key, key_limit=1, **more)
    async def limited(shop: str) -> None:
        ran.append(shop)

    jobs: list[Job[None]] = [
        await limited.options(unique="one", debounce=HOUR).enqueue(shop) for shop in ("a", "b", "a")
    ]
    jobs.append(await limited.options(unique="one", debounce=0.001).enqueue("c"))
    assert len({job.id for job in jobs}) == 1
    other = await limited.enqueue("a")
    async with in_background(any_concert.run_worker("default")):
        await jobs[0].result(timeout=WITHIN)
        await other.result(timeout=WITHIN)
    assert sorted(ran) == ["a", "c"]
    keys = any_concert._jobs.of_id(other.id)
    assert not await raw(any_concert).zcard(keys.held_back)


@pytest.mark.parametrize("is_limited_by", ["limit", "key"])
async def test_job_that_a_limit_holds_back_is_replaced_and_keeps_its_place(
    any_concert: Coordinator, is_limited_by: str
) -> None:
    """A call with another key is another job then: it waits for another place."""
    free, ran = asyncio.Event(), list[tuple[str, int]]()

    def key(shop: str, version: int) -> str:
        del version
        return shop

    options: dict[str, Any] = {"limit": Limit(1)} if is_limited_by == "limit" else {"key": key, "key_limit": 1}

    @any_concert.task(name="limited", **options)
    async def limited(shop: str, version: int) -> None:
        ran.append((shop, version))
        await free.wait()

    first = await limited.enqueue("a", 0)
    async with in_background(any_concert.run_worker("default", concurrency=5)):
        await eventually(lambda: ran)
        waits = await limited.options(unique="one", debounce=0.001).enqueue("a", 1)
        held = any_concert._jobs.of_id(waits.id).held_back

        async def is_held_back() -> bool:
            return bool(await raw(any_concert).zcard(held))

        await eventually(is_held_back)
        behind = await limited.enqueue("a", 2)
        assert not (await limited.options(unique="one", debounce=HOUR).enqueue("a", 3)).created
        expires = limited.options(unique="one", debounce=0.001, expires=HOUR)
        enqueued_at = (await any_concert.tasks.describe(waits.id))[waits.id].enqueued_at

        async def expires_later() -> bool:
            assert not (await expires.enqueue("a", 4)).created
            return (await any_concert.tasks.describe(waits.id))[waits.id].enqueued_at > enqueued_at

        await eventually(expires_later)
        if is_limited_by == "key":
            assert (await limited.options(unique="one", debounce=0.001).enqueue("b", 5)).created
            await eventually(lambda: ("b", 5) in ran)
            ran.remove(("b", 5))
        free.set()
        for job in (first, waits, behind):
            await job.result(timeout=WITHIN)
    assert ran == [("a", 0), ("a", 4), ("a", 2)]
    assert not await raw(any_concert).zcard(held)


async def test_job_that_is_the_next_of_a_rate_is_replaced_and_stays_so(any_concert: Coordinator) -> None:
    """Otherwise one that is called often would never begin, because others came next instead."""
    ran: list[int] = []

    @any_concert.task(name="limited", rate=Rate(1, per=3600.0))
    async def limited(version: int) -> None:
        ran.append(version)

    async def due_in_the_end() -> float | None:
        found = [job.due_at for job in (await any_concert.tasks.jobs(state="delayed")).jobs]
        return next((at for at in found if at is not None and at - time.time() > 3000), None)

    await limited.enqueue(0)
    async with in_background(any_concert.run_worker("default")):
        await eventually(lambda: ran)
        waits = await limited.options(unique="one", debounce=0.001).enqueue(1)
        due_at = await eventually(due_in_the_end)
        assert not (await limited.options(unique="one", debounce=2 * HOUR).enqueue(2)).created
        assert await due_in_the_end() == due_at
        assert (await any_concert.tasks.describe(waits.id))[waits.id].args == [2]


async def test_job_that_is_replaced_in_line_keeps_its_turn_when_it_was_too_late(any_concert: Coordinator) -> None:
    """It had left its line, and another took the place that was free: the line is by the first call."""
    began, back, free = list[int](), asyncio.Event(), asyncio.Event()

    @any_concert.task(name="limited", limit=Limit(1))
    async def limited(number: int) -> None:
        began.append(number)
        if began == [0]:
            await back.wait()
            await current_job().give_back()
        await free.wait()

    def last_calls(number: int) -> Awaitable[Job[None]]:
        return limited.options(unique="one", debounce=0.001).enqueue(number)

    await limited.enqueue(0)
    async with in_background(any_concert.run_worker("default", concurrency=5)):
        await eventually(lambda: began)
        await last_calls(1)
        await eventually(lambda: in_line(any_concert, 1))
        behind = await limited.enqueue(3)
        await eventually(lambda: in_line(any_concert, 2))
        assert not (await last_calls(2)).created
        back.set()
        await eventually(lambda: began == [0, 0])
        free.set()
        await behind.result(timeout=WITHIN)
    assert began == [0, 0, 2, 3]


async def test_producers_without_a_loop_replace_the_same_job(server: RealServer, namespace: str) -> None:
    """With signing keys; a prepared job counts once, however often it is sent."""
    async with Coordinator(server.url, namespace=namespace, signing_keys=SECRET) as concert:
        indexing = Indexing(concert)
        first = await indexing.call(1)

        def produce() -> None:
            with SyncProducer(server.url, namespace=namespace, signing_keys=SECRET) as producer:
                options: Any = {"unique": "shop 17", "debounce": 0.05}
                second = producer.enqueue("reindex", [2], **options)
                assert (second.created, second.id) == (False, first.id)
                prepared = producer.prepare("reindex", [3], **options)
                for _ in range(2):
                    assert prepared.enqueue().id == first.id

        await anyio.to_thread.run_sync(produce)
        await concert.run_worker("default", burst=True)
        async with in_background(concert.run_worker("default")):
            assert await first.result(timeout=WITHIN) == 3
        assert indexing.ran == [3]


async def test_observers_are_told_of_the_job_once(any_concert: Coordinator) -> None:
    """Not of what replaces it."""
    told: list[str] = []

    class Telling(Observer):
        def job_enqueued(self, task: str, queue: str) -> None:
            del queue
            told.append(task)

    any_concert._ref.session.observers.append(Telling())
    indexing = Indexing(any_concert)
    for version in range(3):
        await indexing.call(version)
    assert told == ["reindex"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"debounce": 5}, "debounce= without unique="),
        ({"max_wait": 5, "unique": "a"}, "max_wait= without debounce="),
        ({"debounce": 0, "unique": "a"}, "debounce is 0; give a number of seconds above 0"),
        ({"debounce": "5", "unique": "a"}, "debounce is '5'"),
        ({"debounce": 5, "max_wait": -1, "unique": "a"}, "max_wait"),
        ({"debounce": 5, "max_wait": 4, "unique": "a"}, "max_wait is 4 s, and debounce is 5 s"),
        ({"debounce": 5, "unique": "a", "delay": 1}, "debounce= beside delay= or at="),
        ({"debounce": 5, "unique": "a", "at": datetime(2030, 1, 1, tzinfo=UTC)}, "debounce= beside delay= or at="),
        ({"debounce": 5, "unique": "a", "after": ["1.1"]}, "debounce= and after="),
        ({"debounce": 5, "unique": "a", "unique_for": 1}, "debounce= and unique_for="),
        ({"debounce": 5, "unique": "a", "unique_until": "done"}, "unique_until='done'"),
        ({"debounce": 5, "unique": "a", "expires": 5}, "expires is 5 s, and debounce is 5 s"),
    ],
)
async def test_bad_options_are_refused_before_anything_is_sent(options: Any, error: str) -> None:
    """The coordinator is not even open."""
    concert = Coordinator("redis://127.0.0.1:1")
    indexing = Indexing(concert)
    with pytest.raises(ValueError, match=re.escape(error)):
        indexing.task.options(**options)
    with pytest.raises(ValueError, match=re.escape(error)):
        await concert.enqueue("reindex", [1], **options)


async def test_members_callbacks_and_followers_cannot_be_debounced(any_concert: Coordinator) -> None:
    """They would be replaced where they are to be counted."""
    call = Indexing(any_concert).task.options(unique="shop 17", debounce=5).call(1)
    with pytest.raises(ValueError, match="debounce=, which a member of a group cannot have"):
        await any_concert.group([call])
    with pytest.raises(ValueError, match="which the callback of a group cannot have"):
        await any_concert.group([], then=call)
    with pytest.raises(ValueError, match="no after, unique, delay or at"):
        await any_concert.schedules.put("nightly", call, every=60)
    await any_concert.enqueue("reindex", [1])
    async with any_concert.consume("default") as jobs, await anext(jobs):
        with pytest.raises(ValueError, match="which a job that follows another cannot have"):
            current_job().enqueue_on_success(call)
