"""Workers whose event loop stands still: they are kept alive for a while, and found out after it."""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from fakeredis.aioredis import FakeRedis

from inconcert import Coordinator, NotHeld
from inconcert._claims import watchdog as watchdog_module
from inconcert._claims.watchdog import Watchdog
from inconcert._claims.worker_lease import WorkerLease
from inconcert._core.session import Session
from tests.support.cancelling import MOMENTS, cancel_at
from tests.support.eventually import eventually
from tests.support.jobs import lapse
from tests.support.ledger import ledger_of
from tests.support.processes import Child, spawn, tell
from tests.support.proxy import Proxy
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease
from tests.support.tls import encrypted
from tests.support.watchdog import life_of, threads

HERE = "tests.faults.test_watchdog"
LEASE = 2.0  # seconds of a heartbeat, here; longer than a busy machine may stand still

pytestmark = pytest.mark.usefixtures("short_lease")


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Whatever a test does to a consumer, its thread ends with it."""
    yield
    assert threads() == []


# In another process, so that this one can watch.


async def block(url: str, namespace: str, way: dict[str, Any]) -> None:
    """In a child: claim a job, block the loop in it, and tell whether it was still held at its end."""
    watchdog_module._LONGEST = way["longest"]
    logging.basicConfig()
    async with with_lease(Coordinator(url, namespace=namespace), way["lease"]) as concert, concert.consume("q") as jobs:
        job = await anext(jobs)
        tell("blocked", worker=life_of(jobs).holder)
        {"sleeping": sleep_for, "computing": compute_for}[way["how"]](way["seconds"])
        tell("goes on")
        try:
            await job.ack()
            tell("ended", was_held=True)
        except NotHeld:
            tell("ended", was_held=False)
        await anyio.sleep_forever()


async def block_with_item(url: str, namespace: str, way: dict[str, Any]) -> None:
    """In a child: take an item, block the loop, and tell whether it was still held at its end."""
    watchdog_module._LONGEST = way["longest"]
    logging.basicConfig()
    async with Coordinator(url, namespace=namespace) as concert:
        delivery = await concert.queue("q", ttl=LEASE).get()
        tell("blocked")
        sleep_for(way["seconds"])
        try:
            await delivery.ack()
            tell("ended", was_held=True)
        except NotHeld:
            tell("ended", was_held=False)
        await anyio.sleep_forever()


def sleep_for(seconds: float) -> None:
    """Block, and let other threads run."""
    time.sleep(seconds)  # here it blocks


def compute_for(seconds: float) -> None:
    """Block, and let other threads run when the interpreter says so."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))  # here it blocks


def blocked(
    url: str, namespace: str, seconds: float, *, longest: float = 60.0, lease: float = LEASE, how: str = "sleeping"
) -> Child:
    """A child that blocks its loop for so long."""
    way = {"seconds": seconds, "longest": longest, "lease": lease, "how": how}
    return spawn(f"{HERE}:block", url, namespace, way)


@pytest.mark.parametrize(("longest", "is_kept"), [(60.0, True), (0.0, False)])
async def test_item_whose_handler_blocks_the_loop_is_kept(
    server: RealServer, concert: Coordinator, namespace: str, *, longest: float, is_kept: bool
) -> None:
    """Another process, which waits for items, is given it only when the thread stands in no longer."""
    queue = concert.queue("q", ttl=LEASE)
    await queue.put("item")
    way = {"seconds": 2 * LEASE, "longest": longest}
    async with spawn(f"{HERE}:block_with_item", server.url, namespace, way) as child:
        await child.wait_for("blocked")
        waiting = asyncio.ensure_future(queue.get())
        assert (await child.wait_for("ended"))["was_held"] is is_kept
        assert waiting.done() is not is_kept
        waiting.cancel()
        await asyncio.wait([waiting])


@pytest.mark.parametrize("how", ["sleeping", "computing"])
async def test_job_that_blocks_the_loop_runs_once(
    server: RealServer, concert: Coordinator, namespace: str, how: str
) -> None:
    """Another worker, which waits for work, is not given it; and the log has the line that blocks, once."""
    await concert.enqueue("t", queue="q")
    async with blocked(server.url, namespace, 2 * LEASE, how=how) as child, concert.consume("q") as others:
        await child.wait_for("blocked")
        waiting = asyncio.ensure_future(anext(others))
        assert (await child.wait_for("ended"))["was_held"]
        assert not waiting.done()
        others.stop()
        with pytest.raises(StopAsyncIteration):
            await waiting
        log = child.errors()
    assert log.count(f"the event loop has stood still for {LEASE / 5:g} s") == 1
    assert log.count("# here it blocks") == 1
    ledger = await ledger_of(concert)
    assert (ledger.bodies, ledger.crashes) == ([], {})


