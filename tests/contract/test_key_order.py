"""Keys in strict order: a job begins when the one before it of its key has ended, whatever becomes of that."""

import asyncio
from typing import Any

import pytest

from inconcert import Coordinator, JobStatus, Limit, Rate, Retry, Snooze, Task, current_job, durable
from inconcert.errors import JobFailed
from inconcert.tasks.records.store import GO_ON, STOPPED_KEYS, JobKeys
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.jobs import let_expire, make_due, status
from tests.support.ledger import ledger_of
from tests.support.limits import WITHIN, Running, first, places

Ran = list[tuple[str, int]]


def register(concert: Coordinator, ran: Ran, how: str = "", **options: Any) -> Task[[str, int], Any]:
    """A task whose jobs are noted as they begin; the first of a key does this in its first attempt."""
    options |= {"name": "import", "key": first, "key_order": "strict"}

    @concert.task(backoff=lambda _: 0.01, retry_on=(ValueError,), **options)
    async def import_(tenant: str, number: int) -> None:
        ran.append((tenant, number))
        if number or not how:
            return
        if how == "waits":
            await durable.wait_for("go", str, timeout=WITHIN)
        elif how == "dies":
            raise LookupError("for good")
        elif current_job().attempt == 1 and how == "fails":
            raise ValueError("once")
        elif current_job().attempt == 1 and how == "comes again at once":
            raise Retry(after=0)
        elif how == "snoozes" and len(ran) == 1:
            raise Snooze(0.05)

    return import_


async def enqueue(import_: Task[[str, int], Any], *jobs: tuple[str, int]) -> list[Any]:
    """Each by itself, one after the other."""
    return [await import_.enqueue(*job) for job in jobs]


@pytest.mark.parametrize("how", ["", "fails", "comes again at once", "snoozes"])
@pytest.mark.parametrize("limits", [{}, {"limit": Limit(3)}, {"rate": Rate(100, per=1.0)}], ids=["", "limit", "rate"])
async def test_next_job_of_a_key_waits_until_the_one_before_has_ended(
    any_concert: Coordinator, how: str, limits: dict[str, Any]
) -> None:
    """Those of other keys do not."""
    ran: Ran = []
    import_ = register(any_concert, ran, how, **limits)
    jobs = await enqueue(import_, ("a", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3))
    async with in_background(any_concert.run_worker("default", concurrency=5)):
        for job in jobs:
            await job.result(timeout=WITHIN)
    assert [number for tenant, number in ran if tenant == "a"] == [0] * (2 if how else 1) + [1, 2, 3]
    assert [number for tenant, number in ran if tenant == "b"] == [1, 2]
    assert await places(any_concert) == ("rate" in limits)  # how far it is used up


async def test_job_that_has_left_its_worker_is_not_overtaken(concert: Coordinator) -> None:
    """It waits for a message, and has not ended."""
    ran: Ran = []
    import_ = register(concert, ran, "waits")
    jobs = await enqueue(import_, ("a", 0), ("a", 1), ("b", 1))
    async with in_background(concert.run_worker("default")):
        await jobs[2].result(timeout=WITHIN)
        await status(concert, jobs[0], JobStatus.DELAYED)
        assert await jobs[1].status() is JobStatus.DELAYED
        await jobs[0].send("go", "now")
        await jobs[1].result(timeout=WITHIN)
    assert [number for tenant, number in ran if tenant == "a"] == [0, 0, 1]
    assert await places(concert) == 0


async def test_order_is_that_of_the_queue_wherever_jobs_come_from(concert: Coordinator) -> None:
    """One by one, in batches, in a group, or when they are due; what is due later takes its place then."""
    ran: Ran = []
    import_ = register(concert, ran)
    await import_.options(delay=3600.0).enqueue("a", 99)
    await import_.enqueue("a", 0)
    await concert.enqueue_many([import_.call("a", number) for number in range(1, 700)])
    await concert.group([import_.call("a", number) for number in range(700, 720)])
    await import_.enqueue("a", 720)
    await concert.run_worker("default", concurrency=8, burst=True)
    assert ran == [("a", number) for number in range(721)]
    await make_due(concert, "default")
    await concert.run_worker("default", burst=True)
    assert ran[-1] == ("a", 99)
    assert await places(concert) == 0


