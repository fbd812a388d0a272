"""A connection that is lost at the worst moments, and again and again: it comes back, and work goes on."""

import asyncio
import time
from functools import partial
from typing import Any

import anyio
import pytest

from inconcert import Coordinator
from inconcert._core.renewal import Renewal
from inconcert._redis.wire.wire import Wire, _TransportWire
from tests.support.background import again_and_again
from tests.support.channels import echo, session_of
from tests.support.eventually import eventually
from tests.support.inner import bells_of, broadcasts_of, channel_of
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import RealServer


class _HungUp:
    """A transport of uvloop's between the hang-up of the peer and the moment in which it tells us of it."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        del data
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def hang_up(wire: Wire | None) -> None:
    """Let the next write to this wire fail as uvloop lets it fail."""
    assert isinstance(wire, _TransportWire)
    wire._transport = _HungUp(wire._transport)  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]


async def test_write_after_the_peer_has_hung_up_is_a_lost_connection(concert: Coordinator) -> None:
    """On whichever connection: no caller gets the transport's error, and what it sent is sent again."""
    session = session_of(concert)
    await echo(session, "well")
    hang_up(channel_of(session)._wire)
    await asyncio.gather(*(echo(session, str(number)) for number in range(100)))

    event = concert.event("go")
    waiting = asyncio.create_task(event.wait())
    await eventually(lambda: any(topic.listeners for topic in broadcasts_of(session)._channels.values()))
    hang_up(broadcasts_of(session)._wire)
    other = asyncio.create_task(concert.event("other").wait())
    await asyncio.gather(event.set(), concert.event("other").set())
    await asyncio.gather(waiting, other)

    getting = asyncio.create_task(concert.queue("work").get())
    await eventually(lambda: bells_of(session)._covered)
    hang_up(bells_of(session)._wire)
    await concert.queue("work").put("item")
    await (await getting).ack()


async def test_connecting_goes_on_whatever_error_the_first_write_meets(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the next try is made."""
    session = session_of(concert)
    errors: list[Exception] = [RuntimeError("not foreseen"), ZeroDivisionError("neither")]
    connected = channel_of(session).connected

    def fail_at_first(wire: Wire) -> None:
        if errors:
            raise errors.pop()
        connected(wire)

    monkeypatch.setattr(session.channel, "connected", fail_at_first)
    channel_of(session)._link.drop(ConnectionError("cut"))
    with anyio.fail_after(5):
        await echo(session, "well again")
    assert "not foreseen" in caplog.text
    assert "neither" in caplog.text


async def test_lease_that_cannot_be_renewed_keeps_no_other_from_it(caplog: pytest.LogCaptureFixture) -> None:
    """Nor itself from being lost at its time."""

    class Kept:
        def __init__(self, holder: str, error: Exception | None) -> None:
            now = time.monotonic()
            self.kind, self.name, self.holder = "lock", "a", holder
            self.deadline = now + 0.2
            self.renew_at = now + 0.05
            self._error = error
            self.is_renewed = False
            self.is_lost = False

        def start_renewal(self) -> None:
            self.renew_at = self.deadline
            self.is_renewed = True
            if self._error is not None:
                raise self._error

        def lose(self) -> None:
            self.is_lost = True

        def give_up(self) -> None:
            """Nothing holds it."""

    renewal = Renewal()
    leases = [Kept("1", RuntimeError("no write")), Kept("2", None)]
    for lease in leases:
        renewal.add(lease)
    await eventually(lambda: all(lease.is_renewed for lease in leases))
    await eventually(lambda: all(lease.is_lost for lease in leases))
    assert "no write" in caplog.text
    renewal.close()


@pytest.mark.parametrize("replies", [4, 5], ids=["the handshake", "one command of ours"])
async def test_connection_that_breaks_at_once_again_and_again_is_not_stormed(
    own_server: RealServer, replies: int
) -> None:
    """Also when each is accepted, and even when it answers first."""
    async with Proxy(own_server.tcp_url) as proxy, Coordinator(proxy.url, timeout=1.5) as concert:
        await echo(session_of(concert), "well")
        proxy.cut_after_replies(replies, each=True)
        proxy.cut()
        await anyio.sleep(1.5)
        assert proxy.opened < 40


async def test_connection_that_had_answered_is_replaced_at_once(proxy: Proxy) -> None:
    """However short its life was: ten in a row take little more than ten times their own time."""
    async with Coordinator(proxy.url) as concert:
        session = session_of(concert)
        began = time.monotonic()

        def has_opened(count: int) -> bool:
            return proxy.opened >= count

        for number in range(10):
            await echo(session, str(number))
            await anyio.sleep(0.1)
            opened = proxy.opened
            proxy.cut()
            await eventually(partial(has_opened, opened + 1))
        await echo(session, "well")
        assert time.monotonic() - began < 2.5


async def test_connection_of_bells_answers_although_no_bell_rings(concert: Coordinator) -> None:
    """So it is replaced at once, too."""
    bells = bells_of(session_of(concert))
    getting = asyncio.create_task(concert.queue("empty").get())
    await eventually(lambda: bells._link is not None and bells._link._wire is not None)
    assert bells._link is not None
    wire = bells._link._wire
    await eventually(lambda: wire is not None and wire.has_answered)
    getting.cancel()


async def test_work_is_done_while_all_connections_are_cut_all_the_time(own_server: RealServer, namespace: str) -> None:
    """1,000 jobs of 30 ms, run by two workers with 25 places: within four times what an ideal network needs."""
    async with (
        Coordinator(own_server.tcp_url, namespace=namespace) as one,
        Coordinator(own_server.tcp_url, namespace=namespace) as two,
        Coordinator(own_server.url) as admin,
    ):
        done: set[int] = set()

        async def work(number: int) -> None:
            await anyio.sleep(0.03)
            done.add(number)

        task, _ = one.task(name="work")(work), two.task(name="work")(work)

        async def cut() -> None:
            for kind in "NORMAL", "PUBSUB":
                await raw(admin).execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "YES")

        async with again_and_again(cut, every=0.15) as times, anyio.create_task_group() as group:
            began = time.monotonic()
            for concert in (one, two):
                group.start_soon(partial(concert.run_worker, "default", concurrency=25))
            for first in range(0, 1000, 10):
                group.start_soon(one.enqueue_many, [task.call(number) for number in range(first, first + 10)])
            await eventually(lambda: len(done) == 1000)
            assert time.monotonic() - began < 2.5
            group.cancel_scope.cancel()
        assert times[0] > 2
