"""A coordinator whose event loop was closed under it, and its driver's client on the loop of another thread."""

import asyncio
import gc
import logging
from collections.abc import Callable
from typing import Any, cast

import pytest

from inconcert import Coordinator, Job, NotConnected
from inconcert._redis.wire import channel as channel_module
from tests.support.channels import session_of
from tests.support.servers import RealServer

MAKES: dict[str, Callable[[RealServer], Coordinator]] = {
    "url": lambda server: Coordinator(server.url),
    "embedded": lambda _: Coordinator.embedded(),
}


def leave_open(concert: Coordinator) -> None:
    """Open it on a loop that is closed before the coordinator is."""

    async def never_exit() -> None:
        await concert.__aenter__()
        await concert.lock("left").acquire()

    asyncio.run(never_exit())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", MAKES)
def test_coordinator_of_a_dead_loop_can_be_opened_again(server: RealServer, kind: str) -> None:
    """As often as it happens; what was held lapses by itself."""
    concert = MAKES[kind](server)

    async def use() -> None:
        with pytest.raises(NotConnected):
            await concert.lock("b").acquire()
        async with concert:
            assert await concert.lock("left").locked()
            async with concert.lock("b", timeout=5):
                await cast("Any", concert.redis).ping()
            await concert.release_by_force("lock", "left")

    for _ in range(2):
        leave_open(concert)
        asyncio.run(use())
    gc.collect()  # the sockets of the dead loop, whose warnings are not for other tests


@pytest.mark.filterwarnings("ignore")
def test_coordinator_of_a_dead_loop_can_be_closed(server: RealServer) -> None:
    """There is nothing to close on it any more; then it can be opened."""
    concert = Coordinator(server.url)
    leave_open(concert)

    async def close() -> None:
        await concert.__aexit__(None, None, None)
        async with concert:
            await concert.ping()
            await concert.release_by_force("lock", "left")

    asyncio.run(close())
    gc.collect()


@pytest.mark.filterwarnings("ignore")
def test_jobs_of_a_dead_loop_do_not_let_others_pass_when_there_is_no_room(
    server: RealServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were to be sent at the end of a turn that their loop did not finish."""
    concert = Coordinator(server.url, namespace=namespace)

    @concert.task
    async def task() -> None: ...

    async def stop_in_a_turn() -> None:
        await concert.__aenter__()
        jobs = [asyncio.create_task(task.enqueue()) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(job.done() for job in jobs)
        raise SystemExit

    async def enqueue() -> None:
        async with concert:
            channel, most, jobs = session_of(concert).channel, 0, list[asyncio.Task[Job[None]]]()
            monkeypatch.setattr(channel_module, "_MOST_CALLS", 1)
            for _ in range(20):
                jobs.append(asyncio.create_task(task.enqueue()))
                await asyncio.sleep(0)
                most = max(most, len([*channel.under_way()]))
            await asyncio.gather(*jobs)
            await concert.run_worker("default", burst=True)
            assert most == 2

    loop = asyncio.new_event_loop()
    with pytest.raises(SystemExit):
        loop.run_until_complete(stop_in_a_turn())
    loop.close()
    asyncio.run(enqueue())
    gc.collect()  # as above


async def test_client_of_the_driver_is_refused_on_another_loop(concert: Coordinator) -> None:
    """Its connections would belong to that one, and fail to close on their own."""

    async def use() -> None:
        await cast("Any", concert.redis).ping()

    with pytest.raises(NotConnected, match="another event loop"):
        await asyncio.to_thread(asyncio.run, use())
    with pytest.raises(NotConnected, match="another event loop"):
        await asyncio.to_thread(lambda: concert.redis)
    await cast("Any", concert.redis).ping()


async def test_closing_does_not_mask_what_the_body_did(
    server: RealServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that was kept, and used on another loop, has a connection that cannot be closed, as the log says."""

    async def fail() -> None:
        async with Coordinator(server.url) as concert:
            client = concert.redis
            close = client.aclose

            async def closed() -> None:
                await close()
                raise RuntimeError("Event loop is closed")

            monkeypatch.setattr(client, "aclose", closed)
            raise LookupError("of the body")

    with caplog.at_level(logging.WARNING, "inconcert"), pytest.raises(LookupError, match="of the body"):
        await fail()
    assert "a connection could not be closed" in caplog.text
