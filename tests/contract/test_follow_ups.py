"""Jobs that follow another: they are added by the script that acknowledges it, or not at all."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from inconcert import (
    Coordinator,
    InvalidPayload,
    JobStatus,
    NotClaimed,
    Retry,
    current_job,
)
from inconcert._core.observer import Observer
from tests.support.background import in_background
from tests.support.raw import raw

WITHIN = 5.0  # seconds

Body = Callable[[], Coroutine[Any, Any, object]]


async def run(concert: Coordinator, body: Body, *, attempts: int = 2) -> Any:
    """Run this as a job."""
    task = concert.task(name="first", max_attempts=attempts)(body)
    job = await task.enqueue()
    async with in_background(concert.run_worker("default", burst=True)):
        return await job.result(timeout=WITHIN)


async def now(concert: Coordinator, job_id: str) -> JobStatus:
    """How this job is."""
    return await concert.tasks.job(job_id).status()


async def test_job_that_follows_is_added_when_the_first_succeeds(any_concert: Coordinator) -> None:
    """With its own options, and under the ids that were told before."""

    @any_concert.task(name="ship", queue="shipping")
    async def ship(order: int) -> str:
        return f"shipped {order}"

    async def charge() -> list[str]:
        ids = current_job().enqueue_on_success(ship.call(7), ship.options(delay=60).call(8))
        ids += current_job().enqueue_on_success(ship.call(9))
        for id_ in ids:
            assert await now(any_concert, id_) is JobStatus.UNKNOWN
        return ids

    seven, eight, nine = await run(any_concert, charge)
    assert [await now(any_concert, id_) for id_ in (seven, eight, nine)] == ["queued", "delayed", "queued"]
    assert any_concert._jobs.of_id(seven) is any_concert._jobs.of_id(nine)
    async with in_background(any_concert.run_worker("shipping", burst=True)):
        job: Any = any_concert.tasks.job(seven)
        assert await job.result(timeout=WITHIN) == "shipped 7"
        assert await any_concert.tasks.job(nine).result(timeout=WITHIN) == "shipped 9"


async def test_only_the_attempt_that_succeeds_adds_its_own(any_concert: Coordinator) -> None:
    """One that fails adds nothing."""
    added: list[str] = []

    @any_concert.task(name="ship", queue="shipping")
    async def ship(attempt: int) -> int:
        return attempt

    async def charge() -> None:
        added.extend(current_job().enqueue_on_success(ship.call(current_job().attempt)))
        if current_job().attempt == 1:
            raise Retry(after=0)

    await run(any_concert, charge)
    assert len(added) == 2
    assert await now(any_concert, added[0]) is JobStatus.UNKNOWN
    async with in_background(any_concert.run_worker("shipping", burst=True)):
        assert await any_concert.tasks.job(added[1]).result(timeout=WITHIN) == 2


@pytest.mark.parametrize("end", ["nack", "bury", "give_back", "cancel"])
async def test_job_that_does_not_succeed_adds_nothing(any_concert: Coordinator, end: str) -> None:
    """However it ends."""
    ship = any_concert.task(name="ship", queue="shipping")(_ship)
    job = await any_concert.task(name="first", queue="mine")(_ship).enqueue()
    id_ = ""
    async with any_concert.consume("mine") as jobs:
        claimed = await anext(jobs)
        async with claimed:
            [id_] = claimed.enqueue_on_success(ship.call())
            if end == "nack":
                await claimed.nack(delay=60)
            elif end == "bury":
                await claimed.bury(RuntimeError("no"))
            elif end == "give_back":
                await claimed.give_back()
            else:
                await job.cancel()
    assert await now(any_concert, id_) is JobStatus.UNKNOWN
    assert await any_concert.tasks.queues() == ["mine"]


async def test_explicit_ack_adds_them_too(any_concert: Coordinator) -> None:
    """Once; after it nothing can be added."""
    ship = any_concert.task(name="ship", queue="shipping")(_ship)
    await any_concert.task(name="first", queue="mine")(_ship).enqueue()
    id_ = ""
    async with any_concert.consume("mine") as jobs:
        claimed = await anext(jobs)
        async with claimed:
            [id_] = claimed.enqueue_on_success(ship.call())
            await claimed.ack()
            with pytest.raises(NotClaimed):
                claimed.enqueue_on_success(ship.call())
    assert await now(any_concert, id_) == "queued"
    assert (await any_concert.tasks.stats()).queues["shipping"].ready == 1


async def test_jobs_that_end_together_each_add_their_own(any_concert: Coordinator) -> None:
    """Those with jobs that follow, and those without, in one turn of the loop."""

    @any_concert.task(name="leaf", queue="leaves")
    async def leaf(number: int) -> int:
        return number

    @any_concert.task(name="first")
    async def first(number: int) -> None:
        if number % 3 == 0:
            current_job().enqueue_on_success(*(leaf.call(number) for _ in range(number)))

    jobs = await any_concert.enqueue_many(first.call(number) for number in range(10))
    async with in_background(any_concert.run_worker("default", concurrency=10, burst=True)):
        for job in jobs:
            await job.result(timeout=WITHIN)
    assert (await any_concert.tasks.stats()).queues["leaves"].ready == 3 + 6 + 9


async def test_plain_function_adds_from_its_thread(any_concert: Coordinator) -> None:
    """It has no event loop."""
    ship = any_concert.task(name="ship", queue="shipping")(_ship)

    def charge() -> list[str]:
        return current_job().enqueue_on_success(ship.call())

    task = any_concert.task(name="first")(charge)
    job = await task.enqueue()
    async with in_background(any_concert.run_worker("default", burst=True)):
        [id_] = await job.result(timeout=WITHIN)
    assert await now(any_concert, id_) == "queued"


async def test_dependents_of_the_first_run_as_well(any_concert: Coordinator) -> None:
    """It ends as any other does."""
    ship = any_concert.task(name="ship", queue="shipping")(_ship)

    @any_concert.task(name="first")
    async def first() -> int:
        current_job().enqueue_on_success(ship.call())
        return 1

    @any_concert.task(name="second")
    async def second() -> list[Any]:
        return await current_job().parent_results()

    parent = await first.options(unique="one at a time").enqueue()
    child = await second.options(after=[parent]).enqueue()
    async with in_background(any_concert.run_worker("default")):
        assert await child.result(timeout=WITHIN) == [1]
        assert (await first.options(unique="one at a time").enqueue()).created


async def test_observers_are_told_of_what_was_added(any_concert: Coordinator) -> None:
    """As of any other job, once it is there."""
    told: list[tuple[str, str]] = []

    class Telling(Observer):
        def job_enqueued(self, task: str, queue: str) -> None:
            told.append((task, queue))

    any_concert._ref.session.observers.append(Telling())
    ship = any_concert.task(name="ship", queue="shipping")(_ship)

    async def charge() -> None:
        current_job().enqueue_on_success(ship.call())
        assert told == [("first", "default")]

    await run(any_concert, charge)
    assert told == [("first", "default"), ("ship", "shipping")]


async def test_bad_input_is_refused_and_the_rest_is_kept(any_concert: Coordinator) -> None:
    """Before anything is sent; what was accepted before is added."""
    ship = any_concert.task(name="ship", queue="shipping")(_ship)
    large = any_concert.task(name="large", queue="shipping")(_takes)

    async def charge() -> None:
        job = current_job()
        assert job.enqueue_on_success() == []
        job.enqueue_on_success(ship.call())
        with pytest.raises(TypeError, match=r"give task.call"):
            job.enqueue_on_success(ship)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        for unlike in (ship.options(unique="u"), ship.options(after=[job.id])):
            with pytest.raises(ValueError, match="unique= or after="):
                job.enqueue_on_success(unlike.call())
        with pytest.raises(ValueError, match="101 jobs"):
            job.enqueue_on_success(*(ship.call() for _ in range(100)))
        with pytest.raises(InvalidPayload, match="1 MiB"):
            job.enqueue_on_success(large.call("x" * 600_000), large.call("x" * 600_000))

    await run(any_concert, charge)
    assert (await any_concert.tasks.stats()).queues["shipping"].ready == 1


async def test_job_that_is_delivered_at_most_once_cannot_add(any_concert: Coordinator) -> None:
    """It has ended before its body begins."""
    ship = any_concert.task(name="ship", queue="shipping")(_ship)
    await any_concert.task(name="first", queue="mine")(_ship).enqueue()
    async with any_concert.consume("mine", delivery="at_most_once") as jobs:
        claimed = await anext(jobs)
        async with claimed:
            with pytest.raises(RuntimeError, match="at most once"):
                claimed.enqueue_on_success(ship.call())


async def test_foreign_key_in_the_way_leaves_the_job_claimed(any_concert: Coordinator) -> None:
    """Nothing is done by halves: the job is not done while what follows it cannot be added."""
    ship = any_concert.task(name="ship", queue="shipping")(_ship)
    job = await any_concert.task(name="first", queue="mine")(_ship).enqueue()
    keys = any_concert._jobs.of_id(job.id)
    client: Any = raw(any_concert)
    await client.set(keys.queue("shipping").queue, "foreign")
    async with any_concert.consume("mine") as jobs:
        claimed = await anext(jobs)
        async with claimed:
            claimed.enqueue_on_success(ship.call())
        assert await now(any_concert, job.id) == JobStatus.RUNNING
        await client.delete(keys.queue("shipping").queue)
    assert (
        await now(any_concert, job.id) == JobStatus.SUCCEEDED
    )  # the worker repeats what was not confirmed, at its end
    assert (await any_concert.tasks.stats()).queues["shipping"].ready == 1


async def _ship() -> None:
    pass


async def _takes(text: str) -> None:
    del text
