"""Results, cancelling and unique names while workers die, replies are lost, calls are cancelled, servers restarted."""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, Draft, JobCancelled, JobFailed, JobStatus, Progress, Unavailable, current_job
from inconcert._claims.ends import Ack
from tests.support.background import in_background
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.jobs import LEASE, STRIDES, forget_all, keys_of, lapse, let_crash, watch
from tests.support.ledger import ledger_of, until
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.scripts import scripts_run
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease

HERE = "tests.faults.test_jobs_faults"
SOON = 3.0  # seconds; less than a minute, after which whoever waits looks again anyway


async def watched(concert: Coordinator, *, count: int = 1) -> None:
    """Wait until so many jobs are waited for."""

    async def found() -> bool:
        return bool(await raw(concert).zcard(keys_of(concert).watchers) == count)

    await eventually(found)


# Workers that die.


async def run_for_ever(url: str, namespace: str) -> None:
    """In a child: run jobs that do not end, and tell of each."""
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:

        @concert.task(name="t", queue="q")
        async def task() -> None:
            tell("running")
            while True:  # it does not listen when it is cancelled
                try:
                    await anyio.sleep_forever()
                except asyncio.CancelledError:
                    tell("cancelled")

        del task
        await concert.run_worker("q")


async def test_result_comes_from_another_worker_when_the_first_is_killed(
    server: RealServer, concert: Coordinator, namespace: str, short_lease: None
) -> None:
    """Whoever waits is told when it has ended there."""
    job = await concert.enqueue("t", queue="q")
    async with spawn(f"{HERE}:run_for_ever", server.url, namespace) as child, in_background(job.result()) as result:
        await child.wait_for("running")
        await watched(concert)
        child.kill()
        async with concert.consume("q") as jobs, await anext(jobs) as claimed:
            assert (claimed.id, claimed.attempt) == (job.id, 2)
            claimed.result = "from the second"
            await claimed.ack()
        with anyio.fail_after(SOON):
            assert await result == "from the second"


async def run_killers(url: str, namespace: str) -> None:
    """In a child: run jobs of which one kills its worker."""
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:

        @concert.task(name="innocent", queue="q")
        async def innocent() -> None:
            await anyio.sleep(0.3)

        @concert.task(name="killer", queue="q")
        async def killer() -> None:
            await anyio.sleep(0.1)
            os._exit(9)

        del innocent, killer
        await concert.run_worker("q")


async def test_job_that_kills_its_workers_does_not_take_its_neighbours_along(
    server: RealServer, concert: Coordinator, namespace: str
) -> None:
    """It dies three times, the third time without those that had died with it twice."""
    names = ["innocent"] * 5 + ["killer"] + ["innocent"] * 5
    put: dict[str, list[str]] = {name: [] for name in names}
    for name in names:
        put[name].append((await concert.enqueue(name, queue="q")).id)

    async def one_is_left() -> bool:
        return (await ledger_of(concert)).bodies == put["killer"]

    for _ in range(3):
        async with spawn(f"{HERE}:run_killers", server.url, namespace) as child:
            await child.wait()
    async with spawn(f"{HERE}:run_killers", server.url, namespace):
        await eventually(one_is_left, timeout=20)
    ledger = await ledger_of(concert)
    assert ledger.dead == put["killer"]
    assert ledger.reasons[put["killer"][0]]["reason"] == "3 workers died with it"
    ledger.check(put=11, done=10)


