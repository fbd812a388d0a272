"""What a body has done is sent until the server answers or the claim is lost, however long that takes."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, JobStatus, current_job, durable
from inconcert import durable as durable_module
from inconcert._redis.wire import channel as channel_module
from tests.support.background import in_background
from tests.support.channels import session_of
from tests.support.eventually import eventually
from tests.support.inner import channel_of
from tests.support.jobs import status
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease

LEASE = 1.0  # seconds of a heartbeat, here: behind each, what was not confirmed is sent again
WITHIN = 20.0  # seconds

Effect = Callable[[Callable[[], object]], Awaitable[None]]


def fill(own: RealServer, *, is_full: bool = True) -> None:
    """Let a server refuse what needs memory, or not any more."""
    own.command("CONFIG", "SET", "maxmemory", int(is_full))


async def step(note: Callable[[], object]) -> None:
    """A coroutine function is a step."""

    async def run() -> None:
        note()

    await durable.step("one", run)


async def plain_step(note: Callable[[], object]) -> None:
    """A plain function is a step, in its thread."""

    def run() -> None:
        note()

    await durable.step("one", run)


async def block(note: Callable[[], object]) -> None:
    """A block is entered that has something to undo."""
    note()
    async with durable.undo():
        pass


async def loop(note: Callable[[], object]) -> None:
    """A loop comes to its end."""
    async for _ in durable.each("items", [1], key=lambda item: item):
        note()


EFFECTS = [step, plain_step, block, loop]


@pytest.mark.parametrize("effect", EFFECTS)
async def test_full_server_gets_what_was_done_once_it_has_room(
    namespace: str, caplog: pytest.LogCaptureFixture, effect: Effect
) -> None:
    """The attempt goes on then: nothing is done twice."""
    did: list[int] = []
    with RealServer() as own:
        async with with_lease(Coordinator(own.tcp_url, namespace=namespace), LEASE) as concert:

            def note() -> None:
                did.append(1)
                fill(own)

            @concert.task(max_attempts=1)
            async def body() -> int:
                await durable.now()  # what was kept is read
                await effect(note)
                return current_job().attempt

            async with in_background(concert.run_worker("default")):
                job = await body.enqueue()
                await eventually(lambda: "may not be kept yet" in caplog.text, timeout=WITHIN)
                fill(own, is_full=False)
                assert await job.result(timeout=WITHIN) == 1
    assert did == [1]
    assert f"of job {job.id} attempt 1" in caplog.text


@pytest.mark.parametrize("effect", EFFECTS)
async def test_what_a_lost_worker_has_done_is_not_kept(
    namespace: str, caplog: pytest.LogCaptureFixture, effect: Effect
) -> None:
    """Its body ends, also one that waits for a thread."""
    ended: list[BaseException] = []
    with RealServer() as own:
        async with with_lease(Coordinator(own.tcp_url, namespace=namespace), LEASE) as concert:
            [keys] = concert._jobs.partitions
            client: Any = raw(concert)
            await concert.enqueue("t")
            async with concert.consume("default") as jobs:
                async with await anext(jobs):
                    await durable.now()
                    try:
                        async with asyncio.TaskGroup() as group:
                            running = group.create_task(_awaited(effect, partial(fill, own)))
                            await eventually(lambda: "may not be kept yet" in caplog.text, timeout=WITHIN)
                            for key in (keys.workers, keys.alive):
                                await client.zrem(key, *await client.zrange(key, 0, -1))
                            await running
                    except BaseException as error:
                        ended.append(error)
                        raise
                fill(own, is_full=False)
            assert not await client.hlen(keys.stepped) or await client.hlen(keys.steps) == 1  # of durable.now()
    assert ended


async def _awaited(effect: Effect, note: Callable[[], object]) -> None:
    await effect(note)


async def test_full_server_does_not_keep_a_plain_step_running_that_is_stopped(
    namespace: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job is given back after 10 s, as a worker that stops needs it."""
    monkeypatch.setattr(durable_module, "_LONGEST_COMMIT", 0.1)
    with RealServer() as own:
        async with with_lease(Coordinator(own.tcp_url, namespace=namespace), LEASE) as concert:

            @concert.task(max_attempts=1)
            async def body() -> None:
                await durable.now()
                await plain_step(partial(fill, own))

            job = await body.enqueue()
            async with in_background(concert.run_worker("default")):
                await eventually(lambda: "may not be kept yet" in caplog.text, timeout=WITHIN)
            fill(own, is_full=False)
            await status(concert, job, JobStatus.QUEUED)


async def test_stopped_plain_step_is_kept_though_its_thread_ends_later(concert: Coordinator) -> None:
    """The bound of its commit begins when it has returned."""
    may_end = threading.Event()
    is_running = anyio.Event()

    @concert.task(max_attempts=1)
    async def body() -> str:
        def run() -> str:
            anyio.from_thread.run_sync(is_running.set)
            may_end.wait(WITHIN)
            return "kept"

        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(durable.step, "one", run)
                await is_running.wait()
                scope.cancel()
                asyncio.get_running_loop().call_later(0.05, may_end.set)
        return await durable.step("one", run)

    async with in_background(concert.run_worker("default")):
        assert await (await body.enqueue()).result(timeout=WITHIN) == "kept"


async def test_large_steps_wait_for_room_and_are_not_given_up_meanwhile(
    proxy: Proxy, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As what others send: the time of a call does not run while it waits in its process."""
    monkeypatch.setattr(channel_module, "_MOST_LARGE_BYTES", 100_000)
    ran: list[int] = []
    async with Coordinator(proxy.url, namespace=namespace) as concert:
        channel = channel_of(session_of(concert))

        async def large(number: int) -> str:
            ran.append(number)
            if len(ran) == 1:
                proxy.hold_replies()
            return "x" * 50_000

        @concert.task(max_attempts=1)
        async def body(number: int) -> None:
            await durable.now()
            await is_ready.wait()
            await durable.step("large", large, number)

        is_ready = asyncio.Barrier(20)
        async with in_background(concert.run_worker("default", concurrency=20)):
            jobs = await concert.enqueue_many([body.call(number) for number in range(20)])
            await eventually(lambda: len(ran) == 20, timeout=WITHIN)
            await eventually(lambda: bool(channel._room.lines), timeout=WITHIN)
            assert channel._bytes < 200_000
            proxy.release_replies()
            for job in jobs:
                await job.result(timeout=WITHIN)
    assert sorted(ran) == list(range(20))
