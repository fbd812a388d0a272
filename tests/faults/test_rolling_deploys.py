"""A release of a user's code is rolled out: old and new workers share the queues, and nothing is dead-lettered.

Each row of the table of tasks in `docs/how-to/upgrades.md` is run here, by an old and a new worker in turn.
"""

import asyncio
import os
import random
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from textwrap import dedent

import anyio
import pytest

from inconcert import Coordinator, Job, JobFailed, JobStatus, Limit, Rate, StepChanged, current_job, durable
from inconcert.tasks.running import lifted_limits
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.jobs import make_due
from tests.support.ledger import ledger_of
from tests.support.processes import Leashed
from tests.support.servers import RealServer

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "upgrades.md"
TURNS = 10  # of both workers; a job comes to one that knows it in the first

Story = Callable[[Coordinator, Coordinator], Awaitable[None]]


async def in_turn(*workers: Coordinator, queues: tuple[str, ...] = ("default",)) -> None:
    """Let these workers run what they can, one after the other, until no job is left."""
    for _ in range(TURNS):
        for worker in workers:
            await worker.run_worker(*queues, burst=True)
            for queue in queues:
                await make_due(worker, queue)
        if not (await ledger_of(workers[0])).bodies:
            return
    ledger = await ledger_of(workers[0])
    raise AssertionError(f"left: {ledger.bodies}; dead: {ledger.reasons}")


async def new_task(old: Coordinator, new: Coordinator) -> None:
    """The new release enqueues before all workers are new."""

    @new.task(name="fresh")
    async def fresh() -> int:
        return current_job().attempt

    job = await fresh.enqueue()
    await in_turn(old, new)
    assert await job.result(timeout=0) == 1


async def new_schedule(old: Coordinator, new: Coordinator) -> None:
    """The new workers themselves enqueue its jobs, which old ones claim, too."""
    ran: list[float | None] = []

    @new.cron(every=0.2)
    @new.task(name="tick")
    async def tick() -> None:
        ran.append(current_job().scheduled_at)

    async with in_background(old.run_worker("default")), in_background(new.run_worker("default")):
        await eventually(lambda: len(ran) >= 5, timeout=30)
    assert not await old.tasks.dead()


async def renamed_task(old: Coordinator, new: Coordinator) -> None:
    """The new release keeps the old name beside the new one."""

    @old.task(name="old_name")
    async def task() -> str:
        return "old"

    async def renamed() -> str:
        return "new"

    new.task(name="old_name")(renamed)
    job, other = await task.enqueue(), await new.task(name="new_name")(renamed).enqueue()
    await in_turn(new, old)
    assert (await job.result(timeout=0), await other.result(timeout=0)) == ("new", "new")


async def parameter_with_default(old: Coordinator, new: Coordinator) -> None:
    """Jobs of the old form use it; those that give it go to the new workers."""

    @old.task(name="t")
    async def before(number: int) -> int:
        return number

    @new.task(name="t")
    async def after(number: int, factor: int = 10) -> int:
        return number * factor

    jobs = [await before.enqueue(1), await after.enqueue(1, 2)]
    await in_turn(new, old)
    jobs += [await before.enqueue(1), await after.enqueue(1, 2)]
    await in_turn(old, new)
    assert [await job.result(timeout=0) for job in jobs] == [10, 2, 1, 2]


async def parameter_without_default(old: Coordinator, new: Coordinator) -> None:
    """Each release runs its own jobs while both are there."""

    @old.task(name="t")
    async def before(number: int) -> str:
        return "old"

    @new.task(name="t")
    async def after(number: int, tenant: str) -> str:
        return "new"

    jobs: list[Job[str]] = [await before.enqueue(1), await after.enqueue(1, "acme")]
    await in_turn(old, new)
    assert [await job.result(timeout=0) for job in jobs] == ["old", "new"]


async def other_queue(old: Coordinator, new: Coordinator) -> None:
    """The new workers serve both queues until the old one is empty."""

    @old.task(name="t", queue="first")
    async def before() -> str:
        return ""

    @new.task(name="t", queue="second")
    async def after() -> str:
        return current_job().queue

    jobs = [await before.enqueue(), await after.enqueue()]
    await in_turn(new, queues=("second", "first"))
    assert [await job.result(timeout=0) for job in jobs] == ["first", "second"]