async def test_worker_whose_loop_never_turns_is_recovered(
    server: RealServer, concert: Coordinator, namespace: str
) -> None:
    """The thread stands in for a bounded time, and what the worker says after it does not count."""
    put = await concert.enqueue("t", queue="q")
    async with blocked(server.url, namespace, 3.5 * LEASE, longest=LEASE) as child, concert.consume("q") as others:
        await child.wait_for("blocked")
        blocked_at = time.monotonic()
        job = await anext(others)
        assert 1.5 * LEASE < time.monotonic() - blocked_at < 3.0 * LEASE
        assert (job.id, job.attempt) == (put.id, 2)
        assert not (await child.wait_for("ended"))["was_held"]
        await job.ack()
        log = child.errors()
    assert log.count("stood still for") == log.count("will be presumed dead") == 1
    (await ledger_of(concert)).check(put=1, done=1)


async def test_blocked_worker_that_was_taken_for_dead_stays_dead(
    server: RealServer, concert: Coordinator, namespace: str
) -> None:
    """The server's answer is final, for the thread and for the loop."""
    await concert.enqueue("t", queue="q")
    async with blocked(server.url, namespace, 2 * LEASE) as child, concert.consume("q") as others:
        worker = (await child.wait_for("blocked"))["worker"]
        await lapse(concert, worker)
        job = await anext(others)
        assert job.attempt == 2
        assert not (await child.wait_for("ended"))["was_held"]
        assert worker not in (await ledger_of(concert)).workers
        await job.ack()


async def test_blocked_process_that_is_stopped_is_dead(
    server: RealServer, concert: Coordinator, namespace: str
) -> None:
    """SIGSTOP stops its thread, too; and when it goes on, the thread does not bring it back."""
    await concert.enqueue("t", queue="q")
    async with blocked(server.url, namespace, 3 * LEASE) as child, concert.consume("q") as others:
        await child.wait_for("blocked")
        await eventually(lambda: "stood still" in child.errors())
        child.pause()
        async with await anext(others) as job:
            assert job.attempt == 2
            child.resume()
            assert not (await child.wait_for("ended"))["was_held"]
    (await ledger_of(concert)).check(put=1, done=1)


async def test_server_that_comes_back_in_time_finds_a_blocked_worker_alive(namespace: str) -> None:
    """The thread tries again until the heartbeat has lapsed."""
    with RealServer(appendonly="yes", appendfsync="always") as server:
        async with Coordinator(server.url, namespace=namespace) as concert:
            await concert.enqueue("t", queue="q")
            async with blocked(server.url, namespace, 4.0, lease=2.0) as child:
                await child.wait_for("blocked")
                await eventually(lambda: "stood still" in child.errors())
                server.kill()
                await eventually(lambda: "could not renew its heartbeat yet" in child.errors())
                server.start()
                assert (await child.wait_for("ended"))["was_held"]
            (await ledger_of(concert)).check(put=1, done=1)


@pytest.mark.parametrize("trouble", ["refused", "mute"])
async def test_blocked_worker_without_network_stops_its_jobs(
    server: RealServer, concert: Coordinator, namespace: str, trouble: str
) -> None:
    """Its heartbeat lapses, whatever the thread tries, and it knows as soon as its loop turns."""
    await concert.enqueue("t", queue="q")
    async with (
        Proxy(server.tcp_url) as proxy,
        blocked(proxy.url, namespace, 2 * LEASE) as child,
        concert.consume("q") as others,
    ):
        await child.wait_for("blocked")
        if trouble == "mute":
            proxy.mute()
        else:
            proxy.refuse()
            proxy.cut()
        async with await anext(others) as job:
            assert job.attempt == 2
            await child.wait_for("goes on")
            await proxy.heal()
            assert not (await child.wait_for("ended"))["was_held"]
    (await ledger_of(concert)).check(put=1, done=1)


# In this process.


async def claim_and_block(concert: Coordinator, seconds: float = 1.2 * LEASE) -> None:
    """Run a job that blocks the loop for longer than a heartbeat's lease, and ends as if it had not."""
    await concert.enqueue("t", queue="q")
    async with concert.consume("q") as jobs:
        job = await anext(jobs)
        sleep_for(seconds)
        await anyio.lowlevel.checkpoint()
        assert not job.is_over
        await job.ack()
        assert not life_of(jobs).is_lost
    assert (await ledger_of(concert)).bodies == []


