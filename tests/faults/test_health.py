"""Probes of a worker: ten ways in which a worker stops to consume, each found out or mended; and no false alarm.

The limits are a tenth of the real ones.
"""

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from inconcert import Coordinator, HealthReport, HealthState, WorkerHealth
from inconcert._claims import consumer as consumer_module
from inconcert._redis.wire import bells as bells_module
from inconcert.tasks.running import health as health_module
from inconcert.tasks.running.threaded_server import MOST, ThreadedServer
from tests.support.eventually import eventually
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.scripts import scripts_run
from tests.support.sentinels import SentinelSet
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease

TENTH = 0.1  # of the real limits
LIMITS = ("_TURNS_WITHIN", "_CLAIMS_WITHIN", "_WAITS_WITHIN", "_ENDS_WITHIN")
FOUND_WITHIN = 15 * TENTH + 1.5  # seconds; and what a busy machine may add


@pytest.fixture(autouse=True)
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that the probes depend on takes a tenth of its time."""
    sleeps = ("_SHORTEST_SLEEP", "_LONGEST_SLEEP", "AFTER_A_FAILURE")
    for module, names in ((health_module, LIMITS), (consumer_module, sleeps), (bells_module, ("_BLOCK",))):
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, name) * TENTH)


class Probed:
    """A worker with its probes, and the jobs that it runs."""

    def __init__(self, concert: Coordinator, health: WorkerHealth) -> None:
        self.concert = concert
        self.health = health

    async def consumes(self) -> None:
        """Wait until it runs a job that is enqueued now, and is ready."""
        await eventually(lambda: self.health.ready().is_ok)
        assert await (await self.concert.enqueue("echo", [7])).result(timeout=FOUND_WITHIN) == 7

    async def becomes(self, *states: HealthState) -> HealthReport:
        """Wait until it answers so when it is asked whether it is ready."""
        await eventually(lambda: self.health.ready().state in states, timeout=FOUND_WITHIN)
        return self.health.ready()


@asynccontextmanager
async def probed(
    url: str, namespace: str, *, lease: float = 10 * TENTH, timeout: float = 0.5, **options: Any
) -> AsyncGenerator[Probed]:
    """A worker that is ready, on this server; it may end with an error."""
    async with with_lease(Coordinator(url, namespace=namespace, timeout=timeout), lease) as concert:

        @concert.task(name="echo")
        async def echo(number: int) -> int:
            return number

        @concert.task(name="hang")
        async def hang() -> None:
            await anyio.sleep_forever()

        @concert.task(name="limited")
        async def limited() -> None:
            await anyio.sleep_forever()

        @concert.task(name="block_thread")
        def block_thread(seconds: float) -> None:
            time.sleep(seconds)

        @concert.task(name="block_loop")
        async def block_loop(seconds: float) -> None:
            time.sleep(seconds)

        del echo, hang, limited, block_thread, block_loop
        health = WorkerHealth()
        worker = asyncio.create_task(concert.run_worker("default", health=health, **options))
        try:
            yield Probed(concert, health)
        finally:
            worker.cancel()
            await asyncio.wait([worker])


@pytest.fixture
async def worker(own_server: RealServer, namespace: str) -> AsyncIterator[Probed]:
    """A worker on a server of its own."""
    async with probed(own_server.tcp_url, namespace) as opened:
        await opened.consumes()
        yield opened


@contextmanager
def watched_from_a_thread(look: Callable[[], object]) -> Generator[list[object]]:
    """What it answers, asked from a thread a hundred times a second while the body runs."""
    seen: list[object] = []
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.01):
            if (found := look()) not in seen[-1:]:
                seen.append(found)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def get(url: str, method: str = "GET", *, within: float = 5.0) -> tuple[int, Any]:
    """What an HTTP server answers."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=within)
    try:
        connection.request(method, parts.path)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    finally:
        connection.close()


