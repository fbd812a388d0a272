"""Tasks and jobs as users meet them: enqueued here, run there, each at least once and none forgotten."""

import asyncio
import json
import math
import threading
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast

import anyio
import pytest

from inconcert import Coordinator, InvalidName, InvalidPayload, NotClaimed, NotConnected, current_job
from inconcert._redis.wire.bells import RING
from inconcert.tasks.running.claimed_job import ClaimedJob
from inconcert.tasks.running.consumer import Consumer
from tests.support.background import in_background
from tests.support.jobs import asleep, let_crash, make_due
from tests.support.ledger import Ledger, all_done, ledger_of, until
from tests.support.raw import client_of, infos, raw


@pytest.fixture
async def any_concert(any_concert: Coordinator) -> AsyncIterator[Coordinator]:
    """As everywhere; and what fakeredis leaves waiting of a BLPOP whose connection was closed is ended."""
    yield any_concert
    for task in asyncio.all_tasks():
        if "AsyncFakeSocket._async_blocking" in repr(task.get_coro()):
            task.cancel()
            await asyncio.wait([task])


def held(ledger: Ledger) -> int:
    """How many jobs are claimed."""
    return sum(map(len, ledger.claimed.values()))


async def take(jobs: Consumer, count: int) -> list[ClaimedJob]:
    """Claim and finish so many jobs."""
    taken: list[ClaimedJob] = []
    async for job in jobs:
        async with job:
            taken.append(job)
        if len(taken) == count:
            break
    return taken


# Enqueueing and consuming.


async def test_job_carries_its_call(any_concert: Coordinator) -> None:
    """What a typed enqueue was given arrives, with the task's name and queue, at its first attempt."""

    @any_concert.task(queue="high", name="mail.sold")
    async def sold(seller: int, item: str, *, price: float = 0.0) -> None: ...

    put = await sold.enqueue(17, "sword", price=9.5)
    async with any_concert.consume("low", "high") as jobs:
        [job] = await take(jobs, 1)
    assert (job.id, job.name, job.queue, job.attempt) == (put.id, "mail.sold", "high", 1)
    assert (list(job.args), dict(job.kwargs)) == ([17, "sword"], {"price": 9.5})


