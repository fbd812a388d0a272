"""Every `async with` and `async for` may be left in another task and context than it was entered in, in any order.

A generator that is left half-way is closed by the event loop, a fixture is torn down in a task of its own, and a
response is closed by its server.  What is acquired has its own tests in `test_entering.py`.
"""

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from inconcert import ClaimedJob, Coordinator, JobStatus, current_job
from tests.support.eventually import eventually
from tests.support.inner import topics_of
from tests.support.leaving import break_it, close_it, closing, elsewhere, forget_it
from tests.support.raw import let_hear, raw


@dataclass(frozen=True, slots=True)
class Story:
    """Something that a generator is inside of while it yields.

    Attributes:
        prepare: What must be there first; may be called again.
        stay: Goes in, and yields.
        is_over: Whether nobody is in it any more.
    """

    prepare: Callable[[Coordinator], Awaitable[object]]
    stay: Callable[[Coordinator], AsyncGenerator[object, None]]
    is_over: Callable[[Coordinator], Awaitable[bool]]


async def nothing(concert: Coordinator) -> None:
    """Nothing needs to be there."""


async def is_unheard(concert: Coordinator) -> bool:
    """Whether nobody listens to anything."""
    return not topics_of(concert._ref.session)


async def put(concert: Coordinator) -> None:
    """An item."""
    await concert.queue("q").put("item")


async def with_delivery(concert: Coordinator) -> AsyncGenerator[object, None]:
    """Handle it."""
    async for delivery in concert.queue("q"):
        async with delivery:
            yield delivery


async def items_are_back(concert: Coordinator) -> bool:
    """Whether nobody has one."""
    return (await concert.queue("q").counts()).claimed == 0


async def enqueue(concert: Coordinator) -> None:
    """A job."""
    await concert.enqueue("t")


async def with_consumer(concert: Coordinator) -> AsyncGenerator[object, None]:
    """Consume it."""
    async with concert.consume("default") as jobs:
        async for job in jobs:
            async with job:
                yield job


async def nobody_consumes(concert: Coordinator) -> bool:
    """Whether nobody consumes."""
    return (await concert.tasks.stats("default")).workers == 0


async def lead(concert: Coordinator) -> AsyncGenerator[object, None]:
    """Lead, with a body."""
    async for term in concert.election("office").terms():
        async with term:
            yield term


async def win(concert: Coordinator) -> AsyncGenerator[object, None]:
    """Lead, without a body."""
    async for term in concert.election("office").terms():
        yield term


async def nobody_leads(concert: Coordinator) -> bool:
    """Whether nobody leads."""
    return await concert.election("office").leader() is None


async def subscribe(concert: Coordinator) -> AsyncGenerator[object, None]:
    """Hear a signal, and a pattern."""
    await let_hear(concert, "s*")
    async with concert.signal("s").subscribe() as one, concert.signals("s*").subscribe():
        await concert.signal("s").broadcast("hello")
        async for payload in one:
            yield payload


async def create_chat(concert: Coordinator) -> None:
    """With something to read."""
    await concert.chat.create("ann", ["bob"], "hello")


STORIES = {
    "delivery": Story(put, with_delivery, items_are_back),
    "consumer and job": Story(enqueue, with_consumer, nobody_consumes),
    "term": Story(nothing, lead, nobody_leads),
    "term that is not entered": Story(nothing, win, nobody_leads),
    "watching an election": Story(nothing, lambda concert: concert.election("office").watch(), is_unheard),
    "subscription": Story(nothing, subscribe, is_unheard),
    "chat": Story(create_chat, lambda concert: concert.chat.listen("bob"), is_unheard),
}


@pytest.fixture(params=STORIES)
def story(request: pytest.FixtureRequest) -> Story:
    """Each in turn."""
    return STORIES[request.param]