@asynccontextmanager
async def only_client(server: RealServer) -> AsyncGenerator[None]:
    """The server has room for one client, and this is the one; in the end for all."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for command in (
        b"CONFIG SET maxclients 1",
        b"CLIENT KILL TYPE normal SKIPME yes",
        b"CLIENT KILL TYPE pubsub SKIPME yes",
    ):
        writer.write(command + b"\r\n")
        await reader.readline()
    yield
    writer.write(b"CONFIG SET maxclients 1000\r\n")
    await reader.readline()
    writer.close()
    await writer.wait_closed()


# Ten wedges.


async def test_half_open_link_is_found(own_server: RealServer, namespace: str) -> None:
    """Nothing comes through any more, and nobody says so; it recovers with the network."""
    async with Proxy(own_server.tcp_url) as proxy, probed(proxy.url, namespace) as worker:
        await worker.consumes()
        proxy.mute()
        assert "answered for" in (await worker.becomes("stuck")).reason
        assert worker.health.live().is_ok
        await proxy.heal()
        await worker.consumes()


async def test_half_open_link_of_the_bells_is_mended(worker: Probed) -> None:
    """The connection on which it waits is dropped when a wait is not answered; or it is found, if no other comes up."""
    bells: Any = worker.concert._ref.session.bells
    await eventually(lambda: bells._covered)
    bells._wire._transport.pause_reading()
    wire = bells._wire
    await eventually(lambda: bells._wire not in (None, wire), timeout=FOUND_WITHIN)
    await worker.consumes()


async def test_server_that_stands_still_is_found(worker: Probed, own_server: RealServer) -> None:
    """It is not ready, and alive: a restart would bring back no server."""
    own_server.pause()
    await worker.becomes("stuck")
    assert worker.health.live().is_ok
    own_server.resume()
    await worker.consumes()


async def test_busy_worker_whose_server_stands_still_is_found(own_server: RealServer, namespace: str) -> None:
    """By its heartbeat: it claims nothing."""
    async with probed(own_server.tcp_url, namespace, concurrency=1) as worker:
        await worker.concert.enqueue("hang")
        await worker.becomes("busy")
        own_server.pause()
        await worker.becomes("stuck")
        own_server.resume()
        await worker.becomes("busy")


@pytest.mark.torture
async def test_failover_is_survived(namespace: str) -> None:
    """It consumes at the new master."""
    with SentinelSet() as sentinels:
        async with probed(sentinels.url, namespace) as worker:
            await worker.consumes()
            sentinels.fail_over()
            await worker.consumes()


async def test_restarted_server_is_survived(worker: Probed, own_server: RealServer) -> None:
    """As a failover without its data: everything is registered anew."""
    own_server.kill()
    await worker.becomes("stuck")
    own_server.start()
    await worker.consumes()


async def test_flushed_server_is_survived(worker: Probed, own_server: RealServer) -> None:
    """With its scripts and all keys."""
    own_server.command("FLUSHALL")
    own_server.command("SCRIPT", "FLUSH")
    await worker.consumes()


async def test_server_without_room_for_connections_is_found(worker: Probed, own_server: RealServer) -> None:
    """It takes none back that it has lost."""
    async with only_client(own_server):
        await worker.becomes("stuck")
        assert worker.health.live().is_ok
    await worker.consumes()


@pytest.mark.parametrize("right", ["evalsha", "blpop"])
async def test_right_that_was_taken_away_is_found(own_server: RealServer, namespace: str, right: str) -> None:
    """Whether it claims with it, or waits."""
    own_server.command("ACL", "SETUSER", "shop", "on", ">secret", "~*", "&*", "+@all")
    url = own_server.tcp_url.replace("redis://", "redis://shop:secret@")
    async with probed(url, namespace) as worker:
        await worker.consumes()
        own_server.command("ACL", "SETUSER", "shop", f"-{right}", "-eval")
        report = await worker.becomes("stuck", "ended")
        own_server.command("ACL", "SETUSER", "shop", f"+{right}", "+eval")
        if report.state == "stuck":
            await worker.consumes()


async def test_blocked_loop_is_found(own_server: RealServer, namespace: str) -> None:
    """Over HTTP while it blocks; and it is well again when it turns."""
    async with probed(own_server.tcp_url, namespace) as worker:
        await worker.consumes()
        with (
            worker.health.serve("127.0.0.1", 0) as server,
            watched_from_a_thread(lambda: (get(f"{server.url}/livez")[0], get(f"{server.url}/readyz")[0])) as seen,
        ):
            await worker.concert.enqueue("block_loop", [20 * TENTH])
            await eventually(lambda: len(seen) > 1)
            await eventually(lambda: seen[-1] == (200, 200))
        assert (503, 503) in seen


async def test_places_that_hang_are_told_or_freed(own_server: RealServer, namespace: str) -> None:
    """What has a time limit is stopped; a thread cannot be; and without a limit the oldest job is told."""
    async with probed(own_server.tcp_url, namespace, concurrency=2) as worker:
        for _ in range(2):
            await worker.concert.enqueue("limited", time_limit=0.1, max_attempts=1)
        await worker.consumes()
        for _ in range(2):
            await worker.concert.enqueue("block_thread", [20 * TENTH], time_limit=0.1)
        assert "past their time limit" in (await worker.becomes("stuck")).reason
        await worker.consumes()
        for _ in range(2):
            await worker.concert.enqueue("hang")
        report = await worker.becomes("busy")
        assert (report.is_ok, report.running, report.capacity) == (True, 2, 2)
        assert "task 'hang'" in str(report.oldest_job)
        assert report.oldest_seconds is not None


async def test_deleted_keys_are_survived(worker: Probed) -> None:
    """All that there are of jobs and workers."""
    client = raw(worker.concert)
    keys = [key async for key in client.scan_iter(match="*:tasks:*")]
    assert keys
    await client.delete(*keys)
    await worker.consumes()


async def test_foreign_key_in_the_way_is_found(worker: Probed) -> None:
    """A claim is refused as long as it is there."""
    client = raw(worker.concert)
    key = worker.concert._jobs.partitions[0].queue("default").delayed
    await client.set(key, "foreign")
    await worker.becomes("stuck", "ended")


# No false alarm.


async def test_healthy_worker_is_never_found_stuck(
    own_server: RealServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither idle nor under load, nor between the two."""
    for name in LIMITS:  # a busy machine may stand still for as long as a worker sleeps at most, four times
        monkeypatch.setattr(health_module, name, getattr(health_module, name) * 2.5)
    async with probed(own_server.tcp_url, namespace, lease=10.0, timeout=5.0, concurrency=2) as worker:
        await worker.consumes()
        with watched_from_a_thread(lambda: (worker.health.live().state, worker.health.ready().is_ok)) as seen:
            await anyio.sleep(30 * TENTH)  # longer than all limits
            jobs = [await worker.concert.enqueue("echo", [number]) for number in range(500)]
            await asyncio.gather(*(job.result(timeout=30) for job in jobs))
            await anyio.sleep(30 * TENTH)
        assert seen == [("live", True)]