async def test_job_is_enqueued_by_name_where_its_task_is_unknown(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """Only the process that runs it knows the function."""
    ran: list[tuple[int, str]] = []

    @elsewhere.task(name="add")
    async def add(number: int, *, text: str) -> None:
        ran.append((number, text))

    await any_concert.enqueue("add", [1], {"text": "a"})
    async with in_background(elsewhere.run_worker("default")):
        await all_done(any_concert)
    assert ran == [(1, "a")]


async def test_options_change_the_queue_of_one_job(any_concert: Coordinator) -> None:
    """The task's own queue stays."""

    @any_concert.task(queue="high", name="t")
    async def t() -> None: ...

    first = await t.options(queue="low").enqueue()
    second = await t.enqueue()
    assert (await ledger_of(any_concert)).ready == {"low": [first.id], "high": [second.id]}


async def test_calling_a_task_runs_it_here(any_concert: Coordinator) -> None:
    """Nothing is enqueued."""

    @any_concert.task()
    def double(number: int) -> int:
        return 2 * number

    assert double(21) == 42
    assert (await ledger_of(any_concert)).bodies == []


async def test_more_urgent_queues_come_first_in_one_claim(any_concert: Coordinator) -> None:
    """Whatever the order in which they were enqueued, and first come first served within a queue."""
    for number in range(3):
        for queue in ("low", "high", "medium"):
            await any_concert.enqueue("t", [number], queue=queue)
    async with any_concert.consume("high", "medium", "low") as jobs:
        claimed = await jobs.claim(7)
    assert [(job.queue, *job.args) for job in claimed] == [
        ("high", 0), ("high", 1), ("high", 2), ("medium", 0), ("medium", 1), ("medium", 2), ("low", 0),
    ]  # fmt: skip


async def test_urgent_job_overtakes_those_that_wait(any_concert: Coordinator) -> None:
    """Between one job and the next the order of the queues decides."""
    for number in range(2):
        await any_concert.enqueue("t", [number], queue="low")
    async with any_concert.consume("high", "low") as jobs:
        [first] = await take(jobs, 1)
        await any_concert.enqueue("t", queue="high")
        rest = await take(jobs, 2)
    assert [job.queue for job in (first, *rest)] == ["low", "high", "low"]


@pytest.mark.parametrize("prefetch", [1, 7])
async def test_queue_is_first_come_first_served(any_concert: Coordinator, prefetch: int) -> None:
    """Across any number of claims."""
    for number in range(30):
        await any_concert.enqueue("t", [number])
    async with any_concert.consume("default", prefetch=prefetch) as jobs:
        assert [job.args[0] for job in await take(jobs, 30)] == list(range(30))


async def test_idle_consumer_is_woken_by_the_next_job(any_concert: Coordinator) -> None:
    """At once, not at the end of its sleep."""
    async with any_concert.consume("high", "low") as jobs, in_background(take(jobs, 1)) as taking:
        await asleep(any_concert)
        with anyio.fail_after(1.5):  # the shortest sleep is 2 s
            await any_concert.enqueue("t", queue="low")
            await asyncio.wait([taking])


async def test_every_idle_consumer_is_woken_by_a_burst(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """A bell that rings once wakes one consumer, and its claim, which leaves work behind, the next."""
    put = [(await any_concert.enqueue("t", queue="somewhere")).id for _ in range(2)]
    somewhere, queue = (any_concert._jobs.partitions[0].queue(name) for name in ("somewhere", "q"))
    async with (
        any_concert.consume("q") as one,
        elsewhere.consume("q") as other,
        in_background(take(one, 1)) as here,
        in_background(take(other, 1)) as there,
    ):
        await asleep(any_concert, count=2)
        with anyio.fail_after(1.5):
            async with raw(any_concert).pipeline(transaction=True) as step:
                step.delete(somewhere.queue)
                step.rpush(queue.queue, *put)
                await step.execute()
            await any_concert._ref.session.run(RING(bell=queue.bell))
            await asyncio.wait([here, there])


async def test_done_job_leaves_its_result_for_a_time_and_nothing_else(any_concert: Coordinator) -> None:
    """Also one that failed first; a bell, the lease clock, the count of its queue, who serves it, its request stay."""
    async with any_concert.consume("q") as jobs:
        await any_concert.enqueue("t", queue="q")
        async for job in jobs:
            async with job:
                if job.attempt == 1:
                    raise ValueError
            if job.attempt == 2:
                break
            await make_due(any_concert, "q")
    await until(any_concert, lambda ledger: not ledger.workers)
    client: Any = raw(any_concert)
    namespace = any_concert._ref.keys.namespace
    keys = [key async for key in client.scan_iter(match=f"*{namespace}:tasks*") if b":bell:" not in key]
    kept = {key.rpartition(b"}:")[2].partition(b":")[0]: await client.pttl(key) for key in keys}
    [seen] = kept.keys() & {b"seen_even", b"seen_odd"}
    counted = {b"counted", b"counts", b"counts_seen", b"lately"}  # which say how it has ended, for two weeks at most
    assert set(kept) == {b"result", b"kept_attempts", b"finished", b"clock", b"served", seen} | counted
    assert all(0 < kept[key] <= 15 * 86_400_000 for key in counted)
    assert 590_000 < kept[seen] <= 1_199_000
    assert 3_590_000 < kept[b"result"] <= 3_600_000
    assert await client.hgetall(any_concert._jobs.partitions[0].finished) == {b"q": b"1"}


async def test_two_consumers_share_the_work_without_doubles(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Each job goes to one of them."""
    seen: Counter[str] = Counter()
    by: Counter[str] = Counter()
    put = [(await any_concert.enqueue("t", [number])).id for number in range(100)]

    async def consume(concert: Coordinator, who: str) -> None:
        async with concert.consume("default", prefetch=3) as jobs:
            async for job in jobs:
                async with job:
                    seen[job.id] += 1
                    by[who] += 1
                    await asyncio.sleep(0)

    async with in_background(consume(any_concert, "here")), in_background(consume(elsewhere, "there")):
        await all_done(any_concert)
    assert seen == Counter(put)
    assert min(by["here"], by["there"]) > 10


@pytest.mark.parametrize("prefetch", [1, 3])
async def test_tasks_that_share_a_consumer_never_get_the_same_job(any_concert: Coordinator, prefetch: int) -> None:
    """Their claims go one after the other."""
    seen: Counter[str] = Counter()
    put = [(await any_concert.enqueue("t", [number])).id for number in range(100)]

    async def work(jobs: Consumer) -> None:
        async for job in jobs:
            async with job:
                seen[job.id] += 1
                await asyncio.sleep(0)

    async with (
        any_concert.consume("default", prefetch=prefetch) as jobs,
        in_background(work(jobs)),
        in_background(work(jobs)),
        in_background(work(jobs)),
    ):
        await all_done(any_concert)
    assert seen == Counter(put)


async def test_prefetched_jobs_wait_for_their_consumer(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """What one has claimed ahead the other is not given."""
    for number in range(4):
        await any_concert.enqueue("t", [number])
    async with any_concert.consume("default", prefetch=3) as one, elsewhere.consume("default", prefetch=3) as other:
        first = await anext(one)
        await first.ack()
        [job] = await take(other, 1)
        assert job.args == [3]
        assert [job.args[0] for job in await take(one, 2)] == [1, 2]


# How a job ends.


async def test_failing_job_is_tried_again_later_and_then_set_aside(any_concert: Coordinator) -> None:
    """After 1 s and 2 s, each within 25 %; then it is dead, with the reason and the traceback as text."""
    attempts: list[int] = []
    delays: list[float] = []
    keys = any_concert._jobs.partitions[0].queue("q")
    client: Any = raw(any_concert)
    put = await any_concert.enqueue("t", queue="q", max_attempts=3)
    async with any_concert.consume("q") as jobs:
        async for job in jobs:
            async with job:
                attempts.append(job.attempt)
                raise ValueError("no such seller")
            seconds, microseconds = await client.time()
            if job.attempt == 3:
                break
            delays.append(await client.zscore(keys.delayed, put.id) / 1000 - seconds - microseconds / 1e6)
            await make_due(any_concert, "q")
    assert attempts == [1, 2, 3]
    assert 0.65 < delays[0] <= 1.25
    assert 1.4 < delays[1] <= 2.5
    ledger = await ledger_of(any_concert)
    ledger.check(put=1, done=0)
    assert (ledger.dead, ledger.failures) == ([put.id], {put.id: 3})
    assert ledger.reasons[put.id]["reason"] == "ValueError: no such seller"
    assert ledger.reasons[put.id]["attempts"] == 3
    assert 'raise ValueError("no such seller")' in ledger.reasons[put.id]["traceback"]


async def test_any_exception_can_be_a_reason(any_concert: Coordinator) -> None:
    """One that cannot even say what it is, one that is far too long, and one that is no valid Unicode."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    errors: list[Exception] = [Mute(), ValueError("x" * 3_000_000), ValueError("\ud800\0")]
    errors.append(ExceptionGroup("group", list(errors)))
    for number in range(len(errors)):
        await any_concert.enqueue("t", [number], max_attempts=1)
    async with any_concert.consume("default") as jobs:
        for error in errors:
            job = await anext(jobs)
            async with job:
                raise error
    ledger = await ledger_of(any_concert)
    assert len(ledger.dead) == len(errors)
    assert all(len(json.dumps(reason)) < 30_000 for reason in ledger.reasons.values())


async def test_note_of_an_exception_is_in_the_traceback_and_not_the_reason(any_concert: Coordinator) -> None:
    """Also in a group, and where the message has several lines before it."""

    def noted(error: Exception) -> Exception:
        error.add_note("order 7\nhelp: see the wiki")
        return error

    wrong = SyntaxError("invalid syntax", ("shop.py", 1, 2, "x y", 1, 3))
    errors = [ConnectionError("no bank"), wrong, ExceptionGroup("both", [ConnectionError("no bank")])]
    says = ["ConnectionError: no bank", "SyntaxError: invalid syntax", "ExceptionGroup: both (1 sub-exception)"]
    put = [(await any_concert.enqueue("t", [number], max_attempts=1)).id for number in range(len(errors))]
    async with any_concert.consume("default") as jobs:
        for error in errors:
            async with await anext(jobs):
                raise noted(error)
    ledger = await ledger_of(any_concert)
    assert [ledger.reasons[each]["reason"] for each in put] == says
    assert all("help: see the wiki" in ledger.reasons[each]["traceback"] for each in put)


async def test_cancelled_body_gives_its_job_back_at_once(any_concert: Coordinator) -> None:
    """To the front of its queue, and that is no attempt."""
    put = [(await any_concert.enqueue("t", [number])).id for number in range(2)]
    async with any_concert.consume("default") as jobs:
        with anyio.CancelScope() as scope:
            async with await anext(jobs):
                scope.cancel()
                await anyio.sleep_forever()
        ledger = await until(any_concert, lambda ledger: not ledger.claimed)
        assert (ledger.ready, ledger.failures, ledger.crashes) == ({"default": put}, {}, {})
        [job] = await take(jobs, 1)
        assert (job.id, job.attempt) == (put[0], 1)


async def test_job_may_be_ended_by_hand(any_concert: Coordinator) -> None:
    """Acknowledged, or put off; once only, and leaving the body then changes nothing."""
    for number in range(2):
        await any_concert.enqueue("t", [number], queue="q")
    async with any_concert.consume("q") as jobs:
        async with await anext(jobs) as job:
            await job.ack()
            for end in (job.ack, job.nack):
                with pytest.raises(NotClaimed, match=f"job '{job.id}' is no longer claimed"):
                    await end()
        async with await anext(jobs) as job:
            await job.nack(delay=timedelta(hours=1))
    ledger = await ledger_of(any_concert)
    assert ledger.delayed == {"q": [job.id]}
    assert ledger.failures == {job.id: 1}
    keys = any_concert._jobs.partitions[0].queue("q")
    client: Any = raw(any_concert)
    seconds, _ = await client.time()
    assert 3590 < await client.zscore(keys.delayed, job.id) / 1000 - seconds <= 3601


async def test_error_after_the_end_by_hand_does_not_break_the_loop(any_concert: Coordinator) -> None:
    """It is logged, like every exception in a body."""
    await any_concert.enqueue("t")
    async with any_concert.consume("default") as jobs, await anext(jobs) as job:
        await job.ack()
        raise ValueError
    (await ledger_of(any_concert)).check(put=1, done=1)


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf, "1"])
async def test_job_is_still_held_after_a_bad_delay(any_concert: Coordinator, delay: Any) -> None:
    """It is refused before anything has happened."""
    await any_concert.enqueue("t")
    async with any_concert.consume("default") as jobs, await anext(jobs) as job:
        with pytest.raises(ValueError, match="delay"):
            await job.nack(delay=delay)
    (await ledger_of(any_concert)).check(put=1, done=1)


async def test_nack_sets_aside_after_the_last_attempt(any_concert: Coordinator) -> None:
    """A failure is a failure."""
    await any_concert.enqueue("t", max_attempts=1)
    async with any_concert.consume("default") as jobs:
        await (await anext(jobs)).nack()
    assert [reason["reason"] for reason in (await ledger_of(any_concert)).reasons.values()] == ["nacked"]


async def test_left_loop_gives_back_what_was_claimed_ahead(any_concert: Coordinator) -> None:
    """In the old order, however many they are, and without counting an attempt."""
    put = [(await any_concert.enqueue("t", [number], queue=f"q{number % 2}")).id for number in range(300)]
    async with any_concert.consume("q0", "q1", prefetch=200) as jobs:
        async for job in jobs:
            async with job:
                pass
            break
    ledger = await until(any_concert, lambda ledger: not ledger.claimed)
    ledger.check(put=300, done=1)
    assert ledger.ready == {"q0": put[2::2], "q1": put[1::2]}
    assert (ledger.failures, ledger.crashes, ledger.workers) == ({}, {}, [])


# Closing.


async def test_closing_a_consumer_sends_its_waiters_away(any_concert: Coordinator) -> None:
    """And a job that is enqueued then is not claimed by it."""
    async with any_concert.consume("q") as jobs:
        waiting = asyncio.create_task(jobs.claim(1))
        other = asyncio.ensure_future(anext(jobs))
        await asleep(any_concert)
    await asyncio.wait([waiting, other], timeout=5)
    for task in (waiting, other):
        assert isinstance(task.exception(), NotConnected)
    put = await any_concert.enqueue("t", queue="q")
    ledger = await ledger_of(any_concert)
    assert (ledger.ready, ledger.workers) == ({"q": [put.id]}, [])


async def test_consumer_that_is_closed_while_it_claims_gets_nothing(any_concert: Coordinator) -> None:
    """Whatever comes first on the server, nobody is given a job that went back."""
    for turns in range(12):
        put = await any_concert.enqueue("t", [turns], queue=f"q{turns}")
        async with any_concert.consume(f"q{turns}") as jobs:
            claiming = asyncio.create_task(jobs.claim(1))
            for _ in range(turns):
                await asyncio.sleep(0)
        await asyncio.wait([claiming], timeout=5)
        if claiming.exception() is None:  # it was quicker than the end: then the job was lost to it at once
            assert all(job.is_over for job in claiming.result())
        else:
            assert isinstance(claiming.exception(), NotConnected)
        ledger = await until(any_concert, lambda ledger: not ledger.claimed and not ledger.workers)
        assert ledger.ready[f"q{turns}"] == [put.id]


async def test_closed_consumer_says_so(any_concert: Coordinator) -> None:
    """Before it is opened, and after."""
    jobs = any_concert.consume("q")
    for _ in range(2):
        with pytest.raises(NotConnected, match="consume"):
            await anext(jobs)
        async with jobs:
            with pytest.raises(RuntimeError, match="open already"):
                await jobs.__aenter__()


async def test_closing_the_coordinator_sends_its_consumers_away(any_concert: Coordinator, namespace: str) -> None:
    """Those that wait, and those that are at work: their bodies are cancelled and the jobs given back."""
    stopped: list[str] = []

    async def work(concert: Coordinator) -> None:
        async with concert.consume("busy", prefetch=2) as jobs:
            async for job in jobs:
                async with job:
                    try:
                        await anyio.sleep_forever()
                    finally:
                        stopped.append(job.id)

    put = [(await any_concert.enqueue("t", [number], queue="busy")).id for number in range(3)]
    async with Coordinator.from_client(client_of(any_concert), namespace=namespace) as closing:
        working = asyncio.create_task(work(closing))
        idling = asyncio.create_task(take(closing.consume("idle"), 1))
        await until(any_concert, lambda ledger: ledger.claimed)
        waiting = asyncio.create_task(wait_for_one(closing))
        await asleep(any_concert, count=2)
    await asyncio.wait([working, idling, waiting], timeout=5)
    for task in (working, idling, waiting):
        assert isinstance(task.exception(), NotConnected)
    assert stopped == [put[0]]
    ledger = await ledger_of(any_concert)
    ledger.check(put=3, done=0)
    assert (ledger.ready, ledger.failures, ledger.crashes, ledger.workers) == ({"busy": put}, {}, {}, [])


async def wait_for_one(concert: Coordinator) -> None:
    """Wait for a job that never comes."""
    async with concert.consume("idle") as jobs:
        await anext(jobs)


async def test_closing_the_coordinator_ends_its_worker(any_concert: Coordinator, namespace: str) -> None:
    """With NotConnected itself, also when all its places are taken; what ran goes back."""
    async with Coordinator.from_client(client_of(any_concert), namespace=namespace) as closing:

        @closing.task(name="endless")
        async def endless() -> None:
            await anyio.sleep_forever()

        put = [(await endless.enqueue()).id for _ in range(3)]
        worker = asyncio.create_task(closing.run_worker("default", concurrency=2))
        await until(any_concert, lambda ledger: len(ledger.everywhere()) - len(ledger.ready.get("default", [])) == 2)
    await asyncio.wait([worker], timeout=5)
    assert isinstance(worker.exception(), NotConnected)
    ledger = await ledger_of(any_concert)
    assert (ledger.ready, ledger.failures, ledger.crashes) == ({"default": put}, {}, {})


async def test_job_that_ended_as_its_consumer_closes_is_done(any_concert: Coordinator) -> None:
    """Its acknowledgement, waiting for the end of the turn, goes out before the rest is given back."""
    for _ in range(2):
        await any_concert.enqueue("t")
    async with any_concert.consume("default") as jobs:
        job, other = await jobs.claim(2)
        acknowledging = asyncio.create_task(job.ack())
        await asyncio.sleep(0)
        assert jobs._opened is not None
        assert jobs._opened._partitions[0].worker is not None
        jobs._opened._partitions[0].worker.retire()
        await acknowledging
    ledger = await until(any_concert, lambda ledger: not ledger.claimed)
    assert ledger.ready == {"default": [other.id]}


# Workers.


async def test_jobs_with_which_two_workers_died_run_one_at_a_time(any_concert: Coordinator) -> None:
    """So that the one that kills does not take the others with it; whatever else there is runs beside them."""
    running, most, beside = 0, 0, 0
    others_have_run = asyncio.Event()

    @any_concert.task(name="suspect")
    async def suspect() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await others_have_run.wait()
        running -= 1

    @any_concert.task(name="other")
    async def other() -> None:
        nonlocal beside
        beside += running
        if beside == 3:
            others_have_run.set()

    suspects = await any_concert.enqueue_many([suspect.call() for _ in range(5)])
    await let_crash(any_concert, *suspects, count=2)
    async with in_background(any_concert.run_worker("default", concurrency=10)):
        await until(any_concert, lambda ledger: held(ledger) == 1)
        await any_concert.enqueue_many([other.call() for _ in range(3)])
        with anyio.fail_after(1.5):  # less than a sleep: the next is claimed as soon as one has ended
            await all_done(any_concert)
    assert most == 1
    assert beside == 3


async def test_job_that_cannot_run_is_set_aside_without_grace_and_the_worker_goes_on(any_concert: Coordinator) -> None:
    """An unknown task, and arguments that do not fit."""
    ran: list[int] = []

    @any_concert.task(name="known")
    async def known(number: int) -> None:
        ran.append(number)

    bad = [
        await any_concert.enqueue("unknown", [1]),
        await any_concert.enqueue("known", [1, 2]),
        await any_concert.enqueue("known", [], {"other": 1}),
    ]
    await any_concert.enqueue("known", [3])
    async with in_background(any_concert.run_worker("default", concurrency=1, unknown_task_grace=0)):
        ledger = await until(any_concert, lambda ledger: len(ledger.dead) == 3 and not ledger.ready)
        await until(any_concert, lambda ledger: len(ledger.bodies) == 3)
    assert ran == [3]
    reasons = [ledger.reasons[job.id]["reason"] for job in bad]
    assert "no task 'unknown' is registered" in reasons[0]
    assert all(reason.startswith("TypeError: the arguments do not fit task 'known'") for reason in reasons[1:])


@pytest.mark.parametrize(
    "envelope",
    [
        b"garbage", b"", b"\xff\xfe\x00", b'{"name":"t"', b'{"name":"\xff"}', b'{"name":"t","args":["\\ud800"]}',
        b"null", b"[]", b'{"args":[]}', b'{"name":"t","args":"ab"}', b'{"name":"t","kwargs":[1]}',
        b'{"name":"t","version":99}', b'{"name":"t","args":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"name":"t","args":[' + b"9" * 5000 + b"]}",
    ],
    ids=range(14),
)  # fmt: skip
async def test_unreadable_envelope_is_set_aside_and_the_worker_goes_on(
    any_concert: Coordinator, envelope: bytes
) -> None:
    """Whatever it is, its neighbours of the same claim run."""
    ran: list[int] = []

    @any_concert.task(name="t")
    async def task(number: int) -> None:
        ran.append(number)

    keys = any_concert._jobs.partitions[0]
    client: Any = raw(any_concert)
    await task.enqueue(1)
    await client.hset(keys.bodies, "bad", envelope)
    await client.rpush(keys.queue("default").queue, "bad")
    await task.enqueue(2)
    async with in_background(any_concert.run_worker("default")):
        ledger = await until(any_concert, lambda ledger: ledger.bodies == ["bad"])
    assert ran == [1, 2]
    assert ledger.dead == ["bad"]
    assert "envelope" in ledger.reasons["bad"]["reason"]


async def test_plain_function_runs_in_a_thread(any_concert: Coordinator) -> None:
    """As many at once as the worker has places, and none of them on the event loop."""
    together = threading.Barrier(60, timeout=5)
    threads: set[int] = set()

    @any_concert.task()
    def plain() -> None:
        together.wait()
        threads.add(threading.get_ident())

    for _ in range(60):
        await plain.enqueue()
    async with in_background(any_concert.run_worker("default", concurrency=60)):
        await until(any_concert, lambda ledger: not ledger.ready and not ledger.claimed)
    (await ledger_of(any_concert)).check(put=60, done=60)
    assert len(threads) == 60
    assert threading.get_ident() not in threads


async def test_plain_function_that_fails_is_tried_again(any_concert: Coordinator) -> None:
    """Like any other."""

    @any_concert.task(max_attempts=1)
    def plain() -> None:
        raise ValueError("from a thread")

    await plain.enqueue()
    async with in_background(any_concert.run_worker("default")):
        ledger = await until(any_concert, lambda ledger: ledger.dead)
    assert [reason["reason"] for reason in ledger.reasons.values()] == ["ValueError: from a thread"]


async def test_wrapper_of_a_coroutine_function_is_awaited(any_concert: Coordinator) -> None:
    """A decorator that is no coroutine function itself hides none from the worker."""
    ran: list[int] = []

    async def inner(number: int) -> None:
        await asyncio.sleep(0)
        ran.append(number)

    @any_concert.task(name="wrapped")
    def wrapped(number: int) -> Coroutine[Any, Any, None]:
        return inner(number)

    await wrapped.enqueue(1)
    async with in_background(any_concert.run_worker("default")):
        await all_done(any_concert)
    assert ran == [1]


async def test_parameters_may_have_any_names(any_concert: Coordinator) -> None:
    """Also those of our own functions."""
    ran: list[int] = []

    @any_concert.task(name="odd")
    async def odd(**values: int) -> None:
        ran.append(sum(values.values()))

    await odd.enqueue(**dict.fromkeys(("self", "name", "args", "kwargs", "queue", "function"), 1))
    async with in_background(any_concert.run_worker("default")):
        await all_done(any_concert)
    assert ran == [6]


async def test_worker_never_claims_more_than_its_free_places(any_concert: Coordinator) -> None:
    """The rest stays where others can get it, and each place that is freed takes one more."""
    gate = asyncio.Semaphore(0)
    running, most = 0, 0

    @any_concert.task(name="slow")
    async def slow() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.acquire()
        running -= 1

    for _ in range(10):
        await slow.enqueue()
    async with in_background(any_concert.run_worker("default", concurrency=3)):
        for done in range(8):
            ledger = await until(any_concert, lambda ledger: running == 3 and held(ledger) >= 3)
            assert held(ledger) == 3
            assert len(ledger.bodies) >= 10 - done
            gate.release()
            await until(any_concert, lambda ledger: len(ledger.bodies) < 10 - done)  # noqa: B023 - called at once
        for _ in range(2):
            gate.release()
        await all_done(any_concert)
    assert most == 3


async def test_cancelled_worker_gives_everything_back(any_concert: Coordinator) -> None:
    """At once, in the old order, and without counting an attempt."""

    @any_concert.task(name="endless")
    async def endless(number: int) -> None:
        await anyio.sleep_forever()

    put = [(await endless.enqueue(number)).id for number in range(20)]
    async with in_background(any_concert.run_worker("default", concurrency=15)):
        await until(any_concert, lambda ledger: len(ledger.ready.get("default", [])) == 5)
    ledger = await ledger_of(any_concert)
    assert sorted(ledger.ready["default"]) == sorted(put)
    assert ledger.ready["default"][15:] == put[15:]
    assert (ledger.claimed, ledger.failures, ledger.crashes, ledger.workers) == ({}, {}, {}, [])


# Delayed jobs.


async def test_jobs_due_at_one_instant_run_in_their_order(any_concert: Coordinator) -> None:
    """However many digits their ids have."""
    task = any_concert.task(queue="q", name="t")(len)
    jobs = await any_concert.enqueue_many([task.options(delay=3600).call([]) for _ in range(120)])
    client = raw(any_concert)
    delayed = any_concert._jobs.partitions[0].queue("q").delayed
    await client.zadd(delayed, dict.fromkeys(await client.zrange(delayed, 0, -1), 1))
    async with any_concert.consume("q", prefetch=120) as consumer:
        claimed = [await anext(consumer) for _ in jobs]
    assert [job.id for job in claimed] == [job.id for job in jobs]


async def test_delayed_job_runs_when_it_is_due_and_not_before(any_concert: Coordinator) -> None:
    """By the server's clock; one that is due earlier overtakes those that were there."""
    client: Any = raw(any_concert)
    keys = any_concert._jobs.partitions[0].queue("q")
    ran: list[tuple[int, float]] = []

    @any_concert.task(queue="q", name="t")
    async def task(number: int) -> None:
        seconds, microseconds = await client.time()
        ran.append((number, seconds * 1000 + microseconds / 1000))

    async with in_background(any_concert.run_worker("q")):
        await asleep(any_concert)
        due: dict[int, float] = {}
        for number, delay in enumerate((0.45, 0.15, 0.3)):
            job = await task.options(delay=delay).enqueue(number)
            due[number] = await client.zscore(keys.delayed, job.id)
        await all_done(any_concert)
    assert [number for number, _ in ran] == [1, 2, 0]
    for number, at in ran:
        assert due[number] <= at < due[number] + 500


async def test_job_for_an_instant_runs_then(any_concert: Coordinator) -> None:
    """In whichever time zone it is given; at once if it is over, however long ago the call was written down."""
    client: Any = raw(any_concert)
    ran: list[tuple[str, float | None]] = []

    @any_concert.task(queue="q")
    async def task(name: str) -> None:
        ran.append((name, current_job().scheduled_at))

    at = datetime.now(timezone(timedelta(hours=-7))) + timedelta(hours=2)
    job = await task.options(at=at).enqueue("later")
    due_ms = await client.zscore(any_concert._jobs.partitions[0].queue("q").delayed, job.id)
    assert abs(due_ms / 1000 - at.timestamp()) < 10
    past = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)
    await any_concert.enqueue_many([task.options(at=past).call("now")])
    await any_concert.run_worker("q", burst=True)
    assert ran == [("now", 1e9)]


