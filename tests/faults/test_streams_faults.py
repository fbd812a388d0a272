"""Streams while workers are killed, replies lost, followers cut off and cancelled: each run is whole, and in order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, Gap, NotClaimed, Restarted, StreamItem
from inconcert.tasks.running import stream_writer
from inconcert.tasks.running.claimed_job import state_of
from inconcert.tasks.running.stream_writer import write_stream
from tests.support.background import in_background
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.jobs import lapse_all
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease
from tests.support.streams import check

HERE = "tests.faults.test_streams_faults"
LEASE = 1.0  # seconds of a heartbeat, here
WITHIN = 30.0  # seconds
ITEMS = 400  # of each job that is killed


def test_checker_finds_what_is_wrong() -> None:
    """An item that is lost, doubled, or of another run."""
    one, two, three = (StreamItem(f"7-{number}", 1, number) for number in (1, 2, 3))
    assert check([one, two, Restarted(2), StreamItem("8-1", 2, "a")]) == ["a"]
    assert check([Gap(1), two, three]) == [2, 3]
    for bad in ([one, three], [one, one], [two], [one, StreamItem("8-2", 2, 2)], [one, Gap(2), two]):
        with pytest.raises(AssertionError):
            check(bad)


async def work(url: str, namespace: str) -> None:
    """In a child: run jobs that stream, until it is killed."""
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:

        @concert.task(name="count", max_crashes=9)
        async def count() -> AsyncIterator[int]:  # pyright: ignore[reportUnusedFunction]
            for number in range(ITEMS):
                yield number
                await anyio.sleep(0.001)

        tell("works")
        await concert.run_worker("default")


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.torture)])
async def test_follower_gets_a_whole_run_though_workers_are_killed(
    server: RealServer, concert: Coordinator, namespace: str, kills: int
) -> None:
    """Kill -9 in the middle: the next worker begins anew, and says so."""
    job = await concert.enqueue("count", max_crashes=kills + 2)
    history: list[Any] = []
    async with aclosing(job.stream()) as items, asyncio.timeout(WITHIN * kills):
        for _ in range(kills):
            async with spawn(f"{HERE}:work", server.url, namespace) as child:
                await child.wait_for("works")
                before = len(history)
                async for item in items:
                    history.append(item)
                    if len(history) > before + 50:
                        break
                child.kill()
        async with spawn(f"{HERE}:work", server.url, namespace):
            async for item in items:
                history.append(item)  # noqa: PERF401 - it goes on
    assert check(history) == list(range(ITEMS))
    assert sum(isinstance(item, Restarted) for item in history) == kills


@pytest.mark.parametrize("cuts", [20, pytest.param(1000, marks=pytest.mark.torture)])
async def test_follower_that_is_cut_off_loses_and_doubles_nothing(
    proxy: Proxy, concert: Coordinator, namespace: str, cuts: int
) -> None:
    """All its connections, at any moment; those of the worker stand."""
    go_on = asyncio.Semaphore(0)

    @concert.task(name="count")
    async def count() -> AsyncIterator[int]:
        for number in range(3 * cuts):
            if number % 3 == 0:
                await go_on.acquire()
            yield number

    history: list[Any] = []
    async with in_background(concert.run_worker("default")), Coordinator(proxy.url, namespace=namespace) as far:
        job = await count.enqueue()

        async def follow() -> None:
            async with aclosing(far.tasks.job(job.id).stream()) as items:
                async for item in items:
                    history.append(item)  # noqa: PERF401 - it is read meanwhile

        following = asyncio.create_task(follow())
        async with asyncio.timeout(WITHIN + cuts / 10):
            for number in range(cuts):
                proxy.cut()
                go_on.release()
                for _ in range(number % 7):
                    await asyncio.sleep(0)
                if number % 5 == 0:
                    while len(history) < 3 * number:
                        await anyio.sleep(0.001)
            await following
    assert check(history) == list(range(3 * cuts))


@pytest.mark.parametrize("has_ended", [False, True], ids=["waits", "has ended"])
@pytest.mark.parametrize("what", ["the job is cancelled", "its worker ends"])
async def test_full_server_does_not_keep_a_generator_running(
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    what: str,
    has_ended: bool,
) -> None:
    """It waits for room as long as it may run; what it had yielded is given up once it is stopped."""
    monkeypatch.setattr(stream_writer, "_LONGEST_CLOSE", 0.1)
    is_full = asyncio.Event()
    with RealServer() as own:
        async with Coordinator(own.tcp_url, namespace=namespace) as concert:

            @concert.task()
            async def write() -> AsyncIterator[int]:
                yield 1
                await is_full.wait()
                yield 2
                if not has_ended:
                    await anyio.sleep_forever()

            job = await write.enqueue()
            async with in_background(concert.run_worker("default")) as working, aclosing(job.stream()) as items:
                await anext(items)
                own.command("CONFIG", "SET", "maxmemory", 1)
                is_full.set()
                await eventually(lambda: "append_items was refused" in caplog.text)
                try:
                    if what == "the job is cancelled":
                        assert await job.cancel(timeout=5)
                    else:
                        working.cancel()
                        assert await asyncio.wait([working], timeout=5) == ({working}, set())
                finally:
                    own.command("CONFIG", "SET", "maxmemory", 0)


async def test_late_twin_appends_nothing(concert: Coordinator, elsewhere: Coordinator) -> None:
    """Its worker counts as dead, and does not know it yet: its generator is closed."""
    ended: list[str] = []

    async def late_items() -> AsyncIterator[str]:
        try:
            for _ in range(9):
                yield "late"
                await asyncio.sleep(0.01)
        finally:
            ended.append("closed")

    async def items() -> AsyncIterator[str]:
        yield "next"

    [keys] = concert._jobs.partitions
    client: Any = raw(concert)
    job = await concert.enqueue("t")
    async with concert.consume("default") as stopped, elsewhere.consume("default") as jobs:
        late = await anext(stopped)
        await lapse_all(concert)
        again = await anext(jobs)
        assert again.id == late.id
        begun: Any = late_items
        with pytest.raises(NotClaimed):
            await write_stream(state_of(late), begun)
        assert not await client.exists(keys.stream(job.id), keys.items(job.id))
        async with again:
            following: Any = items
            await write_stream(state_of(again), following)
            with pytest.raises(NotClaimed):
                await write_stream(state_of(late), begun)
    assert [item.value async for item in job.stream() if isinstance(item, StreamItem)] == ["next"]
    assert ended == []  # it never began


async def test_reply_lost_at_each_command_doubles_no_item(proxy: Proxy, namespace: str, concert: Coordinator) -> None:
    """Each command of the worker is sent again, and adds once."""
    async for lost in proxy.losing_each(4, least=7, most=60):  # of those before, others tell
        job = await concert.enqueue("count", queue=f"q{lost}")
        async with Coordinator(proxy.url, namespace=namespace) as bad:

            @bad.task(name="count")
            async def count() -> AsyncIterator[int]:
                for number in range(6):
                    yield number
                    await asyncio.sleep(0)

            proxy.cut_after_replies(lost, lose_next=True)
            await bad.run_worker(f"q{lost}", burst=True)
        history = [item async for item in job.stream()]
        assert check(history) == list(range(6))


@pytest.mark.parametrize("moment", MOMENTS)
async def test_follower_that_is_cancelled_anywhere_leaves_nothing(concert: Coordinator, moment: Moment) -> None:
    """No subscription, no registration; another follower of the process goes on."""

    @concert.task(name="count")
    async def count() -> AsyncIterator[int]:
        yield 1
        yield 2

    job = await count.enqueue()
    await concert.run_worker("default", burst=True)

    async def follow() -> None:
        async with aclosing(job.stream()) as items:
            assert check([item async for item in items]) == [1, 2]

    number = 1
    while await cancel_at(number, moment, follow()):
        assert list(concert.tasks._watches) == []
        number += 1
    assert number > 2
    await follow()
