"""What surrounds the workers of a process, when the process is told to end, breaks, or dies."""

import os
import signal

from inconcert import Coordinator
from tests.support.command_line import start
from tests.support.eventually import eventually
from tests.support.ledger import ledger_of
from tests.support.processes import Child

SERVICE = "tests.support.surrounded"


def told(child: Child) -> list[str]:
    """The names of what it has told."""
    return [str(message["event"]) for message in child.messages]


async def test_terminated_worker_ends_it_after_the_last_job(concert: Coordinator) -> None:
    """The job has its grace, and the value."""
    await concert.enqueue("wait", [0.2])
    async with start(concert, "worker", f"{SERVICE}:working") as child:
        started = await child.wait_for("started")
        assert started["state"] == started["pid"] == child.pid
        child.signal(signal.SIGTERM)
        assert await child.wait() == 0
        await eventually(lambda: told(child) == ["begins", "started", "left", "ends"])
    (await ledger_of(concert)).check(put=1, done=1)


async def test_worker_that_is_terminated_while_it_begins_ends_at_once(concert: Coordinator) -> None:
    """It unwinds what it has begun, and claims nothing."""
    job = await concert.enqueue("wait", [0])
    async with start(concert, "worker", f"{SERVICE}:hanging") as child:
        await child.wait_for("begins")
        child.signal(signal.SIGTERM)
        assert await child.wait(timeout=5) == 0
        await eventually(lambda: told(child) == ["begins", "ends"])
        assert "Traceback" not in child.errors()
    assert (await ledger_of(concert)).ready == {"default": [job.id]}


async def test_worker_whose_lifespan_cannot_begin_ends_with_its_error(concert: Coordinator) -> None:
    """It has claimed nothing."""
    job = await concert.enqueue("wait", [0])
    async with start(concert, "worker", f"{SERVICE}:breaking") as child:
        assert await child.wait() == 1
        await eventually(lambda: told(child) == ["begins", "ends"])
        assert "LookupError: no model" in child.errors()
    assert (await ledger_of(concert)).ready == {"default": [job.id]}


async def test_each_of_several_processes_has_one_of_its_own(concert: Coordinator) -> None:
    """And so has the process that replaces one that was killed, which cannot end its own."""
    async with start(concert, "worker", f"{SERVICE}:working", "--processes=2") as child:
        first, second = [(await child.wait_for("begins"))["pid"] for _ in range(2)]
        assert len({first, second, child.pid}) == 3
        os.kill(first, signal.SIGKILL)
        third = (await child.wait_for("begins"))["pid"]
        child.signal(signal.SIGTERM)
        assert await child.wait() == 0
        await eventually(lambda: told(child).count("ends") == 2)
        assert {message["pid"] for message in child.messages if message["event"] == "ends"} == {second, third}
        assert told(child).count("begins") == 3


async def test_worker_that_is_told_twice_ends_it(concert: Coordinator) -> None:
    """After its job was requeued; the second signal does not skip it."""
    await concert.enqueue("wait", [60])
    async with start(concert, "worker", f"{SERVICE}:working") as child:
        await child.wait_for("started")
        child.signal(signal.SIGTERM)
        await eventually(lambda: "with 30 s to end" in child.errors())
        child.signal(signal.SIGTERM)
        assert await child.wait(timeout=5) == 0
        await eventually(lambda: told(child) == ["begins", "started", "left", "ends"])
