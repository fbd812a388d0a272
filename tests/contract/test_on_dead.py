"""A task is told when a job is dead-lettered, once for each death, by the script that does that."""

from typing import Any

import pytest

from inconcert import Coordinator, DeadJob, Job, JobStatus, Limit, Task, current_job, durable
from inconcert.tasks.records.deaths import death_id
from tests.conftest import nothing_is_left
from tests.support.jobs import lapse_all, let_expire
from tests.support.ledger import ledger_of
from tests.support.servers import RealServer

HOUR = 3600.0


class Deaths:
    """Tasks of which one is told of the deaths of the other's jobs.

    Attributes:
        told: What it was told.
        notify: The task that is told.
        ends: The task whose jobs end as their argument says.
    """

    def __init__(self, concert: Coordinator, **options: Any) -> None:
        self.concert = concert
        self.told: list[DeadJob] = []
        self.headers: list[dict[str, str]] = []

        @concert.task(name="notify", **options)
        async def notify(job: DeadJob) -> None:
            self.told.append(job)
            self.headers.append(dict(current_job().headers))

        @concert.task(name="ends", on_dead=notify, max_attempts=2, backoff=lambda _: 0.0)
        async def ends(how: str, *, price: int = 3) -> None:
            if how == "undo":
                async with durable.undo() as undo:
                    undo.later("refund", int, price)
                    raise ValueError(how)
            if how != "succeed":
                raise ValueError(how)

        self.notify: Task[[DeadJob], Any] = notify
        self.ends: Task[..., Any] = ends

    async def run(self) -> None:
        """Run all that can run."""
        await self.concert.run_worker("default", burst=True)

    def about(self, job: Job[Any], reason: str, attempts: int, how: str) -> DeadJob:
        """What it is told of this one."""
        return DeadJob(id=job.id, task="ends", args=[how], kwargs={}, reason=reason, attempts=attempts)


async def test_task_is_told_what_the_job_was_and_why_it_died(any_concert: Coordinator) -> None:
    """With its arguments, and with its headers around."""
    deaths = Deaths(any_concert)
    job = await deaths.ends.options(headers={"tenant": "ann"}).enqueue("fail", price=5)
    await deaths.run()
    assert deaths.told == [
        DeadJob(id=job.id, task="ends", args=["fail"], kwargs={"price": 5}, reason="ValueError: fail", attempts=2)
    ]
    assert deaths.headers == [{"tenant": "ann"}]
    ledger = await ledger_of(any_concert)
    assert (ledger.bodies, ledger.dead, ledger.waiting) == ([job.id], [job.id], [])


async def test_job_that_succeeds_or_is_cancelled_is_not_told_of(any_concert: Coordinator) -> None:
    """These are no deaths."""
    deaths = Deaths(any_concert)
    await deaths.ends.enqueue("succeed")
    late = await deaths.ends.options(delay=HOUR).enqueue("fail")
    assert await late.cancel()
    await deaths.run()
    assert deaths.told == []


async def test_each_way_to_die_is_told(any_concert: Coordinator) -> None:
    """By the script of each: of a failure, an undoing, an expiry, and of a parent that failed before or after."""
    deaths = Deaths(any_concert)
    expired = await deaths.ends.options(expires=HOUR).enqueue("succeed")
    await let_expire(any_concert, expired)
    failed = await deaths.ends.enqueue("fail")
    undone = await deaths.ends.enqueue("undo")
    orphan = await deaths.ends.options(after=[failed]).enqueue("succeed")
    await deaths.run()
    late = await deaths.ends.options(after=[failed]).enqueue("succeed")
    assert await late.status() is JobStatus.FAILED
    await deaths.run()
    reasons = {job.id: job.reason for job in deaths.told}
    assert len(deaths.told) == 5
    assert reasons.keys() == {expired.id, failed.id, undone.id, orphan.id, late.id}
    assert "JobExpired" in reasons[expired.id]
    assert reasons[undone.id] == "ValueError: undo"
    assert reasons[orphan.id] == reasons[late.id] == f"its parent {failed.id} failed"


async def test_death_by_crashes_is_told(concert: Coordinator) -> None:
    """The worker that finds the last one dead tells it."""
    deaths = Deaths(concert)
    job = await deaths.ends.options(max_crashes=1).enqueue("succeed")
    async with concert.consume("default") as jobs:
        await anext(jobs)
        await lapse_all(concert)
        await deaths.run()
    assert deaths.told == [deaths.about(job, "1 worker died with it", 1, "succeed")]


async def test_replayed_job_that_dies_again_is_told_of_again(any_concert: Coordinator) -> None:
    """Each death by a job of its own."""
    deaths = Deaths(any_concert)
    job = await deaths.ends.enqueue("fail")
    for count in (1, 2):
        await deaths.run()
        assert deaths.told == [deaths.about(job, "ValueError: fail", 2, "fail")] * count
        await any_concert.tasks.replay(job.id)
    assert len(deaths.told) == 2