async def test_due_jobs_of_an_urgent_delayed_queue_come_first(any_concert: Coordinator) -> None:
    """A queue of their own, before the ordinary one, puts delayed jobs ahead of it: `high-delayed` before `high`."""
    for number in range(3):
        await any_concert.enqueue("t", [number], queue="high")
    await any_concert.enqueue("t", ["delayed"], queue="high-delayed", delay=60)
    async with any_concert.consume("high-delayed", "high") as jobs:
        [first] = await take(jobs, 1)
        await make_due(any_concert, "high-delayed")
        await anyio.lowlevel.checkpoint()
        assert first.args == [0]
        await until(any_concert, lambda ledger: ledger.ready.get("high-delayed") or take_note(jobs))
        [second] = await take(jobs, 1)
    assert second.args == ["delayed"]


def take_note(jobs: Consumer) -> bool:
    """Let the promoter of an open consumer look now, as the claim does that a bell has caused."""
    assert jobs._opened is not None
    jobs._opened._partitions[0].promoter.recheck_in(0)
    return False


async def test_two_hundred_and_fifty_due_jobs_are_moved_in_order(any_concert: Coordinator) -> None:
    """A promoter moves a hundred at a time until no due one is left."""
    for number in range(250):
        await any_concert.enqueue("t", [number], queue="q", delay=3600 + number)
    keys = any_concert._jobs.partitions[0].queue("q")
    client: Any = raw(any_concert)
    for n, job_id in enumerate(await client.zrange(keys.delayed, 0, -1)):
        await client.zadd(keys.delayed, {job_id: n + 1})
    async with any_concert.consume("q") as jobs:
        assert [job.args[0] for job in await take(jobs, 250)] == list(range(250))