async def test_end_that_was_refused_is_said_again(namespace: str, caplog: pytest.LogCaptureFixture) -> None:
    """With a heartbeat, for nobody else would end the job as long as its worker lives; and it has run once."""
    with RealServer() as own:
        async with with_lease(Coordinator(own.url, namespace=namespace), LEASE) as concert:
            may_end, runs = asyncio.Event(), list[int]()

            @concert.task(name="t")
            async def task(number: int) -> None:
                runs.append(number)
                await may_end.wait()
                if number:
                    raise ValueError

            jobs = await concert.enqueue_many([task.call(0), task.options(max_attempts=1).call(1)])
            async with in_background(concert.run_worker("default")):
                await eventually(lambda: len(runs) == 2)
                await raw(concert).config_set("min-replicas-to-write", 1)
                may_end.set()
                await eventually(lambda: caplog.text.count("its end was not confirmed") == 2)
                await raw(concert).config_set("min-replicas-to-write", 0)
                await jobs[0].result(timeout=SOON)
                with pytest.raises(JobFailed):
                    await jobs[1].result(timeout=SOON)
            assert sorted(runs) == [0, 1]


@pytest.mark.parametrize("how", ["stop", "burst"])
async def test_worker_returns_when_what_it_has_run_is_acknowledged(
    server: RealServer, concert: Coordinator, namespace: str, how: str
) -> None:
    """Its jobs do not wait for that, and nobody is to find one running once it has returned."""
    stop, may_end = asyncio.Event(), asyncio.Event()
    async with Proxy(server.url) as proxy, Coordinator(proxy.url, namespace=namespace) as here:

        @here.task(name="t")
        async def task() -> None:
            await may_end.wait()

        job = await task.enqueue()
        async with in_background(here.run_worker("default", stop=stop, burst=how == "burst")) as worker:
            await until_status(concert, job.id, JobStatus.RUNNING)
            if how == "stop":
                stop.set()
            proxy.hold_replies()
            may_end.set()
            await until_status(concert, job.id, JobStatus.SUCCEEDED)
            await asyncio.wait([worker], timeout=0.3)
            assert not worker.done()
            proxy.release_replies()
            with anyio.fail_after(SOON):
                await worker


async def test_worker_waits_for_no_acknowledgement_whose_time_is_over(
    server: RealServer, concert: Coordinator, namespace: str
) -> None:
    """Its reply may come still, a large one before it, and so it is under way as long as the connection is."""
    stop, began, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()
    async with Proxy(server.url) as proxy, Coordinator(proxy.url, namespace=namespace) as here:

        @here.task(name="t")
        async def task() -> None:
            began.set()
            await may_end.wait()

        job = await task.enqueue()
        async with in_background(here.run_worker("default", stop=stop)) as worker:
            await began.wait()  # the reply to its claim has come
            stop.set()
            proxy.hold_replies()
            may_end.set()
            await until_status(concert, job.id, JobStatus.SUCCEEDED)
            [ack] = [call for call in here._ref.session.channel.under_way() if isinstance(call, Ack)]
            ack.give_up("in time")  # as the channel does when a byte of another reply has just come
            assert ack in here._ref.session.channel.under_way()
            with anyio.fail_after(SOON):
                await worker
            proxy.release_replies()


async def until_status(concert: Coordinator, id_: str, status: JobStatus) -> None:
    """Wait until the job has this status."""

    async def has_it() -> bool:
        return await concert.tasks.job(id_).status() is status

    await eventually(has_it)


async def test_thousand_suspects_hide_nothing_and_cost_nothing(concert: Coordinator) -> None:
    """They go to the back of their queue as long as the worker holds one."""
    others, may_end = list[int](), asyncio.Event()

    @concert.task(name="suspect", queue="high")
    async def suspect() -> None:
        await may_end.wait()

    @concert.task(name="other")
    async def other(number: int) -> None:
        others.append(number)

    put = await concert.enqueue_many([suspect.call() for _ in range(1_600)])
    await let_crash(concert, *put, count=2)
    await other.options(queue="high").enqueue(1)
    await other.options(queue="low").enqueue(2)
    async with in_background(concert.run_worker("high", "low", concurrency=10)):
        await eventually(lambda: sorted(others) == [1, 2], timeout=20)
        before = scripts_run(await raw(concert).info("commandstats"))
        await anyio.sleep(0.5)
        assert scripts_run(await raw(concert).info("commandstats")) - before < 10


