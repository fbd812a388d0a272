"""A script of mailboxes whose reply was lost is sent again: each answers a second run as its TWICE line says."""

from dataclasses import dataclass
from typing import Any

import pytest

from inconcert import Coordinator, Mailbox
from inconcert._redis.protocol.replies import Reply
from tests.support.raw import raw
from tests.support.scripts import command_of
from tests.support.waiters import wait_as

TTL_MS = 60_000


@dataclass(frozen=True, slots=True)
class Bench:
    """A mailbox and two who may fetch, of a process that listens."""

    concert: Coordinator
    mailbox: Mailbox
    inboxes: str
    me: str
    other: str

    async def run(self, verb: str, **named: Any) -> Reply:
        """Run a script once."""
        return await self.concert._ref.session.run(command_of(f"mailboxes/{verb}", self.mailbox._keys, **named))

    async def send(self, request: str, *bodies: str, most: int = 100) -> Reply:
        """Run the script that sends."""
        caps = {"max_messages": most, "max_age_ms": 0}
        return await self.run("send", request=request, **caps, inboxes=self.inboxes, bodies=bodies)

    async def fetch(self, address: str, *, ticket: int = -1, limit: int = 2) -> Reply:
        """Run the script that fetches, for someone who waits here."""
        wait_as(self.concert._ref.session, address)
        terms = {"limit": limit, "ttl_ms": TTL_MS, "max_age_ms": 0}
        return await self.run("fetch", address=address, ticket=ticket, **terms, inboxes=self.inboxes)

    async def ack(self, *ids: bytes) -> Reply:
        """Run the script that acknowledges."""
        return await self.run("ack", claim=self.me, ids=ids)

    async def withdraw(self, address: str, *, puts_back: bool = True) -> Reply:
        """Run the script that leaves the line, or puts back what was claimed."""
        return await self.run("withdraw", address=address, inboxes=self.inboxes, puts_back=int(puts_back))

    async def unread(self) -> Reply:
        """Run the script that counts."""
        return await self.run("unread", max_age_ms=0)

    async def purge(self) -> Reply:
        """Run the script that drops all."""
        return await self.run("purge", request="purge")

    async def line(self) -> list[str]:
        """Who waits, the longest waiting first."""
        return [address.decode() for address in await raw(self.concert).zrange(self.mailbox._keys.waiters, 0, -1)]

    async def state(self) -> list[object]:
        """All that is kept, but for the memory of requests."""
        client = raw(self.concert)
        keys = self.mailbox._keys
        hashes = [await client.hgetall(key) for key in (keys.messages, keys.claimed)]
        zsets = [await client.zrange(key, 0, -1, withscores=True) for key in (keys.unread, keys.claims, keys.waiters)]
        return [*hashes, await client.get(keys.dropped), *zsets]


@pytest.fixture
async def bench(any_concert: Coordinator) -> Bench:
    """See there."""
    session = any_concert._ref.session
    mailbox = any_concert.mailbox("jack451")
    return Bench(any_concert, mailbox, session.inboxes(""), session.new_address(), session.new_address())


@pytest.mark.twice("mailboxes/send")
async def test_second_send_adds_nothing(bench: Bench) -> None:
    """Also when the first one's messages are gone, and it drops nothing twice."""
    assert await bench.send("request 1", "1", "2", "3", most=2) == 0
    state = await bench.state()
    assert await bench.send("request 1", "1", "2", "3", most=2) == 0
    assert await bench.state() == state
    await bench.purge()
    assert await bench.send("request 1", "1", "2", "3", most=2) == 0
    assert await bench.unread() == 0


async def test_second_send_past_the_dead_finds_one_who_waits(bench: Bench) -> None:
    """A thousand are dropped in one step."""
    await raw(bench.concert).zadd(bench.mailbox._keys.waiters, {f"gone.{number}": number for number in range(1500)})
    await bench.fetch(bench.me, ticket=0)
    assert [await bench.send("request", "1") for _ in range(3)] == [1, 0, 0]
    assert await bench.unread() == 1
    assert await bench.line() == [bench.me]


async def test_line_of_one_process_that_stands_still_hides_no_other(bench: Bench) -> None:
    """However many of it are first in line: the next process is told to look in 2 s."""
    client, waiters = raw(bench.concert), bench.mailbox._keys.waiters
    await client.zadd(waiters, {f"still.{number}": number for number in range(250)})
    await client.zadd(waiters, {"other.1": 1000})
    pubsub = client.pubsub()
    await pubsub.subscribe(f"{bench.inboxes}still", f"{bench.inboxes}other")
    assert await bench.send("request", "1") == 0
    heard: list[bytes] = []
    while len(heard) < 2:
        if (message := await pubsub.get_message(timeout=5)) and message["type"] == "message":
            heard.append(message["data"])
    await pubsub.aclose()
    await client.delete(waiters)
    assert [text.rpartition(b" ")[0] for text in heard] == [b"still.0 mailbox 0", b"other.1 mailbox 2000"]


