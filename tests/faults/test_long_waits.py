"""The log tells, once, of locks that callers of this process have waited for for long."""

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