async def test_job_enqueued_by_name_has_it_from_the_task_of_the_worker(any_concert: Coordinator) -> None:
    """Its enqueuer does not know the task."""
    deaths = Deaths(any_concert)
    job = await any_concert.enqueue("ends", ["fail"])
    await deaths.run()
    assert deaths.told == [deaths.about(job, "ValueError: fail", 2, "fail")]


async def test_told_task_has_its_own_queue_limits_and_history(concert: Coordinator) -> None:
    """As if it were enqueued by its name, in its queue."""
    deaths = Deaths(concert, queue="alerts", limit=Limit(1), history=10)
    jobs = [await deaths.ends.enqueue("fail") for _ in range(3)]
    await deaths.run()
    assert (await concert.tasks.stats("alerts")).queues["alerts"].ready == 3
    await concert.run_worker("alerts", burst=True)
    assert [job.id for job in deaths.told] == [job.id for job in jobs]
    assert len(await deaths.notify.history()) == 3


async def test_death_of_the_one_that_tells_is_not_told(any_concert: Coordinator) -> None:
    """It is dead-lettered, and can be replayed, as any other."""
    told: list[str] = []

    @any_concert.task(name="shout", max_attempts=1)
    async def shout(job: DeadJob) -> None:
        told.append(job.id)
        if len(told) == 1:
            raise ValueError("nobody is there")

    @any_concert.task(name="ends", on_dead=shout, max_attempts=1)
    async def ends() -> None:
        raise ValueError

    job = await ends.enqueue()
    await any_concert.run_worker("default", burst=True)
    dead = {each.id: each for each in await any_concert.tasks.dead()}
    telling = death_id(job.id, dead[job.id].died_at or 0)
    assert dead.keys() == {job.id, telling}
    assert (dead[telling].task, dead[telling].args[0]["id"]) == ("shout", job.id)  # type: ignore[index, call-overload]
    await any_concert.tasks.replay(telling)
    await any_concert.run_worker("default", burst=True)
    assert told == [job.id, job.id]


async def test_signature_of_the_dead_job_counts(server: RealServer, namespace: str) -> None:
    """What says that another job died is refused, as any job that was not signed."""
    keys = {"now": "a secret of the service"}
    async with Coordinator(server.url, namespace=namespace) as forger:
        forged = Deaths(forger, queue="alerts")
        job = await forged.ends.enqueue("fail")
        await forged.run()
    async with Coordinator(server.url, namespace=namespace, signing_keys=keys) as signing:
        deaths = Deaths(signing, queue="alerts")
        mine = await deaths.ends.enqueue("fail")
        await deaths.run()
        await signing.run_worker("alerts", burst=True)
        assert [each.id for each in deaths.told] == [mine.id]
        errors = {dead.id: dead.error for dead in await signing.tasks.dead()}
    [refused] = [error for id_, error in errors.items() if id_ not in (job.id, mine.id)]
    assert "is not signed, as signing_keys demand" in refused
    await nothing_is_left(server, namespace)


async def test_explanation_of_a_dead_job_names_the_one_that_tells(concert: Coordinator) -> None:
    """And what became of that."""
    deaths = Deaths(concert, queue="alerts")
    job = await deaths.ends.enqueue("fail")
    await deaths.run()
    [dead] = await concert.tasks.dead()
    telling = death_id(job.id, dead.died_at or 0)
    reasons = {each.code: each.text for each in (await concert.explain(f"job:{job.id}")).reasons}
    assert reasons["on_dead"] == f"job {telling} of task 'notify' tells of it: queued"


async def test_argument_that_is_named_on_dead_is_no_option(any_concert: Coordinator) -> None:
    """Scripts look for it in the envelope only."""

    @any_concert.task(name="ends", max_attempts=1)
    async def ends(data: dict[str, list[str]]) -> None:
        raise ValueError

    job = await ends.enqueue({"on_dead": ["ends", "default"]})
    await any_concert.run_worker("default", burst=True)
    assert (await ledger_of(any_concert)).bodies == [job.id]


def test_on_dead_is_checked_where_it_is_given(here: Coordinator) -> None:
    """Before anything is sent."""

    @here.task
    async def no_argument() -> None: ...

    @here.task
    async def number(one: int) -> None: ...

    async def plain(job: DeadJob) -> None: ...

    for wrong in (no_argument, number):
        with pytest.raises(TypeError, match="does not take one argument, a DeadJob"):
            here.task(name="one", on_dead=wrong)(plain)  # type: ignore[arg-type]
    for wrong in (plain, "notify"):  # type: ignore[assignment]
        with pytest.raises(TypeError, match="give a task"):
            here.task(name="one", on_dead=wrong)(plain)  # type: ignore[arg-type]


def test_task_with_limits_is_told_in_one_partition_only() -> None:
    """Its limits count there."""
    spread = Coordinator("redis://localhost", partitions=3)

    @spread.task(limit=Limit(1))
    async def notify(job: DeadJob) -> None: ...

    with pytest.raises(ValueError, match="over several"):
        spread.task(on_dead=notify)(test_task_with_limits_is_told_in_one_partition_only)
