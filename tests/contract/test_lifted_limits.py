"""Jobs that wait for a limit or a rate which a new release removed go on; those of a newer release wait."""

from typing import Any

import pytest

from inconcert import Coordinator, Limit, Rate
from inconcert.tasks.records.limits import limit_of
from inconcert.tasks.running import lifted_limits as lifted_module
from inconcert.tasks.running import served_queues as served_module
from inconcert.tasks.running.lifted_limits import LiftedLimits
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.limits import Running, in_line
from tests.support.raw import raw

WITHIN = 10.0  # seconds
ONE_AN_HOUR = Rate(1, per=3600.0)


class Turns:
    """How often workers have looked."""

    def __init__(self) -> None:
        self.count = 0

    async def more(self, count: int = 3) -> None:
        """Wait until they have looked so many times."""
        until = self.count + count
        await eventually(lambda: self.count >= until)


@pytest.fixture(autouse=True)
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """Workers look a hundred times a second, and at once at what the latest job has."""
    turns, lift = Turns(), LiftedLimits.lift

    async def count(lifted: LiftedLimits) -> None:
        await lift(lifted)
        turns.count += 1

    monkeypatch.setattr(served_module, "_SHORTEST_PAUSE", 0.01)
    monkeypatch.setattr(served_module, "_LONGEST_PAUSE", 0.01)
    monkeypatch.setattr(lifted_module, "_QUIET", 0.0)
    monkeypatch.setattr(LiftedLimits, "lift", count)
    return turns


@pytest.mark.parametrize(
    "limits", [{"limit": Limit(1)}, {"rate": ONE_AN_HOUR}, {"limit": Limit(1), "rate": Rate(2, per=3600.0)}]
)
async def test_jobs_in_line_for_what_a_release_removed_go_on(
    any_concert: Coordinator, elsewhere: Coordinator, limits: Any
) -> None:
    """In order, also while a worker and a job of the old release are there."""
    running = Running()

    async def run(number: int) -> None:
        await running.run("all", number)

    old = any_concert.task(name="t", **limits)(run)
    elsewhere.task(name="t")(run)
    jobs = await any_concert.enqueue_many([old.call(number) for number in range(5)])
    async with in_background(any_concert.run_worker("default")):
        await eventually(lambda: in_line(any_concert, 4 if "limit" in limits else 3))
        async with in_background(elsewhere.run_worker("default", concurrency=10)):
            await running.until(5)
            running.free.set()
            for job in jobs:
                await job.result(timeout=WITHIN)
    assert running.began == list(range(5))
    assert await in_line(any_concert, 0)


@pytest.mark.parametrize("kept", [{"limit": Limit(1)}, {"rate": ONE_AN_HOUR}])
async def test_what_a_release_keeps_stays_in_force(
    any_concert: Coordinator, elsewhere: Coordinator, turns: Turns, kept: Any
) -> None:
    """And what it removed beside it does not."""
    running = Running()

    async def run(number: int) -> None:
        await running.run("all", number)

    old = any_concert.task(name="t", limit=Limit(1), rate=ONE_AN_HOUR)(run)
    elsewhere.task(name="t", **kept)(run)
    await any_concert.enqueue_many([old.call(number) for number in range(3)])
    async with in_background(elsewhere.run_worker("default", concurrency=10)):
        await running.until(1)
        await turns.more()
        assert running.began == [0]
        running.free.set()
        await running.until(3 if "limit" in kept else 1)
        await turns.more()
        assert len(running.began) == (3 if "limit" in kept else 1)


@pytest.mark.parametrize("limits", [{"limit": Limit(1)}, {"rate": ONE_AN_HOUR}])
async def test_new_limit_is_not_lifted_by_a_worker_that_started_before(
    any_concert: Coordinator, elsewhere: Coordinator, turns: Turns, limits: Any
) -> None:
    """Nor by one that starts later, as long as such jobs come."""
    running = Running()

    async def run(number: int) -> None:
        await running.run("all", number)

    any_concert.task(name="t")(run)
    new = elsewhere.task(name="t", **limits)(run)
    async with in_background(any_concert.run_worker("default", concurrency=10)):
        await turns.more(1)
        await elsewhere.enqueue_many([new.call(number) for number in range(3)])
        await running.until(1)
        await turns.more()
        assert running.began == [0]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lifted_module, "_QUIET", 3600.0)
            async with in_background(any_concert.run_worker("default", concurrency=10)):
                await turns.more()
        assert running.began == [0]
        running.free.set()


async def test_job_of_an_older_release_brings_a_limit_back_for_a_while(
    any_concert: Coordinator, elsewhere: Coordinator, monkeypatch: pytest.MonkeyPatch, turns: Turns
) -> None:
    """Until none has come for some time."""
    running = Running()

    async def run(number: int) -> None:
        await running.run("all", number)

    old = any_concert.task(name="t", limit=Limit(1))(run)
    elsewhere.task(name="t")(run)
    keys = any_concert._jobs.of_task("t")

    async def places() -> int:
        return int((await raw(any_concert).hget(keys.places, limit_of("t", "default"))).split()[1])

    await any_concert.enqueue_many([old.call(number) for number in range(2)])
    async with in_background(elsewhere.run_worker("default", concurrency=10)):
        await running.until(2)
        monkeypatch.setattr(lifted_module, "_QUIET", 3600.0)
        await turns.more()
        await old.enqueue(2)
        await eventually(lambda: in_line(any_concert, 1))
        assert await places() == 1
        monkeypatch.setattr(lifted_module, "_QUIET", 0.0)
        await running.until(3)
        assert await places() > 3
        running.free.set()


async def test_line_of_many_goes_on_in_portions(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Each that begins lets others come."""
    began: list[int] = []

    async def run(number: int) -> None:
        began.append(number)

    old = any_concert.task(name="t", rate=ONE_AN_HOUR)(run)
    elsewhere.task(name="t")(run)
    jobs = await any_concert.enqueue_many([old.call(number) for number in range(450)])
    async with in_background(any_concert.run_worker("default")):
        await jobs[0].result(timeout=WITHIN)
        await eventually(lambda: in_line(any_concert, 448))
    async with in_background(elsewhere.run_worker("default", concurrency=20)):
        for job in jobs:
            await job.result(timeout=WITHIN)
    assert began[0] == 0
    assert sorted(began) == list(range(450))


async def test_worker_whose_tasks_lack_nothing_asks_once(any_concert: Coordinator, turns: Turns) -> None:
    """Where nothing was found, there is nothing to lift later."""
    asked: list[Any] = []
    any_concert.task(name="t")(lambda: None)
    any_concert.task(name="all", limit=Limit(1), rate=ONE_AN_HOUR)(lambda: None)
    session = any_concert._ref.session
    run = session.run

    async def note(command: Any) -> Any:
        asked.extend([command.args] if command.script.name == "tasks/lift_limits" else [])
        return await run(command)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "run", note)
        async with in_background(any_concert.run_worker("default")):
            await turns.more(5)
    assert len(asked) == 1