async def test_probes_send_nothing(worker: Probed) -> None:
    """However often they are asked."""
    client = raw(worker.concert)
    with worker.health.serve("127.0.0.1", 0) as server:
        before = await client.info("commandstats")
        for _ in range(100):
            assert worker.health.ready().is_ok
            assert worker.health.live().is_ok
            assert (await anyio.to_thread.run_sync(get, f"{server.url}/readyz"))[0] == 200
        after = await client.info("commandstats")
    calls = [scripts_run(stats) for stats in (before, after)]
    assert calls[1] - calls[0] < 30  # the worker's own: a claim every 0.2 to 0.5 s, and heartbeats


# A worker from its beginning to its end.


async def test_health_from_the_beginning_to_the_end(own_server: RealServer, namespace: str) -> None:
    """Before, while it drains, and after: alive throughout."""
    health, stop = WorkerHealth(), asyncio.Event()
    assert (health.ready().state, health.ready().is_ok, health.live().is_ok) == ("starting", False, True)
    async with Coordinator(own_server.tcp_url, namespace=namespace) as concert:
        gate = asyncio.Event()

        @concert.task(name="wait")
        async def wait() -> None:
            await gate.wait()

        await wait.enqueue()
        worker = asyncio.create_task(concert.run_worker("default", stop=stop, health=health))
        await eventually(lambda: health.ready().running == 1)
        with pytest.raises(RuntimeError, match="make one for each"):
            await concert.run_worker("default", health=health)
        stop.set()
        assert (health.ready().state, health.ready().is_ok, health.live().is_ok) == ("draining", False, True)
        gate.set()
        await worker
        assert (health.ready().state, health.ready().is_ok, health.live().is_ok) == ("ended", False, True)
        await concert.run_worker("default", burst=True, health=health)  # it may answer for another now


