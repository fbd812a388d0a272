"""Tasks that wait for each other are found once somebody has waited for 10 s, and told of once."""

import asyncio
import logging
from collections import Counter
from dataclasses import replace

import anyio
import pytest

from inconcert import Coordinator, Inspection, LeaseLost
from inconcert._core import line
from inconcert._redis.operate.rights import least_rights
from inconcert._redis.wire.call import Call
from inconcert.reports import inspect as inspect_module
from inconcert.testing import World, simulate
from tests.support.eventually import eventually
from tests.support.lines import in_line
from tests.support.rights import tell
from tests.support.servers import RealServer

WITHIN = 15.0  # seconds after the last wait began: it is looked for when that has lasted 10


async def take(concert: Coordinator, *names: str, pause: float = 0.0) -> None:
    """Take these locks, one after the other, and let them go."""
    if not names:
        return
    async with concert.lock(names[0]):
        await anyio.sleep(pause)
        await take(concert, *names[1:])


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Each deadlock that was logged since the last call."""
    found = [record.getMessage() for record in caplog.records if "deadlock" in vars(record)]
    assert all(record.levelno == logging.ERROR for record in caplog.records if "deadlock" in vars(record))
    caplog.clear()
    return found


def counted(*concerts: Coordinator) -> Counter[str]:
    """Counts, from now on, the scripts that these send."""
    sent = Counter[str]()

    def count(concert: Coordinator) -> None:
        channel = concert._ref.session.channel
        submit = channel.submit

        def counting(call: Call) -> None:
            sent[call.command.script.name] += 1
            submit(call)

        channel.submit = counting  # type: ignore[method-assign]

    for concert in concerts:
        count(concert)
    return sent


def test_deadlock_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """With both lines of code of each task; nothing is asked before; nor again by the others in it, or behind it."""

    async def story(world: World) -> None:
        one, two = await world.process("one"), await world.process("two")
        sent = counted(one.concert, two.concert)
        one.start(take(one.concert, "a", "b", pause=1))
        two.start(take(two.concert, "b", "a", pause=4))  # it closes the circle 3 s after the other has begun to wait
        await anyio.sleep(10)
        assert not any(name.startswith("reports/") for name in sent)
        await anyio.sleep(WITHIN - 6)
        [text] = told(caplog)
        title, *tasks = text.splitlines()
        assert title == "tasks wait for each other: deadlock of 2 tasks"
        assert [task.count(f"{__file__}:") for task in tasks] == [2, 2]
        assert "holds lock 'a'" in tasks[0]
        assert "waited for lock 'b'" in tasks[0]
        assert "holds lock 'b'" in tasks[1]
        two.start(take(two.concert, "a"))
        await anyio.sleep(60)
        assert told(caplog) == []
        assert sent["reports/ask"] <= 10

    simulate(story, seeds=3)


def test_circle_that_closes_late_in_a_line_that_was_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """Another task of the process waits in it for long; each wait counts for itself."""

    async def story(world: World) -> None:
        one, two = await world.process("one"), await world.process("two")
        one.start(take(one.concert, "a", "b", pause=1))
        two.start(take(two.concert, "b", "x", "a", pause=30))
        two.start(take(two.concert, "a"))
        await anyio.sleep(29)
        assert told(caplog) == []
        await anyio.sleep(1 + WITHIN)
        [text] = told(caplog)
        assert "deadlock of 2 tasks" in text

    simulate(story, seeds=1)


def test_long_wait_is_no_deadlock(caplog: pytest.LogCaptureFixture) -> None:
    """It is looked into once for each wait; the holder goes on in the end."""

    async def story(world: World) -> None:
        one, two = await world.process("one"), await world.process("two")
        sent = counted(one.concert, two.concert)
        holder = one.start(take(one.concert, "a", pause=60))
        await eventually(one.concert.lock("a").locked)
        waiter = two.start(take(two.concert, "b", "a"))
        async with one.concert.election("chief") as _:
            two.start(two.concert.election("chief").acquire())  # as candidates do
            await anyio.sleep(50)
        await holder
        await waiter
        assert told(caplog) == []
        assert (sent["reports/ask"], sent["reports/answer"]) == (1, 2)

    simulate(story, seeds=1)


def test_short_waits_send_nothing() -> None:
    """One after the other, for a minute."""

    async def story(world: World) -> None:
        one, two = await world.process("one"), await world.process("two")
        sent = counted(one.concert, two.concert)
        for _ in range(8):
            async with one.concert.lock("a"):
                waiter = two.start(take(two.concert, "a"))
                await in_line(one.concert.lock("a"), 1)
                await anyio.sleep(9)
            await waiter
        assert sent
        assert not any(name.startswith("reports/") for name in sent)

    simulate(story, seeds=1)


async def wait_for_itself(concert: Coordinator) -> None:
    """Take a lock that it has."""
    async with concert.lock("a"), concert.lock("a"):
        pass


def looks() -> list[asyncio.Task[object]]:
    """Those that are under way."""
    return [task for task in asyncio.all_tasks() if task.get_name() == "inconcert: looking for deadlocks"]


async def test_look_ends_with_its_coordinator(concert: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if somebody does not answer."""
    monkeypatch.setattr(line, "_LONG_WAIT", 0.01)
    assert concert.url is not None
    other = Coordinator(concert.url, namespace=concert._ref.keys.namespace)
    concert._ref.session.inbox.on_unclaimed("ask", lambda _to, _rest: None)
    async with other:
        waiter = asyncio.create_task(wait_for_itself(other))
        await eventually(looks)
    assert looks() == []
    with pytest.raises(LeaseLost):
        await waiter


async def refused(concert: Coordinator, server: RealServer) -> None:
    """A task waits for itself, and nobody may ask."""
    async with anyio.create_task_group() as group:
        group.start_soon(wait_for_itself, concert)
        await eventually(lambda: any("pubsub|channels" in map(str, entry) for entry in server.command("ACL", "LOG")))
        await eventually(lambda: not looks())
        group.cancel_scope.cancel()


async def test_user_who_may_not_ask_is_told_nothing(
    own_server: RealServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It takes a right that operators have."""
    monkeypatch.setattr(line, "_LONG_WAIT", 0.01)
    rights = [rule[1:] for rule in least_rights("shop", server=own_server.version) if rule.startswith("+")]
    await tell(refused, own_server, rights, "shop")
    assert [record for record in caplog.records if record.name == "inconcert.reports"] == []


async def test_circle_that_is_seen_once_is_no_deadlock(concert: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has given up since, or holds something else by now."""
    asked: list[bool] = []

    async with concert.lock("a"), anyio.create_task_group() as group:
        group.start_soon(take, concert, "b", "c")
        group.start_soon(_wait_for_each_other, concert)
        seen = await _with_deadlock(concert)

        async def ask(*_args: object) -> Inspection:
            asked.append(True)
            return seen if len(asked) == 1 else replace(seen, deadlocks=())

        monkeypatch.setattr(inspect_module, "_ask", ask)
        assert (await concert.inspect()).deadlocks == ()
        assert len(asked) == 2
        monkeypatch.undo()
        assert len((await concert.inspect()).deadlocks) == 1
        group.cancel_scope.cancel()


async def _wait_for_each_other(concert: Coordinator) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: take(concert, "x", "y", pause=0.1))
        group.start_soon(lambda: take(concert, "y", "x", pause=0.1))


async def _with_deadlock(concert: Coordinator) -> Inspection:
    while True:
        seen = await concert.inspect()
        if seen.deadlocks:
            return seen
