"""A producer without an event loop, on a bad network, across forks, and on servers that go away."""

import asyncio
import logging
import os
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import quote

import pytest

from inconcert import Coordinator, InconcertError, JobStatus, OutcomeUnknown, SyncProducer, Unavailable, WrongState
from inconcert._redis.blocking.blocking_wire import BlockingWire
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.sentinels import SentinelSet
from tests.support.servers import RealServer, free_port

pytestmark = pytest.mark.one_server("cuts the connection to it, or kills it")

PASSWORD = "pass&word of the-test"
PART = "the-test"


@pytest.fixture
async def behind_proxy(proxy: Proxy, namespace: str) -> AsyncIterator[SyncProducer]:
    """A producer that is connected through a bad network."""
    with SyncProducer(proxy.url, namespace=namespace, timeout=2.0) as producer:
        await asyncio.to_thread(producer.enqueue, "first", queue="other")
        yield producer


async def count(concert: Coordinator, queue: str = "q") -> int:
    """How many jobs are in a queue."""
    return (await concert.tasks.stats(queue)).queues[queue].ready


async def test_job_whose_reply_was_lost_is_enqueued_once(
    concert: Coordinator, proxy: Proxy, behind_proxy: SyncProducer
) -> None:
    """It is sent again with the same id, on a new connection; and so is an item and a message."""
    waiting = await concert.enqueue("t", queue="elsewhere")
    sent: list[bool] = []
    for send in (
        lambda: behind_proxy.enqueue("t", queue="q"),
        lambda: behind_proxy.put("q", 1),
        lambda: behind_proxy.send("m", 1),
        lambda: sent.append(behind_proxy.send_to_job(waiting.id, "packed", 1)),
    ):
        opened = proxy.opened
        proxy.cut_after_replies(0, lose_next=True)
        await asyncio.to_thread(send)
        assert proxy.opened == opened + 1
    assert await count(concert) == 1
    assert await concert.queue("q").size() == 1
    assert await concert.mailbox("m").unread() == 1
    assert sent == [True]


async def test_connection_that_died_while_idle_is_replaced(
    concert: Coordinator, proxy: Proxy, behind_proxy: SyncProducer
) -> None:
    """Without an error, and without a pause."""
    proxy.cut()
    began = time.monotonic()
    assert (await asyncio.to_thread(behind_proxy.enqueue, "t", queue="q")).created
    assert time.monotonic() - began < 1.0
    assert await count(concert) == 1