async def test_worker_that_has_ended_with_an_error_is_not_alive(concert: Coordinator) -> None:
    """A restart helps it."""
    health = WorkerHealth()
    worker = asyncio.create_task(concert.run_worker("default", health=health))
    await eventually(lambda: health.ready().is_ok)
    await concert.__aexit__(None, None, None)
    await asyncio.wait([worker])
    assert worker.exception() is not None
    assert (health.live().is_ok, health.live().state) == (False, "ended")
    assert "NotConnected" in health.live().reason
    await concert.__aenter__()


async def test_worker_that_starts_while_the_server_is_away_is_alive(own_server: RealServer, namespace: str) -> None:
    """And ready when the server is back."""
    health = WorkerHealth()
    async with Coordinator(own_server.tcp_url, namespace=namespace, timeout=0.5) as concert:
        own_server.pause()
        worker = asyncio.create_task(concert.run_worker("default", health=health))
        await eventually(lambda: health.live().state == "live")
        assert (health.ready().state, health.ready().is_ok) == ("starting", False)
        own_server.resume()
        await eventually(lambda: health.ready().is_ok)
        worker.cancel()
        await asyncio.wait([worker])


# The server.


def test_server_answers_what_it_has_probes_for() -> None:
    """With the state as JSON, also to HEAD; other paths are named, other methods refused."""
    with WorkerHealth().serve("127.0.0.1", 0) as server:
        status, answer = get(f"{server.url}/livez")
        assert (status, answer["state"], answer["is_ok"]) == (200, "starting", True)
        assert get(f"{server.url}/readyz")[0] == 503
        assert get(f"{server.url}/readyz", "HEAD") == (503, None)
        assert get(f"{server.url}/") == (404, {"paths": ["/livez", "/readyz"]})
        assert get_status(f"{server.url}/livez", "POST") == 501
        with pytest.raises(OSError, match="in use"), WorkerHealth().serve("127.0.0.1", urlsplit(server.url).port or 0):
            pass
    with pytest.raises(ConnectionRefusedError):
        get(f"{server.url}/livez")


def test_connections_that_say_nothing_keep_no_probe_from_its_answer() -> None:
    """The oldest of too many is ended, so that threads are few; leaving waits for none of them."""
    before = threading.active_count()
    with WorkerHealth().serve("127.0.0.1", 0) as server, ExitStack() as stack:
        address = "127.0.0.1", urlsplit(server.url).port or 0
        mute = [stack.enter_context(socket.create_connection(address)) for _ in range(4 * MOST)]
        for _ in range(5):
            assert get(f"{server.url}/livez")[0] == 200
        assert threading.active_count() - before < 2 * MOST
        assert mute[0].recv(1) == b""
        left_at = time.perf_counter()
    assert time.perf_counter() - left_at < 0.2


def test_connection_that_cannot_be_served_ends_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when there are no more threads, or no more file descriptors: it goes on with the next."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with WorkerHealth().serve("127.0.0.1", 0) as server:
        for name in "process_request", "get_request":
            with monkeypatch.context() as patch:
                patch.setattr(ThreadedServer, name, refuse if name == "process_request" else refuse_to_accept)
                with pytest.raises((OSError, http.client.HTTPException)):
                    get(f"{server.url}/livez", within=0.3)
            assert get(f"{server.url}/livez")[0] == 200


def refuse_to_accept(*_: object) -> None:
    """As the operating system does to a process with too many files."""
    raise OSError(24, "Too many open files")


def get_status(url: str, method: str) -> int:
    """The status only: the answer is a page."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=5)
    connection.request(method, parts.path)
    status = connection.getresponse().status
    connection.close()
    return status


def test_server_listens_on_ipv6_and_outlives_slow_clients() -> None:
    """Each client has a thread, so that one that says nothing holds up nobody."""
    with WorkerHealth().serve("::1", 0) as server:
        parts = urlsplit(server.url)
        mute = http.client.HTTPConnection(str(parts.hostname), parts.port)
        mute.connect()
        assert get(f"{server.url}/livez")[0] == 200
        mute.close()
