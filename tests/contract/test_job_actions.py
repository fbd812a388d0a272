"""What is done to many jobs at once: cancelled, promoted, replayed, purged, drained."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from inconcert import (
    Coordinator,
    InvalidName,
    Job,
    JobCancelled,
    JobFailed,
    JobStatus,
    NotConnected,
)
from inconcert.tasks.following import cancellation
from inconcert.tasks.operating import job_pages, queue_stats
from inconcert.tasks.records.store import JobKeys
from tests.support.background import in_background
from tests.support.clusters import RealCluster
from tests.support.durable import kept, pile_up_steps
from tests.support.eventually import eventually
from tests.support.ledger import ledger_of, until
from tests.support.raw import client_of, raw
from tests.support.servers import RealServer

HOUR = 3600.0
SOON = 1.5  # seconds; the shortest sleep of an idle consumer is 2 s


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three jobs at once, so that a few take several scripts."""
    monkeypatch.setattr(job_pages, "_MOST_AT_ONCE", 3)


async def put(concert: Coordinator, count: int, name: str = "t", **options: Any) -> list[Job[Any]]:
    """Some jobs; in queue `q`, unless it is said."""
    options.setdefault("queue", "q")
    return [await concert.enqueue(name, [number], **options) for number in range(count)]


async def bury(concert: Coordinator, count: int, error: Exception, name: str = "t", queue: str = "q") -> list[Job[Any]]:
    """Some jobs that were dead-lettered."""
    jobs = await put(concert, count, name, queue=queue)
    async with concert.consume(queue) as consumer:
        for _ in jobs:
            async with await anext(consumer) as job:
                await job.bury(error)
    return jobs


async def statuses(jobs: Sequence[Job[Any]]) -> list[JobStatus]:
    """Their states."""
    return [await job.status() for job in jobs]