async def test_keys_run_beside_each_other_one_job_of_each(concert: Coordinator) -> None:
    """And a job that waits for its key holds no place of a worker."""
    running = Running()

    @concert.task(name="import", key=first, key_order="strict")
    async def import_(tenant: str) -> None:
        await running.run(tenant, tenant)

    jobs = await concert.enqueue_many([import_.call(tenant) for tenant in "aaaabbc"])
    async with in_background(concert.run_worker("default", concurrency=3)):
        await running.until(3)
        assert sorted(running.began) == ["a", "b", "c"]
        running.free.set()
        for job in jobs:
            await job.result(timeout=WITHIN)
    assert running.most == {"a": 1, "b": 1, "c": 1}


@pytest.mark.twice("tasks/go_on", "tasks/stopped_keys")
async def test_key_that_is_let_go_on_twice_goes_on_once(any_concert: Coordinator) -> None:
    """Its next job gets the turn, and not another one as well."""
    import_ = register(any_concert, [], "dies")
    dead, *_ = await enqueue(import_, ("a", 0), ("a", 1), ("a", 2))
    await any_concert.run_worker("default", burst=True)
    keys, session = JobKeys(any_concert._ref.keys), any_concert._ref.session
    for _ in range(2):
        assert await session.run(STOPPED_KEYS(keys)) == [dead.id.encode(), 2]
    let_go = GO_ON(keys, keys.queue("default"), ids=[dead.id])
    assert await session.run(let_go) == 1
    before = await ledger_of(any_concert)
    assert await session.run(let_go) == 0
    assert await ledger_of(any_concert) == before
    assert await any_concert.tasks.stopped_keys() == []


async def test_key_stops_at_a_dead_job_until_it_is_replayed(any_concert: Coordinator) -> None:
    """It goes on when that one has ended."""
    ran: Ran = []
    import_ = register(any_concert, ran, "dies")
    jobs = await enqueue(import_, ("a", 0), ("a", 1), ("b", 1), ("a", 2))
    await any_concert.run_worker("default", burst=True)
    assert ran == [("a", 0), ("b", 1)]
    [stopped] = await any_concert.tasks.stopped_keys()
    assert (stopped.job_id, stopped.waiting) == (jobs[0].id, 2)
    await any_concert.tasks.replay(jobs[0].id, args=["a", 7])
    assert not await any_concert.tasks.stopped_keys()
    await any_concert.run_worker("default", burst=True)
    assert ran[2:] == [("a", 7), ("a", 1), ("a", 2)]
    assert await places(any_concert) == 0


@pytest.mark.parametrize("how", ["one", "all", "those of its queue"])
async def test_key_stops_at_a_dead_job_until_it_is_purged(any_concert: Coordinator, how: str) -> None:
    """However it is purged, the next one comes."""
    ran: Ran = []
    import_ = register(any_concert, ran, "dies")
    jobs = await enqueue(import_, ("a", 0), ("b", 0), ("a", 1), ("a", 2))
    await any_concert.run_worker("default", burst=True)
    assert ran == [("a", 0), ("b", 0)]
    if how == "one":
        await any_concert.tasks.purge(jobs[0].id)
    else:
        assert await any_concert.tasks.purge_all(queue=None if how == "all" else "default") == 2
    await any_concert.run_worker("default", burst=True)
    assert ran[2:] == [("a", 1), ("a", 2)]
    assert len(await any_concert.tasks.stopped_keys()) == (1 if how == "one" else 0)
    for stopped in await any_concert.tasks.stopped_keys():
        await any_concert.tasks.purge(stopped.job_id)
    assert await places(any_concert) == 0


async def test_key_goes_on_past_a_dead_job_if_it_is_to(any_concert: Coordinator) -> None:
    """One that is replayed then comes behind the others."""
    ran: Ran = []
    import_ = register(any_concert, ran, "dies", key_on_dead="go_on")
    jobs = await enqueue(import_, ("a", 0), ("a", 1), ("a", 2))
    await any_concert.run_worker("default", burst=True)
    assert ran == [("a", 0), ("a", 1), ("a", 2)]
    assert not await any_concert.tasks.stopped_keys()
    await any_concert.tasks.replay(jobs[0].id, args=["a", 3])
    await enqueue(import_, ("a", 4))
    await any_concert.run_worker("default", burst=True)
    assert ran[3:] == [("a", 3), ("a", 4)]
    assert await places(any_concert) == 0


