"""A script of signals whose reply was lost is sent again: each answers a second run as its TWICE line says."""

from dataclasses import dataclass

import pytest

from inconcert import Coordinator
from inconcert._core.channel_subscription import ChannelMessage, ChannelSubscription
from inconcert._redis.protocol.commands import Argument
from inconcert._redis.protocol.replies import Reply
from inconcert.signals.waiter import SignalKeys
from tests.support.raw import raw
from tests.support.scripts import command_of
from tests.support.waiters import wait_as


@dataclass(frozen=True, slots=True)
class Bench:
    """A signal for which nobody waits, and two who may, of a process that listens."""

    concert: Coordinator
    keys: SignalKeys
    inboxes: str
    me: str
    other: str

    async def run(self, verb: str, **named: Argument) -> Reply:
        """Run a script once."""
        return await self.concert._ref.session.run(command_of(f"signals/{verb}", self.keys, **named))

    async def join(self, address: str, ticket: int = 0) -> Reply:
        """Run the script that joins, for someone who waits here."""
        wait_as(self.concert._ref.session, address)
        return await self.run("join", address=address, ticket=ticket, look_ms=1000)

    async def leave(self, address: str, *, hands_on: bool = False) -> Reply:
        """Run the script that leaves."""
        return await self.run("leave", address=address, hands_on=int(hands_on), inboxes=self.inboxes)

    async def notify(self, request: str, payload: str = "7") -> Reply:
        """Run the script that notifies."""
        return await self.run("notify", request=request, payload=payload, inboxes=self.inboxes)

    async def broadcast(self, request: str, payload: str = "7") -> Reply:
        """Run the script that broadcasts."""
        return await self.run("broadcast", request=request, payload=payload, channel="channel", plain="")

    async def line(self) -> list[str]:
        """Who waits, the longest waiting first."""
        return [address.decode() for address in await raw(self.concert).zrange(self.keys.waiters, 0, -1)]

    async def handed(self) -> dict[str, str]:
        """Who has not said yet that they have what they were notified of."""
        found = await raw(self.concert).hgetall(self.keys.handed)
        return {address.decode(): payload.decode() for address, payload in found.items()}


@pytest.fixture
async def bench(any_concert: Coordinator) -> Bench:
    """See there."""
    session = any_concert._ref.session
    keys = any_concert.signal("deploy")._keys
    return Bench(any_concert, keys, session.inboxes(""), session.new_address(), session.new_address())


@pytest.mark.twice("signals/join")
async def test_second_join_has_the_same_place(bench: Bench) -> None:
    """Also of one who was taken out of the line meanwhile."""
    first = await bench.join(bench.me)
    await bench.join(bench.other)
    second = await bench.join(bench.me)
    assert (first[0], first[2]) == (0, 1)
    assert (second[0], second[1], second[2]) == (0, first[1], 0)
    await raw(bench.concert).zrem(bench.keys.waiters, bench.me)
    assert await bench.join(bench.me) == first
    assert await bench.join(bench.me, first[1]) == [0, first[1], 0, 1000]
    assert await bench.line() == [bench.me, bench.other]


@pytest.mark.twice("signals/join")
async def test_second_join_has_what_came_meanwhile(bench: Bench) -> None:
    """A notification until it is acknowledged, a broadcast for a minute; and stands in no line."""
    ticket = (await bench.join(bench.me))[1]
    await bench.join(bench.other)
    await bench.notify("request 1", "1")
    for known in (0, ticket):
        assert await bench.join(bench.me, known) == [1, b"1"]
    await bench.broadcast("request 2", "[2, 3]")
    assert await bench.join(bench.other) == [2, b"[2, 3]"]
    assert await bench.join(bench.me) == [1, b"1"]
    assert await bench.line() == []


async def test_newcomer_is_behind_the_line_and_the_last_broadcast_whatever_the_clock_says(bench: Bench) -> None:
    """It may have been set back."""
    ticket = (await bench.join(bench.me))[1] + 60_000_000
    await raw(bench.concert).zadd(bench.keys.waiters, {bench.me: ticket})
    newcomer = await bench.join(bench.other)
    assert newcomer[1] == ticket + 1
    await bench.broadcast("request")
    later = bench.concert._ref.session.new_address()
    assert (await bench.join(later))[1] == ticket + 3
    assert await bench.join(bench.other) == [2, b"7"]


@pytest.mark.twice("signals/leave")
async def test_second_leave_hands_nothing_on(bench: Bench) -> None:
    """The first did, to one."""
    third = bench.concert._ref.session.new_address()
    for address in (bench.me, bench.other, third):
        await bench.join(address)
    await bench.notify("request")
    assert [await bench.leave(bench.me, hands_on=True) for _ in range(2)] == [1, 0]
    assert await bench.handed() == {bench.other: "7"}
    assert await bench.line() == [third]
    assert [await bench.leave(bench.other) for _ in range(2)] == [0, 0]
    assert await bench.handed() == {}
    assert await bench.line() == [third]
    assert [await bench.leave(third, hands_on=True) for _ in range(2)] == [0, 0]
    assert await bench.line() == []


async def test_leave_among_the_dead_is_called_again(bench: Bench) -> None:
    """The payload stays until it is handed on, or nobody is left."""
    await bench.join(bench.me)
    await bench.notify("request")
    await raw(bench.concert).zadd(bench.keys.waiters, {f"gone.{number}": number for number in range(150)})
    await bench.join(bench.other)
    assert [await bench.leave(bench.me, hands_on=True) for _ in range(3)] == [-1, 1, 0]
    assert await bench.handed() == {bench.other: "7"}


@pytest.mark.twice("signals/notify")
async def test_second_notify_wakes_nobody_else(bench: Bench) -> None:
    """Not even if nobody waited."""
    assert await bench.notify("request 1") == 0
    await bench.join(bench.me)
    await bench.join(bench.other)
    assert await bench.notify("request 1") == 0
    assert await bench.handed() == {}
    assert [await bench.notify("request 2") for _ in range(2)] == [1, 1]
    assert await bench.handed() == {bench.me: "7"}
    assert await bench.line() == [bench.other]


@pytest.mark.twice("signals/broadcast")
async def test_second_broadcast_is_not_said(bench: Bench) -> None:
    """It answers the same, and those who came meanwhile stay in line."""
    async with ChannelSubscription(bench.concert._ref.session, "channel") as listening:
        await bench.join(bench.me)
        assert await bench.broadcast("request") == 1
        await bench.join(bench.other)
        assert await bench.broadcast("request") == 1
        await bench.broadcast("end", "8")
        said = [await listening.next() for _ in range(2)]
        assert [isinstance(each, ChannelMessage) and each.text.split()[1:] for each in said] == [
            [b"0", b"7"],
            [b"0", b"8"],
        ]


@pytest.mark.twice("signals/broadcast")
async def test_second_broadcast_leaves_those_in_line_who_came_after_the_first(bench: Bench) -> None:
    """They were not meant."""
    await bench.broadcast("request")
    await bench.join(bench.me)
    await bench.broadcast("request")
    assert await bench.line() == [bench.me]


async def test_every_key_has_an_end(bench: Bench) -> None:
    """Whatever was done."""
    for address in (bench.me, bench.other, bench.concert._ref.session.new_address()):
        await bench.join(address)
    await bench.notify("request 1")
    await bench.leave(bench.me, hands_on=True)
    keys = bench.keys
    assert {await raw(bench.concert).pttl(key) > 0 for key in (keys.waiters, keys.handed, keys.recent)} == {True}
    await bench.broadcast("request 2")
    assert 59_000 < await raw(bench.concert).pttl(keys.last) <= 60_000
