"""What an outbox asks the server: what became of its jobs, and whether the server still has its data."""

import pytest

from inconcert import Coordinator
from inconcert._core.session import Session
from inconcert.coordinator import session_ref_of
from inconcert.tasks.front.task_coordinator import parts_of
from inconcert.tasks.records.store import LOOK
from tests.support.background import in_background
from tests.support.eventually import eventually


async def look(concert: Coordinator, life: str, *ids: str) -> list[bytes]:
    """Ask, twice: a second run answers the same."""
    session: Session = session_ref_of(concert).session
    [keys] = parts_of(concert).keyspace.partitions
    command = LOOK(keys, results=keys.results(ids), life=life, ids=ids)
    answer: list[bytes] = await session.run(command)
    assert await session.run(command) == answer
    return answer


@pytest.mark.twice("outbox/look")
async def test_each_outcome_is_told(any_concert: Coordinator) -> None:
    """The first name for the life of the data stays."""

    @any_concert.task(name="t", queue="q", max_attempts=1)
    async def work(fails: bool) -> None:
        if fails:
            raise RuntimeError("fails")

    dead, done = await work.enqueue(True), await work.enqueue(False)
    gone = await work.enqueue(False)
    assert await gone.cancel()
    async with in_background(any_concert.run_worker("q")):
        await eventually(lambda: has_ended(any_concert, dead.id))
        await done.result(timeout=10)
    live, later = await work.enqueue(False), await work.options(delay=60).enqueue(False)

    ids = [dead.id, done.id, gone.id, live.id, later.id, "0123456789abcdef.11.0"]
    assert await look(any_concert, "first", *ids) == [
        b"first",
        b"dead",
        b"ended",
        b"ended",
        b"live",
        b"live",
        b"unknown",
    ]
    assert await look(any_concert, "second") == [b"first"]


async def has_ended(concert: Coordinator, job_id: str) -> bool:
    """Whether a job was dead-lettered."""
    return await concert.tasks.job(job_id).status() == "failed"
