"""The attempts of jobs that failed, while workers are killed and replies are lost: each is noted once."""

from typing import Any

import pytest

from inconcert import Coordinator, Job, JobStatus, Task, current_job
from tests.support.background import in_background
from tests.support.ends import kill_three_workers, losing_a_reply
from tests.support.eventually import eventually
from tests.support.ledger import ledger_of
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import RealServer

JOBS = 40


def register(concert: Coordinator) -> Task[[int], Any]:
    """A task whose jobs fail never, once, or each time."""

    @concert.task(name="fails", history=1000, max_attempts=2, backoff=lambda _: 0.0, max_crashes=100)
    async def fails(number: int) -> None:
        if number % 4 == 0 or (number % 4 == 1 and current_job().attempt == 1):
            raise ValueError(number)

    return fails


async def are_noted_once(fails: Task[[int], Any], jobs: list[Job[Any]]) -> None:
    """Each attempt before the one with which a job has ended is there, in order, and of a dead job that one, too."""
    ends = {each.job_id: each for each in await fails.history(limit=10_000)}
    for job in jobs:
        end = ends[job.id]
        expected = end.attempts - (end.outcome is JobStatus.SUCCEEDED)
        assert [each.number for each in await job.attempts()] == [*range(1, expected + 1)]


async def test_each_attempt_is_noted_once_though_workers_are_killed(namespace: str) -> None:
    """Kill -9 at any moment: an attempt that it ended is noted, too, and nothing is left of those that are purged."""
    with RealServer() as own:
        async with Coordinator(own.url, namespace=namespace) as concert:
            fails = register(concert)
            jobs = await concert.enqueue_many([fails.call(number) for number in range(JOBS)])

            async def ended() -> int:
                return len(await fails.history())

            async def are_over() -> bool:
                return await ended() == JOBS

            await kill_three_workers(own.url, namespace, register, ended=ended, of=JOBS, are_over=are_over)
            await are_noted_once(fails, jobs)
            await concert.tasks.purge_all()
            assert {id_[0] for id_ in (await ledger_of(concert)).attempts} <= {":"}


@pytest.mark.parametrize("steps", range(14))
async def test_reply_lost_at_each_step_doubles_no_attempt(
    proxy: Proxy, namespace: str, concert: Coordinator, steps: int
) -> None:
    """A failure that was not answered is sent again."""
    fails = register(concert)
    jobs = await concert.enqueue_many([fails.call(number) for number in range(4)])
    async with losing_a_reply(proxy, namespace, register, steps):
        pass

    async def all_have_ended() -> bool:
        return not (await ledger_of(concert)).states

    async with in_background(concert.run_worker("default")):
        await eventually(all_have_ended)
    await are_noted_once(fails, jobs)


async def test_foreign_key_where_workers_are_described_ends_an_attempt_as_always(concert: Coordinator) -> None:
    """It is noted without a host, and the job waits for its next attempt."""
    job = await register(concert).enqueue(0)
    described = concert._jobs.of_id(job.id).described
    client = raw(concert)
    async with concert.consume("default") as jobs:
        claimed = await anext(jobs)
        await client.delete(described)
        await client.set(described, "foreign", px=60_000)
        await claimed.nack(delay=60)
        assert (await ledger_of(concert)).delayed == {"default": [job.id]}
        await client.delete(described)
    [attempt] = await job.attempts()
    assert (attempt.error, attempt.host, attempt.pid) == ("nacked", None, None)
