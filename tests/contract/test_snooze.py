"""A job that snoozes comes back later, and no attempt is counted."""

from datetime import timedelta

import pytest

from inconcert import Coordinator, JobStatus, Limit, Snooze, current_job
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.jobs import make_due
from tests.support.ledger import ledger_of, until


async def test_job_that_snoozes_comes_back_without_an_attempt(any_concert: Coordinator) -> None:
    """It has one attempt, and needs three runs."""
    runs: list[int] = []

    @any_concert.task(max_attempts=1)
    async def poll() -> str:
        runs.append(current_job().attempt)
        if len(runs) < 3:
            raise Snooze(3600)
        return "ready"

    job = await poll.enqueue()
    async with in_background(any_concert.run_worker("default")):
        for count in (1, 2):
            await until(any_concert, lambda ledger, count=count: len(runs) == count and ledger.delayed)  # type: ignore[misc]
            assert await job.status() is JobStatus.DELAYED
            await make_due(any_concert, "default")
        assert await job.result(timeout=10) == "ready"
    assert runs == [1, 1, 1]
    assert (await ledger_of(any_concert)).failures == {}


async def test_snoozing_job_lets_others_have_its_place(any_concert: Coordinator) -> None:
    """In the worker, and in a limit."""
    ended: list[int] = []

    @any_concert.task(limit=Limit(1))
    async def one_at_a_time(number: int) -> None:
        if number == 0:
            raise Snooze(timedelta(hours=1))
        ended.append(number)

    await any_concert.enqueue_many([one_at_a_time.call(number) for number in range(3)])
    async with in_background(any_concert.run_worker("default", concurrency=1)):
        await eventually(lambda: ended == [1, 2])


async def test_snooze_passes_handlers_of_errors(any_concert: Coordinator) -> None:
    """A body that catches every `Exception`, or tidies up, snoozes all the same."""
    steps: list[str] = []

    @any_concert.task()
    async def careful() -> None:
        try:
            raise Snooze(3600)
        except Exception:  # noqa: BLE001 - as users write it
            steps.append("caught")
        finally:
            steps.append("tidied")

    job = await careful.enqueue()
    async with in_background(any_concert.run_worker("default")):
        await until(any_concert, lambda ledger: ledger.delayed)
    assert steps == ["tidied"]
    assert await job.status() is JobStatus.DELAYED


async def test_plain_function_snoozes(concert: Coordinator) -> None:
    """In its thread."""

    @concert.task()
    def plain() -> None:
        raise Snooze(3600)

    await plain.enqueue()
    async with in_background(concert.run_worker("default")):
        await until(concert, lambda ledger: ledger.delayed and not ledger.failures)


async def test_snoozing_job_can_be_cancelled(any_concert: Coordinator) -> None:
    """It waits as a delayed one does."""

    @any_concert.task()
    async def poll() -> None:
        raise Snooze(3600)

    job = await poll.enqueue()
    async with in_background(any_concert.run_worker("default")):
        await until(any_concert, lambda ledger: ledger.delayed)
        assert await job.cancel()
    assert await job.status() is JobStatus.CANCELLED


@pytest.mark.parametrize("delay", [-1, float("nan")])
def test_delay_is_checked_where_it_is_given(delay: float) -> None:
    """In the body, which then fails for that."""
    with pytest.raises(ValueError, match="delay"):
        Snooze(delay)