async def test_cancel_ends_when_the_worker_is_killed_that_was_to_stop(
    server: RealServer, concert: Coordinator, namespace: str, short_lease: None
) -> None:
    """Its jobs are given back, and this one ends at once: nobody need claim it, and nobody runs it again."""
    job = await concert.enqueue("t", queue="q")
    async with in_background(watch(concert)), spawn(f"{HERE}:run_for_ever", server.url, namespace) as child:
        await child.wait_for("running")
        async with in_background(job.cancel()) as cancelling, in_background(outcome(job.result())) as result:
            await child.wait_for("cancelled")
            assert not cancelling.done()
            child.kill()
            with anyio.fail_after(LEASE + SOON):
                assert await cancelling is True
                assert await result is JobCancelled
    (await ledger_of(concert)).check(put=1, done=1)


async def outcome(call: Awaitable[object]) -> object:
    """What came of it, or the class of its error."""
    try:
        return await call
    except Exception as error:  # noqa: BLE001 - it is looked at
        return type(error)


async def test_job_to_be_cancelled_is_ended_by_whoever_claims_it_next(concert: Coordinator) -> None:
    """Its worker died, and the one who cancelled it has gone."""
    job = await concert.enqueue("t", queue="q")
    async with concert.consume("q") as jobs:
        await anext(jobs)
        assert await job.cancel(timeout=0) is False
        [worker] = (await ledger_of(concert)).claimed
        await lapse(concert, worker)
    async with in_background(watch(concert)):
        await until(concert, lambda ledger: not ledger.claimed)
    assert await job.status() is JobStatus.QUEUED
    other = await concert.enqueue("t", queue="q")
    async with concert.consume("q", prefetch=2) as jobs, await anext(jobs) as claimed:
        assert claimed.id == other.id
    assert await job.status() is JobStatus.CANCELLED


async def reschedule_for_ever(url: str, namespace: str, ids: str) -> None:
    """In a child: let jobs be due now, soon or much later, again and again."""
    chance = random.Random(1)
    async with Coordinator(url, namespace=namespace) as concert:
        tell("begins")
        while True:
            job = concert.tasks.job(chance.choice(ids.split()))
            await job.reschedule(delay=chance.choice([0, 0.01, 3600, 3600, 3600, 3600]))


async def test_rescheduled_jobs_run_once_though_whoever_reschedules_is_killed(
    server: RealServer, concert: Coordinator, namespace: str
) -> None:
    """At any moment each is in one place, and those that are left can be rescheduled."""
    runs: Counter[str] = Counter()

    @concert.task(name="t", queue="q")
    async def task() -> None:
        runs[current_job().id] += 1

    jobs = await concert.enqueue_many([task.options(delay=3600).call() for _ in range(300)])
    async with in_background(concert.run_worker("q")):
        ids = " ".join(job.id for job in jobs)
        async with spawn(f"{HERE}:reschedule_for_ever", server.url, namespace, ids) as child:
            await child.wait_for("begins")
            await eventually(lambda: len(runs) > 50)
            child.kill()
        await ledger_of(concert)
        for job in jobs:
            await job.reschedule(delay=0)
            await job.result(timeout=SOON)
    assert runs == Counter(job.id for job in jobs)


# Messages that are lost.


async def test_result_arrives_though_its_message_was_lost(namespace: str) -> None:
    """Whoever waits looks when it hears again."""
    with RealServer() as own:
        async with (
            Coordinator(own.url, namespace=namespace) as concert,
            Coordinator(own.url, namespace=namespace) as worker,
            worker.consume("q") as jobs,
        ):
            for number in range(5):
                job = await concert.enqueue("t", queue="q")
                async with in_background(job.result()) as result:
                    await watched(concert)
                    claimed = await anext(jobs)
                    claimed.result = number
                    own.command("CLIENT", "KILL", "TYPE", "pubsub")  # of which they learn later than the server
                    await claimed.ack()
                    with anyio.fail_after(SOON):
                        assert await result == number