@pytest.mark.parametrize("where", ["in the queue", "in line", "runs", "waits for a retry", "first of the line"])
async def test_key_goes_on_when_a_job_is_cancelled(concert: Coordinator, where: str) -> None:
    """Wherever it is."""
    ran: list[int] = []
    begun, free = asyncio.Event(), asyncio.Event()

    @concert.task(name="import", key=first, key_order="strict", backoff=lambda _: 3600.0)
    async def import_(tenant: str, number: int) -> None:
        ran.append(number)
        if number == 0:
            begun.set()
            if where == "waits for a retry":
                raise ValueError
            await free.wait()

    jobs = [await import_.enqueue("a", number) for number in range(3)]
    if where == "in the queue":
        assert await jobs[0].cancel()
        free.set()
    async with in_background(concert.run_worker("default")):
        if where != "in the queue":
            await asyncio.wait_for(begun.wait(), WITHIN)
        if where == "in line":
            assert await jobs[2].cancel()
        elif where == "first of the line":
            assert await jobs[1].cancel()
        elif where == "waits for a retry":
            await status(concert, jobs[0], JobStatus.DELAYED)
            assert await jobs[0].cancel()
        elif where == "runs":
            assert await jobs[0].cancel()
        free.set()
        left = {"in line": 1, "first of the line": 2}.get(where, 2)
        await jobs[left].result(timeout=WITHIN)
    assert ran == {"in the queue": [1, 2], "in line": [0, 1], "first of the line": [0, 2]}.get(where, [0, 1, 2])
    assert await places(concert) == 0


async def test_job_that_was_let_go_on_and_cancelled_before_its_claim_lets_the_next_come(concert: Coordinator) -> None:
    """It had the turn in the queue; the claim that finds its id passes the turn on."""
    ran: Ran = []
    import_ = register(concert, ran)
    jobs = await enqueue(import_, *(("a", number) for number in range(4)))
    await concert.tasks.pause("default")
    async with in_background(concert.run_worker("default")):
        pass
    assert await jobs[0].cancel()
    assert await jobs[1].cancel()
    await concert.tasks.resume("default")
    await concert.run_worker("default", burst=True)
    assert ran == [("a", 2), ("a", 3)]
    assert await places(concert) == 0


async def test_job_that_expires_ends_in_its_turn(concert: Coordinator) -> None:
    """It stops its key like any that dies."""
    ran: Ran = []
    running = asyncio.Event()

    @concert.task(name="import", key=first, key_order="strict")
    async def import_(tenant: str, number: int) -> None:
        ran.append((tenant, number))
        if number == 0:
            await running.wait()

    jobs = [await import_.enqueue("a", 0)]
    async with in_background(concert.run_worker("default")):
        await eventually(lambda: asyncio.sleep(0, bool(ran)))
        jobs += [await import_.options(expires=3600).enqueue("a", 1), await import_.enqueue("a", 2)]
        await let_expire(concert, jobs[1])
        assert await jobs[1].status() is JobStatus.DELAYED
        running.set()
        with pytest.raises(JobFailed, match="JobExpired"):
            await jobs[1].result(timeout=WITHIN)
        assert [stopped.job_id for stopped in await concert.tasks.stopped_keys()] == [jobs[1].id]
        await concert.tasks.purge(jobs[1].id)
        await jobs[2].result(timeout=WITHIN)
    assert ran == [("a", 0), ("a", 2)]
    assert await places(concert) == 0


async def test_what_stops_a_key_is_explained(concert: Coordinator) -> None:
    """To those that wait for it, and of the dead job."""
    ran: Ran = []
    import_ = register(concert, ran, "dies")
    jobs = await enqueue(import_, ("a", 0), ("a", 1), ("a", 2))
    await concert.run_worker("default", burst=True)
    waits = (await concert.explain(f"job:{jobs[2].id}")).reasons
    [order] = [reason.text for reason in waits if reason.code == "order"]
    assert f"until job {jobs[0].id} of its key has ended" in order
    assert "that one is dead: replay it, or purge it; before it in line: 1" in order
    dead = (await concert.explain(f"job:{jobs[0].id}")).reasons
    assert [reason.text for reason in dead if reason.code == "stops_its_key"] == [
        "jobs of its key that wait for its replay or purge: 2"
    ]


async def test_bad_order_is_refused(concert: Coordinator) -> None:
    """Before anything is sent."""
    wrong: Any = "loose"
    refused: list[tuple[dict[str, Any], str]] = [
        ({"key_order": "strict"}, "give key= as well"),
        ({"key": first, "key_order": wrong}, "key_order is 'loose'"),
        ({"key": first, "key_order": "strict", "key_on_dead": wrong}, "key_on_dead is 'loose'"),
        ({"key": first, "share": True, "key_on_dead": "stop"}, "give key_order='strict' as well"),
        ({"key": first, "share": True, "key_order": "strict"}, "leave key_limit= and share= out"),
        ({"key": first, "key_limit": 1, "key_order": "strict"}, "leave key_limit= and share= out"),
    ]
    for options, match in refused:
        with pytest.raises(ValueError, match=match):
            concert.task(**options)
