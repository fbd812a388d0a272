"""Jobs that use no feature are claimed and ended by scripts that know of none; the others by the form with plugs."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from inconcert import Coordinator, Limit
from inconcert._claims.keys import ACK
from inconcert._redis.wire.call import Call
from inconcert.tasks.running.claimed_job import ClaimedJob, state_of
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.inner import channel_of
from tests.support.jobs import facts
from tests.support.ledger import all_done, ledger_of
from tests.support.raw import raw


@contextmanager
def scripts_of(concert: Coordinator, verb: str) -> Generator[list[str]]:
    """The forms of this script that a coordinator sends in the body, in their order."""
    sent: list[str] = []
    channel = channel_of(concert._ref.session)
    submit: Callable[[Call], None] = channel.submit

    def note(call: Call) -> None:
        if call.command.script.name.partition("+")[0] == verb:
            sent.append(call.command.script.name)
        submit(call)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channel, "submit", note)
        yield sent


async def give_a_child(concert: Coordinator, job: ClaimedJob) -> None:
    """A job that runs after it."""
    await concert.enqueue("child", after=[job.id], queue="later")


async def give_a_message(concert: Coordinator, job: ClaimedJob) -> None:
    """One for which it does not wait."""
    assert await concert.tasks.job(job.id).send("paid", 1)


@pytest.mark.parametrize("give", [give_a_child, give_a_message])
async def test_job_that_got_something_since_its_claim_is_ended_with_it(any_concert: Coordinator, give: Any) -> None:
    """The plain form says so, and the other one ends it; nothing is left of it, and a child is ready."""
    await any_concert.enqueue("t")
    async with any_concert.consume("default") as jobs:
        claimed = await anext(aiter(jobs))
        await give(any_concert, claimed)
        with scripts_of(any_concert, "claims/ack") as sent:
            await claimed.ack()
        assert sent == ["claims/ack", "claims/ack+jobs"]
        assert await facts(any_concert) == {}
        if give is give_a_child:
            await eventually(lambda: _is_ready(any_concert))


async def _is_ready(concert: Coordinator) -> bool:
    return "later" in (await ledger_of(concert)).ready


async def test_plain_form_ends_the_others_of_a_batch(any_concert: Coordinator) -> None:
    """Of a job that has more nothing is changed."""
    for name in ("plain", "more"):
        await any_concert.enqueue(name)
    async with any_concert.consume("default", prefetch=2) as jobs:
        claimed = [await anext(aiter(jobs)) for _ in range(2)]
        plain, more = sorted(claimed, key=lambda job: job.name == "more")
        await give_a_message(any_concert, more)
        before = await ledger_of(any_concert)
        worker: Any = state_of(more)._claimer
        keys = any_concert._jobs.of_id(more.id)
        command = ACK(
            keys,
            claimed=keys.claimed(worker.holder),
            results=keys.results([more.id, plain.id]),
            inboxes=any_concert._ref.session.inboxes(keys.bodies),
            worker=worker.holder,
            result="succeeded 1",
            ttl_ms=1000,
            jobs=(more.id, state_of(more).position, plain.id, state_of(plain).position, "", 0),
        )
        assert await any_concert._ref.session.run(command) == [3, 1]
        after = await ledger_of(any_concert)
        assert after.bodies == [more.id]
        assert (after.states, after.results) == ({more.id: before.states[more.id]}, {})
        await more.ack()


async def test_job_that_is_waited_for_is_plain(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Its waiter is told by the plain form."""
    job = await any_concert.enqueue("t")
    async with any_concert.consume("default") as jobs:
        claimed = await anext(aiter(jobs))
        async with in_background(elsewhere.tasks.job(job.id).result(timeout=10)):
            await eventually(lambda: _is_watched(any_concert, job.id))
            with scripts_of(any_concert, "claims/ack") as sent:
                claimed.result = 3
                await claimed.ack()
            assert sent == ["claims/ack"]
    assert await job.result() == 3


async def _is_watched(concert: Coordinator, job_id: str) -> bool:
    return bool(await raw(concert).exists(concert._jobs.of_id(job_id).watchers))


async def test_worker_claims_with_plugs_only_while_limits_are_in_use(any_concert: Coordinator) -> None:
    """At first it does not know; then a limit comes, and goes."""

    @any_concert.task(limit=Limit(1))
    async def limited() -> None: ...

    @any_concert.task()
    async def plain() -> None: ...

    async with in_background(any_concert.run_worker("default", concurrency=1)):
        with scripts_of(any_concert, "claims/claim") as sent:
            for task in (plain, plain, limited, plain, plain):
                before = len(sent)
                await task.enqueue()
                await all_done(any_concert)
                await eventually(lambda before=before: len(sent) > before)  # type: ignore[misc]
    told = [name for name, last in zip(sent, [None, *sent], strict=False) if name != last]
    assert told[-3:] == ["claims/claim", "claims/claim+jobs", "claims/claim"]