async def test_cancel_arrives_though_its_message_was_lost(namespace: str) -> None:
    """A worker asks which jobs are to be stopped when it hears again."""
    with RealServer() as own:
        async with (
            Coordinator(own.url, namespace=namespace) as concert,
            Coordinator(own.url, namespace=namespace) as worker,
        ):

            @worker.task(name="t", queue="q")
            async def task() -> None:
                await anyio.sleep_forever()

            async with in_background(worker.run_worker("q")):
                for _ in range(5):
                    job = await task.enqueue()
                    await until(concert, lambda ledger: ledger.claimed)
                    own.command("CLIENT", "KILL", "TYPE", "pubsub")
                    with anyio.fail_after(SOON):
                        assert await concert.tasks.job(job.id).cancel() is True
            (await ledger_of(concert)).check(put=5, done=5)


# What is done to many jobs.


async def _act_on_many(concert: Coordinator) -> None:
    """Promote, replay, purge and cancel all of `_many` but those that are kept."""
    tasks = concert.tasks
    await tasks.promote_all(task="delayed")
    await tasks.replay_all(reason="again")
    await tasks.purge_all(reason="never")
    await tasks.cancel_all(queue="q")
    await tasks.drain("later")


async def _many(concert: Coordinator) -> None:
    """One of each kind, of which several are in one portion: 12 jobs, of which 2 are kept."""
    for _ in range(2):
        await concert.enqueue("delayed", queue="q", delay=3600)
        await concert.enqueue("kept", queue="other", delay=3600)
        parent = await concert.enqueue("parent", queue="q", delay=3600)
        await concert.enqueue("child", queue="later", after=[parent])
    async with concert.consume("dying") as jobs:
        for error in ("again", "never"):
            for _ in range(2):
                await concert.enqueue("dead", queue="dying")
                async with await anext(jobs) as job:
                    await job.bury(ValueError(error))


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_action_on_many_does_each_job_or_not(concert: Coordinator, moment: Moment) -> None:
    """Wherever it is stopped, each job is in one place, and a second call finishes what is left."""
    number, was_under_way = 1, True
    while was_under_way:
        await _many(concert)
        was_under_way = await cancel_at(number, moment, _act_on_many(concert))
        ledger = await ledger_of(concert)
        assert ledger.everywhere() == Counter(ledger.bodies)
        await _act_on_many(concert)
        await concert.tasks.purge_all(reason="was cancelled")  # children of parents that were cancelled in between
        await concert.tasks.cancel_all(queue="dying")
        ledger = await ledger_of(concert)
        assert (list(ledger.delayed), len(ledger.bodies)) == (["other"], 2)
        await forget_all(concert)
        number += 1
    assert number > 10


# Replies that are lost.


@STRIDES
async def test_reply_lost_at_each_step_of_an_action_on_many_changes_nothing(
    proxy: Proxy, namespace: str, concert: Coordinator, stride: int
) -> None:
    """Each is sent again, and its count is right."""
    async for steps in proxy.losing_each(stride=stride, least=10, most=80):
        await _many(concert)
        async with Coordinator(proxy.url, namespace=namespace) as bad:
            proxy.cut_after_replies(steps, lose_next=True)
            assert await bad.tasks.promote_all(task="delayed") == 2
            assert await bad.tasks.replay_all(reason="again") == 2
            assert await bad.tasks.purge_all(reason="never") == 2
            assert await bad.tasks.cancel_all(queue="q") == 4
            assert await bad.tasks.replay_all(reason="was cancelled") == 2
            assert await bad.tasks.drain("later") == 2
            assert await bad.tasks.drain("dying") == 2
        ledger = await ledger_of(concert)
        assert (list(ledger.delayed), len(ledger.bodies)) == (["other"], 2)
        await forget_all(concert)