@pytest.mark.parametrize("leave", [close_it, break_it, forget_it])
async def test_generator_ends_what_it_is_in(
    any_concert: Coordinator,
    story: Story,
    leave: Callable[[AsyncGenerator[object, None]], Coroutine[Any, Any, None]],
    complaints: list[Any],
) -> None:
    """Without a complaint, and nothing stays claimed, held or subscribed."""
    await story.prepare(any_concert)
    await leave(story.stay(any_concert))
    gc.collect()
    await eventually(partial(story.is_over, any_concert))
    await eventually(lambda: not closing())
    assert complaints == []


@pytest.mark.parametrize("story", sorted(STORIES.keys() - {"term", "term that is not entered"}), indirect=True)
async def test_generators_may_be_closed_in_the_order_of_their_beginning(any_concert: Coordinator, story: Story) -> None:
    """Two of one task; nothing is left of either."""
    stays: list[AsyncGenerator[object, None]] = []
    for _ in range(2):
        await story.prepare(any_concert)
        stays.append(story.stay(any_concert))
        await anext(stays[-1])
    for stay in stays:
        assert not await story.is_over(any_concert)
        await stay.aclose()
    await eventually(partial(story.is_over, any_concert))


async def test_coordinator_is_closed_in_another_task(any_concert: Coordinator, namespace: str) -> None:
    """And in another context, though a task and a periodic function of its own have begun in that of its opening."""
    concert = Coordinator.from_client(raw(any_concert), namespace=namespace)
    ran = asyncio.Event()

    @concert.every(3600, name="p")
    async def periodic() -> None:
        ran.set()

    async def fixture() -> AsyncIterator[Coordinator]:
        async with concert:
            yield concert

    opened = fixture()
    await elsewhere(anext(opened))
    await asyncio.wait_for(ran.wait(), 5)
    assert await elsewhere(anext(opened, None)) is None
    assert repr(concert).endswith("closed>")


# Jobs.


async def claimed(concert: Coordinator, jobs: Any) -> ClaimedJob:
    """A job to enter."""
    await concert.enqueue("t")
    job: ClaimedJob = await anext(jobs)
    return job


async def test_job_that_is_left_in_another_context_ends(any_concert: Coordinator) -> None:
    """As done, if its body has ended so."""
    async with any_concert.consume("default") as jobs:
        job = await claimed(any_concert, jobs)
        await elsewhere(job.__aenter__())
        await elsewhere(job.__aexit__(None, None, None))
        assert await any_concert.tasks.job(job.id).status() is JobStatus.SUCCEEDED


async def test_current_job_is_the_innermost_that_has_not_ended(any_concert: Coordinator) -> None:
    """Though the outer one was left first, and another in another context."""
    async with any_concert.consume("default") as jobs:
        outer, inner, other = [await claimed(any_concert, jobs) for _ in range(3)]
        for job in (outer, inner, other):
            await job.__aenter__()
        assert current_job() is other
        await elsewhere(other.__aexit__(None, None, None))
        assert current_job() is inner
        await outer.__aexit__(None, None, None)
        assert current_job() is inner
        await inner.__aexit__(None, None, None)
        with pytest.raises(RuntimeError, match="no job runs here"):
            current_job()


async def test_task_that_enters_jobs_which_others_leave_remembers_none(any_concert: Coordinator) -> None:
    """A consumer whose jobs are ended elsewhere goes on for long."""

    async def work(jobs: Any) -> None:
        for _ in range(3):
            async with await claimed(any_concert, jobs):
                pass
            job = await claimed(any_concert, jobs)
            await job.__aenter__()
            await elsewhere(job.__aexit__(None, None, None))

    async with any_concert.consume("default") as jobs:
        await work(jobs)
        gc.collect()
        own = f"{any_concert._ref.session.id}."  # other tests may have left some, in tracebacks that are kept
        assert not [one for one in gc.get_objects() if type(one) is ClaimedJob and one.id.startswith(own)]