async def added_limit(old: Coordinator, new: Coordinator) -> None:
    """Jobs that were enqueued before it was there count in it."""
    running = most = 0

    @old.task(name="t")
    async def before() -> None: ...

    @new.task(name="t", limit=Limit(1))
    async def after() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0.01)
        running -= 1

    for _ in range(3):
        await before.enqueue()
        await after.enqueue()
    await in_turn(new)
    assert most == 1


async def changed_limit(old: Coordinator, new: Coordinator) -> None:
    """The latest is in force, and all jobs run."""

    @old.task(name="t", limit=Limit(1))
    async def before() -> None: ...

    @new.task(name="t", limit=Limit(3))
    async def after() -> None: ...

    jobs = [await task.enqueue() for task in (before, after) * 5]
    await in_turn(old, new)
    assert {await job.status() for job in jobs} == {JobStatus.SUCCEEDED}


async def removed_limit(old: Coordinator, new: Coordinator) -> None:
    """A worker of the new release lets the jobs go that wait for it."""

    @old.task(name="t", rate=Rate(1, per=3600))
    async def before() -> None: ...

    @new.task(name="t")
    async def after() -> None: ...

    del after
    jobs = [await before.enqueue() for _ in range(3)]
    await old.run_worker("default", burst=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lifted_limits, "_QUIET", 0.0)
        async with in_background(new.run_worker("default")):
            for job in jobs:
                await job.result(timeout=10)


async def removed_key_limit(old: Coordinator, new: Coordinator) -> None:
    """All jobs run; those that wait do so one after the other, as before."""

    @old.task(name="t", key=str, key_limit=1)
    async def before(user: str) -> None:
        del user

    @new.task(name="t")
    async def after(user: str) -> None:
        del user

    jobs = [await task.enqueue("u") for task in (before, before, after, before)]
    await in_turn(old, new)
    assert {await job.status() for job in jobs} == {JobStatus.SUCCEEDED}


async def other_option(old: Coordinator, new: Coordinator) -> None:
    """A job keeps what its task said when it was enqueued; what was at its default is the worker's."""
    attempts: list[int] = []

    @old.task(name="said", max_attempts=1)
    async def said() -> None: ...

    @old.task(name="default")
    async def default() -> None: ...

    async def fails() -> None:
        attempts.append(current_job().attempt)
        raise ValueError

    new.task(name="said", max_attempts=9)(fails)
    new.task(name="default", max_attempts=1)(fails)
    jobs: list[Job[None]] = [await said.enqueue(), await default.enqueue()]
    await new.run_worker("default", burst=True)
    assert ([await job.status() for job in jobs], attempts) == ([JobStatus.FAILED] * 2, [1, 1])


async def changed_schedule(old: Coordinator, new: Coordinator) -> None:
    """Both are followed while both kinds of workers are there; each runs the jobs of both."""
    ran: set[float] = set()

    async def tick() -> None:
        ran.add(round(current_job().scheduled_at or 0, 3))

    old.cron(every=0.5)(old.task(name="tick")(tick))
    new.cron(every=0.3)(new.task(name="tick")(tick))
    async with in_background(old.run_worker("default")), in_background(new.run_worker("default")):
        await eventually(lambda: {round(at * 10) % 10 for at in ran} >= {5, 3, 6}, timeout=30)
    assert not await old.tasks.dead()


async def begun(old: Coordinator, body: Callable[[], Awaitable[str]]) -> Job[str]:
    """A job of this body whose first attempt has failed in an old worker."""
    failed = asyncio.Event()

    @old.task(name="order")
    async def order() -> str:
        await body()
        failed.set()
        raise ValueError("later")

    job = await order.enqueue()
    await old.run_worker("default", burst=True)
    assert failed.is_set()
    await make_due(old, "default")
    return job


async def charge() -> str:
    """A step."""
    return "charged"


async def charge_by_card() -> str:
    """Another one."""
    return "charged by card"


async def other_steps(old: Coordinator, new: Coordinator) -> None:
    """Those that were kept count, wherever they stand."""
    job = await begun(old, lambda: durable.step("charge", charge))

    @new.task(name="order")
    async def order() -> str:
        await durable.step("reserve", charge_by_card)
        return await durable.step("charge", charge)

    await in_turn(new)
    assert await job.result(timeout=0) == "charged"


async def renamed_step(old: Coordinator, new: Coordinator) -> None:
    """A begun job would run it again; where the function asks by the old name, it does not."""
    job = await begun(old, lambda: durable.step("charge", charge))

    @new.task(name="order")
    async def order() -> str:
        return await durable.step("charge", charge_by_card, on_change="keep")

    await in_turn(new)
    assert await job.result(timeout=0) == "charged"


