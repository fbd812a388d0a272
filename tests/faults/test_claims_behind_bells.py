"""The claim of an idle worker waits on the server, behind its bell: whatever becomes of the worker, each job runs."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, NotConnected
from inconcert._redis.wire import bells as bells_module
from inconcert._redis.wire.bells import RING
from inconcert._redis.wire.call import AwaitedCall
from inconcert.testing import Process, World, simulate
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.inner import bells_of
from tests.support.jobs import LEASE
from tests.support.ledger import all_done, until
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease
from tests.support.world import World as Kind
from tests.support.world import world

HERE = "tests.faults.test_claims_behind_bells"
SOON = 1.5  # seconds; the shortest sleep is 2 s
STORIES = 12
JOBS = 6

pytestmark = pytest.mark.skipif(world() != Kind(), reason="on a cluster no claim waits behind a bell")


def serve(concert: Coordinator, run: Callable[[int, str], Awaitable[object]], queue: str = "default") -> Any:
    """A task that runs this with its number, and what comes with it."""

    @concert.task(name=f"task of {queue}", queue=queue, max_crashes=99)
    async def task(number: int, bulk: str = "") -> None:
        await run(number, bulk)

    return task


async def claims_asleep(concert: Coordinator) -> None:
    """Wait until the claim of an idle worker waits behind its bell."""
    await eventually(lambda: bells_of(concert._ref.session)._behind)


@pytest.fixture
def ran() -> "Counter[int]":
    """How often each number has run in this process."""
    return Counter()


@pytest.fixture
async def worker(concert: Coordinator, ran: "Counter[int]") -> AsyncIterator[Any]:
    """The task of an idle worker, whose claim waits behind its bell."""
    task = serve(concert, note(ran))
    async with in_background(concert.run_worker("default")):
        await claims_asleep(concert)
        yield task


def note(ran: "Counter[int]") -> Callable[[int, str], Awaitable[object]]:
    """Count a run."""

    async def run(number: int, bulk: str) -> None:
        del bulk
        ran[number] += 1

    return run


# Where the claim waits, and where it does not.


async def test_no_claim_waits_while_a_body_may_block_the_loop(concert: Coordinator, elsewhere: Coordinator) -> None:
    """What it claims would wait with it, though another worker is idle. After the body it waits again."""
    has_begun, may_end, ran = asyncio.Event(), asyncio.Event(), Counter[int]()

    async def run(number: int, bulk: str) -> None:
        del number, bulk
        has_begun.set()
        await may_end.wait()

    task = serve(concert, run)
    async with in_background(concert.run_worker("default")):
        await claims_asleep(concert)
        await task.enqueue(1)
        await has_begun.wait()
        bells = bells_of(concert._ref.session)
        await eventually(lambda: bells._covered)
        assert bells._behind is None
        may_end.set()
        await claims_asleep(concert)
        serve(elsewhere, note(ran))
        async with in_background(elsewhere.run_worker("default")):  # these two share the work from now on
            await claims_asleep(elsewhere)


async def test_no_claim_waits_for_a_user_who_may_go(concert: Coordinator) -> None:
    """One that was claimed after its call was cancelled would be with nobody."""
    async with concert.consume("default") as jobs, in_background(jobs.claim(1)):
        await eventually(lambda: bells_of(concert._ref.session)._covered)
        assert bells_of(concert._ref.session)._behind is None


async def test_others_in_the_process_may_sleep_too(concert: Coordinator, worker: Any, ran: "Counter[int]") -> None:
    """The claim makes room for them, and each is woken by its own bell."""
    getting = asyncio.create_task(concert.queue("q").get(timeout=None))
    await eventually(lambda: len(bells_of(concert._ref.session)._covered) == 2)
    with anyio.fail_after(SOON):
        await worker.enqueue(1)
        await eventually(lambda: ran[1])
        await concert.queue("q").put(1)
        await (await getting).ack()
    await claims_asleep(concert)


# What becomes of the claim.


async def test_scripts_that_the_server_forgot_are_sent_again(own_server: RealServer, namespace: str) -> None:
    """The claim then comes through the command channel, with its source."""
    ran = Counter[int]()
    async with Coordinator(own_server.url, namespace=namespace) as concert:
        task = serve(concert, note(ran))
        async with in_background(concert.run_worker("default")):
            await claims_asleep(concert)
            await raw(concert).script_flush()
            with anyio.fail_after(SOON):
                await task.enqueue(1)
                await eventually(lambda: ran[1])
            await claims_asleep(concert)
    assert ran == {1: 1}


async def test_large_jobs_come_in_their_turn(concert: Coordinator, worker: Any, ran: "Counter[int]") -> None:
    """The claim answers that its reply is large, and is sent again where there is room for it."""
    with anyio.fail_after(SOON):
        await worker.enqueue(1, "x" * 600_000)
        await eventually(lambda: ran[1])
    await claims_asleep(concert)


async def test_lost_reply_of_a_claim_is_asked_for_again(
    server: RealServer, namespace: str, concert: Coordinator
) -> None:
    """The server has claimed the job for this worker, which hears of it when it is connected again."""
    ran = Counter[int]()
    async with Proxy(server.tcp_url) as proxy, Coordinator(proxy.url, namespace=namespace) as far:
        task = serve(concert, note(Counter()))
        serve(far, note(ran))
        async with in_background(far.run_worker("default")):
            for number in range(3):
                await claims_asleep(far)
                proxy.hold_replies()
                await task.enqueue(number)
                await until(concert, lambda ledger: any(ledger.claimed.values()))
                proxy.cut()
                await proxy.heal()
                await all_done(concert)
    assert ran == dict.fromkeys(range(3), 1)


async def test_claim_behind_a_silent_connection_goes_elsewhere(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A router may have forgotten the connection: the worker hears of its job before that is given up."""
    monkeypatch.setattr(bells_module, "_BLOCK", 0.3)
    monkeypatch.setattr(bells_module, "_LATE", 0.1)
    ran, bells = Counter[int](), bells_of(concert._ref.session)
    task = serve(concert, note(ran))
    async with in_background(concert.run_worker("default")):
        await claims_asleep(concert)
        bells._unanswered = deque([bells._is_here] * 9)  # as if no reply came
        with anyio.fail_after(SOON):
            await task.enqueue(1)
            await eventually(lambda: ran[1])
    assert ran == {1: 1}


