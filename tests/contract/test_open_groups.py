"""Groups that nobody closes, that several close, and whose coordinator closes in between."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from inconcert import Coordinator, Draft, GroupClosed, GroupNotFound, JobStatus, NotConnected
from inconcert.tasks.running.sweeper import Sweeper
from inconcert.tasks.sending import group as group_module
from tests.support.groups import Tasks, nothing_is_kept
from tests.support.raw import raw


@pytest.fixture
async def tasks(any_concert: Coordinator) -> AsyncIterator[Tasks]:
    """On each server; and of a group that has ended nothing stays."""
    yield Tasks(any_concert)
    await nothing_is_kept(any_concert)


async def let_days_pass(concert: Coordinator) -> None:
    """Groups that have ended are forgotten."""
    client: Any = raw(concert)
    for keys in concert._jobs.partitions:
        for group in await client.zrange(keys.settled, 0, -1):
            await client.zadd(keys.settled, {group: 1})
    await Sweeper(concert._ref.session, concert._jobs).sweep()


async def test_group_that_is_never_closed_is_kept(any_concert: Coordinator, tasks: Tasks) -> None:
    """Its members run, its callback waits, and days later it can still be added to, or cancelled."""
    group = await any_concert.group(then=tasks.report.call())
    await group.add([tasks.send.call(0), tasks.fail.call()])
    await tasks.drain()
    await let_days_pass(any_concert)
    assert await group.callback.status() is JobStatus.WAITING
    seen = await group.progress()
    assert (seen.succeeded, seen.failed, seen.left, seen.is_done) == (1, 1, 0, False)
    again = any_concert.tasks.group(group.id)
    await again.add([tasks.send.call(1)])
    await tasks.drain()
    await any_concert.tasks.purge_all()
    assert await again.cancel() == 1  # the callback
    assert (await again.progress()).is_done
    await tasks.drain()
    assert (tasks.sent, tasks.reports) == ([0, 1], 0)


async def test_callback_runs_once_however_often_the_group_is_closed(any_concert: Coordinator, tasks: Tasks) -> None:
    """At once, after its end, and when it was forgotten."""
    group = await any_concert.group(then=tasks.report.call())
    other = any_concert.tasks.group(group.id)
    await group.add([tasks.send.call(0)])
    await asyncio.gather(group.close(), other.close(), group.close(), other.close())
    await tasks.drain()
    await asyncio.gather(group.close(), other.close())
    await tasks.drain()
    assert tasks.reports == 1
    assert await group.cancel() == 0
    await group.close()
    await let_days_pass(any_concert)
    with pytest.raises(GroupNotFound, match=group.id):
        await group.close()
    await tasks.drain()
    assert (tasks.sent, tasks.reports) == ([0], 1)


async def test_cancelled_group_may_be_closed(any_concert: Coordinator, tasks: Tasks) -> None:
    """That has no effect, though a member still runs."""
    group = await any_concert.group(then=tasks.report.call())
    await group.add([tasks.send.call(0)])
    async with any_concert.consume("q") as jobs:
        job = await anext(jobs)
        assert await group.cancel() == 2
        await group.close()
        async with job:
            pass
    await tasks.drain()
    assert (await group.progress()).is_done
    assert tasks.reports == 0


async def test_group_closed_while_another_adds_has_whole_batches(
    any_concert: Coordinator, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who adds is told; what had come in runs, once, and the callback after it."""
    monkeypatch.setattr(group_module, "_MOST", 2)
    monkeypatch.setattr(group_module, "_MOST_AT_ONCE", 2)
    group = await any_concert.group(then=tasks.report.call())
    other = any_concert.tasks.group(group.id)
    is_closed = asyncio.Event()

    async def calls(first: int) -> AsyncIterator[Draft[Any]]:
        for number in range(first, first + 4):
            yield tasks.send.call(number)
        await is_closed.wait()
        yield tasks.send.call(first + 4)

    async def add(first: int) -> None:
        with pytest.raises(GroupClosed, match=group.id):
            await (group, other)[first // 10].add(calls(first))

    async def close() -> None:
        while (await group.progress()).total < 4:
            await asyncio.sleep(0)
        await group.close()
        is_closed.set()

    await asyncio.gather(add(0), add(10), close())
    total = (await group.progress()).total
    await tasks.drain()
    assert len(tasks.sent) == len(set(tasks.sent)) == total >= 4
    assert not {4, 14} & set(tasks.sent)
    assert tasks.reports == 1


async def test_group_goes_on_after_its_coordinator_was_closed(
    any_concert: Coordinator, elsewhere: Coordinator, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While members are added: all are added once, as soon as it is open again."""
    monkeypatch.setattr(group_module, "_MOST", 2)
    monkeypatch.setattr(group_module, "_MOST_AT_ONCE", 2)
    calls = [tasks.send.call(number) for number in range(9)]

    async def some() -> AsyncIterator[Draft[Any]]:
        for number, call in enumerate(calls):
            if number == 5:
                await elsewhere.__aexit__(None, None, None)
            yield call

    group = await elsewhere.group(then=tasks.report.call())
    with pytest.raises(NotConnected):
        await group.add(some())
    for use in (group.close, group.progress, group.cancel):
        with pytest.raises(NotConnected):
            await use()
    await tasks.drain()
    assert sorted(tasks.sent) == [0, 1, 2, 3]
    await elsewhere.__aenter__()
    assert await group.add(calls, start=0) == 5
    await group.close()
    await tasks.drain()
    assert (sorted(tasks.sent), tasks.reports) == (list(range(9)), 1)


async def test_same_calls_that_several_give_at_once_are_added_once(
    any_concert: Coordinator, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `start=0`, at once, each with as many as they know by now."""
    monkeypatch.setattr(group_module, "_MOST", 3)
    monkeypatch.setattr(group_module, "_MOST_AT_ONCE", 6)
    calls = [tasks.send.call(number) for number in range(40)]
    group = await any_concert.group(then=tasks.report.call())
    known = (40, 7, 22, 40, 31)
    added = await asyncio.gather(*(any_concert.tasks.group(group.id).add(calls[:most], start=0) for most in known))
    assert sum(added) == 40
    await group.close()
    await tasks.drain()
    assert sorted(tasks.sent) == list(range(40))
    assert await group.member(17).result(timeout=0) == 17
    assert tasks.reports == 1
