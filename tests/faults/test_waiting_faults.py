"""Jobs that wait for messages while processes are killed, replies lost and messages forged: the first one decides."""

from typing import cast

import anyio
import pytest

from inconcert import Coordinator, JobFailed, JobStatus, NotClaimed, current_job, durable
from inconcert.errors import InconcertError
from inconcert.testing.simulation import World, simulate
from tests.support.background import in_background
from tests.support.durable import forge_message, kept, message, messages
from tests.support.jobs import lapse_all, status
from tests.support.proxy import Proxy
from tests.support.servers import RealServer

WITHIN = 20.0  # seconds
LINES = 8  # of each job, there
TIMEOUT = 5.0  # seconds of each wait, in the simulated world


# A world in which processes die.


class History:
    """What all processes of a world have seen: of each step its runs, of each job what it was sent and what it got."""

    def __init__(self) -> None:
        self.kept: set[tuple[str, int]] = set()
        self.accepted: list[int] = []
        self.got: list[int | None] = []
        self.lines: set[int] = set()

    def check(self) -> None:
        """The same answer in all attempts: the one message that was accepted, or a timeout. Each line was done."""
        assert self.lines == set(range(LINES))
        assert len(set(self.got)) == 1, self.got
        [answer] = set(self.got)
        assert len(self.accepted) <= 1, self.accepted
        if self.accepted:
            assert answer == self.accepted[0]


async def _serve(concert: Coordinator, history: History) -> None:
    @concert.task(name="wait", max_crashes=9)
    async def wait() -> str:  # pyright: ignore[reportUnusedFunction]
        async def before(runs: int) -> int:
            assert ("before", runs) not in history.kept  # a step that was kept never runs again
            return runs

        await durable.step("before", before, 1)
        history.kept.add(("before", 1))
        try:
            history.got.append(await durable.wait_for("packed", int, timeout=TIMEOUT))
        except TimeoutError:
            history.got.append(None)
        place, first = await _position(concert), True
        async for line in durable.each("lines", range(LINES), key=int):
            assert not first or line == place  # what is known to be done does not run again, and nothing is passed over
            first = False
            history.lines.add(line)
            await anyio.sleep(0.4)
        await durable.step("after", before, 2)
        history.kept.add(("before", 2))
        return "done"

    await concert.run_worker("default", concurrency=2)


async def _position(concert: Coordinator) -> int:
    """How many lines are known to be done."""
    steps = {step.name: step.value for step in await concert.tasks.job(current_job().id).steps()}
    done, _, _ = cast("list[int]", steps.get("lines", [0, "", False]))
    return done


async def _send(concert: Coordinator, job_id: str, value: int, history: History) -> None:
    try:
        if await concert.tasks.job(job_id).send("packed", value):
            history.accepted.append(value)
    except InconcertError:
        """It may have been sent."""


async def _story(world: World) -> None:
    history, order = History(), world.random
    boss = await world.process("boss")
    workers = [await world.process(f"worker {number}") for number in range(3)]
    senders = [await world.process(f"sender {number}") for number in range(2)]
    for worker in workers:
        worker.start(_serve(worker.concert, history))
    job = await boss.start(boss.concert.enqueue("wait"))

    async def later(seconds: float, value: int) -> None:
        await anyio.sleep(seconds)
        await _send(senders[value].concert, job.id, value, history)

    for value, sender in enumerate(senders):
        sender.start(later(order.choice([0.0, 0.001, 0.01, 1.0, TIMEOUT, TIMEOUT + 0.002]), value))
        if order.random() < 0.3:
            sender.lose_reply()
    for worker in workers[:2]:
        if order.random() < 0.5:
            worker.kill(after=order.randrange(1, 60))
        elif order.random() < 0.5:
            worker.lose_reply()
    assert await boss.start(job.result(timeout=600)) == "done"
    history.check()
    assert not await world.client.exists(*(f"{{sim:tasks:0}}:{part}" for part in ("messages", "received", "awaited")))


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 1006), marks=pytest.mark.torture)])
def test_one_answer_whatever_dies(seeds: range) -> None:
    """Workers killed at any command, senders that race each other and the timeout, replies lost."""
    simulate(_story, seeds=seeds)


# Twins, and replies that are lost.


async def test_late_twin_neither_reads_nor_times_out(concert: Coordinator, elsewhere: Coordinator) -> None:
    """Its worker counts as dead, and does not know it yet; the one that holds the job decides."""
    job = await concert.enqueue("t")
    async with concert.consume("default") as stopped, elsewhere.consume("default") as jobs:
        late = await anext(stopped)
        await lapse_all(concert)
        again = await anext(jobs)
        assert again.id == late.id
        async with late:
            with pytest.raises(NotClaimed):
                await durable.wait_for("packed", int, timeout=0)
        assert await job.send("packed", 7)
        async with again:
            assert await durable.wait_for("packed", int, timeout=0) == 7


async def test_reply_lost_at_each_command_keeps_one_message(proxy: Proxy, namespace: str, concert: Coordinator) -> None:
    """Those of the worker and those of the sender, each sent again, and acting once."""
    async for lost in proxy.losing_each(4, least=10, most=60):  # of those before, others tell
        job = await concert.enqueue("t", queue=f"q{lost}")
        async with Coordinator(proxy.url, namespace=namespace) as bad:
            proxy.cut_after_replies(lost, lose_next=True)
            async with bad.consume(f"q{lost}") as jobs:
                async with await anext(jobs):
                    await durable.wait_for("packed", int, timeout=3600)
                await status(concert, job, JobStatus.DELAYED)
                assert await bad.tasks.job(job.id).send("packed", 1)
                assert not await bad.tasks.job(job.id).send("packed", 2)
                async with await anext(jobs) as again:
                    assert again.attempt == 1
                    assert await durable.wait_for("packed", int, timeout=3600) == 1
        assert await kept(concert) == {} == await messages(concert)


# Strangers.


@pytest.mark.parametrize("forgery", ["unsigned", "of another job", "of another name"])
async def test_message_of_a_stranger_is_not_read(server: RealServer, namespace: str, forgery: str) -> None:
    """It was not signed, or for another job or name; the job is dead-lettered."""
    signing_keys = {"k": "0123456789abcdef0123456789abcdef"}
    async with Coordinator(server.url, namespace=namespace, signing_keys=signing_keys) as signing:

        @signing.task(name="t")
        async def task() -> int:
            return await durable.wait_for("packed", int, timeout=3600)

        job, other = await task.enqueue(), await task.enqueue()
        await job.send("paid", 1)
        await job.send("packed", 2)
        await other.send("packed", 3)
        forged = {
            "unsigned": b"9",
            "of another job": await message(signing, other.id, "packed"),
            "of another name": await message(signing, job.id, "paid"),
        }
        await forge_message(signing, job.id, "packed", forged[forgery])
        async with in_background(signing.run_worker("default")):
            assert await other.result(timeout=WITHIN) == 3
            with pytest.raises(JobFailed, match="UnreadablePayload: the message") as failed:
                await job.result(timeout=WITHIN)
            assert failed.value.attempts == 1
