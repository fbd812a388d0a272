"""What was acquired is used on the event loop of another thread, or in a forked child: it says so at once."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, Job, JobStatus, NotConnected
from tests.support.eventually import eventually

Make = Callable[[Coordinator], Awaitable[Any]]
Use = Callable[[Any], Awaitable[Any]]


async def delivery(concert: Coordinator) -> Any:
    """An item that is claimed."""
    await concert.queue("q").put(1)
    return await concert.queue("q").get(timeout=5)


async def begun(stream: Any) -> Any:
    """One that has yielded once, or waits for its first."""
    await anext(stream)
    return stream


async def entered(subscription: Any) -> Any:
    """One that is entered."""
    return await subscription.__aenter__()


async def watching(concert: Coordinator) -> Any:
    """A watcher that has seen the member."""
    await begun(stream := (await concert.members("g").join()).watch())
    return stream


async def sharing(concert: Coordinator) -> Any:
    """A member whose keys were shared out once."""
    return await begun((await concert.members("g").join()).shares(["a", "b"]))


async def listening(concert: Coordinator) -> Any:
    """A listener that has got what was there."""
    await concert.chat.create("ann", ["bob"], "hello")
    return await begun(concert.chat.listen("bob"))


USES: dict[str, tuple[Make, Use]] = {
    "lease.release": (lambda concert: concert.lock("a").acquire(), lambda lease: lease.release()),
    "lease.renew": (lambda concert: concert.lock("a").acquire(), lambda lease: lease.renew()),
    "lease.lost": (lambda concert: concert.lock("a").acquire(), lambda lease: lease.lost()),
    "permit.release": (lambda concert: concert.semaphore("a", limit=2).acquire(), lambda lease: lease.release()),
    "reader.release": (lambda concert: concert.rwlock("a").read().acquire(), lambda lease: lease.release()),
    "writer.release": (lambda concert: concert.rwlock("a").write().acquire(), lambda lease: lease.release()),
    "writer.downgrade": (lambda concert: concert.rwlock("a").write().acquire(), lambda lease: lease.downgrade()),
    "locks.release": (lambda concert: concert.locks("a", "b").acquire(), lambda leases: leases.release()),
    "locks.renew": (lambda concert: concert.locks("a", "b").acquire(), lambda leases: leases.renew()),
    "term.release": (lambda concert: concert.election("e").acquire(), lambda term: term.release()),
    "term.__aenter__": (lambda concert: concert.election("e").acquire(), lambda term: term.__aenter__()),
    "member.release": (lambda concert: concert.members("g").join(), lambda member: member.release()),
    "member.list": (lambda concert: concert.members("g").join(), lambda member: member.list()),
    "member.update": (lambda concert: concert.members("g").join(), lambda member: member.update(1)),
    "member.watch begins": (lambda concert: concert.members("g").join(), lambda member: anext(member.watch())),
    "member.watch": (watching, anext),
    "member.shares begins": (lambda concert: concert.members("g").join(), lambda member: anext(member.shares(["a"]))),
    "member.shares": (sharing, anext),
    "subscription.next": (lambda concert: entered(concert.signal("s").subscribe()), lambda mine: mine.next()),
    "chat.listen": (listening, anext),
    "delivery.ack": (delivery, lambda item: item.ack()),
    "delivery.nack": (delivery, lambda item: item.nack()),
    "delivery.give_back": (delivery, lambda item: item.give_back()),
    "delivery.bury": (delivery, lambda item: item.bury(ValueError("bad"))),
    "delivery.__aenter__": (delivery, lambda item: item.__aenter__()),
}


def elsewhere(use: Use, thing: Any) -> BaseException | None:
    """What it raises on an event loop of this thread."""

    async def go() -> None:
        await asyncio.wait_for(use(thing), 5)

    try:
        asyncio.run(go())
    except BaseException as error:  # noqa: BLE001 - it is looked at
        return error
    return None


@pytest.mark.parametrize("name", USES)
async def test_use_on_the_loop_of_another_thread_is_refused_at_once(any_concert: Coordinator, name: str) -> None:
    """With what it is, and where to use it; on its own loop it works on."""
    make, use = USES[name]
    thing = await make(any_concert)
    error = await asyncio.to_thread(elsewhere, use, thing)
    assert isinstance(error, NotConnected)
    assert "another event loop" in str(error)
    if name.endswith(("release", "ack", "give_back")):
        await use(thing)
    if hasattr(thing, "aclose"):
        await thing.aclose()


@pytest.mark.parametrize("verb", ["ack", "nack", "give_back", "progress", "bury", "parent_results"])
async def test_claimed_job_is_refused_on_the_loop_of_another_thread(concert: Coordinator, verb: str) -> None:
    """Its worker would never hear of it."""
    uses: dict[str, Use] = {"progress": lambda job: job.progress(0.5), "bury": lambda job: job.bury(ValueError("bad"))}
    job: Job[Any] = await concert.enqueue("t")
    async with concert.consume("default") as jobs:
        async for claimed in jobs:
            use = uses.get(verb, lambda claimed: getattr(claimed, verb)())
            assert isinstance(await asyncio.to_thread(elsewhere, use, claimed), NotConnected)
            await claimed.ack()
            break

    async def has_ended() -> bool:
        return await job.status() is JobStatus.SUCCEEDED

    await eventually(has_ended)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
async def test_lease_is_refused_in_a_forked_child(concert: Coordinator) -> None:
    """It is the parent's."""
    lease = await concert.lock("a").acquire()
    child = os.fork()
    if child == 0:
        error = elsewhere(lambda lease: lease.release(), lease)
        os._exit(17 if isinstance(error, NotConnected) else 1)
    with anyio.fail_after(10):
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            await anyio.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 17
    await lease.release()