# What is refused, and what arrives.


@pytest.mark.parametrize(
    "value",
    [
        math.nan, math.inf, b"bytes", {1, 2}, {1: "a"}, object(), "\ud800", {"a": [b"deep"]}, timedelta(1), 1j,
        "x" * 2**20, range(3),
    ],
    ids=range(12),
)  # fmt: skip
async def test_what_json_cannot_hold_is_refused(any_concert: Coordinator, value: Any) -> None:
    """By name or typed, positional or named; nothing is sent."""

    @any_concert.task(name="t")
    async def task(value: object = None) -> None: ...

    with pytest.raises(InvalidPayload, match="'t'"):
        await any_concert.enqueue("t", [value])
    with pytest.raises(InvalidPayload, match="'t'"):
        await any_concert.enqueue("t", kwargs={"value": value})
    with pytest.raises(InvalidPayload, match="'t'"):
        await task.enqueue(value)
    assert (await ledger_of(any_concert)).bodies == []


async def test_endless_nesting_is_refused(any_concert: Coordinator) -> None:
    """A list in itself, and one that is only very deep."""
    itself: list[Any] = []
    itself.append(itself)
    with pytest.raises(InvalidPayload):
        await any_concert.enqueue("t", [itself])


@pytest.mark.parametrize(("args", "kwargs"), [("ab", None), ([], [1]), (b"ab", None), ([], {1: 2}), ({}, {})])
async def test_arguments_of_the_wrong_shape_are_refused(any_concert: Coordinator, args: Any, kwargs: Any) -> None:
    """Where they are enqueued, not by the worker."""
    with pytest.raises(InvalidPayload, match="'t'"):
        await any_concert.enqueue("t", args, kwargs)


