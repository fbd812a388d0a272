"""The log tells, once, of locks that callers of this process have waited for for long."""

from collections.abc import Coroutine
from typing import Any

import anyio
import pytest

from inconcert import Coordinator
from inconcert.testing import World, simulate
from tests.support.lines import in_line


async def pass_through(concert: Coordinator, name: str) -> None:
    """Take the lock, and let it go."""
    async with concert.lock(name):
        pass


def test_long_wait_is_told_of_once_for_each_lock(caplog: pytest.LogCaptureFixture) -> None:
    """After 10 s; and again when somebody waits for as long after nobody of the process did."""

    def told() -> dict[str, int]:
        """How many wait for each lock, as was logged since the last call."""
        fields = [vars(record) for record in caplog.records]
        caplog.clear()
        assert all(10 <= its["waited"] < 12 for its in fields)
        return {its["lock"]: its["waiters"] for its in fields}

    async def story(world: World) -> None:
        holder, waiter = (await world.process("holder")).concert, await world.process("waiter")
        door, gate = holder.lock("door"), holder.lock("gate")
        for _ in range(2):
            async with door, gate:
                waiting = [waiter.start(pass_through(waiter.concert, name)) for name in ("door", "door", "gate")]
                await in_line(door, 2)
                await anyio.sleep(8)
                waiting.append(waiter.start(pass_through(waiter.concert, "door")))
                assert told() == {}
                await anyio.sleep(3)
                assert told() == {"door": 3, "gate": 1}
                await anyio.sleep(60)
                assert told() == {}
            for task in waiting:
                await task

    simulate(story, seeds=1)


@pytest.mark.parametrize("kind", ["semaphore", "rwlock"])
def test_long_wait_for_a_permit_or_a_side_is_told_of_once(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """With the name in a field of its kind."""

    def thing(concert: Coordinator) -> Any:
        return concert.semaphore("door", limit=1) if kind == "semaphore" else concert.rwlock("door").write()

    async def story(world: World) -> None:
        holder, waiter = (await world.process("holder")).concert, await world.process("waiter")

        async def wait() -> None:
            async with thing(waiter.concert):
                pass

        async with thing(holder):
            waiting = waiter.start(wait())
            await anyio.sleep(60)
        await waiting

    simulate(story, seeds=1)
    [told] = [vars(record) for record in caplog.records]
    assert (told[kind], told["waiters"]) == ("door", 1)
    assert 10 <= told["waited"] < 12


def test_waits_that_may_last_are_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """For what others do when they do it, and for a turn of which it is known when it comes."""

    async def story(world: World) -> None:
        process = await world.process("waiter")
        concert = process.concert
        full, slow = concert.queue("full", maxsize=1), concert.rate_limiter("slow", 1, 3600.0)
        await full.put("a")
        assert await slow.try_acquire()
        waits: list[Coroutine[Any, Any, object]] = [
            concert.event("e").wait(),
            concert.latch("l", 2).wait(),
            concert.barrier("b", 2).wait(),
            concert.signal("s").wait(),
            concert.queue("empty").get(),
            full.put("b", timeout=None),
            slow.acquire(),
        ]
        waiting = [process.start(wait) for wait in waits]
        await anyio.sleep(60)
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()

    simulate(story, seeds=1)
    assert not any("waited" in vars(record) for record in caplog.records)


def test_short_waits_and_candidates_are_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """One after the other, for a minute, and a candidate that waits for its term, as candidates do."""

    async def story(world: World) -> None:
        holder, waiter = (await world.process("holder")).concert, await world.process("waiter")
        async with holder.election("chief") as _:
            waiter.start(waiter.concert.election("chief").acquire())
            for _ in range(8):
                async with holder.lock("door"):
                    task = waiter.start(pass_through(waiter.concert, "door"))
                    await anyio.sleep(9)
                await task

    simulate(story, seeds=1)
    assert not any("waited" in vars(record) for record in caplog.records)
