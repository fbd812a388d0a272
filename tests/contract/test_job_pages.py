"""Lists of jobs, a page at a time."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from inconcert import Coordinator, InvalidName, JobInfo, JobPage, JobStatus, NotConnected, TaskStats
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.raw import client_of, raw

HOUR = 3600.0


async def pages_of(concert: Coordinator, *, limit: int, **filters: Any) -> list[JobPage]:
    """All pages."""
    pages = [await concert.tasks.jobs(limit=limit, **filters)]
    while (after := pages[-1].after) is not None:
        pages.append(await concert.tasks.jobs(limit=limit, after=after, **filters))
    return pages


async def listed(concert: Coordinator, *, limit: int = 100, **filters: Any) -> list[JobInfo]:
    """All jobs, of all pages."""
    return [job for page in await pages_of(concert, limit=limit, **filters) for job in page.jobs]


def ids(jobs: Sequence[JobInfo]) -> list[str]:
    """Which ones."""
    return [job.id for job in jobs]


async def now(concert: Coordinator) -> float:
    """The server's clock."""
    seconds, microseconds = await raw(concert).time()
    return float(seconds) + float(microseconds) / 1e6


async def test_jobs_are_listed_in_the_order_of_their_life(any_concert: Coordinator) -> None:
    """With what is known of each."""
    queued = await any_concert.enqueue("t", ["ä"], {"number": 7}, queue="q")
    delayed = await any_concert.enqueue("t", queue="q", delay=HOUR)
    waiting = await any_concert.enqueue("after", queue="other", after=[delayed])
    dead = await any_concert.enqueue("bad", queue="failing")
    running = await any_concert.enqueue("long", queue="busy")
    async with any_concert.consume("failing", "busy") as jobs:
        async with await anext(jobs) as job:
            await job.bury(ValueError("no"))
        [job] = await jobs.claim(1)
        found = await listed(any_concert)
        [worker] = await any_concert.tasks.workers()
        await job.ack()
    at = await now(any_concert)
    assert [(job.id, job.task, job.status, job.queue, job.attempts) for job in found] == [
        (waiting.id, "after", JobStatus.WAITING, "other", 0),
        (delayed.id, "t", JobStatus.DELAYED, "q", 0),
        (queued.id, "t", JobStatus.QUEUED, "q", 0),
        (running.id, "long", JobStatus.RUNNING, "busy", 1),
        (dead.id, "bad", JobStatus.FAILED, "failing", 1),
    ]
    assert all(abs(job.enqueued_at - at) < 60 for job in found)
    assert [job.due_at is not None and abs(job.due_at - at - HOUR) < 60 for job in found] == [0, 1, 0, 0, 0]
    assert [job.claimed_at is not None and abs(job.claimed_at - at) < 60 for job in found] == [0, 0, 0, 1, 0]
    assert [job.died_at is not None and abs(job.died_at - at) < 60 for job in found] == [0, 0, 0, 0, 1]
    assert [job.worker for job in found] == [None, None, None, worker.id, None]
    assert [job.error for job in found] == ["", "", "", "", "ValueError: no"]
    assert (found[2].args, found[2].kwargs) == (["ä"], {"number": 7})
    assert await listed(any_concert) == found[:3] + found[4:]


