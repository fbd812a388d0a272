"""Jobs whose enqueuer does not know their task: what they do not say is the task's, as their worker knows it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from inconcert import (
    Coordinator,
    InvalidName,
    Job,
    JobExpired,
    JobFailed,
    JobStatus,
    Limit,
    Rate,
    SyncProducer,
    current_job,
)
from inconcert._claims.keys import split_body
from inconcert.tasks.records.envelope import Envelope
from inconcert.tasks.running.claimed_job import state_of
from tests.support.background import in_background
from tests.support.clusters import RealCluster
from tests.support.eventually import eventually
from tests.support.limits import Running, first, places
from tests.support.raw import raw
from tests.support.servers import RealServer

KEYS = {"k1": "0123456789abcdef0123456789abcdef"}


@pytest.mark.parametrize(
    ("of_task", "default"),
    [
        ({"max_attempts": 1}, 5),
        ({"max_crashes": 1}, 3),
        ({"result_ttl": 60.0}, 3600.0),
        ({"expires": 30.0}, None),
        ({"time_limit": 20.0}, None),
        ({"history": 7}, 0),
    ],
    ids=["max_attempts", "max_crashes", "result_ttl", "expires", "time_limit", "history"],
)
async def test_option_of_the_task_counts_unless_the_caller_gives_another(
    any_concert: Coordinator, elsewhere: Coordinator, of_task: dict[str, Any], default: object
) -> None:
    """Also the one that is the default: it is not the task's."""
    seen: list[Envelope] = []
    [(option, value)] = of_task.items()

    @any_concert.task(name="t", **of_task)
    async def t() -> None:
        seen.append(state_of(current_job()).envelope)

    given: list[tuple[dict[str, Any], object]] = [({}, value), ({option: default}, default)]
    for options, expected in given:
        if option == "history" and options:
            continue  # callers have no such option
        await elsewhere.enqueue("t", **options)
        await any_concert.run_worker("default", burst=True)
        assert getattr(seen.pop(), option) == expected


