"""Workers that stand still for longer than their lease, and go on while another has their jobs (SIGSTOP and SIGCONT).

Whatever they were about to write belongs to a claim that is no longer theirs: an item, the end of a member, a step.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, JobFailed, JobStatus, Restarted, StreamItem, current_job, durable
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.jobs import status
from tests.support.processes import spawn, tell
from tests.support.raw import raw
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease
from tests.support.streams import check
from tests.support.undo import is_clean

HERE = "tests.faults.test_frozen_workers"
LEASE = 1.0  # seconds of a heartbeat, here
WITHIN = 30.0  # seconds
ITEMS, HALF = 400, 200
MEMBERS = 30
THINGS = 4


@pytest.fixture
async def short(server: RealServer, namespace: str) -> AsyncIterator[Coordinator]:
    """A coordinator whose workers count as dead soon."""
    async with with_lease(Coordinator(server.url, namespace=namespace), LEASE) as opened:
        yield opened


# While a stream is written.


async def count(url: str, namespace: str) -> None:
    """In a child: yield one number after the other."""
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:

        @concert.task(name="count")
        async def numbers() -> AsyncIterator[int]:  # pyright: ignore[reportUnusedFunction]
            try:
                for number in range(ITEMS):
                    yield number
                    await anyio.sleep(0.001)
            except BaseException as error:
                tell("closed", by=type(error).__name__)
                raise

        await concert.run_worker("default")


async def test_frozen_worker_adds_no_item_to_the_stream_of_the_next(
    server: RealServer, short: Coordinator, namespace: str
) -> None:
    """It goes on when half of the next run is written: its generator is closed, and a follower gets one whole run."""
    may_go_on = asyncio.Event()

    @short.task(name="count")
    async def numbers() -> AsyncIterator[int]:
        for number in range(ITEMS):
            if number == HALF:
                await may_go_on.wait()
            yield number

    history: list[Any] = []
    job = await numbers.enqueue()
    async with (
        aclosing(job.stream()) as items,
        asyncio.timeout(WITHIN),
        spawn(f"{HERE}:count", server.url, namespace) as child,
    ):
        async for item in items:
            history.append(item)
            if len(history) == 50:
                break
        child.pause()
        async with in_background(short.run_worker("default")):
            async for item in items:
                history.append(item)
                if isinstance(item, StreamItem) and (item.attempt, item.value) == (2, HALF - 1):
                    break
            child.resume()
            assert (await child.wait_for("closed"))["by"] in {"CancelledError", "GeneratorExit"}
            may_go_on.set()
            async for item in items:
                history.append(item)  # noqa: PERF401 - it goes on
    assert check(history) == list(range(ITEMS))
    assert sum(isinstance(item, Restarted) for item in history) == 1
    assert [item.value for item in await job.items(limit=ITEMS)] == list(range(ITEMS))


# While the members of a group end.


async def end_members(url: str, namespace: str) -> None:
    """In a child: end one member after the other."""
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:
        define(concert, namespace, "child")
        await concert.run_worker("default", concurrency=4)


def define(concert: Coordinator, namespace: str, name: str) -> Any:
    """The tasks of a group, which note on the server what they do; returns the calls."""
    log = raw(concert)

    @concert.task(name="member")
    async def member(number: int) -> str:
        await log.rpush(f"{{log}}:{namespace}", f"member {number}")
        return name

    @concert.task(name="callback")
    async def callback() -> str:
        await log.rpush(f"{{log}}:{namespace}", f"callback {current_job().attempt}")
        return name

    return [member.call(number) for number in range(MEMBERS)], callback.call()


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.torture)])
async def test_member_of_a_frozen_worker_ends_once(server: RealServer, namespace: str, rounds: int) -> None:
    """Frozen at any moment of their ends: each member and the callback count once, with the result of one worker."""
    for number in range(rounds):
        await _freeze_while_members_end(server.url, f"{namespace}-{number}")


async def _freeze_while_members_end(url: str, namespace: str) -> None:
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:
        client: Any = raw(concert)
        log = f"{{log}}:{namespace}"
        members, callback = define(concert, namespace, "ours")
        frozen_at = random.randint(1, MEMBERS)

        async def has_run_some() -> bool:
            return bool(await client.llen(log) >= frozen_at)

        async with spawn(f"{HERE}:end_members", url, namespace) as child:
            group = await concert.group(members, then=callback)
            await eventually(has_run_some, timeout=WITHIN)
            child.pause()
            async with in_background(concert.run_worker("default", concurrency=4)):
                await group.callback.result(timeout=WITHIN)
                ends = {number: await group.member(number).result(timeout=0) for number in range(MEMBERS)}
                seen = await group.progress()
            child.resume()
            after = await concert.enqueue("member", [MEMBERS])
            assert await after.result(timeout=WITHIN) == "child"  # by then it has sent what it had to send
            entries = Counter[str](entry.decode() for entry in await client.lrange(log, 0, -1))
        assert (seen.total, seen.succeeded, seen.is_done) == (MEMBERS, MEMBERS, True)
        assert await group.progress() == seen
        assert ends == {number: await group.member(number).result(timeout=0) for number in range(MEMBERS)}
        assert sum(entries[f"callback {attempt}"] for attempt in (1, 2)) in {1, 2}
        assert max(entries.values()) <= 2
        for number, end in ends.items():
            assert entries[f"member {number}"] == 1 or end == "ours", f"member {number} ended twice"


# While a job is undone.


async def undo_slowly(url: str, namespace: str) -> None:
    """In a child: undo what a job has begun."""
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:

        async def undo_it(thing: int) -> None:
            await raw(concert).rpush(f"{{log}}:{namespace}", f"child {thing}")
            if thing == THINGS // 2:
                tell("undoes")
                await anyio.sleep(LEASE / 2)

        define_buy(concert, undo_it)
        await concert.run_worker("default")
        tell("ended")


def define_buy(concert: Coordinator, undo_it: Any) -> Any:
    """The task, which begins some things and fails."""

    async def begin(thing: int) -> int:
        return thing

    @concert.task(name="buy", max_attempts=1)
    async def buy() -> None:
        try:
            async with durable.undo() as undo:
                for thing in range(THINGS):
                    undo.later(f"{thing}", undo_it, await durable.step(f"begin {thing}", begin, thing))
                raise ValueError("sold out")
        except BaseException as error:
            tell("left", by=type(error).__name__)
            raise

    undo_it.__qualname__ = "undo_it"
    return buy


async def test_frozen_worker_undoes_nothing_that_the_next_has_undone(
    server: RealServer, short: Coordinator, namespace: str
) -> None:
    """It goes on while the next one is undoing: what it was undoing is not kept, and nothing else is begun."""
    client: Any = raw(short)
    log = f"{{log}}:{namespace}"
    may_go_on = asyncio.Event()

    async def undo_it(thing: int) -> None:
        await client.rpush(log, f"ours {thing}")
        if thing == 0:
            await may_go_on.wait()

    async def has_come_to_the_last() -> bool:
        return b"ours 0" in await client.lrange(log, 0, -1)

    job = await define_buy(short, undo_it).enqueue()
    async with spawn(f"{HERE}:undo_slowly", server.url, namespace) as child:
        await child.wait_for("left")  # the first time, to be undone
        await child.wait_for("undoes")
        child.pause()
        async with in_background(short.run_worker("default")):
            await eventually(has_come_to_the_last, timeout=WITHIN)
            child.resume()
            await child.wait_for("left")
            may_go_on.set()
            with pytest.raises(JobFailed, match="sold out"):
                await job.result(timeout=WITHIN)
        await status(short, job, JobStatus.FAILED)
    entries = [entry.decode() for entry in await client.lrange(log, 0, -1)]
    assert entries == ["child 3", "child 2", "ours 2", "ours 1", "ours 0"]
    assert await is_clean(short)
