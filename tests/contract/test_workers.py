"""Who runs jobs: consumers of a queue, and the list of workers."""

import asyncio
import os
import socket
from typing import Any

from inconcert import Coordinator, WorkerStatus
from inconcert.tasks.running.workers import describe
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.ledger import ledger_of
from tests.support.raw import raw
from tests.support.short_lease import with_lease

DEAD_AT = 1  # a lease's end that has passed long ago


async def only(concert: Coordinator) -> WorkerStatus:
    """The one worker."""
    [worker] = await concert.tasks.workers()
    return worker


async def serving(concert: Coordinator, queue: str) -> int:
    """How many consumers serve this queue."""
    return (await concert.tasks.stats(queue)).queues[queue].consumers


async def kill_workers(concert: Coordinator) -> None:
    """Let the heartbeats of all workers lapse."""
    client: Any = raw(concert)
    for keys in concert._jobs.partitions:
        for key in (keys.workers, keys.alive):
            for worker in await client.zrange(key, 0, -1):
                await client.zadd(key, {worker: DEAD_AT})


async def test_worker_tells_where_it_is_and_what_it_serves(any_concert: Coordinator) -> None:
    """From its first heartbeat on, and until it has ended."""
    assert await any_concert.tasks.workers() == []
    async with in_background(any_concert.run_worker("high", "low", concurrency=7)):
        await eventually(any_concert.tasks.workers)
        worker = await only(any_concert)
        seconds, _ = await raw(any_concert).time()
        assert worker.id.startswith(f"{any_concert._ref.session.id}.")
        assert (worker.host, worker.pid) == (socket.gethostname(), os.getpid())
        assert (worker.queues, worker.capacity, worker.running) == (("high", "low"), 7, ())
        assert worker.is_alive
        assert worker.heard_at is not None
        assert abs(worker.heard_at - seconds) < 60
    assert await any_concert.tasks.workers() == []


async def test_worker_shows_what_it_runs_and_since_when(any_concert: Coordinator) -> None:
    """With the task's name, also that of a job whose arguments are large or that is signed by others."""
    gate, started = asyncio.Event(), asyncio.Event()

    @any_concert.task(name='re"port\n', queue="low")
    async def report(text: str) -> None:
        started.set()
        await gate.wait()

    job = await report.enqueue("x" * 100_000)
    seconds, _ = await raw(any_concert).time()
    async with in_background(any_concert.run_worker("low")):
        await started.wait()
        [running] = (await only(any_concert)).running
        gate.set()
        assert (running.id, running.task, running.queue, running.attempt) == (job.id, 're"port\n', "low", 1)
        assert abs(running.claimed_at - seconds) < 60

        async def is_done() -> bool:
            return not (await only(any_concert)).running

        await eventually(is_done)


async def test_job_that_cannot_be_read_runs_by_no_name(any_concert: Coordinator) -> None:
    """As in the list of the dead."""
    keys = any_concert._jobs.partitions[0]
    async with any_concert.consume("q") as jobs:
        await any_concert.enqueue("t", queue="q")
        [job] = await jobs.claim(1)
        await raw(any_concert).hset(keys.bodies, job.id, "no envelope")
        assert [running.task for running in (await only(any_concert)).running] == ["?"]