async def test_bad_options_are_refused_before_anything_is_sent() -> None:
    """Also by a coordinator that is not open."""
    concert = Coordinator()

    @concert.task(name="t")
    async def task(number: int) -> None: ...

    untyped: Any = task

    def put(**options: Any) -> Coroutine[Any, Any, object]:
        given: dict[str, Any] = {"name": "t", "args": [1]} | options
        return concert.enqueue(**given)

    for delay in (-1, math.nan, math.inf, timedelta(seconds=-1), "1", True, 10**12):
        with pytest.raises(ValueError, match="delay"):
            await put(delay=delay)
        with pytest.raises(ValueError, match="delay"):
            await untyped.options(delay=delay).enqueue(1)
    for attempts in (0, -1, 2.5, "5", None, True):
        with pytest.raises(ValueError, match="max_attempts"):
            await put(max_attempts=attempts)
        with pytest.raises(ValueError, match="max_attempts"):
            concert.task(max_attempts=cast("Any", attempts))(print)
    with pytest.raises(TypeError, match="no option 'dealy'"):
        await put(dealy=1)
    with pytest.raises(TypeError, match="no option 'dealy'"):
        untyped.options(dealy=1)
    with pytest.raises(TypeError, match="do not fit task 't'"):
        await untyped.enqueue("a", "b")
    with pytest.raises(TypeError, match="do not fit task 't'"):
        await untyped.options(delay=1).enqueue(other=1)
    with pytest.raises(ValueError, match="registered already"):
        concert.task(name="t")(print)
    for closed in (task.enqueue(1), concert.run_worker("q"), concert.enqueue("t")):
        with pytest.raises(NotConnected):
            await closed


