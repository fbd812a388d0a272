"""The histories of tasks, while workers are killed and replies are lost: one entry for each end."""

from collections import Counter
from typing import Any

import pytest

from inconcert import Coordinator, JobStatus, Task, current_job
from tests.support.background import in_background
from tests.support.ends import kill_three_workers, losing_a_reply
from tests.support.eventually import eventually
from tests.support.ledger import ledger_of
from tests.support.proxy import Proxy
from tests.support.servers import RealServer

JOBS = 40


def register(concert: Coordinator) -> Task[[int], Any]:
    """A task whose jobs succeed, fail, or kill nobody."""

    @concert.task(name="ends", history=1000, max_attempts=2, backoff=lambda _: 0.0, max_crashes=100)
    async def ends(number: int) -> None:
        if number % 4 == 0 or (number % 4 == 1 and current_job().attempt == 1):
            raise ValueError(number)

    return ends


@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.torture)])
async def test_each_end_has_one_entry_though_workers_are_killed(namespace: str, rounds: int) -> None:
    """Kill -9 at any moment."""
    with RealServer() as own:
        for number in range(rounds):
            async with Coordinator(own.url, namespace=f"{namespace}-{number}") as concert:
                await _kill_three(own.url, concert, f"{namespace}-{number}")


async def _kill_three(url: str, concert: Coordinator, namespace: str) -> None:
    ends = register(concert)
    jobs = await concert.enqueue_many([ends.call(number) for number in range(JOBS)])

    async def ended() -> int:
        return len(await ends.history())

    async def are_over() -> bool:
        states = [await job.status() for job in jobs]
        return all(state in {JobStatus.SUCCEEDED, JobStatus.FAILED} for state in states)

    await kill_three_workers(url, namespace, register, ended=ended, of=JOBS, are_over=are_over)
    found = await ends.history(limit=10_000)
    assert Counter(each.job_id for each in found) == Counter(job.id for job in jobs)
    assert all([each.outcome == await concert.tasks.job(each.job_id).status() for each in found])


async def test_reply_lost_at_each_step_doubles_no_entry(proxy: Proxy, namespace: str, concert: Coordinator) -> None:
    """An end that was not answered is sent again, and so is a cancellation."""
    ends = register(concert)
    for steps in range(14):
        jobs = await concert.enqueue_many([ends.call(number) for number in range(4)])
        async with losing_a_reply(proxy, namespace, register, steps) as bad:
            await bad.tasks.job(jobs[3].id).cancel()

        async def all_have_ended() -> bool:
            return not (await ledger_of(concert)).states

        async with in_background(concert.run_worker("default")):
            await eventually(all_have_ended)
        found = {each.job_id: each.outcome for each in await ends.history(limit=4)}
        assert [found[job.id].value for job in jobs] == ["failed", "succeeded", "succeeded", "cancelled"]
    assert len(await ends.history(limit=10_000)) == 14 * 4