@pytest.mark.parametrize("turns", range(8))
async def test_worker_that_stops_as_its_bell_rings_loses_nothing(
    concert: Coordinator, elsewhere: Coordinator, turns: int
) -> None:
    """In whichever turn of the loop: it runs the job, or another worker does, soon."""
    ran, stop = Counter[int](), asyncio.Event()
    task = serve(concert, note(ran))
    serve(elsewhere, note(ran))
    stopping = asyncio.create_task(concert.run_worker("default", stop=stop))
    await claims_asleep(concert)
    async with in_background(elsewhere.run_worker("default")):
        await claims_asleep(elsewhere)
        enqueueing = asyncio.create_task(task.enqueue(1))
        for _ in range(turns):
            await asyncio.sleep(0)
        stop.set()
        with anyio.fail_after(SOON):
            await asyncio.wait([stopping, enqueueing])
            await eventually(lambda: ran[1])
            await all_done(concert)
    assert ran == {1: 1}


async def test_bell_that_rings_for_a_call_of_nobody_wakes_another(concert: Coordinator, elsewhere: Coordinator) -> None:
    """Its caller was cancelled, and the wait before it is still there, which is the first that the bell ends."""
    ran, bells = Counter[int](), bells_of(concert._ref.session)
    task = serve(concert, note(Counter()))
    serve(elsewhere, note(ran))
    sleeper = bells.sleeper((concert._jobs.partitions[0].queue("default").bell,))
    async with in_background(sleeper.rung(5)):
        await eventually(lambda: bells._covered)
    call = AwaitedCall(RING(bell=concert._ref.keys.parts("session", "other", "bell")[0]))
    sleeper.run_when_rung(call)
    assert bells._behind is call
    call.cancel()
    async with in_background(elsewhere.run_worker("default")):
        await eventually(lambda: bells_of(elsewhere._ref.session)._covered)
        assert bells._behind is call
        with anyio.fail_after(SOON):
            await task.enqueue(1)
            await eventually(lambda: ran[1])