async def test_stats_count_who_serves_a_queue(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Each consumer that is alive once; a queue that holds jobs and has none is unserved."""
    for queue, options in {"mail": {}, "later": {"delay": 60.0}}.items():
        await any_concert.enqueue("t", queue=queue, **options)  # type: ignore[arg-type]
    await any_concert.enqueue("t", queue="after", after=[await any_concert.enqueue("t", queue="later", delay=60)])
    stats = await any_concert.tasks.stats("empty", "mail", "later", "after")
    assert stats.unserved == ("mail", "later", "after")
    async with any_concert.consume("mail", "empty") as here, elsewhere.consume("mail") as there:
        await here.try_claim(1)
        await there.try_claim(1)
        stats = await any_concert.tasks.stats("empty", "mail", "later", "after")
        assert {name: queue.consumers for name, queue in stats.queues.items()} == {
            "empty": 1,
            "mail": 2,
            "later": 0,
            "after": 0,
        }
        assert stats.unserved == ("later", "after")
        await kill_workers(any_concert)
        assert await serving(any_concert, "empty") == 0
    assert await serving(any_concert, "mail") == 0


async def test_dead_worker_is_shown_until_it_is_recovered(any_concert: Coordinator) -> None:
    """With what it held; also when nothing says any more where it was."""
    keys, client = any_concert._jobs.partitions[0], raw(any_concert)
    put = await any_concert.enqueue("t", queue="q")
    async with any_concert.consume("other") as jobs:
        await jobs.try_claim(1)  # so that the clock of leases runs
    await client.delete(keys.queue("q").queue)
    await client.hset(keys.claimed("dead.11"), put.id, "1001 2 5000 q")
    await client.zadd(keys.workers, {"dead.11": DEAD_AT})
    await client.hset(keys.described, "dead.11", b"4000 " + describe("dead.1", ["q"], None))
    await client.pexpire(keys.described, 60_000)
    dead = await only(any_concert)
    assert (dead.id, dead.is_alive, dead.heard_at, dead.queues) == ("dead.1", False, 4.0, ("q",))
    [held] = dead.running
    assert (held.id, held.task, held.queue, held.attempt, held.claimed_at) == (put.id, "t", "q", 2, 5.0)
    await client.delete(keys.described)
    lost = await only(any_concert)
    assert (lost.id, lost.host, lost.pid, lost.heard_at, lost.queues) == ("dead.11", None, None, None, ())
    assert lost.running == (held,)
    async with in_background(any_concert.run_worker("other")):

        async def is_recovered() -> bool:
            return [worker.queues for worker in await any_concert.tasks.workers()] == [("other",)]

        await eventually(is_recovered)
    assert not (await ledger_of(any_concert)).claimed


async def test_forgotten_worker_is_known_again_with_its_next_heartbeat(concert: Coordinator) -> None:
    """Such as after its description was evicted; and what is dead and held nothing is forgotten."""
    keys, client = concert._jobs.partitions[0], raw(concert)
    async with in_background(with_lease(concert, 0.5).run_worker("q")):
        await eventually(concert.tasks.workers)
        await client.delete(keys.described)
        await client.hset(keys.described, "dead.11", b"4000 " + describe("dead.1", ["q"], None))
        await client.zadd(keys.alive, {"dead.11": DEAD_AT})

        async def is_known() -> bool:
            return [worker.is_alive for worker in await concert.tasks.workers()] == [True]

        await eventually(is_known)


async def test_workers_are_listed_some_at_a_time(any_concert: Coordinator) -> None:
    """Hundreds of them, with more jobs than one reply has."""
    keys, client = any_concert._jobs.partitions[0], raw(any_concert)
    pipeline = client.pipeline(transaction=False)
    for number in range(250):
        worker = f"session.{number}"
        pipeline.zadd(keys.alive, {worker: 2e15})
        pipeline.hset(keys.described, worker, b"4000 " + describe(worker, ["q"], 10))
        for job in (f"{number}.{place}" for place in range(10)):
            pipeline.hset(keys.claimed(worker), job, "1001 1 5000 q")
            pipeline.hset(keys.bodies, job, '4000 {"name":"t","args":["' + "x" * 2000 + '"]}')
    pipeline.pexpire(keys.described, 60_000)
    await pipeline.execute()
    workers = await any_concert.tasks.workers()
    assert len({worker.id for worker in workers}) == 250
    jobs = [job for worker in workers for job in worker.running]
    assert {job.task for job in jobs} == {"t"}
    assert len({job.id for job in jobs}) == 2500
    assert (await any_concert.tasks.stats("q")).queues["q"].consumers == 250