@pytest.mark.parametrize("how", ["unix socket and password", "TCP and password", "TCP and user", "TLS"])
async def test_heartbeat_reaches_the_server_however_it_is_connected(how: str, namespace: str, tmp_path: Path) -> None:
    """The thread connects and logs in as the pool does, and its connection is closed again."""
    with ExitStack() as stack:
        server = stack.enter_context(RealServer(requirepass="secret") if "password" in how else RealServer())
        url = server.url if how.startswith("unix") else server.tcp_url
        if "user" in how:
            server.command("ACL", "SETUSER", "shop", "on", ">geheim", "~*", "&*", "+@all")
            url = url.replace("redis://", "redis://shop:geheim@")
        if how == "TLS":
            url = stack.enter_context(encrypted(server, tmp_path)).url()
        async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:
            await claim_and_block(concert)
        await eventually(lambda: server.command("INFO", "clients")["connected_clients"] == 1)


async def test_one_connection_is_made_while_the_loop_stands_still_and_none_while_it_turns(
    own_server: RealServer, namespace: str
) -> None:
    """However long the blockage; and it is closed after it."""

    def made() -> int:
        return int(own_server.command("INFO", "stats")["total_connections_received"])

    async with with_lease(Coordinator(own_server.url, namespace=namespace), LEASE) as concert:
        await concert.enqueue("t", queue="q")
        async with concert.consume("q") as jobs:
            job = await anext(jobs)
            open_before, made_before = own_server.command("INFO", "clients")["connected_clients"], made()
            first = life_of(jobs).deadline
            while life_of(jobs).deadline < first + LEASE:  # the loop's own heartbeats, all the while
                await anyio.sleep(LEASE / 100)
            assert made() == made_before + 1  # which asked
            sleep_for(2 * LEASE)
            assert made() == made_before + 3
            await eventually(lambda: own_server.command("INFO", "clients")["connected_clients"] == open_before)
            await job.ack()


async def test_blockage_is_told_where_no_connection_can_be_made(
    namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Connections that are not the driver's own have no blocking kind: the worker is lost, without another word."""
    client = FakeRedis()
    async with (
        with_lease(Coordinator.from_client(client, namespace=namespace), LEASE) as concert,
        concert.consume("q") as jobs,
    ):
        await concert.enqueue("t", queue="q")
        job = await anext(jobs)
        sleep_for(1.2 * LEASE)
        await eventually(lambda: job.is_over)
    await client.aclose()
    told = [record.getMessage() for record in caplog.records if record.threadName == "inconcert watchdog"]
    assert len(told) == 1
    assert "# here it blocks" in told[0]


async def test_log_names_the_job_that_blocks(concert: Coordinator, caplog: pytest.LogCaptureFixture) -> None:
    """With the stack of what blocks."""

    @concert.task(name="report")
    async def report() -> None:
        sleep_for(LEASE)

    put = await report.enqueue()
    await concert.run_worker("default", burst=True)
    [told] = [record.getMessage() for record in caplog.records if record.threadName == "inconcert watchdog"]
    assert f"s in job {put.id} attempt 1 (task 'report', queue 'default'), and this is where:" in told


async def test_closing_right_after_a_blockage_ends_the_thread(concert: Coordinator) -> None:
    """In whatever it was doing."""
    for seconds in (0.15, 0.3, 0.35, 0.7):
        await concert.enqueue("t", queue="q")
        async with concert.consume("q") as jobs, await anext(jobs):
            sleep_for(seconds * LEASE)
        assert threads() == []


async def test_closing_waits_for_a_thread_that_waits_for_the_server(concert: Coordinator) -> None:
    """It ends with the consumer, not some time after it."""
    began = threading.Event()

    def beat_aside(channel: object) -> bool:
        del channel
        began.set()
        time.sleep(0.3)
        return True

    life = SimpleNamespace(lease=0.1, is_lost=False, deadline=math.inf, beat_aside=beat_aside)
    watchdog = Watchdog(concert._ref.session)
    watchdog.watch(cast("WorkerLease[Any]", life))
    began.wait()
    await watchdog.close()
    assert threads() == []


async def test_cancelled_closing_ends_the_thread(concert: Coordinator) -> None:
    """Wherever the cancellation comes."""

    async def open_and_close() -> None:
        async with concert.consume("q") as jobs:
            await jobs.try_claim(1)

    for moment in MOMENTS:
        number = 1
        while await cancel_at(number, moment, open_and_close()):
            assert threads() == []
            number += 1


def test_thread_ends_when_its_loop_is_closed() -> None:
    """A consumer that nobody closes holds nothing up."""
    session = cast("Session", SimpleNamespace(new_blocking_server=None))

    async def leave_it_open() -> None:
        life = cast("WorkerLease[Any]", SimpleNamespace(lease=LEASE / 10, is_lost=True))
        Watchdog(session).watch(life)
        assert len(threads()) == 1

    asyncio.run(leave_it_open())
    for thread in threads():
        thread.join(timeout=10)
