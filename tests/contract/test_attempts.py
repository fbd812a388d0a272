"""Each attempt of a job that failed is noted, with its error, until the job or what is kept of its end is gone."""

import os
import socket
import time
from datetime import timedelta
from typing import Any

import anyio
import pytest

from inconcert import (
    Coordinator,
    FailedAttempt,
    Job,
    JobStatus,
    Limit,
    Snooze,
    SyncProducer,
    Task,
    current_job,
    durable,
)
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.jobs import facts, keys_of, lapse_all, let_expire, make_due
from tests.support.ledger import ledger_of, until
from tests.support.raw import raw
from tests.support.servers import RealServer


def register(concert: Coordinator, *, max_attempts: int = 3, result_ttl: float = 60.0) -> Task[[int], Any]:
    """A task whose jobs fail so many times."""

    @concert.task(name="fails", backoff=lambda _: 0.0, max_attempts=max_attempts, result_ttl=result_ttl)
    async def fails(count: int) -> int:
        if current_job().attempt <= count:
            raise ValueError(f"no, said {current_job().attempt} of “{count}”\n\\")
        return count

    return fails


async def run(concert: Coordinator) -> None:
    """Run all that can run, until nothing is left that is due."""
    await concert.run_worker("default", burst=True)
    while (await ledger_of(concert)).delayed:
        await make_due(concert, "default")
        await concert.run_worker("default", burst=True)


async def stored(concert: Coordinator) -> set[str]:
    """Ids of the jobs of which the server has attempts, wherever; of those that have ended with `:` before it."""
    found: set[str] = set()
    for keys in concert._jobs.partitions:
        found |= {id_.decode() for id_ in await raw(concert).hkeys(keys.failed_attempts)}
        start = keys.kept_attempts([""])[0]
        found |= {f":{key.decode().removeprefix(start)}" async for key in raw(concert).scan_iter(match=f"{start}*")}
    return found


def numbers(attempts: list[FailedAttempt]) -> list[int]:
    """Which attempts these are."""
    return [each.number for each in attempts]


async def test_attempt_that_failed_has_its_error_its_times_and_its_worker(any_concert: Coordinator) -> None:
    """Also once another one has succeeded."""
    fails = register(any_concert)
    before = time.time()
    job = await fails.enqueue(2)
    assert await job.attempts() == []
    workers: list[str] = []

    @any_concert.task(name="look")
    async def look() -> None:
        workers.extend(worker.id for worker in await any_concert.tasks.workers())

    await look.enqueue()
    await run(any_concert)
    assert await job.result(timeout=0) == 2
    first, second = await job.attempts()
    assert [first.number, second.number] == [1, 2]
    assert first.error == "ValueError: no, said 1 of “2”\n\\"
    assert (first.failure, first.host, first.pid) == ("error", socket.gethostname(), os.getpid())
    assert workers
    assert first.worker in workers
    assert before - 1 <= first.began_at <= first.ended_at <= second.began_at <= second.ended_at <= time.time() + 1
    assert first.traceback.startswith("Traceback (most recent call last):")
    assert first.traceback.endswith("ValueError: no, said 1 of “2”\n\\\n")
    assert await any_concert.tasks.job(job.id).attempts() == [first, second]


async def test_dead_job_shows_its_attempts_until_it_is_purged(any_concert: Coordinator) -> None:
    """If it is replayed, they stay, and the numbers begin again."""
    job = await register(any_concert).enqueue(9)
    await run(any_concert)
    assert numbers(await job.attempts()) == [1, 2, 3]
    assert (await job.attempts())[-1].error == (await any_concert.tasks.dead())[0].error
    await any_concert.tasks.replay(job.id)
    assert numbers(await job.attempts()) == [1, 2, 3]
    await run(any_concert)
    assert numbers(await job.attempts()) == [1, 2, 3, 1, 2, 3]
    assert await stored(any_concert) == {job.id}
    assert await any_concert.tasks.purge_all() == 1
    assert await job.attempts() == []
    assert await stored(any_concert) == set()


async def test_attempts_have_the_life_of_the_result(any_concert: Coordinator) -> None:
    """Of jobs that succeeded, in whatever company, and of a task that keeps no results."""
    fails = register(any_concert)
    plain = await fails.enqueue(0)
    kept = [await fails.options(result_ttl=60).enqueue(1) for _ in range(3)]
    gone = await fails.options(result_ttl=0).enqueue(1)
    limited = await any_concert.task(name="limited", limit=Limit(1), backoff=lambda _: 0.0)(fails.function).enqueue(1)
    await run(any_concert)
    assert await job_statuses(plain, *kept, limited) == {JobStatus.SUCCEEDED}
    assert await stored(any_concert) == {f":{job.id}" for job in (*kept, limited)}
    assert await gone.attempts() == []
    client: Any = raw(any_concert)
    for job in kept:
        keys = any_concert._jobs.of_id(job.id)
        lives = await client.pttl(keys.result(job.id)), await client.pttl(keys.kept_attempts([job.id])[0])
        assert 0 < lives[0] <= lives[1] + 1000 <= 61_000
        await client.delete(keys.result(job.id))
        assert numbers(await job.attempts()) == [1]