async def changed_step(old: Coordinator, new: Coordinator) -> None:
    """The job is dead-lettered with what was and what is."""
    job = await begun(old, lambda: durable.step("charge", charge))

    @new.task(name="order")
    async def order() -> str:
        return await durable.step("charge", charge_by_card)

    await new.run_worker("default", burst=True)
    with pytest.raises(JobFailed, match=StepChanged.__name__):
        await job.result(timeout=0)


ROWS: dict[str, Story] = {
    "has a new task": new_task,
    "has a new `@concert.cron`": new_schedule,
    "renames a task, or removes it": renamed_task,
    "adds a parameter with a default": parameter_with_default,
    "adds a parameter without one, renames or removes one": parameter_without_default,
    "gives a task another `queue=`": other_queue,
    "adds `limit=`, `rate=`, `key=` or another option to a task": added_limit,
    "changes `limit=`, `rate=` or `key_limit=` of a task": changed_limit,
    "removes `limit=` or `rate=` of a task": removed_limit,
    "removes `key_limit=` or `share=` of a task": removed_key_limit,
    "changes or removes another option of a task": other_option,
    "changes the instants of a `@concert.cron`": changed_schedule,
    "adds, drops or moves steps": other_steps,
    "renames a step": renamed_step,
    "changes the function or the arguments of a step": changed_step,
}


@pytest.mark.parametrize("row", ROWS)
async def test_change_of_tasks_is_rolled_out(concert: Coordinator, elsewhere: Coordinator, row: str) -> None:
    """As the page says: by old and new workers side by side."""
    await ROWS[row](concert, elsewhere)


def test_page_has_a_row_for_each_change() -> None:
    """And each row is run here."""
    _, _, section = PAGE.read_text().partition("### Tasks, schedules and steps\n")
    table, _, _ = section.partition("\n#")
    cells = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
    assert cells[2:] == list(ROWS)


OLD = """
    import os
    from inconcert import Coordinator, Limit
    concert = Coordinator(os.environ["URL"], namespace=os.environ["NAMESPACE"])
    done = concert.queue("done")

    @concert.task(name="both")
    async def both(number: int) -> None:
        await done.put(["both", number])
"""
NEW = (
    OLD.replace('name="both"', 'name="both", limit=Limit(2)').replace("number: int", "number: int, factor: int = 1")
    + """
    @concert.task(name="fresh", limit=Limit(3))
    async def fresh(number: int) -> None:
        await done.put(["fresh", number])

    @concert.cron(every=0.5)
    @concert.task(name="tick")
    async def tick() -> None:
        await done.put(["tick", 0])
"""
)


@pytest.mark.torture
async def test_fleet_is_rolled_out_and_back_under_load(
    server: RealServer, namespace: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Workers of both releases are ended, killed and replaced by the other release; each job runs, and none is dead."""
    draw = random.Random(request.config.getoption("--seed"))
    (tmp_path / "old_release.py").write_text(dedent(OLD))
    (tmp_path / "new_release.py").write_text(dedent(NEW))
    variables = {**os.environ, "URL": server.url, "NAMESPACE": namespace, "PYTHONPATH": str(tmp_path)}

    def start(release: str) -> Leashed:
        command = [sys.executable, "-m", "inconcert", "worker", f"{release}:concert", "--concurrency", "5"]
        with (tmp_path / "log").open("ab") as log:
            return Leashed(command, stdout=log.fileno(), stderr=log, env=variables)

    async with Coordinator(server.url, namespace=namespace) as concert:
        sent: set[tuple[str, int]] = set()
        fleet = [start("old_release") for _ in range(3)]
        try:
            with anyio.move_on_after(request.config.getoption("--seconds")):
                while True:
                    for number in range(len(sent), len(sent) + 10):
                        name = draw.choice(("both", "fresh"))
                        await concert.enqueue(name, [number])
                        sent.add((name, number))
                    await anyio.sleep(0.3)
                    if draw.random() < 0.3:
                        which = draw.randrange(len(fleet))
                        await asyncio.to_thread(fleet[which].kill if draw.random() < 0.3 else fleet[which].terminate)
                        fleet[which] = start(draw.choice(("old_release", "new_release")))
            fleet.append(start("new_release"))
            left, done = set(sent), concert.queue("done", tuple[str, int])
            with anyio.fail_after(120):
                while left:
                    async with await done.get() as item:
                        left.discard(item)
            assert not await concert.tasks.dead()
        finally:
            for each in fleet:
                each.kill()