@STRIDES
async def test_reply_lost_at_each_step_changes_nothing(
    proxy: Proxy, namespace: str, concert: Coordinator, stride: int
) -> None:
    """Enqueue with a name, look, wait, reschedule, cancel, replay, purge: each is sent again, and acts once."""
    async for steps in proxy.losing_each(stride=stride, least=20, most=80):
        async with Coordinator(proxy.url, namespace=namespace) as bad:

            @bad.task(name="t")
            async def task(number: int) -> None: ...

            proxy.cut_after_replies(steps, lose_next=True)
            named = task.options(unique="name", queue="q")
            drafts = [named.call(1), named.call(2), task.options(queue="q", delay=3600).call(3)]
            first, duplicate, delayed = await bad.enqueue_many(drafts)
            assert (first.created, duplicate.created, duplicate.id) == (True, False, first.id)
            dying = await bad.enqueue("t", queue="q", max_attempts=1)
            assert await delayed.reschedule(delay=1800) is True
            assert await delayed.cancel() is True
            async with concert.consume("q") as jobs:
                async with await anext(jobs) as claimed:
                    assert await first.status() is JobStatus.RUNNING
                    await claimed.progress(0.5)
                    assert await first.progress() == Progress(0.5)
                    async with in_background(bad.tasks.job(first.id).result()) as result:
                        await watched(concert)
                        claimed.result = 7
                        await claimed.ack()
                        assert await result == 7
                async with await anext(jobs):
                    raise ValueError
                assert [dead.id for dead in await bad.tasks.dead()] == [dying.id]
                await bad.tasks.replay(dying.id)
                await (await anext(jobs)).nack()
                await bad.tasks.purge(dying.id)
                again = await bad.enqueue("t", queue="q", unique="name")
                assert again.created
                async with await anext(jobs) as claimed:
                    assert await again.cancel(timeout=0) is False
                    await anyio.sleep_forever()
                assert await again.cancel() is True
            await bad.tasks.pause("q")
            assert (await bad.tasks.stats("q")).queues["q"].is_paused
            await bad.tasks.resume("q")
        (await ledger_of(concert)).check(put=4, done=4)
        await forget_all(concert)


# Cancellation.


@pytest.mark.parametrize("moment", MOMENTS)
async def test_call_that_is_cancelled_at_any_await_leaves_nothing_behind(concert: Coordinator, moment: Moment) -> None:
    """Nobody is left in the list of those who wait; what was done is done, and what was not is not."""

    @concert.task(name="short", queue="q")
    async def short() -> None:
        await current_job().progress(0.5)

    @concert.task(name="endless", queue="q")
    async def endless() -> None:
        await anyio.sleep_forever()

    async def wait() -> None:
        job = await short.enqueue()
        await job.result()

    async def cancel() -> None:
        job = await endless.enqueue()
        while await job.status() is not JobStatus.RUNNING:
            await asyncio.sleep(0)
        await job.cancel()

    async def reschedule() -> None:
        job = await short.options(delay=3600).enqueue()
        await job.reschedule(delay=1800)
        await job.reschedule(delay=0)
        await job.result()

    async with in_background(concert.run_worker("q")):
        await at_any_await(concert, moment, wait)
        await at_any_await(concert, moment, cancel)
        await at_any_await(concert, moment, reschedule)


async def at_any_await(concert: Coordinator, moment: Moment, use: Callable[[], Any]) -> None:
    """Cancel it everywhere."""
    number = 1
    while await cancel_at(number, moment, use()):
        for id_ in (await ledger_of(concert)).bodies:
            with anyio.fail_after(SOON):
                assert await concert.tasks.job(id_).cancel() is True
        await watched(concert, count=0)
        ledger = await ledger_of(concert)
        assert (ledger.bodies, ledger.failures, ledger.crashes, ledger.states) == ([], {}, {}, {})
        number += 1
    assert number > 3