@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_pages_have_each_job_once(any_concert: Coordinator, limit: int) -> None:
    """Those of a queue as they will be claimed, delayed ones as they are due, the dead latest first."""
    tasks = any_concert.tasks
    parent = await any_concert.enqueue("t", queue="parent", delay=HOUR)
    put = [await any_concert.enqueue("t", [n], queue=queue) for queue in ("a", "b") for n in range(5)]
    later = [await any_concert.enqueue("t", queue="c", delay=HOUR + n % 3) for n in range(7)]
    waiting = [await any_concert.enqueue("t", queue="d", after=[parent]) for _ in range(8)]
    dead = [await any_concert.enqueue("t", queue="e") for _ in range(4)]
    async with any_concert.consume("e") as jobs:
        for job in await jobs.claim(4):
            await job.bury(ValueError("no"))
    assert all(len(page.jobs) <= limit for page in await pages_of(any_concert, limit=limit))
    found = await listed(any_concert, limit=limit)
    assert len(found) == len(set(ids(found))) == 1 + 10 + 7 + 8 + 4
    assert ids(await listed(any_concert, limit=limit, state="queued")) == ids_of(put)
    assert set(ids(await listed(any_concert, limit=limit, state="waiting"))) == set(ids_of(waiting))
    assert set(ids(await listed(any_concert, limit=limit, state="failed"))) == set(ids_of(dead))
    delayed = await listed(any_concert, limit=limit, state="delayed", queue="c")
    assert set(ids(delayed)) == set(ids_of(later))
    assert [job.due_at for job in delayed] == sorted(job.due_at or 0.0 for job in delayed)
    assert ids(await listed(any_concert, limit=limit, queue="b")) == ids_of(put[5:])
    assert ids((await tasks.jobs(limit=limit)).jobs) == ids(found[:limit])


def ids_of(jobs: Sequence[Any]) -> list[str]:
    """Which ones, of those that were enqueued."""
    return [job.id for job in jobs]