async def test_jobs_in_every_state_are_cancelled(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Those that wait have ended at once, and the body of one that runs is cancelled."""
    stopped = anyio.Event()

    @elsewhere.task(name="long", queue="busy")
    async def long() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    async with in_background(elsewhere.run_worker("busy")):
        running = await long.enqueue()
        await until(any_concert, lambda ledger: ledger.claimed)
        [delayed] = await put(any_concert, 1, delay=HOUR)
        [waiting] = await put(any_concert, 1, queue="other", after=[delayed])
        queued = await put(any_concert, 2)
        assert await any_concert.tasks.cancel_all() == 5
        with anyio.fail_after(SOON):
            await stopped.wait()
            with pytest.raises(JobCancelled):
                await running.result()
        assert await statuses([delayed, waiting, *queued]) == [JobStatus.CANCELLED] * 4
        assert await any_concert.tasks.cancel_all() == 0
    (await ledger_of(any_concert)).check(put=5, done=5)


@pytest.mark.usefixtures("small_portions")
async def test_jobs_are_chosen_as_they_are_listed(any_concert: Coordinator) -> None:
    """By state, queue and task, however many; the others stay as they are."""
    wanted = [*await put(any_concert, 10), *await put(any_concert, 5, delay=HOUR)]
    others = [
        *await put(any_concert, 4, "other"),
        *await put(any_concert, 4, queue="r"),
        *await put(any_concert, 1, queue="r", delay=HOUR),
    ]
    cancel_all = any_concert.tasks.cancel_all
    assert await cancel_all(state="delayed", queue="q", task="other") == 0
    assert await cancel_all(state=JobStatus.QUEUED, queue="q", task="t") == 10
    assert await cancel_all(queue="q", task="t") == 5
    assert await statuses(wanted) == [JobStatus.CANCELLED] * 15
    assert await statuses(others) == [JobStatus.QUEUED] * 8 + [JobStatus.DELAYED]
    assert await cancel_all(queue="r") == 5
    (await ledger_of(any_concert)).check(put=24, done=20)


async def test_at_most_so_many_are_meant(any_concert: Coordinator) -> None:
    """A limit holds across portions and queues; the next call goes on."""
    tasks = any_concert.tasks
    for queue in ("a", "b", "c"):
        await put(any_concert, 3, queue=queue)
        await put(any_concert, 3, queue=queue, delay=HOUR)
    assert [await tasks.promote_all(limit=4) for _ in range(4)] == [4, 4, 1, 0]
    assert [await tasks.cancel_all(limit=7) for _ in range(4)] == [7, 7, 4, 0]
    await bury(any_concert, 5, ValueError("no"))
    assert [await tasks.replay_all(limit=3) for _ in range(3)] == [3, 2, 0]
    for verb in (tasks.cancel_all, tasks.promote_all, tasks.replay_all):
        with pytest.raises(ValueError, match="limit"):
            await verb(limit=0)


async def test_waiters_learn_that_their_jobs_were_cancelled(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Wherever they wait, also those of jobs that are behind others in a queue."""
    jobs = await put(any_concert, 3)
    waits = [asyncio.create_task(job.result()) for job in (jobs[0], elsewhere.tasks.job(jobs[2].id))]
    watchers = any_concert._jobs.partitions[0].watchers

    async def both_wait() -> bool:
        return bool(await raw(any_concert).zcard(watchers) == len(waits))

    await eventually(both_wait)
    assert await any_concert.tasks.drain("q") == 3
    with anyio.fail_after(SOON):
        outcomes = await asyncio.gather(*waits, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [JobCancelled, JobCancelled]


async def test_jobs_after_a_cancelled_one_are_dead_lettered(any_concert: Coordinator) -> None:
    """As after `Job.cancel`, unless they are cancelled, too."""
    parents = await put(any_concert, 3)
    children = [await any_concert.enqueue("t", queue="later", after=[parent]) for parent in parents]
    assert await any_concert.tasks.cancel_all(queue="q") == 3
    assert await statuses(children) == [JobStatus.FAILED] * 3
    with pytest.raises(JobFailed, match="was cancelled"):
        await children[0].result()
    assert await any_concert.tasks.purge_all() == 3
    [parent] = await put(any_concert, 1)
    await put(any_concert, 2, queue="later", after=[parent])
    assert await any_concert.tasks.cancel_all() == 3
    assert await any_concert.tasks.dead() == []


async def test_unique_names_of_cancelled_jobs_are_free(any_concert: Coordinator) -> None:
    """Another job has them at once."""
    for _ in range(2):
        assert (await any_concert.enqueue("t", queue="q", unique="name")).created
        assert await any_concert.tasks.cancel_all() == 1


async def test_drained_queue_is_empty(any_concert: Coordinator) -> None:
    """What runs goes on; nothing is left that a worker would have to pass over, and other queues are untouched."""
    running, *_ = await put(any_concert, 300)
    [delayed] = await put(any_concert, 1, delay=HOUR)
    await put(any_concert, 1, after=[delayed])
    await put(any_concert, 1, queue="other")
    async with any_concert.consume("q") as jobs:
        claimed = await anext(jobs)
        assert claimed.id == running.id
        assert await any_concert.tasks.drain("q") == 301
        stats = (await any_concert.tasks.stats("q", "other")).queues
        assert (stats["q"].ready, stats["q"].delayed, stats["q"].waiting, stats["q"].running) == (0, 0, 0, 1)
        assert stats["other"].ready == 1
        await claimed.ack()
    assert await any_concert.tasks.drain("q") == 0
    assert await any_concert.tasks.drain("never used") == 0


async def test_promoted_jobs_run_now(any_concert: Coordinator) -> None:
    """A worker that slept until their time is woken."""

    @any_concert.task(name="t", queue="q")
    async def task(number: int) -> int:
        return number

    async with in_background(any_concert.run_worker("q", "r")):
        jobs = [await task.options(delay=HOUR + number).enqueue(number) for number in range(3)]
        others = [await task.options(delay=HOUR, queue="r").enqueue(0), *await put(any_concert, 1, "u", delay=HOUR)]
        assert await any_concert.tasks.promote_all(queue="q", task="t") == 3
        assert [await job.result(timeout=SOON) for job in jobs] == [0, 1, 2]
        assert await statuses(others) == [JobStatus.DELAYED] * 2
        assert await any_concert.tasks.promote_all(task="u") == 1


@pytest.mark.usefixtures("small_portions")
async def test_dead_jobs_are_replayed_by_reason(any_concert: Coordinator) -> None:
    """By a part of it, by task and by queue; the others stay dead."""
    tasks = any_concert.tasks
    declined = await bury(any_concert, 7, ValueError("card 17 was declined"))
    refused = await bury(any_concert, 2, OSError("refused"), "u", "r")
    assert await tasks.replay_all(reason="declined", task="u") == 0
    assert await tasks.replay_all(reason="17 was declined", queue="q", task="t") == 7
    assert await statuses([*declined, *refused]) == [JobStatus.QUEUED] * 7 + [JobStatus.FAILED] * 2
    assert await tasks.purge_all(reason="OSError", queue="r", task="t") == 0
    assert await tasks.purge_all(reason="OSError", queue="r", task="u") == 2
    async with any_concert.consume("q") as jobs:
        for _ in declined:
            async with await anext(jobs) as job:
                assert job.attempt == 1
    assert await tasks.dead() == []


async def test_replayed_jobs_take_their_names_again(any_concert: Coordinator) -> None:
    """Unless another has it by now; both run."""
    for name in ("one", "two"):
        await any_concert.enqueue("t", queue="q", unique=name)
    async with any_concert.consume("q") as jobs:
        for _ in range(2):
            async with await anext(jobs) as job:
                await job.bury(ValueError("no"))
    other = await any_concert.enqueue("t", queue="q", unique="one")
    assert await other.cancel()
    other = await any_concert.enqueue("t", queue="q", unique="two")
    assert await any_concert.tasks.replay_all() == 2
    assert not (await any_concert.enqueue("t", queue="q", unique="one")).created
    assert (await any_concert.enqueue("t", queue="q", unique="two")).id == other.id
    assert {job.unique for job in (await any_concert.tasks.jobs()).jobs} == {"one", "two"}


async def test_replay_into_a_new_queue_names_it(any_concert: Coordinator) -> None:
    """One that was never used before is among the queues from then on."""
    [job] = await bury(any_concert, 1, ValueError("no"))
    await any_concert.tasks.replay(job.id, queue="new")
    assert await any_concert.tasks.queues() == ["new", "q"]
    assert (await any_concert.tasks.stats()).unserved == ("new",)


async def test_dead_jobs_are_purged_by_age_and_task(any_concert: Coordinator) -> None:
    """`keep` is about all that are dead, and `older_than` about the server's clock."""
    tasks = any_concert.tasks
    old = await bury(any_concert, 2, ValueError("no"), "old")
    new = await bury(any_concert, 2, ValueError("no"), "new")
    dead = any_concert._jobs.of_id(old[0].id).dead
    await raw(any_concert).zadd(dead, {old[0].id: 1, old[1].id: 2})
    assert await tasks.purge_all(task="new", older_than=60) == 0
    assert await tasks.purge_all(task="new", keep=2) == 0
    assert await tasks.purge_all(task="old", older_than=60, keep=3) == 1
    assert await statuses(new) == [JobStatus.FAILED] * 2
    assert await tasks.purge_all(task="new") == 2
    assert [dead.id for dead in await tasks.dead()] == [old[1].id]


async def test_cancelled_jobs_do_not_pile_up_before_and_behind_one_that_waits(any_concert: Coordinator) -> None:
    """In a paused queue nobody claims them: they leave it at once, and do not count as ready."""
    tasks = any_concert.tasks
    await tasks.pause("q")
    before, [job], behind = await put(any_concert, 3), await put(any_concert, 1), await put(any_concert, 30)
    assert [await one.cancel() for one in (*reversed(behind), *before)] == [True] * 33
    assert await job.status() is JobStatus.QUEUED
    assert (await tasks.stats()).queues["q"].ready == 1
    [keys] = any_concert._jobs.partitions
    assert await raw(any_concert).lrange(keys.queue("q").queue, 0, -1) == [job.id.encode()]


def in_which_portions(monkeypatch: pytest.MonkeyPatch, module: Any, script: str, argument: str) -> list[int]:
    """How many each call of this script is about, from now on."""
    portions: list[int] = []
    command = getattr(module, script)

    def noted(*args: Any, **named: Any) -> Any:
        portions.append(len(named[argument]))
        return command(*args, **named)

    monkeypatch.setattr(module, script, noted)
    return portions


async def test_jobs_with_many_steps_are_dropped_in_portions(
    any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No script drops more than 2,000 steps, unless one job has more; nothing of them is left."""
    tasks = any_concert.tasks
    delayed, dead = await put(any_concert, 6, delay=HOUR), await bury(any_concert, 6, ValueError("no"))
    for job in (*delayed, *dead):
        await pile_up_steps(any_concert, job.id, (1, 900))
    cancelled = in_which_portions(monkeypatch, cancellation, "CANCEL", "ids")
    scripts = SimpleNamespace(**JobKeys.scripts._asdict())
    monkeypatch.setattr(JobKeys, "scripts", scripts)
    purged = in_which_portions(monkeypatch, scripts, "purge", "ids")
    assert await tasks.cancel_all(queue="q", state="delayed") == 6
    assert cancelled == [6, 4, 2]
    assert await tasks.purge_all(task="t") == 6
    assert len(purged) == 3
    assert await kept(any_concert) == {}
    assert not await tasks.dead()


async def test_stats_of_many_queues_are_read_in_portions(
    any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each queue is looked at once."""
    monkeypatch.setattr(queue_stats, "_QUEUES_AT_ONCE", 2)
    for number in range(5):
        await put(any_concert, number + 1, queue=f"q{number}")
    portions = in_which_portions(monkeypatch, queue_stats, "STATS", "names")
    stats = await any_concert.tasks.stats()
    assert {name: queue.ready for name, queue in stats.queues.items()} == {
        f"q{number}": number + 1 for number in range(5)
    }
    assert portions == [2, 2, 1]
    assert (await any_concert.tasks.stats()).dead == 0


@pytest.mark.usefixtures("small_portions")
async def test_all_partitions_are_meant(spread: Coordinator) -> None:
    """Also those of jobs that wait for a job of another partition."""
    tasks = spread.tasks
    delayed = await put(spread, 20, delay=HOUR)
    children = [await spread.enqueue("t", queue="later", after=delayed[:3]) for _ in range(6)]
    assert await tasks.promote_all(queue="q") == 20
    assert await statuses(delayed) == [JobStatus.QUEUED] * 20
    assert await tasks.drain("q") == 20
    assert await statuses(children) == [JobStatus.FAILED] * 6
    assert await tasks.replay_all(reason="was cancelled") == 6
    assert await tasks.cancel_all(queue="later") == 6
    buried = await bury(spread, 6, ValueError("no"))
    assert await tasks.purge_all(reason="no", keep=4) == 2
    assert await tasks.purge_all(reason="no") == 4
    assert set(await spread.tasks.dead()) == set()
    assert len(buried) == 6


async def test_jobs_that_are_not_signed_are_chosen_by_what_is_known(here: Coordinator, namespace: str) -> None:
    """That is not their task."""
    client: Any = client_of(here)
    await put(here, 2, delay=HOUR)
    async with Coordinator.from_client(client, namespace=namespace, signing_keys={"k": "x" * 32}) as signing:
        await put(signing, 1, delay=HOUR)
        assert await signing.tasks.promote_all(task="t") == 1
        assert await signing.tasks.promote_all(queue="q") == 2
        await signing.run_worker("q", burst=True, unknown_task_grace=0)  # it knows no task of this name
        assert await signing.tasks.replay_all(task="t") == 1
        assert await signing.tasks.replay_all(reason="sign") == 2
        assert await signing.tasks.drain("q") == 3


async def test_bad_input_is_refused_before_anything_is_sent(any_concert: Coordinator) -> None:
    """It says what is so, and what to do."""
    tasks = any_concert.tasks
    with pytest.raises(ValueError, match=r"purge_all\(\) drops it"):
        await tasks.cancel_all(state="failed")
    with pytest.raises(ValueError, match="give one of 'waiting'"):
        await tasks.cancel_all(state="succeeded")
    for verb in (tasks.cancel_all, tasks.promote_all, tasks.replay_all, tasks.purge_all):
        for which in ("queue", "task"):
            with pytest.raises(InvalidName, match=which):
                await verb(**{which: ""})  # type: ignore[arg-type]
    with pytest.raises(InvalidName, match="queue"):
        await tasks.drain("")
    with pytest.raises(ValueError, match="older_than"):
        await tasks.purge_all(task="t", older_than=-1)
    with pytest.raises(ValueError, match="keep"):
        await tasks.purge_all(task="t", keep=-1)


async def test_closed_coordinator_changes_nothing(server: RealServer | RealCluster, namespace: str) -> None:
    """It says so."""
    concert = Coordinator(server.url, namespace=namespace)
    async with concert:
        tasks = concert.tasks
    for call in (tasks.cancel_all(), tasks.promote_all(), tasks.replay_all(), tasks.purge_all(), tasks.drain("q")):
        with pytest.raises(NotConnected):
            await call