async def test_server_without_the_scripts_is_given_them(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """As after a restart: the source goes with the call."""
    with SyncProducer(server.url, namespace=namespace) as producer:
        await asyncio.to_thread(producer.enqueue, "t", queue="q")
        await raw(concert).script_flush()
        await asyncio.to_thread(producer.enqueue, "t", queue="q")
    assert await count(concert) == 2


def test_server_that_is_not_there_is_reported_at_once() -> None:
    """The first connection must succeed: more likely the address is wrong."""
    began = time.monotonic()
    producer = SyncProducer(f"redis://127.0.0.1:{free_port()}/0")
    with producer, pytest.raises(Unavailable, match="could not be reached"):
        producer.enqueue("t")
    assert time.monotonic() - began < 2.0


async def test_server_that_is_silent_is_reported_in_time(proxy: Proxy, behind_proxy: SyncProducer) -> None:
    """The outcome is unknown to the call that was sent; the threads behind it have not sent anything."""
    errors: list[InconcertError] = []
    began = time.monotonic()

    def call() -> None:
        try:
            behind_proxy.enqueue("t")
        except InconcertError as error:
            errors.append(error)

    proxy.hold_replies()
    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert time.monotonic() - began < 3.5  # the timeout of 2 s, and a new connection that is silent, too
    assert sorted(type(error).__name__ for error in errors) == ["OutcomeUnknown", "Unavailable", "Unavailable"]
    proxy.release_replies()
    assert (await asyncio.to_thread(behind_proxy.enqueue, "t")).created


async def test_server_that_went_away_is_waited_for(own_server: RealServer) -> None:
    """Until the timeout: nothing was sent; and one that comes back in time is not noticed."""
    with SyncProducer(own_server.tcp_url, timeout=1.0) as producer:
        await asyncio.to_thread(producer.enqueue, "t")
        own_server.stop()
        with pytest.raises((Unavailable, OutcomeUnknown), match=r"task queue 'default': enqueue was not .* within 1 s"):
            await asyncio.to_thread(producer.enqueue, "t")
    with SyncProducer(own_server.tcp_url, timeout=20.0) as producer:
        own_server.start()
        await asyncio.to_thread(producer.enqueue, "t")
        own_server.stop()
        waiting = asyncio.create_task(asyncio.to_thread(producer.enqueue, "t"))
        await asyncio.sleep(0.2)
        own_server.start()
        assert (await waiting).created


async def test_result_is_told_after_its_connection_was_lost(
    concert: Coordinator, proxy: Proxy, behind_proxy: SyncProducer
) -> None:
    """It subscribes again, and looks."""
    may_end = asyncio.Event()

    @concert.task(name="held")
    async def held() -> int:
        await may_end.wait()
        return 7

    job = await asyncio.to_thread(behind_proxy.enqueue, "held")
    waiting = asyncio.create_task(asyncio.to_thread(behind_proxy.result, job.id, timeout=20.0))
    await eventually(lambda: raw(concert).zcard(concert._jobs.of_id(job.id).watchers))
    opened = proxy.opened
    proxy.cut()
    await eventually(lambda: _fact(proxy.opened >= opened + 2))
    async with in_background(concert.run_worker("default")):
        may_end.set()
        assert await waiting == 7


async def _fact(value: bool) -> bool:
    return value


async def test_interrupted_call_leaves_no_reply_behind(
    concert: Coordinator, server: RealServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was interrupted while it waited, such as by Ctrl-C: the next call must not get its reply."""
    with SyncProducer(server.url, namespace=namespace) as producer:
        taken = producer.enqueue("t", queue="q", unique="taken")
        read = BlockingWire.read
        monkeypatch.setattr(BlockingWire, "read", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.enqueue("t", queue="q", unique="taken")
        monkeypatch.setattr(BlockingWire, "read", read)
        assert producer.enqueue("t", queue="q").id != taken.id
    assert await count(concert) == 2


def _interrupted(wire: BlockingWire, until: float) -> Any:
    raise KeyboardInterrupt


async def test_fork_connects_by_itself(concert: Coordinator, server: RealServer, namespace: str) -> None:
    """With ids of its own; the connection of the parent is untouched, and what was prepared there may be sent."""
    with SyncProducer(server.url, namespace=namespace) as producer:
        mine = [producer.enqueue("t", queue="q").id]
        prepared = producer.prepare("t", queue="q")

        def in_child() -> str:
            prepared.enqueue()
            ids = " ".join(producer.enqueue("t", queue="q").id for _ in range(20))
            producer.close()
            return ids

        theirs = (await asyncio.to_thread(_in_fork, in_child)).split()
        mine += [producer.enqueue("t", queue="q").id for _ in range(20)]
    assert len({*mine, *theirs, prepared.id}) == 42
    assert await count(concert) == 42
    assert await concert.tasks.job(theirs[-1]).status() is JobStatus.QUEUED


def _in_fork(work: Callable[[], str]) -> str:
    """What this returns in a fork of this process."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(writer, work().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        said = file.read()
    os.waitpid(pid, 0)
    return said


async def test_key_of_another_program_is_reported(concert: Coordinator, server: RealServer, namespace: str) -> None:
    """With what to do; nothing was changed."""
    await raw(concert).set(concert._jobs.partitions[0].queue("q").queue, "foreign")
    with SyncProducer(server.url, namespace=namespace) as producer, pytest.raises(WrongState, match="another type"):
        await asyncio.to_thread(producer.enqueue, "t", queue="q")
    await raw(concert).delete(concert._jobs.partitions[0].queue("q").queue)


async def test_failover_of_sentinels_is_followed() -> None:
    """The next call asks for the master again."""
    with SentinelSet() as sentinels, SyncProducer(sentinels.url, timeout=20.0) as producer:
        await asyncio.to_thread(producer.enqueue, "t", queue="q")
        await asyncio.to_thread(sentinels.fail_over)
        await asyncio.to_thread(sentinels.settle)  # what an old master takes in its last moments is lost
        job = await asyncio.to_thread(producer.enqueue, "t", queue="q")
        async with Coordinator(sentinels.url) as concert:
            assert await concert.tasks.job(job.id).status() is JobStatus.QUEUED


@pytest.mark.parametrize("password", [PASSWORD, f"wrong {PART}"])
def test_no_secret_is_shown(password: str, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in an error with its causes, nor in a log or a repr."""
    shown: list[str] = []
    with RealServer(requirepass=PASSWORD) as server, caplog.at_level(logging.DEBUG):
        url = f"redis://default:{quote(password, safe='')}@127.0.0.1:{server.port}/0"
        with SyncProducer(url, timeout=0.5, signing_keys={"now": f"signing key of {PART}"}) as producer:
            private: list[object] = [producer._key_ring, producer._parts]
            shown += map(repr, [producer, producer.prepare("t"), *private])
            for is_there in (True, False):
                if not is_there:
                    server.stop()
                try:
                    producer.enqueue("t")
                except (Unavailable, OutcomeUnknown) as error:
                    shown.append("".join(traceback.format_exception(error)))
    assert len(shown) > 4
    assert PART not in "".join([*shown, caplog.text])