@pytest.mark.parametrize("name", ["", "x" * 513, "\ud800", None, 7, b"q"], ids=range(6))
async def test_bad_names_are_refused_before_anything_is_sent(name: Any) -> None:
    """Of tasks and of queues."""
    concert = Coordinator()
    for enqueuing in (concert.enqueue(name), concert.enqueue("t", queue=name)):
        with pytest.raises(InvalidName):
            await enqueuing
    with pytest.raises(InvalidName):
        concert.consume(name)
    with pytest.raises(InvalidName):
        await concert.run_worker("high", name)
    with pytest.raises(InvalidName):
        concert.task(queue=name)(print)


async def test_bad_numbers_of_a_consumer_are_refused() -> None:
    """And no queue, and one that is given twice."""
    concert = Coordinator()
    for queues in ((), ("a", "a")):
        with pytest.raises(ValueError, match="queues"):
            concert.consume(*queues)
    for number in (0, -1, 501, 2.5, "1", None):
        with pytest.raises(ValueError, match="prefetch"):
            concert.consume("q", prefetch=cast("Any", number))
    for number in (0, -1, 2.5, "1", None):
        with pytest.raises(ValueError, match="concurrency"):
            await concert.run_worker("q", concurrency=cast("Any", number))


ARGUMENTS: list[tuple[list[Any], dict[str, Any]]] = [
    ([2**53 + 1, -(2**63), 2**64, 10**300], {}),
    (["", "a\0b", "ä€😀", "\u2028", '"\\'], {"ключ": {"": [None, True, False, {}]}}),
    ([1e-308, 1.0, -0.0, 0.1 + 0.2], {"deep": [[[[[[{"a": [{}]}]]]]]]}),
    ([], {}),
    (["x" * 1_000_000], {}),
]