async def job_statuses(*jobs: Job[Any]) -> set[JobStatus]:
    """Their states."""
    return {await job.status() for job in jobs}


async def test_nothing_is_left_when_results_have_expired(concert: Coordinator) -> None:
    """Of many jobs that failed first, and then succeeded, died or were cancelled, by whatever script."""
    fails = register(concert, result_ttl=0.05, max_attempts=2)

    @concert.task(name="follows", backoff=lambda _: 0.0, result_ttl=0.05)
    async def follows() -> None:
        current_job().enqueue_on_success(fails.call(1))
        if current_job().attempt == 1:
            raise ValueError

    jobs: list[Job[Any]] = await concert.enqueue_many([fails.call(number % 3) for number in range(120)])
    jobs += [await fails.options(unique=f"{number}").enqueue(1) for number in range(20)]
    jobs += [await follows.enqueue() for _ in range(20)]
    await run(concert)
    assert len(await concert.tasks.dead()) == 40
    await concert.tasks.purge_all()
    client: Any = raw(concert)

    async def is_nothing_left() -> bool:
        return not await stored(concert)

    await eventually(is_nothing_left)
    assert await facts(concert) == {}
    assert not await client.exists(keys_of(concert).failed_attempts)


@pytest.mark.parametrize("where", ["delayed", "running"])
async def test_cancelled_job_has_its_attempts_as_long_as_that_is_known(concert: Coordinator, where: str) -> None:
    """Between two of them, and in one."""

    @concert.task(name="fails", backoff=lambda _: 60.0 if where == "delayed" else 0.0)
    async def fails() -> None:
        if where == "running" and current_job().attempt == 2:
            await durable.sleep("long", timedelta(seconds=0))
            raise Snooze(3600)
        raise ValueError(where)

    job = await fails.enqueue()
    async with in_background(concert.run_worker("default")):
        await until(concert, lambda ledger: job.id in ledger.failures and ledger.delayed)
        assert await job.cancel(timeout=10)
    assert await job.status() is JobStatus.CANCELLED
    assert [each.error for each in await job.attempts()] == [f"ValueError: {where}"]
    assert await stored(concert) == {f":{job.id}"}
    keys = concert._jobs.of_id(job.id)
    client: Any = raw(concert)
    assert 0 < await client.pttl(keys.kept_attempts([job.id])[0]) <= await client.pttl(keys.result(job.id)) + 1000


async def test_attempt_whose_worker_died_is_noted_by_the_one_that_finds_it(concert: Coordinator) -> None:
    """Until the last one."""
    job = await register(concert).options(max_crashes=2).enqueue(0)
    for count in (1, 2):
        async with concert.consume("default") as jobs:
            await anext(jobs)
            await lapse_all(concert)
            async with concert.consume("default"):
                await until(concert, lambda ledger, count=count: ledger.crashes == {job.id: count})  # type: ignore[misc]
    await until(concert, lambda ledger: ledger.dead == [job.id])
    attempts = await job.attempts()
    assert [(each.number, each.failure, each.error) for each in attempts] == [
        (1, "worker_died", ""),
        (2, "worker_died", ""),
    ]
    assert {(each.host, each.pid) for each in attempts} == {(socket.gethostname(), os.getpid())}


async def test_process_that_ends_with_the_job_is_noted_as_a_worker_that_died(any_concert: Coordinator) -> None:
    """It ended because of the job, or not."""
    job = await register(any_concert).enqueue(0)
    with pytest.raises(KeyboardInterrupt):
        async with any_concert.consume("default") as jobs, await anext(jobs):
            raise KeyboardInterrupt
    await run(any_concert)
    assert [(each.number, each.failure) for each in await job.attempts()] == [(1, "worker_died")]
    assert await job.result(timeout=0) == 0


async def test_process_that_ends_with_the_last_crash_of_the_job_leaves_its_error(any_concert: Coordinator) -> None:
    """As its dead letter has it."""
    job = await register(any_concert).options(max_crashes=1).enqueue(0)
    with pytest.raises(KeyboardInterrupt):
        async with any_concert.consume("default") as jobs, await anext(jobs):
            raise KeyboardInterrupt
    [attempt] = await job.attempts()
    assert (attempt.failure, attempt.error) == ("error", "KeyboardInterrupt")
    assert [dead.error for dead in await any_concert.tasks.dead()] == ["KeyboardInterrupt"]