async def test_running_jobs_have_pages(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Of each worker as they were claimed; also those that were told to stop."""
    put = [await any_concert.enqueue("t", queue="q") for _ in range(7)]
    async with any_concert.consume("q") as here, elsewhere.consume("q") as there:
        claimed = [*await here.claim(4), *await there.claim(3)]
        found = await listed(any_concert, limit=2, state=JobStatus.RUNNING)
        assert sorted(ids(found)) == sorted(ids_of(put))
        assert {job.worker for job in found} == {worker.id for worker in await any_concert.tasks.workers()}
        assert await put[0].cancel(timeout=0) is False
        assert sorted(ids(await listed(any_concert, state="running", queue="q"))) == sorted(ids_of(put))
        for job in claimed:
            if not job.is_over:
                await job.ack()
    assert await listed(any_concert) == []


async def test_jobs_of_one_task_are_listed(any_concert: Coordinator) -> None:
    """Found by its name alone, whatever characters it has, in any queue and state; not by the beginning of a name."""
    name = 're"port\n ä'
    wanted = [await any_concert.enqueue(name, queue=queue) for queue in ("a", "b")]
    wanted.append(await any_concert.enqueue(name, queue="a", delay=HOUR))
    for other in ("re", name + "s", "t"):
        await any_concert.enqueue(other, [{"name": name}], queue="a")
    assert {job.id for job in await listed(any_concert, task=name, limit=1)} == set(ids_of(wanted))
    assert ids(await listed(any_concert, task=name, queue="b")) == [wanted[1].id]
    assert await listed(any_concert, task=name, state="failed") == []


async def test_jobs_that_go_on_between_two_pages_are_shown_again(any_concert: Coordinator) -> None:
    """None that stays is left out, when others are taken from its queue, or come to its front."""
    put = [await any_concert.enqueue("t", queue="q") for _ in range(9)]
    first = await any_concert.tasks.jobs(state="queued", limit=3)
    assert ids(first.jobs) == ids_of(put[:3])
    async with any_concert.consume("q") as jobs:
        claimed = await jobs.claim(2)  # before what was shown last
        second = await any_concert.tasks.jobs(state="queued", limit=2, after=first.after)
        assert ids(second.jobs) == ids_of(put[3:5])
        for job in claimed:
            await job.give_back()
        third = await any_concert.tasks.jobs(state="queued", limit=1, after=second.after)
        assert ids(third.jobs) == ids_of(put[5:6])
        claimed = await jobs.claim(7)  # with what was shown last: all that is left was not shown
        last = await any_concert.tasks.jobs(state="queued", limit=100, after=third.after)
        assert ids(last.jobs) == [job.id for job in put if job.id not in {one.id for one in claimed}]
        for job in claimed:
            await job.ack()


async def test_delayed_jobs_that_move_leave_none_out(any_concert: Coordinator) -> None:
    """When what was shown last is due another time, or is gone."""
    put = [await any_concert.enqueue("t", queue="q", delay=HOUR + n) for n in range(6)]
    first = await any_concert.tasks.jobs(state="delayed", limit=2)
    assert await put[1].reschedule(delay=2 * HOUR)
    second = await any_concert.tasks.jobs(state="delayed", limit=2, after=first.after)
    assert ids(second.jobs) == ids_of(put[2:4])
    await put[3].cancel()
    rest = await any_concert.tasks.jobs(state="delayed", limit=9, after=second.after)
    assert ids(rest.jobs) == ids_of([*put[4:], put[1]])
    assert rest.after is None


async def test_page_is_short_when_many_are_looked_at(any_concert: Coordinator) -> None:
    """And the next goes on: no page looks at more than 5,000 jobs."""

    @any_concert.task(name="other", queue="q")
    async def other(n: int) -> None: ...

    await any_concert.enqueue_many([other.call(n) for n in range(5_200)])
    wanted = await any_concert.enqueue("wanted", queue="q")
    pages = await pages_of(any_concert, task="wanted", state="queued", limit=10)
    assert [ids(page.jobs) for page in pages] == [[], [wanted.id]]
    keys = any_concert._jobs.partitions[0]
    await raw(any_concert).delete(keys.bodies, keys.queue("q").queue, keys.queue("q").bell)


async def test_page_of_large_jobs_is_read_in_portions(any_concert: Coordinator) -> None:
    """Each of about a MiB, and all of them in one page."""
    put = [await any_concert.enqueue("t", ["x" * 1_000_000], queue="q") for _ in range(5)]
    page = await any_concert.tasks.jobs(queue="q")
    assert ids(page.jobs) == ids_of(put)
    assert {len(str(job.args[0])) for job in page.jobs} == {1_000_000}


async def test_cancelled_jobs_are_not_listed(any_concert: Coordinator) -> None:
    """Though their ids may stay in the queue."""
    put = [await any_concert.enqueue("t", queue="q") for _ in range(4)]
    await put[1].cancel()
    assert ids(await listed(any_concert, limit=2)) == [put[0].id, put[2].id, put[3].id]


async def test_job_that_cannot_be_read_is_listed_without_its_call(any_concert: Coordinator) -> None:
    """By its id, and no name."""
    job = await any_concert.enqueue("t", [1], queue="q")
    await raw(any_concert).hset(any_concert._jobs.partitions[0].bodies, job.id, "17000 {no envelope")
    [found] = await listed(any_concert)
    assert (found.id, found.task, found.args, found.kwargs, found.enqueued_at) == (job.id, "?", (), {}, 17.0)
    assert await listed(any_concert, task="t") == []


async def test_jobs_that_wait_for_their_turn_are_listed_and_cancelled(any_concert: Coordinator) -> None:
    """Though nothing else of their queue is delayed."""

    def tenant_of(tenant: str) -> str:
        return tenant

    export = any_concert.task(name="export", queue="q", key=tenant_of, share=True)(print)
    jobs = await any_concert.enqueue_many([export.call("acme") for _ in range(4)])
    found = await listed(any_concert, task="export")
    assert {job.id for job in found} == {job.id for job in jobs}
    assert [job.due_at for job in await listed(any_concert, state="delayed")] == [None] * 3
    assert await any_concert.tasks.cancel_all(task="export") == 4
    assert [await job.status() for job in jobs] == [JobStatus.CANCELLED] * 4


async def test_jobs_are_described_by_their_ids(any_concert: Coordinator) -> None:
    """With what they run after, also when they were dead-lettered; the others are left out."""
    parent = await any_concert.enqueue("t", ["ä"], {"number": 7}, queue="q")
    children = [await any_concert.enqueue("after", queue="q", after=[parent]) for _ in range(3)]
    dead = await any_concert.enqueue("bad", queue="failing")
    done = await any_concert.enqueue("good", queue="failing")
    async with any_concert.consume("failing") as jobs:
        for job in await jobs.claim(2):
            await (job.ack() if job.id == done.id else job.bury(ValueError("no")))
    found = await any_concert.tasks.describe(parent.id, children[0].id, dead.id, done.id)

    assert {job.id: (job.task, job.status, job.attempts, list(job.after)) for job in found.values()} == {
        parent.id: ("t", JobStatus.QUEUED, 0, []),
        children[0].id: ("after", JobStatus.WAITING, 0, [parent.id]),
        dead.id: ("bad", JobStatus.FAILED, 1, []),
    }
    assert (found[parent.id].args, found[parent.id].kwargs) == (["ä"], {"number": 7})
    task = any_concert.task(name="quiet", queue="q")(print)
    quiet = await task.options(unique="u", debounce=60, headers={"tenant": "acme"}).enqueue()
    described = (await any_concert.tasks.describe(quiet.id))[quiet.id]
    assert (described.debounce, described.headers) == (60, {"tenant": "acme"})
    assert (found[dead.id].debounce, found[dead.id].headers) == (None, {})
    assert await parent.dependants() == sorted(child.id for child in children)
    assert len(await parent.dependants(limit=2)) == 2
    assert await dead.dependants() == []
    assert await any_concert.tasks.describe() == {}
    with pytest.raises(InvalidName):
        await any_concert.tasks.describe("")


async def test_job_is_described_as_far_as_its_record_says(any_concert: Coordinator) -> None:
    """In each state: where it is or was, who has it, why it died. A list says more of one that is ready or runs."""
    later = await any_concert.task(name="later", queue="q")(print).options(delay=HOUR).enqueue()
    ready = await any_concert.enqueue("ready", queue="q")
    for name in ("dies", "runs"):
        await any_concert.enqueue(name, queue=name)
    async with any_concert.consume("dies", "runs") as jobs:
        claimed = {job.name: job for job in await jobs.claim(2)}
        dead, held = claimed["dies"].id, claimed["runs"]
        await claimed["dies"].bury(ValueError("no"))
        found = await any_concert.tasks.describe(later.id, ready.id, dead, held.id)
        [died] = await any_concert.tasks.dead()
        [worker] = await any_concert.tasks.workers()
        [listed_held] = (await any_concert.tasks.jobs(state="running")).jobs

        assert {job.task: (job.status, job.queue, job.attempts, job.worker) for job in found.values()} == {
            "later": (JobStatus.DELAYED, "q", 0, None),
            "ready": (JobStatus.QUEUED, "", 0, None),
            "dies": (JobStatus.FAILED, "dies", 1, None),
            "runs": (JobStatus.RUNNING, "", 1, worker.id),
        }
        assert found[dead] == died
        assert (died.error, "ValueError" in died.traceback, died.died_at is None) == ("ValueError: no", True, False)
        assert listed_held == replace(found[held.id], queue="runs", claimed_at=listed_held.claimed_at)
        await held.ack()


async def test_arguments_that_are_not_signed_are_not_shown(any_concert: Coordinator, namespace: str) -> None:
    """What anybody may have written is not passed on as if it were ours."""
    signed = Coordinator.from_client(client_of(any_concert), namespace=namespace, signing_keys={"1": b"k" * 32})
    job = await any_concert.enqueue("t", ["forged"], queue="q")
    async with signed as concert:
        good = await concert.enqueue("t", ["mine"], queue="q")
        found = await listed(concert, queue="q")
        assert [(one.id, one.task, list(one.args)) for one in found] == [(job.id, "?", []), (good.id, "t", ["mine"])]
        assert ids(await listed(concert, task="t")) == [good.id]
        described = await concert.tasks.describe(job.id, good.id)
        assert [(described[one.id].task, list(described[one.id].args)) for one in (job, good)] == [
            ("?", []),
            ("t", ["mine"]),
        ]


async def test_worker_runs_on_while_jobs_are_listed(any_concert: Coordinator) -> None:
    """Whatever vanishes in between, a page has no error; and in the end there is nothing."""
    done: list[int] = []

    @any_concert.task(queue="q")
    async def work(n: int) -> None:
        done.append(n)

    await any_concert.enqueue_many([work.call(n) for n in range(300)])
    async with in_background(any_concert.run_worker("q", concurrency=5)):

        async def is_empty() -> bool:
            return not await listed(any_concert, limit=7)

        await eventually(is_empty)
    assert sorted(done) == list(range(300))


async def test_pages_go_over_all_partitions(any_concert: Coordinator, namespace: str) -> None:
    """One after the other."""
    name = f"{namespace}-parted"
    async with Coordinator.from_client(client_of(any_concert), namespace=name, partitions=3) as concert:
        put = [await concert.enqueue("t", queue="q") for _ in range(20)]
        later = [await concert.enqueue("t", queue="q", delay=HOUR) for _ in range(20)]
        found = await listed(concert, limit=7)
        assert len(found) == 40
        assert set(await concert.tasks.describe(*ids(found))) == set(ids(found))
        assert set(ids(found)) == set(ids_of([*put, *later]))


@pytest.mark.parametrize("limit", [0, 1001, 1.5, True])
async def test_limit_is_checked(any_concert: Coordinator, limit: Any) -> None:
    """Before anything is sent."""
    with pytest.raises(ValueError, match="limit is"):
        await any_concert.tasks.jobs(limit=limit)


@pytest.mark.parametrize("state", ["succeeded", "cancelled", "unknown", "dead", ""])
async def test_state_that_cannot_be_listed_is_refused(any_concert: Coordinator, state: str) -> None:
    """The error says which can be."""
    with pytest.raises(ValueError, match=re.escape(f"state is {state!r}; give one of 'waiting', 'delayed', 'queued'")):
        await any_concert.tasks.jobs(state=state)


@pytest.mark.parametrize("after", ["", "x", "!!", "W10", "ä", "WyJxdWV1ZWQiLDksIiIsW11d"])
async def test_cursor_of_something_else_is_refused(any_concert: Coordinator, after: str) -> None:
    """Also one of a partition that there is not."""
    with pytest.raises(ValueError, match="after is"):
        await any_concert.tasks.jobs(after=after)


async def test_cursor_of_another_state_is_refused(any_concert: Coordinator) -> None:
    """It would begin in the middle."""
    for _ in range(2):
        await any_concert.enqueue("t", queue="q")
    page = await any_concert.tasks.jobs(state="queued", limit=1)
    with pytest.raises(ValueError, match="of another list"):
        await any_concert.tasks.jobs(state="failed", after=page.after)


async def test_names_are_checked(any_concert: Coordinator) -> None:
    """Before anything is sent."""
    with pytest.raises(InvalidName, match="queue"):
        await any_concert.tasks.jobs(queue="")
    with pytest.raises(InvalidName, match="task"):
        await any_concert.tasks.jobs(task="x" * 513)


async def test_closed_coordinator_lists_nothing(any_concert: Coordinator, namespace: str) -> None:
    """As everything else."""
    with pytest.raises(NotConnected):
        await Coordinator.from_client(client_of(any_concert), namespace=namespace).tasks.jobs()


async def test_list_can_be_cancelled(any_concert: Coordinator) -> None:
    """And then works again."""
    put = [await any_concert.enqueue("t", queue="q") for _ in range(5)]
    listing = asyncio.ensure_future(any_concert.tasks.jobs())
    await asyncio.sleep(0)
    listing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listing
    assert ids(await listed(any_concert)) == ids_of(put)


async def test_queues_are_those_to_which_a_job_was_ever_enqueued(any_concert: Coordinator) -> None:
    """At once, late, or after another; also when they are empty again, and in any partition."""
    tasks = any_concert.tasks
    assert await tasks.queues() == []
    assert await tasks.stats() == TaskStats(workers=0, dead=0, queues={}, unserved=(), limits={})
    first = await any_concert.enqueue("t", queue="b")
    await any_concert.enqueue("t", queue="c", delay=60.0)
    await any_concert.enqueue("t", queue="a", after=[first.id])
    assert await tasks.queues() == ["a", "b", "c"]
    assert await first.cancel()
    assert await tasks.queues() == ["a", "b", "c"]
    assert await tasks.stats() == await tasks.stats("a", "b", "c")