@pytest.mark.twice("mailboxes/fetch")
async def test_second_fetch_has_the_same_messages(bench: Bench) -> None:
    """As long as they are claimed; one whose claim has lapsed claims anew."""
    await bench.send("request", "1", "2", "3", most=2)
    first = await bench.fetch(bench.me)
    state = await bench.state()
    assert await bench.fetch(bench.me) == first
    assert await bench.state() == state
    assert (first[:2], first[3], first[5]) == ([1, 1], b"0 2", b"0 3")

    await raw(bench.concert).zadd(bench.mailbox._keys.claims, {bench.me: 1})
    again = await bench.fetch(bench.me)
    assert (again[:2], again[3], again[5]) == ([1, 1], b"1 2", b"1 3")
    await raw(bench.concert).zadd(bench.mailbox._keys.claims, {bench.me: 1})
    assert (await bench.fetch(bench.other))[3] == b"2 2"
    assert (await bench.fetch(bench.me))[0] == 0


@pytest.mark.twice("mailboxes/fetch")
async def test_second_fetch_has_the_same_place_in_line(bench: Bench) -> None:
    """Also of one who was dropped from it meanwhile, if it knows its ticket."""
    first = await bench.fetch(bench.me, ticket=0)
    await bench.fetch(bench.other, ticket=0)
    assert (first[0], first[2], first[3]) == (0, 1, 1_800_000)
    for ticket in (0, first[1]):
        assert await bench.fetch(bench.me, ticket=ticket) == [0, first[1], 0, 1_800_000]
    await raw(bench.concert).zrem(bench.mailbox._keys.waiters, bench.me)
    assert await bench.fetch(bench.me, ticket=first[1]) == first
    assert await bench.line() == [bench.me, bench.other]


async def test_newcomer_is_behind_the_line_whatever_the_clock_says(bench: Bench) -> None:
    """It may have been set back."""
    ticket = (await bench.fetch(bench.me, ticket=0))[1] + 60_000_000
    await raw(bench.concert).zadd(bench.mailbox._keys.waiters, {bench.me: ticket})
    assert (await bench.fetch(bench.other, ticket=0))[1] == ticket + 1


@pytest.mark.twice("mailboxes/ack")
async def test_second_ack_changes_nothing(bench: Bench) -> None:
    """Of all, or of a part."""
    await bench.send("request", "1", "2", "3")
    reply = await bench.fetch(bench.me, limit=3)
    ids = reply[2::2]
    assert await bench.ack(ids[1]) == 1
    state = await bench.state()
    assert await bench.ack(ids[1]) == 0
    assert await bench.state() == state
    assert [await bench.ack(*ids) for _ in range(2)] == [2, 0]
    assert await bench.state() == [{}, {}, None, [], [], []]
    await bench.send("another", "4")
    assert (await bench.fetch(bench.me))[0] == 0  # it is over


@pytest.mark.twice("mailboxes/withdraw")
async def test_second_withdrawal_changes_nothing(bench: Bench) -> None:
    """The messages are back in their places, and that is no attempt; or the line was left."""
    await bench.send("request", "1", "2", "3", "4", most=3)
    before = await bench.state()
    await bench.fetch(bench.me)
    assert [await bench.withdraw(bench.me) for _ in range(2)] == [2, 0]
    assert await bench.state() == before
    assert await bench.fetch(bench.me, ticket=0) == [0, -1, 0, 1_800_000]  # it is over
    assert await bench.state() == before
    await bench.fetch(bench.other)
    claimed = await bench.state()
    assert [await bench.withdraw(bench.other, puts_back=False) for _ in range(2)] == [0, 0]
    assert await bench.state() == claimed
    await bench.purge()
    third = bench.concert._ref.session.new_address()
    await bench.fetch(third, ticket=0)
    assert [await bench.withdraw(third) for _ in range(2)] == [0, 0]
    assert await bench.state() == [{}, {}, None, [], [], []]


@pytest.mark.twice("mailboxes/unread")
async def test_second_count_is_the_same(bench: Bench) -> None:
    """What lapsed claims held is back after the first."""
    await bench.send("request", "1", "2", "3")
    await bench.fetch(bench.me)
    await raw(bench.concert).zadd(bench.mailbox._keys.claims, {bench.me: 1})
    assert await bench.unread() == 3
    state = await bench.state()
    assert await bench.unread() == 3
    assert await bench.state() == state


@pytest.mark.twice("mailboxes/purge")
async def test_second_purge_drops_nothing(bench: Bench) -> None:
    """Not even what was sent since."""
    await bench.send("request", "1", "2")
    await bench.fetch(bench.me, limit=1)
    assert await bench.purge() == 2
    assert await bench.state() == [{}, {}, None, [], [], []]
    await bench.send("another", "3")
    assert await bench.purge() == 2
    assert await bench.unread() == 1