@pytest.mark.parametrize("how", ["snooze", "back", "wait", "retire", "expired in the queue"])
async def test_what_is_no_attempt_is_not_noted(concert: Coordinator, how: str) -> None:
    """Nor does the job get a flag."""

    @concert.task(name="waits")
    async def waits() -> None:
        if how == "snooze":
            raise Snooze(3600)
        await durable.sleep("long", timedelta(hours=1))

    job = await waits.options(expires=60).enqueue()
    if how in ("back", "retire"):
        async with concert.consume("default") as jobs:
            claimed = await anext(jobs)
            if how == "back":
                await claimed.give_back()
    elif how == "expired in the queue":
        await concert.tasks.pause("default")
        await let_expire(concert, job)
        async with in_background(concert.run_worker("default", unknown_task_grace=0)):
            await until(concert, lambda ledger: ledger.dead)
    else:
        async with in_background(concert.run_worker("default")):
            await until(concert, lambda ledger: ledger.delayed)
    assert await job.attempts() == []
    assert await stored(concert) == set()
    assert not any("a" in flags for flags in (await ledger_of(concert)).flagged.values())


async def test_time_limit_deadline_and_a_body_that_is_undone_are_noted(concert: Coordinator) -> None:
    """With the errors that others raise, and with those of undoing."""

    @concert.task(name="slow", max_attempts=1, time_limit=0.02)
    async def slow() -> None:
        await anyio.sleep_forever()

    @concert.task(name="undone", max_attempts=2, backoff=lambda _: 0.0)
    async def undone() -> None:
        async with durable.undo() as undo:
            undo.later("refund", refund)
            raise ValueError("no")

    tries: list[int] = []

    async def refund() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("the bank is closed")

    late, taken = await slow.enqueue(), await undone.enqueue()
    await run(concert)
    [ran] = await late.attempts()
    assert ran.error.startswith("TimeoutError: task 'slow' ran longer than 0.02 s")
    attempts = await taken.attempts()
    assert [(each.number, each.error.partition(":")[0]) for each in attempts] == [
        (1, "ValueError"),
        (2, "ValueError"),
        (1, "OSError"),
    ]


async def test_latest_are_kept_within_a_bound(any_concert: Coordinator) -> None:
    """Twenty, and fewer of those with long errors; each traceback is cut between characters."""

    @any_concert.task(name="long", max_attempts=30, backoff=lambda _: 0.0)
    async def long(text: str) -> None:
        raise ValueError(text)

    @any_concert.task(name="deep", max_attempts=1)
    async def deep(depth: int) -> None:
        def fall(left: int) -> None:
            if left == 0:
                raise ValueError("ä€😀" * 1000)
            fall(left - 1)

        fall(depth)

    short, wide, low = await long.enqueue("x"), await long.enqueue("\x01" * 900), await deep.enqueue(20)
    await run(any_concert)
    assert numbers(await short.attempts()) == [*range(11, 31)]
    found = await wide.attempts()
    assert 1 < len(found) < 20
    assert found[-1].number == 30
    assert found[0].error == "ValueError: " + "\x01" * 900
    [fell] = await low.attempts()
    assert 1990 < len(fell.traceback.encode()) <= 2000
    for lines in (await raw(any_concert).hgetall(keys_of(any_concert).failed_attempts)).values():
        assert len(lines) <= 32 * 1024


async def test_line_that_is_not_ours_is_left_out(any_concert: Coordinator) -> None:
    """And the others are read."""
    job = await register(any_concert).enqueue(9)
    await run(any_concert)
    keys = any_concert._jobs.of_id(job.id)
    lines = await raw(any_concert).hget(keys.failed_attempts, job.id)
    ours = lines.splitlines()[0]
    strange = [b"", b"[]", b"\xff", b"7", ours.replace(b'"error"', b'"other"'), ours.replace(b'["1"', b'["one"')]
    strange.append(ours.replace(b'"error","', b'"error","' + b"9" * 400))  # no float is so large
    await raw(any_concert).hset(keys.failed_attempts, job.id, b"\n".join([*strange, lines]))
    assert numbers(await job.attempts()) == [1, 2, 3]


async def test_attempts_lie_in_the_partition_of_the_job(server: RealServer, namespace: str) -> None:
    """A producer without a loop reads them, too."""
    async with Coordinator(server.url, namespace=namespace, partitions=3) as spread:
        fails = register(spread)
        jobs = await spread.enqueue_many([fails.call(1) for _ in range(20)])
        await run(spread)
        for job in jobs:
            assert numbers(await job.attempts()) == [1]

    def read() -> list[int]:
        with SyncProducer(server.url, namespace=namespace, partitions=3) as producer:
            return numbers(producer.attempts(jobs[0].id))

    assert await anyio.to_thread.run_sync(read) == [1]


async def test_job_that_never_failed_is_ended_by_the_plain_script(any_concert: Coordinator) -> None:
    """And no key of attempts is made."""
    fails = register(any_concert)
    await fails.enqueue(0)
    await run(any_concert)
    assert await stored(any_concert) == set()