async def test_failures_are_tried_again_as_the_task_says(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """So often, and for these errors only."""
    ran: list[str] = []

    @any_concert.task(name="once", max_attempts=1)
    async def once() -> None:
        ran.append("once")
        raise ValueError

    @any_concert.task(name="choosy", retry_on=(KeyError,))
    async def choosy() -> None:
        ran.append("choosy")
        raise ValueError

    jobs = [await elsewhere.enqueue(name) for name in ("once", "choosy")]
    await any_concert.run_worker("default", burst=True)
    assert sorted(ran) == ["choosy", "once"]
    assert [await job.status() for job in jobs] == [JobStatus.FAILED] * 2


async def test_job_by_name_expires_as_its_task_says(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Counted from when it was enqueued."""

    @any_concert.task(name="t", expires=30.0, limit=Limit(1))
    async def t() -> None: ...

    job = await elsewhere.enqueue("t")
    client: Any = raw(any_concert)
    bodies = any_concert._jobs.partitions[0].bodies
    put_ms, text = split_body(await client.hget(bodies, job.id))
    await client.hset(bodies, job.id, b"%d %s" % (put_ms - 31_000, text))
    await any_concert.run_worker("default", burst=True)
    with pytest.raises(JobFailed, match=JobExpired.__name__):
        await job.result(timeout=0)


LIMITED: dict[str, dict[str, Any]] = {
    "limit": {"limit": Limit(2)},
    "key_limit": {"key": first, "key_limit": 2},
    "both": {"limit": Limit(2), "key": first, "key_limit": 2, "share": True},
}


@pytest.mark.parametrize("limits", LIMITED)
async def test_limits_hold_for_jobs_by_name(any_concert: Coordinator, elsewhere: Coordinator, limits: str) -> None:
    """Beside those that the task has enqueued."""
    running = Running()

    @any_concert.task(name="t", **LIMITED[limits])
    async def t(key: str, number: int) -> None:
        await running.run(key, number)

    for number in range(0, 6, 2):
        await elsewhere.enqueue("t", ["a", number])
        await t.enqueue("a", number + 1)
    async with in_background(any_concert.run_worker("default", concurrency=10)):
        await running.until(2)
        await eventually(lambda: held_back(any_concert, 4))
        running.free.set()
        await running.until(6)
    assert running.most == {"a": 2}
    assert await places(any_concert) == 0


async def held_back(concert: Coordinator, count: int) -> bool:
    """Whether so many are in line."""
    return bool(await raw(concert).zcard(concert._jobs.partitions[0].held_back) == count)


async def test_jobs_by_name_keep_their_order(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """All are claimed together, put back together, and let in one after the other."""
    ran: list[int] = []

    @any_concert.task(name="t", limit=Limit(1))
    async def t(number: int) -> None:
        ran.append(number)

    for number in range(5):
        await elsewhere.enqueue("t", [number])
        await asyncio.sleep(0.002)  # those of one millisecond come in any order
    await any_concert.run_worker("default", burst=True)
    assert ran == [0, 1, 2, 3, 4]


async def test_keys_take_turns_among_jobs_by_name(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """One tenant with many does not delay the next one."""
    ran: list[str] = []

    @any_concert.task(name="t", key=first, share=True)
    async def t(key: str) -> None:
        ran.append(key)

    for key in "aaaab":
        await elsewhere.enqueue("t", [key])
    await any_concert.run_worker("default", concurrency=1, burst=True)
    assert (sorted(ran), ran.index("b") < 4) == (["a"] * 4 + ["b"], True)


async def test_rate_holds_for_jobs_by_name(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """The second one has to wait for an hour."""
    ran: list[int] = []

    @any_concert.task(name="t", rate=Rate(1, per=3600.0))
    async def t(number: int) -> None:
        ran.append(number)

    jobs = [await elsewhere.enqueue("t", [number]) for number in range(3)]
    await any_concert.run_worker("default", burst=True)
    assert (len(ran), [await job.status() for job in jobs].count(JobStatus.DELAYED)) == (1, 2)


async def test_jobs_of_a_release_without_the_limit_count_in_it(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """Those that its task has enqueued, and those of a schedule that was put by it."""
    running = Running()

    @elsewhere.task(name="t")
    async def old(key: str) -> None: ...

    @any_concert.task(name="t", limit=Limit(1))
    async def new(key: str) -> None:
        await running.run(key)

    await old.enqueue("a")
    await elsewhere.schedules.put("s", old.call("a"), every=3600)
    await elsewhere.schedules.trigger("s")
    async with in_background(any_concert.run_worker("default")):
        await running.until(1)
        await eventually(lambda: held_back(any_concert, 1))
        running.free.set()
        await running.until(2)
    assert running.most == {"a": 1}


async def test_job_by_name_counts_in_the_queue_of_its_task(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """It goes there if the caller named no queue; otherwise it stays, and counts by itself."""
    queues: list[str] = []

    @any_concert.task(name="t", queue="high", limit=Limit(1))
    async def t() -> None:
        queues.append(current_job().queue)

    await elsewhere.enqueue("t")
    await elsewhere.enqueue("t", queue="default")
    await any_concert.run_worker("default", burst=True)
    await any_concert.run_worker("high", burst=True)
    assert queues == ["default", "high"]


async def test_job_is_stored_once_more_and_then_as_its_task_stores_it(server: RealServer, namespace: str) -> None:
    """Signed, with its trace and all else; a job without limits is not stored again."""
    async with Coordinator(server.url, namespace=namespace, signing_keys=KEYS) as concert:
        ran: list[Envelope] = []

        @concert.task(name="t", limit=Limit(1), max_attempts=2)
        async def t(number: int) -> None:
            ran.append(state_of(current_job()).envelope)

        await concert.enqueue("t", [1], headers={"tenant": "acme"})
        await concert.run_worker("default", burst=True)
        await t.options(headers={"tenant": "acme"}).enqueue(1)
        await concert.run_worker("default", burst=True)
        assert ran[0] == ran[1]


async def test_error_of_a_key_dead_letters_a_job_by_name(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """As it refuses one that its task enqueues."""

    def no_key(number: int) -> Any:
        del number

    @any_concert.task(name="t", key=no_key, key_limit=1)
    async def t(number: int) -> None: ...

    job = await elsewhere.enqueue("t", [1])
    await any_concert.run_worker("default", burst=True)
    with pytest.raises(JobFailed, match="the key of a job is None"):
        await job.result(timeout=0)


async def test_cancelled_job_by_name_is_not_stored_again(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """It is ended by the claim."""

    @any_concert.task(name="t", limit=Limit(1))
    async def t() -> None: ...

    job = await elsewhere.enqueue("t")
    assert await job.cancel()
    await any_concert.run_worker("default", burst=True)
    assert await job.status() is JobStatus.CANCELLED


@pytest.mark.parametrize("spread_over", [1, 3])
async def test_limit_holds_for_a_producer_without_a_loop_wherever_jobs_are_spread(
    server: RealServer | RealCluster, namespace: str, spread_over: int
) -> None:
    """All jobs of a task by name lie where its limit counts."""
    running = Running()
    async with Coordinator(server.url, namespace=namespace, partitions=spread_over) as concert:

        @concert.task(name="t", limit=Limit(1))
        async def t(number: int) -> None:
            await running.run("t", number)
            running.free.clear()

        def produce() -> None:
            with SyncProducer(server.url, namespace=namespace, partitions=spread_over) as producer:
                for number in range(3):
                    producer.enqueue("t", [number])

        await asyncio.to_thread(produce)
        await t.enqueue(3)
        async with in_background(concert.run_worker("default")):
            for count in range(1, 5):
                await running.until(count)
                running.free.set()
        assert running.most == {"t": 1}


async def test_task_is_taken_in_place_of_its_name(any_concert: Coordinator) -> None:
    """With its own queue, options and types."""

    @any_concert.task(name="t", queue="high", max_attempts=1)
    async def t(numbers: tuple[int, ...]) -> int:
        return sum(numbers)

    job: Job[Any] = await any_concert.enqueue(t, [(1, 2)])
    assert [found.id for found in (await any_concert.tasks.jobs(task=t)).jobs] == [job.id]
    await any_concert.run_worker("high", burst=True)
    assert await job.result(timeout=0) == 3
    with pytest.raises(TypeError, match="do not fit task 't'"):
        await any_concert.enqueue(t)
    assert await any_concert.tasks.replay_all(task=t) == await any_concert.tasks.purge_all(task=t) == 0


@pytest.mark.one_server("makes a client of its own")
async def test_producer_takes_a_task_in_place_of_its_name(server: RealServer, namespace: str) -> None:
    """Likewise."""
    async with Coordinator(server.url, namespace=namespace) as concert:

        @concert.task(name="t", queue="high")
        async def t(number: int) -> int:
            return number

        with SyncProducer(server.url, namespace=namespace) as producer:
            job = await asyncio.to_thread(producer.enqueue, t, [7])
        await concert.run_worker("high", burst=True)
        assert await concert.tasks.job(job.id).result(timeout=0) == 7


def of_elsewhere(concert: Coordinator) -> object:
    """A task."""
    del concert

    @Coordinator("redis://nowhere").task(name="a")
    async def task() -> None: ...

    return task


THINGS: list[tuple[Callable[[Coordinator], object], str]] = [
    (of_elsewhere, "pass its .name"),
    (lambda concert: concert.lock("a"), "pass the name that was given to it"),
    (lambda concert: concert.tasks.job("a.1.0"), "pass its .id"),
    (lambda _: 17, r"pass str\(\.\.\.\) of it"),
    (lambda _: b"a", "pass it decoded"),
]


@pytest.mark.parametrize(("thing", "advice"), THINGS)
async def test_what_is_no_name_is_refused_with_what_to_pass(
    any_concert: Coordinator, thing: Callable[[Coordinator], Any], advice: str
) -> None:
    """Never the text of an object of ours, which names nothing."""
    for make in (any_concert.lock, any_concert.queue, any_concert.event):
        with pytest.raises(InvalidName, match=f"and .* is not; {advice}$"):
            make(thing(any_concert))