@pytest.mark.parametrize(("args", "kwargs"), ARGUMENTS, ids=range(5))
async def test_arguments_arrive_exactly(
    any_concert: Coordinator, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Integers beyond a double, any text, any depth, nothing at all, and almost a mebibyte."""
    await any_concert.enqueue("t", args, kwargs)
    async with any_concert.consume("default") as jobs:
        [job] = await take(jobs, 1)
    assert (list(job.args), dict(job.kwargs)) == (list(args), dict(kwargs))
    assert repr(list(job.args)) == repr(list(args))


@pytest.mark.parametrize("name", ["a b", "}{", "#", "1 2 3", "q\n\0q", "ü" * 256, "bodies", "%d"], ids=range(8))
async def test_queues_may_have_any_names(any_concert: Coordinator, name: str) -> None:
    """Claimed, given back by a consumer that closes, and claimed again."""
    put = [(await any_concert.enqueue("t", queue=name)).id for _ in range(3)]
    async with any_concert.consume("other", name, prefetch=3) as jobs:
        assert (await anext(jobs)).queue == name
    await until(any_concert, lambda ledger: ledger.ready == {name: put} and not ledger.claimed)


# Cost.


@pytest.mark.slow
async def test_idle_consumer_sends_less_than_two_commands_a_second(concert: Coordinator) -> None:
    """Waiting is a blocked BLPOP, a look from time to time, and the heartbeat."""

    async def sent() -> int:
        stats = await infos(concert, "commandstats")  # what scripts call is in it, so only what is sent counts
        names = [f"cmdstat_{name}" for name in ("evalsha", "eval", "blpop")]
        return sum(each.get(name, {}).get("calls", 0) for each in stats for name in names)

    async with concert.consume("high", "low") as jobs:
        with anyio.move_on_after(0.1):
            await anext(jobs)
        before = await sent()
        with anyio.move_on_after(4):
            await anext(jobs)
        assert 1 <= await sent() - before <= 8