@pytest.mark.parametrize("moment", MOMENTS)
async def test_enqueue_many_that_is_cancelled_adds_all_or_nothing_of_a_portion(
    concert: Coordinator, moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And never the second before the first."""
    monkeypatch.setattr("inconcert.tasks.sending.enqueue._MOST_AT_ONCE", 10)

    @concert.task(name="t", queue="q")
    async def task(number: int) -> None: ...

    def drafts() -> list[Draft[Any]]:
        return [task.call(number) for number in range(25)]

    number, found = 1, set[int]()
    while await cancel_at(number, moment, concert.enqueue_many(drafts())):
        await concert.tasks.stats("q")  # on the same connection, so later
        ledger = await ledger_of(concert)
        found.add(len(ledger.bodies))
        assert {queue: sorted(ids) for queue, ids in ledger.ready.items()} == (
            {"q": sorted(ledger.bodies)} if ledger.bodies else {}
        )
        await forget_all(concert)
        number += 1
    assert found <= {0, 10, 20, 25}
    assert len(found) > 1


# Servers that fail.


async def test_what_became_of_jobs_outlasts_a_server_that_was_killed(namespace: str) -> None:
    """Its append-only file has results, unique names, and who is to be stopped; whoever waits goes on waiting."""
    with RealServer(appendonly="yes", appendfsync="always") as own:
        async with Coordinator(own.tcp_url, namespace=namespace) as concert:
            done, stopped, waits = [await concert.enqueue("t", queue="q", unique=f"{number}") for number in range(3)]
            async with concert.consume("q") as jobs:
                async with await anext(jobs) as job:
                    job.result = 7
                claimed = await anext(jobs)
                assert await stopped.cancel(timeout=0) is False
                async with in_background(waits.result()) as result, in_background(stopped.cancel()) as cancelling:
                    await watched(concert, count=2)
                    own.kill()
                    own.start()
                    with anyio.fail_after(2 * SOON):
                        assert await done.result() == 7
                        assert not (await concert.enqueue("t", queue="q", unique="2")).created
                        async with claimed:
                            await anyio.sleep_forever()
                        assert await cancelling is True
                        async with await anext(jobs) as job:
                            job.result = 8
                        assert await result == 8
            (await ledger_of(concert)).check(put=3, done=3)


async def test_full_server_lets_jobs_be_cancelled_and_waited_for(namespace: str) -> None:
    """Whoever empties it needs that."""
    with RealServer() as own:
        async with Coordinator(own.tcp_url, namespace=namespace) as concert:
            queued, delayed, running, ends = [
                await concert.enqueue("t", queue=queue, delay=delay)
                for queue, delay in (("other", 0), ("q", 3600), ("q", 0), ("q", 0))
            ]
            async with concert.consume("q") as jobs:
                first, last = await jobs.claim(1), await jobs.claim(1)
                own.command("CONFIG", "SET", "maxmemory", 1)
                with pytest.raises(Unavailable, match="OOM"):
                    await concert.enqueue("t", queue="q")
                assert await queued.cancel() is True
                assert await delayed.reschedule(delay=1800) is True
                assert await delayed.cancel() is True
                assert await running.cancel(timeout=0) is False
                async with first[0]:
                    await anyio.sleep_forever()
                async with in_background(ends.result()) as result:
                    await watched(concert)
                    last[0].result = 7
                    await last[0].ack()
                    with anyio.fail_after(SOON):
                        assert await result == 7
            own.command("CONFIG", "SET", "maxmemory", 0)
            (await ledger_of(concert)).check(put=4, done=4)


# Everything at once.


@pytest.mark.parametrize("seed", range(3))
async def test_cancelled_jobs_never_begin_afterwards_whatever_else_happens(namespace: str, seed: int) -> None:
    """Delays, failures, names, cancels at any moment, and connections that are killed: each job ends, as it says."""
    chance = random.Random(seed)
    began: list[str] = []
    stopped: set[str] = set()  # those for which `cancel` has returned
    late: list[str] = []
    with RealServer() as own:
        async with (
            Coordinator(own.url, namespace=namespace) as concert,
            Coordinator(own.url, namespace=namespace) as here,
            Coordinator(own.url, namespace=namespace) as elsewhere,
        ):
            for worker in (here, elsewhere):

                @worker.task(name="t", backoff=lambda failures: 0.01 * failures, max_attempts=3)
                async def task(seconds: float, fails: bool) -> int:
                    job = current_job()
                    began.append(job.id)
                    late.extend([job.id] if job.id in stopped else [])
                    await asyncio.sleep(seconds)
                    if fails:
                        raise ValueError("as it was told")
                    return 7

                del task

            async def live(number: int) -> tuple[JobStatus, object]:
                await asyncio.sleep(chance.random() / 2)
                job = await concert.enqueue(
                    "t",
                    [chance.random() / 20, chance.random() < 0.3],
                    max_attempts=3,
                    delay=chance.choice([0, 0, 0.05]),
                    unique=f"{number % 50}" if number % 3 == 0 else None,
                )
                result = asyncio.create_task(outcome(job.result()))
                if chance.random() < 0.6:
                    await asyncio.sleep(chance.random() / 20)
                    assert await job.cancel() is True
                    stopped.add(job.id)
                return await job.status() if job.id in stopped else JobStatus.UNKNOWN, await result

            async with (
                in_background(here.run_worker("default", concurrency=5)),
                in_background(elsewhere.run_worker("default", concurrency=5)),
            ):
                await until(concert, lambda ledger: len(ledger.workers) == 2)
                lives = [asyncio.create_task(live(number)) for number in range(300)]
                for _ in range(6):
                    await asyncio.sleep(0.1)
                    own.command("CLIENT", "KILL", "TYPE", chance.choice(["normal", "pubsub"]))
                with anyio.fail_after(10):
                    ends = await asyncio.gather(*lives)
            ledger = await ledger_of(concert)
    assert late == []
    expected = {JobStatus.SUCCEEDED: 7, JobStatus.CANCELLED: JobCancelled, JobStatus.FAILED: JobFailed}
    for status, result in ends:
        assert result == expected.get(status, result)
        assert result in expected.values()
    assert sorted(ledger.bodies) == sorted(ledger.dead)
    assert (ledger.states, ledger.ready, ledger.delayed, ledger.claimed) == ({}, {}, {}, {})


# Many.


async def work_and_record(url: str, namespace: str, file: str) -> None:
    """In a child: run jobs, each of which leaves a line before it is acknowledged."""
    lines = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:

        @concert.task(name="t", queue="q")
        async def task(number: int) -> None:
            os.write(lines, b"%d\n" % number)
            await asyncio.sleep(0)

        tell("ready")
        await concert.run_worker("q", concurrency=100)


@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.torture)])
async def test_many_jobs_survive_a_killed_worker(
    server: RealServer, concert: Coordinator, namespace: str, tmp_path: Path, count: int
) -> None:
    """Every one ends, and only those that the dead worker had in hand run twice."""
    files = [tmp_path / f"worker{number}" for number in range(2)]

    @concert.task(name="t", queue="q", result_ttl=0)
    async def task(number: int) -> None: ...

    async with (
        spawn(f"{HERE}:work_and_record", server.url, namespace, str(files[0])) as killed,
        spawn(f"{HERE}:work_and_record", server.url, namespace, str(files[1])) as other,
    ):
        for child in (killed, other):
            await child.wait_for("ready")
        enqueuing = asyncio.create_task(concert.enqueue_many([task.call(number) for number in range(count)]))
        await eventually(lambda: files[0].exists() and files[0].stat().st_size > count // 2, timeout=20)
        killed.kill()
        jobs = await enqueuing
        last = concert.tasks.job(jobs[-1].id)

        async def all_ended() -> bool:
            return not await raw(concert).exists(keys_of(concert).bodies)

        await eventually(all_ended, timeout=40)
        assert await last.status() is JobStatus.UNKNOWN  # it has ended, and its result is not kept
    runs = Counter(int(line) for file in files for line in file.read_bytes().split())
    (await ledger_of(concert)).check(put=count, done=count)
    assert sorted(runs) == list(range(count))
    assert sum(times - 1 for times in runs.values()) <= 100
