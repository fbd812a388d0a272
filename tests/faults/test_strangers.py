"""What strangers publish on our channels: it is passed over, and no connection ends with it."""

import asyncio
import logging
from typing import Any

import anyio
import pytest

from inconcert import Coordinator
from tests.support.channels import session_of
from tests.support.eventually import eventually
from tests.support.inner import broadcasts_of, wake_ups_of
from tests.support.raw import raw

GARBAGE = [
    b"",
    b" ",
    b"\xff\xfe",
    b"hello",
    b"hello world",
    b"1 2 3",
    b"-1",
    b"1e9 nan",
    b"9" * 5000,
    b"{}",
    b'1 2 {"not json',
    b"mailbox",
    b"signal",
    b"room",
    b"permit",
    b"permit 1 2 3",
]


async def test_garbage_ends_no_connection_and_no_wait(concert: Coordinator, caplog: pytest.LogCaptureFixture) -> None:
    """On the inbox, for those who wait and for nobody, and on all channels that somebody listens to."""
    session = session_of(concert)
    caplog.set_level(logging.WARNING)
    held = await concert.lock("door", ttl=30).acquire()
    reading = await concert.rwlock("page", ttl=30).write().acquire()
    full = concert.queue("full", maxsize=1)
    await full.put("first")
    waiting: list[asyncio.Task[Any]] = [
        asyncio.create_task(concert.lock("door").acquire()),
        asyncio.create_task(concert.rwlock("page").read().acquire()),
        asyncio.create_task(concert.mailbox("post").fetch(timeout=None)),
        asyncio.create_task(full.put("second", timeout=None)),
        asyncio.create_task(concert.event("go").wait()),
        asyncio.create_task(concert.latch("open", 1).wait()),
    ]
    await eventually(lambda: len(session.inbox._receivers) >= 4)
    await eventually(lambda: sum(topic.is_confirmed for topic in broadcasts_of(session)._channels.values()) >= 2)
    wires = wake_ups_of(session)._wire, broadcasts_of(session)._wire
    addresses = [address.encode() for address in session.inbox._receivers]
    for garbage in GARBAGE:
        for address in [*addresses, f"{session.id}.999".encode(), b"nobody"]:
            await raw(concert).publish(session.inbox._channel, address + b" " + garbage)
        await raw(concert).publish(session.inbox._channel, garbage)
        for channel in list(broadcasts_of(session)._channels):
            await raw(concert).publish(channel, garbage)
    await held.release()
    await reading.release()
    await concert.mailbox("post").send("hello")
    async for delivery in full:
        await delivery.ack()
        break
    await concert.event("go").set()
    await concert.latch("open", 1).count_down()
    with anyio.fail_after(10):
        outcomes = await asyncio.gather(*waiting)
    for lease in outcomes[:2]:
        await lease.release()
    assert (wake_ups_of(session)._wire, broadcasts_of(session)._wire) == wires
    assert "foreign message" in caplog.text


async def test_garbage_that_comes_before_the_reply_is_passed_over(concert: Coordinator) -> None:
    """It is kept until the place in line is known, and is no message then either."""
    session = session_of(concert)
    held = await concert.lock("door", ttl=30).acquire()
    waiting = asyncio.create_task(concert.lock("door").acquire())
    await asyncio.sleep(0)
    [address] = session.inbox._receivers
    [topic] = wake_ups_of(session)._channels.values()
    topic.dispatch(topic.name, f"{address} garbage".encode())
    await eventually(concert.lock("door").waiters)
    await held.release()
    with anyio.fail_after(5):
        await (await waiting).release()