async def test_interrupt_before_the_claim_waits_lets_it_run_at_once(concert: Coordinator) -> None:
    """Such as after a failover, while a worker that was lost begins anew: a bell may have been missed."""
    bells = bells_of(concert._ref.session)
    sleeper = bells.sleeper((concert._jobs.partitions[0].queue("default").bell,))
    async with in_background(sleeper.rung(5)):
        await eventually(lambda: bells._covered)
    assert sleeper.is_alone
    sleeper.interrupt()
    call = AwaitedCall(RING(bell=concert._ref.keys.parts("session", "other", "bell")[0]))
    sleeper.run_when_rung(call)
    with anyio.fail_after(SOON):
        await call


async def test_closing_ends_a_claim_that_waits(server: RealServer, namespace: str) -> None:
    """At once, as any wait."""
    async with Coordinator(server.url, namespace=namespace) as concert:
        serve(concert, note(Counter()))
        working = asyncio.create_task(concert.run_worker("default"))
        await claims_asleep(concert)
    with anyio.fail_after(SOON), suppress(NotConnected):
        await working


# Workers that die or stand still.


async def sleep_there(url: str, namespace: str) -> None:
    """In a child: be an idle worker, and tell what runs."""
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:

        async def run(number: int, bulk: str) -> None:
            del bulk
            tell("ran", number=number)

        serve(concert, run)
        async with in_background(concert.run_worker("default")):
            await claims_asleep(concert)
            tell("asleep")
            await anyio.sleep_forever()


@pytest.mark.parametrize("is_killed", [True, False])
async def test_job_for_a_worker_that_is_gone_runs_elsewhere(
    server: RealServer, concert: Coordinator, namespace: str, is_killed: bool, short_lease: None
) -> None:
    """At once if it was killed. For one that stands still the server claims the job; it comes back with the lease."""
    ran = Counter[int]()
    async with spawn(f"{HERE}:sleep_there", server.url, namespace) as child:
        await child.wait_for("asleep")
        task = serve(concert, note(ran))
        async with in_background(concert.run_worker("default")):
            await claims_asleep(concert)
            if is_killed:
                child.kill()
                await child.wait()
            else:
                child.pause()
            with anyio.fail_after(SOON if is_killed else LEASE + 5):
                await task.enqueue(1)
                await eventually(lambda: ran[1])
            if not is_killed:
                child.resume()
            await all_done(concert)
    assert ran == {1: 1}


def test_no_job_is_lost_in_any_order_of_events() -> None:
    """One worker dies, or is cut off for a while, at any of its commands. Only jobs that it has begun run twice."""

    async def story(world: World) -> None:
        began: list[tuple[str, int]] = []
        ended: set[int] = set()
        ann, bob, sender = [await world.process(name) for name in ("ann", "bob", "sender")]

        def start(process: Process) -> Any:
            async def run(number: int, bulk: str) -> None:
                del bulk
                began.append((process.name, number))
                await asyncio.sleep(0.002)
                ended.add(number)

            task = serve(process.concert, run)
            process.start(process.concert.run_worker("default", concurrency=2))
            return task

        start(ann)
        start(bob)
        task = serve(sender.concert, note(Counter()))
        await asyncio.sleep(world.random.uniform(0, 8))
        may_die = world.random.random() < 0.5
        if may_die:
            ann.kill(after=world.random.randint(1, 12))
        else:
            ann.cut(after=world.random.randint(1, 12))
        for number in range(JOBS):
            await sender.start(task.enqueue(number))
            await asyncio.sleep(world.random.choice([0.0, 0.003, 0.05, 1.0]))
        if not may_die:
            await asyncio.sleep(world.random.choice([0.05, 3.0, 12.0]))
            ann.heal()
        while len(ended) < JOBS:
            await asyncio.sleep(0.5)
        assert {number for _, number in began} == set(range(JOBS))
        twice = [number for number, count in Counter(number for _, number in began).items() if count > 1]
        assert all(("ann", number) in began for number in twice), began
        waited.append(bells_of(bob.concert._ref.session)._behind is not None)

    waited: list[bool] = []
    simulate(story, STORIES)
    assert any(waited), "no claim has waited behind a bell"
